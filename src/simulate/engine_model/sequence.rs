//! A request while it is in the engine.

use super::Request;
use crate::simulate::engine_metrics::FinishedRequest;
use crate::simulate::moment::Moment;

/// A request in the engine.
#[derive(Clone, Debug)]
pub(super) struct Sequence {
    pub(super) request: Request,
    pub(super) queued: Moment,
    pub(super) admitted: Option<Moment>,
    pub(super) first_token: Option<Moment>,
    pub(super) last_token: Moment,
    /// Tokens whose keys and values are in the cache.
    pub(super) computed: u32,
    pub(super) generated: u32,
    pub(super) blocks: u32,
    /// Tokens that the step in flight computes.
    pub(super) scheduled: u32,
    pub(super) preemptions: u32,
}

impl Sequence {
    /// One that has just arrived.
    pub(super) fn queued(request: Request, now: Moment) -> Self {
        Self {
            request,
            queued: now,
            admitted: None,
            first_token: None,
            last_token: now,
            computed: 0,
            generated: 0,
            blocks: 0,
            scheduled: 0,
            preemptions: 0,
        }
    }

    /// Prompt and output tokens so far.
    pub(super) fn known(&self) -> u32 {
        self.request.input + self.generated
    }

    /// Tokens still to compute before the next one can come out.
    pub(super) fn pending(&self) -> u32 {
        self.known() - self.computed
    }

    /// Does it make an output token a step, and nothing else?
    pub(super) fn decodes(&self) -> bool {
        self.generated > 0 && self.pending() == 1
    }

    /// What the metrics tell of it when its last token is out.
    pub(super) fn as_finished(&self, at: Moment) -> FinishedRequest {
        FinishedRequest {
            queued: self.queued,
            admitted: self.admitted.unwrap_or(self.queued),
            first_token: self.first_token.unwrap_or(at),
            last_token: at,
            input: self.request.input,
            cached: self.request.cached.min(self.request.input - 1),
            output: self.request.output,
            preemptions: self.preemptions,
        }
    }
}
