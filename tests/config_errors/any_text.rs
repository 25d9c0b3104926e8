//! Any text at all.

use keda_vllm_scaler::config;
use proptest::prelude::*;

use super::repository;

/// Either good, or refused with reasons that name a place in the file.
fn answers_sensibly(text: &str) {
    if let Err(problems) = config::load(text) {
        assert!(!problems.is_empty());
        for problem in &problems {
            assert!((1..=text.lines().count().max(1) + 1).contains(&problem.line), "{problem}\n{text}");
            assert!(!problem.message.contains("defect"), "{problem}\n{text}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_damaged_file_is_good_or_refused_with_reasons(
        from in 0..110_usize,
        lines in 0..4_usize,
        indent in 0..6_usize,
        value in prop::sample::select(vec!["null", "[]", "{}", "7", "0", "-1", ".nan", "x", "''", "&a 1", "*a", "[", "5s", "!!str 1"]),
    ) {
        let example = std::fs::read_to_string(repository("deploy/examples/full.yaml")).unwrap();
        let mut damaged: Vec<String> = example.lines().map(str::to_owned).collect();
        let from = from.min(damaged.len() - 1);
        if let Some((key, _)) = damaged[from].clone().split_once(':') {
            damaged[from] = format!("{key}: {value}");
        }
        let until = (from + 1 + lines).min(damaged.len());
        damaged.drain(from + 1..until);
        answers_sensibly(&damaged.join("\n"));
        damaged[from] = " ".repeat(indent) + damaged[from].trim_start();
        answers_sensibly(&damaged.join("\n"));
    }

    #[test]
    fn any_text_at_all_is_good_or_refused_with_reasons(text in "[a-z:{}\\[\\] \n\\-*&!#\"',0-9]{0,200}") {
        answers_sensibly(&text);
    }
}
