//! Which failures of a row are worth a line in the log: the first, another kind, and a reminder now and then.

use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::units::since;

/// A failure that goes on is told again after this.
const REMINDED_AFTER: Duration = Duration::from_mins(10);

/// No two lines come closer, whatever fails: a text that is another one each time, or a failure that comes and goes, would
/// fill the log.
const APART: Duration = Duration::from_secs(30);

/// What was told last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    /// The kind that fails, as far as it was told.
    kind: Option<String>,
    at: Option<DateTime<Utc>>,
}

impl Told {
    /// It fails, in this way. True where that is worth a line. Numbers in the kind don't make it another.
    pub(crate) fn fails(&mut self, kind: &str, now: DateTime<Utc>) -> bool {
        let kind: String = kind.chars().filter(|c| !c.is_ascii_digit()).collect();
        let quiet_for = self.at.map(|at| since(now, at));
        let same = self.kind.as_ref() == Some(&kind);
        if quiet_for.is_some_and(|quiet| quiet < if same { REMINDED_AFTER } else { APART }) {
            return false;
        }
        self.kind = Some(kind);
        self.at = Some(now);
        true
    }

    /// It works again. True where a failure had been told.
    pub(crate) fn works(&mut self) -> bool {
        self.kind.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(second, 0).unwrap()
    }

    #[test]
    fn a_failure_is_told_when_it_begins_when_it_changes_and_every_ten_minutes() {
        let mut told = Told::default();
        assert!(told.fails("429 slow down 1", at(0)));
        let lines =
            (1..600).filter(|second| told.fails(&format!("429 slow down {second}"), at(*second))).count();
        assert_eq!(lines, 0, "numbers don't make it another kind");
        assert!(told.fails("429 slow down 600", at(600)), "reminded");
        assert!(told.fails("403", at(640)));
        assert!(told.works());
        assert!(!told.works(), "told once");
        assert!(told.fails("403", at(680)), "it fails again");
    }

    #[test]
    fn what_changes_its_words_or_comes_and_goes_each_second_is_a_line_in_thirty() {
        let mut told = Told::default();
        let words = ["a", "b", "c"];
        let lines = (0..600).filter(|second| told.fails(words[*second as usize % 3], at(*second))).count();
        assert_eq!(lines, 20);
        let mut told = Told::default();
        let mut lines = 0;
        for second in 0..600 {
            lines += usize::from(told.fails("410", at(second)));
            lines += usize::from(told.works());
        }
        assert_eq!(lines, 40, "20 that it fails, 20 that it works");
    }
}
