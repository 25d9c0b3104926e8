//! How long KEDA waits: `GetMetrics` at 3,000 calls/s over one connection, beside a yardstick on the same server, the
//! same connection and at the same rate (gRPC health `Check`: the transport with an empty handler).
//!
//! The load is open-loop: a call begins when it is due, whatever became of those before, and its time counts from when
//! it was due. So a stall is seen by every call that it delays (no coordinated omission).
//!
//! `cargo bench --bench rpc [-- --test] [--rate N] [--seconds N] [--streams N]`

#[path = "../tests/common/grpc.rs"]
mod grpc;
#[path = "../tests/common/published.rs"]
mod published;

use std::time::Duration;

use anyhow::Context;
use hdrhistogram::Histogram;
use keda_vllm_scaler::proto::external_scaler_client::ExternalScalerClient;
use published::{publisher, tier};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

/// Tiers that are published; the calls and streams go round them.
const TIERS: u64 = 1000;

/// How often the control loop publishes meanwhile.
const PUBLISH_EVERY: Duration = Duration::from_millis(50);

struct Args {
    rate: u64,
    seconds: u64,
    streams: u64,
}

fn args() -> anyhow::Result<Args> {
    let mut args = Args { rate: 3000, seconds: 10, streams: 20_000 };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut number = || -> anyhow::Result<u64> {
            words.next().with_context(|| format!("{word} takes a number"))?.parse().context(word.clone())
        };
        match word.as_str() {
            "--test" => args = Args { rate: 1000, seconds: 1, streams: 200 },
            "--rate" => args.rate = number()?,
            "--seconds" => args.seconds = number()?,
            "--streams" => args.streams = number()?,
            _ => {}
        }
    }
    Ok(args)
}

fn main() -> anyhow::Result<()> {
    let args = args()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(run(args))
}

async fn run(args: Args) -> anyhow::Result<()> {
    let (mut control_loop, published) = publisher();
    for n in 0..TIERS {
        control_loop.required(&tier(&format!("tier-{n}")), 1);
    }
    let publishing = tokio::spawn(async move {
        let mut every = tokio::time::interval(PUBLISH_EVERY);
        for n in 0.. {
            every.tick().await;
            control_loop.required(&tier(&format!("tier-{}", n % TIERS)), 1 + (n % 7) as u32);
        }
    });
    let server = grpc::start(&published).await;
    let channel = server.channel().await;
    println!("{} calls/s for {} s each, one connection, {TIERS} tiers", args.rate, args.seconds);

    let yardstick = measure("health Check", &args, &channel, Call::Check).await?;
    let ours = measure("GetMetrics", &args, &channel, Call::GetMetrics).await?;
    compare(&ours, &yardstick);

    let opened = Instant::now();
    open_streams(&channel, args.streams).await?;
    println!(
        "{} streams opened on the same connection in {:.1} s",
        args.streams,
        opened.elapsed().as_secs_f64()
    );
    let yardstick = measure("health Check, streams open", &args, &channel, Call::Check).await?;
    let ours = measure("GetMetrics, streams open", &args, &channel, Call::GetMetrics).await?;
    compare(&ours, &yardstick);

    let stopped = Instant::now();
    let drained = server.stop().await;
    println!("shutdown with the streams open: {drained:?} in {:.2} s", stopped.elapsed().as_secs_f64());
    publishing.abort();
    Ok(())
}

#[derive(Clone, Copy)]
enum Call {
    Check,
    GetMetrics,
}

/// Times of the calls, in nanoseconds, from when each was due.
async fn measure(name: &str, args: &Args, channel: &Channel, call: Call) -> anyhow::Result<Histogram<u64>> {
    let calls = args.rate * args.seconds;
    let every = Duration::from_secs_f64(1.0 / args.rate as f64);
    let (took, mut times) = mpsc::unbounded_channel();
    let channel = channel.clone();
    let runtime = tokio::runtime::Handle::current();
    // A thread of its own: tokio's timer has a grain of a millisecond, three calls wide.
    let pacer = std::thread::spawn(move || {
        let began = Instant::now();
        for n in 0..calls {
            let due = began + every * n as u32;
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            let (channel, took) = (channel.clone(), took.clone());
            runtime.spawn(async move {
                let answered = one(channel, call, n).await;
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
    println!(
        "{name:28} p50 {:7.3} ms  p99 {:7.3} ms  p99.9 {:7.3} ms  max {:7.3} ms",
        millis(0.5),
        millis(0.99),
        millis(0.999),
        histogram.max() as f64 / 1e6
    );
    Ok(histogram)
}

async fn one(channel: Channel, call: Call, n: u64) -> Result<(), tonic::Status> {
    match call {
        Call::Check => HealthClient::new(channel).check(HealthCheckRequest::default()).await.map(drop),
        Call::GetMetrics => {
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
    }
}

fn compare(ours: &Histogram<u64>, yardstick: &Histogram<u64>) {
    let ratio =
        |quantile| ours.value_at_quantile(quantile) as f64 / yardstick.value_at_quantile(quantile) as f64;
    println!("{:28} p50 {:7.2} x   p99 {:7.2} x", "GetMetrics / Check", ratio(0.5), ratio(0.99));
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
