//! Replicas that a NameNode orders to be copied from one DataNode to another over connections that carry many:
//! interruptions and changes on the way.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hearth_datanode::Handle;
use hearth_testkit::until;
use hearth_types::Block;
use hearth_wire::data_transfer::{
    DatanodeDescription, Decoded, Describe, OpCode, Operation, ReplicaStream, StreamTerms,
};
use hearth_wire::proto::hdfs::received_deleted_block_info_proto::BlockStatus;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::client::{WAIT, block, content, read, target, write};
use super::namenode::FakeNamenode;
use super::one_sided_copies::no_partial_copies;
use super::one_sided_writes::figure;
use super::transfers::{transfer, transfer_to};
use super::{scratch, start_datanode};

/// Two DataNodes with a NameNode each, so that a command reaches the intended DataNode.
pub struct Two {
    pub namenodes: [FakeNamenode; 2],
    pub nodes: Vec<Handle>,
    pub dirs: [tempfile::TempDir; 2],
}

impl Two {
    pub async fn start(settings: &[(&str, &str)]) -> Self {
        let namenodes = [FakeNamenode::start().await, FakeNamenode::start().await];
        let dirs = [scratch(), scratch()];
        let mut nodes = Vec::new();
        for index in 0..2 {
            nodes.push(start_datanode(&namenodes[index], dirs[index].path(), settings).await);
        }
        Self { namenodes, nodes, dirs }
    }

    pub async fn write(&self, id: i64, size: usize) -> Block {
        self.write_to(0, id, size).await
    }

    pub async fn write_to(&self, node: usize, id: i64, size: usize) -> Block {
        let stored = block(id, 1001, 128 << 20);
        write(&self.nodes[node], &[], &stored, &content(size, id as u64)).await;
        Block { length: size as u64, ..stored.block }
    }

    /// Checks that all replicas were received completely and reported.
    pub async fn check(&self, copies: &[Block]) {
        for copy in copies {
            self.namenodes[1].wait_event(BlockStatus::Received, *copy).await;
            let data = content(copy.length as usize, copy.id.0 as u64);
            assert!(read(&self.nodes[1], &block(copy.id.0, 1001, 0), 0, None).await.unwrap() == data, "{copy}");
        }
    }
}

/// Proxy between two DataNodes that breaks the connection or changes its bytes.
pub struct Meddler {
    pub address: SocketAddr,
    pub connections: Arc<AtomicU64>,
}

#[derive(Clone, Copy)]
pub enum Meddling {
    /// The first connection that carries this number of bytes ends there.
    Break(u64),
    /// Requests for Hearth's own operations are cut off without an answer, as by Apache's DataNode.
    Strange,
    /// Requests for this operation are cut off without an answer.
    Without(u8),
    /// One bit of the byte at this offset changes, on the first connection that reaches it.
    Flip(u64),
}

impl Meddler {
    pub async fn start(to: SocketAddr, meddling: Meddling) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicU64::new(0));
        let (counted, done) = (connections.clone(), Arc::new(AtomicU64::new(0)));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::Relaxed);
                let server = TcpStream::connect(to).await.unwrap();
                tokio::spawn(pass_on(client, server, meddling, done.clone()));
            }
        });
        Self { address, connections }
    }
}

async fn pass_on(client: TcpStream, server: TcpStream, meddling: Meddling, done: Arc<AtomicU64>) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let back = tokio::spawn(async move { tokio::io::copy(&mut from_server, &mut to_client).await });
    let (mut passed, mut bytes) = (0u64, vec![0; 64 << 10]);
    while let Ok(count @ 1..) = from_client.read(&mut bytes).await {
        match meddling {
            Meddling::Break(at) if passed + count as u64 > at && done.swap(1, Ordering::Relaxed) == 0 => {
                let _ = to_server.write_all(&bytes[..(at - passed) as usize]).await;
                break;
            }
            Meddling::Strange if passed == 0 && bytes[2] >= 0xA0 => break,
            Meddling::Without(operation) if passed == 0 && bytes[2] == operation => break,
            Meddling::Flip(at)
                if (passed..passed + count as u64).contains(&at) && done.swap(1, Ordering::Relaxed) == 0 =>
            {
                bytes[(at - passed) as usize] ^= 4;
            }
            _ => {}
        }
        if to_server.write_all(&bytes[..count]).await.is_err() {
            break;
        }
        passed += count as u64;
    }
    drop(to_server);
    back.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_are_received_in_files() {
    let two = Two::start(&[("hearth.storage.engine", "file")]).await;
    let mut copies = Vec::new();
    for (id, size) in (1..).zip([1, 700, 40_000, 65_536, 65_537, 1_300_000]) {
        copies.push(two.write(id, size).await);
    }
    let bytes: u64 = copies.iter().map(|copy| copy.length).sum();
    two.namenodes[0].told(|told| told.commands.push_back(transfer(&copies, &two.nodes[1])));
    two.check(&copies).await;
    assert_eq!(figure(&two.nodes[1], "hearth_stream_received_bytes").await, bytes);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_replicas_use_few_connections() {
    let two = Two::start(&[]).await;
    let mut copies = Vec::new();
    for id in 1..=30 {
        let size = [1, 700, 40_000, 70_000, 600_000, 1_300_000][id as usize % 6];
        copies.push(two.write(id, size).await);
    }
    let bytes: u64 = copies.iter().map(|copy| copy.length).sum();
    two.namenodes[0].told(|told| told.commands.push_back(transfer(&copies, &two.nodes[1])));
    two.check(&copies).await;
    assert_eq!(figure(&two.nodes[1], "hearth_stream_replicas").await, 30);
    assert_eq!(figure(&two.nodes[0], "hearth_stream_sent_bytes").await, bytes);
    assert_eq!(figure(&two.nodes[1], "hearth_stream_received_bytes").await, bytes);
    // Two connections of replicas, and perhaps the test's own; the DataNode may not have noticed the end of those used
    // for reading.
    until("the end of the connections for reading", async || {
        figure(&two.nodes[1], "hearth_datanode_connections").await <= 2 + 1
    })
    .await;
    no_partial_copies(&two).await;

    // Ordered a second time, the replicas are already there. Nothing is lost.
    two.namenodes[0].told(|told| told.commands.push_back(transfer(&copies[..3], &two.nodes[1])));
    let more = [two.write(99, 3_000_000).await];
    two.namenodes[0].told(|told| told.commands.push_back(transfer(&more, &two.nodes[1])));
    two.check(&more).await;
    two.check(&copies).await;
}

pub fn walk(dir: &std::path::Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap().filter_map(Result::ok);
    entries
        .flat_map(|entry| match entry.file_type() {
            Ok(kind) if kind.is_dir() => walk(&entry.path()),
            _ => vec![entry.path().display().to_string()],
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_bytes_are_not_sent_again() {
    let window = 2 << 20;
    let window_text = window.to_string();
    let two = Two::start(&[("hearth.datanode.stream.window.bytes", &window_text)]).await;
    let size = 24 << 20;
    let copies = [two.write(1, size).await];
    let meddler = Meddler::start(two.nodes[1].addresses().transfer, Meddling::Break(15 << 20)).await;
    let mut way = target(&two.nodes[1]).datanode;
    way.id.transfer_port = meddler.address.port();
    two.namenodes[0].told(|told| told.commands.push_back(transfer_to(&copies, &way)));
    two.check(&copies).await;
    let sent = figure(&two.nodes[0], "hearth_stream_sent_bytes").await;
    assert!(sent >= size as u64 && sent <= size as u64 + window, "{} bytes were sent twice", sent - size as u64);
    assert!(figure(&two.nodes[1], "hearth_stream_resumed_bytes").await >= 12 << 20);
    assert_eq!(figure(&two.nodes[1], "hearth_stream_received_bytes").await, size as u64, "no byte was stored twice");
    assert!(meddler.connections.load(Ordering::Relaxed) >= 3, "one DESCRIBE request and two connections of replicas");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn corruption_in_transit_blames_no_replica() {
    let two = Two::start(&[]).await;
    let copies = [two.write(1, 9 << 20).await];
    let meddler = Meddler::start(two.nodes[1].addresses().transfer, Meddling::Flip(5 << 20)).await;
    let mut way = target(&two.nodes[1]).datanode;
    way.id.transfer_port = meddler.address.port();
    two.namenodes[0].told(|told| told.commands.push_back(transfer_to(&copies, &way)));
    two.check(&copies).await;
    assert!(figure(&two.nodes[0], "hearth_stream_sent_bytes").await > 9 << 20, "a part was sent again");
    for node in 0..2 {
        two.namenodes[node].told(|told| assert!(told.bad.is_empty(), "{:?}", told.bad));
        assert_eq!(figure(&two.nodes[node], "hearth_corruptions").await, 0);
    }
    let data = content(9 << 20, 1);
    assert!(read(&two.nodes[0], &block(1, 1001, 0), 0, None).await.unwrap() == data, "the source is unchanged");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn abandoned_partial_replica_is_removed() {
    let two = Two::start(&[("hearth.datanode.stream.resume.timeout", "1")]).await;
    let copies = [two.write(1, 8 << 20).await];
    // Stops permanently after half of it.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, to) = (listener.local_addr().unwrap(), two.nodes[1].addresses().transfer);
    let passing = tokio::spawn(async move {
        for limit in [u64::MAX, 4 << 20] {
            let (client, _) = listener.accept().await.unwrap();
            let server = TcpStream::connect(to).await.unwrap();
            pass_on(client, server, Meddling::Break(limit), Arc::default()).await;
        }
    });
    let mut way = target(&two.nodes[1]).datanode;
    way.id.transfer_port = address.port();
    two.namenodes[0].told(|told| told.commands.push_back(transfer_to(&copies, &way)));
    tokio::time::timeout(WAIT, passing).await.unwrap().unwrap();
    until("the removal of the partial replica", async || {
        figure(&two.nodes[1], "hearth_replicas").await == 0
            && figure(&two.nodes[1], "hearth_memory_used_bytes").await == 0
    })
    .await;
    // The block can still be received in any way.
    two.namenodes[0].told(|told| told.commands.push_back(transfer(&copies, &two.nodes[1])));
    two.check(&copies).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn datanode_without_streams_gets_packets() {
    let namenodes = [FakeNamenode::start().await, FakeNamenode::start().await];
    let dirs = [scratch(), scratch()];
    let off = [("hearth.datanode.stream.connections", "0")];
    let nodes = vec![
        start_datanode(&namenodes[0], dirs[0].path(), &[]).await,
        start_datanode(&namenodes[1], dirs[1].path(), &off).await,
    ];
    let two = Two { namenodes, nodes, dirs };
    let copies = [two.write(1, 300_000).await, two.write(2, 2_000_000).await];
    two.namenodes[0].told(|told| told.commands.push_back(transfer(&copies, &two.nodes[1])));
    two.check(&copies).await;
    assert_eq!(figure(&two.nodes[0], "hearth_stream_sent_bytes").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_datanode_is_asked_once_and_gets_packets() {
    let two = Two::start(&[]).await;
    let copies = [two.write(1, 300_000).await, two.write(2, 2_000_000).await, two.write(3, 5).await];
    let meddler = Meddler::start(two.nodes[1].addresses().transfer, Meddling::Strange).await;
    let mut way = target(&two.nodes[1]).datanode;
    way.id.transfer_port = meddler.address.port();
    two.namenodes[0].told(|told| told.commands.push_back(transfer_to(&copies, &way)));
    two.check(&copies).await;
    assert_eq!(figure(&two.nodes[0], "hearth_stream_sent_bytes").await, 0);
    assert_eq!(
        meddler.connections.load(Ordering::Relaxed),
        1 + 3,
        "one DESCRIBE request, and a connection for each replica"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_bytes_close_only_their_connection() {
    let namenode = FakeNamenode::start().await;
    let dir = scratch();
    let node = start_datanode(&namenode, dir.path(), &[]).await;
    let mut describing = TcpStream::connect(node.addresses().transfer).await.unwrap();
    describing.write_all(&Operation::Describe(Describe::default()).encode()).await.unwrap();
    let mut bytes = vec![0; 4096];
    let count = describing.read(&mut bytes).await.unwrap();
    let Ok(Decoded::Complete(described, _)) = DatanodeDescription::decode(&bytes[..count]) else { panic!() };
    assert!(described.serves(OpCode::ReplicaStream));
    for nonsense in [vec![0xFF; 100], vec![2; 24], [vec![1, 0, 0, 0], vec![0xFF; 20]].concat()] {
        let mut stream = TcpStream::connect(node.addresses().transfer).await.unwrap();
        stream.write_all(&Operation::ReplicaStream(ReplicaStream::default()).encode()).await.unwrap();
        let count = stream.read(&mut bytes).await.unwrap();
        let Ok(Decoded::Complete(StreamTerms::Accepted(limits), _)) = StreamTerms::decode(&bytes[..count]) else {
            panic!()
        };
        assert!(limits.window_bytes <= 8 << 20);
        stream.write_all(&nonsense).await.unwrap();
        let ended = tokio::time::timeout(WAIT, stream.read(&mut bytes)).await.expect("ends");
        assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
    }
    write(&node, &[], &block(1, 1001, 1 << 20), &content(1000, 1)).await;
    assert!(read(&node, &block(1, 1001, 0), 0, None).await.unwrap() == content(1000, 1));
}
