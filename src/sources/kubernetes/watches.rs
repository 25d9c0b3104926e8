//! One watch a namespace and kind, however many tiers look at it.
//!
//! Objects are trimmed to a record as they come. A watch that fails goes on with what it last knew, says since when it
//! is blind, and is tried again (see [`super::list_watch`]). It ends with its last reader.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use chrono::{DateTime, Utc};
use futures_util::StreamExt as _;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::list_watch::{self, Heard};
use crate::clock::Clock;
use crate::cluster::Trouble;
use crate::telemetry::Told;

/// Changes are gathered for this long before they are published: a rollout changes every pod several times a second.
const GATHERED: Duration = Duration::from_millis(50);

/// What a watch knows.
#[derive(Clone, Debug)]
pub(super) struct View<R> {
    /// By the watch's own key; empty before the first list.
    pub(super) items: Arc<BTreeMap<String, Arc<R>>>,
    /// The first list is there.
    pub(super) listed: bool,
    /// Since when the watch fails, and why; None while it is up to date.
    pub(super) trouble: Option<(DateTime<Utc>, Trouble)>,
}

impl<R> Default for View<R> {
    fn default() -> Self {
        Self { items: Arc::default(), listed: false, trouble: None }
    }
}

/// A reader's hold on a watch; the watch ends with the last of them.
#[derive(Clone, Debug)]
pub(super) struct Subscription<R> {
    view: watch::Receiver<View<R>>,
    _alive: Arc<Alive>,
}

impl<R> Subscription<R> {
    /// What is known now. Cheap.
    pub(super) fn now(&mut self) -> View<R>
    where
        View<R>: Clone,
    {
        self.view.borrow_and_update().clone()
    }

    /// Waits for a change. Never returns where the watch has ended, which it does only with its process.
    pub(super) async fn changed(&mut self) {
        if self.view.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Ends the watch when dropped.
#[derive(Debug)]
struct Alive(CancellationToken);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// The watches of one kind, by namespace.
#[derive(Debug)]
pub(super) struct Watches<R> {
    running: Mutex<HashMap<String, Running<R>>>,
}

/// A watch, as long as anybody reads it.
type Running<R> = (watch::Receiver<View<R>>, Weak<Alive>);

impl<R> Default for Watches<R> {
    fn default() -> Self {
        Self { running: Mutex::default() }
    }
}

/// How a kind is watched.
pub(super) struct Watched<K: Resource, R> {
    pub(super) api: Api<K>,
    /// As a Role names it.
    pub(super) resource: &'static str,
    /// The record that is kept, with its key; None drops the object.
    pub(super) trim: fn(K) -> Option<(String, R)>,
}

impl<R: Debug + PartialEq + Send + Sync + 'static> Watches<R> {
    /// Joins the watch of this namespace, or begins it.
    pub(super) fn join<K>(
        &self,
        namespace: &str,
        clock: Clock,
        watched: impl FnOnce() -> Watched<K, R>,
    ) -> Subscription<R>
    where
        K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.retain(|_, (_, alive)| alive.strong_count() > 0);
        if let Some((view, alive)) = running.get(namespace)
            && let Some(alive) = alive.upgrade()
        {
            return Subscription { view: view.clone(), _alive: alive };
        }
        let stop = CancellationToken::new();
        let alive = Arc::new(Alive(stop.clone()));
        let (publish, view) = watch::channel(View::default());
        running.insert(namespace.to_owned(), (view.clone(), Arc::downgrade(&alive)));
        tokio::spawn(run(watched(), namespace.to_owned(), clock, publish, stop));
        Subscription { view, _alive: alive }
    }
}

async fn run<K, R>(
    watched: Watched<K, R>,
    namespace: String,
    clock: Clock,
    publish: watch::Sender<View<R>>,
    stop: CancellationToken,
) where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    R: Debug + PartialEq,
{
    let Watched { api, resource, trim } = watched;
    let mut events = std::pin::pin!(list_watch::events(api, resource, &namespace));
    let mut items: BTreeMap<String, Arc<R>> = BTreeMap::new();
    let mut told = Told::default();
    let mut failing = false;
    let mut changed = false;
    let mut gather = std::pin::pin!(tokio::time::sleep(GATHERED));
    loop {
        let event = tokio::select! {
            () = stop.cancelled() => return,
            event = events.next() => event,
            () = &mut gather, if changed => {
                changed = false;
                let items = Arc::new(items.clone());
                publish.send_modify(|view| view.items = items);
                continue;
            }
        };
        match event {
            // It goes on for ever.
            None => return,
            Some(Ok(Heard::List(objects))) => {
                let records = objects.into_iter().filter_map(trim);
                items = records.map(|(key, record)| (key, Arc::new(record))).collect();
                changed = false;
                let items = Arc::new(items.clone());
                publish.send_modify(|view| *view = View { items, listed: true, trouble: None });
            }
            Some(Ok(Heard::Steady)) => {
                failing = false;
                if told.works() {
                    info!(resource, namespace, count = items.len(), "watch recovered");
                }
            }
            Some(Ok(heard)) => {
                match heard {
                    Heard::Applied(object) => {
                        items.extend(trim(object).map(|(key, record)| (key, Arc::new(record))));
                    }
                    Heard::Deleted(object) => {
                        if let Some((key, _)) = trim(object) {
                            items.remove(&key);
                        }
                    }
                    Heard::List(_) | Heard::Steady => {}
                }
                publish.send_if_modified(|view| view.trouble.take().is_some());
                if !changed {
                    changed = true;
                    gather.as_mut().reset(tokio::time::Instant::now() + GATHERED);
                }
            }
            Some(Err(trouble)) => {
                // One that is over with the next attempt is usual: a version that is too old after an outage, a server
                // that restarts.
                let again = std::mem::replace(&mut failing, true);
                if (again || !trouble.is_usual_once()) && told.fails(&trouble.kind(), clock.now()) {
                    warn!(resource, namespace, trouble = %trouble, "watch failed: tried again");
                } else {
                    debug!(resource, namespace, trouble = %trouble, "watch failed: tried again");
                }
                failed(&publish, trouble, clock.now());
            }
        }
    }
}

/// Since when, on the first failure of a row; the newest reason counts, as the one that is still true.
fn failed<R>(publish: &watch::Sender<View<R>>, trouble: Trouble, now: DateTime<Utc>) {
    publish.send_if_modified(|view| match &mut view.trouble {
        Some((_, before)) if *before == trouble => false,
        Some((_, before)) => {
            *before = trouble;
            true
        }
        none => {
            *none = Some((now, trouble));
            true
        }
    });
}
