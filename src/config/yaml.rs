//! YAML text to a tree of nodes that know their lines.
//!
//! Scalars stay text: what a text means is the business of the key that it stands under, and `yes` is nobody's boolean.
//! How it was written is kept, because to every other reader of the file `12` is a number and `"12"` is a text. Aliases are followed; merge keys and tags are refused, because what a reader of the file
//! sees should be what is there.

use std::collections::HashMap;

use serde_saphyr::granit_parser::{Event, Parser, ScalarStyle, ScanError, Span, StrInput, Tag};

use super::problem::{Place, Problems, Read, Reported};

/// Nodes in one file, aliases expanded: 1,000 tiers of 100 keys, and a stop for files that alias themselves to death.
const MAX_NODES: usize = 200_000;
/// The deepest key of a good file is seven levels down.
const MAX_DEPTH: usize = 32;

/// A value in the file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node {
    /// From 1.
    pub(super) line: usize,
    pub(super) content: Content,
}

/// What a node holds.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Content {
    /// Nothing, `~` or `null`.
    Null,
    Scalar(String, Style),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// How a scalar was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// Bare: a number, a boolean or a text, by its looks.
    Plain,
    /// In quotes or as a block: always a text.
    Quoted,
    /// Not in a file: a ScaledObject's metadata is a map of texts to texts, where a number is a text too.
    Metadata,
}

/// What a bare scalar is to YAML (version 1.2, core schema, section 10.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// Also `0x1f`, `1e3`, `.inf` and `.nan`.
    Number,
    Boolean,
    Text,
}

/// What this text is to YAML where it stands bare.
pub(super) fn look(text: &str) -> Look {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let digits = |text: &str, radix: u32| !text.is_empty() && text.chars().all(|c| c.is_digit(radix));
    let based = |prefix: &str, radix| text.strip_prefix(prefix).is_some_and(|rest| digits(rest, radix));
    match text {
        "true" | "True" | "TRUE" | "false" | "False" | "FALSE" => return Look::Boolean,
        ".nan" | ".NaN" | ".NAN" => return Look::Number,
        _ => {}
    }
    let infinite = matches!(unsigned, ".inf" | ".Inf" | ".INF");
    if infinite || based("0o", 8) || based("0x", 16) || is_decimal(unsigned) {
        Look::Number
    } else {
        Look::Text
    }
}

/// `12`, `.5`, `5.`, `1.5e-3`; not `.` and not `e3`.
fn is_decimal(text: &str) -> bool {
    let all_digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    let (mantissa, exponent) = text.split_once(['e', 'E']).map_or((text, None), |(m, e)| (m, Some(e)));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let exponent_is_good = exponent.is_none_or(|exponent| {
        let digits = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        !digits.is_empty() && all_digits(digits)
    });
    whole.len() + fraction.len() > 0 && all_digits(whole) && all_digits(fraction) && exponent_is_good
}

/// A key of a mapping with its value.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    pub(super) key: String,
    /// The key's line, from 1.
    pub(super) line: usize,
    pub(super) value: Node,
}

impl Content {
    /// For messages: what was found where something else was expected.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Scalar(..) => "a single value",
            Self::List(_) => "a list",
            Self::Map(_) => "a mapping",
        }
    }
}

/// Reads one document. Duplicate keys, tags and merge keys are reported and passed over; a text that is no YAML is
/// reported with its first error.
pub(super) fn read(text: &str, problems: &mut Problems) -> Read<Node> {
    let mut reader =
        Reader { parser: Parser::new_from_str(text), anchors: HashMap::new(), nodes: 0, problems };
    match reader.document() {
        Ok(node) => Ok(node),
        Err(Stop::Reported) => Err(Reported),
        Err(Stop::Syntax(error)) => {
            let line = error.marker().line();
            problems.push(&file_at(line), syntax_message(&error, text, line));
            Err(Reported)
        }
    }
}

fn file_at(line: usize) -> Place {
    Place { path: String::new(), line: line.max(1) }
}

/// The most common slip has its own words: a cron expression without quotes reads as an alias.
fn syntax_message(error: &ScanError, text: &str, line: usize) -> String {
    let written = text.lines().nth(line.saturating_sub(1)).unwrap_or_default();
    if written.contains(": *") {
        return "not valid YAML: a value that begins with `*` needs quotes, as in start: \"*/5 8 * * 1-5\""
            .to_owned();
    }
    if written.contains('\t') {
        return format!("not valid YAML: {} (indent with spaces, not tabs)", error.info());
    }
    format!("not valid YAML: {}", error.info())
}

enum Stop {
    Syntax(ScanError),
    Reported,
}

impl From<ScanError> for Stop {
    fn from(error: ScanError) -> Self {
        Self::Syntax(error)
    }
}

struct Reader<'t, 'p> {
    parser: Parser<'t, StrInput<'t>>,
    anchors: HashMap<usize, (Node, usize)>,
    nodes: usize,
    problems: &'p mut Problems,
}

impl<'t> Reader<'t, '_> {
    fn document(&mut self) -> Result<Node, Stop> {
        let mut document = None;
        while let Some((event, span)) = self.next()? {
            let line = span.start.line();
            match event {
                Event::DocumentStart(..) if document.is_some() => {
                    self.problems.push(&file_at(line), "a second document: write everything in one");
                    return Err(Stop::Reported);
                }
                Event::StreamStart | Event::StreamEnd | Event::DocumentStart(..) | Event::DocumentEnd => {}
                first => document = Some(self.node(first, span, &file_at(line), 0)?),
            }
        }
        Ok(document.unwrap_or(Node { line: 1, content: Content::Null }))
    }

    fn next(&mut self) -> Result<Option<(Event<'t>, Span)>, ScanError> {
        loop {
            match self.parser.next_event().transpose()? {
                Some((Event::Comment(..), _)) => {}
                other => return Ok(other),
            }
        }
    }

    /// Reads the node that `event` begins. `place` is the key that it stands under.
    fn node(&mut self, event: Event<'t>, span: Span, place: &Place, depth: usize) -> Result<Node, Stop> {
        let line = span.start.line();
        let place = place.clone().at_line(line);
        self.count(1, &place)?;
        if depth > MAX_DEPTH {
            self.problems.push(&place, format!("nested deeper than {MAX_DEPTH} levels"));
            return Err(Stop::Reported);
        }
        let before = self.nodes;
        let (content, anchor) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.refuse_tag(tag.as_deref(), &place);
                (scalar(&text, style), anchor)
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.refuse_tag(tag.as_deref(), &place);
                (Content::List(self.list(&place, depth)?), anchor)
            }
            Event::MappingStart(_, anchor, tag) => {
                self.refuse_tag(tag.as_deref(), &place);
                (Content::Map(self.map(&place, depth)?), anchor)
            }
            Event::Alias(anchor) => return self.alias(anchor, &place),
            _ => {
                self.problems.push(&place, "not valid YAML here");
                return Err(Stop::Reported);
            }
        };
        let node = Node { line, content };
        if anchor != 0 {
            self.anchors.insert(anchor, (node.clone(), self.nodes - before + 1));
        }
        Ok(node)
    }

    fn list(&mut self, place: &Place, depth: usize) -> Result<Vec<Node>, Stop> {
        let mut items = Vec::new();
        while let Some((event, span)) = self.next()? {
            if event == Event::SequenceEnd {
                break;
            }
            items.push(self.node(event, span, &place.item(items.len()), depth + 1)?);
        }
        Ok(items)
    }

    fn map(&mut self, place: &Place, depth: usize) -> Result<Vec<Entry>, Stop> {
        let mut entries: Vec<Entry> = Vec::new();
        while let Some((event, span)) = self.next()? {
            if event == Event::MappingEnd {
                break;
            }
            let line = span.start.line();
            let Event::Scalar(key, ..) = event else {
                self.problems.push(&place.clone().at_line(line), "a key must be a plain name");
                return Err(Stop::Reported);
            };
            let here = place.key(&key).at_line(line);
            let Some((event, span)) = self.next()? else { break };
            let value = self.node(event, span, &here, depth + 1)?;
            if &*key == "<<" {
                self.problems.push(&here, "merge keys are not read: put what tiers share under `defaults`");
                continue;
            }
            if let Some(first) = entries.iter().find(|entry| entry.key == key) {
                self.problems
                    .push(&here, format!("written twice: remove this one or the one on line {}", first.line));
                continue;
            }
            entries.push(Entry { key: key.into_owned(), line, value });
        }
        Ok(entries)
    }

    /// A copy of what the anchor holds, lines included: a problem in it is where it is written.
    fn alias(&mut self, anchor: usize, place: &Place) -> Result<Node, Stop> {
        let Some((node, size)) = self.anchors.get(&anchor).cloned() else {
            self.problems.push(place, "an alias inside its own anchor");
            return Err(Stop::Reported);
        };
        self.count(size, place)?;
        Ok(node)
    }

    fn count(&mut self, nodes: usize, place: &Place) -> Result<(), Stop> {
        self.nodes += nodes;
        if self.nodes > MAX_NODES {
            self.problems.push(place, format!("more than {MAX_NODES} values in one file"));
            return Err(Stop::Reported);
        }
        Ok(())
    }

    fn refuse_tag(&mut self, tag: Option<&Tag>, place: &Place) {
        if let Some(tag) = tag {
            self.problems.push(place, format!("the tag `{}` is not read: remove it", tag.original()));
        }
    }
}

fn scalar(text: &str, style: ScalarStyle) -> Content {
    if style == ScalarStyle::Plain && matches!(text, "" | "~" | "null" | "Null" | "NULL") {
        return Content::Null;
    }
    let style = if style == ScalarStyle::Plain { Style::Plain } else { Style::Quoted };
    Content::Scalar(text.to_owned(), style)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(text: &str) -> (Read<Node>, String) {
        let mut problems = Problems::default();
        let node = read(text, &mut problems);
        (node, problems.to_string())
    }

    fn value<'a>(node: &'a Node, key: &str) -> &'a Node {
        let Content::Map(entries) = &node.content else { panic!("no mapping") };
        &entries.iter().find(|entry| entry.key == key).unwrap().value
    }

    #[test]
    fn every_node_knows_its_line() {
        let (node, problems) = tree("# a comment\na: 1\nb:\n  - x\n  - c: null\n    d: \"null\"\n");
        assert_eq!(problems, "");
        let node = node.unwrap();
        assert_eq!(
            value(&node, "a"),
            &Node { line: 2, content: Content::Scalar("1".to_owned(), Style::Plain) }
        );
        let Content::List(items) = &value(&node, "b").content else { panic!("no list") };
        assert_eq!(items[0].line, 4);
        assert_eq!(value(&items[1], "c").content, Content::Null);
        let quoted = Content::Scalar("null".to_owned(), Style::Quoted);
        assert_eq!(value(&items[1], "d"), &Node { line: 6, content: quoted });
    }

    #[test]
    fn a_bare_text_is_to_yaml_what_it_looks_like() {
        for text in [
            "0", "12", "-1", "+3", "0.8", ".5", "5.", "1e3", "1.5E-3", "0x1f", "0o17", ".inf", "-.INF",
            ".nan",
        ] {
            assert_eq!(look(text), Look::Number, "{text}");
        }
        for text in ["true", "FALSE"] {
            assert_eq!(look(text), Look::Boolean, "{text}");
        }
        for text in
            ["", ".", "e3", "1e", "80%", "5s", "8B", "10.0.0.1", "yes", "-", "inf", "0x", "1_000", "chat"]
        {
            assert_eq!(look(text), Look::Text, "{text}");
        }
    }

    #[test]
    fn keys_that_are_written_twice_are_all_told() {
        let (_, problems) = tree("a: 1\nb: {c: 1, c: 2}\na: 3\n");
        assert_eq!(
            problems,
            "line 2: b.c: written twice: remove this one or the one on line 2\n\
             line 3: a: written twice: remove this one or the one on line 1"
        );
    }

    #[test]
    fn an_alias_is_what_its_anchor_holds() {
        let (node, _) = tree("a: &x {t: 1}\nb: *x\n");
        let node = node.unwrap();
        assert_eq!(value(&node, "a"), value(&node, "b"));
    }

    #[test]
    fn aliases_of_aliases_stop_at_the_bound() {
        let level = |level: usize| {
            let below = if level == 0 { "x".to_owned() } else { format!("*a{}", level - 1) };
            format!("a{level}: &a{level} [{}]\n", vec![below; 10].join(","))
        };
        let text: String = (0..9).map(level).collect();
        let (node, problems) = tree(&text);
        assert!(node.is_err());
        assert!(problems.contains("more than 200000 values"), "{problems}");
    }

    #[test]
    fn merge_keys_tags_and_second_documents_are_refused() {
        assert!(tree("a: &x {t: 1}\nb:\n  <<: *x\n").1.contains("merge keys are not read"));
        assert!(tree("a: !!str 5\n").1.contains("the tag `!!str` is not read"));
        assert!(tree("a: 1\n---\nb: 2\n").1.contains("a second document"));
        assert!(tree("? [a]\n: 1\n").1.contains("a key must be a plain name"));
    }

    #[test]
    fn an_unquoted_cron_expression_is_explained() {
        let (node, problems) = tree("a: 1\nstart: * 8 * * 1-5\n");
        assert!(node.is_err());
        assert!(
            problems.starts_with("line 2: not valid YAML: a value that begins with `*` needs quotes"),
            "{problems}"
        );
    }

    #[test]
    fn an_empty_file_is_nothing() {
        assert_eq!(tree("").0, Ok(Node { line: 1, content: Content::Null }));
        assert_eq!(tree("# only a comment\n").0.unwrap().content, Content::Null);
    }

    #[test]
    fn deep_nesting_is_refused_and_does_not_overflow_the_stack() {
        let text = "[".repeat(100_000);
        assert!(tree(&text).0.is_err());
    }
}
