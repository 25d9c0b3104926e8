//! Where the traffic of a backtest comes from: a file of any format, a law, what a scaler's own store saw, or a saved answer
//! of Prometheus.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::backtest::trace::arrivals::ArrivalLaw;
use crate::backtest::trace::gaps::{self, Filled, Measured};
use crate::backtest::trace::{self, Format, Trace, TraceError, prometheus};
use crate::cli::BadFlag;
use crate::decision::TierId;
use crate::history::{self, HistoryPoint};

/// A saved answer of Prometheus: 400 days of minutes of three series take 60 MB.
const MOST_JSON_BYTES: u64 = 512 << 20;

/// Seconds of a point of the store.
const MINUTE: f64 = 60.0;

/// Where the traffic comes from: exactly one of these.
#[derive(Clone, Debug, Default, clap::Args)]
#[group(id = "traffic", multiple = false)]
pub(super) struct Traffic {
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
    /// A saved answer of Prometheus to a range query (`/api/v1/query_range`) with the rates of requests, input and output tokens.
    #[arg(long, value_name = "FILE")]
    prometheus: Option<PathBuf>,
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
}

impl Traffic {
    /// This, or the trace of a scenario where no flag says anything.
    #[must_use]
    pub(super) fn or_trace(self, scenario: impl FnOnce() -> Option<PathBuf>) -> Self {
        let Self { trace, arrivals, history, prometheus } = &self;
        if trace.is_some() || arrivals.is_some() || history.is_some() || prometheus.is_some() {
            return self;
        }
        Self { trace: scenario(), ..self }
    }

    /// For messages: the flag and its value.
    #[must_use]
    pub(super) fn named(&self) -> String {
        let file = |flag: &str, file: &Path| format!("{flag} {}", file.display());
        if let Some(path) = &self.trace {
            file("--trace", path)
        } else if let Some(law) = &self.arrivals {
            format!("--arrivals {law:?}")
        } else if let Some(path) = &self.history {
            file("--history", path)
        } else if let Some(path) = &self.prometheus {
            file("--prometheus", path)
        } else {
            "--trace".to_owned()
        }
    }

    /// Reads the traffic, or its beginning.
    ///
    /// # Errors
    /// When a file can't be read (exit code 1); when it is wrong, or nothing says where traffic comes from (64).
    pub(super) fn read(&self, details: &TrafficDetails, most_slots: Option<usize>) -> anyhow::Result<Trace> {
        let bad = |what: String| BadFlag(format!("{}: {what}", self.named()));
        if let Some(path) = &self.trace {
            let format = details.format.as_deref().and_then(Format::named);
            return self.file(path, format, most_slots);
        }
        if let Some(law) = &self.arrivals {
            return Ok(ArrivalLaw::parse(law).and_then(|law| law.trace(most_slots)).map_err(bad)?);
        }
        let (trace, filled) = if let Some(folder) = &self.history {
            let tier = tier(details.tier.as_deref())?;
            let points = history::look(folder, &tier).map_err(bad)?;
            if points.is_empty() {
                return Err(bad(format!("it knows no tier {tier}")).into());
            }
            gaps::trace(&measured(&points), MINUTE, most_slots).map_err(bad)?
        } else if let Some(path) = &self.prometheus {
            prometheus::read(&whole(path)?, most_slots).map_err(bad)?
        } else {
            let told = "one of --trace, --arrivals, --history or --prometheus is needed, unless a scenario says `trace`";
            return Err(BadFlag(told.to_owned()).into());
        };
        tell(filled);
        Ok(trace)
    }

    fn file(&self, path: &Path, format: Option<Format>, most_slots: Option<usize>) -> anyhow::Result<Trace> {
        let opened = File::open(path).with_context(|| path.display().to_string())?;
        trace::read_as(BufReader::new(opened), format, most_slots).map_err(|error| match error {
            TraceError::Io(error) => anyhow::Error::new(error).context(path.display().to_string()),
            bad @ TraceError::Bad { .. } => BadFlag(format!("{}: {bad}", self.named())).into(),
        })
    }
}

/// What is made up is told.
fn tell(filled: Filled) {
    if filled.missing > 0 {
        eprintln!(
            "note: {} of {} steps were not measured, up to {} in a row: they are taken to be as the one before",
            filled.missing, filled.steps, filled.longest_run
        );
    }
}

fn whole(path: &Path) -> anyhow::Result<Vec<u8>> {
    let named = || path.display().to_string();
    let mut text = Vec::new();
    File::open(path).with_context(named)?.take(MOST_JSON_BYTES).read_to_end(&mut text).with_context(named)?;
    if text.len() as u64 == MOST_JSON_BYTES {
        return Err(BadFlag(format!("{}: larger than 512 MiB: ask for a longer step", path.display())).into());
    }
    Ok(text)
}

fn tier(name: Option<&str>) -> Result<TierId, BadFlag> {
    match name.and_then(|name| name.split_once('/')) {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() => {
            Ok(TierId::new(namespace, name))
        }
        _ => Err(BadFlag("--tier: write NAMESPACE/NAME".to_owned())),
    }
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
