//! What a key may hold: the vocabulary of the table in [`super::file`].
//!
//! One table says every key, its kind, its bounds, its default and its meaning. Reading, `schema` and the reference in
//! `docs/configuration.md` all come from it, so they can't disagree.

use std::net::SocketAddr;
use std::time::Duration;

use super::settings::DnsPort;
use super::yaml::Look;
use super::{address, profiles, quantity};
use crate::decision::policy::{Ramp, Step};

/// A key of a section.
#[derive(Debug)]
pub(super) struct Key {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) absent: Absent,
    /// One sentence or two, for the schema and the reference.
    pub(super) doc: &'static str,
    /// Belongs to one tier alone: `defaults` may not hold it.
    pub(super) tier_only: bool,
}

/// What it means that a key is absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Absent {
    /// A problem.
    Required,
    /// Off, or unknown.
    Nothing,
    /// The same as this text.
    Default(&'static str),
    /// Worked out from other keys, in words.
    Derived(&'static str),
}

/// What a key holds.
#[derive(Debug)]
pub(super) enum Kind {
    Scalar(Scalar),
    /// A mapping with these keys.
    Section(&'static [Key]),
    /// A mapping with exactly one of these keys.
    OneOf(&'static [Key]),
    /// A mapping with any of these keys, none of them required: what others inherit.
    Partial(&'static [Key]),
    /// A list of mappings, each inheriting what it doesn't say from the section beside it that is named.
    Sections {
        keys: &'static [Key],
        most: usize,
        inherit: Option<&'static str>,
    },
    /// A list of single values, at least one.
    Scalars {
        of: Scalar,
        most: usize,
    },
    /// A span, `{requests: n}` or `{tokens: n}`.
    Allowance,
    /// A mapping of Prometheus labels to values.
    Labels,
}

/// A single value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Scalar {
    Span {
        least: Duration,
        most: Duration,
    },
    /// A span or `auto`.
    SpanOrAuto {
        most: Duration,
    },
    Count {
        least: u32,
        most: u32,
    },
    Number {
        least: f64,
        most: f64,
    },
    Share,
    Size {
        least: usize,
        most: usize,
    },
    Flag,
    Word(&'static [&'static str]),
    Text {
        most: usize,
    },
    /// Text that may have several lines.
    Lines {
        most: usize,
    },
    File,
    Socket,
    Url,
    PageUrl,
    UrlPath,
    Host,
    Port,
    PodPort,
    ObjectName,
    Namespace,
    MetricName,
    Ramp,
    Step,
    Gpu,
    ModelSize,
}

/// A single value that was read.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Span(Duration),
    Auto,
    Count(u32),
    Number(f64),
    Size(usize),
    Flag(bool),
    Text(String),
    Socket(SocketAddr),
    Port(DnsPort),
    Ramp(Ramp),
    Step(Step),
}

impl Scalar {
    /// Reads a text.
    ///
    /// # Errors
    /// What is wrong and what to write instead.
    pub(super) fn read(&self, text: &str) -> Result<Value, String> {
        Ok(match *self {
            Self::Span { least, most } => Value::Span(quantity::span(text, least, most)?),
            Self::SpanOrAuto { .. } if text == "auto" => Value::Auto,
            Self::SpanOrAuto { most } => Value::Span(
                quantity::span(text, Duration::ZERO, most)
                    .map_err(|message| format!("{message}, or auto"))?,
            ),
            Self::Count { least, most } => Value::Count(quantity::count(text, least, most)?),
            Self::Number { least, most } => Value::Number(quantity::number(text, least, most)?),
            Self::Share => Value::Number(quantity::share(text)?),
            Self::Size { least, most } => Value::Size(quantity::size(text, least, most)?),
            Self::Flag => Value::Flag(flag(text)?),
            Self::Word(words) => Value::Text(word(text, words)?),
            Self::Text { most } => Value::Text(bounded(text, most)?),
            Self::Lines { most } => {
                bounded(&text.replace(['\n', '\t'], " "), most)?;
                Value::Text(text.trim().to_owned())
            }
            Self::File => Value::Text(bounded(text, 4096)?),
            Self::Socket => Value::Socket(address::socket(text)?),
            Self::Url => Value::Text(address::url(text)?),
            Self::PageUrl => Value::Text(address::page_url(text)?),
            Self::UrlPath => Value::Text(address::url_path(text)?),
            Self::Host => Value::Text(address::host(text)?),
            Self::Port => Value::Port(address::port(text)?),
            Self::PodPort => Value::Text(address::pod_port(text)?),
            Self::ObjectName => Value::Text(address::object_name(text)?),
            Self::Namespace => Value::Text(address::namespace(text)?),
            Self::MetricName => Value::Text(address::metric_name(text)?),
            Self::Ramp => Value::Ramp(quantity::ramp(text)?),
            Self::Step => Value::Step(quantity::step(text)?),
            Self::Gpu => Value::Text(profiles::gpu(text)?),
            Self::ModelSize => Value::Number(quantity::model_size(text)?),
        })
    }

    /// What stands bare under such a key; everything that looks otherwise to YAML needs quotes. `80%`, `8MiB` and `5s`
    /// are texts, with quotes or without.
    pub(super) fn bare(&self) -> Look {
        match self {
            Self::Count { .. }
            | Self::Number { .. }
            | Self::Share
            | Self::Port
            | Self::PodPort
            | Self::Step => Look::Number,
            Self::Flag => Look::Boolean,
            _ => Look::Text,
        }
    }

    /// For messages and the reference: what to write.
    pub(super) fn expected(&self) -> String {
        let span = crate::units::format_span;
        match *self {
            Self::Span { least, most } => format!("span, {} to {}", span(least), span(most)),
            Self::SpanOrAuto { most } => format!("`auto` or a span, up to {}", span(most)),
            Self::Count { least, most } => format!("whole number, {least} to {most}"),
            Self::Number { least, most } => format!("number, {least} to {most}"),
            Self::Share => "share above 0 and at most 1, such as `0.8` or `80%`".to_owned(),
            Self::Size { least, most } => {
                format!("size, {} to {}", quantity::format_size(least), quantity::format_size(most))
            }
            Self::Flag => "`true` or `false`".to_owned(),
            Self::Word(words) => {
                words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(" or ")
            }
            Self::Text { .. } | Self::Lines { .. } => "text".to_owned(),
            Self::File => "path".to_owned(),
            Self::Socket => "IP address and port".to_owned(),
            Self::Url => "http or https URL".to_owned(),
            Self::PageUrl => "URL or `host:port`".to_owned(),
            Self::UrlPath => "path of a URL".to_owned(),
            Self::Host => "DNS name".to_owned(),
            Self::Port => "port number or `srv`".to_owned(),
            Self::PodPort => "port number, or the name of a container port".to_owned(),
            Self::ObjectName => "Kubernetes object name".to_owned(),
            Self::Namespace => "Kubernetes namespace".to_owned(),
            Self::MetricName => "metric name".to_owned(),
            Self::Ramp => "ramp, such as `2x in 120s`".to_owned(),
            Self::Step => "share such as `50%`, or a number of replicas".to_owned(),
            Self::Gpu => "GPU, such as `H100` or `2xH100`".to_owned(),
            Self::ModelSize => "billions of parameters, such as `8B`".to_owned(),
        }
    }
}

fn flag(text: &str) -> Result<bool, String> {
    match text {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(format!("{} is neither: write true or false", quantity::quoted(text))),
    }
}

fn word(text: &str, words: &[&str]) -> Result<String, String> {
    if words.contains(&text) {
        return Ok(text.to_owned());
    }
    Err(format!("{} is not known: write {}", quantity::quoted(text), words.join(" or ")))
}

fn bounded(text: &str, most: usize) -> Result<String, String> {
    if text.trim().is_empty() {
        return Err("empty: write a text or leave the key out".to_owned());
    }
    if text.len() > most {
        return Err(format!("longer than {most} bytes"));
    }
    if text.contains(char::is_control) {
        return Err("holds control characters: write one line of text".to_owned());
    }
    Ok(text.to_owned())
}

impl Key {
    pub(super) const fn required(name: &'static str, kind: Kind, doc: &'static str) -> Self {
        Self { name, kind, absent: Absent::Required, doc, tier_only: false }
    }

    pub(super) const fn optional(name: &'static str, kind: Kind, doc: &'static str) -> Self {
        Self { name, kind, absent: Absent::Nothing, doc, tier_only: false }
    }

    pub(super) const fn with_default(
        name: &'static str,
        kind: Scalar,
        default: &'static str,
        doc: &'static str,
    ) -> Self {
        Self { name, kind: Kind::Scalar(kind), absent: Absent::Default(default), doc, tier_only: false }
    }

    pub(super) const fn derived(
        name: &'static str,
        kind: Kind,
        how: &'static str,
        doc: &'static str,
    ) -> Self {
        Self { name, kind, absent: Absent::Derived(how), doc, tier_only: false }
    }

    /// A section that is always there: an absent one has the defaults of its keys.
    pub(super) const fn section(name: &'static str, keys: &'static [Key], doc: &'static str) -> Self {
        Self::derived(name, Kind::Section(keys), "the defaults of its keys", doc)
    }

    pub(super) const fn tier_only(self) -> Self {
        Self { tier_only: true, ..self }
    }

    /// The keys below this one.
    pub(super) fn children(&self) -> &'static [Key] {
        match self.kind {
            Kind::Section(keys) | Kind::OneOf(keys) | Kind::Partial(keys) | Kind::Sections { keys, .. } => {
                keys
            }
            _ => &[],
        }
    }
}
