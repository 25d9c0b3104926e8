//! The page of a small backtest.

use std::time::Duration;

use crate::backtest::trace::{Arrivals, Trace};
use crate::backtest::work::Size;
use crate::backtest::{Backtest, Contender, Report, Settings, rivals};
use crate::decision::fixtures::{at, policy};
use crate::simulate::autoscaler::AutoscalerSettings;

/// Three hours with a step, a policy whose name is markup.
fn report(hours: usize) -> Report {
    let slot = |n: usize| {
        let replicas = if (n / 360).is_multiple_of(2) { 3.0 } else { 9.0 };
        Arrivals { requests: 20.0, input_tokens: replicas * 20_000.0, output_tokens: replicas * 1_750.0 }
    };
    let trace = Trace {
        slots: (0..hours * 720).map(slot).collect(),
        bin_seconds: 5.0,
        rows: hours as u64 * 720,
        begins: None,
    };
    let policy = policy();
    let chain = AutoscalerSettings::recommended(policy.min, policy.max);
    let settings = Settings {
        rates: policy.capacity.prior,
        policies: vec![Contender { name: "<b>ours</b>".to_owned(), policy, chain }],
        rivals: rivals::played_with(rivals::FLUID_FILLS),
        size: Size::Peak(9),
        cold_start: Duration::from_secs(180),
        acceptable_queue: Duration::from_secs(5),
        begins: at("00:00"),
        score_from: Duration::ZERO,
        seed: 1,
        details: true,
        split: true,
    };
    Backtest::new(&trace, settings).unwrap().run(2)
}

#[test]
fn it_shows_every_policy_with_its_plot_and_reasons_and_nothing_from_elsewhere() {
    let report = report(3);
    let page = report.page();
    assert_eq!(page.matches("<svg class=\"plot\"").count(), 2 + report.policies.len(), "one each, and two");
    assert!(page.contains("class=\"late\""), "the step is late");
    assert!(page.contains("changes of the answer") && page.contains("because"));
    assert!(page.contains("Where the excess goes") && page.contains("line class=\"bound\""));
    assert!(page.contains("&lt;b&gt;ours") && !page.contains("<b>ours"), "names are text");
    for from_elsewhere in ["<script", "http://", "https://", "src=", "@import", "url("] {
        assert!(!page.contains(from_elsewhere), "{from_elsewhere}");
    }
    assert!(page.contains("prefers-color-scheme:dark") && page.contains("width=device-width"));
}

#[test]
fn the_same_report_gives_the_same_page() {
    assert!(report(1).page() == report(1).page());
}

#[test]
fn the_parts_of_the_table_add_up() {
    let report = report(3);
    let split = &report.splits[0];
    let sum: f64 = split.parts.iter().map(|part| part.gpu_hours).sum();
    assert!((sum - split.excess_gpu_hours).abs() < 1e-6);
    assert!(report.table().contains("where the excess goes"));
    let strict = report.frontier[0].gpu_hours;
    assert!((strict - report.bound_gpu_hours).abs() < 1e-6);
    assert!(report.frontier.iter().all(|point| point.gpu_hours <= strict));
}
