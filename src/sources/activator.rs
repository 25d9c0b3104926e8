//! What waits in front of a tier: the queue of a gateway, read from its metrics page by metric name.
//!
//! It is the one signal that exists while a tier has no replica. A gauge is the queue itself (llm-d's
//! `llm_d_epp_flow_control_queue_size`, the Gateway API inference extension's twin of it). A counter of arrivals (the
//! vLLM production stack router's `vllm:num_incoming_requests_total`) counts as a queue of what arrived in the last
//! minute: at zero replicas nobody has served it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use chrono::{DateTime, Utc};
use tracing::warn;

use crate::clock::Clock;
use crate::config::ActivatorSettings;
use crate::scrape::{Client, ClientError, ClientSettings};
use crate::units::{earlier, format_span};

mod sum;

use sum::Sum;

/// Arrivals of this much clock time count as waiting: the KEDA HTTP add-on's default window for a request rate.
const ARRIVAL_WINDOW: Duration = Duration::from_mins(1);

/// Readings that are kept: the window at the shortest sensible interval of 250 ms, twice over.
const MAX_READINGS: usize = 480;

/// Series whose values are kept after they went from the page. Gateways with a series per user and priority have
/// hundreds.
const MAX_SERIES: usize = 10_000;

/// A gateway's page with a series per pod and route stays far below; beyond it something else answers.
const MAX_PAGE_BYTES: usize = 16 * 1024 * 1024;

/// Reads one metric of one gateway.
#[derive(Debug)]
pub struct Activator {
    client: Client,
    url: String,
    metric: String,
    labels: BTreeMap<String, String>,
    clock: Clock,
    arrivals: Arrivals,
    /// The filter matches no series while the metric has others: said once.
    said_no_match: bool,
}

impl Activator {
    /// An activator that has read nothing yet.
    ///
    /// # Errors
    /// When a credential file can't be used.
    pub fn new(settings: &ActivatorSettings, clock: Clock) -> Result<Self, ClientError> {
        let client = Client::with_settings(&ClientSettings {
            connect_timeout: settings.timeout,
            timeout: settings.timeout,
            max_body_bytes: MAX_PAGE_BYTES,
            max_expanded_bytes: MAX_PAGE_BYTES,
            tls: settings.tls.clone(),
            bearer_token_file: settings.bearer_token_file.clone(),
        })?;
        Ok(Self {
            client,
            url: settings.url.clone(),
            metric: settings.metric.clone(),
            labels: settings.labels.clone(),
            clock,
            arrivals: Arrivals::default(),
            said_no_match: false,
        })
    }

    /// Reads the queue: requests, summed over the matching series.
    ///
    /// 0 where the metric stands on the page without a matching series: gateways make series at the first request.
    ///
    /// # Errors
    /// One line for people: the page can't be fetched, the metric isn't on it, a value can't be a queue, or a counter was
    /// read for the first time. An error is never zero.
    pub async fn read(&mut self) -> Result<f64, String> {
        if let Err(error) = self.client.refresh() {
            warn!(url = %self.url, %error, "activator credentials not reloaded");
        }
        let page = self.client.fetch(&self.url).await.map_err(|error| error.to_string())?;
        let sum = sum::of_page(&page, &self.metric, &self.labels)?;
        self.note_mismatch(&sum);
        if sum.counter { self.arrivals.add(self.clock.now(), sum.matching) } else { Ok(sum.value) }
    }

    /// A filter with a typing error reads as an idle gateway for ever, so it is said in the log.
    fn note_mismatch(&mut self, sum: &Sum) {
        let no_match = sum.matching.is_empty() && sum.others > 0;
        if no_match && !self.said_no_match {
            warn!(
                url = %self.url, metric = %self.metric, labels = ?self.labels, other_series = sum.others,
                "no series matches the activator's labels, read as 0"
            );
        }
        self.said_no_match = no_match;
    }
}

/// The arrivals of the last minute, from a counter's series. Each is followed alone: a series that goes must not make the
/// sum of the others look like a counter that began anew.
#[derive(Debug, Default)]
struct Arrivals {
    /// Each series' last value, by its labels. None before the first reading.
    last: Option<BTreeMap<String, f64>>,
    /// What each reading added, oldest first.
    increases: VecDeque<(DateTime<Utc>, f64)>,
}

impl Arrivals {
    /// What arrived in the window that ends now. After a gap longer than the window: what arrived since the last
    /// reading, since nobody can say when.
    fn add(&mut self, now: DateTime<Utc>, series: Vec<(String, f64)>) -> Result<f64, String> {
        let Some(last) = &mut self.last else {
            self.last = Some(series.into_iter().collect());
            return Err(format!(
                "a counter's first reading says nothing yet (arrivals are counted over {})",
                format_span(ARRIVAL_WINDOW)
            ));
        };
        if last.len() + series.len() > MAX_SERIES {
            // Those that are no longer on the page go.
            let present: BTreeSet<&String> = series.iter().map(|(labels, _)| labels).collect();
            last.retain(|labels, _| present.contains(labels));
        }
        let mut increase = 0.0;
        for (labels, value) in series {
            // A series that was not there was 0: gateways make series at the first request.
            let before = last.insert(labels, value).unwrap_or(0.0);
            // A counter that fell has begun anew, at 0.
            increase += if value < before { value } else { value - before };
        }
        let from = earlier(now, ARRIVAL_WINDOW);
        // A clock that was set back leaves increases that lie ahead.
        self.increases.retain(|(at, _)| from < *at && *at <= now);
        self.increases.push_back((now, increase));
        if self.increases.len() > MAX_READINGS {
            self.increases.pop_front();
        }
        Ok(self.increases.iter().map(|(_, increase)| increase).sum())
    }
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::seconds(seconds)
    }

    fn one(value: f64) -> Vec<(String, f64)> {
        vec![("{model=\"chat\"}".to_owned(), value)]
    }

    #[test]
    fn arrivals_are_counted_over_the_last_minute() {
        let mut arrivals = Arrivals::default();
        assert!(arrivals.add(at(0), one(100.0)).is_err(), "the first reading of a counter is no zero");
        assert_eq!(arrivals.add(at(5), one(100.0)), Ok(0.0));
        assert_eq!(arrivals.add(at(10), one(103.0)), Ok(3.0));
        assert_eq!(arrivals.add(at(69), one(103.0)), Ok(3.0));
        assert_eq!(arrivals.add(at(70), one(103.0)), Ok(0.0));
    }

    #[test]
    fn a_counter_that_fell_has_begun_anew() {
        let mut arrivals = Arrivals::default();
        assert!(arrivals.add(at(0), one(500.0)).is_err());
        assert_eq!(arrivals.add(at(5), one(2.0)), Ok(2.0));
        assert_eq!(arrivals.add(at(10), one(3.0)), Ok(3.0));
    }

    #[test]
    fn a_series_that_comes_was_zero_and_one_that_goes_changes_nothing() {
        let mut arrivals = Arrivals::default();
        assert!(arrivals.add(at(0), Vec::new()).is_err());
        let two = vec![("{user=\"a\"}".to_owned(), 1.0), ("{user=\"b\"}".to_owned(), 500.0)];
        assert_eq!(arrivals.add(at(1), two.clone()), Ok(501.0));
        assert_eq!(arrivals.add(at(100), vec![two[1].clone()]), Ok(0.0));
        assert_eq!(arrivals.add(at(101), two), Ok(0.0));
    }

    #[test]
    fn after_a_gap_everything_since_the_last_reading_counts() {
        let mut arrivals = Arrivals::default();
        assert!(arrivals.add(at(0), one(10.0)).is_err());
        assert_eq!(arrivals.add(at(900), one(14.0)), Ok(4.0));
    }

    #[test]
    fn a_clock_that_was_set_back_forgets_what_lies_ahead() {
        let mut arrivals = Arrivals::default();
        assert!(arrivals.add(at(3600), one(10.0)).is_err());
        assert_eq!(arrivals.add(at(3601), one(14.0)), Ok(4.0));
        assert_eq!(arrivals.add(at(0), one(15.0)), Ok(1.0));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut arrivals = Arrivals::default();
        for n in 0..30_000 {
            let _first = arrivals.add(at(0), vec![(n.to_string(), 1.0)]);
        }
        assert!(arrivals.increases.len() <= MAX_READINGS);
        assert!(arrivals.last.unwrap().len() <= MAX_SERIES);
    }
}
