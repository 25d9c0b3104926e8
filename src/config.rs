//! To be written.

pub mod trigger;
