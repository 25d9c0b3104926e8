//! What is learned is the Lease holder's: the other scalers take it at their start and every minute, so that all of them
//! answer alike to the same pods. A peer that can't be read costs nothing but that: each goes on with what it knows.
//!
//! Forecasts are large. One is taken only where the holder's is the better one, which is so at the start and after a gap.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use reqwest::Client;
use reqwest::redirect::Policy;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::control_loop::PeerLearned;
use crate::decision::{Learned, TierId};
use crate::forecast::Forecast;
use crate::snapshot::Snapshot;
use crate::telemetry::Counters;
use crate::writers::lease::Leadership;

/// Between two readings. Real time: what is learned changes by the minute.
const READ_EVERY: Duration = Duration::from_secs(60);
/// After a reading that failed: a holder that is rolled answers again within seconds.
const TRY_AGAIN: Duration = Duration::from_secs(5);
/// For all of one reading.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The largest forecast that is read: up to 400 kB are written, and numbers may need more digits.
const MOST_FORECAST_BYTES: usize = 2 << 20;
/// Forecasts taken after one reading; the rest follows after the next one, so that learned state isn't kept waiting.
const MOST_FORECASTS: usize = 50;
/// The largest answer that is read: a thousand tiers with all their starts.
const MOST_BYTES: usize = 64 << 20;

#[derive(Deserialize)]
struct Reply {
    tiers: Vec<LearnedTier>,
}

#[derive(Deserialize)]
struct LearnedTier {
    tier: TierId,
    learned: Learned,
}

/// Follows the Lease until `stop`: while a peer holds it, what that one has learned goes to `learned`, and its forecasts of
/// tiers whose own, in `published`, are worse.
pub async fn run(
    mut leadership: watch::Receiver<Leadership>,
    published: watch::Receiver<Arc<Snapshot>>,
    learned: mpsc::Sender<PeerLearned>,
    counters: Counters,
    stop: CancellationToken,
) {
    // A proxy of the environment or a redirect would take the request out of the cluster.
    let client = match Client::builder().no_proxy().redirect(Policy::none()).timeout(TIMEOUT).build() {
        Ok(client) => client,
        Err(error) => {
            warn!(%error, "no HTTP client: nothing is taken from peers");
            return;
        }
    };
    // The holder that was told of in the log, and why it can't be read.
    let mut told: Option<(String, Option<String>)> = None;
    loop {
        let holder = match &*leadership.borrow_and_update() {
            Leadership::Peer { name, http_address: Some(address) } => Some((name.clone(), address.clone())),
            // A holder that doesn't know its own address can't be asked.
            _ => None,
        };
        let mut pause = READ_EVERY;
        if let Some((name, address)) = holder {
            let read = tokio::select! {
                () = stop.cancelled() => return,
                read = read(&client, &address) => read,
            };
            counters.peer_read(read.is_ok());
            let news = (name, read.as_ref().err().map(|error| format!("{error:#}")));
            if told.as_ref() != Some(&news) {
                tell(&news, &address);
                told = Some(news);
            }
            match read {
                Ok(tiers) => {
                    let mut wanted = wanted_forecasts(&tiers, &published.borrow());
                    if wanted.len() > MOST_FORECASTS {
                        wanted.truncate(MOST_FORECASTS);
                        pause = TRY_AGAIN;
                    }
                    let small = PeerLearned { learned: tiers, forecasts: Vec::new() };
                    if learned.send(small).await.is_err() {
                        return;
                    }
                    let taking = take_forecasts(&client, &address, wanted, &learned);
                    tokio::select! {
                        () = stop.cancelled() => return,
                        taken = taking => if let Err(error) = taken {
                            counters.peer_read(false);
                            debug!(error = format!("{error:#}"), "a forecast of the holder of the Lease can't be read");
                        },
                    }
                }
                Err(_) => pause = TRY_AGAIN,
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            // Another holder is asked at once.
            changed = leadership.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(pause) => {}
        }
    }
}

fn tell((holder, trouble): &(String, Option<String>), address: &str) {
    match trouble {
        None => info!(holder, address, "taking what the holder of the Lease has learned"),
        Some(why) => warn!(holder, address, why, "what the holder of the Lease has learned can't be read"),
    }
}

/// Tiers of which the peer has the better forecast.
fn wanted_forecasts(theirs: &[(TierId, Learned)], own: &Snapshot) -> Vec<TierId> {
    let wants = |(tier, learned): &&(TierId, Learned)| {
        own.tiers.get(tier).is_some_and(|status| {
            status.policy.forecast.is_some() && status.learned.wants_forecast_of(learned)
        })
    };
    theirs.iter().filter(wants).map(|(tier, _)| tier.clone()).collect()
}

/// One after the other; the first that can't be read ends it, and the next reading goes on.
async fn take_forecasts(
    client: &Client,
    address: &str,
    wanted: Vec<TierId>,
    learned: &mpsc::Sender<PeerLearned>,
) -> anyhow::Result<()> {
    for tier in wanted {
        let TierId { namespace, name } = &tier;
        let url = format!("http://{address}/v1/learned/{namespace}/{name}/forecast");
        let forecast: Forecast = get(client, &url, MOST_FORECAST_BYTES).await?;
        let large = PeerLearned { learned: Vec::new(), forecasts: vec![(tier, forecast)] };
        if learned.send(large).await.is_err() {
            return Ok(());
        }
    }
    Ok(())
}

async fn read(client: &Client, address: &str) -> anyhow::Result<Vec<(TierId, Learned)>> {
    let url = format!("http://{address}/v1/learned");
    let reply: Reply = get(client, &url, MOST_BYTES).await?;
    Ok(reply.tiers.into_iter().map(|tier| (tier.tier, tier.learned)).collect())
}

async fn get<T: DeserializeOwned>(client: &Client, url: &str, most_bytes: usize) -> anyhow::Result<T> {
    let mut response = client.get(url).send().await.with_context(|| format!("{url} doesn't answer"))?;
    ensure!(response.status().is_success(), "{url} answers {}", response.status());
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.with_context(|| format!("{url} breaks off"))? {
        if body.len() + chunk.len() > most_bytes {
            bail!("{url} says more than {most_bytes} bytes");
        }
        body.extend_from_slice(&chunk);
    }
    serde_json::from_slice(&body)
        .with_context(|| format!("{url}: not what a scaler says, or one of another version"))
}
