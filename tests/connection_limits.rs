//! Connections that are opened and left: each port bears so many, and KEDA is answered whatever is done to the others.

#![allow(clippy::unwrap_used, reason = "helpers of tests, outside their functions")]

#[path = "common/grpc.rs"]
mod grpc;
#[path = "common/published.rs"]
mod published;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use grpc::{PATIENCE, asker, metrics_of, start};
use keda_vllm_scaler::clock::Clock;
use keda_vllm_scaler::proto::external_scaler_client::ExternalScalerClient;
use keda_vllm_scaler::serve::http::{self, CONNECTIONS, HEAD_WITHIN};
use published::{publisher, tier};
use tokio::time::Instant;

const CHAT: &[(&str, &str)] = &[("tier", "chat")];

const DECLARED: &[(&str, &str)] = &[("minReplicas", "3")];

/// As long as a kubelet's probe waits by default.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn half_sent(address: SocketAddr) -> TcpStream {
    let mut stream = connect(address);
    // The port may have closed it already, in favour of one that came later.
    stream.write_all(b"GET / HTTP/1.1\r\nHost: scaler\r\nX-Slow: ").ok();
    stream
}

/// The status line of a well-formed request.
fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = connect(address);
    stream.set_read_timeout(Some(PROBE_TIMEOUT)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: scaler\r\n\r\n").unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    line
}

/// The port of a page whose scaler publishes nothing yet.
async fn page() -> (SocketAddr, published::Publisher) {
    let (control_loop, published) = publisher();
    let port = http::PagePort::bind(grpc::LOOPBACK).await.unwrap();
    let address = port.local_addr();
    let router = http::router(published, Arc::new(String::new), Clock::system());
    tokio::spawn(port.serve(router));
    (address, control_loop)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_is_served_however_many_half_sent_requests_are_open() {
    let (address, _control_loop) = page().await;
    let held: Vec<_> = (0..CONNECTIONS * 3).map(|_| half_sent(address)).collect();
    assert_eq!(get(address, "/livez"), "HTTP/1.1 200 OK\r\n");
    drop(held);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_half_sent_and_a_connection_that_idles_are_closed_in_time() {
    let (address, _control_loop) = page().await;
    let began = Instant::now();
    let mut half = half_sent(address);
    let mut idle = connect(address);
    idle.write_all(b"GET /livez HTTP/1.1\r\nHost: scaler\r\n\r\n").unwrap();
    let mut answer = String::new();
    idle.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    // One that goes on sending a little is no better than one that sends nothing.
    half.read_to_string(&mut answer).unwrap();
    let took = began.elapsed();
    assert!(took >= HEAD_WITHIN && took < HEAD_WITHIN * 2, "{took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_to_keda_s_port_that_says_nothing_is_closed_and_an_idle_client_is_not() {
    let (mut control_loop, published) = publisher();
    control_loop.required(&tier("chat"), 7);
    let server = start(&published).await;
    let mut keda = server.client().await;
    keda.get_metrics(metrics_of(asker(CHAT))).await.unwrap();
    let address = server.address;
    let silent = tokio::task::spawn_blocking(move || {
        let mut stream = connect(address);
        let mut settings = Vec::new();
        stream.read_to_end(&mut settings).unwrap();
    });
    silent.await.unwrap();
    keda.get_metrics(metrics_of(asker(CHAT))).await.unwrap();
}

/// The real program with few file descriptors, and the ports that it chose.
struct Program {
    child: Child,
    grpc: SocketAddr,
    http: SocketAddr,
    _folder: tempfile::TempDir,
}

impl Program {
    fn with_file_descriptors(limit: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tiers.yaml");
        // What a ScaledObject declares is known without any replica: no vLLM has to be there.
        let text = "listen: {grpc: \"127.0.0.1:0\", http: \"127.0.0.1:0\", health: \"127.0.0.1:0\"}\n\
             allowMetadataTiers: true\n";
        std::fs::write(&file, text).unwrap();
        let mut child = Command::new("sh")
            .args(["-c", "ulimit -n \"$1\" && exec \"$2\" serve --log-format json --config \"$3\"", "sh"])
            .arg(limit.to_string())
            .arg(env!("CARGO_BIN_EXE_keda-vllm-scaler"))
            .arg(&file)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let listening = lines.by_ref().map(Result::unwrap).find(|line| line.contains("listening")).unwrap();
        // Whoever doesn't read stops the writer.
        std::thread::spawn(move || lines.for_each(drop));
        let listening: serde_json::Value = serde_json::from_str(&listening).unwrap();
        let address = |port: &str| listening[port].as_str().unwrap().parse().unwrap();
        Self { grpc: address("grpc"), http: address("http"), child, _folder: folder }
    }

    async fn keda(&self) -> Result<i64, String> {
        let asked = async {
            let mut client = ExternalScalerClient::connect(format!("http://{}", self.grpc))
                .await
                .map_err(|e| e.to_string())?;
            let answer = client.get_metrics(metrics_of(asker(DECLARED))).await.map_err(|e| e.to_string())?;
            Ok(answer.into_inner().metric_values[0].metric_value)
        };
        tokio::time::timeout(PROBE_TIMEOUT, asked).await.unwrap_or_else(|_| Err("timeout".into()))
    }

    async fn until_keda_is_answered(&self) {
        let began = Instant::now();
        loop {
            match self.keda().await {
                Ok(3) => return,
                other => assert!(began.elapsed() < PATIENCE, "{other:?}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Enough for the program, its three ports and the page's connections, and few more.
const FEW: u32 = 128;

#[tokio::test(flavor = "multi_thread")]
async fn keda_and_the_page_are_answered_while_the_page_s_port_is_held_with_few_file_descriptors() {
    let program = Program::with_file_descriptors(FEW);
    program.until_keda_is_answered().await;
    let held: Vec<_> = (0..FEW * 2).map(|_| half_sent(program.http)).collect();
    assert_eq!(program.keda().await, Ok(3));
    assert_eq!(get(program.http, "/livez"), "HTTP/1.1 200 OK\r\n");
    drop(held);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lack_of_file_descriptors_is_survived() {
    let mut program = Program::with_file_descriptors(FEW);
    program.until_keda_is_answered().await;
    // Those that aren't accepted fit into the kernel's queue, which may be as short as 128.
    let held: Vec<_> = (0..FEW + FEW / 2).map(|_| connect(program.grpc)).collect();
    assert!(program.keda().await.is_err(), "there is no room for one more");
    drop(held);
    program.until_keda_is_answered().await;
    assert_eq!(get(program.http, "/livez"), "HTTP/1.1 200 OK\r\n");
    assert!(program.child.try_wait().unwrap().is_none());
}
