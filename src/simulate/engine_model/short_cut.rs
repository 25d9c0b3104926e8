//! The short cut: an engine whose sequences that decode are counted instead of visited. Pure.
//!
//! A running batch is a head of sequences that decode ([`Decoders`](super::decoders::Decoders)) and a tail that still
//! computes its prompts, because an unfinished prompt takes all that is left of the token budget. In a run of steps in
//! which nobody enters or leaves each step is longer than the one before it by the same time, so that all of them are a sum.
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
        let run = self.decode_run();
        let steps = run
            .steps_within(to.picos_since(at), most)
            .min(self.decoders.steps_within(self.free_blocks, most));
        if steps == 0 {
            return at;
        }
        self.left_waiting = self.waiting.len() as u32;
        let now = at.plus_picos(run.picos(steps));
        self.free_blocks -= self.decoders.steps(steps);
        self.busy_picos += run.picos(steps);
        self.metrics.inter_token.observe_run(run.first, run.growth, steps, sequences);
        self.metrics.iteration_tokens.observe(sequences, steps);
        self.metrics.generation_tokens += sequences * steps;
        self.note_gauges();
        now
    }

    /// The steps that the head alone would make from now on.
    fn decode_run(&self) -> DecodeRun {
        let (sequences, context) = (self.decoders.len() as u64, self.decoders.context());
        let picos = |context| self.settings.law.picos(0, sequences, context, 0);
        let first = picos(context);
        DecodeRun { first, growth: picos(context + sequences) - first }
    }

    /// Until then the number of requests in it can't change but by an arrival; None while there is nothing to do. Not the
    /// latest such time, but one that is known without running it.
    #[must_use]
    pub fn unchanged_until(&self) -> Option<Moment> {
        let ends = self.step_ends?;
        let steps = self.decoders.steps_without_end();
        let is_known = self.macro_steps
            && steps > 0
            && self.tail.is_empty()
            && !self.front_fits()
            && self.decoders.len() <= self.settings.token_budget as usize
            && self.decoders.have_room(self.free_blocks, steps);
        if !is_known {
            return Some(ends);
        }
        // The step in flight has its context already: those after it are longer than this run says.
        Some(ends.plus_picos(self.decode_run().picos(steps)))
    }
}

/// Steps of which each is longer than the one before it by the same time.
#[derive(Clone, Copy, Debug)]
struct DecodeRun {
    /// Picoseconds of the first.
    first: u64,
    /// Picoseconds by which each is longer than the one before.
    growth: u64,
}

impl DecodeRun {
    /// Picoseconds of so many steps; saturates.
    fn picos(&self, steps: u64) -> u64 {
        let grown = u128::from(self.growth) * (u128::from(steps) * u128::from(steps.saturating_sub(1)) / 2);
        let all = u128::from(self.first) * u128::from(steps) + grown;
        u64::try_from(all).unwrap_or(u64::MAX)
    }

    /// How many steps take at most so long, and no more than `most`.
    fn steps_within(&self, picos: u64, most: u64) -> u64 {
        if self.first > picos {
            return 0;
        }
        // The first one says how many there may be; the answer is between 1 and that.
        let (mut fits, mut least_too_many) = (1, most.min(picos / self.first.max(1)).max(1) + 1);
        while least_too_many - fits > 1 {
            let middle = u64::midpoint(fits, least_too_many);
            if self.picos(middle) <= picos { fits = middle } else { least_too_many = middle }
        }
        fits.min(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_steps_is_the_sum_of_its_steps() {
        for (first, growth) in [(10, 3), (1, 0), (7, 1000)] {
            let run = DecodeRun { first, growth };
            let one_by_one = |steps: u64| (0..steps).map(|step| first + step * growth).sum::<u64>();
            for steps in 0..40 {
                assert_eq!(run.picos(steps), one_by_one(steps));
            }
            for picos in 0..500 {
                let most = 25;
                let expected = (0..=most).filter(|steps| one_by_one(*steps) <= picos).max().unwrap_or(0);
                assert_eq!(run.steps_within(picos, most), expected, "{first} {growth} {picos}");
            }
        }
    }
}
