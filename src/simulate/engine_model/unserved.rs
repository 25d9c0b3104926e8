//! Who is in the engine and has not been served yet.

use super::{EngineModel, Request};
use crate::simulate::moment::Moment;

impl EngineModel {
    /// Requests that wait, those that ran before included.
    #[must_use]
    pub fn waiting_count(&self) -> usize {
        self.waiting.len()
    }

    /// Prompt tokens of the waiting requests.
    #[must_use]
    pub fn waiting_prompt_tokens(&self) -> u64 {
        self.waiting_prompt_tokens
    }

    /// How many never ran yet. Those that did and wait again stand before all others.
    #[must_use]
    pub fn never_admitted_count(&self) -> usize {
        self.waiting.len() - self.waiting.iter().take_while(|s| s.admitted.is_some()).count()
    }

    /// Requests that never ran yet.
    pub fn never_admitted_requests(&self) -> impl Iterator<Item = &Request> + '_ {
        self.waiting.iter().filter(|s| s.admitted.is_none()).map(|s| &s.request)
    }

    /// Arrival times of those.
    pub fn never_admitted(&self) -> impl Iterator<Item = Moment> + '_ {
        self.never_admitted_requests().map(|request| request.arrived)
    }

    /// Arrival times of the requests without a first token.
    pub fn without_first_token(&self) -> impl Iterator<Item = Moment> + '_ {
        self.waiting
            .iter()
            .chain(&self.running)
            .filter(|s| s.first_token.is_none())
            .map(|s| s.request.arrived)
    }
}
