//! The command `read`: a page from a file, from standard input or from a server; what is missing; exit codes.
#![expect(clippy::unwrap_used, reason = "a test that can't find its fixtures fails")]

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::thread;

use assert_cmd::Command;

const CONTENT_TYPE: &str = "text/plain; version=1.0.0; charset=utf-8";

fn capture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/vllm").join(format!("{name}.txt.gz"))
}

fn unpacked(name: &str) -> Vec<u8> {
    let packed = std::fs::read(capture(name)).unwrap();
    let mut page = Vec::new();
    flate2::read::GzDecoder::new(packed.as_slice()).read_to_end(&mut page).unwrap();
    page
}

fn read(arguments: &[&str], input: &[u8]) -> Output {
    Command::cargo_bin("keda-vllm-scaler")
        .unwrap()
        .arg("read")
        .args(arguments)
        .write_stdin(input)
        .output()
        .unwrap()
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn failure(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A server that gives one answer to one request, and its URL.
fn answer_once(head: String, body: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/metrics", listener.local_addr().unwrap());
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 4096];
        let _ = stream.read(&mut request).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        // The client may hang up on a page that is too large.
        drop(stream.write_all(&body));
    });
    url
}

fn page_of_server(body: &[u8]) -> String {
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {CONTENT_TYPE}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    answer_once(head, body.to_vec())
}

#[test]
fn a_recorded_page_is_shown_with_its_load() {
    let path = capture("0.32.0/single/100");
    let shown = text(&read(&[path.to_str().unwrap()], b""));
    for line in [
        "engine kind             vLLM, V1 engine",
        "model                   tiny",
        "process started         2026-11-29 16:57:14 UTC",
        "awake                   yes",
        "KV tokens an engine     1536",
        "  running               2",
        "  waiting               20  (20 for capacity, 0 deferred)",
        "  KV usage              83.0 %",
        "  prompt tokens         3488  (2944 computed)",
        "  output tokens         7505",
    ] {
        assert!(shown.lines().any(|shown| shown == line), "{line:?} is not in\n{shown}");
    }
    assert!(!shown.contains("missing"), "{shown}");
}

#[test]
fn a_quantile_in_the_first_bucket_is_shown_as_at_most_its_bound() {
    let path = capture("0.32.0/single/000");
    let shown = text(&read(&[path.to_str().unwrap()], b""));
    let queue_time = shown.lines().find(|line| line.trim().starts_with("queue time")).unwrap();
    // Both requests were served at once: all that the page tells is that neither waited longer than 0.3 s.
    assert_eq!(queue_time.matches("<= 0.3000 s").count(), 2, "{queue_time}");
}

#[test]
fn what_a_page_lacks_is_shown_with_the_reason() {
    let path = capture("0.8.5/page-before-first-request");
    let shown = text(&read(&[path.to_str().unwrap()], b""));
    assert!(shown.contains("  vllm:prompt_tokens_by_source\n      vLLM before 0.16 doesn't tell"), "{shown}");
    assert!(shown.contains("  vllm:request_queue_time_seconds\n      nothing was observed yet"), "{shown}");
    assert!(shown.contains("awake                   unknown"), "{shown}");
}

#[test]
fn json_is_the_page_as_the_scaler_holds_it() {
    let path = capture("0.32.0/dp2-asc2/100");
    let json: serde_json::Value =
        serde_json::from_str(&text(&read(&[path.to_str().unwrap(), "--json"], b""))).unwrap();
    assert_eq!(json["dialect"], "vllm-v1");
    assert_eq!(json["engines"][1]["running"], 2.0);
    assert_eq!(json["kvTokensPerEngine"], 1536.0);
    assert_eq!(json["processStartSeconds"], serde_json::Value::Null);
    assert_eq!(json["missing"][0]["name"], "process_start_time_seconds");
}

#[test]
fn a_page_is_read_from_standard_input_packed_or_not() {
    let packed = std::fs::read(capture("0.32.0/single/100")).unwrap();
    let plain = unpacked("0.32.0/single/100");
    assert_eq!(text(&read(&["-"], &packed)), text(&read(&["-"], &plain)));
}

#[test]
fn a_page_is_read_from_a_server_without_the_proxy_of_the_environment() {
    let url = page_of_server(&unpacked("0.32.0/single/100"));
    let output = Command::cargo_bin("keda-vllm-scaler")
        .unwrap()
        .args(["read", &url])
        .env("http_proxy", "http://127.0.0.1:1")
        .env("HTTP_PROXY", "http://127.0.0.1:1")
        .output()
        .unwrap();
    assert!(text(&output).contains("model                   tiny"));
}

#[test]
fn a_page_is_read_by_host_and_port_alone_at_metrics() {
    for without in [&["http://", "/metrics"][..], &["/metrics"]] {
        let url = page_of_server(&unpacked("0.32.0/single/100"));
        let short = without.iter().fold(url, |url, part| url.replace(part, ""));
        assert!(text(&read(&[&short], b"")).contains("model                   tiny"), "{short}");
    }
}

#[test]
fn the_model_is_chosen_by_name() {
    let path = capture("0.32.0/single/100");
    let path = path.to_str().unwrap();
    assert!(text(&read(&[path, "--model", "tiny"], b"")).contains("running"));
    let error = failure(&read(&[path, "--model", "large"], b""));
    assert!(error.contains("model \"large\" is not on the page (it has tiny)"), "{error}");
}

#[test]
fn pages_that_cannot_be_read_are_failures_with_a_name() {
    let statistics_off = unpacked("0.32.0/disable-log-stats-page");
    let whole = unpacked("0.32.0/single/100");
    for (page, expected) in [
        (&b"<!doctype html><html></html>\n"[..], "not a metrics page (it begins with \"<!doctype html>"),
        (&b"{\"detail\":\"Not Found\"}"[..], "not a metrics page"),
        (&b""[..], "the page is empty"),
        (&b"\x1f\x8b\x08 broken"[..], "broken gzip data"),
        (&statistics_off[..], "--disable-log-stats"),
        (&whole[..whole.len() / 2], "the page is cut short"),
    ] {
        let error = failure(&read(&["-"], page));
        assert!(error.starts_with("error: -: ") && error.contains(expected), "{error}");
    }
}

#[test]
fn endless_input_ends_at_a_bound() {
    let error = failure(&read(&["-"], &vec![b'#'; 17 << 20]));
    assert!(error.contains("larger than 16 MiB"), "{error}");
    let mut bomb = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    bomb.write_all(&vec![b'\n'; 64 << 20]).unwrap();
    let error = failure(&read(&["-"], &bomb.finish().unwrap()));
    assert!(error.contains("larger than 16 MiB"), "{error}");
    let head = "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n".to_owned();
    let error = failure(&read(&[&answer_once(head, vec![b'#'; 32 << 20])], b""));
    assert!(error.contains("larger than 16777216 bytes"), "{error}");
}

#[test]
fn servers_that_give_no_page_are_failures_with_a_name() {
    let refused = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}/metrics", listener.local_addr().unwrap())
    };
    let error = failure(&read(&[&refused], b""));
    assert!(error.starts_with(&format!("error: {refused}: ")) && error.contains("refused"), "{error}");

    let not_found = answer_once(
        "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".to_owned(),
        vec![],
    );
    assert!(failure(&read(&[&not_found], b"")).contains("status 404"));

    let elsewhere = "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    assert!(failure(&read(&[&answer_once(elsewhere.to_owned(), vec![])], b"")).contains("status 302"));

    let cut = answer_once(
        "HTTP/1.1 200 OK\r\ncontent-length: 60000\r\nconnection: close\r\n\r\n".to_owned(),
        unpacked("0.32.0/single/100"),
    );
    let error = failure(&read(&[&cut], b""));
    assert!(error.contains(&cut), "{error}");
}

#[test]
fn a_file_that_is_not_there_is_a_failure() {
    let error = failure(&read(&["/nowhere/page.txt"], b""));
    assert!(
        error.contains("/nowhere/page.txt: no such file; for a replica's page write HOST:PORT"),
        "{error}"
    );
}
