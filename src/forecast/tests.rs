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
}

impl Play {
    fn new() -> Self {
        let mut play = Self { forecast: Forecast::default(), at: 1_764_547_200_000 };
        play.forecast.learn(play.at, None, 4, &terms());
        play
    }

    /// One bin at this load, None where nobody sees it. Gives what is asked for.
    fn bin(&mut self, load: Option<f64>) -> Option<u32> {
        for _ in 0..SLOTS_A_BIN {
            self.at += 5_000;
            self.forecast.learn(self.at, load.map(|load| load * SLOT_SECONDS), 4, &terms());
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
        self.forecast.ask(&Steady(6.0), &terms()).map(|(_, ask)| ask.replicas)
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
    assert!(written.len() < 200_000, "{}", written.len());
    let restored = serde_json::from_str::<Forecast>(&written).unwrap().restored().unwrap();
    let mut again = Play { forecast: restored, at: play.at };
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
