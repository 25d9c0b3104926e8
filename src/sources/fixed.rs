//! Replicas that are listed in the configuration.

use std::collections::BTreeMap;

use reqwest::Url;

use crate::supply::{Discovered, Phase, Target};

/// The targets of a list of metrics pages: one for each URL, named `host:port`, or by the whole URL where two URLs share
/// that. Not authoritative: a list doesn't know who is alive. An empty list is unknown.
#[must_use]
pub fn fixed(urls: &[String]) -> Discovered {
    let mut urls: Vec<&str> = urls.iter().map(|url| url.trim()).filter(|url| !url.is_empty()).collect();
    urls.sort_unstable();
    urls.dedup();
    if urls.is_empty() {
        return Discovered::Unknown { why: "the list of replicas is empty".to_owned() };
    }
    let mut users: BTreeMap<String, u32> = BTreeMap::new();
    for url in &urls {
        *users.entry(address(url)).or_default() += 1;
    }
    let mut targets: Vec<Target> = urls.iter().map(|url| target(url, &users)).collect();
    targets.sort_by(|a, b| a.id.cmp(&b.id));
    Discovered::Targets { targets, authoritative: false, current: None, scale: None }
}

fn target(url: &str, users: &BTreeMap<String, u32>) -> Target {
    let address = address(url);
    let id = if users.get(&address) == Some(&1) { address } else { url.to_owned() };
    Target { name: id.clone(), id, url: Some(url.to_owned()), phase: Phase::Listed, since: None, start: None }
}

/// `host:port`; a text that is no URL stands for itself, and its fetch says what is wrong with it.
fn address(url: &str) -> String {
    Url::parse(url)
        .ok()
        .and_then(|parsed| Some(format!("{}:{}", parsed.host_str()?, parsed.port_or_known_default()?)))
        .unwrap_or_else(|| url.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(urls: &[&str]) -> Vec<String> {
        let urls: Vec<String> = urls.iter().map(|url| (*url).to_owned()).collect();
        match fixed(&urls) {
            Discovered::Targets { targets, authoritative: false, current: None, .. } => {
                targets.into_iter().map(|target| target.id).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_url_is_one_replica_named_by_its_address() {
        assert_eq!(
            ids(&["http://10.0.0.2:8000/metrics", "https://vllm-0/metrics", "http://[fd00::1]:8000/metrics"]),
            ["10.0.0.2:8000", "[fd00::1]:8000", "vllm-0:443"]
        );
    }

    #[test]
    fn a_url_listed_twice_is_one_replica_and_two_paths_of_one_address_are_two() {
        let one = "http://10.0.0.2:8000/metrics";
        assert_eq!(ids(&[one, one, " http://10.0.0.2:8000/metrics "]), ["10.0.0.2:8000"]);
        assert_eq!(
            ids(&["http://gateway/a/metrics", "http://gateway/b/metrics"]),
            ["http://gateway/a/metrics", "http://gateway/b/metrics"]
        );
    }

    #[test]
    fn an_empty_list_is_unknown() {
        assert!(matches!(fixed(&[]), Discovered::Unknown { .. }));
        assert!(matches!(fixed(&[" ".to_owned()]), Discovered::Unknown { .. }));
    }
}
