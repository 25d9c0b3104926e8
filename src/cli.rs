//! The command line: what each command takes, and the exit codes.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

pub mod backtest;
pub mod check;
pub mod demo;
pub mod explain;
pub mod print;
pub mod read;
pub mod schema;
pub mod serve;

/// Exit code for a bad configuration or bad flags, of every command (`EX_USAGE` of sysexits.h). Whoever starts the
/// program wrote something that another try won't mend; what may pass by itself is 1.
pub const EXIT_USAGE: u8 = 64;

/// In `--help`.
const EXIT_CODES: &str = "Exit codes:
  0   done
  1   it failed: a file can't be read, a page or a scaler can't be reached, a port is taken
  64  a bad configuration, or bad flags";

/// A flag that is wrong, in a way that only the command itself can see; told and ended with [`EXIT_USAGE`].
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct BadFlag(pub String);

/// A KEDA external scaler that keeps vLLM serving tiers ahead of their cold starts.
#[derive(Debug, Parser)]
#[command(name = "keda-vllm-scaler", version, about, long_about = None, after_help = EXIT_CODES)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Answer KEDA for every tier of a configuration file.
    Serve(serve::Args),
    /// Check a configuration file without a network: every problem with its path and line (exit 64), every warning.
    Check(check::Args),
    /// Print the JSON Schema of the configuration file.
    Schema(schema::Args),
    /// Print what the scaler sees on a metrics page, and what is missing and why.
    Read(read::Args),
    /// Say why tiers are answered what they are, asking a running scaler.
    Explain(explain::Args),
    /// Play a trace of load under a policy, under others and with hindsight: what each costs and who waits.
    Backtest(Box<backtest::Args>),
    /// Run simulated vLLM replicas, the scaler, and a stand-in for KEDA and the HPA on this machine.
    Demo(demo::Args),
}

/// Prints what the parser has to say, help and version included, and gives the exit code.
#[must_use]
pub fn told(error: &clap::Error) -> ExitCode {
    if let Err(unwritten) = error.print() {
        tracing::debug!(%unwritten, "nobody reads standard output");
    }
    if error.use_stderr() { ExitCode::from(EXIT_USAGE) } else { ExitCode::SUCCESS }
}

/// The exit code of a command that failed.
#[must_use]
pub fn failed(error: &anyhow::Error) -> ExitCode {
    if error.is::<BadFlag>() { ExitCode::from(EXIT_USAGE) } else { ExitCode::FAILURE }
}

/// Runs the command that was asked for.
///
/// # Errors
/// Run-time failures, and [`BadFlag`]; a bad configuration is reported by the command itself and exits with 64.
pub async fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    match cli.command {
        Command::Serve(args) => serve::run(args).await,
        Command::Check(args) => check::run(&args),
        Command::Schema(args) => schema::run(&args),
        Command::Read(args) => read::run(args).await,
        Command::Explain(args) => explain::run(args).await,
        Command::Backtest(args) => Box::pin(backtest::run(&args)).await,
        Command::Demo(args) => Box::pin(demo::run(args)).await,
    }
}
