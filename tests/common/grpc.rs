//! A running server and clients that ask as KEDA does.

#![allow(dead_code, reason = "each test uses its part")]
#![allow(clippy::unwrap_used, reason = "what can't be set up fails the test")]

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use keda_vllm_scaler::clock::Clock;
use keda_vllm_scaler::proto::external_scaler_client::ExternalScalerClient;
use keda_vllm_scaler::proto::{GetMetricsRequest, ScaledObjectRef};
use keda_vllm_scaler::serve::grpc::{Drained, Options, ServeError, Server};
use keda_vllm_scaler::serve::health::Readiness;
use keda_vllm_scaler::snapshot::Published;
use keda_vllm_scaler::telemetry::Counters;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;

/// Longer than anything here takes, so that a hang fails instead of hanging.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) const LOOPBACK: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) counters: Counters,
    pub(crate) shutdown: CancellationToken,
    pub(crate) served: JoinHandle<Result<Drained, ServeError>>,
}

pub(crate) async fn start(published: &Published) -> Running {
    start_with(published, |_| {}).await
}

pub(crate) async fn start_with(published: &Published, change: impl FnOnce(&mut Options)) -> Running {
    let shutdown = CancellationToken::new();
    let counters = Counters::default();
    let mut options = Options {
        published: published.clone(),
        clock: Clock::system(),
        counters: counters.clone(),
        readiness: Readiness::new(published, shutdown.clone()),
        reflection: false,
        drain: Duration::from_secs(10),
    };
    change(&mut options);
    let server = Server::bind(LOOPBACK, options).await.unwrap();
    let address = server.local_addr();
    let run = tokio::spawn(server.run(shutdown.clone()));
    Running { address, counters, shutdown, served: run }
}

impl Running {
    pub(crate) async fn channel(&self) -> Channel {
        channel(self.address).await
    }

    pub(crate) async fn client(&self) -> ExternalScalerClient<Channel> {
        ExternalScalerClient::new(self.channel().await)
    }

    pub(crate) async fn stop(self) -> Drained {
        self.shutdown.cancel();
        self.served.await.unwrap().unwrap()
    }
}

pub(crate) async fn channel(address: SocketAddr) -> Channel {
    Channel::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap()
}

/// The ScaledObject `serving/chat-scaledobject` with this metadata.
pub(crate) fn asker(metadata: &[(&str, &str)]) -> ScaledObjectRef {
    ScaledObjectRef {
        name: "chat-scaledobject".into(),
        namespace: "serving".into(),
        scaler_metadata: metadata
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect::<HashMap<_, _>>(),
    }
}

pub(crate) fn metrics_of(asker: ScaledObjectRef) -> GetMetricsRequest {
    GetMetricsRequest { scaled_object_ref: Some(asker), metric_name: "required-replicas".into() }
}

/// Waits for a condition that another task brings about.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("never came: {what}"));
}
