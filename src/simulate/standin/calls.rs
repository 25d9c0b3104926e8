//! KEDA's calls, as its external scaler client makes them.
//!
//! Source: KEDA 2.21, `pkg/scalers/external_scaler.go`: the float wins where it is above 0, every returned value counts
//! for the metric that was asked for, and activity is asked after the value; an error in either is an error in both.

use tonic::transport::Channel;

use crate::proto::external_scaler_client::ExternalScalerClient;
use crate::proto::{GetMetricsRequest, MetricSpec, MetricValue, ScaledObjectRef};
use crate::simulate::autoscaler::Metric;

/// A client that asks for one ScaledObject.
#[derive(Clone, Debug)]
pub(super) struct Calls {
    client: ExternalScalerClient<Channel>,
    reference: ScaledObjectRef,
}

/// What KEDA keeps of a metric spec.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Spec {
    pub(super) name: String,
    pub(super) target: f64,
}

/// A value and the activity that goes with it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Answer {
    pub(super) metric: Metric,
    pub(super) value: f64,
    pub(super) active: bool,
}

impl Calls {
    pub(super) fn new(channel: Channel, reference: ScaledObjectRef) -> Self {
        Self { client: ExternalScalerClient::new(channel), reference }
    }

    /// `GetMetricSpec`; without a spec there is no metric.
    pub(super) async fn metric_spec(&mut self) -> Result<Spec, String> {
        let response =
            self.client.get_metric_spec(self.reference.clone()).await.map_err(|status| told(&status))?;
        let spec = response.into_inner().metric_specs.into_iter().next();
        spec.map(|spec| Spec { target: target_of(&spec), name: spec.metric_name })
            .ok_or_else(|| "GetMetricSpec: no metric specs".to_owned())
    }

    /// The HPA's question for one metric: KEDA asks for the specs again first.
    pub(super) async fn metric(&mut self, name: &str) -> Result<Answer, String> {
        let spec = self.metric_spec().await?;
        if spec.name != name {
            return Err(format!("no matching metrics found for {name}"));
        }
        self.value_and_activity(spec).await
    }

    /// The poll's question.
    pub(super) async fn activity(&mut self) -> Result<Answer, String> {
        let spec = self.metric_spec().await?;
        self.value_and_activity(spec).await
    }

    async fn value_and_activity(&mut self, spec: Spec) -> Result<Answer, String> {
        let request = GetMetricsRequest {
            scaled_object_ref: Some(self.reference.clone()),
            metric_name: spec.name.clone(),
        };
        let values = self
            .client
            .get_metrics(request)
            .await
            .map_err(|status| told(&status))?
            .into_inner()
            .metric_values;
        let active = self
            .client
            .is_active(self.reference.clone())
            .await
            .map_err(|status| told(&status))?
            .into_inner()
            .result;
        if values.is_empty() {
            return Err(format!("no matching metrics found for {}", spec.name));
        }
        let value = values.iter().map(value_of).sum::<f64>();
        let metric = Metric { value_milli: milli(value), target_milli: milli(spec.target) };
        Ok(Answer { metric, value, active })
    }

    /// Holds `StreamIsActive` open and tells each message; ends with the stream.
    pub(super) async fn push(&mut self, mut told_active: impl FnMut(bool)) -> Result<(), String> {
        let mut stream = self
            .client
            .stream_is_active(self.reference.clone())
            .await
            .map_err(|status| told(&status))?
            .into_inner();
        while let Some(message) = stream.message().await.map_err(|status| told(&status))? {
            told_active(message.result);
        }
        Ok(())
    }
}

fn target_of(spec: &MetricSpec) -> f64 {
    if spec.target_size_float > 0.0 { spec.target_size_float } else { spec.target_size as f64 }
}

fn value_of(value: &MetricValue) -> f64 {
    if value.metric_value_float > 0.0 { value.metric_value_float } else { value.metric_value as f64 }
}

/// A Kubernetes quantity in thousandths; since KEDA 2.20 negative and impossible values are 0.
fn milli(value: f64) -> i64 {
    if value.is_finite() { (value.max(0.0) * 1000.0).round() as i64 } else { 0 }
}

fn told(status: &tonic::Status) -> String {
    format!("{:?}: {}", status.code(), status.message())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_float_wins_only_above_zero() {
        let value = |whole, float| {
            value_of(&MetricValue {
                metric_name: String::new(),
                metric_value: whole,
                metric_value_float: float,
            })
        };
        assert_eq!((value(3, 0.0), value(3, 2.5), value(0, 0.0)), (3.0, 2.5, 0.0));
    }

    #[test]
    fn impossible_values_become_zero() {
        assert_eq!((milli(f64::NAN), milli(f64::INFINITY), milli(-1.0), milli(2.3)), (0, 0, 0, 2300));
    }
}
