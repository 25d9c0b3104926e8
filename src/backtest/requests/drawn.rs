//! Requests that are drawn once and played by every row. Pure.
//!
//! To draw a request costs a tenth of what it costs to serve it, and every row gets the same ones. The first millions are
//! kept; what comes after those is drawn again by each row, so that memory doesn't grow with the trace.

use super::ArrivingRequest;
use crate::simulate::Moment;

/// Requests that are kept, of 16 bytes each: a day of twenty replicas in 128 MB.
const MOST_KEPT: usize = 8_000_000;

/// Requests of a trace.
#[derive(Clone, Debug)]
pub(super) struct Drawn<I> {
    kept: Vec<Kept>,
    /// Those that come after them, not begun.
    rest: I,
}

/// A request of a trace: these say nothing of prefixes.
#[derive(Clone, Copy, Debug)]
struct Kept {
    at: Moment,
    input: u32,
    output: u32,
}

impl<I: Iterator<Item = ArrivingRequest> + Clone> Drawn<I> {
    /// Draws the first ones. None of them may say anything of prefixes or caches.
    pub(super) fn ahead(mut requests: I) -> Self {
        let kept = requests.by_ref().take(MOST_KEPT).map(|request| {
            debug_assert!(request.prefix.is_none() && request.cached.is_none());
            Kept { at: request.at, input: request.input, output: request.output }
        });
        Self { kept: kept.collect(), rest: requests }
    }

    /// All of them, from the first on.
    pub(super) fn iter(&self) -> impl Iterator<Item = ArrivingRequest> + '_ {
        let kept = self.kept.iter().map(|Kept { at, input, output }| ArrivingRequest {
            at: *at,
            input: *input,
            output: *output,
            cached: None,
            prefix: None,
        });
        kept.chain(self.rest.clone())
    }
}
