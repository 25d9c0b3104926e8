//! What rivals remember of the last minutes, and when their loops run. Pure.

use std::collections::VecDeque;
use std::time::Duration;

use crate::simulate::Moment;

/// The values of a span that ends now. One value a slot: a longer span needs more memory, a longer trace doesn't.
#[derive(Clone, Debug)]
pub(super) struct Window {
    span: Duration,
    values: VecDeque<(Moment, f64)>,
}

impl Window {
    /// Values that are as old as the span are out.
    pub(super) fn new(span: Duration) -> Self {
        Self { span, values: VecDeque::new() }
    }

    /// The newest value. Time never goes back.
    pub(super) fn push(&mut self, at: Moment, value: f64) {
        self.values.push_back((at, value));
        while self.values.front().is_some_and(|(first, _)| at.since(*first) >= self.span) {
            self.values.pop_front();
        }
    }

    /// None without a value.
    pub(super) fn mean(&self) -> Option<f64> {
        (!self.values.is_empty()).then(|| self.values().sum::<f64>() / self.values.len() as f64)
    }

    /// None without a value.
    pub(super) fn max(&self) -> Option<f64> {
        self.values().reduce(f64::max)
    }

    /// None without a value.
    pub(super) fn min(&self) -> Option<f64> {
        self.values().reduce(f64::min)
    }

    fn values(&self) -> impl Iterator<Item = f64> + '_ {
        self.values.iter().map(|(_, value)| *value)
    }
}

/// A loop that runs every so often, from the beginning of time on. Where slots are longer than its period it runs once
/// in each.
#[derive(Clone, Debug)]
pub(super) struct Every {
    period: Duration,
    next: Moment,
}

impl Every {
    pub(super) fn new(period: Duration) -> Self {
        Self { period, next: Moment::START }
    }

    /// Does it run now? It is told so once.
    pub(super) fn is_due(&mut self, now: Moment) -> bool {
        if now < self.next {
            return false;
        }
        while self.next <= now {
            self.next = self.next.plus(self.period.max(Duration::from_millis(1)));
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Moment {
        Moment::from_seconds(seconds)
    }

    #[test]
    fn a_window_forgets_what_is_as_old_as_its_span() {
        let mut window = Window::new(Duration::from_secs(15));
        assert_eq!((window.mean(), window.max(), window.min()), (None, None, None));
        for (slot, value) in [8.0, 1.0, 2.0, 6.0].into_iter().enumerate() {
            window.push(at(slot as f64 * 5.0), value);
        }
        assert_eq!((window.mean(), window.max(), window.min()), (Some(3.0), Some(6.0), Some(1.0)));
    }

    #[test]
    fn a_loop_keeps_its_beat_whatever_the_slots_are() {
        let mut every = Every::new(Duration::from_secs(15));
        let due: Vec<u32> = (0..10).filter(|slot| every.is_due(at(f64::from(*slot) * 5.0))).collect();
        assert_eq!(due, [0, 3, 6, 9]);
        let mut quick = Every::new(Duration::from_secs(2));
        assert!((0..5).all(|slot| quick.is_due(at(f64::from(slot) * 5.0))));
    }
}
