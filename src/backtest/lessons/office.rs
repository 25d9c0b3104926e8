//! Zero overnight, and Monday at nine.

use std::time::Duration;

use super::stage::{By, Part, Played, Stage, office_hours, play_all};
use super::{Claim, Course, Picture, Run, Told, fixed, monday, percent};
use crate::decision::Policy;
use crate::simulate::EngineSettings;

/// From Sunday evening at nine to Monday noon.
const SPAN: Duration = Duration::from_hours(15);
/// Of a short one: from seven to half past nine.
const SHORT: Duration = Duration::from_mins(150);
const COLD_START: Duration = Duration::from_mins(5);
/// When it begins, minutes from midnight between the two days; a short one begins at seven.
const BEGINS: i64 = -3 * 60;
/// See [`BEGINS`].
const SHORT_BEGINS: i64 = 7 * 60;
/// Monday at nine, minutes.
const NINE: i64 = 9 * 60;
/// Within how many seconds everybody is there.
const RAMP: f64 = 300.0;
/// Replicas' worth of load from then on.
const DAY: f64 = 4.0;
const MAX: u32 = 12;
/// Promised from nine on: the day at the usual target.
const FLOOR: u32 = 5;

pub(super) fn play(course: Course) -> Told {
    let minutes = course.extent.of(BEGINS, SHORT_BEGINS);
    let begins = monday(minutes);
    let nine = (NINE - minutes) as f64 * 60.0;
    let replicas = |seconds: f64| DAY * ((seconds - nine) / RAMP).clamp(0.0, 1.0);
    let stage = Stage::new(EngineSettings::rtx4090_8b(), (1155.0, 211.0), begins, course.seed);
    let span = course.extent.of(SPAN, SHORT);
    let load = stage.load(span, replicas);
    let part = |name: &str, initial, policy: Policy| {
        Part::new(name, stage.fleet(COLD_START, initial, span), &load, By::Ours(Box::new(policy)))
    };
    let mut floored = stage.policy(0, MAX, COLD_START);
    floored.floors.extend(office_hours(FLOOR));
    let parts = vec![
        part("zero, no floor", 0, stage.policy(0, MAX, COLD_START)),
        part("zero, floor of 5 from 9:00", 0, floored),
        part("one overnight, no floor", 1, stage.policy(1, MAX, COLD_START)),
        Part::new("5 replicas, always", stage.fleet(COLD_START, FLOOR, span), &load, By::Plan(Vec::new())),
    ];
    let played = play_all(parts, course.threads);
    let (see, picture) = (see(&played), Picture::minutes(&played));
    Told {
        lesson: "office",
        setting: "From Sunday 21:00 to Monday 12:00 on RTX 4090s. Nobody asks anything until nine; within five minutes everybody is there, four replicas' worth. A start takes five minutes; late is a queue of more than 5 s.".to_owned(),
        begins,
        seed: course.seed,
        columns: vec!["GPU-hours", "late work", "late min", "p50 TTFT s", "p99 TTFT s", "most waiting"],
        runs: played.into_iter().map(run).collect(),
        see,
        picture,
        left_out: "The node of the first replica is there as fast as every other one. The router holds whatever comes: a gateway with a shorter patience would refuse it.",
    }
}

fn run(played: Played) -> Run {
    let score = &played.score;
    let cells = vec![
        fixed(score.gpu_hours, 1),
        percent(score.late_work),
        score.late_minutes.to_string(),
        fixed(score.first_token_seconds.p50, 1),
        fixed(score.first_token_seconds.p99, 1),
        played.most_waiting().to_string(),
    ];
    Run { name: played.name, cells, score: played.score }
}

fn see(played: &[Played]) -> [Claim; 2] {
    let (zero, floor, one, always) = (&played[0], &played[1], &played[2], &played[3]);
    let late = |played: &Played| played.score.late_minutes;
    let hours = |played: &Played| played.score.gpu_hours;
    let ttft = |played: &Played| played.score.first_token_seconds.p99;
    [
        Claim {
            sentence: format!(
                "From zero the first to come wait for a whole start, and behind them everybody else queues: {} late minutes and {:.0} s to the first token in the slowest hundredth; one replica kept overnight for {:.0} GPU-hours more still leaves {} late minutes.",
                late(zero),
                ttft(zero),
                hours(one) - hours(zero),
                late(one),
            ),
            holds: ttft(zero) > COLD_START.as_secs_f64() * 0.9
                && late(zero) >= 5
                && late(one) >= 3
                && hours(one) > hours(zero),
        },
        Claim {
            sentence: format!(
                "The floor orders one lead before nine, so that zero overnight costs nobody anything: {} late minutes, {:.1} s to the first token in the slowest hundredth, and {} of the GPU-hours of a fleet that is always there.",
                late(floor),
                ttft(floor),
                percent(hours(floor) / hours(always)),
            ),
            holds: late(floor) == 0 && ttft(floor) < 5.0 && hours(floor) < 0.5 * hours(always),
        },
    ]
}
