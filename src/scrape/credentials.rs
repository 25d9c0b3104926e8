//! The files behind a connection: CA bundle, client certificate and key, bearer token.
//!
//! They rotate under a running scaler (Kubernetes swaps a mounted Secret's link, the kubelet rewrites a service account
//! token about every hour), so they are looked at again; a new file that can't be used leaves the old one in force.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use reqwest::header::HeaderValue;
use reqwest::{Certificate, Identity};
use rustls::ClientConfig;

use super::server_name::{self, Pem};
use crate::config::TlsSettings;

/// Largest file that is read: a CA bundle with every public root is 0.25 MB.
const MAX_FILE_BYTES: u64 = 2 * 1024 * 1024;

/// Idle https connections are kept this long. vLLM's server closes them after 5.0 s (`VLLM_HTTP_TIMEOUT_KEEP_ALIVE`,
/// uvicorn's `timeout_keep_alive`): well before that we do, so that no request meets a connection that is just being
/// closed. Intervals below this save the handshake.
const POOL_IDLE: Duration = Duration::from_secs(4);

/// Why a client can't be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// A file can't be read.
    #[error("{path}: {message}", path = path.display())]
    File {
        /// As configured.
        path: PathBuf,
        /// What the system says, or what is wrong with the content.
        message: String,
    },
    /// One of certificate and key without the other.
    #[error("a client certificate needs its key, and the key its certificate")]
    HalfIdentity,
    /// The TLS set-up is refused: a key that doesn't fit its certificate, no system roots.
    #[error("TLS can't be set up: {0}")]
    Tls(String),
}

/// What a file looked like. Enough to see every rotation: a link that points elsewhere, a rewrite, an edit.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Fingerprint {
    real_path: PathBuf,
    modified: Option<SystemTime>,
    length: u64,
}

/// What all files looked like; None for one that can't be looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Fingerprints(Vec<Option<Fingerprint>>);

/// What is trusted without a CA file.
#[derive(Clone, Copy, Debug)]
pub(super) enum Roots {
    /// The system's roots.
    System,
    /// Nobody: for plain http, which must work on a system without roots, and needs no copy of them per tier.
    Nobody,
}

/// Two ways to the same replicas.
#[derive(Clone, Debug)]
pub(super) struct Connections {
    /// Keeps one idle connection a replica, for https. Plain http has none: at the usual interval of 5 s the server has
    /// closed it before it could be used again, each costs about 100 KB meanwhile, and a new one costs one round trip.
    pub(super) pooled: Option<reqwest::Client>,
    /// Dials anew for each request.
    pub(super) fresh: reqwest::Client,
}

/// The paths of one client.
#[derive(Clone, Debug)]
pub(super) struct CredentialFiles {
    pub(super) tls: TlsSettings,
    pub(super) bearer_token: Option<PathBuf>,
}

impl CredentialFiles {
    /// True where TLS is left to the system.
    pub(super) fn has_default_tls(&self) -> bool {
        self.tls == TlsSettings::default()
    }

    /// True where there is nothing to watch.
    pub(super) fn is_empty(&self) -> bool {
        self.has_default_tls() && self.bearer_token.is_none()
    }

    /// Looks at every file without reading it.
    pub(super) fn look(&self) -> Fingerprints {
        let paths = [
            self.tls.ca_file.as_deref(),
            self.tls.client_cert_file.as_deref(),
            self.tls.client_key_file.as_deref(),
            self.bearer_token.as_deref(),
        ];
        Fingerprints(paths.into_iter().flatten().map(fingerprint).collect())
    }

    /// The header with the token.
    pub(super) fn authorization(&self) -> Result<Option<HeaderValue>, ClientError> {
        let Some(path) = &self.bearer_token else {
            return Ok(None);
        };
        let content = read_bounded(path)?;
        let token = String::from_utf8_lossy(&content);
        let token = token.trim();
        if token.is_empty() {
            return Err(problem(path, "the token file is empty"));
        }
        let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
            .map_err(|_| problem(path, "the token has characters that a header can't carry"))?;
        // Keeps it out of every debug print.
        value.set_sensitive(true);
        Ok(Some(value))
    }

    /// Connections with these certificates. `roots` says what is trusted where no CA file is given.
    pub(super) fn connections(
        &self,
        connect_timeout: Duration,
        roots: Roots,
    ) -> Result<Connections, ClientError> {
        let trusted = match (&self.tls.ca_file, roots) {
            (Some(path), _) => Some(certificates(path)?),
            (None, Roots::System) => None,
            (None, Roots::Nobody) => Some(Vec::new()),
        };
        let identity = self.identity_pem()?;
        let named = self.tls_by_name(identity.as_deref())?;
        let identity = identity.as_deref().map(|pem| self.identity(pem)).transpose()?;
        let build = |idle_per_host: usize| {
            let mut builder = reqwest::Client::builder()
                .no_proxy()
                .redirect(reqwest::redirect::Policy::none())
                .retry(reqwest::retry::never())
                .http1_only()
                .tcp_nodelay(true)
                .connect_timeout(connect_timeout)
                .pool_idle_timeout(POOL_IDLE)
                .pool_max_idle_per_host(idle_per_host)
                .user_agent(concat!("keda-vllm-scaler/", env!("CARGO_PKG_VERSION")));
            if let Some(named) = &named {
                builder = builder.tls_backend_preconfigured(named.clone());
                return builder.build().map_err(|error| ClientError::Tls(super::error::root_cause(&error)));
            }
            if let Some(trusted) = &trusted {
                builder = builder.tls_certs_only(trusted.iter().cloned());
            }
            if let Some(identity) = &identity {
                builder = builder.identity(identity.clone());
            }
            builder.build().map_err(|error| ClientError::Tls(super::error::root_cause(&error)))
        };
        let for_http_alone = self.tls.ca_file.is_none() && matches!(roots, Roots::Nobody);
        let pooled = if for_http_alone { None } else { Some(build(1)?) };
        Ok(Connections { pooled, fresh: build(0)? })
    }

    /// TLS that expects a name of its own, where one is configured.
    fn tls_by_name(&self, identity: Option<&[u8]>) -> Result<Option<ClientConfig>, ClientError> {
        let (Some(name), Some(ca)) = (&self.tls.server_name, &self.tls.ca_file) else { return Ok(None) };
        let content = read_bounded(ca)?;
        let ca = Pem { path: ca, content: &content };
        let path = self.tls.client_cert_file.as_deref().unwrap_or(Path::new(""));
        let identity = identity.map(|content| Pem { path, content });
        server_name::expecting(name, &ca, identity.as_ref()).map(Some)
    }

    /// The client certificate's chain and its key.
    fn identity_pem(&self) -> Result<Option<Vec<u8>>, ClientError> {
        let (cert, key) = match (&self.tls.client_cert_file, &self.tls.client_key_file) {
            (None, None) => return Ok(None),
            (Some(cert), Some(key)) => (cert, key),
            _ => return Err(ClientError::HalfIdentity),
        };
        let mut pem = read_bounded(cert)?;
        pem.push(b'\n');
        pem.extend(read_bounded(key)?);
        Ok(Some(pem))
    }

    fn identity(&self, pem: &[u8]) -> Result<Identity, ClientError> {
        let cert = self.tls.client_cert_file.as_deref().unwrap_or(Path::new(""));
        Identity::from_pem(pem)
            .map_err(|_| problem(cert, "no usable certificate and key in this file and its key file"))
    }
}

fn certificates(path: &Path) -> Result<Vec<Certificate>, ClientError> {
    let bundle = Certificate::from_pem_bundle(&read_bounded(path)?)
        .map_err(|_| problem(path, "not a PEM bundle of certificates"))?;
    if bundle.is_empty() {
        return Err(problem(path, "no certificate in the file"));
    }
    Ok(bundle)
}

fn read_bounded(path: &Path) -> Result<Vec<u8>, ClientError> {
    let read = || {
        let mut content = Vec::new();
        File::open(path)?.take(MAX_FILE_BYTES + 1).read_to_end(&mut content)?;
        Ok::<_, std::io::Error>(content)
    };
    let content = read().map_err(|error| problem(path, &error.to_string()))?;
    if content.len() as u64 > MAX_FILE_BYTES {
        return Err(problem(path, "larger than 2 MiB"));
    }
    Ok(content)
}

fn fingerprint(path: &Path) -> Option<Fingerprint> {
    let metadata = fs::metadata(path).ok()?;
    Some(Fingerprint {
        real_path: fs::canonicalize(path).ok()?,
        modified: metadata.modified().ok(),
        length: metadata.len(),
    })
}

pub(super) fn problem(path: &Path, message: &str) -> ClientError {
    ClientError::File { path: path.to_owned(), message: message.to_owned() }
}
