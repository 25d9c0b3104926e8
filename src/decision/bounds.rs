//! From what is needed and what holds back to one number.
//!
//! Every bound but the maximum is a lower one, so the answer is the largest of them, capped by the maximum. What is
//! *needed* may raise an answer. What *holds* only keeps it from falling: it is never above the answer before.

use super::explanation::{Bound, BoundKind, Reason};

/// Kinds in the order in which equal numbers are named: first what is needed, then what holds.
const ORDER: [BoundKind; 11] = [
    BoundKind::Floor,
    BoundKind::Demand,
    BoundKind::WarmPool,
    BoundKind::Min,
    BoundKind::InUse,
    BoundKind::UnknownLoad,
    BoundKind::NMinusOne,
    BoundKind::Hold,
    BoundKind::MaxStep,
    BoundKind::JustStarted,
    BoundKind::TooFewKnown,
];

/// The bounds of one decision.
#[derive(Clone, Debug)]
pub(super) struct Bounds {
    list: Vec<Bound>,
    max: u32,
}

/// What the bounds come to.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Settled {
    pub(super) answer: u32,
    pub(super) winner: Reason,
    pub(super) held: Option<Reason>,
    /// What would be needed above the maximum.
    pub(super) beyond_max: Option<u32>,
}

impl Bounds {
    pub(super) fn new(max: u32) -> Self {
        Self { list: Vec::with_capacity(8), max }
    }

    /// A number that is needed.
    pub(super) fn need(&mut self, kind: BoundKind, replicas: u32, because: impl Into<String>) {
        self.list.push(Bound { kind, replicas, because: because.into() });
    }

    /// A number that isn't given up yet: at most the answer before, and told only where it is more than what is needed.
    pub(super) fn hold(
        &mut self,
        kind: BoundKind,
        replicas: u32,
        last: u32,
        because: impl FnOnce(u32) -> String,
    ) {
        let replicas = replicas.min(last);
        if replicas > self.needed() {
            self.list.push(Bound { kind, replicas, because: because(replicas) });
        }
    }

    /// The largest number that is needed.
    pub(super) fn needed(&self) -> u32 {
        self.list.iter().filter(|bound| !bound.kind.holds()).map(|bound| bound.replicas).max().unwrap_or(0)
    }

    /// The answer.
    pub(super) fn settle(&mut self) -> Settled {
        let (wanted, reason) = self.strongest().map_or_else(
            || (0, Reason { kind: BoundKind::Demand, because: "nothing is needed".to_owned() }),
            |bound| (bound.replicas, Reason { kind: bound.kind, because: bound.because.clone() }),
        );
        let held = (reason.kind.holds() && wanted.min(self.max) > self.needed()).then(|| reason.clone());
        if wanted <= self.max {
            return Settled { answer: wanted, winner: reason, held, beyond_max: None };
        }
        let needed = self.needed();
        let because = if needed > self.max {
            format!("closed by max {}: would need {needed} ({})", self.max, reason.because)
        } else {
            format!(
                "closed by max {}: {needed} are needed, {wanted} would be held ({})",
                self.max, reason.because
            )
        };
        self.list.push(Bound { kind: BoundKind::Max, replicas: self.max, because: because.clone() });
        let winner = Reason { kind: BoundKind::Max, because };
        Settled {
            answer: self.max,
            winner,
            held,
            beyond_max: Some(needed).filter(|needed| *needed > self.max),
        }
    }

    /// For the explanation.
    pub(super) fn into_list(self) -> Vec<Bound> {
        self.list
    }

    fn strongest(&self) -> Option<&Bound> {
        let place = |kind| ORDER.iter().position(|k| *k == kind).unwrap_or(ORDER.len());
        self.list.iter().max_by_key(|bound| (bound.replicas, std::cmp::Reverse(place(bound.kind))))
    }
}
