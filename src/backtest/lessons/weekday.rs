//! Six signals against one day.

use std::time::Duration;

use super::days_before;
use super::signal::LatencyP95;
use super::stage::{By, Part, Played, Stage, office_hours, play_all};
use super::{Claim, Course, Picture, Run, Told, fixed, monday, percent};
use crate::decision::Policy;
use crate::simulate::EngineSettings;
use crate::simulate::traffic::weekday_share;

/// When it begins, minutes after midnight, and how long it is.
const DAY: (i64, Duration) = (0, Duration::from_hours(24));
/// Of a short one: the morning around nine.
const MORNING: (i64, Duration) = (8 * 60 + 30, Duration::from_mins(105));
const COLD_START: Duration = Duration::from_mins(3);
/// Of the variant: a large model on a node that has to be made.
const LONG_COLD_START: Duration = Duration::from_mins(8);
/// Replicas' worth of load at the day's peak.
const PEAK: f64 = 5.0;
const MAX: u32 = 12;
/// What begins the day at its load of midnight.
const INITIAL: u32 = 1;
/// And at its load of eight.
const INITIAL_AT_EIGHT: u32 = 2;
/// Mean tokens of a prompt and of an answer: a coding assistant's, whose answers are longer than a conversation's.
const TOKENS: (f64, f64) = (2000.0, 500.0);
/// Such days that the last one has served before, and of a short lesson.
const DAYS_BEFORE: (u32, u32) = (2, 1);
/// Replicas of the floor: the load at ten past nine, at the usual target.
const FLOOR: u32 = 5;

pub(super) fn play(course: Course) -> Told {
    let (minutes, span) = course.extent.of(DAY, MORNING);
    let begins = monday(minutes);
    let stage = Stage::new(EngineSettings::rtx4090_8b(), TOKENS, begins, course.seed);
    let midnight = minutes as f64 * 60.0;
    let load = stage.load(span, |seconds| PEAK * weekday_share(Duration::from_secs_f64(midnight + seconds)));
    let initial = course.extent.of(INITIAL, INITIAL_AT_EIGHT);
    let fleet = |cold_start| stage.fleet(cold_start, initial, span);
    let ours = |policy: Policy| By::Ours(Box::new(policy));
    let with_floor = |mut policy: Policy| {
        policy.floors.extend(office_hours(FLOOR));
        policy
    };
    let mut parts = Vec::new();
    for (name, told) in [
        ("hpa-cpu", "CPU, HPA at 50 %"),
        ("hpa-gpu", "GPU utilisation, HPA at 80 %"),
        ("keda-waiting", "waiting requests, KEDA"),
        ("hpa-kv", "KV cache, HPA at 80 %"),
    ] {
        if let Some(rival) = stage.rival(name, MAX) {
            parts.push(Part::new(told, fleet(COLD_START), &load, By::Rule(rival, 1, MAX)));
        }
    }
    let latency = Box::new(LatencyP95::new(Duration::from_secs(2)));
    parts.push(Part::new("p95 latency, HPA at 2 s", fleet(COLD_START), &load, By::Rule(latency, 1, MAX)));
    let policy = |min, cold_start| stage.policy(min, MAX, cold_start);
    for (name, fleet, policy) in [
        ("ours", fleet(COLD_START), policy(1, COLD_START)),
        ("ours, starts take 8 min", fleet(LONG_COLD_START), policy(1, LONG_COLD_START)),
        ("ours, floor of 5 from 9 to 18", fleet(COLD_START), with_floor(policy(1, COLD_START))),
        ("ours, 8 min and the floor", fleet(LONG_COLD_START), with_floor(policy(1, LONG_COLD_START))),
        ("ours, min 0", fleet(COLD_START), policy(0, COLD_START)),
    ] {
        parts.push(Part::new(name, fleet, &load, ours(policy)));
    }
    let slow = policy(1, LONG_COLD_START);
    let (full, short) = DAYS_BEFORE;
    let memory = days_before::after(&stage, &slow, course.extent.of(full, short), |seconds| {
        PEAK * weekday_share(Duration::from_secs_f64(midnight + seconds))
    });
    let experienced = By::Experienced(Box::new(slow), Box::new(memory));
    parts.push(Part::new("ours, 8 min, who knows such days", fleet(LONG_COLD_START), &load, experienced));
    let played = play_all(parts, course.threads);
    let (see, picture) = (see(&played), Picture::minutes(&played));
    Told {
        lesson: "weekday",
        setting: "A weekday on RTX 4090s: a quiet night, a start of work at nine that triples the load within six minutes, a dip at noon, an evening; a peak of five replicas' worth. Prompts of 2000 and answers of 500 tokens on average; a start takes three minutes; late is a queue of more than 5 s.".to_owned(),
        begins,
        seed: course.seed,
        columns: vec!["GPU-hours", "late work", "late min", "p95 queue s", "p99 TTFT s", "starts", "lost"],
        runs: played.into_iter().map(run).collect(),
        see,
        picture,
        left_out: "One model, one kind of request, starts that all succeed; CPU is a linear law of requests a second; nobody gives up and nobody tries again.",
    }
}

fn run(played: Played) -> Run {
    let score = &played.score;
    let cells = vec![
        fixed(score.gpu_hours, 1),
        percent(score.late_work),
        score.late_minutes.to_string(),
        fixed(score.queue_seconds.p95, 1),
        fixed(score.first_token_seconds.p99, 1),
        score.starts.to_string(),
        score.lost().to_string(),
    ];
    Run { name: played.name, cells, score: played.score }
}

fn see(played: &[Played]) -> [Claim; 2] {
    let [cpu, gpu, waiting, kv, latency, ours, slow, floor, slow_floor, zero, experienced] = played else {
        return ["", ""].map(|none| Claim { sentence: none.to_owned(), holds: false });
    };
    let late = |played: &Played| played.score.late_minutes;
    let hours = |played: &Played| played.score.gpu_hours;
    let late_work = |played: &Played| played.score.late_work;
    let starts = |played: &Played| played.score.starts;
    [
        Claim {
            sentence: format!(
                "Two of the five usual signals come near ours, which has {} late minutes for {:.0} GPU-hours: the KV cache, because on this GPU it is what runs out first, {} for {:.0}, and CPU, because all requests of this day are of one kind, {} for {:.0}; GPU utilisation, high whenever anything runs, has {} for {:.0}, and waiting requests and p95 latency chase their own queue with {} and {} starts against {}, {} for {:.0} and {} for {:.0}.",
                late(ours),
                hours(ours),
                late(kv),
                hours(kv),
                late(cpu),
                hours(cpu),
                late(gpu),
                hours(gpu),
                starts(waiting),
                starts(latency),
                starts(ours),
                late(waiting),
                hours(waiting),
                late(latency),
                hours(latency),
            ),
            holds: (0.8..1.2).contains(&(hours(kv) / hours(ours)))
                && (0.8..1.5).contains(&(hours(cpu) / hours(ours)))
                && [kv, cpu].iter().all(|near| late_work(near) < late_work(waiting))
                && hours(gpu) > 1.5 * hours(ours)
                && [waiting, latency].iter().all(|chasing| {
                    starts(chasing) > 4 * starts(ours)
                        && late_work(chasing) > late_work(ours)
                        && hours(chasing) > 1.2 * hours(ours)
                }),
        },
        Claim {
            sentence: format!(
                "No signal sees nine o'clock coming: when a start takes eight minutes instead of three, late minutes go from {} to {}; the floor, ordered one lead before nine, brings them to {} and {} for {:.0} and {:.0} GPU-hours more, the forecast of a scaler that has served two such days to {} for {:.0} without being told of nine, and `min: 0` changes nothing for a tier that is asked all night ({:.0} GPU-hours).",
                late(ours),
                late(slow),
                late(floor),
                late(slow_floor),
                hours(floor) - hours(ours),
                hours(slow_floor) - hours(slow),
                late(experienced),
                hours(experienced) - hours(slow),
                hours(zero),
            ),
            holds: late(slow) > late(ours)
                && late(floor) < late(ours)
                && late(slow_floor) < late(slow)
                && late(experienced) < late(slow)
                && (hours(zero) / hours(ours) - 1.0).abs() < 0.02,
        },
    ]
}
