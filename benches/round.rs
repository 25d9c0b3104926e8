//! What one round over 1,000 replicas costs: wall time, CPU seconds, peak memory, beside a yardstick that makes the same
//! fetches with the same HTTP client and throws the bodies away.
//!
//! `cargo bench --bench round` (with `-- --test` for 50 replicas and two rounds: a smoke test).
//!
//! The replicas are one other process with one listener for each, on as many loopback addresses (so every replica has its
//! own connection, as in a cluster) and one port. It serves a real page of vLLM 0.32 (50 KB, not compressed, as vLLM serves
//! it). Each case runs in a process of its own: its CPU (`/proc/self/stat`) and peak memory (`VmHWM`) are its own. Linux
//! only; needs about twice as many open files as replicas (`ulimit -n`).

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};
use futures_util::StreamExt;
use keda_vllm_scaler::clock::Clock;
use keda_vllm_scaler::config::{ScrapeSettings, TlsSettings};
use keda_vllm_scaler::decision::TierId;
use keda_vllm_scaler::scrape::rounds::{self, RoundsConfig, TierEvent};
use keda_vllm_scaler::supply::{Discovered, Phase, Target};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const PAGE: &[u8] = include_bytes!("fixtures/vllm-0.32.txt.gz");
const CONCURRENCY: usize = 64;
/// Between two rounds. Shorter than in production, so that the benchmark is: CPU and memory of a round don't depend on it.
const INTERVAL: Duration = Duration::from_secs(1);
/// The kernel counts CPU time in these (`USER_HZ`, 100 on every Linux).
const TICKS_PER_SECOND: f64 = 100.0;

const ROLE: &str = "ROUND_BENCH_ROLE";
const REPLICAS: &str = "ROUND_BENCH_REPLICAS";
const ROUNDS: &str = "ROUND_BENCH_ROUNDS";
const PORT: &str = "ROUND_BENCH_PORT";

fn main() -> anyhow::Result<()> {
    rustls::crypto::ring::default_provider()
        .install_default()
        .map_err(|_| anyhow::anyhow!("a TLS provider is already installed"))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    match std::env::var(ROLE).as_deref() {
        Ok("replicas") => runtime.block_on(serve_replicas()),
        Ok(case) => runtime.block_on(measure(case)),
        Err(_) => compare(),
    }
}

/// Starts the replicas, then each case, and prints the table.
fn compare() -> anyhow::Result<()> {
    let smoke = std::env::args().any(|argument| argument == "--test");
    let (replicas, rounds) = if smoke { (50, 2) } else { (1000, 10) };
    let mut server = child("replicas", replicas, rounds, 0)?;
    let mut line = String::new();
    let stdout = server.stdout.take().context("the replicas have no output")?;
    BufReader::new(stdout).read_line(&mut line)?;
    let port: u16 = line.trim().parse().context("the replicas didn't start")?;

    println!(
        "{replicas} replicas, {} bytes a page, {CONCURRENCY} fetches at once, mean of {rounds} rounds",
        page()?.len()
    );
    println!(
        "{:<28} {:>14} {:>14} {:>14} {:>12} {:>10}",
        "", "first round", "CPU a round", "CPU a replica", "peak memory", "at start"
    );
    let result = ["rounds", "thrown-away"]
        .into_iter()
        .try_for_each(|case| print_case(child(case, replicas, rounds, port)?));
    // Nothing is lost where it has ended already.
    let _ended = server.kill();
    server.wait()?;
    result
}

fn print_case(case: Child) -> anyhow::Result<()> {
    let output = case.wait_with_output()?;
    ensure!(output.status.success(), "a case failed: {}", String::from_utf8_lossy(&output.stderr));
    print!("{}", String::from_utf8(output.stdout)?);
    Ok(())
}

fn child(role: &str, replicas: usize, rounds: usize, port: u16) -> anyhow::Result<Child> {
    Command::new(std::env::current_exe()?)
        .env(ROLE, role)
        .env(REPLICAS, replicas.to_string())
        .env(ROUNDS, rounds.to_string())
        .env(PORT, port.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .context("a child process")
}

fn setting(name: &str) -> anyhow::Result<usize> {
    std::env::var(name)?.parse().with_context(|| name.to_owned())
}

fn page() -> anyhow::Result<Vec<u8>> {
    let mut page = Vec::new();
    flate2::read::GzDecoder::new(PAGE).read_to_end(&mut page)?;
    Ok(page)
}

/// 127.1.0.1 and on: Linux answers for all of 127.0.0.0/8.
fn address(replica: usize) -> Ipv4Addr {
    Ipv4Addr::new(127, 1, (replica / 250) as u8, (replica % 250) as u8 + 1)
}

fn url(replica: usize, port: usize) -> String {
    format!("http://{}:{port}/metrics", address(replica))
}

async fn serve_replicas() -> anyhow::Result<()> {
    let page = page()?;
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=1.0.0; charset=utf-8\r\nContent-Length: {}\r\n\r\n",
        page.len()
    );
    let answer: &'static [u8] = [head.as_bytes(), &page].concat().leak();
    let mut port = 0;
    for replica in 0..setting(REPLICAS)? {
        let listener = TcpListener::bind(SocketAddr::from((address(replica), port)))
            .await
            .context("a listener for each replica: is `ulimit -n` high enough?")?;
        port = listener.local_addr()?.port();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, answer));
            }
        });
    }
    println!("{port}");
    std::io::stdout().flush()?;
    std::future::pending().await
}

/// The client asks for the next page only after it has this one, so a read is a request.
async fn serve(mut stream: TcpStream, answer: &'static [u8]) {
    let mut request = [0; 2048];
    while matches!(stream.read(&mut request).await, Ok(n) if n > 0) {
        if stream.write_all(answer).await.is_err() {
            return;
        }
    }
}

async fn measure(case: &str) -> anyhow::Result<()> {
    let (replicas, rounds, port) = (setting(REPLICAS)?, setting(ROUNDS)?, setting(PORT)?);
    let at_start = peak_memory_mib()?;
    let (label, first, cpu) = match case {
        "rounds" => run_rounds(replicas, rounds, port).await?,
        "thrown-away" => throw_away(replicas, rounds, port).await?,
        other => anyhow::bail!("no such case: {other}"),
    };
    println!(
        "{label:<28} {:>11.0} ms {:>11.1} ms {:>11.1} us {:>8.1} MiB {:>6.1} MiB",
        first.as_secs_f64() * 1e3,
        cpu * 1e3,
        cpu * 1e6 / replicas as f64,
        peak_memory_mib()?,
        at_start,
    );
    Ok(())
}

/// The product's own rounds. Wall time of the first, which isn't spread; mean CPU seconds of those after it, which are.
async fn run_rounds(replicas: usize, rounds: usize, port: usize) -> anyhow::Result<(String, Duration, f64)> {
    let targets = (0..replicas)
        .map(|replica| Target {
            id: replica.to_string(),
            name: replica.to_string(),
            url: Some(url(replica, port)),
            phase: Phase::Listed,
            since: None,
            start: None,
        })
        .collect();
    let config = RoundsConfig {
        tier: TierId::new("bench", "round"),
        settings: ScrapeSettings {
            interval: INTERVAL,
            timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(10),
            stale_after: Duration::from_secs(15),
            rate_window: Duration::from_mins(1),
            concurrency: CONCURRENCY,
            max_body_bytes: 4 << 20,
            max_expanded_bytes: 16 << 20,
            tls: TlsSettings::default(),
            bearer_token_file: None,
        },
        model: None,
        activator: None,
        clock: Clock::system(),
    };
    let discovered = Discovered::Targets { targets, authoritative: false, current: None, scale: None };
    let (_source, seen) = watch::channel(discovered);
    let (out, mut events) = mpsc::channel(1024);
    let stop = CancellationToken::new();
    let began = Instant::now();
    let running = tokio::spawn(rounds::run(config, seen, out, stop.clone()));
    let mut read = 0;
    next_round(&mut events, &mut read).await?;
    let first = began.elapsed();
    let cpu_before = cpu_seconds()?;
    for _ in 0..rounds {
        next_round(&mut events, &mut read).await?;
    }
    let cpu = (cpu_seconds()? - cpu_before) / rounds as f64;
    stop.cancel();
    running.await?;
    let expected = replicas * (rounds + 1);
    ensure!(read == expected, "{read} of {expected} pages were read");
    Ok(("fetched, read and streamed".to_owned(), first, cpu))
}

async fn next_round(
    events: &mut mpsc::Receiver<(TierId, TierEvent)>,
    read: &mut usize,
) -> anyhow::Result<()> {
    loop {
        match events.recv().await.context("the rounds ended")?.1 {
            TierEvent::Page { result, .. } => *read += usize::from(result.is_ok()),
            TierEvent::RoundDone { .. } => return Ok(()),
            TierEvent::Discovered(_) | TierEvent::Activator { .. } => {}
        }
    }
}

/// The same GETs, each chunk dropped as it comes.
async fn throw_away(replicas: usize, rounds: usize, port: usize) -> anyhow::Result<(String, Duration, f64)> {
    let client = reqwest::Client::builder()
        .no_proxy()
        .http1_only()
        .tcp_nodelay(true)
        .tls_certs_only([])
        // As the scraper itself: each page on a connection of its own.
        .pool_max_idle_per_host(0)
        .build()?;
    let began = Instant::now();
    throw_away_round(&client, replicas, port).await?;
    let first = began.elapsed();
    let cpu_before = cpu_seconds()?;
    for _ in 0..rounds {
        throw_away_round(&client, replicas, port).await?;
    }
    let cpu = (cpu_seconds()? - cpu_before) / rounds as f64;
    Ok(("yardstick: thrown away".to_owned(), first, cpu))
}

async fn throw_away_round(client: &reqwest::Client, replicas: usize, port: usize) -> anyhow::Result<()> {
    let mut fetches = futures_util::stream::iter(0..replicas)
        .map(|replica| {
            let client = client.clone();
            async move {
                tokio::spawn(async move {
                    let mut response = client.get(url(replica, port)).send().await?;
                    while response.chunk().await?.is_some() {}
                    Ok::<_, reqwest::Error>(())
                })
                .await
            }
        })
        .buffer_unordered(CONCURRENCY);
    while let Some(fetched) = fetches.next().await {
        fetched??;
    }
    Ok(())
}

/// User and system time of this process, all threads.
fn cpu_seconds() -> anyhow::Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // The second field is the name in parentheses, which may hold blanks; utime and stime are the 14th and 15th.
    let (_, fields) = stat.rsplit_once(')').context("/proc/self/stat")?;
    let ticks =
        fields.split_ascii_whitespace().skip(11).take(2).map(str::parse::<f64>).sum::<Result<f64, _>>()?;
    Ok(ticks / TICKS_PER_SECOND)
}

fn peak_memory_mib() -> anyhow::Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("VmHWM")?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib / 1024.0)
}
