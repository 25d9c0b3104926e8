//! Against an API server that does as it is told, on a clock that jumps from one timer to the next.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;

use super::*;

#[test]
fn pauses_grow_to_the_longest() {
    for (failures, least) in [(1, 0.5), (2, 1.0), (5, 8.0), (7, 30.0), (4_000, 30.0)] {
        let refused = pause(failures, LONGEST_REFUSAL).as_secs_f64();
        assert!((least..=least * 1.5).contains(&refused), "{failures}: {refused}");
        let away = pause(failures, LONGEST_OUTAGE).as_secs_f64();
        assert!((least.min(4.0)..=least.min(4.0) * 1.5).contains(&away), "{failures}: {away}");
    }
}

/// What the server answers to a watch: code, body, and how long it then keeps the connection.
type Watched = (u16, String, Duration);

/// An API server with one pod: lists succeed, watches are answered in turn and then all alike.
struct Server {
    watches: Mutex<VecDeque<Watched>>,
    then: Watched,
    asked: Mutex<Vec<(Instant, String)>>,
}

impl Server {
    fn new(watches: Vec<Watched>, then: Watched) -> Arc<Self> {
        Arc::new(Self { watches: Mutex::new(watches.into()), then, asked: Mutex::default() })
    }

    fn pods(self: &Arc<Self>) -> Api<Pod> {
        let server = Arc::clone(self);
        let service = Router::new().fallback(move |request: Request| async move { server.answer(&request) });
        Api::namespaced(Client::new(service, "serving"), "serving")
    }

    fn answer(&self, request: &Request) -> Response {
        let query = request.uri().query().unwrap_or_default().to_owned();
        let watch = query.contains("watch=true");
        self.asked.lock().unwrap().push((Instant::now(), if watch { query } else { "list".into() }));
        if !watch {
            let list = serde_json::json!({
                "kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "100"}, "items": [pod("101")],
            });
            return Response::new(Body::from(list.to_string()));
        }
        let (code, body, keeps) =
            self.watches.lock().unwrap().pop_front().unwrap_or_else(|| self.then.clone());
        let chunks = stream::iter([Ok::<_, std::io::Error>(body)]);
        let end = stream::once(async move {
            tokio::time::sleep(keeps).await;
            Ok(String::new())
        });
        Response::builder().status(code).body(Body::from_stream(chunks.chain(end))).unwrap()
    }

    /// Lists and watches so far.
    fn counts(&self) -> (usize, usize) {
        let asked = self.asked.lock().unwrap();
        let lists = asked.iter().filter(|(_, what)| what == "list").count();
        (lists, asked.len() - lists)
    }
}

fn pod(version: &str) -> serde_json::Value {
    serde_json::json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "chat-0", "uid": "u", "resourceVersion": version}})
}

fn event(kind: &str, object: &serde_json::Value) -> String {
    format!("{}\n", serde_json::json!({"type": kind, "object": object}))
}

fn gone() -> String {
    let status = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired", "code": 410,
        "message": "too old resource version",
    });
    event("ERROR", &status)
}

/// What is heard within a span, in words, with the seconds at which.
async fn heard(server: &Arc<Server>, within: Duration) -> Vec<(u64, String)> {
    let mut events = std::pin::pin!(events(server.pods(), "pods", "serving"));
    let (began, mut heard) = (Instant::now(), Vec::new());
    while let Ok(Some(next)) = tokio::time::timeout_at(began + within, events.next()).await {
        let word = match next {
            Ok(Heard::List(pods)) => format!("list of {}", pods.len()),
            Ok(Heard::Applied(pod)) => format!("applied {}", pod.resource_version().unwrap_or_default()),
            Ok(Heard::Deleted(_)) => "deleted".to_owned(),
            Ok(Heard::Steady) => "steady".to_owned(),
            Err(trouble) => trouble.to_string(),
        };
        heard.push((began.elapsed().as_secs(), word));
    }
    heard
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_at_once_is_a_failure_and_the_list_is_read_again_ever_more_seldom() {
    let server = Server::new(vec![], (200, String::new(), Duration::ZERO));
    let heard = heard(&server, Duration::from_mins(10)).await;
    let (lists, watches) = server.counts();
    assert!((15..=35).contains(&watches), "{watches} watches in ten minutes");
    assert!(lists >= watches, "{lists}: what changed is seen");
    let ended = heard.iter().filter(|(_, word)| word.contains("ended as soon as it begins")).count();
    assert_eq!(ended, watches);
}

#[tokio::test(start_paused = true)]
async fn a_version_that_is_always_too_old_is_listed_ever_more_seldom() {
    for then in [
        (200, gone(), Duration::ZERO),
        (
            410,
            r#"{"kind":"Status","apiVersion":"v1","status":"Failure","code":410,"message":"too old"}"#
                .to_owned(),
            Duration::ZERO,
        ),
    ] {
        let server = Server::new(vec![], then);
        heard(&server, Duration::from_mins(10)).await;
        let (lists, watches) = server.counts();
        assert!(
            (15..=35).contains(&watches) && lists.abs_diff(watches) <= 1,
            "{lists} lists, {watches} watches"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_lives_goes_on_where_it_was_and_ends_the_failures_before_it() {
    let minute = Duration::from_mins(1);
    let changed = event("MODIFIED", &pod("205"));
    let server = Server::new(
        vec![(200, gone(), Duration::ZERO), (200, changed, minute), (200, String::new(), minute)],
        (200, gone(), Duration::ZERO),
    );
    let heard = heard(&server, Duration::from_millis(122_500)).await;
    let words: Vec<&str> = heard.iter().map(|(_, word)| word.as_str()).collect();
    assert_eq!(words[0], "list of 1");
    assert!(words[1].contains("too old resource version"), "{words:?}");
    assert_eq!(words[2..5], ["list of 1", "applied 205", "steady"], "{heard:?}");
    let asked: Vec<String> = server.asked.lock().unwrap().iter().map(|(_, what)| what.clone()).collect();
    assert!(asked[4].contains("resourceVersion=205"), "resumed without a list: {asked:?}");
    // The failure that comes now is the first of a row again.
    let asked = server.asked.lock().unwrap();
    assert!(asked[6].0 - asked[5].0 <= Duration::from_millis(760), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn what_cant_be_read_is_neither_an_end_nor_a_list() {
    let server = Server::new(vec![], (200, "\u{0}garbage\n{\n".to_owned(), Duration::from_secs(60)));
    let heard = heard(&server, Duration::from_mins(5)).await;
    let (lists, watches) = server.counts();
    assert!(watches <= 80, "{watches}");
    assert!(lists > 1, "after a few the list is read anew: {heard:?}");
}
