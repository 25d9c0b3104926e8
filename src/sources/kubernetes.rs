//! Kubernetes: the pods of a scale target, and what the API server says of the target and its ScaledObject.
//!
//! ```text
//! watches      one a namespace and kind, shared by all tiers in it      (pods, ScaledObjects)
//! list_watch   the list and the watch from where it ended, paced        shared   pods of two tiers, addresses of two pods
//! pod          the API's record, trimmed                                life     starting, ready, blocked, ...
//! groups       a LeaderWorkerSet group is one replica                   page     where its metrics page is
//! scale        the target's selector and counts                         scaled_object   who asks, with which bounds
//! target_state what was last read of the target and its HPA             sight    all of it together, as `Discovered`
//! tier         the task of a tier: reads, looks, publishes
//! ```
//!
//! Nothing is written. Rights, all of them in the tier's own namespace: `list,watch` on pods and `get` on the target's
//! scale; `list,watch` on ScaledObjects where the file names no target; the rest is optional and named when it is missing.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::DynamicObject;
use kube::{Api, Client};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::clock::Clock;
use crate::cluster::Cluster;
use crate::config::PodSettings;
use crate::decision::TierId;
use crate::supply::Discovered;

use self::pod::PodRecord;
use self::scaled_object::ScaledObjectRecord;
use self::shared::Claims;
use self::tier::TierSource;
use self::watches::{Subscription, Watched, Watches};

mod groups;
mod life;
mod list_watch;
mod page;
mod pod;
mod scale;
mod scaled_object;
mod selector;
mod shared;
mod sight;
mod target_state;
mod tier;
mod watches;

/// Between two attempts to find the cluster: a kubeconfig that isn't there yet, a token that isn't mounted.
const FIND_AGAIN: Duration = Duration::from_secs(10);

/// The source of every tier whose replicas are pods of one cluster. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Kubernetes {
    cluster: Cluster,
    pods: Arc<Watches<PodRecord>>,
    scaled_objects: Arc<Watches<ScaledObjectRecord>>,
    claims: Arc<Claims>,
}

impl Kubernetes {
    /// Of this cluster.
    #[must_use]
    pub fn new(cluster: Cluster) -> Self {
        Self { cluster, pods: Arc::default(), scaled_objects: Arc::default(), claims: Arc::default() }
    }

    /// Publishes the replicas of a tier until `stop`. While the cluster can't be found they are unknown.
    pub async fn run(
        self,
        tier: TierId,
        settings: PodSettings,
        clock: Clock,
        published: watch::Sender<Discovered>,
        stop: CancellationToken,
    ) {
        let client = loop {
            let why = match self.cluster.client().await {
                Ok(client) => break client,
                Err(why) => why,
            };
            published.send_if_modified(|before| {
                let unknown = Discovered::Unknown { why: why.clone() };
                let news = *before != unknown;
                if news {
                    warn!(tier = %tier, why, "no cluster");
                    *before = unknown;
                }
                news
            });
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(FIND_AGAIN) => {}
            }
        };
        TierSource { tier, settings, client, kubernetes: self, clock }.run(published, stop).await;
    }

    fn pods(&self, client: &Client, namespace: &str, clock: Clock) -> Subscription<PodRecord> {
        self.pods.join(namespace, clock, || Watched {
            api: Api::<Pod>::namespaced(client.clone(), namespace),
            resource: "pods",
            trim: |pod| PodRecord::of(pod).map(|record| (record.uid.clone(), record)),
        })
    }

    fn scaled_objects(
        &self,
        client: &Client,
        namespace: &str,
        clock: Clock,
    ) -> Subscription<ScaledObjectRecord> {
        self.scaled_objects.join(namespace, clock, || Watched {
            api: Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &scaled_object::resource()),
            resource: "scaledobjects.keda.sh",
            trim: ScaledObjectRecord::of,
        })
    }
}
