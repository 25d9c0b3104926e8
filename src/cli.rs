//! The command line: what each command takes, and the exit codes.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

pub mod check;
pub mod demo;
pub mod explain;
pub mod read;
pub mod schema;
pub mod serve;

/// Exit code for a bad configuration (`EX_USAGE` of sysexits.h).
pub const EXIT_BAD_CONFIGURATION: u8 = 64;

/// A KEDA external scaler that keeps vLLM serving tiers ahead of their cold starts.
#[derive(Debug, Parser)]
#[command(name = "keda-vllm-scaler", version, about, long_about = None)]
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
    /// Run simulated vLLM replicas, the scaler, and a stand-in for KEDA and the HPA on this machine.
    Demo(demo::Args),
}

/// Runs the command that was asked for.
///
/// # Errors
/// Run-time failures; a bad configuration is reported by the command itself and exits with 64.
pub async fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    match cli.command {
        Command::Serve(args) => serve::run(args).await,
        Command::Check(args) => check::run(&args),
        Command::Schema(args) => schema::run(&args),
        Command::Read(args) => read::run(args).await,
        Command::Explain(args) => explain::run(args).await,
        Command::Demo(args) => demo::run(args).await,
    }
}
