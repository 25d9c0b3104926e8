//! A tier declared in metadata: its flat keys put into the tree of a tier of the file, so that both meet the same
//! checks, and what the checks find told in the words of the metadata.

use std::collections::BTreeMap;

use super::Finding;
use crate::config::file;
use crate::config::lint;
use crate::config::problem::{Place, Problems};
use crate::config::resolve::{self, policy as policy_of};
use crate::config::section::Section;
use crate::config::settings::ScrapeSettings;
use crate::config::shape_check;
use crate::config::yaml::{Content, Entry, Node, Style};
use crate::decision::policy::{Policy, TierId};

/// Floors of a metadata tier: more belong in the file.
pub(super) const MAX_FLOORS: usize = 50;

/// KEDA's own default of `maxReplicaCount`, for a tier that doesn't say: the HPA clips there anyway.
const DEFAULT_MAX: &str = "100";

/// Metadata keys and the keys of a tier that they stand for.
const KEYS: &[(&str, &str)] = &[
    ("minReplicas", "replicas.min"),
    ("maxReplicas", "replicas.max"),
    ("coldStart", "coldStart"),
    ("drain", "drain"),
    ("controlDelay", "controlDelay"),
    ("acceptableQueue", "acceptableQueue"),
    ("maxRamp", "warmPool.maxRamp"),
    ("kvTarget", "signals.kvCache.target"),
    ("tokensTarget", "signals.tokens.target"),
    ("hold", "scaleDown.hold"),
    ("maxStep", "scaleDown.maxStep"),
    ("holdUnknown", "holdUnknown"),
    ("tolerance", "hpa.tolerance"),
    ("deadBand", "hpa.deadBand"),
];

/// KEDA's cron keys. The first floor has them bare, the others with a number from 2.
const FLOOR_KEYS: &[&str] = &["timezone", "start", "end", "desiredReplicas"];

/// Every key by its name, floors without numbers.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    KEYS.iter().map(|(key, _)| *key).chain(FLOOR_KEYS.iter().copied())
}

/// Where a metadata key stands in a tier.
pub(super) enum Path {
    Key(&'static str),
    Floor { number: usize, key: &'static str },
}

pub(super) fn path(key: &str) -> Option<Path> {
    if let Some((_, path)) = KEYS.iter().find(|(name, _)| *name == key) {
        return Some(Path::Key(path));
    }
    FLOOR_KEYS.iter().find_map(|base| {
        let number = match key.strip_prefix(base)? {
            "" => 1,
            digits if digits.bytes().all(|b| b.is_ascii_digit()) && !digits.starts_with('0') => {
                digits.parse().ok().filter(|number| (2..=MAX_FLOORS).contains(number))?
            }
            _ => return None,
        };
        Some(Path::Floor { number, key: base })
    })
}

/// `start1`, `end02` or `desiredReplicas51`: a floor's key with a number that none has. Passed over as unknown, it
/// would be a floor that silently isn't there.
pub(super) fn misnumbered_floor(key: &str) -> Option<&'static str> {
    let is_number = |rest: &str| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit());
    FLOOR_KEYS.iter().copied().find(|base| key.strip_prefix(base).is_some_and(is_number))
}

/// A policy from declaring keys, with warnings.
///
/// # Errors
/// Every problem with the key that it is about.
pub(super) fn policy(tier: TierId, keys: &[(&str, &str)]) -> Result<(Policy, Vec<String>), Vec<Finding>> {
    let (tree, floor_numbers) = tree(keys);
    let place = Place { path: String::new(), line: 1 };
    let section = Section::new(Some(&tree), place, file::TIER).partial();
    let mut problems = Problems::default();
    shape_check::check(&section, &mut problems);
    let context = resolve::Context {
        tier: Ok(tier),
        scrape_interval: Ok(ScrapeSettings::default().interval),
        zero_needs: Some(
            "needs a source of load, which a tier declared in metadata doesn't have: it can't tell idle from unknown; write 1 or more",
        ),
        floors_only: true,
    };
    let policy = policy_of(&section, context, &mut problems);
    let words = Words { floor_numbers };
    let (Ok(policy), true) = (policy, problems.is_empty()) else {
        return Err(words.told(problems));
    };
    let mut warnings = Problems::default();
    lint::policy_warnings(&section, &policy, &mut warnings);
    let mut warnings: Vec<String> =
        words.told(warnings).into_iter().map(|(key, message)| format!("`{key}`: {message}")).collect();
    if policy.floors.is_empty() {
        warnings.push(format!(
            "no floor is declared (timezone, start, end, desiredReplicas): the answer is always {}, unless the file has a \
             `kubernetes` section, by which the target's pods are seen",
            policy.min
        ));
    }
    Ok((policy, warnings))
}

/// The tree, and the number of each floor in it.
fn tree(keys: &[(&str, &str)]) -> (Node, Vec<usize>) {
    let mut root = Vec::new();
    let mut floors: BTreeMap<usize, Vec<Entry>> = BTreeMap::new();
    insert(&mut root, "replicas.max", DEFAULT_MAX);
    for (name, value) in keys {
        match path(name) {
            Some(Path::Key(path)) => insert(&mut root, path, value.trim()),
            Some(Path::Floor { number, key }) => insert(floors.entry(number).or_default(), key, value.trim()),
            None => {}
        }
    }
    // A number without a zone of its own is in the first floor's.
    let first_zone = keys.iter().find(|(name, _)| *name == "timezone").map(|(_, zone)| zone.trim());
    for floor in floors.values_mut() {
        if let Some(zone) = first_zone
            && !floor.iter().any(|entry| entry.key == "timezone")
        {
            insert(floor, "timezone", zone);
        }
    }
    let numbers = floors.keys().copied().collect();
    if !floors.is_empty() {
        let items = floors.into_values().map(|entries| node(Content::Map(entries))).collect();
        root.push(Entry { key: "floors".to_owned(), line: 1, value: node(Content::List(items)) });
    }
    (node(Content::Map(root)), numbers)
}

fn node(content: Content) -> Node {
    Node { line: 1, content }
}

/// Writes a value at a path; a later one takes the place of an earlier one.
fn insert(entries: &mut Vec<Entry>, path: &str, text: &str) {
    let (key, rest) = path.split_once('.').map_or((path, None), |(key, rest)| (key, Some(rest)));
    let index = entries.iter().position(|entry| entry.key == key).unwrap_or_else(|| {
        entries.push(Entry { key: key.to_owned(), line: 1, value: node(Content::Map(Vec::new())) });
        entries.len() - 1
    });
    let value = &mut entries[index].value;
    match (rest, &mut value.content) {
        (Some(rest), Content::Map(below)) => insert(below, rest, text),
        _ => value.content = Content::Scalar(text.to_owned(), Style::Metadata),
    }
}

/// From the words of the file to those of the metadata.
struct Words {
    floor_numbers: Vec<usize>,
}

impl Words {
    fn told(&self, problems: Problems) -> Vec<Finding> {
        let mut told: Vec<Finding> = problems
            .into_sorted()
            .into_iter()
            .map(|problem| (self.key(&problem.path), message(problem.message)))
            .collect();
        told.sort();
        told
    }

    fn key(&self, path: &str) -> String {
        if let Some((key, _)) = KEYS.iter().find(|(_, of)| *of == path) {
            return (*key).to_owned();
        }
        let Some((index, rest)) = path.strip_prefix("floors[").and_then(|rest| rest.split_once(']')) else {
            return path.to_owned();
        };
        let number = index.parse::<usize>().ok().and_then(|index| self.floor_numbers.get(index)).copied();
        let base = rest.strip_prefix('.').unwrap_or("start");
        match number {
            Some(number) if number > 1 => format!("{base}{number}"),
            _ => base.to_owned(),
        }
    }
}

fn message(text: String) -> String {
    [
        ("`replicas.max`", "`maxReplicas`"),
        ("`max`", "`maxReplicas`"),
        ("replicas.min", "minReplicas"),
        ("hpa.tolerance: 0 here", "tolerance: \"0\" here"),
    ]
    .into_iter()
    .fold(text, |text, (of_the_file, of_metadata)| text.replace(of_the_file, of_metadata))
}
