//! The configuration file.

pub mod settings;

pub use settings::*;
