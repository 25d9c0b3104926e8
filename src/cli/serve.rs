//! The command `serve`.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use tracing::{info, warn};

use super::print::aside;
use super::{BadFlag, EXIT_USAGE};
use crate::clock::Clock;
use crate::config::{self, LoadError};
use crate::server::{self, ServerOptions};
use crate::supervise::Signals;
use crate::telemetry::{self, LogError, LogFormat};

/// Arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The configuration file: see `schema`, and docs/configuration.md.
    #[arg(long, short, value_name = "FILE", env = "KEDA_VLLM_SCALER_CONFIG")]
    config: PathBuf,
    /// How log lines look.
    #[arg(long, value_enum, default_value_t, env = "KEDA_VLLM_SCALER_LOG_FORMAT")]
    log_format: LogFormat,
    /// What is logged: a level, or directives such as `info,keda_vllm_scaler::scrape=debug`. (What `kube_runtime` says of
    /// watches is said by the source in its own words.)
    #[arg(
        long,
        default_value = "info,kube_runtime=off",
        value_name = "FILTER",
        env = "KEDA_VLLM_SCALER_LOG"
    )]
    log: String,
}

/// Runs until SIGTERM or SIGINT. SIGHUP reads the configuration again.
///
/// # Errors
/// When a port can't be bound, or a task ends that must not. A bad configuration is printed and exits with 64.
pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let Args { config: file, log_format, log } = args;
    let config = match config::load_file(&file) {
        Ok(config) => config,
        Err(LoadError::Io(error)) => return Err(error).with_context(|| file.display().to_string()),
        Err(error) => {
            aside(format_args!("error: {}: {error}", file.display()));
            return Ok(ExitCode::from(EXIT_USAGE));
        }
    };
    let missing = config::missing_files(&config);
    if !missing.is_empty() {
        for problem in missing {
            aside(format_args!("error: {}: {problem}", file.display()));
        }
        return Ok(ExitCode::from(EXIT_USAGE));
    }
    telemetry::init(log_format, &log).map_err(|error| match error {
        LogError::BadFilter { .. } => anyhow::Error::new(BadFlag(format!("--log: {error}"))),
        LogError::SetUpAlready => error.into(),
    })?;
    for warning in &config.warnings {
        warn!(%warning, "configuration");
    }
    info!(version = env!("CARGO_PKG_VERSION"), file = %file.display(), tiers = config.tiers.len(), "starting");
    let signals = Signals::of_the_process().context("signals can't be watched")?;
    let running = server::start(ServerOptions {
        config,
        config_file: Some(file),
        clock: Clock::system(),
        injected: HashMap::new(),
    })
    .await?;
    running.run(signals).await?;
    info!("stopped");
    Ok(ExitCode::SUCCESS)
}
