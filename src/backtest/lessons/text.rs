//! A lesson in a terminal. Pure.

use std::fmt::Write as _;

use super::{ALL, Told};

impl Told {
    /// What was played, the table, and what to see.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = format!("{}: {}\n\n", self.lesson, self.setting);
        let mut rows = vec![row("", self.columns.iter().map(ToString::to_string))];
        rows.extend(self.runs.iter().map(|run| row(&run.name, run.cells.iter().cloned())));
        let widths: Vec<usize> = (0..=self.columns.len())
            .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
            .collect();
        for row in &rows {
            let mut line = format!("{:width$}", row[0], width = widths[0]);
            for (cell, width) in row.iter().zip(&widths).skip(1) {
                // Writing to a String doesn't fail.
                write!(line, "  {cell:>width$}").unwrap_or_default();
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
        for claim in &self.see {
            write!(out, "\n{}\n", claim.told()).unwrap_or_default();
        }
        write!(out, "\nleft out: {}\n", self.left_out).unwrap_or_default();
        out
    }
}

fn row(name: &str, cells: impl Iterator<Item = String>) -> Vec<String> {
    std::iter::once(name.to_owned()).chain(cells).collect()
}

/// The lessons that there are, a line each.
#[must_use]
pub fn list() -> String {
    let wide = ALL.iter().map(|lesson| lesson.name.len()).max().unwrap_or(0);
    let mut out = String::new();
    for lesson in &ALL {
        // Writing to a String doesn't fail.
        writeln!(out, "{:wide$}  {}", lesson.name, lesson.about).unwrap_or_default();
    }
    out
}
