//! The arguments of `demo`, and what they mean.

use std::net::SocketAddr;
use std::time::Duration;

use chrono::NaiveTime;

use super::file;
use crate::config;
use crate::decision::policy::Ramp;
use crate::simulate::EngineSettings;
use crate::simulate::traffic::TokenCount;
use crate::units::{format_span, parse_span};

/// KV share and utilisation that the demo's tier aims at.
pub(super) const TARGET: f64 = 0.8;
/// Sigma of the logarithm of a cold start: 68 % are within 10 % of the median.
pub(super) const COLD_START_SPREAD: f64 = 0.1;
/// No faster than this: the server decides about once in 5 s of clock time, and KEDA's stand-in must keep up.
/// At 120 times life a round of scrapes has 40 ms; beyond, this machine's own latency begins to look like the tier's.
const FASTEST: f64 = 120.0;
/// A day has no more.
const DAY: Duration = Duration::from_secs(86_400);

/// Arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// How much faster than life the clock runs, 1 to 120.
    #[arg(long, default_value_t = 60.0, value_name = "FACTOR")]
    speed: f64,
    /// How long to run, in simulated time, such as 30m; the rest of the day unless given.
    #[arg(long = "for", value_name = "SPAN")]
    run_for: Option<String>,
    /// The time of day to start at.
    #[arg(long, default_value = "08:40", value_name = "HH:MM")]
    start: String,
    /// From the decision for a replica to the replica being ready (the median; each start differs a little).
    #[arg(long, default_value = "180s", value_name = "SPAN")]
    cold_start: String,
    /// A floor: replicas promised from one time of day to another, such as 09:00..18:00=10; a number holds all day;
    /// `none` or 0 replicas is no floor.
    #[arg(long, default_value = "09:00..18:00=10", value_name = "FLOOR")]
    floor: String,
    /// Which signals the tier is scaled on.
    #[arg(long, value_enum, default_value_t = Signal::Max)]
    signal: Signal,
    /// Never fewer replicas; 0 lets the tier sleep, and the router's queue wakes it.
    #[arg(long, default_value_t = 1, value_name = "N")]
    min: u32,
    /// Never more replicas.
    #[arg(long, default_value_t = 24, value_name = "N")]
    max: u32,
    /// Replicas that the day's peak needs at 80 % of their capacity.
    #[arg(long, default_value_t = 12, value_name = "N")]
    peak: u32,
    /// The steepest growth to keep spare replicas for, such as "2x in 120s"; none unless given.
    #[arg(long, value_name = "RAMP")]
    max_ramp: Option<String>,
    /// Learn what the load will need one lead ahead, and price its spread; says nothing in its first hour.
    #[arg(long)]
    forecast: bool,
    /// What a replica is.
    #[arg(long, value_enum, default_value_t = Gpu::Rtx4090)]
    gpu: Gpu,
    /// The HPA's tolerance. Our documentation recommends 0; Kubernetes' default is 0.1.
    #[arg(long, default_value_t = 0.0, value_name = "SHARE")]
    hpa_tolerance: f64,
    /// The same seed gives the same arrivals.
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// Where the status page listens; port 0 is any free one.
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS")]
    http: SocketAddr,
    /// Where KEDA's stand-in calls; port 0 is any free one.
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS")]
    grpc: SocketAddr,
    /// Print a line an interval instead of the live view, as without a terminal.
    #[arg(long)]
    no_tui: bool,
    /// The interval of those lines, simulated time.
    #[arg(long, default_value = "1m", value_name = "SPAN")]
    every: String,
    /// Print the server's configuration file and end.
    #[arg(long)]
    print_config: bool,
}

/// Which signals the tier is scaled on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Signal {
    /// The largest of KV cache, tokens and backlog.
    Max,
    /// KV cache alone.
    Kv,
    /// Token work and backlog.
    Tokens,
}

impl Signal {
    /// The next one, for a key.
    pub(super) fn next(self) -> Self {
        match self {
            Self::Max => Self::Kv,
            Self::Kv => Self::Tokens,
            Self::Tokens => Self::Max,
        }
    }

    /// For people.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Max => "max",
            Self::Kv => "kv",
            Self::Tokens => "tokens",
        }
    }

    /// Weights of the KV cache, the tokens and the backlog.
    pub(super) fn weights(self) -> [u32; 3] {
        match self {
            Self::Max => [1, 1, 1],
            Self::Kv => [1, 0, 0],
            Self::Tokens => [0, 1, 1],
        }
    }
}

/// What a replica is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Gpu {
    /// RTX 4090, 8B model: step times fitted to real vLLM runs; KV binds.
    #[value(name = "rtx4090-8b")]
    Rtx4090,
    /// A100 80 GB, 8B model: computing binds.
    #[value(name = "a100-8b")]
    A100,
    /// H100, 8B model: computing binds.
    #[value(name = "h100-8b")]
    H100,
}

impl Gpu {
    fn engine(self) -> EngineSettings {
        match self {
            Self::Rtx4090 => EngineSettings::rtx4090_8b(),
            Self::A100 => EngineSettings::a100_8b(),
            Self::H100 => EngineSettings::h100_8b(),
        }
    }
}

/// A floor of the demo's tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DemoFloor {
    pub(super) replicas: u32,
    /// None holds all day.
    pub(super) window: Option<(NaiveTime, NaiveTime)>,
}

/// What the demo's tier is asked for: what the keys change, and what goes into the server's file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TierOptions {
    pub(super) cold_start: Duration,
    pub(super) floor: Option<DemoFloor>,
    pub(super) signal: Signal,
    pub(super) min: u32,
    pub(super) max: u32,
    pub(super) max_ramp: Option<String>,
    pub(super) forecast: bool,
    pub(super) hpa_tolerance: f64,
    pub(super) input_tokens_per_second: u32,
    pub(super) output_tokens_per_second: u32,
    pub(super) grpc: SocketAddr,
    pub(super) http: SocketAddr,
}

/// All of it, checked.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Options {
    pub(super) tier: TierOptions,
    pub(super) engine: EngineSettings,
    pub(super) speed: f64,
    pub(super) start: String,
    pub(super) starts_at: Duration,
    pub(super) run_for: Duration,
    pub(super) peak_per_second: f64,
    /// Requests a second that one replica serves at the target.
    pub(super) replica_per_second: f64,
    pub(super) seed: u64,
    pub(super) no_tui: bool,
    pub(super) every: Duration,
    pub(super) print_config: bool,
}

impl Args {
    /// What the arguments mean together.
    pub(super) fn checked(self) -> Result<Options, String> {
        if !(1.0..=FASTEST).contains(&self.speed) {
            return Err(format!("--speed {}: between 1 and {FASTEST}", self.speed));
        }
        if self.max == 0 {
            return Err("--max 0: at least 1".to_owned());
        }
        if self.min > self.max {
            return Err(format!("--min {} is above --max {}", self.min, self.max));
        }
        if !(0.0..1.0).contains(&self.hpa_tolerance) {
            return Err(format!("--hpa-tolerance {}: 0 up to 1", self.hpa_tolerance));
        }
        let starts_at = since_midnight(time_of_day("--start", &self.start)?);
        let span =
            |flag: &str, text: &str| parse_span(text).map_err(|error| format!("{flag} {text}: {error}"));
        let run_for = match &self.run_for {
            Some(text) => span("--for", text)?,
            None => DAY.saturating_sub(starts_at),
        };
        let cold_start = span("--cold-start", &self.cold_start)?;
        let every = span("--every", &self.every)?;
        if cold_start < Duration::from_secs(1) || every.is_zero() || run_for.is_zero() {
            return Err("--cold-start, --every and --for: at least a second".to_owned());
        }
        let floor = floor(&self.floor)?;
        let max_ramp = self.max_ramp.as_deref().map(ramp).transpose()?;
        if let Some(floor) = floor.filter(|floor| floor.replicas > self.max) {
            return Err(format!("--floor of {} replicas is above --max {}", floor.replicas, self.max));
        }
        let engine = self.gpu.engine();
        let (input, output) = (mean(TokenCount::CONVERSATION_INPUT), mean(TokenCount::CONVERSATION_OUTPUT));
        let input_rate = engine.input_tokens_per_second();
        let output_rate = engine.output_tokens_per_second(input + output / 2.0, TARGET);
        let replica_per_second = TARGET / (input / input_rate + output / output_rate);
        let options = Options {
            tier: TierOptions {
                cold_start,
                floor,
                signal: self.signal,
                min: self.min,
                max: self.max,
                max_ramp,
                forecast: self.forecast,
                hpa_tolerance: self.hpa_tolerance,
                input_tokens_per_second: input_rate.round() as u32,
                output_tokens_per_second: output_rate.round() as u32,
                grpc: self.grpc,
                http: self.http,
            },
            engine,
            speed: self.speed,
            start: self.start,
            starts_at,
            run_for,
            peak_per_second: f64::from(self.peak) * replica_per_second,
            replica_per_second,
            seed: self.seed,
            no_tui: self.no_tui,
            every,
            print_config: self.print_config,
        };
        // Whatever the server's file refuses, a flag brought it in.
        file::check(&options.tier)?;
        Ok(options)
    }
}

/// The ramp as the file has it.
fn ramp(text: &str) -> Result<String, String> {
    let Ramp { factor, within } =
        config::ramp(text).map_err(|error| format!("--max-ramp {text}: {error}"))?;
    Ok(format!("{factor}x in {}", format_span(within)))
}

/// Mean of a lognormal number of tokens; the cut at its end is beyond three sigma.
fn mean(tokens: TokenCount) -> f64 {
    tokens.median * (tokens.sigma * tokens.sigma / 2.0).exp()
}

fn time_of_day(flag: &str, text: &str) -> Result<NaiveTime, String> {
    NaiveTime::parse_from_str(text, "%H:%M").map_err(|_| format!("{flag} {text}: write a time such as 08:40"))
}

fn since_midnight(time: NaiveTime) -> Duration {
    (time - NaiveTime::MIN).to_std().unwrap_or(Duration::ZERO)
}

fn floor(text: &str) -> Result<Option<DemoFloor>, String> {
    let wrong = || format!("--floor {text}: write 09:00..18:00=10, a number, or none");
    if text == "none" {
        return Ok(None);
    }
    let Some((window, replicas)) = text.split_once('=') else {
        let replicas = text.parse().map_err(|_| wrong())?;
        return Ok(promised(DemoFloor { replicas, window: None }));
    };
    let replicas = replicas.parse().map_err(|_| wrong())?;
    let (from, to) = window.split_once("..").ok_or_else(wrong)?;
    let (from, to) = (time_of_day("--floor", from)?, time_of_day("--floor", to)?);
    if from == to {
        return Err(format!("--floor {text}: it would never be open; a number alone holds all day"));
    }
    Ok(promised(DemoFloor { replicas, window: Some((from, to)) }))
}

/// Nothing promised is no floor.
fn promised(floor: DemoFloor) -> Option<DemoFloor> {
    (floor.replicas > 0).then_some(floor)
}

#[cfg(test)]
pub(super) mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    pub(in crate::cli::demo) fn options(line: &str) -> Result<Options, String> {
        let words = std::iter::once("demo").chain(line.split_whitespace());
        Line::try_parse_from(words).map_err(|error| error.to_string())?.args.checked()
    }

    #[test]
    fn the_defaults_show_the_morning_ramp_and_a_peak_of_twelve_replicas() {
        let options = options("").unwrap();
        assert_eq!(options.starts_at, Duration::from_secs(8 * 3600 + 40 * 60));
        assert_eq!(options.starts_at + options.run_for, DAY);
        assert!((options.peak_per_second / options.replica_per_second - 12.0).abs() < 1e-9);
        assert!((25.0..45.0).contains(&options.peak_per_second), "{}", options.peak_per_second);
    }

    #[test]
    fn a_floor_is_a_window_a_number_or_none() {
        let time = |text| NaiveTime::parse_from_str(text, "%H:%M").unwrap();
        assert_eq!(
            floor("08:50..18:00=6"),
            Ok(Some(DemoFloor { replicas: 6, window: Some((time("08:50"), time("18:00"))) }))
        );
        assert_eq!(floor("4"), Ok(Some(DemoFloor { replicas: 4, window: None })));
        for nothing in ["none", "0", "09:00..18:00=0"] {
            assert_eq!(floor(nothing), Ok(None), "{nothing}");
        }
        for wrong in ["x", "9..18=4", "09:00-18:00=4", "09:00..09:00=4", "09:00..10:00=", ""] {
            assert!(floor(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn arguments_that_make_no_sense_are_refused() {
        for line in [
            "--speed 0",
            "--speed 1000",
            "--min 5 --max 4",
            "--max 0",
            "--start 25:00",
            "--for 30",
            "--cold-start 0s",
            "--floor 09:00..18:00=99",
            "--hpa-tolerance 1",
            "--max-ramp 1xin2m",
            "--max-ramp double",
            "--cold-start 30h",
            "--max 20000",
            "--http 127.0.0.1:9000 --grpc 127.0.0.1:9000",
        ] {
            let told = options(line).unwrap_err();
            let flag = line.split(' ').next().unwrap();
            assert!(told.contains(flag), "{line}: {told}");
            assert!(!told.contains("tiers[0]") && !told.contains("line "), "{line}: {told}");
        }
    }
}
