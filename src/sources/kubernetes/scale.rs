//! What the API server says of a scale target: its selector and counts, why it can't make pods, what its HPA tolerates.

use k8s_openapi::api::autoscaling::v1::Scale;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::core::Selector;
use kube::{Api, Client};
use serde_json::Value;

use super::selector;
use crate::cluster::{Need, Trouble};
use crate::config::ScaleTarget;

/// The kinds whose plural is known without asking; others are looked up.
const KNOWN: [(&str, &str, &str); 4] = [
    ("apps/v1", "Deployment", "deployments"),
    ("apps/v1", "StatefulSet", "statefulsets"),
    ("apps/v1", "ReplicaSet", "replicasets"),
    ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "leaderworkersets"),
];

/// A scale target as it is now.
#[derive(Clone, Debug)]
pub(super) struct Scaled {
    pub(super) selector: Selector,
    /// As written, for people.
    pub(super) selector_text: String,
    /// `spec.replicas`.
    pub(super) ordered: u32,
    /// `status.replicas`.
    pub(super) current: u32,
}

/// The resource of a scale target.
pub(super) async fn resource(client: &Client, target: &ScaleTarget) -> Result<ApiResource, Trouble> {
    let (group, version) = target.api_version.split_once('/').unwrap_or(("", &target.api_version));
    let kind = GroupVersionKind::gvk(group, version, &target.kind);
    let known = KNOWN.iter().find(|(api, kind, _)| *api == target.api_version && *kind == target.kind);
    if let Some((_, _, plural)) = known {
        return Ok(ApiResource::from_gvk_with_plural(&kind, plural));
    }
    match kube::discovery::pinned_kind(client, &kind).await {
        Ok((resource, _)) => Ok(resource),
        Err(error) => {
            let what = format!("{} of {}", target.kind, target.api_version);
            let need = Need { verbs: "get", resource: &what, namespace: "", name: None };
            Err(Trouble::of(&error, &need))
        }
    }
}

/// Reads the scale subresource.
pub(super) async fn read(
    client: &Client,
    resource: &ApiResource,
    namespace: &str,
    target: &ScaleTarget,
) -> Result<Scaled, Trouble> {
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, resource);
    let named = format!("{}/scale", role_name(resource));
    let need = Need { verbs: "get", resource: &named, namespace, name: Some(&target.name) };
    let Scale { spec, status, .. } =
        api.get_scale(&target.name).await.map_err(|error| Trouble::of(&error, &need))?;
    let status = status.unwrap_or_default();
    let count = |replicas: i32| u32::try_from(replicas).unwrap_or(0);
    let text = status.selector.unwrap_or_default();
    let selector = selector::parse(&text).map_err(|why| {
        let why = format!("{target}: its scale subresource tells {why}");
        Trouble::Failed { why, code: None }
    })?;
    Ok(Scaled {
        selector,
        selector_text: text,
        ordered: count(spec.and_then(|spec| spec.replicas).unwrap_or(0)),
        current: count(status.replicas),
    })
}

/// Why the target can't create its pods, where its own conditions say so: a quota, an admission webhook.
pub(super) async fn create_refused(
    client: &Client,
    resource: &ApiResource,
    namespace: &str,
    target: &ScaleTarget,
) -> Result<Option<String>, Trouble> {
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, resource);
    let named = role_name(resource);
    let need = Need { verbs: "get", resource: &named, namespace, name: Some(&target.name) };
    let object = api.get(&target.name).await.map_err(|error| Trouble::of(&error, &need))?;
    Ok(replica_failure(&object.data))
}

/// The condition `ReplicaFailure` of a Deployment or a ReplicaSet.
fn replica_failure(object: &Value) -> Option<String> {
    let conditions = object.pointer("/status/conditions")?.as_array()?;
    let says =
        |condition: &Value, key: &str, value: &str| condition.get(key).and_then(Value::as_str) == Some(value);
    let failure =
        conditions.iter().find(|c| says(c, "type", "ReplicaFailure") && says(c, "status", "True"))?;
    let text = |key: &str| failure.get(key).and_then(Value::as_str).unwrap_or_default();
    Some(format!("{}: {}", text("reason"), text("message")))
}

/// `scaleUp.tolerance` of an HPA. The API server drops the field where its feature gate is off, so that this is what is
/// in force; absent, the cluster's own default counts.
pub(super) async fn hpa_tolerance(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<Option<f64>, Trouble> {
    let kind = GroupVersionKind::gvk("autoscaling", "v2", "HorizontalPodAutoscaler");
    let resource = ApiResource::from_gvk_with_plural(&kind, "horizontalpodautoscalers");
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    let named = role_name(&resource);
    let need = Need { verbs: "get", resource: &named, namespace, name: Some(name) };
    let object = api.get(name).await.map_err(|error| Trouble::of(&error, &need))?;
    Ok(object.data.pointer("/spec/behavior/scaleUp/tolerance").and_then(super::scaled_object::quantity))
}

/// As a Role names it.
fn role_name(resource: &ApiResource) -> String {
    if resource.group.is_empty() {
        resource.plural.clone()
    } else {
        format!("{}.{}", resource.plural, resource.group)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_quota_that_refuses_pods_is_read_from_the_deployments_condition() {
        let object = json!({"status": {"conditions": [
            {"type": "Available", "status": "True"},
            {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota: gpus"},
        ]}});
        assert_eq!(replica_failure(&object).as_deref(), Some("FailedCreate: exceeded quota: gpus"));
        let mended = json!({"status": {"conditions": [{"type": "ReplicaFailure", "status": "False"}]}});
        assert_eq!(replica_failure(&mended), None);
    }
}
