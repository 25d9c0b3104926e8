use super::*;

fn times(law: &str) -> Vec<f64> {
    ArrivalLaw::parse(law).unwrap().requests().map(|request| request.at_seconds).collect()
}

#[track_caller]
fn refused(law: &str, words: &str) {
    let told = ArrivalLaw::parse(law).unwrap_err();
    assert!(told.contains(words), "{told}");
}

/// Variance of the intervals over the square of their mean.
fn dispersion(times: &[f64]) -> f64 {
    let intervals: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let mean = intervals.iter().sum::<f64>() / intervals.len() as f64;
    intervals.iter().map(|i| (i - mean).powi(2)).sum::<f64>() / intervals.len() as f64 / mean.powi(2)
}

#[test]
fn the_same_line_draws_the_same_requests_and_another_seed_others() {
    let law = "gamma rate=3 burstiness=0.4 for=5m spread=0.5";
    assert_eq!(times(law), times(law));
    assert_ne!(times(law), times(&format!("{law} seed=2")));
}

#[test]
fn the_rate_and_the_burstiness_are_those_that_are_written() {
    for (law, dispersed) in [("poisson", 1.0), ("gamma burstiness=0.25", 4.0), ("gamma burstiness=4", 0.25)] {
        let times = times(&format!("{law} rate=10 for=1h"));
        assert!((35_000..37_000).contains(&times.len()), "{law}: {}", times.len());
        assert!((dispersion(&times) / dispersed - 1.0).abs() < 0.1, "{law}: {}", dispersion(&times));
        assert!(times.is_sorted());
    }
}

#[test]
fn a_ramp_meets_its_rate_at_each_instant() {
    let times = times("ramp from=0 to=40 for=1000s");
    let until = |second: f64| times.iter().filter(|at| **at < second).count() as f64;
    assert!((until(1000.0) / 20_000.0 - 1.0).abs() < 0.03, "{}", until(1000.0));
    assert!((until(500.0) / 5_000.0 - 1.0).abs() < 0.05, "{}", until(500.0));
    assert!(*times.last().unwrap() <= 1000.0);
}

#[test]
fn parts_follow_each_other_and_what_is_idle_stays_idle() {
    let law =
        ArrivalLaw::parse("steps rates=20,0,5 each=100s input=100 output=10; poisson rate=1 for=1m").unwrap();
    let trace = law.trace(None).unwrap();
    assert_eq!(trace.slots.len(), 72);
    let sum = |from: usize, to: usize| trace.slots[from..to].iter().map(|s| s.requests).sum::<f64>();
    assert!((1800.0..2200.0).contains(&sum(0, 20)), "{}", sum(0, 20));
    assert_eq!(sum(20, 40), 0.0);
    assert!((400.0..600.0).contains(&sum(40, 60)));
    assert!((trace.slots[0].input_tokens / trace.slots[0].requests - 100.0).abs() < 1e-9);
    assert_eq!(law.trace(Some(3)).unwrap().slots, trace.slots[..3]);
}

#[test]
fn lengths_are_spread_around_their_means() {
    let law = ArrivalLaw::parse("poisson rate=20 for=10m input=1000 output=50 spread=0.5").unwrap();
    let inputs: Vec<u32> = law.requests().map(|request| request.input_tokens).collect();
    assert!(inputs.iter().all(|input| (500..=1500).contains(input)));
    let mean = inputs.iter().map(|input| f64::from(*input)).sum::<f64>() / inputs.len() as f64;
    assert!((mean - 1000.0).abs() < 15.0, "{mean}");
}

#[test]
fn a_slip_is_refused_with_what_to_write() {
    refused("", "no part");
    refused("poisson rate=5", "poisson needs for=");
    refused("poisson rate=-5 for=1m", "rate=-5: 0 to 100000");
    refused("poisson rate=NaN for=1m", "rate=NaN");
    refused("poisson rate=5 for=10", "for=10");
    refused("poisson rate=5 for=0s", "above 0");
    refused("poisson rate=0 for=1m", "every rate is 0");
    refused("poisson rate=100000 for=10d", "86400000000 requests: at most 1000000000");
    refused("poisson rate=5 for=366d; poisson rate=5 for=366d", "longer than 400 days");
    refused("weibull rate=5 for=1m", "write poisson, gamma, ramp or steps");
    refused("poisson rate=5 for=1m step=3", "no key `step`");
    refused("steps rates=1,x each=1m", "rates=x is no number");
    refused("poisson rate", "`rate` is no key=value");
}
