//! What KEDA 2.21 and the Kubernetes HPA do with a scaler's answers. Pure: time and answers are passed in.
//!
//! KEDA owns the way between zero and one ([`keda`]); the HPA owns everything above ([`hpa`], [`signal`], [`behavior`]).
//! [`super::standin`] asks a real scaler over gRPC and feeds this; [`super::rival`] and a backtest feed it directly.

use std::time::Duration;

use super::moment::Moment;

pub mod behavior;
pub mod hpa;
pub mod keda;
pub mod signal;

pub use behavior::{Behavior, Policy, PolicyKind, Rules, Select};
pub use hpa::{Generation, Hpa, HpaSettings, Metric, Tolerances};
pub use keda::{Activity, Keda, KedaSettings};
pub use signal::{PodCount, PodsMetric, Signal};

/// One ScaledObject with one trigger, and its HPA.
#[derive(Clone, Debug, PartialEq)]
pub struct AutoscalerSettings {
    /// `minReplicaCount`.
    pub min: u32,
    /// `maxReplicaCount`.
    pub max: u32,
    /// `pollingInterval`.
    pub polling_interval: Duration,
    /// `cooldownPeriod`.
    pub cooldown: Duration,
    /// The HPA's `--horizontal-pod-autoscaler-sync-period`.
    pub sync_period: Duration,
    /// `behavior.*.tolerance`.
    pub tolerances: Tolerances,
    /// `behavior`; None where the user set none.
    pub behavior: Option<Behavior>,
    /// Which HPA.
    pub generation: Generation,
}

impl AutoscalerSettings {
    /// Everything at the defaults of KEDA and Kubernetes.
    #[must_use]
    pub fn defaults(min: u32, max: u32) -> Self {
        Self {
            min,
            max,
            polling_interval: Duration::from_secs(30),
            cooldown: Duration::from_secs(300),
            sync_period: Duration::from_secs(15),
            tolerances: Tolerances::DEFAULT,
            behavior: None,
            generation: Generation::Since133,
        }
    }

    /// What our documentation recommends: tolerance 0, no rate limit upward, five minutes of stabilisation downward.
    #[must_use]
    pub fn recommended(min: u32, max: u32) -> Self {
        Self {
            tolerances: Tolerances { up: 0.0, down: 0.0 },
            behavior: Some(Behavior::at_once_up(max)),
            ..Self::defaults(min, max)
        }
    }
}

/// The state of one ScaledObject and its HPA.
#[derive(Clone, Debug)]
pub struct Autoscaler {
    settings: AutoscalerSettings,
    hpa: Hpa,
    keda: Keda,
}

impl Autoscaler {
    /// A ScaledObject created at `now`.
    #[must_use]
    pub fn new(settings: AutoscalerSettings, now: Moment) -> Self {
        let hpa = Hpa::new(hpa_settings(&settings));
        let keda = Keda::new(keda_settings(&settings), now);
        Self { settings, hpa, keda }
    }

    /// What was asked for.
    #[must_use]
    pub fn settings(&self) -> &AutoscalerSettings {
        &self.settings
    }

    /// Edits `minReplicaCount`.
    pub fn set_min(&mut self, min: u32) {
        self.settings.min = min;
        self.hpa.set_settings(hpa_settings(&self.settings));
        self.keda.set_settings(keda_settings(&self.settings));
    }

    /// Does KEDA run its poll loop? Since 2.21 only where it must tell zero from one.
    #[must_use]
    pub fn polls(&self) -> bool {
        self.settings.min == 0
    }

    /// The HPA's sync; None for the metric when it could not be had. The new `spec.replicas`, if it changes.
    pub fn hpa_sync(&mut self, now: Moment, spec: u32, status: u32, metric: Option<Metric>) -> Option<u32> {
        self.hpa.sync(now, spec, status, metric)
    }

    /// The HPA's sync with metrics of any type; see [`Hpa::sync_signals`]. The new `spec.replicas`, if it changes.
    pub fn hpa_sync_signals(
        &mut self,
        now: Moment,
        pods: PodCount,
        signals: &[Option<Signal>],
    ) -> Option<u32> {
        self.hpa.sync_signals(now, pods, signals)
    }

    /// KEDA learns whether the trigger is active, by its poll or by a push. The new `spec.replicas`, if it changes.
    pub fn activity(&mut self, now: Moment, spec: u32, activity: Activity) -> Option<u32> {
        self.keda.observe(now, spec, activity)
    }
}

fn hpa_settings(settings: &AutoscalerSettings) -> HpaSettings {
    HpaSettings {
        // KEDA never gives its HPA a minimum of 0.
        min: settings.min.max(1),
        max: settings.max,
        tolerances: settings.tolerances,
        behavior: settings.behavior.clone(),
        generation: settings.generation,
        ..HpaSettings::default()
    }
}

fn keda_settings(settings: &AutoscalerSettings) -> KedaSettings {
    KedaSettings { min: settings.min, cooldown: settings.cooldown, initial_cooldown: Duration::ZERO }
}
