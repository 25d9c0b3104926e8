//! A forecast as a decision shows it, with everything that it can tell.

use std::time::Duration;

use keda_vllm_scaler::decision::Forecasted;
use keda_vllm_scaler::forecast::{BudgetUse, Frontier, LateCount, Outlook};

pub(crate) fn forecasted() -> Forecasted {
    let outlook = Outlook { expected: 13.4, spread: 0.8, now: 12.1, usual: 11.0, ..Outlook::default() };
    Forecasted {
        replicas: 16,
        outlook,
        parts: [13.4, 2.6, 0.0, 0.0],
        instead_of_headroom: true,
        leads: "safety 1.3".to_owned(),
        hold: Duration::from_secs(210),
        frontier: Some(Frontier {
            replicas: 13.2,
            late_minutes_a_week: 8.0,
            halving_replica_hours_a_day: Some(1.4),
            more_queue_saves_replica_hours_a_day: Some(6.2),
            short_start_saves_replica_hours_a_day: Some(3.1),
        }),
        budget: Some(BudgetUse {
            safety: 1.3,
            at_end: None,
            late_budget: 0.001,
            late_share: 0.00062,
            used: 0.62,
            late_minutes: 7.0,
            counted: LateCount::QueueTimes,
        }),
        because:
            "12.1 now, 13.4 expected in 3m25s, + 2.6 for its spread: safety 1.3, budget used 62 % this week"
                .to_owned(),
    }
}
