//! The command `schema`: the shape of the configuration file, for editors and for people.

use std::process::ExitCode;

use super::print::answer;
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
/// When standard output can't be written.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let text = if args.markdown { schema::markdown() } else { format!("{:#}\n", schema::json_schema()) };
    answer(&text)?;
    Ok(ExitCode::SUCCESS)
}
