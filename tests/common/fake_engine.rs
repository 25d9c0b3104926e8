//! A server on a real socket that answers as it is told, faults included.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "shared by test files, each of which uses a part of it"
)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What happens to a request.
#[derive(Clone, Debug)]
pub enum Answer {
    /// 200 with this body and a true `Content-Length`; the connection stays open.
    Page { body: Vec<u8>, content_type: &'static str },
    /// These bytes, then the connection is closed.
    Raw(Vec<u8>),
    /// These bytes, then nothing for ever.
    RawThenSilence(Vec<u8>),
    /// These bytes, then one more byte at a time for ever.
    Drip { head: Vec<u8>, every: Duration },
    /// These bytes, then zeros as fast as they are taken, for ever.
    Endless(Vec<u8>),
    /// The connection is reset without a byte.
    Reset,
    /// A page for the first request of each connection, a reset for its second.
    PageThenReset(Vec<u8>),
}

impl Answer {
    /// A page of vLLM's kind.
    pub fn page(body: &str) -> Self {
        Self::Page {
            body: body.as_bytes().to_vec(),
            content_type: "text/plain; version=1.0.0; charset=utf-8",
        }
    }

    /// Status line and headers, then the body as given.
    pub fn with_head(head: &str, body: &[u8]) -> Vec<u8> {
        let mut bytes = format!("{}\r\n\r\n", head.trim().replace('\n', "\r\n")).into_bytes();
        bytes.extend_from_slice(body);
        bytes
    }
}

/// The server. It ends when dropped.
pub struct FakeEngine {
    pub addr: SocketAddr,
    answer: watch::Sender<Answer>,
    seen: Arc<Seen>,
    heads: watch::Receiver<Vec<String>>,
    task: JoinHandle<()>,
}

/// What came in.
#[derive(Default)]
struct Seen {
    connections: AtomicUsize,
    requests: AtomicUsize,
    open: AtomicUsize,
    most_open: AtomicUsize,
}

impl FakeEngine {
    /// On a free port of 127.0.0.1.
    pub async fn start(answer: Answer) -> Self {
        Self::start_on("127.0.0.1:0", answer).await
    }

    pub async fn start_on(addr: &str, answer: Answer) -> Self {
        let listener = TcpListener::bind(addr).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (answer, answers) = watch::channel(answer);
        let (head_tx, heads) = watch::channel(Vec::new());
        let seen = Arc::new(Seen::default());
        let counted = seen.clone();
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                counted.connections.fetch_add(1, Ordering::SeqCst);
                connections.spawn(serve(stream, answers.clone(), counted.clone(), head_tx.clone()));
            }
        });
        Self { addr, answer, seen, heads, task }
    }

    pub fn url(&self) -> String {
        format!("http://{}/metrics", self.addr)
    }

    /// From the next request on.
    pub fn now_answers(&self, answer: Answer) {
        self.answer.send_replace(answer);
    }

    pub fn requests(&self) -> usize {
        self.seen.requests.load(Ordering::SeqCst)
    }

    pub fn connections(&self) -> usize {
        self.seen.connections.load(Ordering::SeqCst)
    }

    /// The most requests that were being answered at the same time.
    pub fn most_at_once(&self) -> usize {
        self.seen.most_open.load(Ordering::SeqCst)
    }

    /// Requests being answered now.
    pub fn open(&self) -> usize {
        self.seen.open.load(Ordering::SeqCst)
    }

    /// Request lines and headers, oldest first.
    pub fn heads(&self) -> Vec<String> {
        self.heads.borrow().clone()
    }

    /// Waits until so many requests came in.
    pub async fn until_requests(&self, count: usize) {
        let mut heads = self.heads.clone();
        tokio::time::timeout(Duration::from_secs(20), heads.wait_for(|heads| heads.len() >= count))
            .await
            .expect("the requests never come")
            .unwrap();
    }
}

impl Drop for FakeEngine {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(
    mut stream: TcpStream,
    answers: watch::Receiver<Answer>,
    seen: Arc<Seen>,
    heads: watch::Sender<Vec<String>>,
) {
    let mut buffer = Vec::new();
    let mut served = 0;
    while let Some(head) = read_head(&mut stream, &mut buffer).await {
        seen.requests.fetch_add(1, Ordering::SeqCst);
        let open = Open::new(&seen);
        heads.send_modify(|all| all.push(head));
        let answer = answers.borrow().clone();
        let kept = respond(&mut stream, &answer, served).await;
        drop(open);
        if !matches!(kept, Ok(true)) {
            return;
        }
        served += 1;
    }
}

struct Open<'a>(&'a Seen);

impl<'a> Open<'a> {
    fn new(seen: &'a Seen) -> Self {
        let open = seen.open.fetch_add(1, Ordering::SeqCst) + 1;
        seen.most_open.fetch_max(open, Ordering::SeqCst);
        Self(seen)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn read_head(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<String> {
    loop {
        if let Some(end) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&buffer[..end]).into_owned();
            buffer.drain(..end + 4);
            return Some(head);
        }
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
}

/// True where the connection stays open.
async fn respond(stream: &mut TcpStream, answer: &Answer, served: usize) -> std::io::Result<bool> {
    match answer {
        Answer::Page { body, content_type } => {
            page(stream, body, content_type).await?;
            return Ok(true);
        }
        Answer::PageThenReset(body) if served == 0 => {
            page(stream, body, "text/plain").await?;
            return Ok(true);
        }
        Answer::PageThenReset(_) | Answer::Reset => stream.set_zero_linger()?,
        Answer::Raw(bytes) => {
            stream.write_all(bytes).await?;
            stream.shutdown().await?;
        }
        Answer::RawThenSilence(bytes) => {
            stream.write_all(bytes).await?;
            until_closed(stream).await;
        }
        Answer::Drip { head, every } => {
            stream.write_all(head).await?;
            loop {
                stream.write_all(b"x").await?;
                tokio::time::sleep(*every).await;
            }
        }
        Answer::Endless(head) => {
            stream.write_all(head).await?;
            let zeros = vec![0; 64 * 1024];
            loop {
                stream.write_all(&zeros).await?;
            }
        }
    }
    Ok(false)
}

async fn until_closed(stream: &mut TcpStream) {
    let mut sink = [0; 64];
    while matches!(stream.read(&mut sink).await, Ok(n) if n > 0) {}
}

async fn page(stream: &mut TcpStream, body: &[u8], content_type: &str) -> std::io::Result<()> {
    let head =
        format!("HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all(&[head.as_bytes(), body].concat()).await
}

/// An address where nothing listens.
pub async fn refusing_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

/// An address whose backlog is full: the kernel drops further connection attempts. Keep the guard.
pub async fn full_backlog() -> (SocketAddr, Box<dyn Send>) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let addr = listener.local_addr().unwrap();
    let mut held = Vec::new();
    while let Ok(stream) = tokio::time::timeout(Duration::from_millis(100), TcpStream::connect(addr)).await {
        held.push(stream.unwrap());
        assert!(held.len() < 100, "the backlog never fills");
    }
    (addr, Box::new((listener, held)))
}
