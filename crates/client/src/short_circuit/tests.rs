//! Tests of the local path against a fake datanode: Hearth's or a foreign one, with or without slots.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use hearth_config::Configuration;
use hearth_fabric::local::{Listener, SharedWords};
use hearth_fabric::stream::{Connection, ReceiveBuffer};
use hearth_protocol::data_transfer::Timeouts;
use hearth_testkit::until;
use hearth_types::{
    Block, BlockId, BlockPoolId, ByteRange, ChecksumSpec, DatanodeId, DatanodeUuid, ExtendedBlock, GenerationStamp,
    Token,
};
use hearth_wire::data_transfer::{Decoded, ShmId, ShmResponse, ShmSlot, ShortCircuitReleaseResponse};

use super::*;
use crate::multiplexed::tests::serve_many;
use crate::multiplexed::{Outcome, WantedRange};
use crate::options::{DatanodeOptions, MultiplexOptions};

const WAIT: Duration = Duration::from_secs(60);

/// Behaviour of the fake datanode.
#[derive(Default)]
pub(crate) struct Behaviour {
    /// Answers DESCRIBE and READ_MANY.
    hearth: bool,
    without_slots: bool,
    /// Requests for descriptors are not answered.
    hanging: bool,
    /// Status with which requests for descriptors are refused.
    refuse: Option<Status>,
    blocks: HashMap<i64, Vec<u8>>,
    /// Ids of the blocks with wrong CRCs.
    spoiled: Vec<i64>,
    /// Segments handed out, by their id.
    segments: Vec<(ShmId, Arc<SharedWords>, Arc<Connection>)>,
    /// Registered slots: segment, index, block.
    registered: Vec<(ShmSlot, i64)>,
}

impl Behaviour {
    /// A Hearth datanode or a foreign one, with these blocks.
    pub(crate) fn of(hearth: bool, blocks: HashMap<i64, Vec<u8>>) -> Self {
        Self { hearth, blocks, ..Self::default() }
    }

    /// The last CRCs of these blocks are wrong.
    pub(crate) fn spoil(self, ids: &[i64]) -> Self {
        Self { spoiled: ids.to_vec(), ..self }
    }

    /// It provides no slots, so it cannot say that it has verified a replica.
    pub(crate) fn without_slots(self) -> Self {
        Self { without_slots: true, ..self }
    }

    /// It does not answer requests for descriptors.
    pub(crate) fn hang(self) -> Self {
        Self { hanging: true, ..self }
    }
}

/// A fake datanode on its own socket.
pub(crate) struct Fake {
    behaviour: Arc<Mutex<Behaviour>>,
    asked: Arc<Asked>,
    server: tokio::task::JoinHandle<()>,
    directory: tempfile::TempDir,
}

/// Counts of the requests received.
#[derive(Default)]
struct Asked {
    connections: AtomicU64,
    descriptors: AtomicU64,
    segments: AtomicU64,
    releases: AtomicU64,
    small: AtomicU64,
    descriptions: AtomicU64,
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Fake {
    pub(crate) fn start(behaviour: Behaviour) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let behaviour = Arc::new(Mutex::new(behaviour));
        let asked = Arc::new(Asked::default());
        let server = Self::listen(&directory.path().join("dn50010"), &behaviour, &asked);
        Self { behaviour, asked, server, directory }
    }

    fn listen(path: &Path, behaviour: &Arc<Mutex<Behaviour>>, asked: &Arc<Asked>) -> tokio::task::JoinHandle<()> {
        let listener = Listener::bind(path, 0o600, 16).unwrap();
        let (behaviour, asked) = (Arc::clone(behaviour), Arc::clone(asked));
        tokio::spawn(async move {
            // Its connections end with it.
            let mut connections = tokio::task::JoinSet::new();
            loop {
                let connection = listener.accept().await.unwrap();
                asked.connections.fetch_add(1, Ordering::Relaxed);
                connections.spawn(serve(Arc::new(connection), Arc::clone(&behaviour), Arc::clone(&asked)));
            }
        })
    }

    /// Like a killed process, except that the socket's path is removed too.
    async fn stop(&mut self) {
        self.server.abort();
        let _ = (&mut self.server).await;
        let mut behaviour = self.behaviour.lock();
        behaviour.segments.clear();
        behaviour.registered.clear();
    }

    fn start_again(&mut self) {
        self.server = Self::listen(&self.directory.path().join("dn50010"), &self.behaviour, &self.asked);
    }

    /// Returns the socket path for clients' configurations.
    pub(crate) fn socket_pattern(&self) -> String {
        self.directory.path().join("dn_PORT").to_str().unwrap().to_owned()
    }

    /// A client that is configured with its socket path and `settings`.
    fn client(&self, settings: &[(&str, &str)]) -> Arc<ShortCircuit> {
        let mut configuration = Configuration::empty().with("dfs.domain.socket.path", self.socket_pattern());
        for (key, value) in settings {
            configuration = configuration.with(key, *value);
        }
        let timeouts = Timeouts { connect: WAIT, read: WAIT, write: WAIT };
        let options = ShortCircuitOptions::read(
            &configuration,
            timeouts,
            MultiplexOptions::read(&configuration, timeouts).unwrap(),
        )
        .unwrap();
        let datanodes =
            Datanodes::new(DatanodeOptions::read(&configuration).unwrap(), Default::default(), "test".to_owned());
        Arc::new(ShortCircuit::new(options, Arc::new(datanodes)))
    }

    /// Clears VALID in all slots of `block`.
    fn withdraw(&self, block: i64) {
        let behaviour = self.behaviour.lock();
        for (slot, of) in &behaviour.registered {
            if *of == block {
                let (_, words, _) = behaviour.segments.iter().find(|segment| segment.0 == slot.segment).unwrap();
                words.word(slot.index as usize).fetch_and(!(1 << 63), Ordering::AcqRel);
            }
        }
    }

    fn count(&self, what: impl Fn(&Asked) -> &AtomicU64) -> u64 {
        what(&self.asked).load(Ordering::Relaxed)
    }

    fn registered(&self) -> usize {
        self.behaviour.lock().registered.len()
    }
}

pub(crate) fn datanode() -> DatanodeId {
    DatanodeId {
        ip: "127.0.0.1".to_owned(),
        host_name: "localhost".to_owned(),
        uuid: DatanodeUuid("the-datanode".into()),
        transfer_port: 50010,
        info_port: 0,
        ipc_port: 0,
        info_secure_port: 0,
    }
}

fn located(id: i64, length: usize) -> LocatedBlock {
    let block = Block { id: BlockId(id), stamp: GenerationStamp(1001), length: length as u64 };
    LocatedBlock::nowhere(ExtendedBlock { pool: BlockPoolId::new("BP-1"), block })
}

fn content(id: i64, length: usize) -> Vec<u8> {
    (0..length).map(|index| (index as i64 * 7 + index as i64 / 300 + id) as u8).collect()
}

fn file_of(bytes: &[u8]) -> OwnedFd {
    let mut file: File = tempfile::tempfile_in("/dev/shm").unwrap();
    file.write_all(bytes).unwrap();
    file.into()
}

/// Serves one connection of the datanode.
async fn serve(connection: Arc<Connection>, behaviour: Arc<Mutex<Behaviour>>, asked: Arc<Asked>) {
    let mut buffer = ReceiveBuffer::new(8192, 1 << 20);
    loop {
        let operation = match Operation::decode(buffer.available()) {
            Ok(Decoded::Complete(operation, consumed)) => {
                buffer.consume(consumed);
                operation
            }
            Ok(Decoded::Needs(missing)) => {
                let wanted = buffer.available().len() + missing;
                if buffer.fill_to(&connection, wanted, WAIT).await.is_err() {
                    return;
                }
                continue;
            }
            Err(_) => return,
        };
        let kept = match operation {
            Operation::Describe(_) => {
                asked.descriptions.fetch_add(1, Ordering::Relaxed);
                if !behaviour.lock().hearth {
                    return;
                }
                let description = DatanodeDescription {
                    datanode: datanode().uuid,
                    offer: hearth_wire::offer::Offer { incarnation: 1, ..Default::default() },
                    operations: vec![OpCode::Describe, OpCode::ReadMany],
                };
                connection.write_all(&description.encode(), WAIT).await.is_ok()
            }
            Operation::RequestShortCircuitShm { .. } => {
                asked.segments.fetch_add(1, Ordering::Relaxed);
                shared_memory(&connection, &behaviour).await;
                // No more messages follow; the segment ends with the connection.
                while !connection.wait_closed(WAIT).await {}
                let mut behaviour = behaviour.lock();
                let gone = |segment: &ShmId| {
                    behaviour.segments.iter().any(|known| known.0 == *segment && Arc::ptr_eq(&known.2, &connection))
                };
                let registered =
                    behaviour.registered.iter().filter(|(slot, _)| !gone(&slot.segment)).copied().collect();
                behaviour.registered = registered;
                return;
            }
            Operation::RequestShortCircuitFds(request) => {
                asked.descriptors.fetch_add(1, Ordering::Relaxed);
                let hanging = behaviour.lock().hanging;
                if hanging {
                    std::future::pending::<()>().await;
                }
                hand_over(&connection, &mut buffer, &behaviour, request).await
            }
            Operation::ReleaseShortCircuitFds(slot) => {
                asked.releases.fetch_add(1, Ordering::Relaxed);
                let status = {
                    let mut behaviour = behaviour.lock();
                    let before = behaviour.registered.len();
                    behaviour.registered.retain(|(known, _)| *known != slot);
                    if behaviour.registered.len() < before { Status::Success } else { Status::ErrorInvalid }
                };
                let answer = ShortCircuitReleaseResponse { status, error: None };
                connection.write_all(&answer.encode(), WAIT).await.is_ok()
            }
            Operation::ReadMany(_) => {
                asked.small.fetch_add(1, Ordering::Relaxed);
                let blocks = behaviour.lock().blocks.clone();
                serve_many(&connection, &mut buffer, |range| blocks.get(&range.block.id().0).cloned()).await;
                return;
            }
            _ => return,
        };
        if !kept {
            return;
        }
    }
}

async fn shared_memory(connection: &Arc<Connection>, behaviour: &Mutex<Behaviour>) {
    if behaviour.lock().without_slots {
        let answer = ShmResponse { status: Status::ErrorUnsupported, error: None, segment: None };
        connection.write_all(&answer.encode(), WAIT).await.unwrap();
        return;
    }
    let (words, descriptor) = SharedWords::create(128).unwrap();
    let words = Arc::new(words);
    let id = {
        let mut behaviour = behaviour.lock();
        let id = ShmId { high: 77, low: behaviour.segments.len() as i64 };
        behaviour.segments.push((id, Arc::clone(&words), Arc::clone(connection)));
        id
    };
    let answer = ShmResponse { status: Status::Success, error: None, segment: Some(id) };
    connection.write_all(&answer.encode(), WAIT).await.unwrap();
    connection.send_with_descriptors(&[0], &[descriptor.as_fd()], WAIT).await.unwrap();
}

async fn hand_over(
    connection: &Connection,
    buffer: &mut ReceiveBuffer,
    behaviour: &Mutex<Behaviour>,
    request: RequestShortCircuitFds,
) -> bool {
    let id = request.block.id().0;
    let (refused, bytes, spoiled) = {
        let mut behaviour = behaviour.lock();
        (behaviour.refuse.take(), behaviour.blocks.get(&id).cloned(), behaviour.spoiled.contains(&id))
    };
    let (None, Some(bytes)) = (refused, bytes) else {
        let answer = BlockOpResponse::error(refused.unwrap_or(Status::Error), "not now");
        connection.write_all(&answer.encode(), WAIT).await.unwrap();
        return false;
    };
    if let Some(slot) = request.slot {
        let mut behaviour = behaviour.lock();
        let (_, words, _) = behaviour.segments.iter().find(|segment| segment.0 == slot.segment).unwrap();
        assert_eq!(words.word(slot.index as usize).load(Ordering::Acquire), 1 << 63, "a new slot is valid and empty");
        assert!(behaviour.registered.iter().all(|(known, _)| *known != slot), "no slot is used twice");
        if behaviour.hearth {
            words.word(slot.index as usize).fetch_or(1 << 62, Ordering::AcqRel);
        }
        behaviour.registered.push((slot, id));
    }
    let mut crcs = ChecksumSpec::DEFAULT.to_meta_header().to_vec();
    ChecksumSpec::DEFAULT.compute(&bytes, &mut crcs);
    if spoiled {
        *crcs.last_mut().unwrap() ^= 1;
    }
    let (data, meta) = (file_of(&bytes), file_of(&crcs));
    let answer = BlockOpResponse { short_circuit_version: Some(1), ..BlockOpResponse::new(Status::Success) };
    connection.write_all(&answer.encode(), WAIT).await.unwrap();
    connection.send_with_descriptors(&[1], &[data.as_fd(), meta.as_fd()], WAIT).await.unwrap();
    buffer.fill_to(connection, 1, WAIT).await.unwrap();
    assert_eq!(buffer.available(), [0]);
    buffer.consume(1);
    true
}

/// A datanode with blocks 1 to 5 of 100,000 bytes, and 6 to 20 of 100.
fn with_blocks(hearth: bool) -> Behaviour {
    let large = (1..=5).map(|id| (id, content(id, 100_000)));
    let small = (6..=20).map(|id| (id, content(id, 100)));
    Behaviour::of(hearth, large.chain(small).collect())
}

async fn replica(short_circuit: &Arc<ShortCircuit>, id: i64) -> Result<Arc<LocalReplica>, DatanodeError> {
    match short_circuit.open(&located(id, 100_000), &datanode()).await? {
        OpenLocalReplica::Replica(replica) => Ok(replica),
        OpenLocalReplica::Small(_) => panic!("block {id} is not small"),
    }
}

async fn bytes_of(replica: &Arc<LocalReplica>) -> Vec<u8> {
    let mut bytes = vec![0; replica.length() as usize];
    match replica.mapped() {
        Some(mapped) => mapped.copy(0, &mut bytes).unwrap(),
        None => {
            let all = replica.fetch(ByteRange::new(0, replica.length()).unwrap()).await.unwrap();
            all.checked().copy(0, &mut bytes).unwrap();
        }
    }
    bytes
}

#[tokio::test]
async fn replica_opens_once_and_maps_for_hearth() {
    for hearth in [true, false] {
        let fake = Fake::start(with_blocks(hearth));
        let short_circuit = fake.client(&[]);
        assert_eq!(short_circuit.failed_lately(&located(1, 100_000), &datanode()), Ok(false));
        let readers: Vec<_> = (0..20)
            .map(|_| {
                let short_circuit = Arc::clone(&short_circuit);
                tokio::spawn(async move { replica(&short_circuit, 1).await.unwrap() })
            })
            .collect();
        for reader in readers {
            let replica = reader.await.unwrap();
            assert_eq!(replica.mapped().is_some(), hearth);
            assert_eq!(replica.anchor(), hearth);
            assert!(bytes_of(&replica).await == content(1, 100_000));
        }
        assert_eq!((fake.count(|asked| &asked.descriptors), fake.count(|asked| &asked.segments)), (1, 1));
        assert_eq!(fake.count(|asked| &asked.descriptions), 1);
        replica(&short_circuit, 2).await.unwrap();
        until("both to be registered", async || fake.registered() == 2).await;
        assert_eq!(fake.count(|asked| &asked.descriptors), 2);
        // A reader that is cancelled while another opens the replica leaves nothing behind.
        let (one, other) = (Arc::clone(&short_circuit), Arc::clone(&short_circuit));
        let opening = tokio::spawn(async move { replica(&one, 3).await.map(drop) });
        let given_up = tokio::spawn(async move { replica(&other, 3).await.map(drop) });
        tokio::task::yield_now().await;
        given_up.abort();
        opening.await.unwrap().unwrap();
        let _ = given_up.await;
        assert!(short_circuit.opening.lock().is_empty());
        assert_eq!(fake.count(|asked| &asked.segments), 1);
    }
}

#[tokio::test]
async fn withdrawn_replica_is_reopened_and_slot_released() {
    let fake = Fake::start(with_blocks(true));
    let short_circuit = fake.client(&[]);
    let first = replica(&short_circuit, 1).await.unwrap();
    fake.behaviour.lock().blocks.insert(1, content(99, 100_000));
    assert!(first.is_valid());
    fake.withdraw(1);
    assert!(!first.is_valid() && !first.anchor());
    let second = replica(&short_circuit, 1).await.unwrap();
    assert!(second.is_valid());
    assert!(bytes_of(&second).await == content(99, 100_000));
    // A reader of the old replica still sees the same bytes.
    assert!(bytes_of(&first).await == content(1, 100_000));
    drop(first);
    until("the old slot to be released", async || fake.registered() == 1).await;
    assert_eq!(fake.count(|asked| &asked.releases), 1);
}

#[tokio::test]
async fn restarted_datanode_invalidates_slots_and_reconnects() {
    let mut fake = Fake::start(with_blocks(true));
    let short_circuit = fake.client(&[("dfs.domain.socket.disable.interval.seconds", "600")]);
    let before = replica(&short_circuit, 1).await.unwrap();
    fake.stop().await;
    until("the segment to end", async || !before.is_valid()).await;
    assert!(bytes_of(&before).await == content(1, 100_000));
    replica(&short_circuit, 1).await.unwrap_err();
    assert_eq!(short_circuit.failed_lately(&located(2, 100_000), &datanode()), Ok(true));
    fake.start_again();
    // A read without another path tries it anyway, and enables the socket for all readers.
    let after = replica(&short_circuit, 1).await.unwrap();
    assert!(after.is_valid());
    assert_eq!(short_circuit.failed_lately(&located(2, 100_000), &datanode()), Ok(false));
    drop(before);
    replica(&short_circuit, 2).await.unwrap();
    assert_eq!(fake.registered(), 2);
}

#[tokio::test]
async fn unexpected_byte_ends_segment() {
    let fake = Fake::start(with_blocks(true));
    let short_circuit = fake.client(&[]);
    let before = replica(&short_circuit, 1).await.unwrap();
    let connection = Arc::clone(&fake.behaviour.lock().segments[0].2);
    connection.write_all(&[0], WAIT).await.unwrap();
    // If the task only waited for the end of the connection, the unread byte would keep waking it.
    until("the segment to end", async || !before.is_valid()).await;
    assert!(bytes_of(&before).await == content(1, 100_000));
    let after = replica(&short_circuit, 1).await.unwrap();
    assert!(after.is_valid());
    assert_eq!(fake.count(|asked| &asked.segments), 2);
}

#[tokio::test]
async fn unused_replicas_are_evicted_with_their_slots() {
    let fake = Fake::start(with_blocks(true));
    let short_circuit = fake.client(&[("dfs.client.read.shortcircuit.streams.cache.size", "3")]);
    for id in 1..=5 {
        replica(&short_circuit, id).await.unwrap();
    }
    until("the surplus to be released", async || fake.registered() == 3).await;

    let settings =
        [("dfs.client.read.shortcircuit.streams.cache.expiry.ms", "200"), ("dfs.client.socketcache.expiryMsec", "100")];
    let brief = fake.client(&settings);
    let held = replica(&brief, 1).await.unwrap();
    replica(&brief, 2).await.unwrap();
    until("the idle one to be released", async || fake.registered() == 4).await;
    assert!(held.is_valid());
    drop(held);
    until("the held one to be released", async || fake.registered() == 3).await;
    // The segment ended with its last slot, and no sweep task remains.
    until("the sweep to end", async || !brief.sweeping.load(Ordering::Acquire)).await;
    replica(&brief, 3).await.unwrap();
    assert_eq!(fake.registered(), 4);
}

/// Opens a replica of a block of `length` bytes.
async fn replica_of(short_circuit: &Arc<ShortCircuit>, id: i64, length: usize) -> Arc<LocalReplica> {
    short_circuit.open_replica(&located(id, length), &datanode()).await.unwrap()
}

#[tokio::test]
async fn mapped_bytes_are_bounded() {
    let many = (1..=5).map(|id| (id, content(id, 300_000)));
    let blocks = many.chain([(6, content(6, 3 << 20)), (7, content(7, 300_000))]).collect();
    let fake = Fake::start(Behaviour::of(true, blocks));
    let short_circuit = fake.client(&[("hearth.client.mapped.max", "1m")]);
    // A replica that leaves the cache stays open for its reader.
    let held = replica_of(&short_circuit, 1, 300_000).await;
    for id in 2..=5 {
        replica_of(&short_circuit, id, 300_000).await;
    }
    until("the surplus to be released", async || fake.registered() == 4).await;
    assert!(held.is_valid() && bytes_of(&held).await == content(1, 300_000));
    drop(held);
    until("the held one to be released", async || fake.registered() == 3).await;
    let opened = fake.count(|asked| &asked.descriptors);
    for id in 3..=5 {
        replica_of(&short_circuit, id, 300_000).await;
    }
    assert_eq!(fake.count(|asked| &asked.descriptors), opened, "the newest three are cached");

    // One above the bound stays alone, until another one is opened.
    replica_of(&short_circuit, 6, 3 << 20).await;
    until("all others to be released", async || fake.registered() == 1).await;
    replica_of(&short_circuit, 6, 3 << 20).await;
    assert_eq!(fake.count(|asked| &asked.descriptors), opened + 1, "the long one is cached");
    replica_of(&short_circuit, 7, 300_000).await;
    until("the long one to be released", async || fake.registered() == 1).await;
    // Removed replicas do not count.
    short_circuit.forget(&located(7, 300_000).block, &datanode(), &replica_of(&short_circuit, 7, 300_000).await);
    for id in (1..=3).chain(1..=3) {
        replica_of(&short_circuit, id, 300_000).await;
    }
    assert_eq!(fake.count(|asked| &asked.descriptors), opened + 5);
}

#[tokio::test]
async fn replicas_open_with_no_or_many_slots() {
    let fake = Fake::start(Behaviour { without_slots: true, ..with_blocks(true) });
    let short_circuit = fake.client(&[]);
    for id in [1, 2, 1] {
        let replica = replica(&short_circuit, id).await.unwrap();
        assert!(replica.is_valid() && !replica.anchor());
        assert!(bytes_of(&replica).await == content(id, 100_000));
    }
    assert_eq!((fake.count(|asked| &asked.descriptors), fake.count(|asked| &asked.segments)), (2, 1));
    // The datanode is not asked for slots again at once. A socket that failed and works again is asked, because it may
    // belong to another datanode.
    fake.behaviour.lock().without_slots = false;
    replica(&short_circuit, 3).await.unwrap();
    assert_eq!((fake.registered(), fake.count(|asked| &asked.segments)), (0, 1));
    let socket = short_circuit.socket(&datanode()).unwrap();
    socket.disable(&std::io::Error::other("it has gone"));
    socket.enable();
    replica(&short_circuit, 4).await.unwrap();
    assert_eq!((fake.registered(), fake.count(|asked| &asked.segments)), (1, 2));

    // More replicas than one segment has slots.
    let mut many = with_blocks(true);
    many.blocks.extend((100..300).map(|id| (id, content(id, 70_000))));
    let fake = Fake::start(many);
    let short_circuit = fake.client(&[]);
    for id in 100..300 {
        let OpenLocalReplica::Replica(replica) = short_circuit.open(&located(id, 70_000), &datanode()).await.unwrap()
        else {
            panic!()
        };
        assert!(replica.is_valid());
    }
    assert_eq!((fake.registered(), fake.count(|asked| &asked.segments)), (200, 2));
}

#[tokio::test]
async fn refusals_are_classified() {
    let fake = Fake::start(with_blocks(true));
    let short_circuit = fake.client(&[]);
    let refuse = |status| fake.behaviour.lock().refuse = Some(status);
    let doubted = |id| short_circuit.failed_lately(&located(id, 100_000), &datanode()).unwrap();

    // A segment stays while one of its slots is in use.
    replica(&short_circuit, 5).await.unwrap();
    refuse(Status::ErrorAccessToken);
    let error = replica(&short_circuit, 1).await.unwrap_err();
    assert!(matches!(error, DatanodeError::AccessToken { .. }) && !doubted(1), "{error}");
    refuse(Status::Error);
    let error = replica(&short_circuit, 1).await.unwrap_err();
    assert!(matches!(error.cause(), DatanodeError::Refused { .. }) && doubted(1) && !doubted(2), "{error}");
    refuse(Status::ErrorUnsupported);
    replica(&short_circuit, 2).await.unwrap_err();
    assert!(doubted(2) && doubted(3));
    // A slot that was named in a refused request is free again, and no release is sent.
    let opened = replica(&short_circuit, 2).await.unwrap();
    assert!(opened.is_valid());
    assert_eq!((fake.count(|asked| &asked.releases), fake.count(|asked| &asked.segments)), (0, 1));

    // The socket of another datanode.
    let other = DatanodeId { uuid: DatanodeUuid("another".into()), ..datanode() };
    let error = short_circuit.open(&located(4, 100_000), &other).await.unwrap_err();
    assert!(matches!(error.cause(), DatanodeError::OtherDatanode { .. }), "{error}");
    assert!(!doubted(4));
    let elsewhere = DatanodeId { ip: "192.0.2.7".to_owned(), ..datanode() };
    assert!(short_circuit.failed_lately(&located(4, 100_000), &elsewhere).is_err());
}

#[tokio::test]
async fn waiters_share_refusal_of_open() {
    let fake = Fake::start(with_blocks(true));
    let short_circuit = fake.client(&[]);
    let many = || futures_util::future::join_all((0..10).map(|_| replica(&short_circuit, 1)));
    fake.behaviour.lock().refuse = Some(Status::Error);
    let outcomes = many().await;
    let all = outcomes.iter().all(Result::is_err);
    assert_eq!((all, fake.count(|asked| &asked.descriptors)), (true, 1));
    // Later requests are sent again.
    let outcomes = many().await;
    let all = outcomes.iter().all(Result::is_ok);
    assert_eq!((all, fake.count(|asked| &asked.descriptors)), (true, 2));
}

#[tokio::test]
async fn small_replicas_are_fetched_together() {
    let fake = Fake::start(with_blocks(true));
    let short_circuit = fake.client(&[]);
    let small = async |id| short_circuit.open_small(&located(id, 100), &datanode()).await.unwrap().unwrap();
    let range = ByteRange::new(10, 90).unwrap();
    let fetched = small(6).await.fetch(range).await.unwrap();
    let mut bytes = [0; 80];
    fetched.checked().copy(10, &mut bytes).unwrap();
    assert!(bytes == content(6, 100)[10..90]);

    let mut replicas = Vec::new();
    for id in 6..=21 {
        replicas.push(small(id).await);
    }
    let (blocks, token): (Vec<_>, _) = ((6..=21).map(|id| located(id, 100).block).collect(), Token::default());
    let range = ByteRange::new(0, 100).unwrap();
    let wanted: Vec<_> = blocks.iter().map(|block| WantedRange { block, token: &token, range }).collect();
    let mut taken = 0;
    let take = |index: usize, piece: Outcome| {
        let id = 6 + index as i64;
        match piece {
            Ok(fetched) => assert!(fetched.data() == content(id, 100)),
            Err(error) => assert!(id == 21 && matches!(error, DatanodeError::Refused { .. }), "{id}: {error}"),
        }
        taken += 1;
    };
    replicas[0].connection_pool().fetch_many(&wanted, take).await;
    assert_eq!(taken, 16);
    // All of them on one connection.
    assert_eq!((fake.count(|asked| &asked.small), fake.count(|asked| &asked.descriptors)), (1, 0));

    // A foreign datanode provides descriptors for small replicas too.
    let fake = Fake::start(with_blocks(false));
    let short_circuit = fake.client(&[]);
    assert!(short_circuit.open_small(&located(6, 100), &datanode()).await.unwrap().is_none());
    let OpenLocalReplica::Replica(replica) = short_circuit.open(&located(6, 100), &datanode()).await.unwrap() else {
        panic!()
    };
    assert!(bytes_of(&replica).await == content(6, 100));
}

#[tokio::test]
async fn mismatched_files_make_replica_unusable() {
    let fake = Fake::start(with_blocks(true));
    let short_circuit = fake.client(&[]);
    let error = short_circuit.open(&located(1, 100_001), &datanode()).await.unwrap_err();
    assert!(matches!(error.cause(), DatanodeError::Unusable { .. }), "{error}");
    fake.behaviour.lock().spoiled.push(2);
    let replica = replica(&short_circuit, 2).await.unwrap();
    let mapped = replica.mapped().unwrap();
    let mut bytes = vec![0; 100_000];
    mapped.copy(0, &mut bytes[..99_000]).unwrap();
    mapped.copy(0, &mut bytes).unwrap_err();
    short_circuit.forget(&located(2, 100_000).block, &datanode(), &replica);
    drop(replica);
    until("its slot to be released", async || fake.registered() == 0).await;
}

/// Blocks by id, as other clients ask for them.
mod local_blocks {
    use super::*;
    use crate::{ErrorKind, LocalBlock, LocalBlocks};

    fn blocks_of(fake: &Fake) -> LocalBlocks {
        let configuration = Configuration::empty().with("dfs.domain.socket.path", fake.socket_pattern());
        LocalBlocks::new(&configuration).unwrap()
    }

    fn block(id: i64, length: usize) -> ExtendedBlock {
        located(id, length).block
    }

    async fn open(blocks: &LocalBlocks, id: i64, length: usize) -> Option<LocalBlock> {
        blocks.open(&block(id, length), &Token::default()).await
    }

    /// Checks that all bytes can be read, in parts too.
    fn check(opened: &LocalBlock, expected: &[u8], verify: bool) {
        let end = expected.len();
        assert_eq!(opened.length(), end as u64);
        for (from, to) in [(0, end), (end / 3, end / 2), (end - 1, end), (end, end)] {
            let mut bytes = vec![0xEE; to - from];
            opened.try_read_at(from as u64, &mut bytes, verify).expect("in memory").unwrap();
            assert!(bytes == expected[from..to], "{from} to {to}");
        }
        let beyond = opened.try_read_at(end as u64, &mut [0], verify).unwrap().unwrap_err();
        assert_eq!(beyond.kind(), ErrorKind::BeyondEnd, "{beyond}");
    }

    #[tokio::test]
    async fn replica_is_mapped_once() {
        let fake = Fake::start(with_blocks(true));
        let blocks = blocks_of(&fake);
        assert_eq!(blocks.datanodes().await, 1);
        assert!(blocks.cached(&block(1, 100_000)).is_none());
        let opened = open(&blocks, 1, 100_000).await.unwrap();
        for verify in [true, false] {
            check(&opened, &content(1, 100_000), verify);
        }
        // A reader of the first bytes only, and one through a clone.
        check(&blocks.clone().cached(&block(1, 5000)).unwrap(), &content(1, 100_000)[..5000], true);
        check(&open(&blocks, 1, 5000).await.unwrap(), &content(1, 100_000)[..5000], true);
        assert_eq!((fake.count(|asked| &asked.descriptors), fake.count(|asked| &asked.small)), (1, 0));
        // More bytes than the replica had, or another stamp: it must be asked for again.
        assert!(blocks.cached(&block(1, 100_001)).is_none());
        let mut later = block(1, 100_000);
        later.block.stamp = GenerationStamp(1002);
        assert!(blocks.cached(&later).is_none());
    }

    #[tokio::test]
    async fn short_block_comes_inline_until_it_is_opened_often() {
        let fake = Fake::start(with_blocks(true));
        let blocks = blocks_of(&fake);
        for _ in 0..7 {
            check(&open(&blocks, 6, 100).await.unwrap(), &content(6, 100), true);
        }
        assert_eq!(fake.count(|asked| &asked.descriptors), 1);
        assert!(blocks.cached(&block(6, 100)).is_some());
        check(&open(&blocks, 7, 100).await.unwrap(), &content(7, 100), true);
        assert!(blocks.cached(&block(7, 100)).is_none());
    }

    #[tokio::test]
    async fn missing_block_is_not_asked_for_again() {
        let fake = Fake::start(with_blocks(true));
        let blocks = blocks_of(&fake);
        for _ in 0..3 {
            assert!(open(&blocks, 77, 100_000).await.is_none());
            assert!(open(&blocks, 78, 10).await.is_none());
        }
        assert_eq!(fake.count(|asked| &asked.descriptors), 1);
        // A refused token says nothing about the block.
        fake.behaviour.lock().refuse = Some(Status::ErrorAccessToken);
        assert!(open(&blocks, 1, 100_000).await.is_none());
        assert!(open(&blocks, 1, 100_000).await.is_some());
    }

    #[tokio::test]
    async fn corrupt_replica_is_left_to_the_caller() {
        let fake = Fake::start(with_blocks(true));
        fake.behaviour.lock().spoiled = vec![2];
        let blocks = blocks_of(&fake);
        let opened = open(&blocks, 2, 100_000).await.unwrap();
        let mut bytes = vec![0; 100_000];
        opened.try_read_at(0, &mut bytes, false).unwrap().unwrap();
        opened.try_read_at(0, &mut bytes[..90_000], true).unwrap().unwrap();
        let error = opened.try_read_at(0, &mut bytes, true).unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DataUnavailable, "{error}");
        assert!(blocks.cached(&block(2, 100_000)).is_none());
        assert!(open(&blocks, 2, 100_000).await.is_none());
        assert_eq!(fake.count(|asked| &asked.descriptors), 1);
    }

    #[tokio::test]
    async fn withdrawn_replica_keeps_its_bytes_for_its_readers() {
        let fake = Fake::start(with_blocks(true));
        let blocks = blocks_of(&fake);
        let before = open(&blocks, 1, 100_000).await.unwrap();
        fake.behaviour.lock().blocks.insert(1, content(99, 100_000));
        fake.withdraw(1);
        assert!(blocks.cached(&block(1, 100_000)).is_none());
        check(&before, &content(1, 100_000), true);
        check(&open(&blocks, 1, 100_000).await.unwrap(), &content(99, 100_000), true);
    }

    #[tokio::test]
    async fn foreign_datanode_is_not_used() {
        let fake = Fake::start(with_blocks(false));
        let blocks = blocks_of(&fake);
        assert_eq!(blocks.datanodes().await, 0);
        assert!(open(&blocks, 1, 100_000).await.is_none());
        assert_eq!(fake.count(|asked| &asked.descriptors), 0);
        let nowhere = Configuration::empty().with("dfs.domain.socket.path", "/nonexistent/dn_PORT");
        assert!(open(&LocalBlocks::new(&nowhere).unwrap(), 1, 100_000).await.is_none());
    }
}
