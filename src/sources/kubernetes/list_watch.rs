//! A list and a watch from where it ended, for ever: what client-go's reflector does (`tools/cache/reflector.go`), paced.
//!
//! kube's own watcher opens a watch that ends at once again at once, hundreds of times a second, and forgets its failures
//! with each list that succeeds. Here
//! - a failure is told, and the next attempt waits, longer each time, until a watch has lived;
//! - a watch that ends at once is a failure too, and the list is read anew: whatever ends watches may have swallowed
//!   what they said;
//! - a list is told only when it is whole, and one without a resource version is none.

use std::fmt::Debug;
use std::pin::Pin;
use std::time::Duration;

use futures_util::{Stream, StreamExt as _, stream};
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::{Api, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::cluster::{Need, Trouble};

/// The server ends a watch after this, and it is begun anew where it was: a connection that died silently is noticed
/// within it.
const WATCH_SECONDS: u32 = 60;

/// A watch that ends sooner was not served.
const SHORTEST_WATCH: Duration = Duration::from_secs(1);

/// A watch that has lived for this long works: failures before it are over.
const STEADY: Duration = Duration::from_secs(10);

/// See [`pause`].
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// See [`pause`]: while the server is away. One that restarts is back in seconds.
const LONGEST_OUTAGE: Duration = Duration::from_secs(4);
/// See [`pause`]: while the server refuses. A right or a kind that is missing is not there in seconds.
const LONGEST_REFUSAL: Duration = Duration::from_secs(30);

/// After so many failures in a row a watch is not resumed where it was: an event that can't be read would come again.
const RESUMED_AFTER: u32 = 2;

/// Objects a page of the list: 500 pods are a few megabytes.
const PAGE_SIZE: u32 = 500;

/// What is heard of the objects.
#[derive(Debug)]
pub(super) enum Heard<K> {
    /// All of them. What isn't among them is gone.
    List(Vec<K>),
    /// One is new, or changed.
    Applied(K),
    /// One is gone.
    Deleted(K),
    /// The failures before it are over.
    Steady,
}

type Events<K> = Pin<Box<dyn Stream<Item = Result<WatchEvent<K>, kube::Error>> + Send>>;

struct ListWatch<K> {
    api: Api<K>,
    resource: &'static str,
    namespace: String,
    state: State<K>,
    /// In a row, without a watch that lived.
    failures: u32,
    pause: Duration,
}

enum State<K> {
    /// Read the list.
    List,
    /// Watch from this version on.
    Resume(String),
    /// Watching, since then.
    Watching { version: String, events: Events<K>, began: Instant },
}

/// The events of a kind in a namespace. Never ends; a failure is told before the pause that follows it. Nothing is lost
/// when a wait for the next one is given up.
pub(super) fn events<K>(
    api: Api<K>,
    resource: &'static str,
    namespace: &str,
) -> impl Stream<Item = Result<Heard<K>, Trouble>> + Send
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let begin = ListWatch {
        api,
        resource,
        namespace: namespace.to_owned(),
        state: State::List,
        failures: 0,
        pause: Duration::ZERO,
    };
    stream::unfold(begin, |mut list_watch| async move {
        let heard = list_watch.next().await;
        Some((heard, list_watch))
    })
}

impl<K> ListWatch<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    async fn next(&mut self) -> Result<Heard<K>, Trouble> {
        tokio::time::sleep(std::mem::take(&mut self.pause)).await;
        loop {
            match std::mem::replace(&mut self.state, State::List) {
                State::List => return self.list().await,
                State::Resume(version) => {
                    let parameters = WatchParams::default().timeout(WATCH_SECONDS);
                    match self.api.watch(&parameters, &version).await {
                        Ok(events) => {
                            let (events, began) = (Box::pin(events), Instant::now());
                            self.state = State::Watching { version, events, began };
                        }
                        Err(error) => return Err(self.fails(&error, Some(version))),
                    }
                }
                State::Watching { version, events, began } => {
                    if let Some(heard) = self.watch(version, events, began).await {
                        return heard;
                    }
                }
            }
        }
    }

    async fn list(&mut self) -> Result<Heard<K>, Trouble> {
        let mut parameters = ListParams::default().limit(PAGE_SIZE);
        let mut objects = Vec::new();
        loop {
            let page = match self.api.list(&parameters).await {
                Ok(page) => page,
                Err(error) => return Err(self.fails(&error, None)),
            };
            objects.extend(page.items);
            if let Some(more) = page.metadata.continue_.filter(|more| !more.is_empty()) {
                parameters = parameters.continue_token(&more);
                continue;
            }
            let version = page.metadata.resource_version.filter(|version| !version.is_empty());
            let Some(version) = version else {
                return Err(self.failed("the list has no resourceVersion, so it is none", None));
            };
            self.state = State::Resume(version);
            return Ok(Heard::List(objects));
        }
    }

    /// None where there is nothing to tell and the state says how to go on.
    async fn watch(
        &mut self,
        mut version: String,
        mut events: Events<K>,
        began: Instant,
    ) -> Option<Result<Heard<K>, Trouble>> {
        let next = if self.failures == 0 {
            events.next().await
        } else if let Ok(next) = tokio::time::timeout_at(began + STEADY, events.next()).await {
            next
        } else {
            self.failures = 0;
            self.state = State::Watching { version, events, began };
            return Some(Ok(Heard::Steady));
        };
        let heard = match next {
            Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object))) => {
                version = object.resource_version().unwrap_or(version);
                Some(Ok(Heard::Applied(object)))
            }
            Some(Ok(WatchEvent::Deleted(object))) => {
                version = object.resource_version().unwrap_or(version);
                Some(Ok(Heard::Deleted(object)))
            }
            Some(Ok(WatchEvent::Bookmark(bookmark))) => {
                version = bookmark.metadata.resource_version;
                None
            }
            Some(Ok(WatchEvent::Error(status))) => {
                return Some(Err(self.fails(&kube::Error::Api(status), Some(version))));
            }
            Some(Err(error)) => return Some(Err(self.fails(&error, Some(version)))),
            None if began.elapsed() < SHORTEST_WATCH => {
                return Some(Err(self.failed(
                    "the watch is ended as soon as it begins; the list is read again and again",
                    None,
                )));
            }
            None => {
                self.state = State::Resume(version);
                return None;
            }
        };
        self.state = State::Watching { version, events, began };
        heard
    }

    fn fails(&mut self, error: &kube::Error, version: Option<String>) -> Trouble {
        let gone = matches!(error, kube::Error::Api(status) if status.code == 410);
        let trouble = Trouble::of(error, &self.need());
        self.again(&trouble, version.filter(|_| !gone));
        trouble
    }

    fn failed(&mut self, why: &str, version: Option<String>) -> Trouble {
        let trouble = Trouble::Failed { why: format!("{}: {why}", self.need()), code: None };
        self.again(&trouble, version);
        // Nothing is away: the server, or what is in front of it, is as it is.
        self.pause = pause(self.failures, LONGEST_REFUSAL);
        trouble
    }

    fn again(&mut self, trouble: &Trouble, version: Option<String>) {
        self.failures = self.failures.saturating_add(1);
        self.pause = pause(self.failures, if trouble.is_outage() { LONGEST_OUTAGE } else { LONGEST_REFUSAL });
        self.state = match version {
            Some(version) if self.failures <= RESUMED_AFTER => State::Resume(version),
            _ => State::List,
        };
    }

    fn need(&self) -> Need<'_> {
        Need { verbs: "list,watch", resource: self.resource, namespace: &self.namespace, name: None }
    }
}

/// Before the next attempt: 0.5 s, doubling to the longest, each with up to half as much again, so that the watches of many
/// namespaces don't come back to a restarted API server at once.
fn pause(failures: u32, longest: Duration) -> Duration {
    let doubled = FIRST_PAUSE * 2_u32.saturating_pow(failures.saturating_sub(1).min(10));
    doubled.min(longest).mul_f64(1.0 + rand::random::<f64>() / 2.0)
}

#[cfg(test)]
mod tests;
