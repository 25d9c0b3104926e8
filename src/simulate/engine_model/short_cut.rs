//! The short cut: an engine whose sequences that decode are counted instead of visited. Pure.
//!
//! A running batch is a head of sequences that decode ([`Decoders`](super::decoders::Decoders)) and a tail that still
//! computes its prompts, because an unfinished prompt takes all that is left of the token budget. A run of steps in which
//! nobody enters or leaves is a loop over the step law.
//!
//! Exact, not approximate: a step whose budget doesn't last for the head is left to the full scheduler, which gets every
//! sequence as it would have been ([`EngineModel::settle`]). `tests/simulated_engine.rs` compares all of it with single
//! steps.

use super::super::moment::Moment;
use super::step::StepSum;
use super::{EngineModel, blocks_for};

impl EngineModel {
    /// Gives the running requests their tokens. Tells whether somebody had to be preempted; None, and nothing done, where
    /// the full scheduler has to look.
    ///
    /// The scheduler goes through the batch in order and takes the last one out whenever the next one's blocks aren't
    /// there. It ends with as few taken out as leave enough for all others, whatever the order in which those ask.
    pub(super) fn schedule_counted(&mut self, step: &mut StepSum, at: Moment) -> Option<bool> {
        if !self.macro_steps || self.decoders.len() > step.budget as usize {
            return None;
        }
        let mut preempted = false;
        let mut wanted = self.blocks_wanted(step.budget);
        while wanted > self.free_blocks {
            self.preempt_last(at);
            preempted = true;
            wanted = self.blocks_wanted(step.budget);
        }
        self.free_blocks -= wanted;
        let head = self.decoders.len();
        step.budget -= head as u32;
        step.sequences += head as u64;
        step.context += self.decoders.context();
        for sequence in &mut self.tail {
            let tokens = sequence.pending().min(step.budget);
            sequence.blocks = sequence.blocks.max(blocks_for(sequence.computed + tokens));
            step.add(sequence, tokens);
        }
        Some(preempted)
    }

    /// Blocks that all running requests need for the next step.
    fn blocks_wanted(&self, budget: u32) -> u32 {
        let mut budget = budget - self.decoders.len() as u32;
        let of_tail = self.tail.iter().map(|sequence| {
            let tokens = sequence.pending().min(budget);
            budget -= tokens;
            blocks_for(sequence.computed + tokens).saturating_sub(sequence.blocks)
        });
        let of_tail: u32 = of_tail.sum();
        self.decoders.blocks_wanted() + of_tail
    }

    /// The head's part of the end of a step; how many tokens came out.
    pub(super) fn finish_decoders(&mut self, at: Moment) -> u64 {
        let head = self.decoders.len() as u64;
        if head == 0 {
            return 0;
        }
        self.decoders.step();
        self.metrics.inter_token.observe(at.picos_since(self.step_began), head);
        while let Some(sequence) = self.decoders.pop_done() {
            self.leave(&sequence, at);
        }
        head
    }

    /// Sequences that follow the head and made a token `at` this instant join it.
    pub(super) fn gather(&mut self, at: Moment) {
        let is_ready = |next: &&super::Sequence| next.decodes() && next.last_token == at;
        let ready = self.tail.iter().take_while(is_ready).count();
        for sequence in self.tail.drain(..ready) {
            self.decoders.join(sequence);
        }
    }

    /// Brings the head's sequences up to date and counts none of them any more. The last step ended `at`.
    pub(super) fn settle(&mut self, at: Moment) {
        if self.decoders.len() > 0 {
            self.tail.splice(0..0, self.decoders.drain(at));
        }
    }

    /// Runs as many steps in which only the head makes tokens, and nobody enters or leaves, as end at or before `to`,
    /// beginning `at`. Tells when the last one ended.
    pub(super) fn decode_steps(&mut self, at: Moment, to: Moment) -> Moment {
        let head = self.decoders.len();
        // The step that makes a last token ends a request: it is left to the scheduler.
        let most = self.decoders.steps_without_end();
        // Blocks are only taken in these steps, so a front that doesn't fit now won't fit later.
        if most == 0
            || !self.tail.is_empty()
            || head > self.settings.token_budget as usize
            || self.front_fits()
        {
            return at;
        }
        let sequences = head as u64;
        let (mut now, mut steps) = (at, 0_u64);
        while steps < most {
            let wanted = self.decoders.blocks_wanted();
            let picos = self.settings.law.picos(0, sequences, self.decoders.context(), 0);
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
        self.busy_picos += now.picos_since(at);
        self.metrics.iteration_tokens.observe(sequences, steps);
        self.metrics.generation_tokens += sequences * steps;
        self.note_gauges();
        now
    }
}
