//! The command `check`: a configuration file, without a network.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::json;

use super::EXIT_USAGE;
use super::print::answer;
use crate::clock::Clock;
use crate::config::{self, LoadError, Problem};

/// Arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The configuration file, or the manifest of a ConfigMap that holds it.
    file: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Let warnings fail too.
    #[arg(long)]
    strict: bool,
}

/// What a check found.
struct Report {
    problems: Vec<Problem>,
    warnings: Vec<Problem>,
    tiers: usize,
}

/// Prints every problem and warning.
///
/// # Errors
/// When the file can't be read, told with exit code 1; problems in it exit with 64.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let report = check(&args.file)?;
    let text = if args.json { as_json(&args.file, &report) } else { as_text(&args.file, &report) };
    answer(&text)?;
    let failed = !report.problems.is_empty() || (args.strict && !report.warnings.is_empty());
    Ok(if failed { ExitCode::from(EXIT_USAGE) } else { ExitCode::SUCCESS })
}

fn check(file: &Path) -> anyhow::Result<Report> {
    let whole_file = |message: String| Problem { path: String::new(), line: 1, message };
    let refused = |problems| Ok(Report { problems, warnings: Vec::new(), tiers: 0 });
    let text = match config::read_text(file) {
        Ok(text) => text,
        Err(LoadError::Io(error)) => return Err(anyhow::anyhow!("{}: {error}", file.display())),
        Err(error) => return refused(vec![whole_file(error.to_string())]),
    };
    let manifest = match config::manifest::embedded(&text) {
        Ok(manifest) => manifest,
        Err(why) => return refused(vec![whole_file(why)]),
    };
    let placed = |problem: Problem| match &manifest {
        Some(manifest) => manifest.placed(problem),
        None => problem,
    };
    let config = match config::load(manifest.as_ref().map_or(text.as_str(), |manifest| &manifest.text)) {
        Ok(config) => config,
        Err(problems) => return refused(problems.iter().cloned().map(placed).collect()),
    };
    let mut warnings = config.warnings.clone();
    warnings.extend(config::missing_files(&config));
    warnings.extend(config::keda_differences(&config, Clock::system().now()));
    let mut warnings: Vec<Problem> = warnings.into_iter().map(placed).collect();
    warnings.sort_by_key(|warning| warning.line);
    Ok(Report { problems: Vec::new(), warnings, tiers: config.tiers.len() })
}

fn as_text(file: &Path, report: &Report) -> String {
    // The form that editors and CI systems turn into links.
    let line = |kind: &'static str| {
        move |Problem { path, line, message }: &Problem| {
            let path = if path.is_empty() { String::new() } else { format!("{path}: ") };
            format!("{}:{line}: {kind}: {path}{message}\n", file.display())
        }
    };
    let verdict = match report.problems.len() {
        0 => {
            let (tiers, warnings) =
                (counted(report.tiers, "tier"), counted(report.warnings.len(), "warning"));
            format!("{} is good: {tiers}, {warnings}\n", file.display())
        }
        n => format!("{} is refused: {}\n", file.display(), counted(n, "problem")),
    };
    let errors = report.problems.iter().map(line("error"));
    errors.chain(report.warnings.iter().map(line("warning"))).chain([verdict]).collect()
}

fn counted(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

fn as_json(file: &Path, report: &Report) -> String {
    let report = json!({
        "file": file.display().to_string(),
        "ok": report.problems.is_empty(),
        "tiers": report.tiers,
        "problems": report.problems,
        "warnings": report.warnings,
    });
    format!("{report:#}\n")
}
