//! The command `read`: what the scaler sees on a metrics page, and what is missing and why. The first question of every
//! support case.

use std::fs::File;
use std::io::{self, Read, Write};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use flate2::read::MultiGzDecoder;

use crate::config::TlsSettings;
use crate::engines::read_page;
use crate::scrape::{Client, ClientSettings, Page, ScrapeError};

mod show;

/// Larger than any page of vLLM's (about 1 MB with many engines and finer buckets): bounds memory against endless input.
const MAX_PAGE_BYTES: u64 = 16 << 20;

/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long the whole answer may take; a saturated API server needs up to 3 s for its page.
const TOTAL_TIMEOUT: Duration = Duration::from_secs(15);

/// The first two bytes of gzip data (RFC 1952).
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The page: an http or https URL, a file (gzip is recognised), or - for standard input.
    #[arg(value_name = "URL|FILE")]
    source: String,

    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,

    /// Read this model, where the page has several (the label `model_name`).
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
}

/// Runs the command.
///
/// # Errors
/// When the page can't be had or can't be read, told on standard error with exit code 1.
pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let page = if args.source.starts_with("http://") || args.source.starts_with("https://") {
        get(&args.source).await
    } else if args.source == "-" {
        from_reader(io::stdin().lock())
    } else {
        File::open(&args.source).map_err(anyhow::Error::from).and_then(from_reader)
    };
    let page = page.with_context(|| args.source.clone())?;
    let read = read_page(&page.body, page.content_type.as_deref(), args.model.as_deref())
        .with_context(|| args.source.clone())?;
    let mut text = if args.json { serde_json::to_string_pretty(&read)? } else { show::page(&read) };
    text.push('\n');
    match io::stdout().lock().write_all(text.as_bytes()) {
        // `read ... | head` is no failure.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        written => {
            written?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn from_reader(source: impl Read) -> anyhow::Result<Page> {
    Ok(Page { body: expand(read_bounded(source)?)?, content_type: None })
}

/// Asks a server, as the scaler itself does: no proxy, no redirects, bounded in time and size.
async fn get(url: &str) -> anyhow::Result<Page> {
    let client = Client::with_settings(&ClientSettings {
        connect_timeout: CONNECT_TIMEOUT,
        timeout: TOTAL_TIMEOUT,
        max_body_bytes: MAX_PAGE_BYTES as usize,
        max_expanded_bytes: MAX_PAGE_BYTES as usize,
        tls: TlsSettings::default(),
        bearer_token_file: None,
    })?;
    match client.fetch(url).await {
        Ok(page) => Ok(page),
        Err(error @ ScrapeError::Status(_)) => {
            Err(error).context("vLLM's page is at /metrics of its API server")
        }
        Err(error) => Err(error.into()),
    }
}

fn expand(bytes: Vec<u8>) -> anyhow::Result<Vec<u8>> {
    if !bytes.starts_with(&GZIP_MAGIC) {
        return Ok(bytes);
    }
    read_bounded(MultiGzDecoder::new(bytes.as_slice())).context("broken gzip data")
}

fn read_bounded(source: impl Read) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    source.take(MAX_PAGE_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_PAGE_BYTES {
        bail!(too_large());
    }
    Ok(bytes)
}

fn too_large() -> String {
    format!("larger than {} MiB: not a metrics page of vLLM's", MAX_PAGE_BYTES >> 20)
}
