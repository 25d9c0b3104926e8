//! Around every RPC of KEDA's service: count, time, and turn a panic into INTERNAL.
//!
//! A call is counted on all its ways out: an answer, an error, a panic, and a client that goes away.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::{FutureExt, Stream, StreamExt};
use tokio::time::Instant;
use tonic::codegen::BoxStream;
use tonic::{Code, Request, Response, Status, async_trait};

use crate::proto::external_scaler_server::ExternalScaler;
use crate::proto::{
    GetMetricSpecResponse, GetMetricsRequest, GetMetricsResponse, IsActiveResponse, ScaledObjectRef,
};
use crate::telemetry::Counters;

/// A service whose calls are counted and can't take the server down.
#[derive(Clone, Debug)]
pub(super) struct Observed<S> {
    inner: S,
    counters: Counters,
}

impl<S> Observed<S> {
    pub(super) fn new(inner: S, counters: Counters) -> Self {
        Self { inner, counters }
    }

    async fn unary<T>(
        &self,
        method: &'static str,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<Response<T>, Status> {
        let mut record = Record::begin(&self.counters, method);
        let result = caught(method, call).await;
        record.end(code_of(&result));
        self.counters.grpc_took(method, record.age());
        result
    }

    async fn streaming<T: Send + 'static>(
        &self,
        method: &'static str,
        call: impl Future<Output = Result<Response<BoxStream<T>>, Status>>,
    ) -> Result<Response<BoxStream<T>>, Status> {
        let mut record = Record::begin(&self.counters, method);
        let response = match caught(method, call).await {
            Ok(response) => response,
            Err(status) => {
                record.end(status.code());
                return Err(status);
            }
        };
        self.counters.grpc_stream_opened(method);
        Ok(response.map(|inner| {
            let inner = AssertUnwindSafe(inner).catch_unwind();
            Box::pin(ObservedStream {
                inner: Box::pin(inner),
                method,
                record,
                counters: self.counters.clone(),
            }) as BoxStream<T>
        }))
    }
}

async fn caught<T>(
    method: &'static str,
    call: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<Response<T>, Status> {
    AssertUnwindSafe(call).catch_unwind().await.unwrap_or_else(|panic| Err(panicked(method, &*panic)))
}

fn panicked(method: &'static str, panic: &(dyn Any + Send)) -> Status {
    let said = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    tracing::error!(method, panic = said, "rpc handler panicked");
    Status::internal(format!("{method}: internal error"))
}

fn code_of<T>(result: &Result<T, Status>) -> Code {
    match result {
        Ok(_) => Code::Ok,
        Err(status) => status.code(),
    }
}

/// Counts one call exactly once, as cancelled when nobody says otherwise.
#[derive(Debug)]
struct Record {
    counters: Counters,
    method: &'static str,
    began: Instant,
    ended: bool,
}

impl Record {
    fn begin(counters: &Counters, method: &'static str) -> Self {
        Self { counters: counters.clone(), method, began: Instant::now(), ended: false }
    }

    fn age(&self) -> Duration {
        self.began.elapsed()
    }

    fn end(&mut self, code: Code) {
        if !std::mem::replace(&mut self.ended, true) {
            self.counters.grpc_handled(self.method, code);
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.end(Code::Cancelled);
    }
}

type CaughtStream<T> = Pin<Box<dyn Stream<Item = Result<Result<T, Status>, Box<dyn Any + Send>>> + Send>>;

struct ObservedStream<T> {
    inner: CaughtStream<T>,
    method: &'static str,
    record: Record,
    counters: Counters,
}

impl<T> Stream for ObservedStream<T> {
    type Item = Result<T, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let item = match ready!(self.inner.as_mut().poll_next(context)) {
            None => {
                self.record.end(Code::Ok);
                return Poll::Ready(None);
            }
            Some(Ok(item)) => item,
            Some(Err(panic)) => Err(panicked(self.method, &*panic)),
        };
        if let Err(status) = &item {
            self.record.end(status.code());
        }
        Poll::Ready(Some(item))
    }
}

impl<T> Drop for ObservedStream<T> {
    fn drop(&mut self) {
        self.counters.grpc_stream_closed(self.method);
    }
}

#[async_trait]
impl<S> ExternalScaler for Observed<S>
where
    S: ExternalScaler<
            StreamIsActiveStream = BoxStream<IsActiveResponse>,
            StreamMetricSpecStream = BoxStream<GetMetricSpecResponse>,
        >,
{
    async fn is_active(
        &self,
        request: Request<ScaledObjectRef>,
    ) -> Result<Response<IsActiveResponse>, Status> {
        self.unary("IsActive", self.inner.is_active(request)).await
    }

    async fn get_metrics(
        &self,
        request: Request<GetMetricsRequest>,
    ) -> Result<Response<GetMetricsResponse>, Status> {
        self.unary("GetMetrics", self.inner.get_metrics(request)).await
    }

    async fn get_metric_spec(
        &self,
        request: Request<ScaledObjectRef>,
    ) -> Result<Response<GetMetricSpecResponse>, Status> {
        self.unary("GetMetricSpec", self.inner.get_metric_spec(request)).await
    }

    type StreamIsActiveStream = BoxStream<IsActiveResponse>;

    async fn stream_is_active(
        &self,
        request: Request<ScaledObjectRef>,
    ) -> Result<Response<Self::StreamIsActiveStream>, Status> {
        self.streaming("StreamIsActive", self.inner.stream_is_active(request)).await
    }

    type StreamMetricSpecStream = BoxStream<GetMetricSpecResponse>;

    async fn stream_metric_spec(
        &self,
        request: Request<ScaledObjectRef>,
    ) -> Result<Response<Self::StreamMetricSpecStream>, Status> {
        self.streaming("StreamMetricSpec", self.inner.stream_metric_spec(request)).await
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use tokio::net::TcpListener;
    use tokio_stream::wrappers::TcpListenerStream;

    use super::*;
    use crate::proto::external_scaler_client::ExternalScalerClient;
    use crate::proto::external_scaler_server::ExternalScalerServer;

    /// Panics everywhere but in GetMetricSpec.
    struct Panics;

    #[async_trait]
    impl ExternalScaler for Panics {
        async fn is_active(&self, _: Request<ScaledObjectRef>) -> Result<Response<IsActiveResponse>, Status> {
            panic!("in IsActive")
        }

        async fn get_metrics(
            &self,
            _: Request<GetMetricsRequest>,
        ) -> Result<Response<GetMetricsResponse>, Status> {
            panic!("in {}", "GetMetrics")
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
            let pushes = stream::iter([true, false]).map(|fine| {
                assert!(fine, "in the stream");
                Ok(IsActiveResponse { result: true })
            });
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

    fn handled(counters: &Counters) -> String {
        let mut registry = prometheus_client::registry::Registry::default();
        registry.register("handled", "", counters.grpc().handled.clone());
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        text
    }

    #[tokio::test]
    async fn a_panic_is_internal_and_the_server_and_its_connection_live() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let counters = Counters::default();
        let service = ExternalScalerServer::new(Observed::new(Panics, counters.clone()));
        tokio::spawn(
            tonic::transport::Server::builder()
                .add_service(service)
                .serve_with_incoming(TcpListenerStream::new(listener)),
        );
        let mut client = ExternalScalerClient::connect(format!("http://{address}")).await.unwrap();
        for _ in 0..3 {
            let refused = client.is_active(ScaledObjectRef::default()).await.unwrap_err();
            assert_eq!(refused.code(), Code::Internal);
            assert!(!refused.message().contains("in IsActive"), "its words are for the log");
            let refused = client.get_metrics(GetMetricsRequest::default()).await.unwrap_err();
            assert_eq!(refused.code(), Code::Internal);
            let mut pushes = client.stream_is_active(ScaledObjectRef::default()).await.unwrap().into_inner();
            assert!(pushes.message().await.unwrap().unwrap().result);
            assert_eq!(pushes.message().await.unwrap_err().code(), Code::Internal);
            client.get_metric_spec(ScaledObjectRef::default()).await.unwrap();
        }
        let text = handled(&counters);
        for line in [
            "handled_total{method=\"IsActive\",code=\"Internal\"} 3",
            "handled_total{method=\"GetMetrics\",code=\"Internal\"} 3",
            "handled_total{method=\"StreamIsActive\",code=\"Internal\"} 3",
            "handled_total{method=\"GetMetricSpec\",code=\"OK\"} 3",
        ] {
            assert!(text.contains(line), "{line} in\n{text}");
        }
    }

    #[tokio::test]
    async fn a_stream_that_the_client_drops_is_counted_as_cancelled() {
        let counters = Counters::default();
        let observed = Observed::new(Panics, counters.clone());
        let open = observed.stream_metric_spec(Request::new(ScaledObjectRef::default())).await.unwrap();
        assert_eq!(counters.streams_open("StreamMetricSpec"), 1);
        drop(open);
        assert_eq!(counters.streams_open("StreamMetricSpec"), 0);
        assert!(handled(&counters).contains("method=\"StreamMetricSpec\",code=\"Canceled\"} 1"));
    }
}
