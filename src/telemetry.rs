//! What the scaler says about itself: the log's set-up, and what it counts.
//!
//! Log lines are events with fields, on change only. Counters are handed around, not global, so that a test sees its
//! own.

mod asked;
mod complaints;
mod counters;
mod told;

use std::io;

use tracing::Subscriber;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

pub use asked::{Asked, AskedBy, Rpc};
pub(crate) use complaints::Fault;
pub use counters::{ConfigReloads, Counters, PeerReadings, TierCounters};
pub(crate) use told::Told;

/// How log lines are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Why the log can't be set up.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The filter can't be read.
    #[error(
        "log filter {filter:?}: {error} (expected a level such as info, or directives such as info,keda_vllm_scaler=debug)"
    )]
    BadFilter {
        /// As given.
        filter: String,
        /// Why.
        error: tracing_subscriber::filter::ParseError,
    },
    /// There is one already.
    #[error("a log is set up already")]
    SetUpAlready,
}

/// Sends the log to standard error for the life of the process.
///
/// `filter` is a level (`info`) or `tracing_subscriber`'s directives (`info,keda_vllm_scaler::scrape=debug`).
///
/// # Errors
/// When the filter can't be read, or a log is set up already.
pub fn init(format: LogFormat, filter: &str) -> Result<(), LogError> {
    let subscriber = subscriber(format, filter, io::stderr)?;
    tracing::subscriber::set_global_default(subscriber).map_err(|_| LogError::SetUpAlready)
}

/// The same, writing elsewhere and not global.
fn subscriber<W>(
    format: LogFormat,
    filter: &str,
    writer: W,
) -> Result<Box<dyn Subscriber + Send + Sync>, LogError>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let filter = EnvFilter::try_new(filter)
        .map_err(|error| LogError::BadFilter { filter: filter.to_owned(), error })?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer);
    Ok(match format {
        LogFormat::Text => Box::new(builder.with_ansi(io::IsTerminal::is_terminal(&io::stderr())).finish()),
        LogFormat::Json => Box::new(builder.json().flatten_event(true).finish()),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(format: LogFormat, filter: &str) -> String {
        let written = Written::default();
        let writer = written.clone();
        let subscriber = subscriber(format, filter, move || writer.clone()).unwrap();
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(tier = "serving/chat", from = 4, to = 6, "required replicas changed");
            tracing::debug!("not at info");
        });
        let bytes = written.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_json_line_is_one_object_with_its_fields_at_the_top() {
        let line: serde_json::Value = serde_json::from_str(logged(LogFormat::Json, "info").trim()).unwrap();
        assert_eq!(line["message"], "required replicas changed");
        assert_eq!(line["tier"], "serving/chat");
        assert_eq!(line["to"], 6);
        assert_eq!(line["level"], "INFO");
    }

    #[test]
    fn the_filter_decides_what_is_written() {
        assert_eq!(logged(LogFormat::Text, "info").lines().count(), 1);
        assert_eq!(logged(LogFormat::Text, "debug").lines().count(), 2);
        assert_eq!(logged(LogFormat::Text, "error"), "");
    }

    #[test]
    fn a_filter_that_means_nothing_is_refused() {
        let error = subscriber(LogFormat::Text, "scrape=loud", io::stderr).err().unwrap();
        assert!(error.to_string().contains("scrape=loud"), "{error}");
    }
}
