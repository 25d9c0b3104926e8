//! Clients that try again when they are refused or cut off, and when. Pure and seeded.
//!
//! A client gives up when its next try would come after its patience has run out. What it waits depends on the seed, the
//! request and the number of the try alone.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use crate::simulate::router::Routed;
use crate::simulate::{Moment, Request};

/// Doublings beyond which a wait grows no more, whatever its bound.
const MOST_DOUBLINGS: u32 = 20;

/// How clients behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clients {
    /// Between two tries.
    pub backoff: Backoff,
    /// From the first try on.
    pub patience: Duration,
}

/// The wait before the next try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backoff {
    /// Always the same.
    Fixed(Duration),
    /// Uniform between 0 and `first` doubled with each try, at most `most`: `random(0, min(cap, base * 2 ** attempt))`,
    /// "full jitter" (Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015).
    FullJitter {
        /// Before the second try at most.
        first: Duration,
        /// Before any try at most.
        most: Duration,
    },
}

impl Backoff {
    /// The wait after so many tries.
    fn wait(self, seed: u64, id: u64, tries: u32) -> Duration {
        match self {
            Self::Fixed(span) => span,
            Self::FullJitter { first, most } => {
                let doubled = first.saturating_mul(1 << tries.saturating_sub(1).min(MOST_DOUBLINGS));
                doubled.min(most).mul_f64(uniform(seed, id, tries))
            }
        }
    }
}

/// 0 to 1 (`SplitMix64`, Steele, Lea and Flood 2014).
fn uniform(seed: u64, id: u64, tries: u32) -> f64 {
    let mixed = |value: u64| {
        let value = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        value ^ (value >> 31)
    };
    let bits = mixed(mixed(seed ^ 0x4E_7241) ^ mixed(id) ^ u64::from(tries));
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}

/// Who is to try again, and who has been served before.
#[derive(Debug)]
pub(super) struct Retries {
    clients: Option<Clients>,
    seed: u64,
    /// By the time of the try and the request.
    waiting: BTreeMap<(Moment, u64), Routed>,
    /// Tries so far of those that were refused or cut off at least once.
    tries: HashMap<u64, u32>,
    /// Those that ran once, and those that got a first token; a later try doesn't count again. Only kept where there are
    /// clients that try again.
    ran: HashSet<u64>,
    answered: HashSet<u64>,
}

impl Retries {
    pub(super) fn new(clients: Option<Clients>, seed: u64) -> Self {
        let (waiting, tries) = (BTreeMap::new(), HashMap::new());
        Self { clients, seed, waiting, tries, ran: HashSet::new(), answered: HashSet::new() }
    }

    /// It was refused or cut off. False: nobody tries again.
    pub(super) fn again(&mut self, routed: Routed, at: Moment) -> bool {
        let Some(Clients { backoff, patience }) = self.clients else { return false };
        let Request { id, arrived, .. } = routed.request;
        let tries = self.tries.entry(id).or_insert(0);
        *tries += 1;
        let next = at.plus(backoff.wait(self.seed, id, *tries));
        let patient = next.since(arrived) <= patience;
        if patient {
            self.waiting.insert((next, id), routed);
        } else {
            self.forget(id);
        }
        patient
    }

    /// When the next one tries again.
    pub(super) fn next(&self) -> Option<Moment> {
        self.waiting.first_key_value().map(|((at, _), _)| *at)
    }

    /// It tries again.
    pub(super) fn pop(&mut self) -> Option<(Moment, Routed)> {
        self.waiting.pop_first().map(|((at, _), routed)| (at, routed))
    }

    /// Those that are to try again.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &Request> {
        self.waiting.values().map(|routed| &routed.request)
    }

    /// It runs; true for the first time.
    pub(super) fn runs(&mut self, id: u64) -> bool {
        self.clients.is_none() || self.ran.insert(id)
    }

    /// It has a first token; true for the first time.
    pub(super) fn is_answered(&mut self, id: u64) -> bool {
        self.clients.is_none() || self.answered.insert(id)
    }

    /// Has it run before?
    pub(super) fn ran(&self, id: u64) -> bool {
        self.ran.contains(&id)
    }

    /// Has it had a first token before?
    pub(super) fn was_answered(&self, id: u64) -> bool {
        self.answered.contains(&id)
    }

    /// It is done or given up.
    pub(super) fn forget(&mut self, id: u64) {
        self.tries.remove(&id);
        self.ran.remove(&id);
        self.answered.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn routed(id: u64) -> Routed {
        Routed {
            request: Request { id, arrived: Moment::START, input: 10, cached: 0, output: 1 },
            prefix: None,
        }
    }

    #[test]
    fn full_jitter_is_uniform_below_a_bound_that_doubles_and_ends() {
        let backoff = Backoff::FullJitter { first: SECOND, most: SECOND * 6 };
        for (tries, bound) in [(1, 1.0), (2, 2.0), (3, 4.0), (4, 6.0), (40, 6.0)] {
            let waits: Vec<f64> = (0..4000).map(|id| backoff.wait(7, id, tries).as_secs_f64()).collect();
            assert!(waits.iter().all(|wait| *wait < bound), "{tries}");
            let mean = waits.iter().sum::<f64>() / 4000.0;
            assert!((mean / bound - 0.5).abs() < 0.02, "{tries}: {mean}");
        }
        assert_eq!(Backoff::Fixed(SECOND).wait(7, 1, 9), SECOND);
    }

    #[test]
    fn a_client_tries_until_its_patience_runs_out() {
        let clients = Clients { backoff: Backoff::Fixed(SECOND), patience: Duration::from_millis(2500) };
        let mut retries = Retries::new(Some(clients), 1);
        let mut at = Moment::START;
        for second in [1.0, 2.0] {
            assert!(retries.again(routed(3), at));
            assert_eq!(retries.next(), Some(Moment::from_seconds(second)));
            at = retries.pop().unwrap().0;
        }
        assert!(!retries.again(routed(3), at));
        assert_eq!((retries.next(), retries.tries.len()), (None, 0));
        assert!(!Retries::new(None, 1).again(routed(3), at));
    }
}
