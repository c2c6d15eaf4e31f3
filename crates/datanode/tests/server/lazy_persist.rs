use std::path::Path;

use hearth_types::{Block, StorageType};
use hearth_wire::data_transfer::Stage;
use hearth_wire::proto::hdfs::received_deleted_block_info_proto::BlockStatus;

use super::client::{Writer, block, content, read, write_request};
use super::namenode::FakeNamenode;
use super::streams::walk;
use super::{scratch, start_datanode};

/// Returns true if the replica of a block is on the RAM_DISK below `dir`. The NameNode may not be notified of that: a
/// replica that moves before the report is reported once, from its new storage.
fn is_on_ram_disk(dir: &Path, id: i64) -> bool {
    walk(&dir.join("ram")).iter().any(|path| path.ends_with(&format!("/blk_{id}")))
}

/// Writes as Apache's client writes a LAZY_PERSIST file of one replica: for RAM_DISK, and without checksums.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ram_disk_replicas_move_to_disk() {
    let namenode = FakeNamenode::start().await;
    let dir = scratch();
    let directories = format!("[DISK]{0}/disk,[RAM_DISK]{0}/ram", dir.path().display());
    let settings = [("dfs.datanode.data.dir", &*directories), ("dfs.datanode.lazywriter.interval.sec", "1")];
    let datanode = start_datanode(&namenode, dir.path(), &settings).await;
    for (id, size) in [(1, 1), (2, 70_001), (3, 3_000_001)] {
        let data = content(size, id as u64);
        let block = block(id, 1001, 4 << 20);
        let mut request = write_request(&block, Stage::PipelineSetupCreate, Vec::new());
        request.storage_type = StorageType::RamDisk;
        request.allow_lazy_persist = true;
        let mut writer = Writer::new(datanode.addresses().transfer, request).await;
        // While it is being written it stays there.
        assert!(is_on_ram_disk(dir.path(), id), "{size} bytes");
        // Packets end on chunk boundaries.
        for piece in data.chunks(64 << 10) {
            writer.send_with(piece, &[], false).await;
        }
        writer.send_last().await;
        for seqno in 0..writer.seqno {
            let ack = writer.ack().await;
            assert!(ack.seqno == seqno && ack.is_success(), "{ack:?}");
        }
        assert!(read(&datanode, &block, 0, Some(size as u64)).await.unwrap() == data);
        let finalized = Block { length: size as u64, ..block.block };
        let event = (BlockStatus::Received, StorageType::Disk, finalized);
        namenode.wait(&format!("{event:?}"), |told| told.storage_events.contains(&event)).await;
        assert!(read(&datanode, &block, 0, Some(size as u64)).await.unwrap() == data, "after the move");
    }
    assert!(!namenode.told(|told| told.events.iter().any(|(status, _)| *status == BlockStatus::Deleted)));
    datanode.shutdown(true).await;
}

/// Apache's NameNode names a DISK for the blocks of LAZY_PERSIST files. The DataNode itself prefers its RAM_DISK while
/// `dfs.datanode.max.locked.memory` has room for another whole block.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lazy_persist_blocks_are_put_on_ram_disk() {
    const BLOCK: u64 = 4 << 20;
    let namenode = FakeNamenode::start().await;
    let dir = scratch();
    let directories = format!("[DISK]{0}/disk,[RAM_DISK]{0}/ram", dir.path().display());
    let settings = [
        ("dfs.datanode.data.dir", &*directories),
        ("dfs.datanode.max.locked.memory", "9m"),
        // Not before memory is short.
        ("dfs.datanode.lazywriter.interval.sec", "3600"),
    ];
    let datanode = start_datanode(&namenode, dir.path(), &settings).await;
    let request = |id, length, lazy| {
        let mut request = write_request(&block(id, 1001, length), Stage::PipelineSetupCreate, Vec::new());
        request.allow_lazy_persist = lazy;
        request
    };
    let data = content(1 << 20, 7);
    let is_received = async |id, on| {
        let finalized = Block { length: data.len() as u64, ..block(id, 1001, 0).block };
        let event = (BlockStatus::Received, on, finalized);
        namenode.wait(&format!("{event:?}"), |told| told.storage_events.contains(&event)).await;
    };
    let transfer = datanode.addresses().transfer;
    let write = async |id, length, lazy| Writer::new(transfer, request(id, length, lazy)).await.finish(&data, 1).await;
    for (id, length, lazy, on) in [
        (1, BLOCK, true, StorageType::RamDisk),
        // Not requested; not whole pages; more than the limit.
        (2, BLOCK, false, StorageType::Disk),
        (3, BLOCK + 1, true, StorageType::Disk),
        (4, 16 << 20, true, StorageType::Disk),
    ] {
        write(id, length, lazy).await;
        is_received(id, on).await;
    }
    // The last of these notified the lazy writer, which made room.
    is_received(1, StorageType::Disk).await;

    // Two blocks being written reserve their whole length, though they have no byte yet. A third finds no room.
    let first = Writer::new(transfer, request(5, BLOCK, true)).await;
    let second = Writer::new(transfer, request(6, BLOCK, true)).await;
    assert!(is_on_ram_disk(dir.path(), 5) && is_on_ram_disk(dir.path(), 6));
    write(7, BLOCK, true).await;
    is_received(7, StorageType::Disk).await;
    // From now on the lazy writer, which the third block woke, may move finalized replicas.
    for writer in [first, second] {
        writer.finish(&data, 1).await;
    }
    // The blocks are shorter than their reservations.
    let last = Writer::new(transfer, request(8, BLOCK, true)).await;
    assert!(is_on_ram_disk(dir.path(), 8));
    last.finish(&data, 1).await;
    for id in 1..=8 {
        let block = block(id, 1001, BLOCK);
        assert!(read(&datanode, &block, 0, Some(data.len() as u64)).await.unwrap() == data, "block {id}");
    }
    datanode.shutdown(true).await;
}
