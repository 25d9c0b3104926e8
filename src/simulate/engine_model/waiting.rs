//! Who is in the engine and doesn't run: those that were preempted, before all that never ran. Pure.

use std::collections::VecDeque;

use super::{EngineModel, Request, Sequence};
use crate::simulate::moment::Moment;

/// The queue. An overloaded engine has tens of thousands in it, so one that never ran is only its request.
#[derive(Clone, Debug, Default)]
pub(super) struct Waiting {
    preempted: VecDeque<Sequence>,
    /// With the time of each one's arrival at the engine.
    never_ran: VecDeque<(Request, Moment)>,
    /// Prompt tokens of all of them: a sum over a long queue in every slot would be most of the work.
    prompt_tokens: u64,
}

impl Waiting {
    pub(super) fn len(&self) -> usize {
        self.preempted.len() + self.never_ran.len()
    }

    pub(super) fn arrived(&mut self, request: Request, at: Moment) {
        self.prompt_tokens += u64::from(request.input);
        self.never_ran.push_back((request, at));
    }

    /// It goes before all others.
    pub(super) fn preempted(&mut self, sequence: Sequence) {
        self.prompt_tokens += u64::from(sequence.request.input);
        self.preempted.push_front(sequence);
    }

    /// Tokens that the next one has to compute; None where nobody waits.
    pub(super) fn next_tokens(&self) -> Option<u32> {
        let preempted = self.preempted.front().map(Sequence::known);
        preempted.or_else(|| self.never_ran.front().map(|(request, _)| request.input))
    }

    pub(super) fn pop(&mut self) -> Option<Sequence> {
        let first = || self.never_ran.pop_front().map(|(request, at)| Sequence::queued(request, at));
        let next = self.preempted.pop_front().or_else(first)?;
        self.prompt_tokens -= u64::from(next.request.input);
        Some(next)
    }

    /// All of them leave, in order.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Request> + '_ {
        self.prompt_tokens = 0;
        let preempted = self.preempted.drain(..).map(|sequence| sequence.request);
        preempted.chain(self.never_ran.drain(..).map(|(request, _)| request))
    }
}

impl EngineModel {
    /// Requests that wait, those that ran before included.
    #[must_use]
    pub fn waiting_count(&self) -> usize {
        self.waiting.len()
    }

    /// Prompt tokens of the waiting requests.
    #[must_use]
    pub fn waiting_prompt_tokens(&self) -> u64 {
        self.waiting.prompt_tokens
    }

    /// How many never ran yet.
    #[must_use]
    pub fn never_admitted_count(&self) -> usize {
        self.waiting.never_ran.len()
    }

    /// Requests that never ran yet.
    pub fn never_admitted_requests(&self) -> impl Iterator<Item = &Request> + '_ {
        self.waiting.never_ran.iter().map(|(request, _)| request)
    }

    /// Arrival times of those.
    pub fn never_admitted(&self) -> impl Iterator<Item = Moment> + '_ {
        self.never_admitted_requests().map(|request| request.arrived)
    }

    /// Arrival times of the requests without a first token.
    pub fn without_first_token(&self) -> impl Iterator<Item = Moment> + '_ {
        // Sequences that are only counted have one.
        let ran = self.waiting.preempted.iter().chain(&self.tail).filter(|s| s.first_token.is_none());
        ran.map(|s| s.request.arrived).chain(self.never_admitted())
    }
}
