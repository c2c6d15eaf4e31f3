//! Tests of client and server against each other over real sockets, and of the server against misbehaving peers.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use hearth_fabric::{MessageMemory, SlowPeerLimits};
use hearth_testkit::{eventually, until};
use hearth_wire::proto::hdfs::{BlockProto, ExtendedBlockProto};
use hearth_wire::rpc::{RemoteError, exceptions, protocols};
use parking_lot::Mutex;
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::*;

const WAIT: Duration = Duration::from_secs(60);

/// Number of tries, for cases where a briefly suspended machine changes the outcome.
const TRIES: usize = 20;

/// Answers `echo` at once, `slow` after the number of milliseconds in the block id, `held` when the gate opens, and
/// `fail` with an exception.
#[derive(Default)]
struct Echo {
    gate: Notify,
    calls: AtomicUsize,
    finished: AtomicUsize,
    /// Number of the connection of the last call.
    connection: AtomicU64,
    /// Numbers of the connections that their peers have closed.
    ended: Mutex<Vec<u64>>,
}

impl Service for Echo {
    fn protocols(&self) -> &[&'static str] {
        &[protocols::CLIENT]
    }

    fn disconnected(&self, caller: &Caller) {
        self.ended.lock().push(caller.connection);
    }

    async fn call(&self, call: Call) -> Result<Bytes, RemoteError> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        self.connection.store(call.caller.connection, Ordering::SeqCst);
        let request = BlockProto::decode(call.request).map_err(|error| undecodable(&call.method, &error))?;
        let answer = match call.method.as_str() {
            "echo" => Ok(request.encode_to_vec().into()),
            "slow" => {
                // The work of the call, not a wait for anything.
                tokio::time::sleep(Duration::from_millis(request.block_id)).await;
                Ok(request.encode_to_vec().into())
            }
            "held" => {
                self.gate.notified().await;
                Ok(request.encode_to_vec().into())
            }
            "fail" => Err(application_error(exceptions::FILE_NOT_FOUND, format!("for {}", call.caller.user))),
            other => Err(no_such_method(&call.protocol, other)),
        };
        self.finished.fetch_add(1, Ordering::SeqCst);
        answer
    }
}

async fn start(options: RpcServerOptions) -> (RpcServer, Arc<Echo>, Target) {
    let service = Arc::new(Echo::default());
    let server = RpcServer::start("127.0.0.1:0", service.clone(), options).await.unwrap();
    let target = Target { address: server.address(), protocol: protocols::CLIENT, user: "alice".into() };
    (server, service, target)
}

fn block(id: u64) -> BlockProto {
    BlockProto { block_id: id, gen_stamp: 1, num_bytes: Some(2) }
}

#[tokio::test]
async fn calls_complete_out_of_order() {
    let (_server, service, target) = start(RpcServerOptions::default()).await;
    let client = RpcClient::new(RpcClientOptions::default());
    let held = tokio::spawn({
        let (client, target) = (client.clone(), target.clone());
        async move { client.call::<BlockProto>(&target, "held", &block(200)).await.unwrap() }
    });
    until("the call", async || service.calls.load(Ordering::SeqCst) == 1).await;
    for id in 0..100 {
        assert_eq!(client.call::<BlockProto>(&target, "echo", &block(id)).await.unwrap(), block(id));
    }
    assert!(!held.is_finished());
    service.gate.notify_one();
    assert_eq!(held.await.unwrap(), block(200));
}

#[tokio::test]
async fn calls_are_counted_by_method() {
    let (server, service, target) = start(RpcServerOptions::default()).await;
    let client = RpcClient::new(RpcClientOptions::default());
    client.call::<BlockProto>(&target, "echo", &block(1)).await.unwrap();
    client.call::<BlockProto>(&target, "getFileInfo", &block(1)).await.unwrap_err();
    let held = tokio::spawn({
        let (client, target) = (client.clone(), target.clone());
        async move { client.call::<BlockProto>(&target, "held", &block(2)).await.unwrap() }
    });
    until("the call", async || service.calls.load(Ordering::SeqCst) == 3).await;
    let figures = server.metrics().figures(1);
    let method = |name: &str| {
        let method = figures.methods.iter().find(|method| method.name == name).unwrap();
        (method.queue.count(), method.processing.count(), method.errors)
    };
    assert_eq!(method("getFileInfo"), (1, 1, 1));
    // The protocol has neither `echo` nor `held`.
    assert_eq!(method("other"), (2, 1, 0));
    assert_eq!((figures.connections, figures.calls_in_progress, figures.authorizations), (1, 1, 1));
    assert!(figures.received_bytes > 0 && figures.sent_bytes > 0, "{figures:?}");
    service.gate.notify_one();
    assert_eq!(held.await.unwrap(), block(2));
    assert_eq!(server.metrics().figures(1).calls_in_progress, 0);
}

#[tokio::test]
async fn exceptions_arrive_with_class_and_text() {
    let (_server, _, target) = start(RpcServerOptions::default()).await;
    let client = RpcClient::new(RpcClientOptions::default());
    let error = client.call::<BlockProto>(&target, "fail", &block(1)).await.unwrap_err();
    assert_eq!(error.remote_class(), Some(exceptions::FILE_NOT_FOUND));
    assert_eq!(error.to_string(), "java.io.FileNotFoundException: for alice");
    let error = client.call::<BlockProto>(&target, "none", &block(1)).await.unwrap_err();
    assert_eq!(error.remote_class(), Some(exceptions::RPC_NO_SUCH_METHOD));
    let stranger = Target { protocol: protocols::HA_SERVICE, ..target.clone() };
    let error = client.call::<BlockProto>(&stranger, "echo", &block(1)).await.unwrap_err();
    assert_eq!(error.remote_class(), Some(exceptions::RPC_NO_SUCH_PROTOCOL));
    // A request without required fields is an error of that call only.
    let error = client.call::<BlockProto>(&target, "echo", &ExtendedBlockProto::default()).await.unwrap_err();
    assert_eq!(error.remote_class(), Some(exceptions::RPC_SERVER));
    client.call::<BlockProto>(&target, "echo", &block(1)).await.unwrap();
}

#[tokio::test]
async fn client_reconnects_to_restarted_server() {
    // An address that other tests do not use, because the port is free again for a while.
    let here = "127.0.0.2:0";
    let server = RpcServer::start(here, Arc::new(Echo::default()), RpcServerOptions::default()).await.unwrap();
    let target = Target { address: server.address(), protocol: protocols::CLIENT, user: "alice".into() };
    let client = RpcClient::new(RpcClientOptions::default());
    client.call::<BlockProto>(&target, "echo", &block(1)).await.unwrap();
    drop(server);
    // The server's tasks may answer until they have ended.
    let call = async || client.call::<BlockProto>(&target, "echo", &block(1)).await.err();
    let error = eventually("the end of the server", call).await;
    assert!(error.is_transport(), "{error}");
    let service = Arc::new(Echo::default());
    let address = target.address.to_string();
    let _server = RpcServer::start(&address, service, RpcServerOptions::default()).await.unwrap();
    client.call::<BlockProto>(&target, "echo", &block(2)).await.unwrap();
}

#[tokio::test]
async fn calls_time_out_and_idle_connections_close() {
    let (_server, _, target) = start(RpcServerOptions::default()).await;
    let impatient = RpcClientOptions {
        rpc_timeout: Duration::from_millis(50),
        ping_interval: Duration::from_millis(10),
        ..RpcClientOptions::default()
    };
    let error = RpcClient::new(impatient).call::<BlockProto>(&target, "held", &block(1)).await.unwrap_err();
    assert!(matches!(error, RpcError::TimedOut { .. }), "{error}");
    let idle_timeout = Duration::from_millis(20);
    let client = RpcClient::new(RpcClientOptions { idle_timeout, ..RpcClientOptions::default() });
    for _ in 0..5 {
        client.call::<BlockProto>(&target, "echo", &block(2)).await.unwrap();
        until("the idle connection to close", async || client.connections() == 0).await;
    }
}

#[tokio::test]
async fn call_completes_after_its_connection_breaks() {
    let (_server, service, target) = start(RpcServerOptions::default()).await;
    let client = RpcClient::new(RpcClientOptions {
        rpc_timeout: Duration::from_millis(20),
        idle_timeout: Duration::from_millis(1),
        ..RpcClientOptions::default()
    });
    client.call::<BlockProto>(&target, "slow", &block(100)).await.unwrap_err();
    drop(client);
    until("the end of the call", async || service.finished.load(Ordering::SeqCst) == 1).await;
}

/// A program may end the runtime that runs a connection, and use the client in another one.
#[test]
fn calls_fail_when_their_runtime_ends() {
    let build = || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (servers, first, second) = (build(), build(), build());
    let (_server, service, target) = servers.block_on(start(RpcServerOptions::default()));
    let client = RpcClient::new(RpcClientOptions::default());
    first.block_on(client.call::<BlockProto>(&target, "echo", &block(1))).unwrap();
    let held = second.spawn({
        let (client, target) = (client.clone(), target.clone());
        async move { client.call::<BlockProto>(&target, "held", &block(2)).await.unwrap_err() }
    });
    second.block_on(until("the call", async || service.calls.load(Ordering::SeqCst) == 2));
    first.shutdown_timeout(WAIT);
    let error = second.block_on(held).unwrap();
    assert!(matches!(error, RpcError::Disconnected { sent: true, .. }), "{error}");
    assert_eq!(second.block_on(client.call::<BlockProto>(&target, "echo", &block(3))).unwrap(), block(3));
}

/// Servers close connections while a client is suspended, or its runtime does not run.
#[test]
fn call_after_a_long_pause_takes_a_new_connection() {
    let servers = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let callers = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let options = RpcServerOptions { idle_timeout: Duration::from_millis(100), ..RpcServerOptions::default() };
    let (server, service, target) = servers.block_on(start(options));
    let idle_timeout = Duration::from_millis(1);
    let client = RpcClient::new(RpcClientOptions { idle_timeout, ..RpcClientOptions::default() });
    callers.block_on(client.call::<BlockProto>(&target, "echo", &block(1))).unwrap();
    let first = service.connection.load(Ordering::SeqCst);
    let paused = Instant::now();
    let is_closed = async || server.metrics().figures(1).connections == 0 && paused.elapsed() > idle_timeout;
    servers.block_on(until("the end of the idle connection", is_closed));
    // This call is started before the task of the connection runs again.
    assert_eq!(callers.block_on(client.call::<BlockProto>(&target, "echo", &block(2))).unwrap(), block(2));
    assert_ne!(service.connection.load(Ordering::SeqCst), first);
}

#[tokio::test]
async fn call_that_was_not_sent_is_repeated_over_a_new_connection() {
    let (_server, service, target) = start(RpcServerOptions::default()).await;
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(128 << 10).unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(2).unwrap();
    let near = Target { address: listener.local_addr().unwrap(), ..target.clone() };
    let client = RpcClient::new(RpcClientOptions::default());
    let long = tokio::spawn({
        let (client, near) = (client.clone(), near.clone());
        let request = ExtendedBlockProto { pool_id: "x".repeat(32 << 20), ..ExtendedBlockProto::default() };
        async move { client.call::<BlockProto>(&near, "echo", &request).await.unwrap_err() }
    });
    // Takes the beginning of the long call, which then fills the socket.
    let (mut first, _) = listener.accept().await.unwrap();
    first.read_exact(&mut [0; 1024]).await.unwrap();
    let request = block(1);
    let mut behind = pin!(client.call::<BlockProto>(&near, "echo", &request));
    assert!(behind.as_mut().now_or_never().is_none());
    drop(first);
    let error = long.await.unwrap();
    assert!(matches!(error, RpcError::Disconnected { sent: true, .. }), "{error}");
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut far = TcpStream::connect(target.address).await.unwrap();
        let _ = tokio::io::copy_bidirectional(&mut stream, &mut far).await;
    });
    assert_eq!(behind.await.unwrap(), block(1));
    assert_eq!(service.calls.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn service_learns_which_connections_their_peers_close() {
    let (_server, service, target) = start(RpcServerOptions::default()).await;
    let (one, other) = (RpcClient::new(RpcClientOptions::default()), RpcClient::new(RpcClientOptions::default()));
    let number = async |client: &RpcClient| {
        client.call::<BlockProto>(&target, "echo", &block(1)).await.unwrap();
        service.connection.load(Ordering::SeqCst)
    };
    let (first, second) = (number(&one).await, number(&other).await);
    assert!(first > 0 && second > 0 && first != second, "{first} {second}");
    assert_eq!(number(&one).await, first, "one connection for all calls of a client");
    assert!(service.ended.lock().is_empty());
    // A call in progress does not keep the end from being seen.
    let calls = service.calls.load(Ordering::SeqCst);
    let held = tokio::spawn({
        let (one, target) = (one.clone(), target.clone());
        async move { one.call::<BlockProto>(&target, "held", &block(2)).await }
    });
    until("the call", async || service.calls.load(Ordering::SeqCst) > calls).await;
    held.abort();
    drop(one);
    until("the end", async || *service.ended.lock() == [first]).await;
    assert_eq!(number(&other).await, second);
}

#[tokio::test]
async fn connection_closed_by_the_server_is_no_end_of_a_peer() {
    let options = RpcServerOptions { idle_timeout: Duration::from_millis(1), ..RpcServerOptions::default() };
    let (_server, service, target) = start(options).await;
    let client = RpcClient::new(RpcClientOptions::default());
    client.call::<BlockProto>(&target, "echo", &block(1)).await.unwrap();
    until("the idle connection to close", async || client.connections() == 0).await;
    assert!(service.ended.lock().is_empty());
}

/// Proxy between clients and a server that counts the connections. The first `silent` connections are accepted, but get
/// no answer.
async fn between(target: &Target, silent: usize) -> (Target, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let near = Target { address: listener.local_addr().unwrap(), ..target.clone() };
    let connections = Arc::new(AtomicUsize::new(0));
    let (server, counted) = (target.address, connections.clone());
    tokio::spawn(async move {
        let mut taken = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            if counted.fetch_add(1, Ordering::SeqCst) < silent {
                taken.push(stream);
                continue;
            }
            tokio::spawn(async move {
                let mut far = TcpStream::connect(server).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut stream, &mut far).await;
            });
        }
    });
    (near, connections)
}

#[tokio::test]
async fn silent_connection_closes_when_call_times_out() {
    let (_server, _, target) = start(RpcServerOptions::default()).await;
    let (near, connections) = between(&target, 1).await;
    let client =
        RpcClient::new(RpcClientOptions { rpc_timeout: Duration::from_millis(300), ..RpcClientOptions::default() });
    let error = client.call::<BlockProto>(&near, "echo", &block(1)).await.unwrap_err();
    assert!(matches!(error, RpcError::TimedOut { .. }), "{error}");
    // A caller that retries at once gets a new connection; over the silent one every retry would fail.
    let mut answered = Err(error);
    for _ in 0..TRIES {
        answered = client.call::<BlockProto>(&near, "echo", &block(2)).await;
        if !matches!(answered, Err(RpcError::TimedOut { .. })) {
            break;
        }
    }
    assert_eq!(answered.unwrap(), block(2));
    assert!(connections.load(Ordering::SeqCst) >= 2);
}

#[tokio::test]
async fn timed_out_call_keeps_active_connection() {
    let (_server, _, target) = start(RpcServerOptions::default()).await;
    let rpc_timeout = Duration::from_millis(300);
    // A call that times out ends the connection even if it would have been answered, and with it the other waiting
    // calls.
    for attempt in 1.. {
        let (near, connections) = between(&target, 0).await;
        let client = RpcClient::new(RpcClientOptions { rpc_timeout, ..RpcClientOptions::default() });
        match echoes_beside_one_that_times_out(&client, &near).await {
            Err(error) if error.is_transport() && attempt < TRIES => {}
            outcome => {
                outcome.unwrap();
                return assert_eq!(connections.load(Ordering::SeqCst), 1);
            }
        }
    }
}

/// Errors: that of the first echo.
async fn echoes_beside_one_that_times_out(client: &RpcClient, target: &Target) -> Result<(), RpcError> {
    // Two calls that start at once may each connect.
    client.call::<BlockProto>(target, "echo", &block(0)).await?;
    let held = tokio::spawn({
        let (client, target) = (client.clone(), target.clone());
        async move { client.call::<BlockProto>(&target, "held", &block(1)).await.unwrap_err() }
    });
    while !held.is_finished() {
        client.call::<BlockProto>(target, "echo", &block(1)).await?;
    }
    assert!(matches!(held.await.unwrap(), RpcError::TimedOut { .. }));
    client.call::<BlockProto>(target, "echo", &block(2)).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_long_request_is_not_stalled() {
    let (_server, _, target) = start(RpcServerOptions::default()).await;
    for attempt in 1.. {
        let (error, longest) = a_long_request(&target).await;
        // The request arrives complete: the service reports that it cannot decode it.
        if error.remote_class() == Some(exceptions::RPC_SERVER) {
            return;
        }
        assert!(longest >= PAUSE_MAX && attempt < TRIES, "{error}; at most {longest:?} without a byte");
    }
}

/// Pause after which an arriving request may be taken for a stalled one.
const PAUSE_MAX: Duration = Duration::from_millis(60);

/// Returns the service's answer to a long request that arrives slowly, and the longest pause in which none of it was
/// accepted.
async fn a_long_request(target: &Target) -> (RpcError, Duration) {
    // Accepts some tens of MB per second, in small pieces.
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(128 << 10).unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let near = Target { address: listener.local_addr().unwrap(), ..target.clone() };
    let longest = Arc::new(AtomicU64::new(0));
    let (server, noted) = (target.address, longest.clone());
    let passing = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let (mut reading, mut writing) = stream.into_split();
        let (mut far_reading, mut far_writing) = TcpStream::connect(server).await.unwrap().into_split();
        tokio::spawn(async move { tokio::io::copy(&mut far_reading, &mut writing).await });
        let mut piece = vec![0; 128 << 10];
        let mut read = Instant::now();
        loop {
            let count = reading.read(&mut piece).await;
            noted.fetch_max(read.elapsed().as_micros() as u64, Ordering::Relaxed);
            read = Instant::now();
            match count {
                Ok(0) | Err(_) => return,
                Ok(count) => far_writing.write_all(&piece[..count]).await.unwrap(),
            }
            // The pace of the slow link.
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
    let client =
        RpcClient::new(RpcClientOptions { ping_interval: Duration::from_millis(200), ..RpcClientOptions::default() });
    let request = ExtendedBlockProto { pool_id: "x".repeat(32 << 20), ..ExtendedBlockProto::default() };
    let error = client.call::<BlockProto>(&near, "echo", &request).await.unwrap_err();
    drop(client);
    // A pause that is still going on counts as well.
    tokio::time::timeout(WAIT, passing).await.expect("the task ends with the connection").unwrap();
    (error, Duration::from_micros(longest.load(Ordering::Relaxed)))
}

/// Sends `bytes`, shuts down the sending side, and returns what the server sends until it closes; `None` if it does not
/// close.
async fn say(target: &Target, bytes: &[u8]) -> Option<Vec<u8>> {
    let mut stream = TcpStream::connect(target.address).await.unwrap();
    // The server may have closed already; what it sent is still read.
    let _ = stream.write_all(bytes).await;
    let mut answer = Vec::new();
    match tokio::time::timeout(WAIT, stream.read_to_end(&mut answer)).await {
        Ok(_) => Some(answer),
        Err(_) => None,
    }
}

#[tokio::test]
async fn misbehaving_peers_are_answered_and_disconnected() {
    let (_server, service, target) = start(RpcServerOptions::default()).await;
    let answer = say(&target, b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 404 Not Found"));
    let answer = say(&target, b"hrpc\x0a\x00\x00").await.unwrap();
    assert!(
        String::from_utf8_lossy(&answer).contains("Server IPC version 9 cannot communicate with client version 10")
    );
    let answer = say(&target, b"hrpc\x09\x00\x22").await.unwrap();
    assert!(String::from_utf8_lossy(&answer).contains("Unknown auth protocol:34"));
    assert_eq!(say(&target, b"hrpc\x08\x00\x00").await.unwrap(), b"");
    // Frames that announce more than the limit, before and after the context.
    assert_eq!(say(&target, b"hrpc\x09\x00\x00\x7f\xff\xff\xff").await.unwrap(), b"");
    // A header, then silence.
    let stall_timeout = Duration::from_millis(200);
    let (_impatient, _, in_a_hurry) = start(RpcServerOptions { stall_timeout, ..RpcServerOptions::default() }).await;
    for bytes in [&b"hrpc\x09\x00\x00"[..], b"hr"] {
        let mut stream = TcpStream::connect(in_a_hurry.address).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let mut answer = Vec::new();
        let left = stream.read_to_end(&mut answer);
        // An error, if the server closed with our bytes unread.
        let _ = tokio::time::timeout(WAIT, left).await.expect("the server disconnects");
        assert_eq!(answer, b"");
    }
    // A frame of random bytes gets a fatal response.
    let answer = say(&target, b"hrpc\x09\x00\x00\x00\x00\x00\x04\xff\xff\xff\xff").await.unwrap();
    assert!(String::from_utf8_lossy(&answer).contains(exceptions::RPC_SERVER));
    // A call before the context.
    let call = hearth_wire::rpc::encode_call(0, ClientId([1; 16]), 0, protocols::CLIENT, "echo", &block(1));
    let answer = say(&target, &[b"hrpc\x09\x00\x00", &call[..]].concat()).await.unwrap();
    assert!(String::from_utf8_lossy(&answer).contains("Connection context not established"));
    assert_eq!(service.calls.load(Ordering::SeqCst), 0);
    // The server still serves after all that.
    let client = RpcClient::new(RpcClientOptions::default());
    client.call::<BlockProto>(&target, "echo", &block(1)).await.unwrap();
}

#[tokio::test]
async fn sasl_negotiation_ends_in_simple() {
    let (_server, _, target) = start(RpcServerOptions::default()).await;
    let mut stream = TcpStream::connect(target.address).await.unwrap();
    // The NEGOTIATE request and the answer as exchanged with a Java client.
    let negotiate = [0, 0, 0, 0x0e, 0x0a, 8, 2, 0x10, 0, 0x18, 0x41, 0x22, 0, 0x28, 1, 2, 0x10, 1];
    stream.write_all(b"hrpc\x09\x00\xdf").await.unwrap();
    stream.write_all(&negotiate).await.unwrap();
    let mut answer = [0; 22];
    stream.read_exact(&mut answer).await.unwrap();
    let expected =
        [0, 0, 0, 0x12, 0x0e, 8, 0xdf, 0xff, 0xff, 0xff, 0x0f, 0x10, 0, 0x18, 9, 0x3a, 0, 0x40, 1, 2, 0x10, 0];
    assert_eq!(answer, expected);
    let id = ClientId([3; 16]);
    let context = hearth_wire::rpc::ConnectionContext::default();
    stream.write_all(&hearth_wire::rpc::encode_context(id, &context)).await.unwrap();
    stream.write_all(&hearth_wire::rpc::encode_call(5, id, 0, protocols::CLIENT, "echo", &block(1))).await.unwrap();
    let mut length = [0; 4];
    stream.read_exact(&mut length).await.unwrap();
    assert!(u32::from_be_bytes(length) > 10);
}

#[tokio::test]
async fn refused_connection_reports_the_reason() {
    let options = RpcServerOptions { frame_bytes_max: 64, ..RpcServerOptions::default() };
    let (_server, _, target) = start(options).await;
    let client = RpcClient::new(RpcClientOptions::default());
    let error = client.call::<BlockProto>(&target, "echo", &block(1)).await.unwrap_err();
    assert!(matches!(error, RpcError::Disconnected { sent: true, .. }), "{error}");
}

#[tokio::test]
async fn impersonation_is_refused_without_rules() {
    let (_server, service, target) = start(RpcServerOptions::default()).await;
    let id = ClientId([3; 16]);
    let context = |real: &str| hearth_wire::rpc::ConnectionContext {
        effective_user: "alice".into(),
        real_user: Some(real.into()),
        protocol: protocols::CLIENT.into(),
    };
    let call = hearth_wire::rpc::encode_call(5, id, 0, protocols::CLIENT, "echo", &block(1));
    let proxy = hearth_wire::rpc::encode_context(id, &context("oozie"));
    let answer = say(&target, &[b"hrpc\x09\x00\x00", &proxy[..], &call[..]].concat()).await.unwrap();
    let text = String::from_utf8_lossy(&answer);
    assert!(text.contains("User: oozie is not allowed to impersonate alice"), "{text}");
    assert!(text.contains(exceptions::AUTHORIZATION));
    assert_eq!(service.calls.load(Ordering::SeqCst), 0);

    let mut stream = TcpStream::connect(target.address).await.unwrap();
    let own = hearth_wire::rpc::encode_context(id, &context("alice"));
    stream.write_all(&[b"hrpc\x09\x00\x00", &own[..], &call[..]].concat()).await.unwrap();
    let mut length = [0; 4];
    stream.read_exact(&mut length).await.unwrap();
    assert_eq!(service.calls.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn requests_over_limit_wait_in_socket() {
    let options = RpcServerOptions { request_bytes_max: 1, ..RpcServerOptions::default() };
    let (_server, service, target) = start(options).await;
    let client = RpcClient::new(RpcClientOptions::default());
    let call = |method| {
        let (client, target) = (client.clone(), target.clone());
        tokio::spawn(async move { client.call::<BlockProto>(&target, method, &block(1)).await.unwrap() })
    };
    let first = call("held");
    until("the call", async || service.calls.load(Ordering::SeqCst) == 1).await;
    let others = [call("echo"), call("echo")];
    // Time for the kernel to deliver them, and for the server to read them by mistake.
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(service.calls.load(Ordering::SeqCst), 1);
    service.gate.notify_one();
    first.await.unwrap();
    for other in others {
        other.await.unwrap();
    }
    assert_eq!(service.calls.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn buffered_calls_continue_after_responses_drain() {
    // One response fills it.
    let (_server, service, target) = start(RpcServerOptions { answer_bytes_max: 1, ..Default::default() }).await;
    let id = ClientId([3; 16]);
    let context = hearth_wire::rpc::encode_context(id, &hearth_wire::rpc::ConnectionContext::default());
    let call = hearth_wire::rpc::encode_call(5, id, 0, protocols::CLIENT, "echo", &block(1));
    let mut stream = TcpStream::connect(target.address).await.unwrap();
    stream.write_all(&[b"hrpc\x09\x00\x00", &context[..], &call[..], &call[..], &call[..]].concat()).await.unwrap();
    let answers = async {
        for _ in 0..3 {
            let length = stream.read_u32().await.unwrap();
            stream.read_exact(&mut vec![0; length as usize]).await.unwrap();
        }
    };
    tokio::time::timeout(WAIT, answers).await.expect("three answers");
    assert_eq!(service.calls.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn silent_connections_do_not_block_others() {
    let options = RpcServerOptions { connections_max: 8, unauthenticated_max: 2, ..RpcServerOptions::default() };
    let (_server, _, target) = start(options).await;
    let known = RpcClient::new(RpcClientOptions::default());
    known.call::<BlockProto>(&target, "echo", &block(1)).await.unwrap();
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(TcpStream::connect(target.address).await.unwrap());
        // The oldest connection's place is free once its task has ended.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(silent[0].read(&mut [0; 1]).await.unwrap(), 0, "the oldest connection is closed");
    let other = RpcClient::new(RpcClientOptions::default());
    other.call::<BlockProto>(&target, "echo", &block(2)).await.unwrap();
    known.call::<BlockProto>(&target, "echo", &block(3)).await.unwrap();
}

/// The bytes that a client sends before its first call.
fn greeting() -> Vec<u8> {
    let context = hearth_wire::rpc::ConnectionContext::default();
    [b"hrpc\x09\x00\x00", &hearth_wire::rpc::encode_context(ClientId([3; 16]), &context)[..]].concat()
}

/// A request that looks like a block to receivers that do not know its last field.
#[derive(Clone, PartialEq, Message)]
struct LongBlock {
    #[prost(uint64, required, tag = "1")]
    block_id: u64,
    #[prost(uint64, required, tag = "2")]
    gen_stamp: u64,
    #[prost(bytes = "vec", tag = "100")]
    filling: Vec<u8>,
}

const LONG: usize = 2 << 20;

fn long(block_id: u64) -> LongBlock {
    LongBlock { block_id, gen_stamp: 1, filling: vec![5; LONG] }
}

/// Memory for one and a half long requests.
fn options_with_little_memory(silence: Duration) -> RpcServerOptions {
    let patience = SlowPeerLimits { idle_max: silence, ..SlowPeerLimits::default() };
    let message_memory = MessageMemory::new((LONG + LONG / 2) as u64, patience);
    RpcServerOptions { message_memory, ..RpcServerOptions::default() }
}

#[tokio::test]
async fn unfinished_requests_share_a_memory_limit() {
    let options = options_with_little_memory(Duration::from_millis(200));
    let memory = options.message_memory.clone();
    let (_server, _, target) = start(options).await;
    let mut hostile = Vec::new();
    for _ in 0..10 {
        hostile.push(tokio::spawn(async move {
            let mut stream = TcpStream::connect(target.address).await.unwrap();
            stream.write_all(&greeting()).await.unwrap();
            stream.write_all(&(LONG as u32).to_be_bytes()).await.unwrap();
            // Sends all bytes that the server accepts.
            let _ = stream.write_all(&vec![0; LONG - 1]).await;
            let mut answer = Vec::new();
            tokio::time::timeout(WAIT, stream.read_to_end(&mut answer)).await
        }));
    }
    until("a long request", async || memory.claimed() > 0).await;
    let client = RpcClient::new(RpcClientOptions::default());
    for id in 0..3 {
        client.call::<BlockProto>(&target, "echo", &block(id)).await.unwrap();
        assert!(memory.claimed() <= (LONG + LONG / 2) as u64);
    }
    // A long request waits until the ones before it have been too slow.
    let answer: BlockProto = client.call(&target, "echo", &long(7)).await.unwrap();
    assert_eq!(answer.block_id, 7);
    // The last one keeps its memory, because no other request waits for it.
    let ended = || hostile.iter().filter(|peer| peer.is_finished()).count();
    until("the end of nine connections", async || ended() >= 9).await;
    // Time for the last one to be ended by mistake.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(ended() < 10 || memory.claimed() == 0, "{} have ended", ended());
    hostile.into_iter().for_each(|peer| peer.abort());
}

#[tokio::test]
async fn long_request_releases_memory_when_answered() {
    let options = options_with_little_memory(Duration::from_millis(200));
    let memory = options.message_memory.clone();
    let (_server, service, target) = start(options).await;
    let client = RpcClient::new(RpcClientOptions::default());
    let held = tokio::spawn({
        let (client, target) = (client.clone(), target.clone());
        async move { client.call::<BlockProto>(&target, "held", &long(1)).await.unwrap() }
    });
    until("the call", async || service.calls.load(Ordering::SeqCst) == 1).await;
    let other = tokio::spawn({
        let target = target.clone();
        let client = RpcClient::new(RpcClientOptions::default());
        async move { client.call::<BlockProto>(&target, "echo", &long(2)).await.unwrap() }
    });
    // Three times as long as a request may be silent.
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert_eq!(service.calls.load(Ordering::SeqCst), 1, "the first request holds the memory");
    // Short calls continue at the same time.
    client.call::<BlockProto>(&target, "echo", &block(3)).await.unwrap();
    service.gate.notify_one();
    assert_eq!(held.await.unwrap().block_id, 1);
    assert_eq!(other.await.unwrap().block_id, 2);
    until("the memory to be released", async || memory.claimed() == 0).await;
}

#[tokio::test]
async fn short_requests_in_flight_are_limited_globally() {
    // With a shared sum of 0, each connection has only its own small share.
    let options = RpcServerOptions { held_bytes_max: 0, ..RpcServerOptions::default() };
    let (_server, service, target) = start(options).await;
    let id = ClientId([3; 16]);
    let mut streams = Vec::new();
    for _ in 0..3 {
        let mut stream = TcpStream::connect(target.address).await.unwrap();
        stream.write_all(&greeting()).await.unwrap();
        // Short requests that wait: more than the share.
        let mut short = long(1);
        short.filling.truncate(20_000);
        let short = hearth_wire::rpc::encode_call(5, id, 0, protocols::CLIENT, "held", &short);
        for _ in 0..20 {
            stream.write_all(&short).await.unwrap();
        }
        streams.push(stream);
    }
    until("twelve calls", async || service.calls.load(Ordering::SeqCst) >= 12).await;
    // Time for the kernel to deliver the rest, and for the server to read it by mistake.
    tokio::time::sleep(Duration::from_millis(200)).await;
    // 64 KiB hold three requests of 20,000 bytes; the fourth exceeds the limit.
    assert_eq!(service.calls.load(Ordering::SeqCst), 12);
    let client = RpcClient::new(RpcClientOptions::default());
    client.call::<BlockProto>(&target, "echo", &block(3)).await.unwrap();
}

#[tokio::test]
async fn idle_connection_is_closed_at_limit() {
    let options = RpcServerOptions { connections_max: 4, ..RpcServerOptions::default() };
    let (_server, service, target) = start(options).await;
    let busy = RpcClient::new(RpcClientOptions::default());
    let held = tokio::spawn({
        let (busy, target) = (busy.clone(), target.clone());
        async move { busy.call::<BlockProto>(&target, "held", &block(1)).await.unwrap() }
    });
    until("the call", async || service.calls.load(Ordering::SeqCst) == 1).await;
    let mut quiet = Vec::new();
    for _ in 0..10 {
        let mut stream = TcpStream::connect(target.address).await.unwrap();
        let call = hearth_wire::rpc::encode_call(5, ClientId([3; 16]), 0, protocols::CLIENT, "echo", &block(1));
        stream.write_all(&[&greeting()[..], &call[..]].concat()).await.unwrap();
        let length = stream.read_u32().await.unwrap();
        stream.read_exact(&mut vec![0; length as usize]).await.unwrap();
        quiet.push(stream);
    }
    assert_eq!(quiet[0].read(&mut [0; 1]).await.unwrap(), 0, "the longest idle connection is closed");
    service.gate.notify_one();
    held.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_bytes_do_no_harm() {
    let options = RpcServerOptions { stall_timeout: Duration::from_millis(50), ..RpcServerOptions::default() };
    let (_server, _, target) = start(options).await;
    let id = ClientId([3; 16]);
    let context = hearth_wire::rpc::encode_context(id, &hearth_wire::rpc::ConnectionContext::default());
    let call = hearth_wire::rpc::encode_call(5, id, 0, protocols::CLIENT, "echo", &block(1));
    let good = [b"hrpc\x09\x00\x00", &context[..], &call[..], &call[..]].concat();
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed as usize % below
    };
    let mut said = Vec::new();
    for _ in 0..150 {
        let mut bytes = good.clone();
        for _ in 0..=random(4) {
            let at = random(bytes.len());
            bytes[at] = random(256) as u8;
        }
        bytes.truncate(1 + random(bytes.len()));
        said.push(bytes);
        said.push((0..random(60)).map(|_| random(256) as u8).collect());
    }
    for bytes in said.chunks(20) {
        // A peer that stays connected after a complete call is disconnected only when idle: no answer is needed here.
        let peers: Vec<_> = bytes
            .iter()
            .map(|bytes| {
                let (target, bytes) = (target.clone(), bytes.clone());
                tokio::spawn(async move {
                    let mut stream = TcpStream::connect(target.address).await.unwrap();
                    let _ = stream.write_all(&bytes).await;
                    let _ = stream.shutdown().await;
                    let mut answer = Vec::new();
                    let read = stream.read_to_end(&mut answer);
                    tokio::time::timeout(WAIT, read).await.is_ok()
                })
            })
            .collect();
        for peer in peers {
            assert!(peer.await.unwrap(), "a connection hangs");
        }
    }
    // A peer that stays suspended for as long as the server's timeout is disconnected, too.
    let client = RpcClient::new(RpcClientOptions::default());
    for attempt in 1.. {
        match client.call::<BlockProto>(&target, "echo", &block(1)).await {
            Err(RpcError::Disconnected { .. }) if attempt < TRIES => {}
            Err(error) => panic!("{error}"),
            Ok(answer) => return assert_eq!(answer, block(1)),
        }
    }
}

#[tokio::test]
async fn proxy_user_sends_both_names() {
    let (_server, service, target) = start(RpcServerOptions::default()).await;
    let of =
        |real: &str| RpcClient::new(RpcClientOptions { real_user: Some(real.into()), ..RpcClientOptions::default() });
    let refused = of("oozie").call::<BlockProto>(&target, "echo", &block(1)).await.unwrap_err();
    assert!(refused.to_string().contains("User: oozie is not allowed to impersonate alice"), "{refused}");
    assert_eq!(service.calls.load(Ordering::SeqCst), 0);
    // A user may always act for itself.
    of("alice").call::<BlockProto>(&target, "echo", &block(1)).await.unwrap();
}
