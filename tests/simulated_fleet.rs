//! The sockets of a simulated fleet: a starting replica refuses, a ready one serves its page, a deleted one is gone.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use std::time::Duration;

use chrono::DateTime;
use keda_vllm_scaler::clock::Clock;
use keda_vllm_scaler::simulate::serve::Fleet;
use keda_vllm_scaler::simulate::standin::ScaleTarget as _;
use keda_vllm_scaler::simulate::traffic::{TokenCount, TrafficSettings};
use keda_vllm_scaler::simulate::world::{Adjustment, World, WorldSettings};
use keda_vllm_scaler::simulate::{ClusterSettings, EngineSettings};
use keda_vllm_scaler::supply::{Discovered, Phase, Target};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;

/// Real time that a condition may take; only a failing test waits so long.
const PATIENCE: Duration = Duration::from_secs(20);

/// A cold start that is over in a second, as the clock of these tests runs.
const SHORT: Duration = Duration::from_secs(120);

/// One that no test waits for, however slow the machine.
const ENDLESS: Duration = Duration::from_secs(7 * 86_400);

fn settings(ready: u32) -> WorldSettings {
    WorldSettings {
        base: DateTime::UNIX_EPOCH,
        cluster: ClusterSettings {
            model: "m".to_owned(),
            drain: Duration::from_secs(60),
            seed: 1,
            ..ClusterSettings::plain(EngineSettings::rtx4090_8b(), ENDLESS)
        },
        traffic: TrafficSettings {
            seed: 1,
            starts_at: Duration::from_secs(11 * 3600),
            peak_per_second: 2.0,
            input: TokenCount::CONVERSATION_INPUT,
            output: TokenCount::CONVERSATION_OUTPUT,
        },
        ready,
    }
}

async fn fleet(ready: u32) -> (Fleet, watch::Receiver<Discovered>) {
    let clock = Clock::starting_at(DateTime::UNIX_EPOCH, 120.0);
    let fleet = Fleet::start(World::new(settings(ready)), clock).await.unwrap();
    let discovered = fleet.discovered();
    (fleet, discovered)
}

fn targets(discovered: &Discovered) -> &[Target] {
    match discovered {
        Discovered::Targets { targets, .. } => targets,
        Discovered::Unknown { why } => panic!("{why}"),
    }
}

async fn becomes(
    discovered: &mut watch::Receiver<Discovered>,
    mut condition: impl FnMut(&[Target]) -> bool,
) -> Vec<Target> {
    let reached = discovered.wait_for(|known| condition(targets(known)));
    targets(&tokio::time::timeout(PATIENCE, reached).await.expect("never").unwrap()).to_vec()
}

/// The answer to a GET, head and body; the error of the connection where it is refused.
async fn get(url: &str) -> std::io::Result<String> {
    let (address, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut stream = TcpStream::connect(address).await?;
    stream
        .write_all(format!("GET /{path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes())
        .await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_refuses_while_it_starts_serves_when_ready_and_is_gone_after_deletion() {
    let (fleet, mut discovered) = fleet(1).await;
    // A borrow that is held over an await would block the driver, which tells of every change.
    let first = discovered.borrow().clone();
    let page = get(targets(&first)[0].url.as_ref().unwrap()).await.unwrap();
    assert!(page.starts_with("HTTP/1.1 200") && page.contains("text/plain; version=1.0.0; charset=utf-8"));
    assert!(page.contains("vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"m\"}"));

    fleet.scale(2);
    assert_eq!((fleet.counts().spec, fleet.counts().status), (2, 2));
    let starting = becomes(&mut discovered, |t| t.len() == 2 && t[1].url.is_some()).await;
    assert_eq!(starting[1].phase, Phase::Starting);
    let url = starting[1].url.clone().unwrap();
    let refused = get(&url).await.unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);

    fleet.scale(1);
    fleet.with_world(|world| world.adjust(Adjustment::ColdStart(SHORT)));
    fleet.scale(2);
    let ready = becomes(&mut discovered, |t| t.len() == 2 && t[1].phase == Phase::Ready).await;
    let url = ready[1].url.clone().unwrap();
    assert!(get(&url).await.unwrap().contains("vllm:num_requests_running"));

    fleet.scale(1);
    becomes(&mut discovered, |t| t.len() == 1).await;
    let gone = tokio::time::timeout(PATIENCE, async {
        while get(&url).await.is_ok() {
            tokio::task::yield_now().await;
        }
    });
    gone.await.expect("the deleted replica still answers");
    fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_routers_queue_is_on_its_page_while_no_replica_serves() {
    let (fleet, mut discovered) = fleet(0).await;
    assert!(targets(&discovered.borrow().clone()).is_empty());
    let url = fleet.router_url();
    let queued = || async {
        let page = get(&url).await.unwrap();
        let line = page.lines().find(|l| l.starts_with("simulated_router_queued_requests{")).unwrap();
        line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()
    };
    let filled = tokio::time::timeout(PATIENCE, async {
        while queued().await < 5.0 {
            tokio::task::yield_now().await;
        }
    });
    filled.await.expect("nobody ever queued");
    fleet.with_world(|world| world.adjust(Adjustment::ColdStart(SHORT)));
    fleet.scale(1);
    becomes(&mut discovered, |t| t.iter().any(|target| target.phase == Phase::Ready)).await;
    assert!(queued().await < 1.0);
    let world = fleet.stop().await;
    assert!(world.outcome().requests > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fleet_that_nobody_holds_any_more_ends() {
    let (fleet, mut discovered) = fleet(1).await;
    drop(fleet);
    let ended = async { while discovered.changed().await.is_ok() {} };
    tokio::time::timeout(PATIENCE, ended).await.expect("the driver still runs");
}
