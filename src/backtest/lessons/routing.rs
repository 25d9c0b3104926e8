//! Shared prompts, and who gets which request.

use std::sync::Arc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::stage::{By, Load, Part, Played, Stage, play_all};
use super::{Claim, Course, Picture, Run, Told, fixed, monday, percent};
use crate::backtest::requests::{ArrivingRequest, Capacity, Lengths, RequestSettings};
use crate::simulate::router::Routing;
use crate::simulate::{EngineSettings, Moment};

const SPAN: Duration = Duration::from_mins(60);
const SHORT: Duration = Duration::from_mins(20);
/// Prompt tokens of a block of prefixes.
const BLOCK: u32 = 512;
/// Blocks of a shared prompt: 12,288 tokens, of which the KV cache of an RTX 4090 (41,408 tokens) holds three.
const PROMPT_BLOCKS: u64 = 24;
/// Shared prompts: tools, contracts or books that many ask about.
const PROMPTS: u64 = 8;
/// What each asks about them, tokens.
const QUESTION: u32 = 150;
/// And is answered, tokens.
const ANSWER: u32 = 60;
/// Questions of a session, all about one prompt.
const QUESTIONS: u32 = 6;
/// Mean seconds from one question of a session to the next.
const THINKS: f64 = 3.0;
/// Sessions that begin a second, over the whole fleet: four replicas carry them.
const SESSIONS: f64 = 0.14;
/// The fleets that are compared.
const FLEETS: [u32; 3] = [2, 4, 12];

pub(super) fn play(course: Course) -> Told {
    let begins = monday(10 * 60);
    let span = course.extent.of(SPAN, SHORT);
    let engine = EngineSettings { max_model_len: 16_384, ..EngineSettings::rtx4090_8b() };
    let input = f64::from(BLOCK) * PROMPT_BLOCKS as f64 + f64::from(QUESTION);
    let lengths =
        Lengths { mean_input: input, mean_output: f64::from(ANSWER), longest: engine.max_model_len };
    // Only a measure of the work: a replica with a warm cache carries more.
    let rate = SESSIONS * f64::from(QUESTIONS);
    let capacity = Capacity::at(engine, &lengths, 0.0, rate / f64::from(FLEETS[0]));
    let stage = Stage { engine, lengths, capacity, begins, seed: course.seed };
    let load = sessions(span, course.seed);
    let mut parts = Vec::new();
    for (name, routing) in [
        ("round robin", Routing::RoundRobin),
        ("least outstanding", Routing::LeastOutstanding),
        ("prefix hash", Routing::PrefixHash),
        ("scored", Routing::Scored { prefix_weight: 3.0 }),
    ] {
        for replicas in FLEETS {
            let fleet = RequestSettings {
                routing,
                prefix_block_tokens: BLOCK,
                ..stage.fleet(Duration::from_mins(3), replicas, span)
            };
            parts.push(Part::new(format!("{name}, {replicas} replicas"), fleet, &load, By::Plan(Vec::new())));
        }
    }
    let played = play_all(parts, course.threads);
    let see = see(&played);
    let seconds = |value: f64| format!("{value:.2} s");
    let picture = Picture::Bars(vec![
        Picture::bars("Prompt tokens found in a cache", &played, |of| of.hit_rate, percent),
        Picture::bars("Time to first token, median", &played, median, seconds),
        Picture::bars("Queue, 99th percentile", &played, queue, seconds),
    ]);
    Told {
        lesson: "routing",
        setting: format!(
            "{} minutes on RTX 4090s. Eight shared prompts of 12,288 tokens; the prefix cache of a replica has room for three. Somebody takes one of the eight, asks {QUESTIONS} questions of 150 tokens about it, {THINKS:.0} s apart on average, gets 60 tokens each, and goes; {rate:.2} questions a second in all, which four replicas carry.",
            span.as_secs() / 60
        ),
        begins,
        seed: course.seed,
        columns: vec!["hit rate", "p50 queue s", "p99 queue s", "p50 TTFT s", "p99 TTFT s", "most waiting"],
        runs: played.into_iter().map(run).collect(),
        see,
        left_out: "Requests that run at the same time hold their prompt's blocks each for itself, where vLLM shares them: a real replica runs more of them at once. Nobody has a prompt of his own.",
        picture,
    }
}

/// Sessions begin as a Poisson process; prompts are equally popular.
fn sessions(span: Duration, seed: u64) -> Load {
    let mut rng = StdRng::seed_from_u64(seed ^ 0x7007_1E55);
    let prompts: Vec<Arc<[u64]>> = (0..PROMPTS)
        .map(|prompt| (0..PROMPT_BLOCKS).map(|block| prompt * 1000 + block + 1).collect())
        .collect();
    let mut gap = |mean: f64| {
        let uniform: f64 = rng.random();
        (-(1.0 - uniform).ln() * mean, rng.random_range(0..PROMPTS as usize))
    };
    let (mut begins, mut requests) = (0.0, Vec::new());
    loop {
        let (wait, prompt) = gap(1.0 / SESSIONS);
        begins += wait;
        if begins >= span.as_secs_f64() {
            break;
        }
        let mut seconds = begins;
        for _ in 0..QUESTIONS {
            requests.push(ArrivingRequest {
                at: Moment::from_seconds(seconds),
                input: BLOCK * PROMPT_BLOCKS as u32 + QUESTION,
                output: ANSWER,
                cached: None,
                prefix: Some(Arc::clone(&prompts[prompt])),
            });
            seconds += gap(THINKS).0;
        }
    }
    requests.sort_by_key(|request| request.at);
    requests.into()
}

fn median(played: &Played) -> f64 {
    played.score.first_token_seconds.p50
}

fn queue(played: &Played) -> f64 {
    played.score.queue_seconds.p99
}

fn run(played: Played) -> Run {
    let score = &played.score;
    let cells = vec![
        percent(played.hit_rate),
        fixed(score.queue_seconds.p50, 1),
        fixed(score.queue_seconds.p99, 1),
        fixed(score.first_token_seconds.p50, 2),
        fixed(score.first_token_seconds.p99, 1),
        played.most_waiting().to_string(),
    ];
    Run { name: played.name, cells, score: played.score }
}

fn see(played: &[Played]) -> [Claim; 2] {
    let [_, turns, turns_more, _, least, least_more, _, hash, hash_more, _, scored, scored_more] = played
    else {
        return ["", ""].map(|none| Claim { sentence: none.to_owned(), holds: false });
    };
    let blind = [(turns, turns_more), (least, least_more)];
    let knowing = [(hash, hash_more), (scored, scored_more)];
    [
        Claim {
            sentence: format!(
                "Routers that don't know prompts find {} (round robin) and {} (least outstanding) of the prompt tokens in the caches of twelve replicas, those that do find {} (prefix hash) and {} (scored): half of the requests wait {:.2} and {:.2} s for a first token there, {:.2} and {:.2} s here.",
                percent(turns_more.hit_rate),
                percent(least_more.hit_rate),
                percent(hash_more.hit_rate),
                percent(scored_more.hit_rate),
                median(turns_more),
                median(least_more),
                median(hash_more),
                median(scored_more),
            ),
            holds: blind.iter().all(|(_, blind)| {
                knowing.iter().all(|(_, knowing)| {
                    knowing.hit_rate > 1.5 * blind.hit_rate && median(blind) > 3.0 * median(knowing)
                })
            }),
        },
        Claim {
            sentence: format!(
                "More replicas make it worse: with four of them round robin finds {} and the median is {:.2} s, eight more end the queue (p99 {:.1} s before, {:.1} s after) and make the median {:.2} s, because a session's questions now go to ever more replicas and each has to compute the prompt; hashed, they go to one, and the median stays at {:.2} s.",
                percent(turns.hit_rate),
                median(turns),
                queue(turns),
                queue(turns_more),
                median(turns_more),
                median(hash_more),
            ),
            holds: blind
                .iter()
                .all(|(few, more)| more.hit_rate < few.hit_rate - 0.1 && median(more) > 3.0 * median(few))
                && queue(turns_more) < 0.5 * queue(turns)
                && median(hash_more) < 1.2 * median(hash),
        },
    ]
}
