//! Where the traffic of a backtest comes from, as flags, and how it is read: a file of any format, a law, what a scaler's
//! own store saw, and Prometheus, saved or asked.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use chrono::{DateTime, Datelike as _, Utc};

use crate::backtest::SLOT_SECONDS;
use crate::backtest::trace::arrivals::ArrivalLaw;
use crate::backtest::trace::gaps::{self, Filled, Measured, Recovered};
use crate::backtest::trace::prometheus::{self, RangeQuery};
use crate::backtest::trace::{self, Format, Trace, TraceError};
use crate::cli::BadFlag;
use crate::cli::print::aside;
use crate::config::TlsSettings;
use crate::config::scenario::{
    PrometheusSource, TIMEOUTS, Traffic, USUAL_TIMEOUT, YEARS, server_url, tier_id, wall_clock,
};
use crate::history::{self, HistoryPoint};
use crate::units::{format_span, parse_span};

mod live;

/// A saved answer of Prometheus: 400 days of minutes of three series take 60 MB.
const MOST_JSON_BYTES: u64 = 512 << 20;

/// Seconds of a point of the store.
const MINUTE: f64 = 60.0;

/// Where the traffic comes from: exactly one of these.
#[derive(Clone, Debug, Default, clap::Args)]
#[group(id = "traffic", multiple = false)]
pub(super) struct TrafficFlags {
    /// The trace: bins in CSV with the columns `t_seconds,requests,input_tokens,output_tokens`, or requests as Azure, Mooncake
    /// or BurstGPT publish them; plain or gzip.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// A law of arrivals, such as `poisson rate=5 for=10m; ramp from=5 to=20 for=20m` (docs/traffic.md).
    #[arg(long, value_name = "LAW")]
    arrivals: Option<String>,
    /// The store of a scaler that doesn't run, or a copy of one: what the tier of `--tier` saw.
    #[arg(long, value_name = "FOLDER", requires = "tier")]
    history: Option<PathBuf>,
    /// The address of Prometheus, which is asked for the rates of requests, input and output tokens; or a saved answer to a
    /// range query (`/api/v1/query_range`).
    #[arg(long, value_name = "URL|FILE")]
    prometheus: Option<String>,
}

/// What says more of the traffic.
#[derive(Debug, Default, clap::Args)]
pub(super) struct TrafficDetails {
    /// What the trace is written as; told by its first line unless given.
    #[arg(long, value_name = "FORMAT", requires = "trace", value_parser = clap::builder::PossibleValuesParser::new(
        ["auto", "bins", "azure", "mooncake", "burstgpt"]))]
    format: Option<String>,
    /// The tier of `--history`.
    #[arg(long, value_name = "NAMESPACE/NAME", requires = "history")]
    tier: Option<String>,
    /// What Prometheus is asked: series with a label `kind` of requests, input or output (docs/traffic.md).
    #[arg(long, value_name = "PROMQL", requires = "prometheus", conflicts_with = "model")]
    query: Option<String>,
    /// Instead of `--query`: the rates of this model of vLLM, by the label `model_name`.
    #[arg(long, value_name = "NAME", requires = "prometheus")]
    model: Option<String>,
    /// The beginning of what Prometheus is asked for, such as 2026-03-01T00:00:00Z.
    #[arg(long, value_name = "TIME", requires = "prometheus", value_parser = wall_clock)]
    from: Option<DateTime<Utc>>,
    /// Its end.
    #[arg(long, value_name = "TIME", requires = "prometheus", value_parser = wall_clock)]
    to: Option<DateTime<Utc>>,
    /// Between two of its points, 1s to 1d; 1m unless given.
    #[arg(long, value_name = "SPAN", requires = "prometheus")]
    step: Option<String>,
    /// For each 11,000 points that Prometheus is asked for; 2m unless given.
    #[arg(long, value_name = "SPAN", requires = "prometheus")]
    timeout: Option<String>,
    /// PEM certificates trusted for an https Prometheus instead of the system's.
    #[arg(long, value_name = "FILE", requires = "prometheus")]
    ca: Option<PathBuf>,
    /// The name that its certificate must hold instead of the URL's host.
    #[arg(long, value_name = "NAME", requires = "ca")]
    server_name: Option<String>,
    /// PEM certificate chain shown to it.
    #[arg(long, value_name = "FILE", requires_all = ["prometheus", "client_key"])]
    client_cert: Option<PathBuf>,
    /// PEM key of that certificate.
    #[arg(long, value_name = "FILE", requires = "client_cert")]
    client_key: Option<PathBuf>,
    /// A file whose content is sent to it as bearer token.
    #[arg(long, value_name = "FILE", requires = "prometheus")]
    bearer_token_file: Option<PathBuf>,
}

/// Traffic that was read.
#[derive(Debug)]
pub(super) struct Arrived {
    /// What arrived.
    pub(super) trace: Trace,
    /// When it began, where its source has a calendar.
    pub(super) begins: Option<DateTime<Utc>>,
}

impl TrafficFlags {
    /// What they say; None where none is given.
    ///
    /// # Errors
    /// [`BadFlag`] for what is written wrong.
    pub(super) fn traffic(&self, details: &TrafficDetails) -> Result<Option<Traffic>, BadFlag> {
        self.all_is_said_of_it(details)?;
        if let Some(file) = &self.trace {
            let format = details.format.as_deref().and_then(Format::named);
            return Ok(Some(Traffic::Trace { file: file.clone(), format }));
        }
        if let Some(law) = &self.arrivals {
            let law = ArrivalLaw::parse(law).map_err(|told| BadFlag(format!("--arrivals: {told}")))?;
            return Ok(Some(Traffic::Arrivals(law)));
        }
        if let Some(folder) = &self.history {
            let tier = tier_id(details.tier.as_deref().unwrap_or_default());
            let tier = tier.map_err(|told| BadFlag(format!("--tier: {told}")))?;
            return Ok(Some(Traffic::History { folder: folder.clone(), tier }));
        }
        self.prometheus.as_deref().map(|text| details.prometheus(text)).transpose()
    }
}

impl TrafficFlags {
    /// Flags of another source would be read by nobody.
    fn all_is_said_of_it(&self, details: &TrafficDetails) -> Result<(), BadFlag> {
        let of_others = [
            (self.trace.is_none() && details.format.is_some()).then_some(("--format", "--trace")),
            (self.history.is_none() && details.tier.is_some()).then_some(("--tier", "--history")),
            details.of_a_server().filter(|_| self.prometheus.is_none()).map(|flag| (flag, "--prometheus")),
        ];
        match of_others.into_iter().flatten().next() {
            Some((flag, of)) => Err(BadFlag(format!("{flag}: says more of {of}, which isn't given"))),
            None => Ok(()),
        }
    }
}

impl TrafficDetails {
    fn prometheus(&self, text: &str) -> Result<Traffic, BadFlag> {
        if !text.contains("://") {
            return match self.of_a_server() {
                None => Ok(Traffic::Saved(text.into())),
                Some(flag) if Path::new(text).exists() => Err(BadFlag(format!(
                    "{flag}: asks a server, and --prometheus {text} is a saved answer: leave {flag} out"
                ))),
                Some(flag) => Err(BadFlag(format!(
                    "--prometheus {text}: a file is a saved answer, and {flag} asks a server: write its URL, such as http://{text}"
                ))),
            };
        }
        let bad = |flag: &str, told: String| BadFlag(format!("{flag}: {told}"));
        let span = |flag: &str, text: Option<&str>, usual: Duration| match text {
            Some(text) => parse_span(text).map_err(|error| bad(flag, format!("{text}: {error}"))),
            None => Ok(usual),
        };
        let url = server_url(text).map_err(|told| bad("--prometheus", told))?;
        let step = span("--step", self.step.as_deref(), Duration::from_secs(60))?;
        let timeout = span("--timeout", self.timeout.as_deref(), USUAL_TIMEOUT)?;
        if !TIMEOUTS.contains(&timeout) {
            let (least, most) = (format_span(*TIMEOUTS.start()), format_span(*TIMEOUTS.end()));
            return Err(bad("--timeout", format!("{}: from {least} to {most}", format_span(timeout))));
        }
        let (Some(from), Some(to)) = (self.from, self.to) else {
            return Err(bad("--from and --to", "needed with a Prometheus that is asked".to_owned()));
        };
        let query = match (&self.query, &self.model) {
            (Some(query), _) => query.clone(),
            (None, Some(model)) => prometheus::of_model(model, step).map_err(|told| bad("--model", told))?,
            (None, None) => {
                return Err(bad("--query or --model", "needed with a Prometheus that is asked".to_owned()));
            }
        };
        let range = RangeQuery::new(&query, from, to, step).map_err(|told| bad("--prometheus", told))?;
        let tls = TlsSettings {
            ca_file: self.ca.clone(),
            client_cert_file: self.client_cert.clone(),
            client_key_file: self.client_key.clone(),
            server_name: self.server_name.clone(),
        };
        let bearer_token_file = self.bearer_token_file.clone();
        Ok(Traffic::Prometheus(Box::new(PrometheusSource { url, range, timeout, tls, bearer_token_file })))
    }

    /// A flag that makes sense for a server alone.
    fn of_a_server(&self) -> Option<&'static str> {
        let given = [
            ("--query", self.query.is_some()),
            ("--model", self.model.is_some()),
            ("--from", self.from.is_some()),
            ("--to", self.to.is_some()),
            ("--step", self.step.is_some()),
            ("--timeout", self.timeout.is_some()),
            ("--ca", self.ca.is_some()),
            ("--client-cert", self.client_cert.is_some()),
            ("--bearer-token-file", self.bearer_token_file.is_some()),
        ];
        given.into_iter().find(|(_, is_given)| *is_given).map(|(flag, _)| flag)
    }
}

/// Reads the traffic, or its beginning.
///
/// # Errors
/// When a file or a server can't be read (exit code 1); when what it holds is wrong (64).
pub(super) async fn read(traffic: &Traffic, most_slots: Option<usize>) -> anyhow::Result<Arrived> {
    let bad = |what: String| BadFlag(format!("{}: {what}", traffic.named()));
    let recovered = match traffic {
        Traffic::Trace { file: path, format } => {
            let trace = file(traffic, path, *format, most_slots)?;
            let begins = trace.begins.filter(|begins| YEARS.contains(&begins.year()));
            return Ok(Arrived { trace, begins });
        }
        Traffic::Arrivals(law) => {
            return Ok(Arrived { trace: law.trace(most_slots).map_err(bad)?, begins: None });
        }
        Traffic::History { folder, tier } => {
            // A folder that isn't there is read like a file that isn't.
            std::fs::metadata(folder).with_context(|| traffic.named())?;
            let points = history::look(folder, tier).map_err(bad)?;
            if points.is_empty() {
                return Err(bad(format!("it knows no tier {tier}")).into());
            }
            gaps::recovered(&measured(&points), None, 0.0, MINUTE, most_slots)
        }
        Traffic::Saved(path) => prometheus::read(&whole(path)?, most_slots),
        Traffic::Prometheus(source) => {
            let seconds = most_slots.map(|slots| slots as f64 * SLOT_SECONDS);
            let points = live::ask(source, seconds).await?;
            points.recovered(most_slots).map_err(|told| format!("{told}, {}", live::query(source)))
        }
    };
    let Recovered { trace, filled, begins_seconds, absent, outside } = recovered.map_err(bad)?;
    tell(filled);
    if outside > 0 {
        aside(format_args!(
            "note: {outside} steps at the ends were not measured, or not in whole: the trace is that much shorter"
        ));
    }
    if let Some(kind) = absent {
        aside(format_args!("note: no {kind} were measured: they count as none"));
    }
    Ok(Arrived { trace, begins: DateTime::from_timestamp(begins_seconds as i64, 0) })
}

fn file(
    traffic: &Traffic,
    path: &Path,
    format: Option<Format>,
    most_slots: Option<usize>,
) -> anyhow::Result<Trace> {
    let opened = opened(path, &traffic.named())?;
    trace::read_as(BufReader::new(opened), format, most_slots).map_err(|error| match error {
        TraceError::Io(error) => anyhow::Error::new(error).context(path.display().to_string()),
        bad @ TraceError::Bad { .. } => BadFlag(format!("{}: {bad}", traffic.named())).into(),
    })
}

/// A file; `named` is what its user calls it. A folder is a slip that another try won't mend.
pub(super) fn opened(path: &Path, named: &str) -> anyhow::Result<File> {
    if path.is_dir() {
        return Err(BadFlag(format!("{named}: a folder: name a file in it")).into());
    }
    File::open(path).with_context(|| path.display().to_string())
}

/// What is made up is told.
fn tell(filled: Filled) {
    if filled.missing > 0 {
        aside(format_args!(
            "note: {} of {} steps were not measured, up to {} in a row: they are taken to be as the one before",
            filled.missing, filled.steps, filled.longest_run
        ));
    }
}

fn whole(path: &Path) -> anyhow::Result<Vec<u8>> {
    let named = || path.display().to_string();
    let mut text = Vec::new();
    opened(path, &format!("prometheus {}", path.display()))?
        .take(MOST_JSON_BYTES)
        .read_to_end(&mut text)
        .with_context(named)?;
    if text.len() as u64 == MOST_JSON_BYTES {
        return Err(BadFlag(format!("{}: larger than 512 MiB: ask for a longer step", path.display())).into());
    }
    Ok(text)
}

/// Points of the store by their minute. What was refused would have been as long as what was served.
fn measured(points: &[HistoryPoint]) -> BTreeMap<i64, Measured> {
    let known = |value: f32| Some(f64::from(value)).filter(|value| value.is_finite());
    let one = |point: &HistoryPoint| {
        let served = known(point.requests);
        let offered = match (served, known(point.rejected)) {
            (Some(served), Some(rejected)) if served > 0.0 => 1.0 + rejected / served,
            _ => 1.0,
        };
        let of = |value: Option<f64>| value.map(|value| value * offered);
        Measured {
            requests: of(served),
            input_tokens: of(known(point.uncached_input_tokens)),
            output_tokens: of(known(point.output_tokens)),
        }
    };
    points.iter().map(|point| (point.minute, one(point))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(minute: i64, requests: f32, input: f32, rejected: f32) -> HistoryPoint {
        HistoryPoint {
            minute,
            requests,
            uncached_input_tokens: input,
            output_tokens: input / 2.0,
            rejected,
            kv_tokens: f32::NAN,
            running: f32::NAN,
            waiting: f32::NAN,
            ready: f32::NAN,
            demand: f32::NAN,
            required: f32::NAN,
        }
    }

    #[test]
    fn what_was_refused_was_asked_for_and_what_is_not_a_number_is_unknown() {
        let measured = measured(&[point(7, 30.0, 600.0, 15.0), point(8, f32::NAN, 600.0, f32::NAN)]);
        assert_eq!(measured[&7].requests, Some(45.0));
        assert_eq!((measured[&7].input_tokens, measured[&7].output_tokens), (Some(900.0), Some(450.0)));
        assert_eq!((measured[&8].requests, measured[&8].input_tokens), (None, Some(600.0)));
    }
}
