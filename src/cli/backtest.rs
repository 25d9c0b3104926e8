//! The command `backtest`: what a trace would have cost under these policies, under others, and with hindsight.

use std::path::PathBuf;
use std::process::ExitCode;

use chrono::{DateTime, Utc};

use super::BadFlag;
use super::print::{answer, aside};
use crate::backtest::{Backtest, Report};
use crate::config::scenario::wall_clock;

mod calibrate;
mod inputs;
mod lesson;
mod page_file;
mod plan;
mod progress;
mod replay;
mod requests;

use inputs::{TrafficDetails, TrafficFlags};
use page_file::PageFile;
use plan::Plan;
use progress::with_progress;
use requests::{Fidelity, Profile};

/// What else `backtest` does.
#[derive(Debug, clap::Subcommand)]
enum Other {
    /// Fit the cost of a scheduler step to a log of requests, and say how far off it is.
    Calibrate(calibrate::Args),
    /// What scaling LLM replicas teaches: ready scenarios, each with its table, its picture and what to see.
    Lesson(lesson::Args),
}

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    allow_negative_numbers = true
)]
pub struct Args {
    #[command(subcommand)]
    other: Option<Other>,
    /// A scenario: YAML with the load, the fleet and the policies. A flag goes before what it says.
    #[arg(value_name = "SCENARIO")]
    scenario: Option<PathBuf>,
    #[command(flatten)]
    traffic: TrafficFlags,
    #[command(flatten)]
    details: TrafficDetails,
    /// Instead of a trace: a recording of a running scaler, or the folder of one. Every decision is made again and compared.
    #[arg(
        long,
        value_name = "FILE|DIR",
        conflicts_with_all = ["scenario", "traffic", "peak_replicas", "scale", "policy", "cold_start", "days", "acceptable_queue", "begins", "score_from", "seed", "split", "csv", "report", "rivals"]
    )]
    replay: Option<PathBuf>,
    /// The trace is scaled so that its busiest minute is the work of so many full replicas, 1 to 500.
    #[arg(long, value_name = "N", conflicts_with = "scale")]
    peak_replicas: Option<u32>,
    /// Instead: what arrivals are multiplied by.
    #[arg(long, value_name = "X")]
    scale: Option<f64>,
    /// From an order until the replica is ready, up to 1h; the first policy's `coldStart` unless given, 180s without a
    /// policy.
    #[arg(long, value_name = "SPAN")]
    cold_start: Option<String>,
    /// A server configuration, whose tiers' policies are played; may be given several times. The defaults with the HPA's
    /// tolerance at 0 unless given.
    #[arg(long, value_name = "FILE")]
    policy: Vec<PathBuf>,
    /// Only the first so many days of the trace, such as 7 or 0.5.
    #[arg(long, value_name = "D")]
    days: Option<f64>,
    /// Work that queues longer is late, up to 1h; the first policy's `acceptableQueue` unless given, where that is a span.
    #[arg(long, value_name = "SPAN")]
    acceptable_queue: Option<String>,
    /// The wall-clock time at which the trace begins: floors have times of day. That of the store, of Prometheus or of an
    /// Azure trace unless given; of other traffic 2024-01-01T00:00:00Z, a Monday.
    #[arg(long, value_name = "TIME", value_parser = wall_clock)]
    begins: Option<DateTime<Utc>>,
    /// Rivals to play beside it: `all` that the model can, `none`, or names with commas between them, of best-fixed,
    /// oracle, static-peak, hpa-80, hpa-cpu, hpa-gpu, keda-waiting, keda-cron-waiting, keda-kaito, token-velocity,
    /// dynamo-throughput, skyserve. docs/backtest.md tells their rules, and those of rivals that need a finer model.
    /// `all` unless given.
    #[arg(long, value_name = "NAMES")]
    rivals: Option<String>,
    /// What comes before is for learning and isn't scored, such as 1d. Rounded up to whole minutes.
    #[arg(long, value_name = "SPAN")]
    score_from: Option<String>,
    /// How the fleet is modelled. Request by request, a day is played unless `--days` says otherwise.
    #[arg(long, value_enum, default_value_t = Fidelity::Fluid)]
    fidelity: Fidelity,
    /// A replica's engine, request by request; the first unless given.
    #[arg(long, value_enum)]
    profile: Option<Profile>,
    /// Chooses the requests, the starts and the phases, request by request; the fluid model draws nothing.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Split each policy's excess into what it pays for which ignorance; plays each six more times.
    #[arg(long)]
    split: bool,
    /// Print JSON.
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print CSV.
    #[arg(long)]
    csv: bool,
    /// Write a page with plots and the reasons of every answer, too.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

/// Runs the command.
///
/// # Errors
/// When a file can't be read or written (exit code 1); for bad flags, a bad scenario, policy or trace (64).
pub async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.other {
        Some(Other::Calibrate(args)) => return calibrate::run(args),
        Some(Other::Lesson(args)) => return lesson::run(args),
        None => {}
    }
    if let Some(recording) = &args.replay {
        return replay::run(recording, args.json);
    }
    if args.profile.is_some() && args.fidelity == Fidelity::Fluid {
        let told = "--profile: a fluid has no engine: add --fidelity requests, or leave it out";
        return Err(BadFlag(told.to_owned()).into());
    }
    let plan = Plan::of(args)?;
    let page = args.report.as_deref().map(|file| PageFile::new("--report", file)).transpose()?;
    let report = match args.fidelity {
        Fidelity::Fluid => fluid(plan).await?,
        Fidelity::Requests => requests::run(args, plan).await?,
    };
    let text = match (args.json, args.csv) {
        (true, _) => format!("{}\n", serde_json::to_string_pretty(&report)?),
        (_, true) => report.csv(),
        _ => report.table(),
    };
    // What was played for minutes is told wherever it can be: the page must not take the table with it, nor the table it.
    let answered = answer(&text);
    if let Some(page) = page {
        page.write(&report.page())?;
    }
    answered?;
    Ok(ExitCode::SUCCESS)
}

async fn fluid(plan: Plan) -> anyhow::Result<Report> {
    let traffic = plan.traffic.clone();
    let arrived = inputs::read(&traffic, plan.most_slots).await?;
    let settings = plan.settings(&arrived)?;
    let trace = arrived.trace;
    let backtest =
        Backtest::new(&trace, settings).map_err(|error| BadFlag(format!("{}: {error}", traffic.named())))?;
    drop(trace);
    for warning in backtest.warnings() {
        aside(format_args!("warning: {warning}"));
    }
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    Ok(with_progress(|| backtest.progress(), || backtest.run(threads)))
}
