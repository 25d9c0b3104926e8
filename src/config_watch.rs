//! Takes a changed configuration file to the control loop: on SIGHUP, and when the file's bytes change.
//!
//! The bytes are compared, not the modification time: Kubernetes mounts a ConfigMap as a symbolic link that it turns over,
//! and change notifications of such mounts get lost.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::config;
use crate::control_loop::ConfigUpdate;
use crate::units::format_span;

/// How often the file is looked at, in real time. Kubernetes itself takes up to a minute to change a mount.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// How long a read may take: a network mount that hangs must not end the watch.
const READ_PATIENCE: Duration = Duration::from_secs(3);

/// Watches until `stop`. `hangups` carries SIGHUPs: the file is read again even if its bytes are the same.
pub async fn run(
    file: PathBuf,
    mut hangups: mpsc::Receiver<()>,
    updates: mpsc::Sender<ConfigUpdate>,
    stop: CancellationToken,
) {
    let mut seen = read(&file).await.ok();
    let mut look = tokio::time::interval(LOOK_EVERY);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let forced = tokio::select! {
            () = stop.cancelled() => return,
            _ = look.tick() => false,
            Some(()) = hangups.recv() => true,
        };
        let now_there = read(&file).await;
        if !forced && now_there.as_ref().ok() == seen.as_ref() {
            continue;
        }
        info!(file = %file.display(), forced, "configuration read again");
        let update = match &now_there {
            Ok(text) => match config::load(text) {
                Ok(config) => match config::missing_files(&config).first() {
                    Some(missing) => ConfigUpdate::Rejected(missing.to_string()),
                    None => ConfigUpdate::Accepted(Box::new(config), None),
                },
                Err(problems) => ConfigUpdate::Rejected(problems.to_string()),
            },
            Err(error) => ConfigUpdate::Rejected(error.clone()),
        };
        seen = now_there.ok();
        if updates.send(update).await.is_err() {
            return;
        }
    }
}

async fn read(file: &Path) -> Result<String, String> {
    let path = file.to_owned();
    let reading =
        tokio::task::spawn_blocking(move || config::read_text(&path).map_err(|error| error.to_string()));
    match tokio::time::timeout(READ_PATIENCE, reading).await {
        Ok(read) => read.map_err(|error| error.to_string())?,
        Err(_) => Err(format!("the file can't be read within {}", format_span(READ_PATIENCE))),
    }
}
