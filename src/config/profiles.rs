//! What a replica can serve when nobody has measured it: a table by declared GPU, model size and precision.
//!
//! Each row is one replica of vLLM on the named GPUs. The input rate is the speed of prefill by the data sheet,
//! 2 x parameters / (FLOPS x MFU), with MFU 0.65-0.70 on A100 and H100, 0.5 on L40S, 0.4-0.6 on L4 and A10G. The output
//! rate is what remains: chosen so that the mean request of the Azure LLM inference trace of 2023 (conversation, 1,155
//! tokens in, 211 out) fills the replica exactly at the rate that a simulated replica could serve with a 99th
//! percentile of time to first token of 2-6 s and 60-150 ms an output token. KV tokens are what 90 % of the memory
//! leaves beside the weights. The 70B rows lie within a quarter of published vLLM runs on H100 and H200 (NVIDIA
//! aiconfigurator); those of L4 and A10G are estimates. A measured number in the file is always better, and the
//! online fit better still.

use super::quantity::quoted;
use crate::decision::policy::TokenRates;

/// One row: a replica's hardware and model, and what it serves.
struct Profile {
    gpu: &'static str,
    gpus: u32,
    billions: f64,
    precision: &'static str,
    input: f64,
    output: f64,
    kv_tokens: f64,
}

const fn row(
    (gpus, gpu): (u32, &'static str),
    (billions, precision): (f64, &'static str),
    (input, output): (f64, f64),
    kv_tokens: f64,
) -> Profile {
    Profile { gpu, gpus, billions, precision, input, output, kv_tokens }
}

const PROFILES: &[Profile] = &[
    row((1, "L4"), (8.0, "w4a16"), (3_200.0, 510.0), 98e3),
    row((1, "L4"), (8.0, "bf16"), (3_200.0, 100.0), 19e3),
    row((1, "A10G"), (8.0, "w4a16"), (2_800.0, 420.0), 98e3),
    row((1, "A10G"), (8.0, "bf16"), (2_800.0, 170.0), 19e3),
    row((1, "L40S"), (8.0, "bf16"), (12_000.0, 1_210.0), 184e3),
    row((1, "A100"), (8.0, "bf16"), (14_100.0, 3_470.0), 404e3),
    row((1, "H100"), (8.0, "bf16"), (43_500.0, 6_970.0), 404e3),
    row((1, "H200"), (8.0, "bf16"), (43_500.0, 7_840.0), 823e3),
    row((1, "H200"), (70.0, "fp8"), (7_400.0, 1_270.0), 158e3),
    row((2, "H100"), (70.0, "fp8"), (14_700.0, 2_890.0), 201e3),
    row((4, "H100"), (70.0, "fp8"), (29_400.0, 6_560.0), 623e3),
    row((4, "A100"), (70.0, "bf16"), (6_100.0, 1_010.0), 412e3),
];

/// A model may be this many times larger or smaller than a row's for the row to be scaled to it.
const MAX_SCALE: f64 = 2.0;

/// What a tier gets that declares nothing, and its name.
///
/// The slowest of the data-centre rows (4 x A100 with 70B in bf16). Slower still would be no safer: where it is too
/// fast for a small GPU, the KV cache and waiting asks still see the load, while nothing but `max` would stop a rate
/// that is ten times too slow from buying ten times the replicas.
pub(super) const CONSERVATIVE: TokenRates =
    TokenRates { input_tokens_per_second: 6_000.0, output_tokens_per_second: 1_000.0 };
pub(super) const CONSERVATIVE_NAME: &str = "conservative default";

/// Capacity by the table.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Capacity {
    pub(super) rates: TokenRates,
    /// Only for a model of the row's own size: the KV cache of another shape is not to be guessed.
    pub(super) kv_tokens: Option<f64>,
    /// For people: `profile 2xH100 70B fp8`.
    pub(super) name: String,
}

/// Checks that the table has this GPU: `H100` or `2xH100`, in any case.
pub(super) fn gpu(text: &str) -> Result<String, String> {
    let known = parse_gpu(text).filter(|(_, kind)| PROFILES.iter().any(|row| row.gpu == kind));
    known.map(|(gpus, kind)| format!("{gpus}x{kind}")).ok_or_else(|| {
        let mut kinds: Vec<&str> = PROFILES.iter().map(|row| row.gpu).collect();
        kinds.dedup();
        kinds.sort_unstable();
        kinds.dedup();
        format!("{} is not in the table: write one of {}, with a number before it where a replica has several, such as 2xH100, or give `inputTokensPerSecond` and `outputTokensPerSecond`", quoted(text), kinds.join(", "))
    })
}

fn parse_gpu(text: &str) -> Option<(u32, String)> {
    let upper = text.trim().to_ascii_uppercase();
    match upper.split_once('X') {
        Some((number, kind)) => {
            Some((number.parse().ok().filter(|n| (1..=64).contains(n))?, kind.to_owned()))
        }
        None => Some((1, upper)),
    }
}

/// Looks up a replica's capacity. A model between the sizes of the table scales the nearest row, within a factor of
/// two: prefill and the reading of weights both go with the number of parameters. Without a precision the slowest row
/// of the nearest size counts.
///
/// # Errors
/// When no row is near, with those that the GPU has.
pub(super) fn capacity(gpu: &str, billions: f64, precision: Option<&str>) -> Result<Capacity, String> {
    let (gpus, kind) = parse_gpu(gpu).unwrap_or_default();
    let ratio = |row: &Profile| (billions / row.billions).max(row.billions / billions);
    let fits = |row: &&Profile| {
        row.gpu == kind && row.gpus == gpus && precision.is_none_or(|wanted| wanted == row.precision)
    };
    let nearest = PROFILES
        .iter()
        .filter(fits)
        .filter(|row| ratio(row) <= MAX_SCALE)
        .min_by(|a, b| ratio(a).total_cmp(&ratio(b)).then(a.output.total_cmp(&b.output)));
    let Some(row) = nearest else {
        let rows: Vec<String> = PROFILES.iter().filter(|row| row.gpu == kind).map(Profile::name).collect();
        return Err(format!(
            "the table has no {gpu} with {billions}B{} (it has {}): give `inputTokensPerSecond` and `outputTokensPerSecond`",
            precision.map(|name| format!(" in {name}")).unwrap_or_default(),
            rows.join(", ")
        ));
    };
    let scale = row.billions / billions;
    let exact = (scale - 1.0).abs() < 1e-9;
    Ok(Capacity {
        rates: TokenRates {
            input_tokens_per_second: row.input * scale,
            output_tokens_per_second: row.output * scale,
        },
        kv_tokens: exact.then_some(row.kv_tokens),
        name: if exact {
            format!("profile {}", row.name())
        } else {
            format!("profile {} scaled to {billions}B", row.name())
        },
    })
}

impl Profile {
    fn name(&self) -> String {
        let gpu = if self.gpus == 1 { self.gpu.to_owned() } else { format!("{}x{}", self.gpus, self.gpu) };
        format!("{gpu} {}B {}", self.billions, self.precision)
    }
}

/// The table for the reference.
pub(super) fn markdown() -> String {
    let row =
        |row: &Profile| format!("| {} | {} | {} | {} |\n", row.name(), row.input, row.output, row.kv_tokens);
    let head = "| replica | input tokens/s | output tokens/s | KV tokens |\n| --- | ---: | ---: | ---: |\n";
    std::iter::once(head.to_owned()).chain(PROFILES.iter().map(row)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_declared_gpu_and_model_give_the_row_of_the_table() {
        let found = capacity("2xH100", 70.0, Some("fp8")).unwrap();
        assert_eq!(found.name, "profile 2xH100 70B fp8");
        assert!((found.rates.output_tokens_per_second - 2_890.0).abs() < 1e-9);
        assert_eq!(found.kv_tokens, Some(201e3));
    }

    #[test]
    fn without_a_precision_the_slower_row_counts() {
        assert_eq!(capacity("L4", 8.0, None).unwrap().name, "profile L4 8B bf16");
        assert_eq!(capacity("L4", 8.0, Some("w4a16")).unwrap().name, "profile L4 8B w4a16");
    }

    #[test]
    fn a_near_model_scales_the_row_and_a_far_one_is_refused() {
        let found = capacity("H100", 14.0, None).unwrap();
        assert_eq!(found.name, "profile H100 8B bf16 scaled to 14B");
        assert!((found.rates.input_tokens_per_second - 43_500.0 * 8.0 / 14.0).abs() < 1e-6);
        assert_eq!(found.kv_tokens, None);
        let message = capacity("H100", 70.0, None).unwrap_err();
        assert!(message.contains("no H100 with 70B (it has H100 8B bf16, 2xH100 70B fp8"), "{message}");
        assert!(capacity("L4", 8.0, Some("fp8")).is_err());
    }

    #[test]
    fn a_gpu_is_known_or_refused_with_those_that_are() {
        assert_eq!(gpu("h100"), Ok("1xH100".to_owned()));
        assert_eq!(gpu("4xA100"), Ok("4xA100".to_owned()));
        for text in ["B300", "xH100", "0xH100", "x", "", "65xH100"] {
            assert!(gpu(text).unwrap_err().contains("A100, A10G, H100, H200, L4, L40S"), "{text}");
        }
    }

    #[test]
    fn the_mean_request_of_the_azure_trace_fills_a_replica_at_a_plausible_rate() {
        for row in PROFILES {
            let requests_a_second = 1.0 / (1_155.0 / row.input + 211.0 / row.output);
            assert!((0.3..20.0).contains(&requests_a_second), "{}: {requests_a_second}", row.name());
            assert!(row.output < row.input, "{}", row.name());
        }
    }
}
