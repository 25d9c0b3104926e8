//! Many streams and many calls on one connection, as KEDA's pooled client makes them.

#![allow(clippy::unwrap_used, reason = "helpers of tests, outside their functions")]

#[path = "common/grpc.rs"]
mod grpc;
#[path = "common/published.rs"]
mod published;

use std::sync::Arc;

use grpc::{asker, start, until};
use keda_vllm_scaler::proto::{IsActiveResponse, ScaledObjectRef};
use published::{publisher, tier};

const CHAT: &[(&str, &str)] = &[("tier", "chat")];

#[tokio::test]
async fn streams_that_clients_drop_leave_nothing_behind() {
    let (mut control_loop, published) = publisher();
    control_loop.required(&tier("chat"), 1);
    let server = start(&published).await;
    let mut client = server.client().await;
    for round in 0..40 {
        let mut open = Vec::new();
        for _ in 0..250 {
            let mut pushes = client.stream_is_active(asker(CHAT)).await.unwrap().into_inner();
            assert!(pushes.message().await.unwrap().unwrap().result);
            open.push(pushes);
        }
        drop(open);
        until(&format!("round {round} is closed"), || server.counters.streams_open("StreamIsActive") == 0)
            .await;
    }
}

/// A server on a thread of its own, which stands still from `pause` until `go_on`.
struct Pausable {
    channel: tonic::transport::Channel,
    pause: tokio::sync::oneshot::Sender<()>,
    go_on: std::sync::mpsc::Sender<()>,
}

async fn pausable(published: keda_vllm_scaler::snapshot::Published) -> Pausable {
    let (pause, paused) = tokio::sync::oneshot::channel::<()>();
    let (go_on, waits) = std::sync::mpsc::channel::<()>();
    let (tell, told) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let server = start(&published).await;
            tell.send(server.address).unwrap();
            paused.await.unwrap();
            waits.recv().unwrap();
            server.served.await.unwrap().unwrap();
        });
    });
    Pausable { channel: grpc::channel(told.await.unwrap()).await, pause, go_on }
}

#[tokio::test]
async fn a_burst_that_finds_the_server_without_cpu_keeps_its_connection() {
    const CALLS: usize = 10_000;
    let (mut control_loop, published) = publisher();
    control_loop.required(&tier("chat"), 7);
    let server = pausable(published).await;
    let ask = |sent: Arc<std::sync::atomic::AtomicUsize>| {
        let mut client = tonic::client::Grpc::new(server.channel.clone());
        async move {
            client.ready().await.unwrap();
            sent.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            // A short request: the smaller a frame, the dearer it is to h2.
            let path = "/externalscaler.ExternalScaler/IsActive".parse().unwrap();
            let codec = tonic_prost::ProstCodec::<ScaledObjectRef, IsActiveResponse>::default();
            let mut chat = asker(&[]);
            chat.name = "chat".into();
            client.unary(tonic::Request::new(chat), path, codec).await
        }
    };
    // The first call also brings the server's settings, without which a client opens few streams.
    let sent = Arc::default();
    ask(Arc::clone(&sent)).await.unwrap();
    server.pause.send(()).unwrap();
    let calls: Vec<_> = (0..CALLS).map(|_| tokio::spawn(ask(Arc::clone(&sent)))).collect();
    // The client's own queue takes a thousand; what is beyond is on the wire.
    until("nine in ten are sent", || sent.load(std::sync::atomic::Ordering::Relaxed) > CALLS * 9 / 10).await;
    server.go_on.send(()).unwrap();
    for call in calls {
        assert!(call.await.unwrap().unwrap().into_inner().result);
    }
}
