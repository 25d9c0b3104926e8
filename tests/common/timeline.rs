//! A tier told as a timeline: what is seen, and what is answered.
//!
//! `at` moves the clock in scrape rounds of 5 s, each decided as the server does it (learn, decide, record), with what
//! was told last. What follows `at` changes the tier from that instant on; `expect` decides there.

#![allow(dead_code, reason = "each test binary uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test's own helper")]

use std::time::Duration;

use chrono::{DateTime, NaiveDate, NaiveTime, TimeDelta, Utc};
use keda_vllm_scaler::decision::policy::{DeadBand, Floor, Ramp, ScaleDown, Step, TokenRates};
use keda_vllm_scaler::decision::{
    ActivatorObservation, Answer, Decision, Memory, Observation, Policy, ReplicaLoad, ReplicaObservation,
    ReplicaState, TierId, TierLoad, decide,
};
use keda_vllm_scaler::schedule::Window;

const ROUND: TimeDelta = TimeDelta::seconds(5);

/// A Tuesday.
pub(crate) fn instant(time: &str) -> DateTime<Utc> {
    let time = if time.len() == 5 { format!("{time}:00") } else { time.to_owned() };
    let time: NaiveTime = time.parse().unwrap();
    NaiveDate::from_ymd_opt(2026, 12, 1).unwrap().and_time(time).and_utc()
}

pub(crate) fn floor(name: &str, start: &str, end: &str, replicas: u32) -> Floor {
    Floor { name: name.into(), window: Window::parse("UTC", start, end).unwrap(), replicas }
}

/// Cold start 180 s and 30 s of control: one lead is 3m30s, and so is one hold. No dead band, and steps of any size.
pub(crate) fn policy() -> Policy {
    let rates = TokenRates { input_tokens_per_second: 8000.0, output_tokens_per_second: 700.0 };
    let defaults = Policy::with_defaults(TierId::new("serving", "chat-h100"), 40, rates);
    Policy {
        control_delay: Duration::from_secs(30),
        scale_down: ScaleDown { max_step: Step::Share(1.0), ..defaults.scale_down },
        dead_band: DeadBand { tolerance: 0.0, ..defaults.dead_band },
        ..defaults
    }
}

pub(crate) fn doubles_in(seconds: u64) -> Ramp {
    Ramp { factor: 2.0, within: Duration::from_secs(seconds) }
}

pub(crate) struct Timeline {
    pub(crate) policy: Policy,
    pub(crate) memory: Memory,
    pub(crate) seen: Observation,
    pub(crate) now: DateTime<Utc>,
    pub(crate) last: Option<Decision>,
}

impl Timeline {
    /// A tier that has been watched for long.
    pub(crate) fn new(policy: Policy) -> Self {
        Self::with_memory(policy, Memory::default())
    }

    pub(crate) fn with_memory(policy: Policy, memory: Memory) -> Self {
        let seen = Observation {
            load: TierLoad {
                // A request costs 0.1 + 0.2 replica-seconds.
                mean_input_tokens: Some(800.0),
                mean_output_tokens: Some(140.0),
                ..TierLoad::default()
            },
            ..Observation::listed(Vec::new())
        };
        Self { policy, memory, seen, now: instant("00:00"), last: None }
    }

    /// Moves on to this time, deciding every 5 s on what was told last.
    pub(crate) fn at(&mut self, time: &str) -> &mut Self {
        let until = instant(time);
        while self.last.is_some() && self.now + ROUND < until {
            self.now += ROUND;
            self.round();
        }
        self.now = until;
        self
    }

    /// Moves the clock without a round, forward or back.
    pub(crate) fn clock_jumps_by(&mut self, span: TimeDelta) -> &mut Self {
        self.now += span;
        self
    }

    /// Learns, decides and records once, now.
    pub(crate) fn round(&mut self) -> &Decision {
        self.memory.learn(&self.policy, &self.seen, self.now);
        let decision = decide(&self.policy, &self.seen, &self.memory, self.now);
        self.memory.record(&decision);
        self.last.insert(decision)
    }

    #[track_caller]
    pub(crate) fn expect(&mut self, replicas: u32) -> &mut Self {
        let now = self.now;
        let decision = self.round();
        assert_eq!(decision.answer, Answer::Required(replicas), "at {now}: {decision:#?}");
        self
    }

    #[track_caller]
    pub(crate) fn expect_unknown(&mut self, why: &str) -> &mut Self {
        let now = self.now;
        let decision = self.round();
        match &decision.answer {
            Answer::Unknown { why: told } => assert!(told.contains(why), "at {now}: {told}"),
            Answer::Required(n) => panic!("at {now}: answered {n}: {decision:#?}"),
        }
        self
    }

    /// What set the last answer.
    #[track_caller]
    pub(crate) fn because(&mut self, words: &str) -> &mut Self {
        let reason = self.last.as_ref().unwrap().binding();
        let told = format!("{}: {}", reason.kind.name(), reason.because);
        assert!(told.contains(words), "at {}: {told}", self.now);
        self
    }

    #[track_caller]
    pub(crate) fn notes(&mut self, words: &str) -> &mut Self {
        let notes = &self.last.as_ref().unwrap().notes;
        assert!(notes.iter().any(|note| note.contains(words)), "at {}: {notes:?}", self.now);
        self
    }

    /// So many replicas serve, each with nothing to do.
    pub(crate) fn ready(&mut self, n: u32) -> &mut Self {
        self.seen.replicas = (0..n).map(|n| replica(&format!("r{n}"), ReplicaState::Ready)).collect();
        self
    }

    /// More of them, in another state.
    pub(crate) fn and(&mut self, n: u32, state: ReplicaState) -> &mut Self {
        let from = self.seen.replicas.len();
        self.seen.replicas.extend((from..from + n as usize).map(|n| replica(&format!("r{n}"), state)));
        self
    }

    pub(crate) fn state_of(&mut self, name: &str, state: ReplicaState) -> &mut Self {
        let found = self.seen.replicas.iter_mut().find(|replica| replica.id == name).unwrap();
        found.state = state;
        if !matches!(state, ReplicaState::Ready | ReplicaState::Terminating) {
            found.load = None;
        }
        self
    }

    /// KV usage of each replica that tells its load.
    pub(crate) fn kv(&mut self, usage: f64) -> &mut Self {
        self.each(|load| load.kv_usage = Some(usage))
    }

    /// Running requests of each.
    pub(crate) fn running(&mut self, requests: f64) -> &mut Self {
        self.each(|load| load.running = Some(requests))
    }

    /// Waiting requests of each.
    pub(crate) fn waiting(&mut self, requests: f64) -> &mut Self {
        self.each(|load| load.waiting = Some(requests))
    }

    /// Token work of each, in replica-seconds a second, half of it input.
    pub(crate) fn work(&mut self, work: f64) -> &mut Self {
        self.each(|load| work_of(load, work))
    }

    pub(crate) fn each(&mut self, change: impl Fn(&mut ReplicaLoad)) -> &mut Self {
        self.seen.replicas.iter_mut().filter_map(|replica| replica.load.as_mut()).for_each(change);
        self
    }

    pub(crate) fn current(&mut self, n: u32) -> &mut Self {
        self.seen.current = Some(n);
        self
    }

    pub(crate) fn activator(&mut self, queued: f64) -> &mut Self {
        self.seen.activator = Some(ActivatorObservation { queued: Some(queued), age: None, error: None });
        self
    }

    pub(crate) fn activator_unreadable(&mut self) -> &mut Self {
        let error = Some("connection refused".to_owned());
        self.seen.activator = Some(ActivatorObservation { queued: None, age: None, error });
        self
    }

    pub(crate) fn replicas_unknown(&mut self, why: &str) -> &mut Self {
        self.seen.replicas_unknown = Some(why.into());
        self
    }

    pub(crate) fn replicas_known(&mut self) -> &mut Self {
        self.seen.replicas_unknown = None;
        self
    }
}

/// Token work of one, half of it input.
pub(crate) fn work_of(load: &mut ReplicaLoad, work: f64) {
    load.uncached_input_tokens_per_second = Some(work / 2.0 * 8000.0);
    load.output_tokens_per_second = Some(work / 2.0 * 700.0);
}

pub(crate) fn replica(name: &str, state: ReplicaState) -> ReplicaObservation {
    let load = ReplicaLoad {
        running: Some(0.0),
        waiting: Some(0.0),
        kv_usage: Some(0.0),
        uncached_input_tokens_per_second: Some(0.0),
        output_tokens_per_second: Some(0.0),
        requests_per_second: Some(0.0),
        ..ReplicaLoad::default()
    };
    let tells = matches!(state, ReplicaState::Ready | ReplicaState::Terminating);
    ReplicaObservation {
        id: name.into(),
        name: name.into(),
        state,
        since: None,
        load: tells.then_some(load),
        page_age: tells.then_some(Duration::ZERO),
        error: None,
        start: None,
    }
}
