//! What every page of a backtest is written into: one file that fetches nothing, light and dark, readable on a phone.

use maud::{DOCTYPE, Markup, PreEscaped, html};

const STYLE: &str = include_str!("style.css");

/// The whole page; `more_style` is what this page has besides the others.
pub(super) fn document(title: &str, more_style: &str, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                style { (PreEscaped(STYLE)) (PreEscaped(more_style)) }
            }
            body { (body) }
        }
    };
    page.into_string()
}
