//! Asks Prometheus for a range, a chunk after the other.

use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::time::Duration;

use anyhow::Context as _;
use reqwest::Url;

use crate::backtest::trace::prometheus::{Chunk, Points, RangeQuery, refusal};
use crate::cli::BadFlag;
use crate::cli::print::{aside, aside_in_line};
use crate::config::scenario::PrometheusSource;
use crate::scrape::{Client, ClientSettings};
use crate::units::shortened;

/// For a connection, TLS included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Of one chunk: 11,000 points of three series are 1 MB. More are series that the query should have summed.
const MOST_CHUNK_BYTES: usize = 64 << 20;

/// Letters of the query that a message shows.
const MOST_LETTERS: usize = 300;

/// The points of the first `seconds` of the range.
///
/// # Errors
/// When Prometheus doesn't answer (exit code 1), or doesn't like the question, or answers what is no load (64). They name the
/// query and the chunk.
pub(super) async fn ask(source: &PrometheusSource, seconds: Option<f64>) -> anyhow::Result<Points> {
    let client = Client::with_settings(&ClientSettings {
        connect_timeout: CONNECT_TIMEOUT.min(source.timeout),
        timeout: source.timeout,
        max_body_bytes: MOST_CHUNK_BYTES,
        max_expanded_bytes: MOST_CHUNK_BYTES,
        tls: source.tls.clone(),
        bearer_token_file: source.bearer_token_file.clone(),
    })
    .context("prometheus")?;
    let mut points = Points::new(source.range.begins() as f64, source.range.step() as f64);
    let chunks = source.range.chunks(seconds);
    let all = chunks.len();
    for (at, chunk) in chunks.enumerate() {
        let place = || place(source, (at + 1, all), chunk);
        let url = url(&source.url, &source.range, chunk)?;
        if all > 1 && std::io::stderr().is_terminal() {
            let end = if at + 1 == all { "\n" } else { "" };
            aside_in_line(format_args!("\rasking Prometheus: {} of {all}{end}", at + 1));
        }
        let (status, page) = client.ask(&url).await.with_context(place)?;
        match (status, refusal(&page.body)) {
            (200, _) => {}
            // What was asked is wrong, or too much.
            (400 | 422, Some(told)) => return Err(BadFlag(format!("{}: {told}", place())).into()),
            (_, Some(told)) => return Err(anyhow::anyhow!("status {status}: {told}").context(place())),
            (_, None) => return Err(anyhow::anyhow!("status {status}").context(place())),
        }
        let warnings =
            points.chunk(chunk, &page.body).map_err(|told| BadFlag(format!("{}: {told}", place())))?;
        for warning in warnings {
            aside(format_args!("warning: Prometheus: {warning}"));
        }
    }
    Ok(points)
}

fn place(source: &PrometheusSource, (at, all): (usize, usize), chunk: Chunk) -> String {
    let mut told = format!("prometheus {}", source.url);
    if all > 1 {
        write!(told, ", chunk {at} of {all} ({} to {})", time(chunk.begins), time(chunk.ends))
            .unwrap_or_default();
    }
    write!(told, ", {}", query(source)).unwrap_or_default();
    told
}

/// What was asked, in one line: a model that nobody has is only seen there.
pub(super) fn query(source: &PrometheusSource) -> String {
    let query = source.range.query().split_whitespace().collect::<Vec<_>>().join(" ");
    format!("query `{}`", shortened(&query, MOST_LETTERS))
}

fn time(seconds: i64) -> String {
    chrono::DateTime::from_timestamp(seconds, 0)
        .map_or_else(|| seconds.to_string(), |time| time.format("%Y-%m-%dT%H:%M:%SZ").to_string())
}

fn url(server: &str, range: &RangeQuery, chunk: Chunk) -> anyhow::Result<String> {
    let mut url = Url::parse(server)?;
    let path = url.path().trim_end_matches('/').trim_end_matches("/api/v1/query_range").to_owned();
    url.set_path(&format!("{path}/api/v1/query_range"));
    url.query_pairs_mut()
        .append_pair("query", range.query())
        .append_pair("start", &chunk.begins.to_string())
        .append_pair("end", &chunk.ends.to_string())
        .append_pair("step", &range.step().to_string());
    Ok(url.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_prometheus_is_served_under_stays() {
        let range = RangeQuery::new(
            "sum(up) + 1",
            chrono::DateTime::UNIX_EPOCH,
            chrono::DateTime::from_timestamp(600, 0).unwrap(),
            Duration::from_secs(60),
        )
        .unwrap();
        let chunk = Chunk { begins: 0, ends: 540 };
        for (server, whole) in [
            ("http://p:9090", "http://p:9090/api/v1/query_range"),
            ("http://p:9090/", "http://p:9090/api/v1/query_range"),
            ("https://p/prom/", "https://p/prom/api/v1/query_range"),
            ("https://p/prom/api/v1/query_range", "https://p/prom/api/v1/query_range"),
        ] {
            let url = url(server, &range, chunk).unwrap();
            assert_eq!(url, format!("{whole}?query=sum%28up%29+%2B+1&start=0&end=540&step=60"));
        }
    }
}
