//! One replica of a tier: its last page, what it counted, and how it is seen. Pure.

use std::time::Duration;

use chrono::{DateTime, Utc};

use super::quantiles::grown_above;
use super::rates::{
    Continuity, Counter, Increase, Readings, continuity, find, finite, increase, most_in, plus, step_sample,
};
use super::supply::{PageState, state};
use super::window::Shape;
use super::{PageFailure, WindowSettings};
use crate::decision::observation::{
    CountedTotals, ReplicaLoad, ReplicaObservation, ReplicaState, StepSample,
};
use crate::engines::{EnginePage, EngineSample};
use crate::supply::{Phase, Target};
use crate::units::since;

/// What is told of a page before the first attempt.
pub(crate) const NOT_READ_YET: &str = "not read yet";

/// A replica as its source lists it.
#[derive(Clone, Debug)]
pub(super) struct Replica {
    target: Target,
    /// The newest good page and when it was read.
    page: Option<(DateTime<Utc>, EnginePage)>,
    /// Why the last attempt failed; None after a good page.
    failure: Option<PageFailure>,
    readings: Readings,
    /// A series that the last page lacks was 0 then. False once a series was lost without a restart.
    absent_was_zero: bool,
    /// What the newest page teaches, until it is given.
    steps: Option<StepSample>,
    state: ReplicaState,
    state_since: DateTime<Utc>,
}

impl Replica {
    pub(super) fn new(target: Target, now: DateTime<Utc>) -> Self {
        Self {
            target,
            page: None,
            failure: None,
            readings: Readings::default(),
            absent_was_zero: true,
            steps: None,
            state: ReplicaState::Starting,
            state_since: now,
        }
    }

    /// The source lists it again. At another address it is another server, and nothing read before holds.
    pub(super) fn retarget(&mut self, target: &Target) {
        if self.target.url.is_some() && self.target.url != target.url {
            self.page = None;
            self.failure = None;
            self.steps = None;
            self.readings.clear();
        }
        self.target.clone_from(target);
    }

    pub(super) fn phase(&self) -> Phase {
        self.target.phase
    }

    /// Why the page is missing, in one word.
    pub(super) fn cause(&self) -> &'static str {
        match &self.failure {
            Some(failure) => failure.kind.name(),
            None if self.page.is_some() => "stale",
            None => "not read yet",
        }
    }

    pub(super) fn fail(&mut self, failure: PageFailure) {
        self.failure = Some(failure);
    }

    /// Takes a good page: gauges as they are, counters against the page before.
    pub(super) fn take(
        &mut self,
        at: DateTime<Utc>,
        page: EnginePage,
        settings: &WindowSettings,
        shape: &mut Shape,
        totals: &mut CountedTotals,
    ) {
        self.failure = None;
        self.steps = None;
        let waiting = total(&page, waiting);
        let Some((last, before)) = self.page.take() else {
            self.absent_was_zero = true;
            self.readings.begin(at, waiting);
            shape.begin(&page);
            self.page = Some((at, page));
            return;
        };
        if at == last {
            // No time has passed: the counters of the first of the two stay the base of the next rate.
            self.page = Some((last, before));
            return;
        }
        let follows = continuity(&before, &page);
        match follows {
            Continuity::Same => {}
            Continuity::Restarted => self.absent_was_zero = true,
            Continuity::SeriesLost => self.absent_was_zero = false,
        }
        // A longer gap would smear the load of a time that is over onto now.
        let comparable = last < at && since(at, last) <= settings.stale_after;
        let increase = match follows {
            Continuity::Same | Continuity::SeriesLost => increase(&before, &page, self.absent_was_zero),
            // It has counted from zero.
            Continuity::Restarted => {
                let nothing = EnginePage { engines: Vec::new(), rejected_total: None, ..page.clone() };
                increase(&nothing, &page, true)
            }
        };
        let seconds = (at - last).as_seconds_f64();
        let most = most_in(seconds);
        if increase.is_at_most(most) {
            count(totals, &increase);
            if let Some(acceptable) = settings.acceptable_queue {
                count_queue_times(totals, follows, &before, &page, self.absent_was_zero, acceptable, most);
            }
        }
        let plausible = increase.is_plausible(seconds);
        if follows == Continuity::Same && comparable && plausible {
            self.readings.go_on(at, &increase, waiting, settings.rate_window);
            self.steps = step_sample(&before, &page, &increase);
            shape.add(at, &before, &page, &increase, self.absent_was_zero);
        } else {
            self.readings.begin(at, waiting);
        }
        self.page = Some((at, page));
    }

    /// Its newest page counts for now.
    pub(super) fn is_fresh(&self, now: DateTime<Utc>, settings: &WindowSettings) -> bool {
        self.page.as_ref().is_some_and(|(at, _)| since(now, *at) <= settings.stale_after)
    }

    /// See [`ReplicaLoad::rates_over`].
    pub(super) fn rates_span(&self) -> Option<Duration> {
        self.readings.span()
    }

    pub(super) fn waiting_growth(&self) -> Option<f64> {
        self.readings.waiting_growth()
    }

    /// See [`super::TierWindow::follow_the_clock`]. Readings across a clock that was set tell nothing.
    pub(super) fn follow_the_clock(&mut self, now: DateTime<Utc>, limit: DateTime<Utc>) {
        if let Some((at, _)) = &mut self.page
            && *at > limit
        {
            *at = now;
            self.readings.clear();
        }
        if self.state_since > limit {
            self.state_since = now;
        }
    }

    /// How it is seen. Gives the step sample away.
    pub(super) fn observe(&mut self, now: DateTime<Utc>, settings: &WindowSettings) -> ReplicaObservation {
        let age = self.page.as_ref().map(|(at, _)| since(now, *at));
        let fresh = self.is_fresh(now, settings);
        let page = self.page.as_ref().map(|(_, page)| page).filter(|_| fresh);
        let page_state = PageState {
            age,
            fresh,
            awake: page.and_then(|page| page.awake),
            failure: self.failure.as_ref(),
            tried: self.page.is_some() || self.failure.is_some(),
        };
        let state = state(self.target.phase, page_state, settings.hold_unknown);
        if state != self.state {
            (self.state, self.state_since) = (state, now);
        }
        let mut load = page.map(|page| load(page, &self.readings));
        let steps = self.steps.take();
        if let Some(load) = &mut load
            && state == ReplicaState::Ready
        {
            load.steps = steps;
        }
        let error = (!fresh).then(|| self.why_not_fresh(age));
        ReplicaObservation {
            id: self.target.id.clone(),
            name: self.target.name.clone(),
            state,
            since: Some(self.since()),
            load,
            page_age: age,
            error,
            start: self.target.start.clone(),
        }
    }

    /// The source's word where it set the state, else when it was first seen so.
    fn since(&self) -> DateTime<Utc> {
        let of_the_source = matches!(
            (self.state, self.target.phase),
            (ReplicaState::Ready, Phase::Ready)
                | (ReplicaState::Starting, Phase::Starting)
                | (ReplicaState::Blocked, Phase::Blocked)
                | (ReplicaState::Terminating, Phase::Terminating)
        );
        self.target.since.filter(|_| of_the_source).unwrap_or(self.state_since)
    }

    fn why_not_fresh(&self, age: Option<Duration>) -> String {
        match (&self.failure, age) {
            (Some(failure), _) => {
                let named = failure.kind.name();
                let why = if failure.message.is_empty() { named } else { failure.message.as_str() };
                match &self.target.url {
                    Some(url) => format!("{why} ({})", without_secrets(url)),
                    None => why.to_owned(),
                }
            }
            (None, Some(age)) => format!("not read for {} s", age.as_secs()),
            (None, None) if self.target.url.is_none() => "it has no page of its own".to_owned(),
            (None, None) => NOT_READ_YET.to_owned(),
        }
    }
}

/// A URL without what may be secret in it: user, password, query.
fn without_secrets(url: &str) -> String {
    let bare = url.split(['?', '#']).next().unwrap_or(url);
    let Some((scheme, rest)) = bare.split_once("://") else { return bare.to_owned() };
    let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    format!("{scheme}://{host}{path}")
}

/// What a fresh page and the rates say.
fn load(page: &EnginePage, readings: &Readings) -> ReplicaLoad {
    let rates = readings.rates().unwrap_or_default();
    let engines = page.engines.len() as f64;
    // A sleeping or paused engine shows 0 running and 0 waiting while requests hang in it (measured on vLLM 0.32).
    let asleep = page.awake == Some(false);
    let gauge = |of: fn(&EngineSample) -> Option<f64>| if asleep { None } else { total(page, of) };
    ReplicaLoad {
        running: gauge(|engine| engine.running),
        waiting: gauge(waiting),
        waiting_deferred: gauge(|engine| engine.waiting_deferred),
        kv_usage: gauge(|engine| engine.kv_usage).map(|sum| sum / engines),
        engines: Some(engines),
        kv_tokens: page.kv_tokens_per_engine.and_then(finite).map(|tokens| tokens * engines),
        input_tokens_per_second: rates.of(Counter::Input),
        uncached_input_tokens_per_second: rates.of(Counter::Computed),
        output_tokens_per_second: rates.of(Counter::Output),
        requests_per_second: rates.of(Counter::Finished).or(rates.of(Counter::Measured)),
        rejected_per_second: rates.of(Counter::Rejected),
        preemptions_per_second: rates.of(Counter::Preemptions),
        rates_over: readings.span(),
        steps: None,
    }
}

/// The gauge summed over engines. An engine without it on a page where its sibling has it never set it: it is idle.
fn total(page: &EnginePage, of: impl Fn(&EngineSample) -> Option<f64>) -> Option<f64> {
    page.engines.iter().map(|engine| of(engine).and_then(finite)).fold(None, plus)
}

fn waiting(engine: &EngineSample) -> Option<f64> {
    engine.waiting.or_else(|| plus(engine.waiting_for_capacity, engine.waiting_deferred))
}

/// Adds what a page counts beyond the one before it to the totals.
fn count(totals: &mut CountedTotals, more: &Increase) {
    let input = more.of(Counter::Input).unwrap_or(0.0);
    totals.input_tokens += input;
    totals.uncached_input_tokens += more.of(Counter::Computed).unwrap_or(input).max(0.0);
    totals.output_tokens += more.of(Counter::Output).unwrap_or(0.0);
    totals.requests += more.of(Counter::Finished).or(more.of(Counter::Measured)).unwrap_or(0.0);
    totals.rejected += more.of(Counter::Rejected).unwrap_or(0.0);
}

/// Adds how long requests queued to the totals, engine by engine, as far as the pages tell.
fn count_queue_times(
    totals: &mut CountedTotals,
    follows: Continuity,
    before: &EnginePage,
    page: &EnginePage,
    absent_was_zero: bool,
    acceptable: Duration,
    most: f64,
) {
    let restarted = follows == Continuity::Restarted;
    for engine in &page.engines {
        let Some(now) = &engine.queue_time else { continue };
        let was = find(before, &engine.engine).and_then(|was| was.queue_time.as_ref()).filter(|_| !restarted);
        if was.is_none() && !restarted && !absent_was_zero {
            continue;
        }
        let grown = grown_above(was, now, acceptable.as_secs_f64());
        if let Some((requests, late)) = grown.filter(|(requests, _)| *requests <= most) {
            let sums = totals.queue_times.get_or_insert_default();
            sums.requests += requests;
            sums.late += late;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::without_secrets;

    #[test]
    fn a_url_is_told_without_what_may_be_secret_in_it() {
        for (url, told) in [
            ("http://10.0.0.1:8000/metrics", "http://10.0.0.1:8000/metrics"),
            ("https://me:secret@host:1/m?token=x#y", "https://host:1/m"),
            ("http://[fd00::1]:8000", "http://[fd00::1]:8000"),
        ] {
            assert_eq!(without_secrets(url), told);
        }
    }
}
