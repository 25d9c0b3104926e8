//! A trigger's `scalerMetadata`, turned into a tier's name or a declared tier.

use std::collections::HashMap;

use crate::decision::{Policy, TierId};

/// What decides how metadata is read.
pub struct TriggerContext<'a> {
    /// ScaledObjects may declare tiers.
    pub allow_metadata_tiers: bool,
    /// Is this tier in the file?
    pub file_tiers: &'a dyn Fn(&TierId) -> bool,
}

/// What metadata means.
#[derive(Clone, Debug, PartialEq)]
pub enum Trigger {
    /// It names a tier.
    Named {
        /// Which.
        tier: TierId,
        /// Unknown keys and the like.
        warnings: Vec<String>,
    },
    /// It declares a tier.
    Declared {
        /// The tier.
        policy: Box<Policy>,
        /// Unknown keys and the like.
        warnings: Vec<String>,
    },
}

/// Why metadata is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {message}")]
pub struct TriggerError {
    /// The key at fault.
    pub key: String,
    /// What is wrong with it.
    pub message: String,
}

/// Reads metadata.
///
/// # Errors
/// When a key is refused.
pub fn resolve<S: std::hash::BuildHasher>(
    context: &TriggerContext<'_>,
    namespace: &str,
    name: &str,
    metadata: &HashMap<String, String, S>,
) -> Result<Trigger, TriggerError> {
    for key in ["url", "query", "selector", "serverAddress"] {
        if metadata.contains_key(key) {
            return Err(TriggerError {
                key: key.to_owned(),
                message: "sources of load are in the server's file".into(),
            });
        }
    }
    let tier = TierId::new(namespace, metadata.get("tier").map_or(name, String::as_str));
    if let (true, Some(floor), false) =
        (context.allow_metadata_tiers, metadata.get("desiredReplicas"), (context.file_tiers)(&tier))
    {
        let replicas = floor.parse().map_err(|_| TriggerError {
            key: "desiredReplicas".into(),
            message: "expected a whole number".into(),
        })?;
        return Ok(Trigger::Declared { policy: Box::new(stand_in(tier, replicas)), warnings: Vec::new() });
    }
    let mut warnings: Vec<String> = metadata
        .keys()
        .filter(|key| !matches!(key.as_str(), "tier" | "scalerAddress" | "enableTLS" | "desiredReplicas"))
        .map(|key| format!("unknown key {key:?}"))
        .collect();
    warnings.sort_unstable();
    Ok(Trigger::Named { tier, warnings })
}

fn stand_in(tier: TierId, floor: u32) -> Policy {
    use crate::decision::policy as p;
    use std::time::Duration;
    Policy {
        tier,
        min: floor,
        max: floor.max(1),
        cold_start: Duration::from_mins(3),
        control_delay: Duration::from_secs(30),
        drain: Duration::from_mins(1),
        acceptable_queue: p::QueueAllowance::Seconds(5.0),
        signals: p::Signals {
            kv_cache: p::TargetSignal { weight: 1.0, target: 0.8 },
            tokens: p::TargetSignal { weight: 1.0, target: 0.8 },
            waiting: p::WaitingSignal { weight: 1.0, drain: Duration::from_mins(1) },
            batch: p::BatchSignal { weight: 0.0, inter_token_latency: None, max_running: None },
            latency: p::LatencySignal { weight: 0.0, queue_time_p95: None, time_to_first_token_p95: None },
        },
        combine: p::Combine::Max,
        capacity: p::CapacityPolicy {
            prior: p::TokenRates { input_tokens_per_second: 8000.0, output_tokens_per_second: 700.0 },
            prior_source: "conservative default".into(),
            learn: false,
            kv_tokens: None,
        },
        floors: Vec::new(),
        max_ramp: None,
        scale_down: p::ScaleDown { hold: p::Hold::Auto, max_step: p::Step::Share(0.5) },
        hold_unknown: Duration::from_mins(10),
        dead_band: p::DeadBand { tolerance: 0.1, inside: p::InsideBand::Exceed },
        floors_only: true,
    }
}
