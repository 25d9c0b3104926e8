//! The JSON Schema of the file and its reference, both from the table that the reader uses.
//!
//! The schema is for editors. What it refuses, the reader refuses too, quoted numbers and bare ones in the place of a
//! text among them; the reader knows more, such as which time zones there are and which keys go together.

use serde_json::{Map, Value, json};

use super::file;
use super::profiles;
use super::shape::{Absent, Key, Kind, Scalar};

/// A JSON Schema (draft 2020-12) of the configuration file.
#[must_use]
pub fn json_schema() -> Value {
    let mut schema = object(file::ROOT, Required::Listed);
    if let Value::Object(root) = &mut schema {
        root.insert("$schema".to_owned(), json!("https://json-schema.org/draft/2020-12/schema"));
        root.insert("title".to_owned(), json!("keda-vllm-scaler configuration"));
    }
    schema
}

/// Which keys a mapping must have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Required {
    /// Those that the table requires.
    Listed,
    /// Only those that can't be inherited.
    TierOnly,
    /// None, and those of one tier alone aren't even allowed.
    Nothing,
}

fn object(keys: &[Key], required: Required) -> Value {
    let mut properties = Map::new();
    let mut must = Vec::new();
    for key in keys.iter().filter(|key| required != Required::Nothing || !key.tier_only) {
        let needed = key.absent == Absent::Required
            && (required == Required::Listed || (required == Required::TierOnly && key.tier_only));
        if needed {
            must.push(json!(key.name));
        }
        let below = if key.tier_only { Required::Listed } else { required };
        properties.insert(key.name.to_owned(), property(key, below, needed));
    }
    let mut schema = json!({"type": "object", "additionalProperties": false, "properties": properties});
    if !must.is_empty() {
        schema["required"] = Value::Array(must);
    }
    schema
}

fn property(key: &Key, required: Required, needed: bool) -> Value {
    let mut schema = match &key.kind {
        Kind::Scalar(kind) => scalar(kind),
        Kind::Section(keys) => object(keys, required),
        Kind::Partial(keys) => object(keys, Required::Nothing),
        Kind::OneOf(keys) => {
            let mut choice = object(keys, required);
            choice["minProperties"] = json!(1);
            choice["maxProperties"] = json!(1);
            choice
        }
        Kind::Sections { keys, most, inherit } => {
            let item = object(keys, if inherit.is_some() { Required::TierOnly } else { Required::Listed });
            json!({"type": "array", "items": item, "maxItems": most})
        }
        Kind::Scalars { of, most } => {
            json!({"type": "array", "items": scalar(of), "minItems": 1, "maxItems": most})
        }
        Kind::Allowance => json!({"anyOf": [
            span_schema(),
            {"type": "string", "pattern": "^[0-9.]+ (requests|tokens)$"},
            {"type": "object", "minProperties": 1, "maxProperties": 1, "additionalProperties": false,
             "properties": {"requests": {"type": "number", "minimum": 0}, "tokens": {"type": "number", "minimum": 0}}},
        ]}),
        Kind::Labels => json!({"type": "object", "additionalProperties": {"type": "string"}}),
    };
    if !needed {
        // A null is an absent key; in a tier it also stops what `defaults` would give.
        schema = json!({"anyOf": [schema, {"type": "null"}]});
    }
    schema["description"] = json!(key.doc);
    if let Absent::Default(text) = key.absent {
        schema["default"] = default(key, text);
    }
    schema
}

fn default(key: &Key, text: &str) -> Value {
    match key.kind {
        Kind::Scalar(Scalar::Flag | Scalar::Count { .. } | Scalar::Number { .. } | Scalar::Share) => {
            serde_json::from_str(text).unwrap_or_else(|_| json!(text))
        }
        _ => json!(text),
    }
}

fn span_schema() -> Value {
    json!({"type": "string", "pattern": "^([0-9.]+(ms|s|m|h|d))+$"})
}

fn scalar(kind: &Scalar) -> Value {
    let pattern = |pattern: &str| json!({"type": "string", "pattern": pattern});
    match *kind {
        Scalar::Span { .. } => span_schema(),
        Scalar::SpanOrAuto { .. } => json!({"anyOf": [{"const": "auto"}, span_schema()]}),
        Scalar::Count { least, most } => json!({"type": "integer", "minimum": least, "maximum": most}),
        Scalar::Number { least, most } => json!({"type": "number", "minimum": least, "maximum": most}),
        Scalar::Share => json!({"anyOf": [
            {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
            pattern("^[0-9.]+%$"),
        ]}),
        Scalar::Size { .. } => pattern("^[0-9]+ ?(B|kB|KB|MB|GB|KiB|MiB|GiB)$"),
        Scalar::Flag => json!({"type": "boolean"}),
        Scalar::Word(words) => json!({"enum": words}),
        Scalar::Text { most } | Scalar::Lines { most } => {
            json!({"type": "string", "minLength": 1, "maxLength": most})
        }
        Scalar::Port => {
            json!({"anyOf": [{"type": "integer", "minimum": 1, "maximum": 65535}, {"const": "srv"}]})
        }
        Scalar::PodPort => json!({"anyOf": [
            {"type": "integer", "minimum": 1, "maximum": 65535},
            pattern("^[a-z0-9]([-a-z0-9]{0,13}[a-z0-9])?$"),
        ]}),
        Scalar::Ramp => pattern("^[0-9.]+x *in *([0-9.]+(ms|s|m|h|d))+$"),
        Scalar::Step => json!({"anyOf": [pattern("^[0-9.]+%$"), {"type": "integer", "minimum": 1}]}),
        Scalar::ModelSize => pattern("^[0-9.]+[Bb]$"),
        Scalar::UrlPath => pattern("^/"),
        Scalar::Url => pattern("^https?://"),
        Scalar::Namespace | Scalar::ObjectName => pattern("^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$"),
        Scalar::MetricName => pattern("^[a-zA-Z_:][a-zA-Z0-9_:]*$"),
        Scalar::File | Scalar::Socket | Scalar::PageUrl | Scalar::Host | Scalar::Gpu => {
            json!({"type": "string", "minLength": 1})
        }
    }
}

/// The reference of the file in Markdown: a table for every section, and the built-in capacities.
#[must_use]
pub fn markdown() -> String {
    let mut parts = sections("The file", "", file::ROOT);
    parts.push(
        "### Built-in capacities\n\nOf `capacity.gpu`, `modelSize` and `precision`. A model up to twice as large or half as large as a row's scales the row.\n\n"
            .to_owned(),
    );
    parts.push(profiles::markdown());
    parts.concat()
}

/// The table of a section, then those below it.
fn sections(title: &str, path: &str, keys: &[Key]) -> Vec<String> {
    let mut parts =
        vec![format!("### {title}\n\n| key | value | default | meaning |\n| --- | --- | --- | --- |\n")];
    parts.extend(keys.iter().map(|key| {
        format!("| `{}` | {} | {} | {} |\n", key.name, value_words(key, path), default_words(key), key.doc)
    }));
    parts.push("\n".to_owned());
    // `defaults` holds the keys of a tier, which are told once.
    for key in keys.iter().filter(|key| !key.children().is_empty() && !matches!(key.kind, Kind::Partial(_))) {
        let path = below(path, key);
        parts.extend(sections(&format!("`{path}`"), &path, key.children()));
    }
    parts
}

fn below(path: &str, key: &Key) -> String {
    let list = if matches!(key.kind, Kind::Sections { .. }) { "[]" } else { "" };
    let dot = if path.is_empty() { "" } else { "." };
    format!("{path}{dot}{}{list}", key.name)
}

fn value_words(key: &Key, path: &str) -> String {
    match &key.kind {
        Kind::Scalar(kind) => kind.expected().replace('|', "\\|"),
        Kind::Section(_) => format!("section [`{0}`](#{1})", below(path, key), anchor(&below(path, key))),
        Kind::Partial(_) => "the keys of a tier".to_owned(),
        Kind::OneOf(keys) => {
            let names: Vec<String> = keys.iter().map(|key| format!("`{}`", key.name)).collect();
            format!("exactly one of {}", names.join(", "))
        }
        Kind::Sections { most, .. } => {
            format!("list of [`{0}`](#{1}), up to {most}", below(path, key), anchor(&below(path, key)))
        }
        Kind::Scalars { of, most } => format!("list, 1 to {most}, of {}", of.expected()),
        Kind::Allowance => "span up to 1h, `{requests: 50}` or `{tokens: 100000}`".to_owned(),
        Kind::Labels => "mapping of labels to values".to_owned(),
    }
}

/// The anchor that Markdown renderers give a heading of this path: lower case, punctuation dropped.
fn anchor(path: &str) -> String {
    path.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

fn default_words(key: &Key) -> String {
    match key.absent {
        Absent::Required => "**required**".to_owned(),
        Absent::Nothing => "none".to_owned(),
        Absent::Default(text) => format!("`{text}`"),
        Absent::Derived(how) => how.to_owned(),
    }
}

/// The path of every key, such as `tiers[].scrape.interval`, in the order of the table.
#[must_use]
pub fn key_paths() -> Vec<String> {
    fn walk(path: &str, keys: &[Key], into: &mut Vec<String>) {
        for key in keys {
            let path = below(path, key);
            into.push(path.clone());
            if !matches!(key.kind, Kind::Partial(_)) {
                walk(&path, key.children(), into);
            }
        }
    }
    let mut paths = Vec::new();
    walk("", file::ROOT, &mut paths);
    paths
}

#[cfg(test)]
mod tests {
    use super::super::yaml::Look;
    use super::*;

    #[test]
    fn every_default_of_the_table_is_good_for_its_key() {
        fn walk(keys: &[Key], seen: &mut usize) {
            for key in keys {
                if let (Kind::Scalar(kind), Absent::Default(text)) = (&key.kind, key.absent) {
                    assert!(kind.read(text).is_ok(), "{}: {text}", key.name);
                    *seen += 1;
                }
                walk(key.children(), seen);
            }
        }
        let mut seen = 0;
        walk(file::ROOT, &mut seen);
        assert!(seen > 30, "{seen}");
    }

    #[test]
    fn reader_and_schema_want_numbers_booleans_and_texts_at_the_same_keys() {
        fn types(schema: &Value, into: &mut Vec<String>) {
            for choice in schema["anyOf"].as_array().into_iter().flatten() {
                types(choice, into);
            }
            into.extend(schema["type"].as_str().map(str::to_owned));
        }
        fn walk(keys: &[Key]) {
            for key in keys {
                if let Kind::Scalar(kind) | Kind::Scalars { of: kind, .. } = &key.kind {
                    let mut found = Vec::new();
                    types(&scalar(kind), &mut found);
                    let number = found.iter().any(|found| found == "number" || found == "integer");
                    let boolean = found.iter().any(|found| found == "boolean");
                    assert_eq!(number, kind.bare() == Look::Number, "{}", key.name);
                    assert_eq!(boolean, kind.bare() == Look::Boolean, "{}", key.name);
                }
                walk(key.children());
            }
        }
        walk(file::ROOT);
    }

    #[test]
    fn names_are_unique_in_a_section_and_every_key_is_explained() {
        fn walk(keys: &[Key]) {
            for (index, key) in keys.iter().enumerate() {
                assert!(keys[..index].iter().all(|other| other.name != key.name), "{}", key.name);
                assert!(key.doc.ends_with('.'), "{}: {}", key.name, key.doc);
                walk(key.children());
            }
        }
        walk(file::ROOT);
    }
}
