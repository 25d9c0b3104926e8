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

/// What a phase of the load saw. Milliseconds, and a second's share of the cores.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    streams: u64,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    p999: f64,
    max: f64,
    seconds: f64,
    client_cpu: Cpu,
    pub(crate) server_cpu: Cpu,
}

impl Figures {
    const MARK: &str = "figures";

    fn write(&self) -> String {
        let Self { streams, p50, p99, p999, max, seconds, client_cpu, .. } = self;
        let Cpu { used, waited } = client_cpu;
        format!("{} {streams} {p50} {p99} {p999} {max} {seconds} {used} {waited}", Self::MARK)
    }

    /// From a line of the client's, and what the server had of the cores meanwhile.
    pub(crate) fn read(line: &str, server_cpu: Cpu) -> Option<Self> {
        let mut words = line.strip_prefix(Self::MARK)?.split_whitespace().map(str::parse::<f64>);
        let mut next = || words.next()?.ok();
        let (streams, p50, p99, p999, max) = (next()? as u64, next()?, next()?, next()?, next()?);
        let seconds = next()?;
        let client_cpu = Cpu { used: next()?, waited: next()? };
        let server_cpu = server_cpu.in_a_second(seconds);
        Some(Self { streams, p50, p99, p999, max, seconds, client_cpu, server_cpu })
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { streams, p50, p99, p999, max, server_cpu, client_cpu, .. } = self;
        write!(
            f,
            "{streams:6} streams  p50 {p50:7.3} ms  p99 {p99:7.3} ms  p99.9 {p999:7.3} ms  max {max:7.3} ms  \
             cpu: server {server_cpu}, client {client_cpu}"
        )
    }
}

/// What the threads of this process had of the cores, and how long they were ready to run and had none. Seconds, or
/// seconds in a second.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cpu {
    pub(crate) used: f64,
    pub(crate) waited: f64,
}

impl Cpu {
    /// From the kernel (Linux, Documentation/scheduler/sched-stats.rst: /proc/PID/schedstat), threads that ended left out.
    pub(crate) fn so_far() -> anyhow::Result<Self> {
        let mut sum = Self::default();
        for thread in std::fs::read_dir("/proc/self/task")? {
            // A thread may end in between.
            let Ok(stat) = std::fs::read_to_string(thread?.path().join("schedstat")) else { continue };
            let mut nanos = stat.split_whitespace().map(str::parse::<f64>);
            sum.used += nanos.next().context("schedstat")?? / 1e9;
            sum.waited += nanos.next().context("schedstat")?? / 1e9;
        }
        Ok(sum)
    }

    fn in_a_second(self, seconds: f64) -> Self {
        Self { used: self.used / seconds, waited: self.waited / seconds }
    }
}

impl std::ops::Sub for Cpu {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self { used: self.used - before.used, waited: self.waited - before.waited }
    }
}

impl fmt::Display for Cpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} (waiting {:.2})", self.used, self.waited)
    }
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
    let (began, cpu_before) = (Instant::now(), Cpu::so_far()?);
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
        client_cpu: (Cpu::so_far()? - cpu_before).in_a_second(seconds),
        server_cpu: Cpu::default(),
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
