//! The configuration file of the demo's server: what a newcomer would write for this tier, with the replicas handed in
//! instead of looked up. Pure.

use std::fmt::Write as _;
use std::time::Duration;

use chrono::{NaiveTime, Timelike};

use super::options::{COLD_START_SPREAD, DemoFloor, TARGET, TierOptions};
use crate::config::{self, Problem};
use crate::decision::TierId;
use crate::simulate::router::QUEUE_METRIC;
use crate::units::format_span;

/// The label `model_name` of the simulated replicas.
pub(super) const MODEL: &str = "llama-3.1-8b";

/// The demo's tier.
pub(super) fn tier() -> TierId {
    TierId::new("demo", "chat")
}

/// The page of the router where none runs, for a file that is only printed: a good URL at which nothing answers.
pub(super) const ROUTER_STAND_IN: &str = "http://127.0.0.1:2/metrics";

/// The flags that bring in what stands at a path of the tier or the file, the longest paths first.
const FLAGS: &[(&str, &str)] = &[
    ("tiers[0].replicas.min", "--min"),
    ("tiers[0].replicas", "--max"),
    ("tiers[0].coldStart", "--cold-start"),
    ("tiers[0].floors", "--floor"),
    ("tiers[0].warmPool", "--max-ramp"),
    ("tiers[0].hpa", "--hpa-tolerance"),
    ("listen.grpc", "--grpc"),
    // Both are named where they collide.
    ("listen.http", "--http and --grpc"),
];

/// Does the server take the file of these options?
///
/// # Errors
/// Each problem with the flag that brings it in: nobody has seen the file.
pub(super) fn check(options: &TierOptions) -> Result<(), String> {
    let Err(problems) = config::load(&text(options, ROUTER_STAND_IN)) else { return Ok(()) };
    let told = |problem: &Problem| {
        let flag = FLAGS.iter().find(|(path, _)| problem.path.starts_with(path)).map(|(_, flag)| *flag);
        format!("{}: {}", flag.unwrap_or(&problem.path), problem.message)
    };
    Err(problems.iter().map(told).collect::<Vec<_>>().join("; "))
}

/// The file.
pub(super) fn text(options: &TierOptions, router_url: &str) -> String {
    let [kv, tokens, waiting] = options.signal.weights();
    let TierId { namespace, name } = tier();
    let (cold_start, floors, ramp) = (
        format_span(nine_of_ten(options.cold_start)),
        floors(options.floor),
        ramp(options.max_ramp.as_deref()),
    );
    let TierOptions { min, max, input_tokens_per_second, output_tokens_per_second, .. } = options;
    format!(
        r#"listen: {{grpc: "{grpc}", http: "{http}", health: "127.0.0.1:0"}}
tiers:
- name: {name}
  namespace: {namespace}
  source: {{fixed: {{urls: ["http://127.0.0.1:1/metrics"]}}}}   # the demo hands in its pods, as a pod watch would
  scrape: {{interval: 5s, staleAfter: 45s}}   # the clock runs fast: half a second of a busy machine is half a minute
  # the demo's own router, on a port that it finds free
  activator: {{url: "{router_url}", metric: {QUEUE_METRIC}, labels: {{model: {MODEL}}}}}
  replicas: {{min: {min}, max: {max}}}
  coldStart: {cold_start}
  signals:
    kvCache: {{weight: {kv}, target: {TARGET}}}
    tokens: {{weight: {tokens}, target: {TARGET}}}
    waiting: {{weight: {waiting}, drain: 60s}}
  capacity: {{inputTokensPerSecond: {input_tokens_per_second}, outputTokensPerSecond: {output_tokens_per_second}}}
{floors}{ramp}  forecast: {{mode: {forecast}}}
  hpa: {{tolerance: {tolerance}}}
"#,
        grpc = options.grpc,
        http = options.http,
        tolerance = options.hpa_tolerance,
        forecast = if options.forecast { "price" } else { "off" },
    )
}

/// What nine of ten starts take: an operator writes down what can be relied on, not the median.
fn nine_of_ten(median: Duration) -> Duration {
    Duration::from_secs((median.as_secs_f64() * (1.2816 * COLD_START_SPREAD).exp()).ceil() as u64)
}

fn floors(floor: Option<DemoFloor>) -> String {
    let Some(DemoFloor { replicas, window }) = floor else { return String::new() };
    let (start, end) = match window {
        Some((from, to)) => (cron(from), cron(to)),
        // Opens at every midnight, and would close on the last minute of the year.
        None => ("0 0 * * *".to_owned(), "59 23 31 12 *".to_owned()),
    };
    format!(
        "  floors:\n  - {{timezone: UTC, start: \"{start}\", end: \"{end}\", desiredReplicas: {replicas}}}\n"
    )
}

fn cron(time: NaiveTime) -> String {
    format!("{} {} * * *", time.minute(), time.hour())
}

fn ramp(ramp: Option<&str>) -> String {
    let mut text = String::new();
    if let Some(ramp) = ramp {
        // Writing to a String can't fail.
        let written = writeln!(text, "  warmPool: {{maxRamp: {ramp}}}");
        debug_assert!(written.is_ok());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::options::tests::options;
    use super::*;

    #[test]
    fn the_file_is_a_valid_configuration_for_every_choice() {
        for line in [
            "",
            "--floor none --signal kv --min 0",
            "--floor 3 --signal tokens --max-ramp 2xin120s --hpa-tolerance 0.1",
            "--gpu a100-8b --cold-start 60s --floor 22:00..06:00=2 --forecast",
        ] {
            let text = text(&options(line).unwrap().tier, "http://127.0.0.1:1234/metrics");
            let config = config::load(&text).unwrap_or_else(|problems| panic!("{line}\n{text}\n{problems}"));
            assert_eq!(config.tiers[0].policy.tier, tier(), "{line}");
            assert!(config.tiers[0].activator.is_some(), "{line}");
        }
    }

    #[test]
    fn the_switches_reach_the_policy() {
        let text = text(
            &options("--signal kv --min 0 --cold-start 60s --forecast").unwrap().tier,
            "http://127.0.0.1:1/m",
        );
        let config = config::load(&text).unwrap();
        let policy = &config.tiers[0].policy;
        assert_eq!((policy.min, policy.max, policy.cold_start.as_secs()), (0, 24, 69));
        assert!(policy.signals.tokens.weight.abs() < 1e-9 && policy.signals.kv_cache.weight > 0.9);
        assert!(policy.forecast.is_some());
        assert_eq!(policy.floors.len(), 1);
        assert_eq!(policy.floors[0].replicas, 10);
    }
}
