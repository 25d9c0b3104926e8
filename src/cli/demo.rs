//! The command `demo`: the whole loop on one machine, in one command, without a cluster.
//!
//! Simulated vLLM replicas with real sockets and pages, the real server, and a stand-in for KEDA and the HPA that asks it
//! over real gRPC; one weekday of traffic, at 60 times life. At its end the same arrivals under a plain KV target.

use std::io::IsTerminal as _;
use std::process::ExitCode;

use anyhow::Context as _;

use super::BadFlag;
use super::print::answer;
use crate::simulate::world::Outcome;
use crate::supervise::Signals;
use crate::units::format_span;

mod compare;
mod file;
mod keys;
mod lines;
mod options;
mod picture;
mod scaler;
mod session;
mod view;

pub use options::Args;
use session::{End, Session, Settings};

/// Runs the command.
///
/// # Errors
/// When a flag is wrong, a port can't be had or the server doesn't start.
pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let options = args.checked().map_err(BadFlag)?;
    if options.print_config {
        answer(&file::text(&options.tier, file::ROUTER_STAND_IN))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut signals = Signals::of_the_process().context("signals can't be watched")?;
    let tui = !options.no_tui && std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    let session = Session::start(Settings::from(&options)).await?;
    answer(&format!(
        "page     {}\ngRPC     {}  (KEDA's ExternalScaler)\nrunning  {} from {} at {}x; Ctrl-C or SIGTERM ends it with a comparison\n",
        session.page_url(),
        session.grpc_address(),
        format_span(options.run_for),
        options.start,
        options.speed
    ))?;
    let session = if tui {
        view::run(session, &mut signals).await?
    } else {
        lines::run(session, options.every, &mut signals).await
    };
    let end = session.stop().await;
    answer("\nplaying the same arrivals under a plain KV target; Ctrl-C leaves it out ...\n")?;
    let rival = rival_unless_interrupted(end.clone(), &mut signals).await;
    answer(&format!("\n{}\n", compare::table(&end.outcome, rival.as_ref())))?;
    if let Some(note) = compare::pace_note(end.slowest_pace, options.speed) {
        answer(&format!("{note}\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Computes on a thread of its own, which an impatient end of the process need not wait for.
async fn rival_unless_interrupted(end: End, signals: &mut Signals) -> Option<Outcome> {
    let (send, receive) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        // Nobody listens any more after an interruption.
        if send.send(end.rival()).is_err() {
            tracing::debug!("nobody waits for the comparison any more");
        }
    });
    tokio::select! {
        rival = receive => rival.ok(),
        _ = signals.next() => None,
    }
}
