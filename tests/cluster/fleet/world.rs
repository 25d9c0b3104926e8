//! All tiers, behind one lock that is never held over an await.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use chrono::{DateTime, Utc};
use keda_vllm_scaler::clock::Clock;
use keda_vllm_scaler::simulate::Moment;
use keda_vllm_scaler::simulate::router::QUEUE_METRIC;
use rand::SeedableRng;
use rand::rngs::StdRng;

use super::pod_list::{Seen, TierKey};
use super::pods::Pod;
use super::tier::{Counts, Load, Tier};

/// See the module.
pub(crate) struct World {
    clock: Clock,
    base: DateTime<Utc>,
    inner: Mutex<Inner>,
}

struct Inner {
    tiers: BTreeMap<TierKey, Tier>,
    random: StdRng,
}

impl World {
    pub(crate) fn new(clock: Clock) -> Self {
        let inner = Inner { tiers: BTreeMap::new(), random: StdRng::seed_from_u64(7) };
        Self { clock, base: clock.now(), inner: Mutex::new(inner) }
    }

    fn now(&self) -> Moment {
        Moment::from_wall(self.base, self.clock.now())
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic elsewhere leaves a world that is still whole: it is advanced by whole events.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Up to now.
    pub(crate) fn turn(&self) {
        let now = self.now();
        let Inner { tiers, random } = &mut *self.lock();
        for tier in tiers.values_mut() {
            tier.turn(now, random);
        }
    }

    /// A whole list: what isn't in it is gone.
    pub(crate) fn replace(&self, pods: Vec<Seen>) {
        let now = self.now();
        {
            let mut inner = self.lock();
            for tier in inner.tiers.values_mut() {
                let gone: Vec<String> =
                    tier.pods.keys().filter(|uid| pods.iter().all(|pod| pod.uid != **uid)).cloned().collect();
                for uid in gone {
                    tier.remove(&uid, now);
                }
            }
        }
        for pod in pods {
            self.see(pod);
        }
    }

    /// A pod as it is now.
    pub(crate) fn see(&self, seen: Seen) {
        let now = self.now();
        let mut inner = self.lock();
        let Some(tier) = inner.tier(&seen.tier) else { return };
        tier.run(now);
        match tier.pods.get_mut(&seen.uid) {
            Some(pod) => pod.see(seen, now),
            None => {
                tier.pods.insert(seen.uid.clone(), Pod::new(seen, now));
            }
        }
    }

    /// A pod is gone.
    pub(crate) fn gone(&self, seen: &Seen) {
        let now = self.now();
        if let Some(tier) = self.lock().tiers.get_mut(&seen.tier) {
            tier.remove(&seen.uid, now);
        }
    }

    /// The pod that listens at an address.
    pub(crate) fn listening_at(&self, address: Ipv4Addr) -> Option<String> {
        let inner = self.lock();
        let mut pods = inner.tiers.values().flat_map(|tier| tier.pods.values());
        pods.find(|pod| pod.seen.address == Some(address) && pod.listens()).map(|pod| pod.seen.uid.clone())
    }

    /// The page of a pod that is still there. `Err` while its tier is silent.
    pub(crate) fn page(&self, uid: &str) -> Result<Option<String>, Silent> {
        let now = self.now();
        let unix = self.base.timestamp_millis() as f64 / 1000.0;
        let mut inner = self.lock();
        let Some(tier) = inner.tiers.values_mut().find(|tier| tier.pods.contains_key(uid)) else {
            return Ok(None);
        };
        if tier.silent {
            return Err(Silent);
        }
        tier.run(now);
        Ok(tier.pods.get(uid).and_then(|pod| pod.page(unix)))
    }

    /// The router's page.
    pub(crate) fn router_page(&self) -> String {
        let mut page = format!("# TYPE {QUEUE_METRIC} gauge\n");
        for (TierKey { namespace, tier: name }, tier) in &self.lock().tiers {
            let held = tier.held();
            // Writing to a String can't fail.
            let written =
                writeln!(page, "{QUEUE_METRIC}{{namespace=\"{namespace}\",tier=\"{name}\"}} {held}");
            debug_assert!(written.is_ok());
        }
        page
    }

    pub(crate) fn set_load(&self, key: &TierKey, load: Load) {
        let now = self.now();
        self.with_tier(key, |tier, random| tier.set_load(load, now, random));
    }

    pub(crate) fn burst(&self, key: &TierKey, count: u32, load: Load) {
        let now = self.now();
        self.with_tier(key, |tier, random| tier.burst(count, load, now, random));
    }

    pub(crate) fn set_silent(&self, key: &TierKey, silent: bool) {
        self.with_tier(key, |tier, _| tier.silent = silent);
    }

    pub(crate) fn counts(&self) -> Vec<(TierKey, Counts)> {
        self.turn();
        self.lock().tiers.iter().map(|(key, tier)| (key.clone(), tier.counts())).collect()
    }

    fn with_tier(&self, key: &TierKey, change: impl FnOnce(&mut Tier, &mut StdRng)) {
        let mut inner = self.lock();
        // Made if need be: load may come before the first pod.
        if inner.tier(key).is_none() {
            return;
        }
        let Inner { tiers, random } = &mut *inner;
        if let Some(tier) = tiers.get_mut(key) {
            change(tier, random);
        }
    }
}

/// The tier's pods keep quiet.
pub(crate) struct Silent;

impl Inner {
    /// Made when it is first asked for; None only if a histogram can't be made.
    fn tier(&mut self, key: &TierKey) -> Option<&mut Tier> {
        if !self.tiers.contains_key(key) {
            self.tiers.insert(key.clone(), Tier::new().ok()?);
        }
        self.tiers.get_mut(key)
    }
}
