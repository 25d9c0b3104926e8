//! Who the replicas are: ready, starting, silent, unknown.

use std::time::Duration;

use keda_vllm_scaler::aggregate::{FailureKind, MAX_REPLICAS, TierWindow};
use keda_vllm_scaler::decision::ReplicaState;
use keda_vllm_scaler::engines::EnginePage;
use keda_vllm_scaler::supply::{Discovered, Phase, Target};

use super::{SETTINGS, at, failure, only, output_rate, page, page_of, target, tier};

#[test]
fn a_replica_without_a_fresh_page_is_silent_and_its_load_unknown() {
    let mut tier = tier(&["a", "b"], Phase::Ready);
    tier.page("a", at(0.0), Ok(page(0.0)));
    tier.page("b", at(0.0), Ok(page(0.0)));
    tier.page("a", at(10.0), Err(failure(FailureKind::Timeout)));
    tier.page("b", at(10.0), Ok(page(0.0)));
    let fresh = tier.observe(at(15.0));
    assert_eq!((fresh.count(ReplicaState::Ready), &fresh.replicas[0].error), (2, &None));

    let observation = tier.observe(at(16.0));
    let silent = &observation.replicas[0];
    assert_eq!((silent.state, &silent.load), (ReplicaState::Silent, &None));
    assert_eq!(silent.page_age, Some(Duration::from_secs(16)));
    assert_eq!(silent.error.as_deref(), Some("it is timeout (http://a/metrics)"));
    assert_eq!(observation.replicas[1].state, ReplicaState::Ready);
    assert_eq!(observation.replicas_unknown, None);
}

#[test]
fn a_page_that_cant_be_read_keeps_its_reason() {
    let mut tier = tier(&["a"], Phase::Ready);
    tier.page("a", at(0.0), Err(failure(FailureKind::BadPage)));
    assert_eq!(only(&tier.observe(at(1.0))).error.as_deref(), Some("it is badPage (http://a/metrics)"));
    tier.page("a", at(5.0), Ok(page_of(Vec::new())));
    let observation = tier.observe(at(5.0));
    assert_eq!(only(&observation).state, ReplicaState::Silent);
    assert_eq!(only(&observation).error.as_deref(), Some("0 engines on the page (http://a/metrics)"));
}

#[test]
fn listed_replicas_of_which_none_can_be_read_are_unknown_and_never_zero() {
    let mut tier = tier(&["a", "b"], Phase::Listed);
    let before_the_first_round = tier.observe(at(0.0));
    assert!(before_the_first_round.replicas_unknown.unwrap().contains("not read yet: 2"));

    tier.page("a", at(1.0), Err(failure(FailureKind::Refused)));
    tier.page("b", at(1.0), Err(failure(FailureKind::Refused)));
    let refused = tier.observe(at(1.0));
    assert_eq!(refused.count(ReplicaState::Absent), 2);
    assert!(refused.replicas_unknown.unwrap().contains("refused: 2"));

    tier.page("a", at(5.0), Ok(page(0.0)));
    let one_serves = tier.observe(at(5.0));
    assert_eq!(one_serves.replicas_unknown, None);
    assert_eq!((one_serves.count(ReplicaState::Ready), one_serves.count(ReplicaState::Absent)), (1, 1));

    let stale = tier.observe(at(60.0));
    assert_eq!(stale.count(ReplicaState::Silent), 1);
    assert!(stale.replicas_unknown.unwrap().contains("stale: 1"));
}

#[test]
fn a_listed_replica_that_served_and_refuses_is_silent_until_the_hold_is_over() {
    let mut tier = tier(&["a", "b"], Phase::Listed);
    tier.page("a", at(0.0), Ok(page(0.0)));
    for minute in 1..=11 {
        let now = at(f64::from(minute) * 60.0);
        tier.page("a", now, Err(failure(FailureKind::Refused)));
        tier.page("b", now, Ok(page(0.0)));
        let state = tier.observe(now).replicas[0].state;
        let expected = if minute <= 10 { ReplicaState::Silent } else { ReplicaState::Absent };
        assert_eq!(state, expected, "minute {minute}");
    }
}

#[test]
fn a_starting_replica_with_a_page_stays_starting_and_its_load_counts() {
    let mut tier = tier(&["a"], Phase::Starting);
    tier.page("a", at(0.0), Ok(page(0.0)));
    let observation = tier.observe(at(1.0));
    assert_eq!(only(&observation).state, ReplicaState::Starting);
    assert!(only(&observation).load.is_some());
}

#[test]
fn a_terminating_replica_carries_load_while_its_page_is_fresh() {
    let mut tier = tier(&["a"], Phase::Terminating);
    tier.page("a", at(0.0), Ok(page(0.0)));
    assert!(only(&tier.observe(at(1.0))).load.is_some());
    let gone_quiet = tier.observe(at(20.0));
    assert_eq!((only(&gone_quiet).state, &only(&gone_quiet).load), (ReplicaState::Terminating, &None));
}

#[test]
fn a_sleeping_engine_doesnt_claim_to_be_idle() {
    let mut tier = tier(&["a"], Phase::Listed);
    tier.page("a", at(0.0), Ok(EnginePage { awake: Some(false), ..page(0.0) }));
    let observation = tier.observe(at(1.0));
    assert_eq!(only(&observation).state, ReplicaState::Asleep);
    let load = only(&observation).load.as_ref().unwrap();
    assert_eq!((load.running, load.waiting, load.kv_usage), (None, None, None));
}

#[test]
fn an_empty_answer_is_zero_replicas_only_from_a_source_that_can_tell() {
    let mut tier = tier(&["a"], Phase::Ready);
    let empty = |authoritative| Discovered::Targets {
        targets: Vec::new(),
        authoritative,
        current: Some(0),
        scale: None,
    };
    tier.discovered(&empty(true), at(1.0));
    let none = tier.observe(at(1.0));
    assert_eq!((none.replicas_unknown, none.replicas.len(), none.current), (None, 0, Some(0)));
    assert!(none.authoritative);

    tier.discovered(&empty(false), at(2.0));
    assert!(tier.observe(at(2.0)).replicas_unknown.is_some());
}

#[test]
fn a_source_that_cant_say_leaves_the_replicas_last_seen() {
    let mut tier = tier(&["a"], Phase::Listed);
    tier.page("a", at(0.0), Ok(page(0.0)));
    tier.discovered(&Discovered::Unknown { why: "NXDOMAIN".to_owned() }, at(2.0));
    tier.page("a", at(5.0), Ok(page(50.0)));
    let observation = tier.observe(at(5.0));
    assert_eq!(observation.replicas_unknown.as_deref(), Some("NXDOMAIN"));
    assert_eq!(output_rate(&observation), Some(10.0));
    assert!(TierWindow::new(SETTINGS).observe(at(0.0)).replicas_unknown.is_some());
}

#[test]
fn a_source_that_lists_everything_is_not_believed() {
    let mut tier = tier(&["a"], Phase::Ready);
    let targets: Vec<Target> =
        (0..=MAX_REPLICAS).map(|index| target(&index.to_string(), Phase::Ready)).collect();
    tier.discovered(
        &Discovered::Targets { targets, authoritative: true, current: None, scale: None },
        at(1.0),
    );
    let observation = tier.observe(at(1.0));
    assert!(observation.replicas_unknown.unwrap().contains("5001 replicas"));
    assert_eq!(observation.replicas.len(), 1);
}

#[test]
fn a_replica_listed_twice_is_one() {
    let mut tier = tier(&["a", "a"], Phase::Ready);
    assert_eq!(tier.observe(at(0.0)).replicas.len(), 1);
}

#[test]
fn since_is_the_sources_word_where_it_set_the_state() {
    let mut tier = TierWindow::new(SETTINGS);
    let created = at(-100.0);
    let starting = Target { since: Some(created), ..target("a", Phase::Starting) };
    let ready = Target { since: Some(created), ..target("b", Phase::Ready) };
    let discovered = Discovered::Targets {
        targets: vec![starting, ready],
        authoritative: true,
        current: None,
        scale: None,
    };
    tier.discovered(&discovered, at(0.0));
    let observation = tier.observe(at(5.0));
    assert_eq!(observation.replicas[0].since, Some(created));
    assert_eq!(
        (observation.replicas[1].state, observation.replicas[1].since),
        (ReplicaState::Silent, Some(at(5.0)))
    );
}

#[test]
fn listed_replicas_of_which_most_refuse_stay_silent_beyond_the_hold() {
    let ids = ["a", "b", "c", "d", "e", "f"];
    let mut tier = tier(&ids, Phase::Listed);
    for id in ids {
        tier.page(id, at(0.0), Ok(page(0.0)));
    }
    let late = at(60.0 * 30.0);
    for (place, id) in ids.into_iter().enumerate() {
        let answer = if place < 2 { Ok(page(0.0)) } else { Err(failure(FailureKind::Refused)) };
        tier.page(id, late, answer);
    }
    let seen = tier.observe(late);
    assert_eq!((seen.count(ReplicaState::Ready), seen.count(ReplicaState::Silent)), (2, 4));
}
