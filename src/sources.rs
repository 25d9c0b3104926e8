//! Who the replicas of a tier are, and what waits in front of them.
//!
//! A source publishes [`crate::supply::Discovered`] on a watch channel and tells unknown from zero: a list and DNS can
//! never say zero. An activator is no source of replicas: it says what waits at a gateway while there are none.

pub mod activator;
pub mod dns;
pub mod fixed;
pub mod kubernetes;

pub use fixed::fixed;
