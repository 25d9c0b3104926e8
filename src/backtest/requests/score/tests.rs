use super::*;

const RATES: TokenRates = TokenRates { input_tokens_per_second: 8000.0, output_tokens_per_second: 700.0 };

fn request(seconds: f64) -> Request {
    Request { id: 0, arrived: Moment::from_seconds(seconds), input: 800, cached: 0, output: 70 }
}

#[test]
fn a_minute_is_late_beyond_one_per_cent_of_the_work_that_arrived_in_it() {
    let mut lateness = Lateness::new(RATES, Duration::from_secs(5));
    for (minute, late) in [(0, 1), (1, 2)] {
        for n in 0..100 {
            let request = request(f64::from(minute) * 60.0 + f64::from(n) / 10.0);
            lateness.arrived(&request);
            let waited = if n < late { 5.1 } else { 5.0 };
            lateness.admitted(&request, Moment::from_seconds(request.arrived.seconds() + waited));
        }
    }
    assert_eq!(lateness.late_minutes(), 1);
    assert!((lateness.late_share() - 3.0 / 200.0).abs() < 1e-12);
}

#[test]
fn what_never_ran_is_late_and_what_was_too_long_is_lost_instead() {
    let mut tally = Tally::new(RATES, Duration::from_secs(5));
    for n in 0..4 {
        tally.arrived(&request(f64::from(n)));
    }
    tally.admitted(&request(0.0), Moment::from_seconds(0.5));
    tally.refused(&request(1.0));
    tally.turned_away();
    tally.cut_off();
    let score = tally.score(Duration::from_secs(60), 1.0, 0, 1);
    // Of four: one ran, one was too long, one was turned away and one never ran.
    assert!((score.late_work - 0.5).abs() < 1e-12);
    assert_eq!((score.lost(), score.refused, score.cut_off, score.late_minutes), (3, 2, 1, 1));
}

#[test]
fn what_arrives_before_the_score_begins_is_in_no_number_but_the_minutes() {
    let mut tally = Tally::new(RATES, Duration::from_secs(5)).scoring_from(1);
    tally.cut_off();
    tally.turned_away();
    for (arrived, waited) in [(0.0, 500.0), (59.9, 500.0), (60.0, 1.0), (119.0, 2.0)] {
        if arrived == 60.0 {
            tally.look(Moment::from_seconds(60.0), 1, 1, 0);
        }
        let request = request(arrived);
        tally.arrived(&request);
        tally.admitted(&request, Moment::from_seconds(arrived + waited));
        tally.first_token(&request, Moment::from_seconds(arrived + waited));
        tally.finished();
    }
    tally.still_without_first_token(Moment::from_seconds(3.0), Moment::from_seconds(900.0));
    let score = tally.score(Duration::from_secs(120), 1.0, 0, 0);
    assert_eq!((score.requests, score.finished, score.lost()), (2, 2, 0));
    assert_eq!((score.late_work, score.late_minutes), (0.0, 0));
    assert!(score.queue_seconds.p99 < 2.1 && score.first_token_seconds.p99 < 2.1, "{score:?}");
    assert_eq!(score.minutes.len(), 2);
    assert!(score.minutes[0].late > 0.99, "the plot shows it");
}

#[test]
fn a_week_of_late_minutes_is_of_what_is_scored() {
    let mut tally = Tally::new(RATES, Duration::from_secs(5)).scoring_from(10);
    tally.arrived(&request(700.0));
    let score = tally.score(Duration::from_secs(20 * 60), 1.0, 0, 1);
    assert_eq!((score.late_minutes, score.late_minutes_a_week), (1, WEEK_MINUTES / 10.0));
}

#[test]
fn quantiles_are_at_most_two_per_cent_too_long_and_nothing_is_zero() {
    let mut tally = Tally::new(RATES, Duration::from_secs(5));
    assert_eq!(quantiles(&tally.queue), QueueTimes::default());
    for n in 1..=100 {
        tally.admitted(&request(0.0), Moment::from_seconds(f64::from(n) / 10.0));
    }
    let found = quantiles(&tally.queue);
    for (found, exact) in [(found.p50, 5.0), (found.p95, 9.5), (found.p99, 9.9)] {
        assert!((exact..exact * 1.0201).contains(&found), "{found} {exact}");
    }
}
