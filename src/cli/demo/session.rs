//! The demo while it runs: the simulated fleet, the server, KEDA's stand-in, and the switches.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use chrono::{DateTime, NaiveDate, NaiveTime, Utc};

use super::file;
use super::keys::Switch;
use super::options::{COLD_START_SPREAD, DemoFloor, Options, TierOptions};
use super::picture::{Picture, ScalerSays};
use super::scaler::Scaler;
use crate::cli::print::aside;
use crate::clock::Clock;
use crate::simulate::autoscaler::{AutoscalerSettings, Tolerances};
use crate::simulate::serve::Fleet;
use crate::simulate::standin::{Standin, StandinSettings};
use crate::simulate::traffic::{TokenCount, Traffic, TrafficSettings};
use crate::simulate::world::{Adjustment, Outcome, World, WorldSettings};
use crate::simulate::{ClusterSettings, Moment, rival};

/// How long a deleted pod may finish its requests.
const DRAIN: Duration = Duration::from_secs(120);
/// The two cold starts that a key switches between.
const SHORT_COLD_START: Duration = Duration::from_secs(60);
const LONG_COLD_START: Duration = Duration::from_secs(180);
/// The floor that a key brings where none was given.
const KEY_FLOOR: DemoFloor = DemoFloor { replicas: 10, window: None };
/// A key changes the load by so much.
const LOAD_STEP: f64 = 1.25;
/// Less than this is nothing at all: a tier that may sleep then does.
const LOAD_LEAST: f64 = 0.1;
/// More would need more replicas than any default maximum.
const LOAD_MOST: f64 = 4.0;

/// What a session is started with.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    world: WorldSettings,
    tier: TierOptions,
    speed: f64,
    run_for: Duration,
}

impl From<&Options> for Settings {
    fn from(options: &Options) -> Self {
        let traffic = TrafficSettings {
            seed: options.seed,
            starts_at: options.starts_at,
            peak_per_second: options.peak_per_second,
            input: TokenCount::CONVERSATION_INPUT,
            output: TokenCount::CONVERSATION_OUTPUT,
        };
        // Begins with what the load of that hour needs, as if the night had been well run.
        let load = Traffic::new(traffic).rate(Moment::START) / options.replica_per_second;
        let tier = options.tier.clone();
        let promised = floor_at(tier.floor, options.starts_at);
        let ready = (load.ceil() as u32).max(promised).clamp(tier.min, tier.max);
        let cluster = ClusterSettings {
            model: file::MODEL.to_owned(),
            cold_start_spread: COLD_START_SPREAD,
            drain: DRAIN,
            seed: options.seed,
            ..ClusterSettings::plain(options.engine, tier.cold_start)
        };
        let world = WorldSettings { base: wednesday(options.starts_at), cluster, traffic, ready };
        Self { world, tier, speed: options.speed, run_for: options.run_for }
    }
}

/// The demo's day, the same in every run so that runs can be compared: a Wednesday, in UTC.
fn wednesday(starts_at: Duration) -> DateTime<Utc> {
    let day = NaiveDate::from_ymd_opt(2026, 3, 4).unwrap_or_default().and_time(NaiveTime::MIN).and_utc();
    crate::units::later(day, starts_at)
}

/// What a floor promises at a time of day.
fn floor_at(floor: Option<DemoFloor>, time_of_day: Duration) -> u32 {
    let Some(DemoFloor { replicas, window }) = floor else { return 0 };
    let Some((from, to)) = window else { return replicas };
    let now = NaiveTime::MIN + chrono::TimeDelta::seconds(time_of_day.as_secs().cast_signed());
    let open = if from < to { from <= now && now < to } else { now >= from || now < to };
    if open { replicas } else { 0 }
}

/// The load after a key: by steps, and down to nothing.
fn next_load(factor: f64, up: bool) -> f64 {
    match up {
        true if factor < LOAD_LEAST => LOAD_LEAST,
        true => (factor * LOAD_STEP).min(LOAD_MOST),
        false if factor / LOAD_STEP < LOAD_LEAST => 0.0,
        false => factor / LOAD_STEP,
    }
}

/// A demo that runs.
#[derive(Debug)]
pub(super) struct Session {
    settings: Settings,
    clock: Clock,
    fleet: Fleet,
    scaler: Scaler,
    standin: Standin,
    options: TierOptions,
    slowest_pace: f64,
}

/// What is left of a session.
#[derive(Clone, Debug)]
pub(super) struct End {
    pub(super) outcome: Outcome,
    pub(super) slowest_pace: f64,
    world: WorldSettings,
    adjustments: Vec<(Moment, Adjustment)>,
    max: u32,
    until: Moment,
}

impl End {
    /// The same arrivals under a plain KV target. Takes seconds of computing for a day.
    pub(super) fn rival(&self) -> Outcome {
        rival::plain_kv_target(self.world.clone(), &self.adjustments, self.max, self.until)
    }
}

impl Session {
    /// Starts everything: the fleet, then the server that reads it, then KEDA.
    pub(super) async fn start(settings: Settings) -> anyhow::Result<Self> {
        let clock = Clock::starting_at(settings.world.base, settings.speed);
        let fleet = Fleet::start(World::new(settings.world.clone()), clock)
            .await
            .context("the simulated replicas get no sockets")?;
        let options = settings.tier.clone();
        let scaler = Scaler::start(&options, fleet.router_url(), clock, fleet.discovered()).await?;
        let tolerances = Tolerances { up: options.hpa_tolerance, down: options.hpa_tolerance };
        let autoscaler =
            AutoscalerSettings { tolerances, ..AutoscalerSettings::recommended(options.min, options.max) };
        let standin = Standin::start(
            StandinSettings {
                scaler: format!("http://{}", scaler.grpc()),
                scaled_object: file::tier(),
                metadata: HashMap::from([
                    ("scalerAddress".to_owned(), scaler.grpc().to_string()),
                    ("tier".to_owned(), file::tier().name),
                ]),
                autoscaler,
                clock,
            },
            Arc::new(fleet.clone()),
        )?;
        let slowest_pace = settings.speed;
        Ok(Self { settings, clock, fleet, scaler, standin, options, slowest_pace })
    }

    pub(super) fn page_url(&self) -> String {
        let tier = file::tier();
        format!("http://{}/tiers/{}/{}", self.scaler.http(), tier.namespace, tier.name)
    }

    pub(super) fn grpc_address(&self) -> String {
        self.scaler.grpc().to_string()
    }

    pub(super) fn clock(&self) -> Clock {
        self.clock
    }

    /// How much of the wished run is left, clock time.
    pub(super) fn left(&self) -> Duration {
        let end = crate::units::later(self.settings.world.base, self.settings.run_for);
        crate::units::since(end, self.clock.now())
    }

    /// What there is to show.
    pub(super) fn picture(&mut self) -> Picture {
        let pace = self.fleet.pace();
        self.slowest_pace = self.slowest_pace.min(pace);
        let (world, load_factor) = self.fleet.with_world(|world| (world.status(), world.traffic().factor()));
        let scaler = self.scaler.tier();
        Picture {
            at: world.now.wall(self.settings.world.base),
            pace,
            speed: self.settings.speed,
            world,
            load_factor,
            options: self.options.clone(),
            scaler: scaler.map_or_else(ScalerSays::nothing_yet, |tier| ScalerSays::of(&tier.decision)),
            keda: self.standin.status().borrow().clone(),
            page_url: self.page_url(),
        }
    }

    /// Turns a switch: the world, the server's configuration and the ScaledObject change together.
    pub(super) async fn switch(&mut self, switch: Switch) -> anyhow::Result<()> {
        let options = &mut self.options;
        match switch {
            Switch::ColdStart => {
                let short = options.cold_start <= SHORT_COLD_START;
                options.cold_start = if short { LONG_COLD_START } else { SHORT_COLD_START };
                let adjustment = Adjustment::ColdStart(options.cold_start);
                self.fleet.with_world(|world| world.adjust(adjustment));
            }
            Switch::Floor if options.floor.is_some() => options.floor = None,
            Switch::Floor => {
                let most = options.max;
                let floor = self.settings.tier.floor.unwrap_or(KEY_FLOOR);
                options.floor = Some(DemoFloor { replicas: floor.replicas.min(most), ..floor });
            }
            Switch::Signal => options.signal = options.signal.next(),
            Switch::Min => {
                options.min = if options.min == 0 { self.settings.tier.min.max(1) } else { 0 };
                self.standin.set_min(options.min);
            }
            Switch::Load { up } => {
                self.fleet.with_world(|world| {
                    let factor = next_load(world.traffic().factor(), up);
                    world.adjust(Adjustment::Load(factor));
                });
                return Ok(());
            }
        }
        self.scaler.reload(&self.options).await
    }

    /// Ends KEDA, then the server, then the fleet.
    pub(super) async fn stop(self) -> End {
        self.standin.stop().await;
        if let Err(error) = self.scaler.stop().await {
            aside(format_args!("the server did not stop cleanly: {error:#}"));
        }
        let world = self.fleet.stop().await;
        End {
            outcome: world.outcome(),
            slowest_pace: self.slowest_pace,
            world: self.settings.world,
            adjustments: world.adjustments().to_vec(),
            max: self.settings.tier.max,
            until: world.now(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::options::tests::options;
    use super::*;

    #[test]
    fn a_session_begins_with_what_the_hour_needs() {
        let settings = Settings::from(&options("").unwrap());
        assert_eq!(settings.world.ready, 3);
        assert_eq!(settings.world.base.to_rfc3339(), "2026-03-04T08:40:00+00:00");
        assert_eq!(Settings::from(&options("--start 09:30").unwrap()).world.ready, 11);
        assert_eq!(Settings::from(&options("--floor 5").unwrap()).world.ready, 5);
    }

    #[test]
    fn the_load_goes_down_to_nothing_and_up_again() {
        let mut factor = 1.0;
        for _ in 0..20 {
            factor = next_load(factor, false);
        }
        assert!(factor.abs() < 1e-9, "{factor}");
        for _ in 0..30 {
            factor = next_load(factor, true);
        }
        assert!((factor - LOAD_MOST).abs() < 1e-9, "{factor}");
    }

    #[test]
    fn a_floor_over_midnight_is_open_on_both_sides() {
        let floor = options("--floor 22:00..06:00=2").unwrap().tier.floor;
        let at = |hours: u64| floor_at(floor, Duration::from_secs(hours * 3600));
        assert_eq!((at(23), at(3), at(6), at(12), at(22)), (2, 2, 0, 0, 2));
    }
}
