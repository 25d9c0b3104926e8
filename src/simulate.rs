//! One simulated world for the demo, the tests and the backtest: vLLM replicas, the cluster that starts them, the router
//! before them, the traffic, and a stand-in for KEDA and the HPA.
//!
//! Pure state machines with time passed in ([`Moment`]), seeded and deterministic: [`engine_model`], [`replica`],
//! [`cluster`], [`router`], [`traffic`], [`world`], [`autoscaler`], [`rival`]. Sockets are at the edge only: [`serve`]
//! (metrics pages and the router's queue) and [`standin`] (gRPC to a scaler).
//!
//! ```text
//! traffic -> router -> replicas (engine_model) -> page -> serve -> a scraper
//!                         ^
//!              cluster <- autoscaler <- standin <- a scaler's gRPC answers
//! ```

pub mod autoscaler;
pub mod cluster;
pub mod distribution;
pub mod engine_metrics;
pub mod engine_model;
pub mod moment;
pub mod page;
pub mod prefix;
pub mod profile;
pub mod replica;
pub mod rival;
pub mod router;
pub mod serve;
pub mod standin;
pub mod start;
pub mod tally;
pub mod traffic;
pub mod world;

pub use cluster::{Cluster, ClusterSettings};
pub use engine_model::{EngineModel, Request};
pub use moment::Moment;
pub use profile::{EngineSettings, StepLaw};
pub use world::World;
