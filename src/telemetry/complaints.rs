//! What is wrong with what ScaledObjects ask: logged once, shown until it is mended, in bounded numbers.
//!
//! A ScaledObject is mended when it asks without the fault. Where it has two triggers, one of them faulty, its faultless
//! asks prove nothing: a fault that comes back after one stays until it hasn't been repeated for a while.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::decision::TierId;
use crate::units::since;

/// A fault that hasn't been repeated for this long is forgotten, so that it is told again should it come back. Many syncs
/// of the HPA.
const FORGOTTEN_AFTER: Duration = Duration::from_mins(15);

/// A fault that comes and goes is gone when it hasn't been repeated for this long: four syncs of the HPA, so that each of
/// two scalers that are asked in turn has been asked.
const COMES_BACK_WITHIN: Duration = Duration::from_mins(1);

/// Faults of one ScaledObject: a trigger has up to twenty warnings, and few have more than one trigger.
const OF_AN_ASKER: usize = 32;

/// Faulty ScaledObjects of one namespace, so that none can shut out the others.
const IN_A_NAMESPACE: usize = 64;

/// Faulty ScaledObjects in all.
const IN_ALL: usize = 1_024;

/// A fault in what a ScaledObject asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The tier that is answered nevertheless; None where nothing is.
    pub(crate) tier: Option<TierId>,
    /// For people.
    pub(crate) text: String,
}

#[derive(Clone, Debug)]
struct Kept {
    fault: Fault,
    seen: DateTime<Utc>,
    shown: bool,
    comes_and_goes: bool,
}

/// By namespace and name of the ScaledObject.
#[derive(Clone, Debug, Default)]
pub(super) struct Complaints {
    by_namespace: BTreeMap<String, BTreeMap<String, Vec<Kept>>>,
    askers: usize,
}

impl Complaints {
    /// Is there anything kept of this ScaledObject?
    pub(super) fn knows(&self, namespace: &str, name: &str) -> bool {
        self.by_namespace.get(namespace).is_some_and(|askers| askers.contains_key(name))
    }

    /// A ScaledObject asked with these faults, or with none. Returns those that are news.
    pub(super) fn asked(
        &mut self,
        namespace: &str,
        name: &str,
        faults: Vec<Fault>,
        now: DateTime<Utc>,
    ) -> Vec<Fault> {
        if !self.knows(namespace, name) && !self.make_room(namespace, name, &faults, now) {
            return Vec::new();
        }
        let Some(kept) = self.by_namespace.get_mut(namespace).and_then(|askers| askers.get_mut(name)) else {
            return Vec::new();
        };
        kept.retain(|kept| since(now, kept.seen) < FORGOTTEN_AFTER);
        for old in kept.iter_mut().filter(|kept| !faults.contains(&kept.fault)) {
            old.shown &= old.comes_and_goes && since(now, old.seen) < COMES_BACK_WITHIN;
        }
        let mut news = Vec::new();
        for fault in faults {
            let full = kept.len() >= OF_AN_ASKER;
            match kept.iter_mut().find(|kept| kept.fault == fault) {
                Some(again) => {
                    again.comes_and_goes |= !again.shown && since(now, again.seen) < COMES_BACK_WITHIN;
                    (again.shown, again.seen) = (true, now);
                }
                None if !full => {
                    news.push(fault.clone());
                    kept.push(Kept { fault, seen: now, shown: true, comes_and_goes: false });
                }
                None => {}
            }
        }
        news
    }

    /// A place for one more ScaledObject, if it needs one and there is one.
    fn make_room(&mut self, namespace: &str, name: &str, faults: &[Fault], now: DateTime<Utc>) -> bool {
        if faults.is_empty() {
            return false;
        }
        let full = |complaints: &Self| {
            let here = complaints.by_namespace.get(namespace).map_or(0, BTreeMap::len);
            here >= IN_A_NAMESPACE || complaints.askers >= IN_ALL
        };
        if full(self) {
            self.forget_old(now);
        }
        if full(self) {
            return false;
        }
        self.by_namespace.entry(namespace.to_owned()).or_default().insert(name.to_owned(), Vec::new());
        self.askers += 1;
        true
    }

    fn forget_old(&mut self, now: DateTime<Utc>) {
        self.by_namespace.retain(|_, askers| {
            askers.retain(|_, kept| kept.iter().any(|kept| since(now, kept.seen) < FORGOTTEN_AFTER));
            !askers.is_empty()
        });
        self.askers = self.by_namespace.values().map(BTreeMap::len).sum();
    }

    /// What is wrong with those who ask about this tier, each with who it is.
    pub(super) fn about(&self, tier: &TierId, now: DateTime<Utc>) -> Vec<String> {
        let Some(askers) = self.by_namespace.get(&tier.namespace) else { return Vec::new() };
        let about = |kept: &&Kept| kept.fault.tier.as_ref() == Some(tier);
        let mut told = Vec::new();
        for (name, kept) in askers {
            let texts = kept.iter().filter(|kept| is_shown(kept, now)).filter(about);
            told.extend(
                texts.map(|kept| format!("ScaledObject {}/{name}: {}", tier.namespace, kept.fault.text)),
            );
        }
        told.sort_unstable();
        told
    }

    /// ScaledObjects that get no answer, each with the reason.
    pub(super) fn refused(&self, now: DateTime<Utc>) -> Vec<(String, String)> {
        let mut refused = Vec::new();
        for (namespace, askers) in &self.by_namespace {
            for (name, kept) in askers {
                let texts = kept.iter().filter(|kept| is_shown(kept, now) && kept.fault.tier.is_none());
                refused.extend(texts.map(|kept| (format!("{namespace}/{name}"), kept.fault.text.clone())));
            }
        }
        refused
    }

    /// Drops what is kept about a tier that is gone.
    pub(super) fn forget(&mut self, tier: &TierId) {
        if let Some(askers) = self.by_namespace.get_mut(&tier.namespace) {
            for kept in askers.values_mut() {
                kept.retain(|kept| kept.fault.tier.as_ref() != Some(tier));
            }
        }
    }
}

fn is_shown(kept: &Kept, now: DateTime<Utc>) -> bool {
    kept.shown && since(now, kept.seen) < FORGOTTEN_AFTER
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(second, 0).unwrap()
    }

    fn chat() -> TierId {
        TierId::new("serving", "chat")
    }

    fn typo() -> Vec<Fault> {
        vec![Fault { tier: Some(chat()), text: "`tierr`: unknown key".into() }]
    }

    fn refusal() -> Vec<Fault> {
        vec![Fault { tier: None, text: "no tier \"cht\"".into() }]
    }

    #[test]
    fn a_fault_is_news_once_and_goes_with_the_first_ask_without_it() {
        let mut complaints = Complaints::default();
        assert_eq!(complaints.asked("serving", "chat", typo(), at(0)), typo());
        assert!(complaints.asked("serving", "chat", typo(), at(15)).is_empty(), "told already");
        assert_eq!(complaints.about(&chat(), at(20)), ["ScaledObject serving/chat: `tierr`: unknown key"]);
        complaints.asked("serving", "chat", Vec::new(), at(30));
        assert!(complaints.about(&chat(), at(30)).is_empty(), "mended");
    }

    #[test]
    fn a_fault_goes_too_where_the_mended_trigger_asks_for_another_tier_or_is_refused() {
        let mut complaints = Complaints::default();
        complaints.asked("serving", "chat", typo(), at(0));
        complaints.asked("serving", "chat", refusal(), at(15));
        assert!(complaints.about(&chat(), at(15)).is_empty());
        assert_eq!(complaints.refused(at(15)), [("serving/chat".into(), "no tier \"cht\"".into())]);
        complaints.asked("serving", "chat", Vec::new(), at(30));
        assert!(complaints.refused(at(30)).is_empty());
    }

    #[test]
    fn one_of_two_triggers_is_told_once_and_stays_until_it_is_not_repeated() {
        let mut complaints = Complaints::default();
        complaints.asked("serving", "chat", typo(), at(0));
        for sync in 0..100 {
            assert!(complaints.asked("serving", "chat", Vec::new(), at(15 * sync + 1)).is_empty());
            assert_eq!(complaints.about(&chat(), at(15 * sync + 1)).len(), usize::from(sync > 0), "{sync}");
            assert!(complaints.asked("serving", "chat", typo(), at(15 * sync + 15)).is_empty(), "no news");
        }
        complaints.asked("serving", "chat", Vec::new(), at(1_516));
        assert_eq!(complaints.about(&chat(), at(1_516)).len(), 1, "it has come back before");
        complaints.asked("serving", "chat", Vec::new(), at(1_576));
        assert!(complaints.about(&chat(), at(1_576)).is_empty());
    }

    #[test]
    fn a_fault_of_one_who_asks_no_more_is_forgotten() {
        let mut complaints = Complaints::default();
        complaints.asked("serving", "chat", typo(), at(0));
        assert_eq!(complaints.about(&chat(), at(14 * 60)).len(), 1);
        assert!(complaints.about(&chat(), at(15 * 60)).is_empty());
        assert_eq!(complaints.asked("serving", "chat", typo(), at(16 * 60)), typo(), "news again");
    }

    #[test]
    fn what_somebody_makes_up_is_bounded_in_memory_and_in_lines() {
        let mut complaints = Complaints::default();
        let mut lines = 0;
        for n in 0..10_000 {
            let odd = |text: String| vec![Fault { tier: None, text }];
            lines += complaints.asked("a", "one", odd(format!("odd {n}")), at(0)).len();
            lines += complaints.asked("b", &format!("name-{n}"), odd("odd".into()), at(0)).len();
            lines += complaints.asked(&format!("namespace-{n}"), "x", odd("odd".into()), at(0)).len();
        }
        assert!(lines <= OF_AN_ASKER + IN_ALL, "{lines}");
        assert!(complaints.askers <= IN_ALL);
        assert!(complaints.refused(at(0)).len() <= OF_AN_ASKER + IN_ALL);
        // Room again when they have gone.
        assert_eq!(complaints.asked("c", "late", refusal(), at(15 * 60)), refusal());
    }
}
