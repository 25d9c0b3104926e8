//! Tiers come, change and go with the configuration.

use std::time::Duration;

use tokio::sync::watch;
use tracing::{error, info, warn};

use super::tier::{RECENT_MINUTES, Remembered, Tier};
use super::{ConfigUpdate, ControlLoop};
use crate::config::{Config, SourceSettings, TierSettings};
use crate::decision::TierId;
use crate::scrape::rounds::{self, RoundsConfig};
use crate::sources;
use crate::sources::dns::DnsSettings;
use crate::supply::Discovered;

/// How long the store may take to say what it knows of a tier; after that the tier begins anew.
const STORE_PATIENCE: Duration = Duration::from_secs(5);

impl ControlLoop {
    pub(super) async fn configure(&mut self, update: ConfigUpdate) {
        match update {
            ConfigUpdate::Rejected(problems) => {
                error!(file = self.status.file, problems, "new configuration refused; the old one stays");
                self.counters.config_rejected(self.clock.now());
                self.status.rejected = Some(problems);
            }
            ConfigUpdate::Accepted(config, done) => {
                self.take_config(*config).await;
                self.publish();
                if done.is_some_and(|done| done.send(()).is_err()) {
                    tracing::debug!("whoever asked for the reload has gone");
                }
            }
        }
    }

    async fn take_config(&mut self, config: Config) {
        let now = self.clock.now();
        let changes = config.changes_from(&self.in_force);
        self.status.loaded_at = Some(now);
        self.status.rejected = None;
        self.status.allow_metadata_tiers = config.allow_metadata_tiers;
        let told = std::mem::take(&mut self.status.warnings);
        self.status.warnings = config.warnings.iter().map(ToString::to_string).collect();
        for section in &changes.restart_needed {
            self.status
                .warnings
                .push(format!("{section}: changed in the file; takes effect at the next start"));
        }
        for warning in self.status.warnings.iter().filter(|warning| !told.contains(warning)) {
            warn!(warning, "configuration");
        }
        self.recorder.configure(config.record.as_ref());
        for id in &changes.removed {
            self.remove_tier(id);
        }
        if !config.allow_metadata_tiers {
            let declared = self.tiers.iter().filter(|(_, tier)| tier.declared.is_some());
            for id in declared.map(|(id, _)| id.clone()).collect::<Vec<_>>() {
                self.remove_tier(&id);
            }
        }
        for settings in config.tiers.iter().filter(|tier| changes.changed.contains(&tier.policy.tier)) {
            self.change_tier(settings.clone());
        }
        for settings in config.tiers.iter().filter(|tier| changes.added.contains(&tier.policy.tier)) {
            self.add_tier(settings.clone()).await;
        }
        info!(
            tiers = config.tiers.len(),
            added = changes.added.len(),
            changed = changes.changed.len(),
            removed = changes.removed.len(),
            "configuration in force"
        );
        self.in_force = config;
        self.counters.config_loaded(now);
    }

    fn remove_tier(&mut self, id: &TierId) {
        if let Some(tier) = self.tiers.remove(id) {
            info!(tier = %id, "tier removed");
            tier.stop();
            self.counters.forget(id);
        }
    }

    pub(super) async fn add_tier(&mut self, settings: TierSettings) {
        let id = settings.policy.tier.clone();
        let remembered = self.remembered(&id).await;
        let stop = self.stop.child_token();
        self.start_tasks(&settings, &stop);
        let tier = Tier::new(settings, remembered, None, stop, self.clock.now());
        if let Some(replaced) = self.tiers.insert(id, tier) {
            replaced.stop();
        }
    }

    fn change_tier(&mut self, settings: TierSettings) {
        let stop = self.stop.child_token();
        let id = settings.policy.tier.clone();
        self.start_tasks(&settings, &stop);
        let now = self.clock.now();
        if let Some(tier) = self.tiers.get_mut(&id) {
            info!(tier = %id, "tier changed");
            tier.reconfigure(settings, stop, now);
        }
        self.decide(&id, now);
    }

    pub(super) async fn remembered(&self, id: &TierId) -> Remembered {
        let minute = self.clock.now().timestamp().div_euclid(60);
        let loaded = tokio::time::timeout(STORE_PATIENCE, self.history.load(id)).await;
        let Ok((memory, points)) = loaded else {
            warn!(tier = %id, "the store doesn't answer: this tier begins without its history");
            return Remembered::default();
        };
        let from = minute - i64::from(RECENT_MINUTES);
        Remembered {
            memory,
            minutes: points.len() as u64,
            recent: points
                .into_iter()
                .filter(|point| point.minute >= from && point.minute <= minute)
                .collect(),
        }
    }

    /// The tier's source and its scrape rounds.
    pub(super) fn start_tasks(&self, settings: &TierSettings, stop: &tokio_util::sync::CancellationToken) {
        let id = settings.policy.tier.clone();
        let discovered = match &settings.source {
            SourceSettings::Fixed { urls } => watch::channel(sources::fixed(urls)).1,
            SourceSettings::Dns { host, port, scheme, path, resolve_every } => {
                let (tx, rx) = watch::channel(Discovered::Unknown { why: "not resolved yet".to_owned() });
                let settings = DnsSettings {
                    host: host.clone(),
                    port: *port,
                    scheme: *scheme,
                    path: path.clone(),
                    resolve_every: *resolve_every,
                };
                self.tasks.spawn(sources::dns::run(settings, self.clock, tx, stop.clone()));
                rx
            }
            SourceSettings::Kubernetes(pods) => {
                let (tx, rx) = watch::channel(Discovered::Unknown { why: "not looked for yet".to_owned() });
                let kubernetes = self.kubernetes.clone();
                self.tasks.spawn(kubernetes.run(id.clone(), pods.clone(), self.clock, tx, stop.clone()));
                rx
            }
            SourceSettings::Injected => match self.injected.get(&id) {
                Some(rx) => rx.clone(),
                None => watch::channel(Discovered::Unknown { why: "nothing was handed in".to_owned() }).1,
            },
        };
        let rounds = RoundsConfig {
            tier: id,
            settings: settings.scrape.clone(),
            model: settings.model.clone(),
            activator: settings.activator.clone(),
            clock: self.clock,
        };
        self.tasks.spawn(rounds::run(rounds, discovered, self.events.clone(), stop.clone()));
    }
}
