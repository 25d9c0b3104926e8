//! What scaling LLM replicas teaches, as scenarios that are ready: each is a load, a fleet and a few policies side by
//! side, request by request, with the server's own decision. Pure, seeded: the same seed gives the same bytes.
//!
//! ```text
//! stage     a load, a fleet and who sizes it -> a run; many runs over threads
//! weekday   six signals against one day          doubling     a load that doubles faster than a start
//! tiers     one fleet average for two pools      routing      shared prompts, and who gets which request
//! office    zero overnight, Monday at nine       retry_storm  an outage, and everybody tries again
//! drain     long answers and replicas that go
//! days_before  what the scaler knows that has served such days before
//! signal    rules that the lessons need and no rival has
//! picture   what is drawn                        text         a lesson in a terminal
//! ```
//!
//! A lesson ends in two sentences of what to see. Each carries numbers of its own run and the condition under which it is
//! true of it; where another seed breaks the condition, that is said instead of the sentence.
//! [`report::lesson`](super::report) makes the page and its drawing.

use chrono::{DateTime, TimeDelta, Utc};
use serde::Serialize;

use super::requests::RequestScore;

mod days_before;
mod doubling;
mod drain;
mod office;
mod picture;
mod retry_storm;
mod routing;
mod signal;
mod stage;
mod text;
mod tiers;
mod weekday;

pub use picture::{Bars, Panel, Picture};
pub use text::list;

#[cfg(test)]
mod tests;

/// A lesson.
#[derive(Clone, Copy, Debug)]
pub struct Lesson {
    /// Short and stable: the command names it by this.
    pub name: &'static str,
    /// What it is about, in a sentence.
    pub about: &'static str,
    play: fn(Course) -> Told,
}

/// How a lesson is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Course {
    /// Chooses the requests and the phases.
    pub seed: u64,
    /// Runs are spread over so many threads, at least one; the result doesn't depend on it.
    pub threads: usize,
    /// How much of it is played.
    pub extent: Extent,
}

/// How much of a lesson is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// All of it: what the command plays.
    Whole,
    /// Shorter or with fewer replicas, with the same to see: for tests.
    Short,
}

impl Extent {
    /// One or the other.
    fn of<T>(self, whole: T, short: T) -> T {
        match self {
            Self::Whole => whole,
            Self::Short => short,
        }
    }
}

/// All of them, in the order in which they are best read.
pub static ALL: [Lesson; 7] = [
    Lesson {
        name: "weekday",
        about: "Six signals drive the same fleet through the same day: CPU, GPU utilisation, waiting, KV cache, p95 latency, and ours.",
        play: weekday::play,
    },
    Lesson {
        name: "doubling",
        about: "A load doubles in two minutes and a start takes three: what is ready before it is all that helps.",
        play: doubling::play,
    },
    Lesson {
        name: "tiers",
        about: "A10Gs at 90 % and H100s at 30 %: one average over both, or a number for each.",
        play: tiers::play,
    },
    Lesson {
        name: "routing",
        about: "Eight shared prompts, room for three of them in a replica: who gets which request matters more than how many replicas there are.",
        play: routing::play,
    },
    Lesson {
        name: "retry-storm",
        about: "An outage of ten seconds, and everybody tries again: at a fixed interval or with full jitter, and who buys GPUs for it.",
        play: retry_storm::play,
    },
    Lesson {
        name: "office",
        about: "Zero replicas overnight, and everybody comes on Monday at nine.",
        play: office::play,
    },
    Lesson {
        name: "drain",
        about: "Answers take a minute, and the fleet shrinks: replicas are killed, may finish, or are left by the router first.",
        play: drain::play,
    },
];

impl Lesson {
    /// The lesson of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        ALL.iter().find(|lesson| lesson.name == name)
    }

    /// Plays it.
    #[must_use]
    pub fn play(&self, course: Course) -> Told {
        (self.play)(course)
    }
}

/// A lesson that was played.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Told {
    /// Which one.
    pub lesson: &'static str,
    /// What was played, in a few sentences.
    pub setting: String,
    /// The wall-clock time of its beginning.
    pub begins: DateTime<Utc>,
    /// Of its requests and phases.
    pub seed: u64,
    /// Titles of the columns, that of the runs' names left out.
    pub columns: Vec<&'static str>,
    /// Row by row.
    pub runs: Vec<Run>,
    /// What to see.
    pub see: [Claim; 2],
    /// What the play leaves out.
    pub left_out: &'static str,
    /// What is drawn.
    #[serde(skip)]
    pub picture: Picture,
}

/// A row of a lesson.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    /// Whose.
    pub name: String,
    /// Under each column.
    pub cells: Vec<String>,
    /// All that it came to.
    pub score: RequestScore,
}

/// A sentence about the runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Claim {
    /// With their numbers.
    pub sentence: String,
    /// Is it true of them?
    pub holds: bool,
}

impl Claim {
    /// The sentence, or that it isn't so.
    #[must_use]
    pub fn told(&self) -> String {
        if self.holds { self.sentence.clone() } else { format!("Not so with this seed: {}", self.sentence) }
    }
}

/// The Monday on which lessons are played, 2024-01-01, so many minutes after its midnight UTC.
fn monday(minutes: i64) -> DateTime<Utc> {
    DateTime::UNIX_EPOCH + TimeDelta::days(19_723) + TimeDelta::minutes(minutes)
}

/// With so many decimals, for a cell or a sentence.
fn fixed(value: f64, decimals: usize) -> String {
    format!("{value:.decimals$}")
}

/// A share in per cent, with two digits of it where there are.
fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent >= 10.0 || percent == 0.0 { format!("{percent:.0} %") } else { format!("{percent:.1} %") }
}
