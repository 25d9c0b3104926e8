//! The command `explain`: why tiers are answered what they are, asked of a running scaler over HTTP.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use reqwest::{Client, StatusCode, Url};

mod render;
mod style;
mod view;

use super::BadFlag;
use super::print::answer;
use style::Style;
use view::{Error, Tier, Tiers};

/// How long the scaler may take: it answers from memory.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The largest answer that is read: about ten thousand replicas with their errors.
const MOST_BYTES: usize = 32 << 20;

/// Arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A tier, as NAME or NAMESPACE/NAME; all tiers without it.
    tier: Option<String>,
    /// The HTTP port of the running scaler.
    #[arg(
        long,
        value_name = "URL",
        env = "KEDA_VLLM_SCALER_SERVER",
        default_value = "http://127.0.0.1:8080"
    )]
    server: String,
    /// Print the scaler's JSON as it is.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
///
/// # Errors
/// When the scaler can't be reached, has no such tier, or answers something else than its API; exit code 1.
pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let server = Server::new(&args.server)?;
    let style = Style::of_terminal();
    let text = match &args.tier {
        None => {
            let body = server.get(&["v1", "tiers"]).await?;
            if args.json { pretty(&body)? } else { render::all(&parse::<Tiers>(&body)?, style) }
        }
        Some(name) => {
            let (namespace, name) = server.find(name).await?;
            let body = server.get(&["v1", "tiers", &namespace, &name]).await?;
            if args.json { pretty(&body)? } else { render::one(&parse::<Tier>(&body)?, style) }
        }
    };
    answer(&text)?;
    Ok(ExitCode::SUCCESS)
}

struct Server {
    client: Client,
    base: Url,
}

impl Server {
    fn new(address: &str) -> anyhow::Result<Self> {
        let with_scheme =
            if address.contains("://") { address.to_owned() } else { format!("http://{address}") };
        let wrong = |why: &str| {
            BadFlag(format!("--server {address:?}: {why}; write one such as http://127.0.0.1:8080"))
        };
        let base = Url::parse(&with_scheme).map_err(|error| wrong(&format!("not a URL ({error})")))?;
        if !matches!(base.scheme(), "http" | "https") || base.host_str().is_none() {
            bail!(wrong("not an http or https URL"));
        }
        // A proxy from the environment would see the way to a port on this machine or in the cluster.
        let client =
            Client::builder().no_proxy().timeout(TIMEOUT).build().context("the HTTP client doesn't start")?;
        Ok(Self { client, base })
    }

    async fn get(&self, path: &[&str]) -> anyhow::Result<Vec<u8>> {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        let mut response = self.client.get(url.clone()).send().await.with_context(|| {
            format!("no scaler answers at {}: is it running, and is --server its HTTP port?", self.base)
        })?;
        let status = response.status();
        let mut body = Vec::new();
        while let Some(chunk) =
            response.chunk().await.with_context(|| format!("{url}: the answer breaks off"))?
        {
            if body.len() + chunk.len() > MOST_BYTES {
                bail!("{url}: the answer is larger than {MOST_BYTES} bytes");
            }
            body.extend_from_slice(&chunk);
        }
        if status == StatusCode::OK {
            return Ok(body);
        }
        match serde_json::from_slice::<Error>(&body) {
            Ok(reply) => bail!("{}", style::plain(&reply.error)),
            Err(_) => bail!("{url} answers {status}: is this the HTTP port of keda-vllm-scaler?"),
        }
    }

    /// The namespace and the name of a tier that may be given by its name alone.
    async fn find(&self, tier: &str) -> anyhow::Result<(String, String)> {
        if let Some((namespace, name)) = tier.split_once('/') {
            return Ok((namespace.to_owned(), name.to_owned()));
        }
        let tiers: Tiers = parse(&self.get(&["v1", "tiers"]).await?)?;
        let ids: Vec<(String, String)> =
            tiers.ids().map(|id| (id.namespace.clone(), id.name.clone())).collect();
        let full = |(namespace, name): &(String, String)| style::plain(&format!("{namespace}/{name}"));
        let named: Vec<_> = ids.iter().filter(|(_, name)| name == tier).collect();
        match named[..] {
            [only] => Ok(only.clone()),
            [] if ids.is_empty() => bail!("no tier {tier}: the scaler has none yet"),
            [] => bail!("no tier {tier}: there is {}", ids.iter().map(full).collect::<Vec<_>>().join(", ")),
            ref several => {
                let choices: Vec<String> = several.iter().map(|id| full(id)).collect();
                bail!("several tiers are named {tier}: say {}", choices.join(" or "))
            }
        }
    }
}

fn parse<T: serde::de::DeserializeOwned>(body: &[u8]) -> anyhow::Result<T> {
    serde_json::from_slice(body).context("the answer is not of this API: is the scaler of another version?")
}

fn pretty(body: &[u8]) -> anyhow::Result<String> {
    let value: serde_json::Value = parse(body)?;
    Ok(serde_json::to_string_pretty(&value)? + "\n")
}

/// Standard output is a terminal that takes colours, and nobody objects (<https://no-color.org>).
fn wants_colour() -> bool {
    let unset = |name: &str| std::env::var_os(name).is_none_or(|value| value.is_empty());
    std::io::stdout().is_terminal()
        && unset("NO_COLOR")
        && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}
