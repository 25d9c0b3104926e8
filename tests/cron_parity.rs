//! Firing times and windows against robfig/cron v3.0.1, the library of KEDA's cron trigger (`fixtures/cron/README.md`).
//!
//! Every row must agree, but for the deviations that are listed here with their reason. Where firing times differ, ours
//! must be exactly the instants whose wall clock the expression names, found minute by minute.

use std::fs;

use chrono::{DateTime, Datelike, TimeDelta, Timelike, Utc};
use chrono_tz::Tz;
use keda_vllm_scaler::schedule::{Window, firings, keda_differences};

/// Accepted by robfig by accident or by a feature that isn't ours, and refused here.
const REFUSED_HERE: [(&str, &str); 6] = [
    (",", "fires never"),
    ("1,,2", "an empty entry is a slip"),
    ("*-5", "robfig reads it as *"),
    ("+5", "robfig reads it as 5"),
    ("TZ=", "the zone has its own key"),
    ("CRON_TZ=", "the zone has its own key"),
];

/// Zones in which robfig's search goes wrong, because it adds hours and days to an instant and a change of the clock at
/// midnight or by half an hour moves it off the grid: it fires on the wrong day or skips a day whose minute exists.
const ZONES_OF_ROBFIG_ERRORS: [&str; 5] =
    ["Africa/Cairo", "Asia/Beirut", "America/Sao_Paulo", "Australia/Lord_Howe", "Pacific/Chatham"];

/// Rows of the random file whose firing times differ for that reason.
const ROWS_OF_ROBFIG_ERRORS: usize = 12;

/// Rows of the random file with an empty entry or a range from `*`.
const ROWS_REFUSED_HERE: usize = 31;

struct Row {
    expression: String,
    zone: String,
    from: DateTime<Utc>,
    /// None where robfig refused.
    firings: Option<Vec<DateTime<Utc>>>,
}

fn rows(file: &str) -> Vec<Row> {
    let path = format!("{}/tests/fixtures/cron/{file}", env!("CARGO_MANIFEST_DIR"));
    fs::read_to_string(path)
        .expect("fixture")
        .lines()
        .map(|line| {
            let cells: Vec<&str> = line.split('\t').collect();
            let [expression, zone, from, verdict, rest] = cells[..] else { panic!("{line}") };
            let firings = (verdict == "OK").then(|| {
                rest.split_whitespace()
                    .filter(|cell| *cell != "NEVER")
                    .map(|cell| cell.parse::<DateTime<chrono::FixedOffset>>().expect(cell).to_utc())
                    .collect()
            });
            Row {
                expression: expression.to_owned(),
                zone: zone.to_owned(),
                from: from.parse().expect("time"),
                firings,
            }
        })
        .collect()
}

/// The next instants whose wall clock the expression names, minute by minute.
fn by_the_wall(row: &Row, count: usize) -> Vec<DateTime<Utc>> {
    let zone: Tz = row.zone.parse().expect("zone");
    let sets: Vec<(Vec<bool>, bool)> = row
        .expression
        .split_whitespace()
        .zip([(0, 59), (0, 23), (1, 31), (1, 12), (0, 6)])
        .map(|(text, (least, most))| slow_set(text, least, most))
        .collect();
    let (_, star_of_month) = sets[2];
    let (_, star_of_week) = sets[4];
    let has = |field: usize, number: u32| sets[field].0[number as usize];
    let mut found = Vec::new();
    let mut at = row.from.with_second(0).and_then(|at| at.with_nanosecond(0)).expect("minute");
    while found.len() < count {
        at += TimeDelta::minutes(1);
        let wall = at.with_timezone(&zone);
        let of_month = has(2, wall.day());
        let of_week = has(4, wall.weekday().num_days_from_sunday());
        let day = if star_of_month || star_of_week { of_month && of_week } else { of_month || of_week };
        if has(0, wall.minute()) && has(1, wall.hour()) && has(3, wall.month()) && day {
            found.push(at);
        }
    }
    found
}

fn slow_number(text: &str) -> u32 {
    const NAMES: [(&str, u32); 19] = [
        ("sun", 0),
        ("mon", 1),
        ("tue", 2),
        ("wed", 3),
        ("thu", 4),
        ("fri", 5),
        ("sat", 6),
        ("jan", 1),
        ("feb", 2),
        ("mar", 3),
        ("apr", 4),
        ("may", 5),
        ("jun", 6),
        ("jul", 7),
        ("aug", 8),
        ("sep", 9),
        ("oct", 10),
        ("nov", 11),
        ("dec", 12),
    ];
    let named = NAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(text)).map(|(_, number)| *number);
    named.unwrap_or_else(|| text.parse().expect(text))
}

fn slow_set(text: &str, lowest: u32, highest: u32) -> (Vec<bool>, bool) {
    let mut set = vec![false; 64];
    let mut star = false;
    for item in text.split(',') {
        let (range, step) = item.split_once('/').map_or((item, None), |(range, step)| (range, Some(step)));
        let step_by: usize = step.map_or(1, |step| step.parse().expect("step"));
        let (begin, end) = match range.split_once('-') {
            _ if range == "*" || range == "?" => {
                star |= step_by == 1;
                (lowest, highest)
            }
            Some((begin, end)) => (slow_number(begin), slow_number(end)),
            None if step.is_some() => (slow_number(range), highest),
            None => (slow_number(range), slow_number(range)),
        };
        for number in (begin..=end).step_by(step_by) {
            set[number as usize] = true;
        }
    }
    (set, star)
}

#[test]
fn handpicked_expressions_fire_when_kedas_library_fires() {
    for row in rows("robfig-v3.0.1-handpicked.tsv") {
        let first_word = row.expression.split(' ').next().expect("word");
        let deviates = REFUSED_HERE
            .iter()
            .any(|(text, _)| first_word == *text || (text.ends_with('=') && first_word.starts_with(text)));
        let ours = firings(&row.expression, &row.zone, row.from);
        match row.firings {
            None => assert!(ours.is_err(), "{} is refused by robfig", row.expression),
            Some(_) if deviates => assert!(ours.is_err(), "{} is refused here", row.expression),
            Some(theirs) if theirs.is_empty() => {
                let message = ours.err().expect("an expression that never fires is refused");
                assert!(message.starts_with("never fires"), "{message}");
            }
            Some(theirs) => {
                let ours: Vec<_> = ours.expect("good").take(theirs.len()).collect();
                assert_eq!(ours, theirs, "{} in {} from {}", row.expression, row.zone, row.from);
            }
        }
    }
}

#[test]
fn random_expressions_fire_when_kedas_library_fires() {
    let mut robfig_errors = 0;
    let mut refused_here = 0;
    for row in rows("robfig-v3.0.1-random-2000.tsv") {
        let ours = firings(&row.expression, &row.zone, row.from);
        let Some(theirs) = &row.firings else {
            assert!(ours.is_err(), "{} is refused by robfig", row.expression);
            continue;
        };
        if theirs.is_empty() {
            assert!(ours.is_err(), "{} never fires", row.expression);
            continue;
        }
        let has_empty_entry = row.expression.split(' ').any(|field| field.split(',').any(str::is_empty));
        if has_empty_entry || row.expression.contains("*-") || row.expression.contains("?-") {
            assert!(ours.is_err(), "{} is refused here", row.expression);
            refused_here += 1;
            continue;
        }
        let ours: Vec<_> = ours.expect("good").take(theirs.len()).collect();
        if &ours == theirs {
            continue;
        }
        let what = format!("{} in {} from {}", row.expression, row.zone, row.from);
        assert!(ZONES_OF_ROBFIG_ERRORS.contains(&row.zone.as_str()), "{what}: {ours:?} for {theirs:?}");
        assert_eq!(ours, by_the_wall(&row, theirs.len()), "{what}");
        robfig_errors += 1;
    }
    assert_eq!((robfig_errors, refused_here), (ROWS_OF_ROBFIG_ERRORS, ROWS_REFUSED_HERE));
}

/// A line of `keda-window-transitions.txt`: `start=".." end=".." ZONE  from ...: true | Fri 12-04 08:00+00 -> true | ..`.
struct Transitions {
    window: Window,
    from: DateTime<Utc>,
    open: bool,
    /// Wall clock with offset, and the state afterwards.
    changes: Vec<(String, bool)>,
}

fn transitions() -> Vec<Result<Transitions, String>> {
    let path = format!("{}/tests/fixtures/cron/keda-window-transitions.txt", env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(path).expect("fixture");
    text.lines()
        .map(|line| {
            let quoted: Vec<&str> = line.split('"').collect();
            let (zone, rest) = quoted[4].trim().split_once("  from ").expect("zone");
            let window = Window::parse(zone, quoted[1], quoted[3]).map_err(|error| error.to_string())?;
            let mut steps = rest.split(" | ");
            let (from, open) = steps.next().and_then(|first| first.rsplit_once(": ")).expect("from");
            let month_of_from = &from[4..6];
            let mut changes = Vec::new();
            for step in steps {
                let (when, open) = step.split_once(" -> ").expect("step");
                changes.push((when.to_owned(), open == "true"));
            }
            let tz: Tz = zone.parse().expect("zone");
            // The walks began at a whole hour of the wall clock of 2026.
            let wall = format!("2026-{month_of_from}-{}T{}:00", &from[7..9], &from[10..15]);
            let wall: chrono::NaiveDateTime = wall.parse().expect(&wall);
            let from = wall.and_local_timezone(tz).earliest().expect("exists").to_utc();
            Ok(Transitions { window, from, open: open == "true", changes })
        })
        .collect()
}

#[test]
fn kedas_windows_are_ours_corrected_by_the_differences_that_check_prints() {
    let mut compared = 0;
    let mut refused = Vec::new();
    for transitions in transitions() {
        let golden = match transitions {
            Ok(golden) => golden,
            Err(message) => {
                refused.push(message);
                continue;
            }
        };
        let zone: Tz = golden.window.timezone.parse().expect("zone");
        let differences = keda_differences(&golden.window, golden.from, 60);
        let keda_open = |at: DateTime<Utc>| {
            let difference = differences.iter().find(|d| d.from <= at && at < d.to);
            difference.map_or_else(|| golden.window.is_open(at), |d| d.keda_open)
        };
        assert_eq!(keda_open(golden.from), golden.open, "{:?}", golden.window);
        let mut at = golden.from;
        let mut open = golden.open;
        for (when, then) in &golden.changes {
            while keda_open(at) == open {
                at += TimeDelta::minutes(1);
            }
            open = !open;
            let wall = at.with_timezone(&zone);
            let shown = format!("{}{}", wall.format("%a %m-%d %H:%M"), &wall.format("%:z").to_string()[..3]);
            assert_eq!((&shown, open), (when, *then), "{:?}", golden.window);
            compared += 1;
        }
    }
    assert_eq!(compared, 47, "every change of the golden walks");
    assert_eq!(refused.len(), 2, "those that never fire: {refused:?}");
}
