//! A lesson as one self-contained page. Its picture is a drawing that also stands alone: all runs on the same axes, so
//! that they can be compared by eye.

use maud::{Markup, PreEscaped, html};

use super::document::document;
use crate::backtest::lessons::Told;

mod drawing;

/// What the page of a backtest doesn't have.
const MORE_STYLE: &str = ".see{font-size:1.05rem;margin:.6rem 0}.untrue{color:var(--late)}.lesson{display:block;max-width:100%;height:auto}";

impl Told {
    /// The page. The same lesson gives the same bytes.
    #[must_use]
    pub fn page(&self) -> String {
        let body = html! {
            h1 { "Lesson: " (self.lesson) }
            p { (self.setting) }
            h2 { "What to see" }
            @for claim in &self.see {
                p.see.untrue[!claim.holds] { (claim.told()) }
            }
            (PreEscaped(self.drawing()))
            h2 { "The numbers" }
            (self.table())
            h2 { "What it leaves out" }
            p { (self.left_out) }
            p.muted { "keda-vllm-scaler backtest lesson " (self.lesson) " --seed " (self.seed) }
        };
        document(&format!("Lesson: {}", self.lesson), MORE_STYLE, &body)
    }

    fn table(&self) -> Markup {
        html! {
            div.scroll { table {
                thead { tr { th.name { "" } @for title in &self.columns { th { (title) } } } }
                tbody {
                    @for run in &self.runs {
                        tr { td.name { (run.name) } @for cell in &run.cells { td { (cell) } } }
                    }
                }
            } }
        }
    }
}
