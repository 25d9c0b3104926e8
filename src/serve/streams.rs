//! The two streams that KEDA holds open per ScaledObject with an external-push trigger.
//!
//! Rules, from KEDA 2.21's client (`external_scaler.go`, `scale_handler.go`):
//! - `true` at once when active, on each edge, and again on a heartbeat: a push that comes before the ScaledObject's
//!   status names the metric is dropped. `false` is never sent: since 2.18 it is ignored, before it deactivates the
//!   object over the heads of its other triggers.
//! - A stream ends with OK, at a random age and at shutdown: after an OK KEDA comes back in 2 s, after anything else it
//!   doubles its wait to 60 s and never resets it. For the same reason connections have no maximum age here: cutting one
//!   under an open stream is an error to KEDA.
//! - Where nobody knows, the stream stays open and says nothing.
//!
//! A stream is a value that is polled, not a task: when KEDA cancels it, everything it holds is dropped with it.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use tonic::codegen::BoxStream;

use super::external_scaler::{Answers, metric_spec};
use crate::proto::{GetMetricSpecResponse, IsActiveResponse, ScaledObjectRef};

/// How long until `true` is repeated while active, drawn anew each time. KEDA needs no more than one in 10 s; each costs it
/// a status update. Drawn, because KEDA opens all its streams within seconds of its start: at a fixed pace 20,000 of them
/// would for ever send within the same few seconds, and the calls on their connection would wait.
pub(super) const HEARTBEAT_SECONDS: std::ops::Range<f64> = 10.0..20.0;

/// A stream's age, drawn at random between the two: old enough to be rare, young enough that replicas of this server
/// get their share, and spread so that 20,000 streams don't come back in one second.
pub(super) const MAX_AGE_SECONDS: std::ops::RangeInclusive<u64> = 600..=1800;

/// An edge so soon after a push says nothing new to KEDA.
const JUST_PUSHED: Duration = Duration::from_secs(1);

fn random_heartbeat() -> Duration {
    Duration::from_secs_f64(rand::random_range(HEARTBEAT_SECONDS))
}

fn random_age() -> Duration {
    Duration::from_secs(rand::random_range(MAX_AGE_SECONDS))
}

/// Pushes `true` for an asker until the stream's age or the shutdown ends it.
///
/// The metadata is read anew at each look, because a reload may have changed what it means.
pub(super) fn is_active(
    answers: Answers,
    asker: ScaledObjectRef,
    edges: watch::Receiver<()>,
    stop: CancellationToken,
) -> BoxStream<IsActiveResponse> {
    let now = Instant::now();
    let state = Pushes {
        answers,
        asker,
        edges,
        stop,
        ends_at: now + random_age(),
        woken: false,
        pushed: None,
        next: now,
    };
    Box::pin(stream::unfold(state, Pushes::next))
}

struct Pushes {
    answers: Answers,
    asker: ScaledObjectRef,
    edges: watch::Receiver<()>,
    stop: CancellationToken,
    ends_at: Instant,
    /// The tier has become active since the last look.
    woken: bool,
    /// When `true` was pushed last.
    pushed: Option<Instant>,
    /// When `true` is due again, or when a declaration that got lost is made again.
    next: Instant,
}

impl Pushes {
    async fn next(mut self) -> Option<(Result<IsActiveResponse, tonic::Status>, Self)> {
        loop {
            let now = Instant::now();
            if self.stop.is_cancelled() || now >= self.ends_at {
                return None;
            }
            let due = now >= self.next;
            let woken = std::mem::take(&mut self.woken) && !self.just_pushed(now);
            if due || woken {
                let active = self.answers.is_active_now(&self.asker);
                if due || active {
                    self.next = now + random_heartbeat();
                }
                if active {
                    self.pushed = Some(now);
                    return Some((Ok(IsActiveResponse { result: true }), self));
                }
                if due {
                    self.answers.declare_again(&self.asker);
                }
            }
            tokio::select! {
                () = self.stop.cancelled() => {}
                changed = self.edges.changed() => {
                    changed.ok()?;
                    self.woken = true;
                }
                () = sleep_until(self.next.min(self.ends_at)) => {}
            }
        }
    }

    fn just_pushed(&self, now: Instant) -> bool {
        self.pushed.is_some_and(|at| now.saturating_duration_since(at) < JUST_PUSHED)
    }
}

/// The specs once, at once, then nothing: they never change.
pub(super) fn metric_spec_updates(stop: CancellationToken) -> BoxStream<GetMetricSpecResponse> {
    let first = stream::once(async { Ok(metric_spec()) });
    let then_held_open = stream::once(async move {
        tokio::select! {
            () = stop.cancelled() => {}
            () = sleep(random_age()) => {}
        }
    });
    Box::pin(first.chain(then_held_open.filter_map(|()| async { None })))
}
