//! What commands print: their answer on standard output, asides on standard error.
//!
//! Whoever stops reading, as `head` does, is no failure. An answer that can't be written, to a full disk say, is one. An
//! aside that nobody gets is lost: `println!` and `eprintln!` would end the process with a panic.

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};

use anyhow::Context as _;

/// Prints an answer, or a part of one.
///
/// # Errors
/// When it can't be written; not when nobody reads any more.
pub(super) fn answer(text: &str) -> anyhow::Result<()> {
    written(&mut io::stdout().lock(), text).context("standard output")
}

fn written(out: &mut impl Write, text: &str) -> io::Result<()> {
    // A disk that is full tells it when the last bytes leave, not before.
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

/// Tells something on standard error, a line of its own.
pub fn aside(text: Arguments<'_>) {
    lost_if_unwritten(writeln!(io::stderr().lock(), "{text}"));
}

/// The same without an end of the line: a progress bar.
pub(super) fn aside_in_line(text: Arguments<'_>) {
    let mut stderr = io::stderr().lock();
    lost_if_unwritten(write!(stderr, "{text}").and_then(|()| stderr.flush()));
}

fn lost_if_unwritten(written: io::Result<()>) {
    if let Err(error) = written {
        tracing::debug!(%error, "nobody reads standard error");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails when it is flushed.
    struct Fails(ErrorKind);

    impl Write for Fails {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Err(self.0.into())
        }
    }

    #[test]
    fn a_reader_that_left_is_no_failure_and_a_full_disk_is_one() {
        assert!(written(&mut Fails(ErrorKind::BrokenPipe), "answer").is_ok());
        let full = written(&mut Fails(ErrorKind::StorageFull), "answer");
        assert_eq!(full.map_err(|error| error.kind()), Err(ErrorKind::StorageFull));
    }
}
