//! The head of a running batch: sequences that make one token a step are counted, not visited. Pure.
//!
//! Of the head a step needs to know only how many there are, the sum of their contexts, how many of them begin a new
//! block, and whether one is done. All of that is kept up as they join and leave; a step looks at none of them.
//!
//! Invariant: what a sequence in here says of its progress is as old as its joining. Whoever leaves is brought up to
//! date first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::super::moment::Moment;
use super::super::profile::BLOCK_TOKENS;
use super::{Sequence, blocks_for};

/// Remainders of a token count by the tokens of a block.
const REMAINDERS: usize = BLOCK_TOKENS as usize;

/// Entries of sequences that left are swept out when there are so many more of them than of those that stay.
const MOST_LEFT_OVER: usize = 64;

/// The sequences that decode, in the order of the batch.
#[derive(Clone, Debug)]
pub(super) struct Decoders {
    /// Steps of the engine so far.
    steps: u64,
    /// Each sequence at a place of its own; a batch of hundreds isn't moved when one leaves.
    places: Vec<Option<Decoder>>,
    free_places: Vec<u32>,
    count: usize,
    /// The number of the next one that joins; never used again.
    next_number: u64,
    /// Who is done first. May name some that left.
    done: BinaryHeap<Reverse<Done>>,
    /// In the order of the batch. May name some that left.
    order: Vec<(u64, u32)>,
    /// After which step the first one is done; of no meaning while there is none.
    first_done: u64,
    /// How many of them begin a block in a step that follows so many steps, by the remainder of that number.
    begin_block: [u32; REMAINDERS],
    /// Tokens of their contexts.
    context: u64,
}

/// A sequence of the head.
#[derive(Clone, Debug)]
struct Decoder {
    number: u64,
    /// The step after which it is done.
    done_after: u64,
    sequence: Sequence,
}

/// When somebody is done; of those that are done together the first in the batch is the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Done {
    after: u64,
    number: u64,
    place: u32,
}

impl Decoders {
    pub(super) fn new() -> Self {
        Self {
            steps: 0,
            places: Vec::new(),
            free_places: Vec::new(),
            count: 0,
            next_number: 0,
            done: BinaryHeap::new(),
            order: Vec::new(),
            first_done: 0,
            begin_block: [0; REMAINDERS],
            context: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Tokens of all contexts.
    pub(super) fn context(&self) -> u64 {
        self.context
    }

    /// Blocks that the next step takes for them.
    pub(super) fn blocks_wanted(&self) -> u32 {
        self.begin_block[self.steps as usize % REMAINDERS]
    }

    /// Do so many steps, whenever they begin, surely take no more than so many blocks?
    pub(super) fn have_room(&self, blocks: u32, steps: u64) -> bool {
        // Each of them begins a block once in as many steps as a block has tokens.
        (steps / REMAINDERS as u64 + 1) * self.count as u64 <= u64::from(blocks)
    }

    /// How many steps, up to `most`, take no more than so many blocks.
    pub(super) fn steps_within(&self, blocks: u32, most: u64) -> u64 {
        if self.have_room(blocks, most) {
            return most;
        }
        let (mut steps, mut left) = (0, blocks);
        while steps < most {
            let wanted = self.begin_block[(self.steps + steps) as usize % REMAINDERS];
            if wanted > left {
                break;
            }
            left -= wanted;
            steps += 1;
        }
        steps
    }

    /// They made so many tokens each; the blocks that they took for them.
    pub(super) fn steps(&mut self, count: u64) -> u32 {
        let whole_rounds = (count / REMAINDERS as u64) as u32 * self.count as u32;
        let rest = (0..count % REMAINDERS as u64)
            .map(|step| self.begin_block[(self.steps + step) as usize % REMAINDERS]);
        let blocks = whole_rounds + rest.sum::<u32>();
        self.steps += count;
        self.context += count * self.count as u64;
        blocks
    }

    /// They made a token each.
    pub(super) fn step(&mut self) {
        self.steps += 1;
        self.context += self.count as u64;
    }

    /// Steps from now on in which nobody is done.
    pub(super) fn steps_without_end(&self) -> u64 {
        if self.count == 0 { 0 } else { (self.first_done - self.steps).saturating_sub(1) }
    }

    /// It joins at the end of the batch, up to date.
    pub(super) fn join(&mut self, sequence: Sequence) {
        let done_after = self.steps + u64::from(sequence.request.output - sequence.generated);
        let number = self.next_number;
        self.next_number += 1;
        self.count_in(&sequence);
        let decoder = Some(Decoder { number, done_after, sequence });
        let place = if let Some(place) = self.free_places.pop() {
            self.places[place as usize] = decoder;
            place
        } else {
            self.places.push(decoder);
            self.places.len() as u32 - 1
        };
        self.done.push(Reverse(Done { after: done_after, number, place }));
        self.order.push((number, place));
        self.first_done = if self.count == 0 { done_after } else { self.first_done.min(done_after) };
        self.count += 1;
        self.sweep();
    }

    /// The next one that is done now, up to date but for the time of its last token.
    pub(super) fn pop_done(&mut self) -> Option<Sequence> {
        if self.count == 0 || self.first_done > self.steps {
            return None;
        }
        let Reverse(Done { number, place, .. }) = self.done.pop()?;
        let sequence = self.take(number, place);
        self.find_first_done();
        sequence
    }

    /// The last of the batch, brought up to date. The last step ended `at`.
    pub(super) fn pop_last(&mut self, at: Moment) -> Option<Sequence> {
        while let Some((number, place)) = self.order.pop() {
            if let Some(sequence) = self.take(number, place) {
                self.find_first_done();
                return Some(Sequence { last_token: at, ..sequence });
            }
        }
        None
    }

    /// All of them leave, in the order of the batch and brought up to date. The last step ended `at`.
    pub(super) fn drain(&mut self, at: Moment) -> Vec<Sequence> {
        let mut all = Vec::with_capacity(self.count);
        for (number, place) in std::mem::take(&mut self.order) {
            if let Some(sequence) = self.take(number, place) {
                all.push(Sequence { last_token: at, ..sequence });
            }
        }
        self.done.clear();
        all
    }

    /// Where to count a sequence that has so many tokens in the cache now: it begins a block when that number is whole
    /// blocks.
    fn remainder(&self, computed: u32) -> usize {
        (self.steps as usize + REMAINDERS - computed as usize % REMAINDERS) % REMAINDERS
    }

    fn count_in(&mut self, sequence: &Sequence) {
        self.begin_block[self.remainder(sequence.computed)] += 1;
        self.context += u64::from(sequence.known());
    }

    /// None where it left before.
    fn take(&mut self, number: u64, place: u32) -> Option<Sequence> {
        let Decoder { done_after, mut sequence, .. } =
            self.places[place as usize].take_if(|decoder| decoder.number == number)?;
        self.free_places.push(place);
        self.count -= 1;
        sequence.generated = sequence.request.output - (done_after - self.steps) as u32;
        sequence.computed = sequence.known() - 1;
        sequence.blocks = blocks_for(sequence.computed);
        self.begin_block[self.remainder(sequence.computed)] -= 1;
        self.context -= u64::from(sequence.known());
        Some(sequence)
    }

    fn stays(places: &[Option<Decoder>], number: u64, place: u32) -> bool {
        places[place as usize].as_ref().is_some_and(|decoder| decoder.number == number)
    }

    fn find_first_done(&mut self) {
        while let Some(Reverse(Done { after, number, place })) = self.done.peek().copied() {
            if Self::stays(&self.places, number, place) {
                self.first_done = after;
                return;
            }
            self.done.pop();
        }
    }

    /// Memory stays in proportion to the batch.
    fn sweep(&mut self) {
        let places = &self.places;
        if self.order.len() > 2 * self.count + MOST_LEFT_OVER {
            self.order.retain(|(number, place)| Self::stays(places, *number, *place));
        }
        if self.done.len() > 2 * self.count + MOST_LEFT_OVER {
            self.done.retain(|Reverse(done)| Self::stays(places, done.number, done.place));
        }
    }
}
