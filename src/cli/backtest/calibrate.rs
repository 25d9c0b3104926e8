//! `backtest calibrate`: the step law of an engine from a log of its requests, and how far off it is.

use std::io::BufReader;
use std::path::PathBuf;
use std::process::ExitCode;

use serde::Serialize;

use super::inputs::opened;
use crate::backtest::TraceError;
use crate::backtest::calibrate::{
    Calibration, Compared, GOOD, Known, LawTerms, Limit, RequestLog, StatedLimits, calibrate, score,
};
use crate::cli::BadFlag;
use crate::cli::print::answer;
use crate::simulate::profile::{BLOCK_TOKENS, EngineSettings};

/// Limits without a bound of sense are slips.
const MOST_KV_TOKENS: u32 = 1 << 30;

/// Arguments of `backtest calibrate`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The log: JSON lines or CSV, one request a line (docs/calibrate.md has the columns). Of one engine, from when it was idle.
    #[arg(long, value_name = "FILE")]
    requests: PathBuf,
    /// KV tokens of the engine, as its log tells at its start; found out where not given.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(64..=i64::from(MOST_KV_TOKENS)))]
    kv_tokens: Option<u32>,
    /// `--max-num-seqs` of the engine; found out where not given.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    max_num_seqs: Option<u32>,
    /// `--max-num-batched-tokens` of the engine; found out where not given.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    token_budget: Option<u32>,
    /// Fits nothing: scores this law, as `calibrate` prints it. Needs the three limits.
    #[arg(long, value_name = "A,B,C,D,E", value_delimiter = ',', requires_all = ["kv_tokens", "max_num_seqs", "token_budget"])]
    law: Option<Vec<f64>>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
///
/// # Errors
/// When the file can't be read (exit code 1); for a bad log, or one that can't teach (64). An error above the promise is
/// told, and is no failure.
pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let name = args.requests.display().to_string();
    let bad = |what: String| BadFlag(format!("--requests {name}: {what}"));
    let opened = opened(&args.requests, &format!("--requests {name}"))?;
    let log = RequestLog::read(BufReader::new(opened)).map_err(|error| match error {
        TraceError::Io(error) => anyhow::Error::new(error).context(name.clone()),
        TraceError::Bad { .. } => bad(error.to_string()).into(),
    })?;
    let stated = StatedLimits {
        kv_tokens: args.kv_tokens,
        max_num_seqs: args.max_num_seqs,
        token_budget: args.token_budget,
    };
    let text = if let Some(law) = &args.law {
        let settings = settings(law, stated)?;
        let scores = score(&log, settings).map_err(bad)?;
        if args.json { json(&scores)? } else { table(&scores).join("\n") }
    } else {
        let found = calibrate(&log, stated).map_err(bad)?;
        if args.json { json(&found)? } else { told(&found) }
    };
    answer(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn json(value: &impl Serialize) -> anyhow::Result<String> {
    Ok(format!("{}\n", serde_json::to_string_pretty(value)?))
}

fn settings(law: &[f64], stated: StatedLimits) -> Result<EngineSettings, BadFlag> {
    let &[step_ms, prompt_token_us, sequence_us, context_token_ns, attended_pair_ns] = law else {
        return Err(BadFlag("--law: five numbers".to_owned()));
    };
    if law.iter().any(|term| !(0.0..=1e6).contains(term)) || step_ms <= 0.0 {
        return Err(BadFlag("--law: numbers from 0 to a million, and the first above 0".to_owned()));
    }
    let terms = LawTerms { step_ms, prompt_token_us, sequence_us, context_token_ns, attended_pair_ns };
    let kv_tokens = stated.kv_tokens.unwrap_or(MOST_KV_TOKENS);
    let mut settings = EngineSettings::new(terms.law(), kv_tokens);
    settings.max_model_len = kv_tokens / BLOCK_TOKENS * BLOCK_TOKENS;
    settings.max_num_seqs = stated.max_num_seqs.unwrap_or(settings.max_num_seqs);
    settings.token_budget = stated.token_budget.unwrap_or(settings.token_budget);
    Ok(settings)
}

fn told(found: &Calibration) -> String {
    let LawTerms { step_ms, prompt_token_us, sequence_us, context_token_ns, attended_pair_ns } = found.law;
    let mut lines = vec![
        format!(
            "fitted to the even ones of {} requests, scored on the {} odd ones",
            found.requests, found.held_out
        ),
        String::new(),
        "a step takes".to_owned(),
        format!("  {step_ms:10.3} ms"),
        format!("+ {prompt_token_us:10.3} us a prompt token"),
        format!("+ {sequence_us:10.3} us a sequence that decodes"),
        format!("+ {context_token_ns:10.3} ns a token of its context"),
        format!("+ {attended_pair_ns:10.3} ns a prompt token and one that it attends to"),
        format!(
            "  --law {step_ms:.4},{prompt_token_us:.4},{sequence_us:.4},{context_token_ns:.4},{attended_pair_ns:.4}"
        ),
        String::new(),
    ];
    for (name, limit) in [
        ("KV tokens", found.kv_tokens),
        ("max_num_seqs", found.max_num_seqs),
        ("max_num_batched_tokens", found.token_budget),
    ] {
        lines.push(format!("{name:<24}{}", limited(limit)));
    }
    lines.push(format!("{:<24}{}", "preemptions", found.preemptions));
    lines.push(String::new());
    lines.extend(table(&found.scores));
    lines.push(match found.why_no_capacity() {
        None => format!(
            "capacity: {{inputTokensPerSecond: {:.0}, outputTokensPerSecond: {:.0}}}",
            found.input_tokens_per_second, found.output_tokens_per_second
        ),
        Some(why) => format!("no capacity from this: {why}"),
    });
    lines.push(String::new());
    lines.join("\n")
}

fn limited(limit: Limit) -> String {
    let known = match limit.known {
        Known::Stated => "as stated",
        Known::Seen => "seen: others waited while so many ran",
        Known::Fitted => "fitted",
        Known::DidNotBind => "not seen to bind",
    };
    match limit.value {
        Some(value) => format!("{value} ({known})"),
        None => known.to_owned(),
    }
}

fn table(scores: &[Compared]) -> Vec<String> {
    let mut lines = vec![format!("{:<12}{:>5}{:>15}{:>14}{:>9}", "", "", "measured", "simulated", "error")];
    for score in scores {
        let Compared { quantity, quantile, measured_seconds, simulated_seconds, error } = *score;
        lines.push(format!(
            "{:<12}{:>5}{:>12.1} ms{:>11.1} ms{:>+7.1} %{}",
            quantity.name(),
            format!("p{:.0}", quantile * 100.0),
            measured_seconds * 1e3,
            simulated_seconds * 1e3,
            error * 100.0,
            if error.abs() > GOOD { "  above 10 %" } else { "" }
        ));
    }
    let beyond = scores.iter().filter(|score| score.error.abs() > GOOD).count();
    lines.push(match beyond {
        0 => "within 10 % everywhere".to_owned(),
        n => format!("{n} of {} beyond 10 %", scores.len()),
    });
    lines.push(String::new());
    lines
}
