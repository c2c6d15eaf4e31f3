//! Writers on this machine that fill the DataNode's memory.

use std::fs::{File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hearth_datanode::Handle;
use hearth_fabric::local;
use hearth_fabric::stream::{Connection, ReceiveBuffer};
use hearth_protocol::block_token::AccessMode;
use hearth_testkit::until;
use hearth_types::{ChecksumSpec, ExtendedBlock, GenerationStamp};
use hearth_wire::data_transfer::{
    BlockOpResponse, Decoded, HEARTBEAT_SEQNO, LocalGrant, Operation, PACKET_HEADER_BYTES_MAX, PacketHeader,
    PipelineAck, Stage, Status, WriteBlock,
};
use hearth_wire::proto::hdfs::received_deleted_block_info_proto::BlockStatus;
use rustix::process::Uid;

use super::client::{WAIT, Writer, block, content, read, target, write_request};
use super::namenode::FakeNamenode;
use super::one_sided_writes::figure;
use super::{scratch, start_datanode};

const MIB: usize = 1 << 20;

pub fn socket_of(dir: &Path) -> PathBuf {
    dir.join("socket")
}

/// Starts a DataNode with a domain socket in its directory, to which only this user may write.
pub async fn start(namenode: &FakeNamenode, dir: &Path, settings: &[(&str, &str)]) -> Handle {
    let socket = socket_of(dir).display().to_string();
    let mut all = vec![("dfs.domain.socket.path", socket.as_str())];
    all.extend_from_slice(settings);
    start_datanode(namenode, dir, &all).await
}

/// A block that is being written through the DataNode's memory.
struct LocalWriter {
    connection: Arc<Connection>,
    buffer: ReceiveBuffer,
    file: Option<File>,
    granted: u64,
    more: bool,
    offset: u64,
    seqno: i64,
}

impl LocalWriter {
    async fn ask(socket: &Path, request: WriteBlock) -> Result<Self, BlockOpResponse> {
        Self::ask_over(local::connect(socket).await.unwrap(), request).await
    }

    async fn ask_over(connection: Connection, request: WriteBlock) -> Result<Self, BlockOpResponse> {
        let connection = Arc::new(connection);
        let offset = request.bytes_received_min;
        connection.write_all(&Operation::WriteLocal(Box::new(request)).encode(), WAIT).await.unwrap();
        let mut buffer = ReceiveBuffer::new(4096, 1 << 20);
        let answer = loop {
            match BlockOpResponse::decode(buffer.available()).unwrap() {
                Decoded::Complete(answer, consumed) => {
                    buffer.consume(consumed);
                    break answer;
                }
                Decoded::Needs(missing) => {
                    let wanted = buffer.available().len() + missing;
                    buffer.fill_no_further(&connection, wanted, WAIT).await.unwrap();
                }
            }
        };
        if answer.status != Status::Success {
            return Err(answer);
        }
        let mut bytes = [0; LocalGrant::BYTES];
        let (received, descriptors) = connection.receive_with_descriptors(&mut bytes, WAIT).await.unwrap();
        connection.read_exact(&mut bytes[received..], WAIT).await.unwrap();
        let LocalGrant(granted) = LocalGrant::decode(bytes);
        let file = descriptors.into_iter().next().map(File::from);
        assert_eq!(file.is_some(), granted > 0);
        Ok(Self { connection, buffer, file, granted, more: granted > 0, offset, seqno: 0 })
    }

    async fn new(socket: &Path, request: WriteBlock) -> Self {
        Self::ask(socket, request).await.unwrap_or_else(|answer| panic!("{answer:?}"))
    }

    fn header(&self, data: &[u8], sync: bool) -> PacketHeader {
        PacketHeader { offset: self.offset, seqno: self.seqno, last: false, data_bytes: data.len() as u32, sync }
    }

    /// Writes `data` into the memory.
    fn fill(&self, data: &[u8]) {
        self.file.as_ref().unwrap().write_all_at(data, self.offset).unwrap();
    }

    /// Announces that `data` is filled in, whether that is true or not.
    async fn say(&mut self, data: &[u8], sync: bool) {
        let mut sums = Vec::new();
        ChecksumSpec::DEFAULT.compute(data, &mut sums);
        let mut head = [0; PACKET_HEADER_BYTES_MAX];
        let length = self.header(data, sync).encode_in_place(sums.len(), &mut head);
        let _ = self.connection.write_vectored(&[&head[..length], &sums], false, WAIT).await;
        self.offset += data.len() as u64;
        self.seqno += 1;
    }

    async fn send_packet(&mut self, data: &[u8], last: bool) {
        let mut sums = Vec::new();
        ChecksumSpec::DEFAULT.compute(data, &mut sums);
        let mut head = [0; PACKET_HEADER_BYTES_MAX];
        let header = PacketHeader { last, ..self.header(data, false) };
        let length = header.encode(sums.len(), &mut head);
        let _ = self.connection.write_vectored(&[&head[..length], &sums, data], false, WAIT).await;
        self.offset += data.len() as u64;
        self.seqno += 1;
    }

    /// Returns the next acknowledgement, or `None` if the DataNode closed the connection.
    async fn ack(&mut self) -> Option<PipelineAck> {
        let ack = loop {
            match PipelineAck::decode(self.buffer.available()).unwrap() {
                Decoded::Complete(ack, consumed) => {
                    self.buffer.consume(consumed);
                    break ack;
                }
                Decoded::Needs(missing) => {
                    let wanted = self.buffer.available().len() + missing;
                    self.buffer.fill_to(&self.connection, wanted, WAIT).await.ok()?;
                }
            }
        };
        match ack.granted {
            Some(0) => self.more = false,
            Some(granted) => self.granted = granted,
            None => {}
        }
        Some(ack)
    }

    /// Writes one piece, in place if memory is granted for it, acknowledged by `datanodes`. `None`: the connection
    /// broke.
    async fn put(&mut self, data: &[u8], datanodes: usize) -> Option<()> {
        if self.offset + data.len() as u64 <= self.granted {
            self.fill(data);
            self.say(data, false).await;
        } else {
            assert!(!self.more, "everything was acknowledged, and no further memory was granted");
            self.send_packet(data, false).await;
        }
        let ack = self.ack().await?;
        assert_eq!((ack.seqno, ack.replies.len()), (self.seqno - 1, datanodes));
        ack.is_success().then_some(())
    }

    async fn end(&mut self, datanodes: usize) -> Option<()> {
        self.send_packet(&[], true).await;
        let ack = self.ack().await?;
        assert_eq!(ack.replies.len(), datanodes);
        ack.is_success().then_some(())
    }
}

async fn write(first: &Path, rest: &[&Handle], block: &ExtendedBlock, data: &[u8], piece: usize) -> LocalWriter {
    let request = write_request(block, Stage::PipelineSetupCreate, rest.iter().map(|node| target(node)).collect());
    let mut writer = LocalWriter::new(first, request).await;
    for piece in data.chunks(piece) {
        writer.put(piece, rest.len() + 1).await.unwrap();
    }
    writer.end(rest.len() + 1).await.unwrap();
    writer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn filled_data_reaches_every_datanode_and_disk() {
    filled_in_reaches_every_datanode("none", "false", None).await;
    filled_in_reaches_every_datanode("tcp", "false", Some("hearth_one_sided_forwarded_bytes")).await;
    filled_in_reaches_every_datanode("tcp", "true", Some("hearth_locally_forwarded_bytes")).await;
}

/// `transport`, `forward_local`: settings for forwarding. `counted`: the metric of bytes put into the next DataNode's
/// memory.
async fn filled_in_reaches_every_datanode(transport: &str, forward_local: &str, counted: Option<&str>) {
    let namenode = FakeNamenode::start().await;
    let dirs = [scratch(), scratch(), scratch()];
    let settings = [
        ("hearth.one-sided.transport", transport),
        ("hearth.one-sided.address", "127.0.0.1:0"),
        ("hearth.datanode.forward.local", forward_local),
    ];
    let first = start(&namenode, dirs[0].path(), &settings).await;
    let others = [start(&namenode, dirs[1].path(), &settings).await, start(&namenode, dirs[2].path(), &settings).await];
    let rest: Vec<&Handle> = others.iter().collect();
    for (id, size, piece, rest) in [
        (1, 1, 1024, &rest[..0]),
        (2, 3 * MIB + 77, 64 << 10, &rest[..0]),
        (3, 9 * MIB, 256 << 10, &rest[..]),
        (4, 20 * MIB + 1, MIB, &rest[..1]),
    ] {
        let block = block(id, 1001, 128 << 20);
        let data = content(size, id as u64);
        let writer = write(&socket_of(dirs[0].path()), rest, &block, &data, piece).await;
        assert!(writer.file.is_some() && writer.more);
        for node in std::iter::once(&first).chain(rest.iter().copied()) {
            assert!(read(node, &block, 0, None).await.unwrap() == data, "{size} bytes");
        }
        let mut finalized = block.block;
        finalized.length = size as u64;
        namenode.wait_event(BlockStatus::Received, finalized).await;
        // The borrower still holds its descriptor, but can change nothing with it.
        let file = writer.file.unwrap();
        file.write_all_at(&vec![0xa5; size], 0).unwrap();
        file.set_len(0).unwrap();
        assert!(read(&first, &block, 0, None).await.unwrap() == data, "{size} bytes, written to after the end");
    }
    for name in ["hearth_one_sided_forwarded_bytes", "hearth_locally_forwarded_bytes"] {
        let expected = if counted == Some(name) { (9 * MIB + 20 * MIB + 1) as u64 } else { 0 };
        assert_eq!(figure(&first, name).await, expected, "{name}");
    }
    first.shutdown(false).await;
    drop(first);
    let again = start(&namenode, dirs[0].path(), &[]).await;
    assert!(read(&again, &block(2, 1001, 0), 0, None).await.unwrap() == content(3 * MIB + 77, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trusted_writer_can_corrupt_only_its_block() {
    let namenode = FakeNamenode::start().await;
    let dir = scratch();
    // The flusher would check the CRCs as well.
    let settings = [("hearth.local.write.trusted", "true"), ("hearth.memory.flush.delay", "3600")];
    let node = start(&namenode, dir.path(), &settings).await;
    let (block, data) = (block(1, 1001, 4 << 20), content(4 * MIB, 1));
    let writer = write(&socket_of(dir.path()), &[], &block, &data, MIB).await;
    assert!(read(&node, &block, 0, None).await.unwrap() == data);
    // It is the same memory.
    let mut first = [0];
    writer.file.as_ref().unwrap().write_all_at(&[data[0] ^ 1], 0).unwrap();
    writer.file.as_ref().unwrap().read_exact_at(&mut first, 0).unwrap();
    assert!(first[0] != data[0]);
    let spoilt = tokio::spawn(async move { read(&node, &block, 0, None).await });
    assert!(spoilt.await.is_err(), "the reader's CRC check fails");
}

/// Memory would be copied at the block's end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_of_another_user_send_packets() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can be another user");
        return;
    }
    let namenode = FakeNamenode::start().await;
    let dir = scratch();
    std::fs::set_permissions(dir.path(), Permissions::from_mode(0o711)).unwrap();
    let node = start(&namenode, dir.path(), &[("hearth.local.write.trusted", "true")]).await;
    let socket = socket_of(dir.path());
    let connected = std::thread::spawn(move || {
        // Of this thread alone.
        rustix::thread::set_thread_res_uid(None, Uid::from_raw(65534), None).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let connection = runtime.block_on(local::connect(&socket)).unwrap();
        (connection, runtime)
    });
    let (connection, runtime) = connected.join().unwrap();
    let connection = connection.moved_here().unwrap();
    runtime.shutdown_background();
    let (block, data) = (block(1, 1001, 4 << 20), content(3 * MIB + 5, 1));
    let request = write_request(&block, Stage::PipelineSetupCreate, Vec::new());
    let mut writer = LocalWriter::ask_over(connection, request).await.unwrap();
    assert!(writer.file.is_none() && !writer.more);
    for piece in data.chunks(MIB) {
        writer.put(piece, 1).await.unwrap();
    }
    writer.end(1).await.unwrap();
    assert!(read(&node, &block, 0, None).await.unwrap() == data);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_memory_ends_grants_not_block() {
    let namenode = FakeNamenode::start().await;
    let dirs = [scratch(), scratch()];
    let first = start(&namenode, dirs[0].path(), &[("hearth.memory.limit", "6m")]).await;
    let second = start(&namenode, dirs[1].path(), &[]).await;
    // Twice the memory in total; each block takes more than half of it.
    let sizes = [4 * MIB, 12 * MIB, 4 * MIB];
    for (id, size) in sizes.into_iter().enumerate() {
        let block = block(id as i64, 1001, 128 << 20);
        let data = content(size, id as u64);
        let writer = write(&socket_of(dirs[0].path()), &[&second], &block, &data, 512 << 10).await;
        assert!(writer.file.is_some(), "{size} bytes: some of it was granted");
        assert!(!writer.more || size < 6 * MIB, "{size} bytes");
    }
    for (id, size) in sizes.into_iter().enumerate() {
        for node in [&first, &second] {
            assert!(read(node, &block(id as i64, 1001, 0), 0, None).await.unwrap() == content(size, id as u64));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_with_wrong_crcs_is_refused() {
    let namenode = FakeNamenode::start().await;
    let dir = scratch();
    let node = start(&namenode, dir.path(), &[]).await;
    let (block, data) = (block(1, 1001, 4 << 20), content(600_000, 1));
    let request = write_request(&block, Stage::PipelineSetupCreate, Vec::new());
    let mut writer = LocalWriter::new(&socket_of(dir.path()), request).await;
    writer.put(&data[..300_032], 1).await.unwrap();
    // Announced but not filled in.
    writer.say(&data[300_032..], false).await;
    let ack = writer.ack().await.unwrap();
    assert_eq!(ack.replies[0].status(), Status::ErrorChecksum);
    assert!(writer.ack().await.is_none());
    // Acknowledged bytes are there, and a new pipeline continues after them, over packets as a client would.
    let mut recovery = write_request(&block, Stage::PipelineSetupStreamingRecovery, Vec::new());
    recovery.latest_stamp = GenerationStamp(1002);
    recovery.bytes_received_min = 300_032;
    recovery.bytes_received_max = 600_000;
    Writer::new(node.addresses().transfer, recovery).await.finish(&data[300_032..], 1).await;
    let mut asked = block.clone();
    asked.block.stamp = GenerationStamp(1002);
    assert!(read(&node, &asked, 0, None).await.unwrap() == data);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hsync_persists_and_false_messages_close_connection() {
    let namenode = FakeNamenode::start().await;
    let dir = scratch();
    let node = start(&namenode, dir.path(), &[]).await;
    let socket = socket_of(dir.path());
    let (one, data) = (block(1, 1001, 4 << 20), content(MIB, 1));
    let mut writer = LocalWriter::new(&socket, write_request(&one, Stage::PipelineSetupCreate, Vec::new())).await;
    writer.fill(&data);
    writer.say(&data, true).await;
    assert!(writer.ack().await.unwrap().is_success());
    let found = std::process::Command::new("find").arg(dir.path().join("disk")).args(["-name", "blk_1"]).output();
    let found = String::from_utf8(found.unwrap().stdout).unwrap();
    assert_eq!(std::fs::read(found.trim()).unwrap(), data);
    writer.end(1).await.unwrap();

    // Beyond the grant; a gap; too much at once; a local write over a network.
    for (id, offset, bytes) in [(2, 0u64, 3 * MIB), (3, 512, 512), (4, 0, 64 * MIB)] {
        let request = write_request(&block(id, 1001, 4 << 20), Stage::PipelineSetupCreate, Vec::new());
        let mut writer = LocalWriter::new(&socket, request).await;
        writer.offset = offset;
        writer.say(&vec![0; bytes], false).await;
        assert!(writer.ack().await.is_none(), "{bytes} bytes at {offset}");
    }
    // A heartbeat that claims to have bytes.
    let request = write_request(&block(5, 1001, 4 << 20), Stage::PipelineSetupCreate, Vec::new());
    let mut writer = LocalWriter::new(&socket, request).await;
    writer.seqno = HEARTBEAT_SEQNO;
    writer.say(&[0; 512], false).await;
    assert!(writer.ack().await.is_none());
    let (sender, mut receiver) = super::client::open(node.addresses().transfer).await;
    let request = write_request(&block(9, 1001, 4 << 20), Stage::PipelineSetupCreate, Vec::new());
    sender.send_operation(&Operation::WriteLocal(Box::new(request))).await.unwrap();
    assert!(receiver.receive_response().await.is_err());
}

/// The client disconnects after its `steps`-th step of a slice. No acknowledged byte is lost, and another writer
/// completes the block.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_death_loses_no_acknowledged_bytes() {
    let namenode = FakeNamenode::start().await;
    let dirs = [scratch(), scratch()];
    let first = start(&namenode, dirs[0].path(), &[]).await;
    let second = start(&namenode, dirs[1].path(), &[]).await;
    let piece = 200 << 10;
    let data = content(5 * piece, 1);
    for steps in 0..12usize {
        let block = block(100 + steps as i64, 1001, 4 << 20);
        let request = write_request(&block, Stage::PipelineSetupCreate, vec![target(&second)]);
        let mut writer = LocalWriter::new(&socket_of(dirs[0].path()), request).await;
        let mut acknowledged = 0;
        // Each piece has three steps: filled in, announced, acknowledged.
        for step in 0..steps {
            let at = step / 3 * piece;
            let piece = &data[at..at + piece];
            match step % 3 {
                0 => writer.fill(piece),
                1 => writer.say(piece, false).await,
                _ => {
                    assert!(writer.ack().await.unwrap().is_success());
                    acknowledged = at + piece.len();
                }
            }
        }
        let said = writer.offset;
        let left = writer.file.take();
        drop(writer);
        let mut recovery = write_request(&block, Stage::PipelineSetupStreamingRecovery, vec![target(&second)]);
        recovery.latest_stamp = GenerationStamp(1002);
        recovery.bytes_received_min = acknowledged as u64;
        recovery.bytes_received_max = said;
        let new = Writer::new(first.addresses().transfer, recovery).await;
        // Bytes that it left in memory beyond the announced ones do not matter, nor do its later writes there.
        left.unwrap().write_all_at(&vec![0xa5; MIB], said).unwrap();
        new.finish(&data[acknowledged..], 2).await;
        let mut asked = block.clone();
        asked.block.stamp = GenerationStamp(1002);
        for node in [&first, &second] {
            assert!(read(node, &asked, 0, None).await.unwrap() == data, "gone after step {steps}");
        }
    }
}

/// 20 writers fill 64 MiB each where 1 MiB is granted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_beyond_grants_is_counted_and_freed() {
    const WRITERS: u64 = 20;
    let namenode = FakeNamenode::start().await;
    let dir = scratch();
    let datanode = start(&namenode, dir.path(), &[("hearth.memory.limit", "256m")]).await;
    let socket = socket_of(dir.path());
    let taken = || -> u64 {
        use std::os::unix::fs::MetadataExt;
        let files = hearth_testkit::files_below(&dir.path().join("memory"));
        let data = files.iter().filter(|path| path.extension().is_some_and(|extension| extension == "data"));
        data.filter_map(|path| path.metadata().ok()).map(|about| about.blocks() * 512).sum()
    };
    let mut writers = Vec::new();
    // One after the other, so that at most 64 MiB are held at a time.
    for id in 1..=WRITERS {
        let request = write_request(&block(id as i64, 1001, 128 << 20), Stage::PipelineSetupCreate, vec![]);
        let mut writer = LocalWriter::new(&socket, request).await;
        assert_eq!(writer.granted, MIB as u64);
        writer.put(&content(1000, id), 1).await.unwrap();
        let granted = writer.granted;
        writer.file.as_ref().unwrap().write_all_at(&vec![7; 64 * MIB], granted).unwrap();
        if id == 1 {
            until("the bytes to be counted while the writer is connected", async || {
                figure(&datanode, "hearth_memory_used_bytes").await >= 64 * MIB as u64
            })
            .await;
        }
        // The connection ends; the descriptor stays open.
        writers.push(writer.file.take());
        drop(writer);
        until(&format!("the bytes of {id} grants to be given back"), async || taken() <= id * 3 * MIB as u64).await;
    }
    drop(writers);
    until("the bytes that no process holds to be given back", async || taken() <= WRITERS * 64 * 1024).await;
    assert!(figure(&datanode, "hearth_memory_used_bytes").await < 64 * MIB as u64);
}

/// The DataNode after the first one stops after the `steps`-th step.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn datanode_death_is_reported_and_recovered() {
    let namenode = FakeNamenode::start().await;
    let dir = scratch();
    // Through its memory, one-sidedly, and by packets to DataNodes that do not listen.
    let one_sided = [("hearth.one-sided.transport", "tcp"), ("hearth.one-sided.address", "127.0.0.1:0")];
    let first = start(&namenode, dir.path(), &one_sided).await;
    let piece = 200 << 10;
    let data = content(4 * piece, 1);
    for (round, steps) in (0..5usize).chain(0..5).chain(0..5).enumerate() {
        let lost_dir = scratch();
        let lost = match round {
            0..5 => start_datanode(&namenode, lost_dir.path(), &[]).await,
            5..10 => start_datanode(&namenode, lost_dir.path(), &one_sided).await,
            _ => start(&namenode, lost_dir.path(), &[]).await,
        };
        let block = block(200 + round as i64, 1001, 4 << 20);
        let request = write_request(&block, Stage::PipelineSetupCreate, vec![target(&lost)]);
        let mut writer = LocalWriter::new(&socket_of(dir.path()), request).await;
        for step in 0..steps.min(3) {
            writer.put(&data[step * piece..][..piece], 2).await.unwrap();
        }
        let mut acknowledged = writer.offset as usize;
        if steps == 4 {
            // In flight when the DataNode stops.
            writer.fill(&data[acknowledged..][..piece]);
            writer.say(&data[acknowledged..][..piece], false).await;
        }
        lost.shutdown(false).await;
        if steps < 4 {
            writer.fill(&data[acknowledged..][..piece]);
            writer.say(&data[acknowledged..][..piece], false).await;
        }
        let said = writer.offset;
        // It may have been acknowledged before the other DataNode stopped.
        while let Some(ack) = writer.ack().await {
            if !ack.is_success() {
                assert_eq!(ack.replies.last().unwrap().status(), Status::Error);
                break;
            }
            acknowledged = said as usize;
        }
        drop(writer);
        let mut recovery = write_request(&block, Stage::PipelineSetupStreamingRecovery, Vec::new());
        recovery.latest_stamp = GenerationStamp(1002);
        recovery.bytes_received_min = acknowledged as u64;
        recovery.bytes_received_max = said;
        Writer::new(first.addresses().transfer, recovery).await.finish(&data[acknowledged..], 1).await;
        let mut asked = block.clone();
        asked.block.stamp = GenerationStamp(1002);
        assert!(read(&first, &asked, 0, None).await.unwrap() == data, "gone at step {steps}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn finalized_replica_is_not_lent_for_append() {
    let namenode = FakeNamenode::start().await;
    let dir = scratch();
    let node = start(&namenode, dir.path(), &[]).await;
    let data = content(MIB, 1);
    write(&socket_of(dir.path()), &[], &block(1, 1001, 4 << 20), &data[..700_416], 64 << 10).await;
    let mut append = write_request(&block(1, 1001, 4 << 20), Stage::PipelineSetupAppend, Vec::new());
    append.latest_stamp = GenerationStamp(1002);
    append.bytes_received_min = 700_416;
    let mut writer = LocalWriter::new(&socket_of(dir.path()), append).await;
    assert!(writer.file.is_none());
    for piece in data[700_416..].chunks(64 << 10) {
        writer.put(piece, 1).await.unwrap();
    }
    writer.end(1).await.unwrap();
    assert!(read(&node, &block(1, 1002, 0), 0, None).await.unwrap() == data);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lent_memory_requires_token() {
    let (namenode, minter) = FakeNamenode::with_tokens().await;
    let dir = scratch();
    let node = start(&namenode, dir.path(), &[]).await;
    let (block, data) = (block(1, 1001, 4 << 20), content(300_000, 1));
    let token = |mode| minter.token(&block, mode);
    let mut request = write_request(&block, Stage::PipelineSetupCreate, Vec::new());
    for wrong in [Default::default(), token(AccessMode::Read)] {
        request.token = wrong;
        let refused = LocalWriter::ask(&socket_of(dir.path()), request.clone()).await.err().expect("a refusal");
        assert_eq!(refused.status, Status::ErrorAccessToken);
    }
    request.token = token(AccessMode::Write);
    let mut writer = LocalWriter::new(&socket_of(dir.path()), request).await;
    writer.put(&data, 1).await.unwrap();
    writer.end(1).await.unwrap();
    let mut asked = super::client::read_request(&block, 0, None);
    asked.token = token(AccessMode::Read);
    let mut connection = super::client::open(node.addresses().transfer).await;
    assert!(super::client::read_on(&mut connection, asked).await.unwrap() == data);
}
