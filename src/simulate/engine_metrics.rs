//! The counters and histograms of a simulated engine: those of vLLM 0.32, observed at the same events. Pure.

use super::distribution::Distribution;
use super::moment::Moment;

/// Bounds of the time-to-first-token histogram, seconds (vLLM 0.8.5 to 0.32).
const FIRST_TOKEN_BOUNDS: [f64; 22] = [
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0,
    80.0, 160.0, 640.0, 2560.0,
];
/// Bounds of the inter-token histograms, seconds (vLLM 0.32).
const INTER_TOKEN_BOUNDS: [f64; 19] = [
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
];
/// Bounds of the request time histograms, seconds (vLLM 0.32).
const REQUEST_TIME_BOUNDS: [f64; 21] = [
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0,
    960.0, 1920.0, 7680.0,
];
/// Bounds of the tokens-per-step histogram (vLLM 0.32).
const STEP_TOKEN_BOUNDS: [u64; 13] = [1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16_384];
/// Bounds of the histogram of the request parameter `n` (vLLM 0.32).
const PARAMS_N_BOUNDS: [u64; 5] = [1, 2, 5, 10, 20];
/// Bounds of the preemptions-per-request histogram (vLLM 0.30 and later).
const PREEMPTION_BOUNDS: [u64; 7] = [1, 2, 3, 4, 5, 10, 20];

/// The times and sizes of a request that has just finished.
#[derive(Clone, Copy, Debug)]
pub struct FinishedRequest {
    /// When the engine got it.
    pub queued: Moment,
    /// When it first entered the running batch.
    pub admitted: Moment,
    /// When its first token was out.
    pub first_token: Moment,
    /// When its last token was out.
    pub last_token: Moment,
    /// Prompt tokens.
    pub input: u32,
    /// Prompt tokens found in the prefix cache.
    pub cached: u32,
    /// Output tokens.
    pub output: u32,
    /// How often it was preempted.
    pub preemptions: u32,
}

/// Gauges as the scheduler left them at the end of its last step; vLLM's page shows no newer ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Requests in the running batch.
    pub running: u32,
    /// Requests waiting for capacity.
    pub waiting: u32,
    /// KV blocks in use.
    pub used_blocks: u32,
}

/// All of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineMetrics {
    /// See [`Gauges`].
    pub gauges: Gauges,
    /// Preemptions for want of KV blocks.
    pub preemptions: u64,
    /// Prompt tokens of requests whose prefill is done.
    pub prompt_tokens: u64,
    /// The part of them that was found in the prefix cache.
    pub cached_prompt_tokens: u64,
    /// Output tokens.
    pub generation_tokens: u64,
    /// Prompt tokens looked up in the prefix cache, at admission.
    pub prefix_queries: u64,
    /// The part of them that was found, at admission.
    pub prefix_hits: u64,
    /// Requests that ended by themselves.
    pub finished: u64,
    /// Requests refused because as many waited as may.
    pub refused: u64,
    /// Prompt tokens of a request.
    pub request_prompt_tokens: Distribution,
    /// Output tokens of a request.
    pub request_generation_tokens: Distribution,
    /// Tokens of a step.
    pub iteration_tokens: Distribution,
    /// The request parameter `n`.
    pub request_params_n: Distribution,
    /// Time to first token.
    pub time_to_first_token: Distribution,
    /// Time between tokens.
    pub inter_token: Distribution,
    /// Mean time between tokens of a request.
    pub time_per_output_token: Distribution,
    /// Arrival to last token.
    pub e2e: Distribution,
    /// Arrival to the running batch.
    pub queue_time: Distribution,
    /// Running batch to last token.
    pub inference_time: Distribution,
    /// Running batch to first token.
    pub prefill_time: Distribution,
    /// First to last token.
    pub decode_time: Distribution,
    /// Preemptions of a request.
    pub request_preemptions: Distribution,
    /// Prompt tokens that were computed.
    pub prefill_kv_computed: Distribution,
}

impl EngineMetrics {
    /// All zero; the bounds of the token histograms depend on the longest request.
    #[must_use]
    pub fn new(max_model_len: u32) -> Self {
        let tokens = || Distribution::new(one_two_five(u64::from(max_model_len)));
        let request_time = || Distribution::of_seconds(&REQUEST_TIME_BOUNDS);
        Self {
            gauges: Gauges::default(),
            preemptions: 0,
            prompt_tokens: 0,
            cached_prompt_tokens: 0,
            generation_tokens: 0,
            prefix_queries: 0,
            prefix_hits: 0,
            finished: 0,
            refused: 0,
            request_prompt_tokens: tokens(),
            request_generation_tokens: tokens(),
            iteration_tokens: Distribution::new(STEP_TOKEN_BOUNDS.to_vec()),
            request_params_n: Distribution::new(PARAMS_N_BOUNDS.to_vec()),
            time_to_first_token: Distribution::of_seconds(&FIRST_TOKEN_BOUNDS),
            inter_token: Distribution::of_seconds(&INTER_TOKEN_BOUNDS),
            time_per_output_token: Distribution::of_seconds(&INTER_TOKEN_BOUNDS),
            e2e: request_time(),
            queue_time: request_time(),
            inference_time: request_time(),
            prefill_time: request_time(),
            decode_time: request_time(),
            request_preemptions: Distribution::new(PREEMPTION_BOUNDS.to_vec()),
            prefill_kv_computed: tokens(),
        }
    }

    /// A request's prompt is done and its first token out: vLLM counts prompt tokens here, not at admission.
    pub fn first_token(&mut self, queued: Moment, at: Moment, input: u32, cached: u32) {
        self.prompt_tokens += u64::from(input);
        self.cached_prompt_tokens += u64::from(cached);
        self.time_to_first_token.observe(at.picos_since(queued), 1);
    }

    /// A request is done: vLLM observes its times and sizes only now.
    pub fn finished(&mut self, done: &FinishedRequest) {
        self.finished += 1;
        self.request_prompt_tokens.observe(u64::from(done.input), 1);
        self.request_generation_tokens.observe(u64::from(done.output), 1);
        self.request_params_n.observe(1, 1);
        let decode = done.last_token.picos_since(done.first_token);
        // A request of one token has no time between tokens; vLLM observes 0.
        self.time_per_output_token.observe(decode / u64::from(done.output.saturating_sub(1).max(1)), 1);
        self.e2e.observe(done.last_token.picos_since(done.queued), 1);
        self.queue_time.observe(done.admitted.picos_since(done.queued), 1);
        self.inference_time.observe(done.last_token.picos_since(done.admitted), 1);
        self.prefill_time.observe(done.first_token.picos_since(done.admitted), 1);
        self.decode_time.observe(decode, 1);
        self.request_preemptions.observe(u64::from(done.preemptions), 1);
        self.prefill_kv_computed.observe(u64::from(done.input - done.cached.min(done.input)), 1);
    }
}

/// 1, 2, 5, 10, 20, 50 ... up to `largest`: vLLM's token bounds.
fn one_two_five(largest: u64) -> Vec<u64> {
    let mut bounds = Vec::new();
    let mut power = 1;
    loop {
        for mantissa in [1, 2, 5] {
            if mantissa * power > largest {
                return bounds;
            }
            bounds.push(mantissa * power);
        }
        power *= 10;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_bounds_end_at_the_longest_request() {
        assert_eq!(one_two_five(1024), [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]);
        assert_eq!(one_two_five(5).len(), 3);
    }
}
