//! Tests of writers of a whole client, against a fake namenode and fake datanodes.

mod fake_datanode;
mod fake_namenode;

use std::time::Duration;

use futures_util::FutureExt;
use hearth_config::Configuration;
use hearth_testkit::{StoppedClock, until};
use tokio::time::Instant;

use super::*;
use crate::{CreateOptions, ErrorKind, FileSystem};
use fake_datanode::{Breaks, FakeDatanode};
use fake_namenode::{CLOSED, FakeNamenode, Heard};

const WAIT: Duration = Duration::from_secs(60);
/// Step of a stopped clock: a tenth of the shortest time-out.
const STEP: Duration = Duration::from_millis(50);
const BLOCK: usize = 1 << 20;

fn content(seed: usize, length: usize) -> Vec<u8> {
    (0..length).map(|index| (index * 7 + index / 300 + seed) as u8).collect()
}

fn client(namenode: &FakeNamenode, paths: &str) -> FileSystem {
    client_with(namenode, paths, &[])
}

fn client_with(namenode: &FakeNamenode, paths: &str, settings: &[(&str, &str)]) -> FileSystem {
    let mut configuration =
        Configuration::empty().with("hearth.client.paths", paths).with("hearth.one-sided.transport", "tcp");
    for (key, value) in settings {
        configuration = configuration.with(key, *value);
    }
    FileSystem::connect(&configuration, Some(&namenode.uri()), "tester").unwrap()
}

async fn create(fs: &FileSystem, path: &str) -> Writer {
    // With a replication of 2, a lost datanode is not replaced: the remaining ones are enough.
    let options = CreateOptions { block_size: Some(BLOCK as u64), replication: Some(2), ..CreateOptions::default() };
    fs.create(path, options).await.unwrap()
}

async fn write(fs: &FileSystem, path: &str, bytes: &[u8]) {
    let mut writer = create(fs, path).await;
    writer.write(bytes).await.unwrap();
    writer.close().await.unwrap();
}

#[tokio::test]
async fn create_sends_storage_policy_to_namenode() {
    let datanode = FakeDatanode::start(Breaks::AtOnce).await;
    let namenode = FakeNamenode::start(vec![datanode.info("one")]).await;
    let fs = client(&namenode, "packets");
    let cold = Some("COLD".to_owned());
    for (lazy_persist, storage_policy, flag) in [(false, None, 1), (true, None, 17), (false, cold, 1)] {
        let options =
            CreateOptions { lazy_persist, storage_policy: storage_policy.clone(), ..CreateOptions::default() };
        fs.create("/file", options).await.unwrap().close().await.unwrap();
        let created = namenode.created();
        assert_eq!((created.create_flag, created.storage_policy), (flag, storage_policy));
    }
}

#[tokio::test]
async fn broken_path_falls_back_to_packets() {
    for path in [DataPath::Local, DataPath::OneSided] {
        for breaks in [Breaks::AtOnce, Breaks::AtThePacket] {
            let datanode = FakeDatanode::start(breaks).await;
            let namenode = FakeNamenode::start(vec![datanode.info("one")]).await;
            let fs = client(&namenode, &format!("{path},packets"));
            let files = [content(1, 3 * BLOCK + 1000), content(2, 2 * BLOCK)];
            for (number, bytes) in files.iter().enumerate() {
                write(&fs, &format!("/{number}"), bytes).await;
            }
            assert!(datanode.bytes() == files.concat(), "{path}, {breaks:?}: other bytes");
            // The next blocks and the next file skip the failed path.
            assert_eq!(datanode.asked(path), 1, "{path}, {breaks:?}");
            let at_once = usize::from(breaks == Breaks::AtOnce);
            assert_eq!(namenode.heard(), Heard { excluded: 0, abandoned: at_once, recovered: 1 - at_once }, "{path}");
        }
    }
}

#[tokio::test]
async fn datanode_refusing_packets_is_excluded() {
    for breaks in [Breaks::AtOnce, Breaks::AtThePacket] {
        let (dead, well) = (FakeDatanode::start(breaks).await, FakeDatanode::start(breaks).await);
        let mut gone = dead.info("one");
        // No process listens on this port.
        gone.id.transfer_port = 1;
        let namenode = FakeNamenode::start(vec![gone.clone(), well.info("two")]).await;
        let fs = client(&namenode, "local,packets");
        let bytes = content(3, BLOCK / 2);
        write(&fs, "/file", &bytes).await;
        assert!(well.bytes() == bytes, "{breaks:?}: other bytes");
        let asked = [dead.asked(DataPath::Local), dead.asked(DataPath::Packets), well.asked(DataPath::Packets)];
        assert_eq!(asked, [1, 0, 1], "{breaks:?}");
        // The path is not blamed: the datanode itself may have failed.
        let writer = create(&fs, "/another").await;
        let failed_paths = &writer.session.failed_write_paths;
        assert!(!failed_paths.has(&gone.id.uuid, DataPath::Local, Instant::now()));
    }
}

#[tokio::test]
async fn idle_writer_releases_datanode_memory() {
    let datanode = FakeDatanode::start(Breaks::NotLocal).await;
    let namenode = FakeNamenode::start(vec![datanode.info("one")]).await;
    let fs = client(&namenode, "local,packets");
    let bytes = content(7, BLOCK + BLOCK / 2);
    let mut writer = create(&fs, "/file").await;
    writer.write(&bytes[..BLOCK / 2]).await.unwrap();
    writer.hflush().await.unwrap();
    let memory = match &writer.progress.borrow().granted_memory {
        GrantedMemory::Local { memory, .. } => Arc::downgrade(memory),
        other => panic!("{other:?}"),
    };
    writer.write(&bytes[BLOCK / 2..BLOCK]).await.unwrap();
    writer.hflush().await.unwrap();
    until("the memory to be released", async || memory.strong_count() == 0).await;
    // The next block gets memory of its own.
    writer.write(&bytes[BLOCK..]).await.unwrap();
    writer.close().await.unwrap();
    assert!(datanode.bytes() == bytes);
    assert_eq!((datanode.asked(DataPath::Local), datanode.asked(DataPath::Packets)), (2, 0));
}

#[tokio::test]
async fn closed_pipeline_does_not_exclude_datanode() {
    let datanode = FakeDatanode::start(Breaks::AtOnce).await;
    let namenode = FakeNamenode::start(vec![datanode.info("1"), datanode.info("2")]).await;
    let fs = client(&namenode, "packets");
    let bytes = content(5, 2 * BLOCK);
    let mut writer = create(&fs, "/file").await;
    writer.write(&bytes[..700]).await.unwrap();
    writer.hflush().await.unwrap();
    datanode.end_pipelines();
    until("the second pipeline", async || datanode.asked(DataPath::Packets) == 2).await;
    writer.write(&bytes[700..]).await.unwrap();
    writer.close().await.unwrap();
    assert!(datanode.bytes() == bytes);
    assert_eq!(namenode.heard(), Heard { excluded: 0, abandoned: 0, recovered: 1 });
}

#[tokio::test]
async fn replacement_is_copied_from_another_source() {
    let datanodes = [
        FakeDatanode::start(Breaks::AtOnce).await,
        FakeDatanode::start(Breaks::AtOnce).await,
        FakeDatanode::start(Breaks::AtOnce).await,
    ];
    let [head, second, third] = &datanodes;
    let namenode = FakeNamenode::start(vec![head.info("1"), second.info("2"), third.info("3")]).await;
    // Two spare datanodes, so that one is left when the first of them did not get its copy.
    namenode.has_spare(vec![second.info("4"), second.info("5")]);
    second.refuse_copies();
    let fs = client(&namenode, "packets");
    let bytes = content(6, BLOCK / 2);
    let options = CreateOptions { block_size: Some(BLOCK as u64), replication: Some(3), ..CreateOptions::default() };
    let mut writer = fs.create("/file", options).await.unwrap();
    writer.write(&bytes[..700]).await.unwrap();
    writer.hflush().await.unwrap();
    second.follow(head);
    head.end_pipelines();
    until("a pipeline to the second datanode", async || second.asked(DataPath::Packets) == 1).await;
    writer.write(&bytes[700..]).await.unwrap();
    writer.close().await.unwrap();
    assert!(second.bytes() == bytes);
    assert_eq!((second.transfers(), third.transfers()), (1, 1));
}

#[tokio::test]
async fn remote_restart_is_not_waited_for() {
    let head = FakeDatanode::start(Breaks::AtOnce).await;
    let mut second = head.info("2");
    // An address reserved for documentation (RFC 5737), which no machine has.
    second.id.ip = "192.0.2.1".to_owned();
    let namenode = FakeNamenode::start(vec![head.info("1"), second.clone()]).await;
    // A restarting datanode would be waited for this long.
    let fs = client_with(&namenode, "packets", &[("dfs.client.datanode-restart.timeout", "600")]);
    let mut writer = create(&fs, "/file").await;
    writer.write(b"before ").await.unwrap();
    writer.hflush().await.unwrap();
    head.restarts_behind(&second);
    writer.write(b"and behind").await.unwrap();
    tokio::time::timeout(WAIT, writer.hflush()).await.unwrap().unwrap();
    writer.close().await.unwrap();
    assert!(head.bytes() == b"before and behind");
    assert_eq!(namenode.heard(), Heard { excluded: 0, abandoned: 0, recovered: 1 });
}

#[tokio::test]
async fn failed_datanodes_of_append_are_replaced() {
    const BEFORE: usize = 1024;
    const PACKET: usize = 512;
    let datanodes = [
        FakeDatanode::start(Breaks::AtOnce).await,
        FakeDatanode::start(Breaks::AtOnce).await,
        FakeDatanode::start(Breaks::AtOnce).await,
    ];
    let [head, second, third] = &datanodes;
    let namenode = FakeNamenode::start(vec![head.info("1"), second.info("2"), third.info("3")]).await;
    namenode.has_spare(vec![third.info("4"), third.info("5")]);
    let bytes = content(8, BEFORE + 2 * PACKET + 100);
    namenode.has_file(BEFORE, 3);
    head.has(CLOSED, &bytes[..BEFORE]);
    let fs = client_with(&namenode, "packets", &[("dfs.client-write-packet-size", "1024")]);
    let mut writer = fs.append("/file").await.unwrap();
    // Without a flush, no reader can have seen more than the bytes that were there before.
    writer.write(&bytes[BEFORE..BEFORE + PACKET]).await.unwrap();
    until("the first acknowledgement", async || writer.progress.borrow().acknowledged == 0).await;
    second.follow(head);
    head.end_pipelines();
    until("a pipeline to the second datanode", async || second.asked(DataPath::Packets) == 1).await;
    third.follow(second);
    second.end_pipelines();
    until("a pipeline to the third datanode", async || third.asked(DataPath::Packets) == 1).await;
    writer.write(&bytes[BEFORE + PACKET..]).await.unwrap();
    writer.close().await.unwrap();
    assert!(third.bytes() == bytes);
    assert_eq!((second.transfers(), third.transfers()), (1, 1));
}

/// Models a datanode whose downstream datanode is slow to store its data.
#[tokio::test]
async fn heartbeats_continue_while_block_end_waits() {
    let datanode = FakeDatanode::start(Breaks::AtOnce).await;
    let namenode = FakeNamenode::start(vec![datanode.info("one")]).await;
    // Heartbeats every half second.
    let fs = client_with(&namenode, "packets", &[("dfs.client.socket-timeout", "1000")]);
    datanode.await_heartbeats(2);
    StoppedClock::new().during(STEP, write(&fs, "/file", b"the last data")).await;
    assert!(datanode.bytes() == b"the last data");
    assert_eq!(namenode.heard(), Heard::default());
}

/// Models a datanode whose downstream datanode is always slow: it acknowledges packets one by one and receives nothing
/// else.
#[tokio::test]
async fn heartbeats_continue_during_slow_acknowledgements() {
    let datanode = FakeDatanode::start(Breaks::AtOnce).await;
    let namenode = FakeNamenode::start(vec![datanode.info("one")]).await;
    // Heartbeats every half second, and packets of one chunk.
    let settings = [("dfs.client.socket-timeout", "1000"), ("dfs.client-write-packet-size", "1024")];
    let fs = client_with(&namenode, "packets", &settings);
    datanode.takes(Duration::from_millis(300));
    let bytes = content(10, 6 * 512);
    StoppedClock::new().during(STEP, write(&fs, "/file", &bytes)).await;
    assert!(datanode.bytes() == bytes);
    assert!(datanode.heartbeats() > 1, "{} heartbeats", datanode.heartbeats());
    assert_eq!(namenode.heard(), Heard::default());
}

/// The datanode keeps answering and would otherwise keep the writer waiting forever.
#[tokio::test]
async fn missing_grant_falls_back_to_packets() {
    let datanode = FakeDatanode::start(Breaks::WithoutMore).await;
    let namenode = FakeNamenode::start(vec![datanode.info("one")]).await;
    // Heartbeats every half second; each datanode of a pipeline adds five seconds to the time-outs.
    let settings = [("dfs.client.socket-timeout", "1000"), ("dfs.datanode.socket.write.timeout", "100")];
    let fs = client_with(&namenode, "one-sided,packets", &settings);
    let bytes = content(9, BLOCK);
    let writing = tokio::time::timeout(WAIT, write(&fs, "/file", &bytes));
    StoppedClock::new().during(STEP, writing).await.expect("the wait for memory has an end");
    assert!(datanode.bytes() == bytes, "what was acknowledged stays");
    assert!(datanode.heartbeats() > 2, "{} heartbeats", datanode.heartbeats());
    assert_eq!((datanode.asked(DataPath::OneSided), datanode.asked(DataPath::Packets)), (1, 1));
    assert_eq!(namenode.heard(), Heard { excluded: 0, abandoned: 0, recovered: 1 });
}

/// A datanode with several names, whose pipelines break repeatedly while nothing is in flight.
async fn idle_pipelines() -> (FakeDatanode, FakeNamenode) {
    let datanode = FakeDatanode::start(Breaks::AtOnce).await;
    let names = ["1", "2", "3", "4", "5", "6", "7", "8"];
    let namenode = FakeNamenode::start(names.map(|name| datanode.info(name)).to_vec()).await;
    (datanode, namenode)
}

#[tokio::test]
async fn idle_pipelines_are_rebuilt_after_progress() {
    let (datanode, namenode) = idle_pipelines().await;
    let fs = client(&namenode, "packets");
    let bytes = content(4, 7 * 700);
    let mut writer = create(&fs, "/log").await;
    for (number, record) in bytes.chunks(700).enumerate() {
        writer.write(record).await.unwrap();
        writer.hflush().await.unwrap();
        datanode.end_pipelines();
        until("the next pipeline", async || datanode.asked(DataPath::Packets) == number + 2).await;
    }
    writer.close().await.unwrap();
    assert!(datanode.bytes() == bytes);
    assert_eq!(namenode.heard().recovered, 7);
}

#[tokio::test]
async fn pipeline_without_progress_fails() {
    let (datanode, namenode) = idle_pipelines().await;
    let fs = client(&namenode, "packets");
    let mut writer = create(&fs, "/log").await;
    writer.write(b"once").await.unwrap();
    writer.hflush().await.unwrap();
    for number in 0..5 {
        datanode.end_pipelines();
        until("the next pipeline", async || datanode.asked(DataPath::Packets) == number + 2).await;
    }
    datanode.end_pipelines();
    until("the failure", async || writer.progress.borrow().failed.is_some()).await;
    assert!(matches!(writer.hflush().await.unwrap_err().failure(), Failure::PipelineSetup { attempts: 5, .. }));
}

#[tokio::test]
async fn cancelled_flushes_do_not_accumulate() {
    let datanode = FakeDatanode::start(Breaks::AtOnce).await;
    let namenode = FakeNamenode::start(vec![datanode.info("one")]).await;
    namenode.allocate(false);
    let mut writer = create(&client(&namenode, "packets"), "/file").await;
    writer.write(b"what is dropped ").await.unwrap();
    for _ in 0..1000 {
        assert!(writer.hsync().now_or_never().is_none(), "there is no block yet");
        assert!(writer.outgoing.len() <= 1);
    }
    namenode.allocate(true);
    writer.write(b"comes all the same").await.unwrap();
    writer.close().await.unwrap();
    assert!(datanode.bytes() == b"what is dropped comes all the same");
}

#[tokio::test]
async fn cancelled_close_continues_in_background() {
    let datanode = FakeDatanode::start(Breaks::AtOnce).await;
    let namenode = FakeNamenode::start(vec![datanode.info("one")]).await;
    namenode.refuse_to_complete(5);
    let mut writer = create(&client(&namenode, "packets"), "/file").await;
    writer.write(b"handed over").await.unwrap();
    assert!(writer.close().now_or_never().is_none(), "the datanode has had no time");
    until("the file to be closed", async || namenode.completed() == 1).await;
    assert!(datanode.bytes() == b"handed over");
}

#[tokio::test]
async fn cancelled_append_closes_file() {
    let datanode = FakeDatanode::start(Breaks::AtOnce).await;
    let namenode = FakeNamenode::start(vec![datanode.info("one")]).await;
    namenode.has_file(BLOCK / 2, 2);
    let fs = client(&namenode, "packets");
    assert!(fs.append("/file").now_or_never().is_none(), "the namenode has had no time");
    until("the file to be closed", async || namenode.completed() == 1).await;
}

#[tokio::test]
async fn failed_append_closes_file() {
    let datanode = FakeDatanode::start(Breaks::AtOnce).await;
    let namenode = FakeNamenode::start(vec![datanode.info("one")]).await;
    // The block is full, so it cannot be appended to.
    namenode.has_file(BLOCK, 2);
    let refused = client(&namenode, "packets").append("/file").await.map(drop).unwrap_err();
    assert!(matches!(refused.failure(), Failure::Answer { method: "append", .. }), "{refused}");
    assert_eq!(namenode.completed(), 1);
}

/// A file whose lease another client holds.
fn foreign_file() -> ForeignFile {
    let (path, client_name) = ("/file".to_owned(), "DFSClient_1".to_owned());
    let block_size = BLOCK as u64;
    ForeignFile { path, inode: 17, client_name, replication: 2, block_size, length: 0, last_block: None }
}

/// Opens that file on these datanodes.
async fn created_elsewhere(datanodes: Vec<DatanodeInfo>) -> (FakeNamenode, Option<Writer>) {
    let namenode = FakeNamenode::start(datanodes).await;
    let writer = client(&namenode, "packets").write_foreign(foreign_file()).await.unwrap();
    (namenode, writer)
}

#[tokio::test]
async fn file_of_another_client_is_written_in_its_name() {
    let datanode = FakeDatanode::start(Breaks::AtOnce).await;
    let (namenode, writer) = created_elsewhere(vec![datanode.info("one"), datanode.info("two")]).await;
    let mut writer = writer.expect("Hearth's datanodes");
    let bytes = content(11, 2 * BLOCK + 700);
    writer.write(&bytes[..700]).await.unwrap();
    assert!(writer.pipeline().is_empty());
    writer.hflush().await.unwrap();
    assert_eq!(writer.pipeline().len(), 2);
    datanode.end_pipelines();
    until("the next pipeline", async || datanode.asked(DataPath::Packets) == 2).await;
    writer.write(&bytes[700..]).await.unwrap();
    writer.finish().await.unwrap();
    writer.finish().await.unwrap();
    until("the end of the pipeline", async || writer.pipeline().is_empty()).await;
    assert_eq!(namenode.completed(), 0);
    writer.close().await.unwrap();
    assert!(datanode.bytes() == bytes);
    assert_eq!((namenode.completed(), namenode.holders()), (1, vec!["DFSClient_1".to_owned()]));
    assert_eq!(namenode.heard(), Heard { excluded: 0, abandoned: 0, recovered: 1 });
}

#[tokio::test]
async fn file_opened_elsewhere_for_append_is_continued() {
    const BEFORE: usize = 1000;
    let datanode = FakeDatanode::start(Breaks::AtOnce).await;
    let namenode = FakeNamenode::start(vec![datanode.info("one")]).await;
    namenode.has_file(BEFORE, 1);
    let bytes = content(13, BLOCK + 700);
    datanode.has(CLOSED, &bytes[..BEFORE]);
    let opened = namenode.opened_block();
    let file = ForeignFile { length: BEFORE as u64, last_block: Some(opened.clone()), ..foreign_file() };
    let fs = client(&namenode, "packets");
    let mut writer = fs.write_foreign(file.clone()).await.unwrap().expect("a datanode of Hearth");
    assert_eq!(writer.position(), BEFORE as u64);
    writer.write(&bytes[BEFORE..]).await.unwrap();
    writer.close().await.unwrap();
    assert!(datanode.bytes() == bytes);
    assert_eq!(namenode.holders(), ["DFSClient_1"]);
    // A full block, and one longer than the file.
    for (block, length) in [(BLOCK, BLOCK), (BEFORE, BEFORE - 1)] {
        let mut last = opened.clone();
        last.block.length = block as u64;
        let wrong = ForeignFile { length: length as u64, last_block: Some(last), ..file.clone() };
        let refused = fs.write_foreign(wrong).await.map(drop).unwrap_err();
        assert!(matches!(refused.failure(), Failure::Answer { method: "append", .. }), "{refused}");
    }
    // Another file has the path.
    let mut other = opened;
    other.block.id.0 += 1;
    let refused = fs.write_foreign(ForeignFile { last_block: Some(other), ..file }).await.map(drop).unwrap_err();
    assert!(matches!(refused.failure(), Failure::Answer { method: "getBlockLocations", .. }), "{refused}");
}

#[tokio::test]
async fn file_on_other_datanodes_is_left_to_its_client() {
    let datanode = FakeDatanode::start(Breaks::AtOnce).await;
    // It closes the connection, as it does for every request that it does not know.
    let stranger = DatanodeInfo { offer: None, ..datanode.info("stranger") };
    // No process listens on this port.
    let mut unreachable = stranger.clone();
    unreachable.id.transfer_port = 1;
    for (datanode, answers) in [(stranger, true), (unreachable, false)] {
        let namenode = FakeNamenode::start(vec![datanode]).await;
        let fs = client(&namenode, "packets");
        // An empty file keeps its block. A block behind others is given up.
        for (length, abandoned) in [(0, 0), (BLOCK as u64, 1)] {
            let file = ForeignFile { length, ..foreign_file() };
            match fs.write_foreign(file).await {
                Ok(writer) => assert!(answers && writer.is_none()),
                Err(error) => assert!(!answers && error.kind() == ErrorKind::Unreachable, "{error}"),
            }
            assert_eq!(namenode.heard(), Heard { excluded: 0, abandoned, recovered: 0 });
        }
        assert_eq!(namenode.holders(), ["DFSClient_1"]);
    }
}

#[tokio::test]
async fn flush_is_awaited_while_the_writer_continues() {
    let datanode = FakeDatanode::start(Breaks::AtOnce).await;
    let namenode = FakeNamenode::start(vec![datanode.info("one")]).await;
    let bytes = content(12, BLOCK + 3000);
    let mut writer = create(&client(&namenode, "packets"), "/file").await;
    writer.write(&bytes[..1000]).await.unwrap();
    let pending = writer.begin_flush(FlushOptions::default()).await.unwrap();
    writer.write(&bytes[1000..2000]).await.unwrap();
    pending.acknowledged().await.unwrap();
    assert_eq!(namenode.recorded(), [1000]);
    // The pipeline is known. The length is recorded on request.
    writer.hflush().await.unwrap();
    let update = FlushOptions { update_length: true, ..FlushOptions::default() };
    writer.begin_flush(update).await.unwrap().acknowledged().await.unwrap();
    assert_eq!(namenode.recorded(), [1000, 2000]);
    // A block that ends early. Nothing is left to be ended by the second call.
    let end = FlushOptions { sync: true, end_block: true, ..FlushOptions::default() };
    for _ in 0..2 {
        writer.begin_flush(end).await.unwrap().acknowledged().await.unwrap();
    }
    // The namenode knows this length.
    writer.begin_flush(update).await.unwrap().acknowledged().await.unwrap();
    assert_eq!(namenode.recorded(), [1000, 2000]);
    until("the first block", async || writer.last_block().is_some_and(|block| block.length() == 2000)).await;
    writer.write(&bytes[2000..]).await.unwrap();
    writer.close().await.unwrap();
    assert!(datanode.bytes() == bytes);
    assert_eq!(datanode.asked(DataPath::Packets), 3, "blocks of 2000, 1 MiB and 1000 bytes");
}

/// `fsync` names no block. Sent too late, it would set the length of the next block, and the file could not be closed.
#[tokio::test]
async fn next_block_waits_until_the_length_of_the_last_is_recorded() {
    let datanode = FakeDatanode::start(Breaks::AtOnce).await;
    let namenode = FakeNamenode::start(vec![datanode.info("one")]).await;
    let bytes = content(14, BLOCK + 700);
    let mut writer = create(&client(&namenode, "packets"), "/file").await;
    writer.write(&bytes[..BLOCK - 1000]).await.unwrap();
    let pending = writer.begin_flush(FlushOptions::default()).await.unwrap();
    namenode.record(false);
    let flush = tokio::spawn(pending.acknowledged());
    until("the flush to be recorded", async || namenode.recorded().len() == 1).await;
    // The flush is dropped after its request was sent.
    flush.abort();
    writer.write(&bytes[BLOCK - 1000..]).await.unwrap();
    until("the end of the first block", async || writer.last_block().is_some()).await;
    let closing = tokio::spawn(writer.close());
    let next = tokio::time::timeout(Duration::from_millis(200), namenode.asked_blocks(2)).await;
    assert!(next.is_err(), "a block was requested before the length of the last one was recorded");
    namenode.record(true);
    closing.await.unwrap().unwrap();
    namenode.asked_blocks(2).await;
    assert!(datanode.bytes() == bytes);
    assert_eq!(namenode.recorded(), [BLOCK as i64 - 1000]);
}

/// The length of a flush that arrives behind the end of the file could be taken for that of a block appended later.
#[tokio::test]
async fn file_is_not_closed_while_a_length_is_being_recorded() {
    let datanode = FakeDatanode::start(Breaks::AtOnce).await;
    let namenode = FakeNamenode::start(vec![datanode.info("one")]).await;
    let bytes = content(15, 2000);
    let mut writer = create(&client(&namenode, "packets"), "/file").await;
    writer.write(&bytes[..1000]).await.unwrap();
    let first = writer.begin_flush(FlushOptions::default()).await.unwrap();
    writer.write(&bytes[1000..]).await.unwrap();
    let update = FlushOptions { update_length: true, ..FlushOptions::default() };
    let second = writer.begin_flush(update).await.unwrap();
    namenode.record(false);
    let flushes = [first, second].map(|flush| tokio::spawn(flush.acknowledged()));
    until("a flush to be recorded", async || namenode.recorded().len() == 1).await;
    flushes.iter().for_each(tokio::task::JoinHandle::abort);
    let mut closing = tokio::spawn(writer.close());
    let early = tokio::time::timeout(Duration::from_millis(200), &mut closing).await;
    assert!(early.is_err() && namenode.completed() == 0, "the file was closed");
    namenode.record(true);
    closing.await.unwrap().unwrap();
    let recorded = namenode.recorded();
    assert!(recorded.is_sorted() && recorded.last().is_some_and(|length| *length <= 2000), "{recorded:?}");
    assert!(datanode.bytes() == bytes);
}
