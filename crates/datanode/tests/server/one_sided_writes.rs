//! Remote writers that write into memory that the DataNode grants them: over a transport that needs no card, and over
//! RDMA in the virtual machine of `cargo xtask test`.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hearth_datanode::Handle;
use hearth_fabric::Memory;
use hearth_fabric::one_sided::{Access, Connection, Domain, Error, Limits, Region, Transfer, Transport};
use hearth_fabric::rdma::{Rdma, Settings};
use hearth_fabric::sim::{Shortage, Sim};
use hearth_fabric::soft::TcpTransport;
use hearth_types::{ChecksumSpec, ExtendedBlock, GenerationStamp};
use hearth_wire::data_transfer::{
    AckReply, BlockOpResponse, DatanodeDescription, Describe, Operation, PacketHeader, Stage, Status, WriteBlock,
};
use hearth_wire::proto::hdfs::received_deleted_block_info_proto::BlockStatus;
use hearth_wire::rdma_control::{Grant, PURPOSE_WRITING, Slice, VERSION, WriteMessage};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;

use super::client::{WAIT, Writer, block, content, open, read, slow_datanode, target, write_request};
use super::namenode::FakeNamenode;
use super::{scratch, start_datanode, start_datanode_in};

const MIB: usize = 1 << 20;

/// Address of the host with a card, in the virtual machine.
const RDMA_ADDRESS: &str = "10.8.0.1";

/// Returns RDMA in the virtual machine, and the TCP transport elsewhere.
fn transport() -> Box<dyn Transport> {
    if std::env::var_os("HEARTH_VM").is_none() {
        return Box::new(TcpTransport);
    }
    let address = Some(RDMA_ADDRESS.parse().unwrap());
    Box::new(Rdma::open(Settings { address, ..Settings::default() }).unwrap())
}

/// Returns the settings that put a DataNode into that network.
pub fn in_network() -> [(&'static str, &'static str); 2] {
    let is_rdma = transport().name() == "rdma";
    let (name, address) = if is_rdma { ("rdma", "10.8.0.1:0") } else { ("tcp", "127.0.0.1:0") };
    [("hearth.one-sided.transport", name), ("hearth.one-sided.address", address)]
}

async fn start(namenode: &FakeNamenode, dir: &Path, settings: &[(&str, &str)]) -> Handle {
    start_datanode(namenode, dir, &[&in_network(), settings].concat()).await
}

async fn one_sided_address(node: &Handle) -> SocketAddr {
    let (sender, mut receiver) = open(node.addresses().transfer).await;
    sender.send_operation(&Operation::Describe(Describe { client_name: "test".into() })).await.unwrap();
    receiver.receive(DatanodeDescription::decode).await.unwrap().offer.one_sided[0]
}

/// A writer's connection, and its registered memory: data first, then CRCs.
struct RemoteWriter {
    connection: Arc<dyn Connection>,
    domain: Arc<dyn Domain>,
    local: Arc<dyn Region>,
    grants: Vec<Grant>,
    checksum: ChecksumSpec,
    offset: u64,
    seqno: i64,
    /// Number of the next slice to be acknowledged.
    awaited: i64,
    /// Offset of the next CRCs; earlier ones must have been checked.
    sums_at: u64,
}

const DATA_BYTES: u64 = 4 << 20;

impl RemoteWriter {
    async fn connect(node: &Handle) -> Self {
        Self::connect_with(node, Limits::default()).await
    }

    async fn connect_with(node: &Handle, limits: Limits) -> Self {
        Self::connect_in(&*transport(), node, limits).await
    }

    async fn connect_in(transport: &dyn Transport, node: &Handle, limits: Limits) -> Self {
        let domain = transport.domain().unwrap();
        let memory = Arc::new(Memory::fresh(DATA_BYTES * 2).unwrap());
        let local = domain.register(&memory, 0..DATA_BYTES * 2, Access::Local).unwrap();
        let private = [PURPOSE_WRITING, VERSION];
        let address = one_sided_address(node).await;
        let connection = transport.connect(&domain, address, &private, limits, WAIT).await.unwrap();
        let (grants, checksum) = (Vec::new(), ChecksumSpec::DEFAULT);
        Self { connection, domain, local, grants, checksum, offset: 0, seqno: 0, awaited: 0, sums_at: 0 }
    }

    async fn open(&mut self, request: WriteBlock) -> Result<(), BlockOpResponse> {
        self.offset = request.bytes_received_min;
        self.checksum = request.checksum;
        (self.seqno, self.awaited) = (0, 0);
        self.grants.clear();
        let request = WriteMessage::Open(Box::new(request)).encode().unwrap();
        self.connection.send(request, WAIT).await.unwrap();
        let WriteMessage::Opened { answer, grant } =
            WriteMessage::decode(&self.connection.receive(WAIT).await.unwrap()).unwrap()
        else {
            panic!("another message")
        };
        if answer.status != Status::Success {
            assert!(grant.is_none());
            return Err(*answer);
        }
        self.grants.push(grant.expect("memory or a buffer is granted"));
        Ok(())
    }

    fn transfers(&self, offset: u64, bytes: u64) -> Vec<Transfer> {
        let (mut transfers, mut at) = (Vec::new(), 0);
        while at < bytes {
            let from = offset + at;
            let grant =
                self.grants.iter().rev().find(|grant| grant.offset <= from && from < grant.offset + grant.data.length);
            let grant = grant.unwrap_or_else(|| panic!("byte {from} is not granted"));
            let length = (grant.offset + grant.data.length - from).min(bytes - at);
            let remote = grant.data.part(from - grant.offset, length).unwrap();
            transfers.push(Transfer { local: self.local.clone(), offset: at, remote });
            at += length;
        }
        transfers
    }

    fn granted(&self) -> u64 {
        self.grants.last().map_or(0, |grant| grant.offset + grant.data.length)
    }

    /// Prepares the next slice: the transfers of `data` and its CRCs, and the message that announces it.
    fn slice(&mut self, data: &[u8], last: bool) -> (Vec<Transfer>, bytes::Bytes) {
        let mut sums = Vec::new();
        self.checksum.compute(data, &mut sums);
        self.local.memory().write(0, data);
        self.local.memory().write(DATA_BYTES, &sums);
        let mut transfers = self.transfers(self.offset, data.len() as u64);
        if !sums.is_empty() {
            let remote = self.grants[0].checksums.part(self.sums_at, sums.len() as u64).unwrap();
            transfers.push(Transfer { local: self.local.clone(), offset: DATA_BYTES, remote });
        }
        let header =
            PacketHeader { offset: self.offset, seqno: self.seqno, last, data_bytes: data.len() as u32, sync: false };
        let slice = Slice { header, checksums_at: self.sums_at, checksum_bytes: sums.len() as u32 };
        self.seqno += 1;
        self.offset += data.len() as u64;
        (transfers, WriteMessage::Slice(slice).encode().unwrap())
    }

    /// Writes `data` and its CRCs, and announces them.
    async fn write(&mut self, data: &[u8], last: bool) -> Result<(), Error> {
        let (transfers, message) = self.slice(data, last);
        self.connection.write(transfers, Some(message), WAIT).await
    }

    async fn ack(&mut self) -> Result<Vec<AckReply>, Error> {
        match WriteMessage::decode(&self.connection.receive(WAIT).await?).unwrap() {
            WriteMessage::Acknowledged { seqno, replies, grant } => {
                assert_eq!(seqno, self.awaited);
                self.awaited += 1;
                self.grants.extend(grant);
                Ok(replies)
            }
            other => panic!("{other:?}"),
        }
    }

    /// Writes all of `data`, slice by slice, and the end.
    async fn finish(&mut self, data: &[u8], slice: usize, datanodes: usize) {
        let mut rest = data;
        while !rest.is_empty() {
            let room = (self.granted() - self.offset) as usize;
            let chunk = self.checksum.bytes_per_chunk as usize;
            let room = if room >= rest.len() { rest.len() } else { room / chunk * chunk };
            assert!(room > 0, "everything is acknowledged and no memory is granted");
            let (piece, more) = rest.split_at(slice.min(room));
            self.write(piece, false).await.unwrap();
            let replies = self.ack().await.unwrap();
            assert!(replies.len() == datanodes && replies.iter().all(|reply| reply.status() == Status::Success));
            rest = more;
        }
        self.end(datanodes).await;
    }

    async fn end(&mut self, datanodes: usize) {
        self.write(&[], true).await.unwrap();
        assert_eq!(self.ack().await.unwrap(), vec![AckReply::SUCCESS; datanodes]);
    }
}

/// Returns a whole number of `/metrics`.
pub async fn figure(node: &Handle, name: &str) -> u64 {
    figure_text(node, name).await.parse().unwrap()
}

/// Returns a number of seconds of `/metrics`, in microseconds.
pub async fn figure_us(node: &Handle, name: &str) -> u64 {
    (figure_text(node, name).await.parse::<f64>().unwrap() * 1e6) as u64
}

async fn figure_text(node: &Handle, name: &str) -> String {
    let mut connection = tokio::net::TcpStream::connect(node.addresses().http).await.unwrap();
    connection.write_all(b"GET /metrics HTTP/1.0\r\nHost: datanode\r\n\r\n").await.unwrap();
    let mut text = String::new();
    connection.read_to_string(&mut text).await.unwrap();
    let value = |line: &str| {
        let rest = line.strip_prefix(name)?;
        rest.strip_prefix("_total").unwrap_or(rest).strip_prefix(' ').map(str::to_owned)
    };
    text.lines().find_map(value).unwrap().trim().to_owned()
}

fn create(block: &ExtendedBlock, rest: &[&Handle]) -> WriteBlock {
    write_request(block, Stage::PipelineSetupCreate, rest.iter().map(|node| target(node)).collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consecutive_blocks_are_written_and_forwarded() {
    let namenode = FakeNamenode::start().await;
    let dirs = [scratch(), scratch()];
    let first = start(&namenode, dirs[0].path(), &[]).await;
    let second = start(&namenode, dirs[1].path(), &[]).await;
    let mut writer = RemoteWriter::connect(&first).await;
    for (id, size, slice, rest) in [
        (1, 100, 512, &[][..]),
        (2, 5 * MIB + 77, MIB, &[][..]),
        (3, 12 * MIB + 3, 300 << 10, &[&second][..]),
        (4, 3 * MIB, 2 * MIB, &[&second][..]),
    ] {
        let block = block(id, 1001, 32 << 20);
        let data = content(size, id as u64);
        writer.open(create(&block, rest)).await.unwrap();
        writer.finish(&data, slice, rest.len() + 1).await;
        for node in std::iter::once(&first).chain(rest.iter().copied()) {
            assert!(read(node, &block, 0, None).await.unwrap() == data, "{size} bytes");
        }
        let mut finalized = block.block;
        finalized.length = size as u64;
        namenode.wait_event(BlockStatus::Received, finalized).await;
    }
    let passed_on = (12 * MIB + 3 + 3 * MIB) as u64;
    assert_eq!(figure(&first, "hearth_one_sided_forwarded_bytes").await, passed_on);
    assert_eq!(figure(&second, "hearth_one_sided_written_bytes").await, passed_on);
    // The first replica stays.
    let taken = writer.open(create(&block(2, 1001, 32 << 20), &[])).await.unwrap_err();
    assert_eq!(taken.status, Status::ErrorExists);
}

/// Pipelines in which any DataNode's memory is full, or in which a DataNode in the middle or at the end has no such
/// network.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_kinds_of_pipelines_forward_blocks() {
    let namenode = FakeNamenode::start().await;
    let dirs = [scratch(), scratch(), scratch(), scratch()];
    let roomy = start(&namenode, dirs[0].path(), &[]).await;
    let narrow = start(&namenode, dirs[1].path(), &[("hearth.memory.limit", "4m")]).await;
    let other = start(&namenode, dirs[2].path(), &[]).await;
    let packets = start(&namenode, dirs[3].path(), &[("hearth.one-sided.transport", "none")]).await;
    let nodes = [&roomy, &narrow, &other, &packets];
    let forwarded = "hearth_one_sided_forwarded_bytes";
    for (id, pipeline, slice, hops) in [
        (1, [0, 2, 1], MIB, 2),
        (2, [0, 1, 2], 300 << 10, 2),
        (3, [1, 0, 2], 1000 << 10, 2),
        (4, [1, 2, 0], 64 << 10, 2),
        (5, [0, 3, 2], MIB, 0),
        (6, [0, 2, 3], 77 << 10, 1),
    ] {
        let [first, rest @ ..] = pipeline.map(|index| nodes[index]);
        let before =
            figure(&roomy, forwarded).await + figure(&narrow, forwarded).await + figure(&other, forwarded).await;
        let (block, data) = (block(id, 1001, 32 << 20), content(9 * MIB + 77, id as u64));
        let mut writer = RemoteWriter::connect(first).await;
        writer.open(create(&block, &rest)).await.unwrap();
        writer.finish(&data, slice, 3).await;
        for (position, node) in std::iter::once(&first).chain(&rest).enumerate() {
            assert!(read(node, &block, 0, None).await.unwrap() == data, "block {id}, datanode {position}");
        }
        let after =
            figure(&roomy, forwarded).await + figure(&narrow, forwarded).await + figure(&other, forwarded).await;
        assert_eq!(after - before, hops * data.len() as u64, "block {id}");
    }
}

/// The next DataNode grants more memory when the one after it has answered. It must receive heartbeats from the
/// DataNode that waits for that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sender_waiting_for_memory_is_kept_alive() {
    let namenode = FakeNamenode::start().await;
    let dirs = [scratch(), scratch()];
    let silence = ("dfs.client.socket-timeout", "4000");
    let first = start(&namenode, dirs[0].path(), &[silence]).await;
    // One buffer of a mebibyte after the other.
    let second = start(&namenode, dirs[1].path(), &[silence, ("hearth.memory.limit", "1k")]).await;
    let (slow, holds) = slow_datanode(&second);
    let (block, data) = (block(1, 1001, 32 << 20), content(12 * MIB, 1));
    let mut writer = RemoteWriter::connect(&first).await;
    writer.open(write_request(&block, Stage::PipelineSetupCreate, vec![target(&second), slow])).await.unwrap();
    let mut pieces = data.chunks(MIB);
    // Until the first DataNode has memory for two at once.
    while writer.granted() - writer.offset < 2 * MIB as u64 {
        writer.write(pieces.next().unwrap(), false).await.unwrap();
        assert_eq!(writer.ack().await.unwrap(), [AckReply::SUCCESS; 3]);
    }
    holds.store(true, Ordering::Relaxed);
    for _ in 0..2 {
        writer.write(pieces.next().unwrap(), false).await.unwrap();
        // Where the CRCs of a mebibyte end.
        writer.sums_at += 8192;
    }
    // Longer than the read timeout. The delayed acknowledgements are sent with a heartbeat of the waiting DataNode.
    tokio::time::sleep(Duration::from_secs(5)).await;
    holds.store(false, Ordering::Relaxed);
    for _ in 0..2 {
        assert_eq!(writer.ack().await.unwrap(), [AckReply::SUCCESS; 3]);
    }
    let rest = &data[writer.offset as usize..];
    writer.finish(rest, MIB, 3).await;
    for node in [&first, &second] {
        assert!(read(node, &block, 0, None).await.unwrap() == data);
    }
}

/// The writer is notified which DataNode stopped, and continues without it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_downstream_datanode_is_named() {
    let namenode = FakeNamenode::start().await;
    let dirs = [scratch(), scratch(), scratch()];
    let first = start(&namenode, dirs[0].path(), &[]).await;
    let second = start(&namenode, dirs[1].path(), &[]).await;
    let third = start(&namenode, dirs[2].path(), &[]).await;
    let (block, data) = (block(1, 1001, 8 << 20), content(3 * MIB, 1));
    let mut writer = RemoteWriter::connect(&first).await;
    writer.open(create(&block, &[&second, &third])).await.unwrap();
    writer.write(&data[..MIB], false).await.unwrap();
    assert_eq!(writer.ack().await.unwrap(), vec![AckReply::SUCCESS; 3]);
    second.shutdown(false).await;
    // For the packet, or for none.
    let message = writer.connection.receive(WAIT).await.unwrap();
    let WriteMessage::Acknowledged { replies, .. } = WriteMessage::decode(&message).unwrap() else { panic!("an ack") };
    assert_eq!(replies.iter().map(|reply| reply.status()).collect::<Vec<_>>(), [Status::Success, Status::Error]);
    let mut recovery = write_request(&block, Stage::PipelineSetupStreamingRecovery, vec![target(&third)]);
    recovery.latest_stamp = GenerationStamp(1002);
    recovery.bytes_received_min = MIB as u64;
    recovery.bytes_received_max = MIB as u64;
    let new = Writer::new(first.addresses().transfer, recovery).await;
    new.finish(&data[MIB..], 2).await;
    let mut asked = block.clone();
    asked.block.stamp = GenerationStamp(1002);
    for node in [&first, &third] {
        assert!(read(node, &asked, 0, None).await.unwrap() == data);
    }
}

/// A one-sided WRITE after the end of the block finds no region, even if the writer has not taken the last
/// acknowledgement yet, with which it can make the DataNode wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_are_invalid_once_replica_is_finalized() {
    let namenode = FakeNamenode::start().await;
    let dir = scratch();
    let node = start(&namenode, dir.path(), &[]).await;
    // Exactly as long as announced, so that it stays in the granted memory.
    let (one, data) = (block(1, 1001, 3 * (200 << 10)), content(3 * (200 << 10), 1));
    // The answer to the set-up and three acknowledgements leave no message for the fourth acknowledgement.
    let mut writer = RemoteWriter::connect_with(&node, Limits { messages: 4, ..Limits::default() }).await;
    writer.open(create(&one, &[])).await.unwrap();
    for part in data.chunks(200 << 10) {
        writer.write(part, false).await.unwrap();
        writer.sums_at += 4096;
    }
    writer.write(&[], true).await.unwrap();
    namenode.wait_event(BlockStatus::Received, one.block).await;
    writer.local.memory().write(0, &[0xa5; 1000]);
    let late = writer.connection.write(writer.transfers(0, 1000), None, WAIT).await;
    let ended = tokio::time::timeout(WAIT, writer.connection.closed()).await;
    assert!(late.is_err() || ended.is_ok(), "an invalid key ends the connection");
    assert!(read(&node, &one, 0, None).await.unwrap() == data);
}

/// A WRITE that arrives after the block's end finds no region.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_write_does_not_change_finalized_replica() {
    let namenode = FakeNamenode::start().await;
    let dir = scratch();
    let node = start(&namenode, dir.path(), &[]).await;
    let (one, data) = (block(1, 1001, 4 << 20), content(2 * MIB, 1));
    let mut writer = RemoteWriter::connect(&node).await;
    writer.open(create(&one, &[])).await.unwrap();
    writer.finish(&data, MIB, 1).await;
    writer.offset = 0;
    let late = writer.write(&vec![0xa5; MIB], false).await;
    let ended = tokio::time::timeout(WAIT, writer.connection.closed()).await;
    assert!(late.is_err() || ended.is_ok(), "an invalid key ends the connection");
    assert!(read(&node, &one, 0, None).await.unwrap() == data);
    // Nor do the keys of one connection work on another.
    let mut other = RemoteWriter::connect(&node).await;
    let mut writer = RemoteWriter::connect(&node).await;
    let (two, data) = (block(2, 1001, 4 << 20), content(MIB, 2));
    writer.open(create(&two, &[])).await.unwrap();
    other.grants = writer.grants.clone();
    let stolen = other.write(&vec![0xa5; 1000], false).await;
    let ended = tokio::time::timeout(WAIT, other.connection.closed()).await;
    assert!(stolen.is_err() || ended.is_ok());
    writer.finish(&data, MIB, 1).await;
    assert!(read(&node, &two, 0, None).await.unwrap() == data);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writer_is_fenced_before_takeover() {
    let namenode = FakeNamenode::start().await;
    let dir = scratch();
    let node = start(&namenode, dir.path(), &[]).await;
    let data = content(4 * MIB, 1);
    // After each step of a slice: written without an announcement, announced, acknowledged.
    for steps in 0..4usize {
        let block = block(10 + steps as i64, 1001, 8 << 20);
        let mut writer = RemoteWriter::connect(&node).await;
        writer.open(create(&block, &[])).await.unwrap();
        let piece = 512 << 10;
        let mut acknowledged = 0;
        writer.write(&data[..piece], false).await.unwrap();
        if steps > 0 {
            writer.ack().await.unwrap();
            acknowledged = piece;
        }
        if steps > 1 {
            let transfers = writer.transfers(piece as u64, 1000);
            writer.connection.write(transfers, None, WAIT).await.unwrap();
        }
        if steps > 2 {
            writer.write(&data[piece..][..piece], false).await.unwrap();
        }
        let said = writer.offset;
        let mut recovery = write_request(&block, Stage::PipelineSetupStreamingRecovery, Vec::new());
        recovery.latest_stamp = GenerationStamp(1002);
        recovery.bytes_received_min = acknowledged as u64;
        recovery.bytes_received_max = said;
        let new = Writer::new(node.addresses().transfer, recovery).await;
        // The old writer is shut out: its connection ended before the new writer was answered.
        tokio::time::timeout(WAIT, writer.connection.closed()).await.expect("the connection has ended");
        let transfers = writer.transfers(0, 1000);
        assert!(writer.connection.write(transfers, None, WAIT).await.is_err());
        new.finish(&data[acknowledged..], 1).await;
        let mut asked = block.clone();
        asked.block.stamp = GenerationStamp(1002);
        assert!(read(&node, &asked, 0, None).await.unwrap() == data, "taken over at step {steps}");
    }
}

/// A writer that takes no acknowledgements makes the DataNode wait with the last ones; the replica has a writer until
/// that writer's keys are invalid.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writer_of_failed_operation_is_fenced_at_once() {
    let namenode = FakeNamenode::start().await;
    let dir = scratch();
    let node = start(&namenode, dir.path(), &[("dfs.client.socket-timeout", "1000")]).await;
    for id in 1..=5 {
        if is_shut_out_at_once(&node, id).await {
            return;
        }
    }
    panic!("the connection does not end with the operation");
}

/// Also returns false when a machine that stalled for a second has ended the operation halfway.
async fn is_shut_out_at_once(node: &Handle, id: i64) -> bool {
    // Exactly as long as announced, so that it stays in the granted memory.
    let (one, data) = (block(id, 1001, 2 << 20), content(2 * MIB, id as u64));
    // The answer to the set-up and three acknowledgements leave no message for the fourth acknowledgement.
    let mut writer = RemoteWriter::connect_with(node, Limits { messages: 4, ..Limits::default() }).await;
    writer.open(create(&one, &[])).await.unwrap();
    let piece = 200 << 10;
    for part in data.chunks(piece).take(4) {
        if writer.write(part, false).await.is_err() {
            return false;
        }
        writer.sums_at += 4096;
    }
    let copied_back = figure(node, "hearth_copied_back_bytes").await;
    // No more data arrives, and the operation fails after a second: long before the wait for the acknowledgement ends.
    let soon = std::time::Duration::from_secs(6);
    if tokio::time::timeout(soon, writer.connection.closed()).await.is_err() {
        return false;
    }
    let mut recovery = write_request(&one, Stage::PipelineSetupStreamingRecovery, Vec::new());
    recovery.latest_stamp = GenerationStamp(1002);
    recovery.bytes_received_min = 4 * piece as u64;
    recovery.bytes_received_max = 4 * piece as u64;
    let (new, answer) = Writer::ask(node.addresses().transfer, recovery).await;
    if answer.status != Status::Success {
        return false;
    }
    assert!(writer.connection.write(writer.transfers(0, 1000), None, WAIT).await.is_err());
    let rest = data[4 * piece..].to_vec();
    let begun = Instant::now();
    if tokio::spawn(async move { new.finish(&rest, 1).await }).await.is_err() {
        // An earlier end, within the DataNode's timeout, would not be caused by a stalled machine.
        assert!(begun.elapsed() >= std::time::Duration::from_secs(1), "the recovered pipeline ended early");
        return false;
    }
    let mut asked = one.clone();
    asked.block.stamp = GenerationStamp(1002);
    assert!(read(node, &asked, 0, None).await.unwrap() == data);
    // The writer was shut out: nothing had to be copied.
    assert_eq!(figure(node, "hearth_copied_back_bytes").await, copied_back);
    true
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_memory_falls_back_to_buffer() {
    let namenode = FakeNamenode::start().await;
    let dir = scratch();
    let node = start(&namenode, dir.path(), &[("hearth.memory.limit", "4m")]).await;
    let mut writer = RemoteWriter::connect(&node).await;
    for (id, size) in [(1, 11 * MIB + 5), (2, 3 * MIB), (3, 6 * MIB)] {
        let block = block(id, 1001, 32 << 20);
        let data = content(size, id as u64);
        writer.open(create(&block, &[])).await.unwrap();
        writer.finish(&data, 400 << 10, 1).await;
        assert!(read(&node, &block, 0, None).await.unwrap() == data, "{size} bytes");
    }
    for (id, size) in [(1, 11 * MIB + 5), (2, 3 * MIB), (3, 6 * MIB)] {
        assert!(read(&node, &block(id, 1001, 0), 0, None).await.unwrap() == content(size, id as u64));
    }
}

/// Starts a DataNode in a network with faults.
async fn start_in(sim: &Sim, namenode: &FakeNamenode, dir: &Path) -> Handle {
    let network: Arc<dyn Transport> = Arc::new(sim.clone());
    start_datanode_in(Some(network), namenode, dir, &[("hearth.one-sided.address", "127.0.0.1:0")]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unregistrable_memory_falls_back_to_buffer() {
    let (sim, namenode, dir) = (Sim::new(), FakeNamenode::start().await, scratch());
    let node = start_in(&sim, &namenode, dir.path()).await;
    let mut writer = RemoteWriter::connect_in(&sim, &node, Limits::default()).await;
    // The very first registration; then the first grant of a block, and the second.
    for (id, after) in [(1, None), (2, Some(0)), (3, Some(1)), (4, None)] {
        if let Some(after) = after {
            sim.shortage(Shortage { access: Access::RemoteWrite, after, times: 1 });
        }
        let (block, data) = (block(id, 1001, 32 << 20), content(5 * MIB + 77, id as u64));
        writer.open(create(&block, &[])).await.unwrap();
        writer.finish(&data, 300 << 10, 1).await;
        assert!(read(&node, &block, 0, None).await.unwrap() == data, "block {id}");
    }
}

/// A growing chunk is sent repeatedly: a buffer is granted only when the memory before it is used to its end, which is
/// on a chunk boundary.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slices_in_flight_to_old_memory_are_found() {
    let (sim, namenode, dir) = (Sim::new(), FakeNamenode::start().await, scratch());
    let node = start_in(&sim, &namenode, dir.path()).await;
    let mut writer = RemoteWriter::connect_in(&sim, &node, Limits::default()).await;
    let (block, data) = (block(1, 1001, 32 << 20), content(3 * MIB + 77, 1));
    let mut request = create(&block, &[]);
    request.checksum = ChecksumSpec { bytes_per_chunk: 3000, ..ChecksumSpec::DEFAULT };
    writer.open(request).await.unwrap();
    assert_eq!(writer.granted(), MIB as u64 / 3000 * 3000);
    // There is no more memory.
    sim.shortage(Shortage { access: Access::RemoteWrite, after: 0, times: 1 });
    let (begun, end) = (1_044_000, 1_047_000);
    writer.write(&data[..begun + 2000], false).await.unwrap();
    // The chunk with more bytes is written before the shorter one is acknowledged, and announced afterwards.
    (writer.offset, writer.sums_at) = (begun as u64, 4096);
    let (transfers, message) = writer.slice(&data[begun..end], false);
    writer.connection.write(transfers, None, WAIT).await.unwrap();
    assert_eq!(writer.ack().await.unwrap(), [AckReply::SUCCESS]);
    writer.connection.send(message, WAIT).await.unwrap();
    assert_eq!(writer.ack().await.unwrap(), [AckReply::SUCCESS]);
    assert_eq!(writer.grants.last().unwrap().offset, end as u64);
    writer.finish(&data[end..], 300_000, 1).await;
    assert!(read(&node, &block, 0, None).await.unwrap() == data);
}

/// The next DataNode is not at fault: either the block is sent in packets, or this DataNode is excluded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn local_registration_failure_is_not_blamed_downstream() {
    for in_the_middle in [false, true] {
        let (sim, namenode, dirs) = (Sim::new(), FakeNamenode::start().await, [scratch(), scratch()]);
        let first = start_in(&sim, &namenode, dirs[0].path()).await;
        let second = start_in(&sim, &namenode, dirs[1].path()).await;
        let shortage = Shortage { access: Access::Local, after: 0, times: u64::MAX };
        let mut writers = Vec::new();
        for _ in 0..2 {
            writers.push(RemoteWriter::connect_in(&sim, &first, Limits::default()).await);
        }
        if in_the_middle {
            let mut writer = writers.remove(0);
            writer.open(create(&block(1, 1001, 32 << 20), &[&second])).await.unwrap();
            let mut parts = content(16 * MIB, 1).chunks(512 << 10).map(<[u8]>::to_vec).collect::<Vec<_>>().into_iter();
            writer.write(&parts.next().unwrap(), false).await.unwrap();
            assert_eq!(writer.ack().await.unwrap(), [AckReply::SUCCESS; 2]);
            assert!(figure(&first, "hearth_one_sided_forwarded_bytes").await > 0);
            sim.shortage(shortage);
            let mut ended = false;
            for part in parts {
                let written = writer.write(&part, false).await;
                match written.and(writer.ack().await) {
                    Ok(replies) => assert_eq!(replies, [AckReply::SUCCESS; 2]),
                    Err(error) => {
                        assert!(matches!(error, Error::Closed { .. }), "{error}");
                        ended = true;
                        break;
                    }
                }
            }
            assert!(ended, "memory was granted for all of it");
        } else {
            sim.shortage(shortage);
        }
        let before = figure(&first, "hearth_one_sided_forwarded_bytes").await;
        let (two, data) = (block(2, 1001, 8 << 20), content(3 * MIB, 2));
        let mut writer = writers.remove(0);
        writer.open(create(&two, &[&second])).await.unwrap();
        writer.finish(&data, 512 << 10, 2).await;
        for node in [&first, &second] {
            assert!(read(node, &two, 0, None).await.unwrap() == data);
        }
        assert_eq!(figure(&first, "hearth_one_sided_forwarded_bytes").await, before, "it was sent in packets");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_slices_are_refused() {
    let namenode = FakeNamenode::start().await;
    let dir = scratch();
    let node = start(&namenode, dir.path(), &[]).await;
    let (block, data) = (block(1, 1001, 4 << 20), content(600_000, 1));
    let mut writer = RemoteWriter::connect(&node).await;
    writer.open(create(&block, &[])).await.unwrap();
    writer.write(&data[..300_032], false).await.unwrap();
    writer.ack().await.unwrap();
    // Announced but not written.
    let header = PacketHeader { offset: 300_032, seqno: writer.seqno, last: false, data_bytes: 1024, sync: false };
    let slice = Slice { header, checksums_at: 0, checksum_bytes: 8 };
    writer.seqno += 1;
    writer.connection.send(WriteMessage::Slice(slice).encode().unwrap(), WAIT).await.unwrap();
    assert_eq!(writer.ack().await.unwrap()[0].status(), Status::ErrorChecksum);
    // CRCs beyond their memory; a slice without a block; bytes that are not a message.
    for wrong in 0..3 {
        let mut writer = RemoteWriter::connect(&node).await;
        let slice = Slice { header, checksums_at: u64::MAX - 3, checksum_bytes: 8 };
        let message = WriteMessage::Slice(slice).encode().unwrap();
        if wrong == 0 {
            writer.open(create(&super::client::block(20, 1001, 4 << 20), &[])).await.unwrap();
        }
        let message = if wrong == 2 { bytes::Bytes::from_static(b"?") } else { message };
        writer.connection.send(message, WAIT).await.unwrap();
        tokio::time::timeout(WAIT, writer.connection.closed()).await.expect("the connection ends");
        assert!(writer.domain.registered_bytes() > 0);
    }
    // A block that would begin beyond the end of all possible blocks: the serving task survives and answers.
    let writer = RemoteWriter::connect(&node).await;
    let mut request = create(&super::client::block(21, 1001, 4 << 20), &[]);
    request.bytes_received_min = u64::MAX;
    let request = WriteMessage::Open(Box::new(request)).encode().unwrap();
    writer.connection.send(request, WAIT).await.unwrap();
    writer.connection.receive(WAIT).await.expect("an answer");
    assert!(node.uuid() == node.uuid(), "it lives");
}
