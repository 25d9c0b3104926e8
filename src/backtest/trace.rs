//! The trace format: CSV, plain or gzip, read row by row. Pure: it takes bytes.
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

use std::io::{BufRead, BufReader, ErrorKind, Read as _};

use flate2::bufread::MultiGzDecoder;

use super::SLOT_SECONDS;

/// The first line of every trace.
pub const HEADER: &str = "t_seconds,requests,input_tokens,output_tokens";

/// A row of four numbers is far shorter; a longer line is no trace, and is not kept in memory.
const LONGEST_LINE: u64 = 1024;

/// Slots of a trace: 400 days. It bounds the memory whatever the file holds.
const MOST_SLOTS: usize = 400 * SLOTS_A_DAY;

/// Slots in a day.
pub(super) const SLOTS_A_DAY: usize = (86_400.0 / SLOT_SECONDS) as usize;

/// Widths of a bin that make sense, seconds: a hundredth of a second to a day.
const BIN_SECONDS: std::ops::RangeInclusive<f64> = 0.01..=86_400.0;

/// A bin holds no more of anything: sums over years of bins stay exact enough in doubles.
const LARGEST_COUNT: f64 = 1e12;

/// A row may lie off the grid of bins by so much of a bin: times are written with few digits.
const OFF_GRID: f64 = 1e-3;

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
    /// The width of the bins in the file, seconds.
    pub bin_seconds: f64,
    /// Rows that were read.
    pub rows: u64,
}

/// Reads a trace; with `most_slots` only its beginning.
///
/// # Errors
/// The first line that is wrong; what the reader fails with.
pub fn read(mut source: impl BufRead, most_slots: Option<usize>) -> Result<Trace, TraceError> {
    let is_gzip = source.fill_buf()?.starts_with(&[0x1f, 0x8b]);
    if is_gzip {
        return read_text(BufReader::new(MultiGzDecoder::new(source)), most_slots);
    }
    read_text(source, most_slots)
}

fn read_text(mut source: impl BufRead, most_slots: Option<usize>) -> Result<Trace, TraceError> {
    let mut building = Building { most_slots, ..Building::default() };
    let (mut text, mut line) = (Vec::new(), 0);
    loop {
        text.clear();
        line += 1;
        let bad = |what: String| TraceError::Bad { line, what };
        let length = source.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut text);
        match length {
            Ok(0) => break,
            Ok(length) if length as u64 == LONGEST_LINE => {
                return Err(bad(format!("longer than {LONGEST_LINE} bytes: no row of four numbers")));
            }
            Ok(_) => {}
            Err(error) if is_broken(error.kind()) => return Err(bad(format!("broken gzip data: {error}"))),
            Err(error) => return Err(error.into()),
        }
        let row = std::str::from_utf8(&text).map_err(|_| bad("not UTF-8 text".to_owned()))?.trim();
        if line == 1 {
            header(row).map_err(bad)?;
        } else if !row.is_empty() && building.add(row).map_err(bad)? == Wants::NoMore {
            break;
        }
    }
    building.finish().map_err(|what| TraceError::Bad { line: line.saturating_sub(1).max(1), what })
}

/// The kinds with which a decoder tells of bytes that are no gzip; a disk that fails has others.
fn is_broken(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::InvalidData | ErrorKind::InvalidInput | ErrorKind::UnexpectedEof)
}

fn header(row: &str) -> Result<(), String> {
    // A byte order mark is an editor's.
    if row.trim_start_matches('\u{feff}') == HEADER {
        return Ok(());
    }
    Err(format!("the first line must be `{HEADER}`"))
}

/// Is there room for more rows?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wants {
    More,
    NoMore,
}

/// A trace on its way.
#[derive(Default)]
struct Building {
    slots: Vec<Arrivals>,
    most_slots: Option<usize>,
    /// The time of the first row.
    begins: f64,
    /// The first row, until the second tells how wide it is.
    first: Option<Arrivals>,
    width: Option<f64>,
    bins: u64,
}

impl Building {
    fn add(&mut self, row: &str) -> Result<Wants, String> {
        let (time, arrivals) = numbers(row)?;
        if self.bins == 0 {
            self.begins = time;
            self.first = Some(arrivals);
            self.bins = 1;
            return Ok(Wants::More);
        }
        let width = match self.width {
            Some(width) => width,
            None => self.learn_width(time)?,
        };
        self.on_grid(time, width)?;
        self.spread(arrivals, width)
    }

    fn learn_width(&mut self, second: f64) -> Result<f64, String> {
        let width = second - self.begins;
        if width <= 0.0 {
            return Err(format!("t_seconds {second} is not after the row before it: sort the rows"));
        }
        if !BIN_SECONDS.contains(&width) {
            return Err(format!(
                "bins of {width} s: between {} and {} s",
                BIN_SECONDS.start(),
                BIN_SECONDS.end()
            ));
        }
        self.width = Some(width);
        if let Some(first) = self.first.take() {
            self.bins = 0;
            self.spread(first, width)?;
        }
        Ok(width)
    }

    fn on_grid(&self, time: f64, width: f64) -> Result<(), String> {
        let expected = self.begins + self.bins as f64 * width;
        let off = (time - expected) / width;
        if off.abs() <= OFF_GRID {
            return Ok(());
        }
        if off <= -1.0 + OFF_GRID {
            return Err(format!("t_seconds {time} is not after the row before it: sort the rows"));
        }
        Err(format!(
            "t_seconds {time} where {expected} was expected: rows are {width} s apart, with 0 where nothing arrived"
        ))
    }

    /// Adds the next bin to the slots that it covers, each by its share.
    fn spread(&mut self, arrivals: Arrivals, width: f64) -> Result<Wants, String> {
        let (start, end) = (self.bins as f64 * width, (self.bins + 1) as f64 * width);
        self.bins += 1;
        let most = self.most_slots.unwrap_or(MOST_SLOTS + 1).min(MOST_SLOTS + 1);
        let mut slot = (start / SLOT_SECONDS + 1e-9).floor() as usize;
        while slot < most {
            let (from, to) = (slot as f64 * SLOT_SECONDS, (slot + 1) as f64 * SLOT_SECONDS);
            let share = (end.min(to) - start.max(from)) / width;
            if share <= 1e-9 {
                return Ok(Wants::More);
            }
            if slot >= MOST_SLOTS {
                return Err("the trace is longer than 400 days: take a part of it with --days".to_owned());
            }
            if self.slots.len() <= slot {
                self.slots.resize(slot + 1, Arrivals::default());
            }
            let here = &mut self.slots[slot];
            here.requests += arrivals.requests * share;
            here.input_tokens += arrivals.input_tokens * share;
            here.output_tokens += arrivals.output_tokens * share;
            slot += 1;
        }
        Ok(Wants::NoMore)
    }

    fn finish(self) -> Result<Trace, String> {
        match self.width {
            Some(bin_seconds) => Ok(Trace { slots: self.slots, bin_seconds, rows: self.bins }),
            None if self.bins == 0 => Err("no rows: the trace is empty".to_owned()),
            None => Err("one row tells no width of its bin: at least two are needed".to_owned()),
        }
    }
}

fn numbers(row: &str) -> Result<(f64, Arrivals), String> {
    let mut fields = row.split(',');
    let mut next = |name: &str, most: f64| {
        let text = fields.next().ok_or_else(|| format!("{name} is missing: four numbers make a row"))?.trim();
        let number: f64 = text.parse().map_err(|_| format!("{name} `{text}` is no number"))?;
        if !number.is_finite() {
            return Err(format!("{name} is {number}: a finite number is needed"));
        }
        if number < 0.0 {
            return Err(format!("{name} is negative: {number}"));
        }
        if number > most {
            return Err(format!("{name} is {number}: at most {most:e}"));
        }
        Ok(number)
    };
    let time = next("t_seconds", LARGEST_COUNT)?;
    let arrivals = Arrivals {
        requests: next("requests", LARGEST_COUNT)?,
        input_tokens: next("input_tokens", LARGEST_COUNT)?,
        output_tokens: next("output_tokens", LARGEST_COUNT)?,
    };
    if fields.next().is_some() {
        return Err("more than four fields".to_owned());
    }
    Ok((time, arrivals))
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
        assert_eq!((fine.slots.len(), fine.rows), (2, 6));
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
