//! A TLS server with certificates made on the spot.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "shared by test files, each of which uses a part of it"
)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};

/// Once per process, as the binary does it in `main`.
pub fn install_provider() {
    // A second test of the same process finds it installed.
    let _already = rustls::crypto::ring::default_provider().install_default();
}

/// A certificate authority.
pub struct Authority {
    name: &'static str,
    pem: String,
    der: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub fn new(name: &'static str) -> Self {
        install_provider();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        Self {
            name,
            pem: certificate.pem(),
            der: certificate.der().clone(),
            issuer: Issuer::new(params, key),
        }
    }

    /// The file with the authority's certificate.
    pub fn write_ca(&self, folder: &Path) -> PathBuf {
        let path = folder.join(format!("{}-ca.pem", self.name));
        std::fs::write(&path, &self.pem).unwrap();
        path
    }

    /// The files with a certificate of this authority and its key.
    pub fn write_identity(&self, folder: &Path) -> (PathBuf, PathBuf) {
        let (certificate, key) = self.leaf();
        let (cert_path, key_path) =
            (folder.join(format!("{}.pem", self.name)), folder.join(format!("{}-key.pem", self.name)));
        std::fs::write(&cert_path, certificate.pem()).unwrap();
        std::fs::write(&key_path, key.serialize_pem()).unwrap();
        (cert_path, key_path)
    }

    fn leaf(&self) -> (rcgen::Certificate, KeyPair) {
        self.leaf_for(&["127.0.0.1", "localhost"])
    }

    fn leaf_for(&self, names: &[&str]) -> (rcgen::Certificate, KeyPair) {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let params = CertificateParams::new(names).unwrap();
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap(), key)
    }
}

/// Answers with one page.
pub struct FakeTls {
    addr: SocketAddr,
    served: Arc<Served>,
}

/// What a connection gets, and how many there were.
struct Served {
    page: &'static str,
    /// Pages on one connection: the request after them meets its end. None says `Connection: close` after one.
    answers: Option<usize>,
    connections: AtomicUsize,
    requests: AtomicUsize,
}

impl FakeTls {
    /// With a certificate of `authority`; `clients` is the authority that clients must belong to.
    pub fn start(authority: &Authority, clients: Option<&Authority>, page: &'static str) -> Self {
        Self::with(authority.leaf(), clients, page, None)
    }

    /// With a certificate for this name alone.
    pub fn named(authority: &Authority, name: &str, page: &'static str) -> Self {
        Self::with(authority.leaf_for(&[name]), None, page, None)
    }

    /// Answers so many requests on each connection, and ends it at the next one without a word before.
    pub fn answering(authority: &Authority, requests: usize, page: &'static str) -> Self {
        Self::with(authority.leaf(), None, page, Some(requests))
    }

    fn with(
        (certificate, key): (rcgen::Certificate, KeyPair),
        clients: Option<&Authority>,
        page: &'static str,
        answers: Option<usize>,
    ) -> Self {
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let builder = ServerConfig::builder();
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(clients) => {
                let mut roots = RootCertStore::empty();
                roots.add(clients.der.clone()).unwrap();
                builder.with_client_cert_verifier(
                    WebPkiClientVerifier::builder(Arc::new(roots)).build().unwrap(),
                )
            }
        };
        let config = Arc::new(builder.with_single_cert(vec![certificate.der().clone()], key).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let (connections, requests) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let served = Arc::new(Served { page, answers, connections, requests });
        let serving = served.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (config, served) = (config.clone(), serving.clone());
                served.connections.fetch_add(1, Ordering::SeqCst);
                std::thread::spawn(move || serve(config, stream, &served));
            }
        });
        Self { addr, served }
    }

    pub fn connections(&self) -> usize {
        self.served.connections.load(Ordering::SeqCst)
    }

    pub fn requests(&self) -> usize {
        self.served.requests.load(Ordering::SeqCst)
    }

    pub fn url(&self) -> String {
        format!("https://{}/metrics", self.addr)
    }
}

/// Errors are the test's subject: the client sees them.
fn serve(config: Arc<ServerConfig>, stream: TcpStream, served: &Served) {
    let Ok(connection) = ServerConnection::new(config) else { return };
    let mut stream = StreamOwned::new(connection, stream);
    for answered in 0.. {
        let mut head = Vec::new();
        let mut chunk = [0; 1024];
        while !head.windows(4).any(|window| window == b"\r\n\r\n") {
            match stream.read(&mut chunk) {
                Ok(n) if n > 0 => head.extend_from_slice(&chunk[..n]),
                _ => return,
            }
        }
        served.requests.fetch_add(1, Ordering::SeqCst);
        let last = served.answers.is_none();
        if served.answers.is_some_and(|answers| answered >= answers) {
            break;
        }
        let close = if last { "Connection: close\r\n" } else { "" };
        let page = served.page;
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n{close}\r\n{page}", page.len());
        if stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
        if last {
            break;
        }
    }
    stream.conn.send_close_notify();
    let _flushed = stream.flush();
}
