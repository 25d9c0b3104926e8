//! Tiers that ScaledObjects declare by their metadata: taken up at once, forgotten a day after they were last declared.

use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio::sync::oneshot;
use tracing::{info, warn};

use super::ControlLoop;
use super::tier::{Declared, Remembered, Tier};
use crate::config::TierSettings;
use crate::decision::{Policy, TierId};
use crate::snapshot::{Declare, second_name};
use crate::units::since;

/// Declared tiers in all. A ScaledObject is one; beyond this somebody generates them, and memory must stay bounded.
const MAX_DECLARED: usize = 5_000;

/// Of them in one namespace, so that none can shut out the others.
const MAX_DECLARED_IN_A_NAMESPACE: usize = 500;

/// KEDA tells nobody when a ScaledObject is deleted. Far above any gap between two HPA syncs or two restarts of KEDA.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(24 * 3600);

/// Two policies under one name: within this long both are in use (two triggers of one ScaledObject); after it the older
/// is what the ScaledObject said before it was edited.
const BOTH_IN_USE: Duration = Duration::from_secs(600);

impl ControlLoop {
    /// Takes a declaration and decides it at once, so that the call that brought it can be answered.
    pub(super) async fn declare(&mut self, declared: Declare) {
        let now = self.clock.now();
        let Declare { policy, warnings, done } = declared;
        let declaration = Declared { at: now, warnings };
        let id = self.name_for(&policy, now);
        match self.tiers.get_mut(&id) {
            Some(tier) if tier.declared.is_none() => {
                // The file took the name meanwhile; the caller is told so at its next call.
            }
            Some(tier) if tier.settings().policy.same_terms(&policy) => {
                // Still asked for, and decided already.
                tier.declared = Some(declaration);
                told(done, &id);
                return;
            }
            existing => {
                let renew = existing.is_some();
                if !renew && self.declared_too_many(&id.namespace) {
                    warn!(
                        tier = %id,
                        limit = MAX_DECLARED,
                        limit_of_a_namespace = MAX_DECLARED_IN_A_NAMESPACE,
                        "declared tier refused: too many"
                    );
                    return;
                }
                info!(tier = %id, renew, warnings = declaration.warnings.len(), "tier declared by metadata");
                for warning in &declaration.warnings {
                    warn!(tier = %id, warning, "metadata");
                }
                let mut policy = policy;
                policy.tier = id.clone();
                let remembered = if renew { Remembered::default() } else { self.remembered(&id).await };
                let with_cluster = self.in_force.kubernetes.is_some();
                let settings = TierSettings::declared(policy, with_cluster);
                let stop = self.stop.child_token();
                if with_cluster {
                    self.start_tasks(&settings, &stop);
                }
                let tier = Tier::new(settings, remembered, Some(declaration), stop, now);
                if let Some(replaced) = self.tiers.insert(id.clone(), tier) {
                    replaced.stop();
                }
            }
        }
        self.decide(&id, now);
        self.publish();
        told(done, &id);
    }

    fn name_for(&self, policy: &Policy, now: DateTime<Utc>) -> TierId {
        let taken = self.tiers.get(&policy.tier).is_some_and(|tier| {
            tier.declared.as_ref().is_some_and(|declared| since(now, declared.at) < BOTH_IN_USE)
                && !tier.settings().policy.same_terms(policy)
        });
        if taken { second_name(policy) } else { policy.tier.clone() }
    }

    fn declared_too_many(&self, namespace: &str) -> bool {
        let declared = || self.tiers.iter().filter(|(_, tier)| tier.declared.is_some());
        declared().count() >= MAX_DECLARED
            || declared().filter(|(id, _)| id.namespace == namespace).count() >= MAX_DECLARED_IN_A_NAMESPACE
    }

    pub(super) fn expire_declared(&mut self, now: DateTime<Utc>) {
        let counters = &self.counters;
        self.tiers.retain(|id, tier| {
            let keep =
                tier.declared.as_ref().is_none_or(|declared| since(now, declared.at) < FORGOTTEN_AFTER);
            if !keep {
                info!(tier = %id, "declared tier forgotten");
                tier.stop();
                counters.forget(id);
            }
            keep
        });
    }
}

fn told(done: oneshot::Sender<()>, id: &TierId) {
    if done.send(()).is_err() {
        tracing::debug!(tier = %id, "the call that declared it has gone");
    }
}
