//! The recorder by itself: many decisions in no time.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use keda_vllm_scaler::config::RecordSettings;
use keda_vllm_scaler::decision::policy::TokenRates;
use keda_vllm_scaler::decision::{
    Memory, Observation, Policy, ReplicaLoad, ReplicaObservation, ReplicaState, TierId, decide,
};
use keda_vllm_scaler::record::{Recorded, Recorder};
use keda_vllm_scaler::snapshot::TierStatus;

use super::*;

struct Tier {
    policy: Arc<Policy>,
    memory: Memory,
    recorded: Recorded,
    now: DateTime<Utc>,
    /// Changes what is seen, so that no two lines are alike.
    seed: u64,
}

impl Tier {
    fn new(name: &str) -> Self {
        let rates = TokenRates { input_tokens_per_second: 8000.0, output_tokens_per_second: 700.0 };
        let now = "2026-03-02T08:00:00Z".parse().unwrap();
        // What a forecast has learned would be larger than all files here.
        let defaults = Policy::with_defaults(TierId::new("serving", name), 50, rates);
        Self {
            policy: Arc::new(Policy { forecast: None, ..defaults }),
            memory: Memory::started(now),
            recorded: Recorded::default(),
            now,
            seed: 1,
        }
    }

    fn share(&mut self) -> f64 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn decide(&mut self, recorder: &mut Recorder, replicas: usize) {
        let (before, status) = self.decided(recorder, replicas);
        recorder.decided(&mut self.recorded, before, &status);
    }

    /// The same, not handed over yet.
    fn decided(&mut self, recorder: &mut Recorder, replicas: usize) -> (Option<Memory>, Arc<TierStatus>) {
        self.now += TimeDelta::milliseconds(5003);
        let replicas = (0..replicas).map(|index| ReplicaObservation {
            id: format!("replica-{index}"),
            name: format!("replica-{index}"),
            state: ReplicaState::Ready,
            since: None,
            load: Some(ReplicaLoad {
                running: Some((self.share() * 60.0).round()),
                kv_usage: Some(self.share()),
                input_tokens_per_second: Some(self.share() * 9000.0),
                output_tokens_per_second: Some(self.share() * 900.0),
                ..ReplicaLoad::default()
            }),
            page_age: Some(Duration::from_nanos((self.share() * 1e9) as u64)),
            error: None,
            start: None,
        });
        let observation = Observation::listed(replicas.collect());
        let before = recorder.begins(&self.recorded, &self.policy, self.now).then(|| self.memory.clone());
        self.memory.learn(&self.policy, &observation, self.now);
        let decision = decide(&self.policy, &observation, &self.memory, self.now);
        self.memory.record(&decision);
        let status = Arc::new(TierStatus {
            policy: Arc::clone(&self.policy),
            decision,
            observation,
            recent: Arc::default(),
            floors_ahead: Vec::new(),
            declared_by_metadata: false,
            warnings: Vec::new(),
            asked: keda_vllm_scaler::telemetry::Asked::default(),
            unasked: false,
            history_minutes: 0,
            learned: Arc::default(),
            forecast: None,
        });
        (before, status)
    }
}

fn recorder(scratch: &Scratch, max_size: u64) -> Recorder {
    Recorder::new(Some(RecordSettings { path: scratch.folder(), max_size }))
}

#[tokio::test]
async fn files_rotate_within_their_size_and_each_replays_by_itself() {
    const MAX_SIZE: u64 = 100_000;
    let scratch = Scratch::new();
    let mut recorder = recorder(&scratch, MAX_SIZE);
    let mut tiers = [Tier::new("chat"), Tier::new("code")];
    for round in 0..400 {
        let size = recorder.status().size_bytes;
        tiers[round % 2].decide(&mut recorder, 8);
        // The writer keeps up with the scaler; here the scaler waits for the writer.
        while recorder.status().size_bytes == size {
            std::thread::yield_now();
        }
    }
    assert_eq!(recorder.status().lost, 0);
    assert_eq!(recorder.status().alarm, None);
    recorder.stop().await;
    let files = record::files(&scratch.folder()).unwrap();
    assert!(files.len() > 3, "{files:?}");
    assert!(!files[0].to_string_lossy().contains("00000001"), "the oldest are gone: {files:?}");
    let total: u64 = files.iter().map(|file| file.metadata().unwrap().len()).sum();
    assert!((MAX_SIZE / 2..=MAX_SIZE).contains(&total), "{total}");
    let replayed = equal(&scratch.folder());
    assert_eq!(replayed["tiers"].as_array().unwrap().len(), 2);
    for file in files {
        assert!(equal(&file)["decisions"].as_u64().unwrap() > 0);
    }
}

#[tokio::test]
async fn what_the_disk_does_not_keep_up_with_is_counted_and_ends_the_file() {
    let scratch = Scratch::new();
    let mut recorder = recorder(&scratch, 64 << 20);
    let mut tier = Tier::new("chat");
    tier.decide(&mut recorder, 3);
    // More replicas than may wait at a time: the second finds the first one waiting.
    let made = [tier.decided(&mut recorder, 40_000), tier.decided(&mut recorder, 40_000)];
    for (before, status) in made {
        recorder.decided(&mut tier.recorded, before, &status);
    }
    let lost = recorder.status().lost;
    assert_eq!(lost, 1);
    assert!(recorder.status().alarm.unwrap().contains("doesn't keep up"));
    while recorder.status().size_bytes < 100_000 {
        std::thread::yield_now();
    }
    tier.decide(&mut recorder, 3);
    assert_eq!(recorder.status().alarm, None);
    recorder.stop().await;
    assert_eq!(record::files(&scratch.folder()).unwrap().len(), 2, "another file begins after the gap");
    let replayed = equal(&scratch.folder());
    assert_eq!((&replayed["decisions"], &replayed["lost"]), (&3.into(), &1.into()), "{replayed}");
}

#[tokio::test]
async fn a_scaler_that_begins_again_goes_on_in_another_file() {
    let scratch = Scratch::new();
    for _ in 0..2 {
        let mut recorder = recorder(&scratch, 1 << 20);
        Tier::new("chat").decide(&mut recorder, 3);
        recorder.stop().await;
    }
    assert_eq!(record::files(&scratch.folder()).unwrap().len(), 2);
    assert_eq!(equal(&scratch.folder())["decisions"], 2);
}
