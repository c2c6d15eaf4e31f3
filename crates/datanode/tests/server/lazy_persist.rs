use hearth_types::{Block, StorageType};
use hearth_wire::data_transfer::Stage;
use hearth_wire::proto::hdfs::received_deleted_block_info_proto::BlockStatus;

use super::client::{Writer, block, content, read, write_request};
use super::namenode::FakeNamenode;
use super::{scratch, start_datanode};

/// As Apache's client writes a LAZY_PERSIST file of one replica: for RAM_DISK, and without checksums.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_written_to_the_ram_disk_moves_to_the_disk() {
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
        // Packets end where chunks do.
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
        for storage_type in [StorageType::RamDisk, StorageType::Disk] {
            let event = (BlockStatus::Received, storage_type, finalized);
            namenode.wait(&format!("{event:?}"), |told| told.storage_events.contains(&event)).await;
        }
        assert!(read(&datanode, &block, 0, Some(size as u64)).await.unwrap() == data, "after the move");
    }
    assert!(!namenode.told(|told| told.events.iter().any(|(status, _)| *status == BlockStatus::Deleted)));
    datanode.shutdown(true).await;
}
