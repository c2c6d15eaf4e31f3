//! A disk that does not respond delays the reads from it, and nothing else.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hearth_datanode::DatanodeOptions;
use hearth_protocol::rpc::{RpcClient, RpcClientOptions};
use hearth_types::Block;
use hearth_wire::proto::hdfs::received_deleted_block_info_proto::BlockStatus;
use hearth_wire::proto::hdfs::{
    GetVolumeReportRequestProto, GetVolumeReportResponseProto, TriggerBlockReportRequestProto,
    TriggerBlockReportResponseProto,
};
use hearth_wire::rpc::protocols;
use rustix::fs::{Advice, CWD, FileType, Mode, OFlags, fadvise, mknodat, open};

use super::client::{WAIT, block, content, read, write};
use super::namenode::FakeNamenode;
use super::one_sided_writes::figure;
use super::pages::page;
use super::recovery::ipc;
use super::{many, scratch, start_datanode, start_datanode_with};

/// Returns the file named `name` somewhere below `dir`.
fn find(dir: &Path, name: &str) -> Option<PathBuf> {
    fs::read_dir(dir).ok()?.flatten().find_map(|entry| {
        let path = entry.path();
        if path.is_dir() { find(&path, name) } else { (entry.file_name() == name).then_some(path) }
    })
}

/// Simulates a disk that does not respond: opening the file for reading blocks until this is dropped.
struct Hanging {
    path: PathBuf,
    aside: PathBuf,
}

impl Hanging {
    fn in_place_of(path: PathBuf) -> Self {
        let aside = path.with_extension("aside");
        fs::rename(&path, &aside).unwrap();
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        Self { path, aside }
    }
}

impl Drop for Hanging {
    fn drop(&mut self) {
        // A pipe's readers continue when a writer opens it, and find its end when the writer closes it. It is not
        // opened after that.
        let writer = open(&self.path, OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty());
        let _ = fs::rename(&self.aside, &self.path);
        drop(writer);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hanging_disk_delays_only_its_readers() {
    let (namenode, dir) = (FakeNamenode::start().await, scratch());
    let settings = [("hearth.storage.engine", "file")];
    let change = |options: &mut DatanodeOptions| options.report_list_timeout = Duration::from_secs(1);
    let datanode = Arc::new(start_datanode_with(change, &namenode, dir.path(), &settings).await);
    namenode.wait("the first full report", |told| told.full_report.is_some()).await;
    for id in 1..=3 {
        write(&datanode, &[], &block(id, 1001, 0), &content(300_000, id as u64)).await;
    }
    let meta = find(dir.path(), "blk_1_1001.meta").expect("it is on disk");
    let hanging = Hanging::in_place_of(meta);
    // More reads than there are serving threads.
    let mut waiting = Vec::new();
    for _ in 0..4 {
        let datanode = datanode.clone();
        waiting.push(tokio::spawn(async move { read(&datanode, &block(1, 1001, 0), 0, None).await.ok() }));
    }
    let mut many = many::Client::tcp(&datanode).await;
    many.ask(&[many::wanted(1, 0, 1000), many::wanted(2, 0, 1000)]).await;
    let (request, answer) = tokio::time::timeout(WAIT, many.answer()).await.expect("the other disk's answer comes");
    assert_eq!(request, 1);
    assert!(answer.is_ok());
    // Time for the reads to end by mistake: they wait in the kernel.
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(waiting.iter().all(|reading| !reading.is_finished()));

    let others = async {
        for id in [2, 3] {
            assert!(read(&datanode, &block(id, 1001, 0), 0, None).await.unwrap() == content(300_000, id as u64));
        }
    };
    tokio::time::timeout(WAIT, others).await.expect("others are read");
    // Repeated requests for monitoring pages: each would block one of the serving threads.
    let watching = async {
        for _ in 0..4 {
            let beans = page(&datanode, "/jmx").await;
            assert!(beans.contains("\\\"numBlocks\\\":3,"), "{beans}");
            assert!(page(&datanode, "/").await.contains("Hearth DataNode"));
            assert_eq!(figure(&datanode, "hearth_replicas").await, 3);
        }
        let client = RpcClient::new(RpcClientOptions::default());
        let target = ipc(&datanode, protocols::CLIENT_DATANODE);
        let volumes: GetVolumeReportResponseProto =
            client.call(&target, "getVolumeReport", &GetVolumeReportRequestProto {}).await.unwrap();
        assert_eq!(volumes.volume_info[0].num_blocks, 3);
    };
    tokio::time::timeout(WAIT, watching).await.expect("pages are shown");
    // A full report has to wait for the replica whose files are being opened. Heartbeats do not wait with it, and
    // reports of new replicas wait for a limited time.
    namenode.told(|told| told.full_report = None);
    let client = RpcClient::new(RpcClientOptions::default());
    let request = TriggerBlockReportRequestProto { incremental: false, nn_address: None };
    let _: TriggerBlockReportResponseProto =
        client.call(&ipc(&datanode, protocols::CLIENT_DATANODE), "triggerBlockReport", &request).await.unwrap();
    let beats = namenode.told(|told| told.heartbeats);
    namenode.wait("three more heartbeats", |told| told.heartbeats >= beats + 3).await;
    for id in 4..=6 {
        write(&datanode, &[], &block(id, 1001, 0), &content(300_000, id as u64)).await;
        namenode.wait_event(BlockStatus::Received, Block { length: 300_000, ..block(id, 1001, 0).block }).await;
    }
    assert!(namenode.told(|told| told.full_report.is_none()));

    drop(hanging);
    namenode.wait("the full report", |told| told.full_report.is_some()).await;
    // From a new list. A read that found no meta file may have removed the first replica.
    assert!(namenode.told(|told| matches!(told.full_report, Some(5..=6))));
    // Reads that had opened the pipe find no meta file; others may find the file again.
    for reading in waiting {
        let read = tokio::time::timeout(WAIT, reading).await.expect("the disk answers").unwrap();
        assert!(read.is_none_or(|data| data == content(300_000, 1)));
    }
    let (request, answer) = tokio::time::timeout(WAIT, many.answer()).await.expect("the disk answers");
    assert_eq!(request, 0);
    assert!(answer.map_or(true, |(_, data)| data == content(300_000, 1)[..1024]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn uncached_replicas_are_read_whole_and_partly() {
    let namenode = FakeNamenode::start().await;
    // On a disk, unless temporary files are in memory here.
    let dir = tempfile::tempdir().unwrap();
    for transfer_to in ["true", "false"] {
        let dir = dir.path().join(transfer_to);
        let settings = [("hearth.storage.engine", "file"), ("dfs.datanode.transferTo.allowed", transfer_to)];
        let datanode = start_datanode(&namenode, &dir, &settings).await;
        let data = content(5_000_003, 1);
        write(&datanode, &[], &block(1, 1001, 0), &data).await;
        let files = ["blk_1", "blk_1_1001.meta"].map(|name| find(&dir, name).expect("it is on disk"));
        for (offset, length) in [(0, 5_000_003), (0, 100), (700_000, 3_000_000), (4_999_000, 1003), (4_000_000, 65_536)]
        {
            for path in &files {
                let file = fs::File::open(path).unwrap();
                file.sync_all().unwrap();
                fadvise(&file, 0, None, Advice::DontNeed).unwrap();
            }
            let read = read(&datanode, &block(1, 1001, 0), offset, Some(length)).await.unwrap();
            assert!(read == data[offset as usize..][..length as usize], "{length} bytes from {offset}");
        }
    }
}
