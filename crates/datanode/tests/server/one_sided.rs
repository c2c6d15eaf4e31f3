//! The one-sided listener, over TCP: access control, and the answers of a DataNode that was restarted.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hearth_fabric::Memory;
use hearth_fabric::one_sided::{Access, Connection, Domain, Error, Limits, Transfer, Transport};
use hearth_fabric::soft::TcpTransport;
use hearth_protocol::block_token::AccessMode;
use hearth_types::{ExtendedBlock, Token, ValidityRecord};
use hearth_wire::data_transfer::Status;
use hearth_wire::rdma_control::{Advertisement, ControlMessage, Locate, Located, PURPOSE_READING, SmallBytes, VERSION};

use super::client::{Writer, block, content, write, write_request};
use super::namenode::FakeNamenode;
use super::{scratch, start_datanode};

const LONG: Duration = Duration::from_secs(60);
const TCP: &[(&str, &str)] = &[
    ("hearth.one-sided.transport", "tcp"),
    ("hearth.one-sided.address", "127.0.0.1:0"),
    ("hearth.advertise.lease", "600"),
];

/// A client's end of a connection.
struct Reader {
    domain: Arc<dyn Domain>,
    connection: Arc<dyn Connection>,
}

impl Reader {
    async fn connect(address: SocketAddr, private: &[u8]) -> Result<Self, Error> {
        let domain = TcpTransport.domain().unwrap();
        let connection = TcpTransport.connect(&domain, address, private, Limits::default(), LONG).await?;
        Ok(Self { domain, connection })
    }

    async fn new(address: SocketAddr) -> Self {
        Self::connect(address, &[PURPOSE_READING, VERSION]).await.unwrap()
    }

    async fn ask(&self, locate: Locate) -> Located {
        self.connection.send(ControlMessage::Locate(locate).encode().unwrap(), LONG).await.unwrap();
        match ControlMessage::decode(&self.connection.receive(LONG).await.unwrap()).unwrap() {
            ControlMessage::Located(located) => located,
            other => panic!("{other:?}"),
        }
    }

    async fn advertisement(&self, block: &ExtendedBlock, token: Token) -> Advertisement {
        match self.ask(question(block, token)).await {
            Located::Shown { advertisement, .. } => advertisement,
            other => panic!("{other:?}"),
        }
    }

    /// Returns the data, and true if the record shows that it belongs to the replica.
    async fn read(&self, advertisement: &Advertisement) -> Result<(Vec<u8>, bool), Error> {
        let (data, shown) = (advertisement.data, advertisement.shown);
        let memory = Arc::new(Memory::fresh(data.length + shown.length).unwrap());
        let local = self.domain.register(&memory, 0..data.length + shown.length, Access::Local).unwrap();
        let first = Transfer { local: local.clone(), offset: 0, remote: data };
        let second = Transfer { local, offset: data.length, remote: shown };
        self.connection.read(vec![first, second], LONG).await?;
        let mut bytes = vec![0; data.length as usize];
        memory.read(0, &mut bytes);
        let mut record = [0; ValidityRecord::BYTES];
        memory.read(data.length, &mut record);
        Ok((bytes, ValidityRecord::decode(&record) == Some(advertisement.record())))
    }
}

fn question(block: &ExtendedBlock, token: Token) -> Locate {
    Locate { request: 7, block: block.clone(), token, inline_bytes_max: 4096, into: None }
}

fn status(located: &Located) -> Option<Status> {
    match located {
        Located::Refused { refusal, .. } => Some(refusal.status),
        Located::Shown { .. } | Located::Small { .. } => None,
    }
}

/// Rule 9: only the DataNode gives out a key, after it has checked the token.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_require_token() {
    let (namenode, minter) = FakeNamenode::with_tokens().await;
    let dir = scratch();
    let datanode = start_datanode(&namenode, dir.path(), TCP).await;
    let (one, other) = (block(1, 1001, 300_000), block(2, 1001, 300_000));
    let token = |block: &ExtendedBlock, mode| minter.token(block, mode);
    let data = content(300_000, 1);
    for block in [&one, &other] {
        let mut request = write_request(block, hearth_wire::data_transfer::Stage::PipelineSetupCreate, vec![]);
        request.token = token(block, AccessMode::Write);
        Writer::new(datanode.addresses().transfer, request).await.finish(&data, 1).await;
    }
    let reader = Reader::new(datanode.one_sided_address().unwrap()).await;
    let refused = Some(Status::ErrorAccessToken);
    assert_eq!(status(&reader.ask(question(&one, Token::default())).await), refused);
    assert_eq!(status(&reader.ask(question(&one, token(&one, AccessMode::Write))).await), refused);
    assert_eq!(status(&reader.ask(question(&one, token(&other, AccessMode::Read))).await), refused);
    let advertisement = reader.advertisement(&one, token(&one, AccessMode::Read)).await;
    assert!(reader.read(&advertisement).await.unwrap() == (data, true));
    // It is advertised now, but each request must still carry a token of its own.
    assert_eq!(status(&reader.ask(question(&one, Token::default())).await), refused);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_replicas_are_sent_inline_or_written() {
    let namenode = FakeNamenode::start().await;
    let dir = scratch();
    let datanode = start_datanode(&namenode, dir.path(), TCP).await;
    let reader = Reader::new(datanode.one_sided_address().unwrap()).await;
    for (id, length) in [(1, 1), (2, 1000), (3, 4000), (4, 4090), (5, 60_000), (6, 65_536)] {
        let block = block(id, 1001, length as u64);
        let data = content(length, id as u64);
        write(&datanode, &[], &block, &data).await;
        let memory = Arc::new(Memory::fresh(80 << 10).unwrap());
        let into = reader.domain.register(&memory, 0..80 << 10, Access::RemoteWrite).unwrap();
        let locate = Locate { into: Some(into.remote()), ..question(&block, Token::default()) };
        let Located::Small { request: 7, replica } = reader.ask(locate).await else { panic!("{length} bytes") };
        let (bytes, crcs) = match replica.bytes {
            SmallBytes::Inline { data, checksums } => {
                assert!(length < 4090, "{length} bytes within a message");
                (data.to_vec(), checksums.to_vec())
            }
            SmallBytes::Written => {
                assert!(length > 4000, "{length} bytes beside the message");
                let mut bytes = vec![0; length + replica.checksum.checksum_bytes(length as u64) as usize];
                memory.read(0, &mut bytes);
                let crcs = bytes.split_off(length);
                (bytes, crcs)
            }
        };
        assert!(bytes == data, "{length} bytes");
        replica.checksum.verify(&bytes, &crcs).unwrap();
        // Without memory for the answer, the client has to use another path.
        if length > 4000 {
            let nowhere = reader.ask(question(&block, Token::default())).await;
            assert_eq!(status(&nowhere), Some(Status::ErrorUnsupported));
        }
    }
    let missing = reader.ask(question(&block(99, 1001, 1), Token::default())).await;
    assert_eq!(status(&missing), Some(Status::Error));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_message_closes_only_its_connection() {
    let namenode = FakeNamenode::start().await;
    let dir = scratch();
    let datanode = start_datanode(&namenode, dir.path(), TCP).await;
    let address = datanode.one_sided_address().unwrap();
    let good = Reader::new(address).await;
    for private in [&b""[..], &[PURPOSE_READING, 99], &[77, VERSION]] {
        let rejected = Reader::connect(address, private).await.err();
        assert!(matches!(rejected, Some(Error::Rejected { .. })), "{private:?}: {rejected:?}");
    }
    let unasked = Located::Refused {
        request: 1,
        refusal: hearth_wire::rdma_control::Refusal { status: Status::Error, message: String::new() },
    };
    for nonsense in [
        Bytes::from_static(&[0]),
        Bytes::from_static(&[1]),
        Bytes::from_static(&[1, 0xff, 0xff]),
        Bytes::from_static(&[200; 8000]),
        ControlMessage::Located(unasked).encode().unwrap(),
    ] {
        let reader = Reader::new(address).await;
        reader.connection.send(nonsense, LONG).await.unwrap();
        tokio::time::timeout(LONG, reader.connection.closed()).await.expect("the connection ends");
    }
    // Far more requests at once than are answered at a time.
    let block = block(1, 1001, 300_000);
    write(&datanode, &[], &block, &content(300_000, 1)).await;
    let asked = ControlMessage::Locate(question(&block, Token::default())).encode().unwrap();
    let sends: Vec<_> = (0..500).map(|_| good.connection.send(asked.clone(), LONG)).collect();
    for _ in 0..500 {
        good.connection.receive(LONG).await.unwrap();
    }
    for send in sends {
        send.await.unwrap();
    }
}

/// Rules 6 and 8: after a restart with the same files, earlier advertisements are invalid.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restart_invalidates_earlier_advertisements() {
    let namenode = FakeNamenode::start().await;
    let dir = scratch();
    // Bound without listening, so that no other process takes the port between the two incarnations.
    let port = tokio::net::TcpSocket::new_v4().unwrap();
    port.set_reuseaddr(true).unwrap();
    port.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = port.local_addr().unwrap();
    let own = address.to_string();
    let settings = [TCP[0], ("hearth.one-sided.address", own.as_str()), TCP[2]];
    let datanode = start_datanode(&namenode, dir.path(), &settings).await;
    assert_eq!(datanode.one_sided_address(), Some(address));
    let block = block(1, 1001, 300_000);
    let data = content(300_000, 1);
    write(&datanode, &[], &block, &data).await;
    let reader = Reader::new(address).await;
    let before = reader.advertisement(&block, Token::default()).await;
    assert!(reader.read(&before).await.unwrap().1);
    datanode.shutdown(false).await;
    drop(datanode);
    tokio::time::timeout(LONG, reader.connection.closed()).await.expect("the reader notices the end");
    assert!(matches!(reader.read(&before).await, Err(Error::Closed { .. })));

    let datanode = start_datanode(&namenode, dir.path(), &settings).await;
    assert_eq!(datanode.one_sided_address(), Some(address));
    let reader = Reader::new(address).await;
    let now = reader.advertisement(&block, Token::default()).await;
    assert_ne!(now.incarnation, before.incarnation);
    assert!(reader.read(&now).await.unwrap() == (data, true));
    let stale = reader.read(&before).await;
    assert!(matches!(stale, Err(Error::Closed { .. })), "{:?}", stale.map(|(_, shown)| shown));
}
