//! What belongs to several: a pod that the selectors of two tiers pick, an address that two pods tell.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};

use super::pod::PodRecord;
use crate::decision::TierId;

/// Which tiers count which pods. A pod in two tiers has its load counted twice, and nobody sees it in either.
#[derive(Debug, Default)]
pub(super) struct Claims {
    /// Names of the tiers of the pod's namespace, by the pod's UID.
    by_pod: Mutex<HashMap<String, BTreeSet<String>>>,
}

/// What one tier claims; given back when it is dropped.
#[derive(Debug)]
pub(super) struct Claim<'a> {
    claims: &'a Claims,
    tier: &'a TierId,
    pods: BTreeSet<String>,
}

impl Claims {
    pub(super) fn of<'a>(&'a self, tier: &'a TierId) -> Claim<'a> {
        Claim { claims: self, tier, pods: BTreeSet::new() }
    }
}

impl Claim<'_> {
    /// The tier counts these pods now. Returns the other tiers that count one of them, each with such a pod.
    pub(super) fn hold(&mut self, chosen: &[&PodRecord]) -> BTreeMap<String, String> {
        let pods: BTreeSet<String> = chosen.iter().map(|pod| pod.uid.clone()).collect();
        let mut by_pod = self.claims.by_pod.lock().unwrap_or_else(PoisonError::into_inner);
        for gone in self.pods.difference(&pods) {
            give_back(&mut by_pod, gone, &self.tier.name);
        }
        for new in pods.difference(&self.pods) {
            by_pod.entry(new.clone()).or_default().insert(self.tier.name.clone());
        }
        self.pods = pods;
        let mut others = BTreeMap::new();
        for pod in chosen {
            for other in by_pod.get(&pod.uid).into_iter().flatten().filter(|name| **name != self.tier.name) {
                others.entry(other.clone()).or_insert_with(|| pod.name.clone());
            }
        }
        others
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut by_pod = self.claims.by_pod.lock().unwrap_or_else(PoisonError::into_inner);
        for pod in &self.pods {
            give_back(&mut by_pod, pod, &self.tier.name);
        }
    }
}

fn give_back(by_pod: &mut HashMap<String, BTreeSet<String>>, pod: &str, tier: &str) {
    if let Some(tiers) = by_pod.get_mut(pod) {
        tiers.remove(tier);
        if tiers.is_empty() {
            by_pod.remove(pod);
        }
    }
}

/// Whose an address is, where several pods tell it: the newest that lives. An older one's node is gone, or its record is
/// late; what is read there is not its own.
#[derive(Debug)]
pub(super) struct Owners<'a> {
    by_ip: HashMap<&'a str, &'a PodRecord>,
}

impl<'a> Owners<'a> {
    /// Of the addresses of the chosen pods, among all pods that are counted nowhere as gone.
    pub(super) fn of(chosen: &[&'a PodRecord], all: impl Iterator<Item = &'a PodRecord>) -> Self {
        let mut by_ip: HashMap<&str, &PodRecord> = chosen
            .iter()
            .filter(|pod| !pod.host_network)
            .filter_map(|pod| Some((pod.ip.as_deref()?, *pod)))
            .collect();
        for pod in all.filter(|pod| !pod.host_network && !pod.is_over()) {
            if let Some(owner) = pod.ip.as_deref().and_then(|ip| by_ip.get_mut(ip))
                && (pod.created, &pod.uid) > (owner.created, &owner.uid)
            {
                *owner = pod;
            }
        }
        Self { by_ip }
    }

    /// The pod that has this one's address now, where that is another.
    pub(super) fn other(&self, pod: &PodRecord) -> Option<&'a PodRecord> {
        let owner = self.by_ip.get(pod.ip.as_deref()?).filter(|_| !pod.host_network)?;
        (owner.uid != pod.uid).then_some(*owner)
    }
}

#[cfg(test)]
mod tests {
    use super::super::pod::fixtures::{at, pod};
    use super::*;

    #[test]
    fn a_pod_of_two_tiers_is_told_to_both_until_one_lets_it_go() {
        let (chat, code) = (TierId::new("serving", "chat"), TierId::new("serving", "code"));
        let (one, two) = (pod("one"), pod("two"));
        let claims = Claims::default();
        let (mut of_chat, mut of_code) = (claims.of(&chat), claims.of(&code));
        assert_eq!(of_chat.hold(&[&one, &two]), BTreeMap::new());
        assert_eq!(of_code.hold(&[&two]), BTreeMap::from([("chat".into(), "two".into())]));
        assert_eq!(of_chat.hold(&[&one, &two]), BTreeMap::from([("code".into(), "two".into())]));
        drop(of_code);
        assert_eq!(of_chat.hold(&[&one, &two]), BTreeMap::new());
        of_chat.hold(&[]);
        assert!(claims.by_pod.lock().unwrap().is_empty(), "nothing is kept of pods that are gone");
    }

    #[test]
    fn an_address_is_the_newest_living_pods() {
        let (old, mut new, mut over) = (pod("old"), pod("new"), pod("over"));
        new.created = at("01:00");
        (over.created, over.phase) = (at("02:00"), "Failed".into());
        let all = [old.clone(), new.clone(), over];
        let owners = Owners::of(&[&all[0]], all.iter());
        assert_eq!(owners.other(&old).map(|pod| pod.name.as_str()), Some("new"));
        assert!(owners.other(&new).is_none());
    }

    #[test]
    fn pods_on_their_nodes_own_address_share_it_as_they_should() {
        let (mut one, mut two) = (pod("one"), pod("two"));
        (one.host_network, two.host_network, two.created) = (true, true, at("01:00"));
        let all = [one.clone(), two];
        assert!(Owners::of(&[&all[0], &all[1]], all.iter()).other(&one).is_none());
    }
}
