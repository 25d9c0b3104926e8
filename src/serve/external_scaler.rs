//! KEDA's `ExternalScaler`: five RPCs over the published snapshot.
//!
//! One metric with a constant name and a constant target of 1, so that the HPA's `ceil(value / target)` is our
//! decision. The server never does I/O for an answer; the one thing it waits for is the control loop's first decision
//! about a tier that the asker's own metadata declares, and that wait is bounded.
//!
//! Values of `scalerMetadata` may be secrets (KEDA resolves `*FromEnv` keys into it): nothing here logs one.

use std::time::Duration;

use tokio::sync::{mpsc::error::SendTimeoutError, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::codegen::BoxStream;
use tonic::{Request, Response, Status, async_trait};

use super::answer::{Refusal, required, tier_of, trigger_of};
use super::edges::Edges;
use super::streams;
use crate::clock::Clock;
use crate::config::trigger::Trigger;
use crate::decision::{Policy, TierId};
use crate::proto::external_scaler_server::ExternalScaler;
use crate::proto::{
    GetMetricSpecResponse, GetMetricsRequest, GetMetricsResponse, IsActiveResponse, MetricSpec, MetricValue,
    ScaledObjectRef,
};
use crate::snapshot::{Declare, Published, Snapshot};
use crate::telemetry::{Counters, Fault, Rpc};

/// The name of the one metric. Constant for ever: an HPA keeps the name that it was made with, and a name that the
/// server no longer lists is an error to it until its ScaledObject is next reconciled.
pub const METRIC_NAME: &str = "required-replicas";

/// The target of the one metric, per replica. See the module's first lines.
pub const METRIC_TARGET: u32 = 1;

/// How long an answer may wait for the first decision about a declared tier. KEDA sets no deadline and holds a lock per
/// object meanwhile, and the HPA has five workers for a whole cluster: everything must answer within 250 ms.
const DECLARE_WAIT: Duration = Duration::from_millis(200);

/// One in so many answers for a declared tier tells the control loop that it is still asked for. KEDA tells nobody
/// when a ScaledObject is deleted, so the loop can only forget what hasn't been asked for in a long time; at the HPA's
/// sync of 15 s this is once in two minutes on average, without a memory per asker.
const DECLARED_AGAIN_ODDS: u32 = 8;

/// Answers from the published snapshot. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Answers {
    published: Published,
    clock: Clock,
    counters: Counters,
}

impl Answers {
    /// What the asker's metadata means. What is wrong with it is kept for the log and the page, until it is mended.
    fn trigger(&self, snapshot: &Snapshot, asker: &ScaledObjectRef) -> Result<Trigger, Refusal> {
        let trigger = trigger_of(snapshot, asker);
        let faults = match &trigger {
            // A declared tier takes its warnings along.
            Ok(Trigger::Declared { .. }) => Vec::new(),
            Ok(named @ Trigger::Named { tier, warnings }) => {
                match required(snapshot, named, self.clock.now()) {
                    Err(refusal) if refusal.is_the_askers() => vec![refused(&refusal)],
                    Ok(_) | Err(_) => warnings.iter().map(|warning| warned(tier, warning)).collect(),
                }
            }
            Err(refusal) => vec![refused(refusal)],
        };
        self.counters.asked_with(&asker.namespace, &asker.name, faults, self.clock.now());
        trigger
    }

    /// Keeps that the asker's tier was asked about. It looks at the names alone, so that it can't fail.
    fn note(&self, rpc: Rpc, asker: &ScaledObjectRef) {
        let name = asker.scaler_metadata.get("tier").map_or(asker.name.as_str(), |tier| tier.trim());
        let name = match name.split_once('/') {
            Some((namespace, name)) if namespace == asker.namespace => name,
            Some(_) => return,
            None => name,
        };
        let id = TierId::new(asker.namespace.as_str(), name);
        let snapshot = self.published.now();
        let Some(status) = snapshot.tiers.get(&id) else { return };
        let first = status.asked.is_empty();
        status.asked.note(rpc, &asker.name, self.clock.now());
        if first {
            tracing::info!(tier = %id, scaled_object = asker.name, rpc = rpc.name(), "asked for the first time");
        }
    }

    /// The required replicas of the asker's tier.
    async fn required(&self, asker: &ScaledObjectRef) -> Result<u32, Refusal> {
        let snapshot = self.published.now();
        let trigger = self.trigger(&snapshot, asker)?;
        let answer = required(&snapshot, &trigger, self.clock.now());
        match (&trigger, &answer) {
            (Trigger::Declared { policy, warnings }, Err(refusal)) if is_undeclared(refusal) => {
                self.declare(policy, warnings).await?;
                required(&self.published.now(), &trigger, self.clock.now())
            }
            (Trigger::Declared { policy, warnings }, _) => {
                if rand::random_ratio(1, DECLARED_AGAIN_ODDS) {
                    self.still_asked_for(policy, warnings);
                }
                answer
            }
            (Trigger::Named { .. }, _) => answer,
        }
    }

    /// Is there a reason for a replica? False where nobody knows: the stream then says nothing.
    pub(super) fn is_active_now(&self, asker: &ScaledObjectRef) -> bool {
        self.note(Rpc::StreamIsActive, asker);
        let snapshot = self.published.now();
        self.trigger(&snapshot, asker)
            .and_then(|trigger| required(&snapshot, &trigger, self.clock.now()))
            .is_ok_and(is_active)
    }

    /// Hands a declared tier to the control loop and waits, not long, until it is published.
    async fn declare(&self, policy: &Policy, warnings: &[String]) -> Result<(), Refusal> {
        let until = Instant::now() + DECLARE_WAIT;
        let (done, published) = oneshot::channel();
        let declare = Declare { policy: policy.clone(), warnings: warnings.to_vec(), done };
        match self.published.declare.send_timeout(declare, DECLARE_WAIT).await {
            Ok(()) => {}
            Err(SendTimeoutError::Timeout(_) | SendTimeoutError::Closed(_)) => {
                return Err(Refusal::NotDeclaredYet(policy.tier.clone()));
            }
        }
        match tokio::time::timeout_at(until, published).await {
            Ok(Ok(())) => Ok(()),
            // Refused (the receiver was dropped) or late: the snapshot says which, and KEDA asks again.
            Ok(Err(_)) | Err(_) => Err(Refusal::NotDeclaredYet(policy.tier.clone())),
        }
    }

    /// Declares the asker's tier without waiting, where its metadata declares one.
    pub(super) fn declare_again(&self, asker: &ScaledObjectRef) {
        if let Ok(Trigger::Declared { policy, warnings }) = self.trigger(&self.published.now(), asker) {
            self.still_asked_for(&policy, &warnings);
        }
    }

    fn still_asked_for(&self, policy: &Policy, warnings: &[String]) {
        let (done, _) = oneshot::channel();
        let declare = Declare { policy: policy.clone(), warnings: warnings.to_vec(), done };
        if self.published.declare.try_send(declare).is_err() {
            tracing::debug!(tier = %policy.tier, "declaration not repeated: the control loop is busy");
        }
    }
}

fn warned(tier: &TierId, warning: &str) -> Fault {
    Fault { tier: Some(tier.clone()), text: warning.to_owned() }
}

/// For the log and the page. What KEDA is told of metadata may repeat a value, which may be a secret; here it is the key.
fn refused(refusal: &Refusal) -> Fault {
    let text = match refusal {
        Refusal::BadMetadata(error) => {
            format!("trigger metadata `{}` is refused: KEDA's event KEDAScalerFailed tells why", error.key)
        }
        other => Status::from(other.clone()).message().to_owned(),
    };
    Fault { tier: None, text }
}

fn is_undeclared(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::NotDeclaredYet(_) | Refusal::DeclaredOtherwise(_))
}

/// Active means at least one replica, by construction: the two answers can't disagree.
fn is_active(required: u32) -> bool {
    required >= 1
}

/// The one spec.
pub(super) fn metric_spec() -> GetMetricSpecResponse {
    GetMetricSpecResponse {
        metric_specs: vec![MetricSpec {
            metric_name: METRIC_NAME.to_owned(),
            target_size: i64::from(METRIC_TARGET),
            target_size_float: f64::from(METRIC_TARGET),
        }],
    }
}

/// Both fields always: KEDA before 2.17 reads the integer, later ones the float where it is above 0.
fn metric_value(required: u32) -> GetMetricsResponse {
    GetMetricsResponse {
        metric_values: vec![MetricValue {
            metric_name: METRIC_NAME.to_owned(),
            metric_value: i64::from(required),
            metric_value_float: f64::from(required),
        }],
    }
}

/// The service.
#[derive(Clone, Debug)]
pub struct Scaler {
    answers: Answers,
    edges: Edges,
    stop: CancellationToken,
}

impl Scaler {
    /// Answers from what is published; its streams end when `stop` is cancelled.
    #[must_use]
    pub fn new(published: Published, clock: Clock, counters: Counters, stop: CancellationToken) -> Self {
        Self { answers: Answers { published, clock, counters }, edges: Edges::default(), stop }
    }

    /// Wakes the streams on what is published from now on. Without it they push on their heartbeat alone. Never returns.
    pub async fn wake_streams(&self) {
        self.edges.watch(&self.answers.published).await;
    }
}

#[async_trait]
impl ExternalScaler for Scaler {
    async fn is_active(
        &self,
        request: Request<ScaledObjectRef>,
    ) -> Result<Response<IsActiveResponse>, Status> {
        self.answers.note(Rpc::IsActive, request.get_ref());
        let required = self.answers.required(request.get_ref()).await?;
        Ok(Response::new(IsActiveResponse { result: is_active(required) }))
    }

    async fn get_metrics(
        &self,
        request: Request<GetMetricsRequest>,
    ) -> Result<Response<GetMetricsResponse>, Status> {
        let request = request.get_ref();
        if !request.metric_name.is_empty() && request.metric_name != METRIC_NAME {
            return Err(Status::invalid_argument(format!(
                "unknown metricName: the one metric is {METRIC_NAME}"
            )));
        }
        let Some(asker) = &request.scaled_object_ref else {
            return Err(Refusal::BadReference("scaledObjectRef is missing").into());
        };
        self.answers.note(Rpc::GetMetrics, asker);
        let required = self.answers.required(asker).await?;
        Ok(Response::new(metric_value(required)))
    }

    /// Static: when this fails KEDA's fallback never fires and the object's other triggers fail with it. So the answer
    /// depends on nothing, the request included; that it was asked for is all that is kept.
    async fn get_metric_spec(
        &self,
        request: Request<ScaledObjectRef>,
    ) -> Result<Response<GetMetricSpecResponse>, Status> {
        self.answers.note(Rpc::GetMetricSpec, request.get_ref());
        Ok(Response::new(metric_spec()))
    }

    type StreamIsActiveStream = BoxStream<IsActiveResponse>;

    async fn stream_is_active(
        &self,
        request: Request<ScaledObjectRef>,
    ) -> Result<Response<Self::StreamIsActiveStream>, Status> {
        let asker = request.into_inner();
        self.answers.note(Rpc::StreamIsActive, &asker);
        let trigger = self.answers.trigger(&self.answers.published.now(), &asker)?;
        // Subscribe first: see `Edges::of`.
        let edges = self.edges.of(tier_of(&trigger));
        self.answers.declare_again(&asker);
        let pushes = streams::is_active(self.answers.clone(), asker, edges, self.stop.clone());
        Ok(Response::new(pushes))
    }

    type StreamMetricSpecStream = BoxStream<GetMetricSpecResponse>;

    async fn stream_metric_spec(
        &self,
        request: Request<ScaledObjectRef>,
    ) -> Result<Response<Self::StreamMetricSpecStream>, Status> {
        self.answers.note(Rpc::StreamMetricSpec, request.get_ref());
        Ok(Response::new(streams::metric_spec_updates(self.stop.clone())))
    }
}
