//! A name server on a loopback port, UDP and TCP, that answers from a table.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "shared by test files, each of which uses a part of it"
)]

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hickory_resolver::config::{NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts};
use hickory_resolver::proto::op::{Message, OpCode, ResponseCode};
use hickory_resolver::proto::rr::rdata::{CNAME, SRV};
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
use keda_vllm_scaler::sources::dns::NameServers;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// What a question is answered with.
#[derive(Clone, Debug)]
pub enum Reply {
    /// Records of the asked name, and records that come along.
    Records { answers: Vec<Record>, additionals: Vec<Record> },
    /// The records over TCP; over UDP the first of them, marked as cut.
    TooLargeForUdp(Vec<Record>),
    /// No records and this code.
    Code(ResponseCode),
    /// Nothing.
    Silence,
}

pub type Table = HashMap<(Name, RecordType), Reply>;

/// The server. A name without an entry is answered NXDOMAIN, a name with an entry of another type with no records.
pub struct FakeDns {
    addr: SocketAddr,
    table: watch::Sender<Table>,
    questions: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

impl FakeDns {
    pub async fn start() -> Self {
        let (table, answers) = watch::channel(Table::new());
        let questions = Arc::new(AtomicUsize::new(0));
        let (udp, tcp) = loop {
            let udp = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            // The same number may be taken for TCP.
            if let Ok(tcp) = TcpListener::bind(udp.local_addr().unwrap()).await {
                break (udp, tcp);
            }
        };
        let addr = udp.local_addr().unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(serve_udp(udp, answers.clone(), questions.clone()));
        tasks.spawn(serve_tcp(tcp, answers));
        Self { addr, table, questions, _tasks: tasks }
    }

    /// From the next question on.
    pub fn now_answers(&self, name: &str, kind: RecordType, reply: Reply) {
        self.table.send_modify(|table| {
            table.insert((fqdn(name), kind), reply);
        });
    }

    pub fn questions(&self) -> usize {
        self.questions.load(Ordering::SeqCst)
    }

    /// A resolver's configuration that asks this server alone, with short time-outs.
    pub fn name_servers(&self) -> NameServers {
        let mut server = NameServerConfig::udp_and_tcp(self.addr.ip());
        for connection in &mut server.connections {
            connection.port = self.addr.port();
        }
        let mut options = ResolverOpts::default();
        options.timeout = Duration::from_millis(150);
        options.attempts = 1;
        options.use_hosts_file = ResolveHosts::Never;
        NameServers::Given {
            config: ResolverConfig::from_parts(None, vec![fqdn("svc.cluster.local")], vec![server]),
            options: Box::new(options),
        }
    }
}

pub fn fqdn(name: &str) -> Name {
    let mut name = Name::from_ascii(name).unwrap();
    name.set_fqdn(true);
    name
}

pub fn a(name: &str, ip: [u8; 4]) -> Record {
    Record::from_rdata(fqdn(name), 30, RData::from(IpAddr::V4(Ipv4Addr::from(ip))))
}

pub fn aaaa(name: &str, ip: &str) -> Record {
    Record::from_rdata(fqdn(name), 30, RData::from(IpAddr::V6(ip.parse::<Ipv6Addr>().unwrap())))
}

pub fn cname(name: &str, target: &str) -> Record {
    Record::from_rdata(fqdn(name), 30, RData::CNAME(CNAME(fqdn(target))))
}

pub fn srv(name: &str, port: u16, target: &str) -> Record {
    Record::from_rdata(fqdn(name), 30, RData::SRV(SRV::new(0, 50, port, fqdn(target))))
}

impl Reply {
    pub fn records(answers: Vec<Record>) -> Self {
        Self::Records { answers, additionals: Vec::new() }
    }
}

async fn serve_udp(socket: UdpSocket, table: watch::Receiver<Table>, questions: Arc<AtomicUsize>) {
    let mut buffer = vec![0; 4096];
    while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
        questions.fetch_add(1, Ordering::SeqCst);
        if let Some(answer) = answer(&buffer[..length], &table, false) {
            socket.send_to(&answer, from).await.unwrap();
        }
    }
}

async fn serve_tcp(listener: TcpListener, table: watch::Receiver<Table>) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let table = table.clone();
        tokio::spawn(async move {
            while let Ok(length) = stream.read_u16().await {
                let mut question = vec![0; usize::from(length)];
                stream.read_exact(&mut question).await.unwrap();
                let Some(answer) = answer(&question, &table, true) else { return };
                stream.write_u16(u16::try_from(answer.len()).unwrap()).await.unwrap();
                stream.write_all(&answer).await.unwrap();
            }
        });
    }
}

fn answer(question: &[u8], table: &watch::Receiver<Table>, tcp: bool) -> Option<Vec<u8>> {
    let question = Message::from_vec(question).unwrap();
    let query = question.queries[0].clone();
    let mut name = query.name().clone();
    name.set_fqdn(true);
    let mut message = Message::response(question.metadata.id, OpCode::Query);
    message.metadata.recursion_available = true;
    message.add_query(query.clone());
    let table = table.borrow();
    match table.get(&(name.to_lowercase(), query.query_type())) {
        Some(Reply::Records { answers, additionals }) => {
            message.add_answers(answers.clone());
            message.add_additionals(additionals.clone());
        }
        Some(Reply::TooLargeForUdp(answers)) if tcp => {
            message.add_answers(answers.clone());
        }
        Some(Reply::TooLargeForUdp(answers)) => {
            message.metadata.truncation = true;
            message.add_answer(answers[0].clone());
        }
        Some(Reply::Code(code)) => message.metadata.response_code = *code,
        Some(Reply::Silence) => return None,
        None if table.keys().any(|(known, _)| *known == name) => {}
        None => message.metadata.response_code = ResponseCode::NXDomain,
    }
    Some(message.to_vec().unwrap())
}
