use serde_json::json;

use super::*;

fn record(object: &Value) -> ScaledObjectRecord {
    let object: DynamicObject = serde_json::from_value(object.clone()).unwrap();
    ScaledObjectRecord::of(object).unwrap().1
}

fn scaled_object(spec: &Value) -> ScaledObjectRecord {
    record(&json!({
        "apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject",
        "metadata": {"name": "chat", "namespace": "serving"}, "spec": spec,
        "status": {"hpaName": "keda-hpa-chat"},
    }))
}

fn facts(record: &ScaledObjectRecord, tier: &str) -> ScaleFacts {
    let mut facts = ScaleFacts::default();
    record.tell(tier, &mut facts);
    facts
}

#[test]
fn kedas_defaults_stand_where_the_scaled_object_says_nothing() {
    let record = scaled_object(&json!({
        "scaleTargetRef": {"name": "chat"},
        "triggers": [{"type": "external-push", "metadata": {"scalerAddress": "scaler:6000"}}],
    }));
    let target = record.target.clone().unwrap();
    assert_eq!((target.api_version.as_str(), target.to_string().as_str()), ("apps/v1", "Deployment chat"));
    let facts = facts(&record, "chat");
    assert_eq!((facts.min_replicas, facts.max_replicas), (Some(0), Some(100)));
    assert_eq!((facts.refused, facts.tolerance, facts.paused), (None, None, None));
    assert_eq!(record.hpa.as_deref(), Some("keda-hpa-chat"));
}

#[test]
fn a_trigger_asks_for_the_tier_that_it_names_and_else_for_its_own_name() {
    let triggers = json!([
        {"type": "cron", "metadata": {"tier": "x"}},
        {"type": "external", "metadata": {"tier": "chat-h100"}},
        {"type": "external-push", "metadata": {}},
    ]);
    let record = scaled_object(&json!({"scaleTargetRef": {"name": "chat"}, "triggers": triggers}));
    assert!(record.asks_for("chat-h100"));
    assert!(record.asks_for("chat"));
    assert!(!record.asks_for("x"));
}

#[test]
fn metric_type_value_is_refused_only_for_the_tier_whose_trigger_has_it() {
    let triggers = json!([
        {"type": "external", "metricType": "Value", "metadata": {"tier": "a"}},
        {"type": "external", "metricType": "AverageValue", "metadata": {"tier": "b"}},
        {"type": "prometheus", "metricType": "Value", "metadata": {"tier": "b"}},
    ]);
    let record = scaled_object(&json!({"scaleTargetRef": {"name": "chat"}, "triggers": triggers}));
    let why = facts(&record, "a").refused.unwrap();
    assert!(why.contains("metricType: Value") && why.contains("AverageValue"), "{why}");
    assert_eq!(facts(&record, "b").refused, None);
}

#[test]
fn tolerance_is_a_quantity_in_any_of_its_forms() {
    for (written, read) in [
        (json!("0"), Some(0.0)),
        (json!(0), Some(0.0)),
        (json!("50m"), Some(0.05)),
        (json!("0.1"), Some(0.1)),
        (json!("-1"), None),
        (json!("x"), None),
    ] {
        let record = scaled_object(&json!({
            "scaleTargetRef": {"name": "chat"}, "triggers": [],
            "advanced": {"horizontalPodAutoscalerConfig": {"behavior": {"scaleUp": {"tolerance": written}}}},
        }));
        assert_eq!(facts(&record, "chat").tolerance, read, "{written}");
    }
}

#[test]
fn a_pause_is_told_as_it_is_written() {
    let object = json!({
        "apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject",
        "metadata": {"name": "chat", "annotations": {"autoscaling.keda.sh/paused-replicas": "3", "other": "x"}},
        "spec": {"scaleTargetRef": {"name": "chat"}, "triggers": []},
    });
    assert_eq!(
        facts(&record(&object), "chat").paused.as_deref(),
        Some("autoscaling.keda.sh/paused-replicas: \"3\"")
    );
}

#[test]
fn of_several_scaled_objects_the_first_counts_and_all_are_named() {
    let spec = json!({"scaleTargetRef": {"name": "chat"}, "triggers": [{"type": "external", "metadata": {"tier": "t"}}]});
    let named = |name: &str| {
        record(
            &json!({"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": {"name": name}, "spec": spec}),
        )
    };
    let (a, b) = (named("a"), named("b"));
    let (asking, warning) = asking("t", [&a, &b].into_iter());
    assert_eq!(asking.map(|record| record.name.as_str()), Some("a"));
    assert!(warning.unwrap().contains("a, b"));
}
