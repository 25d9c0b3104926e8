//! `backtest --fidelity requests`: the trace request by request.

use crate::backtest::requests::{SideBySide, TraceSettings};
use crate::backtest::work::Size;
use crate::backtest::{Backtest, Report};
use crate::simulate::EngineSettings;

use super::plan::Plan;
use super::progress::with_progress;
use super::{Args, BadFlag, inputs};

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

/// Plays it, a row at a time on each core.
///
/// # Errors
/// As the command.
pub(super) async fn run(args: &Args, plan: Plan) -> anyhow::Result<Report> {
    let traffic = plan.traffic.clone();
    let arrived = inputs::read(&traffic, plan.most_slots).await?;
    let calibrated = plan.believes_in_no_capacity();
    let mut settings = plan.settings(&arrived)?;
    let trace = arrived.trace;
    if settings.split {
        let told = "--split: only as a fluid. It asks what each policy would have paid had it known more, which is known of work and not of single requests: leave out --fidelity requests, or --split";
        return Err(BadFlag(told.to_owned()).into());
    }
    let nothing = || BadFlag(format!("{}: nothing arrives in this trace", traffic.named()));
    let side_by_side = SideBySide::new(
        &trace,
        TraceSettings {
            policies: settings.policies.clone(),
            calibrated,
            rivals: std::mem::take(&mut settings.rivals),
            engine: args.profile.unwrap_or(Profile::A100).engine(),
            size: settings.size,
            cold_start: settings.cold_start,
            acceptable_queue: settings.acceptable_queue,
            score_from: settings.score_from,
            begins: settings.begins,
            seed: settings.seed,
        },
    )
    .ok_or_else(nothing)?;
    let capacity = side_by_side.capacity();
    // What the bound is worked out on.
    settings.rates = capacity.rates;
    settings.size = Size::Scale(side_by_side.scale());
    let bound =
        Backtest::new(&trace, settings).map_err(|error| BadFlag(format!("{}: {error}", traffic.named())))?;
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let rows = with_progress(|| side_by_side.progress(), || side_by_side.run(threads));
    Ok(bound.report_of_requests(rows, capacity))
}
