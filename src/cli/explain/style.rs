//! Colours and columns of the terminal. What comes from the cluster is printed without its control characters: a name
//! must not move the cursor.

use std::fmt::Write as _;

/// Whether to colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Plain,
    Coloured,
}

/// What a text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    Strong,
    Muted,
    Good,
    Warning,
    Bad,
    Accent,
}

impl Style {
    /// Coloured where standard output is a terminal that wants it.
    pub(super) fn of_terminal() -> Self {
        if super::wants_colour() { Self::Coloured } else { Self::Plain }
    }

    /// The text in its tone.
    pub(super) fn paint(self, tone: Tone, text: &str) -> String {
        let code = match tone {
            Tone::Strong => "1",
            Tone::Muted => "2",
            Tone::Good => "32",
            Tone::Warning => "33",
            Tone::Bad => "1;31",
            Tone::Accent => "1;36",
        };
        match self {
            Self::Plain => text.to_owned(),
            Self::Coloured if text.is_empty() => String::new(),
            Self::Coloured => format!("\u{1b}[{code}m{text}\u{1b}[0m"),
        }
    }
}

/// A text from elsewhere on one line, without control characters.
pub(super) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// How a column stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Left,
    Right,
}

/// Rows of cells in columns as wide as they need, two spaces apart. The last column isn't padded.
pub(super) struct Table {
    sides: Vec<Side>,
    rows: Vec<(Vec<String>, Option<Tone>)>,
}

impl Table {
    pub(super) fn new(heads: &[(&str, Side)]) -> Self {
        let row = heads.iter().map(|(head, _)| (*head).to_owned()).collect();
        Self { sides: heads.iter().map(|(_, side)| *side).collect(), rows: vec![(row, Some(Tone::Muted))] }
    }

    /// Adds a row; a tone paints all of it.
    pub(super) fn row(&mut self, tone: Option<Tone>, cells: &[String]) {
        self.rows.push((cells.iter().map(|cell| plain(cell)).collect(), tone));
    }

    pub(super) fn write(&self, out: &mut String, style: Style) {
        let widths: Vec<usize> = (0..self.sides.len())
            .map(|column| {
                let cells = self.rows.iter().filter_map(|(row, _)| row.get(column));
                cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
            })
            .collect();
        for (row, tone) in &self.rows {
            let mut line = String::from("  ");
            for (index, cell) in row.iter().enumerate() {
                let (width, side) = (widths[index], self.sides[index]);
                let last = index + 1 == row.len();
                let padded = match side {
                    Side::Right => format!("{cell:>width$}"),
                    Side::Left if last => cell.clone(),
                    Side::Left => format!("{cell:<width$}"),
                };
                let gap = if last { "" } else { "  " };
                push(&mut line, format_args!("{padded}{gap}"));
            }
            let line = line.trim_end();
            let painted = tone.map_or_else(|| line.to_owned(), |tone| style.paint(tone, line));
            push(out, format_args!("{painted}\n"));
        }
    }
}

/// Appends to a text.
pub(super) fn push(out: &mut String, text: std::fmt::Arguments<'_>) {
    let written = out.write_fmt(text);
    debug_assert!(written.is_ok(), "a String takes all text");
}

/// A bar of a length in eighths of a cell, and blanks up to `cells`.
pub(super) fn bar(share: f64, cells: usize) -> String {
    const PARTS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (share.clamp(0.0, 1.0) * cells as f64 * 8.0).round() as usize;
    let part = PARTS[eighths % 8];
    let full = eighths / 8;
    let blanks = cells - full - usize::from(!part.is_empty());
    format!("{}{part}{}", "█".repeat(full), " ".repeat(blanks))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_exact_to_an_eighth_and_always_as_wide() {
        assert_eq!(bar(0.0, 4), "    ");
        assert_eq!(bar(1.0, 4), "████");
        assert_eq!(bar(0.53, 4), "██▏ ");
        assert_eq!(bar(7.0, 4), "████");
        for n in 0..=100 {
            assert_eq!(bar(f64::from(n) / 100.0, 30).chars().count(), 30);
        }
    }

    #[test]
    fn control_characters_from_elsewhere_are_not_printed() {
        assert_eq!(plain("a\u{1b}[2Jb\nc\u{9b}d"), "a [2Jb c d");
    }

    #[test]
    fn nothing_is_coloured_in_plain_style() {
        assert_eq!(Style::Plain.paint(Tone::Bad, "x"), "x");
        assert_eq!(Style::Coloured.paint(Tone::Bad, "x"), "\u{1b}[1;31mx\u{1b}[0m");
    }
}
