//! Limits of an engine: as stated, as seen in a log, or still to be tried out.

use serde::Serialize;

use super::log::{self, LoggedRequest};

/// Token budgets that vLLM chooses by itself (`max_num_batched_tokens`, in its `arg_utils.py`): 2048, on GPUs with
/// 70 GiB or more 8192.
const BUDGETS: [u32; 2] = [2048, 8192];

/// `max_num_seqs` where it wasn't seen to bind: vLLM's default for online serving.
const USUAL_SEQUENCES: u32 = 256;

/// Limits of the engine as they are stated; None is to be found out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatedLimits {
    /// KV tokens that fit.
    pub kv_tokens: Option<u32>,
    /// `--max-num-seqs`.
    pub max_num_seqs: Option<u32>,
    /// `--max-num-batched-tokens`.
    pub token_budget: Option<u32>,
}

/// A number, and how it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Limit {
    /// The number; None where nothing is known but that it didn't bind.
    pub value: Option<u32>,
    /// How it is known.
    pub known: Known,
}

/// How a limit is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Known {
    /// It was stated.
    Stated,
    /// Read off the log: so many ran at most while others waited.
    Seen,
    /// It came out of the search.
    Fitted,
    /// It was not seen to bind; whatever it is, this log doesn't show it.
    DidNotBind,
}

/// Limits of one search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Limits {
    pub(super) max_num_seqs: u32,
    pub(super) token_budget: u32,
    pub(super) kv: KvLimit,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum KvLimit {
    Fixed(u32),
    /// A dimension of the search, which begins here.
    Free(f64),
    /// More than is ever needed.
    Unbounded,
}

/// `max_num_seqs`, and whether it was seen.
pub(super) fn sequences(requests: &[LoggedRequest], stated: Option<u32>) -> Limit {
    if let Some(value) = stated {
        return Limit { value: Some(value), known: Known::Stated };
    }
    match log::most_running(requests) {
        Some((most, true)) => Limit { value: Some(most), known: Known::Seen },
        // More may never have run at a time, but fewer than that can't be the limit.
        Some((most, false)) if most > USUAL_SEQUENCES => {
            Limit { value: Some(most), known: Known::DidNotBind }
        }
        _ => Limit { value: None, known: Known::DidNotBind },
    }
}

/// All that is tried out.
pub(super) fn candidates(requests: &[LoggedRequest], stated: StatedLimits, sequences: Limit) -> Vec<Limits> {
    let budgets = stated.token_budget.map_or_else(|| BUDGETS.to_vec(), |budget| vec![budget]);
    let kv = if let Some(tokens) = stated.kv_tokens {
        vec![KvLimit::Fixed(tokens)]
    } else {
        let peak = log::most_tokens(requests);
        vec![KvLimit::Unbounded, KvLimit::Free(peak * 0.75), KvLimit::Free(peak)]
    };
    let max_num_seqs = sequences.value.unwrap_or(USUAL_SEQUENCES);
    let mut all = Vec::new();
    for token_budget in budgets {
        all.extend(kv.iter().map(|kv| Limits { max_num_seqs, token_budget, kv: *kv }));
    }
    all
}
