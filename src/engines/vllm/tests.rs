mod refused;

use super::*;

/// A small whole page of a V1 server: one line per argument, and a foreign family at the end, as real pages have.
fn page(lines: &[&str]) -> String {
    format!("{}\n# TYPE http_requests_total counter\nhttp_requests_total 1.0\n", lines.join("\n"))
}

/// The same with a load that is never in question.
fn busy(lines: &[&str]) -> String {
    let load = [
        "# TYPE vllm:num_requests_running gauge",
        r#"vllm:num_requests_running{engine="0",model_name="m"} 3.0"#,
        "# TYPE vllm:num_requests_waiting gauge",
        r#"vllm:num_requests_waiting{engine="0",model_name="m"} 1.0"#,
    ];
    page(&[&load[..], lines].concat())
}

fn read(page: &str) -> Result<EnginePage, PageError> {
    read_page(page.as_bytes(), None, None)
}

fn why(page: &EnginePage, name: &str) -> Option<&'static str> {
    page.missing.iter().find(|missing| missing.name == name).map(|missing| missing.why)
}

#[test]
fn a_family_that_is_not_there_is_unknown_and_named() {
    let read = read(&page(&[
        "# TYPE vllm:num_requests_running_renamed gauge",
        r#"vllm:num_requests_running_renamed{engine="0",model_name="m"} 3.0"#,
        "# TYPE vllm:prompt_tokens_total counter",
        r#"vllm:prompt_tokens_total{engine="0",model_name="m"} 5.0"#,
    ]))
    .unwrap();
    assert_eq!(read.engines[0].running, None);
    assert!(why(&read, "vllm:num_requests_running").unwrap().contains("the load is unknown"));
    assert_eq!(read.engines[0].prompt_tokens_total, Some(5.0));
    assert_eq!(why(&read, "vllm:prompt_tokens"), None);
}

#[test]
fn both_names_of_kv_usage_are_one_value() {
    let read = read(&busy(&[
        "# TYPE vllm:gpu_cache_usage_perc gauge",
        r#"vllm:gpu_cache_usage_perc{engine="0",model_name="m"} 0.5"#,
        "# TYPE vllm:kv_cache_usage_perc gauge",
        r#"vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.5"#,
    ]))
    .unwrap();
    assert_eq!((read.engines[0].kv_usage, read.dialect), (Some(0.5), Dialect::VllmV1));
}

#[test]
fn the_newer_name_of_inter_token_times_wins() {
    let histogram = |name: &str, count: u32| {
        format!(
            "# TYPE {name} histogram\n{name}_bucket{{engine=\"0\",le=\"0.1\",model_name=\"m\"}} {count}\n\
             {name}_bucket{{engine=\"0\",le=\"+Inf\",model_name=\"m\"}} {count}\n\
             {name}_count{{engine=\"0\",model_name=\"m\"}} {count}\n{name}_sum{{engine=\"0\",model_name=\"m\"}} 1"
        )
    };
    let older = histogram("vllm:time_per_output_token_seconds", 7);
    let newer = histogram("vllm:inter_token_latency_seconds", 9);
    let count = |page: &str| read(page).unwrap().engines[0].inter_token.as_ref().map(|h| h.count);
    assert_eq!(count(&busy(&[&older, &newer])), Some(9.0));
    assert_eq!(count(&busy(&[&older])), Some(7.0));
}

#[test]
fn prompt_tokens_less_cache_hits_stand_in_before_the_sources_were_told() {
    let prompt = "# TYPE vllm:prompt_tokens_total counter\nvllm:prompt_tokens_total{engine=\"0\",model_name=\"m\"} 100";
    let hits = |name: &str, hits: u32| {
        format!("# TYPE {name} counter\n{name}{{engine=\"0\",model_name=\"m\"}} {hits}")
    };
    let generated = "# TYPE vllm:generation_tokens_total counter\nvllm:generation_tokens_total{engine=\"0\",model_name=\"m\"} 9";
    let computed = |lines: &[&str]| read(&busy(lines)).unwrap().engines[0].computed_prompt_tokens_total;
    let newer = hits("vllm:prefix_cache_hits_total", 30);
    let older = hits("vllm:gpu_prefix_cache_hits_total", 20);
    assert_eq!(computed(&[&newer, &older, prompt, generated]), Some(70.0));
    assert_eq!(computed(&[&older, prompt, generated]), Some(80.0));
    assert_eq!(computed(&[prompt, generated]), None);
    assert_eq!(computed(&[&newer, prompt]), None, "the page may have been cut before the sources");
    let sources = "# TYPE vllm:prompt_tokens_by_source_total counter\n\
        vllm:prompt_tokens_by_source_total{engine=\"0\",model_name=\"m\",source=\"local_cache_hit\"} 30";
    assert_eq!(computed(&[&newer, prompt, sources, generated]), None, "sources without the one that counts");
    let computed_source = sources.replace("local_cache_hit\"} 30", "local_compute\"} 60");
    assert_eq!(computed(&[&newer, prompt, &computed_source, generated]), Some(60.0));
}

#[test]
fn a_rank_that_has_not_worked_yet_is_idle_where_the_other_has_a_row() {
    let read = read(&page(&[
        "# TYPE vllm:num_requests_running gauge",
        r#"vllm:num_requests_running{engine="0",model_name="m"} 3.0"#,
        "# TYPE vllm:prompt_tokens_total counter",
        r#"vllm:prompt_tokens_total{engine="0",model_name="m"} 3.0"#,
        r#"vllm:prompt_tokens_total{engine="1",model_name="m"} 0.0"#,
    ]))
    .unwrap();
    assert_eq!(read.engines[1].running, Some(0.0));
}

#[test]
fn engines_stand_in_the_order_of_their_numbers() {
    let rows: Vec<String> = ["10", "b", "9", "a", "0"]
        .map(|engine| format!("vllm:num_requests_running{{engine=\"{engine}\",model_name=\"m\"}} 1"))
        .into();
    let read =
        read(&page(&[&format!("# TYPE vllm:num_requests_running gauge\n{}", rows.join("\n"))])).unwrap();
    let names: Vec<&str> = read.engines.iter().map(|engine| engine.engine.as_str()).collect();
    assert_eq!(names, ["0", "9", "10", "a", "b"]);
}

#[test]
fn the_size_of_the_cache_is_taken_from_one_row_and_text_is_no_number() {
    let size = |rows: &[&str]| {
        let rows: Vec<String> =
            rows.iter().map(|labels| format!("vllm:cache_config_info{{{labels}}} 1.0")).collect();
        let read =
            read(&busy(&[&format!("# TYPE vllm:cache_config_info gauge\n{}", rows.join("\n"))])).unwrap();
        assert_eq!(read.kv_tokens_per_engine.is_none(), why(&read, "vllm:cache_config_info").is_some());
        read.kv_tokens_per_engine
    };
    let blocks = r#"block_size="32",engine="0",num_gpu_blocks="96""#;
    assert_eq!(size(&[blocks]), Some(3072.0));
    assert_eq!(size(&[blocks, &blocks.replace("\"0\"", "\"1\"")]), Some(1536.0));
    assert_eq!(
        size(&[r#"block_size="32",engine="0",kv_cache_size_tokens="1536",num_gpu_blocks="96""#]),
        Some(1536.0)
    );
    assert_eq!(
        size(&[r#"block_size="32",engine="0",kv_cache_size_tokens="None",num_gpu_blocks="96""#]),
        Some(3072.0)
    );
    assert_eq!(size(&[r#"block_size="32",engine="0",num_gpu_blocks="None""#]), None);
    assert_eq!(size(&[r#"block_size="32",engine="0",num_gpu_blocks="0""#]), None);
    assert_eq!(size(&[blocks, blocks]), None, "which row holds is unknown");
    assert_eq!(size(&[blocks, r#"block_size="32",engine="1",num_gpu_blocks="64""#]), None, "rows disagree");
}

#[test]
fn one_sleeping_rank_makes_the_replica_asleep() {
    let awake = |states: &[&str]| {
        let rows: Vec<String> = states
            .iter()
            .enumerate()
            .map(|(rank, state)| {
                format!(
                    "vllm:engine_sleep_state{{engine=\"{rank}\",model_name=\"m\",sleep_state=\"awake\"}} {state}"
                )
            })
            .collect();
        read(&busy(&[&format!("# TYPE vllm:engine_sleep_state gauge\n{}", rows.join("\n"))])).unwrap().awake
    };
    assert_eq!(awake(&["1.0", "1.0"]), Some(true));
    assert_eq!(awake(&["1.0", "0.0"]), Some(false));
    assert_eq!(awake(&[]), None);
}

#[test]
fn speculative_decoding_shows_in_its_counters_not_in_their_names() {
    let speculative = |drafts: &str| {
        let line = format!("vllm:spec_decode_num_drafts_total{{engine=\"0\",model_name=\"m\"}} {drafts}");
        read(&busy(&["# TYPE vllm:spec_decode_num_drafts_total counter", &line])).unwrap().speculative
    };
    assert!(!speculative("0.0"));
    assert!(speculative("8.0"));
}

#[test]
fn processes_that_contradict_each_other_have_no_start() {
    let start = |lines: &[&str]| read(&busy(lines)).unwrap().process_start_seconds;
    let one = "# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds 1.79597143492e+09";
    assert_eq!(start(&[one]), Some(1_795_971_434.92));
    assert_eq!(start(&[one, "process_start_time_seconds{pid=\"2\"} 1.7e+09"]), None);
}

#[test]
fn underscores_for_the_colon_are_read_under_openmetrics_and_without_it() {
    let lines = [
        "# TYPE vllm:num_requests_running gauge",
        r#"vllm_num_requests_running{engine="0",model_name="m"} 3.0"#,
        "# TYPE vllm:prompt_tokens counter",
        r#"vllm_prompt_tokens_total{engine="0",model_name="m"} 5.0 # {trace_id="x"} 1.0 1795971434.92"#,
        r#"vllm_prompt_tokens_created{engine="0",model_name="m"} 1.79e+09"#,
        "# TYPE vllm:request_success counter",
        "# EOF",
    ];
    let read = read(&(lines.join("\n") + "\n")).unwrap();
    let engine = &read.engines[0];
    assert_eq!((engine.running, engine.prompt_tokens_total), (Some(3.0), Some(5.0)));
    assert_eq!(engine.finished_total, Some(0.0), "the page is whole: its mark says so");
    assert_eq!(read.dialect, Dialect::VllmV1);
    let ray = busy(&[]).replace("vllm:", "vllm_");
    assert_eq!(super::read_page(ray.as_bytes(), None, None).unwrap().engines[0].running, Some(3.0));
}

#[test]
fn a_page_without_type_lines_is_read_but_nothing_is_zero_for_being_absent() {
    let text: String = busy(&[r#"vllm:prompt_tokens_total{engine="1",model_name="m"} 3.0"#, "up 1"])
        .lines()
        .filter(|line| !line.starts_with('#'))
        .flat_map(|line| [line, "\n"])
        .collect();
    let read = read(&text).unwrap();
    assert_eq!(read.engines[0].running, Some(3.0));
    assert_eq!(read.engines[1].running, None);
    assert_eq!(read.engines[0].kv_usage, None);
}

#[test]
fn load_that_stands_under_another_type_line_is_found() {
    let strays = page(&[
        "# TYPE python_info gauge",
        "python_info 1.0",
        r#"vllm:num_requests_running{engine="0",model_name="m"} 3.0"#,
        r#"vllm:num_requests_waiting{engine="0",model_name="m"} 2.0"#,
    ]);
    assert_eq!(read(&strays).unwrap().engines[0].running, Some(3.0));
}

#[test]
fn a_sum_in_the_family_that_the_page_ends_in_is_unknown() {
    let text = busy(&[
        "# TYPE vllm:request_success_total counter",
        r#"vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"} 4.0"#,
    ]);
    assert_eq!(read(&text).unwrap().engines[0].finished_total, Some(4.0));
    let cut = &text[..text.find("# TYPE http").unwrap()];
    let read = read(cut).unwrap();
    assert_eq!(read.engines[0].finished_total, None);
    assert_eq!(why(&read, "vllm:request_success"), Some(MAY_BE_CUT));
}

#[test]
fn engines_known_only_from_the_family_that_the_page_ends_in_may_not_be_all() {
    let text = page(&[
        "# TYPE vllm:num_requests_running gauge",
        r#"vllm:num_requests_running{engine="0",model_name="m"} 3.0"#,
        r#"vllm:num_requests_running{engine="1",model_name="m"} 2.0"#,
    ]);
    assert_eq!(read(&text).unwrap().engines.len(), 2);
    let cut = &text[..text.find(r#"vllm:num_requests_running{engine="1"#).unwrap()];
    assert_eq!(read(cut), Err(PageError::Truncated));
}
