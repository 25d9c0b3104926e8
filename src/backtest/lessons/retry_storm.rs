//! Ten seconds of outage, and everybody tries again.

use std::time::Duration;

use super::stage::{By, Look, Part, Played, Stage, play_all};
use super::{Claim, Course, Panel, Picture, Run, Told, fixed, monday};
use crate::backtest::requests::{Backoff, Clients, Minute, RequestSettings};
use crate::simulate::cluster::QueueLimit;
use crate::simulate::{EngineSettings, Moment};

const SPAN: Duration = Duration::from_mins(20);
const SHORT: Duration = Duration::from_mins(12);
const COLD_START: Duration = Duration::from_mins(3);
/// Replicas' worth of load.
const LOAD: f64 = 4.0;
/// Of what they carry: what ours keeps for such a load.
const INITIAL: u32 = 5;
const MAX: u32 = 20;
/// The outage, seconds.
const OUTAGE: (f64, f64) = (300.0, 310.0);
/// Waiting requests of an engine, and what a refusal takes of its time.
const LIMIT: QueueLimit = QueueLimit { most: 20, refusal: Duration::from_millis(20) };
/// How long a client goes on trying.
const PATIENCE: Duration = Duration::from_mins(2);
const INTERVAL: Duration = Duration::from_secs(1);
const JITTER: Backoff = Backoff::FullJitter { first: INTERVAL, most: Duration::from_secs(32) };
/// Between two looks.
const LOOK: Duration = Duration::from_secs(1);
/// Looks of a point of the picture.
const POINT: usize = 5;

pub(super) fn play(course: Course) -> Told {
    let begins = monday(10 * 60);
    let span = course.extent.of(SPAN, SHORT);
    let stage = Stage::new(EngineSettings::rtx4090_8b(), (1155.0, 211.0), begins, course.seed);
    let load = stage.load(span, |_| LOAD);
    let outage = (Moment::from_seconds(OUTAGE.0), Moment::from_seconds(OUTAGE.1));
    let fleet = |backoff: Backoff| RequestSettings {
        queue_limit: Some(LIMIT),
        clients: Some(Clients { backoff, patience: PATIENCE }),
        outage: Some(outage),
        ..stage.fleet(COLD_START, INITIAL, span)
    };
    let mut parts = Vec::new();
    for (how, backoff) in [("every second", Backoff::Fixed(INTERVAL)), ("full jitter", JITTER)] {
        let by = By::Ours(Box::new(stage.policy(1, MAX, COLD_START)));
        parts.push(Part::new(format!("{how}; ours"), fleet(backoff), &load, by));
        if let Some(rival) = stage.rival("hpa-80", MAX) {
            let by = By::Rule(rival, 1, MAX);
            parts.push(Part::new(format!("{how}; HPA on arriving work"), fleet(backoff), &load, by));
        }
        parts.push(Part::new(format!("{how}; five replicas"), fleet(backoff), &load, By::Plan(Vec::new())));
    }
    let parts = parts.into_iter().map(|part| Part { look: LOOK, ..part }).collect();
    let played = play_all(parts, course.threads);
    let see = see(&played);
    let per_replica = stage.capacity.requests_per_second;
    let panels = played.iter().map(|played| panel(played, per_replica)).collect();
    let picture = Picture::Time {
        load: "tries, in replicas' worth",
        late: "share of the tries that was refused",
        panels,
    };
    Told {
        lesson: "retry-storm",
        setting: "RTX 4090s under a steady four replicas' worth. From 10:05:00 to 10:05:10 nothing gets through, and what runs is cut off. Whoever is refused or cut off tries again for two minutes: every second, or after a random time between 0 and a bound that doubles from 1 s to 32 s (full jitter). An engine takes 20 waiting requests and refuses the next one, which costs it 20 ms.".to_owned(),
        begins,
        seed: course.seed,
        columns: vec!["tries each", "refused", "given up", "refusals end after s", "most ordered", "least ordered", "GPU-hours"],
        runs: played.into_iter().map(run).collect(),
        see,
        left_out: "The 20 ms of a refusal are assumed, not measured: parsing and making tokens of a prompt in the process that also hands out everybody's tokens. Nobody gives up before two minutes, and nobody asks by hand.",
        picture,
    }
}

/// Tries and refusals of a few looks each, beside the fleet.
fn panel(played: &Played, per_replica: f64) -> Panel {
    let seconds = LOOK.as_secs_f64() * POINT as f64;
    let point = |looks: &[Look]| {
        let (Some(first), Some(last)) = (looks.first(), looks.last()) else { return Minute::default() };
        let tries = (last.tries - first.tries) as f64;
        let refused = (last.turned_away - first.turned_away) as f64;
        Minute {
            demand: tries / seconds / per_replica,
            ready: f64::from(last.ready),
            paid: f64::from(last.paid),
            waiting: last.waiting as f64,
            late: if tries > 0.0 { refused / tries } else { 0.0 },
        }
    };
    // The last look of a point is the first of the next one.
    let points = (0..played.looks.len().saturating_sub(1) / POINT)
        .map(|at| point(&played.looks[at * POINT..=(at + 1) * POINT]))
        .collect();
    Panel { title: played.name.clone(), point_seconds: seconds, points }
}

/// Tries for each request that arrived.
fn tries(played: &Played) -> f64 {
    played.looks.last().map_or(0, |look| look.tries) as f64 / (played.score.requests as f64).max(1.0)
}

fn refused(played: &Played) -> u64 {
    played.looks.last().map_or(0, |look| look.turned_away)
}

/// From the end of the outage to the last refusal, seconds.
fn storm(played: &Played) -> f64 {
    let last = played.looks.windows(2).rev().find(|pair| pair[1].turned_away > pair[0].turned_away);
    last.map_or(0.0, |pair| (pair[1].at.seconds() - OUTAGE.1).max(0.0))
}

/// The least that was ordered from the outage on to a cold start after it.
fn least_ordered(played: &Played) -> u32 {
    let until = OUTAGE.1 + COLD_START.as_secs_f64();
    let around = |look: &&Look| (OUTAGE.0..until).contains(&look.at.seconds());
    played.looks.iter().filter(around).map(|look| look.spec).min().unwrap_or(0)
}

fn run(played: Played) -> Run {
    let score = &played.score;
    let cells = vec![
        fixed(tries(&played), 2),
        refused(&played).to_string(),
        score.refused.to_string(),
        fixed(storm(&played), 0),
        played.most_ordered().to_string(),
        least_ordered(&played).to_string(),
        fixed(score.gpu_hours, 2),
    ];
    Run { name: played.name, cells, score: played.score }
}

fn see(played: &[Played]) -> [Claim; 2] {
    let [fixed_ours, fixed_hpa, fixed_none, jitter_ours, jitter_hpa, jitter_none] = played else {
        return ["", ""].map(|none| Claim { sentence: none.to_owned(), holds: false });
    };
    [
        Claim {
            sentence: format!(
                "Ten seconds of outage last {:.0} s where everybody tries again every second, because refusing {} tries takes the time that serving needs; with full jitter the same five replicas refuse {} and the last of it {:.0} s after the outage.",
                storm(fixed_none),
                refused(fixed_none),
                refused(jitter_none),
                storm(jitter_none),
            ),
            holds: storm(fixed_none) > 2.0 * storm(jitter_none)
                && refused(fixed_none) > 3 * refused(jitter_none),
        },
        Claim {
            sentence: format!(
                "Ours neither drops below {} in the outage nor buys for tries: at most {} replicas with full jitter and {} without, where an HPA on the arriving work, which counts every try, orders {} and {} for a load of four.",
                least_ordered(fixed_ours).min(least_ordered(jitter_ours)),
                jitter_ours.most_ordered(),
                fixed_ours.most_ordered(),
                jitter_hpa.most_ordered(),
                fixed_hpa.most_ordered(),
            ),
            holds: least_ordered(fixed_ours) >= INITIAL
                && least_ordered(jitter_ours) >= INITIAL
                && jitter_ours.most_ordered() < jitter_hpa.most_ordered()
                && fixed_ours.most_ordered() < fixed_hpa.most_ordered(),
        },
    ]
}
