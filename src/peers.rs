//! What is learned is the Lease holder's: the other scalers take it at their start and every minute, so that all of them
//! answer alike to the same pods. A peer that can't be read costs nothing but that: each goes on with what it knows.

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use reqwest::Client;
use reqwest::redirect::Policy;
use serde::Deserialize;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::control_loop::PeerLearned;
use crate::decision::{Learned, TierId};
use crate::telemetry::Counters;
use crate::writers::lease::Leadership;

/// Between two readings. Real time: what is learned changes by the minute.
const READ_EVERY: Duration = Duration::from_secs(60);
/// After a reading that failed: a holder that is rolled answers again within seconds.
const TRY_AGAIN: Duration = Duration::from_secs(5);
/// For all of one reading.
const TIMEOUT: Duration = Duration::from_secs(5);
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

/// Follows the Lease until `stop`: while a peer holds it, what that one has learned goes to `learned`.
pub async fn run(
    mut leadership: watch::Receiver<Leadership>,
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
                    if learned.send(tiers).await.is_err() {
                        return;
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

async fn read(client: &Client, address: &str) -> anyhow::Result<PeerLearned> {
    let url = format!("http://{address}/v1/learned");
    let mut response = client.get(&url).send().await.with_context(|| format!("{url} doesn't answer"))?;
    ensure!(response.status().is_success(), "{url} answers {}", response.status());
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.with_context(|| format!("{url} breaks off"))? {
        if body.len() + chunk.len() > MOST_BYTES {
            bail!("{url} says more than {MOST_BYTES} bytes");
        }
        body.extend_from_slice(&chunk);
    }
    let reply: Reply = serde_json::from_slice(&body)
        .with_context(|| format!("{url}: not what a scaler says, or one of another version"))?;
    Ok(reply.tiers.into_iter().map(|tier| (tier.tier, tier.learned)).collect())
}
