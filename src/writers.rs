//! What is written to the cluster. Writers hold a Lease, so that of several equal scalers one writes; readers never need
//! it, and nothing that is answered depends on it.
//!
//! ```text
//! lease    who holds it: taken when its holder has not renewed it for its whole duration
//! news     what changed between two snapshots, in words (pure)
//! events   Kubernetes Events on the ScaledObject, only of news, in bounded numbers
//! ```

use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::clock::Clock;
use crate::cluster::Cluster;
use crate::snapshot::Published;

pub mod events;
pub mod lease;
pub mod news;

use lease::{Elector, Identity, Leadership};

/// Between two attempts to find the cluster.
const FIND_AGAIN: Duration = Duration::from_secs(30);

/// Takes part in the election and writes while it is won, until `stop`. `leadership` tells who holds the Lease.
pub async fn run(
    cluster: Cluster,
    identity: Identity,
    published: Published,
    clock: Clock,
    leadership: watch::Sender<Leadership>,
    stop: CancellationToken,
) {
    let mut told = None;
    let client = loop {
        match cluster.client().await {
            Ok(client) => break client,
            Err(why) if told.as_ref() == Some(&why) => {}
            Err(why) => {
                warn!(why, "no cluster: no Lease and no Events");
                told = Some(why);
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(FIND_AGAIN) => {}
        }
    };
    let elector = Elector::new(client.clone(), identity.clone(), leadership.clone());
    let events = events::run(client, identity, published, leadership.subscribe(), clock, stop.clone());
    tokio::join!(elector.run(clock, stop.clone()), events);
}
