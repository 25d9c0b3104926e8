//! A tier's [`Policy`], for tiers of the file and for those that a ScaledObject's metadata declares.

use std::time::Duration;

use crate::config::problem::{Problems, Read, Reported};
use crate::config::profiles;
use crate::config::section::Section;
use crate::decision::policy::{
    BatchSignal, CapacityPolicy, Combine, DeadBand, Floor, ForecastPolicy, InsideBand, LatencySignal, Policy,
    ScaleDown, Signals, TargetSignal, TierId, TokenRates, WaitingSignal,
};
use crate::schedule::{Window, WindowField, Zone};

/// What passes between a new number and a new pod besides the age of the data: one HPA sync (15 s by default) and 5 s
/// for KEDA's push and the scheduler.
const HPA_SYNC_AND_PUSH: Duration = Duration::from_secs(20);

/// What a policy needs from outside its section.
pub(in crate::config) struct Context {
    pub(in crate::config) tier: Read<TierId>,
    pub(in crate::config) scrape_interval: Read<Duration>,
    /// Why zero replicas can't be allowed; None where they can.
    pub(in crate::config) zero_needs: Option<&'static str>,
    pub(in crate::config) floors_only: bool,
}

/// Resolves the policy part of a tier.
pub(in crate::config) fn policy(
    section: &Section<'_>,
    context: Context,
    problems: &mut Problems,
) -> Read<Policy> {
    let bounds = replicas(&section.section("replicas"), context.zero_needs, problems);
    let floors = floors(section, bounds.as_ref().ok().map(|(_, max)| *max), problems);
    let forecast = forecast(&section.section("forecast"), floors.as_deref().unwrap_or_default(), problems);
    let signals = signals(&section.section("signals"), problems);
    let capacity = capacity(&section.section("capacity"), problems);
    let control_delay = section
        .optional("controlDelay")
        .and_then(|written| Ok(written.unwrap_or(context.scrape_interval? + HPA_SYNC_AND_PUSH)));
    let scale_down = section.section("scaleDown");
    let hpa = section.section("hpa");
    let (min, max) = bounds?;
    Ok(Policy {
        tier: context.tier?,
        min,
        max,
        cold_start: section.get("coldStart")?,
        learn_cold_start: section.get("learnColdStart")?,
        control_delay: control_delay?,
        drain: section.get("drain")?,
        acceptable_queue: section.allowance("acceptableQueue")?,
        signals: signals?,
        combine: match section.get::<String>("combine")?.as_str() {
            "weighted" => Combine::Weighted,
            _ => Combine::Max,
        },
        capacity: capacity?,
        floors: floors?,
        max_ramp: section.optional_section("warmPool").map(|pool| pool.get("maxRamp")).transpose()?,
        forecast: forecast?,
        scale_down: ScaleDown { hold: scale_down.get("hold")?, max_step: scale_down.get("maxStep")? },
        hold_unknown: section.get("holdUnknown")?,
        dead_band: DeadBand {
            tolerance: hpa.get("tolerance")?,
            inside: match hpa.get::<String>("deadBand")?.as_str() {
                "stay" => InsideBand::Stay,
                _ => InsideBand::Exceed,
            },
        },
        floors_only: context.floors_only,
    })
}

fn forecast(
    section: &Section<'_>,
    floors: &[Floor],
    problems: &mut Problems,
) -> Read<Option<ForecastPolicy>> {
    let mode = section.get::<String>("mode");
    let shortage_cost = section.get("shortageCost");
    let late_budget = section.get("lateBudget");
    let timezone = match section.optional::<String>("timezone") {
        Ok(Some(name)) => Zone::parse(&name).map(Some).map_err(|message| {
            problems.push(&section.place_of("timezone"), message);
            Reported
        }),
        Ok(None) => Ok(zone_of(floors)),
        Err(reported) => Err(reported),
    };
    let (mode, shortage_cost, late_budget, timezone) = (mode?, shortage_cost?, late_budget?, timezone?);
    let late_budget = (mode == "budget").then_some(late_budget);
    Ok((mode != "off").then_some(ForecastPolicy { shortage_cost, late_budget, timezone }))
}

/// The zone that all floors name.
fn zone_of(floors: &[Floor]) -> Option<Zone> {
    let first = Zone::parse(&floors.first()?.window.timezone).ok()?;
    floors.iter().all(|floor| Zone::parse(&floor.window.timezone) == Ok(first)).then_some(first)
}

fn replicas(
    section: &Section<'_>,
    zero_needs: Option<&'static str>,
    problems: &mut Problems,
) -> Read<(u32, u32)> {
    let min = section.get::<u32>("min");
    let max = section.get::<u32>("max");
    if let (Ok(0), Some(why)) = (min, zero_needs) {
        problems.push(&section.place_of("min"), format!("0 {why}"));
    }
    if let (Ok(min), Ok(max)) = (min, max)
        && min > max
    {
        problems.push(
            &section.place_of("min"),
            format!("{min} is above the maximum of {max}: lower it or raise `max`"),
        );
    }
    Ok((min?, max?))
}

fn floors(section: &Section<'_>, max: Option<u32>, problems: &mut Problems) -> Read<Vec<Floor>> {
    let sections = section.sections("floors");
    let resolved: Vec<Read<Floor>> = sections.iter().map(|floor| one_floor(floor, max, problems)).collect();
    resolved.into_iter().collect()
}

fn one_floor(section: &Section<'_>, max: Option<u32>, problems: &mut Problems) -> Read<Floor> {
    let replicas = section.get::<u32>("desiredReplicas");
    if let (Ok(replicas), Some(max)) = (replicas, max)
        && replicas > max
    {
        problems.push(
            &section.place_of("desiredReplicas"),
            format!("{replicas} is above the tier's maximum of {max}: lower it or raise `replicas.max`"),
        );
    }
    let window = window(section, problems);
    let name: Option<String> = section.optional("name")?;
    let window = window?;
    let name = name.unwrap_or_else(|| format!("{} to {}", window.start, window.end));
    Ok(Floor { name, window, replicas: replicas? })
}

/// A window names its first bad part only; good ones stand in for it until all bad ones are told.
fn window(section: &Section<'_>, problems: &mut Problems) -> Read<Window> {
    let parts = ["timezone", "start", "end"].map(|name| section.get::<String>(name));
    let mut all_written = parts.iter().all(Result::is_ok);
    let [mut timezone, mut start, mut end] = parts;
    loop {
        let part = |part: &Read<String>, stand_in: &str| part.clone().unwrap_or_else(|_| stand_in.to_owned());
        let parsed =
            Window::parse(&part(&timezone, "UTC"), &part(&start, "0 0 * * *"), &part(&end, "30 12 * * *"));
        let Err(error) = parsed else {
            return if all_written { parsed.map_err(|_| Reported) } else { Err(Reported) };
        };
        let (name, bad_part) = match error.field {
            WindowField::Timezone => ("timezone", &mut timezone),
            WindowField::Start => ("start", &mut start),
            WindowField::End => ("end", &mut end),
            WindowField::Pair => {
                // Against a stand-in the pair means nothing.
                if all_written {
                    problems.push(section.place(), error.message);
                }
                return Err(Reported);
            }
        };
        problems.push(&section.place_of(name), error.message);
        *bad_part = Err(Reported);
        all_written = false;
    }
}

fn signals(section: &Section<'_>, problems: &mut Problems) -> Read<Signals> {
    let target = |name: &str| -> Read<TargetSignal> {
        let signal = section.section(name);
        Ok(TargetSignal { weight: signal.get("weight")?, target: signal.get("target")? })
    };
    let (waiting, batch, latency) =
        (section.section("waiting"), section.section("batch"), section.section("latency"));
    let queue_time_p95 = latency.optional("queueTimeP95");
    let time_to_first_token_p95 = latency.optional("timeToFirstTokenP95");
    let latency_weight = latency.get::<f64>("weight");
    if latency_weight.is_ok_and(|weight| weight > 0.0)
        && (queue_time_p95, time_to_first_token_p95) == (Ok(None), Ok(None))
    {
        problems.push(
            latency.place(),
            "a weight without a target: write `queueTimeP95` or `timeToFirstTokenP95`, or weight: 0",
        );
    }
    let signals = Signals {
        kv_cache: target("kvCache")?,
        tokens: target("tokens")?,
        waiting: WaitingSignal { weight: waiting.get("weight")?, drain: waiting.get("drain")? },
        batch: BatchSignal {
            weight: batch.get("weight")?,
            inter_token_latency: batch.optional("interTokenLatency")?,
            max_running: batch.optional::<u32>("maxRunning")?.map(f64::from),
        },
        latency: LatencySignal {
            weight: latency_weight?,
            queue_time_p95: queue_time_p95?,
            time_to_first_token_p95: time_to_first_token_p95?,
        },
    };
    let weights = [
        signals.kv_cache.weight,
        signals.tokens.weight,
        signals.waiting.weight,
        signals.batch.weight,
        signals.latency.weight,
    ];
    if weights.iter().sum::<f64>() <= 0.0 {
        problems.push(
            section.place(),
            "the weights sum to 0, so no signal counts: give at least one a weight above 0",
        );
    }
    Ok(signals)
}

/// Configured rates, else those of the declared hardware, else the conservative default.
fn capacity(section: &Section<'_>, problems: &mut Problems) -> Read<CapacityPolicy> {
    let input = section.optional::<f64>("inputTokensPerSecond")?;
    let output = section.optional::<f64>("outputTokensPerSecond")?;
    let gpu = section.optional::<String>("gpu")?;
    let size = section.optional::<f64>("modelSize")?;
    let precision = section.optional::<String>("precision")?;
    for (there, given, other, missing) in [
        ("inputTokensPerSecond", input.is_some(), "outputTokensPerSecond", output.is_none()),
        ("outputTokensPerSecond", output.is_some(), "inputTokensPerSecond", input.is_none()),
        ("gpu", gpu.is_some(), "modelSize", size.is_none()),
        ("modelSize", size.is_some(), "gpu", gpu.is_none()),
        ("precision", precision.is_some(), "gpu", gpu.is_none()),
    ] {
        if given && missing {
            problems.push(
                &section.place_of(there),
                format!("`{other}` is missing: `{there}` says nothing without it"),
            );
        }
    }
    let table = match (&gpu, size) {
        (Some(gpu), Some(size)) => Some(profiles::capacity(gpu, size, precision.as_deref())),
        _ => None,
    };
    let configured = input.zip(output).map(|(input_tokens_per_second, output_tokens_per_second)| {
        TokenRates { input_tokens_per_second, output_tokens_per_second }
    });
    let (prior, prior_source, table_kv_tokens) = match (configured, table) {
        (Some(rates), table) => {
            (rates, "configured".to_owned(), table.and_then(Result::ok).and_then(|row| row.kv_tokens))
        }
        (None, Some(Ok(row))) => (row.rates, row.name, row.kv_tokens),
        (None, Some(Err(message))) => {
            problems.push(&section.place_of("gpu"), message);
            return Err(Reported);
        }
        (None, None) => (profiles::CONSERVATIVE, profiles::CONSERVATIVE_NAME.to_owned(), None),
    };
    Ok(CapacityPolicy {
        prior,
        prior_source,
        learn: section.get("learn")?,
        kv_tokens: section.optional("kvTokens")?.or(table_kv_tokens),
    })
}
