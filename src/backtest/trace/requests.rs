//! Traces of requests: one line a request, in the formats of the public ones. Read one by one, so that a file of 10 GB
//! takes no more memory than one of 10 kB.
//!
//! | format | columns | source |
//! |---|---|---|
//! | `azure` | `TIMESTAMP,ContextTokens,GeneratedTokens`, times of a calendar | Azure/AzurePublicDataset, LLM inference traces of 2023 and 2024 |
//! | `mooncake` | JSON lines: `timestamp` (ms), `input_length`, `output_length`, `hash_ids` (of blocks of 512 tokens) | kvcache-ai/Mooncake, FAST'25 traces |
//! | `burstgpt` | `Timestamp` (s), `Model`, `Request tokens`, `Response tokens`, ... | HPMLL/BurstGPT |
//!
//! Columns of CSV are found by their names, so that files with more of them are read too.

use std::io::BufRead;

use chrono::{DateTime, NaiveDateTime, Utc};
use serde::Deserialize;

use super::TraceError;
use super::lines::Lines;

/// Tokens of one request: beyond any context window that is sold, and a guard against columns that are mixed up.
const MOST_TOKENS: u64 = 20_000_000;

/// Hashes of one prompt; a million tokens in blocks of 512 are 2,000.
const MOST_HASHES: usize = 40_000;

/// Seconds that a time may lie after the first: times beyond are no seconds.
const LATEST_SECONDS: f64 = 100.0 * 366.0 * 86_400.0;

/// Nanoseconds: of seconds since 1970 a double keeps too few digits.
type Nanos = i64;

/// A request of a trace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TracedRequest {
    /// Seconds since the first request.
    pub at_seconds: f64,
    /// Prompt tokens.
    pub input_tokens: u32,
    /// Output tokens; 0 where the source says that it failed.
    pub output_tokens: u32,
    /// Hashes of the blocks of its prompt, where the trace has them.
    pub prefix: Vec<u64>,
}

/// How requests are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestFormat {
    /// Azure's LLM inference traces.
    Azure,
    /// Mooncake's.
    Mooncake,
    /// BurstGPT's.
    BurstGpt,
}

impl RequestFormat {
    /// Prompt tokens of the blocks that [`TracedRequest::prefix`] hashes (Mooncake's README).
    pub const BLOCK_TOKENS: u32 = 512;

    pub(super) fn detected(first: &str) -> Option<Self> {
        if first.starts_with('{') {
            return first.contains("\"input_length\"").then_some(Self::Mooncake);
        }
        [Self::Azure, Self::BurstGpt].into_iter().find(|format| format.columns(first).is_ok())
    }

    /// The places of time, input and output.
    fn columns(self, header: &str) -> Result<[usize; 3], String> {
        let names = match self {
            Self::Azure => ["TIMESTAMP", "ContextTokens", "GeneratedTokens"],
            Self::BurstGpt => ["Timestamp", "Request tokens", "Response tokens"],
            Self::Mooncake => return Ok([0; 3]),
        };
        let mut found = [0; 3];
        for (place, name) in found.iter_mut().zip(names) {
            *place = header
                .split(',')
                .position(|column| column.trim() == name)
                .ok_or_else(|| format!("the first line has no column `{name}`"))?;
        }
        Ok(found)
    }
}

/// The requests of a file, in the order of time.
pub struct RequestTrace<R> {
    lines: Lines<R>,
    format: RequestFormat,
    columns: [usize; 3],
    /// When the first request arrived, in the source's own time.
    begins: Option<Nanos>,
    latest: Nanos,
    /// The line of the last row.
    line: u64,
    ended: bool,
}

impl<R: BufRead> RequestTrace<R> {
    /// Opens a file whose first line says what it is.
    ///
    /// # Errors
    /// When it can't be read, or is in no format of requests.
    pub fn open(source: R) -> Result<Self, TraceError> {
        let mut lines = Lines::open(source)?;
        let first = lines.first()?;
        let format = RequestFormat::detected(&first).ok_or_else(|| TraceError::Bad {
            line: 1,
            what: "no trace of requests: write it as azure, mooncake or burstgpt".to_owned(),
        })?;
        Self::begin(lines, &first, format)
    }

    pub(super) fn begin(mut lines: Lines<R>, first: &str, format: RequestFormat) -> Result<Self, TraceError> {
        let columns = format.columns(first).map_err(|what| TraceError::Bad { line: 1, what })?;
        if format == RequestFormat::Mooncake {
            // It has no header.
            lines.again();
        }
        Ok(Self { lines, format, columns, begins: None, latest: Nanos::MIN, line: 1, ended: false })
    }

    /// When the first request arrived, once it is read, where the format has the times of a calendar.
    #[must_use]
    pub fn begins(&self) -> Option<DateTime<Utc>> {
        let is_calendar = self.format == RequestFormat::Azure;
        self.begins.filter(|_| is_calendar).map(DateTime::from_timestamp_nanos)
    }

    /// The line that was read last, from 1.
    #[must_use]
    pub fn line(&self) -> u64 {
        self.line
    }

    fn request(&mut self) -> Result<Option<TracedRequest>, TraceError> {
        loop {
            let Some((line, row)) = self.lines.next()? else { return Ok(None) };
            self.line = line;
            if row.is_empty() {
                continue;
            }
            let bad = |what: String| TraceError::Bad { line, what };
            let (at, mut request) = match self.format {
                RequestFormat::Mooncake => mooncake(row),
                format => csv(row, format, self.columns),
            }
            .map_err(bad)?;
            let begins = *self.begins.get_or_insert(at);
            if at < self.latest {
                return Err(bad("its time is before that of the row before it: sort the rows".to_owned()));
            }
            self.latest = at;
            request.at_seconds = (at - begins) as f64 / 1e9;
            if request.at_seconds > LATEST_SECONDS {
                return Err(bad("its time is a hundred years after the first".to_owned()));
            }
            return Ok(Some(request));
        }
    }
}

impl<R: BufRead> Iterator for RequestTrace<R> {
    type Item = Result<TracedRequest, TraceError>;

    /// Ends after the first error.
    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let request = self.request().transpose();
        self.ended = !matches!(request, Some(Ok(_)));
        request
    }
}

fn csv(row: &str, format: RequestFormat, columns: [usize; 3]) -> Result<(Nanos, TracedRequest), String> {
    let field = |place: usize, name: &str| {
        row.split(',').nth(place).map(str::trim).ok_or_else(|| format!("{name} is missing"))
    };
    let time = field(columns[0], "the time")?;
    let at = match format {
        RequestFormat::Azure => calendar(time)?,
        _ => seconds(time)?,
    };
    let request = TracedRequest {
        input_tokens: tokens(field(columns[1], "the input")?, "the input")?,
        output_tokens: tokens(field(columns[2], "the output")?, "the output")?,
        ..TracedRequest::default()
    };
    Ok((at, request))
}

/// Of `2023-11-16 18:15:46.6805900`, and of the same with an offset, as the traces of 2024 have.
fn calendar(text: &str) -> Result<Nanos, String> {
    let with_offset = DateTime::parse_from_str(text, "%Y-%m-%d %H:%M:%S%.f%:z").map(|time| time.to_utc());
    let time = with_offset
        .or_else(|_| NaiveDateTime::parse_from_str(text, "%Y-%m-%d %H:%M:%S%.f").map(|time| time.and_utc()));
    time.ok()
        .and_then(|time| time.timestamp_nanos_opt())
        .ok_or_else(|| format!("the time `{text}` is none: write 2023-11-16 18:15:46.6805900"))
}

fn seconds(text: &str) -> Result<Nanos, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("the time `{text}` is no number of seconds"))?;
    nanos(seconds).ok_or_else(|| format!("the time is {text}: seconds, 0 or more"))
}

/// None for what is no time.
fn nanos(seconds: f64) -> Option<Nanos> {
    (0.0..=2.0 * LATEST_SECONDS).contains(&seconds).then(|| (seconds * 1e9).round() as Nanos)
}

fn tokens(text: &str, name: &str) -> Result<u32, String> {
    // Data frames write whole numbers as 12.0.
    let number: f64 = text.parse().map_err(|_| format!("{name} `{text}` is no number of tokens"))?;
    if !number.is_finite() || number < 0.0 || number.fract() != 0.0 || number > MOST_TOKENS as f64 {
        return Err(format!("{name} is {text}: a whole number of tokens, 0 to {MOST_TOKENS}"));
    }
    Ok(number as u32)
}

#[derive(Deserialize)]
struct MooncakeRow {
    timestamp: f64,
    input_length: u64,
    output_length: u64,
    #[serde(default)]
    hash_ids: Vec<u64>,
}

fn mooncake(row: &str) -> Result<(Nanos, TracedRequest), String> {
    let row: MooncakeRow =
        serde_json::from_str(row).map_err(|error| format!("no request in JSON: {error}"))?;
    let at = nanos(row.timestamp / 1000.0)
        .ok_or_else(|| format!("timestamp is {}: milliseconds, 0 or more", row.timestamp))?;
    let tokens = |count: u64, name: &str| {
        if count > MOST_TOKENS {
            return Err(format!("{name} is {count}: at most {MOST_TOKENS}"));
        }
        Ok(count as u32)
    };
    if row.hash_ids.len() > MOST_HASHES {
        return Err(format!("{} hash_ids: at most {MOST_HASHES}", row.hash_ids.len()));
    }
    let request = TracedRequest {
        input_tokens: tokens(row.input_length, "input_length")?,
        output_tokens: tokens(row.output_length, "output_length")?,
        prefix: row.hash_ids,
        ..TracedRequest::default()
    };
    Ok((at, request))
}

#[cfg(test)]
mod tests;
