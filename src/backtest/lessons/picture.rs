//! What is drawn of a lesson. Pure data; [`crate::backtest::report`] draws it.

use super::stage::Played;
use crate::backtest::requests::Minute;

/// A lesson's picture.
#[derive(Clone, Debug, PartialEq)]
pub enum Picture {
    /// Runs over time, all on the same axes.
    Time {
        /// What the line of the load is.
        load: &'static str,
        /// What is marked red.
        late: &'static str,
        /// Run by run.
        panels: Vec<Panel>,
    },
    /// Numbers of all runs, a group a kind of number.
    Bars(Vec<Bars>),
}

/// One run over time.
#[derive(Clone, Debug, PartialEq)]
pub struct Panel {
    /// Above it.
    pub title: String,
    /// Length of a point, seconds.
    pub point_seconds: f64,
    /// The fleet, point by point.
    pub points: Vec<Minute>,
}

/// A group of bars.
#[derive(Clone, Debug, PartialEq)]
pub struct Bars {
    /// Above it.
    pub title: &'static str,
    /// Whose, how long, and what is written beside it.
    pub bars: Vec<(String, f64, String)>,
}

impl Picture {
    /// The minutes of each run.
    pub(super) fn minutes(played: &[Played]) -> Self {
        let panels = played.iter().map(|played| Panel {
            title: played.name.clone(),
            point_seconds: 60.0,
            points: played.score.minutes.clone(),
        });
        Self::Time {
            load: "load, in replicas",
            late: "minutes in which work was late",
            panels: panels.collect(),
        }
    }

    /// A number of each run.
    pub(super) fn bars(
        title: &'static str,
        played: &[Played],
        value: impl Fn(&Played) -> f64,
        told: impl Fn(f64) -> String,
    ) -> Bars {
        let bar = |played: &Played| {
            let value = value(played);
            (played.name.clone(), value, told(value))
        };
        Bars { title, bars: played.iter().map(bar).collect() }
    }
}
