//! The engines behind a cluster's pods, in one process: every pod's address is an address of the rig's network namespace,
//! so one listener answers for all of them and knows by the local address which pod was asked.
//!
//! Each pod is a simulated vLLM with a real metrics page, alive exactly as long as the cluster says: it begins when the
//! pod's container runs, serves once the pod is ready, drains while the pod is told to go, and dies with it. A router
//! sends each tier's load to the ready pod with the fewest requests in flight and shows what it has to hold.

mod control;
mod pod_list;
mod pods;
mod ports;
mod tier;
mod watch;
mod world;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use keda_vllm_scaler::clock::Clock;
use tokio::net::TcpListener;
use tokio::time::MissedTickBehavior;

use self::world::World;

/// Between two turns of the world: how late a request may be routed.
const TURN: Duration = Duration::from_millis(25);

#[derive(Debug, Parser)]
#[command(about = "Simulated vLLM engines for the pods of the cluster proof")]
struct Args {
    /// The API server.
    #[arg(long)]
    server: String,
    /// A folder with `ca.crt`, `admin.crt` and `admin.key`.
    #[arg(long)]
    pki: PathBuf,
    /// Where all pods are listened for.
    #[arg(long)]
    pods: SocketAddr,
    /// The router's page.
    #[arg(long)]
    router: SocketAddr,
    /// Where load is set and counters are read.
    #[arg(long)]
    control: SocketAddr,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    tracing_subscriber::fmt().with_ansi(false).with_target(false).with_writer(std::io::stderr).init();
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        anyhow::bail!("a crypto provider is installed already");
    }
    let world = Arc::new(World::new(Clock::system()));
    let watcher = watch::Watcher::new(&args.server, &args.pki)?;
    let listen = async |address: SocketAddr| {
        TcpListener::bind(address).await.with_context(|| format!("{address} can't be bound"))
    };
    let (pods, router, control) =
        (listen(args.pods).await?, listen(args.router).await?, listen(args.control).await?);
    tokio::try_join!(
        watcher.follow(Arc::clone(&world)),
        turns(Arc::clone(&world)),
        ports::serve_pods(pods, Arc::clone(&world)),
        ports::serve_router(router, Arc::clone(&world)),
        control::serve(control, world),
    )?;
    Ok(())
}

/// Keeps the world in step with the clock.
async fn turns(world: Arc<World>) -> anyhow::Result<()> {
    let mut ticks = tokio::time::interval(TURN);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        world.turn();
    }
}
