//! Each lesson's sentences are true of its run, at the default seed and at another one, and it is told the same way twice.

use super::*;

fn told(name: &str, seed: u64, threads: usize) -> Told {
    Lesson::named(name).unwrap().play(Course { seed, threads, extent: Extent::Short })
}

/// With the default seed and with others.
fn holds(name: &str) {
    for seed in [1, 2] {
        let told = told(name, seed, 2);
        for run in &told.runs {
            assert_eq!(run.cells.len(), told.columns.len(), "{}", run.name);
            let score = &run.score;
            assert_eq!(score.requests, score.finished + score.lost() + score.unfinished, "{}", run.name);
            assert!(score.requests > 100, "{}", run.name);
        }
        for claim in &told.see {
            assert!(claim.holds && !claim.sentence.is_empty(), "seed {seed}: {}", told.text());
        }
    }
}

#[test]
fn usual_signals_chase_their_queues_or_buy_for_nothing_and_none_sees_nine_o_clock_coming() {
    holds("weekday");
}

#[test]
fn a_ramp_faster_than_a_start_is_carried_by_what_is_ready_before_it() {
    holds("doubling");
}

#[test]
fn an_average_over_unlike_pools_is_right_and_both_pools_are_wrong() {
    holds("tiers");
}

#[test]
fn routers_that_do_not_know_prompts_lose_the_cache_as_the_fleet_grows() {
    holds("routing");
}

#[test]
fn full_jitter_ends_a_storm_and_tries_are_not_demand() {
    holds("retry-storm");
}

#[test]
fn zero_overnight_needs_a_floor_before_nine() {
    holds("office");
}

#[test]
fn a_router_that_leaves_a_replica_first_loses_nothing_and_costs_next_to_nothing() {
    holds("drain");
}

#[test]
fn the_same_seed_gives_the_same_bytes_whatever_the_threads_and_another_seed_others() {
    let (one, other) = (told("drain", 1, 1), told("drain", 1, 3));
    assert_eq!(one.text(), other.text());
    assert_eq!(one.page(), other.page());
    assert_eq!(one.drawing(), other.drawing());
    assert_eq!(serde_json::to_string(&one).unwrap(), serde_json::to_string(&other).unwrap());
    assert_ne!(one.runs, told("drain", 2, 2).runs);
}

#[test]
fn everybody_gets_the_same_requests() {
    let told = told("doubling", 1, 2);
    assert!(told.runs.iter().all(|run| run.score.requests == told.runs[0].score.requests));
}

#[test]
fn a_sentence_that_is_not_true_of_its_run_says_so() {
    let claim = |holds| Claim { sentence: "It rains.".to_owned(), holds };
    assert_eq!(claim(true).told(), "It rains.");
    assert_eq!(claim(false).told(), "Not so with this seed: It rains.");
}

#[test]
fn names_are_all_different_and_listed() {
    let list = list();
    assert_eq!(list.lines().count(), ALL.len());
    for lesson in &ALL {
        assert_eq!(Lesson::named(lesson.name).map(|found| found.about), Some(lesson.about));
        assert!(list.contains(lesson.name));
    }
    assert!(Lesson::named("none").is_none());
}
