//! The client's process: one connection, calls at their times, streams that are read.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use hdrhistogram::Histogram;
use keda_vllm_scaler::proto::external_scaler_client::ExternalScalerClient;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tonic::transport::Channel;

use crate::{Args, TIERS, grpc};

/// Calls that are not counted: the first ones meet cold caches and a window that is still small.
const WARM_UP: u64 = 1000;

/// What a phase of the load saw. Milliseconds, and seconds of CPU time in a second.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    streams: u64,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    p999: f64,
    max: f64,
    seconds: f64,
    client_cpu: f64,
    pub(crate) server_cpu: f64,
}

impl Figures {
    const MARK: &str = "figures";

    fn write(&self) -> String {
        let Self { streams, p50, p99, p999, max, seconds, client_cpu, .. } = self;
        format!("{} {streams} {p50} {p99} {p999} {max} {seconds} {client_cpu}", Self::MARK)
    }

    /// From a line of the client's, and what the server used meanwhile, in seconds of CPU time.
    pub(crate) fn read(line: &str, server_cpu: f64) -> Option<Self> {
        let mut words = line.strip_prefix(Self::MARK)?.split_whitespace().map(str::parse::<f64>);
        let mut next = || words.next()?.ok();
        let (streams, p50, p99, p999, max) = (next()? as u64, next()?, next()?, next()?, next()?);
        let (seconds, client_cpu) = (next()?, next()?);
        Some(Self { streams, p50, p99, p999, max, seconds, client_cpu, server_cpu: server_cpu / seconds })
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { streams, p50, p99, p999, max, server_cpu, client_cpu, .. } = self;
        write!(
            f,
            "{streams:6} streams  p50 {p50:7.3} ms  p99 {p99:7.3} ms  p99.9 {p999:7.3} ms  max {max:7.3} ms  \
             cpu: server {server_cpu:.2}, client {client_cpu:.2}"
        )
    }
}

/// User and system time of this process so far, from the kernel (proc(5): fields 14 and 15, in hundredths on Linux).
pub(crate) fn cpu_seconds() -> anyhow::Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let after_name = stat.rsplit_once(')').context("proc(5)")?.1;
    let ticks = |field: usize| -> anyhow::Result<f64> {
        Ok(after_name.split_whitespace().nth(field - 3).context("proc(5)")?.parse()?)
    };
    Ok((ticks(14)? + ticks(15)?) / 100.0)
}

pub(crate) async fn run(args: &Args, server: SocketAddr) -> anyhow::Result<()> {
    let channel = grpc::channel(server).await;
    for n in 0..WARM_UP {
        get_metrics(channel.clone(), n).await?;
    }
    println!("warm");
    println!("{}", load(args, &channel, 0).await?.write());
    let opened = Instant::now();
    open_streams(&channel, args.streams).await?;
    println!("{} streams opened in {:.1} s", args.streams, opened.elapsed().as_secs_f64());
    println!("{}", load(args, &channel, args.streams).await?.write());
    println!("{}", crate::EDGES);
    println!("{}", load(args, &channel, args.streams).await?.write());
    Ok(())
}

async fn load(args: &Args, channel: &Channel, streams: u64) -> anyhow::Result<Figures> {
    let (calls, every) = (args.rate * args.seconds, Duration::from_secs_f64(1.0 / args.rate as f64));
    let (took, mut times) = mpsc::unbounded_channel();
    let channel = channel.clone();
    let runtime = tokio::runtime::Handle::current();
    let (began, cpu_before) = (Instant::now(), cpu_seconds()?);
    // A thread of its own: tokio's timer has a grain of a millisecond, three calls wide.
    let pacer = std::thread::spawn(move || {
        for n in 0..calls {
            let due = began + every * n as u32;
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            let (channel, took) = (channel.clone(), took.clone());
            runtime.spawn(async move {
                let answered = get_metrics(channel, n).await;
                took.send(answered.map(|()| due.elapsed())).ok();
            });
        }
    });
    let mut histogram = Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 3)?;
    while let Some(time) = times.recv().await {
        histogram.saturating_record(time?.as_nanos() as u64);
    }
    pacer.join().ok().context("the pacer died")?;
    let millis = |quantile| histogram.value_at_quantile(quantile) as f64 / 1e6;
    let seconds = began.elapsed().as_secs_f64();
    Ok(Figures {
        streams,
        p50: millis(0.5),
        p99: millis(0.99),
        p999: millis(0.999),
        max: histogram.max() as f64 / 1e6,
        seconds,
        client_cpu: (cpu_seconds()? - cpu_before) / seconds,
        server_cpu: 0.0,
    })
}

async fn get_metrics(channel: Channel, n: u64) -> Result<(), tonic::Status> {
    let name = format!("tier-{}", n % TIERS);
    // Four keys, as a usual trigger has.
    let asker = grpc::asker(&[
        ("tier", &name),
        ("scalerAddress", "scaler.keda:6000"),
        ("enableTLS", "false"),
        ("unsafeSsl", "false"),
    ]);
    ExternalScalerClient::new(channel).get_metrics(grpc::metrics_of(asker)).await.map(drop)
}

async fn open_streams(channel: &Channel, streams: u64) -> anyhow::Result<()> {
    for n in 0..streams {
        let mut client = ExternalScalerClient::new(channel.clone());
        let name = format!("tier-{}", n % TIERS);
        let mut pushes = client.stream_is_active(grpc::asker(&[("tier", &name)])).await?.into_inner();
        pushes.message().await?.context("active, and nothing pushed")?;
        tokio::spawn(async move { while let Ok(Some(_)) = pushes.message().await {} });
    }
    Ok(())
}
