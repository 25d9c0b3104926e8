//! Trigger.
