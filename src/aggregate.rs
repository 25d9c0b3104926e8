//! What a tier's pages add up to. Pure.

/// Why a replica gave no usable page.
#[derive(Clone, Debug, PartialEq)]
pub struct PageFailure {
    /// The class of failure, one label of the scaler's own metrics.
    pub kind: FailureKind,
    /// For people: one line, without a secret.
    pub message: String,
}

/// Classes of failure. None of them means zero load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FailureKind {
    /// The replica has no address: none given by its source, or its name doesn't resolve.
    NoAddress,
    /// Nothing listens: the replica is starting, or gone.
    Refused,
    /// No connection came about, or it broke: unreachable, reset, connect time-out.
    Connect,
    /// Connected, and no whole page in time: busy, or draining.
    Timeout,
    /// The peer isn't trusted, or doesn't trust us; or our certificates can't be used.
    Tls,
    /// A status other than 200.
    Status,
    /// More bytes than allowed, compressed or expanded.
    TooLarge,
    /// An answer that is no usable metrics page.
    BadPage,
}

impl FailureKind {
    /// The value of the label.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NoAddress => "noAddress",
            Self::Refused => "refused",
            Self::Connect => "connect",
            Self::Timeout => "timeout",
            Self::Tls => "tls",
            Self::Status => "status",
            Self::TooLarge => "tooLarge",
            Self::BadPage => "badPage",
        }
    }
}
