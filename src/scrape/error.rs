//! Why a fetch failed, and which class of failure that is.

use std::error::Error;
use std::io;
use std::time::Duration;

use crate::aggregate::{FailureKind, PageFailure};

/// Why a page could not be fetched. Messages hold neither the URL nor a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScrapeError {
    /// Not a URL, or neither http nor https.
    #[error("the URL can't be used: {0}")]
    BadUrl(String),
    /// The URL's host name doesn't resolve.
    #[error("the host name doesn't resolve: {0}")]
    NoAddress(String),
    /// Nothing listens at the address.
    #[error("connection refused")]
    Refused,
    /// No connection in time: the address is dead, or its backlog is full.
    #[error("no connection within {}", crate::units::format_span(*.0))]
    ConnectTimeout(Duration),
    /// The connection can't be made, or broke.
    #[error("the connection failed: {0}")]
    Connect(String),
    /// A connection and no whole page in time.
    #[error("no whole page within {}", crate::units::format_span(*.0))]
    Timeout(Duration),
    /// The handshake failed, on either side's judgement.
    #[error("TLS: {0}")]
    Tls(String),
    /// Any status but 200. Redirects are not followed: an answer must come from the address that was asked.
    #[error("status {0}{note}", note = redirect_note(*.0))]
    Status(u16),
    /// More bytes on the wire than allowed.
    #[error("the answer is larger than {0} bytes")]
    BodyTooLarge(usize),
    /// More bytes after gunzip than allowed.
    #[error("the answer expands to more than {0} bytes")]
    ExpandedTooLarge(usize),
    /// Fewer bytes than announced: `Content-Length` lies, or the peer died.
    #[error("the answer is cut short")]
    CutShort,
    /// The body isn't the gzip it is said to be, or ends inside it.
    #[error("the answer is not whole gzip: {0}")]
    BadGzip(String),
    /// An encoding that was not asked for.
    #[error("the answer has the encoding {0:?}, only gzip was asked for")]
    Encoding(String),
}

impl ScrapeError {
    /// The class of failure.
    #[must_use]
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::NoAddress(_) => FailureKind::NoAddress,
            Self::Refused => FailureKind::Refused,
            Self::BadUrl(_) | Self::ConnectTimeout(_) | Self::Connect(_) => FailureKind::Connect,
            Self::Timeout(_) => FailureKind::Timeout,
            Self::Tls(_) => FailureKind::Tls,
            Self::Status(_) => FailureKind::Status,
            Self::BodyTooLarge(_) | Self::ExpandedTooLarge(_) => FailureKind::TooLarge,
            Self::CutShort | Self::BadGzip(_) | Self::Encoding(_) => FailureKind::BadPage,
        }
    }
}

impl From<ScrapeError> for PageFailure {
    fn from(error: ScrapeError) -> Self {
        Self { kind: error.kind(), message: error.to_string() }
    }
}

/// Sorts an error of the HTTP client by the causes in its chain.
pub(super) fn classify(error: &reqwest::Error, connect_timeout: Duration, timeout: Duration) -> ScrapeError {
    // Handshake failures are connect errors too, and a refused client certificate comes with the first read.
    if let Some(tls) = find_tls(error) {
        return ScrapeError::Tls(tls.to_string());
    }
    if error.is_dns() {
        return ScrapeError::NoAddress(root_cause(error));
    }
    if error.is_timeout() {
        return if error.is_connect() {
            ScrapeError::ConnectTimeout(connect_timeout)
        } else {
            ScrapeError::Timeout(timeout)
        };
    }
    match find_io(error) {
        Some(io::ErrorKind::ConnectionRefused) => ScrapeError::Refused,
        Some(io::ErrorKind::UnexpectedEof) if !error.is_connect() => ScrapeError::CutShort,
        _ => ScrapeError::Connect(root_cause(error)),
    }
}

/// True where a second try on a fresh connection may do better: the request was sent on a connection and the
/// connection ended before an answer began. A server that closes idle connections sooner than we do (a proxy, or one
/// that restarts) is met by a request in flight as a reset or an end.
pub(super) fn ended_before_an_answer(error: &reqwest::Error) -> bool {
    error.is_request() && !error.is_connect() && !error.is_timeout() && find_tls(error).is_none()
}

fn redirect_note(status: u16) -> &'static str {
    if (300..400).contains(&status) { " (redirects are not followed)" } else { "" }
}

fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| {
        // An io::Error that wraps another error gives that error's cause as its own, so the wrapped one would be missed.
        if let Some(io) = error.downcast_ref::<io::Error>()
            && let Some(inner) = io.get_ref()
        {
            return Some(inner as &(dyn Error + 'static));
        }
        error.source()
    })
}

fn find_tls(error: &reqwest::Error) -> Option<&rustls::Error> {
    chain(error).find_map(|cause| cause.downcast_ref::<rustls::Error>())
}

fn find_io(error: &reqwest::Error) -> Option<io::ErrorKind> {
    chain(error).find_map(|cause| cause.downcast_ref::<io::Error>()).map(io::Error::kind)
}

/// The innermost cause, which is the one that says something.
pub(super) fn root_cause(error: &reqwest::Error) -> String {
    chain(error).last().map_or_else(|| "unknown cause".to_owned(), ToString::to_string)
}
