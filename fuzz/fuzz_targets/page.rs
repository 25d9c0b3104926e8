//! Any bytes give an answer, never a panic; and an answer holds only numbers that can be.
#![no_main]

use keda_vllm_scaler::engines::read_page;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|page: &[u8]| {
    for content_type in [None, Some("application/openmetrics-text")] {
        let Ok(read) = read_page(page, content_type, None) else { continue };
        assert!(!read.engines.is_empty());
        for engine in &read.engines {
            assert!(engine.running.is_none_or(|count| count.is_finite() && count >= 0.0));
            assert!(engine.waiting.is_none_or(|count| count.is_finite() && count >= 0.0));
            assert!(engine.kv_usage.is_none_or(|share| (0.0..=1.0).contains(&share)));
            for histogram in
                [&engine.queue_time, &engine.time_to_first_token, &engine.inter_token].into_iter().flatten()
            {
                assert!(histogram.bounds.is_sorted() && histogram.cumulative.is_sorted());
                assert_eq!(histogram.bounds.len(), histogram.cumulative.len());
            }
        }
    }
});
