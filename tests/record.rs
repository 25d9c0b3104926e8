//! What a running scaler recorded is decided again, byte for byte; what was changed, cut or lost is told.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

mod common {
    pub mod fake_engine;
    pub mod server;
    pub mod vllm_page;
}

#[path = "recording/without_a_server.rs"]
mod without_a_server;

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
