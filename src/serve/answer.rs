//! The answer to one asker from one snapshot, and the refusals with their gRPC codes.
//!
//! `IsActive`, `GetMetrics` and the pushed stream all go through [`required`], so they can't contradict each other.
//! A refusal is an error and never a 0: an error makes the HPA hold, a 0 takes GPUs away.

use std::time::Duration;

use chrono::{DateTime, Utc};
use tonic::Status;

use crate::config::trigger::{Trigger, TriggerContext, TriggerError, resolve};
use crate::decision::{Answer, Policy, TierId};
use crate::proto::ScaledObjectRef;
use crate::snapshot::{Snapshot, TierStatus, second_name};
use crate::units::{format_span, since};

/// How old a decision may get beyond the tier's own bounded hold before it is no answer any more.
///
/// The control loop decides after every round, seconds apart. If it hangs, its last answer is held as long as the tier
/// holds an answer without data, plus this much for slow rounds; then KEDA is told that nobody knows.
pub(super) const STALLED_GRACE: Duration = Duration::from_mins(2);

/// How many tiers a `NOT_FOUND` names: enough to see a typo, few enough for a Kubernetes event.
const NAMED_TIERS: usize = 10;

/// Why there is no number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The request says nothing usable about who asks.
    BadReference(&'static str),
    /// The trigger's metadata is wrong.
    BadMetadata(TriggerError),
    /// No such tier in the asker's namespace.
    NotFound {
        /// What was asked for.
        tier: TierId,
        /// The tiers of that namespace, and of no other.
        neighbours: Vec<String>,
        /// Warnings about the metadata: a misspelt `tier` key shows here.
        hints: Vec<String>,
    },
    /// Configured, and its first round isn't over.
    NoDecisionYet(TierId),
    /// The control loop has decided that nobody knows.
    Unknown(TierId, String),
    /// The control loop has stopped deciding.
    Stalled(TierId, Duration),
    /// The control loop didn't take a declaration in time.
    NotDeclaredYet(TierId),
    /// Somebody else declares the same tier with other values.
    DeclaredOtherwise(TierId),
}

impl Refusal {
    /// The ScaledObject is wrong, and is refused whatever is known of the load.
    pub(super) fn is_the_askers(&self) -> bool {
        matches!(self, Self::BadReference(_) | Self::BadMetadata(_) | Self::NotFound { .. })
    }
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::BadReference(what) => Self::invalid_argument(what),
            Refusal::BadMetadata(TriggerError { key, message }) => {
                Self::invalid_argument(format!("trigger metadata {key}: {message}"))
            }
            Refusal::NotFound { tier, neighbours, hints } => {
                Self::not_found(not_found(&tier, neighbours, &hints))
            }
            Refusal::NoDecisionYet(tier) => Self::unavailable(format!("tier {tier}: no decision yet")),
            Refusal::Unknown(tier, why) => Self::unavailable(format!("tier {tier}: {why}")),
            Refusal::Stalled(tier, age) => {
                Self::unavailable(format!("tier {tier}: the last decision is {} old", format_span(age)))
            }
            Refusal::NotDeclaredYet(tier) => {
                Self::unavailable(format!("tier {tier}: declared, no decision yet"))
            }
            Refusal::DeclaredOtherwise(tier) => Self::unavailable(format!(
                "tier {tier}: another trigger declares it with other values; give each its own tier"
            )),
        }
    }
}

fn not_found(tier: &TierId, mut neighbours: Vec<String>, hints: &[String]) -> String {
    neighbours.sort_unstable();
    let more = neighbours.len().saturating_sub(NAMED_TIERS);
    neighbours.truncate(NAMED_TIERS);
    let named = neighbours.join(", ");
    let has = match (neighbours.is_empty(), more) {
        (true, _) => "it has none".to_owned(),
        (false, 0) => format!("it has {named}"),
        (false, more) => format!("it has {named} and {more} more"),
    };
    let asked_for = format!("no tier {:?} in namespace {:?}", tier.name, tier.namespace);
    let mut parts = vec![asked_for, has];
    parts.extend_from_slice(hints);
    parts.join("; ")
}

/// What an asker's metadata means under this snapshot's configuration.
pub(super) fn trigger_of(snapshot: &Snapshot, asker: &ScaledObjectRef) -> Result<Trigger, Refusal> {
    if asker.namespace.is_empty() {
        return Err(Refusal::BadReference("scaledObjectRef.namespace is empty"));
    }
    let in_the_file = |tier: &TierId| {
        snapshot.tiers.get(tier).is_some_and(|status| !status.declared_by_metadata)
            || snapshot.waiting.contains(tier)
    };
    let context = TriggerContext {
        allow_metadata_tiers: snapshot.config.allow_metadata_tiers,
        file_tiers: &in_the_file,
    };
    let trigger = resolve(&context, &asker.namespace, &asker.name, &asker.scaler_metadata)
        .map_err(Refusal::BadMetadata)?;
    // The rule of the house, whatever the metadata says: nobody reads another namespace's load.
    let tier = tier_of(&trigger);
    if tier.namespace != asker.namespace {
        let elsewhere = TierId::new(asker.namespace.clone(), tier.to_string());
        return Err(missing(snapshot, &elsewhere, warnings_of(&trigger)));
    }
    Ok(trigger)
}

/// The tier that a trigger is about.
pub(super) fn tier_of(trigger: &Trigger) -> &TierId {
    match trigger {
        Trigger::Named { tier, .. } => tier,
        Trigger::Declared { policy, .. } => &policy.tier,
    }
}

/// What is odd about a trigger's metadata.
pub(super) fn warnings_of(trigger: &Trigger) -> &[String] {
    match trigger {
        Trigger::Named { warnings, .. } | Trigger::Declared { warnings, .. } => warnings,
    }
}

/// The required replicas for a trigger, as this snapshot has them.
pub(super) fn required(snapshot: &Snapshot, trigger: &Trigger, now: DateTime<Utc>) -> Result<u32, Refusal> {
    let tier = tier_of(trigger);
    let status = snapshot.tiers.get(tier);
    match (trigger, status) {
        (Trigger::Named { .. }, Some(status)) => answer_of(status, now),
        (Trigger::Named { .. }, None) if snapshot.waiting.contains(tier) => {
            Err(Refusal::NoDecisionYet(tier.clone()))
        }
        (Trigger::Named { warnings, .. }, None) => Err(missing(snapshot, tier, warnings)),
        (Trigger::Declared { policy, .. }, status) => match (declared(snapshot, policy), status) {
            (Some(declared), _) => answer_of(declared, now),
            (None, Some(_)) => Err(Refusal::DeclaredOtherwise(tier.clone())),
            (None, None) => Err(Refusal::NotDeclaredYet(tier.clone())),
        },
    }
}

/// The tier that has just these terms: under its own name, or under its second one while another declaration of the same
/// ScaledObject has the first.
fn declared<'a>(snapshot: &'a Snapshot, policy: &Policy) -> Option<&'a TierStatus> {
    let under = |id: &TierId| {
        snapshot
            .tiers
            .get(id)
            .filter(|status| status.declared_by_metadata && status.policy.same_terms(policy))
    };
    under(&policy.tier).or_else(|| under(&second_name(policy))).map(AsRef::as_ref)
}

fn answer_of(status: &TierStatus, now: DateTime<Utc>) -> Result<u32, Refusal> {
    let decision = &status.decision;
    let required = match &decision.answer {
        Answer::Required(replicas) => *replicas,
        Answer::Unknown { why } => return Err(Refusal::Unknown(decision.tier.clone(), why.clone())),
    };
    let age = since(now, decision.at);
    if age > status.policy.hold_unknown + STALLED_GRACE {
        return Err(Refusal::Stalled(decision.tier.clone(), age));
    }
    Ok(required)
}

fn missing(snapshot: &Snapshot, tier: &TierId, hints: &[String]) -> Refusal {
    let neighbours = snapshot
        .tiers
        .keys()
        .chain(&snapshot.waiting)
        .filter(|other| other.namespace == tier.namespace)
        .map(|other| other.name.clone())
        .collect();
    Refusal::NotFound { tier: tier.clone(), neighbours, hints: hints.to_vec() }
}
