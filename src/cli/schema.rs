//! The command `schema`. To be written.

use std::process::ExitCode;

/// Arguments.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs the command.
///
/// # Errors
/// Run-time failures, told on standard error with exit code 1.
pub async fn run(_args: Args) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not available yet")
}
