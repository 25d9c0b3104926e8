//! Follows the pods of the simulated engines: a list, then a watch, again from the list whenever the watch ends.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use futures_util::StreamExt;
use reqwest::{Certificate, Client, Identity};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::pod_list::{Pod, PodList};
use super::world::World;

/// The pods that are ours.
const SELECTOR: &str = "labelSelector=engine%3Dsimulated";
/// How long one watch lasts before the server ends it.
const WATCH_SECONDS: u32 = 300;
/// Before the next try when the API server can't be had. Pods live on meanwhile.
const RETRY: Duration = Duration::from_millis(300);

/// A client of the API server.
pub(crate) struct Watcher {
    client: Client,
    pods: String,
}

#[derive(Deserialize)]
#[serde(tag = "type", content = "object", rename_all = "UPPERCASE")]
enum Event {
    Added(Pod),
    Modified(Pod),
    Deleted(Pod),
    Bookmark(IgnoredAny),
    Error(serde_json::Value),
}

impl Watcher {
    pub(crate) fn new(server: &str, pki: &Path) -> anyhow::Result<Self> {
        let read = |name: &str| std::fs::read(pki.join(name)).with_context(|| name.to_owned());
        let mut identity = read("admin.crt")?;
        identity.extend(read("admin.key")?);
        let client = Client::builder()
            .tls_certs_only([Certificate::from_pem(&read("ca.crt")?)?])
            .identity(Identity::from_pem(&identity)?)
            .connect_timeout(Duration::from_secs(2))
            .build()?;
        Ok(Self { client, pods: format!("{server}/api/v1/pods?{SELECTOR}") })
    }

    /// Never ends by itself.
    pub(crate) async fn follow(&self, world: Arc<World>) -> anyhow::Result<()> {
        loop {
            if let Err(error) = self.list_and_watch(&world).await {
                tracing::info!(error = format!("{error:#}"), "watch_ended");
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    async fn list_and_watch(&self, world: &World) -> anyhow::Result<()> {
        let list = self.client.get(&self.pods).timeout(Duration::from_secs(30)).send().await?;
        let list: PodList = serde_json::from_slice(&list.error_for_status()?.bytes().await?)?;
        let version = list.metadata.resource_version;
        world.replace(list.items.into_iter().filter_map(Pod::seen).collect());
        let url = format!("{}&watch=1&resourceVersion={version}&timeoutSeconds={WATCH_SECONDS}", self.pods);
        let mut chunks = self.client.get(url).send().await?.error_for_status()?.bytes_stream();
        let mut pending = Vec::new();
        while let Some(chunk) = chunks.next().await {
            pending.extend_from_slice(&chunk?);
            let Some(end) = pending.iter().rposition(|byte| *byte == b'\n') else { continue };
            for line in pending[..end].split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                take(world, line)?;
            }
            pending.drain(..=end);
        }
        Ok(())
    }
}

/// One event of the watch.
fn take(world: &World, line: &[u8]) -> anyhow::Result<()> {
    match serde_json::from_slice(line)? {
        Event::Added(pod) | Event::Modified(pod) => {
            if let Some(seen) = pod.seen() {
                world.see(seen);
            }
        }
        Event::Deleted(pod) => {
            if let Some(seen) = pod.seen() {
                world.gone(&seen);
            }
        }
        Event::Bookmark(_) => {}
        Event::Error(status) => anyhow::bail!("{status}"),
    }
    Ok(())
}
