//! From what is needed and what holds back to one number.
//!
//! Every bound but the maximum is a lower one, so the answer is the largest of them, capped by the maximum. What is
//! *needed* may raise an answer. What *holds* only keeps it from falling: it is never above the answer before.

use super::explanation::{Bound, BoundKind, Reason};

/// Needs in the order in which equal numbers are named.
const NEEDS: [BoundKind; 6] = [
    BoundKind::Floor,
    BoundKind::Demand,
    BoundKind::Forecast,
    BoundKind::WarmPool,
    BoundKind::Min,
    BoundKind::InUse,
];

/// What holds, likewise.
const HOLDS: [BoundKind; 6] = [
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
        let reason = |bound: &Bound| Reason { kind: bound.kind, because: bound.because.clone() };
        let need = self.strongest(&NEEDS).filter(|need| need.replicas > 0);
        let needed = need.map_or(0, |need| need.replicas);
        let mut winner = need.map_or_else(
            || Reason { kind: BoundKind::Demand, because: "nothing is needed".to_owned() },
            reason,
        );
        // While too little is known, that is why the number stands, also where a need happens to be the same.
        let explains = |bound: &&Bound| {
            bound.replicas > needed || (bound.kind == BoundKind::TooFewKnown && bound.replicas == needed)
        };
        let stronger = self.strongest(&HOLDS).filter(explains);
        let wanted = stronger.map_or(needed, |bound| bound.replicas);
        let held = stronger.filter(|_| needed < self.max).map(reason);
        let beyond_max = (needed > self.max).then_some(needed);
        let mut because = format!("max {}", self.max);
        if beyond_max.is_some() {
            because = format!("closed by max {}: would need {needed} ({})", self.max, winner.because);
            winner = Reason { kind: BoundKind::Max, because: because.clone() };
        }
        self.list.push(Bound { kind: BoundKind::Max, replicas: self.max, because });
        Settled { answer: wanted.min(self.max), winner, held, beyond_max }
    }

    /// For the explanation.
    pub(super) fn into_list(self) -> Vec<Bound> {
        self.list
    }

    /// The largest bound of these kinds; of equal ones the kind that is named first.
    fn strongest(&self, kinds: &[BoundKind]) -> Option<&Bound> {
        let place = |kind| kinds.iter().position(|k| *k == kind);
        self.list
            .iter()
            .filter_map(|bound| Some((bound, place(bound.kind)?)))
            .max_by_key(|(bound, place)| (bound.replicas, std::cmp::Reverse(*place)))
            .map(|(bound, _)| bound)
    }
}
