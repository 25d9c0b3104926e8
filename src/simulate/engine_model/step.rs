//! A step while it is scheduled: what the step law needs to know of it.

use super::Sequence;

/// What a step adds up to, while it is scheduled.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StepSum {
    /// Tokens that may still be computed in it.
    pub(super) budget: u32,
    pub(super) prompt_tokens: u64,
    /// Sequences that decode.
    pub(super) sequences: u64,
    /// Tokens of their contexts.
    pub(super) context: u64,
    pub(super) pairs_twice: u64,
}

impl StepSum {
    /// Gives a sequence so many tokens of this step.
    pub(super) fn add(&mut self, sequence: &mut Sequence, tokens: u32) {
        sequence.scheduled = tokens;
        self.budget -= tokens;
        if tokens == 0 {
            return;
        }
        if sequence.decodes() {
            self.sequences += 1;
            self.context += u64::from(sequence.known());
            return;
        }
        let (chunk, context) = (u64::from(tokens), u64::from(sequence.computed));
        self.prompt_tokens += chunk;
        self.pairs_twice += chunk * (2 * context + chunk);
    }
}
