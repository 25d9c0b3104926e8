//! The way to the Kubernetes API server: one client for the sources that read it and the writers that write to it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::sync::OnceCell;

use crate::config::ClusterSettings;

mod trouble;

pub(crate) use trouble::{MissingRight, Need, Trouble, missing};

/// A request to the API server takes no longer; a watch that says nothing for longer is dead (it is ended by the server
/// within 60 s).
const READ_TIMEOUT: Duration = Duration::from_secs(75);
/// For a connection to the API server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A cluster. Cheap to clone; nothing is read or dialled before it is needed.
#[derive(Clone)]
pub struct Cluster {
    shared: Arc<Shared>,
}

struct Shared {
    settings: ClusterSettings,
    client: OnceCell<Client>,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The client holds credentials.
        f.debug_struct("Cluster").field("settings", &self.shared.settings).finish_non_exhaustive()
    }
}

impl Cluster {
    /// The cluster that these settings name.
    #[must_use]
    pub fn new(settings: ClusterSettings) -> Self {
        Self { shared: Arc::new(Shared { settings, client: OnceCell::new() }) }
    }

    /// Its client.
    ///
    /// # Errors
    /// Why there is none: no service account, no kubeconfig, one that can't be used.
    pub async fn client(&self) -> Result<Client, String> {
        self.shared.client.get_or_try_init(|| client(&self.shared.settings)).await.cloned()
    }
}

/// Of the kubeconfig that is named, else of `$KUBECONFIG` or `~/.kube/config`, else of the pod's own service account.
async fn client(settings: &ClusterSettings) -> Result<Client, String> {
    let options = KubeConfigOptions { context: settings.context.clone(), ..KubeConfigOptions::default() };
    let mut config = match &settings.kubeconfig {
        Some(file) => from_file(file, &options).await?,
        None => kube::Config::infer().await.map_err(|error| format!("no cluster is configured: {error}"))?,
    };
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.read_timeout = Some(READ_TIMEOUT);
    Client::try_from(config).map_err(|error| format!("the cluster's configuration can't be used: {error}"))
}

async fn from_file(file: &Path, options: &KubeConfigOptions) -> Result<kube::Config, String> {
    let named = |error: &dyn std::fmt::Display| format!("kubeconfig {}: {error}", file.display());
    let kubeconfig = Kubeconfig::read_from(file).map_err(|error| named(&error))?;
    kube::Config::from_custom_kubeconfig(kubeconfig, options).await.map_err(|error| named(&error))
}
