//! The command `read`: what the scaler sees on a metrics page, and what is missing and why. The first question of every
//! support case.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use flate2::read::MultiGzDecoder;

use super::BadFlag;
use super::print::answer;
use crate::config::{self, TlsSettings};
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
    /// The page: an http or https URL, HOST:PORT, a file (gzip is recognised), or - for standard input. A URL without a
    /// path is read at /metrics, and HOST:PORT, where no such file exists, as http://HOST:PORT/metrics.
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
/// When the page can't be had or can't be read, told on standard error with exit code 1; a URL that is none with 64.
pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let source = Source::of(&args.source, |file| Path::new(file).exists())?;
    let page = match &source {
        Source::Url(url) => get(url).await,
        Source::StandardInput => from_reader(io::stdin().lock()),
        Source::File(file) => from_file(file),
    };
    let page = page.with_context(|| source.to_string())?;
    let read = read_page(&page.body, page.content_type.as_deref(), args.model.as_deref())
        .with_context(|| source.to_string())?;
    let mut text = if args.json { serde_json::to_string_pretty(&read)? } else { show::page(&read) };
    text.push('\n');
    answer(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Where a page is.
#[derive(Debug, PartialEq, Eq)]
enum Source {
    Url(String),
    StandardInput,
    File(String),
}

impl Source {
    /// What the argument means. A file wins over a host of the same name; a URL is one in any case.
    fn of(text: &str, exists: impl Fn(&str) -> bool) -> Result<Self, BadFlag> {
        let url = || config::page_url(text).map(Self::Url).map_err(BadFlag);
        match text {
            "-" => Ok(Self::StandardInput),
            _ if text.contains("://") => url(),
            _ if exists(text) => Ok(Self::File(text.to_owned())),
            _ if names_a_port(text) => url(),
            _ => Ok(Self::File(text.to_owned())),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(text) | Self::File(text) => f.write_str(text),
            Self::StandardInput => f.write_str("-"),
        }
    }
}

/// `10.0.0.1:8000`, `[::1]:8000`, `pod:8000/metrics`: something, a colon and digits, before the first slash.
fn names_a_port(text: &str) -> bool {
    let authority = text.split('/').next().unwrap_or_default();
    authority.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty() && !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit())
    })
}

fn from_file(file: &str) -> anyhow::Result<Page> {
    match File::open(file) {
        Ok(file) => from_reader(file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            bail!("no such file; for a replica's page write HOST:PORT or http://HOST:PORT/metrics")
        }
        Err(error) => Err(error.into()),
    }
}

fn from_reader(source: impl Read) -> anyhow::Result<Page> {
    Ok(Page { body: expand(read_bounded(source, "can't be read")?)?, content_type: None })
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
    read_bounded(MultiGzDecoder::new(bytes.as_slice()), "broken gzip data")
}

/// `failing` is what it means when the bytes can't be read.
fn read_bounded(source: impl Read, failing: &'static str) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    source.take(MAX_PAGE_BYTES + 1).read_to_end(&mut bytes).context(failing)?;
    if bytes.len() as u64 > MAX_PAGE_BYTES {
        bail!(too_large());
    }
    Ok(bytes)
}

fn too_large() -> String {
    format!("larger than {} MiB: not a metrics page of vLLM's", MAX_PAGE_BYTES >> 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_and_port_is_a_page_unless_a_file_has_that_name() {
        let of = |text: &str| Source::of(text, |file| file == "capture:8000").unwrap();
        let url = |text: &str| Source::Url(text.to_owned());
        for text in
            ["10.0.0.1:8000", "http://10.0.0.1:8000", "http://10.0.0.1:8000/", "10.0.0.1:8000/metrics"]
        {
            assert_eq!(of(text), url("http://10.0.0.1:8000/metrics"), "{text}");
        }
        assert_eq!(of("[::1]:8000"), url("http://[::1]:8000/metrics"));
        assert_eq!(of("https://pod:8443/stats"), url("https://pod:8443/stats"));
        for file in
            ["capture:8000", "page.txt", "./a:b/page", "captures/2026-11-29T10:00/page.txt", "pod:", ":80"]
        {
            assert_eq!(of(file), Source::File(file.to_owned()));
        }
        assert_eq!(of("-"), Source::StandardInput);
    }

    #[test]
    fn a_url_of_another_kind_is_refused_and_a_password_is_not_repeated() {
        assert!(Source::of("ftp://a/metrics", |_| true).unwrap_err().0.contains("write http or https"));
        let refused = Source::of("http://me:hunter2@a/", |_| false).unwrap_err().0;
        assert!(refused.contains("credentials") && !refused.contains("hunter2"), "{refused}");
    }
}
