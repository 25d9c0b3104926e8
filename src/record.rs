//! What a running scaler saw and decided, written down so that it can be decided again: the bug report of the future.
//!
//! ```text
//! recorder  in the control loop: hands over what was decided, never waits
//! writer    a thread of its own: lines into files      folder   files that are bounded and rotated
//! line      what a file holds; `backtest::replay` reads it
//! ```
//!
//! Invariants: no answer waits for a disk, and none is changed by one. Each file replays by itself: a tier's first line
//! in it is its policy and its memory. Whatever could not be written ends the file, so that a replay never jumps over a
//! decision without saying so.

mod folder;
pub mod line;
mod recorder;
mod writer;

pub use folder::files;
pub use recorder::{Recorded, Recorder};
