//! `backtest --prometheus URL`: a live Prometheus is asked chunk by chunk, and what it says is the traffic.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

mod common {
    pub mod fake_tls;
}

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Output;
use std::sync::{Arc, Mutex};

use common::fake_tls::{Authority, FakeTls};

/// What it answers to a chunk: status and body.
type Answer = fn(&Asked) -> (u16, String);

/// A question that came in.
#[derive(Clone, Debug)]
struct Asked {
    query: String,
    start: i64,
    end: i64,
    step: i64,
    head: String,
}

/// A server with the one endpoint, which ends with the process.
struct FakePrometheus {
    addr: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl FakePrometheus {
    fn start(answer: Answer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let noted = asked.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                serve(stream, answer, &noted);
            }
        });
        Self { addr, asked }
    }

    fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

fn serve(mut stream: TcpStream, answer: Answer, noted: &Mutex<Vec<Asked>>) {
    let (mut head, mut chunk) = (Vec::new(), [0; 4096]);
    while !head.windows(4).any(|window| window == b"\r\n\r\n") {
        match stream.read(&mut chunk) {
            Ok(n) if n > 0 => head.extend_from_slice(&chunk[..n]),
            _ => return,
        }
    }
    let head = String::from_utf8(head).unwrap();
    let target = head.split(' ').nth(1).unwrap();
    let url = reqwest::Url::parse(&format!("http://x{target}")).unwrap();
    let pairs: HashMap<String, String> = url.query_pairs().into_owned().collect();
    let number = |key: &str| pairs[key].parse().unwrap();
    let query = pairs["query"].clone();
    let asked = Asked { query, start: number("start"), end: number("end"), step: number("step"), head };
    let (status, body) = answer(&asked);
    noted.lock().unwrap().push(asked);
    let told =
        format!("HTTP/1.1 {status} x\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len());
    drop(stream.write_all(told.as_bytes()));
}

/// Rates that go up and down with the hours, as Prometheus 3 writes them.
fn load(asked: &Asked) -> (u16, String) {
    let mut series = Vec::new();
    for (kind, scale) in [("requests", 1.0), ("input", 900.0), ("output", 200.0)] {
        let mut values = String::new();
        for at in (asked.start..=asked.end).step_by(asked.step as usize) {
            let rate = scale * (2.0 + (at as f64 / 3600.0).sin());
            write!(values, "{}[{at},\"{rate}\"]", if values.is_empty() { "" } else { "," }).unwrap();
        }
        series.push(format!("{{\"metric\":{{\"kind\":\"{kind}\"}},\"values\":[{values}]}}"));
    }
    (200, matrix(&series.join(",")))
}

fn matrix(series: &str) -> String {
    format!("{{\"status\":\"success\",\"data\":{{\"resultType\":\"matrix\",\"result\":[{series}]}}}}")
}

fn backtest(arguments: &[&str]) -> Output {
    assert_cmd::Command::cargo_bin("keda-vllm-scaler")
        .unwrap()
        .args(["backtest", "--peak-replicas", "4", "--cold-start", "30s", "--rivals", "none", "--json"])
        .args(arguments)
        .output()
        .unwrap()
}

const DAY: [&str; 4] = ["--from", "2026-03-01T00:00:00Z", "--to", "2026-03-02T00:00:00Z"];

#[track_caller]
fn fails(arguments: &[&str], code: i32, words: &[&str]) {
    let output = backtest(&[arguments, &DAY].concat());
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{told}");
    for words in words {
        assert!(told.contains(words), "{words}: {told}");
    }
}

#[track_caller]
fn played(arguments: &[&str]) -> serde_json::Value {
    let output = backtest(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_range_is_asked_for_in_chunks_and_is_the_same_traffic_as_the_saved_answer() {
    let server = FakePrometheus::start(load);
    let url = server.url();
    let asked = ["--prometheus", &url, "--query", "sum(x)", "--step", "5s"];
    let live = played(&[&asked[..], &DAY].concat());
    let chunks = server.asked();
    // 17,280 points, at most 11,000 at a time.
    let ranges: Vec<(i64, i64)> = chunks.iter().map(|chunk| (chunk.start, chunk.end)).collect();
    let begins = 1_772_323_200;
    assert_eq!(ranges, [(begins, begins + 54_995), (begins + 55_000, begins + 86_395)]);
    assert!(chunks.iter().all(|chunk| chunk.query == "sum(x)" && chunk.step == 5));
    assert_eq!((live["days"].as_f64(), live["begins"].as_str()), (Some(1.0), Some("2026-02-28T23:59:55Z")));

    let whole = Asked { start: begins, end: begins + 86_395, ..chunks[0].clone() };
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("saved.json");
    std::fs::write(&file, load(&whole).1).unwrap();
    assert_eq!(live, played(&["--prometheus", file.to_str().unwrap()]));

    let scenario = scratch.path().join("scenario.yaml");
    let text = format!(
        "prometheus:\n  url: {url}\n  query: sum(x)\n  from: {}\n  to: {}\n  step: 5s\n  bearerTokenFile: token\n",
        DAY[1], DAY[3]
    );
    std::fs::write(&scenario, text).unwrap();
    std::fs::write(scratch.path().join("token"), "s3cret\n").unwrap();
    assert_eq!(live, played(&[scenario.to_str().unwrap()]));
    assert!(server.asked().last().unwrap().head.to_lowercase().contains("authorization: bearer s3cret"));
}

#[test]
fn no_more_is_asked_for_than_is_played_and_a_model_is_asked_for_by_name() {
    let server = FakePrometheus::start(load);
    let url = server.url();
    played(
        &[&["--prometheus", &url, "--model", "llama", "--step", "1m", "--days", "0.5"][..], &DAY].concat(),
    );
    let [asked] = &server.asked()[..] else { panic!("{:?}", server.asked()) };
    assert_eq!(asked.end - asked.start, 43_200 - 60);
    assert!(
        asked.query.contains("rate(vllm:request_success_total{model_name=\"llama\"}[60s])"),
        "{}",
        asked.query
    );
}

#[test]
fn what_goes_wrong_names_the_query_and_the_chunk() {
    let refuses: Answer = |_| {
        (
            400,
            r#"{"status":"error","errorType":"bad_data","error":"1:5: parse error: unexpected end"}"#
                .to_owned(),
        )
    };
    let gateway: Answer = |_| (502, "<html>".to_owned());
    let overloaded: Answer =
        |_| (503, r#"{"status":"error","errorType":"timeout","error":"query timed out"}"#.to_owned());
    let second_is_lost: Answer =
        |asked| if asked.start > 1_772_323_200 { (500, String::new()) } else { load(asked) };
    let elsewhere: Answer = |asked| {
        (
            200,
            matrix(&format!(
                "{{\"metric\":{{\"kind\":\"requests\"}},\"values\":[[{},\"1\"]]}}",
                asked.start - 60
            )),
        )
    };
    let nothing: Answer = |_| (200, matrix(""));
    let vector: Answer =
        |_| (200, r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#.to_owned());
    let negative: Answer = |asked| {
        (
            200,
            matrix(&format!(
                "{{\"metric\":{{\"kind\":\"requests\"}},\"values\":[[{},\"-1\"],[{},\"1\"]]}}",
                asked.start,
                asked.start + asked.step
            )),
        )
    };
    let cases: [(Answer, &str, i32, &[&str]); 8] = [
        (refuses, "1m", 64, &["query `sum(x)`: 1:5: parse error"]),
        (gateway, "1m", 1, &["query `sum(x)`: status 502"]),
        (overloaded, "1m", 1, &["status 503: query timed out"]),
        (
            second_is_lost,
            "5s",
            1,
            &["chunk 2 of 2 (2026-03-01T15:16:40Z to 2026-03-01T23:59:55Z)", "status 500"],
        ),
        (elsewhere, "1m", 64, &["which wasn't asked for"]),
        (nothing, "1m", 64, &["no series matches the query"]),
        (vector, "1m", 64, &["the answer is a `vector`"]),
        (negative, "1m", 64, &["`-1` at ", "is no rate"]),
    ];
    for (answer, step, code, words) in cases {
        let server = FakePrometheus::start(answer);
        fails(&["--prometheus", &server.url(), "--query", "sum(x)", "--step", step], code, words);
    }
}

#[test]
fn a_server_that_is_silent_too_large_or_not_there_ends_the_command() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    fails(
        &["--prometheus", &url, "--query", "x", "--timeout", "1s"],
        1,
        &["no whole page within 1s", "query `x`"],
    );
    let endless: Answer = |_| (200, " ".repeat(65 << 20));
    let server = FakePrometheus::start(endless);
    fails(&["--prometheus", &server.url(), "--query", "x"], 1, &["the answer is larger than"]);
    let redirect: Answer = |_| (302, String::new());
    let server = FakePrometheus::start(redirect);
    fails(&["--prometheus", &server.url(), "--query", "x"], 1, &["redirects are not followed"]);
    fails(&["--prometheus", "http://127.0.0.1:1", "--query", "x"], 1, &["connection refused"]);
}

#[test]
fn https_needs_an_authority_that_is_trusted_and_files_that_are_there() {
    let scratch = tempfile::tempdir().unwrap();
    let (ours, others) = (Authority::new("ours"), Authority::new("others"));
    let (ca, other_ca) = (ours.write_ca(scratch.path()), others.write_ca(scratch.path()));
    // An answer without a series is enough to see that it was read.
    let server =
        FakeTls::start(&ours, None, r#"{"status":"success","data":{"resultType":"matrix","result":[]}}"#);
    let url = server.url().replace("/metrics", "");
    let ask = ["--prometheus", &url, "--query", "x"];
    fails(&[&ask[..], &["--ca", ca.to_str().unwrap()]].concat(), 64, &["no series matches"]);
    fails(&[&ask[..], &["--ca", other_ca.to_str().unwrap()]].concat(), 1, &["TLS: "]);
    fails(&[&ask[..], &["--bearer-token-file", "/nowhere/token"]].concat(), 1, &["/nowhere/token"]);
}

#[test]
fn flags_that_don_t_belong_together_are_refused() {
    fails(
        &["--prometheus", "month.json", "--query", "x"],
        64,
        &["a file is a saved answer, and --query asks a server"],
    );
    fails(&["--prometheus", "http://p"], 64, &["--query or --model"]);
    fails(&["--prometheus", "http://p", "--query", "x", "--model", "m"], 64, &["cannot be used with"]);
    fails(&["--prometheus", "http://u:hunter2@p", "--query", "x"], 64, &["bearerTokenFile"]);
    fails(&["--prometheus", "ftp://p", "--query", "x"], 64, &["scheme `ftp`"]);
    fails(&["--prometheus", "http://p", "--query", "x", "--step", "100ms"], 64, &["whole seconds"]);
    fails(&["--prometheus", "http://p", "--query", "x", "--timeout", "2h"], 64, &["from 1s to 1h"]);
    let output = backtest(&["--prometheus", "http://p", "--query", "x"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("--from and --to: needed"));
    fails(&["--trace", "a.csv", "--query", "x"], 64, &["--query: says more of --prometheus"]);
    fails(
        &["--arrivals", "poisson rate=1 for=1m", "--format", "azure"],
        64,
        &["--format: says more of --trace"],
    );
}
