//! How a pod starts: the stages on its way, and what can go wrong with them. Pure and seeded.
//!
//! What befalls a pod depends on the seed and on the pod's number alone, so that another policy, which orders at other
//! times, meets the same luck pod by pod.

use std::f64::consts::TAU;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::moment::Moment;

/// From creation to binding where a node is free: a scheduler needs a second or two.
const PENDING: Duration = Duration::from_secs(2);

/// How often a pod without a node is tried again; the scheduler's own back-off ends at 10 s (`podMaxBackoffSeconds`).
pub(super) const NODE_RETRY: Duration = Duration::from_secs(10);

/// A pod without a node for so long counts as blocked, as the Kubernetes source has it by default.
pub(super) const NODE_WAIT: Duration = Duration::from_secs(600);

/// The kubelet's first wait before it starts a crashed container again; it doubles each time.
const CRASH_WAIT: Duration = Duration::from_secs(10);
/// The kubelet's longest wait.
const CRASH_WAIT_MOST: Duration = Duration::from_secs(300);

/// How long the parts of one start take, from creation to ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartStages {
    /// Until the scheduler has bound the pod, where a node is there.
    pub pending: Duration,
    /// Until a new node is there; zero on a warm one.
    pub node: Duration,
    /// The image is pulled.
    pub image: Duration,
    /// The weights are read into the GPU.
    pub weights: Duration,
    /// The engine compiles, captures graphs and warms up.
    pub engine: Duration,
}

impl StartStages {
    /// On a node that is there, with the image on it: all but the scheduler's 2 s is loading.
    #[must_use]
    pub fn warm_node(cold_start: Duration) -> Self {
        let none = Duration::ZERO;
        Self { pending: PENDING, node: none, image: none, weights: none, engine: none }.with_total(cold_start)
    }

    /// On a node that has to be made. The parts are in proportion to what public start-up measurements of 8B to 70B
    /// models on GKE and AKS tell: the node 40 %, the image 20 %, the weights 25 %, the engine 15 %.
    #[must_use]
    pub fn new_node(cold_start: Duration) -> Self {
        let parts = Self {
            pending: PENDING,
            node: Duration::from_secs(40),
            image: Duration::from_secs(20),
            weights: Duration::from_secs(25),
            engine: Duration::from_secs(15),
        };
        parts.with_total(cold_start)
    }

    /// The cold start.
    #[must_use]
    pub fn total(&self) -> Duration {
        self.pending + self.on_the_node() + self.node
    }

    fn on_the_node(&self) -> Duration {
        self.image + self.weights + self.engine
    }

    /// The same parts in a cold start of another length; the scheduler's part stays what it is.
    #[must_use]
    pub fn with_total(self, total: Duration) -> Self {
        let pending = self.pending.min(total);
        let rest = total.saturating_sub(pending);
        let parts = (self.node + self.on_the_node()).as_secs_f64();
        if parts <= 0.0 {
            return Self { pending, engine: rest, ..self };
        }
        let part = |part: Duration| rest.mul_f64(part.as_secs_f64() / parts);
        let (node, image, weights) = (part(self.node), part(self.image), part(self.weights));
        // Rounding must not make the whole longer than it is.
        let engine = rest.saturating_sub(node + image + weights);
        Self { pending, node, image, weights, engine }
    }
}

/// A span in which no new node can be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StockOut {
    /// From here on.
    pub from: Moment,
    /// Until here.
    pub until: Moment,
}

/// Ways in which starts go wrong. By default none does.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StartTrouble {
    /// The chance, 0 to 1, that the engine crashes at the end of a start and has to load again.
    pub failure: f64,
    /// When no node can be had, in the order of time.
    pub stock_outs: Vec<StockOut>,
    /// Pods that may hold a node at a time; those that go count until they are gone.
    pub quota: Option<u32>,
}

impl StartTrouble {
    /// Stock-outs at random instants: gaps and lengths are exponential with these means, until `until`. At most
    /// `MOST_STOCK_OUTS`, which is one an hour for a year.
    #[must_use]
    pub fn seeded_stock_outs(
        seed: u64,
        mean_gap: Duration,
        mean_length: Duration,
        until: Moment,
    ) -> Vec<StockOut> {
        const MOST_STOCK_OUTS: usize = 8760;
        let mut rng = StdRng::seed_from_u64(seed ^ 0x57_0C_C0_07);
        let mut drawn = |mean: Duration| {
            let uniform: f64 = rng.random();
            // A span of nothing would never come to an end of the list.
            mean.mul_f64(-(1.0 - uniform).ln()).max(Duration::from_secs(1))
        };
        let (mut at, mut stock_outs) = (Moment::START, Vec::new());
        while stock_outs.len() < MOST_STOCK_OUTS {
            let from = at.plus(drawn(mean_gap));
            if from >= until {
                break;
            }
            at = from.plus(drawn(mean_length));
            stock_outs.push(StockOut { from, until: at });
        }
        stock_outs
    }

    /// Until when no node can be had at this instant; None where one can.
    pub(super) fn stock_out(&self, at: Moment) -> Option<Moment> {
        self.stock_outs.iter().find(|out| out.from <= at && at < out.until).map(|out| out.until)
    }

    /// Does this attempt of this pod's start fail?
    pub(super) fn fails(&self, seed: u64, number: u64, attempt: u32) -> bool {
        let mut rng = of_pod(seed ^ u64::from(attempt + 1).rotate_left(32), number);
        self.failure > 0.0 && rng.random::<f64>() < self.failure
    }
}

/// How long the kubelet waits after so many crashes.
pub(super) fn crash_wait(restarts: u32) -> Duration {
    CRASH_WAIT.saturating_mul(1 << restarts.saturating_sub(1).min(8)).min(CRASH_WAIT_MOST)
}

/// The factor of one pod's cold start: lognormal with median 1.
pub(super) fn spread(seed: u64, number: u64, sigma: f64) -> f64 {
    let mut rng = of_pod(seed, number);
    let (u, v): (f64, f64) = (rng.random(), rng.random());
    // Box and Muller's normal variate; three sigma are the end.
    let normal = (-2.0 * (1.0 - u).ln()).sqrt() * (TAU * v).cos();
    (sigma * normal.clamp(-3.0, 3.0)).exp()
}

fn of_pod(seed: u64, number: u64) -> StdRng {
    StdRng::seed_from_u64(seed ^ number.wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn the_parts_of_a_start_add_up_to_the_cold_start() {
        for total in [0, 1, 2, 60, 180, 600] {
            for stages in [StartStages::warm_node(seconds(total)), StartStages::new_node(seconds(total))] {
                assert_eq!(stages.total(), seconds(total));
                assert_eq!(stages.with_total(seconds(1000)).total(), seconds(1000));
            }
        }
        let stages = StartStages::new_node(seconds(102));
        assert_eq!((stages.pending, stages.node, stages.engine), (seconds(2), seconds(40), seconds(15)));
    }

    #[test]
    fn stock_outs_are_the_same_for_the_same_seed_and_end() {
        let until = Moment::from_seconds(7.0 * 86_400.0);
        let drawn = StartTrouble::seeded_stock_outs(1, seconds(36_000), seconds(1800), until);
        assert_eq!(drawn, StartTrouble::seeded_stock_outs(1, seconds(36_000), seconds(1800), until));
        assert_ne!(drawn, StartTrouble::seeded_stock_outs(2, seconds(36_000), seconds(1800), until));
        assert!((8..30).contains(&drawn.len()), "{}", drawn.len());
        assert!(drawn.is_sorted_by(|one, next| one.until < next.from));
        assert!(StartTrouble::seeded_stock_outs(1, seconds(0), seconds(0), until).len() <= 8760);
    }

    #[test]
    fn a_crashed_engine_is_tried_again_later_and_later() {
        let waits: Vec<u64> = (1..8).map(|restarts| crash_wait(restarts).as_secs()).collect();
        assert_eq!(waits, [10, 20, 40, 80, 160, 300, 300]);
    }

    #[test]
    fn failures_come_as_often_as_their_chance_says() {
        let trouble = StartTrouble { failure: 0.2, ..StartTrouble::default() };
        let failed = (0..10_000).filter(|number| trouble.fails(7, *number, 0)).count();
        assert!((1_800..2_200).contains(&failed), "{failed}");
        assert!(!StartTrouble::default().fails(7, 1, 0));
    }
}
