//! One tier's state: its window of pages, its memory, its last status.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::floors_ahead::FloorsAhead;
use super::unasked::Expected;
use crate::aggregate::{PageFailure, TierWindow, WindowSettings};
use crate::config::TierSettings;
use crate::decision::{Answer, BoundKind, Decision, Learned, Memory, Observation, Policy, decide};
use crate::engines::EnginePage;
use crate::forecast::Forecast;
use crate::history::{HistoryPoint, MinuteAccumulator};
use crate::record::{Recorded, Recorder};
use crate::snapshot::{TierStatus, Unreadable};
use crate::supply::Discovered;
use crate::telemetry::{Asked, Told};
use crate::units::since;

/// What the page plots: six hours, a point a minute.
pub(super) const RECENT_MINUTES: u16 = 360;

/// Over how long latencies are judged: long enough for a few hundred requests on a small tier.
const SHAPE_WINDOW: Duration = Duration::from_secs(120);

/// What the store knew of a tier.
#[derive(Debug, Default)]
pub(super) struct Remembered {
    pub memory: Option<Vec<u8>>,
    pub recent: Vec<HistoryPoint>,
    pub minutes: u64,
}

/// A tier that ScaledObject metadata declared.
#[derive(Debug, Clone)]
pub(super) struct Declared {
    pub at: DateTime<Utc>,
    pub warnings: Vec<String>,
}

#[derive(Debug)]
pub(super) struct Tier {
    settings: TierSettings,
    policy: Arc<Policy>,
    window: TierWindow,
    memory: Memory,
    minute: MinuteAccumulator,
    recent: VecDeque<HistoryPoint>,
    recent_published: Arc<Vec<HistoryPoint>>,
    history_minutes: u64,
    learned_published: Arc<Learned>,
    forecast_published: Option<Arc<Forecast>>,
    floors_ahead: FloorsAhead,
    pub declared: Option<Declared>,
    asked: Asked,
    expected: Expected,
    unreadable: Told,
    recorded: Recorded,
    decided_at: Option<DateTime<Utc>>,
    rounds: u64,
    status: Option<Arc<TierStatus>>,
    changed: bool,
    tasks: CancellationToken,
}

impl Tier {
    pub(super) fn new(
        settings: TierSettings,
        remembered: Remembered,
        declared: Option<Declared>,
        tasks: CancellationToken,
        now: DateTime<Utc>,
    ) -> Self {
        let memory = match remembered.memory.as_deref().and_then(Memory::from_bytes) {
            Some(memory) => memory.resumed(now),
            None => Memory::started(now),
        };
        let recent: VecDeque<HistoryPoint> = remembered.recent.into();
        Self {
            policy: Arc::new(settings.policy.clone()),
            window: window(&settings, now),
            settings,
            learned_published: Arc::new(memory.learned()),
            forecast_published: None,
            memory,
            minute: MinuteAccumulator::default(),
            recent_published: Arc::new(recent.iter().copied().collect()),
            recent,
            history_minutes: remembered.minutes,
            floors_ahead: FloorsAhead::default(),
            declared,
            asked: Asked::default(),
            expected: Expected::default(),
            unreadable: Told::default(),
            recorded: Recorded::default(),
            decided_at: None,
            rounds: 0,
            status: None,
            changed: true,
            tasks,
        }
    }

    pub(super) fn settings(&self) -> &TierSettings {
        &self.settings
    }

    /// Takes new settings. What was learned stays; the pages stay unless they would now be read differently.
    pub(super) fn reconfigure(
        &mut self,
        settings: TierSettings,
        tasks: CancellationToken,
        now: DateTime<Utc>,
    ) {
        self.tasks.cancel();
        self.tasks = tasks;
        if settings.scrape != self.settings.scrape
            || settings.source != self.settings.source
            || settings.model != self.settings.model
            || settings.activator != self.settings.activator
        {
            self.window = window(&settings, now);
        }
        self.window.accept_queues_of(settings.policy.acceptable_queue_time());
        self.policy = Arc::new(settings.policy.clone());
        self.floors_ahead = FloorsAhead::default();
        self.settings = settings;
        self.changed = true;
    }

    pub(super) fn stop(&self) {
        self.tasks.cancel();
    }

    pub(super) fn discovered(&mut self, discovered: &Discovered, now: DateTime<Utc>) {
        if self.policy.floors_only && matches!(discovered, Discovered::Targets { .. }) {
            // A declared tier answers its floors until its pods are known; from then on its load counts, and what is
            // unknown of it is an error as for any tier.
            self.policy = Arc::new(Policy { floors_only: false, ..Policy::clone(&self.policy) });
        }
        self.window.discovered(discovered, now);
    }

    pub(super) fn page(&mut self, target: &str, at: DateTime<Utc>, result: Result<EnginePage, PageFailure>) {
        self.window.page(target, at, result);
    }

    pub(super) fn activator(&mut self, at: DateTime<Utc>, result: Result<f64, String>) {
        self.window.activator(at, result);
    }

    /// No decision for longer than a round should take. A clock that was set back makes a tier overdue at once, and one
    /// that answers its floors alone always is: it has no rounds, and a floor opens on the second.
    pub(super) fn is_overdue(&self, now: DateTime<Utc>) -> bool {
        match self.decided_at {
            Some(at) => {
                self.policy.floors_only || now < at || since(now, at) >= self.settings.scrape.interval
            }
            // The first round decides, or, should it hang, the time that one may take.
            None => self.policy.floors_only,
        }
    }

    pub(super) fn had_first_round(&self) -> bool {
        self.rounds > 0
    }

    pub(super) fn status(&self) -> Option<&Arc<TierStatus>> {
        self.status.as_ref()
    }

    /// The last answer, where there was one.
    pub(super) fn required(&self) -> Option<u32> {
        self.status.as_ref().and_then(|status| status.decision.required())
    }

    pub(super) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// Takes over what another scaler knows more about.
    pub(super) fn take_learned(&mut self, other: &Learned) {
        self.memory.take_learned(other);
        self.recorded.forget();
    }

    /// Takes another scaler's forecast over, where it is the better one.
    pub(super) fn take_forecast(&mut self, other: Forecast) {
        if self.memory.take_forecast(&self.policy, other) {
            info!(tier = %self.policy.tier, "took over the forecast of the holder of the Lease");
            self.recorded.forget();
            self.publish_learned();
        }
    }

    pub(super) fn memory_bytes(&self) -> Vec<u8> {
        self.memory.to_bytes()
    }

    /// Observes, learns, decides. Returns the minute that this closed, for the store.
    ///
    /// `warnings` are about the metadata of ScaledObjects that name this tier.
    pub(super) fn decide(
        &mut self,
        mut warnings: Vec<String>,
        recorder: &mut Recorder,
        now: DateTime<Utc>,
    ) -> Option<HistoryPoint> {
        if let Some(declared) = &self.declared {
            warnings.extend(declared.warnings.iter().cloned());
        }
        let observation = if self.policy.floors_only {
            crate::decision::Observation::unknown("declared by metadata: no source of load")
        } else {
            self.window.observe(now)
        };
        let before = recorder.begins(&self.recorded, &self.policy, now).then(|| self.memory.clone());
        self.memory.learn(&self.policy, &observation, now);
        let decision = decide(&self.policy, &observation, &self.memory, now);
        self.memory.record(&decision);
        self.log_change(&decision);
        self.log_unreadable(&observation, now);
        let finished = self.minute.add(now, &observation, &decision);
        if let Some(point) = finished {
            self.remember(point);
        }
        self.decided_at = Some(now);
        self.rounds += 1;
        self.changed = true;
        let unasked = self.expected.unasked(&self.asked, &observation, now);
        warnings.extend(unasked.clone());
        let status = Arc::new(TierStatus {
            policy: Arc::clone(&self.policy),
            floors_ahead: self.floors_ahead.at(&self.policy, decision.lead, now),
            decision,
            observation,
            recent: Arc::clone(&self.recent_published),
            declared_by_metadata: self.declared.is_some(),
            warnings,
            asked: self.asked.clone(),
            unasked: unasked.is_some(),
            history_minutes: self.history_minutes,
            learned: Arc::clone(&self.learned_published),
            forecast: self.forecast_published.clone(),
        });
        recorder.decided(&mut self.recorded, before, &status);
        self.status = Some(status);
        finished
    }

    fn remember(&mut self, point: HistoryPoint) {
        self.recent.push_back(point);
        while self.recent.len() > usize::from(RECENT_MINUTES) {
            self.recent.pop_front();
        }
        self.recent_published = Arc::new(self.recent.iter().copied().collect());
        self.history_minutes += 1;
        self.publish_learned();
    }

    fn publish_learned(&mut self) {
        self.learned_published = Arc::new(self.memory.learned());
        self.forecast_published = self.memory.forecast().cloned().map(Arc::new);
    }

    /// A line where pages of replicas that should serve begin to be unreadable, or are so for another reason.
    fn log_unreadable(&mut self, observation: &Observation, now: DateTime<Utc>) {
        let tier = &self.policy.tier;
        match Unreadable::of(observation) {
            None => {
                // While nobody can say who they are, nothing is read again.
                if observation.replicas_unknown.is_none() && self.unreadable.works() {
                    info!(%tier, "pages can be read again");
                }
            }
            Some(unreadable) => {
                if self.unreadable.fails(unreadable.kind(), now) {
                    let Unreadable { silent, expected, replica, why } = unreadable;
                    warn!(%tier, silent, expected, replica, why, "pages can't be read");
                }
            }
        }
    }

    /// A line where the answer, or the reason for having none, changes.
    fn log_change(&self, decision: &Decision) {
        let before = self.status.as_ref().map(|status| &status.decision);
        if before.is_some_and(|before| same_news(&before.answer, &decision.answer)) {
            return;
        }
        let tier = decision.tier.to_string();
        let from = before.and_then(Decision::required);
        match &decision.answer {
            Answer::Required(to) => info!(
                tier,
                from,
                to,
                cause = decision.binding().kind.name(),
                because = decision.binding().because,
                "required replicas changed"
            ),
            Answer::Unknown { why } => {
                warn!(tier, from, why, "required replicas unknown: KEDA gets an error and holds");
            }
        }
        if decision.winner.kind == BoundKind::Max
            && before.is_none_or(|before| before.winner.kind != BoundKind::Max)
        {
            warn!(tier, max = self.policy.max, because = decision.winner.because, "the maximum binds");
        }
    }
}

/// The same answer, or no answer again (the words of the reason may carry ages that change each round).
fn same_news(before: &Answer, after: &Answer) -> bool {
    match (before, after) {
        (Answer::Required(before), Answer::Required(after)) => before == after,
        (Answer::Unknown { .. }, Answer::Unknown { .. }) => true,
        _ => false,
    }
}

fn window(settings: &TierSettings, now: DateTime<Utc>) -> TierWindow {
    let mut window = TierWindow::new(WindowSettings {
        rate_window: settings.scrape.rate_window,
        stale_after: settings.scrape.stale_after,
        shape_window: SHAPE_WINDOW,
        hold_unknown: settings.policy.hold_unknown,
        acceptable_queue: settings.policy.acceptable_queue_time(),
    });
    if settings.activator.is_some() {
        // A tier whose activator was never told of counts as a tier without one.
        window.activator(now, Err("not read yet".to_owned()));
    }
    window
}
