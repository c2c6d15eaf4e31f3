//! Clients on the DataNode's own machine: descriptors, slots and small reads over its domain socket.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::Ordering;

use hearth_datanode::Handle;
use hearth_fabric::local::{self, SharedWords};
use hearth_fabric::tcp::{Connection, ReceiveBuffer, SocketOptions};
use hearth_protocol::block_token::AccessMode;
use hearth_protocol::data_transfer::{MESSAGE_BUFFER_BYTES, Timeouts, split};
use hearth_testkit::until;
use hearth_types::{ChecksumSpec, ExtendedBlock, GenerationStamp, Token};
use hearth_wire::data_transfer::{
    BlockOpResponse, DatanodeDescription, Decoded, Describe, MessageError, OpCode, Operation, RequestShortCircuitFds,
    ShmId, ShmResponse, ShmSlot, ShortCircuitReleaseResponse, Stage, Status,
};

use super::client::{WAIT, Writer, block, content, read_on, read_request, write, write_request};
use super::namenode::FakeNamenode;
use super::{scratch, start_datanode};

const VALID: u64 = 1 << 63;
const ANCHORABLE: u64 = 1 << 62;

/// A connection that receives answers up to their last byte and no further.
struct Client {
    connection: Connection,
    buffer: ReceiveBuffer,
}

impl Client {
    fn new(connection: Connection) -> Self {
        Self { connection, buffer: ReceiveBuffer::new(4096, 4 << 20) }
    }

    async fn connect(path: &Path) -> Self {
        Self::new(local::connect(path).await.unwrap())
    }

    async fn tcp(handle: &Handle) -> Self {
        let address = handle.addresses().transfer;
        Self::new(hearth_fabric::tcp::connect(address, None, SocketOptions::default(), WAIT).await.unwrap())
    }

    async fn ask<T>(&mut self, operation: Operation, decode: impl Fn(&[u8]) -> Result<Decoded<T>, MessageError>) -> T {
        self.connection.write_all(&operation.encode(), WAIT).await.unwrap();
        loop {
            match decode(self.buffer.available()).unwrap() {
                Decoded::Complete(answer, bytes) => {
                    self.buffer.consume(bytes);
                    return answer;
                }
                Decoded::Needs(bytes) => {
                    let wanted = self.buffer.available().len() + bytes;
                    self.buffer.fill_no_further(&self.connection, wanted, WAIT).await.unwrap();
                }
            }
        }
    }

    async fn descriptors(&mut self) -> (u8, Vec<OwnedFd>) {
        let mut byte = [9];
        let (received, descriptors) = self.connection.receive_with_descriptors(&mut byte, WAIT).await.unwrap();
        assert_eq!(received, 1);
        (byte[0], descriptors)
    }

    async fn shared_memory(mut self) -> Slots {
        let operation = Operation::RequestShortCircuitShm { client_name: "tester".to_owned() };
        let answer = self.ask(operation, ShmResponse::decode).await;
        assert_eq!(answer.status, Status::Success, "{answer:?}");
        let (byte, mut descriptors) = self.descriptors().await;
        assert_eq!((byte, descriptors.len()), (0, 1));
        let words = SharedWords::attach(descriptors.remove(0), 1000, false).unwrap();
        assert_eq!(words.slots(), 128);
        Slots { words, id: answer.segment.unwrap(), _connection: self.connection }
    }

    async fn request(&mut self, block: &ExtendedBlock, slot: Option<ShmSlot>, token: Token) -> BlockOpResponse {
        let request = RequestShortCircuitFds {
            block: block.clone(),
            token,
            version_max: 1,
            slot,
            supports_receipt_verification: true,
        };
        self.ask(Operation::RequestShortCircuitFds(request), BlockOpResponse::decode).await
    }

    /// Receives the data and meta descriptors, and confirms their receipt.
    async fn replica(&mut self, block: &ExtendedBlock, slot: Option<ShmSlot>) -> (File, File) {
        let answer = self.request(block, slot, Token::default()).await;
        assert_eq!((answer.status, answer.short_circuit_version), (Status::Success, Some(1)), "{answer:?}");
        let (byte, descriptors) = self.descriptors().await;
        assert_eq!(byte, 1);
        self.connection.write_all(&[0], WAIT).await.unwrap();
        let [data, meta] = <[OwnedFd; 2]>::try_from(descriptors).unwrap();
        (data.into(), meta.into())
    }

    async fn release(&mut self, slot: ShmSlot) -> Status {
        self.ask(Operation::ReleaseShortCircuitFds(slot), ShortCircuitReleaseResponse::decode).await.status
    }
}

struct Slots {
    words: SharedWords,
    id: ShmId,
    _connection: Connection,
}

impl Slots {
    fn allocate(&self, index: usize) -> ShmSlot {
        self.words.word(index).store(VALID, Ordering::Release);
        ShmSlot { segment: self.id, index: index as i32 }
    }

    fn word(&self, index: usize) -> u64 {
        self.words.word(index).load(Ordering::Acquire)
    }
}

fn all_of(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

fn meta_of(data: &[u8]) -> Vec<u8> {
    let mut meta = ChecksumSpec::DEFAULT.to_meta_header().to_vec();
    ChecksumSpec::DEFAULT.compute(data, &mut meta);
    meta
}

/// Returns a value of the DataNode's /metrics, rounded up: a short time is not 0.
async fn figure(handle: &Handle, name: &str) -> u64 {
    let address = handle.addresses().http;
    let connection = hearth_fabric::tcp::connect(address, None, SocketOptions::default(), WAIT).await.unwrap();
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    connection.write_all(request.as_bytes(), WAIT).await.unwrap();
    let mut page = Vec::new();
    let mut piece = vec![0; 65536];
    loop {
        match connection.read(&mut piece, WAIT).await.unwrap() {
            0 => break,
            bytes => page.extend_from_slice(&piece[..bytes]),
        }
    }
    let page = String::from_utf8(page).unwrap();
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ').or(line.strip_prefix(name)));
    let line = line.unwrap_or_else(|| panic!("no {name} in {page}"));
    let value: f64 = line.trim_start_matches("_total").trim().parse().unwrap_or_else(|_| panic!("{name}: {line}"));
    value.ceil() as u64
}

async fn wait_figure(handle: &Handle, name: &str, wanted: u64) {
    until(&format!("{name} to become {wanted}"), async || figure(handle, name).await == wanted).await;
}

async fn start(namenode: &FakeNamenode, dir: &Path) -> Handle {
    let path = dir.join("socket_PORT");
    start_datanode(namenode, dir, &[("dfs.domain.socket.path", path.to_str().unwrap())]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_gets_descriptors_and_change_signal() {
    let (namenode, dir) = (FakeNamenode::start().await, scratch());
    let datanode = start(&namenode, dir.path()).await;
    let path = datanode.domain_socket().unwrap().to_owned();
    assert_eq!(path, dir.path().join(format!("socket{}", datanode.addresses().transfer.port())));
    let blocks = [(1, 300_000), (2, 700), (3, 100_000)];
    for (id, size) in blocks {
        write(&datanode, &[], &block(id, 1001, 0), &content(size, id as u64)).await;
    }
    let slots = Client::connect(&path).await.shared_memory().await;
    let mut client = Client::connect(&path).await;
    let mut files = Vec::new();
    for (index, (id, size)) in blocks.into_iter().enumerate() {
        let (data, meta) = client.replica(&block(id, 1001, 0), Some(slots.allocate(index))).await;
        let expected = content(size, id as u64);
        assert!(all_of(&data) == expected);
        assert!(all_of(&meta) == meta_of(&expected));
        assert!(data.write_at(b"x", 0).is_err(), "read-only");
        assert!(data.set_len(0).is_err(), "read-only");
        assert_eq!(slots.word(index), VALID | ANCHORABLE, "its bytes were checked on receipt");
        files.push((data, expected));
    }
    // Without a slot and without confirming the receipt, like old clients.
    let (data, _) = client.replica(&block(2, 1001, 0), None).await;
    assert!(all_of(&data) == content(700, 2));
    assert_eq!(figure(&datanode, "hearth_short_circuit_slots").await, 3);
    assert_eq!(figure(&datanode, "hearth_shown_replicas").await, 2, "a replica in a slab is not shown");

    // After an append and a deletion the slot is invalid, and the descriptors still show the old bytes.
    let mut request = write_request(&block(1, 1001, 300_000), Stage::PipelineSetupAppend, Vec::new());
    request.bytes_received_min = 300_000;
    request.latest_stamp = GenerationStamp(1002);
    let mut writer = Writer::new(datanode.addresses().transfer, request).await;
    assert_eq!(slots.word(0), 0);
    writer.offset = 300_000;
    writer.finish(&content(352, 9)[..32], 1).await;
    assert_eq!([slots.word(1), slots.word(2)], [VALID | ANCHORABLE; 2]);
    assert!(files.iter().all(|(file, expected)| all_of(file) == *expected));
    let (data, meta) = client.replica(&block(1, 1002, 0), Some(slots.allocate(5))).await;
    let expected = [content(300_000, 1), content(352, 9)[..32].to_vec()].concat();
    assert!(all_of(&data) == expected);
    assert!(all_of(&meta) == meta_of(&expected));

    assert_eq!(client.release(ShmSlot { segment: slots.id, index: 2 }).await, Status::Success);
    assert_eq!((slots.word(2), slots.word(1)), (0, VALID | ANCHORABLE));
    assert_eq!(client.release(ShmSlot { segment: slots.id, index: 2 }).await, Status::ErrorInvalid);
    // The client dies.
    drop((slots, client, files, data, meta));
    for name in ["slots", "segments", "anchored"] {
        wait_figure(&datanode, &format!("hearth_short_circuit_{name}"), 0).await;
    }
    wait_figure(&datanode, "hearth_shown_replicas", 0).await;
    wait_figure(&datanode, "hearth_memory_lingering_bytes", 0).await;

    datanode.shutdown(false).await;
    drop(datanode);
    until("the end of the socket, which closes with the datanode", async || !path.exists()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_operation_works_on_domain_socket() {
    let (namenode, dir) = (FakeNamenode::start().await, scratch());
    let datanode = start(&namenode, dir.path()).await;
    let path = datanode.domain_socket().unwrap();
    let timeouts = Timeouts { connect: WAIT, read: WAIT, write: WAIT };
    let open = async || split(local::connect(path).await.unwrap(), MESSAGE_BUFFER_BYTES, timeouts);
    for (id, size) in [(1, 3_000_000), (2, 100)] {
        let data = content(size, 7);
        let (sender, mut receiver) = open().await;
        let request = write_request(&block(id, 1001, 0), Stage::PipelineSetupCreate, Vec::new());
        sender.send_operation(&Operation::WriteBlock(Box::new(request))).await.unwrap();
        assert_eq!(receiver.receive_response().await.unwrap().status, Status::Success);
        Writer { sender, receiver, seqno: 0, offset: 0 }.finish(&data, 1).await;
        let mut connection = open().await;
        let read = read_on(&mut connection, read_request(&block(id, 1001, 0), 0, None)).await.unwrap();
        assert!(read == data);
    }
    for mut client in [Client::tcp(&datanode).await, Client::connect(path).await] {
        let local = client.connection.is_unix();
        let request = Operation::Describe(Describe { client_name: "tester".to_owned() });
        let description = client.ask(request, DatanodeDescription::decode).await;
        assert_eq!(description.datanode, datanode.uuid());
        assert_eq!(description.offer.domain_socket.as_deref(), path.to_str());
        assert!(description.serves(OpCode::Describe));
        assert_eq!(description.serves(OpCode::WriteLocal), local);
        assert!(description.serves(OpCode::ReadMany) && description.offer.serves(OpCode::ReadMany));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusals_let_clients_fall_back() {
    let (namenode, dir) = (FakeNamenode::start().await, scratch());
    let datanode = start(&namenode, dir.path()).await;
    let path = datanode.domain_socket().unwrap();
    let here = block(1, 1001, 0);
    write(&datanode, &[], &here, &content(100_000, 1)).await;

    // Over TCP everything is refused.
    let answer = Client::tcp(&datanode).await.request(&here, None, Token::default()).await;
    assert_eq!((answer.status, answer.short_circuit_version), (Status::Error, None));
    let slot = ShmSlot { segment: ShmId { high: 1, low: 2 }, index: 0 };
    assert_eq!(Client::tcp(&datanode).await.release(slot).await, Status::ErrorUnsupported);
    let shm = Operation::RequestShortCircuitShm { client_name: String::new() };
    let answer = Client::tcp(&datanode).await.ask(shm, ShmResponse::decode).await;
    assert_eq!(answer.status, Status::ErrorInvalid);

    // A block that is missing or unfinished is read over TCP; other blocks are not affected.
    let mut client = Client::connect(path).await;
    let writing = block(2, 1001, 0);
    let request = write_request(&writing, Stage::PipelineSetupCreate, Vec::new());
    let mut writer = Writer::new(datanode.addresses().transfer, request).await;
    writer.send(&content(1000, 2), false).await;
    writer.ack().await;
    for (block, slot) in [(&block(9, 1001, 0), None), (&block(1, 1002, 0), None), (&writing, None), (&here, Some(slot))]
    {
        let answer = client.request(block, slot, Token::default()).await;
        assert_eq!((answer.status, answer.short_circuit_version), (Status::ErrorUnsupported, Some(1)), "{answer:?}");
    }
    // A client that violates the rules of slots.
    let slots = Client::connect(path).await.shared_memory().await;
    let answer = client.request(&here, Some(ShmSlot { segment: slots.id, index: 3 }), Token::default()).await;
    assert_eq!(answer.status, Status::ErrorInvalid, "it was not allocated: {answer:?}");
    let answer = client.request(&here, Some(ShmSlot { segment: slots.id, index: 128 }), Token::default()).await;
    assert_eq!(answer.status, Status::ErrorInvalid, "{answer:?}");
    client.replica(&here, Some(slots.allocate(3))).await;
    let answer = client.request(&here, Some(slots.allocate(3)), Token::default()).await;
    assert_eq!(answer.status, Status::ErrorInvalid, "in use: {answer:?}");

    // A client that dies before it has confirmed the descriptors holds no slot.
    let mut dying = Client::connect(path).await;
    assert_eq!(dying.request(&here, Some(slots.allocate(4)), Token::default()).await.status, Status::Success);
    drop(dying);
    wait_figure(&datanode, "hearth_short_circuit_slots", 1).await;
    assert_eq!(slots.word(4), 0);
    // A client that sends a message where none is allowed loses its segment.
    slots._connection.write_all(b"hello", WAIT).await.unwrap();
    wait_figure(&datanode, "hearth_short_circuit_segments", 0).await;
    assert_eq!(slots.word(3), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn descriptors_require_token() {
    let ((namenode, minter), dir) = (FakeNamenode::with_tokens().await, scratch());
    let datanode = start(&namenode, dir.path()).await;
    let path = datanode.domain_socket().unwrap();
    let here = block(1, 1001, 0);
    let token = |block, mode| minter.token(block, mode);
    let mut request = write_request(&here, Stage::PipelineSetupCreate, Vec::new());
    request.token = token(&here, AccessMode::Write);
    Writer::new(datanode.addresses().transfer, request).await.finish(&content(100_000, 1), 1).await;

    let slots = Client::connect(path).await.shared_memory().await;
    let other = block(2, 1001, 0);
    for bad in [Token::default(), token(&here, AccessMode::Write), token(&other, AccessMode::Read)] {
        let answer = Client::connect(path).await.request(&here, Some(slots.allocate(0)), bad.clone()).await;
        assert_eq!(answer.status, Status::ErrorAccessToken);
    }
    let mut client = Client::connect(path).await;
    let answer = client.request(&here, Some(slots.allocate(0)), token(&here, AccessMode::Read)).await;
    assert_eq!(answer.status, Status::Success);
    let (_, descriptors) = client.descriptors().await;
    assert!(all_of(&File::from(descriptors.into_iter().next().unwrap())) == content(100_000, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn socket_in_writable_directory_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let (namenode, dir) = (FakeNamenode::start().await, scratch());
    let open = dir.path().join("open");
    std::fs::create_dir(&open).unwrap();
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
    let configuration = hearth_config::Configuration::empty()
        .with("fs.defaultFS", format!("hdfs://{}", namenode.address()))
        .with("dfs.datanode.data.dir", dir.path().join("disk").display().to_string())
        .with("hearth.memory.dir", dir.path().join("memory").display().to_string())
        .with("dfs.datanode.address", "127.0.0.1:0")
        .with("dfs.domain.socket.path", open.join("socket").display().to_string());
    let clock = std::sync::Arc::new(hearth_types::SystemClock::new());
    let options =
        hearth_datanode::DatanodeOptions::from_configuration(configuration.into(), "tester", "localhost", clock)
            .unwrap();
    let error = hearth_datanode::Datanode::start(options).await.err().unwrap();
    assert!(error.to_string().contains("may be written by everybody"), "{error}");
}
