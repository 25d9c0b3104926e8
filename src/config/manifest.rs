//! A ConfigMap's manifest in the place of the file that it holds: what people have at hand is the manifest.

use super::problem::{Problem, Problems};
use super::yaml::{self, Content, Entry};

/// The file inside a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Embedded {
    /// Its key under `data`.
    pub key: String,
    /// Its text.
    pub text: String,
    /// The line of the manifest on which its first line stands.
    first_line: usize,
    /// It stands there line by line.
    as_block: bool,
}

impl Embedded {
    /// A problem of the embedded file as one of the manifest.
    #[must_use]
    pub fn placed(&self, problem: Problem) -> Problem {
        let below = if self.as_block { problem.line.saturating_sub(1) } else { 0 };
        Problem { line: self.first_line + below, ..problem }
    }
}

/// The file inside the manifest of a ConfigMap; None for any other text.
///
/// # Errors
/// Where it isn't plain which entry is the file, with the command that takes one out.
pub fn embedded(text: &str) -> Result<Option<Embedded>, String> {
    // What is wrong with the text is told by whoever reads it as a configuration.
    let Ok(root) = yaml::read(text, &mut Problems::default()) else { return Ok(None) };
    let Content::Map(entries) = &root.content else { return Ok(None) };
    if !named(entries, "kind")
        .is_some_and(|kind| matches!(&kind.value.content, Content::Scalar(kind, _) if kind == "ConfigMap"))
    {
        return Ok(None);
    }
    let data = named(entries, "data").and_then(|data| match &data.value.content {
        Content::Map(entries) => Some(entries.as_slice()),
        _ => None,
    });
    let files: Vec<(&Entry, &String)> = data
        .into_iter()
        .flatten()
        .filter_map(|entry| match &entry.value.content {
            Content::Scalar(text, _) => Some((entry, text)),
            _ => None,
        })
        .collect();
    let with_tiers = || files.iter().filter(|(_, text)| text.lines().any(|line| line.starts_with("tiers:")));
    let chosen = match files.as_slice() {
        [only] => Some(only),
        _ if with_tiers().count() == 1 => with_tiers().next(),
        _ => None,
    };
    let Some((entry, inside)) = chosen else {
        return Err(format!(
            "this is the manifest of a ConfigMap with {} entries, and not one of them alone has `tiers:`; take the file out: \
             kubectl create --dry-run=client -f FILE -o jsonpath='{{.data.tiers\\.yaml}}' > tiers.yaml",
            files.len()
        ));
    };
    let line = text.lines().nth(entry.line.saturating_sub(1)).unwrap_or_default();
    let as_block = line.contains('|');
    Ok(Some(Embedded {
        key: entry.key.clone(),
        text: (*inside).clone(),
        first_line: entry.line + usize::from(as_block),
        as_block,
    }))
}

fn named<'a>(entries: &'a [Entry], key: &str) -> Option<&'a Entry> {
    entries.iter().find(|entry| entry.key == key)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata:\n  tiers.yaml: |\n    # ours\n    tiers:\n    - name: chat\n";

    #[test]
    fn the_only_entry_is_the_file_and_its_lines_are_those_of_the_manifest() {
        let embedded = embedded(MANIFEST).unwrap().unwrap();
        assert_eq!(
            (embedded.key.as_str(), embedded.text.as_str()),
            ("tiers.yaml", "# ours\ntiers:\n- name: chat\n")
        );
        let problem = Problem { path: "tiers[0]".into(), line: 3, message: "x".into() };
        assert_eq!(embedded.placed(problem).line, 8);
    }

    #[test]
    fn of_several_entries_the_one_with_tiers_is_the_file() {
        let text = MANIFEST.replace("data:\n", "data:\n  ca.crt: |\n    pem\n");
        assert_eq!(embedded(&text).unwrap().map(|embedded| embedded.key).as_deref(), Some("tiers.yaml"));
        let two = format!("{text}  more.yaml: \"tiers: []\"\n");
        let why = embedded(&two).unwrap_err();
        assert!(
            why.contains("ConfigMap with 3 entries") && why.contains("kubectl create --dry-run"),
            "{why}"
        );
        let none = "kind: ConfigMap\nmetadata: {name: x}\n";
        assert!(embedded(none).unwrap_err().contains("0 entries"));
    }

    #[test]
    fn a_configuration_and_what_is_no_yaml_are_none() {
        for text in ["tiers: []\n", "", "- a\n", "kind: Deployment\n", "a: [\n"] {
            assert_eq!(embedded(text), Ok(None), "{text:?}");
        }
    }
}
