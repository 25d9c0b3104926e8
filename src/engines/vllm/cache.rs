//! The size of the KV cache, from the labels of `vllm:cache_config_info`.

use crate::engines::PageError;
use crate::exposition::{Sample, Scanner, parse_number};

use super::rows::malformed;

/// More rows than a page has engines: a bound on memory.
const MAX_ROWS: usize = 1024;

/// What one row says, of what matters here. A value that vLLM writes as `None` is absent.
#[derive(Clone, Copy, Debug, PartialEq)]
struct CacheRow<'p> {
    engine: Option<&'p [u8]>,
    /// Of one engine; vLLM 0.24 and later.
    size_tokens: Option<f64>,
    block_size: Option<f64>,
    /// The sum over all engines, repeated on each engine's row.
    blocks_of_all: Option<f64>,
}

/// The rows of `vllm:cache_config_info`.
#[derive(Debug, Default)]
pub(super) struct CacheRows<'p> {
    rows: Vec<CacheRow<'p>>,
}

impl<'p> CacheRows<'p> {
    pub(super) fn add(
        &mut self,
        page: &[u8],
        sample: &Sample<'p>,
        scanner: &Scanner<'p, '_>,
    ) -> Result<(), PageError> {
        if self.rows.len() == MAX_ROWS {
            return Err(malformed(page, sample, "more than 1024 rows of cache_config_info"));
        }
        let number = |label| {
            let number = scanner.label(label).and_then(parse_number)?;
            (number.is_finite() && number > 0.0).then_some(number)
        };
        let row = CacheRow {
            engine: scanner.label("engine"),
            size_tokens: number("kv_cache_size_tokens"),
            block_size: number("block_size"),
            blocks_of_all: number("num_gpu_blocks"),
        };
        self.rows.push(row);
        Ok(())
    }

    /// Rows so far.
    pub(super) fn count(&self) -> usize {
        self.rows.len()
    }

    /// KV tokens of one engine; None where the rows don't tell, or contradict each other.
    pub(super) fn tokens_per_engine(&self) -> Option<f64> {
        let first = self.rows.first()?;
        let engines = self.rows.len() as f64;
        for (place, row) in self.rows.iter().enumerate() {
            if self.rows[..place].iter().any(|earlier| earlier.engine == row.engine) {
                return None;
            }
        }
        if first.size_tokens.is_some() {
            let total: Option<f64> = self.rows.iter().map(|row| row.size_tokens).sum();
            return total.map(|total| total / engines);
        }
        let alike = |row: &CacheRow<'_>| {
            row.size_tokens.is_none()
                && row.block_size == first.block_size
                && row.blocks_of_all == first.blocks_of_all
        };
        if !self.rows.iter().all(alike) {
            return None;
        }
        Some(first.block_size? * first.blocks_of_all? / engines)
    }
}
