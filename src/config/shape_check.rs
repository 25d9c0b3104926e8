//! The first pass over a file: every key and value against the table, with all problems at once.
//!
//! After it, a section's readers never report anything: a value is good, absent, or already reported.

use super::file;
use super::misplaced::unknown_key;
use super::problem::{Place, Problems};
use super::section::{self, Section, read_scalar};
use super::shape::{Absent, Key, Kind, Scalar};
use super::yaml::{Content, Node};

/// Checks a section and all below it.
pub(super) fn check(section: &Section<'_>, problems: &mut Problems) {
    for entry in section.own_entries() {
        let known = section.keys.iter().any(|key| key.name == entry.key);
        if !known {
            let place = section.place().key(&entry.key).at_line(entry.line);
            problems.push(&place, unknown_key(&entry.key, section.keys));
        }
    }
    for key in section.keys {
        check_key(section, key, problems);
    }
}

fn check_key(section: &Section<'_>, key: &'static Key, problems: &mut Problems) {
    let Some((place, node)) = section.written(key.name) else {
        if key.absent == Absent::Required && !section.partial {
            problems.push(&section.place().key(key.name), missing(key));
        }
        return;
    };
    if section.partial && key.tier_only {
        problems.push(&place, format!("`{}` belongs to one tier: write it there", key.name));
        return;
    }
    match &key.kind {
        // Inherited sections are checked too: what one layer leaves out the other may give.
        Kind::Section(_) => {
            if expect_map(node, key.children(), &place, problems) {
                check(&section.section(key.name), problems);
            }
        }
        Kind::OneOf(_) => check_one_of(section, key, &place, node, problems),
        Kind::Partial(_) => {
            if expect_map(node, key.children(), &place, problems) {
                check(&section.section(key.name).partial(), problems);
            }
        }
        Kind::Sections { most, .. } => {
            check_list(node, *most, &place, problems);
            for (item, node) in section.sections(key.name).iter().zip(items(node)) {
                if expect_map(node, item.keys, item.place(), problems) {
                    check(item, problems);
                }
            }
        }
        Kind::Scalars { of, most } => {
            check_list(node, *most, &place, problems);
            if matches!(&node.content, Content::List(items) if items.is_empty()) {
                problems.push(&place, format!("the list is empty: write at least one {}", of.expected()));
            }
            for (index, item) in items(node).iter().enumerate() {
                if let Err(message) = read_scalar(of, item, "") {
                    problems.push(&place.item(index).at_line(item.line), message);
                }
            }
        }
        Kind::Scalar(scalar) => report(read_scalar(scalar, node, key.name), &place, problems),
        Kind::Allowance => report(section::allowance(node), &place, problems),
        Kind::Labels => report(section::labels(node), &place, problems),
    }
}

fn report<T>(read: Result<T, String>, place: &Place, problems: &mut Problems) {
    if let Err(message) = read {
        problems.push(place, message);
    }
}

fn check_one_of(
    section: &Section<'_>,
    key: &'static Key,
    place: &Place,
    node: &Node,
    problems: &mut Problems,
) {
    if !expect_map(node, key.children(), place, problems) {
        return;
    }
    let below = section.section(key.name);
    for entry in below.own_entries() {
        if file::LATER_SOURCES.contains(&entry.key.as_str()) {
            let place = place.key(&entry.key).at_line(entry.line);
            let message = format!(
                "`{}` is not supported by this version: use `kubernetes`, `dns` or `fixed`",
                entry.key
            );
            problems.push(&place, message);
            return;
        }
    }
    check(&below, problems);
    let given = below.keys.iter().filter(|key| below.written(key.name).is_some()).count();
    // An unknown source has been told already.
    if given != 1 && (given > 1 || below.own_entries().is_empty()) {
        problems.push(place, format!("{given} of {} are given: write exactly one", names(key.children())));
    }
}

fn check_list(node: &Node, most: usize, place: &Place, problems: &mut Problems) {
    match &node.content {
        Content::List(items) if items.len() > most => {
            problems.push(place, format!("{} entries: at most {most} are allowed", items.len()));
        }
        Content::List(_) => {}
        other => {
            problems
                .push(place, format!("{} where a list belongs: begin each entry with `- `", other.kind()));
        }
    }
}

fn expect_map(node: &Node, keys: &'static [Key], place: &Place, problems: &mut Problems) -> bool {
    if matches!(node.content, Content::Map(_)) {
        return true;
    }
    let found = node.content.kind();
    problems.push(place, format!("{found} where a mapping belongs: write {}", names(keys)));
    false
}

fn items(node: &Node) -> &[Node] {
    match &node.content {
        Content::List(items) => items,
        _ => &[],
    }
}

fn missing(key: &Key) -> String {
    let what = match &key.kind {
        Kind::Scalar(scalar) if !matches!(scalar, Scalar::Text { .. }) => scalar.expected(),
        _ if key.children().is_empty() => key.doc.trim_end_matches('.').to_owned(),
        _ => format!("a mapping with {}", names(key.children())),
    };
    format!("missing: write it ({what})")
}

fn names(keys: &[Key]) -> String {
    let shown: Vec<String> = keys.iter().take(6).map(|key| format!("`{}`", key.name)).collect();
    let more = if keys.len() > 6 { " ..." } else { "" };
    format!("{}{more}", shown.join(", "))
}
