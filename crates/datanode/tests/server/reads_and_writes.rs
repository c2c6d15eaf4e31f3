use hearth_types::Block;
use hearth_wire::data_transfer::{BlockChecksum, BlockChecksumKind, BlockChecksumOptions, Operation, Stage, Status};
use hearth_wire::proto::hdfs::received_deleted_block_info_proto::BlockStatus;

use super::client::{Writer, block, content, open, read, read_on, read_request, write, write_request};
use super::namenode::{FakeNamenode, invalidate};
use super::{scratch, start_datanode};

const SIZES: [usize; 9] = [0, 1, 511, 512, 513, 65_535, 65_536, 200_000, 3_000_001];

async fn round_trips(settings: &[(&str, &str)]) {
    let namenode = FakeNamenode::start().await;
    let dir = scratch();
    let datanode = start_datanode(&namenode, dir.path(), settings).await;
    for (id, size) in SIZES.into_iter().enumerate() {
        let data = content(size, id as u64);
        let block = block(id as i64 + 1, 1001, 128 << 20);
        write(&datanode, &[], &block, &data).await;
        let finalized = Block { length: size as u64, ..block.block };
        namenode.wait_event(BlockStatus::Received, finalized).await;

        assert!(read(&datanode, &block, 0, Some(size as u64)).await.unwrap() == data, "{size} bytes");
        assert!(read(&datanode, &block, 0, None).await.unwrap() == data, "{size} bytes, to the end");
        // Several reads on one connection.
        let mut connection = open(datanode.addresses().transfer).await;
        for (offset, length) in [(0, 1), (1, 511), (512, 512), (700, 70_000), (size / 2, size / 3)] {
            let (offset, length) = (offset.min(size), length.min(size - offset.min(size)));
            let request = read_request(&block, offset as u64, Some(length as u64));
            let bytes = read_on(&mut connection, request).await.unwrap();
            assert!(bytes == data[offset..offset + length], "{length} bytes at {offset} of {size}");
        }
        let mut unchecked = read_request(&block, 0, Some(size as u64));
        unchecked.send_checksums = false;
        assert!(read_on(&mut connection, unchecked).await.unwrap() == data);

        let refused = read(&datanode, &block, 0, Some(size as u64 + 1)).await.unwrap_err();
        assert_eq!(refused.status, Status::Error);
    }
    let missing = read(&datanode, &block(999, 1001, 0), 0, None).await.unwrap_err();
    assert_eq!(missing.status, Status::Error);
    let newer = read(&datanode, &block(3, 1002, 0), 0, None).await.unwrap_err();
    assert_eq!(newer.status, Status::Error);
    assert!(read(&datanode, &block(3, 1000, 0), 0, None).await.is_ok(), "a higher stamp than requested is accepted");
    datanode.shutdown(true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn written_blocks_are_read_back() {
    round_trips(&[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn written_blocks_are_read_without_sendfile() {
    round_trips(&[("dfs.datanode.transferTo.allowed", "false"), ("hearth.storage.engine", "file")]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_see_acknowledged_bytes_of_open_block() {
    let namenode = FakeNamenode::start().await;
    let dir = scratch();
    let datanode = start_datanode(&namenode, dir.path(), &[]).await;
    let block = block(1, 1001, 128 << 20);
    let data = content(300_000, 1);
    let request = write_request(&block, Stage::PipelineSetupCreate, Vec::new());
    let mut writer = Writer::new(datanode.addresses().transfer, request).await;
    namenode.wait("RECEIVING", |told| told.events.iter().any(|(status, _)| *status == BlockStatus::Receiving)).await;
    let mut at = 0;
    for (index, length) in [100usize, 412, 1, 511, 70_000, 512, 9_999].into_iter().enumerate() {
        // Like Java's client: a packet begins at the start of the chunk in which the previous packet ended.
        let start = at / 512 * 512;
        writer.offset = start as u64;
        writer.send(&data[start..at + length], index % 2 == 0).await;
        at += length;
        let ack = writer.ack().await;
        assert!(ack.is_success() && ack.seqno == index as i64);
        assert!(read(&datanode, &block, 0, Some(at as u64)).await.unwrap() == data[..at]);
        assert!(read(&datanode, &block, 0, None).await.unwrap() == data[..at]);
    }
    // An hsync without data, and a heartbeat.
    writer.offset = at as u64;
    writer.send_with(&[], &[], true).await;
    assert!(writer.ack().await.is_success());
    let seqno = std::mem::replace(&mut writer.seqno, -1);
    writer.offset = 0;
    writer.send_with(&[], &[], false).await;
    assert_eq!(writer.ack().await.seqno, -1);
    (writer.seqno, writer.offset) = (seqno, at as u64);
    writer.send_last().await;
    assert!(writer.ack().await.is_success());
    assert!(read(&datanode, &block, 0, None).await.unwrap() == data[..at]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn corrupt_packets_are_refused_and_good_data_stays() {
    let namenode = FakeNamenode::start().await;
    let dir = scratch();
    let datanode = start_datanode(&namenode, dir.path(), &[]).await;
    let block = block(1, 1001, 128 << 20);
    let data = content(2000, 1);
    let request = write_request(&block, Stage::PipelineSetupCreate, Vec::new());
    let mut writer = Writer::new(datanode.addresses().transfer, request).await;
    writer.send(&data[..1024], false).await;
    writer.send_with(&data[1024..2000], &[0; 8], false).await;
    assert!(writer.ack().await.is_success());
    let ack = writer.ack().await;
    assert_eq!((ack.seqno, ack.replies[0].status()), (1, Status::ErrorChecksum));
    assert!(writer.receiver.receive_ack().await.is_err(), "the connection ends");
    assert!(read(&datanode, &block, 0, None).await.unwrap() == data[..1024]);
    assert!(namenode.told(|told| told.events.iter().all(|(status, _)| *status != BlockStatus::Received)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn block_checksums_match() {
    let namenode = FakeNamenode::start().await;
    let dir = scratch();
    let datanode = start_datanode(&namenode, dir.path(), &[]).await;
    let block = block(1, 1001, 128 << 20);
    let data: Vec<u8> = (0..1000u32).map(|i| i as u8).collect();
    write(&datanode, &[], &block, &data).await;
    for (kind, expected) in
        [(BlockChecksumKind::Md5Crc, "7cf73382ad23bfc157d4ce3bef140bcb"), (BlockChecksumKind::CompositeCrc, "1a318e30")]
    {
        let (sender, mut receiver) = open(datanode.addresses().transfer).await;
        let mut asked = block.clone();
        asked.block.length = 1000;
        let options = BlockChecksumOptions { kind, stripe_length: 0 };
        let request = BlockChecksum { block: asked, token: Default::default(), options };
        sender.send_operation(&Operation::BlockChecksum(request)).await.unwrap();
        let answer = receiver.receive_response().await.unwrap();
        let checksum = answer.block_checksum.unwrap();
        let hex: String = checksum.checksum.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, expected);
        assert_eq!((checksum.bytes_per_crc, checksum.crcs), (512, 2));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_survive_restart_until_invalidated() {
    let namenode = FakeNamenode::start().await;
    let dir = scratch();
    let datanode = start_datanode(&namenode, dir.path(), &[]).await;
    let data = content(100_000, 3);
    for id in 1..=5 {
        write(&datanode, &[], &block(id, 1001, 128 << 20), &data).await;
    }
    let left = datanode.shutdown(true).await;
    assert_eq!((left.replicas_left, left.failures), (0, 0));
    drop(datanode);
    let datanode = start_datanode(&namenode, dir.path(), &[]).await;
    namenode.wait("a report of all five", |told| told.full_report == Some(5)).await;
    assert!(read(&datanode, &block(4, 1001, 0), 0, None).await.unwrap() == data);

    let gone = Block { length: 100_000, ..block(4, 1001, 0).block };
    let other_stamp = block(5, 999, 0).block;
    namenode.told(|told| told.commands.push_back(invalidate(&[gone, other_stamp])));
    namenode.wait_event(BlockStatus::Deleted, gone).await;
    assert!(read(&datanode, &block(4, 1001, 0), 0, None).await.is_err());
    assert!(read(&datanode, &block(5, 1001, 0), 0, None).await.is_ok(), "another stamp is another block");
}

/// The DataNode sends a heartbeat once an hour. Clients wait for the event to close their files.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_report_is_sent_again_before_the_next_heartbeat() {
    let namenode = FakeNamenode::start().await;
    let dir = scratch();
    let datanode = start_datanode(&namenode, dir.path(), &[("dfs.heartbeat.interval", "1h")]).await;
    namenode.told(|told| told.failing_reports = 2);
    let new = block(1, 1001, 128 << 20);
    write(&datanode, &[], &new, &content(1000, 1)).await;
    let finalized = Block { length: 1000, ..new.block };
    namenode.wait_event(BlockStatus::Received, finalized).await;
    let (failing, received) = namenode.told(|told| {
        let received = told.events.iter().filter(|event| **event == (BlockStatus::Received, finalized)).count();
        (told.failing_reports, received)
    });
    assert_eq!((failing, received), (0, 1));
}
