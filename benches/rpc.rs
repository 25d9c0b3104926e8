//! How long KEDA waits: `GetMetrics` at 3,000 calls/s on one connection that also carries 20,000 pushed streams.
//!
//! Beside it a yardstick: the same calls and streams against a service of the same shape with nothing behind it, whose
//! streams send as often. What both cost is the price of gRPC on this machine; what ours costs above that is ours.
//!
//! The client is a process of its own, as KEDA is, so that the CPU of the server can be told from the client's; they still
//! share the machine's cores. The load is open-loop: a call begins when it is due, whatever became of those before, and
//! its time counts from when it was due. So a stall is seen by every call that it delays (no coordinated omission).
//!
//! "waiting" is how long threads were ready to run while others had the cores: where it is much, the machine is busy with
//! something else, and the times are its own.
//!
//! `cargo bench --bench rpc [-- --test] [--rate N] [--seconds N] [--streams N]`

#[path = "rpc/client.rs"]
mod client;
#[path = "../tests/common/grpc.rs"]
mod grpc;
#[path = "rpc/plain.rs"]
mod plain;
#[path = "../tests/common/published.rs"]
mod published;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use client::{Cpu, Figures};
use keda_vllm_scaler::decision::Answer;
use published::{Publisher, publisher, tier};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::time::Instant;

/// Tiers that are published; the calls and streams go round them.
const TIERS: u64 = 1000;

/// How often the control loop publishes meanwhile.
const PUBLISH_EVERY: Duration = Duration::from_millis(50);

/// What the client says before its last phase, in which all tiers change their activity at once now and then.
pub(crate) const EDGES: &str = "all tiers fall idle and wake every five seconds";

/// In ticks of [`PUBLISH_EVERY`].
const EDGES_EVERY: u64 = 100;

/// The bound of the 99th percentile that KEDA's HPA workers can live with.
const BOUND: Duration = Duration::from_millis(5);

#[derive(Clone, Debug)]
struct Args {
    rate: u64,
    seconds: u64,
    streams: u64,
    /// Set in the client's process: where the server is.
    client_of: Option<SocketAddr>,
}

fn args() -> anyhow::Result<Args> {
    let mut args = Args { rate: 3000, seconds: 20, streams: 20_000, client_of: None };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().with_context(|| format!("{word} takes a value"));
        match word.as_str() {
            "--test" => args = Args { rate: 1000, seconds: 1, streams: 200, client_of: None },
            "--rate" => args.rate = value()?.parse()?,
            "--seconds" => args.seconds = value()?.parse()?,
            "--streams" => args.streams = value()?.parse()?,
            "--client-of" => args.client_of = Some(value()?.parse()?),
            _ => {}
        }
    }
    Ok(args)
}

fn main() -> anyhow::Result<()> {
    let args = args()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    match args.client_of {
        Some(server) => runtime.block_on(client::run(&args, server)),
        None => runtime.block_on(run(&args)),
    }
}

async fn run(args: &Args) -> anyhow::Result<()> {
    println!("{} calls/s for {} s, one connection, {TIERS} tiers", args.rate, args.seconds);
    let yardstick = plain::start()?;
    let plain = measure("yardstick", args, yardstick.address, || {}).await?;
    yardstick.stop().await?;

    let (mut control_loop, published) = publisher();
    for n in 0..TIERS {
        control_loop.required(&tier(&format!("tier-{n}")), 1);
    }
    let edges = Arc::new(AtomicBool::new(false));
    let with_edges = Arc::clone(&edges);
    let publishing = tokio::spawn(async move {
        let mut every = tokio::time::interval(PUBLISH_EVERY);
        for n in 0.. {
            every.tick().await;
            match n % EDGES_EVERY {
                0 if with_edges.load(Ordering::Relaxed) => everywhere(&mut control_loop, 0),
                // Long enough for every stream to have seen it.
                10 if with_edges.load(Ordering::Relaxed) => everywhere(&mut control_loop, 1),
                1..10 if with_edges.load(Ordering::Relaxed) => {}
                _ => control_loop.required(&tier(&format!("tier-{}", n % TIERS)), 1 + (n % 7) as u32),
            }
        }
    });
    let server = grpc::start(&published).await;
    let ours =
        measure("keda-vllm-scaler", args, server.address, || edges.store(true, Ordering::Relaxed)).await?;
    let stopped = Instant::now();
    println!("shutdown: {:?} in {:.2} s", server.stop().await, stopped.elapsed().as_secs_f64());
    publishing.abort();

    for (n, when) in ["no streams", "streams", "streams and edges"].into_iter().enumerate() {
        let ratio = |of: fn(&Figures) -> f64| of(&ours[n]) / of(&plain[n]);
        println!(
            "ours / yardstick, {when:17} p50 {:5.2} x   p99 {:5.2} x   server's cpu {:5.2} x",
            ratio(|f| f.p50),
            ratio(|f| f.p99),
            ratio(|f| f.server_cpu.used)
        );
    }
    let (p99, bound) = (ours[1].p99.max(ours[2].p99), BOUND.as_secs_f64() * 1e3);
    println!(
        "p99 with streams: {p99:.2} ms, bound {bound} ms: {}",
        if p99 < bound { "kept" } else { "MISSED" }
    );
    Ok(())
}

/// One snapshot in which every tier has this answer.
fn everywhere(control_loop: &mut Publisher, replicas: u32) {
    let at = control_loop.clock.now();
    let tiers: Vec<_> = (0..TIERS)
        .map(|n| {
            let tier = tier(&format!("tier-{n}"));
            let status = published::status(published::policy(&tier), Answer::Required(replicas), at);
            (tier, Arc::new(status))
        })
        .collect();
    control_loop.publish(|snapshot| snapshot.tiers.extend(tiers));
}

/// Lets a client process call and tells what it saw: without streams, with them, and with edges.
async fn measure(
    name: &str,
    args: &Args,
    server: SocketAddr,
    begin_edges: impl Fn(),
) -> anyhow::Result<Vec<Figures>> {
    let mut client = tokio::process::Command::new(std::env::current_exe()?)
        .args(["--client-of", &server.to_string()])
        .args(["--rate", &args.rate.to_string(), "--seconds", &args.seconds.to_string()])
        .args(["--streams", &args.streams.to_string()])
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let mut lines = BufReader::new(client.stdout.take().context("piped")?).lines();
    let mut seen = Vec::new();
    let mut cpu_before = Cpu::so_far()?;
    while let Some(line) = lines.next_line().await? {
        let cpu = Cpu::so_far()?;
        let server_cpu = cpu - std::mem::replace(&mut cpu_before, cpu);
        if let Some(figures) = Figures::read(&line, server_cpu) {
            println!("{name:16} {figures}");
            seen.push(figures);
            continue;
        }
        if line == EDGES {
            begin_edges();
        }
        println!("{name:16} {line}");
    }
    anyhow::ensure!(client.wait().await?.success() && seen.len() == 3, "the client failed");
    Ok(seen)
}
