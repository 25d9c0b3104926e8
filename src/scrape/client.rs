//! One bounded GET of a metrics page.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use reqwest::header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HeaderValue};
use reqwest::{Response, StatusCode, Url};
use tokio::time::Instant;

use super::body::BodyReader;
use super::credentials::{ClientError, Connections, CredentialFiles, Fingerprints, Roots};
use super::error::{classify, ended_before_an_answer};
use super::{Page, ScrapeError};
use crate::config::{ScrapeSettings, TlsSettings};

/// Real time between two looks at the credential files: far below the lifetime of a rotated token (the kubelet renews
/// service account tokens at 80 % of an hour) and four calls of `stat` in ten seconds.
const LOOK_AT_FILES_EVERY: Duration = Duration::from_secs(10);

/// Plain text first: vLLM's ASGI page answers OpenMetrics, with other sample names, to whoever asks for it.
const ACCEPTED: HeaderValue = HeaderValue::from_static("text/plain;version=0.0.4,*/*;q=0.1");

/// What one fetch may take.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientSettings {
    /// For a connection, TLS included.
    pub connect_timeout: Duration,
    /// For the whole page, a second try included.
    pub timeout: Duration,
    /// Bytes on the wire.
    pub max_body_bytes: usize,
    /// Bytes after gunzip.
    pub max_expanded_bytes: usize,
    /// Certificates.
    pub tls: TlsSettings,
    /// A file whose content is sent as bearer token.
    pub bearer_token_file: Option<PathBuf>,
}

impl From<&ScrapeSettings> for ClientSettings {
    fn from(settings: &ScrapeSettings) -> Self {
        Self {
            connect_timeout: settings.connect_timeout,
            timeout: settings.timeout,
            max_body_bytes: settings.max_body_bytes,
            max_expanded_bytes: settings.max_expanded_bytes,
            tls: settings.tls.clone(),
            bearer_token_file: settings.bearer_token_file.clone(),
        }
    }
}

/// Fetches pages. Cheap to clone; clones share connections, and keep the credentials they were cloned with.
#[derive(Clone, Debug)]
pub struct Client {
    limits: Limits,
    files: Arc<CredentialFiles>,
    credentials: Arc<Credentials>,
    looked_at: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Limits {
    connect_timeout: Duration,
    timeout: Duration,
    max_body: usize,
    max_expanded: usize,
}

/// The content of the files at one instant, and the connections made with it.
#[derive(Debug)]
struct Credentials {
    seen: Fingerprints,
    authorization: Option<HeaderValue>,
    connections: Connections,
    /// With the system's roots, made at the first https URL of a client without TLS settings.
    system_tls: OnceLock<Result<Connections, ClientError>>,
}

impl Client {
    /// A client for the pages of a tier.
    ///
    /// # Errors
    /// When a file of `settings` can't be read or used.
    pub fn new(settings: &ScrapeSettings) -> Result<Self, ClientError> {
        Self::with_settings(&settings.into())
    }

    /// The same from what it needs alone.
    ///
    /// # Errors
    /// As [`Client::new`].
    pub fn with_settings(settings: &ClientSettings) -> Result<Self, ClientError> {
        let limits = Limits {
            connect_timeout: settings.connect_timeout,
            timeout: settings.timeout,
            max_body: settings.max_body_bytes,
            max_expanded: settings.max_expanded_bytes,
        };
        let files =
            CredentialFiles { tls: settings.tls.clone(), bearer_token: settings.bearer_token_file.clone() };
        let credentials = Credentials::load(&files, limits.connect_timeout)?;
        Ok(Self {
            limits,
            files: Arc::new(files),
            credentials: Arc::new(credentials),
            looked_at: Instant::now(),
        })
    }

    /// Takes up rotated certificates and tokens. Call it before each round: it looks at the files once in ten seconds
    /// of real time and reads them only when they changed. True when they did.
    ///
    /// # Errors
    /// When the new files can't be used, half-written ones for example. The old ones stay in force and the next look
    /// tries again.
    pub fn refresh(&mut self) -> Result<bool, ClientError> {
        if self.files.is_empty() || self.looked_at.elapsed() < LOOK_AT_FILES_EVERY {
            return Ok(false);
        }
        self.looked_at = Instant::now();
        if self.files.look() == self.credentials.seen {
            return Ok(false);
        }
        let credentials = Credentials::load(&self.files, self.limits.connect_timeout)?;
        self.credentials = Arc::new(credentials);
        Ok(true)
    }

    /// Fetches one page.
    ///
    /// # Errors
    /// See [`ScrapeError`]; never later than the time-out of the settings.
    pub async fn fetch(&self, url: &str) -> Result<Page, ScrapeError> {
        let (_, page) = self.in_time(url, |status| status == StatusCode::OK).await?;
        Ok(page)
    }

    /// Asks an API that says in the body of its answer what is wrong: the answer with its status, whatever that is, but for
    /// redirects.
    ///
    /// # Errors
    /// As [`Client::fetch`].
    pub async fn ask(&self, url: &str) -> Result<(u16, Page), ScrapeError> {
        self.in_time(url, |status| !status.is_redirection()).await
    }

    async fn in_time(&self, url: &str, wanted: fn(StatusCode) -> bool) -> Result<(u16, Page), ScrapeError> {
        let url = Url::parse(url).map_err(|error| ScrapeError::BadUrl(error.to_string()))?;
        let connections = self.credentials.connections_for(&url, &self.files, self.limits.connect_timeout)?;
        match tokio::time::timeout(self.limits.timeout, self.fetch_page(connections, url, wanted)).await {
            Ok(result) => result,
            Err(_elapsed) => Err(ScrapeError::Timeout(self.limits.timeout)),
        }
    }

    async fn fetch_page(
        &self,
        connections: &Connections,
        url: Url,
        wanted: fn(StatusCode) -> bool,
    ) -> Result<(u16, Page), ScrapeError> {
        let answer = match connections.pooled.as_ref().filter(|_| url.scheme() == "https") {
            None => self.get(&connections.fresh, url).await,
            Some(pooled) => match self.get(pooled, url.clone()).await {
                // The peer closed an idle connection just as it was used again: once more, on a connection of its own.
                Err(error) if ended_before_an_answer(&error) => self.get(&connections.fresh, url).await,
                other => other,
            },
        };
        let mut response = answer.map_err(|error| self.sort(&error))?;
        let status = response.status();
        if !wanted(status) {
            return Err(ScrapeError::Status(status.as_u16()));
        }
        let mut body = BodyReader::new(
            header(&response, &CONTENT_ENCODING),
            response.content_length(),
            self.limits.max_body,
            self.limits.max_expanded,
        )?;
        while let Some(chunk) = response.chunk().await.map_err(|error| self.sort(&error))? {
            body.push(&chunk)?;
        }
        let content_type = header(&response, &CONTENT_TYPE).map(str::to_owned);
        Ok((status.as_u16(), Page { body: body.finish()?, content_type }))
    }

    async fn get(&self, client: &reqwest::Client, url: Url) -> Result<Response, reqwest::Error> {
        let mut request = client
            .get(url)
            .header(ACCEPT, ACCEPTED)
            .header(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        if let Some(authorization) = &self.credentials.authorization {
            request = request.header(AUTHORIZATION, authorization.clone());
        }
        request.send().await
    }

    fn sort(&self, error: &reqwest::Error) -> ScrapeError {
        classify(error, self.limits.connect_timeout, self.limits.timeout)
    }
}

impl Credentials {
    fn load(files: &CredentialFiles, connect_timeout: Duration) -> Result<Self, ClientError> {
        // Looked at before they are read: a change in between is seen at the next look.
        let seen = files.look();
        Ok(Self {
            seen,
            authorization: files.authorization()?,
            connections: files.connections(connect_timeout, default_roots(files))?,
            system_tls: OnceLock::new(),
        })
    }

    fn connections_for(
        &self,
        url: &Url,
        files: &CredentialFiles,
        connect_timeout: Duration,
    ) -> Result<&Connections, ScrapeError> {
        match url.scheme() {
            "http" => Ok(&self.connections),
            "https" if !files.has_default_tls() => Ok(&self.connections),
            "https" => self
                .system_tls
                .get_or_init(|| files.connections(connect_timeout, Roots::System))
                .as_ref()
                .map_err(|error| ScrapeError::Tls(error.to_string())),
            other => Err(ScrapeError::BadUrl(format!("scheme {other:?} is neither http nor https"))),
        }
    }
}

fn default_roots(files: &CredentialFiles) -> Roots {
    if files.has_default_tls() { Roots::Nobody } else { Roots::System }
}

fn header<'a>(response: &'a Response, name: &reqwest::header::HeaderName) -> Option<&'a str> {
    // A header that isn't text must not read as an absent one: an unknown encoding is refused.
    response.headers().get(name).map(|value| value.to_str().unwrap_or("not text"))
}
