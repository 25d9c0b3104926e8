//! The command `schema`: the shape of the configuration file, for editors and for people.

use std::io::Write as _;
use std::process::ExitCode;

use crate::config::schema;

/// Arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print the reference in Markdown instead: every key with its value, default and meaning.
    #[arg(long)]
    markdown: bool,
}

/// Prints the JSON Schema.
///
/// # Errors
/// When standard output is closed.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let text = if args.markdown { schema::markdown() } else { format!("{:#}\n", schema::json_schema()) };
    match std::io::stdout().write_all(text.as_bytes()) {
        // `schema | head` is no failure.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        written => {
            written?;
            Ok(ExitCode::SUCCESS)
        }
    }
}
