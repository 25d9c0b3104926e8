//! ScaledObjects, as far as they concern a tier: which one asks for it, what it scales, and what would spoil the answer.
//! Pure, but for the type of the API.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::Value;

use crate::config::ScaleTarget;
use crate::supply::ScaleFacts;

/// The annotations by which KEDA pauses (KEDA 2.21, `pkg/util` and `apis/keda/v1alpha1`).
const PAUSES: [&str; 4] = [
    "autoscaling.keda.sh/paused-replicas",
    "autoscaling.keda.sh/paused",
    "autoscaling.keda.sh/paused-scale-in",
    "autoscaling.keda.sh/paused-scale-out",
];

/// What KEDA takes for a ScaledObject without `maxReplicaCount`.
const DEFAULT_MAX_REPLICA_COUNT: u32 = 100;

/// One ScaledObject.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ScaledObjectRecord {
    pub(super) name: String,
    uid: Option<String>,
    pub(super) target: Option<ScaleTarget>,
    min: Option<u32>,
    max: Option<u32>,
    /// `pollingInterval`, in seconds.
    polling: Option<u32>,
    paused: Option<String>,
    /// `advanced.horizontalPodAutoscalerConfig.behavior.scaleUp.tolerance`.
    tolerance: Option<f64>,
    /// `status.hpaName`.
    pub(super) hpa: Option<String>,
    triggers: Vec<Trigger>,
}

/// A trigger of an external scaler.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Trigger {
    /// `metadata.tier`.
    tier: Option<String>,
    /// `metricType`, where it is not the default.
    metric_type: Option<String>,
}

/// The resource.
pub(super) fn resource() -> ApiResource {
    ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk("keda.sh", "v1alpha1", "ScaledObject"),
        "scaledobjects",
    )
}

impl ScaledObjectRecord {
    pub(super) fn of(object: DynamicObject) -> Option<(String, Self)> {
        let name = object.metadata.name?;
        let annotations = object.metadata.annotations.unwrap_or_default();
        let spec = object.data.get("spec")?;
        let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
        let count = |key: &str| spec.get(key).and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok());
        let target = spec.get("scaleTargetRef").and_then(|target| {
            Some(ScaleTarget {
                api_version: text(target, "apiVersion").unwrap_or_else(|| "apps/v1".to_owned()),
                kind: text(target, "kind").unwrap_or_else(|| "Deployment".to_owned()),
                name: text(target, "name")?,
            })
        });
        let triggers = spec.get("triggers").and_then(Value::as_array).into_iter().flatten();
        let triggers = triggers
            .filter(|trigger| {
                matches!(trigger.get("type").and_then(Value::as_str), Some("external" | "external-push"))
            })
            .map(|trigger| Trigger {
                tier: trigger.get("metadata").and_then(|metadata| text(metadata, "tier")),
                metric_type: text(trigger, "metricType").filter(|kind| kind != "AverageValue"),
            })
            .collect();
        let record = Self {
            uid: object.metadata.uid,
            target,
            min: count("minReplicaCount"),
            max: count("maxReplicaCount"),
            polling: count("pollingInterval"),
            paused: paused(&annotations),
            tolerance: spec
                .pointer("/advanced/horizontalPodAutoscalerConfig/behavior/scaleUp/tolerance")
                .and_then(quantity),
            hpa: object.data.get("status").and_then(|status| text(status, "hpaName")),
            triggers,
            name: name.clone(),
        };
        Some((name, record))
    }

    /// Does one of its triggers ask for this tier? By name, or, without one, by being called like it.
    pub(super) fn asks_for(&self, tier: &str) -> bool {
        self.of_tier(tier).next().is_some()
    }

    fn of_tier<'a>(&'a self, tier: &'a str) -> impl Iterator<Item = &'a Trigger> {
        self.triggers.iter().filter(move |trigger| trigger.tier.as_deref().unwrap_or(&self.name) == tier)
    }

    /// Writes what it says of the tier into the facts.
    pub(super) fn tell(&self, tier: &str, facts: &mut ScaleFacts) {
        facts.scaled_object = Some(self.name.clone());
        facts.scaled_object_uid.clone_from(&self.uid);
        facts.min_replicas = Some(self.min.unwrap_or(0));
        facts.max_replicas = Some(self.max.unwrap_or(DEFAULT_MAX_REPLICA_COUNT));
        facts.polling_interval = self.polling.map(|seconds| Duration::from_secs(u64::from(seconds)));
        facts.paused.clone_from(&self.paused);
        facts.tolerance = self.tolerance;
        if let Some(kind) = self.of_tier(tier).find_map(|trigger| trigger.metric_type.as_ref()) {
            facts.refused = Some(format!(
                "the trigger of ScaledObject {} has metricType: {kind}, with which the HPA multiplies the answer by the ready \
                 pods: write AverageValue or leave it out",
                self.name
            ));
        }
    }
}

/// The ScaledObject that asks for a tier. Of several the one that comes first by name, with a warning.
pub(super) fn asking<'a>(
    tier: &str,
    records: impl Iterator<Item = &'a ScaledObjectRecord>,
) -> (Option<&'a ScaledObjectRecord>, Option<String>) {
    let asking: Vec<&ScaledObjectRecord> = records.filter(|record| record.asks_for(tier)).collect();
    let warning = (asking.len() > 1).then(|| {
        let names: Vec<&str> = asking.iter().map(|record| record.name.as_str()).collect();
        format!(
            "several ScaledObjects ask for this tier ({}): each would scale its own target by one load",
            names.join(", ")
        )
    });
    (asking.first().copied(), warning)
}

fn paused(annotations: &BTreeMap<String, String>) -> Option<String> {
    PAUSES.iter().find_map(|pause| {
        let value = annotations.get(*pause)?;
        // KEDA: any value but a false one pauses; `paused-replicas` holds the number.
        (value != "false").then(|| format!("{pause}: {value:?}"))
    })
}

/// A Kubernetes quantity as far as a tolerance is one: `0`, `0.05`, `50m`.
pub(super) fn quantity(value: &Value) -> Option<f64> {
    let number = match value {
        Value::Number(number) => number.as_f64()?,
        Value::String(text) => match text.strip_suffix('m') {
            Some(milli) => milli.parse::<f64>().ok()? / 1000.0,
            None => text.parse().ok()?,
        },
        _ => return None,
    };
    (number.is_finite() && number >= 0.0).then_some(number)
}

#[cfg(test)]
mod tests;
