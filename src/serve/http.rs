//! The operator's HTTP port: the page, the API, the scaler's own metrics, liveness and readiness.
//!
//! Every answer is made from the published snapshot; no request waits for anything. The port is read-only and has no
//! authentication: it shows load and configuration, so it belongs inside the cluster. Whatever is done to it, KEDA's port is
//! served: connections are few and none may dawdle.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, Query, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{Html, IntoResponse, Json, Response};
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use maud::Markup;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use super::accepting::{Accepting, Limits, WhenFull};
use super::api::{ErrorReply, LearnedReply, TierReply, TiersReply};
use super::grpc::ServeError;
use super::page::{self, Refresh, View};
use crate::clock::Clock;
use crate::decision::TierId;
use crate::snapshot::Published;

/// What Prometheus is told the metrics are: the `OpenMetrics` 1.0 specification's media type.
pub const OPENMETRICS_CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Nothing is loaded, nothing runs, nothing is sent anywhere; styles are part of the page.
const CONTENT_POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

/// Connections at a time: two or three Prometheus servers, the kubelet, and browsers, which open up to six each. A further
/// one takes the place of the oldest, which costs a keep-alive and no request; so a small number turns nobody away.
pub const CONNECTIONS: usize = 64;

/// How long a request's head may take from its connection or from the answer before it, and so how long a connection may
/// idle: a browser sends a head in one packet, and opening a new connection costs a page or a scrape nothing.
pub const HEAD_WITHIN: Duration = Duration::from_secs(10);

/// Renders the scaler's own metrics.
pub type RenderMetrics = Arc<dyn Fn() -> String + Send + Sync>;

#[derive(Clone)]
struct Shared {
    published: Published,
    metrics: RenderMetrics,
    clock: Clock,
}

/// The HTTP port, bound.
#[derive(Debug)]
pub struct PagePort {
    accepting: Accepting,
}

impl PagePort {
    /// Binds the port; nothing is answered before [`PagePort::serve`].
    ///
    /// # Errors
    /// When the port can't be bound.
    pub async fn bind(address: SocketAddr) -> Result<Self, ServeError> {
        let limits = Limits {
            connections: CONNECTIONS,
            when_full: WhenFull::CloseOldest,
            // The head's time-out sees to it, for each request.
            first_bytes: None,
        };
        Ok(Self { accepting: Accepting::bind(address, limits).await? })
    }

    /// Where it listens.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.accepting.local_addr()
    }

    /// Answers until it is dropped; what is open then is cut with it.
    pub async fn serve(mut self, router: Router) -> Infallible {
        let mut protocol = http1::Builder::new();
        protocol.timer(TokioTimer::new()).header_read_timeout(HEAD_WITHIN);
        let mut open = JoinSet::new();
        loop {
            tokio::select! {
                connection = self.accepting.next() => {
                    let service = TowerToHyperService::new(router.clone());
                    let serving = protocol.serve_connection(TokioIo::new(connection), service);
                    open.spawn(async move {
                        if let Err(error) = serving.await {
                            tracing::debug!(%error, "http connection ended");
                        }
                    });
                }
                Some(_) = open.join_next() => {}
            }
        }
    }
}

/// The routes of the HTTP port. The clock only tells how old the snapshot is.
pub fn router(published: Published, metrics: RenderMetrics, clock: Clock) -> Router {
    Router::new()
        .route("/", get(all_tiers_page))
        .route("/tiers/{namespace}/{name}", get(tier_page))
        .route("/v1/tiers", get(all_tiers_json))
        .route("/v1/tiers/{namespace}/{name}", get(tier_json))
        .route("/v1/learned", get(learned_json))
        .route("/v1/learned/{namespace}/{name}/forecast", get(forecast_json))
        .route("/metrics", get(metrics_text))
        .route("/livez", get(live))
        .route("/readyz", get(ready))
        .fallback(nothing_here)
        .with_state(Shared { published, metrics, clock })
}

#[derive(Debug, Deserialize)]
struct PageQuery {
    /// `off` stops the page from reloading itself.
    refresh: Option<String>,
}

impl PageQuery {
    fn view(&self, shared: &Shared) -> View {
        let refresh = if self.refresh.as_deref() == Some("off") { Refresh::Paused } else { Refresh::Running };
        View { now: shared.clock.now(), refresh }
    }
}

async fn all_tiers_page(State(shared): State<Shared>, Query(query): Query<PageQuery>) -> Response {
    let snapshot = shared.published.now();
    html(StatusCode::OK, page::all_tiers(&snapshot, query.view(&shared)))
}

async fn tier_page(
    State(shared): State<Shared>,
    Path((namespace, name)): Path<(String, String)>,
    Query(query): Query<PageQuery>,
) -> Response {
    let snapshot = shared.published.now();
    let id = TierId::new(namespace, name);
    let view = query.view(&shared);
    match snapshot.tiers.get(&id) {
        Some(status) => html(StatusCode::OK, page::one_tier(&snapshot, status, view)),
        None if snapshot.waiting.contains(&id) => {
            html(StatusCode::SERVICE_UNAVAILABLE, page::waiting_tier(&snapshot, &id, view))
        }
        None => html(StatusCode::NOT_FOUND, page::no_such_tier(&snapshot, &id, view)),
    }
}

async fn all_tiers_json(State(shared): State<Shared>) -> Response {
    json(StatusCode::OK, &TiersReply::new(&shared.published.now()))
}

async fn tier_json(
    State(shared): State<Shared>,
    Path((namespace, name)): Path<(String, String)>,
) -> Response {
    let snapshot = shared.published.now();
    let id = TierId::new(namespace, name);
    match snapshot.tiers.get(&id) {
        Some(status) => json(StatusCode::OK, &TierReply::new(&snapshot, status)),
        None if snapshot.waiting.contains(&id) => {
            let error = format!("tier {id} is configured and has no decision yet");
            json(StatusCode::SERVICE_UNAVAILABLE, &ErrorReply { error })
        }
        None => json(StatusCode::NOT_FOUND, &ErrorReply { error: format!("no tier {id}") }),
    }
}

async fn learned_json(State(shared): State<Shared>) -> Response {
    json(StatusCode::OK, &LearnedReply::new(&shared.published.now()))
}

async fn forecast_json(
    State(shared): State<Shared>,
    Path((namespace, name)): Path<(String, String)>,
) -> Response {
    let id = TierId::new(namespace, name);
    match shared.published.now().tiers.get(&id).and_then(|status| status.forecast.clone()) {
        Some(forecast) => json(StatusCode::OK, &*forecast),
        None => json(StatusCode::NOT_FOUND, &ErrorReply { error: format!("no forecast of tier {id}") }),
    }
}

async fn metrics_text(State(shared): State<Shared>) -> Response {
    ([(CONTENT_TYPE, OPENMETRICS_CONTENT_TYPE)], (shared.metrics)()).into_response()
}

/// Alive while the control loop holds its end of the channel: a scaler that no longer decides is to be restarted.
async fn live(State(shared): State<Shared>) -> Response {
    if shared.published.snapshot.has_changed().is_err() {
        return (StatusCode::SERVICE_UNAVAILABLE, "the control loop has ended\n").into_response();
    }
    (StatusCode::OK, "ok\n").into_response()
}

async fn ready(State(shared): State<Shared>) -> Response {
    let snapshot = shared.published.now();
    if snapshot.ready {
        return (StatusCode::OK, "ready\n").into_response();
    }
    let waiting = snapshot.waiting.len();
    (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {waiting} tiers without a first round\n"))
        .into_response()
}

async fn nothing_here() -> Response {
    let help = "nothing here: / is the page, /v1/tiers the API, /metrics for Prometheus, /livez and /readyz for probes\n";
    (StatusCode::NOT_FOUND, help).into_response()
}

fn html(status: StatusCode, markup: Markup) -> Response {
    let headers: [(HeaderName, HeaderValue); 4] = [
        (CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (CONTENT_SECURITY_POLICY, HeaderValue::from_static(CONTENT_POLICY)),
        (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    ];
    (status, headers, Html(markup.into_string())).into_response()
}

fn json<T: Serialize>(status: StatusCode, reply: &T) -> Response {
    let headers: [(HeaderName, HeaderValue); 2] = [
        (CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    ];
    (status, headers, Json(reply)).into_response()
}
