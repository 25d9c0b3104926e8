//! `scalerMetadata` of a ScaledObject: which tier it asks for, or which it declares.
//!
//! Whoever may write a ScaledObject is not an operator of the scaler. So metadata names a tier of its own namespace, or,
//! where the file allows it, declares what a tier promises; it never says where to connect, and nothing here tells of
//! other namespaces' tiers. Values of keys that are not ours may hold secrets and are never shown.

use std::collections::HashMap;

use super::address;
use crate::decision::policy::{Policy, TierId};

mod declared;
mod keys;

use keys::{Meaning, meaning};

/// What the server knows that a trigger depends on.
pub struct TriggerContext<'a> {
    /// `allowMetadataTiers` of the file.
    pub allow_metadata_tiers: bool,
    /// Does the file declare this tier? Asked only about tiers in the asker's own namespace.
    pub file_tiers: &'a dyn Fn(&TierId) -> bool,
}

/// What a ScaledObject asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum Trigger {
    /// A tier by its name. It may not exist.
    Named {
        /// In the asker's namespace.
        tier: TierId,
        /// Keys without effect, for log, page and explain.
        warnings: Vec<String>,
    },
    /// A tier that the metadata declares, under the ScaledObject's own name. It answers its floors.
    Declared {
        /// Its policy.
        policy: Box<Policy>,
        /// Keys without effect, and what is legal but probably wrong.
        warnings: Vec<String>,
    },
}

/// Why metadata is refused: `INVALID_ARGUMENT` for KEDA.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct TriggerError {
    /// The first key that is wrong.
    pub key: String,
    /// All problems in one line, each with its key and what to write instead.
    pub message: String,
}

/// A key and what is wrong with it.
type Finding = (String, String);

/// Problems or warnings that are told one by one; the rest is counted.
const MAX_TOLD: usize = 20;

/// Keys of one trigger: fifty floors with four each, and what else there is. Whoever may write a ScaledObject must not be
/// able to keep the server busy: KEDA repeats each call every few seconds.
const MAX_KEYS: usize = 300;

/// Bytes of all keys and values together.
const MAX_BYTES: usize = 64 * 1024;

/// Reads a ScaledObject's metadata.
///
/// # Errors
/// All that is wrong with it, in one message.
#[expect(clippy::implicit_hasher, reason = "the map is prost's")]
pub fn resolve(
    ctx: &TriggerContext<'_>,
    namespace: &str,
    name: &str,
    metadata: &HashMap<String, String>,
) -> Result<Trigger, TriggerError> {
    let bytes: usize = metadata.iter().map(|(key, value)| key.len() + value.len()).sum();
    if metadata.len() > MAX_KEYS || bytes > MAX_BYTES {
        let message = format!(
            "{} keys with {bytes} bytes: at most {MAX_KEYS} keys with {MAX_BYTES} bytes are read",
            metadata.len()
        );
        return Err(TriggerError { key: "scalerMetadata".to_owned(), message });
    }
    let own = TierId::new(namespace, name);
    let mut keys = Keys::default();
    for (key, value) in metadata {
        keys.add(key, value);
    }
    keys.sort();
    let mut problems = std::mem::take(&mut keys.problems);
    let tier = keys.tier.map(|text| tier_name(namespace, text)).transpose().unwrap_or_else(|message| {
        problems.push(("tier".to_owned(), message));
        None
    });
    if keys.declaring.is_empty() {
        fail_on(problems)?;
        return Ok(Trigger::Named { tier: tier.unwrap_or(own), warnings: bounded(keys.warnings) });
    }
    if let Some(refusal) = refuse_declaring(ctx, &own, tier.as_ref()) {
        problems.extend(keys.declaring.iter().map(|(key, _)| ((*key).to_owned(), refusal.clone())));
        return Err(error(problems));
    }
    match declared::policy(own, &keys.declaring) {
        Ok((policy, warnings)) => {
            fail_on(problems)?;
            keys.warnings.extend(warnings);
            Ok(Trigger::Declared { policy: Box::new(policy), warnings: bounded(keys.warnings) })
        }
        Err(more) => {
            problems.extend(more);
            Err(error(problems))
        }
    }
}

/// The keys, sorted by what they mean and then by name: KEDA sends a map without order.
#[derive(Default)]
struct Keys<'m> {
    tier: Option<&'m str>,
    declaring: Vec<(&'m str, &'m str)>,
    problems: Vec<Finding>,
    warnings: Vec<String>,
}

impl<'m> Keys<'m> {
    fn add(&mut self, key: &'m str, value: &'m str) {
        match meaning(key) {
            Meaning::Reserved => {}
            Meaning::Tier => self.tier = Some(value),
            Meaning::Declares => self.declaring.push((key, value)),
            Meaning::Refused(message) => self.problems.push((shown(key), message)),
            Meaning::NoEffect(message) => self.warnings.push(format!("`{}`: {message}", shown(key))),
        }
    }

    fn sort(&mut self) {
        self.declaring.sort_unstable();
        self.problems.sort_unstable();
        self.warnings.sort_unstable();
    }
}

/// A tier in the asker's own namespace. The message is the same whether the other namespace has such a tier or not.
fn tier_name(namespace: &str, text: &str) -> Result<TierId, String> {
    let text = text.trim();
    let name = match text.split_once('/') {
        Some((asked, name)) if asked == namespace => name,
        Some(_) => {
            return Err(format!(
                "a ScaledObject may ask only for tiers of its own namespace: write a name in {namespace}"
            ));
        }
        None => text,
    };
    Ok(TierId::new(namespace, address::object_name(name)?))
}

/// Why this ScaledObject may not declare a tier, if it may not.
fn refuse_declaring(ctx: &TriggerContext<'_>, own: &TierId, tier: Option<&TierId>) -> Option<String> {
    if let Some(named) = tier.filter(|named| *named != own) {
        return Some(format!(
            "declares a tier, but `tier` names {}: remove one of them (a declared tier has the ScaledObject's own name)",
            named.name
        ));
    }
    if (ctx.file_tiers)(own) {
        return Some(format!("the server's file declares {own}: change it there and remove this key"));
    }
    if !ctx.allow_metadata_tiers {
        return Some(
            "this server doesn't let metadata declare a tier: name one of its file with `tier`, or ask its operator for allowMetadataTiers"
                .to_owned(),
        );
    }
    if address::namespace(&own.namespace).is_err() || address::object_name(&own.name).is_err() {
        return Some("the ScaledObject's namespace and name are not those of a Kubernetes object".to_owned());
    }
    None
}

fn fail_on(problems: Vec<Finding>) -> Result<(), TriggerError> {
    if problems.is_empty() { Ok(()) } else { Err(error(problems)) }
}

fn error(problems: Vec<Finding>) -> TriggerError {
    let key = problems.first().map(|(key, _)| key.clone()).unwrap_or_default();
    let told = problems.into_iter().map(|(key, message)| format!("`{key}`: {message}")).collect();
    TriggerError { key, message: bounded(told).join("; ") }
}

fn bounded(mut lines: Vec<String>) -> Vec<String> {
    if lines.len() > MAX_TOLD {
        let more = lines.len() - MAX_TOLD;
        lines.truncate(MAX_TOLD);
        lines.push(format!("and {more} more"));
    }
    lines
}

/// A key as messages show it: bounded, control characters made visible.
fn shown(key: &str) -> String {
    super::quantity::quoted(key).trim_matches('`').to_owned()
}
