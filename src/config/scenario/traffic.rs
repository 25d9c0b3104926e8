//! Where the traffic of a scenario comes from: what the flags of `backtest` say, as keys of the file. Exactly one.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use chrono::{DateTime, Datelike as _, Utc};

use crate::backtest::trace::Format;
use crate::backtest::trace::arrivals::ArrivalLaw;
use crate::backtest::trace::prometheus::{self, RangeQuery};
use crate::config::address;
use crate::config::file::{BEARER_TOKEN_FILE, SERVER_NAME};
use crate::config::problem::{Problems, Read, Reported};
use crate::config::resolve::{Findings, credentials};
use crate::config::section::Section;
use crate::config::settings::TlsSettings;
use crate::config::shape::{Key, Kind, Scalar};
use crate::decision::TierId;

/// Parts of a law: more are written by a program, as a trace.
const MOST_PARTS: usize = 1_000;

/// Letters of a part: `steps` may have thousands of rates.
const MOST_LETTERS: usize = 100_000;

/// How long a chunk of a query may take unless told: what Prometheus itself gives a query (`--query.timeout`).
pub const USUAL_TIMEOUT: Duration = Duration::from_secs(120);

/// How long one may take.
pub const TIMEOUTS: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3600);

/// The four places that traffic comes from.
pub(super) const SOURCES: [&str; 4] = ["trace", "arrivals", "history", "prometheus"];

pub(super) const TRACE: Key = Key::optional(
    "trace",
    Kind::Scalar(Scalar::File),
    "The trace; a relative path counts from the scenario's own folder.",
);

pub(super) const FORMAT: Key = Key::optional(
    "format",
    Kind::Scalar(Scalar::Word(&Format::NAMES)),
    "What the trace is written as, where its first line doesn't tell.",
);

pub(super) const ARRIVALS: Key = Key::optional(
    "arrivals",
    Kind::Scalars { of: Scalar::Text { most: MOST_LETTERS }, most: MOST_PARTS },
    "Instead of a trace: a law of arrivals, or a list of its parts.",
);

pub(super) const HISTORY: Key = Key::optional(
    "history",
    Kind::Section(&[
        Key::required(
            "folder",
            Kind::Scalar(Scalar::File),
            "The store of a scaler that doesn't run, or a copy of one.",
        ),
        Key::required("tier", Kind::Scalar(Scalar::Text { most: 400 }), "NAMESPACE/NAME of the tier."),
    ]),
    "Instead of a trace: what a scaler's own store saw of a tier.",
);

pub(super) const PROMETHEUS: Key = Key::optional(
    "prometheus",
    Kind::Section(PROMETHEUS_KEYS),
    "Instead of a trace: what Prometheus has of the tier, saved or asked for now.",
);

const PROMETHEUS_KEYS: &[Key] = &[
    Key::optional("file", Kind::Scalar(Scalar::File), "A saved answer to a range query."),
    Key::optional(
        "url",
        Kind::Scalar(Scalar::Url),
        "Instead: where Prometheus is, such as http://prometheus:9090.",
    ),
    Key::optional("query", Kind::Scalar(Scalar::Lines { most: MOST_LETTERS }), "What is asked."),
    Key::optional(
        "model",
        Kind::Scalar(Scalar::Text { most: 500 }),
        "Instead of `query`: the rates of this model of vLLM.",
    ),
    Key::optional("from", Kind::Scalar(Scalar::Text { most: 40 }), "The beginning of the range."),
    Key::optional("to", Kind::Scalar(Scalar::Text { most: 40 }), "Its end."),
    Key::optional(
        "step",
        Kind::Scalar(Scalar::Span { least: Duration::from_secs(1), most: Duration::from_hours(24) }),
        "Between two points.",
    ),
    Key::optional(
        "timeout",
        Kind::Scalar(Scalar::Span { least: *TIMEOUTS.start(), most: *TIMEOUTS.end() }),
        "For each chunk of 11,000 points.",
    ),
    Key::optional(
        "ca",
        Kind::Scalar(Scalar::File),
        "PEM certificates trusted for https instead of the system's.",
    ),
    SERVER_NAME,
    Key::optional("clientCert", Kind::Scalar(Scalar::File), "PEM certificate chain shown to Prometheus."),
    Key::optional("clientKey", Kind::Scalar(Scalar::File), "PEM key of `clientCert`."),
    BEARER_TOKEN_FILE,
];

/// Where traffic comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum Traffic {
    /// A file of bins or of requests; its first line tells the format where none is given.
    Trace {
        /// The file.
        file: PathBuf,
        /// What it is written as.
        format: Option<Format>,
    },
    /// A law, drawn with a seed.
    Arrivals(ArrivalLaw),
    /// What a scaler's store saw.
    History {
        /// The store.
        folder: PathBuf,
        /// Of whom.
        tier: TierId,
    },
    /// An answer of Prometheus that was saved.
    Saved(PathBuf),
    /// Prometheus itself.
    Prometheus(Box<PrometheusSource>),
}

/// What to ask of which Prometheus.
#[derive(Clone, Debug, PartialEq)]
pub struct PrometheusSource {
    /// The server, with the path it is served under, if any.
    pub url: String,
    /// What to ask.
    pub range: RangeQuery,
    /// For each chunk.
    pub timeout: Duration,
    /// For https.
    pub tls: TlsSettings,
    /// Sent as `Authorization: Bearer`.
    pub bearer_token_file: Option<PathBuf>,
}

impl Traffic {
    /// The same with relative paths counted from this folder.
    #[must_use]
    pub fn beside(self, folder: &Path) -> Self {
        match self {
            Self::Trace { file, format } => Self::Trace { file: folder.join(file), format },
            Self::Saved(file) => Self::Saved(folder.join(file)),
            Self::History { folder: store, tier } => Self::History { folder: folder.join(store), tier },
            Self::Prometheus(mut source) => {
                let tls = &mut source.tls;
                let files = [
                    &mut tls.ca_file,
                    &mut tls.client_cert_file,
                    &mut tls.client_key_file,
                    &mut source.bearer_token_file,
                ];
                for file in files.into_iter().flatten() {
                    *file = folder.join(&*file);
                }
                Self::Prometheus(source)
            }
            Self::Arrivals(law) => Self::Arrivals(law),
        }
    }

    /// For messages: where it comes from, without secrets.
    #[must_use]
    pub fn named(&self) -> String {
        match self {
            Self::Trace { file, .. } => format!("trace {}", file.display()),
            Self::Arrivals(_) => "arrivals".to_owned(),
            Self::History { folder, .. } => format!("history {}", folder.display()),
            Self::Saved(file) => format!("prometheus {}", file.display()),
            Self::Prometheus(source) => format!("prometheus {}", source.url),
        }
    }
}

/// Years in which a load may begin: cron has those from 1970 to 2100, and a trace up to 400 days.
pub const YEARS: RangeInclusive<i32> = 1970..=2098;

/// A time whose zone is told, in years that calendars and their zones reach.
///
/// # Errors
/// What is wrong, and what to write instead.
pub fn wall_clock(text: &str) -> Result<DateTime<Utc>, String> {
    let time = DateTime::parse_from_rfc3339(text)
        .map_err(|error| format!("{error}; write a time with its zone, such as 2026-03-02T00:00:00Z"))?;
    let time = time.with_timezone(&Utc);
    if YEARS.contains(&time.year()) {
        Ok(time)
    } else {
        Err(format!("from the year {} to {}", YEARS.start(), YEARS.end()))
    }
}

/// The tier of a store, as NAMESPACE/NAME.
///
/// # Errors
/// What is wrong, and what to write instead.
pub fn tier_id(text: &str) -> Result<TierId, String> {
    let (namespace, name) = text.split_once('/').ok_or("write NAMESPACE/NAME")?;
    Ok(TierId::new(&address::namespace(namespace)?, &address::object_name(name)?))
}

/// A Prometheus's address: an http or https URL without credentials and without a query.
///
/// # Errors
/// What is wrong, and what to write instead.
pub fn server_url(text: &str) -> Result<String, String> {
    let url = address::url(text)?;
    if url.contains('?') {
        return Err(
            "a URL with a `?`: write that of the server alone, such as http://prometheus:9090".to_owned()
        );
    }
    Ok(url)
}

/// What the keys say; None where none of them is written.
pub(super) fn traffic(root: &Section<'_>, found: &mut Findings) -> Read<Option<Traffic>> {
    let written: Vec<&str> = SOURCES.into_iter().filter(|key| root.written(key).is_some()).collect();
    for second in written.iter().skip(1) {
        let told = format!("`{}` says it already: write one of {}", written[0], SOURCES.join(", "));
        found.problems.push(&root.place_of(second), told);
    }
    if root.written("format").is_some() && !written.contains(&"trace") {
        found.problems.push(&root.place_of("format"), "there is no `trace` that it could be of: remove it");
    }
    // All are looked at, whichever counts: every problem is told at once.
    let arrivals = root.written("arrivals").map(|_| arrivals(root, &mut found.problems));
    let history = root.optional_section("history").map(|section| history(&section, &mut found.problems));
    let prometheus = root.optional_section("prometheus").map(|section| prometheus(&section, found));
    if let Some(file) = root.optional::<PathBuf>("trace")? {
        let format = root.optional::<String>("format")?.as_deref().and_then(Format::named);
        return Ok(Some(Traffic::Trace { file, format }));
    }
    arrivals.or(history).or(prometheus).transpose()
}

fn arrivals(root: &Section<'_>, problems: &mut Problems) -> Read<Traffic> {
    let parts = root.scalars("arrivals");
    let law = ArrivalLaw::of_parts(parts.iter().map(|(_, part)| *part));
    law.map(Traffic::Arrivals).map_err(|wrong| {
        for (part, message) in wrong {
            let place = part.and_then(|part| parts.get(part)).map(|(place, _)| place.clone());
            problems.push(&place.unwrap_or_else(|| root.place_of("arrivals")), message);
        }
        Reported
    })
}

fn history(section: &Section<'_>, problems: &mut Problems) -> Read<Traffic> {
    let tier = section.text("tier").map(|text| checked(section, "tier", tier_id(text), problems));
    let folder = section.get("folder")?;
    Ok(Traffic::History { folder, tier: tier.ok_or(Reported)?? })
}

fn prometheus(section: &Section<'_>, found: &mut Findings) -> Read<Traffic> {
    let live = [
        "url",
        "query",
        "model",
        "from",
        "to",
        "step",
        "timeout",
        "ca",
        "serverName",
        "clientCert",
        "clientKey",
        "bearerTokenFile",
    ];
    let credentials = credentials(section, found);
    let problems = &mut found.problems;
    if section.written("file").is_some() {
        for key in live.into_iter().filter(|key| section.written(key).is_some()) {
            problems.push(&section.place_of(key), "`file` is a saved answer: remove one of the two");
        }
        return Ok(Traffic::Saved(section.get("file")?));
    }
    for key in ["url", "from", "to", "step"] {
        if section.written(key).is_none() {
            let told = format!(
                "`{key}` is missing: a saved answer is `file`, a live one needs `url`, `query` or `model`, `from`, `to` and `step`"
            );
            problems.push(&section.place().key(key), told);
        }
    }
    let url = section.text("url").map(|text| checked(section, "url", server_url(text), problems));
    let mut time = |key: &str| -> Read<Option<DateTime<Utc>>> {
        let text: Option<String> = section.optional(key)?;
        text.map(|text| checked(section, key, wall_clock(&text), problems)).transpose()
    };
    let (from, to) = (time("from"), time("to"));
    let step: Read<Option<Duration>> = section.optional("step");
    let query = asked(section, step, problems);
    let range = match (&query, from, to, step) {
        (Ok(query), Ok(Some(from)), Ok(Some(to)), Ok(Some(step))) => {
            let range = RangeQuery::new(query, from, to, step);
            range.map_err(|told| {
                problems.push(section.place(), told);
                Reported
            })
        }
        _ => Err(Reported),
    };
    let (tls, bearer_token_file) = credentials?;
    Ok(Traffic::Prometheus(Box::new(PrometheusSource {
        url: url.ok_or(Reported)??,
        range: range?,
        timeout: section.optional("timeout")?.unwrap_or(USUAL_TIMEOUT),
        tls,
        bearer_token_file,
    })))
}

/// The query, as it is written or made for a model.
fn asked(section: &Section<'_>, step: Read<Option<Duration>>, problems: &mut Problems) -> Read<String> {
    let (query, model): (Option<String>, Option<String>) =
        (section.optional("query")?, section.optional("model")?);
    match (query, model) {
        (Some(query), None) => Ok(query),
        (None, Some(model)) => {
            let step = step?.unwrap_or_default();
            checked(section, "model", prometheus::of_model(&model, step), problems)
        }
        (Some(_), Some(_)) => {
            problems.push(&section.place_of("model"), "`query` says it already: write one of the two");
            Err(Reported)
        }
        (None, None) => {
            problems.push(&section.place().key("query"), "missing: write it, or `model`");
            Err(Reported)
        }
    }
}

fn checked<T>(section: &Section<'_>, key: &str, read: Result<T, String>, problems: &mut Problems) -> Read<T> {
    read.map_err(|told| {
        problems.push(&section.place_of(key), told);
        Reported
    })
}

#[cfg(test)]
mod tests;
