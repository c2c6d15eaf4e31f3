//! Writers of a whole client, against a namenode and datanodes of the tests' own, which do what they are told.

mod fake_datanode;
mod fake_namenode;

use std::time::Duration;

use futures_util::FutureExt;
use hearth_config::Configuration;

use super::*;
use crate::{CreateOptions, FileSystem};
use fake_datanode::{Breaks, FakeDatanode};
use fake_namenode::{CLOSED, FakeNamenode, Heard};

const WAIT: Duration = Duration::from_secs(60);
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
    // Of two replicas none is made up for: those that are left are enough.
    let options = CreateOptions { block_size: Some(BLOCK as u64), replication: Some(2), ..CreateOptions::default() };
    fs.create(path, options).await.unwrap()
}

async fn write(fs: &FileSystem, path: &str, bytes: &[u8]) {
    let mut writer = create(fs, path).await;
    writer.write(bytes).await.unwrap();
    writer.close().await.unwrap();
}

async fn wait_for(what: impl Fn() -> bool) {
    let done = async {
        while !what() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(WAIT, done).await.unwrap();
}

#[tokio::test]
async fn the_namenode_is_told_which_storage_policy_a_new_file_is_to_have() {
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
async fn a_path_that_breaks_gives_way_to_packets_once_and_its_datanode_stays() {
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
            // The next blocks, and the next file, know of it.
            assert_eq!(datanode.asked(path), 1, "{path}, {breaks:?}");
            let at_once = usize::from(breaks == Breaks::AtOnce);
            assert_eq!(namenode.heard(), Heard { excluded: 0, abandoned: at_once, recovered: 1 - at_once }, "{path}");
        }
    }
}

#[tokio::test]
async fn a_datanode_that_takes_no_packets_either_is_left_out() {
    for breaks in [Breaks::AtOnce, Breaks::AtThePacket] {
        let (dead, well) = (FakeDatanode::start(breaks).await, FakeDatanode::start(breaks).await);
        let mut gone = dead.info("one");
        // Nobody listens there.
        gone.id.transfer_port = 1;
        let namenode = FakeNamenode::start(vec![gone.clone(), well.info("two")]).await;
        let fs = client(&namenode, "local,packets");
        let bytes = content(3, BLOCK / 2);
        write(&fs, "/file", &bytes).await;
        assert!(well.bytes() == bytes, "{breaks:?}: other bytes");
        let asked = [dead.asked(DataPath::Local), dead.asked(DataPath::Packets), well.asked(DataPath::Packets)];
        assert_eq!(asked, [1, 0, 1], "{breaks:?}");
        // It was not the path's fault, as far as anybody knows.
        let writer = create(&fs, "/another").await;
        let failed_paths = &writer.shared.failed_write_paths;
        assert!(!failed_paths.has(&gone.id.uuid, DataPath::Local, std::time::Instant::now()));
    }
}

#[tokio::test]
async fn a_writer_that_rests_behind_a_block_holds_nothing_of_its_datanodes_memory() {
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
    wait_for(|| memory.strong_count() == 0).await;
    // The next block has memory of its own.
    writer.write(&bytes[BLOCK..]).await.unwrap();
    writer.close().await.unwrap();
    assert!(datanode.bytes() == bytes);
    assert_eq!((datanode.asked(DataPath::Local), datanode.asked(DataPath::Packets)), (2, 0));
}

#[tokio::test]
async fn a_datanode_that_closed_a_pipeline_may_be_in_that_of_the_next_block() {
    let datanode = FakeDatanode::start(Breaks::AtOnce).await;
    let namenode = FakeNamenode::start(vec![datanode.info("1"), datanode.info("2")]).await;
    let fs = client(&namenode, "packets");
    let bytes = content(5, 2 * BLOCK);
    let mut writer = create(&fs, "/file").await;
    writer.write(&bytes[..700]).await.unwrap();
    writer.hflush().await.unwrap();
    datanode.end_pipelines();
    wait_for(|| datanode.asked(DataPath::Packets) == 2).await;
    writer.write(&bytes[700..]).await.unwrap();
    writer.close().await.unwrap();
    assert!(datanode.bytes() == bytes);
    assert_eq!(namenode.heard(), Heard { excluded: 0, abandoned: 0, recovered: 1 });
}

#[tokio::test]
async fn what_replaces_a_datanode_gets_the_block_from_whoever_has_it_and_can_send_it() {
    let datanodes = [
        FakeDatanode::start(Breaks::AtOnce).await,
        FakeDatanode::start(Breaks::AtOnce).await,
        FakeDatanode::start(Breaks::AtOnce).await,
    ];
    let [head, second, third] = &datanodes;
    let namenode = FakeNamenode::start(vec![head.info("1"), second.info("2"), third.info("3")]).await;
    // Two others, so that one is left when the first of them did not get its copy.
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
    wait_for(|| second.asked(DataPath::Packets) == 1).await;
    writer.write(&bytes[700..]).await.unwrap();
    writer.close().await.unwrap();
    assert!(second.bytes() == bytes);
    assert_eq!((second.transfers(), third.transfers()), (1, 1));
}

#[tokio::test]
async fn a_datanode_that_restarts_on_another_machine_is_not_waited_for_while_there_is_another() {
    let head = FakeDatanode::start(Breaks::AtOnce).await;
    let mut second = head.info("2");
    // An address for examples (RFC 5737), which no machine has.
    second.id.ip = "192.0.2.1".to_owned();
    let namenode = FakeNamenode::start(vec![head.info("1"), second.clone()]).await;
    // It would be waited for as long as that.
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
async fn each_datanode_that_fails_a_block_that_is_continued_is_replaced() {
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
    // Without a flush nobody else may have seen anything but what was there before.
    writer.write(&bytes[BEFORE..BEFORE + PACKET]).await.unwrap();
    wait_for(|| writer.progress.borrow().acknowledged == 0).await;
    second.follow(head);
    head.end_pipelines();
    wait_for(|| second.asked(DataPath::Packets) == 1).await;
    third.follow(second);
    second.end_pipelines();
    wait_for(|| third.asked(DataPath::Packets) == 1).await;
    writer.write(&bytes[BEFORE + PACKET..]).await.unwrap();
    writer.close().await.unwrap();
    assert!(third.bytes() == bytes);
    assert_eq!((second.transfers(), third.transfers()), (1, 1));
}

/// As one does behind which another is slow to store what has come.
#[tokio::test]
async fn a_writer_says_that_it_is_there_while_the_end_of_a_block_waits_for_what_is_before_it() {
    let datanode = FakeDatanode::start(Breaks::AtOnce).await;
    let namenode = FakeNamenode::start(vec![datanode.info("one")]).await;
    // Heartbeats each half second.
    let fs = client_with(&namenode, "packets", &[("dfs.client.socket-timeout", "1000")]);
    datanode.await_heartbeats(2);
    write(&fs, "/file", b"the last data").await;
    assert!(datanode.bytes() == b"the last data");
    assert_eq!(namenode.heard(), Heard::default());
}

/// As one does behind which another is slow all the time: it acknowledges one packet after the other, and hears nothing else.
#[tokio::test]
async fn a_writer_says_that_it_is_there_also_while_acknowledgements_come_one_by_one() {
    let datanode = FakeDatanode::start(Breaks::AtOnce).await;
    let namenode = FakeNamenode::start(vec![datanode.info("one")]).await;
    // Heartbeats each half second, and packets of a chunk.
    let settings = [("dfs.client.socket-timeout", "1000"), ("dfs.client-write-packet-size", "1024")];
    let fs = client_with(&namenode, "packets", &settings);
    datanode.takes(Duration::from_millis(300));
    let bytes = content(10, 6 * 512);
    write(&fs, "/file", &bytes).await;
    assert!(datanode.bytes() == bytes);
    assert!(datanode.heartbeats() > 1, "{} heartbeats", datanode.heartbeats());
    assert_eq!(namenode.heard(), Heard::default());
}

/// It answers all the time, and would keep the writer waiting for ever.
#[tokio::test]
async fn a_datanode_that_grants_no_more_memory_hears_of_its_writer_and_gets_packets() {
    let datanode = FakeDatanode::start(Breaks::WithoutMore).await;
    let namenode = FakeNamenode::start(vec![datanode.info("one")]).await;
    // Heartbeats each half second; each datanode of a pipeline adds five to the waits.
    let settings = [("dfs.client.socket-timeout", "1000"), ("dfs.datanode.socket.write.timeout", "100")];
    let fs = client_with(&namenode, "one-sided,packets", &settings);
    let bytes = content(9, BLOCK);
    tokio::time::timeout(WAIT, write(&fs, "/file", &bytes)).await.expect("the wait for memory has an end");
    assert!(datanode.bytes() == bytes, "what was acknowledged stays");
    assert!(datanode.heartbeats() > 2, "{} heartbeats", datanode.heartbeats());
    assert_eq!((datanode.asked(DataPath::OneSided), datanode.asked(DataPath::Packets)), (1, 1));
    assert_eq!(namenode.heard(), Heard { excluded: 0, abandoned: 0, recovered: 1 });
}

/// A datanode under many names, whose pipelines end again and again while nothing is on its way.
async fn idle_pipelines() -> (FakeDatanode, FakeNamenode) {
    let datanode = FakeDatanode::start(Breaks::AtOnce).await;
    let names = ["1", "2", "3", "4", "5", "6", "7", "8"];
    let namenode = FakeNamenode::start(names.map(|name| datanode.info(name)).to_vec()).await;
    (datanode, namenode)
}

#[tokio::test]
async fn pipelines_that_break_while_nothing_is_on_its_way_are_made_anew_as_long_as_there_is_progress() {
    let (datanode, namenode) = idle_pipelines().await;
    let fs = client(&namenode, "packets");
    let bytes = content(4, 7 * 700);
    let mut writer = create(&fs, "/log").await;
    for (number, record) in bytes.chunks(700).enumerate() {
        writer.write(record).await.unwrap();
        writer.hflush().await.unwrap();
        datanode.end_pipelines();
        wait_for(|| datanode.asked(DataPath::Packets) == number + 2).await;
    }
    writer.close().await.unwrap();
    assert!(datanode.bytes() == bytes);
    assert_eq!(namenode.heard().recovered, 7);
}

#[tokio::test]
async fn a_pipeline_that_breaks_again_and_again_without_progress_is_given_up() {
    let (datanode, namenode) = idle_pipelines().await;
    let fs = client(&namenode, "packets");
    let mut writer = create(&fs, "/log").await;
    writer.write(b"once").await.unwrap();
    writer.hflush().await.unwrap();
    for number in 0..5 {
        datanode.end_pipelines();
        wait_for(|| datanode.asked(DataPath::Packets) == number + 2).await;
    }
    datanode.end_pipelines();
    wait_for(|| writer.progress.borrow().failed.is_some()).await;
    assert!(matches!(writer.hflush().await, Err(Error::PipelineSetup { attempts: 5, .. })));
}

#[tokio::test]
async fn flushes_that_are_dropped_again_and_again_do_not_pile_up() {
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
async fn a_close_that_is_dropped_when_everything_is_handed_over_goes_on() {
    let datanode = FakeDatanode::start(Breaks::AtOnce).await;
    let namenode = FakeNamenode::start(vec![datanode.info("one")]).await;
    namenode.refuse_to_complete(5);
    let mut writer = create(&client(&namenode, "packets"), "/file").await;
    writer.write(b"handed over").await.unwrap();
    assert!(writer.close().now_or_never().is_none(), "the datanode has had no time");
    wait_for(|| namenode.completed() == 1).await;
    assert!(datanode.bytes() == b"handed over");
}

#[tokio::test]
async fn a_file_that_is_opened_again_when_nobody_waits_for_it_any_more_is_closed() {
    let datanode = FakeDatanode::start(Breaks::AtOnce).await;
    let namenode = FakeNamenode::start(vec![datanode.info("one")]).await;
    namenode.has_file(BLOCK / 2, 2);
    let fs = client(&namenode, "packets");
    assert!(fs.append("/file").now_or_never().is_none(), "the namenode has had no time");
    wait_for(|| namenode.completed() == 1).await;
}

#[tokio::test]
async fn a_file_that_cannot_be_continued_after_all_is_closed_again() {
    let datanode = FakeDatanode::start(Breaks::AtOnce).await;
    let namenode = FakeNamenode::start(vec![datanode.info("one")]).await;
    // Full: nothing goes behind that.
    namenode.has_file(BLOCK, 2);
    let refused = client(&namenode, "packets").append("/file").await.map(drop).unwrap_err();
    assert!(matches!(refused, Error::Answer { method: "append", .. }), "{refused}");
    assert_eq!(namenode.completed(), 1);
}
