//! Several fleets under one clock, for whoever sizes them together. Pure.

use super::{ArrivingRequest, Fleet, LOOK, Playing, RequestScore, RequestSettings};
use crate::simulate::Moment;

/// A fleet with its own load.
pub struct Pool<'a> {
    /// How it is made. All pools are played for the span of the first.
    pub settings: &'a RequestSettings,
    /// What arrives at it, in the order of time.
    pub arrivals: Box<dyn Iterator<Item = ArrivingRequest> + 'a>,
}

impl std::fmt::Debug for Pool<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// Whoever sizes all of them.
pub trait PoolsSizer {
    /// When it wants to act next; never before it acted last. None: never again.
    fn next(&self) -> Option<Moment>;

    /// It is that time, and the fleets are as they are then, in the order of the pools.
    fn act(&mut self, now: Moment, fleets: &mut [&mut Fleet]);
}

/// Plays all of them; the scores are in the order of the pools.
pub fn play_pools(pools: Vec<Pool<'_>>, sizer: &mut dyn PoolsSizer) -> Vec<RequestScore> {
    let Some(first) = pools.first() else { return Vec::new() };
    let (span, end) = (first.settings.span, Moment::from_duration(first.settings.span));
    let mut playing: Vec<_> = pools
        .into_iter()
        .map(|pool| {
            let settings = RequestSettings { span, ..pool.settings.clone() };
            Playing::new(&settings, pool.arrivals, end)
        })
        .collect();
    let mut look = Moment::START;
    loop {
        let acts = sizer.next().filter(|at| *at < end);
        let now = acts.unwrap_or(end).min(look);
        for pool in &mut playing {
            pool.bring_to(now);
        }
        if now == look {
            for pool in &mut playing {
                pool.fleet.look();
            }
            if now == end {
                return playing.into_iter().map(|pool| pool.fleet.into_score()).collect();
            }
            look = look.plus(LOOK).min(end);
        }
        if acts.is_some_and(|at| at <= now) {
            let mut fleets: Vec<&mut Fleet> = playing.iter_mut().map(|pool| &mut pool.fleet).collect();
            sizer.act(now, &mut fleets);
        }
    }
}
