//! The answers of a scaler over time, each with its reason: a bounded number, spread over the whole trace. Pure.

use std::cmp::Ordering;

use crate::decision::{BoundKind, Decision};

/// Changes that are kept of a run: a table of more is not read.
const MOST_CHANGES: usize = 1440;

/// Letters of a reason; a decision's own texts are shorter.
const MOST_LETTERS: usize = 300;

/// An answer that differs from the one before.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// When.
    pub slot: usize,
    /// The answer before; None where there was none.
    pub from: Option<u32>,
    /// The answer from now on.
    pub to: Option<u32>,
    /// Demand then, in fractions of a replica; None when unknown.
    pub demand: Option<f64>,
    /// What set the answer, by its name.
    pub reason: &'static str,
    /// In words.
    pub because: String,
}

impl Change {
    /// By how many replicas; an answer that comes or goes is the largest of changes.
    pub(super) fn size(&self) -> u32 {
        self.from.zip(self.to).map_or(u32::MAX, |(from, to)| from.abs_diff(to))
    }
}

/// The changes of a run, the largest of every bucket of time.
#[derive(Clone, Debug, PartialEq)]
pub struct Changes {
    slots_a_bucket: usize,
    most_a_bucket: usize,
    /// Before the first decision there is no answer that the next could differ from.
    has_begun: bool,
    last: Option<u32>,
    kept: Vec<Change>,
    /// Where those of the present bucket begin in `kept`.
    bucket_begins: usize,
    bucket: usize,
    left_out: u64,
}

impl Changes {
    /// For a trace of so many slots, in buckets of so many.
    #[must_use]
    pub(super) fn new(slots: usize, slots_a_bucket: usize) -> Self {
        let buckets = slots.div_ceil(slots_a_bucket).max(1);
        Self {
            slots_a_bucket,
            most_a_bucket: (MOST_CHANGES / buckets).max(1),
            has_begun: false,
            last: None,
            kept: Vec::new(),
            bucket_begins: 0,
            bucket: 0,
            left_out: 0,
        }
    }

    /// The decision of a slot.
    pub(super) fn note(&mut self, slot: usize, decision: &Decision) {
        let answer = decision.required();
        let before = std::mem::replace(&mut self.last, answer);
        if std::mem::replace(&mut self.has_begun, true) && before == answer {
            return;
        }
        let bucket = slot / self.slots_a_bucket;
        if bucket != self.bucket {
            (self.bucket, self.bucket_begins) = (bucket, self.kept.len());
        }
        let change = Change {
            slot,
            from: before,
            to: answer,
            demand: decision.demand,
            reason: decision.binding().kind.name(),
            because: crate::units::shortened(&because(decision), MOST_LETTERS),
        };
        if self.kept.len() - self.bucket_begins < self.most_a_bucket {
            self.kept.push(change);
            return;
        }
        self.left_out += 1;
        let here = self.kept[self.bucket_begins..].iter().enumerate();
        let smallest = here.min_by_key(|(_, kept)| kept.size()).map(|(at, kept)| (at, kept.size()));
        if let Some((at, size)) = smallest
            && size < change.size()
        {
            self.kept.remove(self.bucket_begins + at);
            self.kept.push(change);
        }
    }

    /// In the order of time.
    #[must_use]
    pub fn all(&self) -> &[Change] {
        &self.kept
    }

    /// Smaller ones that were not kept.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.left_out
    }
}

/// What set the answer; of a demand with the arithmetic of the signal that asks most.
fn because(decision: &Decision) -> String {
    let binding = decision.binding();
    let asks = decision.asks.iter().filter(|ask| ask.weight > 0.0 && ask.replicas.is_some());
    let most = asks.max_by(|a, b| a.replicas.partial_cmp(&b.replicas).unwrap_or(Ordering::Equal));
    match most {
        Some(ask) if binding.kind == BoundKind::Demand => format!("{}: {}", binding.because, ask.because),
        _ => binding.because.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::fixtures::{at, policy};
    use crate::decision::{Answer, Memory, Observation, decide};

    fn decision(answer: u32) -> Decision {
        let (policy, now) = (policy(), at("10:00"));
        let nobody = Observation::listed(Vec::new());
        Decision { answer: Answer::Required(answer), ..decide(&policy, &nobody, &Memory::started(now), now) }
    }

    #[test]
    fn only_answers_that_differ_are_kept() {
        let mut changes = Changes::new(240, 12);
        for (slot, answer) in [2, 2, 3, 3, 2].into_iter().enumerate() {
            changes.note(slot, &decision(answer));
        }
        let told: Vec<_> = changes.all().iter().map(|change| (change.slot, change.from, change.to)).collect();
        assert_eq!(told, [(0, None, Some(2)), (2, Some(2), Some(3)), (4, Some(3), Some(2))]);
        assert!(changes.all().iter().all(|change| !change.because.is_empty()));
    }

    #[test]
    fn of_more_than_a_bucket_holds_the_largest_stay() {
        // 1440 buckets: one change each.
        let mut changes = Changes::new(1440 * 12, 12);
        for (slot, answer) in [4, 5, 9, 10, 10, 10].into_iter().enumerate() {
            changes.note(12 + slot, &decision(answer));
        }
        let told: Vec<_> = changes.all().iter().map(|change| (change.from, change.to)).collect();
        assert_eq!((told, changes.left_out()), (vec![(None, Some(4))], 3), "the first answer of all");
        for (slot, answer) in [11, 15, 16].into_iter().enumerate() {
            changes.note(24 + slot, &decision(answer));
        }
        assert_eq!(changes.all()[1].to, Some(15));
    }

    #[test]
    fn however_many_there_are_the_list_is_bounded() {
        let slots = 40 * 17_280;
        let mut changes = Changes::new(slots, super::super::series::slots_a_bucket(slots));
        for slot in (0..slots).step_by(7) {
            changes.note(slot, &decision(1 + (slot % 2) as u32));
        }
        assert!(changes.all().len() <= MOST_CHANGES && changes.all().len() > 500);
        assert!(changes.all().is_sorted_by_key(|change| change.slot));
    }
}
