//! Replicas that should serve and whose pages can't be read: for the log and an Event, in one sentence. Pure.

use crate::aggregate::NOT_READ_YET;
use crate::decision::{Observation, ReplicaState};

/// The pages that can't be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// How many replicas.
    pub silent: usize,
    /// Of so many that should serve.
    pub expected: usize,
    /// The first of them by name.
    pub replica: String,
    /// What is wrong with its page, with its address.
    pub why: String,
}

impl Unreadable {
    /// None where every page can be read, or just hasn't been tried.
    #[must_use]
    pub fn of(observation: &Observation) -> Option<Self> {
        let should_serve = |state| matches!(state, ReplicaState::Ready | ReplicaState::Silent);
        let expected = observation.replicas.iter().filter(|replica| should_serve(replica.state)).count();
        let silent = || {
            let silent = observation.replicas.iter().filter(|replica| replica.state == ReplicaState::Silent);
            silent.filter_map(|replica| {
                let why = replica.error.as_deref().filter(|why| *why != NOT_READ_YET)?;
                Some((&replica.name, why))
            })
        };
        let (replica, why) = silent().min()?;
        Some(Self { silent: silent().count(), expected, replica: replica.clone(), why: why.to_owned() })
    }

    /// What sort of failure it is, whichever replica it is told of.
    #[must_use]
    pub fn kind(&self) -> &str {
        self.why.split(" (http").next().unwrap_or_default()
    }

    /// For people.
    #[must_use]
    pub fn sentence(&self) -> String {
        format!(
            "{} of {} replicas can't be read, such as {}: {}",
            self.silent, self.expected, self.replica, self.why
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::fixtures::{observation, replica};

    #[test]
    fn pages_that_cant_be_read_are_one_sentence_with_an_address() {
        let of = |name, state, error: Option<&str>| {
            let mut replica = replica(name, state);
            replica.error = error.map(str::to_owned);
            replica
        };
        let seen = observation(vec![
            of("chat-1", ReplicaState::Silent, Some("connection refused (http://10.0.0.2:8000/metrics)")),
            of("chat-0", ReplicaState::Silent, Some("status 404 (http://10.0.0.1:8000/metrics)")),
            of("chat-2", ReplicaState::Ready, None),
            of("chat-3", ReplicaState::Silent, Some(NOT_READ_YET)),
            of("chat-4", ReplicaState::Starting, Some("connection refused (http://10.0.0.4:8000/metrics)")),
        ]);
        let unreadable = Unreadable::of(&seen).unwrap();
        assert_eq!(
            unreadable.sentence(),
            "2 of 4 replicas can't be read, such as chat-0: status 404 (http://10.0.0.1:8000/metrics)"
        );
        assert_eq!(unreadable.kind(), "status 404");
        let beginning = observation(vec![of("chat-0", ReplicaState::Silent, Some(NOT_READ_YET))]);
        assert_eq!(Unreadable::of(&beginning), None, "nobody has tried");
    }
}
