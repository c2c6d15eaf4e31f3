//! Reports to a NameNode when files or directories of a storage directory are gone. See
//! docs/compatibility/volume-errors.md.

use std::fs;
use std::path::{Path, PathBuf};

use hearth_testkit::files_below;
use hearth_wire::proto::hdfs::received_deleted_block_info_proto::BlockStatus;

use super::client::{block, content, read, write};
use super::namenode::FakeNamenode;
use super::{scratch, start_datanode};

fn file(dir: &Path, name: &str) -> PathBuf {
    let found = files_below(dir).into_iter().find(|path| path.file_name().is_some_and(|found| found == name));
    found.unwrap_or_else(|| panic!("{name} is on disk"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replica_without_files_is_reported_as_deleted() {
    let namenode = FakeNamenode::start().await;
    let dir = scratch();
    // Files are opened for each read.
    let settings = [("hearth.storage.engine", "file"), ("hearth.storage.open.max", "0")];
    let datanode = start_datanode(&namenode, dir.path(), &settings).await;
    let blocks = [1, 2, 3].map(|id| block(id, 1001, 100_000));
    for block in &blocks {
        write(&datanode, &[], block, &content(100_000, block.id().0 as u64)).await;
    }
    for name in ["blk_1", "blk_1_1001.meta", "blk_2_1001.meta"] {
        fs::remove_file(file(dir.path(), name)).unwrap();
    }
    for gone in &blocks[..2] {
        read(&datanode, gone, 0, None).await.unwrap_err();
    }
    namenode.wait_event(BlockStatus::Deleted, blocks[0].block).await;
    namenode
        .wait("the incomplete replica to be reported", |told| {
            told.bad.iter().flat_map(|bad| &bad.blocks).any(|bad| bad.b.block_id == 2)
        })
        .await;
    namenode.told(|told| {
        assert!(!told.events.iter().any(|(status, block)| *status == BlockStatus::Deleted && block.id.0 != 1));
        assert!(!told.bad.iter().flat_map(|bad| &bad.blocks).any(|bad| bad.b.block_id != 2));
    });
    assert!(read(&datanode, &blocks[2], 0, None).await.unwrap() == content(100_000, 3));
    // Written again, the block is there.
    write(&datanode, &[], &blocks[0], &content(100_000, 1)).await;
    assert!(read(&datanode, &blocks[0], 0, None).await.unwrap() == content(100_000, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn storage_directory_replaced_by_file_fails_volume() {
    let namenode = FakeNamenode::start().await;
    let dir = scratch();
    let [first, second] = ["one", "two"].map(|name| dir.path().join(name));
    let both = format!("file://localhost{},{}", first.display(), second.display());
    let settings = [
        ("dfs.datanode.data.dir", both.as_str()),
        ("dfs.datanode.failed.volumes.tolerated", "1"),
        ("hearth.storage.engine", "file"),
    ];
    let datanode = start_datanode(&namenode, dir.path(), &settings).await;
    let blocks: Vec<_> = (1..=4).map(|id| block(id, 1001, 100_000)).collect();
    for block in &blocks {
        write(&datanode, &[], block, &content(100_000, block.id().0 as u64)).await;
    }
    let is_on_second = |id: i64| {
        let name = format!("blk_{id}");
        files_below(&second).iter().any(|path| path.file_name().is_some_and(|found| *found == *name))
    };
    let stay: Vec<i64> = (1..=4).filter(|id| is_on_second(*id)).collect();
    assert!((1..=3).contains(&stay.len()), "{stay:?}");
    let storages = namenode.told(|told| told.storages);
    assert_eq!(storages, 2);

    fs::rename(&first, dir.path().join("aside")).unwrap();
    fs::write(&first, b"no directory").unwrap();
    namenode.wait("one storage in heartbeats", |told| told.storages == 1 && told.failed_volumes == 1).await;
    for id in stay {
        assert!(read(&datanode, &blocks[id as usize - 1], 0, None).await.unwrap() == content(100_000, id as u64));
    }
    let new = block(9, 1001, 100_000);
    write(&datanode, &[], &new, &content(100_000, 9)).await;
    assert!(read(&datanode, &new, 0, None).await.unwrap() == content(100_000, 9));
    namenode.told(|told| assert!(!told.events.iter().any(|(status, _)| *status == BlockStatus::Deleted)));
}
