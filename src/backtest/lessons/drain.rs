//! Long answers, and a fleet that shrinks.

use std::time::Duration;

use super::stage::{By, Part, Played, Stage, play_all};
use super::{Claim, Course, Picture, Run, Told, fixed, monday, percent};
use crate::backtest::requests::RequestSettings;
use crate::simulate::EngineSettings;
use crate::simulate::cluster::Removal;

const SPAN: Duration = Duration::from_mins(90);
const COLD_START: Duration = Duration::from_mins(3);
/// Replicas' worth of load in the evening, and at its end.
const FROM: f64 = 7.0;
/// Of a short one.
const SHORT_FROM: f64 = 4.0;
/// See [`FROM`].
const TO: f64 = 1.0;
/// When it falls, seconds.
const FALL: std::ops::Range<f64> = 900.0..2700.0;
const MAX: u32 = 12;
/// Mean tokens of a prompt and of an answer: a page or two of text each time.
const TOKENS: (f64, f64) = (400.0, 1500.0);
/// How long a router still sends to a replica that was told to go, where nobody told the router first.
const UNLISTING: Duration = Duration::from_secs(5);
/// `terminationGracePeriodSeconds` unless set.
const USUAL_GRACE: Duration = Duration::from_secs(30);
/// Longer than any answer.
const LONG_GRACE: Duration = Duration::from_mins(5);

pub(super) fn play(course: Course) -> Told {
    let begins = monday(19 * 60);
    let stage = Stage::new(EngineSettings::rtx4090_8b(), TOKENS, begins, course.seed);
    let from = course.extent.of(FROM, SHORT_FROM);
    let replicas = |seconds: f64| {
        let share = ((seconds - FALL.start) / (FALL.end - FALL.start)).clamp(0.0, 1.0);
        from + (TO - from) * share
    };
    let load = stage.load(SPAN, replicas);
    let initial = (from / 0.8).ceil() as u32;
    let part = |name: &str, drain: Duration, removal: Removal| {
        let unlisting = UNLISTING.min(drain);
        let fleet = RequestSettings { drain, removal, unlisting, ..stage.fleet(COLD_START, initial, SPAN) };
        let mut policy = stage.policy(1, MAX, COLD_START);
        // Told the same each time: what differs is how replicas go, not when.
        policy.drain = USUAL_GRACE;
        Part::new(name, fleet, &load, By::Ours(Box::new(policy)))
    };
    let parts = vec![
        part("killed", Duration::ZERO, Removal::Youngest),
        part("drained, 30 s", USUAL_GRACE, Removal::Youngest),
        part("drained, 5 min", LONG_GRACE, Removal::Youngest),
        part("steered, 5 min", USUAL_GRACE, Removal::Steered(LONG_GRACE)),
    ];
    let played = play_all(parts, course.threads);
    let (see, picture) = (see(&played), Picture::minutes(&played));
    Told {
        lesson: "drain",
        setting: format!(
            "An evening on RTX 4090s: {from:.0} replicas' worth of load fall to one within half an hour. Answers have 1500 tokens on average and take most of a minute. The same policy each time; what differs is how a replica goes. Killed: at SIGTERM all that it has is aborted, vLLM's default. Drained: it finishes what it has within the time given, but for five seconds the router still sends it requests, which a draining vLLM aborts. Steered: the one with the least to do is chosen, the router leaves it first, and it is told to go when it is idle."
        ),
        begins,
        seed: course.seed,
        columns: vec!["lost", "of all", "replicas gone", "held s each", "GPU-hours"],
        runs: played.into_iter().map(run).collect(),
        see,
        left_out: "Nobody asks again for an answer that was cut off; they would, and all of its work would be done twice. A router whose connection is refused by a replica that is gone tries another one at once.",
        picture,
    }
}

fn lost_share(played: &Played) -> f64 {
    played.score.lost() as f64 / (played.score.requests as f64).max(1.0)
}

/// From the lower number to the end of a replica, the mean, seconds.
fn held(played: &Played) -> f64 {
    played.gone.held_seconds / (played.gone.count as f64).max(1.0)
}

fn run(played: Played) -> Run {
    let score = &played.score;
    let cells = vec![
        score.lost().to_string(),
        format!("{:.2} %", lost_share(&played) * 100.0),
        played.gone.count.to_string(),
        fixed(held(&played), 0),
        fixed(score.gpu_hours, 2),
    ];
    Run { name: played.name, cells, score: played.score }
}

fn see(played: &[Played]) -> [Claim; 2] {
    let [killed, usual, long, steered] = played else {
        return ["", ""].map(|none| Claim { sentence: none.to_owned(), holds: false });
    };
    let lost = |played: &Played| played.score.lost();
    let dearer = |played: &Played| played.score.gpu_hours / killed.score.gpu_hours - 1.0;
    [
        Claim {
            sentence: format!(
                "Each replica that is killed takes its answers with it, {} in all; 30 s to drain still lose {}, 5 min lose the {} that were sent to it while it drained, and where the router leaves it first {} are lost.",
                lost(killed),
                lost(usual),
                lost(long),
                lost(steered),
            ),
            holds: lost(killed) > lost(usual)
                && lost(usual) > lost(long)
                && lost(long) > 0
                && lost(steered) == 0,
        },
        Claim {
            sentence: format!(
                "It costs time and little money: a replica is held {:.0} s after the lower number where it drains for as long as it needs and {:.0} s where it is steered, against {:.0} s where it is killed, which is {} and {} more GPU time over the evening.",
                held(long),
                held(steered),
                held(killed),
                percent(dearer(long)),
                percent(dearer(steered)),
            ),
            holds: held(killed) < 1.0
                && held(long) > 20.0
                && held(steered) > 20.0
                && (0.0..0.05).contains(&dearer(long))
                && (0.0..0.05).contains(&dearer(steered)),
        },
    ]
}
