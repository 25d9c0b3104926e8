//! The sum over the matching series of one metric on a page, in either text format. Pure.
//!
//! Format: Prometheus text exposition 0.0.4 and `OpenMetrics` 1.0.

use std::collections::BTreeMap;

use crate::scrape::Page;

/// What a page says of one metric.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sum {
    /// Over the matching series; 0 without any.
    pub(super) value: f64,
    /// It counts up since its start, so its value is no queue.
    pub(super) counter: bool,
    /// The series that match: their labels as written, and their values.
    pub(super) matching: Vec<(String, f64)>,
    /// Series of the metric that don't.
    pub(super) others: usize,
}

/// Sums the series of `metric` that have all of `labels`.
pub(super) fn of_page(page: &Page, metric: &str, labels: &BTreeMap<String, String>) -> Result<Sum, String> {
    let text = String::from_utf8_lossy(&page.body);
    if text.trim_start().starts_with(['<', '{']) {
        return Err("not a metrics page: HTML or JSON".to_owned());
    }
    let open_metrics = page.content_type.as_deref().is_some_and(|kind| kind.contains("openmetrics"));
    let whole = if open_metrics { text.trim_end().ends_with("# EOF") } else { text.ends_with('\n') };
    if !whole && !text.is_empty() {
        return Err("the page is cut short".to_owned());
    }
    let mut sum = Sum { value: 0.0, counter: metric.ends_with("_total"), matching: Vec::new(), others: 0 };
    let mut known = false;
    for line in text.lines() {
        if let Some(declaration) = line.strip_prefix("# TYPE ") {
            known |= read_type(declaration, metric, &mut sum)?;
            continue;
        }
        let Some(rest) = line.strip_prefix(metric) else { continue };
        if !rest.starts_with(['{', ' ', '\t']) {
            continue;
        }
        known = true;
        let (matches, after) = read_labels(rest, labels).ok_or_else(|| malformed(metric, line))?;
        if !matches {
            sum.others += 1;
            continue;
        }
        let value = read_value(after, metric, line)?;
        sum.value += value;
        sum.matching.push((rest[..rest.len() - after.len()].to_owned(), value));
    }
    if known { Ok(sum) } else { Err(format!("the page has no metric {metric}")) }
}

/// True where the declaration is the metric's.
fn read_type(declaration: &str, metric: &str, sum: &mut Sum) -> Result<bool, String> {
    let Some((family, kind)) = declaration.trim_end().split_once([' ', '\t']) else {
        return Ok(false);
    };
    match kind.trim() {
        "counter" if metric == family || metric.strip_suffix("_total") == Some(family) => {
            sum.counter = true;
            Ok(true)
        }
        kind @ ("histogram" | "summary")
            if ["", "_bucket", "_count", "_sum"]
                .iter()
                .any(|suffix| metric.strip_suffix(suffix) == Some(family)) =>
        {
            Err(format!("{metric} belongs to a {kind}: a queue is a gauge, or a counter of arrivals"))
        }
        _ => Ok(metric == family),
    }
}

/// Whether the labels are among those that follow the name, and what follows them. None where they don't parse.
fn read_labels<'a>(rest: &'a str, wanted: &BTreeMap<String, String>) -> Option<(bool, &'a str)> {
    let Some(mut rest) = rest.strip_prefix('{') else {
        return Some((wanted.values().all(String::is_empty), rest));
    };
    let mut found = 0;
    // A label that is absent and one that is empty are the same.
    let absent_wanted = wanted.values().filter(|value| value.is_empty()).count();
    let mut absent_violated = 0;
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        if let Some(after) = rest.strip_prefix('}') {
            let matches = found == wanted.len() - absent_wanted && absent_violated == 0;
            return Some((matches, after));
        }
        let (name, after) = rest.split_once('=')?;
        let (value, after) = read_quoted(after.trim_start())?;
        match wanted.get(name.trim()) {
            Some(expected) if expected.is_empty() => absent_violated += usize::from(!value.is_empty()),
            Some(expected) => found += usize::from(*expected == value),
            None => {}
        }
        rest = after;
    }
}

/// A quoted value with the escapes `\\`, `\"` and `\n`.
fn read_quoted(text: &str) -> Option<(String, &str)> {
    let text = text.strip_prefix('"')?;
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => match chars.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
    None
}

fn read_value(rest: &str, metric: &str, line: &str) -> Result<f64, String> {
    let written = rest.split_ascii_whitespace().next().ok_or_else(|| malformed(metric, line))?;
    let value: f64 = written.parse().map_err(|_| malformed(metric, line))?;
    if !value.is_finite() || value < 0.0 {
        return Err(format!("{metric} has the value {written}, which is no number of requests"));
    }
    Ok(value)
}

fn malformed(metric: &str, line: &str) -> String {
    let start: String = line.chars().take(120).collect();
    format!("a line of {metric} can't be read: {start}")
}

#[cfg(test)]
mod tests {
    #![expect(clippy::float_cmp, reason = "small whole numbers are exact")]

    use proptest::prelude::*;

    use super::*;

    fn read(text: &str, metric: &str, labels: &[(&str, &str)]) -> Result<Sum, String> {
        let page = Page { body: text.as_bytes().to_vec(), content_type: Some("text/plain".to_owned()) };
        let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        of_page(&page, metric, &labels)
    }

    fn value(text: &str, labels: &[(&str, &str)]) -> f64 {
        read(text, "queue", labels).unwrap().value
    }

    const QUEUE: &str = "# TYPE queue gauge\n\
        queue{model=\"chat\",priority=\"0\"} 3\n\
        queue{model=\"chat\",priority=\"1\",} 4 1700000000000\n\
        queue{model=\"code\",priority=\"0\"} 50\n\
        queue_age{model=\"chat\"} 999\n\
        queue_created{model=\"chat\"} 1.7e9\n";

    #[test]
    fn the_matching_series_are_summed_and_no_other_metric_is() {
        assert_eq!(value(QUEUE, &[("model", "chat")]), 7.0);
        assert_eq!(value(QUEUE, &[("model", "chat"), ("priority", "1")]), 4.0);
        assert_eq!(value(QUEUE, &[]), 57.0);
        assert_eq!(value("queue 2.5e1\n", &[]), 25.0);
        assert_eq!(value("queue{} 2\n", &[]), 2.0);
    }

    #[test]
    fn a_declared_metric_without_a_matching_series_is_zero() {
        assert_eq!(value("# TYPE queue gauge\n", &[("model", "chat")]), 0.0);
        let sum = read(QUEUE, "queue", &[("model", "vision")]).unwrap();
        assert_eq!((sum.value, sum.matching.len(), sum.others), (0.0, 0, 3));
    }

    #[test]
    fn a_metric_that_is_not_on_the_page_is_an_error_with_its_name() {
        for page in ["", "# TYPE queue_age gauge\nqueue_age 1\n", "# HELP queue waiting\n"] {
            assert!(read(page, "queue", &[]).unwrap_err().contains("queue"), "{page}");
        }
    }

    #[test]
    fn quotes_braces_commas_and_escapes_in_a_label_are_text() {
        let page = "queue{path=\"a\\\"b{c},d=\\\\e\\nf\",model=\"chat\"} 5\n";
        assert_eq!(value(page, &[("path", "a\"b{c},d=\\e\nf"), ("model", "chat")]), 5.0);
        assert_eq!(value(page, &[("d", "x")]), 0.0);
    }

    #[test]
    fn an_empty_label_and_an_absent_one_are_the_same() {
        let page = "queue{model=\"\"} 1\nqueue{other=\"x\"} 2\nqueue{model=\"chat\"} 4\nqueue 8\n";
        assert_eq!(value(page, &[("model", "")]), 11.0);
    }

    #[test]
    fn what_is_no_number_of_requests_is_an_error() {
        for written in ["NaN", "-1", "+Inf", "-Inf", "many", ""] {
            read(&format!("queue {written}\n"), "queue", &[]).unwrap_err();
        }
        // But not where it belongs to a series that isn't asked for.
        assert_eq!(value("queue{model=\"code\"} NaN\nqueue{model=\"chat\"} 1\n", &[("model", "chat")]), 1.0);
    }

    #[test]
    fn counters_are_told_from_gauges_by_name_or_type() {
        assert!(read("arrivals_total 5\n", "arrivals_total", &[]).unwrap().counter);
        assert!(read("# TYPE arrivals counter\n", "arrivals_total", &[]).unwrap().counter);
        assert!(read("# TYPE arrivals counter\narrivals 5\n", "arrivals", &[]).unwrap().counter);
        assert!(!read(QUEUE, "queue", &[]).unwrap().counter);
    }

    #[test]
    fn a_histogram_s_series_is_refused() {
        let page = "# TYPE wait histogram\nwait_bucket{le=\"+Inf\"} 3\nwait_sum 9\nwait_count 3\n";
        for metric in ["wait", "wait_bucket", "wait_count", "wait_sum"] {
            assert!(read(page, metric, &[]).unwrap_err().contains("histogram"), "{metric}");
        }
    }

    #[test]
    fn html_json_and_a_cut_page_are_errors() {
        for page in ["<html>queue 1</html>\n", "{\"queue\": 1}\n", "# TYPE queue gauge\nqueue 1"] {
            read(page, "queue", &[]).unwrap_err();
        }
        let cut = Page {
            body: b"# TYPE queue gauge\nqueue 1\n".to_vec(),
            content_type: Some("application/openmetrics-text; version=1.0.0".to_owned()),
        };
        of_page(&cut, "queue", &BTreeMap::new()).unwrap_err();
    }

    proptest! {
        #[test]
        fn any_label_value_is_read_back(value in "\\PC{0,20}", other in "\\PC{0,20}") {
            let escape = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let page = format!("queue{{a=\"{}\",b=\"{}\"}} 7\n", escape(&other), escape(&value));
            let sum = read(&page, "queue", &[("b", &value)]).unwrap();
            prop_assert_eq!((sum.value, sum.matching.len()), (7.0, 1));
        }

        #[test]
        fn no_page_makes_it_panic(page in "(queue|# TYPE queue)?[{}=\", \\\\a-z0-9\n-]{0,60}") {
            let _any = read(&page, "queue", &[("a", "b")]);
        }
    }
}
