//! A log of the requests that one engine served: when each came, and when its first and its last token were out.
//!
//! JSON lines or CSV with a header, in any order of the columns, one of these names each:
//!
//! | | names |
//! |---|---|
//! | arrival, seconds | `arrival_time`, `arrived`, `arrival_seconds` |
//! | seen by the engine, seconds | `queued_ts` (may be absent) |
//! | first scheduled, seconds | `scheduled_ts` (may be absent) |
//! | first token, seconds | `first_token_ts`, `first_token_seconds` |
//! | last token, seconds | `last_token_ts`, `last_token_seconds` |
//! | prompt tokens | `input_toks`, `input_tokens`, `prompt_tokens` |
//! | output tokens | `output_toks`, `output_tokens`, `completion_tokens` |
//!
//! With `queued_ts` the arrival may be of another clock (the client's, wall time) than the engine's times (monotonic, as
//! vLLM's own `RequestStateStats` has them): the two are brought together where the least time lies between them. Without it
//! all times are of one clock.

use std::collections::BTreeMap;
use std::io::BufRead;

use serde::Deserialize;

use crate::backtest::TraceError;
use crate::backtest::trace::lines::Lines;

/// Requests of a log that are read: memory stays bounded whatever the file holds.
const MOST_READ: usize = 1_000_000;

/// Tokens of one request.
const MOST_TOKENS: f64 = 20_000_000.0;

/// A log whose first and last time are further apart is of two clocks.
const LONGEST_SECONDS: f64 = 7.0 * 86_400.0;

/// A request as it was served. Seconds since the first arrival.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LoggedRequest {
    /// When it came.
    pub arrived_seconds: f64,
    /// When it first ran, where that is known.
    pub scheduled_seconds: Option<f64>,
    /// When its first token was out.
    pub first_token_seconds: f64,
    /// When its last token was out.
    pub last_token_seconds: f64,
    /// Prompt tokens, at least 1.
    pub input: u32,
    /// Output tokens, at least 1.
    pub output: u32,
}

/// A log, in the order of arrival.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestLog {
    /// Its requests.
    pub requests: Vec<LoggedRequest>,
}

/// A row in the source's own clocks.
#[derive(Clone, Copy)]
struct Row {
    line: u64,
    arrival: f64,
    queued: Option<f64>,
    scheduled: Option<f64>,
    first_token: f64,
    last_token: f64,
    input: u32,
    output: u32,
}

/// The columns of a row by their names.
type Fields = BTreeMap<String, f64>;

impl RequestLog {
    /// Reads a log, plain or gzip.
    ///
    /// # Errors
    /// What the reader fails with; the first line that is wrong.
    pub fn read(source: impl BufRead) -> Result<Self, TraceError> {
        let mut lines = Lines::open(source)?;
        let mut rows: Vec<Row> = Vec::new();
        let mut header: Option<Vec<String>> = None;
        while let Some((line, row)) = lines.next()? {
            let bad = |what: String| TraceError::Bad { line, what };
            if row.is_empty() {
                continue;
            }
            let fields = if row.starts_with('{') {
                json(row).map_err(bad)?
            } else if let Some(names) = &header {
                csv(names, row).map_err(bad)?
            } else {
                header = Some(row.split(',').map(|name| name.trim().to_owned()).collect());
                continue;
            };
            if rows.len() >= MOST_READ {
                return Err(bad(format!("more than {MOST_READ} requests: take a part of the log")));
            }
            rows.push(of_fields(line, &fields).map_err(bad)?);
        }
        if rows.is_empty() {
            return Err(TraceError::Bad { line: 1, what: "no requests: the log is empty".to_owned() });
        }
        let requests = on_one_clock(&rows)?;
        Ok(Self { requests })
    }
}

fn json(row: &str) -> Result<Fields, String> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Value {
        Number(f64),
        Other(serde::de::IgnoredAny),
    }
    let all: BTreeMap<String, Value> =
        serde_json::from_str(row).map_err(|error| format!("no request in JSON: {error}"))?;
    let number = |(name, value)| match value {
        Value::Number(number) => Some((name, number)),
        Value::Other(_) => None,
    };
    Ok(all.into_iter().filter_map(number).collect())
}

fn csv(names: &[String], row: &str) -> Result<Fields, String> {
    let values: Vec<&str> = row.split(',').map(str::trim).collect();
    if values.len() != names.len() {
        return Err(format!("{} fields where the first line has {}", values.len(), names.len()));
    }
    // What is no number is a name, or a column that nobody asks for.
    Ok(names
        .iter()
        .zip(values)
        .filter_map(|(name, value)| Some((name.clone(), value.parse().ok()?)))
        .collect())
}

fn of_fields(line: u64, fields: &Fields) -> Result<Row, String> {
    let optional = |names: &[&str]| names.iter().find_map(|name| fields.get(*name)).copied();
    let time = |names: &[&str]| {
        let value = optional(names).ok_or_else(|| format!("no number under `{}`", names.join("` or `")))?;
        if value.is_finite() { Ok(value) } else { Err(format!("{} is {value}", names[0])) }
    };
    let tokens = |names: &[&str]| {
        let value = time(names)?;
        if value.fract() != 0.0 || !(1.0..=MOST_TOKENS).contains(&value) {
            return Err(format!("{} is {value}: a whole number, 1 to {MOST_TOKENS}", names[0]));
        }
        Ok(value as u32)
    };
    let row = Row {
        line,
        arrival: time(&["arrival_time", "arrived", "arrival_seconds"])?,
        queued: optional(&["queued_ts"]).filter(|value| value.is_finite()),
        scheduled: optional(&["scheduled_ts"]).filter(|value| value.is_finite()),
        first_token: time(&["first_token_ts", "first_token_seconds"])?,
        last_token: time(&["last_token_ts", "last_token_seconds"])?,
        input: tokens(&["input_toks", "input_tokens", "prompt_tokens"])?,
        output: tokens(&["output_toks", "output_tokens", "completion_tokens"])?,
    };
    if row.last_token < row.first_token {
        return Err("its last token is out before its first one".to_owned());
    }
    Ok(row)
}

/// All times as seconds since the first arrival, in the order of arrival.
fn on_one_clock(rows: &[Row]) -> Result<Vec<LoggedRequest>, TraceError> {
    let all_queued = rows.iter().all(|row| row.queued.is_some());
    // The engine sees a request after it came: what is least between the two clocks is their difference.
    let between = if all_queued {
        rows.iter().filter_map(|row| Some(row.queued? - row.arrival)).fold(f64::INFINITY, f64::min)
    } else {
        0.0
    };
    let begins = rows.iter().map(|row| row.arrival).fold(f64::INFINITY, f64::min) + between;
    let mut requests = Vec::with_capacity(rows.len());
    for row in rows {
        let request = LoggedRequest {
            arrived_seconds: row.arrival + between - begins,
            scheduled_seconds: row.scheduled.map(|at| at - begins),
            first_token_seconds: row.first_token - begins,
            last_token_seconds: row.last_token - begins,
            input: row.input,
            output: row.output,
        };
        let bad = |what: &str| TraceError::Bad { line: row.line, what: what.to_owned() };
        if request.first_token_seconds < request.arrived_seconds {
            return Err(bad("its first token is out before it came"));
        }
        if request.last_token_seconds > LONGEST_SECONDS {
            return Err(bad("it ends more than a week after the first arrival: are all times of one clock?"));
        }
        requests.push(request);
    }
    requests.sort_by(|one, other| one.arrived_seconds.total_cmp(&other.arrived_seconds));
    Ok(requests)
}

/// The most requests that ran at a time, and whether others waited while they did: then that is the limit. None where the
/// log doesn't say when requests began to run.
pub(super) fn most_running(requests: &[LoggedRequest]) -> Option<(u32, bool)> {
    let mut changes = Vec::with_capacity(requests.len() * 3);
    for request in requests {
        let scheduled = request.scheduled_seconds?;
        // Whoever leaves at an instant leaves before another one comes.
        changes.push((request.last_token_seconds, 0, -1, 0));
        changes.push((scheduled, 1, 1, -1));
        changes.push((request.arrived_seconds, 0, 0, 1));
    }
    changes.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
    let (mut running, mut waiting, mut most) = (0_i64, 0_i64, 0_i64);
    let mut waited_at_most = 0_usize;
    let mut at_most = 0_usize;
    for (_, _, run, wait) in changes {
        running += run;
        waiting += wait;
        if running > most {
            (most, at_most, waited_at_most) = (running, 0, 0);
        }
        if running == most {
            at_most += 1;
            waited_at_most += usize::from(waiting > 0);
        }
    }
    // A limit holds for long and people wait at it; a peak passes in an instant.
    let is_limit = waited_at_most >= 10 && waited_at_most * 2 > at_most;
    Some((u32::try_from(most).ok()?, is_limit))
}

/// The most tokens that were in the engine at a time, were every request there from its first run (or else from its first
/// token) to its end: about what the KV cache holds where it binds.
pub(super) fn most_tokens(requests: &[LoggedRequest]) -> f64 {
    let mut changes = Vec::with_capacity(requests.len() * 2);
    for request in requests {
        // The mean over its decoding.
        let tokens = f64::from(request.input) + f64::from(request.output) / 2.0;
        changes.push((request.last_token_seconds, -tokens));
        changes.push((request.first_token_seconds, tokens));
    }
    changes.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.total_cmp(&other.1)));
    let mut now = 0.0;
    changes.iter().fold(0.0_f64, |most, (_, change)| {
        now += change;
        most.max(now)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused(text: &str, words: &str) {
        let told = RequestLog::read(text.as_bytes()).unwrap_err().to_string();
        assert!(told.contains(words), "{told}");
    }

    #[test]
    fn csv_and_json_lines_are_one_log_and_two_clocks_are_one() {
        let csv = "name,arrival_seconds,first_token_seconds,last_token_seconds,input_tokens,output_tokens\n\
            a,10,10.5,12,100,20\nb,11,11.25,11.25,50,1\n";
        let json = "{\"request_id\":\"a\",\"arrival_time\":1700000000,\"queued_ts\":50,\"first_token_ts\":50.5,\"last_token_ts\":52,\"input_toks\":100,\"output_toks\":20}\n\
            {\"request_id\":\"b\",\"arrival_time\":1700000001,\"queued_ts\":51.125,\"first_token_ts\":51.25,\"last_token_ts\":51.25,\"input_toks\":50,\"output_toks\":1}\n";
        let (one, other) =
            (RequestLog::read(csv.as_bytes()).unwrap(), RequestLog::read(json.as_bytes()).unwrap());
        assert_eq!(one, other);
        assert_eq!((one.requests[1].arrived_seconds, one.requests[1].first_token_seconds), (1.0, 1.25));
    }

    #[test]
    fn a_bad_request_is_named_with_its_line() {
        let header = "arrived,first_token_seconds,last_token_seconds,input_tokens,output_tokens\n";
        refused("", "no requests");
        refused(header, "no requests");
        refused(&format!("{header}1,2,3,4\n"), "line 2: 4 fields where the first line has 5");
        refused(&format!("{header}1,2,3,4,5\n1,2,x,4,5\n"), "line 3: no number under `last_token_ts`");
        refused(&format!("{header}1,2,3,0,5\n"), "line 2: input_toks is 0");
        refused(&format!("{header}1,2,3,4,1.5\n"), "line 2: output_toks is 1.5");
        refused(&format!("{header}1,NaN,3,4,5\n"), "line 2: first_token_ts is NaN");
        refused(&format!("{header}1,3,2,4,5\n"), "line 2: its last token is out before its first");
        refused(&format!("{header}4,2,3,4,5\n"), "line 2: its first token is out before it came");
        refused(&format!("{header}1,2,1e9,4,5\n"), "line 2: it ends more than a week");
        refused("{\"a\":1}\n", "line 1: no number under `arrival_time`");
        refused("{\"a\":\n", "line 1: no request in JSON");
        refused(&"1".repeat(1 << 17), "line 1: longer than");
    }

    fn ran(arrived: f64, scheduled: f64, ended: f64) -> LoggedRequest {
        LoggedRequest {
            arrived_seconds: arrived,
            scheduled_seconds: Some(scheduled),
            first_token_seconds: scheduled + 0.1,
            last_token_seconds: ended,
            input: 10,
            output: 10,
        }
    }

    #[test]
    fn a_limit_of_sequences_is_seen_where_others_wait_at_it() {
        // Three run at a time, the next one enters when one leaves, and somebody always waits.
        let queued: Vec<LoggedRequest> =
            (0..40).map(|n| ran(0.0, f64::from(n / 3), f64::from(n / 3 + 1))).collect();
        assert_eq!(most_running(&queued), Some((3, true)));
        let idle: Vec<LoggedRequest> =
            (0..40).map(|n| ran(f64::from(n), f64::from(n), f64::from(n) + 2.5)).collect();
        assert_eq!(most_running(&idle), Some((3, false)));
        let unknown = [LoggedRequest { scheduled_seconds: None, ..queued[0] }];
        assert_eq!(most_running(&unknown), None);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_a_log_or_an_error(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
            let header = b"arrived,first_token_seconds,last_token_seconds,input_tokens,output_tokens\n";
            drop(RequestLog::read(&[&header[..], &bytes].concat()[..]));
            drop(RequestLog::read(&bytes[..]));
        }
    }
}
