//! A replica's place in the supply, from what its source says and how its page is. Pure.

use std::time::Duration;

use super::{FailureKind, PageFailure};
use crate::decision::ReplicaState;
use crate::supply::Phase;

/// What is known of a replica's page.
#[derive(Clone, Copy, Debug)]
pub(super) struct PageState<'a> {
    /// Age of the newest good page; None without one.
    pub(super) age: Option<Duration>,
    /// That page is not older than it may be.
    pub(super) fresh: bool,
    /// What it says of sleep.
    pub(super) awake: Option<bool>,
    /// Why the last attempt failed, where it did.
    pub(super) failure: Option<&'a PageFailure>,
    /// An attempt was made at all.
    pub(super) tried: bool,
}

/// The place in the supply.
///
/// The source's word on starting, blocked and terminating stands. A replica that should serve and has no fresh page is
/// silent: its load is unknown, never zero. Where only the address is known, the page speaks for readiness:
///
/// - nothing listens there and nothing ever did: it is absent (vLLM doesn't listen before its model is loaded, and an
///   address that serves nobody looks the same);
/// - it had pages and now nothing listens: silent until `hold_unknown` after the last page, then it is absent;
/// - it answers in any other way, or not in time: silent. Something is there, or it can't be told.
pub(super) fn state(phase: Phase, page: PageState<'_>, hold_unknown: Duration) -> ReplicaState {
    match phase {
        Phase::Starting => ReplicaState::Starting,
        Phase::Blocked => ReplicaState::Blocked,
        Phase::Terminating => ReplicaState::Terminating,
        Phase::Ready | Phase::Listed if page.fresh => {
            if page.awake == Some(false) {
                ReplicaState::Asleep
            } else {
                ReplicaState::Ready
            }
        }
        Phase::Ready => ReplicaState::Silent,
        Phase::Listed => listed_without_fresh_page(page, hold_unknown),
    }
}

fn listed_without_fresh_page(page: PageState<'_>, hold_unknown: Duration) -> ReplicaState {
    let nobody_listens = page.failure.is_some_and(|failure| failure.kind.nobody_listens());
    match page.age {
        None if nobody_listens || !page.tried => ReplicaState::Absent,
        Some(age) if nobody_listens && age > hold_unknown => ReplicaState::Absent,
        _ => ReplicaState::Silent,
    }
}

impl FailureKind {
    /// The address is free: no server is there, ready or not.
    fn nobody_listens(self) -> bool {
        matches!(self, Self::Refused | Self::NoAddress)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOLD: Duration = Duration::from_mins(10);

    fn failure(kind: FailureKind) -> PageFailure {
        PageFailure { kind, message: "it failed".to_owned() }
    }

    fn page(age: Option<u64>, fresh: bool, failure: Option<&PageFailure>) -> PageState<'_> {
        PageState { age: age.map(Duration::from_secs), fresh, awake: Some(true), failure, tried: true }
    }

    #[test]
    fn the_word_of_the_source_stands_even_with_a_fresh_page() {
        for (phase, expected) in [
            (Phase::Starting, ReplicaState::Starting),
            (Phase::Blocked, ReplicaState::Blocked),
            (Phase::Terminating, ReplicaState::Terminating),
            (Phase::Ready, ReplicaState::Ready),
            (Phase::Listed, ReplicaState::Ready),
        ] {
            assert_eq!(state(phase, page(Some(1), true, None), HOLD), expected, "{phase:?}");
        }
    }

    #[test]
    fn a_sleeping_engine_is_asleep_and_unknown_sleep_is_awake() {
        let asleep = PageState { awake: Some(false), ..page(Some(1), true, None) };
        let unknown = PageState { awake: None, ..page(Some(1), true, None) };
        for phase in [Phase::Ready, Phase::Listed] {
            assert_eq!(state(phase, asleep, HOLD), ReplicaState::Asleep);
            assert_eq!(state(phase, unknown, HOLD), ReplicaState::Ready);
        }
    }

    #[test]
    fn a_ready_pod_without_a_fresh_page_is_silent_whatever_the_error() {
        for kind in FailureKind::ALL {
            let failure = failure(kind);
            for age in [None, Some(100), Some(100_000)] {
                let page = page(age, false, Some(&failure));
                assert_eq!(state(Phase::Ready, page, HOLD), ReplicaState::Silent);
            }
        }
    }

    #[test]
    fn a_listed_address_that_refuses_and_never_served_is_absent() {
        let refused = failure(FailureKind::Refused);
        assert_eq!(state(Phase::Listed, page(None, false, Some(&refused)), HOLD), ReplicaState::Absent);
        let untried = PageState { tried: false, ..page(None, false, None) };
        assert_eq!(state(Phase::Listed, untried, HOLD), ReplicaState::Absent);
    }

    #[test]
    fn a_listed_address_that_served_and_refuses_is_silent_for_the_hold_and_then_gone() {
        let refused = failure(FailureKind::Refused);
        assert_eq!(state(Phase::Listed, page(Some(600), false, Some(&refused)), HOLD), ReplicaState::Silent);
        assert_eq!(state(Phase::Listed, page(Some(601), false, Some(&refused)), HOLD), ReplicaState::Absent);
    }

    #[test]
    fn a_listed_address_that_answers_badly_or_late_stays_silent() {
        for kind in FailureKind::ALL.into_iter().filter(|kind| !kind.nobody_listens()) {
            let failure = failure(kind);
            for age in [None, Some(100), Some(100_000)] {
                let page = page(age, false, Some(&failure));
                assert_eq!(state(Phase::Listed, page, HOLD), ReplicaState::Silent, "{kind:?}");
            }
        }
    }
}
