//! READ_MANY: one connection, many ranges of many replicas.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

use hearth_datanode::Handle;
use hearth_fabric::stream::{Connection, ReceiveBuffer};
use hearth_fabric::tcp::{self, SocketOptions};
use hearth_fabric::{Memory, local};
use hearth_protocol::block_token::AccessMode;
use hearth_types::{ByteRange, ExtendedBlock, Token};
use hearth_wire::data_transfer::{
    AnswerSlot, Decoded, MessageError, Operation, RangeHead, RangePiece, RangeRefusal, RangeRequest, ReadMany,
    ReadManyTerms, Stage, Status,
};

use super::client::{WAIT, Writer, block, content, write, write_request};
use super::namenode::FakeNamenode;
use super::{scratch, start_datanode};

pub struct Client {
    connection: Connection,
    buffer: ReceiveBuffer,
    next: u64,
}

pub type Answer = (u64, Result<(RangePiece, Vec<u8>), RangeRefusal>);

impl Client {
    async fn start(connection: Connection) -> Self {
        let mut client = Self { connection, buffer: ReceiveBuffer::new(64 << 10, 4 << 20), next: 0 };
        let request = Operation::ReadMany(ReadMany { client_name: "tester".to_owned(), memory_bytes: 0 });
        client.connection.write_all(&request.encode(), WAIT).await.unwrap();
        let terms = ReadManyTerms::Accepted { range_bytes_max: 1 << 20, takes_memory: false };
        assert_eq!(client.receive(ReadManyTerms::decode).await, terms);
        client
    }

    pub async fn tcp(handle: &Handle) -> Self {
        let address = handle.addresses().transfer;
        Self::start(tcp::connect(address, None, SocketOptions::default(), WAIT).await.unwrap()).await
    }

    async fn receive<T>(&mut self, decode: impl Fn(&[u8]) -> Result<Decoded<T>, MessageError>) -> T {
        loop {
            match decode(self.buffer.available()).unwrap() {
                Decoded::Complete(message, consumed) => {
                    self.buffer.consume(consumed);
                    return message;
                }
                Decoded::Needs(missing) => {
                    let wanted = self.buffer.available().len() + missing;
                    self.buffer.fill_to(&self.connection, wanted, WAIT).await.unwrap();
                }
            }
        }
    }

    /// Requests all ranges in one write. Returns the number of the first request.
    pub async fn ask(&mut self, ranges: &[(ExtendedBlock, Token, u64, u64)]) -> u64 {
        let first = self.next;
        let mut bytes = Vec::new();
        for (block, token, offset, length) in ranges {
            let range = ByteRange::with_length(*offset, *length).unwrap();
            let (block, token) = (block.clone(), token.clone());
            RangeRequest { request: self.next, block, token, range, place: None, trace: None }.encode_into(&mut bytes);
            self.next += 1;
        }
        self.connection.write_all(&bytes, WAIT).await.unwrap();
        first
    }

    /// Returns the next answer, after verifying its bytes.
    pub async fn answer(&mut self) -> Answer {
        let head = self.receive(RangeHead::decode).await;
        let piece = match head.piece {
            Ok(piece) => piece,
            Err(refusal) => return (head.request, Err(refusal)),
        };
        self.buffer.fill_to(&self.connection, piece.body_bytes(), WAIT).await.unwrap();
        let (checksums, rest) = self.buffer.available().split_at(piece.checksum_bytes());
        let data = rest[..piece.data_bytes as usize].to_vec();
        piece.checksum.verify(&data, checksums).unwrap();
        self.buffer.consume(piece.body_bytes());
        (head.request, Ok((piece, data)))
    }
}

pub fn wanted(id: i64, offset: u64, length: u64) -> (ExtendedBlock, Token, u64, u64) {
    (block(id, 1001, 0), Token::default(), offset, length)
}

/// Starts a DataNode that also listens on a domain socket.
async fn with_socket(namenode: &FakeNamenode, dir: &Path, settings: &[(&str, &str)]) -> Handle {
    let path = dir.join("dn_PORT");
    let path = path.to_str().expect("a scratch directory's name is text");
    let settings = [settings, &[("dfs.domain.socket.path", path)]].concat();
    start_datanode(namenode, dir, &settings).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ranges_on_one_connection_fail_separately() {
    let (namenode, dir) = (FakeNamenode::start().await, scratch());
    for transfer_to in ["true", "false"] {
        let settings = [("dfs.datanode.transferTo.allowed", transfer_to)];
        let datanode = with_socket(&namenode, &dir.path().join(transfer_to), &settings).await;
        // Replicas in slabs, and one with a file of its own.
        for id in 1..=20 {
            write(&datanode, &[], &block(id, 1001, 0), &content(1000 * id as usize, id as u64)).await;
        }
        write(&datanode, &[], &block(50, 1001, 0), &content(2 << 20, 50)).await;
        let mut ranges: Vec<_> = (1..=20).map(|id| wanted(id, 300 * id as u64, 500)).collect();
        ranges.extend(
            [(0, 1 << 20), (777, 40_000), (5, 10), (100_000, 300_000)].map(|(at, length)| wanted(50, at, length)),
        );
        // A missing block, a range beyond its end, one that is too long, and an empty one.
        ranges.extend([wanted(99, 0, 10), wanted(1, 900, 200), wanted(50, 0, 2 << 20), wanted(3, 100, 0)]);
        let sockets = local::connect(datanode.domain_socket().unwrap()).await.unwrap();
        for mut client in [Client::tcp(&datanode).await, Client::start(sockets).await] {
            for _ in 0..3 {
                let first = client.ask(&ranges).await;
                let mut seen = vec![false; ranges.len()];
                for _ in 0..ranges.len() {
                    let (request, answer) = client.answer().await;
                    let index = (request - first) as usize;
                    assert!(!std::mem::replace(&mut seen[index], true), "one answer each");
                    let (block, _, offset, length) = &ranges[index];
                    let id = block.id().0;
                    match answer {
                        Ok((piece, data)) => {
                            let all = content(piece.replica_length as usize, id as u64);
                            assert!(data == all[piece.offset as usize..][..data.len()]);
                            assert!(piece.offset <= *offset && offset - piece.offset < 512);
                            assert!(piece.offset + data.len() as u64 >= offset + length);
                            assert!(index < 24 || id == 3);
                        }
                        Err(refusal) => match id {
                            99 | 1 => assert_eq!(refusal.status, Status::Error),
                            _ => assert_eq!((id, *length, refusal.status), (50, 2 << 20, Status::ErrorInvalid)),
                        },
                    }
                }
            }
        }
    }
}

/// Sends the first messages of a client that lends `descriptors` as memory of `bytes`. Also returns if the DataNode
/// accepts the memory.
async fn lend(connection: Connection, bytes: u64, descriptors: &[BorrowedFd<'_>]) -> (Client, bool) {
    let mut client = Client { connection, buffer: ReceiveBuffer::new(64 << 10, 4 << 20), next: 0 };
    let request = Operation::ReadMany(ReadMany { client_name: "tester".to_owned(), memory_bytes: bytes });
    client.connection.write_all(&request.encode(), WAIT).await.unwrap();
    let ReadManyTerms::Accepted { takes_memory, .. } = client.receive(ReadManyTerms::decode).await else {
        panic!("refused")
    };
    if takes_memory {
        client.connection.send_with_descriptors(&[0], descriptors, WAIT).await.unwrap();
    }
    (client, takes_memory)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_are_written_only_to_named_place() {
    let (namenode, dir) = (FakeNamenode::start().await, scratch());
    let datanode = with_socket(&namenode, dir.path(), &[]).await;
    write(&datanode, &[], &block(1, 1001, 0), &content(40_000, 1)).await;
    write(&datanode, &[], &block(2, 1001, 0), &content(2 << 20, 2)).await;
    let lent = Memory::sealed(256 << 10).unwrap();
    let connection = local::connect(datanode.domain_socket().unwrap()).await.unwrap();
    let (mut client, takes) = lend(connection, 256 << 10, &[lent.as_fd()]).await;
    assert!(takes);
    let memory = File::from(lent);
    // Block, range, place; true if the answer can be put there.
    let cases = [
        (1, 700, 30_000, Some((4096, 65_536)), true),
        (1, 0, 40_000, Some((100_001, 40_316)), true),
        // A byte too short; beyond the end; past the largest number; no space at all; no place given.
        (1, 0, 40_000, Some((100_001, 40_315)), false),
        (1, 0, 1000, Some(((256 << 10) - 1000, 4096)), false),
        (1, 0, 1000, Some((u64::MAX - 10, 4096)), false),
        (1, 0, 1000, Some((0, 0)), false),
        (1, 0, 1000, None, false),
        // A file of its own.
        (2, 5000, 1000, Some((0, 65_536)), false),
    ];
    for (id, offset, length, place, expected) in cases {
        memory.write_all_at(&vec![0xEE; 256 << 10], 0).unwrap();
        let place = place.map(|(offset, bytes)| AnswerSlot { offset, bytes });
        let range = ByteRange::with_length(offset, length).unwrap();
        let (request, mut bytes) = (client.next, Vec::new());
        RangeRequest { request, block: block(id, 1001, 0), token: Token::default(), range, place, trace: None }
            .encode_into(&mut bytes);
        client.next += 1;
        client.connection.write_all(&bytes, WAIT).await.unwrap();
        let head = client.receive(RangeHead::decode).await;
        let piece = head.piece.unwrap();
        assert_eq!(piece.placed, expected, "{range:?} {place:?}");
        let mut all = vec![0; 256 << 10];
        memory.read_exact_at(&mut all, 0).unwrap();
        let body = if expected {
            let start = place.unwrap().offset as usize;
            all.drain(start..start + piece.body_bytes()).collect()
        } else {
            client.buffer.fill_to(&client.connection, piece.body_bytes(), WAIT).await.unwrap();
            let body = client.buffer.available()[..piece.body_bytes()].to_vec();
            client.buffer.consume(piece.body_bytes());
            body
        };
        assert!(all.iter().all(|byte| *byte == 0xEE), "{range:?} {place:?}");
        let (checksums, data) = body.split_at(piece.checksum_bytes());
        piece.checksum.verify(data, checksums).unwrap();
        let whole = content(piece.replica_length as usize, id as u64);
        assert!(data == &whole[piece.offset as usize..][..data.len()]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unusable_lent_memory_is_rejected() {
    let (namenode, dir) = (FakeNamenode::start().await, scratch());
    let datanode = with_socket(&namenode, dir.path(), &[]).await;
    write(&datanode, &[], &block(1, 1001, 0), &content(10_000, 1)).await;
    let connect = async || local::connect(datanode.domain_socket().unwrap()).await.unwrap();
    let place = Some(AnswerSlot { offset: 0, bytes: 65_536 });
    let range = ByteRange::new(0, 10_000).unwrap();
    let mut asked = Vec::new();
    RangeRequest { request: 0, block: block(1, 1001, 0), token: Token::default(), range, place, trace: None }
        .encode_into(&mut asked);

    let plain = tempfile::tempfile().unwrap();
    plain.set_len(1 << 20).unwrap();
    let short = Memory::sealed(4096).unwrap();
    for descriptor in [plain.as_fd(), short.as_fd()] {
        let (mut client, takes) = lend(connect().await, 1 << 20, &[descriptor]).await;
        assert!(takes);
        client.connection.write_all(&asked, WAIT).await.unwrap();
        let (_, answer) = client.answer().await;
        let (piece, data) = answer.unwrap();
        assert!(!piece.placed && data == content(10_000, 1));
    }
    // Memory above the limit, and memory over TCP, are not accepted.
    let (_, takes) = lend(connect().await, ReadMany::MEMORY_BYTES_MAX + 1, &[]).await;
    assert!(!takes);
    let tcp = tcp::connect(datanode.addresses().transfer, None, SocketOptions::default(), WAIT).await.unwrap();
    assert!(!lend(tcp, 1 << 20, &[]).await.1);

    for descriptors in [&[][..], &[short.as_fd(), short.as_fd()]] {
        let (client, takes) = lend(connect().await, 4096, descriptors).await;
        assert!(takes);
        let _ = client.connection.write_all(&asked, WAIT).await;
        let outcome = client.connection.read(&mut [0; 100], WAIT).await;
        assert!(matches!(outcome, Ok(0) | Err(tcp::Error::Socket { .. })), "{outcome:?}");
    }
    // Ranges that are sent before the descriptor.
    let client = Client { connection: connect().await, buffer: ReceiveBuffer::new(64 << 10, 4 << 20), next: 0 };
    let request = Operation::ReadMany(ReadMany { client_name: "tester".to_owned(), memory_bytes: 4096 });
    let early = [request.encode(), asked].concat();
    client.connection.write_all(&early, WAIT).await.unwrap();
    let mut rest = vec![0; 1 << 16];
    while !matches!(client.connection.read(&mut rest, WAIT).await, Ok(0) | Err(tcp::Error::Socket { .. })) {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn disk_reads_are_overtaken_but_answered() {
    let (namenode, dir) = (FakeNamenode::start().await, scratch());
    // So little memory that the first replicas are only on disk when the last ones are written.
    let settings = [("hearth.memory.limit", "8m")];
    let datanode = start_datanode(&namenode, dir.path(), &settings).await;
    for id in 1..=24 {
        write(&datanode, &[], &block(id, 1001, 0), &content(1 << 20, id as u64)).await;
    }
    let mut client = Client::tcp(&datanode).await;
    let ranges: Vec<_> = (0..200).map(|index| wanted(index % 24 + 1, index as u64 * 3001, 32_768)).collect();
    let first = client.ask(&ranges).await;
    let mut seen = vec![false; ranges.len()];
    for _ in 0..ranges.len() {
        let (request, answer) = client.answer().await;
        let index = (request - first) as usize;
        assert!(!std::mem::replace(&mut seen[index], true));
        let (piece, data) = answer.unwrap();
        let all = content(1 << 20, index as u64 % 24 + 1);
        assert!(data == all[piece.offset as usize..][..data.len()], "range {index}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_that_does_not_receive_blocks_itself() {
    let (namenode, dir) = (FakeNamenode::start().await, scratch());
    let datanode = start_datanode(&namenode, dir.path(), &[]).await;
    write(&datanode, &[], &block(1, 1001, 0), &content(1 << 20, 1)).await;
    let mut client = Client::tcp(&datanode).await;
    let mut bytes = Vec::new();
    for request in 0..1_000_000 {
        let range = ByteRange::new(0, 1 << 20).unwrap();
        RangeRequest { request, block: block(1, 1001, 0), token: Token::default(), range, place: None, trace: None }
            .encode_into(&mut bytes);
        if bytes.len() > 1 << 20 {
            break;
        }
    }
    // The sockets' buffers take some requests; no DataNode accepts an unlimited number of them.
    let mut sent = 0u64;
    loop {
        let outcome = client.connection.write_all(&bytes, std::time::Duration::from_millis(300)).await;
        sent += bytes.len() as u64;
        if outcome.is_err() {
            break;
        }
        assert!(sent < 64 << 20, "{sent} bytes of requests were accepted");
    }
    // This client is still served, and so are others.
    let (_, answer) = client.answer().await;
    assert!(answer.unwrap().1 == content(1 << 20, 1));
    let mut other = Client::tcp(&datanode).await;
    other.ask(&[wanted(1, 0, 1000)]).await;
    assert!(other.answer().await.1.is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_range_requires_its_token() {
    let ((namenode, minter), dir) = (FakeNamenode::with_tokens().await, scratch());
    let datanode = start_datanode(&namenode, dir.path(), &[]).await;
    let (here, other) = (block(1, 1001, 0), block(2, 1001, 0));
    let mut request = write_request(&here, Stage::PipelineSetupCreate, Vec::new());
    request.token = minter.token(&here, AccessMode::Write);
    Writer::new(datanode.addresses().transfer, request).await.finish(&content(10_000, 1), 1).await;
    let tokens = [
        Token::default(),
        minter.token(&here, AccessMode::Write),
        minter.token(&other, AccessMode::Read),
        minter.token(&here, AccessMode::Read),
    ];
    let mut client = Client::tcp(&datanode).await;
    let ranges: Vec<_> = tokens.into_iter().map(|token| (here.clone(), token, 0, 10_000)).collect();
    client.ask(&ranges).await;
    for _ in 0..4 {
        match client.answer().await {
            (3, answer) => assert!(answer.unwrap().1 == content(10_000, 1)),
            (_, answer) => assert_eq!(answer.unwrap_err().status, Status::ErrorAccessToken),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_bytes_close_only_their_connection() {
    let (namenode, dir) = (FakeNamenode::start().await, scratch());
    let datanode = start_datanode(&namenode, dir.path(), &[]).await;
    write(&datanode, &[], &block(1, 1001, 0), &content(1000, 1)).await;
    let mut steady = Client::tcp(&datanode).await;
    let mut range = Vec::new();
    let whole = ByteRange::new(0, 1000).unwrap();
    RangeRequest {
        request: 0,
        block: block(1, 1001, 0),
        token: Token::default(),
        range: whole,
        place: None,
        trace: None,
    }
    .encode_into(&mut range);
    let mut inputs: Vec<Vec<u8>> = (0..range.len()).map(|cut| range[..cut].to_vec()).collect();
    inputs.extend((0..range.len()).map(|at| {
        let mut bytes = range.clone();
        bytes[at] ^= 0xFF;
        bytes
    }));
    inputs.extend((0..40).map(|seed| content(1 + seed * 71, seed as u64 + 7)));
    inputs.push(vec![0xFF, 0xFF, 0xFF, 0xFF, 0x0F]);
    for input in inputs {
        let client = Client::tcp(&datanode).await;
        // The DataNode may already have closed the connection.
        let _ = client.connection.write_all(&input, WAIT).await;
        client.connection.shutdown_write();
        let mut rest = vec![0; 1 << 16];
        while !matches!(client.connection.read(&mut rest, WAIT).await, Ok(0) | Err(tcp::Error::Socket { .. })) {}
    }
    steady.ask(&[wanted(1, 0, 1000)]).await;
    assert!(steady.answer().await.1.is_ok());
}
