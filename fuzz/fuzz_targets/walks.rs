//! The line walk finds at least what the family walk finds, in the same order, on any bytes on which neither fails.
#![no_main]

use keda_vllm_scaler::exposition::{Event, Family, Scanner, Shape, Walk, Wanted};
use libfuzzer_sys::fuzz_target;

fn found(page: &[u8], wanted: &Wanted, walk: Walk) -> Option<Vec<(usize, usize, u64)>> {
    let mut scanner = Scanner::new(page, wanted, walk);
    let mut found = Vec::new();
    while let Some(event) = scanner.next_event().ok()? {
        if let Event::Sample(sample) = event {
            found.push((sample.family, sample.offset, sample.value.to_bits()));
        }
    }
    Some(found)
}

fuzz_target!(|page: &[u8]| {
    let wanted = Wanted::new(&[
        Family::new("a:b", Shape::Gauge),
        Family::new("a:c", Shape::Counter),
        Family::new("a:d_total", Shape::Histogram),
    ]);
    let (Some(by_families), Some(by_lines)) =
        (found(page, &wanted, Walk::Families), found(page, &wanted, Walk::Lines))
    else {
        return;
    };
    let mut lines = by_lines.iter();
    for sample in &by_families {
        assert!(lines.any(|line| line == sample), "only the family walk found {sample:?}");
    }
});
