//! Two pools of unlike replicas, and one number for both.

use std::time::Duration;

use super::signal::FleetAverage;
use super::stage::{By, Job, Load, Part, Played, Stage, play_jobs};
use super::{Claim, Course, Picture, Run, Told, fixed, monday, percent};
use crate::backtest::requests::{Pool, RequestSettings, play_pools};
use crate::simulate::EngineSettings;
use crate::simulate::cluster::Gone;

const SPAN: Duration = Duration::from_mins(60);
const SHORT: Duration = Duration::from_mins(30);
const COLD_START: Duration = Duration::from_mins(3);
/// Replicas of each pool at the beginning.
const A10GS: u32 = 6;
/// See [`A10GS`].
const H100S: u32 = 12;
/// Of what those carry, the load of each pool.
const A10G_LOAD: f64 = 0.9;
/// See [`A10G_LOAD`].
const H100_LOAD: f64 = 0.3;
const MAX: u32 = 20;
/// Mean tokens of a prompt and of an answer at each pool: short questions, and whole documents.
const A10G_TOKENS: (f64, f64) = (1155.0, 211.0);
/// See [`A10G_TOKENS`].
const H100_TOKENS: (f64, f64) = (4000.0, 400.0);

/// A pool.
struct Tier {
    name: &'static str,
    stage: Stage,
    fleet: RequestSettings,
    load: Load,
}

pub(super) fn play(course: Course) -> Told {
    let begins = monday(10 * 60);
    let span = course.extent.of(SPAN, SHORT);
    let tier = |name, stage: Stage, initial: u32, share: f64| {
        let fleet = stage.fleet(COLD_START, initial, span);
        let load = stage.load(span, |_| share * f64::from(initial));
        Tier { name, stage, fleet, load }
    };
    let a10g = Stage::new(EngineSettings::a10g_8b(), A10G_TOKENS, begins, course.seed);
    // Another seed: the two have nothing to do with each other.
    let h100 = Stage::new(EngineSettings::h100_8b(), H100_TOKENS, begins, course.seed ^ 0x7_1E25);
    let tiers = [tier("A10G", a10g, A10GS, A10G_LOAD), tier("H100", h100, H100S, H100_LOAD)];
    let mut jobs = vec![averaged(&tiers)];
    for (policy, own) in [("HPA a tier", true), ("ours", false)] {
        for tier in &tiers {
            let by = if own {
                // The same measure, each pool's own.
                tier.stage.rival("hpa-80", MAX).map(|rival| By::Rule(rival, 1, MAX))
            } else {
                Some(By::Ours(Box::new(tier.stage.policy(1, MAX, COLD_START))))
            };
            let Some(by) = by else { continue };
            let part = Part::new(format!("{policy}: {}", tier.name), tier.fleet.clone(), &tier.load, by);
            jobs.push(Box::new(|| vec![part.play()]) as Job);
        }
    }
    let played = play_jobs(jobs, course.threads);
    let (see, picture) = (see(&played), Picture::minutes(&played));
    Told {
        lesson: "tiers",
        setting: format!(
            "{} minutes of a model on {A10GS} A10Gs, which have 90 % of the load that they carry, and {H100S} H100s, which have 30 %. An HPA for each pool with a target of 80 %, going by the mean utilisation of all {}; the same going by its own pool's; and ours, a tier each. Utilisation is the arriving work over what is ready: a better measure than any real metric.",
            span.as_secs() / 60,
            A10GS + H100S,
        ),
        begins,
        seed: course.seed,
        columns: vec!["load", "replicas at the end", "utilisation", "GPU-hours", "late work", "p99 queue s"],
        runs: played.into_iter().map(run).collect(),
        see,
        left_out: "The pools have their own requests: nothing spills from one to the other. The A10G's costs are by its datasheet, nobody measured them here.",
        picture,
    }
}

/// Both pools by one number.
fn averaged(tiers: &[Tier; 2]) -> Job {
    let of_tier = |tier: &Tier| (tier.name, tier.fleet.clone(), Load::clone(&tier.load));
    let tiers = [of_tier(&tiers[0]), of_tier(&tiers[1])];
    Box::new(move || {
        let pools = tiers.iter().map(|(_, fleet, load)| pool(fleet, load)).collect();
        let scores = play_pools(pools, &mut FleetAverage::new(tiers.len(), 1, MAX));
        let names = tiers.iter().map(|(name, ..)| format!("fleet average: {name}"));
        let (looks, hit_rate, gone) = (Vec::new(), 0.0, Gone::default());
        let played = |(name, score)| Played { name, score, looks: looks.clone(), hit_rate, gone };
        names.zip(scores).map(played).collect()
    })
}

fn pool<'a>(settings: &'a RequestSettings, load: &'a Load) -> Pool<'a> {
    Pool { settings, arrivals: Box::new(load.iter().cloned()) }
}

/// Means of the last ten minutes: load and ready replicas.
fn at_the_end(played: &Played) -> (f64, f64) {
    let minutes = &played.score.minutes;
    let last = &minutes[minutes.len().saturating_sub(10)..];
    let count = (last.len() as f64).max(1.0);
    let sum =
        last.iter().fold((0.0, 0.0), |(load, ready), minute| (load + minute.demand, ready + minute.ready));
    (sum.0 / count, sum.1 / count)
}

fn utilisation(played: &Played) -> f64 {
    let (load, ready) = at_the_end(played);
    load / ready.max(1.0)
}

fn run(played: Played) -> Run {
    let score = &played.score;
    let (load, ready) = at_the_end(&played);
    let cells = vec![
        fixed(load, 1),
        fixed(ready, 1),
        percent(utilisation(&played)),
        fixed(score.gpu_hours, 1),
        percent(score.late_work),
        fixed(score.queue_seconds.p99, 1),
    ];
    Run { name: played.name, cells, score: played.score }
}

fn see(played: &[Played]) -> [Claim; 2] {
    let [busy, idle, own_busy, own_idle, our_busy, our_idle] = played else {
        return ["", ""].map(|none| Claim { sentence: none.to_owned(), holds: false });
    };
    let both = {
        let ((load, ready), (more_load, more_ready)) = (at_the_end(busy), at_the_end(idle));
        (load + more_load) / (ready + more_ready).max(1.0)
    };
    let late = |played: &Played| played.score.late_work;
    let ready = |played: &Played| at_the_end(played).1;
    [
        Claim {
            sentence: format!(
                "The average of {A10GS} replicas at 90 % and {H100S} at 30 % is 50 %, below its target, so both pools shrink: in the end it is {}, as it should be, with the A10Gs at {} and {} of their work late, and the H100s at {}.",
                percent(both),
                percent(utilisation(busy)),
                percent(late(busy)),
                percent(utilisation(idle)),
            ),
            holds: (0.7..0.9).contains(&both)
                && utilisation(busy) > 1.2
                && late(busy) > 0.3
                && utilisation(idle) < 0.55,
        },
        Claim {
            sentence: format!(
                "With a number for each tier the H100s alone shrink: the HPA has {:.0} A10Gs and {:.0} H100s in the end and {} and {} of the work late, ours {:.0} and {:.0} and {} and {}.",
                ready(own_busy),
                ready(own_idle),
                percent(late(own_busy)),
                percent(late(own_idle)),
                ready(our_busy),
                ready(our_idle),
                percent(late(our_busy)),
                percent(late(our_idle)),
            ),
            holds: [own_busy, our_busy].iter().all(|tier| ready(tier) > f64::from(A10GS) - 0.5)
                && [own_idle, our_idle].iter().all(|tier| ready(tier) < 0.7 * f64::from(H100S))
                && [own_busy, own_idle, our_busy, our_idle].iter().all(|tier| late(tier) < 0.05),
        },
    ]
}
