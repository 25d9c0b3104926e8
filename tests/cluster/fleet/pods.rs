//! A pod with its engine.

use keda_vllm_scaler::simulate::page::{self, PageIdentity};
use keda_vllm_scaler::simulate::{EngineModel, EngineSettings, Moment};

use super::pod_list::{Seen, Stage};

/// See the module.
pub(crate) struct Pod {
    pub(crate) seen: Seen,
    /// When its container was first seen running.
    process_start: Option<Moment>,
    ready_at: Moment,
    /// From the first time that the pod is ready: before that the process loads and its port refuses.
    pub(crate) engine: Option<EngineModel>,
}

impl Pod {
    pub(crate) fn new(seen: Seen, now: Moment) -> Self {
        let mut pod = Self { seen, process_start: None, ready_at: now, engine: None };
        pod.follow(now);
        pod
    }

    /// Takes what the cluster says now.
    pub(crate) fn see(&mut self, seen: Seen, now: Moment) {
        self.seen = seen;
        self.follow(now);
    }

    fn follow(&mut self, now: Moment) {
        if self.seen.stage >= Stage::Loading && self.process_start.is_none() {
            self.process_start = Some(now);
        }
        if self.seen.stage == Stage::Ready && self.seen.leads && self.engine.is_none() {
            self.ready_at = now;
            self.engine = Some(EngineModel::new(settings(self.seen.engine.as_deref()), now));
        }
    }

    /// Is the process there, with its port open?
    pub(crate) fn listens(&self) -> bool {
        self.engine.is_some()
    }

    /// May it be given new requests, as far as the pod itself goes?
    pub(crate) fn takes_requests(&self) -> bool {
        self.engine.is_some() && self.seen.stage == Stage::Ready && !self.seen.terminating
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.engine.as_ref().map_or(0, EngineModel::in_flight)
    }

    /// Its metrics page; None while the port refuses. `unix` is the time at which the world began.
    pub(crate) fn page(&self, unix: f64) -> Option<String> {
        let engine = self.engine.as_ref()?;
        let identity = PageIdentity {
            model: &self.seen.tier.tier,
            process_start_seconds: unix + self.process_start.unwrap_or_default().seconds(),
            created_seconds: unix + self.ready_at.seconds(),
        };
        Some(page::render(&identity, engine.settings(), engine.metrics()))
    }
}

fn settings(name: Option<&str>) -> EngineSettings {
    match name {
        Some("a100-8b") => EngineSettings::a100_8b(),
        Some("h100-8b") => EngineSettings::h100_8b(),
        _ => EngineSettings::rtx4090_8b(),
    }
}
