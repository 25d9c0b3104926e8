//! `backtest lesson`: what scaling LLM replicas teaches, each lesson with its table, its picture and what to see.

use std::path::PathBuf;
use std::process::ExitCode;

use super::BadFlag;
use super::page_file::PageFile;
use crate::backtest::lessons::{self, Course, Extent, Lesson};
use crate::cli::print::answer;

const LONG_ABOUT: &str = "\
What scaling LLM replicas teaches: ready scenarios, each with its table, its picture and two sentences of what to see.

Each is a load, a fleet of simulated vLLM replicas and a few policies side by side, request by request, with the server's
own decision. Without a name all are listed. The sentences carry the numbers of the run and are checked against it: with
another seed one may not be so, and then that is said.";

const EXAMPLES: &str = "\
Examples:
  keda-vllm-scaler backtest lesson                                  the list
  keda-vllm-scaler backtest lesson doubling --report page.html      a table, and a page with the picture
  keda-vllm-scaler backtest lesson office --seed 7                  other requests, the same lesson
  keda-vllm-scaler backtest lesson tiers --json | jq .see           what to see, for a program";

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(long_about = LONG_ABOUT, after_help = EXAMPLES)]
pub(super) struct Args {
    /// Which one; without a name all are listed.
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Chooses the requests and the phases; the same seed gives the same bytes.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "name")]
    seed: u64,
    /// Write a page with the picture, too: one file that needs nothing else.
    #[arg(long, value_name = "FILE", requires = "name")]
    report: Option<PathBuf>,
    /// Write the picture alone, too: an SVG.
    #[arg(long, value_name = "FILE", requires = "name")]
    picture: Option<PathBuf>,
    /// Print JSON.
    #[arg(long, requires = "name")]
    json: bool,
}

/// Runs the command.
///
/// # Errors
/// When a file can't be written (exit code 1); for a name that no lesson has (64).
pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let Some(name) = &args.name else {
        answer(&lessons::list())?;
        return Ok(ExitCode::SUCCESS);
    };
    let names = || lessons::ALL.iter().map(|lesson| lesson.name).collect::<Vec<_>>().join(", ");
    let lesson = Lesson::named(name)
        .ok_or_else(|| BadFlag(format!("no lesson is named {name:?}; there are {}", names())))?;
    let file =
        |flag, file: &Option<PathBuf>| file.as_deref().map(|file| PageFile::new(flag, file)).transpose();
    let (page, picture) = (file("--report", &args.report)?, file("--picture", &args.picture)?);
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let told = lesson.play(Course { seed: args.seed, threads, extent: Extent::Whole });
    let text = if args.json { format!("{}\n", serde_json::to_string_pretty(&told)?) } else { told.text() };
    let answered = answer(&text);
    page.map(|page| page.write(&told.page())).transpose()?;
    picture.map(|picture| picture.write(&told.drawing())).transpose()?;
    answered?;
    Ok(ExitCode::SUCCESS)
}
