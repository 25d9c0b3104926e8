//! Pages of a tier's replicas, over time, made into one [`Observation`]: supply, load, rates, quantiles, ages. Pure.
//!
//! One [`TierWindow`] a tier, owned by the control loop, which tells it what happens and asks what is known. What holds:
//!
//! - Absent is not zero: a number that no page told is None.
//! - Stale is not fresh: a replica whose newest page is older than `stale_after` has no load.
//! - A rate is never negative and never made across a restart; the first page of a process gives none.
//! - A clock that is set, forward or back, costs rates for a while and nothing else.
//! - Memory is bounded: by [`MAX_REPLICAS`], and in each replica by its last page and a ring of readings.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::decision::observation::{CountedTotals, TierLoad};
use crate::decision::{Observation, ReplicaObservation, ReplicaState};
use crate::engines::EnginePage;
use crate::supply::{Discovered, Phase, ScaleFacts, Target};
use crate::units::later;

mod activator;
mod quantiles;
mod rates;
mod replica;
mod supply;
mod window;

pub(crate) use rates::slope;

use activator::Activator;
pub(crate) use replica::NOT_READ_YET;
use replica::Replica;
use window::Shape;

/// Replicas of one tier. An HPA of so many GPUs doesn't exist; a source that lists more has lost its selector, and
/// reading all of it would take the scaler down.
pub const MAX_REPLICAS: usize = 5_000;

/// Engines on one page: vLLM's data parallelism goes to a few dozen. More is somebody else's page.
pub const MAX_ENGINES: usize = 256;

/// Characters kept of a reason. An HTTP proxy's error page may come as a message.
const MAX_REASON_CHARACTERS: usize = 300;

/// How far ahead of `now` a page may lie before the clock counts as set back: a page is stamped when it arrives, `now`
/// is taken when the loop gets to it.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(2);

/// The spans that an observation looks back over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowSettings {
    /// Rates and the growth of the backlog are means over this span.
    pub rate_window: Duration,
    /// A page older than this is as good as none.
    pub stale_after: Duration,
    /// Latency quantiles are over this span.
    pub shape_window: Duration,
    /// How long a listed address that served and now refuses counts as a replica that should serve.
    pub hold_unknown: Duration,
    /// Requests that queued for longer are counted as late; None counts none.
    pub acceptable_queue: Option<Duration>,
}

/// Why a replica's page couldn't be had or read.
#[derive(Clone, Debug, PartialEq)]
pub struct PageFailure {
    /// Which kind.
    pub kind: FailureKind,
    /// For people.
    pub message: String,
}

/// Kinds of failures. Each is one value of a metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FailureKind {
    /// The replica has no address yet.
    NoAddress,
    /// The connection was refused: starting, or gone.
    Refused,
    /// No connection for another reason: no route, no such host, reset.
    Connect,
    /// No answer in time: busy, draining or unreachable.
    Timeout,
    /// TLS: a certificate that isn't trusted, or a plain-text server.
    Tls,
    /// An HTTP status other than 200.
    Status,
    /// The body is above the cap.
    TooLarge,
    /// The page can't be used: see [`crate::engines::PageError`].
    BadPage,
}

impl FailureKind {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::NoAddress,
        Self::Refused,
        Self::Connect,
        Self::Timeout,
        Self::Tls,
        Self::Status,
        Self::TooLarge,
        Self::BadPage,
    ];

    /// The name in metrics and logs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NoAddress => "noAddress",
            Self::Refused => "refused",
            Self::Connect => "connect",
            Self::Timeout => "timeout",
            Self::Tls => "tls",
            Self::Status => "status",
            Self::TooLarge => "tooLarge",
            Self::BadPage => "badPage",
        }
    }
}

/// What is known of one tier, kept up to date by what is told.
#[derive(Clone, Debug)]
pub struct TierWindow {
    settings: WindowSettings,
    source: Source,
    /// In the order of the source.
    order: Vec<String>,
    replicas: BTreeMap<String, Replica>,
    shape: Shape,
    activator: Option<Activator>,
    totals: CountedTotals,
}

/// What the source of replicas last said.
#[derive(Clone, Debug)]
enum Source {
    /// Who they are.
    Known { authoritative: bool, current: Option<u32>, scale: Option<Arc<ScaleFacts>> },
    /// That it can't say; the replicas are the ones of before.
    Unknown { why: String },
}

impl TierWindow {
    /// A tier of which nothing is known yet.
    #[must_use]
    pub fn new(settings: WindowSettings) -> Self {
        Self {
            settings,
            source: Source::Unknown { why: "the source of replicas has not answered yet".to_owned() },
            order: Vec::new(),
            replicas: BTreeMap::new(),
            shape: Shape::new(settings.shape_window),
            activator: None,
            totals: CountedTotals::default(),
        }
    }

    /// Requests count as late from here on when they queued for longer than this; None counts none.
    pub fn accept_queues_of(&mut self, acceptable: Option<Duration>) {
        if self.settings.acceptable_queue != acceptable {
            self.settings.acceptable_queue = acceptable;
            // What was counted by another measure is another sum.
            self.totals.queue_times = None;
        }
    }

    /// The source said who the replicas are, or that it can't.
    ///
    /// A replica that is not listed any more is dropped; what its requests told of latency and lengths stays until it is
    /// too old. An unknown answer changes nothing but that it is unknown.
    pub fn discovered(&mut self, discovered: &Discovered, now: DateTime<Utc>) {
        match discovered {
            Discovered::Unknown { why } => self.source = Source::Unknown { why: bounded(why) },
            Discovered::Targets { targets, .. } if targets.len() > MAX_REPLICAS => {
                let why = format!(
                    "the source lists {} replicas, and at most {MAX_REPLICAS} are read: is its selector right?",
                    targets.len()
                );
                self.source = Source::Unknown { why };
            }
            Discovered::Targets { targets, authoritative, current, scale } => {
                let (authoritative, current) = (*authoritative, *current);
                self.source = Source::Known { authoritative, current, scale: scale.clone() };
                self.take_targets(targets, now);
            }
        }
    }

    fn take_targets(&mut self, targets: &[Target], now: DateTime<Utc>) {
        self.order.clear();
        let mut listed = HashSet::new();
        for target in targets {
            if !listed.insert(target.id.as_str()) {
                continue;
            }
            self.order.push(target.id.clone());
            match self.replicas.get_mut(&target.id) {
                Some(replica) => replica.retarget(target),
                None => {
                    self.replicas.insert(target.id.clone(), Replica::new(target.clone(), now));
                }
            }
        }
        self.replicas.retain(|id, _| listed.contains(id.as_str()));
    }

    /// A page of a replica was read at `at`, or couldn't be. A replica that is not listed is ignored: its page was under
    /// way when it vanished.
    pub fn page(&mut self, target_id: &str, at: DateTime<Utc>, page: Result<EnginePage, PageFailure>) {
        let Some(replica) = self.replicas.get_mut(target_id) else {
            return;
        };
        match page {
            Ok(page) if page.engines.is_empty() || page.engines.len() > MAX_ENGINES => {
                let message = format!("{} engines on the page", page.engines.len());
                replica.fail(PageFailure { kind: FailureKind::BadPage, message });
            }
            Ok(page) => replica.take(at, page, &self.settings, &mut self.shape, &mut self.totals),
            Err(failure) => {
                replica.fail(PageFailure { message: bounded(&failure.message), ..failure });
            }
        }
    }

    /// The activator was read at `at`, or couldn't be. Call it once with an error before the first reading: a tier whose
    /// activator has never been told of counts as a tier without one.
    pub fn activator(&mut self, at: DateTime<Utc>, queued: Result<f64, String>) {
        self.activator.get_or_insert_default().read(at, queued, self.settings.rate_window);
    }

    /// What is known at `now`.
    ///
    /// The [`StepSample`](crate::decision::observation::StepSample) of a page is given once, by the first observation
    /// after that page, so that nothing is learned twice from it. Everything else is the same however often it is asked.
    pub fn observe(&mut self, now: DateTime<Utc>) -> Observation {
        self.follow_the_clock(now);
        self.shape.expire(now);
        let mut load = TierLoad::default();
        self.shape.describe(now, &mut load);
        (load.waiting_growth_per_second, load.rates_over) = self.waiting_growth(now);

        let replicas_unknown = self.replicas_unknown(now);
        let replicas = &mut self.replicas;
        let settings = &self.settings;
        let mut observed: Vec<ReplicaObservation> =
            self.order.iter().filter_map(|id| Some(replicas.get_mut(id)?.observe(now, settings))).collect();
        lost_sight(&mut observed);
        let (authoritative, current, scale) = match &self.source {
            Source::Known { authoritative, current, scale } => (*authoritative, *current, scale.clone()),
            Source::Unknown { .. } => (false, None, None),
        };
        Observation {
            replicas: observed,
            replicas_unknown,
            authoritative,
            current,
            scale,
            load,
            activator: self.activator.as_ref().map(|activator| activator.observe(now, &self.settings)),
            totals: self.totals,
        }
    }

    /// How fast the backlog of the tier grows, requests a second: at its replicas and at its activator. And the span that
    /// this and the tier's rates are means over.
    ///
    /// One that is known for a part of the span counts by that part: a queue that a new replica takes over from the
    /// activator or from the others is no growth, although its own page shows it within a second.
    fn waiting_growth(&self, now: DateTime<Utc>) -> (Option<f64>, Option<Duration>) {
        // In the order of identities, so that the sum doesn't depend on the order of the source.
        let fresh = || self.replicas.values().filter(|replica| replica.is_fresh(now, &self.settings));
        let at_activator =
            self.activator.as_ref().and_then(|activator| activator.growth(now, &self.settings));
        let spans = fresh().filter_map(Replica::rates_span);
        let Some(longest) = spans.chain(at_activator.map(|(_, span)| span)).max() else {
            return (None, None);
        };
        let of_replica = |replica: &Replica| Some((replica.waiting_growth()?, replica.rates_span()?));
        let growths = fresh().filter_map(of_replica).chain(at_activator);
        let share = |span: Duration| span.as_secs_f64() / longest.as_secs_f64();
        let sum = growths.fold(None, |sum, (growth, span)| rates::plus(sum, Some(growth * share(span))));
        (sum, Some(longest))
    }

    /// Why nobody can say who the replicas are.
    ///
    /// A listed address says nothing by itself: where none of them has a fresh page, nobody knows whether the tier is
    /// idle, starting or cut off, and that is not zero replicas.
    fn replicas_unknown(&self, now: DateTime<Utc>) -> Option<String> {
        let authoritative = match &self.source {
            Source::Unknown { why } => return Some(why.clone()),
            Source::Known { authoritative, .. } => *authoritative,
        };
        if self.replicas.is_empty() {
            let why = "the source lists no replica, and can't tell none from unknown";
            return (!authoritative).then(|| why.to_owned());
        }
        let readable =
            |replica: &Replica| replica.phase() != Phase::Listed || replica.is_fresh(now, &self.settings);
        if self.replicas.values().any(readable) {
            return None;
        }
        let mut causes: BTreeMap<&str, usize> = BTreeMap::new();
        for replica in self.replicas.values() {
            *causes.entry(replica.cause()).or_default() += 1;
        }
        let causes: Vec<String> = causes.iter().map(|(cause, count)| format!("{cause}: {count}")).collect();
        Some(format!("no listed replica has a fresh page ({})", causes.join(", ")))
    }

    /// What lies ahead of a clock that was set back is dated now: it would look fresh until the clock is there again.
    fn follow_the_clock(&mut self, now: DateTime<Utc>) {
        let limit = later(now, CLOCK_TOLERANCE);
        for replica in self.replicas.values_mut() {
            replica.follow_the_clock(now, limit);
        }
        if let Some(activator) = &mut self.activator {
            activator.follow_the_clock(now, limit);
        }
    }
}

/// Where most of the replicas that once served are not there any more, that is not known to be their end: the network
/// may be. They stay silent, so that the answer becomes an error and not a smaller one.
fn lost_sight(observed: &mut [ReplicaObservation]) {
    let left =
        |replica: &ReplicaObservation| replica.state == ReplicaState::Absent && replica.page_age.is_some();
    let of = |state| observed.iter().filter(|replica| replica.state == state).count();
    let (ready, silent) = (of(ReplicaState::Ready), of(ReplicaState::Silent));
    let gone = observed.iter().filter(|replica| left(replica)).count();
    if ready * 2 < ready + silent + gone {
        observed
            .iter_mut()
            .filter(|replica| left(replica))
            .for_each(|replica| replica.state = ReplicaState::Silent);
    }
}

fn bounded(text: &str) -> String {
    crate::units::shortened(text, MAX_REASON_CHARACTERS)
}
