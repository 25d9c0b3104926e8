//! A slow, obvious reader of vLLM's pages, written without the scanner: lines, a map, lookups by name. It knows only what
//! whole pages of real servers look like.

use std::collections::{BTreeMap, BTreeSet};

use keda_vllm_scaler::engines::{EngineSample, Histogram};

type Labels = BTreeMap<String, String>;

pub(crate) struct ReferencePage {
    samples: Vec<(String, Labels, f64)>,
    typed: BTreeSet<String>,
}

impl ReferencePage {
    pub(crate) fn new(page: &str) -> Self {
        let mut samples = Vec::new();
        let mut typed = BTreeSet::new();
        for line in page.lines() {
            if let Some(declared) = line.strip_prefix("# TYPE ") {
                let name = declared.split(' ').next().unwrap();
                typed.insert(name.trim_end_matches("_total").to_owned());
                continue;
            }
            if line.starts_with('#') || line.is_empty() {
                continue;
            }
            let (series, value) = line.rsplit_once(' ').unwrap();
            let (name, labels) = match series.split_once('{') {
                Some((name, labels)) => (name, parse_labels(labels.strip_suffix('}').unwrap())),
                None => (series, Labels::new()),
            };
            samples.push((name.to_owned(), labels, value.parse().unwrap()));
        }
        Self { samples, typed }
    }

    fn rows<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (&'a Labels, f64)> {
        self.samples.iter().filter(move |(n, _, _)| n == name).map(|(_, labels, value)| (labels, *value))
    }

    pub(crate) fn engines(&self) -> Vec<String> {
        let names: BTreeSet<String> = self
            .rows("vllm:num_preemptions_total")
            .map(|(labels, _)| labels.get("engine").cloned().unwrap_or_else(|| "0".to_owned()))
            .collect();
        names.into_iter().collect()
    }

    pub(crate) fn models(&self) -> BTreeSet<String> {
        self.samples.iter().filter_map(|(_, labels, _)| labels.get("model_name").cloned()).collect()
    }

    fn of_engine(&self, name: &str, engine: &str, filter: Option<(&str, &str)>) -> Vec<f64> {
        self.rows(name)
            .filter(|(labels, _)| labels.get("engine").map_or("0", String::as_str) == engine)
            .filter(|(labels, _)| filter.is_none_or(|(k, v)| labels.get(k).is_some_and(|value| value == v)))
            .map(|(_, value)| value)
            .collect()
    }

    /// One value, or the sum over reasons; 0 where the type line stands alone.
    fn number(&self, name: &str, engine: &str, filter: Option<(&str, &str)>) -> Option<f64> {
        let rows = self.of_engine(name, engine, filter);
        if rows.is_empty() && !self.typed.contains(name.trim_end_matches("_total")) {
            return None;
        }
        Some(rows.iter().sum())
    }

    fn histogram(&self, name: &str, engine: &str) -> Option<Histogram> {
        let count = *self.of_engine(&format!("{name}_count"), engine, None).first()?;
        let sum = *self.of_engine(&format!("{name}_sum"), engine, None).first()?;
        let (bounds, cumulative) = self
            .rows(&format!("{name}_bucket"))
            .filter(|(labels, _)| labels.get("engine").map_or("0", String::as_str) == engine)
            .map(|(labels, value)| (labels["le"].parse::<f64>().unwrap(), value))
            .filter(|(bound, _)| bound.is_finite())
            .unzip();
        Some(Histogram { bounds, cumulative, count, sum })
    }

    pub(crate) fn sample(&self, engine: &str) -> EngineSample {
        let number = |name: &str| self.number(name, engine, None);
        let filtered = |name: &str, key: &str, value: &str| self.number(name, engine, Some((key, value)));
        let histogram = |name: &str| self.histogram(name, engine);
        EngineSample {
            engine: engine.to_owned(),
            running: number("vllm:num_requests_running"),
            waiting: number("vllm:num_requests_waiting"),
            waiting_for_capacity: filtered("vllm:num_requests_waiting_by_reason", "reason", "capacity"),
            waiting_deferred: filtered("vllm:num_requests_waiting_by_reason", "reason", "deferred"),
            kv_usage: number("vllm:kv_cache_usage_perc").or_else(|| number("vllm:gpu_cache_usage_perc")),
            prompt_tokens_total: number("vllm:prompt_tokens_total"),
            computed_prompt_tokens_total: filtered(
                "vllm:prompt_tokens_by_source_total",
                "source",
                "local_compute",
            ),
            generation_tokens_total: number("vllm:generation_tokens_total"),
            preemptions_total: number("vllm:num_preemptions_total"),
            finished_total: number("vllm:request_success_total"),
            time_to_first_token: histogram("vllm:time_to_first_token_seconds"),
            inter_token: histogram("vllm:inter_token_latency_seconds")
                .or_else(|| histogram("vllm:time_per_output_token_seconds")),
            queue_time: histogram("vllm:request_queue_time_seconds"),
            request_prompt_tokens: histogram("vllm:request_prompt_tokens"),
            request_generation_tokens: histogram("vllm:request_generation_tokens"),
            iteration_tokens: histogram("vllm:iteration_tokens_total"),
        }
    }

    pub(crate) fn process_start(&self) -> Option<f64> {
        self.rows("process_start_time_seconds").next().map(|(_, value)| value)
    }

    pub(crate) fn rejected(&self) -> Option<f64> {
        self.typed
            .contains("vllm:admission_rejections")
            .then(|| self.rows("vllm:admission_rejections_total").map(|(_, value)| value).sum())
    }

    pub(crate) fn awake(&self) -> Option<bool> {
        let rows: Vec<f64> = self
            .rows("vllm:engine_sleep_state")
            .filter(|(labels, _)| labels["sleep_state"] == "awake")
            .map(|(_, value)| value)
            .collect();
        (!rows.is_empty()).then(|| rows.iter().all(|value| *value == 1.0))
    }

    pub(crate) fn kv_tokens_per_engine(&self) -> Option<f64> {
        let number = |labels: &Labels, key: &str| labels.get(key).and_then(|text| text.parse::<f64>().ok());
        let rows: Vec<&Labels> = self.rows("vllm:cache_config_info").map(|(labels, _)| labels).collect();
        let first = rows.first()?;
        number(first, "kv_cache_size_tokens").or_else(|| {
            Some(number(first, "block_size")? * number(first, "num_gpu_blocks")? / rows.len() as f64)
        })
    }
}

/// `a="1",b="2"`, character by character, for the recorded pages have no escapes but may have commas in values.
fn parse_labels(text: &str) -> Labels {
    let mut labels = Labels::new();
    let mut rest = text;
    while let Some((key, after_key)) = rest.split_once("=\"") {
        let (value, after_value) = after_key.split_once('"').unwrap();
        labels.insert(key.to_owned(), value.to_owned());
        rest = after_value.strip_prefix(',').unwrap_or(after_value);
    }
    labels
}
