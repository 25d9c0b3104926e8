//! A pod as far as it matters here, taken out of the API's own record at the edge: a watch of thousands of pods keeps
//! these and drops the rest.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, Utc};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodCondition, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::units::since;

/// After its deadline a pod goes within seconds, unless nobody is there who could tell.
const OVERDUE: Duration = Duration::from_mins(5);

/// The annotations that are kept: those that say where the metrics page is, and the size of a LeaderWorkerSet group.
const KEPT_ANNOTATIONS: [&str; 3] = [PORT_ANNOTATION, PATH_ANNOTATION, super::groups::SIZE_ANNOTATION];
/// Prometheus' convention for a pod's port.
pub(super) const PORT_ANNOTATION: &str = "prometheus.io/port";
/// Prometheus' convention for a pod's path.
pub(super) const PATH_ANNOTATION: &str = "prometheus.io/path";

/// One pod.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PodRecord {
    /// Identity: addresses and names are used again.
    pub(super) uid: String,
    pub(super) name: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) ip: Option<String>,
    /// Its address is its node's, which other pods share.
    pub(super) host_network: bool,
    /// `Pending`, `Running`, `Succeeded`, `Failed`.
    pub(super) phase: String,
    pub(super) created: DateTime<Utc>,
    /// When it was told to go.
    pub(super) deleted: Option<DateTime<Utc>>,
    /// When the kubelet kills it at the latest, once it was told to go.
    pub(super) gone_by: Option<DateTime<Utc>>,
    pub(super) scheduled: Condition,
    pub(super) initialised: Condition,
    pub(super) ready: Condition,
    pub(super) init_containers: Vec<InitContainer>,
    pub(super) containers: Vec<Container>,
}

/// A condition of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Condition {
    /// False too where the condition isn't there.
    pub(super) holds: bool,
    /// Since when it holds or doesn't.
    pub(super) since: Option<DateTime<Utc>>,
    pub(super) reason: String,
    pub(super) message: String,
}

/// A container that runs before the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct InitContainer {
    pub(super) started: Option<DateTime<Utc>>,
    pub(super) finished: Option<DateTime<Utc>>,
    /// Why it can't start, where it can't.
    pub(super) waiting: Option<Waiting>,
}

/// A container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Container {
    pub(super) name: String,
    /// Declared ports, by name where they have one.
    pub(super) ports: Vec<(Option<String>, u16)>,
    /// Since when it runs, if it runs.
    pub(super) started: Option<DateTime<Utc>>,
    pub(super) restarts: u32,
    /// Why it doesn't run.
    pub(super) waiting: Option<Waiting>,
    /// How it ended the last time.
    pub(super) last_end: Option<String>,
    /// How long it ran the last time.
    pub(super) last_ran: Option<Duration>,
}

/// Why a container waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Waiting {
    pub(super) reason: String,
    pub(super) message: String,
}

impl PodRecord {
    /// None for a record without identity, which no API server sends.
    pub(super) fn of(pod: Pod) -> Option<Self> {
        let metadata = pod.metadata;
        let spec = pod.spec.unwrap_or_default();
        let status = pod.status.unwrap_or_default();
        let gone_by = metadata.deletion_timestamp.as_ref().and_then(chrono_time);
        let deleted = gone_by.map(|at| {
            // The timestamp is the deadline of the grace period, not its beginning.
            at - chrono::TimeDelta::seconds(
                metadata.deletion_grace_period_seconds.unwrap_or(0).clamp(0, 86_400),
            )
        });
        let containers = spec.containers.into_iter().map(|container| {
            let ports = container.ports.unwrap_or_default();
            let ports = ports
                .into_iter()
                .filter_map(|port| Some((port.name, u16::try_from(port.container_port).ok()?)));
            let seen = status.container_statuses.iter().flatten().find(|seen| seen.name == container.name);
            Container::of(container.name, ports.collect(), seen)
        });
        let containers = containers.collect();
        Some(Self {
            uid: metadata.uid?,
            name: metadata.name.unwrap_or_default(),
            created: metadata.creation_timestamp.as_ref().and_then(chrono_time)?,
            labels: metadata.labels.unwrap_or_default(),
            annotations: metadata
                .annotations
                .unwrap_or_default()
                .into_iter()
                .filter(|(key, _)| KEPT_ANNOTATIONS.contains(&key.as_str()))
                .collect(),
            deleted,
            gone_by,
            host_network: spec.host_network.unwrap_or(false),
            containers,
            init_containers: status.init_container_statuses.iter().flatten().map(InitContainer::of).collect(),
            scheduled: Condition::of(&status, "PodScheduled"),
            initialised: Condition::of(&status, "Initialized"),
            ready: Condition::of(&status, "Ready"),
            ip: status.pod_ip.filter(|ip| !ip.is_empty()),
            phase: status.phase.unwrap_or_default(),
        })
    }

    /// It was to be gone long ago: its node is dead, or a finalizer holds its record. Nothing is served there any more, its
    /// address may be another pod's by now, and its GPU is not this tier's to give back.
    pub(super) fn is_overdue(&self, now: DateTime<Utc>) -> bool {
        self.gone_by.is_some_and(|by| since(now, by) > OVERDUE)
    }

    /// It has ended for good and holds nothing any more; its controller makes another.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.phase.as_str(), "Succeeded" | "Failed")
    }
}

impl Condition {
    fn of(status: &PodStatus, kind: &str) -> Self {
        let Some(condition) = status.conditions.iter().flatten().find(|condition| condition.type_ == kind)
        else {
            return Self::default();
        };
        let PodCondition { status, last_transition_time, reason, message, .. } = condition.clone();
        Self {
            holds: status == "True",
            since: last_transition_time.as_ref().and_then(chrono_time),
            reason: reason.unwrap_or_default(),
            message: message.unwrap_or_default(),
        }
    }

    /// Since when it holds; None while it doesn't.
    pub(super) fn held_since(&self) -> Option<DateTime<Utc>> {
        self.since.filter(|_| self.holds)
    }
}

impl InitContainer {
    fn of(seen: &ContainerStatus) -> Self {
        let state = seen.state.clone().unwrap_or_default();
        let (running, ended) = (state.running.unwrap_or_default(), state.terminated.unwrap_or_default());
        Self {
            started: running.started_at.or(ended.started_at).as_ref().and_then(chrono_time),
            finished: ended.finished_at.as_ref().and_then(chrono_time),
            waiting: state.waiting.map(Waiting::of),
        }
    }
}

impl Container {
    fn of(name: String, ports: Vec<(Option<String>, u16)>, seen: Option<&ContainerStatus>) -> Self {
        let state = seen.and_then(|seen| seen.state.clone()).unwrap_or_default();
        let last = seen.and_then(|seen| seen.last_state.clone()).unwrap_or_default().terminated;
        Self {
            name,
            ports,
            started: state.running.and_then(|running| running.started_at).as_ref().and_then(chrono_time),
            restarts: seen.map_or(0, |seen| u32::try_from(seen.restart_count).unwrap_or(0)),
            waiting: state.waiting.map(Waiting::of),
            last_ran: last.as_ref().and_then(|end| {
                let time = |time: &Option<Time>| time.as_ref().and_then(chrono_time);
                Some(since(time(&end.finished_at)?, time(&end.started_at)?))
            }),
            last_end: state.terminated.or(last).map(|end| {
                format!(
                    "exit code {}{}",
                    end.exit_code,
                    end.reason.map(|r| format!(", {r}")).unwrap_or_default()
                )
            }),
        }
    }
}

impl Waiting {
    fn of(waiting: k8s_openapi::api::core::v1::ContainerStateWaiting) -> Self {
        Self { reason: waiting.reason.unwrap_or_default(), message: waiting.message.unwrap_or_default() }
    }
}

/// The API's times are jiff's, ours are chrono's: the one place where they meet.
pub(super) fn chrono_time(time: &Time) -> Option<DateTime<Utc>> {
    DateTime::from_timestamp(time.0.as_second(), u32::try_from(time.0.subsec_nanosecond()).unwrap_or(0))
}

#[cfg(test)]
pub(super) mod fixtures {
    use super::*;

    /// `14:MM:SS` on a day, from `MM:SS`.
    pub(crate) fn at(time: &str) -> DateTime<Utc> {
        format!("2026-12-01T14:{time}Z").parse().unwrap()
    }

    /// Holds since then.
    pub(crate) fn holds(time: &str) -> Condition {
        Condition { holds: true, since: Some(at(time)), ..Condition::default() }
    }

    /// Doesn't, since then, for this reason.
    pub(crate) fn fails(time: &str, reason: &str, message: &str) -> Condition {
        Condition { holds: false, since: Some(at(time)), reason: reason.into(), message: message.into() }
    }

    pub(crate) fn container(name: &str, ports: &[(Option<&str>, u16)]) -> Container {
        Container {
            name: name.into(),
            ports: ports.iter().map(|(name, port)| (name.map(str::to_owned), *port)).collect(),
            started: None,
            restarts: 0,
            waiting: None,
            last_end: None,
            last_ran: None,
        }
    }

    /// A pod that was created at 14:00:00, with one container and an address.
    pub(crate) fn pod(name: &str) -> PodRecord {
        PodRecord {
            uid: format!("uid-{name}"),
            name: name.into(),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            ip: Some("10.244.0.9".into()),
            host_network: false,
            phase: "Pending".into(),
            created: at("00:00"),
            deleted: None,
            gone_by: None,
            scheduled: Condition::default(),
            initialised: Condition::default(),
            ready: Condition::default(),
            init_containers: Vec::new(),
            containers: vec![container("vllm", &[])],
        }
    }
}
