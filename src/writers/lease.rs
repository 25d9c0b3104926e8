//! The Lease of writers, by the rules of client-go's leader election (`tools/leaderelection`): a holder renews it; others
//! watch the *record*, not its times, and take it when it has not changed for its duration by their own clock. Clocks of
//! different machines are never compared.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::clock::Clock;
use crate::cluster::{Need, Trouble};
use crate::telemetry::Told;

/// How long a Lease stands without being renewed: longer than an API server takes to come back from a restart.
const DURATION: Duration = Duration::from_secs(15);
/// Between two renewals: three may fail before the Lease is lost.
const RENEW_EVERY: Duration = Duration::from_secs(4);
/// Of one request: two of them fit between renewals.
const REQUEST: Duration = Duration::from_secs(2);
/// Where the holder's HTTP port can be reached.
const ADDRESS_ANNOTATION: &str = "keda-vllm-scaler/http-address";

/// Who this scaler is among its peers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The pod's name, else the host's: unique among the scalers of one Lease.
    pub name: String,
    /// Where the Lease is; None takes the namespace of the client's own configuration.
    pub namespace: Option<String>,
    /// The Lease's name.
    pub lease: String,
    /// `ip:port` of the HTTP port, where the pod's address is known.
    pub http_address: Option<String>,
}

impl Identity {
    /// From the environment that the manifests give (`POD_NAME`, `POD_NAMESPACE`, `POD_IP`), else from the host.
    #[must_use]
    pub fn from_environment(lease: &str, http: SocketAddr) -> Self {
        let given = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let host = || {
            let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
            // Several processes of one host are different scalers.
            format!("{}-{}", if name.trim().is_empty() { "scaler" } else { name.trim() }, std::process::id())
        };
        let ip = given("POD_IP").and_then(|ip| ip.parse::<IpAddr>().ok());
        Self {
            name: given("POD_NAME").unwrap_or_else(host),
            namespace: given("POD_NAMESPACE"),
            lease: lease.to_owned(),
            http_address: ip.map(|ip| SocketAddr::new(ip, http.port()).to_string()),
        }
    }
}

/// Who holds the Lease, as far as this scaler can see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Leadership {
    /// Nobody knows: the Lease can't be read.
    #[default]
    Unknown,
    /// This scaler.
    Own,
    /// A peer, and where it can be asked.
    Peer {
        /// Its name.
        name: String,
        /// `ip:port` of its HTTP port.
        http_address: Option<String>,
    },
}

/// Takes part in the election.
pub(super) struct Elector {
    client: Client,
    identity: Identity,
    leadership: watch::Sender<Leadership>,
}

/// The Lease as it was seen, and since when it has looked so.
#[derive(Clone, Debug)]
struct Seen {
    version: Option<String>,
    since: Instant,
}

/// What to do about a Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Move {
    /// It is ours: renew it.
    Renew,
    /// It is free, or its holder is gone: take it.
    Take,
    /// Somebody else holds it.
    Wait,
}

impl Elector {
    pub(super) fn new(client: Client, identity: Identity, leadership: watch::Sender<Leadership>) -> Self {
        Self { client, identity, leadership }
    }

    pub(super) async fn run(&self, clock: Clock, stop: CancellationToken) {
        let namespace =
            self.identity.namespace.clone().unwrap_or_else(|| self.client.default_namespace().to_owned());
        let api: Api<Lease> = Api::namespaced(self.client.clone(), &namespace);
        let mut seen: Option<Seen> = None;
        let mut renewed: Option<Instant> = None;
        let mut told = Told::default();
        loop {
            match self.round(&api, &namespace, &mut seen, clock).await {
                Ok(leadership) => {
                    if told.works() {
                        info!(lease = self.identity.lease, "the Lease can be used again");
                    }
                    renewed = (leadership == Leadership::Own).then(Instant::now);
                    self.tell(leadership);
                }
                Err(trouble) => {
                    if trouble.is_conflict() {
                        // Two that start at once both find it free; the next round shows who has it.
                        debug!(lease = self.identity.lease, %trouble, "another scaler was faster");
                    } else if told.fails(&trouble.kind(), clock.now()) {
                        warn!(lease = self.identity.lease, %trouble, "the Lease can't be used");
                    }
                    // A holder that can't renew stops writing before others may take the Lease.
                    if renewed.is_none_or(|at| at.elapsed() + RENEW_EVERY >= DURATION) {
                        self.tell(Leadership::Unknown);
                    }
                }
            }
            tokio::select! {
                () = stop.cancelled() => break,
                () = tokio::time::sleep(RENEW_EVERY) => {}
            }
        }
        if *self.leadership.borrow() == Leadership::Own {
            self.release(&api).await;
        }
    }

    fn tell(&self, leadership: Leadership) {
        self.leadership.send_if_modified(|before| {
            if *before == leadership {
                return false;
            }
            info!(lease = self.identity.lease, identity = self.identity.name, ?leadership, "lease");
            *before = leadership;
            true
        });
    }

    async fn round(
        &self,
        api: &Api<Lease>,
        namespace: &str,
        seen: &mut Option<Seen>,
        clock: Clock,
    ) -> Result<Leadership, Trouble> {
        let name = self.identity.lease.as_str();
        let need =
            |verbs| Need { verbs, resource: "leases.coordination.k8s.io", namespace, name: Some(name) };
        let lease = within(api.get_opt(name), &need("get")).await?;
        let Some(lease) = lease else {
            let created = self.held(None, clock);
            within(api.create(&PostParams::default(), &created), &need("create")).await?;
            return Ok(Leadership::Own);
        };
        let version = lease.metadata.resource_version.clone();
        if seen.as_ref().is_none_or(|seen| seen.version != version) {
            *seen = Some(Seen { version, since: Instant::now() });
        }
        let unchanged_for = seen.as_ref().map_or(Duration::ZERO, |seen| seen.since.elapsed());
        match what_to_do(lease.spec.as_ref(), &self.identity.name, unchanged_for) {
            Move::Wait => {
                let holder = lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default();
                let http_address = lease
                    .metadata
                    .annotations
                    .and_then(|mut annotations| annotations.remove(ADDRESS_ANNOTATION));
                Ok(Leadership::Peer { name: holder, http_address })
            }
            // The resource version goes with it: of two that take it at once, one gets a conflict.
            Move::Renew | Move::Take => {
                let held = self.held(Some(&lease), clock);
                within(api.replace(name, &PostParams::default(), &held), &need("update")).await?;
                Ok(Leadership::Own)
            }
        }
    }

    /// The Lease, held by this scaler.
    fn held(&self, before: Option<&Lease>, clock: Clock) -> Lease {
        let now = MicroTime(
            Timestamp::from_microsecond(clock.now().timestamp_micros()).unwrap_or(Timestamp::UNIX_EPOCH),
        );
        let spec = before.and_then(|lease| lease.spec.clone()).unwrap_or_default();
        let ours = spec.holder_identity.as_deref() == Some(self.identity.name.as_str());
        let annotations = self
            .identity
            .http_address
            .clone()
            .map(|address| [(ADDRESS_ANNOTATION.to_owned(), address)].into());
        Lease {
            metadata: ObjectMeta {
                name: Some(self.identity.lease.clone()),
                resource_version: before.and_then(|lease| lease.metadata.resource_version.clone()),
                annotations,
                labels: before.and_then(|lease| lease.metadata.labels.clone()),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(self.identity.name.clone()),
                lease_duration_seconds: Some(DURATION.as_secs() as i32),
                acquire_time: if ours { spec.acquire_time } else { Some(now.clone()) },
                renew_time: Some(now),
                lease_transitions: Some(transitions(spec.lease_transitions, before.is_some() && !ours)),
                ..LeaseSpec::default()
            }),
        }
    }

    /// Gives it up, so that a peer needn't wait for its end. A failure costs that wait and nothing else.
    async fn release(&self, api: &Api<Lease>) {
        let released = async {
            let mut lease = api.get(&self.identity.lease).await?;
            if let Some(spec) = &mut lease.spec
                && spec.holder_identity.as_deref() == Some(self.identity.name.as_str())
            {
                spec.holder_identity = None;
                api.replace(&self.identity.lease, &PostParams::default(), &lease).await?;
            }
            Ok::<(), kube::Error>(())
        };
        match tokio::time::timeout(REQUEST, released).await {
            Ok(Ok(())) => info!(lease = self.identity.lease, "lease released"),
            Ok(Err(error)) => warn!(%error, "lease not released"),
            Err(_) => warn!("lease not released in time"),
        }
    }
}

/// How often the Lease has changed hands; whoever may write it may have written any number.
fn transitions(before: Option<i32>, another: bool) -> i32 {
    before.unwrap_or(0).saturating_add(i32::from(another))
}

fn what_to_do(spec: Option<&LeaseSpec>, own: &str, unchanged_for: Duration) -> Move {
    let holder = spec.and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default();
    if holder == own {
        return Move::Renew;
    }
    let seconds = spec.and_then(|spec| spec.lease_duration_seconds).unwrap_or(0);
    let duration = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
    if holder.is_empty() || unchanged_for >= duration { Move::Take } else { Move::Wait }
}

async fn within<T>(
    request: impl Future<Output = Result<T, kube::Error>>,
    need: &Need<'_>,
) -> Result<T, Trouble> {
    match tokio::time::timeout(REQUEST, request).await {
        Ok(result) => result.map_err(|error| Trouble::of(&error, need)),
        Err(_) => Err(Trouble::Failed {
            why: format!("{need}: no answer within {} s", REQUEST.as_secs()),
            code: None,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held_by(holder: Option<&str>) -> LeaseSpec {
        LeaseSpec {
            holder_identity: holder.map(str::to_owned),
            lease_duration_seconds: Some(15),
            ..LeaseSpec::default()
        }
    }

    #[test]
    fn the_holder_renews_and_others_wait_for_its_whole_duration() {
        let spec = held_by(Some("a"));
        assert_eq!(what_to_do(Some(&spec), "a", Duration::from_secs(100)), Move::Renew);
        assert_eq!(what_to_do(Some(&spec), "b", Duration::from_secs(14)), Move::Wait);
        assert_eq!(what_to_do(Some(&spec), "b", Duration::from_secs(15)), Move::Take);
    }

    #[test]
    fn a_lease_that_changed_hands_as_often_as_can_be_written_is_taken_all_the_same() {
        assert_eq!(transitions(Some(i32::MAX), true), i32::MAX);
        assert_eq!(
            (transitions(Some(3), true), transitions(Some(3), false), transitions(None, false)),
            (4, 3, 0)
        );
    }

    #[test]
    fn a_released_lease_is_taken_at_once() {
        assert_eq!(what_to_do(Some(&held_by(None)), "b", Duration::ZERO), Move::Take);
        assert_eq!(what_to_do(Some(&held_by(Some(""))), "b", Duration::ZERO), Move::Take);
        assert_eq!(what_to_do(None, "b", Duration::ZERO), Move::Take);
    }

    #[test]
    fn a_holder_stops_writing_before_another_may_take_the_lease() {
        // The last renewal that counts is one round before the end, and a round's request ends within it.
        let noticed = DURATION.saturating_sub(RENEW_EVERY);
        assert!(noticed + REQUEST < DURATION, "the round that notices it ends before the Lease does");
        assert!(3 * RENEW_EVERY <= DURATION, "and two renewals may fail");
    }
}
