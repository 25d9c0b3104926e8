//! The command `backtest`: what a trace would have cost under this policy, under others, and with hindsight.

use std::fs::File;
use std::io::{BufReader, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::Context as _;
use chrono::{DateTime, Datelike as _, Utc};

use super::BadFlag;
use crate::backtest::{Backtest, SLOT_SECONDS, Settings, Trace, TraceError, trace};
use crate::config::{self, LoadError};
use crate::decision::policy::{DeadBand, InsideBand, QueueAllowance, TokenRates};
use crate::decision::{Policy, TierId};
use crate::simulate::autoscaler::{AutoscalerSettings, Tolerances};
use crate::units::{format_span, parse_span};

mod requests;

use requests::{Fidelity, Profile};

/// Without a policy file; the cost of a token only matters against that of the other kind, as the trace is scaled.
const USUAL_RATES: TokenRates =
    TokenRates { input_tokens_per_second: 8_000.0, output_tokens_per_second: 700.0 };

/// A fleet of more replicas is several tiers.
const MOST_PEAK_REPLICAS: u32 = 500;

/// Longer cold starts and queues are slips of the unit.
const LONGEST_SPAN: Duration = Duration::from_hours(1);

/// How often the progress is told.
const TOLD_EVERY: Duration = Duration::from_millis(250);

/// Arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The trace: CSV, plain or gzip, with the columns `t_seconds,requests,input_tokens,output_tokens`.
    #[arg(long, value_name = "FILE")]
    trace: PathBuf,
    /// The trace is scaled so that its busiest minute is the work of so many full replicas, 1 to 500.
    #[arg(long, value_name = "N")]
    peak_replicas: u32,
    /// From an order until the replica is ready, up to 1h; the policy's `coldStart` unless given, 180s without a policy.
    #[arg(long, value_name = "SPAN")]
    cold_start: Option<String>,
    /// A server configuration with one tier, whose policy is used; the defaults with the HPA's tolerance at 0 unless given.
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Only the first so many days of the trace, such as 7 or 0.5.
    #[arg(long, value_name = "D")]
    days: Option<f64>,
    /// Work that queues longer is late, up to 1h; the policy's `acceptableQueue` unless given, where that is a span.
    #[arg(long, value_name = "SPAN")]
    acceptable_queue: Option<String>,
    /// The wall-clock time at which the trace begins: floors have times of day. The default is a Monday.
    #[arg(long, value_name = "TIME", default_value = "2024-01-01T00:00:00Z", value_parser = begins)]
    begins: DateTime<Utc>,
    /// How the fleet is modelled. Request by request, a day is played unless `--days` says otherwise.
    #[arg(long, value_enum, default_value_t = Fidelity::Fluid)]
    fidelity: Fidelity,
    /// A replica's engine, request by request.
    #[arg(long, value_enum, default_value_t = Profile::A100)]
    profile: Profile,
    /// Chooses the requests, the starts and the phases, request by request.
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// A time whose zone is told, in years that calendars and their zones reach.
fn begins(text: &str) -> Result<DateTime<Utc>, String> {
    let time = DateTime::parse_from_rfc3339(text)
        .map_err(|error| format!("{error}; write a time with its zone, such as 2026-03-02T00:00:00Z"))?;
    let time = time.with_timezone(&Utc);
    if (1900..=2200).contains(&time.year()) { Ok(time) } else { Err("from the year 1900 to 2200".to_owned()) }
}

/// Runs the command.
///
/// # Errors
/// When a file can't be read (exit code 1); for bad flags, a bad policy or a bad trace (64).
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.fidelity == Fidelity::Requests {
        return requests::run(args);
    }
    let settings = settings(args)?;
    let trace = read(&args.trace, most_slots(args.days)?)?;
    let backtest = Backtest::new(&trace, settings)
        .map_err(|error| BadFlag(format!("--trace {}: {error}", args.trace.display())))?;
    drop(trace);
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let report = with_progress(|| backtest.progress(), || backtest.run(threads));
    let text =
        if args.json { format!("{}\n", serde_json::to_string_pretty(&report)?) } else { report.table() };
    print(&text)
}

fn print(text: &str) -> anyhow::Result<ExitCode> {
    match std::io::stdout().write_all(text.as_bytes()) {
        // `backtest --json | head` is no failure.
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}

fn settings(args: &Args) -> anyhow::Result<Settings> {
    if !(1..=MOST_PEAK_REPLICAS).contains(&args.peak_replicas) {
        let told = format!("--peak-replicas {}: between 1 and {MOST_PEAK_REPLICAS}", args.peak_replicas);
        return Err(BadFlag(told).into());
    }
    let given = match &args.policy {
        Some(file) => Some(policy_of(file)?),
        None => None,
    };
    let from_file = given.is_some();
    let mut policy = given.unwrap_or_else(|| usual_policy(args.peak_replicas));
    let cold_start = span("--cold-start", args.cold_start.as_deref())?.unwrap_or(policy.cold_start);
    if cold_start > LONGEST_SPAN {
        return Err(BadFlag(format!("a cold start of {}: at most 1h", format_span(cold_start))).into());
    }
    if !from_file {
        policy.cold_start = cold_start;
    }
    let acceptable_queue =
        match (span("--acceptable-queue", args.acceptable_queue.as_deref())?, policy.acceptable_queue) {
            (Some(span), _) => span,
            (None, QueueAllowance::Seconds(seconds)) => Duration::try_from_secs_f64(seconds)?,
            (None, _) => {
                let told = "--acceptable-queue: needed, because the policy's is no span of time";
                return Err(BadFlag(told.to_owned()).into());
            }
        };
    if acceptable_queue > LONGEST_SPAN {
        let told = format!("an acceptable queue of {}: at most 1h", format_span(acceptable_queue));
        return Err(BadFlag(told).into());
    }
    if !from_file {
        policy.acceptable_queue = QueueAllowance::Seconds(acceptable_queue.as_secs_f64());
    }
    let tolerance = policy.dead_band.tolerance;
    let chain = AutoscalerSettings {
        tolerances: Tolerances { up: tolerance, down: tolerance },
        ..AutoscalerSettings::recommended(policy.min, policy.max)
    };
    let peak_replicas = args.peak_replicas;
    Ok(Settings { policy, chain, peak_replicas, cold_start, acceptable_queue, begins: args.begins })
}

/// The defaults, with room for twice the peak, behind an HPA as the documentation recommends it.
fn usual_policy(peak_replicas: u32) -> Policy {
    let defaults = Policy::with_defaults(TierId::new("backtest", "trace"), peak_replicas * 2, USUAL_RATES);
    Policy { dead_band: DeadBand { tolerance: 0.0, inside: InsideBand::Exceed }, ..defaults }
}

fn policy_of(file: &Path) -> anyhow::Result<Policy> {
    let bad = |what: String| BadFlag(format!("--policy {}: {what}", file.display()));
    let mut config = match config::load_file(file) {
        Ok(config) => config,
        Err(LoadError::Io(error)) => return Err(error).with_context(|| file.display().to_string()),
        Err(error) => return Err(bad(error.to_string()).into()),
    };
    match (config.tiers.pop(), config.tiers.len()) {
        (Some(tier), 0) => Ok(tier.policy),
        (_, others) => {
            let tiers = if others == 0 { 0 } else { others + 1 };
            Err(bad(format!("it has {tiers} tiers; a backtest plays one")).into())
        }
    }
}

fn span(flag: &str, text: Option<&str>) -> Result<Option<Duration>, BadFlag> {
    text.map(|text| parse_span(text).map_err(|error| BadFlag(format!("{flag} {text}: {error}")))).transpose()
}

fn most_slots(days: Option<f64>) -> Result<Option<usize>, BadFlag> {
    let Some(days) = days else { return Ok(None) };
    if !(days.is_finite() && days * 86_400.0 >= SLOT_SECONDS && days <= 400.0) {
        return Err(BadFlag(format!("--days {days}: above 0 and at most 400")));
    }
    Ok(Some((days * 86_400.0 / SLOT_SECONDS).round() as usize))
}

fn read(file: &Path, most_slots: Option<usize>) -> anyhow::Result<Trace> {
    let opened = File::open(file).with_context(|| file.display().to_string())?;
    trace::read(BufReader::new(opened), most_slots).map_err(|error| match error {
        TraceError::Io(error) => anyhow::Error::new(error).context(file.display().to_string()),
        bad @ TraceError::Bad { .. } => BadFlag(format!("--trace {}: {bad}", file.display())).into(),
    })
}

/// Tells a terminal on standard error how far it is.
fn with_progress<T>(progress: impl Fn() -> f64 + Send, run: impl FnOnce() -> T) -> T {
    if !std::io::stderr().is_terminal() {
        return run();
    }
    let (ended, running) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while running.recv_timeout(TOLD_EVERY) == Err(mpsc::RecvTimeoutError::Timeout) {
                eprint!("\rplaying {:3.0} %", progress() * 100.0);
            }
            eprint!("\r               \r");
        });
        let played = run();
        drop(ended);
        played
    })
}
