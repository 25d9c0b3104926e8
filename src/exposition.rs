//! A selective scanner of metrics pages: Prometheus text 0.0.4 and 1.0.0, OpenMetrics 1.0. Pure.
//!
//! A page of vLLM has hundreds of lines, of which a few dozen matter. [`Scanner`] reads those and steps over the rest: it
//! jumps from one `# TYPE` line to the next while families aren't wanted ([`Walk::Families`]), and goes line by line where
//! a page has no `# TYPE` lines ([`Walk::Lines`]). Both walks agree on every page whose families stand together, as the
//! formats ask for.
//!
//! Invariants:
//! - A series is matched by its whole name: never `x_created`, never `x_by_reason` for `x`.
//! - Nothing is allocated per line; the page is borrowed.
//! - What is not looked at is not checked: a broken line in a family that nobody wants goes unnoticed.
//! - Bytes never make it panic, and it takes time in proportion to their number.

use std::borrow::Cow;

use memchr::{memchr, memchr_iter};

mod line;
mod number;
mod wanted;

pub use number::parse_number;
pub use wanted::{Family, Part, Shape, Wanted};

use line::{Labels, after_line, read_labels, read_value, series_name, skip_blanks, type_line_name};

/// How much of a foreign page an error quotes.
const QUOTED_BEGINNING: usize = 40;

/// The end of every OpenMetrics page.
const END_OF_OPENMETRICS: &[u8] = b"# EOF";

/// Why bytes can't be read as a metrics page.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScanError {
    /// Nothing at all.
    #[error("the page is empty")]
    Empty,
    /// Neither a comment nor a series at the beginning: HTML, JSON, binary.
    #[error("not a metrics page (it begins with {0:?})")]
    NotExposition(String),
    /// The page ends inside a line, or an OpenMetrics page lacks its `# EOF`.
    #[error("the page is cut short")]
    Truncated,
    /// A line that no format allows.
    #[error("line {line}: {what}")]
    Malformed {
        /// Counted from 1.
        line: usize,
        /// What is wrong with it.
        what: &'static str,
    },
}

/// The two families of text formats. What differs for a reader: OpenMetrics marks its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus text 0.0.4 or 1.0.0: a page cut at the end of a line looks whole.
    Classic,
    /// OpenMetrics 1.0: a page ends with `# EOF`.
    OpenMetrics,
}

/// Says which format a page has, and refuses what is no whole page.
///
/// The content type decides; without one, a `# EOF` at the end does.
///
/// # Errors
/// [`ScanError::Empty`], [`ScanError::NotExposition`] and [`ScanError::Truncated`].
pub fn check_whole(page: &[u8], content_type: Option<&str>) -> Result<Format, ScanError> {
    let beginning = page.trim_ascii_start();
    let Some(&first) = beginning.first() else {
        return Err(ScanError::Empty);
    };
    if first != b'#' && !begins_with_series(beginning) {
        return Err(ScanError::NotExposition(quote(beginning)));
    }
    let ends_with_mark = ends_with_mark(page);
    let declared = content_type.is_some_and(|kind| kind.to_ascii_lowercase().contains("openmetrics"));
    match (declared || ends_with_mark, ends_with_mark, page.ends_with(b"\n")) {
        (true, true, _) => Ok(Format::OpenMetrics),
        (false, _, true) => Ok(Format::Classic),
        _ => Err(ScanError::Truncated),
    }
}

/// The first line is whole and a series with a value.
fn begins_with_series(beginning: &[u8]) -> bool {
    let mut labels = Labels::new();
    let Some(end) = memchr(b'\n', beginning) else {
        return false;
    };
    let (name, at) = series_name(beginning, 0);
    if name.is_empty() {
        return false;
    }
    let after_labels = match beginning.get(skip_blanks(beginning, at)) {
        Some(b'{') => read_labels(beginning, skip_blanks(beginning, at) + 1, &mut labels).map(|(_, at)| at),
        _ => Ok(at),
    };
    after_labels.and_then(|at| read_value(beginning, at)).is_ok_and(|value| value.next_line == end + 1)
}

fn ends_with_mark(page: &[u8]) -> bool {
    let Some(before) = page.trim_ascii_end().strip_suffix(END_OF_OPENMETRICS) else {
        return false;
    };
    before.is_empty() || before.ends_with(b"\n")
}

fn quote(beginning: &[u8]) -> String {
    let line = beginning.split(|&byte| byte == b'\n').next().unwrap_or_default();
    String::from_utf8_lossy(&line[..line.len().min(QUOTED_BEGINNING)]).trim_end().to_owned()
}

/// How to go through a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Walk {
    /// From one `# TYPE` line to the next; the samples of unwanted families aren't looked at.
    Families,
    /// Line by line, for pages without `# TYPE` lines or with families that don't stand together.
    Lines,
}

/// One thing found on a page.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event<'p> {
    /// The `# TYPE` line of a wanted family.
    Type {
        /// Its place in [`Wanted`].
        family: usize,
    },
    /// A sample of a wanted series; its labels are the scanner's until the next event.
    Sample(Sample<'p>),
}

/// A sample of a wanted series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample<'p> {
    /// The place of its family in [`Wanted`].
    pub family: usize,
    /// Which series of the family.
    pub part: Part,
    /// The value.
    pub value: f64,
    /// The value as written.
    pub written: &'p [u8],
    /// Where its line begins, for [`line_number`].
    pub offset: usize,
}

/// Goes through a page and stops at what is wanted.
#[derive(Debug)]
pub struct Scanner<'p, 'w> {
    page: &'p [u8],
    at: usize,
    wanted: &'w Wanted,
    walk: Walk,
    /// The wanted family whose `# TYPE` line came last: most lines after it are its own.
    current: Option<usize>,
    last: Option<usize>,
    counter_without_total: bool,
    labels: Labels<'p>,
}

impl<'p, 'w> Scanner<'p, 'w> {
    /// A scanner at the beginning of a page.
    #[must_use]
    pub fn new(page: &'p [u8], wanted: &'w Wanted, walk: Walk) -> Self {
        Self {
            page,
            at: 0,
            wanted,
            walk,
            current: None,
            last: None,
            counter_without_total: false,
            labels: Labels::new(),
        }
    }

    /// The walk that suits a page: by families where it has a `# TYPE` line at all.
    #[must_use]
    pub fn suitable(page: &'p [u8], wanted: &'w Wanted) -> Self {
        let typed = page.starts_with(wanted::TYPE_LINE) || wanted.find_type_line(page).is_some();
        Self::new(page, wanted, if typed { Walk::Families } else { Walk::Lines })
    }

    /// Which walk this is.
    #[must_use]
    pub fn walk(&self) -> Walk {
        self.walk
    }

    /// The next `# TYPE` line or sample of a wanted family; None at the end of the page.
    ///
    /// # Errors
    /// [`ScanError::Malformed`] for a broken line of a wanted series.
    pub fn next_event(&mut self) -> Result<Option<Event<'p>>, ScanError> {
        while let Some(&first) = self.page.get(self.at) {
            let event = match first {
                b'#' => self.comment(),
                b'\n' | b'\r' => {
                    self.at += 1;
                    None
                }
                _ => self.sample()?.map(Event::Sample),
            };
            if event.is_some() {
                return Ok(event);
            }
        }
        Ok(None)
    }

    /// A label of the last sample, as written (escapes included).
    #[must_use]
    pub fn label(&self, name: &str) -> Option<&'p [u8]> {
        self.labels.get(name.as_bytes())
    }

    /// The wanted family that the page ended in, once [`Scanner::next_event`] has said None. In the classic formats
    /// nobody can say whether more of it was to come.
    #[must_use]
    pub fn last_family(&self) -> Option<usize> {
        self.last
    }

    /// A wanted counter's `# TYPE` line lacked `_total`, as only OpenMetrics writes it.
    #[must_use]
    pub fn saw_openmetrics_names(&self) -> bool {
        self.counter_without_total
    }

    fn comment(&mut self) -> Option<Event<'p>> {
        let line = self.at;
        let Some(name) = type_line_name(self.page, line) else {
            self.at = after_line(self.page, line);
            return None;
        };
        let found = self.wanted.type_named(name);
        self.current = found.map(|(family, _)| family);
        self.last = self.current;
        if let Some((family, counter_without_total)) = found {
            self.counter_without_total |= counter_without_total;
            self.at = after_line(self.page, line);
            return Some(Event::Type { family });
        }
        self.at = match self.walk {
            Walk::Lines => after_line(self.page, line),
            Walk::Families => {
                self.wanted.find_type_line(&self.page[line..]).map_or(self.page.len(), |found| {
                    // The match begins with the line feed of the line before.
                    line + found + 1
                })
            }
        };
        None
    }

    fn sample(&mut self) -> Result<Option<Sample<'p>>, ScanError> {
        let offset = self.at;
        let fail = |what| ScanError::Malformed { line: line_number(self.page, offset), what };
        let (mut name, mut at) = (&self.page[..0], offset);
        // The usual line belongs to the family of the `# TYPE` line above it: no need to look for the name's end first.
        let mut series = self
            .current
            .and_then(|family| self.wanted.series_of(family, &self.page[offset..]))
            .map(|(family, part, length)| {
                at = offset + length;
                (family, part)
            });
        if series.is_none() {
            (name, at) = series_name(self.page, skip_blanks(self.page, offset));
            series = self.wanted.series_named(name);
        }
        let brace = skip_blanks(self.page, at);
        let quoted_name = name.is_empty() && series.is_none() && self.page.get(brace) == Some(&b'{');
        if series.is_none() && !quoted_name {
            self.last = self.current;
            self.at = after_line(self.page, at);
            return Ok(None);
        }
        self.labels.clear();
        if self.page.get(brace) == Some(&b'{') {
            let (inner_name, end) = read_labels(self.page, brace + 1, &mut self.labels).map_err(fail)?;
            series = series.or_else(|| self.wanted.series_named(inner_name.unwrap_or_default()));
            at = end;
        }
        let Some((family, part)) = series else {
            self.last = self.current;
            self.at = after_line(self.page, at);
            return Ok(None);
        };
        let value = read_value(self.page, at).map_err(fail)?;
        self.at = value.next_line;
        self.last = Some(family);
        Ok(Some(Sample { family, part, value: value.number, written: value.written, offset }))
    }
}

/// The number of the line that an offset lies in, counted from 1.
#[must_use]
pub fn line_number(page: &[u8], offset: usize) -> usize {
    1 + memchr_iter(b'\n', &page[..offset.min(page.len())]).count()
}

/// A label value without its escapes (`\\`, `\"`, `\n`); None when it isn't UTF-8.
#[must_use]
pub fn unescape(written: &[u8]) -> Option<Cow<'_, str>> {
    let text = std::str::from_utf8(written).ok()?;
    if !text.contains('\\') {
        return Some(Cow::Borrowed(text));
    }
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        if character != '\\' {
            plain.push(character);
            continue;
        }
        match characters.next() {
            Some('n') => plain.push('\n'),
            Some(escaped @ ('\\' | '"')) => plain.push(escaped),
            // Other escapes don't exist; Prometheus keeps them as written.
            Some(other) => plain.extend(['\\', other]),
            None => plain.push('\\'),
        }
    }
    Some(Cow::Owned(plain))
}

#[cfg(test)]
mod tests;
