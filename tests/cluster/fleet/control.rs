//! What the suite may do: set load, send bursts, silence pages, read counters.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, put};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;

use super::pod_list::TierKey;
use super::tier::{Counts, Load};
use super::world::World;

#[derive(Debug, Deserialize)]
struct SetLoad {
    #[serde(flatten)]
    key: TierKey,
    rate: f64,
    input: u32,
    output: u32,
}

#[derive(Debug, Deserialize)]
struct Burst {
    #[serde(flatten)]
    key: TierKey,
    count: u32,
    input: u32,
    output: u32,
}

#[derive(Debug, Deserialize)]
struct Silence {
    #[serde(flatten)]
    key: TierKey,
    silent: bool,
}

#[derive(Debug, Serialize)]
struct TierCounts {
    namespace: String,
    tier: String,
    #[serde(flatten)]
    counts: Counts,
}

/// Serves it.
pub(crate) async fn serve(listener: TcpListener, world: Arc<World>) -> anyhow::Result<()> {
    let routes = Router::new()
        .route("/load", put(set_load))
        .route("/burst", put(burst))
        .route("/silence", put(silence))
        .route("/counters", get(counters))
        .with_state(world);
    Ok(axum::serve(listener, routes).await?)
}

async fn set_load(State(world): State<Arc<World>>, Json(set): Json<SetLoad>) -> StatusCode {
    world.set_load(&set.key, Load { rate: set.rate, input: set.input, output: set.output });
    StatusCode::NO_CONTENT
}

async fn burst(State(world): State<Arc<World>>, Json(burst): Json<Burst>) -> StatusCode {
    let load = Load { rate: 0.0, input: burst.input, output: burst.output };
    world.burst(&burst.key, burst.count, load);
    StatusCode::NO_CONTENT
}

async fn silence(State(world): State<Arc<World>>, Json(silence): Json<Silence>) -> StatusCode {
    world.set_silent(&silence.key, silence.silent);
    StatusCode::NO_CONTENT
}

async fn counters(State(world): State<Arc<World>>) -> Json<Vec<TierCounts>> {
    let counts = world.counts().into_iter();
    Json(
        counts.map(|(key, counts)| TierCounts { namespace: key.namespace, tier: key.tier, counts }).collect(),
    )
}
