//! How much of a tier is known.

use super::explanation::Known;
use super::memory::Memory;
use super::observation::{Observation, ReplicaState};

/// Can anything be said about this tier?
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Sight {
    /// At least half of the replicas that should serve are known.
    Known,
    /// The tier was at zero and the activator can be read: its word is enough, whatever the source can't say.
    Zero,
    /// Too little is known, for this reason.
    Blind(String),
}

impl Sight {
    pub(super) fn of(observation: &Observation, memory: &Memory) -> Self {
        let known = known(observation);
        let activator = observation.activator.as_ref();
        let nobody_seen = known.known == 0;
        if nobody_seen
            && memory.last == Some(0)
            && activator.is_some_and(|a| a.queued.is_some())
            && may_be_at_zero(observation, memory)
        {
            return Self::Zero;
        }
        if let Some(why) = &observation.replicas_unknown {
            return Self::Blind(format!("the replicas are unknown: {why}"));
        }
        if observation.replicas.is_empty() && !observation.authoritative {
            return Self::Blind(
                "no replica is known, and the source can't say that there is none".to_owned(),
            );
        }
        if let Some(activator) = activator.filter(|a| known.expected == 0 && a.queued.is_none()) {
            let why = activator.error.as_deref().unwrap_or("not read yet");
            return Self::Blind(format!("no replica serves, and the activator can't be read: {why}"));
        }
        if known.known * 2 < known.expected {
            return Self::Blind(format!("{} of {} replicas are known", known.known, known.expected));
        }
        Self::Known
    }
}

/// A tier of which an earlier process said so is at zero only where nothing speaks against it: a replica that should serve
/// and doesn't answer was started since.
pub(super) fn may_be_at_zero(observation: &Observation, memory: &Memory) -> bool {
    memory.known_here || observation.count(ReplicaState::Silent) == 0
}

/// Replicas that should serve, and those of them with a fresh page.
pub(super) fn known(observation: &Observation) -> Known {
    let mut counts = Known { expected: 0, known: 0 };
    for replica in &observation.replicas {
        match replica.state {
            ReplicaState::Ready => {
                counts.expected += 1;
                counts.known += u32::from(replica.load.is_some());
            }
            ReplicaState::Silent => counts.expected += 1,
            _ => {}
        }
    }
    counts
}

/// Replicas that the scale target has, as far as can be seen: its own count, else all that aren't leaving.
pub(super) fn replica_count(observation: &Observation) -> u32 {
    observation.current.unwrap_or_else(|| {
        let is_there = |state| !matches!(state, ReplicaState::Terminating | ReplicaState::Absent);
        observation.replicas.iter().filter(|replica| is_there(replica.state)).count() as u32
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::fixtures::{observation, replica};

    #[test]
    fn half_of_the_replicas_are_enough_and_fewer_are_not() {
        let seen = observation(vec![replica("a", ReplicaState::Ready), replica("b", ReplicaState::Silent)]);
        assert_eq!(Sight::of(&seen, &Memory::default()), Sight::Known);

        let seen = observation(vec![
            replica("a", ReplicaState::Ready),
            replica("b", ReplicaState::Silent),
            replica("c", ReplicaState::Silent),
        ]);
        assert_eq!(Sight::of(&seen, &Memory::default()), Sight::Blind("1 of 3 replicas are known".into()));
    }

    #[test]
    fn nobody_is_zero_only_for_a_source_that_can_say_so() {
        let mut seen = observation(vec![]);
        assert_eq!(Sight::of(&seen, &Memory::default()), Sight::Known);
        seen.authoritative = false;
        assert!(matches!(Sight::of(&seen, &Memory::default()), Sight::Blind(_)));
    }
}
