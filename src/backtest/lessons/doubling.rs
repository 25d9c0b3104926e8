//! A load that doubles faster than a start.

use std::time::Duration;

use super::days_before;
use super::stage::{By, Part, Played, Stage, play_all};
use super::{Claim, Course, Picture, Run, Told, fixed, monday, percent};
use crate::decision::Policy;
use crate::decision::policy::{QueueAllowance, Ramp};
use crate::simulate::EngineSettings;

const SPAN: Duration = Duration::from_mins(30);
const COLD_START: Duration = Duration::from_mins(3);
/// Replicas' worth of load before the ramp.
const BEFORE: f64 = 4.0;
/// When it begins, seconds.
const RAMP_BEGINS: f64 = 600.0;
/// How long it takes, seconds.
const RAMP_TAKES: f64 = 120.0;
const MAX: u32 = 20;
/// When it goes back on the days before, seconds after ten o'clock.
const ENDS: f64 = 7200.0;
/// Such days that the last row has served before, and of a short lesson.
const DAYS_BEFORE: (u32, u32) = (2, 1);
/// What may queue, seconds: the policy's default, and what late is.
const ALLOWANCE: f64 = 5.0;
/// Of batch work that can wait.
const LONG_ALLOWANCE: f64 = 90.0;

fn replicas(seconds: f64) -> f64 {
    BEFORE * 2_f64.powf(((seconds - RAMP_BEGINS) / RAMP_TAKES).clamp(0.0, 1.0))
}

/// The same on the days before, by seconds since ten o'clock of the first.
fn replicas_before(seconds: f64) -> f64 {
    let since_ten = seconds % 86_400.0;
    if since_ten < ENDS { replicas(since_ten) } else { BEFORE }
}

pub(super) fn play(course: Course) -> Told {
    let begins = monday(10 * 60);
    let stage = Stage::new(EngineSettings::rtx4090_8b(), (1155.0, 211.0), begins, course.seed);
    let load = stage.load(SPAN, replicas);
    let fleet = |initial| stage.fleet(COLD_START, initial, SPAN);
    let plain = stage.policy(1, MAX, COLD_START);
    let pool = |allowance: f64| {
        let mut policy = plain.clone();
        policy.max_ramp = Some(Ramp { factor: 2.0, within: Duration::from_secs_f64(RAMP_TAKES) });
        policy.acceptable_queue = QueueAllowance::Seconds(allowance);
        policy
    };
    let ours = |policy: Policy| By::Ours(Box::new(policy));
    let mut parts = vec![
        Part::new("ours, no warm pool", fleet(5), &load, ours(plain.clone())),
        Part::new("ours, warm pool for a queue of 5 s", fleet(12), &load, ours(pool(ALLOWANCE))),
        Part::new("ours, warm pool for a queue of 90 s", fleet(10), &load, ours(pool(LONG_ALLOWANCE))),
    ];
    for (name, told) in [("keda-waiting", "KEDA on waiting requests"), ("hpa-gpu", "HPA on GPU utilisation")]
    {
        if let Some(rival) = stage.rival(name, MAX) {
            parts.push(Part::new(told, fleet(5), &load, By::Rule(rival, 1, MAX)));
        }
    }
    let (full, short) = DAYS_BEFORE;
    let memory = days_before::after(&stage, &plain, course.extent.of(full, short), replicas_before);
    let experienced = By::Experienced(Box::new(plain.clone()), Box::new(memory));
    parts.push(Part::new("ours, who knows such days", fleet(5), &load, experienced));
    parts.push(Part::new("twice as many, always", fleet(10), &load, By::Plan(Vec::new())));
    let played = play_all(parts, course.threads);
    let (see, picture) = (see(&played), Picture::minutes(&played));
    Told {
        lesson: "doubling",
        setting: "Half an hour on RTX 4090s. Four replicas' worth of load double within two minutes at 10:10 and stay; a start takes three minutes; late is a queue of more than 5 s.".to_owned(),
        begins,
        seed: course.seed,
        columns: vec!["ready at 10:10", "GPU-hours", "late work", "late min", "p99 queue s", "most waiting"],
        runs: played.into_iter().map(run).collect(),
        see,
        picture,
        left_out: "Every start succeeds and takes the same time. The ramp stops at the double: one that goes on doubling needs all of the warm pool.",
    }
}

fn ready_before(played: &Played) -> f64 {
    played.score.minutes.get(9).map_or(0.0, |minute| minute.ready)
}

fn run(played: Played) -> Run {
    let score = &played.score;
    let cells = vec![
        fixed(ready_before(&played), 1),
        fixed(score.gpu_hours, 2),
        percent(score.late_work),
        score.late_minutes.to_string(),
        fixed(score.queue_seconds.p99, 1),
        played.most_waiting().to_string(),
    ];
    Run { name: played.name, cells, score: played.score }
}

fn see(played: &[Played]) -> [Claim; 2] {
    let [without, with, long, waiting, _, experienced, _] = played else {
        return ["", ""].map(|none| Claim { sentence: none.to_owned(), holds: false });
    };
    let p99 = |played: &Played| played.score.queue_seconds.p99;
    let hours = |played: &Played| played.score.gpu_hours;
    [
        Claim {
            sentence: format!(
                "Without a warm pool the order goes out while the load rises and is there three minutes later: {} of the work is late and the slowest hundredth queues {:.0} s; KEDA on waiting requests, which knows a queue or none and gives back what it has while there is none, has {} and {:.0} s.",
                percent(without.score.late_work),
                p99(without),
                percent(waiting.score.late_work),
                p99(waiting),
            ),
            holds: without.score.late_work > 0.02
                && p99(without) > 2.0 * ALLOWANCE
                && waiting.score.late_work > 0.1
                && p99(waiting) > 3.0 * p99(without),
        },
        Claim {
            sentence: format!(
                "Told `maxRamp: \"2x in 2m\"`, the scaler keeps {:.0} replicas ready where {:.0} carry the load, because within one lead it could grow threefold, and the slowest hundredth queues {:.1} s of the 5 s that are allowed; where 90 s are allowed {:.0} replicas are enough, {:.1} GPU-hours fewer in this half hour, and it queues {:.1} s; told nothing, one that has served such days before has {} of the work late for {:.1} GPU-hours.",
                ready_before(with),
                ready_before(without),
                p99(with),
                ready_before(long),
                hours(with) - hours(long),
                p99(long),
                percent(experienced.score.late_work),
                hours(experienced),
            ),
            holds: p99(with) <= ALLOWANCE
                && with.score.late_minutes == 0
                && p99(long) <= LONG_ALLOWANCE
                && ready_before(without) + 1.0 < ready_before(long)
                && ready_before(long) < ready_before(with)
                && hours(long) < hours(with)
                && 2.0 * experienced.score.late_work < without.score.late_work,
        },
    ]
}
