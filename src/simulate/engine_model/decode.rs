//! The short cut: steps in which every running request makes one token and nobody enters or leaves are run in one go.
//!
//! Exact, not approximate: the length of each step is still taken from the step law, only the visit to every sequence in
//! every step is left out. `tests/simulated_engine.rs` compares it with single steps.

use super::super::moment::Moment;
use super::super::profile::BLOCK_TOKENS;
use super::{EngineModel, blocks_for};

impl EngineModel {
    /// Runs as many such steps as end at or before `to`, beginning `at`, and tells when the last one ended.
    pub(super) fn decode_steps(&mut self, at: Moment, to: Moment) -> Moment {
        let sequences = self.running.len() as u64;
        let law = self.settings.law;
        // Not worth a look when not even the cheapest two steps would end in time.
        if sequences == 0 || at.plus_picos(2 * law.picos(0, sequences, 0, 0)) > to {
            return at;
        }
        let Some(most) = self.undisturbed_steps(at) else { return at };
        let mut context: u64 = self.running.iter().map(|s| u64::from(s.known())).sum();
        let mut now = at;
        let mut steps = 0_u32;
        while steps < most {
            let picos = law.picos(0, sequences, context, 0);
            let ends = now.plus_picos(picos);
            if ends > to {
                break;
            }
            self.metrics.inter_token.observe(picos, sequences);
            self.metrics.iteration_tokens.observe(sequences, 1);
            context += sequences;
            now = ends;
            steps += 1;
        }
        if steps == 0 {
            return at;
        }
        self.metrics.generation_tokens += sequences * u64::from(steps);
        for sequence in &mut self.running {
            sequence.computed += steps;
            sequence.generated += steps;
            sequence.last_token = now;
            let blocks = blocks_for(sequence.computed);
            self.free_blocks -= blocks - sequence.blocks;
            sequence.blocks = blocks;
        }
        self.note_gauges();
        now
    }

    /// How many steps from now on leave everybody decoding: nobody finishes, nobody is preempted, nobody can enter. None
    /// when the next step is not of that kind.
    fn undisturbed_steps(&self, at: Moment) -> Option<u32> {
        let budget = self.settings.token_budget as usize;
        // Blocks are only taken in these steps, so a front that doesn't fit now won't fit later.
        if self.front_fits() || self.running.len() > budget {
            return None;
        }
        let mut most = u32::MAX;
        for sequence in &self.running {
            if !sequence.decodes() || sequence.last_token != at {
                return None;
            }
            // The step that makes the last token ends the request: it is left to the full scheduler.
            most = most.min(sequence.request.output - sequence.generated - 1);
        }
        while most > 0 && self.blocks_after(most) > self.free_blocks {
            most /= 2;
        }
        (most > 0).then_some(most)
    }

    /// Blocks that so many decode steps take.
    fn blocks_after(&self, steps: u32) -> u32 {
        // Nobody can need more than this: most calls end here.
        let bound = (steps / BLOCK_TOKENS + 1) * self.running.len() as u32;
        if bound <= self.free_blocks {
            return bound;
        }
        self.running.iter().map(|s| blocks_for(s.computed + steps) - s.blocks).sum()
    }
}
