//! What a simulated replica is made of: the cost of a scheduler step, and the size of its KV cache. Pure.

/// Tokens of a KV block, vLLM's default.
pub const BLOCK_TOKENS: u32 = 16;

/// Picoseconds in a millisecond, a microsecond and a nanosecond.
const PICOS: [f64; 3] = [1e9, 1e6, 1e3];

/// How long one step of the scheduler takes: `a + b P + c B + d K + e S`.
///
/// P: prompt tokens computed in the step; B: sequences that decode; K: tokens of their contexts; S: for each chunk of a
/// prompt, its tokens times the mean context that they attend to. The form fits measured vLLM 0.19 runs within 2.3 % over
/// mean, p50, p90 and p99 of TTFT, TPOT and latency (the runs are published with `LLMServingSim`, MIT licence).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepLaw {
    base: u64,
    prompt_token: u64,
    sequence: u64,
    context_token: u64,
    attended_pair: u64,
}

impl StepLaw {
    /// From `a` in milliseconds, `b` and `c` in microseconds, `d` and `e` in nanoseconds.
    #[must_use]
    pub fn new(a_ms: f64, b_us: f64, c_us: f64, d_ns: f64, e_ns: f64) -> Self {
        Self {
            base: (a_ms * PICOS[0]).round() as u64,
            prompt_token: (b_us * PICOS[1]).round() as u64,
            sequence: (c_us * PICOS[1]).round() as u64,
            context_token: (d_ns * PICOS[2]).round() as u64,
            attended_pair: (e_ns * PICOS[2]).round() as u64,
        }
    }

    /// The length of a step, picoseconds. `pairs_twice` is 2 S, which is whole.
    #[must_use]
    pub fn picos(&self, prompt_tokens: u64, sequences: u64, context_tokens: u64, pairs_twice: u64) -> u64 {
        self.base
            + self.prompt_token * prompt_tokens
            + self.sequence * sequences
            + self.context_token * context_tokens
            + self.attended_pair * pairs_twice / 2
    }
}

/// A simulated vLLM engine: `vllm serve` on one kind of GPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EngineSettings {
    /// The cost of a step.
    pub law: StepLaw,
    /// KV blocks of [`BLOCK_TOKENS`] tokens, as the page tells it; one of them is vLLM's null block.
    pub kv_blocks: u32,
    /// `--max-num-seqs`.
    pub max_num_seqs: u32,
    /// `--max-num-batched-tokens`: tokens that one step may compute.
    pub token_budget: u32,
    /// `--max-model-len`: prompt and output of one request.
    pub max_model_len: u32,
}

impl EngineSettings {
    /// From a step law and the KV tokens that fit; the other settings are vLLM's defaults for online serving.
    #[must_use]
    pub fn new(law: StepLaw, kv_tokens: u32) -> Self {
        Self {
            law,
            kv_blocks: kv_tokens / BLOCK_TOKENS + 1,
            max_num_seqs: 256,
            token_budget: 2048,
            max_model_len: 8192.min(kv_tokens / BLOCK_TOKENS * BLOCK_TOKENS),
        }
    }

    /// RTX 4090 with an 8B model in BF16: fitted to real vLLM 0.19 runs published with `LLMServingSim` (MIT), 41,408 KV
    /// tokens. KV binds at about 33 requests, so that a KV target means something here; the demo's default.
    #[must_use]
    pub fn rtx4090_8b() -> Self {
        Self::new(StepLaw::new(19.0, 85.0, 7.0, 108.0, 7.9), 41_408)
    }

    /// A100 80 GB with an 8B model in BF16, by the datasheet rule; prefill from Vidur's profiles (MIT).
    #[must_use]
    pub fn a100_8b() -> Self {
        Self::new(StepLaw::new(10.5, 71.0, 45.0, 71.0, 4.2), 404_000)
    }

    /// H100 with an 8B model in BF16, by the datasheet rule.
    #[must_use]
    pub fn h100_8b() -> Self {
        Self::new(StepLaw::new(6.8, 23.0, 45.0, 43.0, 1.3), 404_000)
    }

    /// A10G with an 8B model in 4 bits (W4A16), by the datasheet rule (70 dense FP16 TFLOPS, 600 GB/s, 24 GB); nobody
    /// measured it here.
    #[must_use]
    pub fn a10g_8b() -> Self {
        Self::new(StepLaw::new(12.4, 357.0, 45.0, 240.0, 18.7), 98_000)
    }

    /// KV blocks that sequences can take: all but the null block.
    #[must_use]
    pub fn usable_blocks(&self) -> u32 {
        self.kv_blocks.saturating_sub(1)
    }

    /// Prompt tokens a second of a replica that does nothing else.
    #[must_use]
    pub fn input_tokens_per_second(&self) -> f64 {
        let budget = u64::from(self.token_budget);
        budget as f64 * 1e12 / (self.law.picos(budget, 0, 0, budget * budget) - self.law.base) as f64
    }

    /// Output tokens a second of a replica that only decodes, with `kv_share` of its KV cache in use by contexts of
    /// `mean_context` tokens.
    #[must_use]
    pub fn output_tokens_per_second(&self, mean_context: f64, kv_share: f64) -> f64 {
        let kv_tokens = f64::from(self.usable_blocks() * BLOCK_TOKENS);
        let batch = (kv_tokens * kv_share / mean_context).clamp(1.0, f64::from(self.max_num_seqs)).floor();
        batch * 1e12 / self.law.picos(0, batch as u64, (batch * mean_context) as u64, 0) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_step_law_is_the_sum_of_its_terms() {
        let law = StepLaw::new(19.0, 85.0, 7.0, 108.0, 0.5);
        // 19 ms + 100 x 85 us + 10 x 7 us + 12,000 x 108 ns + 5,000 x 0.5 ns
        assert_eq!(law.picos(100, 10, 12_000, 10_000), 28_868_500_000);
    }

    #[test]
    fn capacity_of_the_default_replica_is_near_three_and_a_half_requests_a_second() {
        let engine = EngineSettings::rtx4090_8b();
        let cost = 1155.0 / engine.input_tokens_per_second()
            + 211.0 / engine.output_tokens_per_second(1155.0 + 211.0 / 2.0, 0.8);
        assert!((3.2..3.8).contains(&(1.0 / cost)), "{} requests a second", 1.0 / cost);
    }
}
