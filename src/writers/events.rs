//! Kubernetes Events on the ScaledObjects: written by the holder of the Lease, only of news, in bounded numbers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::lease::{Identity, Leadership};
use super::news::{News, news};
use crate::clock::Clock;
use crate::cluster::{Need, Trouble};
use crate::decision::TierId;
use crate::snapshot::{Published, TierStatus};
use crate::telemetry::Told;
use crate::units::since;

/// Events of a tier in a row; after them one an [`ONE_EVERY`]. A ramp of a morning fits.
const BURST: f64 = 10.0;
/// See [`BURST`]: a tier that flaps costs the API server no more than this.
const ONE_EVERY: Duration = Duration::from_secs(30);
/// Bytes of a note: the API's own bound is 1 kB.
const MAX_NOTE: usize = 900;
/// Of one request.
const REQUEST: Duration = Duration::from_secs(5);

/// What may still be written of a tier.
#[derive(Clone, Copy, Debug)]
struct Budget {
    left: f64,
    at: DateTime<Utc>,
}

impl Budget {
    fn full(now: DateTime<Utc>) -> Self {
        Self { left: BURST, at: now }
    }

    /// Takes one, if there is one.
    fn take(&mut self, now: DateTime<Utc>) -> bool {
        self.left = (self.left + since(now, self.at).as_secs_f64() / ONE_EVERY.as_secs_f64()).min(BURST);
        self.at = now;
        if self.left < 1.0 {
            return false;
        }
        self.left -= 1.0;
        true
    }
}

/// Follows the snapshots until `stop`. Those who don't hold the Lease follow too: what was news before it is theirs is
/// not told again.
pub(super) async fn run(
    client: Client,
    identity: Identity,
    mut published: Published,
    leadership: watch::Receiver<Leadership>,
    clock: Clock,
    stop: CancellationToken,
) {
    let reporter = Reporter { controller: "keda-vllm-scaler".into(), instance: Some(identity.name) };
    let recorder = Recorder::new(client, reporter);
    let mut before: BTreeMap<TierId, Arc<TierStatus>> = BTreeMap::new();
    let mut budgets: BTreeMap<TierId, Budget> = BTreeMap::new();
    let mut told = Told::default();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            changed = published.snapshot.changed() => if changed.is_err() { return },
        }
        let snapshot = published.now();
        let holds = *leadership.borrow() == Leadership::Own;
        for (id, status) in &snapshot.tiers {
            let Some(old) = before.get(id) else { continue };
            if !holds || Arc::ptr_eq(old, status) {
                continue;
            }
            let Some(regarding) = scaled_object(id, status) else { continue };
            for item in news(old, status) {
                let now = clock.now();
                if !budgets.entry(id.clone()).or_insert_with(|| Budget::full(now)).take(now) {
                    debug!(tier = %id, reason = item.reason, "event left out: too many of this tier");
                    continue;
                }
                let written =
                    tokio::time::timeout(REQUEST, recorder.publish(&event(&item), &regarding)).await;
                let need = Need {
                    verbs: "create,patch",
                    resource: "events.events.k8s.io",
                    namespace: &id.namespace,
                    name: None,
                };
                let trouble = match written {
                    Ok(Ok(())) => None,
                    Ok(Err(error)) => Some(Trouble::of(&error, &need)),
                    Err(_) => Some(Trouble::Failed { why: format!("{need}: no answer in time"), code: None }),
                };
                match trouble {
                    None => {
                        told.works();
                    }
                    Some(trouble) if told.fails(&trouble.kind(), now) => {
                        warn!(tier = %id, %trouble, "events can't be written");
                    }
                    Some(trouble) => debug!(tier = %id, %trouble, "event not written"),
                }
            }
        }
        budgets.retain(|id, _| snapshot.tiers.contains_key(id));
        before.clone_from(&snapshot.tiers);
    }
}

/// None while nobody knows which ScaledObject asks.
fn scaled_object(id: &TierId, status: &TierStatus) -> Option<ObjectReference> {
    let scale = status.observation.scale.as_ref()?;
    Some(ObjectReference {
        api_version: Some("keda.sh/v1alpha1".into()),
        kind: Some("ScaledObject".into()),
        name: Some(scale.scaled_object.clone()?),
        namespace: Some(id.namespace.clone()),
        uid: scale.scaled_object_uid.clone(),
        ..ObjectReference::default()
    })
}

fn event(item: &News) -> Event {
    let mut note = item.note.clone();
    let end = (0..=MAX_NOTE.min(note.len())).rev().find(|at| note.is_char_boundary(*at)).unwrap_or(0);
    note.truncate(end);
    Event {
        type_: if item.warning { EventType::Warning } else { EventType::Normal },
        reason: item.reason.into(),
        note: Some(note),
        // The recorder counts events of one action together and keeps the first note: other news is another action.
        action: format!("Decide{}", item.detail),
        secondary: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tier_that_flaps_writes_a_burst_and_then_one_event_in_thirty_seconds() {
        let start: DateTime<Utc> = "2026-12-01T09:00:00Z".parse().unwrap();
        let mut budget = Budget::full(start);
        let written =
            (0..600).filter(|second| budget.take(start + chrono::TimeDelta::seconds(*second))).count();
        assert_eq!(written, 10 + 19);
    }

    #[test]
    fn a_note_is_cut_between_characters() {
        let item = News { warning: true, reason: "X", detail: String::new(), note: "é".repeat(1_000) };
        assert_eq!(event(&item).note.map(|note| note.len()), Some(MAX_NOTE));
    }
}
