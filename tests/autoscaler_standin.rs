//! KEDA's and the HPA's stand-in against a scripted scaler over real gRPC: what it asks, when, and what it does with the
//! answers. Time is 600 times life; tests wait on conditions, never on spans.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use std::collections::HashMap;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::DateTime;
use keda_vllm_scaler::clock::Clock;
use keda_vllm_scaler::decision::TierId;
use keda_vllm_scaler::proto::external_scaler_server::{ExternalScaler, ExternalScalerServer};
use keda_vllm_scaler::proto::{
    GetMetricSpecResponse, GetMetricsRequest, GetMetricsResponse, IsActiveResponse, MetricSpec, MetricValue,
    ScaledObjectRef,
};
use keda_vllm_scaler::simulate::autoscaler::AutoscalerSettings;
use keda_vllm_scaler::simulate::standin::{
    ReplicaCounts, ScaleTarget, Standin, StandinSettings, StandinStatus,
};
use tokio::net::TcpListener;
use tokio::sync::{broadcast, watch};
use tokio_stream::wrappers::TcpListenerStream;
use tokio_stream::{Stream, StreamExt as _};
use tonic::{Request, Response, Status};

/// Real time that a condition may take to come true; only a failing test ever waits so long.
const PATIENCE: Duration = Duration::from_secs(20);

/// What the scaler answers now.
#[derive(Clone, Debug)]
struct Script {
    /// None is an error.
    value: Option<f64>,
    spec_fails: bool,
    no_values: bool,
}

#[derive(Clone)]
struct Scripted {
    script: Arc<Mutex<Script>>,
    calls: Arc<Mutex<Vec<&'static str>>>,
    pushes: broadcast::Sender<Result<bool, ()>>,
    streams: watch::Sender<u32>,
}

impl Scripted {
    fn new(value: Option<f64>) -> Self {
        Self {
            script: Arc::new(Mutex::new(Script { value, spec_fails: false, no_values: false })),
            calls: Arc::default(),
            pushes: broadcast::channel(16).0,
            streams: watch::channel(0).0,
        }
    }

    fn set(&self, change: impl FnOnce(&mut Script)) {
        change(&mut self.script.lock().unwrap());
    }

    fn called(&self, name: &'static str) -> Script {
        self.calls.lock().unwrap().push(name);
        self.script.lock().unwrap().clone()
    }

    fn count(&self, name: &str) -> usize {
        self.calls.lock().unwrap().iter().filter(|call| **call == name).count()
    }

    async fn serve(&self) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tonic::transport::Server::builder().add_service(ExternalScalerServer::new(self.clone()));
        tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        address
    }
}

#[tonic::async_trait]
impl ExternalScaler for Scripted {
    type StreamIsActiveStream = Pin<Box<dyn Stream<Item = Result<IsActiveResponse, Status>> + Send>>;
    type StreamMetricSpecStream = Pin<Box<dyn Stream<Item = Result<GetMetricSpecResponse, Status>> + Send>>;

    async fn is_active(&self, _: Request<ScaledObjectRef>) -> Result<Response<IsActiveResponse>, Status> {
        let value = self.called("IsActive").value.ok_or_else(|| Status::unavailable("stale"))?;
        Ok(Response::new(IsActiveResponse { result: value > 0.0 }))
    }

    async fn stream_is_active(
        &self,
        _: Request<ScaledObjectRef>,
    ) -> Result<Response<Self::StreamIsActiveStream>, Status> {
        self.called("StreamIsActive");
        self.streams.send_modify(|count| *count += 1);
        let pushes = tokio_stream::wrappers::BroadcastStream::new(self.pushes.subscribe());
        // An Err on the channel ends the stream with an error.
        let stream = pushes.map(|push| match push {
            Ok(Ok(result)) => Ok(IsActiveResponse { result }),
            _ => Err(Status::internal("scripted")),
        });
        Ok(Response::new(Box::pin(stream)))
    }

    async fn get_metric_spec(
        &self,
        _: Request<ScaledObjectRef>,
    ) -> Result<Response<GetMetricSpecResponse>, Status> {
        if self.called("GetMetricSpec").spec_fails {
            return Err(Status::unavailable("no spec"));
        }
        let spec = MetricSpec { metric_name: "required".to_owned(), target_size: 1, target_size_float: 1.0 };
        Ok(Response::new(GetMetricSpecResponse { metric_specs: vec![spec] }))
    }

    async fn get_metrics(
        &self,
        request: Request<GetMetricsRequest>,
    ) -> Result<Response<GetMetricsResponse>, Status> {
        let script = self.called("GetMetrics");
        let request = request.into_inner();
        assert_eq!(request.metric_name, "required");
        assert_eq!(request.scaled_object_ref.unwrap().scaler_metadata["tier"], "chat");
        let value = script.value.ok_or_else(|| Status::unavailable("stale"))?;
        let metric = MetricValue {
            metric_name: "any".to_owned(),
            metric_value: value as i64,
            metric_value_float: value,
        };
        let metric_values = if script.no_values { Vec::new() } else { vec![metric] };
        Ok(Response::new(GetMetricsResponse { metric_values }))
    }

    async fn stream_metric_spec(
        &self,
        _: Request<ScaledObjectRef>,
    ) -> Result<Response<Self::StreamMetricSpecStream>, Status> {
        Err(Status::unimplemented("not here"))
    }
}

/// A Deployment whose pods exist at once.
struct Target(watch::Sender<u32>);

impl ScaleTarget for Target {
    fn counts(&self) -> ReplicaCounts {
        let replicas = *self.0.borrow();
        ReplicaCounts { spec: replicas, status: replicas }
    }

    fn scale(&self, replicas: u32) {
        self.0.send_replace(replicas);
    }
}

struct Rig {
    scaler: Scripted,
    standin: Standin,
    replicas: watch::Receiver<u32>,
    status: watch::Receiver<StandinStatus>,
}

impl Rig {
    async fn start(value: Option<f64>, replicas: u32, autoscaler: AutoscalerSettings) -> Self {
        Self::start_with(Scripted::new(value), replicas, autoscaler).await
    }

    async fn start_with(scaler: Scripted, replicas: u32, autoscaler: AutoscalerSettings) -> Self {
        let address = scaler.serve().await;
        let (target, observed) = watch::channel(replicas);
        let settings = StandinSettings {
            scaler: format!("http://{address}"),
            scaled_object: TierId::new("demo", "chat"),
            metadata: HashMap::from([("tier".to_owned(), "chat".to_owned())]),
            autoscaler,
            clock: Clock::starting_at(DateTime::UNIX_EPOCH, 600.0),
        };
        let standin = Standin::start(settings, Arc::new(Target(target))).unwrap();
        let status = standin.status();
        Self { scaler, standin, replicas: observed, status }
    }

    async fn replicas_become(&mut self, wanted: u32) {
        let reached = self.replicas.wait_for(|replicas| *replicas == wanted);
        tokio::time::timeout(PATIENCE, reached)
            .await
            .unwrap_or_else(|_| panic!("never {wanted} replicas"))
            .unwrap();
    }

    async fn status_becomes(&mut self, condition: impl FnMut(&StandinStatus) -> bool) -> StandinStatus {
        let reached = self.status.wait_for(condition);
        tokio::time::timeout(PATIENCE, reached).await.expect("the status never came").unwrap().clone()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_hpa_asks_for_specs_metrics_and_activity_and_scales() {
    let mut rig = Rig::start(Some(7.0), 2, AutoscalerSettings::recommended(1, 20)).await;
    rig.replicas_become(7).await;
    let status = rig.status_becomes(|status| status.syncs >= 3).await;
    assert_eq!((status.value, status.active, status.error), (Some(7.0), Some(true), None));
    assert_eq!(status.last_scale.map(|change| (change.from, change.to, change.by)), Some((2, 7, "hpa")));
    // With a minimum above zero KEDA 2.21 doesn't poll.
    assert_eq!(status.polls, 0);
    assert!(rig.scaler.count("GetMetricSpec") > rig.scaler.count("GetMetrics"));
    rig.standin.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_default_tolerance_swallows_one_of_twenty_and_zero_does_not() {
    let mut exact = Rig::start(Some(21.0), 20, AutoscalerSettings::recommended(1, 40)).await;
    exact.replicas_become(21).await;
    exact.standin.stop().await;
    let mut usual = Rig::start(Some(21.0), 20, AutoscalerSettings::defaults(1, 40)).await;
    usual.status_becomes(|status| status.syncs >= 5).await;
    assert_eq!(*usual.replicas.borrow(), 20);
    usual.scaler.set(|script| script.value = Some(23.0));
    usual.replicas_become(23).await;
    usual.standin.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_an_empty_answer_and_a_missing_spec_hold_what_there_is() {
    let mut rig = Rig::start(None, 6, AutoscalerSettings::recommended(0, 20)).await;
    let status = rig.status_becomes(|status| status.syncs >= 30 && status.polls >= 15).await;
    assert!(status.error.unwrap().contains("stale"));
    assert_eq!(*rig.replicas.borrow(), 6);
    rig.scaler.set(|script| (script.value, script.no_values) = (Some(1.0), true));
    let syncs = rig.status.borrow().syncs;
    rig.status_becomes(|status| status.syncs >= syncs + 30).await;
    assert_eq!(*rig.replicas.borrow(), 6);
    rig.scaler.set(|script| (script.no_values, script.spec_fails) = (false, true));
    let syncs = rig.status.borrow().syncs;
    rig.status_becomes(|status| status.syncs >= syncs + 30).await;
    assert_eq!(*rig.replicas.borrow(), 6);
    rig.standin.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_spec_there_is_no_hpa_until_there_is_one() {
    let scaler = Scripted::new(Some(5.0));
    scaler.set(|script| script.spec_fails = true);
    let mut rig = Rig::start_with(scaler, 2, AutoscalerSettings::recommended(1, 20)).await;
    rig.status_becomes(|status| status.error.is_some()).await;
    assert_eq!(rig.status.borrow().syncs, 0);
    rig.scaler.set(|script| script.spec_fails = false);
    rig.replicas_become(5).await;
    rig.standin.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lower_number_waits_for_the_downscale_window() {
    let mut rig = Rig::start(Some(8.0), 8, AutoscalerSettings::recommended(1, 20)).await;
    rig.status_becomes(|status| status.syncs >= 1).await;
    rig.scaler.set(|script| script.value = Some(3.0));
    rig.status_becomes(|status| status.value == Some(3.0)).await;
    let lowered_from = rig.status.borrow().syncs;
    rig.replicas_become(3).await;
    // 300 s of 15 s each; a sync more or less for the jitter of a busy machine.
    let waited = rig.status.borrow().syncs - lowered_from;
    assert!((17..=21).contains(&waited), "{waited} syncs");
    rig.standin.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inactive_goes_to_zero_after_the_cooldown_and_a_poll_wakes_it() {
    let mut rig = Rig::start(Some(2.0), 2, AutoscalerSettings::recommended(0, 20)).await;
    rig.status_becomes(|status| status.polls >= 1 && status.active == Some(true)).await;
    rig.scaler.set(|script| script.value = Some(0.0));
    rig.replicas_become(0).await;
    rig.status_becomes(|status| status.last_scale.is_some_and(|c| c.to == 0 && c.by == "poll")).await;
    // At zero the HPA asks nobody. A sync that was under way when the last replica went has ended a poll later.
    let polls = rig.status.borrow().polls;
    rig.status_becomes(|status| status.polls > polls).await;
    let syncs = rig.status.borrow().syncs;
    let polls = rig.status.borrow().polls;
    rig.status_becomes(|status| status.polls >= polls + 3).await;
    assert_eq!(rig.status.borrow().syncs, syncs);
    rig.scaler.set(|script| script.value = Some(4.0));
    rig.replicas_become(4).await;
    rig.standin.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pushed_true_wakes_at_once_and_a_pushed_false_does_nothing() {
    let mut rig = Rig::start(Some(0.0), 0, AutoscalerSettings::recommended(0, 20)).await;
    rig.status_becomes(|status| status.metric.is_some() && status.polls >= 1).await;
    let mut streams = rig.scaler.streams.subscribe();
    tokio::time::timeout(PATIENCE, streams.wait_for(|count| *count >= 1)).await.unwrap().unwrap();
    rig.scaler.pushes.send(Ok(false)).unwrap();
    rig.status_becomes(|status| status.ignored_pushes == 1).await;
    assert_eq!(*rig.replicas.borrow(), 0);
    // The value, too, must be above zero from now on, or the next poll finds it inactive.
    rig.scaler.set(|script| script.value = Some(1.0));
    rig.scaler.pushes.send(Ok(true)).unwrap();
    rig.replicas_become(1).await;
    rig.standin.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_stream_is_opened_again() {
    let mut rig = Rig::start(Some(1.0), 1, AutoscalerSettings::recommended(1, 20)).await;
    let mut streams = rig.scaler.streams.subscribe();
    for opened in 1..=4 {
        tokio::time::timeout(PATIENCE, streams.wait_for(|count| *count >= opened)).await.unwrap().unwrap();
        let syncs = rig.status.borrow().syncs;
        rig.status_becomes(|status| status.syncs > syncs).await;
        rig.scaler.pushes.send(Err(())).unwrap();
    }
    rig.standin.stop().await;
}
