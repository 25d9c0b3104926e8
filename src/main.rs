//! The binary: one crypto provider, the arguments, the runtime, the exit code.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use keda_vllm_scaler::cli;

fn main() -> ExitCode {
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        cli::print::aside(format_args!("error: a TLS provider is already installed"));
        return ExitCode::FAILURE;
    }
    let cli = match cli::Cli::try_parse() {
        Ok(cli) => cli,
        Err(told) => return cli::told(&told),
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            cli::print::aside(format_args!("error: the runtime doesn't start: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let ended = runtime.block_on(cli::run(cli));
    // What still blocks, such as a read of a mount that hangs, must not keep the process.
    runtime.shutdown_timeout(Duration::from_millis(200));
    match ended {
        Ok(code) => code,
        Err(error) => {
            cli::print::aside(format_args!("error: {error:#}"));
            cli::failed(&error)
        }
    }
}
