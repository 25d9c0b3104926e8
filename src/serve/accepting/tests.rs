//! Real sockets on loopback, small limits.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

async fn port(when_full: WhenFull) -> (Accepting, SocketAddr) {
    let limits = Limits { connections: 2, when_full, first_bytes: None };
    let accepting = Accepting::bind(LOOPBACK, limits).await.unwrap();
    let address = accepting.local_addr();
    (accepting, address)
}

async fn connect(address: SocketAddr) -> TcpStream {
    TcpStream::connect(address).await.unwrap()
}

#[tokio::test]
async fn one_connection_too_many_waits_until_a_place_is_free() {
    let (mut accepting, address) = port(WhenFull::Wait).await;
    let _peers = (connect(address).await, connect(address).await);
    let (first, _second) = (accepting.next().await, accepting.next().await);
    let mut third = connect(address).await;
    third.write_all(b"third").await.unwrap();
    let mut next = still_waiting(accepting).await;
    drop(first);
    let mut heard = [0; 5];
    next.recv().await.unwrap().read_exact(&mut heard).await.unwrap();
    assert_eq!(&heard, b"third");
}

/// Goes on accepting in a task, and shows that nothing comes of it as long as everything else stands still.
async fn still_waiting(mut accepting: Accepting) -> tokio::sync::mpsc::UnboundedReceiver<Connection> {
    let open = Arc::clone(&accepting.open);
    let (send, mut accepted) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        send.send(accepting.next().await).ok();
    });
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(accepted.try_recv().is_err());
    assert_eq!(open.count(), 2);
    accepted
}

#[tokio::test]
async fn one_connection_too_many_takes_the_place_of_the_oldest() {
    let (mut accepting, address) = port(WhenFull::CloseOldest).await;
    let mut peers = Vec::new();
    let mut served = Vec::new();
    for _ in 0..3 {
        peers.push(connect(address).await);
        served.push(accepting.next().await);
    }
    let ended = served[0].read_u8().await.unwrap_err();
    assert_eq!(ended.kind(), io::ErrorKind::ConnectionAborted);
    assert!(served[0].write_all(b"late").await.is_err());
    for n in [1, 2] {
        peers[n].write_all(b"x").await.unwrap();
        assert_eq!(served[n].read_u8().await.unwrap(), b'x', "the younger ones stay");
    }
    drop(served);
    assert_eq!(accepting.open.count(), 0);
}

#[tokio::test]
async fn an_oldest_that_waits_for_its_peer_hears_that_its_place_is_needed() {
    let (mut accepting, address) = port(WhenFull::CloseOldest).await;
    let _peers = (connect(address).await, connect(address).await, connect(address).await);
    let mut first = accepting.next().await;
    let waiting = tokio::spawn(async move { first.read_u8().await });
    tokio::task::yield_now().await;
    let _others = (accepting.next().await, accepting.next().await);
    assert!(waiting.await.unwrap().is_err());
}

async fn silent_after(said: &[u8]) -> io::Result<usize> {
    let first = FirstBytes { bytes: 24, within: Duration::from_millis(50) };
    let limits = Limits { connections: 2, when_full: WhenFull::Wait, first_bytes: Some(first) };
    let mut accepting = Accepting::bind(LOOPBACK, limits).await.unwrap();
    let mut peer = connect(accepting.local_addr()).await;
    peer.write_all(said).await.unwrap();
    let mut connection = accepting.next().await;
    let mut heard = Vec::new();
    let read = connection.read_to_end(&mut heard);
    tokio::select! {
        read = read => read,
        () = sleep(Duration::from_millis(500)) => Ok(said.len()),
    }
}

#[tokio::test]
async fn a_connection_that_doesn_t_say_its_first_bytes_in_time_is_closed() {
    for said in [&b""[..], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r"] {
        assert_eq!(silent_after(said).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
    assert_eq!(silent_after(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap(), 24, "then it may be silent");
}
