//! The yardstick: KEDA's service with nothing behind it, on a transport with the same settings.

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use keda_vllm_scaler::proto::external_scaler_server::{ExternalScaler, ExternalScalerServer};
use keda_vllm_scaler::proto::{
    GetMetricSpecResponse, GetMetricsRequest, GetMetricsResponse, IsActiveResponse, MetricValue,
    ScaledObjectRef,
};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::codegen::BoxStream;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status, async_trait};

use crate::grpc::LOOPBACK;

/// As often as ours sends.
const HEARTBEAT_SECONDS: std::ops::Range<f64> = 10.0..20.0;

pub(crate) struct Plain {
    pub(crate) address: SocketAddr,
    stop: CancellationToken,
    serving: JoinHandle<Result<(), tonic::transport::Error>>,
}

impl Plain {
    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        self.stop.cancel();
        Ok(self.serving.await??)
    }
}

pub(crate) fn start() -> anyhow::Result<Plain> {
    let incoming = TcpIncoming::bind(LOOPBACK)?.with_nodelay(Some(true));
    let address = incoming.local_addr()?;
    let stop = CancellationToken::new();
    let serving = tonic::transport::Server::builder()
        .max_concurrent_streams(65_536)
        .initial_connection_window_size(16 * 1024 * 1024)
        .add_service(ExternalScalerServer::new(Constant))
        .serve_with_incoming_shutdown(incoming, stop.clone().cancelled_owned());
    Ok(Plain { address, stop, serving: tokio::spawn(serving) })
}

struct Constant;

#[async_trait]
impl ExternalScaler for Constant {
    async fn is_active(&self, _: Request<ScaledObjectRef>) -> Result<Response<IsActiveResponse>, Status> {
        Ok(Response::new(IsActiveResponse { result: true }))
    }

    async fn get_metrics(
        &self,
        _: Request<GetMetricsRequest>,
    ) -> Result<Response<GetMetricsResponse>, Status> {
        let value =
            MetricValue { metric_name: "required-replicas".into(), metric_value: 1, metric_value_float: 1.0 };
        Ok(Response::new(GetMetricsResponse { metric_values: vec![value] }))
    }

    async fn get_metric_spec(
        &self,
        _: Request<ScaledObjectRef>,
    ) -> Result<Response<GetMetricSpecResponse>, Status> {
        Ok(Response::new(GetMetricSpecResponse::default()))
    }

    type StreamIsActiveStream = BoxStream<IsActiveResponse>;

    async fn stream_is_active(
        &self,
        _: Request<ScaledObjectRef>,
    ) -> Result<Response<Self::StreamIsActiveStream>, Status> {
        // The first at once: a sleep of zero would take a tick of the timer.
        let repeated = stream::unfold((), |()| async {
            tokio::time::sleep(Duration::from_secs_f64(rand::random_range(HEARTBEAT_SECONDS))).await;
            Some((Ok(IsActiveResponse { result: true }), ()))
        });
        let pushes = stream::iter([Ok(IsActiveResponse { result: true })]).chain(repeated);
        Ok(Response::new(Box::pin(pushes)))
    }

    type StreamMetricSpecStream = BoxStream<GetMetricSpecResponse>;

    async fn stream_metric_spec(
        &self,
        _: Request<ScaledObjectRef>,
    ) -> Result<Response<Self::StreamMetricSpecStream>, Status> {
        Ok(Response::new(Box::pin(stream::pending())))
    }
}
