//! The pods' port and the router's.

use std::net::IpAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::extract::connect_info::{ConnectInfo, Connected};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::serve::{IncomingStream, Listener};
use keda_vllm_scaler::simulate::page;
use tokio::net::{TcpListener, TcpStream};

use super::world::{Silent, World};

/// All pods' port: a connection to an address where no engine listens is reset, as near to refused as one listener for
/// all addresses can come.
struct PodListener {
    inner: TcpListener,
    world: Arc<World>,
}

/// The pod that a connection was made to: not whoever has its address later.
#[derive(Clone, Debug)]
struct AskedPod(String);

impl Listener for PodListener {
    type Io = TcpStream;
    type Addr = AskedPod;

    async fn accept(&mut self) -> (TcpStream, AskedPod) {
        loop {
            let (stream, _) = Listener::accept(&mut self.inner).await;
            let pod = match stream.local_addr().map(|address| address.ip()) {
                Ok(IpAddr::V4(address)) => self.world.listening_at(address),
                _ => None,
            };
            match pod {
                Some(uid) => return (stream, AskedPod(uid)),
                None => {
                    // Best effort: without it the peer sees an orderly close.
                    let _reset = stream.set_zero_linger();
                }
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<AskedPod> {
        Ok(AskedPod(String::new()))
    }
}

impl Connected<IncomingStream<'_, PodListener>> for AskedPod {
    fn connect_info(stream: IncomingStream<'_, PodListener>) -> Self {
        stream.remote_addr().clone()
    }
}

/// Serves all pods.
pub(crate) async fn serve_pods(listener: TcpListener, world: Arc<World>) -> anyhow::Result<()> {
    let routes = Router::new()
        .route("/metrics", get(pod_page))
        .route("/health", get(pod_page))
        .with_state(Arc::clone(&world));
    let listener = PodListener { inner: listener, world };
    Ok(axum::serve(listener, routes.into_make_service_with_connect_info::<AskedPod>()).await?)
}

async fn pod_page(State(world): State<Arc<World>>, ConnectInfo(pod): ConnectInfo<AskedPod>) -> Response {
    match world.page(&pod.0) {
        Ok(Some(text)) => ([(header::CONTENT_TYPE, page::CONTENT_TYPE)], text).into_response(),
        // The pod is gone; its kept connection ends with it.
        Ok(None) => (StatusCode::SERVICE_UNAVAILABLE, [(header::CONNECTION, "close")]).into_response(),
        Err(Silent) => std::future::pending().await,
    }
}

/// Serves the router's page.
pub(crate) async fn serve_router(listener: TcpListener, world: Arc<World>) -> anyhow::Result<()> {
    let routes = Router::new().route("/metrics", get(router_page)).with_state(world);
    Ok(axum::serve(listener, routes).await?)
}

async fn router_page(State(world): State<Arc<World>>) -> Response {
    ([(header::CONTENT_TYPE, page::CONTENT_TYPE)], world.router_page()).into_response()
}
