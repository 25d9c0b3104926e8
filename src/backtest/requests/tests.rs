use std::sync::{Arc, Mutex};

use chrono::TimeDelta;

use super::*;
use crate::backtest::rival::{Rival, Seen, Wish};
use crate::backtest::trace::Arrivals;
use crate::decision::policy::{Floor, TokenRates};
use crate::decision::{Policy, TierId};
use crate::schedule::Window;
use crate::simulate::autoscaler::{AutoscalerSettings, Metric, Signal};
use crate::simulate::start::StockOut;

/// A Monday, 8:00 UTC.
fn begins() -> DateTime<Utc> {
    DateTime::UNIX_EPOCH + TimeDelta::days(19_723) + TimeDelta::hours(8)
}

/// An RTX 4090 at a rate that it carries; the search has tests of its own.
fn capacity() -> Capacity {
    Capacity::at(EngineSettings::rtx4090_8b(), &Lengths::conversation(8192), 0.0, 2.8)
}

fn settings(seconds: u64, initial: u32) -> RequestSettings {
    RequestSettings {
        initial,
        span: Duration::from_secs(seconds),
        stages: StartStages::new_node(Duration::from_secs(102)),
        ..RequestSettings::plain(
            EngineSettings::rtx4090_8b(),
            &capacity(),
            Duration::from_secs(102),
            begins(),
        )
    }
}

fn policy(min: u32, max: u32) -> Policy {
    let mut policy = Policy::with_defaults(TierId::new("backtest", "trace"), max, capacity().rates);
    policy.min = min;
    policy.cold_start = Duration::from_secs(102);
    policy.dead_band.tolerance = 0.0;
    policy
}

/// So many replicas' worth, minute by minute.
fn load(replicas: &[f64], seed: u64) -> impl Iterator<Item = ArrivingRequest> + use<> {
    let per_slot = capacity().requests_per_second * 5.0;
    let slots: Vec<Arrivals> = replicas
        .iter()
        .flat_map(|replicas| [Arrivals { requests: replicas * per_slot, ..Arrivals::default() }; 12])
        .collect();
    let shape = TraceShape::of(slots.iter().copied());
    SlotArrivals::new(slots.into_iter(), &shape, 8192, 1.0, seed)
}

fn scaled(policy: &Policy, settings: &RequestSettings, load: &[f64], pages: Pages) -> RequestScore {
    let chain = AutoscalerSettings::recommended(policy.min, policy.max);
    let sight = Sight { pages, ..Sight::default() };
    let mut scaler = ScalerSizer::new(policy, chain, sight, settings.begins, settings.seed);
    play(settings, &mut scaler, self::load(load, 3))
}

fn one(seconds: f64, input: u32, output: u32) -> ArrivingRequest {
    ArrivingRequest { at: Moment::from_seconds(seconds), input, output, cached: None, prefix: None }
}

#[test]
fn a_page_and_the_short_way_past_it_give_the_same_samples() {
    let settings = RequestSettings { hit_rate: 0.2, ..settings(600, 2) };
    let mut fleet = Fleet::new(&settings);
    let mut arrivals = load(&[1.5, 4.0, 1.0], 1).peekable();
    for second in [0.0, 0.3, 7.7, 60.0, 119.1, 150.0, 400.0] {
        let now = Moment::from_seconds(second);
        while let Some(arriving) = arrivals.next_if(|arriving| arriving.at <= now) {
            fleet.submit(arriving);
        }
        fleet.settle(now);
        if second == 7.7 {
            fleet.scale(3);
        }
        for replica in fleet.cluster().replicas() {
            let by_page = sample::by_page(replica, "m", settings.begins);
            assert_eq!(sample::direct(replica, "m", settings.begins), by_page, "at {second} s");
        }
    }
    assert!(fleet.cluster().replicas().len() == 3 && arrivals.next().is_none());
}

#[test]
fn the_scaler_decides_the_same_through_pages_and_past_them() {
    let (policy, settings) = (policy(1, 8), settings(480, 1));
    let load = [0.5, 0.5, 2.0, 2.0, 2.0, 1.0, 0.5, 0.5];
    let direct = scaled(&policy, &settings, &load, Pages::Direct);
    assert_eq!(direct, scaled(&policy, &settings, &load, Pages::Rendered));
    assert!(direct.starts > 0);
}

#[test]
fn the_same_input_gives_the_same_bytes_and_another_seed_others() {
    let (policy, settings) = (policy(1, 8), settings(300, 2));
    let bytes = |seed: u64| {
        let settings = RequestSettings { seed, cold_start_spread: 0.3, ..settings.clone() };
        serde_json::to_string(&scaled(&policy, &settings, &[1.0, 3.0, 3.0, 2.0, 1.0], Pages::Direct)).unwrap()
    };
    assert_eq!(bytes(1), bytes(1));
    assert_ne!(bytes(1), bytes(2));
}

#[test]
fn every_request_is_finished_lost_or_unfinished() {
    let settings = RequestSettings { drain: Duration::from_secs(1), ..settings(600, 1) };
    let score =
        scaled(&policy(1, 4), &settings, &[3.0, 3.0, 3.0, 0.2, 0.2, 0.2, 0.2, 0.2, 3.0, 3.0], Pages::Direct);
    assert_eq!(score.requests, score.finished + score.lost() + score.unfinished);
    assert!(score.requests > 1000 && score.minutes.len() == 10);
}

#[test]
fn a_constant_fleet_at_its_capacity_is_in_time_and_at_half_of_it_late() {
    let settings = settings(600, 3);
    let enough = play(&settings, &mut Constant, load(&[2.4; 10], 3));
    assert_eq!((enough.late_minutes, enough.starts, enough.lost()), (0, 0, 0));
    assert!((enough.gpu_hours - 0.5).abs() < 1e-9);
    assert!((enough.minutes[4].demand - 2.4).abs() < 0.4, "{:?}", enough.minutes[4]);
    let half = RequestSettings { initial: 1, ..settings };
    let late = play(&half, &mut Constant, load(&[2.4; 10], 3));
    assert!(late.late_minutes >= 8, "{}", late.late_minutes);
    assert!(late.first_token_seconds.p95 > 20.0 * enough.first_token_seconds.p95);
    assert!(late.queue_seconds.p99 <= late.first_token_seconds.p99);
}

#[test]
fn a_step_is_followed_one_cold_start_later() {
    let load = [1.0, 1.0, 1.0, 4.0, 4.0, 4.0, 4.0, 4.0, 4.0, 4.0];
    let score = scaled(&policy(1, 10), &settings(600, 2), &load, Pages::Direct);
    let (before, after) = (score.minutes[2], score.minutes[9]);
    assert!(before.ready < 3.0, "{before:?}");
    assert!(after.ready >= 4.0, "{after:?}");
    // Ordered at 3:10 at the earliest, ready 102 s later.
    assert!(score.minutes[4].ready < 3.0 && score.minutes[4].paid >= 4.0, "{:?}", score.minutes[4]);
    assert!(score.late_minutes <= 4, "{}", score.late_minutes);
}

#[test]
fn at_zero_the_first_request_wakes_the_tier_and_waits_for_one_cold_start() {
    let policy = policy(0, 4);
    let settings = settings(900, 0);
    let chain = AutoscalerSettings::recommended(0, 4);
    let mut scaler = ScalerSizer::new(&policy, chain, Sight::default(), settings.begins, 0);
    let score = play(&settings, &mut scaler, std::iter::once(one(400.0, 100, 10)));
    assert_eq!((score.finished, score.starts), (1, 1));
    let waited = score.queue_seconds.p50;
    // The queue is looked at every second, the answer is pushed, and the start takes 102 s.
    assert!((102.0..107.0).contains(&waited), "{waited}");
    assert_eq!(score.minutes[5].paid, 0.0);
    assert_eq!(score.late_minutes, 1);
}

#[test]
fn zero_comes_back_after_keda_s_cooldown() {
    let policy = policy(0, 4);
    let settings = settings(3600, 1);
    let chain = AutoscalerSettings::recommended(0, 4);
    let mut scaler = ScalerSizer::new(&policy, chain, Sight::default(), settings.begins, 0);
    let score = play(&settings, &mut scaler, load(&[0.3; 5], 1));
    assert!(score.minutes[8].paid > 0.0, "the cooldown is five minutes");
    assert_eq!(score.minutes[55].paid, 0.0);
    assert_eq!(score.lost(), 0);
}

#[test]
fn a_short_drain_cuts_requests_off_and_a_long_one_does_not() {
    /// Goes down to one replica after a minute.
    struct Down(Option<Moment>);
    impl Sizer for Down {
        fn next(&self) -> Option<Moment> {
            self.0
        }
        fn act(&mut self, _: Moment, fleet: &mut Fleet) {
            self.0 = None;
            fleet.scale(1);
        }
    }
    let lost = |drain: u64| {
        let settings = RequestSettings { drain: Duration::from_secs(drain), ..settings(400, 3) };
        let score = play(&settings, &mut Down(Some(Moment::from_seconds(60.0))), load(&[2.0, 0.5], 1));
        assert_eq!(score.requests, score.finished + score.lost());
        (score.cut_off, score.gpu_hours * 3600.0)
    };
    let (short, long) = (lost(2), lost(120));
    assert!(short.0 > 5 && long.0 == 0, "{short:?} {long:?}");
    // A drained replica is given back when it is empty, not at its deadline.
    assert!(long.1 > short.1 && long.1 < 400.0 + 2.0 * 180.0, "{long:?}");
}

#[test]
fn a_floor_is_ready_when_it_opens() {
    let mut policy = policy(1, 10);
    policy.floors = vec![Floor {
        name: "launch".to_owned(),
        window: Window::parse("UTC", "10 8 * * *", "0 18 * * *").unwrap(),
        replicas: 5,
    }];
    let score = scaled(&policy, &settings(660, 1), &[0.2; 11], Pages::Direct);
    assert!(score.minutes[6].ready < 2.0);
    assert_eq!(score.minutes[10].ready, 5.0);
}

#[test]
fn a_stock_out_leaves_the_fleet_as_it_is_and_work_waits() {
    let mut settings = settings(900, 2);
    let load = [1.0, 1.0, 4.0, 4.0, 4.0, 4.0, 4.0, 4.0, 4.0, 4.0, 4.0, 4.0, 4.0, 4.0, 4.0];
    let fine = scaled(&policy(1, 10), &settings, &load, Pages::Direct);
    settings.trouble.stock_outs = vec![StockOut { from: Moment::START, until: Moment::from_seconds(600.0) }];
    let held = scaled(&policy(1, 10), &settings, &load, Pages::Direct);
    assert_eq!(held.minutes[9].ready, 2.0);
    assert!(held.minutes[14].ready > 4.0);
    assert!(held.late_minutes > fine.late_minutes + 4, "{} {}", held.late_minutes, fine.late_minutes);
}

#[test]
fn a_prefix_cache_shortens_prompts() {
    let run = |hit_rate: f64| {
        let settings = RequestSettings { hit_rate, ..settings(300, 1) };
        play(&settings, &mut Constant, load(&[0.9; 5], 1)).first_token_seconds.p50
    };
    assert!(run(0.8) < run(0.0) * 0.8, "{} {}", run(0.8), run(0.0));
}

#[test]
fn hashes_of_prefixes_hit_more_where_the_router_knows_them() {
    let run = |routing: Routing| {
        let settings = RequestSettings { routing, prefix_block_tokens: 128, ..settings(300, 4) };
        // 63 conversations of 16 blocks: a quarter of them fills a replica's 323 blocks, all of them don't fit.
        let arrivals = (0..900_u64).map(|n| {
            let conversation = n * 37 % 63;
            let prefix = (0..16).map(|block| conversation * 1000 + block).collect();
            ArrivingRequest { prefix: Some(prefix), ..one(n as f64 * 0.3, 2048, 20) }
        });
        play(&settings, &mut Constant, arrivals).first_token_seconds.p50
    };
    let (blind, hashed) = (run(Routing::RoundRobin), run(Routing::PrefixHash));
    assert!(hashed < blind * 0.7, "{hashed} {blind}");
    let scored = run(Routing::Scored { prefix_weight: 3.0 });
    assert!(scored < blind, "{scored} {blind}");
}

/// Notes what it sees, and wishes a KV usage of 80 %.
struct Watching(Arc<Mutex<Vec<(Moment, Seen)>>>);

impl Rival for Watching {
    fn metric_age(&self) -> Duration {
        Duration::from_secs(15)
    }

    fn chain(&self, min: u32, max: u32) -> Option<AutoscalerSettings> {
        Some(AutoscalerSettings::defaults(min, max))
    }

    fn goes_by_first_tokens(&self) -> bool {
        true
    }

    fn wish(&mut self, now: Moment, seen: &Seen) -> Wish {
        self.0.lock().unwrap().push((now, seen.clone()));
        let sum = seen.kv_usage().unwrap_or(0.0);
        let metric = Metric { value_milli: (sum * 1000.0) as i64, target_milli: 800 };
        Wish::Metrics(vec![Some(Signal::AverageValue(metric))])
    }
}

#[test]
fn a_rival_sees_the_fleet_of_fifteen_seconds_ago_and_its_hpa_follows_it() {
    let notes = Arc::new(Mutex::new(Vec::new()));
    let mut sizer = RivalSizer::new(Box::new(Watching(Arc::clone(&notes))), 1, 6);
    let settings = settings(900, 1);
    let load = [2.0; 15];
    let score = play(&settings, &mut sizer, self::load(&load, 1));
    assert!(score.starts > 0 && score.minutes[14].ready >= 2.0, "{:?}", score.minutes[14]);
    let seen = notes.lock().unwrap();
    assert!(seen.iter().all(|(now, seen)| now.since(seen.at) == Duration::from_secs(15)));
    assert_eq!(seen[0].0, Moment::from_seconds(20.0), "the first slot ends at 5 s");
    let (_, later) = seen.iter().find(|(now, _)| now.seconds() >= 90.0).unwrap();
    let replica = later.ready[0];
    assert!(replica.kv_usage.unwrap() > 0.8 && replica.waiting > 5.0 && replica.busy > 0.99, "{replica:?}");
    assert!(replica.waiting_prompt_tokens > 5_000.0 && replica.kv_tokens.unwrap() > 41_000.0);
    assert!((later.offered.replicas - 2.0).abs() < 1.5, "{:?}", later.offered);
    assert!(later.served.replicas > 0.5 && later.served.replicas < 1.5, "{:?}", later.served);
    assert!(later.first_token_p95_seconds.unwrap() > 1.0 && later.inter_token_seconds.unwrap() > 0.019);
}

#[test]
fn a_rival_without_an_hpa_writes_its_count_within_its_bounds() {
    struct Writes;
    impl Rival for Writes {
        fn metric_age(&self) -> Duration {
            Duration::ZERO
        }
        fn chain(&self, _: u32, _: u32) -> Option<AutoscalerSettings> {
            None
        }
        fn wish(&mut self, _: Moment, _: &Seen) -> Wish {
            Wish::Replicas(99)
        }
    }
    let score = play(&settings(300, 1), &mut RivalSizer::new(Box::new(Writes), 1, 6), std::iter::empty());
    assert_eq!((score.starts, score.minutes[4].ready), (5, 6.0));
}

#[test]
fn nothing_arriving_is_no_late_minute() {
    let score = play(&settings(120, 1), &mut Constant, std::iter::empty());
    assert_eq!((score.late_work, score.late_minutes, score.requests), (0.0, 0, 0));
    let rates: TokenRates = capacity().rates;
    assert!(rates.input_tokens_per_second > 0.0);
}

/// A fleet of one before which clients try again, with an outage from 60 s to 70 s.
fn stormy(backoff: Backoff) -> RequestSettings {
    RequestSettings {
        clients: Some(Clients { backoff, patience: Duration::from_secs(60) }),
        outage: Some((Moment::from_seconds(60.0), Moment::from_seconds(70.0))),
        ..settings(180, 1)
    }
}

#[test]
fn what_an_outage_refuses_or_cuts_off_is_tried_again_and_nothing_is_lost() {
    let settings = stormy(Backoff::Fixed(Duration::from_secs(4)));
    // One that runs as the outage begins, and one that comes in the middle of it.
    let arrivals = [one(59.0, 100, 500), one(65.0, 100, 10)];
    let score = play(&settings, &mut Constant, arrivals.into_iter());
    assert_eq!((score.requests, score.finished, score.lost(), score.unfinished), (2, 2, 0, 0));
    // The second one tries at 65, 69 and 73 s.
    assert!((8.0..8.4).contains(&score.queue_seconds.p99), "{:?}", score.queue_seconds);
    let alone = RequestSettings { clients: None, ..settings };
    let lost = play(&alone, &mut Constant, [one(59.0, 100, 500), one(65.0, 100, 10)].into_iter());
    assert_eq!((lost.cut_off, lost.refused, lost.finished), (1, 1, 0));
}

#[test]
fn every_try_counts_as_offered_and_every_request_only_once() {
    struct Counts(u64, u64);
    impl Sizer for Counts {
        fn next(&self) -> Option<Moment> {
            Some(Moment::from_seconds(if self.0 == 0 { 100.0 } else { 1e6 }))
        }
        fn act(&mut self, _: Moment, fleet: &mut Fleet) {
            (self.0, self.1) = (fleet.offered().requests, fleet.turned_away());
        }
    }
    let mut counts = Counts(0, 0);
    let settings = stormy(Backoff::Fixed(Duration::from_secs(1)));
    let arrivals = (0..5).map(|n| one(60.5 + f64::from(n), 100, 10));
    let score = play(&settings, &mut counts, arrivals);
    // Refused at 60.5 and every second until 69.5: ten times, then nine, down to six.
    assert_eq!((score.requests, counts.0, counts.1), (5, 45, 40));
    assert_eq!((score.finished, score.lost()), (5, 0));
}

#[test]
fn pools_are_played_as_if_alone_by_whoever_leaves_them_alone() {
    struct Nobody;
    impl PoolsSizer for Nobody {
        fn next(&self) -> Option<Moment> {
            None
        }
        fn act(&mut self, _: Moment, _: &mut [&mut Fleet]) {}
    }
    let (first, second) = (settings(120, 2), RequestSettings { seed: 9, ..settings(120, 1) });
    let pools = vec![
        Pool { settings: &first, arrivals: Box::new(load(&[1.0, 2.0], 1)) },
        Pool { settings: &second, arrivals: Box::new(load(&[0.5, 0.5], 2)) },
    ];
    let together = play_pools(pools, &mut Nobody);
    let apart = [
        play(&first, &mut Constant, load(&[1.0, 2.0], 1)),
        play(&second, &mut Constant, load(&[0.5, 0.5], 2)),
    ];
    assert_eq!(together, apart);
}
