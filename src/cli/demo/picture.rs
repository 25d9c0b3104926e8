//! Everything that the demo shows at one instant, whoever shows it.

use std::collections::VecDeque;

use chrono::{DateTime, Utc};

use super::options::TierOptions;
use crate::decision::{Answer, Decision};
use crate::simulate::standin::StandinStatus;
use crate::simulate::world::WorldStatus;

/// Points of the plot: a minute each, so that two hours are on the screen.
const MOST_SAMPLES: usize = 120;

/// What is shown.
#[derive(Clone, Debug)]
pub(super) struct Picture {
    pub(super) at: DateTime<Utc>,
    /// Simulated seconds per real second, lately, and as wished.
    pub(super) pace: f64,
    pub(super) speed: f64,
    pub(super) world: WorldStatus,
    pub(super) load_factor: f64,
    pub(super) options: TierOptions,
    pub(super) scaler: ScalerSays,
    pub(super) keda: StandinStatus,
    pub(super) page_url: String,
}

/// The decision in the words of the view.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ScalerSays {
    pub(super) required: Option<u32>,
    pub(super) demand: Option<f64>,
    /// What set the number, or why there is none.
    pub(super) because: String,
    /// What kept it up.
    pub(super) held: Option<String>,
    /// Each signal's ask.
    pub(super) asks: Vec<(&'static str, Option<f64>)>,
}

impl ScalerSays {
    pub(super) fn nothing_yet() -> Self {
        Self { because: "no decision yet".to_owned(), ..Self::default() }
    }

    pub(super) fn of(decision: &Decision) -> Self {
        let because = match &decision.answer {
            Answer::Required(_) => format!("{}: {}", decision.winner.kind.name(), decision.winner.because),
            Answer::Unknown { why } => format!("unknown: {why}"),
        };
        Self {
            required: decision.required(),
            demand: decision.demand,
            because,
            // What holds the number may also be what set it: said once.
            held: decision
                .held
                .as_ref()
                .filter(|held| **held != decision.winner)
                .map(|held| format!("{}: {}", held.kind.name(), held.because)),
            asks: decision
                .asks
                .iter()
                .filter(|ask| ask.weight > 0.0)
                .map(|ask| (ask.signal.name(), ask.replicas))
                .collect(),
        }
    }
}

impl Picture {
    /// The machine can't keep the speed.
    pub(super) fn falls_behind(&self) -> bool {
        self.pace < self.speed * 0.9
    }

    /// Time of day.
    pub(super) fn time(&self) -> String {
        self.at.format("%H:%M:%S").to_string()
    }
}

/// One point of the plot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample {
    pub(super) at: DateTime<Utc>,
    pub(super) demand: f64,
    pub(super) required: f64,
    pub(super) ready: f64,
    pub(super) queueing: f64,
}

/// The last two hours.
#[derive(Clone, Debug, Default)]
pub(super) struct Samples(VecDeque<Sample>);

impl Samples {
    /// Takes a point a minute.
    pub(super) fn note(&mut self, picture: &Picture) {
        let minute = |at: DateTime<Utc>| at.timestamp() / 60;
        if self.0.back().is_some_and(|last| minute(last.at) == minute(picture.at)) {
            return;
        }
        if self.0.len() == MOST_SAMPLES {
            self.0.pop_front();
        }
        self.0.push_back(Sample {
            at: picture.at,
            demand: picture.scaler.demand.unwrap_or(0.0),
            required: f64::from(picture.scaler.required.unwrap_or(0)),
            ready: f64::from(picture.world.supply.ready),
            queueing: picture.world.queueing as f64,
        });
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Sample> {
        self.0.iter()
    }
}
