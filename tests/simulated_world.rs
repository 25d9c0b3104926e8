//! Pods, router, traffic and tally together, and the plain KV target that the demo compares with.

use std::time::Duration;

use chrono::DateTime;
use keda_vllm_scaler::simulate::cluster::Supply;
use keda_vllm_scaler::simulate::rival;
use keda_vllm_scaler::simulate::traffic::{TokenCount, TrafficSettings};
use keda_vllm_scaler::simulate::world::{Adjustment, World, WorldSettings};
use keda_vllm_scaler::simulate::{ClusterSettings, EngineSettings, Moment};
use keda_vllm_scaler::supply::{Discovered, Phase, Target};

fn settings(peak_per_second: f64, ready: u32) -> WorldSettings {
    WorldSettings {
        base: DateTime::UNIX_EPOCH,
        cluster: ClusterSettings {
            model: "m".to_owned(),
            drain: Duration::from_secs(20),
            seed: 3,
            ..ClusterSettings::plain(EngineSettings::rtx4090_8b(), Duration::from_secs(60))
        },
        traffic: TrafficSettings {
            seed: 3,
            // The peak: the rate hardly changes over the minutes that these tests look at.
            starts_at: Duration::from_secs(11 * 3600),
            peak_per_second,
            input: TokenCount::CONVERSATION_INPUT,
            output: TokenCount::CONVERSATION_OUTPUT,
        },
        ready,
    }
}

fn at(seconds: f64) -> Moment {
    Moment::from_seconds(seconds)
}

fn targets(world: &World) -> Vec<Target> {
    match world.cluster().discovered(DateTime::UNIX_EPOCH) {
        Discovered::Targets { targets, authoritative: true, current: Some(current), .. } => {
            assert_eq!(current, world.cluster().status());
            targets
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_pod_is_pending_then_starting_then_ready_and_drains_before_it_is_gone() {
    let mut world = World::new(settings(0.0, 1));
    world.advance(at(10.0));
    world.scale(2);
    assert_eq!((world.cluster().spec(), world.cluster().status()), (2, 2));
    world.replica_mut("00000000-0000-4000-8000-000000000001").unwrap().url = Some("http://pod".to_owned());
    // Pending: no address.
    assert_eq!((targets(&world)[1].phase, &targets(&world)[1].url), (Phase::Starting, &None));
    world.advance(at(13.0));
    assert_eq!(targets(&world)[1].url.as_deref(), Some("http://pod"));
    assert_eq!(targets(&world)[1].since, Some(at(10.0).wall(DateTime::UNIX_EPOCH)));
    assert!(!world.cluster().replicas()[1].listens());
    world.advance(at(70.0));
    assert_eq!(targets(&world)[1].phase, Phase::Ready);
    assert!(
        world.cluster().replicas()[1].page("m", DateTime::UNIX_EPOCH).unwrap().contains("process_start_time")
    );
    world.scale(0);
    // Idle replicas have nothing to drain.
    world.advance(at(70.1));
    assert_eq!(world.cluster().supply(), Supply::default());
    assert_eq!(world.cluster().starts(), 1);
    let paid = world.outcome().gpu_hours * 3600.0;
    assert!((paid - (70.0 + 60.0)).abs() < 1e-6, "{paid}");
}

#[test]
fn a_terminating_replica_finishes_what_it_has_and_is_killed_at_its_deadline() {
    let mut world = World::new(settings(12.0, 2));
    world.advance(at(60.0));
    world.scale(1);
    let supply = world.cluster().supply();
    assert_eq!((supply.ready, supply.terminating), (1, 1));
    assert_eq!(world.cluster().status(), 1);
    let terminating = targets(&world).into_iter().find(|t| t.phase == Phase::Terminating).unwrap();
    let in_flight = |world: &World| {
        let replicas = world.cluster().replicas().iter();
        replicas.filter(|r| r.id == terminating.id).map(|r| r.engine().unwrap().in_flight()).sum::<usize>()
    };
    let before = in_flight(&world);
    assert!(before > 0);
    world.advance(at(75.0));
    assert!(in_flight(&world) < before);
    // Overloaded as it was, it can't finish within 20 s.
    world.advance(at(80.0));
    assert_eq!(world.cluster().supply().terminating, 0);
    assert!(world.outcome().aborted > 0);
}

#[test]
fn scaling_down_takes_pods_that_are_not_ready_first() {
    let mut world = World::new(settings(0.0, 2));
    world.scale(4);
    world.advance(at(5.0));
    world.scale(2);
    assert_eq!(world.cluster().supply(), Supply { starting: 0, ready: 2, terminating: 0 });
}

#[test]
fn the_router_holds_requests_while_nobody_serves_and_sends_them_when_one_is_ready() {
    let mut world = World::new(settings(1.0, 0));
    world.advance(at(30.0));
    let held = world.cluster().router().held();
    assert!(held > 10, "{held}");
    let page = world.cluster().router().page("llama");
    assert!(
        page.contains(&format!("simulated_router_queued_requests{{model=\"llama\"}} {held}\n")),
        "{page}"
    );
    assert_eq!(world.status().queueing, held as u64);
    world.scale(1);
    world.advance(at(89.0));
    assert!(world.status().longest_wait_seconds > 80.0);
    world.advance(at(120.0));
    assert_eq!(world.cluster().router().held(), 0);
    let outcome = world.outcome();
    assert!(outcome.finished > 0);
    // Nobody waits from 0:05 to 1:30 without two late minutes.
    assert!(outcome.queueing_minutes >= 2, "{outcome:?}");
}

#[test]
fn every_request_is_finished_in_flight_aborted_or_refused() {
    let mut world = World::new(settings(15.0, 3));
    for (seconds, replicas) in [(60.0, 6), (150.0, 2), (200.0, 0), (260.0, 5), (500.0, 1)] {
        world.advance(at(seconds));
        world.scale(replicas);
        let outcome = world.outcome();
        let accounted = outcome.finished + outcome.in_flight + outcome.aborted + outcome.refused;
        assert_eq!(outcome.requests, accounted, "at {seconds} s: {outcome:?}");
    }
    world.advance(at(900.0));
    let outcome = world.outcome();
    assert_eq!(outcome.requests, outcome.finished + outcome.in_flight + outcome.aborted + outcome.refused);
    assert!(outcome.finished > 1000);
}

#[test]
fn the_same_seed_gives_the_same_world_however_often_it_is_looked_at() {
    let run = |seed: u64, step: f64| {
        let mut settings = settings(10.0, 2);
        settings.traffic.seed = seed;
        settings.cluster.cold_start_spread = 0.3;
        let mut world = World::new(settings);
        for (seconds, replicas) in [(30.0, 4), (200.0, 2), (400.0, 3)] {
            let mut now = world.now().seconds();
            while now < seconds {
                now = (now + step).min(seconds);
                world.advance(at(now));
            }
            world.scale(replicas);
        }
        world.advance(at(600.0));
        world.outcome()
    };
    assert_eq!(run(1, 1000.0), run(1, 0.25));
    assert_ne!(run(1, 1000.0), run(2, 1000.0));
}

#[test]
fn requests_go_to_the_replica_with_the_fewest_in_flight() {
    let mut world = World::new(settings(10.0, 4));
    world.advance(at(120.0));
    let loads: Vec<usize> =
        world.cluster().replicas().iter().map(|replica| replica.engine().unwrap().in_flight()).collect();
    let (least, most) = (loads.iter().min().unwrap(), loads.iter().max().unwrap());
    assert!(most - least <= 4, "{loads:?}");
}

#[test]
fn the_plain_kv_target_scales_up_under_load_and_plays_the_same_arrivals() {
    let settings = settings(20.0, 2);
    let until = at(1800.0);
    let mut unscaled = World::new(settings.clone());
    unscaled.advance(until);
    let rival = rival::plain_kv_target(settings.clone(), &[], 24, until);
    assert_eq!(rival.requests, unscaled.outcome().requests);
    assert!(rival.starts >= 4, "{rival:?}");
    assert!(rival.finished > unscaled.outcome().finished);
    assert_eq!(rival.requests, rival.finished + rival.in_flight + rival.aborted + rival.refused);
    // The same changes at the same instants.
    let adjustments =
        [(at(600.0), Adjustment::Load(1.5)), (at(900.5), Adjustment::ColdStart(at(5.0).since(at(0.0))))];
    let mut adjusted = World::new(settings.clone());
    for (when, adjustment) in adjustments {
        adjusted.advance(when);
        adjusted.adjust(adjustment);
    }
    adjusted.advance(until);
    let rival = rival::plain_kv_target(settings, &adjustments, 24, until);
    assert_eq!(rival.requests, adjusted.outcome().requests);
    assert!(rival.requests as f64 > unscaled.outcome().requests as f64 * 1.2);
}
