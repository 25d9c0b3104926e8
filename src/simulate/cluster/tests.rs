use super::*;
use crate::simulate::replica::StartPart;
use crate::simulate::start::StockOut;
use crate::supply::{Phase, Stage, Target};

const BASE: DateTime<Utc> = DateTime::UNIX_EPOCH;

fn at(seconds: f64) -> Moment {
    Moment::from_seconds(seconds)
}

/// 2 s pending, 40 s node, 20 s image, 25 s weights, 15 s engine.
fn settings() -> ClusterSettings {
    ClusterSettings {
        stages: StartStages::new_node(Duration::from_secs(102)),
        ..ClusterSettings::plain(EngineSettings::rtx4090_8b(), Duration::ZERO)
    }
}

fn targets(cluster: &Cluster) -> Vec<Target> {
    match cluster.discovered(BASE) {
        Discovered::Targets { targets, .. } => targets,
        Discovered::Unknown { why } => panic!("{why}"),
    }
}

fn request(id: u64, seconds: f64, input: u32, output: u32) -> Request {
    Request { id, arrived: at(seconds), input, cached: 0, output }
}

fn events(cluster: &mut Cluster) -> Vec<EngineEvent> {
    let mut events = Vec::new();
    cluster.drain_events(&mut events);
    events
}

#[test]
fn a_pod_waits_for_its_node_its_image_its_weights_and_its_engine() {
    let mut cluster = Cluster::new(settings(), 0);
    cluster.scale(at(0.0), 1);
    for (seconds, stage, addressed) in [
        (41.9, Some(Stage::Unscheduled), false),
        (42.1, Some(Stage::Pulling), true),
        (62.1, Some(Stage::Loading), true),
        (101.9, Some(Stage::Loading), true),
        (102.0, None, true),
    ] {
        cluster.advance(at(seconds));
        let start = targets(&cluster)[0].start.clone().unwrap();
        assert_eq!((start.stage, start.scheduled.is_some()), (stage, addressed), "at {seconds} s");
    }
    let start = targets(&cluster)[0].start.clone().unwrap();
    assert_eq!(start.container_started, Some(at(62.0).wall(BASE)));
    assert_eq!(start.ready, Some(at(102.0).wall(BASE)));
    assert_eq!(cluster.supply().ready, 1);
}

#[test]
fn a_stock_out_holds_new_nodes_until_it_ends_and_a_pod_counts_as_blocked_meanwhile() {
    let mut settings = settings();
    settings.trouble.stock_outs = vec![StockOut { from: at(30.0), until: at(1000.0) }];
    let mut cluster = Cluster::new(settings, 1);
    cluster.scale(at(0.0), 2);
    cluster.advance(at(599.0));
    assert_eq!(targets(&cluster)[1].phase, Phase::Starting);
    cluster.advance(at(601.0));
    assert_eq!(targets(&cluster)[1].phase, Phase::Blocked);
    let why = targets(&cluster)[1].start.clone().unwrap().blocked.unwrap();
    assert!(why.starts_with("unschedulable: "), "{why}");
    cluster.advance(at(1059.9));
    assert_eq!(cluster.supply().ready, 1);
    cluster.advance(at(1060.0));
    assert_eq!(cluster.supply().ready, 2);
}

#[test]
fn a_quota_lets_the_oldest_pod_in_when_another_one_is_gone() {
    let mut settings = settings();
    settings.trouble.quota = Some(2);
    let mut cluster = Cluster::new(settings, 2);
    cluster.scale(at(0.0), 4);
    cluster.advance(at(300.0));
    assert_eq!((cluster.supply().ready, cluster.supply().starting), (2, 2));
    // The two that wait go first, and the quota stays used up.
    cluster.scale(at(300.0), 1);
    cluster.advance(at(301.0));
    cluster.scale(at(301.0), 3);
    cluster.advance(at(301.0 + 42.0 + 60.0));
    assert_eq!((cluster.supply().ready, cluster.supply().starting), (2, 1));
}

#[test]
fn an_engine_that_crashes_is_loaded_again_after_the_kubelets_wait() {
    let mut settings = settings();
    settings.trouble.failure = 1.0;
    let mut cluster = Cluster::new(settings, 0);
    cluster.scale(at(0.0), 1);
    cluster.advance(at(103.0));
    let life = cluster.replicas()[0].life();
    assert_eq!(life, Life::Starting { part: StartPart::BackOff, until: at(112.0) });
    let target = targets(&cluster)[0].clone();
    assert_eq!(target.phase, Phase::Blocked);
    assert_eq!(target.start.unwrap().restarts, 1);
    // 10 s of waiting, 40 s of loading, then 20 s.
    cluster.advance(at(153.0));
    assert_eq!(cluster.replicas()[0].life(), Life::Starting { part: StartPart::BackOff, until: at(172.0) });
    assert_eq!(cluster.supply().ready, 0);
}

/// How many requests each of three replicas finished, the one with a long answer first.
fn finished_by_three(routing: Routing) -> Vec<u64> {
    let mut cluster = Cluster::new(ClusterSettings { routing, ..settings() }, 3);
    cluster.submit(request(0, 0.0, 100, 2000));
    let long = cluster.replicas().iter().position(|r| r.outstanding() == 1).unwrap();
    // These are done before the next one comes, and the long one isn't.
    for n in 1_u32..6 {
        cluster.submit(request(u64::from(n), f64::from(n) * 5.0, 100, 10));
    }
    cluster.advance(at(100.0));
    let finished = |index: usize| cluster.replicas()[(long + index) % 3].engine().unwrap().metrics().finished;
    (0..3).map(finished).collect()
}

#[test]
fn round_robin_takes_turns_whatever_is_in_flight() {
    assert_eq!(finished_by_three(Routing::RoundRobin), [2, 2, 2]);
}

#[test]
fn the_least_outstanding_leaves_the_busy_one_alone() {
    let finished = finished_by_three(Routing::LeastOutstanding);
    assert_eq!((finished[0], finished[1] + finished[2]), (1, 5));
}

#[test]
fn a_prefix_stays_with_its_replica_under_hashing_and_moves_when_that_is_gone() {
    let mut cluster = Cluster::new(ClusterSettings { routing: Routing::PrefixHash, ..settings() }, 4);
    let prefix = |n: u64| Some((0..8).map(|block| n * 100 + block).collect());
    for n in 0..40_u64 {
        let request = request(n, n as f64, 128, 5);
        assert!(cluster.submit_routed(Routed { request, prefix: prefix(n % 4) }, request.arrived));
    }
    cluster.advance(at(60.0));
    let cached: u64 = cluster.replicas().iter().map(|r| r.engine().unwrap().metrics().prefix_hits).sum();
    // Each of the four prompts is computed once; of a prompt that is there the last token is computed.
    assert_eq!(cached, 36 * 127);
    let served = cluster.replicas().iter().filter(|r| r.engine().unwrap().metrics().finished > 0).count();
    assert!((1..=4).contains(&served));
    cluster.scale(at(60.0), 1);
    let routed = Routed { request: request(99, 61.0, 128, 5), prefix: prefix(0) };
    assert!(cluster.submit_routed(routed, at(61.0)));
    cluster.advance(at(90.0));
    assert!(events(&mut cluster).iter().any(|e| e.request.id == 99 && e.kind == EventKind::Finished));
}

#[test]
fn scored_routing_weighs_a_prefix_against_a_queue() {
    let where_to = |prefix_weight: f64, busy: u64| {
        let routing = Routing::Scored { prefix_weight };
        let mut cluster = Cluster::new(ClusterSettings { routing, ..settings() }, 2);
        let prefix = || Some((0..8).collect());
        let ask = |id, seconds| Routed { request: request(id, seconds, 128, 2), prefix: prefix() };
        assert!(cluster.submit_routed(ask(0, 0.0), at(0.0)));
        let warm = cluster.replicas().iter().position(|r| r.outstanding() == 1).unwrap();
        for n in 0..busy {
            // Without a prefix: these go where there is least to do, so to both in turn.
            cluster.submit(request(10 + n, 5.0, 100, 3000));
        }
        let before: Vec<usize> = cluster.replicas().iter().map(Replica::outstanding).collect();
        assert!(cluster.submit_routed(ask(1, 6.0), at(6.0)));
        let grown = |index: usize| cluster.replicas()[index].outstanding() > before[index];
        (grown(warm), before[warm] > before[1 - warm])
    };
    for busy in 1..4 {
        let (kept, _) = where_to(3.0, busy);
        assert!(kept, "a large weight keeps the prefix where it is");
        let (kept, was_busier) = where_to(0.5, busy);
        assert!(kept || was_busier, "a small weight gives way to a queue alone");
    }
}

#[test]
fn a_router_that_holds_all_it_can_refuses() {
    let mut cluster = Cluster::new(settings(), 0);
    for n in 0..crate::simulate::router::MOST_HELD as u64 + 3 {
        cluster.submit(request(n, 1.0, 10, 1));
    }
    let refused = events(&mut cluster);
    assert_eq!(refused.len(), 3);
    assert!(refused.iter().all(|event| event.kind == EventKind::TurnedAway));
}
