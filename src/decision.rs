//! The decision: how many replicas does this tier need, counting what it will need by the time a new one could be ready?
//!
//! `decide` is a pure function of [`Policy`], [`Observation`], [`Memory`] and the time; what is learned changes only in
//! [`Memory::learn`], once before each decide, and [`Memory::record`], once after it. Nothing here may name tokio,
//! reqwest, tonic, a file or a clock.

pub mod explanation;
pub mod observation;
pub mod policy;

pub use explanation::{Answer, Ask, Bound, BoundKind, Decision, SignalKind};
pub use observation::{Observation, ReplicaLoad, ReplicaObservation, ReplicaState, TierLoad};
pub use policy::{Policy, TierId};
