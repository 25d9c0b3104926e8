//! Days of load in a loop: a bin at a time, three rounds each.

use super::*;

const DAY: usize = BINS_A_DAY;

/// Default: 180 s of cold start and 25 s on the way, 5 s may wait.
fn terms() -> Terms {
    Terms::new(205.0, 210.0, 5.0, 30.0)
}

/// A fleet that always has so many.
struct Steady(f64);

impl Standing for Steady {
    fn ready(&self) -> f64 {
        self.0
    }

    fn total(&self) -> f64 {
        self.0
    }

    fn queued(&self) -> f64 {
        0.0
    }

    fn ready_after(&self, _: usize) -> f64 {
        self.0
    }
}

struct Play {
    forecast: Forecast,
    at: i64,
    terms: Terms,
}

impl Play {
    fn new() -> Self {
        let mut play = Self { forecast: Forecast::default(), at: 1_764_547_200_000, terms: terms() };
        play.forecast.learn(play.at, None, 4, &terms());
        play
    }

    /// One bin at this load, None where nobody sees it. Gives what is asked for.
    fn bin(&mut self, load: Option<f64>) -> Option<u32> {
        for _ in 0..SLOTS_A_BIN {
            self.at += 5_000;
            self.forecast.learn(self.at, load.map(|load| load * SLOT_SECONDS), 4, &self.terms);
        }
        self.ask()
    }

    /// So many bins.
    fn watch(&mut self, bins: usize, load: impl Fn(usize) -> f64) {
        for bin in 0..bins {
            self.bin(Some(load(bin)));
        }
    }

    fn ask(&self) -> Option<u32> {
        self.forecast.ask(&Steady(6.0), &self.terms).map(|(_, ask)| ask.replicas)
    }
}

/// Noise that is the same in every run.
fn noise(bin: usize) -> f64 {
    let mixed = (bin as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    ((mixed >> 40) as f64 / f64::from(1 << 24)) - 0.5
}

#[test]
fn it_says_nothing_in_its_first_hour() {
    let mut play = Play::new();
    assert!((0..239).all(|_| play.bin(Some(3.0)).is_none()));
    play.bin(Some(3.0));
    assert!(play.ask().is_some());
}

#[test]
fn a_steady_load_gets_a_steady_answer_with_little_to_spare() {
    let mut play = Play::new();
    play.watch(DAY, |bin| 4.0 + 0.2 * noise(bin));
    let asks: Vec<u32> = (0..240).filter_map(|bin| play.bin(Some(4.0 + 0.2 * noise(bin)))).collect();
    assert!(asks.iter().all(|ask| *ask == 5), "{asks:?}");
}

#[test]
fn a_load_that_moves_more_gets_more_to_spare() {
    let spare = |depth: f64| {
        let mut play = Play::new();
        // Waves of half an hour that no time of day explains.
        let load = |bin: usize| 8.0 + depth * (bin as f64 / 37.0).sin() + depth * (bin as f64 / 91.0).cos();
        play.watch(DAY / 2, load);
        let outlook = *play.forecast.outlook().unwrap();
        outlook.spread
    };
    let (calm, rough) = (spare(0.1), spare(1.5));
    assert!(rough > 2.0 * calm, "{calm} {rough}");
}

#[test]
fn a_gap_neither_teaches_nor_scares() {
    let mut play = Play::new();
    play.watch(DAY / 4, |bin| 6.0 + noise(bin));
    let watched: Vec<u32> = (0..80).filter_map(|bin| play.bin(Some(6.0 + noise(bin)))).collect();
    let usual = *watched.iter().min().unwrap()..=*watched.iter().max().unwrap() + 1;
    let spread = play.forecast.outlook().unwrap().spread;
    let blind: Vec<u32> = (0..80).filter_map(|_| play.bin(None)).collect();
    assert!(blind.iter().all(|ask| usual.contains(ask)), "{usual:?}: {blind:?}");
    let after: Vec<u32> = (0..80).filter_map(|bin| play.bin(Some(6.0 + noise(bin)))).collect();
    assert!(after.iter().all(|ask| usual.contains(ask)), "{usual:?}: {after:?}");
    let spread_after = play.forecast.outlook().unwrap().spread;
    assert!((0.6..1.6).contains(&(spread_after / spread)), "{spread} {spread_after}");
}

#[test]
fn a_start_that_hides_a_bin_does_not_stop_the_learning() {
    let mut play = Play::new();
    for bin in 0..DAY / 4 {
        // A replica begins to serve every five minutes.
        play.bin((bin % 20 != 0).then(|| 6.0 + noise(bin)));
    }
    let minutes = play.forecast.track().len();
    assert!(minutes > 330, "{minutes} of six hours");
}

#[test]
fn a_tier_whose_own_requests_queue_longer_than_its_virtual_fleets_has_more_to_spare() {
    let play = |late_share: f64, terms: Terms| {
        let mut play = Play { terms, ..Play::new() };
        for bin in 0..3 * DAY {
            let late = if bin % 120 == 0 { 100.0 * late_share } else { 0.0 };
            let queued = Queued { requests: 100.0, late, by: LateCount::QueueTimes };
            for _ in 0..SLOTS_A_BIN {
                play.at += 5_000;
                play.forecast.tell(Some(queued));
                let work = (8.0 + 3.0 * noise(bin)) * SLOT_SECONDS;
                play.forecast.learn(play.at, Some(work), 4, &play.terms);
            }
        }
        (play.forecast.lateness(&play.terms), play.ask().unwrap())
    };
    let (calm, late) = (play(0.0, terms()), play(0.3, terms()));
    assert!((calm.0 - 1.0).abs() < 1e-9, "{calm:?}");
    assert!(late.0 > 3.0 && late.1 >= calm.1, "48 late minutes a day: {calm:?} {late:?}");
    // With a budget they turn the dial, and count once.
    let budget = play(0.3, terms().with_late_budget(Some(0.001)));
    assert!((budget.0 - 1.0).abs() < 1e-9, "{budget:?}");
}

#[test]
fn what_comes_later_changes_nothing_before() {
    let load = |bin: usize| 5.0 + 2.0 * noise(bin) + (bin as f64 / 300.0).sin();
    let asks = |wild_from: usize| {
        let mut play = Play::new();
        (0..900)
            .map(|bin| play.bin(Some(if bin < wild_from { load(bin) } else { 40.0 * noise(bin).abs() })))
            .collect::<Vec<_>>()
    };
    let (calm, wild) = (asks(900), asks(700));
    assert_eq!(calm[..700], wild[..700]);
    assert_ne!(calm[700..], wild[700..]);
}

#[test]
fn it_goes_on_as_before_from_what_was_written_and_that_is_small() {
    let mut play = Play::new();
    play.watch(DAY / 4, |bin| 6.0 + 2.0 * noise(bin));
    let written = serde_json::to_string(&play.forecast).unwrap();
    assert!(written.len() < 300_000, "{}", written.len());
    let restored = serde_json::from_str::<Forecast>(&written).unwrap().restored().unwrap();
    let mut again = Play { forecast: restored, at: play.at, terms: terms() };
    for bin in 0..100 {
        let load = Some(6.0 + 2.0 * noise(bin));
        assert_eq!(play.bin(load), again.bin(load), "bin {bin}");
    }
}

#[test]
fn what_another_wrote_is_not_calculated_with() {
    let mut play = Play::new();
    play.watch(10, |_| 3.0);
    let mut written: serde_json::Value = serde_json::to_value(&play.forecast).unwrap();
    written["predictor"]["tail"]["classes"] = "AAAA".into();
    let read = serde_json::from_value::<Forecast>(written);
    assert!(read.ok().and_then(Forecast::restored).is_none());
}

#[test]
fn it_never_asks_for_more_than_a_quarter_above_what_was_ever_needed() {
    let mut play = Play::new();
    play.watch(DAY / 4, |bin| if bin % 97 == 0 { 30.0 } else { 1.0 });
    let asks: Vec<u32> =
        (0..200).filter_map(|bin| play.bin(Some(if bin % 97 == 0 { 30.0 } else { 1.0 }))).collect();
    // A bin at 30 needs 22.5 with what may wait.
    assert!(asks.iter().all(|ask| *ask <= 30), "{asks:?}");
}

#[test]
fn what_fewer_late_minutes_would_cost_is_told_after_a_day() {
    let mut play = Play::new();
    // Two minutes of three more at times that no hour explains: late for whoever has nothing to spare.
    let load = |bin: usize| if (bin * bin) % 331 < 8 { 9.0 } else { 5.0 };
    play.watch(DAY - 10, load);
    assert_eq!(play.forecast.frontier(&terms()), None);
    play.watch(DAY / 2, load);
    let frontier = play.forecast.frontier(&terms()).unwrap();
    assert!((4.0..12.0).contains(&frontier.replicas), "{frontier:?}");
    assert!(frontier.late_minutes_a_week > 0.0, "{frontier:?}");
    assert!(frontier.halving_replica_hours_a_day.is_none_or(|hours| hours >= 0.0), "{frontier:?}");
}

#[test]
fn more_of_the_same_load_never_gives_fewer_replicas() {
    // A tier twice as large, its load twice as large at all times: its spread is as well.
    let ask_of = |times: f64| {
        let mut play = Play::new();
        play.watch(DAY / 4, |bin| times * (4.0 + noise(bin)));
        play.ask().unwrap()
    };
    let asks = [1.0, 1.5, 2.0, 3.0, 5.0].map(ask_of);
    assert!(asks.windows(2).all(|pair| pair[0] < pair[1]), "{asks:?}");
}

fn budget_terms() -> Terms {
    terms().with_late_budget(Some(0.001))
}

#[test]
fn with_a_budget_the_dial_leads_and_tells_what_it_used() {
    let mut play = Play::new();
    play.terms = budget_terms();
    play.watch(DAY / 4, |bin| if (bin * bin) % 331 < 8 { 9.0 } else { 5.0 });
    let (leader, _) = play.forecast.ask(&Steady(6.0), &play.terms).unwrap();
    let used = play.forecast.budget_use(&play.terms).unwrap();
    assert_eq!(leader.rule, Rule::Safety(used.safety));
    assert!(
        used.counted == LateCount::VirtualFleet && used.late_share > 0.0 && used.late_budget == 0.001,
        "{used:?}"
    );
    let written = serde_json::to_string(&play.forecast).unwrap();
    let again = serde_json::from_str::<Forecast>(&written).unwrap().restored().unwrap();
    assert_eq!(again.budget_use(&play.terms), Some(used));
    // While the price counts the dial stays where it is.
    play.terms = terms();
    play.watch(40, |_| 5.0);
    let (leader, _) = play.forecast.ask(&Steady(6.0), &play.terms).unwrap();
    assert!(matches!(leader.rule, Rule::Price(_)) && play.forecast.budget_use(&terms()).is_none());
    let then = play.forecast.budget_use(&budget_terms()).unwrap();
    assert_eq!(then.safety, used.safety);
}

#[test]
fn what_nobody_saw_is_no_experience() {
    let mut play = Play::new();
    play.watch(100, |_| 3.0);
    (0..DAY).for_each(|_| assert_eq!(play.bin(None), None));
    assert!(play.forecast.outlook().is_none() && !play.forecast.knows_a_day());
    play.watch(160, |_| 3.0);
    assert!(play.forecast.outlook().is_some() && !play.forecast.knows_a_day());
}

#[test]
fn a_higher_safety_never_asks_for_less() {
    let mut play = Play::new();
    play.watch(DAY / 4, |bin| 6.0 + 2.0 * noise(bin) + if bin % 211 < 6 { 4.0 } else { 0.0 });
    let asks: Vec<u32> = [0.02, 0.1, 0.5, 1.0, 3.0, 10.0, 50.0]
        .iter()
        .map(|times| {
            Rule::Safety(*times).ask(&play.forecast.predictor, &Steady(6.0), &terms(), 20.0).replicas
        })
        .collect();
    assert!(asks.windows(2).all(|pair| pair[0] <= pair[1]) && asks[0] < asks[6], "{asks:?}");
}

#[test]
fn a_change_of_the_clocks_does_not_move_the_jump_of_the_day() {
    // Eight o'clock of people who put their clocks forward at the begin of the last day: an hour earlier in UTC from then on.
    let hour = 3600;
    let last_day = 3 * DAY as i64;
    let ahead_of_utc = |bin: i64| if bin >= last_day { 2 * hour } else { hour };
    let load = |bin: i64| {
        let time = (bin + ahead_of_utc(bin) / 15).rem_euclid(DAY as i64);
        if (8 * 240..8 * 240 + 240).contains(&time) { 10.0 } else { 2.0 + noise(bin as usize) }
    };
    // Shortly before the jump of the last day, half a lead after which it would serve.
    let before = last_day + 8 * 240 - 2 * 240 - 8;
    let expected = |knows_the_zone: bool| {
        let (mut predictor, mut days) = (Predictor::new(), Loads::new());
        for bin in 0..=before {
            let clocks = std::array::from_fn(|ago| ahead_of_utc(bin - (ago * DAY) as i64));
            let terms = if knows_the_zone { terms().with_clocks(clocks) } else { terms() };
            predictor.push(bin, Some(load(bin)), &days, &terms);
            days.push(bin, Some(load(bin)));
        }
        let outlook = *predictor.outlook();
        outlook.expected.max(outlook.jump)
    };
    let (with, without) = (expected(true), expected(false));
    assert!(with > without + 2.0, "{with} {without}");
}

#[test]
fn what_more_queue_and_shorter_starts_would_save_is_told_after_a_day() {
    let mut play = Play::new();
    play.terms = terms().with_cold_start(180.0);
    // Waves of two minutes, which half a minute of queue takes the top off.
    let load = |bin: usize| 5.0 + 3.0 * (bin as f64 / 2.5).sin() + noise(bin);
    play.watch(DAY + DAY / 4, load);
    let frontier = play.forecast.frontier(&play.terms).unwrap();
    let saved = frontier.more_queue_saves_replica_hours_a_day.unwrap();
    assert!(saved > 2.0 && saved < 24.0 * frontier.replicas, "{frontier:?}");
    assert!(frontier.short_start_saves_replica_hours_a_day.is_some_and(|hours| hours >= 0.0), "{frontier:?}");
    assert!(serde_json::to_vec(&play.forecast).unwrap().len() < 400_000);
    // Starts that are as short already save nothing more.
    play.terms = terms().with_cold_start(50.0);
    play.bin(Some(5.0));
    let frontier = play.forecast.frontier(&play.terms).unwrap();
    assert_eq!(frontier.short_start_saves_replica_hours_a_day, None);
}

#[test]
fn what_was_learned_keeps_its_meaning_when_a_replica_turns_out_to_carry_twice() {
    let unit = |times: f64| Unit { input_token: times / 8000.0, output_token: times / 800.0 };
    let load = |bin: usize| 8.0 + 3.0 * (bin as f64 / 900.0).sin() + noise(bin);
    let (mut corrected, mut right_at_once) = (Play::new(), Play::new());
    corrected.forecast.reprice(unit(2.0), 1000.0, 200.0);
    right_at_once.forecast.reprice(unit(1.0), 1000.0, 200.0);
    corrected.watch(DAY + 500, |bin| 2.0 * load(bin));
    right_at_once.watch(DAY + 500, load);
    corrected.forecast.reprice(unit(1.0), 1000.0, 200.0);
    for play in [&mut corrected, &mut right_at_once] {
        play.watch(40, |bin| load(DAY + 500 + bin));
    }
    let [after, expected] = [&corrected, &right_at_once].map(|play| *play.forecast.outlook().unwrap());
    let near = |after: f64, expected: f64| (after / expected - 1.0).abs() < 0.02;
    assert!(near(after.expected, expected.expected), "{after:?} {expected:?}");
    assert!(near(after.spread, expected.spread), "{after:?} {expected:?}");
    assert!(near(after.usual, expected.usual), "{after:?} {expected:?}");
    assert!(after.jump_spreads < 3.0, "the change of the unit is no jump: {after:?}");
}

#[test]
fn a_unit_that_is_no_number_changes_nothing() {
    let mut play = Play::new();
    play.forecast.reprice(Unit { input_token: 1e-4, output_token: 1e-3 }, 1000.0, 200.0);
    play.watch(300, |bin| 4.0 + noise(bin));
    let before = play.forecast.outlook().copied();
    for token in [f64::NAN, 0.0, f64::INFINITY] {
        play.forecast.reprice(Unit { input_token: token, output_token: token }, 1000.0, 200.0);
    }
    assert_eq!(play.forecast.outlook().copied(), before);
}

#[test]
fn a_capacity_that_is_written_in_another_unit_and_corrected_leaves_nothing_behind() {
    let unit = |times: f64| Unit { input_token: times / 8000.0, output_token: times / 800.0 };
    let mut play = Play::new();
    play.forecast.reprice(unit(1.0), 1000.0, 200.0);
    play.watch(600, |bin| 0.3 + 0.1 * noise(bin));
    let before = *play.forecast.outlook().unwrap();
    play.forecast.reprice(unit(0.001), 1000.0, 200.0);
    play.watch(20, |bin| 0.001 * (0.3 + 0.1 * noise(bin)));
    play.forecast.reprice(unit(1.0), 1000.0, 200.0);
    play.watch(4, |bin| 0.3 + 0.1 * noise(bin));
    let after = *play.forecast.outlook().unwrap();
    assert!((after.usual - before.usual).abs() < 0.05, "{before:?} {after:?}");
    assert!((after.expected - before.expected).abs() < 0.1, "{before:?} {after:?}");
    assert!(play.ask().unwrap() <= 3, "1.25 times the largest need and one");
}

#[test]
fn a_load_that_no_tier_has_takes_no_time_to_think_about() {
    let mut play = Play::new();
    play.watch(300, |bin| 4.0 + noise(bin));
    // Were each replica up to it looked at, this would not end.
    play.watch(8, |_| 1e12);
    assert!(play.ask().unwrap() > 1_000_000);
}
