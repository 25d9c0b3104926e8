//! What the API server last said of a tier's scale target and its HPA, and since when it can't be read.

use std::time::Duration;

use chrono::{DateTime, Utc};
use kube::Client;
use kube::api::ApiResource;
use tracing::info;

use super::scale::{self, Scaled};
use super::scaled_object::ScaledObjectRecord;
use crate::cluster::Trouble;
use crate::config::ScaleTarget;
use crate::decision::TierId;
use crate::units::since;

/// Ordered replicas that aren't there for this long make it worth asking why.
const MISSING_FOR: Duration = Duration::from_secs(10);

/// What was read of the scale target.
#[derive(Debug, Default)]
pub(super) struct TargetState {
    pub(super) target: Option<ScaleTarget>,
    pub(super) resource: Option<ApiResource>,
    pub(super) scaled: Option<Scaled>,
    /// Since when it can't be read, and why; what was known before stays.
    pub(super) trouble: Option<(DateTime<Utc>, Trouble)>,
    pub(super) create_refused: Option<String>,
    /// Since when fewer pods are there than are ordered.
    pub(super) missing_since: Option<DateTime<Utc>>,
    /// The HPA was read: what it tolerates counts, not what the ScaledObject wants.
    pub(super) hpa_read: bool,
    /// From the HPA itself.
    pub(super) hpa_tolerance: Option<f64>,
    /// Since when the HPA can't be read, and why.
    pub(super) hpa_trouble: Option<(DateTime<Utc>, Trouble)>,
    pub(super) warnings: Vec<String>,
}

impl TargetState {
    /// Reads the target. What was known stays where the read fails: a selector doesn't change by itself.
    pub(super) async fn read(
        &mut self,
        client: &Client,
        tier: &TierId,
        asking: Option<&ScaledObjectRecord>,
        now: DateTime<Utc>,
    ) {
        let Some(target) = self.target.clone() else { return };
        let (state, target, namespace) = (self, &target, &tier.namespace);
        if state.resource.is_none() {
            match scale::resource(client, target).await {
                Ok(resource) => state.resource = Some(resource),
                Err(trouble) => return fails(&mut state.trouble, trouble, now),
            }
        }
        let Some(resource) = &state.resource else { return };
        match scale::read(client, resource, namespace, target).await {
            Ok(scaled) => {
                if state.scaled.is_none() {
                    info!(tier = %tier, target = %target, selector = scaled.selector_text, "scale target found");
                }
                state.trouble = None;
                state.missing_since =
                    (scaled.current < scaled.ordered).then(|| state.missing_since.unwrap_or(now));
                let ask_why = state.missing_since.is_some_and(|missing| since(now, missing) >= MISSING_FOR);
                state.scaled = Some(scaled);
                if ask_why {
                    match scale::create_refused(client, resource, namespace, target).await {
                        Ok(refused) => (state.create_refused, state.warnings) = (refused, Vec::new()),
                        Err(trouble) => {
                            state.create_refused = None;
                            state.warnings = vec![format!("can't see why pods are missing: {trouble}")];
                        }
                    }
                } else {
                    (state.create_refused, state.warnings) = (None, Vec::new());
                }
            }
            Err(trouble @ Trouble::NotFound(_)) => {
                state.scaled = None;
                fails(&mut state.trouble, trouble, now);
            }
            Err(trouble) => fails(&mut state.trouble, trouble, now),
        }
        let Some(hpa) = asking.and_then(|object| object.hpa.as_ref()) else { return };
        match scale::hpa_tolerance(client, namespace, hpa).await {
            Ok(tolerance) => {
                (state.hpa_read, state.hpa_tolerance, state.hpa_trouble) = (true, tolerance, None);
            }
            Err(Trouble::NotFound(_)) => (state.hpa_read, state.hpa_trouble) = (false, None),
            Err(trouble) => fails(&mut state.hpa_trouble, trouble, now),
        }
    }

    /// It can't be read.
    pub(super) fn fails(&mut self, trouble: Trouble, now: DateTime<Utc>) {
        fails(&mut self.trouble, trouble, now);
    }
}

/// A trouble of a row begins, or goes on with another reason.
fn fails(slot: &mut Option<(DateTime<Utc>, Trouble)>, trouble: Trouble, now: DateTime<Utc>) {
    let since = slot.as_ref().map_or(now, |(since, _)| *since);
    *slot = Some((since, trouble));
}
