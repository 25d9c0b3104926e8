//! What is under way, what is blocked, and what Kubernetes says of the scale target. Each test name is a rule.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

#[path = "common/pods.rs"]
mod pods;
#[path = "common/timeline.rs"]
mod timeline;

use std::sync::Arc;
use std::time::Duration;

use chrono::TimeDelta;
use keda_vllm_scaler::decision::policy::{DeadBand, InsideBand};
use keda_vllm_scaler::decision::{Answer, BlockedReason, BoundKind, Policy, ReplicaState};
use keda_vllm_scaler::supply::ScaleFacts;
use pods::Pod;
use timeline::{Timeline, floor, instant, policy, work_of};

/// What a request costs in the timelines, in replica-seconds.
const COST: f64 = 0.3;

/// A tier under a load, as a fluid: each ready replica does one replica-second of work a second, what is more waits. An
/// answer is ordered at once.
struct Fluid {
    tier: Timeline,
    pods: Vec<Pod>,
    /// Replica-seconds that arrive a second.
    load: f64,
    /// Replica-seconds that wait.
    backlog: f64,
    /// How long a start takes, seconds.
    start: i64,
    /// Rates and growth are means over so many rounds of 5 s, as scraped ones are.
    window: usize,
    /// What each replica served, and the backlog after it, by round.
    rounds: Vec<(f64, f64)>,
}

impl Fluid {
    fn new(ready: usize, start: i64) -> Self {
        let mut tier = Timeline::new(policy());
        tier.now = instant("10:00");
        let pods = (0..ready).map(|n| Pod::new(&format!("r{n}"), instant("06:00"), 180)).collect();
        Self { tier, pods, load: 1.0, backlog: 0.0, start, window: 1, rounds: vec![(0.0, 0.0)] }
    }

    /// The largest answer until then.
    fn run(&mut self, until: &str) -> u32 {
        let until = instant(until);
        let mut most = 0;
        while self.tier.now < until {
            self.tier.now += TimeDelta::seconds(5);
            most = most.max(self.step());
        }
        most
    }

    fn step(&mut self) -> u32 {
        let now = self.tier.now;
        self.tier.seen.replicas = self.pods.iter().map(|pod| pod.seen(now)).collect();
        let ready = f64::from(self.tier.seen.count(ReplicaState::Ready));
        let before = self.backlog;
        self.backlog = (before + 5.0 * (self.load - ready)).max(0.0);
        let served = self.load - (self.backlog - before) / 5.0;
        let waiting = self.backlog / COST / ready;
        self.rounds.push((served / ready, self.backlog));
        self.tier.waiting(waiting).kv(0.7 * served / ready).work(served / ready);
        for (pod, replica) in self.pods.iter().zip(&mut self.tier.seen.replicas) {
            let (Some(load), Some(since)) = (&mut replica.load, pod.seen(now).since) else { continue };
            // A replica tells nothing of the time before its first page.
            let read = usize::try_from((now - since).num_seconds() / 5).unwrap().clamp(1, self.window);
            let served = self.rounds.iter().rev().take(read).map(|(served, _)| served).sum::<f64>();
            work_of(load, served / read as f64);
            load.kv_tokens = Some(400_000.0);
            load.rates_over = Some(Duration::from_secs(5 * read as u64));
        }
        let (_, earlier) = self.rounds[self.rounds.len().saturating_sub(self.window + 1)];
        let growth = (self.backlog - earlier) / (5.0 * self.window as f64) / COST;
        self.tier.seen.load.waiting_growth_per_second = Some(growth);
        self.tier.seen.load.rates_over = Some(Duration::from_secs(5 * self.window as u64));
        let answer = self.tier.round().required().unwrap();
        for _ in self.pods.len()..answer as usize {
            self.pods.push(Pod::new(&format!("r{}", self.pods.len()), now, self.start));
        }
        answer
    }
}

#[test]
fn a_step_of_the_load_gives_one_order_while_replicas_start_not_a_rising_series() {
    let mut fluid = Fluid::new(2, 180);
    assert_eq!(fluid.run("10:05"), 2);
    fluid.load = 3.4;
    let ordered = fluid.run("10:05:05");
    assert_eq!(ordered, 5, "3.4 / 0.8, and hardly a backlog yet");
    assert_eq!(fluid.run("10:08:00"), 5, "{:#?}", fluid.tier.last);
    assert!(fluid.backlog > 240.0, "1.4 replica-seconds a second for three minutes");
    let waiting = fluid.tier.last.as_ref().unwrap().asks[2].because.clone();
    assert!(waiting.contains("that are served before a new replica could be ready"), "{waiting}");
    // All five work the backlog off: they serve more than arrives, and most of the backlog is still there.
    assert_eq!(fluid.run("10:20"), 5, "{:#?}", fluid.tier.last);
    assert!(fluid.backlog < 1.0);
}

#[test]
fn replicas_that_take_work_over_are_no_work_on_top_of_what_the_others_had() {
    let mut fluid = Fluid::new(2, 180);
    fluid.window = 12;
    fluid.run("10:05");
    fluid.load = 3.4;
    assert_eq!(fluid.run("10:08:05"), 5, "{:#?}", fluid.tier.last);
    // All five serve now. For a minute the first two still show what they had alone, and how the backlog grew.
    assert_eq!(fluid.run("10:20"), 5, "{:#?}", fluid.tier.last);
}

#[test]
fn a_queue_that_the_first_replica_takes_over_from_the_activator_is_no_load() {
    // 2.6 requests a second waited for 20 s. Now the first page but one of the replica that came shows them running and
    // waiting, and a second of service at full speed; the activator has shown its queue for a minute.
    let mut tier = Timeline::new(policy());
    tier.at("10:00").ready(1).work(1.0).waiting(44.0);
    tier.each(|load| load.rates_over = Some(Duration::from_secs(1)));
    tier.seen.load.rates_over = Some(Duration::from_secs(60));
    // 44 more at the replica, 48 less at the activator than a second ago, 5 more than a minute ago.
    tier.seen.load.waiting_growth_per_second = Some((44.0 - 5.0) / 60.0);
    tier.expect(1).because("waiting asks 0.48");
}

#[test]
fn after_a_start_of_this_scaler_all_replicas_are_equally_new() {
    let mut tier = Timeline::new(policy());
    tier.at("10:00").ready(2).work(1.0).each(|load| load.rates_over = Some(Duration::from_secs(5)));
    tier.seen.load.rates_over = Some(Duration::from_secs(5));
    tier.expect(3).because("tokens asks 2.50");
}

#[test]
fn a_replica_beyond_its_deadline_is_not_counted_on() {
    // 1.5 times the expected 180 s.
    let mut fluid = Fluid::new(2, 100_000);
    fluid.run("10:05");
    fluid.load = 3.4;
    assert_eq!(fluid.run("10:05:05"), 5);
    assert_eq!(fluid.run("10:09:30"), 5);
    assert!(fluid.run("10:10") > 8, "a backlog of nearly five minutes counts again");
    fluid.tier.notes("3 replicas starting for longer than 4m30s: not counted on any more");
}

#[test]
fn what_is_coming_lowers_no_answer() {
    let mut tier = Timeline::new(policy());
    tier.at("10:00").ready(2).work(0.8).waiting(400.0).kv(0.5).expect(6);
    tier.and(4, ReplicaState::Starting).at("10:02").expect(6).because("what is under way gives nothing back");
    // The backlog is gone for one who looks up only.
    let waiting = &tier.last.as_ref().unwrap().asks[2];
    assert!((waiting.replicas.unwrap() - 2.0).abs() < 1e-9, "{waiting:?}");
    assert!((waiting.if_unknown_is_full.unwrap() - 6.0).abs() < 1e-9, "{waiting:?}");
}

#[test]
fn a_tier_that_starts_or_drains_is_in_use_however_long() {
    let mut tier = Timeline::new(Policy { min: 0, ..policy() });
    tier.at("10:00").ready(0).activator(5.0).expect(1);
    tier.and(1, ReplicaState::Starting).activator(0.0).at("10:30").expect(1).because("inUse");
    tier.ready(0).and(1, ReplicaState::Terminating).running(1.0).at("11:00").expect(1).because("inUse");
    tier.running(0.0).at("11:30").expect(0);
}

#[test]
fn blocked_replicas_get_no_credit_and_keep_nothing_that_nobody_waits_for() {
    let mut tier = Timeline::new(policy());
    tier.at("10:00").ready(2).work(0.8).waiting(400.0).expect(6);
    tier.and(4, ReplicaState::Blocked).at("10:02").expect(6);
    let waiting = &tier.last.as_ref().unwrap().asks[2];
    assert!((waiting.replicas.unwrap() - 6.0).abs() < 1e-9, "{waiting:?}");

    let mut tier = Timeline::new(Policy { min: 0, ..policy() });
    tier.at("10:00").ready(0).activator(5.0).expect(1);
    tier.and(1, ReplicaState::Blocked).at("10:30").expect(1).because("demand");
    tier.activator(0.0).at("10:31").expect(1).because("hold");
    tier.at("11:00").expect(0);
}

#[test]
fn blocked_capacity_is_named_with_the_pod_s_own_reason() {
    let mut tier = Timeline::new(policy());
    let pod = Pod { blocked: Some(0), ..Pod::new("p", instant("09:50"), 100_000) };
    tier.at("10:00").ready(1);
    tier.seen.replicas.push(pod.seen(instant("10:00")));
    tier.seen.scale = Some(Arc::new(ScaleFacts {
        ordered: Some(4),
        create_refused: Some("exceeded quota: gpus".to_owned()),
        ..ScaleFacts::default()
    }));
    tier.expect(1)
        .notes("capacity blocked: 1 replica can't start: Unschedulable: 0/3 nodes are available")
        .notes("capacity blocked: 2 replicas can't be created: exceeded quota: gpus");
    let blocked = &tier.last.as_ref().unwrap().blocked;
    let told: Vec<_> = blocked.iter().map(|group| (group.reason, group.replicas)).collect();
    assert_eq!(told, [(BlockedReason::Unschedulable, 1), (BlockedReason::CreateRefused, 2)]);
}

fn told_by_kubernetes(scale: ScaleFacts) -> Timeline {
    let mut tier = Timeline::new(Policy {
        floors: vec![floor("workday", "0 9 * * *", "0 18 * * *", 12)],
        dead_band: DeadBand { tolerance: 0.1, inside: InsideBand::Exceed },
        ..policy()
    });
    tier.seen.scale = Some(Arc::new(scale));
    tier
}

#[test]
fn a_refusal_answers_nothing_at_once_floors_included() {
    let why = "trigger 0 has metricType Value: the HPA would multiply the answer";
    let mut tier = told_by_kubernetes(ScaleFacts { refused: Some(why.to_owned()), ..ScaleFacts::default() });
    tier.at("12:00").ready(8).kv(0.8).expect_unknown(why);
    let decision = tier.last.as_ref().unwrap();
    assert_eq!((decision.winner.kind, decision.held.clone()), (BoundKind::Refused, None));
    tier.policy.floors_only = true;
    tier.at("12:01").expect_unknown(why);
    tier.seen.scale = None;
    tier.at("12:02").expect(12).because("floor workday");
}

#[test]
fn the_scaled_object_s_tolerance_replaces_the_configured_one() {
    let tolerance = |told: Option<f64>| {
        let mut tier = told_by_kubernetes(ScaleFacts { tolerance: told, ..ScaleFacts::default() });
        tier.at("12:00").ready(11).current(11).kv(0.8).round().answer.clone()
    };
    assert_eq!(tolerance(None), Answer::Required(13), "12 is within 10 % of 11");
    assert_eq!(tolerance(Some(0.0)), Answer::Required(12));
    assert_eq!(tolerance(Some(0.2)), Answer::Required(14));
    assert_eq!(tolerance(Some(f64::NAN)), Answer::Required(13));
}

#[test]
fn a_scaled_object_that_contradicts_the_policy_is_named() {
    let mut tier = told_by_kubernetes(ScaleFacts {
        max_replicas: Some(5),
        min_replicas: Some(2),
        paused: Some("autoscaling.keda.sh/paused-replicas: \"3\"".to_owned()),
        ..ScaleFacts::default()
    });
    tier.at("12:00")
        .ready(3)
        .expect(12)
        .notes("the ScaledObject caps at 5 (maxReplicaCount), below max 40")
        .notes("floor workday promises 12, and the ScaledObject caps at 5")
        .notes("keeps at least 2 (minReplicaCount), above min 1")
        .notes("the ScaledObject is paused (autoscaling.keda.sh/paused-replicas: \"3\")");
}

#[test]
fn a_latency_above_its_target_doubles_a_tier_once() {
    let mut policy = policy();
    policy.signals.latency.weight = 1.0;
    policy.signals.latency.queue_time_p95 = Some(Duration::from_secs(2));
    let mut tier = Timeline::new(policy);
    tier.at("10:00").ready(4).work(0.1);
    tier.seen.load.queue_time_p95_seconds = Some(keda_vllm_scaler::quantile::Quantile::between(20.0));
    tier.expect(8).because("latency asks 8.00");
    tier.and(4, ReplicaState::Starting).at("10:03").expect(8).because("latency asks 8.00");
    // Half of them are there, the requests that finish still tell of the time before.
    tier.ready(6).work(0.1).and(2, ReplicaState::Starting).at("10:03:30").expect(10);
}
