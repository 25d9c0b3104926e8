use kube::api::DynamicObject;

use super::super::pod::fixtures::{at, container, fails, holds, pod};
use super::super::selector;
use super::super::shared::Claims;
use super::*;
use crate::cluster::Need;
use crate::config::ScaleTarget;

/// What is known of a tier in a namespace with these pods.
struct Known {
    tier: TierId,
    settings: PodSettings,
    state: TargetState,
    pods: View<PodRecord>,
    objects: View<ScaledObjectRecord>,
    claims: Claims,
}

impl Known {
    /// A Deployment `chat` that has these pods.
    fn of(pods: Vec<PodRecord>) -> Self {
        let count = pods.len() as u32;
        let items = pods.into_iter().map(|pod| (pod.uid.clone(), Arc::new(pod))).collect();
        let target =
            ScaleTarget { api_version: "apps/v1".into(), kind: "Deployment".into(), name: "chat".into() };
        let scaled = Scaled {
            selector: selector::parse("app=chat").unwrap(),
            selector_text: "app=chat".into(),
            ordered: count,
            current: count,
        };
        Self {
            tier: TierId::new("serving", "chat"),
            settings: PodSettings::default(),
            state: TargetState { target: Some(target), scaled: Some(scaled), ..TargetState::default() },
            pods: View { items: Arc::new(items), listed: true, trouble: None },
            objects: View { listed: true, ..View::default() },
            claims: Claims::default(),
        }
    }

    fn sight(&self) -> Sight<'_> {
        let Self { tier, settings, state, pods, objects, .. } = self;
        let asking = objects.items.values().map(AsRef::as_ref).next();
        Sight { tier, settings, state, pods, objects, asking, several: None }
    }

    fn discovered(&self, now: &str) -> Discovered {
        self.sight().discovered(&mut self.claims.of(&self.tier), at(now))
    }

    fn targets(&self, now: &str) -> (Vec<Target>, Vec<String>) {
        match self.discovered(now) {
            Discovered::Targets { targets, scale, .. } => (targets, scale.unwrap().warnings.clone()),
            Discovered::Unknown { why } => panic!("{why}"),
        }
    }

    fn unknown(&self, now: &str) -> String {
        match self.discovered(now) {
            Discovered::Unknown { why } => why,
            known @ Discovered::Targets { .. } => panic!("{known:?}"),
        }
    }

    /// Its ScaledObject, with an HPA.
    fn with_scaled_object(mut self) -> Self {
        let object: DynamicObject = serde_json::from_value(serde_json::json!({
            "apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": {"name": "chat", "namespace": "serving"},
            "spec": {"scaleTargetRef": {"name": "chat"}, "triggers": [{"type": "external", "metadata": {}}]},
            "status": {"hpaName": "keda-hpa-chat"},
        }))
        .unwrap();
        let (key, record) = ScaledObjectRecord::of(object).unwrap();
        self.objects.items = Arc::new([(key, Arc::new(record))].into());
        self
    }
}

fn ready(name: &str, ip: &str) -> PodRecord {
    let mut pod = pod(name);
    pod.labels = [("app".to_owned(), "chat".to_owned())].into();
    pod.ip = Some(ip.into());
    pod.scheduled = holds("00:01");
    pod.containers = vec![container("vllm", &[(Some("http"), 8000)])];
    pod.containers[0].started = Some(at("00:10"));
    pod.ready = holds("02:00");
    pod
}

fn forbidden(verbs: &'static str, resource: &str) -> Trouble {
    let need = Need { verbs, resource, namespace: "serving", name: None };
    let status = kube::core::Status {
        code: 403,
        message: "x is forbidden: User \"system:serviceaccount:a:b\" cannot do it".into(),
        ..kube::core::Status::default()
    };
    Trouble::of(&kube::Error::Api(Box::new(status)), &need)
}

fn throttled(n: u32) -> Trouble {
    Trouble::Failed { why: format!("429 slow down {n}"), code: Some(429) }
}

#[test]
fn a_pod_that_is_ready_since_nobody_knows_when_is_ready_and_teaches_nothing() {
    let mut pod = ready("chat-0", "10.0.0.1");
    pod.ready.since = None;
    let (targets, _) = Known::of(vec![pod]).targets("05:00");
    assert_eq!((targets[0].phase, targets[0].since, &targets[0].start), (Phase::Ready, None, &None));
    let (targets, _) = Known::of(vec![ready("chat-0", "10.0.0.1")]).targets("05:00");
    assert_eq!(targets[0].start.as_ref().and_then(|start| start.ready), Some(at("02:00")));
    // One that fell from ready is told apart from it by its start.
    let mut fallen = ready("chat-0", "10.0.0.1");
    fallen.ready = fails("04:00", "ContainersNotReady", "");
    let (targets, _) = Known::of(vec![fallen]).targets("05:00");
    assert_eq!(targets[0].phase, Phase::Ready);
    assert!(targets[0].start.as_ref().is_some_and(|start| start.ready.is_none()));
}

#[test]
fn all_rights_that_are_missing_are_named_at_once_and_once_each() {
    let mut known = Known::of(vec![]);
    known.state.scaled = None;
    known.state.trouble = Some((at("01:00"), forbidden("get", "deployments.apps/scale")));
    known.pods = View { trouble: Some((at("01:00"), forbidden("list,watch", "pods"))), ..View::default() };
    known.objects.trouble = Some((at("01:00"), forbidden("list,watch", "scaledobjects.keda.sh")));
    assert_eq!(
        known.unknown("01:10"),
        "needs list,watch on pods, get on deployments.apps/scale, list,watch on scaledobjects.keda.sh in namespace serving \
         (as system:serviceaccount:a:b)"
    );
}

#[test]
fn a_scale_target_that_cant_be_read_any_more_is_told_with_since_when() {
    let mut known = Known::of(vec![ready("chat-0", "10.0.0.1")]);
    known.state.fails(throttled(1), at("03:00"));
    known.state.fails(throttled(2), at("03:10"));
    let (targets, warnings) = known.targets("05:00");
    assert_eq!(targets.len(), 1, "what was known counts");
    assert_eq!(
        warnings,
        [
            "the scale target can't be read since 2026-12-01 14:03:00 UTC, what it was then counts: 429 slow down 2"
        ]
    );
}

#[test]
fn an_hpa_that_cant_be_read_any_more_is_told_and_what_it_said_counts() {
    let mut known = Known::of(vec![ready("chat-0", "10.0.0.1")]).with_scaled_object();
    (known.state.hpa_read, known.state.hpa_tolerance) = (true, Some(0.0));
    known.state.hpa_trouble = Some((at("03:00"), throttled(1)));
    let Discovered::Targets { scale: Some(facts), .. } = known.discovered("05:00") else { panic!("known") };
    assert_eq!(facts.tolerance, Some(0.0));
    assert!(
        facts.warnings.iter().any(|warning| warning.starts_with("the HPA can't be read since")),
        "{facts:?}"
    );
    // One that could never be read.
    known.state.hpa_read = false;
    let (_, warnings) = known.targets("05:00");
    assert!(
        warnings.iter().any(|warning| warning.starts_with("the HPA's tolerance is taken from")),
        "{warnings:?}"
    );
}

#[test]
fn a_pod_of_two_tiers_is_a_warning_that_names_the_other() {
    let known = Known::of(vec![ready("chat-0", "10.0.0.1")]);
    let beside = TierId::new("serving", "beside");
    let mut other = known.claims.of(&beside);
    let pod = ready("chat-0", "10.0.0.1");
    other.hold(&[&pod]);
    let (_, warnings) = known.targets("05:00");
    assert_eq!(
        warnings,
        [
            "pods belong to tier beside too, such as chat-0: both count their load, so the selectors must not overlap"
        ]
    );
    drop(other);
    assert_eq!(known.targets("05:00").1, Vec::<String>::new());
}

#[test]
fn an_address_that_is_another_pods_by_now_is_not_read() {
    let old = ready("chat-0", "10.0.0.1");
    let mut others = ready("other-0", "10.0.0.1");
    others.labels = [("app".to_owned(), "other".to_owned())].into();
    others.created = at("03:00");
    let (targets, warnings) = Known::of(vec![old, others]).targets("05:00");
    assert_eq!((targets.len(), &targets[0].url), (1, &None));
    assert_eq!(
        warnings,
        ["pod chat-0 tells the address 10.0.0.1 that is pod other-0's by now: it is not read"]
    );
}

#[test]
fn three_pods_with_one_page_are_read_once() {
    for on_the_node in [false, true] {
        let pods = [("chat-0", "00:00"), ("chat-1", "00:30"), ("chat-2", "00:20")].map(|(name, created)| {
            let mut pod = ready(name, "10.0.0.1");
            (pod.created, pod.host_network) = (at(created), on_the_node);
            pod
        });
        let (targets, warnings) = Known::of(pods.into()).targets("05:00");
        let read: Vec<&str> =
            targets.iter().filter(|target| target.url.is_some()).map(|target| target.name.as_str()).collect();
        assert_eq!(read, ["chat-1"], "the newest has it");
        assert_eq!(targets.len(), 3);
        assert!(!warnings.is_empty(), "{on_the_node}");
    }
}

#[test]
fn what_is_usual_just_after_the_start_is_a_beginning_and_a_failure_is_none() {
    let mut known = Known::of(vec![]);
    known.pods = View::default();
    assert!(known.sight().is_beginning());
    assert_eq!(known.unknown("00:01"), "the pods have not been listed yet");
    known.pods.trouble = Some((at("00:01"), throttled(1)));
    assert!(!known.sight().is_beginning());
}
