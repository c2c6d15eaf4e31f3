//! Tests of readers of a whole client, against a fake namenode and fake datanodes.

mod fake_datanode;
mod fake_namenode;
mod fake_one_sided;

use std::collections::HashMap;
use std::time::Duration;

use futures_util::FutureExt;
use hearth_config::Configuration;
use hearth_testkit::{StoppedClock, until};
use hearth_types::{
    Block, BlockId, BlockPoolId, DatanodeId, DatanodeInfo, DatanodeUuid, ExtendedBlock, GenerationStamp, LocatedBlock,
};
use hearth_wire::offer::Offer;
use tokio::sync::Barrier;

use super::*;
use crate::short_circuit::tests::{Behaviour as LocalBehaviour, Fake as LocalDatanode, datanode as local_datanode};
use crate::{DataPath, FileSystem};
use fake_datanode::{Asked, Behaviour, FakeDatanode, PACKET_BYTES, VisibleLengths};
use fake_namenode::FakeNamenode;
use fake_one_sided::OneSidedDatanode;

const WAIT: Duration = Duration::from_secs(60);

/// More bytes than any path brings at once.
const LONG: usize = 9 << 20;

fn content(id: i64, length: usize) -> Vec<u8> {
    (0..length).map(|index| (index as i64 * 7 + index as i64 / 300 + id) as u8).collect()
}

fn extended(id: i64, length: usize) -> ExtendedBlock {
    let block = Block { id: BlockId(id), stamp: GenerationStamp(1001), length: length as u64 };
    ExtendedBlock { pool: BlockPoolId::new("BP-1"), block }
}

fn located(id: i64, offset: usize, length: usize, locations: &[DatanodeInfo]) -> LocatedBlock {
    let (offset, locations) = (offset as u64, locations.to_vec());
    LocatedBlock { offset, locations, ..LocatedBlock::nowhere(extended(id, length)) }
}

/// A datanode with this transfer port.
fn datanode_info(transfer_port: u16, offer: &Offer) -> DatanodeInfo {
    let id = DatanodeId {
        ip: "127.0.0.1".to_owned(),
        host_name: "localhost".to_owned(),
        uuid: DatanodeUuid(format!("datanode-{transfer_port}").into()),
        transfer_port,
        info_port: 0,
        ipc_port: 0,
        info_secure_port: 0,
    };
    DatanodeInfo { offer: Some(offer.encode()), ..DatanodeInfo::of(id) }
}

/// A client that reads by `paths` only and tries all replicas once.
fn client(namenode: &FakeNamenode, paths: &str, settings: &[(&str, &str)]) -> FileSystem {
    let mut configuration = Configuration::empty()
        .with("hearth.client.paths", paths)
        .with("hearth.one-sided.transport", "tcp")
        .with("hearth.client.one-sided.timeout", "30")
        .with("dfs.client.max.block.acquire.failures", "0");
    for (key, value) in settings {
        configuration = configuration.with(key, *value);
    }
    FileSystem::connect(&configuration, Some(&namenode.uri()), "tester").unwrap()
}

/// Reads the rest of the file, and drops each read after a varying time. Returns the number of reads that did not
/// complete.
async fn read_with_cancellation(reader: &mut Reader, expected: &[u8]) -> u32 {
    let mut into = vec![0; 5 << 20];
    let (mut round, mut broken_off) = (0, 0);
    while reader.position() < reader.length() {
        let before = reader.position() as usize;
        // The time grows, so that a read that starts over each time also completes.
        let patience = Duration::from_millis(round % 4 * (1 + round / 40));
        let read = reader.read(&mut into);
        let read =
            if patience.is_zero() { read.now_or_never() } else { tokio::time::timeout(patience, read).await.ok() };
        let moved = reader.position() as usize - before;
        match read {
            Some(count) => assert_eq!(count.unwrap(), moved),
            None => broken_off += 1,
        }
        assert!(into[..moved] == expected[before..before + moved], "other bytes from {before} on");
        round += 1;
    }
    broken_off
}

/// Reads a file of one block that `datanode` has by `paths`, with repeated cancellation. Returns the number of
/// cancelled reads. `settings`: configuration of the client.
async fn cancelled_reads_lose_nothing(datanode: DatanodeInfo, paths: &str, settings: &[(&str, &str)]) -> u32 {
    let (namenode, bytes) = (FakeNamenode::start().await, content(1, LONG));
    namenode.put("/file", vec![located(1, 0, LONG, &[datanode])]);
    let mut reader = client(&namenode, paths, settings).open("/file").await.unwrap();
    // The replica is open from here on.
    let mut first = [0; 1000];
    assert_eq!(reader.read(&mut first).await.unwrap(), 1000);
    assert!(first == bytes[..1000]);
    read_with_cancellation(&mut reader, &bytes).await
}

#[tokio::test]
async fn cancelled_local_reads_lose_no_bytes() {
    // Hearth's memory is mapped; the file of a foreign datanode is read.
    for hearth in [true, false] {
        let datanode = LocalDatanode::start(LocalBehaviour::of(hearth, HashMap::from([(1, content(1, LONG))])));
        let socket = ("dfs.domain.socket.path", &*datanode.socket_pattern());
        let times = cancelled_reads_lose_nothing(DatanodeInfo::of(local_datanode()), "local", &[socket]).await;
        // Bytes in the page cache are read without waiting.
        assert!(times > 0 || !hearth);
    }
}

#[tokio::test]
async fn cancelled_one_sided_reads_lose_no_bytes() {
    let datanode = OneSidedDatanode::start([(1, content(1, LONG))]).await;
    assert!(cancelled_reads_lose_nothing(datanode.info(), "one-sided", &[]).await > 0);
}

#[tokio::test]
async fn cancelled_packet_reads_lose_no_bytes() {
    let replicas = HashMap::from([(1, content(1, LONG))]);
    let datanode = FakeDatanode::start(Behaviour { replicas, ..Behaviour::default() });
    cancelled_reads_lose_nothing(datanode.info(), "packets", &[]).await;
}

#[tokio::test]
async fn statistics_count_the_bytes_of_one_reader() {
    let (namenode, bytes) = (FakeNamenode::start().await, content(1, 3 * PACKET_BYTES));
    let replicas = HashMap::from([(1, bytes.clone())]);
    let datanode = FakeDatanode::start(Behaviour { replicas, ..Behaviour::default() });
    namenode.put("/file", vec![located(1, 0, bytes.len(), &[datanode.info()])]);
    let fs = client(&namenode, "packets", &[]);
    let (mut reader, other) = (fs.open("/file").await.unwrap(), fs.open("/file").await.unwrap());
    let mut into = vec![0; 100];
    assert_eq!(reader.read(&mut into).await.unwrap(), 100);
    reader.unbuffer();
    assert_eq!(reader.read(&mut into).await.unwrap(), 100);
    assert!(into == bytes[100..200], "the position stays where it was");
    assert_eq!(reader.positioned().read_at(7, &mut into[..50]).await.unwrap(), 50);
    let count = reader.next().await.unwrap().len().min(30);
    reader.consume(count);
    let statistics = reader.positioned().statistics();
    assert_eq!((statistics.total_bytes(), statistics.read_bytes(DataPath::Packets)), (280, 280));
    assert_eq!((statistics.shown_bytes(), other.statistics().total_bytes()), (0, 0));
    reader.clear_statistics();
    assert_eq!(reader.statistics().total_bytes(), 0);
}

#[tokio::test]
async fn view_in_place_copies_nothing() {
    let (namenode, bytes) = (FakeNamenode::start().await, content(1, LONG));
    let local = LocalDatanode::start(LocalBehaviour::of(true, HashMap::from([(1, bytes.clone())])));
    namenode.put("/local", vec![located(1, 0, LONG, &[DatanodeInfo::of(local_datanode())])]);
    let socket = ("dfs.domain.socket.path", &*local.socket_pattern());
    let reader = client(&namenode, "local", &[socket]).open("/local").await.unwrap();
    let view = reader.view_in_place(5, 1000).await.unwrap().unwrap();
    assert!(view.is_shown() && view[..] == bytes[5..1005]);
    let mut copied = [0; 600];
    view.copy(400, &mut copied).unwrap();
    assert!(copied == bytes[405..1005]);
    assert_eq!(reader.statistics().shown_bytes(), 1000);
    assert!(reader.view_in_place(LONG as u64, 10).await.unwrap().unwrap().is_empty(), "the end of the file");

    let replicas = HashMap::from([(1, bytes)]);
    let remote = FakeDatanode::start(Behaviour { replicas, ..Behaviour::default() });
    namenode.put("/remote", vec![located(1, 0, LONG, &[remote.info()])]);
    let reader = client(&namenode, "packets", &[]).open("/remote").await.unwrap();
    assert!(reader.view_in_place(5, 1000).await.unwrap().is_none());
    assert_eq!(reader.statistics().total_bytes(), 0);
    assert!(!reader.view(5, 1000).await.unwrap().is_shown());
}

#[tokio::test]
async fn mapped_replicas_are_read_without_waiting() {
    let (namenode, bytes) = (FakeNamenode::start().await, content(1, LONG));
    let local = LocalDatanode::start(LocalBehaviour::of(true, HashMap::from([(1, bytes.clone())])));
    namenode.put("/local", vec![located(1, 0, LONG, &[DatanodeInfo::of(local_datanode())])]);
    let socket = ("dfs.domain.socket.path", &*local.socket_pattern());
    let reader = client(&namenode, "local", &[socket]).open("/local").await.unwrap().positioned();
    let (mut into, length) = ([0; 1000], LONG as u64);
    assert_eq!(reader.try_read_at(5, &mut into), 0, "nothing is mapped");
    assert!(reader.map_at(5).await.unwrap());
    assert_eq!(reader.try_read_at(5, &mut into), 1000);
    assert!(into == bytes[5..1005]);
    assert_eq!(reader.try_read_at(length - 10, &mut into), 10);
    assert!(into[..10] == bytes[LONG - 10..]);
    assert_eq!(reader.try_read_at(length + 7, &mut into), 0);
    assert!(!reader.map_at(length).await.unwrap());

    let replicas = HashMap::from([(1, bytes)]);
    let remote = FakeDatanode::start(Behaviour { replicas, ..Behaviour::default() });
    namenode.put("/remote", vec![located(1, 0, LONG, &[remote.info()])]);
    let reader = client(&namenode, "packets", &[]).open("/remote").await.unwrap().positioned();
    assert!(!reader.map_at(5).await.unwrap());
    assert_eq!((reader.try_read_at(5, &mut into), reader.statistics().total_bytes()), (0, 0));
}

#[tokio::test]
async fn located_files_are_opened_without_the_namenode() {
    let (namenode, bytes) = (FakeNamenode::start().await, content(1, 3 * PACKET_BYTES));
    let replicas = HashMap::from([(1, bytes.clone())]);
    let datanode = FakeDatanode::start(Behaviour { replicas, ..Behaviour::default() });
    let block = located(1, 0, bytes.len(), &[datanode.info()]);
    let fs = client(&namenode, "packets", &[]);
    for complete in [true, false] {
        let located = LocatedBlocks {
            file_length: if complete { bytes.len() as u64 } else { 0 },
            under_construction: !complete,
            blocks: if complete { vec![block.clone()] } else { Vec::new() },
            last_block: Some(block.clone()),
            last_block_complete: complete,
        };
        // The namenode has no such file.
        let reader = fs.open_located("/file", located).unwrap();
        assert_eq!(reader.length(), bytes.len() as u64);
        let mut into = vec![0; bytes.len()];
        assert_eq!(reader.read_at(0, &mut into).await.unwrap(), bytes.len());
        assert!(into == bytes);
    }
}

#[tokio::test]
async fn block_is_on_other_datanodes_only_if_all_say_so() {
    let (namenode, datanode) = (FakeNamenode::start().await, FakeDatanode::start(Behaviour::default()));
    let hearths = datanode.info();
    // It closes the connection when it is asked.
    let stranger = DatanodeInfo::of(DatanodeId { uuid: DatanodeUuid("stranger".into()), ..hearths.id.clone() });
    // No process listens on this port.
    let mut refuses = stranger.clone();
    refuses.id = DatanodeId { uuid: DatanodeUuid("refuses".into()), transfer_port: 1, ..refuses.id };
    let fs = client(&namenode, "packets", &[]);
    let cases: [(&[&DatanodeInfo], Option<bool>); 5] = [
        (&[&refuses, &stranger, &hearths], Some(true)),
        (&[&stranger], Some(false)),
        (&[&stranger, &refuses], None),
        (&[&refuses], None),
        (&[], None),
    ];
    for (datanodes, expected) in cases {
        let datanodes: Vec<_> = datanodes.iter().map(|datanode| (*datanode).clone()).collect();
        let answer = fs.is_on_hearth(&located(1, 0, 1, &datanodes)).await;
        assert_eq!(answer.as_ref().ok().copied(), expected, "{answer:?}");
    }
}

#[tokio::test]
async fn silent_datanode_is_not_asked_again_soon() {
    let namenode = FakeNamenode::start().await;
    // Its own time-out, and a shorter one of the connection.
    let cases: [&[(&str, &str)]; 2] = [&[], &[("dfs.client.socket-timeout", "200")]];
    for settings in cases {
        // The kernel makes the connections, and no process answers.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let silent = DatanodeInfo { offer: None, ..datanode_info(port, &Offer::default()) };
        let fs = client(&namenode, "packets", settings);
        let block = located(1, 0, 1, &[silent]);
        for questions in [1, 0, 0] {
            let error = fs.is_on_hearth(&block).await.unwrap_err();
            assert_eq!(error.kind(), crate::ErrorKind::Unreachable, "{error}");
            let asked = std::iter::from_fn(|| listener.accept().ok()).count();
            assert_eq!(asked, questions, "with {settings:?}");
        }
    }
}

#[tokio::test]
async fn hearth_datanode_remains_one_while_it_does_not_answer() {
    // A datanode's answer is used for a minute.
    const MINUTE: Duration = Duration::from_secs(60);
    let clock = StoppedClock::new();
    let (namenode, datanode) = (FakeNamenode::start().await, FakeDatanode::start(Behaviour::default()));
    let info = DatanodeInfo { offer: None, ..datanode.info() };
    let block = located(1, 0, 1, std::slice::from_ref(&info));
    let fs = client(&namenode, "packets", &[]);
    // A reader met it while it restarted. It has never been asked.
    fs.session.datanodes.unreachable.insert(info.id.uuid.clone());
    let steps = [
        (Asked::Answers, true),
        // It is about to restart, or has too many connections.
        (Asked::Closes, true),
        (Asked::Hangs, true),
        (Asked::Answers, true),
        (Asked::Closes, true),
        // Another vendor's datanode took its place.
        (Asked::Closes, false),
        (Asked::Closes, false),
    ];
    for (step, (asked, expected)) in steps.into_iter().enumerate() {
        datanode.when_asked(asked);
        // The second answer comes from the cache, or from the memory of the silence.
        for _ in 0..2 {
            let asking = fs.is_on_hearth(&block);
            let answer = match asked {
                Asked::Hangs => clock.during(Duration::from_millis(100), asking).await,
                Asked::Closes | Asked::Answers => asking.await,
            };
            assert_eq!(answer.unwrap(), expected, "step {step}: {asked:?}");
        }
        clock.pass(MINUTE).await;
    }
}

#[tokio::test]
async fn hearth_datanode_that_ended_remains_one() {
    let clock = StoppedClock::new();
    let (namenode, datanode) = (FakeNamenode::start().await, FakeDatanode::start(Behaviour::default()));
    datanode.when_asked(Asked::Answers);
    let block = located(1, 0, 1, &[DatanodeInfo { offer: None, ..datanode.info() }]);
    let fs = client(&namenode, "packets", &[]);
    assert!(fs.is_on_hearth(&block).await.unwrap());
    // If it still ran, the second round would find that it is another vendor's.
    datanode.when_asked(Asked::Closes);
    drop(datanode);
    for _ in 0..2 {
        clock.pass(Duration::from_secs(3600)).await;
        assert!(fs.is_on_hearth(&block).await.unwrap());
    }
}

/// A replica in memory on this machine whose last bytes do not match their CRCs there or over TCP, and a good one that
/// can only be read over TCP.
struct CorruptMemory {
    namenode: FakeNamenode,
    reader: Reader,
    bytes: Vec<u8>,
    bad: DatanodeUuid,
    _datanodes: (LocalDatanode, FakeDatanode, FakeDatanode),
}

impl CorruptMemory {
    /// `verified`: the local datanode says in a slot that it has verified its replica.
    async fn start(verified: bool) -> Self {
        let (namenode, bytes) = (FakeNamenode::start().await, content(1, 3 * PACKET_BYTES));
        let replicas = HashMap::from([(1, bytes.clone())]);
        let local = LocalBehaviour::of(true, replicas.clone()).spoil(&[1]);
        let local = LocalDatanode::start(if verified { local } else { local.without_slots() });
        let spoiled = Behaviour { replicas: replicas.clone(), spoiled: true, ..Behaviour::default() };
        let (spoiled, good) =
            (FakeDatanode::start(spoiled), FakeDatanode::start(Behaviour { replicas, ..Behaviour::default() }));
        // One datanode, with a socket and a port.
        let mut bad = spoiled.info();
        bad.id.uuid = local_datanode().uuid;
        let uuid = bad.id.uuid.clone();
        namenode.put("/file", vec![located(1, 0, bytes.len(), &[bad, good.info()])]);
        let socket = local.socket_pattern().replace("_PORT", &local_datanode().transfer_port.to_string());
        let fs = client(&namenode, "local,packets", &[("dfs.domain.socket.path", socket.as_str())]);
        let reader = fs.open("/file").await.unwrap();
        Self { namenode, reader, bytes, bad: uuid, _datanodes: (local, spoiled, good) }
    }

    /// Returns the datanodes whose replica was reported as corrupt.
    fn reported(&self) -> Vec<DatanodeUuid> {
        let bad = self.namenode.bad();
        bad.iter().flat_map(|block| block.locations.iter().map(|datanode| datanode.id.uuid.clone())).collect()
    }
}

#[tokio::test]
async fn view_of_corrupt_memory_is_of_another_replica() {
    let cluster = CorruptMemory::start(false).await;
    let view = cluster.reader.view(5, LONG).await.unwrap();
    assert!(!view.is_shown() && view[..] == cluster.bytes[5..]);
    assert_eq!(cluster.reported(), std::slice::from_ref(&cluster.bad));
    // And so is the next one.
    let view = cluster.reader.view_with(5, LONG, ViewChecks::VerifiedHere).await.unwrap();
    assert!(!view.is_shown() && view[..] == cluster.bytes[5..]);

    let cluster = CorruptMemory::start(false).await;
    assert!(cluster.reader.view_in_place(5, LONG).await.unwrap().is_none());
    assert_eq!(cluster.reported(), std::slice::from_ref(&cluster.bad));
}

#[tokio::test]
async fn view_is_verified_as_the_caller_says() {
    // The bytes that match their CRCs are shown where they are, also beside others.
    let cluster = CorruptMemory::start(false).await;
    let view = cluster.reader.view(0, PACKET_BYTES).await.unwrap();
    assert!(view.is_shown() && !view.is_anchored() && view[..] == cluster.bytes[..PACKET_BYTES]);
    let view = cluster.reader.view_with(0, LONG, ViewChecks::Unverified).await.unwrap();
    assert!(view.is_shown() && view.verify().is_err());
    assert!(cluster.reported().is_empty());

    // The datanode says that it has verified them, which is enough unless the caller wants more.
    let cluster = CorruptMemory::start(true).await;
    let view = cluster.reader.view_in_place(0, LONG).await.unwrap().unwrap();
    assert!(view.is_shown() && view.is_anchored());
    let view = cluster.reader.view_with(0, LONG, ViewChecks::VerifiedHere).await.unwrap();
    assert!(!view.is_shown() && view[..] == cluster.bytes[..]);
    assert_eq!(cluster.reported(), std::slice::from_ref(&cluster.bad));
}

/// The length is the namenode's, which may be wrong or hostile.
#[tokio::test]
async fn length_beyond_all_memory_is_an_error() {
    const HUGE: usize = 1 << 62;
    let (namenode, bytes) = (FakeNamenode::start().await, content(2, 1000));
    let replicas = HashMap::from([(2, bytes.clone())]);
    let datanode = FakeDatanode::start(Behaviour { replicas, ..Behaviour::default() });
    namenode.put("/huge", vec![located(1, 0, HUGE, &[datanode.info()])]);
    namenode.put("/small", vec![located(2, 0, bytes.len(), &[datanode.info()])]);
    let fs = client(&namenode, "packets", &[]);
    let outcomes = fs.read_files(&["/huge", "/small"]).await;
    let error = outcomes[0].as_ref().unwrap_err();
    assert_eq!((error.kind(), error.path()), (crate::ErrorKind::OutOfMemory, Some("/huge")), "{error}");
    assert!(*outcomes[1].as_ref().unwrap() == bytes);
    let reader = fs.open("/huge").await.unwrap();
    let all = ByteRange::new(1, u64::MAX).unwrap();
    for outcome in reader.read_ranges(&[all, all]).await {
        assert_eq!(outcome.unwrap_err().kind(), crate::ErrorKind::OutOfMemory);
    }
    assert_eq!(reader.read_range(0..u64::MAX).await.unwrap_err().kind(), crate::ErrorKind::OutOfMemory);
    assert_eq!(reader.view(0, usize::MAX).await.unwrap_err().kind(), crate::ErrorKind::OutOfMemory);
}

#[tokio::test]
async fn range_longer_than_the_growing_buffer_is_complete() {
    let (namenode, bytes) = (FakeNamenode::start().await, content(1, LONG));
    let replicas = HashMap::from([(1, bytes.clone())]);
    let datanode = FakeDatanode::start(Behaviour { replicas, ..Behaviour::default() });
    namenode.put("/file", vec![located(1, 0, LONG, &[datanode.info()])]);
    let reader = client(&namenode, "packets", &[]).open("/file").await.unwrap();
    for start in [0, 1, LONG - 10, LONG] {
        let read = reader.read_range(start as u64..u64::MAX).await.unwrap();
        assert!(read == bytes[start..], "from {start} on");
    }
}

#[tokio::test]
async fn set_position_reads_nothing() {
    let (namenode, bytes) = (FakeNamenode::start().await, content(1, 3 * PACKET_BYTES));
    let replicas = HashMap::from([(1, bytes.clone())]);
    let datanode = FakeDatanode::start(Behaviour { replicas, ..Behaviour::default() });
    namenode.put("/file", vec![located(1, 0, bytes.len(), &[datanode.info()])]);
    let mut reader = client(&namenode, "packets", &[]).open("/file").await.unwrap();
    let mut into = vec![0; 100];
    reader.read(&mut into).await.unwrap();
    let read = reader.statistics().total_bytes();
    reader.set_position(1000).unwrap();
    assert_eq!((reader.position(), reader.statistics().total_bytes()), (1000, read));
    let error = reader.set_position(bytes.len() as u64 + 1).unwrap_err();
    assert_eq!((error.kind(), reader.position()), (crate::ErrorKind::BeyondEnd, 1000));
    reader.read(&mut into).await.unwrap();
    assert!(into == bytes[1000..1100]);
}

/// The position includes the bytes that a read has returned, even while it waits for something else.
#[tokio::test]
async fn cancelled_corruption_report_keeps_position() {
    let (namenode, bytes) = (FakeNamenode::start().await, content(1, 3 * PACKET_BYTES));
    let replicas = HashMap::from([(1, bytes.clone())]);
    let bad = FakeDatanode::start(Behaviour { replicas: replicas.clone(), spoiled: true, ..Behaviour::default() });
    let good = FakeDatanode::start(Behaviour { replicas, ..Behaviour::default() });
    namenode.put("/file", vec![located(1, 0, bytes.len(), &[bad.info(), good.info()])]);
    namenode.fall_silent();
    let mut reader = client(&namenode, "packets", &[]).open("/file").await.unwrap();
    let mut into = vec![0; bytes.len()];
    let reported = until("the report", async || !namenode.bad().is_empty());
    tokio::select! {
        biased;
        read = reader.read(&mut into) => panic!("it does not wait for the report: {read:?}"),
        () = reported => {}
    }
    let moved = reader.position() as usize;
    assert!(moved > 0 && into[..moved] == bytes[..moved], "{moved} bytes");
    let count = reader.read(&mut into).await.unwrap();
    assert!(moved + count == bytes.len() && into[..count] == bytes[moved..], "{moved} and {count} bytes");
}

#[tokio::test]
async fn read_retries_after_block_missing() {
    let (namenode, bytes) = (FakeNamenode::start().await, content(1, 3 * PACKET_BYTES));
    let replicas = HashMap::from([(1, bytes.clone())]);
    let datanode = FakeDatanode::start(Behaviour { replicas, ..Behaviour::default() });
    namenode.put("/file", vec![located(1, 0, bytes.len(), &[datanode.info()])]);
    let mut reader = client(&namenode, "packets", &[]).open("/file").await.unwrap();
    let mut into = vec![0; bytes.len()];
    for reads in 1..=2 {
        datanode.cut([0]);
        let error = reader.read(&mut into).await.unwrap_err();
        assert!(matches!(error.failure(), Failure::BlockMissing { .. }), "{error}");
        assert_eq!(datanode.reads(), reads);
    }
    let mut at = 0;
    while at < bytes.len() {
        at += reader.read(&mut into[at..]).await.unwrap();
    }
    assert!(into == bytes);
}

#[tokio::test]
async fn cancelled_lookup_resumes_at_position() {
    const LENGTH: usize = 6 << 20;
    let (namenode, bytes) = (FakeNamenode::start().await, content(1, LENGTH));
    let datanode = OneSidedDatanode::start([(1, bytes.clone())]).await;
    namenode.put("/file", vec![located(1, 0, LENGTH, &[datanode.info()])]);
    let mut reader = client(&namenode, "one-sided", &[]).open("/file").await.unwrap();
    let mut into = vec![0; LENGTH];
    assert_eq!(reader.read(&mut into[..1000]).await.unwrap(), 1000);
    datanode.answer(false);
    datanode.end_connections().await;
    let mut at = 1000;
    for _ in 0..3 {
        let read = tokio::time::timeout(Duration::from_millis(100), reader.read(&mut into[at..])).await;
        assert!(read.is_err(), "{read:?}");
        // The read stays at the position that it had reached.
        at = reader.position() as usize;
    }
    datanode.answer(true);
    let count = reader.read(&mut into[at..]).await.unwrap();
    assert!(at + count == LENGTH && into == bytes, "{count} bytes from {at} on");
}

#[tokio::test]
async fn cancelled_reader_keeps_shared_connection() {
    const LENGTH: usize = 30_000;
    let namenode = FakeNamenode::start().await;
    let datanode = OneSidedDatanode::start([1, 2].map(|id| (id, content(id, LENGTH)))).await;
    for id in [1, 2] {
        namenode.put(&format!("/{id}"), vec![located(id, 0, LENGTH, &[datanode.info()])]);
    }
    let fs = client(&namenode, "one-sided", &[]);
    datanode.answer(false);
    let read = async |id: i64| {
        let reader = fs.open(&format!("/{id}")).await.unwrap();
        let mut into = vec![0; LENGTH];
        reader.read_at(0, &mut into).await.unwrap();
        assert!(into == content(id, LENGTH));
    };
    let mut leaving = Box::pin(read(1));
    let asked = until("the request", async || datanode.asked() > 0);
    tokio::select! {
        () = &mut leaving => panic!("there was no answer yet"),
        () = asked => {}
    }
    // Starts before the other leaves. Otherwise its memory might get the other's key.
    let mut staying = Box::pin(read(2));
    until("the second request", async || {
        assert!((&mut staying).now_or_never().is_none(), "there was no answer yet");
        datanode.asked() == 2
    })
    .await;
    drop(leaving);
    datanode.answer(true);
    staying.await;
    read(1).await;
    assert_eq!(datanode.connections(), 1, "the first is as good as it was");
}

#[tokio::test]
async fn concurrent_reads_report_corrupt_replica_once() {
    let (namenode, bytes) = (FakeNamenode::start().await, content(1, 2 * PACKET_BYTES));
    let replicas = HashMap::from([(1, bytes.clone())]);
    // Both reads get the first replica before one of them goes to the second.
    let two = || Some(Barrier::new(2));
    let bad = FakeDatanode::start(Behaviour {
        replicas: replicas.clone(),
        spoiled: true,
        together: two(),
        ..Behaviour::default()
    });
    let good = FakeDatanode::start(Behaviour { replicas, together: two(), ..Behaviour::default() });
    namenode.put("/file", vec![located(1, 0, bytes.len(), &[bad.info(), good.info()])]);
    let reader = client(&namenode, "packets", &[]).open("/file").await.unwrap();
    let (mut one, mut other) = (vec![0; 1000], vec![0; 1000]);
    let read = tokio::join!(reader.read_at(0, &mut one), reader.read_at(PACKET_BYTES as u64, &mut other));
    assert_eq!((read.0.unwrap(), read.1.unwrap()), (1000, 1000));
    assert!(one == bytes[..1000] && other == bytes[PACKET_BYTES..PACKET_BYTES + 1000]);
    let reported: Vec<_> = namenode.bad().into_iter().map(|block| (block.block, block.locations)).collect();
    let [(block, locations)] = &reported[..] else { panic!("{reported:?}") };
    let uuids: Vec<_> = locations.iter().map(|datanode| &datanode.id.uuid).collect();
    assert!(block.id() == BlockId(1) && uuids == [&bad.info().id.uuid], "{reported:?}");
}

#[tokio::test]
async fn corruption_is_reported_despite_suspect_path() {
    let (namenode, bytes) = (FakeNamenode::start().await, content(1, 2 * PACKET_BYTES));
    let replicas = HashMap::from([(1, bytes.clone()), (2, content(2, 1000))]);
    let bad = FakeDatanode::start(Behaviour { replicas: replicas.clone(), spoiled: true, ..Behaviour::default() });
    let good = FakeDatanode::start(Behaviour { replicas, ..Behaviour::default() });
    namenode.put("/other", vec![located(2, 0, 1000, &[good.info()])]);
    namenode.put("/file", vec![located(1, 0, bytes.len(), &[bad.info(), good.info()])]);
    // The socket path of all datanodes, on which no process listens.
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("none");
    let fs = client(&namenode, "local,packets", &[("dfs.domain.socket.path", socket.to_str().unwrap())]);
    for (path, expected) in [("/other", content(2, 1000)), ("/file", bytes)] {
        let reader = fs.open(path).await.unwrap();
        let mut into = vec![0; expected.len()];
        assert_eq!(reader.read_at(0, &mut into).await.unwrap(), expected.len());
        assert!(into == expected);
    }
    let reported = namenode.bad();
    let [block] = &reported[..] else { panic!("{reported:?}") };
    let uuids: Vec<_> = block.locations.iter().map(|datanode| &datanode.id.uuid).collect();
    assert!(block.block.id() == BlockId(1) && uuids == [&bad.info().id.uuid], "{reported:?}");
}

/// Models a datanode whose reader was idle for longer than it waits, or that restarted.
#[tokio::test]
async fn closed_stream_retries_same_datanode_once() {
    let (namenode, bytes) = (FakeNamenode::start().await, content(1, 5 * PACKET_BYTES));
    let replicas = HashMap::from([(1, bytes.clone())]);
    let first = FakeDatanode::start(Behaviour { replicas: replicas.clone(), ..Behaviour::default() });
    let second = FakeDatanode::start(Behaviour { replicas, ..Behaviour::default() });
    namenode.put("/file", vec![located(1, 0, bytes.len(), &[first.info(), second.info()])]);
    let fs = client(&namenode, "packets", &[]);
    let read = async || {
        let mut reader = fs.open("/file").await.unwrap();
        let mut into = vec![0; bytes.len()];
        assert_eq!(reader.read(&mut into[..1000]).await.unwrap(), 1000);
        assert_eq!(reader.read(&mut into[1000..]).await.unwrap(), bytes.len() - 1000);
        assert!(into == bytes);
        (first.reads(), second.reads())
    };
    first.cut([1]);
    assert_eq!(read().await, (2, 0), "it is as good as before");
    // A datanode that delivers nothing the second time is given up for the other.
    first.cut([1, 0]);
    assert_eq!(read().await, (4, 1));
}

#[tokio::test]
async fn stream_ends_at_length_when_opened() {
    const FIRST: usize = 70_000;
    const LENGTH: usize = 100_000;
    let (namenode, bytes) = (FakeNamenode::start().await, content(2, 80_000));
    let replicas = HashMap::from([(1, content(1, FIRST)), (2, bytes.clone())]);
    let datanode = FakeDatanode::start(Behaviour { replicas, ..Behaviour::default() });
    // The reader learns of the second block only when it reaches it.
    let fs = client(&namenode, "packets", &[("dfs.client.read.prefetch.size", "1")]);
    let locations = &[datanode.info()];
    let expected = [&content(1, FIRST)[..], &bytes[..LENGTH - FIRST]].concat();
    for pieces in [false, true] {
        namenode.put("/file", vec![located(1, 0, FIRST, locations), located(2, FIRST, LENGTH - FIRST, locations)]);
        let mut reader = fs.open("/file").await.unwrap();
        // The file was appended to.
        namenode.put("/file", vec![located(1, 0, FIRST, locations), located(2, FIRST, bytes.len(), locations)]);
        assert_eq!(reader.length(), LENGTH as u64);
        let mut read = Vec::new();
        if pieces {
            loop {
                let piece = reader.next().await.unwrap();
                if piece.is_empty() {
                    break;
                }
                read.extend_from_slice(piece);
                let count = piece.len();
                reader.consume(count);
            }
        } else {
            read.resize(2 * LENGTH, 0);
            let count = reader.read(&mut read).await.unwrap();
            read.truncate(count);
        }
        assert_eq!((read.len(), reader.position()), (LENGTH, LENGTH as u64));
        assert!(read == expected);
    }
    // A reader that opens the file now sees all of it.
    assert_eq!(fs.open("/file").await.unwrap().length(), (FIRST + bytes.len()) as u64);
}

/// The namenode knows the length of a block that is being written from its first flush. It returns no block for later
/// bytes, except the last block, which it always names.
#[tokio::test]
async fn moved_open_block_is_still_found() {
    const FIRST: usize = 70_000;
    const TOLD: usize = 5000;
    const VISIBLE: usize = 75_000;
    let (namenode, bytes) = (FakeNamenode::start().await, content(2, VISIBLE));
    let replicas = HashMap::from([(1, content(1, FIRST)), (2, bytes.clone())]);
    let datanode = FakeDatanode::start(Behaviour { replicas, ..Behaviour::default() });
    let lengths = VisibleLengths::start(Some(VISIBLE)).await;
    // It reports the visible length, but no process listens for readers there.
    let mut dead = datanode_info(1, &Offer { incarnation: 1, ..Offer::default() });
    dead.id.ipc_port = lengths.port();
    let file = |open: DatanodeInfo| vec![located(1, 0, FIRST, &[datanode.info()]), located(2, FIRST, TOLD, &[open])];
    // The requested range ends before the open block.
    let settings = [
        ("dfs.client.read.prefetch.size", "1"),
        ("dfs.client.max.block.acquire.failures", "1"),
        ("dfs.client.retry.window.base", "1"),
    ];
    namenode.put_open("/file", file(dead));
    let mut reader = client(&namenode, "packets", &settings).open("/file").await.unwrap();
    assert_eq!(reader.length(), (FIRST + VISIBLE) as u64);
    namenode.put_open("/file", file(datanode.info()));
    let mut into = vec![0; 1000];
    assert_eq!(reader.read_at(FIRST as u64 + 50_000, &mut into).await.unwrap(), 1000);
    assert!(into == bytes[50_000..51_000]);
    reader.seek(FIRST as u64 + 60_000).await.unwrap();
    let next = reader.next().await.unwrap();
    assert!(!next.is_empty() && bytes[60_000..].starts_with(next));
}

#[tokio::test]
async fn lost_open_block_is_not_empty() {
    let namenode = FakeNamenode::start().await;
    let lengths = VisibleLengths::start(None).await;
    let mut datanode = datanode_info(1, &Offer { incarnation: 1, ..Offer::default() });
    datanode.id.ipc_port = lengths.port();
    let fs = client(&namenode, "packets", &[("dfs.client.retry.times.get-last-block-length", "0")]);
    // According to the namenode, either no bytes were written yet, or some were.
    for told in [0, 5000] {
        namenode.put_open("/file", vec![located(1, 0, told, &[datanode.clone()])]);
        match (fs.open("/file").await, told) {
            (Ok(reader), 0) => assert_eq!(reader.length(), 0),
            (Err(error), 5000) if matches!(error.failure(), Failure::BlockLength { .. }) => {}
            (opened, _) => panic!("{told} bytes: {opened:?}"),
        }
    }
}

#[tokio::test]
async fn unverified_reader_returns_stored_bytes() {
    let (namenode, bytes) = (FakeNamenode::start().await, content(1, 5 * PACKET_BYTES + 100));
    let replicas = HashMap::from([(1, bytes.clone())]);
    let datanode = FakeDatanode::start(Behaviour { replicas, spoiled: true, ..Behaviour::default() });
    namenode.put("/file", vec![located(1, 0, bytes.len(), &[datanode.info()])]);
    let fs = client(&namenode, "local,one-sided,packets", &[]);
    let mut into = vec![0; bytes.len()];
    let error = fs.open("/file").await.unwrap().read(&mut into).await.unwrap_err();
    assert!(matches!(error.failure(), Failure::BlockMissing { .. }), "{error}");
    let reported = namenode.bad().len();

    // Tests reads into the caller's memory, reads in the receive buffer, and positioned reads.
    let mut reader = fs.open_unverified("/file").await.unwrap();
    let mut filled = 0;
    while filled < into.len() {
        filled += reader.read(&mut into[filled..]).await.unwrap();
    }
    assert!(into == bytes);
    reader.seek(700).await.unwrap();
    let next = reader.next().await.unwrap();
    assert!(!next.is_empty() && bytes[700..].starts_with(next));
    assert_eq!(reader.read_at(513, &mut into[..1000]).await.unwrap(), 1000);
    assert!(into[..1000] == bytes[513..1513]);
    assert_eq!(namenode.bad().len(), reported, "an unverified read reports no replica");
}
