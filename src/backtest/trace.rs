//! Traffic in: files and laws of arrivals, read row by row. Pure: it takes bytes.
//!
//! The project's own format is bins in CSV, plain or gzip:
//!
//! ```text
//! t_seconds,requests,input_tokens,output_tokens
//! 0,7,22924,94
//! 1,5,8944,71
//! ```
//!
//! A row is a bin: what arrived from `t_seconds` on until the next row's. The width of a bin is the difference of the
//! first two rows; every row is one width after the row before it. A missing row is not an idle one, so it is refused.
//! What a source doesn't have is 0 in every row; token columns that are all 0 mean a trace of requests.
//!
//! ```text
//! lines       bounded lines, plain or gzip        bins      the format above
//! requests    traces of requests, by format       arrivals  a law, drawn with a seed
//! prometheus  answers to a range query, in chunks    gaps      points that may be missing -> bins
//! slots       whatever arrives -> slots
//! ```
//!
//! Whatever a file holds, memory is bounded by the slots of 400 days.

use std::io::BufRead;

use chrono::{DateTime, Utc};

use super::SLOT_SECONDS;

pub mod arrivals;
mod bins;
pub mod gaps;
pub(super) mod lines;
pub mod prometheus;
pub mod requests;
mod slots;

pub use bins::HEADER;
pub use requests::{RequestFormat, RequestTrace, TracedRequest};

use lines::Lines;
use slots::{Slots, Wants};

/// Slots of a trace: 400 days. It bounds the memory whatever the file holds.
const MOST_SLOTS: usize = 400 * SLOTS_A_DAY;

/// Slots in a day.
pub(super) const SLOTS_A_DAY: usize = (86_400.0 / SLOT_SECONDS) as usize;

/// Why a trace can't be used.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// It can't be read.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// It was read, and this line is wrong.
    #[error("line {line}: {what}")]
    Bad {
        /// Counted from 1, the header included.
        line: u64,
        /// What is wrong, and what to write instead.
        what: String,
    },
}

/// What arrives in one slot.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Arrivals {
    /// Requests.
    pub requests: f64,
    /// Their input tokens.
    pub input_tokens: f64,
    /// Their output tokens.
    pub output_tokens: f64,
}

/// A trace in slots of [`SLOT_SECONDS`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// In the order of time. A bin that is longer than a slot is spread over its slots evenly.
    pub slots: Vec<Arrivals>,
    /// The width of the bins in the file, seconds; a trace of requests has none, and is as fine as the slots.
    pub bin_seconds: f64,
    /// Rows that were read: bins, or requests.
    pub rows: u64,
    /// When it begins, where its times are a calendar's.
    pub begins: Option<DateTime<Utc>>,
}

/// What a file of traffic is written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Bins: see [`self`].
    Bins,
    /// One line a request.
    Requests(RequestFormat),
}

impl Format {
    /// The names on the command line, in the order of the documentation.
    pub const NAMES: [&str; 4] = ["bins", "azure", "mooncake", "burstgpt"];

    /// By its name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "bins" => Some(Self::Bins),
            "azure" => Some(Self::Requests(RequestFormat::Azure)),
            "mooncake" => Some(Self::Requests(RequestFormat::Mooncake)),
            "burstgpt" => Some(Self::Requests(RequestFormat::BurstGpt)),
            _ => None,
        }
    }

    /// By the first line of a file.
    #[must_use]
    pub fn detected(first: &str) -> Option<Self> {
        if first == HEADER {
            return Some(Self::Bins);
        }
        RequestFormat::detected(first).map(Self::Requests)
    }
}

/// Reads a trace of any format, told by its first line; with `most_slots` only its beginning.
///
/// # Errors
/// The first line that is wrong; what the reader fails with.
pub fn read(source: impl BufRead, most_slots: Option<usize>) -> Result<Trace, TraceError> {
    read_as(source, None, most_slots)
}

/// The same of a format that is known.
///
/// # Errors
/// As [`read`].
pub fn read_as(
    source: impl BufRead,
    format: Option<Format>,
    most_slots: Option<usize>,
) -> Result<Trace, TraceError> {
    let mut lines = Lines::open(source)?;
    let first = lines.first()?;
    let bad = |what: String| TraceError::Bad { line: 1, what };
    if first.is_empty() {
        return Err(bad("no rows: the trace is empty".to_owned()));
    }
    let format = match format {
        Some(format) => format,
        None => Format::detected(&first).ok_or_else(|| {
            bad(format!(
                "the first line must be `{HEADER}`, or that of another format: {}",
                Format::NAMES.join(", ")
            ))
        })?,
    };
    match format {
        Format::Bins if first == HEADER => bins::read(lines, most_slots),
        Format::Bins => Err(bad(format!("the first line must be `{HEADER}`"))),
        Format::Requests(format) => {
            let mut requests = RequestTrace::begin(lines, &first, format)?;
            let trace = folded(&mut requests, most_slots)?;
            Ok(Trace { begins: requests.begins(), ..trace })
        }
    }
}

/// Requests as a trace in slots: what arrives in one slot is summed.
///
/// # Errors
/// The first request that is wrong.
fn folded<R: BufRead>(
    requests: &mut RequestTrace<R>,
    most_slots: Option<usize>,
) -> Result<Trace, TraceError> {
    let mut slots = Slots::new(most_slots);
    let mut rows = 0;
    while let Some(request) = requests.next().transpose()? {
        let arrivals = Arrivals {
            requests: 1.0,
            input_tokens: f64::from(request.input_tokens),
            output_tokens: f64::from(request.output_tokens),
        };
        let at = request.at_seconds;
        let bad = |what| TraceError::Bad { line: requests.line(), what };
        match slots.at(at, arrivals).map_err(bad)? {
            Wants::More => rows += 1,
            Wants::NoMore => break,
        }
    }
    if slots.is_empty() {
        return Err(TraceError::Bad { line: 1, what: "no requests: the trace is empty".to_owned() });
    }
    Ok(slots.into_trace(SLOT_SECONDS, rows))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn of(rows: &str) -> Result<Trace, TraceError> {
        read(format!("{HEADER}\n{rows}").as_bytes(), None)
    }

    #[track_caller]
    fn refused(rows: &str, words: &str) {
        let told = of(rows).unwrap_err().to_string();
        assert!(told.contains(words), "{told}");
    }

    #[test]
    fn short_bins_are_summed_and_long_ones_are_spread_evenly() {
        let fine = of("0,1,10,1\n1,1,10,1\n2,1,10,1\n3,1,10,1\n4,1,10,1\n5,3,30,3\n").unwrap();
        assert_eq!(fine.slots.len(), 2);
        assert!((fine.slots[0].input_tokens - 50.0).abs() < 1e-9);
        assert!((fine.slots[1].requests - 3.0).abs() < 1e-9);

        let coarse = of("0,6,60,6\n15,0,0,0\n").unwrap();
        assert_eq!(coarse.slots.len(), 6);
        assert!(coarse.slots[..3].iter().all(|slot| (slot.requests - 2.0).abs() < 1e-9));
        assert!(coarse.slots[3..].iter().all(|slot| slot.requests == 0.0));
    }

    #[test]
    fn bins_that_don_t_fit_the_slots_lose_nothing() {
        let odd = of("100,7,0,0\n107,7,0,0\n114,7,0,0\n").unwrap();
        assert!((odd.slots.iter().map(|slot| slot.requests).sum::<f64>() - 21.0).abs() < 1e-9);
        assert!((odd.slots[0].requests - 5.0).abs() < 1e-9);
    }

    #[test]
    fn a_bad_row_is_named_with_its_line() {
        refused("0,1,1,1\n5,1,-3,1\n", "line 3: input_tokens is negative: -3");
        refused("0,NaN,1,1\n5,1,1,1\n", "line 2: requests is NaN");
        refused("0,1,1,1\n5,1,inf,1\n", "line 3: input_tokens is inf");
        refused("0,1,1,1\n5,1,x,1\n", "line 3: input_tokens `x` is no number");
        refused("0,1,1,1\n5,1,1\n", "line 3: output_tokens is missing");
        refused("0,1,1,1\n5,1,1,1,1\n", "line 3: more than four fields");
        refused("0,1,1,1\n5,1,1,1e300\n", "line 3: output_tokens is 1");
        refused("0,1,1,1\n0,1,1,1\n", "line 3: t_seconds 0 is not after the row before it");
        refused(
            "0,1,1,1\n5,1,1,1\n10,1,1,1\n5,1,1,1\n",
            "line 5: t_seconds 5 is not after the row before it",
        );
        refused("0,1,1,1\n5,1,1,1\n15,1,1,1\n", "line 4: t_seconds 15 where 10 was expected");
        refused("0,1,1,1\n0.001,1,1,1\n", "line 3: bins of 0.001 s");
    }

    #[test]
    fn a_file_without_rows_is_refused() {
        refused("", "no rows");
        refused("0,1,1,1\n", "one row tells no width");
        assert!(read(&b""[..], None).unwrap_err().to_string().contains("no rows"));
        let told = read(&b"time,requests\n0,1\n"[..], None).unwrap_err().to_string();
        assert!(told.contains("line 1: the first line must be"), "{told}");
    }

    #[test]
    fn a_line_without_an_end_is_not_kept_in_memory() {
        refused(&"1".repeat(1 << 20), "line 2: longer than 1024 bytes");
    }

    #[test]
    fn empty_lines_without_an_end_are_refused_and_a_few_are_passed_over() {
        refused(
            &format!("0,1,1,1\n{}", "\n".repeat(100_000)),
            "line 10003: more than 10000 empty lines in a row",
        );
        assert_eq!(of(&format!("0,1,1,1\n{}5,1,1,1\n", "\n".repeat(1000))).unwrap().rows, 2);
    }

    #[test]
    fn a_trace_longer_than_400_days_is_refused_and_its_beginning_can_be_taken() {
        let rows = (0..402).map(|day| format!("{},1,0,0", day * 86_400)).collect::<Vec<_>>().join("\n");
        refused(&rows, "line 402: the trace is longer than 400 days");
        let text = format!("{HEADER}\n{rows}");
        assert_eq!(read(text.as_bytes(), Some(10)).unwrap().slots.len(), 10);
    }

    #[test]
    fn gzip_is_read_and_broken_gzip_is_named() {
        let text = format!("{HEADER}\n0,1,10,1\n5,2,20,2\n");
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(text.as_bytes()).unwrap();
        let bytes = encoder.finish().unwrap();
        assert_eq!(read(&bytes[..], None).unwrap(), read(text.as_bytes(), None).unwrap());
        let told = read(&bytes[..bytes.len() - 12], None).unwrap_err();
        assert!(matches!(told, TraceError::Bad { .. }), "{told}");
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_a_trace_or_an_error(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
            let with_header = [HEADER.as_bytes(), b"\n", &bytes].concat();
            for input in [&bytes, &with_header] {
                if let Ok(trace) = read(&input[..], None) {
                    assert!(!trace.slots.is_empty());
                }
            }
        }
    }
}
