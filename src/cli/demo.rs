//! The command `demo`: the whole loop on one machine, in one command, without a cluster.
//!
//! Simulated vLLM replicas with real sockets and pages, the real server, and a stand-in for KEDA and the HPA that asks it
//! over real gRPC; one weekday of traffic, at 60 times life. At its end the same arrivals under a plain KV target.

use std::io::IsTerminal as _;
use std::process::ExitCode;

use crate::simulate::world::Outcome;
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
/// When a port can't be had or the server doesn't start.
pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let options = match args.checked() {
        Ok(options) => options,
        Err(problem) => {
            eprintln!("error: {problem}");
            return Ok(ExitCode::from(super::EXIT_BAD_CONFIGURATION));
        }
    };
    if options.print_config {
        print!("{}", file::text(&options.tier, "http://127.0.0.1:0/metrics"));
        return Ok(ExitCode::SUCCESS);
    }
    let tui = !options.no_tui && std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    let session = Session::start(Settings::from(&options)).await?;
    println!("page     {}", session.page_url());
    println!("gRPC     {}  (KEDA's ExternalScaler)", session.grpc_address());
    println!(
        "running  {} from {} at {}x; Ctrl-C ends it with a comparison",
        format_span(options.run_for),
        options.start,
        options.speed
    );
    let session = if tui { view::run(session).await? } else { lines::run(session, options.every).await };
    let end = session.stop().await;
    println!("\nplaying the same arrivals under a plain KV target; Ctrl-C leaves it out ...");
    let rival = rival_unless_interrupted(end.clone()).await;
    println!("\n{}", compare::table(&end.outcome, rival.as_ref()));
    if let Some(note) = compare::pace_note(end.slowest_pace, options.speed) {
        println!("{note}");
    }
    Ok(ExitCode::SUCCESS)
}

/// Computes on a thread of its own, which an impatient end of the process need not wait for.
async fn rival_unless_interrupted(end: End) -> Option<Outcome> {
    let (send, receive) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        // Nobody listens any more after an interruption.
        send.send(end.rival()).ok();
    });
    tokio::select! {
        rival = receive => rival.ok(),
        _ = tokio::signal::ctrl_c() => None,
    }
}
