//! A metrics page of vLLM's V1 engine with as much on it as a decision needs.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "shared by test files, each of which uses a part of it"
)]

use std::fmt::Write as _;

use crate::common::fake_engine::Answer;

/// What the page says.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub running: u32,
    pub waiting: u32,
    pub kv_usage: f64,
    pub prompt_tokens: u32,
    pub generation_tokens: f64,
}

impl Load {
    pub fn page(self) -> Answer {
        let series = [
            ("num_requests_running", "gauge", f64::from(self.running)),
            ("num_requests_waiting", "gauge", f64::from(self.waiting)),
            ("kv_cache_usage_perc", "gauge", self.kv_usage),
            ("prompt_tokens_total", "counter", f64::from(self.prompt_tokens)),
            ("generation_tokens_total", "counter", self.generation_tokens),
        ];
        let mut text = String::new();
        for (name, kind, value) in series {
            writeln!(text, "# HELP vllm:{name} x\n# TYPE vllm:{name} {kind}").unwrap();
            writeln!(text, "vllm:{name}{{engine=\"0\",model_name=\"m\"}} {value:?}").unwrap();
        }
        // The last family of a page may be cut: this one is nobody's.
        text += "# HELP python_info x\n# TYPE python_info gauge\npython_info 1.0\n";
        Answer::page(&text)
    }
}
