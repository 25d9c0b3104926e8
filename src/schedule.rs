//! Cron windows with KEDA's five fields. Pure.
//!
//! The grammar is that of KEDA's cron trigger (robfig/cron v3, five fields, no descriptors). The window rule is our
//! own, because KEDA's loses or overstays windows when a clock is put forward or back:
//!
//! - **The latest event wins.** A window is open when its latest start is not older than its latest end; at the same
//!   minute the start wins. Start inclusive, end exclusive.
//! - **Wall clock first.** Starts and ends are ordered on the wall clock and only then mapped to instants, so a change
//!   of the clock can't reorder them.
//! - **A gap shifts.** An event in a skipped hour happens at the first instant after it. A window that lies wholly in
//!   the skipped hour opens there and closes when it would have without the change.
//! - **A fold widens.** In a repeated hour a start counts the first time and an end the last time: a floor errs on the
//!   side of capacity.
//!
//! It follows that a window is open at every instant whose wall clock lies in it. [`keda_differences`] says where
//! KEDA's own trigger would answer something else.

mod fields;
mod keda;
mod timetable;
mod window;
mod zone;

#[cfg(test)]
mod tests;

pub use keda::{Difference, keda_differences};
pub use timetable::firings;
pub use window::{Opening, Window, WindowError, WindowField};
pub use zone::Zone;
