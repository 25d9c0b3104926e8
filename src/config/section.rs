//! Reading a mapping by the table: what is written here, else what is inherited, else the default.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use super::problem::{Place, Read, Reported};
use super::quantity::{self, quoted};
use super::settings::DnsPort;
use super::shape::{Absent, Key, Kind, Scalar, Value};
use super::yaml::{Content, Entry, Look, Node, Style, look};
use crate::decision::policy::{Hold, QueueAllowance, Ramp, Step};

/// A mapping of the file with the keys that it may have. `defaults` lies below a tier as a second layer.
#[derive(Clone, Debug)]
pub(super) struct Section<'n> {
    pub(super) keys: &'static [Key],
    /// Never empty: the first is the mapping itself, or the place where it would stand.
    layers: Vec<Layer<'n>>,
    /// Required keys may be absent: `defaults` gives only what it gives.
    pub(super) partial: bool,
}

#[derive(Clone, Debug)]
struct Layer<'n> {
    place: Place,
    entries: &'n [Entry],
}

impl<'n> Section<'n> {
    /// The mapping `node`, or an empty one where the file says nothing.
    pub(super) fn new(node: Option<&'n Node>, place: Place, keys: &'static [Key]) -> Self {
        let entries: &[Entry] = match node.map(|node| &node.content) {
            Some(Content::Map(entries)) => entries,
            _ => &[],
        };
        Self { keys, layers: vec![Layer { place, entries }], partial: false }
    }

    pub(super) fn partial(self) -> Self {
        Self { partial: true, ..self }
    }

    /// Whatever this section doesn't say, `below` says.
    pub(super) fn inheriting(mut self, below: &Section<'n>) -> Self {
        self.layers.extend(below.layers.iter().cloned());
        self
    }

    /// Where the mapping itself stands.
    pub(super) fn place(&self) -> &Place {
        &self.layers[0].place
    }

    /// Where a key is written, or would be.
    pub(super) fn place_of(&self, name: &str) -> Place {
        self.written(name).map_or_else(|| self.place().key(name), |(place, node)| place.at_line(node.line))
    }

    /// The entries of the mapping itself, without what it inherits.
    pub(super) fn own_entries(&self) -> &'n [Entry] {
        self.layers[0].entries
    }

    /// A key's value, from the first layer that has the key. A null there means absent.
    pub(super) fn written(&self, name: &str) -> Option<(Place, &'n Node)> {
        self.layers
            .iter()
            .find_map(|layer| Some((layer.place.key(name), entry(layer, name)?)))
            .map(|(place, entry)| (place.at_line(entry.line), &entry.value))
            .filter(|(_, node)| node.content != Content::Null)
    }

    /// The section below a key; empty where nothing is written.
    pub(super) fn section(&self, name: &str) -> Section<'n> {
        let own = entry(&self.layers[0], name);
        let place =
            own.map_or_else(|| self.place().key(name), |entry| self.place().key(name).at_line(entry.line));
        let mut below = Section::new(own.map(|entry| &entry.value), place, self.key(name).children());
        for layer in &self.layers[1..] {
            // A null cuts off what would be inherited.
            if own.is_some_and(|entry| entry.value.content == Content::Null) {
                break;
            }
            if let Some(entry) = entry(layer, name) {
                let place = layer.place.key(name).at_line(entry.line);
                below.layers.push(Section::new(Some(&entry.value), place, below.keys).layers.remove(0));
            }
        }
        below.partial = self.partial;
        below
    }

    /// The section below a key, if any layer has it.
    pub(super) fn optional_section(&self, name: &str) -> Option<Section<'n>> {
        self.written(name).map(|_| self.section(name))
    }

    /// The sections of a list.
    pub(super) fn sections(&self, name: &str) -> Vec<Section<'n>> {
        let Some((place, node)) = self.written(name) else { return Vec::new() };
        let Content::List(items) = &node.content else { return Vec::new() };
        let key = self.key(name);
        let below = match key.kind {
            Kind::Sections { inherit: Some(beside), .. } => self.optional_section(beside),
            _ => None,
        };
        let item = |(index, node): (usize, &'n Node)| {
            let item = Section::new(Some(node), place.item(index).at_line(node.line), key.children());
            below.iter().fold(item, Section::inheriting)
        };
        items.iter().enumerate().map(item).collect()
    }

    /// A value that is written or has a default.
    pub(super) fn get<T: FromValue>(&self, name: &str) -> Read<T> {
        self.optional(name)?.ok_or(Reported)
    }

    /// A value, or None where nothing is written and there is no default.
    pub(super) fn optional<T: FromValue>(&self, name: &str) -> Read<Option<T>> {
        let key = self.key(name);
        let Kind::Scalar(scalar) = &key.kind else { unreachable!("`{name}` is a single value in the table") };
        let value = match (self.written(name), key.absent) {
            (Some((_, Node { content: Content::Scalar(text, _), .. })), _) => scalar.read(text),
            (Some(_), _) => return Err(Reported),
            (None, Absent::Default(text)) => scalar.read(text),
            (None, Absent::Required) if !self.partial => return Err(Reported),
            (None, _) => return Ok(None),
        };
        match T::from_value(value.map_err(|_| Reported)?) {
            Some(value) => Ok(Some(value)),
            None => unreachable!("`{name}` is read as what the table says it is"),
        }
    }

    /// A single value as it is written, good or not.
    pub(super) fn text(&self, name: &str) -> Option<&'n str> {
        match self.written(name) {
            Some((_, Node { content: Content::Scalar(text, _), .. })) => Some(text),
            _ => None,
        }
    }

    /// The single values of a list, each with its place.
    pub(super) fn scalars(&self, name: &str) -> Vec<(Place, &'n str)> {
        let Some((place, Node { content: Content::List(items), .. })) = self.written(name) else {
            return Vec::new();
        };
        let item = |(index, node): (usize, &'n Node)| match &node.content {
            Content::Scalar(text, _) => Some((place.item(index).at_line(node.line), text.as_str())),
            _ => None,
        };
        items.iter().enumerate().filter_map(item).collect()
    }

    /// A queue allowance.
    pub(super) fn allowance(&self, name: &str) -> Read<QueueAllowance> {
        match (self.written(name), self.key(name).absent) {
            (Some((_, node)), _) => allowance(node).map_err(|_| Reported),
            (None, Absent::Default(text)) => allowance_text(text).map_err(|_| Reported),
            (None, _) => Err(Reported),
        }
    }

    /// Labels and their values; none where nothing is written.
    pub(super) fn labels(&self, name: &str) -> Read<BTreeMap<String, String>> {
        self.written(name).map_or_else(|| Ok(BTreeMap::new()), |(_, node)| labels(node).map_err(|_| Reported))
    }

    pub(super) fn key(&self, name: &str) -> &'static Key {
        match self.keys.iter().find(|key| key.name == name) {
            Some(key) => key,
            None => unreachable!("`{name}` is read only where the table has it"),
        }
    }
}

fn entry<'n>(layer: &Layer<'n>, name: &str) -> Option<&'n Entry> {
    layer.entries.iter().find(|entry| entry.key == name)
}

/// The largest queue allowance in requests or tokens that makes sense.
const MAX_ALLOWANCE: f64 = 1e9;

const ALLOWANCE: &str = "write a span such as 5s, {requests: 50} or {tokens: 100000}";

/// Reads `5s`, `{requests: 50}`, `{tokens: 100000}`, or on one line `50 requests` and `100000 tokens`.
pub(super) fn allowance(node: &Node) -> Result<QueueAllowance, String> {
    match &node.content {
        Content::Scalar(text, _) => allowance_text(text),
        Content::Map(entries) => match entries.as_slice() {
            [Entry { key, value: Node { content: Content::Scalar(text, style), .. }, .. }] => {
                let read = allowance_of(text, key)
                    .unwrap_or_else(|| Err(format!("{} is not known here: {ALLOWANCE}", quoted(key))))?;
                written_as(Look::Number, text, *style, key)?;
                Ok(read)
            }
            _ => Err(format!("one of requests and tokens is needed: {ALLOWANCE}")),
        },
        other => Err(format!("{} is no allowance: {ALLOWANCE}", other.kind())),
    }
}

fn allowance_text(text: &str) -> Result<QueueAllowance, String> {
    if let Some(read) = text.split_once(' ').and_then(|(number, unit)| allowance_of(number, unit)) {
        return read;
    }
    quantity::span(text, Duration::ZERO, Duration::from_hours(1))
        .map(|span| QueueAllowance::Seconds(span.as_secs_f64()))
        .map_err(|message| format!("{message}; or write {{requests: 50}} or {{tokens: 100000}}"))
}

fn allowance_of(number: &str, unit: &str) -> Option<Result<QueueAllowance, String>> {
    let unit = match unit {
        "requests" => QueueAllowance::Requests,
        "tokens" => QueueAllowance::Tokens,
        _ => return None,
    };
    Some(quantity::number(number, 0.0, MAX_ALLOWANCE).map(unit))
}

/// Labels of one activator: more is a mistake.
const MAX_LABELS: usize = 32;

/// Reads a mapping of label names to values.
pub(super) fn labels(node: &Node) -> Result<BTreeMap<String, String>, String> {
    let Content::Map(entries) = &node.content else {
        return Err(format!("{} is no mapping: write labels such as {{pool: chat}}", node.content.kind()));
    };
    if entries.len() > MAX_LABELS {
        return Err(format!("more than {MAX_LABELS} labels"));
    }
    let mut labels = BTreeMap::new();
    for Entry { key, value, .. } in entries {
        let Content::Scalar(text, style) = &value.content else {
            return Err(format!("label {} needs a single value", quoted(key)));
        };
        let good_name = !key.is_empty()
            && !key.as_bytes()[0].is_ascii_digit()
            && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if !good_name {
            return Err(format!("{} is no label name", quoted(key)));
        }
        written_as(Look::Text, text, *style, key)?;
        labels.insert(key.clone(), text.clone());
    }
    Ok(labels)
}

/// A Rust type that a [`Value`] can become.
pub(super) trait FromValue: Sized {
    fn from_value(value: Value) -> Option<Self>;
}

macro_rules! from_value {
    ($($variant:ident => $type:ty),* $(,)?) => {$(
        impl FromValue for $type {
            fn from_value(value: Value) -> Option<Self> {
                match value {
                    Value::$variant(inner) => Some(inner),
                    _ => None,
                }
            }
        }
    )*};
}

from_value! {
    Span => Duration, Count => u32, Number => f64, Size => usize, Flag => bool, Text => String,
    Socket => SocketAddr, Port => DnsPort, Ramp => Ramp, Step => Step,
}

impl FromValue for Hold {
    fn from_value(value: Value) -> Option<Self> {
        match value {
            Value::Auto => Some(Self::Auto),
            Value::Span(span) => Some(Self::Fixed(span)),
            _ => None,
        }
    }
}

impl FromValue for std::path::PathBuf {
    fn from_value(value: Value) -> Option<Self> {
        String::from_value(value).map(Self::from)
    }
}

/// A text of the file read by its kind, for checks of shape; `key` is what it stands under, for the message.
pub(super) fn read_scalar(scalar: &Scalar, node: &Node, key: &str) -> Result<Value, String> {
    match &node.content {
        Content::Scalar(text, style) => {
            let value = scalar.read(text)?;
            written_as(scalar.bare(), text, *style, key)?;
            Ok(value)
        }
        other => Err(format!("{} where a single value belongs: write a {}", other.kind(), scalar.expected())),
    }
}

/// Refuses a number or a boolean in quotes, and a bare one where a text belongs: every other reader of the file, the
/// JSON Schema first of all, sees another value there.
fn written_as(bare: Look, text: &str, style: Style, key: &str) -> Result<(), String> {
    let look = look(text);
    let what = match look {
        Look::Number => "number",
        Look::Boolean => "boolean",
        Look::Text => return Ok(()),
    };
    let key = if key.is_empty() { String::new() } else { format!("{key}: ") };
    match style {
        Style::Quoted if look == bare => {
            Err(format!("in quotes this is a text, not a {what}: write {key}{text}"))
        }
        Style::Plain if look != bare => Err(format!(
            "{} is a {what} to YAML, and a text belongs here: write {key}\"{text}\"",
            quoted(text)
        )),
        _ => Ok(()),
    }
}
