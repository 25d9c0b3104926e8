//! Lines of a file, plain or gzip, one at a time and none longer than it may be.

use std::io::{BufRead, BufReader, ErrorKind, Read, Take};

use flate2::bufread::MultiGzDecoder;

use super::TraceError;

/// A row of numbers is far shorter; a longer line is no trace, and is not kept in memory.
const LONGEST_ROW: u64 = 1024;

/// A request in JSON lists a hash for each 512 tokens of its prompt: a million tokens are 2,000 numbers.
const LONGEST_JSON: u64 = 64 * 1024;

/// Empty lines in a row: more are no trace, and gzip makes gigabytes of a few kilobytes.
const MOST_EMPTY: u64 = 10_000;

/// A source that may be compressed.
enum Text<R> {
    Plain(R),
    Gzip(Box<BufReader<MultiGzDecoder<R>>>),
}

/// Lines one after the other, with their numbers.
pub(in crate::backtest) struct Lines<R> {
    text: Text<R>,
    line: Vec<u8>,
    number: u64,
    /// Empty lines up to this one.
    empty: u64,
    /// The first line is handed out once more.
    again: bool,
}

impl<R: BufRead> Lines<R> {
    pub(in crate::backtest) fn open(mut source: R) -> Result<Self, TraceError> {
        let is_gzip = source.fill_buf()?.starts_with(&[0x1f, 0x8b]);
        let text = if is_gzip {
            Text::Gzip(Box::new(BufReader::new(MultiGzDecoder::new(source))))
        } else {
            Text::Plain(source)
        };
        Ok(Self { text, line: Vec::new(), number: 0, empty: 0, again: false })
    }

    /// The number of the line that was read last, counted from 1.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// The first line, without an editor's byte order mark; empty where there is none.
    pub(super) fn first(&mut self) -> Result<String, TraceError> {
        Ok(self.next()?.map_or("", |(_, first)| first.trim_start_matches('\u{feff}')).to_owned())
    }

    /// Hands out the line that was read last once more.
    pub(super) fn again(&mut self) {
        self.again = true;
    }

    /// The next line with its number, without the spaces around it.
    pub(in crate::backtest) fn next(&mut self) -> Result<Option<(u64, &str)>, TraceError> {
        if !std::mem::take(&mut self.again) {
            self.line.clear();
            let read = match &mut self.text {
                Text::Plain(source) => line(source.by_ref(), &mut self.line),
                Text::Gzip(source) => line(source.by_ref(), &mut self.line),
            };
            let number = self.number + 1;
            let bad = |what: String| TraceError::Bad { line: number, what };
            match read {
                Ok(0) => return Ok(None),
                Ok(_) => {}
                Err(error) if is_broken(error.kind()) => {
                    return Err(bad(format!("broken gzip data: {error}")));
                }
                Err(error) => return Err(error.into()),
            }
            self.number = number;
            let longest = longest(&self.line);
            if self.line.len() as u64 >= longest {
                return Err(bad(format!("longer than {longest} bytes")));
            }
        }
        let bad = |what: String| TraceError::Bad { line: self.number, what };
        let text = std::str::from_utf8(&self.line).map_err(|_| bad("not UTF-8 text".to_owned()))?.trim();
        self.empty = if text.is_empty() { self.empty + 1 } else { 0 };
        if self.empty > MOST_EMPTY {
            return Err(bad(format!("more than {MOST_EMPTY} empty lines in a row: no trace")));
        }
        Ok(Some((self.number, text)))
    }
}

fn longest(line: &[u8]) -> u64 {
    if line.first() == Some(&b'{') { LONGEST_JSON } else { LONGEST_ROW }
}

/// Reads a line, or as much of it as a line may be long.
fn line(source: &mut impl BufRead, into: &mut Vec<u8>) -> std::io::Result<usize> {
    let mut bounded: Take<_> = source.take(LONGEST_JSON);
    bounded.read_until(b'\n', into)
}

/// The kinds with which a decoder tells of bytes that are no gzip; a disk that fails has others.
fn is_broken(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::InvalidData | ErrorKind::InvalidInput | ErrorKind::UnexpectedEof)
}
