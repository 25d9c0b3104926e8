//! What is wrong with a configuration: where, on which line, and what to write instead.

use std::fmt;

use serde::Serialize;

/// More problems than this are counted, not listed: nobody reads a third screen of them.
const MAX_LISTED: usize = 200;

/// One problem or warning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The key's path, such as `tiers[1].floors[0].start`; empty for the file as a whole.
    pub path: String,
    /// Line in the file, from 1.
    pub line: usize,
    /// What is wrong and what to write instead.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            return write!(f, "line {}: {}", self.line, self.message);
        }
        write!(f, "line {}: {}: {}", self.line, self.path, self.message)
    }
}

/// Every problem of a configuration, in the order of the file. Display prints one a line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Problems(Vec<Problem>);

impl Problems {
    /// Is there none?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// All of them.
    pub fn iter(&self) -> std::slice::Iter<'_, Problem> {
        self.0.iter()
    }

    pub(super) fn push(&mut self, place: &Place, message: impl Into<String>) {
        self.0.push(Problem { path: place.path.clone(), line: place.line, message: message.into() });
    }

    /// In the order of the file; what two tiers inherit from one place is told once.
    pub(super) fn into_sorted(mut self) -> Vec<Problem> {
        self.0.sort_by_key(|a| a.line);
        let mut seen = std::collections::HashSet::new();
        self.0.retain(|problem| seen.insert((problem.path.clone(), problem.message.clone())));
        self.0
    }

    pub(super) fn sorted(self) -> Self {
        Self(self.into_sorted())
    }
}

impl<'a> IntoIterator for &'a Problems {
    type Item = &'a Problem;
    type IntoIter = std::slice::Iter<'a, Problem>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().take(MAX_LISTED).enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{problem}")?;
        }
        if self.0.len() > MAX_LISTED {
            write!(f, "\nand {} more", self.0.len() - MAX_LISTED)?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// Where a key stands in the file, or would stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) path: String,
    pub(super) line: usize,
}

impl Place {
    pub(super) fn key(&self, name: &str) -> Self {
        let path = if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) };
        Self { path, line: self.line }
    }

    pub(super) fn item(&self, index: usize) -> Self {
        Self { path: format!("{}[{index}]", self.path), line: self.line }
    }

    pub(super) fn at_line(self, line: usize) -> Self {
        Self { line, ..self }
    }
}

/// The problem is already in the list: whoever needed the value gives up quietly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reported;

/// A value, or a problem that is already in the list.
pub(super) type Read<T> = Result<T, Reported>;

/// The candidate that a misspelt key was most probably meant to be.
pub(super) fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let folded = fold(word);
    candidates
        .into_iter()
        .map(|candidate| (edits(&folded, &fold(candidate)), candidate))
        .filter(|(distance, candidate)| *distance <= 1 + candidate.len() / 6)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// `cold_start`, `cold-start` and `ColdStart` are all meant to be `coldStart`.
fn fold(word: &str) -> Vec<char> {
    word.chars().filter(char::is_ascii_alphanumeric).take(64).map(|c| c.to_ascii_lowercase()).collect()
}

/// Optimal string alignment distance: insertions, deletions, substitutions and swaps of neighbours.
fn edits(a: &[char], b: &[char]) -> usize {
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let change = usize::from(a[i - 1] != b[j - 1]);
                let mut least = (rows[i - 1][j] + 1).min(rows[i][j - 1] + 1).min(rows[i - 1][j - 1] + change);
                if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                    least = least.min(rows[i - 2][j - 2] + 1);
                }
                least
            };
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_near_key_is_suggested_and_a_far_one_is_not() {
        let keys = ["floors", "coldStart", "min", "desiredReplicas"];
        for (written, meant) in [
            ("flors", Some("floors")),
            ("floros", Some("floors")),
            ("cold_start", Some("coldStart")),
            ("desiredReplica", Some("desiredReplicas")),
            ("mni", Some("min")),
            ("gpu", None),
            ("password", None),
        ] {
            assert_eq!(nearest(written, keys), meant, "{written}");
        }
    }

    #[test]
    fn problems_print_one_a_line() {
        let mut problems = Problems::default();
        let place = Place { path: "tiers[1]".to_owned(), line: 7 };
        problems.push(&place.key("min"), "too low");
        problems.push(&Place { path: String::new(), line: 1 }, "empty");
        let sorted = problems.sorted();
        assert_eq!(sorted.to_string(), "line 1: empty\nline 7: tiers[1].min: too low");
    }
}
