//! The fetches of a tier: who is due, when each begins, how many run at once, when a round is over.

use std::collections::{BTreeMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio::sync::{Semaphore, watch};
use tokio::task::{self, AbortHandle, JoinError, JoinSet};
use tokio::time::{Instant, MissedTickBehavior};
use tracing::{error, info, warn};

use super::{Closed, Events, MIN_REAL_INTERVAL, RoundsConfig, SPREAD, TierEvent};
use crate::aggregate::{FailureKind, PageFailure};
use crate::engines::{self, EnginePage};
use crate::scrape::{Client, ScrapeError};
use crate::supply::{Discovered, Phase, Target};

/// Of the fetches at once, the part that replicas may take which hung at their last one. The others keep the rest, so
/// that a tier of draining or overloaded replicas doesn't hold up the pages of those that answer.
const SLOW_LANE_PART: usize = 4;

/// State of the rounds.
pub(super) struct Fetching<'a> {
    config: &'a RoundsConfig,
    events: &'a Events,
    page_read_at: watch::Sender<Option<DateTime<Utc>>>,
    client: Result<Client, String>,
    replicas: BTreeMap<String, Replica>,
    fetches: JoinSet<Fetched>,
    lane: Arc<Semaphore>,
    slow_lane: Arc<Semaphore>,
    /// A replica has been fetched since the start.
    begun: bool,
    /// The fetches of the open round that aren't done. None between two rounds.
    open_round: Option<HashSet<task::Id>>,
}

/// A replica that is fetched.
struct Replica {
    url: String,
    in_flight: Option<AbortHandle>,
    hung: bool,
}

/// What a fetch brought.
struct Fetched {
    id: String,
    at: DateTime<Utc>,
    result: Result<EnginePage, PageFailure>,
    hung: bool,
}

impl<'a> Fetching<'a> {
    pub(super) fn new(
        config: &'a RoundsConfig,
        events: &'a Events,
        page_read_at: watch::Sender<Option<DateTime<Utc>>>,
    ) -> Self {
        let at_once = config.settings.concurrency.clamp(1, Semaphore::MAX_PERMITS);
        Self {
            config,
            events,
            page_read_at,
            client: Err("not made yet".to_owned()),
            replicas: BTreeMap::new(),
            fetches: JoinSet::new(),
            lane: Arc::new(Semaphore::new(at_once)),
            slow_lane: Arc::new(Semaphore::new(at_once.div_ceil(SLOW_LANE_PART))),
            begun: false,
            open_round: None,
        }
    }

    pub(super) async fn run(&mut self, mut discovered: watch::Receiver<Discovered>) -> Result<(), Closed> {
        let interval = self.config.clock.real(self.config.settings.interval).max(MIN_REAL_INTERVAL);
        let mut source_lives = true;
        let first = discovered.borrow_and_update().clone();
        // A source that knows nothing yet is given one interval before a round says so.
        let wait = if matches!(first, Discovered::Unknown { .. }) { interval } else { Duration::ZERO };
        let mut ticks = tokio::time::interval_at(Instant::now() + wait, interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        self.take_up(first).await?;
        loop {
            tokio::select! {
                changed = discovered.changed(), if source_lives => {
                    // A list never changes, so its sender may be gone: what it said stands.
                    source_lives = changed.is_ok();
                    if source_lives {
                        let now_known = discovered.borrow_and_update().clone();
                        self.take_up(now_known).await?;
                        if !self.begun && !self.replicas.is_empty() {
                            ticks.reset_immediately();
                        }
                    }
                }
                Some(joined) = self.fetches.join_next_with_id(), if !self.fetches.is_empty() => {
                    self.fetched(joined).await?;
                }
                _ = ticks.tick() => self.begin_round(interval).await?,
            }
        }
    }

    /// Ends every fetch.
    pub(super) async fn stop(mut self) {
        self.fetches.shutdown().await;
    }

    /// Passes on what the source says and follows it.
    async fn take_up(&mut self, discovered: Discovered) -> Result<(), Closed> {
        if let Discovered::Targets { targets, .. } = &discovered {
            let mut known = std::mem::take(&mut self.replicas);
            for target in targets {
                let Some(url) = fetchable(target) else { continue };
                let replica = known.remove(&target.id).filter(|replica| replica.url == url);
                let new = || Replica { url: url.to_owned(), in_flight: None, hung: false };
                self.replicas.insert(target.id.clone(), replica.unwrap_or_else(new));
            }
        }
        self.events.send(TierEvent::Discovered(discovered)).await
    }

    async fn begin_round(&mut self, interval: Duration) -> Result<(), Closed> {
        self.end_round().await?;
        self.renew_client();
        self.open_round = Some(HashSet::new());
        // The first answer after a start is owed quickly, so only the bound on fetches at once spreads the first round.
        let spread = if self.begun { interval.mul_f64(SPREAD) } else { Duration::ZERO };
        let due: Vec<String> = self
            .replicas
            .iter()
            .filter(|(_, replica)| replica.in_flight.is_none())
            .map(|(id, _)| id.clone())
            .collect();
        self.begun |= !due.is_empty();
        for id in due {
            match self.client.clone() {
                Ok(client) => self.launch(id, client, spread),
                Err(message) => self.report(id, failure(FailureKind::Tls, message)).await?,
            }
        }
        self.end_round_if_done().await
    }

    fn launch(&mut self, id: String, client: Client, spread: Duration) {
        let Some(replica) = self.replicas.get_mut(&id) else { return };
        let lane = if replica.hung { self.slow_lane.clone() } else { self.lane.clone() };
        let (url, model, clock) = (replica.url.clone(), self.config.model.clone(), self.config.clock);
        let delay = spread.mul_f64(offset(&id));
        let handle = self.fetches.spawn(async move {
            tokio::time::sleep(delay).await;
            // The lanes are never closed.
            let _permit = lane.acquire_owned().await;
            let fetched = client.fetch(&url).await;
            let at = clock.now();
            let hung = matches!(fetched, Err(ScrapeError::Timeout(_) | ScrapeError::ConnectTimeout(_)));
            let result = match fetched {
                Ok(page) => engines::read_page(&page.body, page.content_type.as_deref(), model.as_deref())
                    .map_err(|error| PageFailure { kind: FailureKind::BadPage, message: error.to_string() }),
                Err(error) => Err(error.into()),
            };
            Fetched { id, at, result, hung }
        });
        if let Some(round) = &mut self.open_round {
            round.insert(handle.id());
        }
        replica.in_flight = Some(handle);
    }

    async fn fetched(&mut self, joined: Result<(task::Id, Fetched), JoinError>) -> Result<(), Closed> {
        let task = match &joined {
            Ok((task, _)) => *task,
            Err(error) => error.id(),
        };
        // None where the replica is gone since.
        if let Some((id, replica)) =
            self.fetched_by(task, joined.as_ref().ok().map(|(_, fetched)| &fetched.id))
        {
            replica.in_flight = None;
            match joined {
                Ok((_, fetched)) => {
                    replica.hung = fetched.hung;
                    if fetched.result.is_ok() {
                        self.page_read_at.send_replace(Some(fetched.at));
                    }
                    self.events
                        .send(TierEvent::Page { target: id, at: fetched.at, result: fetched.result })
                        .await?;
                }
                Err(error) if error.is_panic() => {
                    error!(tier = %self.config.tier, target = %id, "reading a page panicked");
                    self.report(
                        id,
                        failure(FailureKind::BadPage, "reading the page failed (a bug)".to_owned()),
                    )
                    .await?;
                }
                Err(_cancelled) => {}
            }
        }
        if let Some(round) = &mut self.open_round {
            round.remove(&task);
        }
        self.end_round_if_done().await
    }

    /// The replica whose fetch this is. A fetch that died can't say its id, so it is looked for.
    fn fetched_by(&mut self, task: task::Id, id: Option<&String>) -> Option<(String, &mut Replica)> {
        let is_its = |replica: &Replica| replica.in_flight.as_ref().is_some_and(|fetch| fetch.id() == task);
        let id = match id {
            Some(id) => id.clone(),
            None => self.replicas.iter().find(|(_, replica)| is_its(replica))?.0.clone(),
        };
        self.replicas.get_mut(&id).filter(|replica| is_its(replica)).map(|replica| (id, replica))
    }

    async fn report(&self, target: String, result: Result<EnginePage, PageFailure>) -> Result<(), Closed> {
        self.events.send(TierEvent::Page { target, at: self.config.clock.now(), result }).await
    }

    async fn end_round_if_done(&mut self) -> Result<(), Closed> {
        if self.open_round.as_ref().is_some_and(HashSet::is_empty) { self.end_round().await } else { Ok(()) }
    }

    async fn end_round(&mut self) -> Result<(), Closed> {
        if self.open_round.take().is_none() {
            return Ok(());
        }
        self.events.send(TierEvent::RoundDone { at: self.config.clock.now() }).await
    }

    /// Takes up rotated credentials; makes the client where it could not be made before.
    fn renew_client(&mut self) {
        let tier = &self.config.tier;
        match &mut self.client {
            Ok(client) => match client.refresh() {
                Ok(true) => info!(%tier, "scrape credentials reloaded"),
                Ok(false) => {}
                Err(error) => warn!(%tier, %error, "scrape credentials not reloaded, the old ones stay"),
            },
            Err(before) => match Client::new(&self.config.settings) {
                Ok(client) => self.client = Ok(client),
                Err(error) => {
                    let message = format!("credentials: {error}");
                    if *before != message {
                        warn!(%tier, %error, "scrape credentials unusable");
                    }
                    self.client = Err(message);
                }
            },
        }
    }
}

/// A replica that is dropped is fetched no more.
impl Drop for Replica {
    fn drop(&mut self) {
        if let Some(fetch) = &self.in_flight {
            fetch.abort();
        }
    }
}

/// The URL of a replica that may answer: a starting one begins to when it is ready, a terminating one still holds load,
/// a blocked one never began.
fn fetchable(target: &Target) -> Option<&str> {
    match target.phase {
        Phase::Blocked => None,
        Phase::Listed | Phase::Starting | Phase::Ready | Phase::Terminating => target.url.as_deref(),
    }
}

/// Where in the spread a replica's fetch begins, from 0 to 1: the same in every round, by its identity (the idea of
/// Prometheus, `scrape/target.go`).
fn offset(id: &str) -> f64 {
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    hasher.finish() as f64 / u64::MAX as f64
}

fn failure(kind: FailureKind, message: String) -> Result<EnginePage, PageFailure> {
    Err(PageFailure { kind, message })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_stable_and_spread() {
        let offsets: Vec<f64> =
            (0..1000).map(|n| offset(&format!("10.0.{}.{}:8000", n / 250, n % 250))).collect();
        assert!(offsets.iter().all(|offset| (0.0..=1.0).contains(offset)));
        for tenth in 0..10 {
            let low = f64::from(tenth) / 10.0;
            let inside = offsets.iter().filter(|offset| (low..low + 0.1).contains(*offset)).count();
            assert!((50..200).contains(&inside), "{inside} of 1000 begin in tenth {tenth}");
        }
        assert!((offset("a") - offset("a")).abs() < f64::EPSILON);
    }
}
