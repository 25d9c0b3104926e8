//! Synthetic engines of known truth.

use proptest::prelude::*;

use super::*;

/// Small, fast and repeatable: xorshift64*.
struct Dice(u64);

impl Dice {
    fn uniform(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.uniform()).ln()
    }
}

/// A vLLM engine step by step: prefill of what arrived, one token for each running sequence, 5 % noise on a step's time.
struct Engine {
    truth: StepCost,
    dice: Dice,
    running: Vec<f64>,
    next_arrival: f64,
    clock: f64,
}

impl Engine {
    fn new(truth: StepCost, seed: u64) -> Self {
        Self { truth, dice: Dice(seed | 1), running: Vec::new(), next_arrival: 0.0, clock: 0.0 }
    }

    /// Serves for a span at a rate of requests; one sample.
    fn serve(&mut self, span: f64, rate: f64, input: f64, output: f64) -> StepSample {
        let until = self.clock + span;
        let (mut steps, mut count, mut sum, mut prefill_total, mut decode_total) = (0.0, 0.0, 0.0, 0.0, 0.0);
        while self.clock < until {
            let mut prefill = 0.0;
            // The first token of a request comes out of its prefill step and has no inter-token time.
            let decoding = self.running.len() as f64;
            while self.next_arrival <= self.clock && self.running.len() < 256 {
                prefill += self.dice.exponential(input).max(1.0);
                let length = self.dice.exponential(output).max(1.0);
                self.running.push(length);
                self.next_arrival += self.dice.exponential(1.0 / rate);
            }
            if self.running.is_empty() {
                self.clock = self.next_arrival.min(until).max(self.clock + 1e-6);
                continue;
            }
            let noise = 1.0 + 0.05 * (self.dice.uniform() * 2.0 - 1.0) * 1.7;
            let seconds = self.truth.step_seconds(prefill, decoding) * noise;
            self.clock += seconds;
            steps += 1.0;
            count += decoding;
            sum += decoding * seconds;
            prefill_total += prefill;
            decode_total += self.running.len() as f64;
            self.running.retain_mut(|left| {
                *left -= 1.0;
                *left > 0.0
            });
        }
        StepSample {
            steps,
            inter_token_count: count,
            inter_token_mean_seconds: sum / count.max(1.0),
            prefill_tokens_per_step: prefill_total / steps.max(1.0),
            decode_tokens_per_step: decode_total / steps.max(1.0),
        }
    }
}

fn learn(engine: &mut Engine, minutes: u32, traffic: impl Fn(f64) -> (f64, f64, f64)) -> Fit {
    let (mut fit, mut pending) = (Fit::default(), Pending::default());
    for n in 0..minutes * 4 {
        let (rate, input, output) = traffic(f64::from(n) / f64::from(minutes * 4));
        let sample = engine.serve(15.0, rate, input, output);
        if let Some(row) = pending.add(&sample) {
            fit.add(row, f64::from(n) * 15.0);
        }
    }
    fit.judge();
    fit
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    /// Step laws as fitted to real vLLM servers: 5 to 25 ms a step, a prefill token at 0.3 to 0.8 % of that (8B on H100,
    /// A100 and L40S, 70B FP8 on two H100). Four hours, each a ramp.
    #[test]
    fn mixed_traffic_teaches_the_truth(
        seed in any::<u64>(),
        alpha in 0.005_f64..0.025,
        prefill_share in 0.003_f64..0.008,
        delta in 40e-6_f64..300e-6,
    ) {
        let truth = StepCost { alpha, beta: alpha * prefill_share, delta };
        // Up to about two thirds of what the engine can do.
        let most = 0.6 / (1500.0 * truth.beta + 250.0 * (alpha / 32.0 + delta));
        let ramps = |t: f64| (most * (0.1 + 0.9 * (t * 4.0).fract()), 1500.0, 250.0);
        let fit = learn(&mut Engine::new(truth, seed), 240, ramps);
        let found = fit.accepted().copied();
        prop_assert!(found.is_some(), "{}", fit.refusal());
        let found = found.unwrap();
        prop_assert!((found.alpha / alpha - 1.0).abs() < 0.05, "alpha {} against {alpha}", found.alpha);
        prop_assert!((found.beta / truth.beta - 1.0).abs() < 0.15, "beta {} against {}", found.beta, truth.beta);
    }
}

fn row(prefill: f64, decode: f64, truth: StepCost) -> Row {
    Row { weight: 500.0, seconds: truth.step_seconds(prefill, decode), prefill, decode }
}

const TRUTH: StepCost = StepCost { alpha: 0.0065, beta: 63e-6, delta: 0.0002 };

#[test]
fn a_constant_ratio_of_input_to_output_is_refused_and_said() {
    let mut fit = Fit::default();
    for n in 0..500 {
        let decode = 4.0 + f64::from(n % 60);
        fit.add(row(6.0 * decode, decode, TRUTH), f64::from(n) * 5.0);
    }
    fit.judge();
    assert_eq!(fit.accepted(), None);
    assert!(fit.refusal().contains("ill-conditioned"), "{}", fit.refusal());
}

#[test]
fn a_load_that_never_changes_is_refused() {
    let mut fit = Fit::default();
    for n in 0..500 {
        fit.add(row(120.0, 16.0, TRUTH), f64::from(n) * 5.0);
    }
    fit.judge();
    assert_eq!(fit.accepted(), None);
}

#[test]
fn too_few_rows_say_nothing() {
    let mut fit = Fit::default();
    for n in 0..40 {
        fit.add(row(f64::from(n * 37 % 400), 4.0 + f64::from(n % 13), TRUTH), f64::from(n) * 5.0);
    }
    fit.judge();
    assert_eq!(fit.accepted(), None);
    assert_eq!(fit.refusal(), "40 of 60 rows seen");
}

#[test]
fn short_intervals_are_added_up_to_a_row() {
    let mut pending = Pending::default();
    let sample = StepSample {
        steps: 10.0,
        inter_token_count: 80.0,
        inter_token_mean_seconds: 0.01,
        prefill_tokens_per_step: 5.0,
        decode_tokens_per_step: 8.0,
    };
    assert_eq!(pending.add(&sample), None);
    assert_eq!(pending.add(&sample), None);
    let row = pending.add(&sample).unwrap();
    assert!((row.weight - 30.0).abs() < 1e-9 && (row.seconds - 0.01).abs() < 1e-12);
    assert_eq!(pending, Pending::default());
}

#[test]
fn another_engine_drops_what_was_learned() {
    let feed = |fit: &mut Fit, from: u32, truth: StepCost| {
        for n in from..from + 200 {
            fit.add(row(f64::from(n * 37 % 400), 4.0 + f64::from(n % 13), truth), f64::from(n) * 5.0);
        }
        fit.judge();
    };
    let mut fit = Fit::default();
    feed(&mut fit, 0, TRUTH);
    assert!(fit.accepted().is_some());
    let slower = StepCost { alpha: 0.013, beta: 126e-6, delta: 0.0004 };
    feed(&mut fit, 200, slower);
    let found = fit.accepted().copied().unwrap();
    assert!((found.beta / slower.beta - 1.0).abs() < 0.01, "{found:?}");
}

#[test]
fn what_was_accepted_outlives_a_quiet_time_that_teaches_nothing() {
    let mut fit = Fit::default();
    for n in 0..200 {
        fit.add(row(f64::from(n * 37 % 400), 4.0 + f64::from(n % 13), TRUTH), f64::from(n) * 5.0);
    }
    fit.judge();
    for n in 0..200_000 {
        fit.add(row(12.0, 2.0, TRUTH), 1_000.0 + f64::from(n) * 15.0);
    }
    fit.judge();
    assert!(!fit.refusal().is_empty());
    assert!(fit.accepted().is_some());
}
