//! `backtest --fidelity requests`: the trace request by request.

use std::process::ExitCode;

use serde::Serialize;

use super::super::BadFlag;
use super::{Args, most_slots, print, read, settings, with_progress};
use crate::backtest::requests::side_by_side::table;
use crate::backtest::requests::{PlayedRow, SideBySide, TraceSettings};
use crate::simulate::EngineSettings;

/// The days that are played unless told: a day of millions of requests is seconds a policy.
const USUAL_DAYS: f64 = 1.0;

/// How the fleet is modelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Fidelity {
    /// Work as a fluid, in slots of 5 s.
    Fluid,
    /// Request by request.
    Requests,
}

/// A replica's engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Profile {
    /// A100 80 GB, an 8B model in BF16.
    #[value(name = "a100-8b")]
    A100,
    /// H100, an 8B model in BF16.
    #[value(name = "h100-8b")]
    H100,
    /// RTX 4090, an 8B model in BF16.
    #[value(name = "rtx4090-8b")]
    Rtx4090,
}

impl Profile {
    /// With room for the longest prompts of public traces, where the KV cache has it.
    fn engine(self) -> EngineSettings {
        const LONGEST: u32 = 32_768;
        let engine = match self {
            Self::A100 => EngineSettings::a100_8b(),
            Self::H100 => EngineSettings::h100_8b(),
            Self::Rtx4090 => EngineSettings::rtx4090_8b(),
        };
        EngineSettings { max_model_len: LONGEST, ..engine }
    }
}

/// What is printed as JSON.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Played {
    days: f64,
    scale: f64,
    requests_per_second_of_a_replica: f64,
    rows: Vec<PlayedRow>,
}

/// Runs it.
///
/// # Errors
/// As the command.
pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let fluid = settings(args)?;
    let trace = read(&args.trace, most_slots(Some(args.days.unwrap_or(USUAL_DAYS)))?)?;
    let settings = TraceSettings {
        calibrated: args.policy.is_none(),
        engine: args.profile.engine(),
        peak_replicas: f64::from(fluid.peak_replicas),
        scale: None,
        cold_start: fluid.cold_start,
        acceptable_queue: fluid.acceptable_queue,
        begins: fluid.begins,
        seed: args.seed,
        policy: fluid.policy,
        chain: fluid.chain,
    };
    let side_by_side = SideBySide::new(&trace, settings)
        .ok_or_else(|| BadFlag(format!("--trace {}: nothing arrives in this trace", args.trace.display())))?;
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let rows = with_progress(|| side_by_side.progress(), || side_by_side.run(threads));
    let days = trace.slots.len() as f64 * crate::backtest::SLOT_SECONDS / 86_400.0;
    let rate = side_by_side.capacity().requests_per_second;
    if args.json {
        let played =
            Played { days, scale: side_by_side.scale(), requests_per_second_of_a_replica: rate, rows };
        return print(&format!("{}\n", serde_json::to_string_pretty(&played)?));
    }
    let requests = rows.first().map_or(0, |row| row.score.requests);
    print(&format!(
        "{days:.2} days, {requests} requests, peak {} replicas of {rate:.2} requests/s each, late after {} s of queue\n\n{}",
        args.peak_replicas,
        fluid.acceptable_queue.as_secs_f64(),
        table(&rows)
    ))
}
