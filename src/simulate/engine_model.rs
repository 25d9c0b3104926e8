//! A vLLM engine at the level of requests: the V1 scheduler, KV blocks, and the step law. Pure and deterministic.
//!
//! Facts of the scheduler are vLLM's (V1, 0.19 and later): running requests first and in order, one token each while
//! they decode; blocks of 16 tokens, and when none is free the *last* running request is preempted, loses what it had
//! computed and goes to the front of the queue; then waiting requests first come first served, in chunks, as long as the
//! token budget, `max_num_seqs` and room for the whole prompt last, and only in a step without a preemption. A token is
//! out at the end of the step that computed it. An arrival is seen at the beginning of the next step.
//!
//! Invariant: every request that arrived is waiting, running, finished, refused or aborted.

use std::time::Duration;

use super::engine_metrics::{EngineMetrics, Gauges};
use super::moment::Moment;
use super::profile::{BLOCK_TOKENS, EngineSettings};

mod decoders;
mod sequence;
mod short_cut;
mod step;
mod waiting;

use decoders::Decoders;
use sequence::Sequence;
use step::StepSum;
use waiting::Waiting;

/// A request as a client sends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Unique in the world.
    pub id: u64,
    /// When the client sent it; the engine may get it later.
    pub arrived: Moment,
    /// Prompt tokens, at least 1.
    pub input: u32,
    /// Prompt tokens that the prefix cache holds already; they take blocks, but no computing.
    pub cached: u32,
    /// Output tokens, at least 1.
    pub output: u32,
}

/// What happened to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineEvent {
    /// To which.
    pub request: Request,
    /// When.
    pub at: Moment,
    /// What.
    pub kind: EventKind,
}

/// See [`EngineEvent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// It entered the running batch for the first time.
    Admitted,
    /// Its first token is out.
    FirstToken,
    /// Its last token is out.
    Finished,
    /// It is longer than `max_model_len`.
    Refused,
    /// The router had no room for it.
    TurnedAway,
    /// The engine was stopped under it.
    Aborted,
}

/// An engine.
#[derive(Clone, Debug)]
pub struct EngineModel {
    settings: EngineSettings,
    waiting: Waiting,
    /// The running batch in the order of admission: first those that are only counted, then all others.
    decoders: Decoders,
    tail: Vec<Sequence>,
    free_blocks: u32,
    /// Requests that the step in flight left waiting. What arrives meanwhile is no backlog yet, and vLLM's gauge doesn't
    /// count it: its scheduler takes new requests in between steps, and tells of those that it then left.
    left_waiting: u32,
    step_began: Moment,
    /// When the step in flight ends.
    step_ends: Option<Moment>,
    /// Picoseconds that refusals take from the next step.
    owed_picos: u64,
    /// Picoseconds of finished steps.
    busy_picos: u64,
    /// When the last step ended without another one to do.
    idle_since: Moment,
    now: Moment,
    metrics: EngineMetrics,
    events: Vec<EngineEvent>,
    macro_steps: bool,
}

impl EngineModel {
    /// An idle engine at `now`.
    #[must_use]
    pub fn new(settings: EngineSettings, now: Moment) -> Self {
        Self {
            settings,
            waiting: Waiting::default(),
            decoders: Decoders::new(),
            tail: Vec::new(),
            free_blocks: settings.usable_blocks(),
            left_waiting: 0,
            step_began: now,
            step_ends: None,
            owed_picos: 0,
            busy_picos: 0,
            idle_since: now,
            now,
            metrics: EngineMetrics::new(settings.max_model_len),
            events: Vec::new(),
            macro_steps: true,
        }
    }

    /// The same engine without the short cut for sequences that decode: slower, and equal to the last digit.
    #[must_use]
    pub fn with_single_steps(mut self) -> Self {
        self.macro_steps = false;
        self
    }

    /// What it was made of.
    #[must_use]
    pub fn settings(&self) -> &EngineSettings {
        &self.settings
    }

    /// Counters and histograms.
    #[must_use]
    pub fn metrics(&self) -> &EngineMetrics {
        &self.metrics
    }

    /// Requests in the engine, running or waiting, right now (not as of the last step).
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.running() + self.waiting.len()
    }

    /// Since when there has been nothing to do; None while there is.
    #[must_use]
    pub fn idle_since(&self) -> Option<Moment> {
        self.step_ends.is_none().then_some(self.idle_since)
    }

    /// When the step in flight ends; None while there is nothing to do. Until then advancing changes nothing.
    #[must_use]
    pub fn next_step_end(&self) -> Option<Moment> {
        self.step_ends
    }

    /// The time in which a step ran, up to its present time.
    #[must_use]
    pub fn busy(&self) -> Duration {
        let in_flight = self.step_ends.map_or(0, |_| self.now.picos_since(self.step_began));
        Duration::from_nanos((self.busy_picos + in_flight) / 1000)
    }

    /// What happened since the last call, in the order of time.
    pub fn drain_events(&mut self) -> std::vec::Drain<'_, EngineEvent> {
        self.events.drain(..)
    }

    /// A request reaches the engine. Advance to `at` first; a request from the past is taken at the engine's time.
    pub fn arrive(&mut self, request: Request, at: Moment) {
        self.advance(at);
        let now = self.now;
        let longest = self.settings.max_model_len.min(self.settings.usable_blocks() * BLOCK_TOKENS);
        let length = u64::from(request.input) + u64::from(request.output);
        if request.input == 0 || request.output == 0 || length > u64::from(longest) {
            self.events.push(EngineEvent { request, at: now, kind: EventKind::Refused });
            return;
        }
        self.waiting.arrived(request, now);
        if self.step_ends.is_none() {
            self.begin_step(now);
        }
    }

    /// A request is refused for want of room in the queue. The next step is longer by what that takes.
    pub fn refuse(&mut self, takes: Duration, at: Moment) {
        self.advance(at);
        self.metrics.refused += 1;
        self.owed_picos += Moment::START.plus(takes).picos_since(Moment::START);
    }

    /// Runs all steps that end at or before `to`.
    pub fn advance(&mut self, to: Moment) {
        while let Some(ends) = self.step_ends.filter(|ends| *ends <= to) {
            self.finish_step(ends);
            let short_cut = self.macro_steps && self.owed_picos == 0;
            let at = if short_cut { self.decode_steps(ends, to) } else { ends };
            self.begin_step(at);
        }
        self.now = self.now.max(to);
    }

    /// Stops the engine: everything in it is aborted. vLLM doesn't count these anywhere.
    pub fn abort(&mut self, at: Moment) {
        self.advance(at);
        let at = self.now;
        self.settle(at);
        let running = self.tail.drain(..).map(|sequence| sequence.request);
        let aborted = running.chain(self.waiting.drain());
        self.events.extend(aborted.map(|request| EngineEvent { request, at, kind: EventKind::Aborted }));
        if self.step_ends.take().is_some() {
            self.busy_picos += self.now.picos_since(self.step_began);
        }
        self.left_waiting = 0;
        self.owed_picos = 0;
        self.free_blocks = self.settings.usable_blocks();
        self.idle_since = self.now;
        self.metrics.gauges = Gauges::default();
    }

    /// Schedules a step that begins `at`; none when there is nothing to do.
    fn begin_step(&mut self, at: Moment) {
        let mut step = StepSum { budget: self.settings.token_budget, ..StepSum::default() };
        let preempted = self.schedule_counted(&mut step, at).unwrap_or_else(|| {
            self.settle(at);
            self.schedule_running(&mut step, at)
        });
        if !preempted {
            self.admit_waiting(&mut step, at);
        }
        self.left_waiting = self.waiting.len() as u32;
        self.step_began = at;
        if step.sequences == 0 && step.prompt_tokens == 0 {
            self.step_ends = None;
            self.idle_since = at;
            return;
        }
        let picos =
            self.settings.law.picos(step.prompt_tokens, step.sequences, step.context, step.pairs_twice);
        self.step_ends = Some(at.plus_picos(picos + std::mem::take(&mut self.owed_picos)));
    }

    /// Gives running requests their tokens, in order. True when one had to be preempted.
    fn schedule_running(&mut self, step: &mut StepSum, at: Moment) -> bool {
        let mut preempted = false;
        let mut index = 0;
        while index < self.tail.len() {
            let sequence = &self.tail[index];
            let tokens = sequence.pending().min(step.budget);
            let wanted = blocks_for(sequence.computed + tokens).saturating_sub(sequence.blocks);
            while self.free_blocks < wanted && self.tail.len() > index {
                self.preempt_last(at);
                preempted = true;
            }
            // It was itself the last one.
            let Some(sequence) = self.tail.get_mut(index) else { break };
            self.free_blocks -= wanted;
            sequence.blocks += wanted;
            step.add(sequence, tokens);
            index += 1;
        }
        preempted
    }

    /// Takes the last running request out; what it had computed is lost. The last step ended `at`.
    fn preempt_last(&mut self, at: Moment) {
        let Some(mut last) = self.tail.pop().or_else(|| self.decoders.pop_last(at)) else { return };
        self.free_blocks += last.blocks;
        last.blocks = 0;
        last.computed = 0;
        last.scheduled = 0;
        last.preemptions += 1;
        self.metrics.preemptions += 1;
        self.waiting.preempted(last);
    }

    /// Takes waiting requests into the running batch while there is room.
    fn admit_waiting(&mut self, step: &mut StepSum, at: Moment) {
        while step.budget > 0 && self.front_fits() {
            let Some(mut sequence) = self.waiting.pop() else { return };
            let cached = sequence.request.cached.min(sequence.known() - 1);
            sequence.computed = cached;
            let tokens = sequence.pending().min(step.budget);
            sequence.blocks = blocks_for(cached + tokens);
            self.free_blocks -= sequence.blocks;
            if sequence.admitted.is_none() {
                sequence.admitted = Some(at);
                self.metrics.prefix_queries += u64::from(sequence.request.input);
                self.metrics.prefix_hits += u64::from(cached);
                self.events.push(EngineEvent { request: sequence.request, at, kind: EventKind::Admitted });
            }
            step.add(&mut sequence, tokens);
            self.tail.push(sequence);
        }
    }

    /// Is there a waiting request, a free sequence slot, and room for the whole of its tokens?
    fn front_fits(&self) -> bool {
        self.waiting.next_tokens().is_some_and(|tokens| {
            self.running() < self.settings.max_num_seqs as usize && blocks_for(tokens) <= self.free_blocks
        })
    }

    /// Requests in the running batch.
    fn running(&self) -> usize {
        self.decoders.len() + self.tail.len()
    }

    /// Ends the step in flight: tokens come out, finished requests leave.
    fn finish_step(&mut self, at: Moment) {
        self.busy_picos += at.picos_since(self.step_began);
        let mut tokens_out = self.finish_decoders(at);
        let mut prompt_tokens_done = 0_u64;
        let mut index = 0;
        while let Some(sequence) = self.tail.get_mut(index) {
            sequence.computed += sequence.scheduled;
            let worked = std::mem::take(&mut sequence.scheduled) > 0;
            if !worked || sequence.pending() > 0 {
                index += 1;
                continue;
            }
            sequence.generated += 1;
            tokens_out += 1;
            if sequence.first_token.is_none() {
                sequence.first_token = Some(at);
                let request = sequence.request;
                let cached = request.cached.min(request.input - 1);
                prompt_tokens_done += u64::from(request.input - cached);
                self.metrics.first_token(sequence.queued, at, request.input, cached);
                self.events.push(EngineEvent { request, at, kind: EventKind::FirstToken });
            } else {
                self.metrics.inter_token.observe(at.picos_since(sequence.last_token), 1);
            }
            sequence.last_token = at;
            if sequence.generated < sequence.request.output {
                index += 1;
                continue;
            }
            let finished = self.tail.remove(index);
            self.leave(&finished, at);
        }
        self.metrics.generation_tokens += tokens_out;
        if tokens_out > 0 {
            self.metrics.iteration_tokens.observe(tokens_out + prompt_tokens_done, 1);
        }
        if self.macro_steps {
            self.gather(at);
        }
        self.note_gauges();
    }

    /// A request is done and gives its blocks back.
    fn leave(&mut self, finished: &Sequence, at: Moment) {
        self.free_blocks += finished.blocks;
        self.metrics.finished(&finished.as_finished(at));
        self.events.push(EngineEvent { request: finished.request, at, kind: EventKind::Finished });
    }

    fn note_gauges(&mut self) {
        self.metrics.gauges = Gauges {
            running: self.running() as u32,
            waiting: self.left_waiting,
            used_blocks: self.settings.usable_blocks() - self.free_blocks,
        };
    }
}

/// Blocks for so many tokens.
fn blocks_for(tokens: u32) -> u32 {
    tokens.div_ceil(BLOCK_TOKENS)
}
