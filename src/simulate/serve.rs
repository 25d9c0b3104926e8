//! Real sockets for a simulated world: one listener a replica, one for the router, and the driver that keeps the world in
//! step with the clock.
//!
//! A replica's port is bound and refuses while the replica starts, as vLLM's does; it is gone when the pod is gone. The
//! world is behind one mutex that is never held over an await.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router as HttpRouter;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::moment::Moment;
use super::page;
use super::replica::Life;
use super::standin::{ReplicaCounts, ScaleTarget};
use super::world::World;
use crate::clock::Clock;
use crate::supply::Discovered;

/// Between two looks at the clock, real time: short enough that nobody sees the steps at 60 times life.
const TICK: Duration = Duration::from_millis(20);
/// The most simulated time that is caught up while the lock is held: others get a turn in between. Long enough that a
/// page read after a hiccup of this machine is up to date: an old page with a new time would look like a jump of the load.
const SLICE: Duration = Duration::from_secs(60);
/// Over how long the pace is measured, real time.
const PACE_WINDOW: Duration = Duration::from_secs(2);
/// Connections that may wait for a simulated vLLM to accept them.
const BACKLOG: u32 = 128;

/// The world as its servers, the stand-in and the view share it.
#[derive(Debug)]
struct Shared {
    world: Mutex<World>,
    clock: Clock,
    /// Simulated seconds per real second, lately.
    pace: Mutex<f64>,
    wake: tokio::sync::Notify,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, World> {
        // A panic elsewhere leaves a world that is still whole: it is advanced by whole events.
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The world at the time of the clock, or as near to it as one slice brings it.
    fn lock_at_now(&self) -> MutexGuard<'_, World> {
        let mut world = self.lock();
        let now = self.clock_time(&world);
        let until = now.min(world.now().plus(SLICE));
        world.advance(until);
        world
    }

    /// Runs one slice; true when the clock is still ahead.
    fn run_slice(&self) -> bool {
        let now = self.clock_time(&self.lock());
        self.lock_at_now().now() < now
    }

    fn clock_time(&self, world: &World) -> Moment {
        Moment::from_wall(world.settings().base, self.clock.now())
    }
}

/// A world with sockets.
#[derive(Clone, Debug)]
pub struct Fleet {
    shared: Arc<Shared>,
    discovered: watch::Receiver<Discovered>,
    router: SocketAddr,
    stop: CancellationToken,
    tasks: TaskTracker,
    /// A fleet that nobody holds any more ends by itself.
    _held: Arc<DropGuard>,
}

impl Fleet {
    /// Begins to run a world. Its base time must be the time that the clock shows now.
    ///
    /// # Errors
    /// When no socket can be had.
    pub async fn start(world: World, clock: Clock) -> io::Result<Self> {
        let base = world.settings().base;
        let shared = Arc::new(Shared {
            world: Mutex::new(world),
            clock,
            pace: Mutex::new(clock.factor()),
            wake: tokio::sync::Notify::new(),
        });
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let router = listener.local_addr()?;
        let routes = HttpRouter::new().route("/metrics", get(router_page)).with_state(Arc::clone(&shared));
        tasks.spawn(serve(listener, routes, stop.child_token()));

        let mut sockets = Sockets {
            shared: Arc::clone(&shared),
            open: HashMap::new(),
            tasks: tasks.clone(),
            stop: stop.clone(),
        };
        sockets.follow()?;
        let (publish, discovered) = watch::channel(shared.lock().cluster().discovered(base));
        tasks.spawn(drive(Arc::clone(&shared), sockets, publish, stop.clone()));
        tasks.close();
        let held = Arc::new(stop.clone().drop_guard());
        Ok(Self { shared, discovered, router, stop, tasks, _held: held })
    }

    /// What a pod watch would tell, whenever it changes.
    #[must_use]
    pub fn discovered(&self) -> watch::Receiver<Discovered> {
        self.discovered.clone()
    }

    /// The router's metrics page: the activator.
    #[must_use]
    pub fn router_url(&self) -> String {
        format!("http://{}/metrics", self.router)
    }

    /// Looks at the world, or changes it, at its present time. Keep it short: everybody else waits.
    pub fn with_world<T>(&self, look: impl FnOnce(&mut World) -> T) -> T {
        look(&mut self.shared.lock_at_now())
    }

    /// Simulated seconds per real second, lately: below the clock's factor when this machine can't keep up.
    #[must_use]
    pub fn pace(&self) -> f64 {
        *self.shared.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends all listeners and the driver, and gives back the world as it then is.
    pub async fn stop(self) -> World {
        self.stop.cancel();
        self.tasks.wait().await;
        self.shared.lock().clone()
    }
}

impl ScaleTarget for Fleet {
    fn counts(&self) -> ReplicaCounts {
        let world = self.shared.lock_at_now();
        ReplicaCounts { spec: world.cluster().spec(), status: world.cluster().status() }
    }

    fn scale(&self, replicas: u32) {
        self.shared.lock_at_now().scale(replicas);
        // New pods are told of at once, as a watch would.
        self.shared.wake.notify_one();
    }
}

/// Keeps the world in step with the clock, the sockets in step with the pods, and tells of every change.
async fn drive(
    shared: Arc<Shared>,
    mut sockets: Sockets,
    publish: watch::Sender<Discovered>,
    stop: CancellationToken,
) {
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut pace_from = (Instant::now(), shared.lock().now());
    loop {
        // Far behind: no waiting, but page reads and scaling get their turn between the slices.
        let behind = shared.run_slice();
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::task::yield_now(), if behind => {}
            _ = ticks.tick() => {}
            () = shared.wake.notified() => {}
        }
        if let Err(error) = sockets.follow() {
            // Out of ports or descriptors: the pod stays without an address, as it would without an IP.
            tracing::warn!(%error, "simulated_replica_without_socket");
        }
        let base = shared.lock().settings().base;
        let now_known = shared.lock().cluster().discovered(base);
        publish.send_if_modified(|known| {
            let changed = *known != now_known;
            *known = now_known;
            changed
        });
        let elapsed = pace_from.0.elapsed();
        if elapsed >= PACE_WINDOW {
            let now = shared.lock().now();
            *shared.pace.lock().unwrap_or_else(PoisonError::into_inner) =
                now.seconds_since(pace_from.1) / elapsed.as_secs_f64();
            pace_from = (Instant::now(), now);
        }
    }
}

/// The sockets of the pods that exist.
struct Sockets {
    shared: Arc<Shared>,
    open: HashMap<String, PodSocket>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

enum PodSocket {
    /// Bound, and refusing.
    Reserved(TcpSocket),
    /// Serving until cancelled.
    Serving(CancellationToken),
}

impl Sockets {
    /// Brings the sockets in step with the pods.
    fn follow(&mut self) -> io::Result<()> {
        let pods: Vec<(String, bool, bool)> = {
            let world = self.shared.lock();
            let replicas = world.cluster().replicas().iter();
            replicas.map(|r| (r.id.clone(), !matches!(r.life(), Life::Pending { .. }), r.listens())).collect()
        };
        self.open.retain(|id, socket| {
            let exists = pods.iter().any(|(pod, _, _)| pod == id);
            if !exists && let PodSocket::Serving(stop) = socket {
                stop.cancel();
            }
            exists
        });
        for (id, addressed, listens) in pods {
            if addressed && !self.open.contains_key(&id) {
                self.reserve(&id)?;
            }
            if listens && let Some(PodSocket::Reserved(_)) = self.open.get(&id) {
                self.listen(&id)?;
            }
        }
        Ok(())
    }

    fn reserve(&mut self, id: &str) -> io::Result<()> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let url = format!("http://{}/metrics", socket.local_addr()?);
        if let Some(replica) = self.shared.lock().replica_mut(id) {
            replica.url = Some(url);
        }
        self.open.insert(id.to_owned(), PodSocket::Reserved(socket));
        Ok(())
    }

    fn listen(&mut self, id: &str) -> io::Result<()> {
        let Some(PodSocket::Reserved(socket)) = self.open.remove(id) else { return Ok(()) };
        let listener = socket.listen(BACKLOG)?;
        let stop = self.stop.child_token();
        let pod = Arc::new(Pod { shared: Arc::clone(&self.shared), id: id.to_owned() });
        let routes = HttpRouter::new()
            .route("/metrics", get(replica_page))
            .route("/health", get(|| async { StatusCode::OK }))
            .with_state(pod);
        self.tasks.spawn(serve(listener, routes, stop.clone()));
        self.open.insert(id.to_owned(), PodSocket::Serving(stop));
        Ok(())
    }
}

/// What a replica's handlers know.
struct Pod {
    shared: Arc<Shared>,
    id: String,
}

async fn replica_page(State(pod): State<Arc<Pod>>) -> Response {
    let world = pod.shared.lock_at_now();
    let model = &world.settings().cluster.model;
    let replica = world.cluster().replicas().iter().find(|replica| replica.id == pod.id);
    match replica.and_then(|replica| replica.page(model, world.settings().base)) {
        Some(text) => ([(header::CONTENT_TYPE, page::CONTENT_TYPE)], text).into_response(),
        None => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

async fn router_page(State(shared): State<Arc<Shared>>) -> Response {
    let world = shared.lock_at_now();
    let text = world.cluster().router().page(&world.settings().cluster.model);
    ([(header::CONTENT_TYPE, page::CONTENT_TYPE)], text).into_response()
}

async fn serve(listener: TcpListener, routes: HttpRouter, stop: CancellationToken) {
    let ended = axum::serve(listener, routes).with_graceful_shutdown(stop.cancelled_owned()).await;
    if let Err(error) = ended {
        tracing::warn!(%error, "simulated_listener_ended");
    }
}
