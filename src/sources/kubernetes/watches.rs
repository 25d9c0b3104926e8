//! One watch a namespace and kind, however many tiers look at it.
//!
//! Objects are trimmed to a record as they come. A watch that fails goes on with what it last knew, says since when it
//! is blind, and tries again with growing pauses; a resource version that is too old (410) makes a new list. It ends with
//! its last reader.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use chrono::{DateTime, Utc};
use futures_util::StreamExt as _;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::clock::Clock;
use crate::cluster::{Need, Trouble};

/// Changes are gathered for this long before they are published: a rollout changes every pod several times a second.
const GATHERED: Duration = Duration::from_millis(50);

/// The server ends a watch after this, and it is begun anew where it was: a connection that died silently is noticed
/// within it.
const WATCH_SECONDS: u32 = 60;

/// Objects a page of the first list: 500 pods are a few megabytes.
const PAGE_SIZE: u32 = 500;

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
    let need = Need { verbs: "list,watch", resource, namespace: &namespace, name: None };
    let config = watcher::Config::default().timeout(WATCH_SECONDS).page_size(PAGE_SIZE);
    let mut events = std::pin::pin!(watcher(api, config).default_backoff());
    let mut items: BTreeMap<String, Arc<R>> = BTreeMap::new();
    // The list that is being read; it takes the place of `items` when it is whole.
    let mut list: BTreeMap<String, Arc<R>> = BTreeMap::new();
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
            // A watcher's stream goes on for ever.
            None => return,
            Some(Ok(event)) => {
                if take(event, &mut items, &mut list, trim) == Taken::Listed {
                    recovered(&publish, resource, &namespace, items.len());
                    changed = false;
                    let items = Arc::new(items.clone());
                    publish.send_modify(|view| *view = View { items, listed: true, trouble: None });
                    continue;
                }
                recovered(&publish, resource, &namespace, items.len());
                if !changed {
                    changed = true;
                    gather.as_mut().reset(tokio::time::Instant::now() + GATHERED);
                }
            }
            Some(Err(error)) => failed(&publish, Trouble::of_watch(&error, &need), clock.now()),
        }
    }
}

#[derive(PartialEq, Eq)]
enum Taken {
    Change,
    Listed,
}

fn take<K, R>(
    event: watcher::Event<K>,
    items: &mut BTreeMap<String, Arc<R>>,
    list: &mut BTreeMap<String, Arc<R>>,
    trim: fn(K) -> Option<(String, R)>,
) -> Taken {
    match event {
        watcher::Event::Init => list.clear(),
        watcher::Event::InitApply(object) => {
            list.extend(trim(object).map(|(key, record)| (key, Arc::new(record))));
        }
        watcher::Event::InitDone => {
            *items = std::mem::take(list);
            return Taken::Listed;
        }
        watcher::Event::Apply(object) => {
            items.extend(trim(object).map(|(key, record)| (key, Arc::new(record))));
        }
        watcher::Event::Delete(object) => {
            if let Some((key, _)) = trim(object) {
                items.remove(&key);
            }
        }
    }
    Taken::Change
}

/// Since when, and why, on the first failure of a row; the newest reason counts, as the one that is still true.
fn failed<R>(publish: &watch::Sender<View<R>>, trouble: Trouble, now: DateTime<Utc>) {
    publish.send_if_modified(|view| {
        match &mut view.trouble {
            Some((_, before)) if *before == trouble => return false,
            Some((_, before)) => *before = trouble,
            none => {
                warn!(trouble = %trouble, "watch failed: tried again");
                *none = Some((now, trouble));
            }
        }
        true
    });
}

fn recovered<R>(publish: &watch::Sender<View<R>>, resource: &str, namespace: &str, count: usize) {
    publish.send_if_modified(|view| {
        let was = view.trouble.take();
        if was.is_some() {
            info!(resource, namespace, count, "watch recovered");
        }
        was.is_some()
    });
}
