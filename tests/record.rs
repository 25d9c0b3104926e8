//! What a running scaler recorded is decided again, byte for byte; what was changed, cut or lost is told.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

mod common {
    pub mod fake_engine;
    pub mod server;
    pub mod vllm_page;
}

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use common::fake_engine::{Answer, FakeEngine};
use common::server::{PATIENCE, start, until};
use common::vllm_page::Load;
use flate2::read::MultiGzDecoder;
use keda_vllm_scaler::config;
use keda_vllm_scaler::record;
use keda_vllm_scaler::server::Running;

fn page(waiting: u32, kv_usage: f64, tokens: u32) -> Answer {
    // Thirds are numbers that a recording must keep to the last digit.
    let generation_tokens = f64::from(tokens) / 3.0;
    Load { running: 4, waiting, kv_usage, prompt_tokens: tokens, generation_tokens }.page()
}

struct Scratch(tempfile::TempDir);

impl Scratch {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn folder(&self) -> PathBuf {
        self.0.path().join("recording")
    }

    /// A configuration; `record` is its section, `rest` is said of the tier.
    fn configuration(&self, replica: &FakeEngine, record: &str, rest: &str) -> PathBuf {
        let file = self.0.path().join("tiers.yaml");
        let text = format!(
            "listen: {{grpc: \"127.0.0.1:0\", http: \"127.0.0.1:0\", health: \"127.0.0.1:0\"}}\n{record}\n\
             tiers:\n\
             - name: chat\n  namespace: serving\n  source: {{fixed: {{urls: [\"{}\"]}}}}\n  \
             scrape: {{interval: 1s, timeout: 500ms, staleAfter: 4s}}\n  {rest}\n",
            replica.url()
        );
        std::fs::write(&file, text).unwrap();
        file
    }

    fn recorded_to(&self, max_size: &str) -> String {
        format!("record: {{path: \"{}\", maxSize: {max_size}}}", self.folder().display())
    }

    /// All lines of the recording, in order.
    fn lines(&self) -> Vec<String> {
        record::files(&self.folder()).unwrap().iter().flat_map(|file| lines(file)).collect()
    }

    /// A file with these lines.
    fn written(&self, name: &str, lines: &[String]) -> PathBuf {
        let file = self.0.path().join(name);
        std::fs::write(&file, lines.join("\n") + "\n").unwrap();
        file
    }
}

fn lines(file: &Path) -> Vec<String> {
    let mut text = String::new();
    // A file that is still written has no end.
    drop(MultiGzDecoder::new(std::fs::File::open(file).unwrap()).read_to_string(&mut text));
    text.lines().map(str::to_owned).collect()
}

/// Waits for so many more decisions.
async fn decisions(running: &Running, count: usize) {
    let (mut seen, mut last) = (0, None);
    until(running, "decisions", |snapshot| {
        let at = snapshot.tiers.values().next().map(|status| status.decision.at);
        if at.is_some() && at != last {
            (seen, last) = (seen + 1, at);
        }
        (seen > count).then_some(())
    })
    .await;
}

fn replay(path: &Path, more: &[&str]) -> Output {
    assert_cmd::Command::cargo_bin("keda-vllm-scaler")
        .unwrap()
        .args(["backtest", "--replay"])
        .arg(path)
        .args(more)
        .output()
        .unwrap()
}

fn printed(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap() + &String::from_utf8_lossy(&output.stderr)
}

#[track_caller]
fn differs(path: &Path, words: &[&str]) {
    let output = replay(path, &[]);
    let told = printed(&output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    for words in words {
        assert!(told.contains(words), "{words}: {told}");
    }
}

#[track_caller]
fn equal(path: &Path) -> serde_json::Value {
    let output = replay(path, &["--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", printed(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A server that has seen load come, a replica die, a policy change, and its end.
async fn a_day(scratch: &Scratch) {
    let replica = FakeEngine::start(page(0, 0.9, 1000)).await;
    let record = scratch.recorded_to("64MiB");
    let file = scratch.configuration(&replica, &record, "replicas: {min: 1, max: 8}");
    let running = start(&file).await;
    decisions(&running, 2).await;
    replica.now_answers(page(7, 0.97, 123_457));
    decisions(&running, 2).await;
    replica.now_answers(Answer::Reset);
    decisions(&running, 2).await;
    let floor = "{timezone: Europe/Berlin, start: \"0 8 * * *\", end: \"0 18 * * *\", desiredReplicas: 5}";
    let rest = format!("replicas: {{min: 2, max: 9}}\n  floors: [{floor}]");
    let changed = scratch.configuration(&replica, &record, &rest);
    running.reload(config::load_file(&changed).unwrap()).await.unwrap();
    replica.now_answers(page(1, 0.333_333_333_333, 200_001));
    decisions(&running, 2).await;
    assert_eq!(running.published.now().record.alarm, None);
    running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_recorded_is_decided_again_byte_for_byte() {
    let scratch = Scratch::new();
    a_day(&scratch).await;
    let replayed = equal(&scratch.folder());
    assert!(replayed["decisions"].as_u64().unwrap() >= 8, "{replayed}");
    assert_eq!(replayed["tiers"][0], "serving/chat");
    assert_eq!(replayed["unfinished"].as_array().unwrap().len(), 0, "it has its last line");
    assert!(printed(&replay(&scratch.folder(), &[])).contains("equal: every decision"));

    let lines = scratch.lines();
    assert!(lines.iter().filter(|line| line.starts_with("{\"begin\"")).count() >= 2, "two policies");
    whoever_changes_a_recording_is_told(&scratch, &lines);
    a_line_that_was_cut_leaves_the_rest(&scratch, &lines);
}

fn whoever_changes_a_recording_is_told(scratch: &Scratch, lines: &[String]) {
    let changed = |from: &str, to: &str| -> Vec<String> {
        let all: Vec<String> = lines.iter().map(|line| line.replace(from, to)).collect();
        assert_ne!(all, lines, "{from}");
        all
    };
    let policy = changed("\"min\":1,\"max\":8", "\"min\":3,\"max\":8");
    let told = ["first difference", "different: ", "recorded {\"required\"", "replayed {\"required\":3}"];
    differs(&scratch.written("policy.jsonl", &policy), &told);

    let seen = changed("\"kvUsage\":0.9,", "\"kvUsage\":0.4,");
    differs(&scratch.written("seen.jsonl", &seen), &["first difference", "asks"]);

    let answer = changed("{\"required\":2}", "{\"required\":1}");
    let file = scratch.written("answer.jsonl", &answer);
    differs(&file, &["recorded {\"required\":1}", "replayed {\"required\":2}"]);
    let json: serde_json::Value = serde_json::from_slice(&replay(&file, &["--json"]).stdout).unwrap();
    assert_eq!(json["firstDifference"]["recorded"]["answer"]["required"], 1, "{json}");
    assert_eq!(json["firstDifference"]["replayed"]["answer"]["required"], 2);

    let impossible = changed("\"min\":1,\"max\":8", "\"min\":9,\"max\":8");
    differs(&scratch.written("impossible.jsonl", &impossible), &["min is above max", "left out"]);

    let mut without_one = lines.to_vec();
    without_one.remove(4);
    differs(&scratch.written("missing.jsonl", &without_one), &["line 5", "missing or doubled"]);

    let mut broken = lines.to_vec();
    broken[4].truncate(300);
    differs(&scratch.written("broken.jsonl", &broken), &["line 5: not a line of a recording", "left out"]);

    let other = changed("{\"format\":1,", "{\"format\":2,");
    differs(&scratch.written("other.jsonl", &other), &["format 2", "nothing was replayed"]);
    differs(&scratch.written("headless.jsonl", &lines[1..]), &["the first line must be `record`"]);
}

fn a_line_that_was_cut_leaves_the_rest(scratch: &Scratch, lines: &[String]) {
    let whole = equal(&scratch.written("whole.jsonl", lines))["decisions"].as_u64().unwrap();
    let cut = scratch.written("cut.jsonl", lines);
    let length = cut.metadata().unwrap().len() - lines.last().unwrap().len() as u64;
    std::fs::OpenOptions::new().write(true).open(&cut).unwrap().set_len(length - 40).unwrap();
    let replayed = equal(&cut);
    assert_eq!(replayed["decisions"].as_u64().unwrap(), whole - 1);
    assert_eq!(replayed["unfinished"].as_array().unwrap().len(), 1);

    // The same of the compressed file, cut anywhere.
    let file = record::files(&scratch.folder()).unwrap().pop().unwrap();
    let bytes = std::fs::read(&file).unwrap();
    let cut = scratch.0.path().join("cut.jsonl.gz");
    std::fs::File::create(&cut).unwrap().write_all(&bytes[..bytes.len() * 3 / 4]).unwrap();
    let replayed = equal(&cut);
    assert!((1..whole).contains(&replayed["decisions"].as_u64().unwrap()), "{replayed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scaler_that_is_killed_leaves_what_it_decided() {
    let scratch = Scratch::new();
    let replica = FakeEngine::start(page(2, 0.9, 1000)).await;
    let file = scratch.configuration(&replica, &scratch.recorded_to("1MiB"), "replicas: {min: 1, max: 8}");
    let mut scaler = std::process::Command::new(env!("CARGO_BIN_EXE_keda-vllm-scaler"))
        .args(["serve", "--config"])
        .arg(&file)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let written = async {
        while !scratch.folder().exists()
            || scratch.lines().iter().filter(|line| line.starts_with("{\"decided\"")).count() < 3
        {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let written = tokio::time::timeout(PATIENCE, written).await;
    scaler.kill().unwrap();
    scaler.wait().unwrap();
    written.expect("three decisions");
    let replayed = equal(&scratch.folder());
    assert!(replayed["decisions"].as_u64().unwrap() >= 3, "{replayed}");
    assert_eq!(replayed["unfinished"].as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn recording_is_switched_on_and_off_while_the_server_runs() {
    let scratch = Scratch::new();
    let replica = FakeEngine::start(page(0, 0.9, 1000)).await;
    let bounds = "replicas: {min: 1, max: 8}";
    let off = config::load_file(scratch.configuration(&replica, "", bounds)).unwrap();
    let file = scratch.configuration(&replica, &scratch.recorded_to("1MiB"), bounds);
    let on = config::load_file(&file).unwrap();
    let running = start(&scratch.configuration(&replica, "", bounds)).await;
    decisions(&running, 1).await;
    assert!(!scratch.folder().exists());

    running.reload(on).await.unwrap();
    until(&running, "a recording", |snapshot| (snapshot.record.size_bytes > 0).then_some(())).await;
    decisions(&running, 2).await;
    running.reload(off).await.unwrap();
    assert_eq!(running.published.now().record.path, None);
    decisions(&running, 1).await;
    running.stop().await.unwrap();
    let replayed = equal(&scratch.folder());
    assert!(replayed["decisions"].as_u64().unwrap() >= 2, "{replayed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_path_that_can_t_be_written_is_an_alarm_and_no_answer_changes() {
    let scratch = Scratch::new();
    let replica = FakeEngine::start(page(0, 0.9, 1000)).await;
    std::fs::write(scratch.folder(), "a file where the folder should be").unwrap();
    let record = scratch.recorded_to("1MiB");
    let running = start(&scratch.configuration(&replica, &record, "replicas: {min: 1, max: 8}")).await;
    until(&running, "an alarm", |snapshot| {
        let alarm = snapshot.record.alarm.as_ref();
        let told = alarm.is_some_and(|alarm| alarm.contains("decisions are not recorded"));
        let answered = snapshot.tiers.values().any(|status| status.decision.required() == Some(2));
        (told && answered && snapshot.record.lost > 0).then_some(())
    })
    .await;
    running.stop().await.unwrap();
}

mod without_a_server {
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
            self.seed =
                self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
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
}
