//! One line of a page: its name, its labels, its value. Every function takes the whole page and an offset, never looks
//! beyond the end of the line, and says where it stopped.

use memchr::memchr;

use super::number::parse_number;

/// More labels than any series has (vLLM's `cache_config_info` has about 45): a bound on memory, not a format rule.
const MAX_LABELS: usize = 512;

/// The labels of one sample, as written. One value serves all lines of a page.
#[derive(Debug)]
pub(super) struct Labels<'p> {
    pairs: Vec<(&'p [u8], &'p [u8])>,
}

impl<'p> Labels<'p> {
    pub(super) fn new() -> Self {
        Self { pairs: Vec::with_capacity(8) }
    }

    pub(super) fn clear(&mut self) {
        self.pairs.clear();
    }

    pub(super) fn get(&self, name: &[u8]) -> Option<&'p [u8]> {
        self.pairs.iter().find(|(label, _)| *label == name).map(|(_, value)| *value)
    }
}

/// A value and what comes after it.
pub(super) struct Value<'p> {
    pub(super) number: f64,
    pub(super) written: &'p [u8],
    pub(super) next_line: usize,
}

/// Where the next line begins.
pub(super) fn after_line(page: &[u8], at: usize) -> usize {
    memchr(b'\n', &page[at..]).map_or(page.len(), |found| at + found + 1)
}

pub(super) fn skip_blanks(page: &[u8], mut at: usize) -> usize {
    while matches!(page.get(at), Some(b' ' | b'\t')) {
        at += 1;
    }
    at
}

/// The name that a `# TYPE` line declares; None for any other comment.
pub(super) fn type_line_name(page: &[u8], at: usize) -> Option<&[u8]> {
    let keyword = skip_blanks(page, at + 1);
    let rest = page[keyword..].strip_prefix(b"TYPE")?;
    let blanks = skip_blanks(rest, 0);
    if blanks == 0 {
        return None;
    }
    let rest = &rest[blanks..];
    if let Some(quoted) = rest.strip_prefix(b"\"") {
        return memchr(b'"', quoted).map(|end| &quoted[..end]);
    }
    Some(series_name(rest, 0).0)
}

/// The name that begins at an offset (empty where none does), and where it ends.
pub(super) fn series_name(page: &[u8], at: usize) -> (&[u8], usize) {
    let rest = &page[at..];
    let length = rest.iter().position(|&byte| !is_name_byte(byte)).unwrap_or(rest.len());
    (&rest[..length], at + length)
}

pub(super) fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b':')
}

/// Reads labels up to and with the closing brace; `at` is behind the opening one. A quoted string without `=` is the
/// series' own name (the UTF-8 form of Prometheus 3), which is handed back.
pub(super) fn read_labels<'p>(
    page: &'p [u8],
    mut at: usize,
    labels: &mut Labels<'p>,
) -> Result<(Option<&'p [u8]>, usize), &'static str> {
    labels.clear();
    let mut own_name = None;
    loop {
        at = skip_blanks(page, at);
        if page.get(at) == Some(&b'}') {
            return Ok((own_name, at + 1));
        }
        let quoted = page.get(at) == Some(&b'"');
        let (name, end) = if quoted { read_quoted(page, at + 1)? } else { series_name(page, at) };
        if end == at {
            return Err("a label name is missing");
        }
        at = skip_blanks(page, end);
        if page.get(at) == Some(&b'=') {
            at = skip_blanks(page, at + 1);
            if page.get(at) != Some(&b'"') {
                return Err("a label value without quotes");
            }
            let (value, end) = read_quoted(page, at + 1)?;
            if labels.pairs.len() == MAX_LABELS {
                return Err("more than 512 labels");
            }
            labels.pairs.push((name, value));
            at = skip_blanks(page, end);
        } else if !quoted || own_name.replace(name).is_some() || !labels.pairs.is_empty() {
            return Err("a label without a value");
        }
        match page.get(at) {
            Some(b',') => at += 1,
            Some(b'}') => return Ok((own_name, at + 1)),
            _ => return Err("labels without a comma or a closing brace"),
        }
    }
}

/// Reads up to and with the closing quote; `at` is behind the opening one.
fn read_quoted(page: &[u8], at: usize) -> Result<(&[u8], usize), &'static str> {
    let mut end = at;
    loop {
        match page.get(end) {
            Some(b'"') => return Ok((&page[at..end], end + 1)),
            Some(b'\\') if page.get(end + 1).is_some_and(|&escaped| escaped != b'\n') => end += 2,
            None | Some(b'\n') => return Err("a quoted text doesn't end on its line"),
            Some(_) => end += 1,
        }
    }
}

/// Reads the value, and checks what may follow it: a timestamp and, after a `#`, an exemplar.
pub(super) fn read_value(page: &[u8], at: usize) -> Result<Value<'_>, &'static str> {
    let (written, at) = token(page, at);
    let Some(number) = parse_number(written) else {
        return Err("the value is not a number");
    };
    if page.get(at) == Some(&b'\n') {
        return Ok(Value { number, written, next_line: at + 1 });
    }
    let (timestamp, after) = token(page, at);
    let exemplar = if timestamp.starts_with(b"#") {
        timestamp
    } else {
        if !timestamp.is_empty() && parse_number(timestamp).is_none() {
            return Err("what follows the value is no timestamp");
        }
        token(page, after).0
    };
    let next_line = after_line(page, at);
    if !exemplar.starts_with(b"#") && !page[after..next_line].trim_ascii().is_empty() {
        return Err("text after the value");
    }
    Ok(Value { number, written, next_line })
}

/// The next run of bytes that are neither blank nor the end of the line.
fn token(page: &[u8], at: usize) -> (&[u8], usize) {
    let at = skip_blanks(page, at);
    let mut end = at;
    while page.get(end).is_some_and(|byte| !matches!(byte, b' ' | b'\t' | b'\r' | b'\n')) {
        end += 1;
    }
    (&page[at..end], end)
}
