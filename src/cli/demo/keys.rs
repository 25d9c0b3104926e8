//! The keys of the live view. Pure.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// The end.
    Quit,
    /// A switch.
    Turn(Switch),
}

/// A switch of the demo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Switch {
    /// Cold start of 180 s or 60 s.
    ColdStart,
    /// The scheduled floor, on or off.
    Floor,
    /// The next choice of signals.
    Signal,
    /// Minimum of zero, on or off.
    Min,
    /// More or less traffic.
    Load {
        /// More.
        up: bool,
    },
}

/// For the bottom line of the view.
pub(super) const HELP: &str = "q quit   c cold start   f floor   s signal   z min 0   +/- traffic";

/// What a key asks for, if anything.
pub(super) fn wish(key: KeyEvent) -> Option<Wish> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    Some(match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Wish::Quit,
        KeyCode::Char('q') | KeyCode::Esc => Wish::Quit,
        KeyCode::Char('c') => Wish::Turn(Switch::ColdStart),
        KeyCode::Char('f') => Wish::Turn(Switch::Floor),
        KeyCode::Char('s') => Wish::Turn(Switch::Signal),
        KeyCode::Char('z') => Wish::Turn(Switch::Min),
        KeyCode::Char('+' | '=') => Wish::Turn(Switch::Load { up: true }),
        KeyCode::Char('-') => Wish::Turn(Switch::Load { up: false }),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_c_ends_and_c_alone_switches_the_cold_start() {
        let key = |modifiers| wish(KeyEvent::new(KeyCode::Char('c'), modifiers));
        assert_eq!(key(KeyModifiers::CONTROL), Some(Wish::Quit));
        assert_eq!(key(KeyModifiers::NONE), Some(Wish::Turn(Switch::ColdStart)));
        assert_eq!(wish(KeyEvent::new(KeyCode::Char('x'), KeyModifiers::NONE)), None);
    }
}
