//! A tier's replicas out of what the watches and the reads of its target know. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use kube::core::SelectorExt as _;

use super::groups;
use super::life::Life;
use super::page::PageAddress;
use super::pod::PodRecord;
use super::scale::Scaled;
use super::scaled_object::ScaledObjectRecord;
use super::shared::{Claim, Owners};
use super::target_state::TargetState;
use super::watches::View;
use crate::cluster::{MissingRight, Trouble, missing};
use crate::config::PodSettings;
use crate::decision::TierId;
use crate::supply::{Discovered, Phase, ScaleFacts, Target};
use crate::units::since;

/// A watch that has failed for this long knows nothing of now: a list may be as old as the watch's own time-out.
const LOST_AFTER: Duration = Duration::from_secs(60);

/// What is known at one look.
pub(super) struct Sight<'a> {
    pub(super) tier: &'a TierId,
    pub(super) settings: &'a PodSettings,
    pub(super) state: &'a TargetState,
    pub(super) pods: &'a View<PodRecord>,
    pub(super) objects: &'a View<ScaledObjectRecord>,
    /// The ScaledObject that asks.
    pub(super) asking: Option<&'a ScaledObjectRecord>,
    /// Others ask too.
    pub(super) several: Option<String>,
}

impl Sight<'_> {
    /// Nothing has failed, and not everything has been read once.
    pub(super) fn is_beginning(&self) -> bool {
        let nothing_fails =
            self.pods.trouble.is_none() && self.objects.trouble.is_none() && self.state.trouble.is_none();
        let not_yet = !self.pods.listed
            || (self.state.target.is_none() && !self.objects.listed)
            || (self.state.target.is_some() && self.state.scaled.is_none());
        nothing_fails && not_yet
    }

    /// Who the replicas are, with what else is known of their target; or why nobody can say.
    pub(super) fn discovered(&self, claim: &mut Claim<'_>, now: DateTime<Utc>) -> Discovered {
        let Sight { state, pods, objects, asking, several, .. } = self;
        if let Some(why) = self.unknown(now) {
            return Discovered::Unknown { why };
        }
        let (Some(target), Some(scaled)) = (&state.target, &state.scaled) else {
            return Discovered::Unknown { why: "the scale target has not been read yet".to_owned() };
        };
        if !picks_what_there_is(scaled, pods) {
            return Discovered::Unknown {
                why: format!(
                    "{target} says that it has {} replicas, and its selector {} picks no pod",
                    scaled.current, scaled.selector_text
                ),
            };
        }
        let chosen: Vec<&PodRecord> = pods
            .items
            .values()
            .map(AsRef::as_ref)
            .filter(|pod| !pod.is_over() && scaled.selector.matches(&pod.labels))
            .collect();
        let mut warnings = state.warnings.clone();
        warnings.extend(several.clone());
        warnings.extend(stale("the scale target", state.trouble.as_ref()));
        let (overdue, chosen): (Vec<_>, Vec<_>) = chosen.into_iter().partition(|pod| pod.is_overdue(now));
        if let Some(first) = overdue.first() {
            warnings.push(format!(
                "{} should have been gone for minutes and is not counted any more, such as {}: is its node dead, or does a \
                 finalizer hold it?",
                if overdue.len() == 1 { "1 pod".to_owned() } else { format!("{} pods", overdue.len()) },
                first.name
            ));
        }
        if let Some((_, trouble)) = &objects.trouble {
            warnings
                .push(format!("bounds, pauses and metricType of the ScaledObject are unknown: {trouble}"));
        }
        for (other, pod) in claim.hold(&chosen) {
            warnings.push(format!(
                "pods belong to tier {other} too, such as {pod}: both count their load, so the selectors must not overlap"
            ));
        }
        let all = || pods.items.values().map(AsRef::as_ref);
        let owners = Owners::of(&chosen, all().filter(|pod| !pod.is_overdue(now)));
        let mut targets: Vec<Target> = chosen
            .iter()
            .map(|pod| {
                let target = self.target(pod, all(), now, &mut warnings);
                let Some(owner) = owners.other(pod) else { return target };
                warnings.push(format!(
                    "pod {} tells the address {} that is pod {}'s by now: it is not read",
                    pod.name,
                    pod.ip.as_deref().unwrap_or_default(),
                    owner.name
                ));
                Target { url: None, ..target }
            })
            .collect();
        warnings.extend(read_once(&mut targets));
        // Pods change before the next read of the target does: what isn't leaving is what the target has.
        let there = targets.iter().filter(|target| target.phase != Phase::Terminating).count();
        let mut facts = ScaleFacts {
            target: target.to_string(),
            ordered: Some(scaled.ordered),
            create_refused: state.create_refused.clone(),
            ..ScaleFacts::default()
        };
        if let Some(object) = asking {
            object.tell(&self.tier.name, &mut facts);
            match &state.hpa_trouble {
                Some(_) if state.hpa_read => warnings.extend(stale("the HPA", state.hpa_trouble.as_ref())),
                Some((_, trouble)) => {
                    warnings.push(format!("the HPA's tolerance is taken from the ScaledObject: {trouble}"));
                }
                None => {}
            }
            if state.hpa_read {
                if facts.tolerance.is_some() && state.hpa_tolerance.is_none() {
                    warnings.push(
                        "the HPA lacks the tolerance that the ScaledObject sets: the cluster's feature gate \
                         HPAConfigurableTolerance is off"
                            .to_owned(),
                    );
                }
                facts.tolerance = state.hpa_tolerance;
                facts.hpa_sets_no_tolerance = state.hpa_tolerance.is_none();
            }
        }
        warnings.sort();
        warnings.dedup();
        facts.warnings = warnings;
        Discovered::Targets {
            targets,
            authoritative: true,
            current: Some(there as u32),
            scale: Some(Arc::new(facts)),
        }
    }

    /// Why nobody can say who the replicas are.
    fn unknown(&self, now: DateTime<Utc>) -> Option<String> {
        let Sight { state, pods, objects, .. } = self;
        let why = self.unknown_by(now)?;
        let troubles = [&pods.trouble, &state.trouble, &objects.trouble];
        let rights: Vec<MissingRight> = troubles
            .into_iter()
            .flatten()
            .filter_map(|(_, trouble)| match trouble {
                Trouble::Forbidden(right) => Some(right.clone()),
                _ => None,
            })
            .collect();
        // All that is missing at once: a Role that is mended right by right is mended for a whole day.
        if rights.is_empty() { Some(why) } else { Some(missing(&rights)) }
    }

    fn unknown_by(&self, now: DateTime<Utc>) -> Option<String> {
        let Sight { state, pods, objects, .. } = self;
        if state.target.is_none() {
            return Some(match &objects.trouble {
                Some((_, trouble)) => {
                    format!("no target is given, and ScaledObjects can't be read: {trouble}")
                }
                None if !objects.listed => "the ScaledObjects have not been listed yet".to_owned(),
                None => format!(
                    "no ScaledObject in namespace {} asks for tier {}: name the tier in its trigger, or the target in the file",
                    self.tier.namespace, self.tier.name
                ),
            });
        }
        if state.scaled.is_none() {
            return state.trouble.as_ref().map(|(_, trouble)| trouble.to_string());
        }
        match &pods.trouble {
            Some((_, trouble)) if !pods.listed => Some(trouble.to_string()),
            Some((lost, trouble)) if since(now, *lost) >= LOST_AFTER => Some(format!(
                "the pods are unknown for {} s: {trouble}",
                since(now, *lost).as_secs() / 60 * 60
            )),
            None if !pods.listed => Some("the pods have not been listed yet".to_owned()),
            _ => None,
        }
    }

    fn target<'a>(
        &self,
        pod: &PodRecord,
        all: impl Iterator<Item = &'a PodRecord>,
        now: DateTime<Utc>,
        warnings: &mut Vec<String>,
    ) -> Target {
        let page = PageAddress::of(pod, self.settings);
        let life = |pod: &PodRecord, engine| Life::of(pod, engine, self.settings.node_wait, now);
        let own = life(pod, page.container(pod));
        let Life { phase, since, start } = match groups::workers(pod, all) {
            Some((workers, expected)) => {
                let workers: Vec<Life> =
                    workers.iter().map(|worker| life(worker, worker.containers.first())).collect();
                groups::together(own, &workers, expected)
            }
            None => own,
        };
        if let Some(problem) = &page.problem {
            warnings.push(problem.clone());
        }
        // `lastTransitionTime` is optional: of one that is ready since nobody knows when, nothing is learned of its start.
        let start_known = phase != Phase::Ready || !pod.ready.holds || start.ready.is_some();
        Target {
            id: pod.uid.clone(),
            name: pod.name.clone(),
            url: page.url(pod),
            phase,
            since,
            start: start_known.then_some(start),
        }
    }
}

/// A scale that has replicas, and whose selector picks none, says nothing about who they are: it must not be taken for zero.
pub(super) fn picks_what_there_is(scaled: &Scaled, pods: &View<PodRecord>) -> bool {
    let mut all = pods.items.values();
    scaled.current == 0 || all.any(|pod| !pod.is_over() && scaled.selector.matches(&pod.labels))
}

/// What is told of something that was read before and can't be any more.
fn stale(what: &str, trouble: Option<&(DateTime<Utc>, Trouble)>) -> Option<String> {
    let (since, trouble) = trouble?;
    Some(format!(
        "{what} can't be read since {} UTC, what it was then counts: {trouble}",
        since.format("%F %T")
    ))
}

/// Two pods on their node's own address with one port are one page: the newest pod's.
fn read_once(targets: &mut [Target]) -> Option<String> {
    let mut newest: BTreeMap<String, (Option<DateTime<Utc>>, String, usize)> = BTreeMap::new();
    let mut twice = Vec::new();
    for (at, target) in targets.iter().enumerate() {
        let Some(url) = target.url.clone() else { continue };
        let this = (target.start.as_ref().map(|start| start.created), target.name.clone(), at);
        match newest.get_mut(&url) {
            None => {
                newest.insert(url, this);
            }
            Some(before) => {
                let loser = if this > *before { std::mem::replace(before, this) } else { this };
                twice.push(loser.2);
            }
        }
    }
    let first = targets.get(*twice.first()?)?;
    let told = format!(
        "{} more pods than pages: {} tells the page of another pod, {}; each page is read once, as the newest pod's",
        twice.len(),
        first.name,
        first.url.as_deref().unwrap_or_default()
    );
    for at in twice {
        targets[at].url = None;
    }
    Some(told)
}

#[cfg(test)]
mod tests;
