//! The activator beside the rounds: looked at often while no replica is ready, once an interval otherwise.

use chrono::{DateTime, Utc};
use tokio::sync::watch;
use tracing::{info, warn};

use super::{Closed, Events, MIN_REAL_INTERVAL, RoundsConfig, TierEvent};
use crate::config::ActivatorSettings;
use crate::sources::activator::Activator;
use crate::units::since;

/// Reads the activator for ever; returns at once where there is none.
pub(super) async fn watch_activator(
    config: &RoundsConfig,
    events: &Events,
    last_page: watch::Receiver<Option<DateTime<Utc>>>,
) -> Result<(), Closed> {
    let Some(settings) = &config.activator else {
        return Ok(());
    };
    let mut activator = None;
    let mut before: Option<Result<bool, String>> = None;
    loop {
        let result = read(&mut activator, settings, config).await;
        let at = config.clock.now();
        let waiting = result.as_ref().map(|queued| *queued > 0.0).map_err(Clone::clone);
        log_change(config, before.as_ref(), &waiting);
        events.send(TierEvent::Activator { at, result }).await?;
        // From nobody to somebody: a cold start begins with this decision, so it doesn't wait for the round.
        if waiting == Ok(true) && before != Some(Ok(true)) {
            events.send(TierEvent::RoundDone { at }).await?;
        }
        before = Some(waiting);

        let ready = last_page
            .borrow()
            .is_some_and(|read_at| since(config.clock.now(), read_at) <= config.settings.stale_after);
        let pause = if ready { config.settings.interval } else { settings.interval };
        tokio::time::sleep(config.clock.real(pause).max(MIN_REAL_INTERVAL)).await;
    }
}

/// Credentials that can't be loaded yet (a Secret that is mounted late) are an error of the reading, tried again with
/// the next.
async fn read(
    activator: &mut Option<Activator>,
    settings: &ActivatorSettings,
    config: &RoundsConfig,
) -> Result<f64, String> {
    let activator = match activator {
        Some(activator) => activator,
        None => activator
            .insert(Activator::new(settings, config.clock).map_err(|error| format!("credentials: {error}"))?),
    };
    activator.read().await
}

fn log_change(config: &RoundsConfig, before: Option<&Result<bool, String>>, now: &Result<bool, String>) {
    if before == Some(now) {
        return;
    }
    match now {
        Ok(waiting) => info!(tier = %config.tier, waiting, "activator read"),
        Err(error) => warn!(tier = %config.tier, %error, "activator unreadable"),
    }
}
