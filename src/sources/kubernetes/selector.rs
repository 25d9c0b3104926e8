//! The label selector that a scale subresource tells, as text (`app=chat,tier in (a,b),!canary`). Pure.

use kube::core::{Expression, Selector};

/// Reads a selector as `k8s.io/apimachinery/pkg/labels` writes it.
///
/// # Errors
/// What can't be read. An empty selector selects everything and is refused: it would make every pod of the namespace a
/// replica.
pub(super) fn parse(text: &str) -> Result<Selector, String> {
    let expressions: Result<Vec<Expression>, String> = split(text).into_iter().map(expression).collect();
    let selector: Selector = expressions?.into_iter().collect();
    if selector.selects_all() {
        return Err("an empty selector, which would count every pod of the namespace".to_owned());
    }
    Ok(selector)
}

/// At commas that are not within brackets.
fn split(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut depth, mut from) = (0_u32, 0);
    for (at, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&text[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[from..]);
    parts.into_iter().map(str::trim).filter(|part| !part.is_empty()).collect()
}

fn expression(text: &str) -> Result<Expression, String> {
    if let Some(key) = text.strip_prefix('!') {
        return Ok(Expression::DoesNotExist(label(key)?));
    }
    if let Some((key, value)) = text.split_once("!=") {
        return Ok(Expression::NotEqual(label(key)?, value.trim().to_owned()));
    }
    if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        return Ok(Expression::Equal(label(key)?, value.trim().to_owned()));
    }
    if let Some((left, values)) = text.split_once('(') {
        let values =
            values.trim_end().strip_suffix(')').ok_or_else(|| format!("`{text}` lacks a bracket"))?;
        let values = values.split(',').map(|value| value.trim().to_owned()).collect();
        let left = left.trim_end();
        if let Some(key) = left.strip_suffix(" notin") {
            return Ok(Expression::NotIn(label(key)?, values));
        }
        if let Some(key) = left.strip_suffix(" in") {
            return Ok(Expression::In(label(key)?, values));
        }
        return Err(format!("`{text}` is no label requirement"));
    }
    Ok(Expression::Exists(label(text)?))
}

fn label(key: &str) -> Result<String, String> {
    let key = key.trim();
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    if key.is_empty() || !key.chars().all(fits) {
        return Err(format!("`{key}` is no label"));
    }
    Ok(key.to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use kube::core::SelectorExt as _;

    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn every_form_that_kubernetes_writes_is_read() {
        let selector =
            parse("app=chat,model in (llama-8b,qwen-32b),stage notin (canary),!batch,gpu,zone!=b").unwrap();
        let fits = [("app", "chat"), ("model", "qwen-32b"), ("gpu", "h100"), ("zone", "a")];
        assert!(selector.matches(&labels(&fits)));
        for (key, value) in
            [("app", "other"), ("model", "phi"), ("stage", "canary"), ("batch", "yes"), ("zone", "b")]
        {
            let mut other = labels(&fits);
            other.insert(key.to_owned(), value.to_owned());
            assert!(!selector.matches(&other), "{key}={value}");
        }
        let mut without = labels(&fits);
        without.remove("gpu");
        assert!(!selector.matches(&without));
    }

    #[test]
    fn the_leaders_of_a_leader_worker_set() {
        let selector =
            parse("leaderworkerset.sigs.k8s.io/name=chat,leaderworkerset.sigs.k8s.io/worker-index=0")
                .unwrap();
        let leader =
            [("leaderworkerset.sigs.k8s.io/name", "chat"), ("leaderworkerset.sigs.k8s.io/worker-index", "0")];
        let worker =
            [("leaderworkerset.sigs.k8s.io/name", "chat"), ("leaderworkerset.sigs.k8s.io/worker-index", "1")];
        assert!(selector.matches(&labels(&leader)));
        assert!(!selector.matches(&labels(&worker)));
    }

    #[test]
    fn what_would_select_everything_or_nothing_sensible_is_refused() {
        for text in ["", " ", ",", "a b", "app in llama", "x (a)", "app in (a"] {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }
}
