//! The short cut: sequences that make one token a step are counted, not visited.
//!
//! A running batch is a head of sequences that decode and a tail that still computes its prompts, because an unfinished
//! prompt takes all that is left of the token budget. Of the head a step needs to know only how many there are, the sum
//! of their contexts, how many of them begin a new block, and whether one is done: all of that is known without looking
//! at any of them. A run of steps in which nobody enters or leaves is a loop over the step law.
//!
//! Exact, not approximate: a step that may preempt somebody is left to the full scheduler, which gets every sequence as
//! it would have been ([`EngineModel::settle`]). `tests/simulated_engine.rs` compares all of it with single steps.

use super::super::moment::Moment;
use super::super::profile::BLOCK_TOKENS;
use super::step::StepSum;
use super::{EngineModel, blocks_for};

/// Remainders of a token count by the tokens of a block.
const REMAINDERS: usize = BLOCK_TOKENS as usize;

/// The head of the running batch.
#[derive(Clone, Debug, Default)]
pub(super) struct Decoders {
    /// Steps of the engine so far.
    steps: u64,
    /// After which step each of them is done, in the order of the batch.
    done_after: Vec<u64>,
    /// The least of those.
    first_done: u64,
    /// How many of them begin a block in a step that follows so many steps, by the remainder of that number.
    begin_block: [u32; REMAINDERS],
    /// Tokens of their contexts.
    context: u64,
}

impl Decoders {
    pub(super) fn len(&self) -> usize {
        self.done_after.len()
    }

    pub(super) fn clear(&mut self) {
        *self = Self { steps: self.steps, ..Self::default() };
    }

    /// Blocks that the next step takes for them.
    fn blocks_wanted(&self) -> u32 {
        self.begin_block[self.steps as usize % REMAINDERS]
    }

    /// They made a token each.
    fn step(&mut self) {
        self.steps += 1;
        self.context += self.len() as u64;
    }

    /// Where to count a sequence that has so many tokens in the cache now: it begins a block when that number is whole
    /// blocks.
    fn remainder(&self, computed: u32) -> usize {
        (self.steps as usize + REMAINDERS - computed as usize % REMAINDERS) % REMAINDERS
    }

    fn join(&mut self, computed: u32, known: u32, to_come: u32) {
        let done_after = self.steps + u64::from(to_come);
        self.first_done =
            if self.done_after.is_empty() { done_after } else { self.first_done.min(done_after) };
        self.done_after.push(done_after);
        let remainder = self.remainder(computed);
        self.begin_block[remainder] += 1;
        self.context += u64::from(known);
    }

    /// The next one that is done now, from this place in the batch on.
    fn next_done(&self, from: usize) -> Option<usize> {
        Some(from + self.done_after.get(from..)?.iter().position(|after| *after == self.steps)?)
    }

    fn leave(&mut self, index: usize, computed: u32, known: u32) {
        self.done_after.remove(index);
        let remainder = self.remainder(computed);
        self.begin_block[remainder] -= 1;
        self.context -= u64::from(known);
    }
}

impl EngineModel {
    /// Gives the running requests their tokens where nobody has to be preempted for it; false, and nothing done, where
    /// the full scheduler has to look.
    pub(super) fn schedule_counted(&mut self, step: &mut StepSum) -> bool {
        let head = self.decoders.len();
        if !self.macro_steps || head > step.budget as usize {
            return false;
        }
        let mut wanted = self.decoders.blocks_wanted();
        let mut budget = step.budget - head as u32;
        for sequence in &self.running[head..] {
            let tokens = sequence.pending().min(budget);
            budget -= tokens;
            wanted += blocks_for(sequence.computed + tokens).saturating_sub(sequence.blocks);
        }
        if wanted > self.free_blocks {
            return false;
        }
        self.free_blocks -= wanted;
        step.budget -= head as u32;
        step.sequences += head as u64;
        step.context += self.decoders.context;
        for sequence in &mut self.running[head..] {
            let tokens = sequence.pending().min(step.budget);
            sequence.blocks = sequence.blocks.max(blocks_for(sequence.computed + tokens));
            step.add(sequence, tokens);
        }
        true
    }

    /// The head's part of the end of a step; how many tokens came out.
    pub(super) fn finish_decoders(&mut self, at: Moment) -> u64 {
        let head = self.decoders.len() as u64;
        if head == 0 {
            return 0;
        }
        self.decoders.step();
        self.metrics.inter_token.observe(at.picos_since(self.step_began), head);
        if self.decoders.steps < self.decoders.first_done {
            return head;
        }
        let mut index = 0;
        while let Some(done) = self.decoders.next_done(index) {
            let sequence = self.running.remove(done);
            let known = sequence.request.input + sequence.request.output;
            self.decoders.leave(done, known - 1, known);
            self.leave(&sequence, blocks_for(known - 1), at);
            index = done;
        }
        self.decoders.first_done = self.decoders.done_after.iter().copied().min().unwrap_or(0);
        head
    }

    /// Sequences that follow the head and made a token `at` this instant join it.
    pub(super) fn gather(&mut self, at: Moment) {
        while let Some(next) = self.running.get(self.decoders.len()) {
            if !next.decodes() || next.last_token != at {
                return;
            }
            self.decoders.join(next.computed, next.known(), next.request.output - next.generated);
        }
    }

    /// Brings the head's sequences up to date and counts none of them any more. The last step ended `at`.
    pub(super) fn settle(&mut self, at: Moment) {
        let steps = self.decoders.steps;
        for (sequence, done_after) in self.running.iter_mut().zip(&self.decoders.done_after) {
            sequence.generated = sequence.request.output - (done_after - steps) as u32;
            sequence.computed = sequence.known() - 1;
            sequence.blocks = blocks_for(sequence.computed);
            sequence.last_token = at;
        }
        self.decoders.clear();
    }

    /// Runs as many steps in which only the head makes tokens, and nobody enters or leaves, as end at or before `to`,
    /// beginning `at`. Tells when the last one ended.
    pub(super) fn decode_steps(&mut self, at: Moment, to: Moment) -> Moment {
        let head = self.decoders.len();
        // Blocks are only taken in these steps, so a front that doesn't fit now won't fit later.
        if head == 0
            || head != self.running.len()
            || head > self.settings.token_budget as usize
            || self.front_fits()
        {
            return at;
        }
        let sequences = head as u64;
        let (mut now, mut steps) = (at, 0_u64);
        // The step that makes a last token ends a request: it is left to the scheduler.
        while self.decoders.steps + 1 < self.decoders.first_done {
            let wanted = self.decoders.blocks_wanted();
            let picos = self.settings.law.picos(0, sequences, self.decoders.context, 0);
            let ends = now.plus_picos(picos);
            if ends > to || wanted > self.free_blocks {
                break;
            }
            self.free_blocks -= wanted;
            self.metrics.inter_token.observe(picos, sequences);
            self.decoders.step();
            now = ends;
            steps += 1;
        }
        if steps == 0 {
            return at;
        }
        self.left_waiting = self.waiting.len() as u32;
        self.busy_picos += now.picos_since(at);
        self.metrics.iteration_tokens.observe(sequences, steps);
        self.metrics.generation_tokens += sequences * steps;
        self.note_gauges();
        now
    }
}
