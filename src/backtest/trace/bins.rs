//! Bins: the project's own format. See [`super`] for what a row is.

use std::io::BufRead;

use super::lines::Lines;
use super::slots::{Slots, Wants};
use super::{Arrivals, Trace, TraceError};

/// The first line of every trace of bins.
pub const HEADER: &str = "t_seconds,requests,input_tokens,output_tokens";

/// Widths of a bin that make sense, seconds: a hundredth of a second to a day.
pub(super) const BIN_SECONDS: std::ops::RangeInclusive<f64> = 0.01..=86_400.0;

/// A bin holds no more of anything: sums over years of bins stay exact enough in doubles.
pub(super) const LARGEST_COUNT: f64 = 1e12;

/// A row may lie off the grid of bins by so much of a bin: times are written with few digits.
const OFF_GRID: f64 = 1e-3;

/// Reads the rows after the header.
pub(super) fn read(mut lines: Lines<impl BufRead>, most_slots: Option<usize>) -> Result<Trace, TraceError> {
    let mut building =
        Building { slots: Slots::new(most_slots), begins: 0.0, first: None, width: None, bins: 0 };
    while let Some((line, row)) = lines.next()? {
        if !row.is_empty()
            && building.add(row).map_err(|what| TraceError::Bad { line, what })? == Wants::NoMore
        {
            break;
        }
    }
    building.finish().map_err(|what| TraceError::Bad { line: lines.number().max(1), what })
}

/// A trace on its way.
struct Building {
    slots: Slots,
    /// The time of the first row.
    begins: f64,
    /// The first row, until the second tells how wide it is.
    first: Option<Arrivals>,
    width: Option<f64>,
    bins: u64,
}

impl Building {
    fn add(&mut self, row: &str) -> Result<Wants, String> {
        let (time, arrivals) = numbers(row)?;
        if self.bins == 0 {
            self.begins = time;
            self.first = Some(arrivals);
            self.bins = 1;
            return Ok(Wants::More);
        }
        let width = match self.width {
            Some(width) => width,
            None => self.learn_width(time)?,
        };
        self.on_grid(time, width)?;
        self.spread(arrivals, width)
    }

    fn learn_width(&mut self, second: f64) -> Result<f64, String> {
        let width = second - self.begins;
        if width <= 0.0 {
            return Err(format!("t_seconds {second} is not after the row before it: sort the rows"));
        }
        if !BIN_SECONDS.contains(&width) {
            return Err(format!(
                "bins of {width} s: between {} and {} s",
                BIN_SECONDS.start(),
                BIN_SECONDS.end()
            ));
        }
        self.width = Some(width);
        if let Some(first) = self.first.take() {
            self.bins = 0;
            self.spread(first, width)?;
        }
        Ok(width)
    }

    fn on_grid(&self, time: f64, width: f64) -> Result<(), String> {
        let expected = self.begins + self.bins as f64 * width;
        let off = (time - expected) / width;
        if off.abs() <= OFF_GRID {
            return Ok(());
        }
        if off <= -1.0 + OFF_GRID {
            return Err(format!("t_seconds {time} is not after the row before it: sort the rows"));
        }
        Err(format!(
            "t_seconds {time} where {expected} was expected: rows are {width} s apart, with 0 where nothing arrived"
        ))
    }

    /// Adds the next bin to the slots that it covers, each by its share.
    fn spread(&mut self, arrivals: Arrivals, width: f64) -> Result<Wants, String> {
        let (start, end) = (self.bins as f64 * width, (self.bins + 1) as f64 * width);
        if self.slots.is_past(start) {
            return Ok(Wants::NoMore);
        }
        self.bins += 1;
        self.slots.spread(start, end, arrivals)
    }

    fn finish(self) -> Result<Trace, String> {
        match self.width {
            Some(bin_seconds) => Ok(self.slots.into_trace(bin_seconds, self.bins)),
            None if self.bins == 0 => Err("no rows: the trace is empty".to_owned()),
            None => Err("one row tells no width of its bin: at least two are needed".to_owned()),
        }
    }
}

fn numbers(row: &str) -> Result<(f64, Arrivals), String> {
    let mut fields = row.split(',');
    let mut next = |name: &str, most: f64| {
        let text = fields.next().ok_or_else(|| format!("{name} is missing: four numbers make a row"))?.trim();
        let number: f64 = text.parse().map_err(|_| format!("{name} `{text}` is no number"))?;
        if !number.is_finite() {
            return Err(format!("{name} is {number}: a finite number is needed"));
        }
        if number < 0.0 {
            return Err(format!("{name} is negative: {number}"));
        }
        if number > most {
            return Err(format!("{name} is {number}: at most {most:e}"));
        }
        Ok(number)
    };
    let time = next("t_seconds", LARGEST_COUNT)?;
    let arrivals = Arrivals {
        requests: next("requests", LARGEST_COUNT)?,
        input_tokens: next("input_tokens", LARGEST_COUNT)?,
        output_tokens: next("output_tokens", LARGEST_COUNT)?,
    };
    if fields.next().is_some() {
        return Err("more than four fields".to_owned());
    }
    Ok((time, arrivals))
}
