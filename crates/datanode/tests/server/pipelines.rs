use hearth_testkit::until;
use hearth_types::GenerationStamp;
use hearth_wire::data_transfer::{Operation, Stage, Status, TransferBlock};
use hearth_wire::proto::hdfs::received_deleted_block_info_proto::BlockStatus;

use super::client::{Writer, block, content, open, read, target, write, write_request};
use super::namenode::FakeNamenode;
use super::{scratch, start_datanode};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_datanode_of_pipeline_has_all_bytes() {
    let namenode = FakeNamenode::start().await;
    let dirs = [scratch(), scratch(), scratch(), scratch()];
    let mut nodes = Vec::new();
    for dir in &dirs {
        nodes.push(start_datanode(&namenode, dir.path(), &[]).await);
    }
    for (id, size) in [(1, 0usize), (2, 1), (3, 70_000), (4, 2_000_000)] {
        let block = block(id, 1001, 128 << 20);
        let data = content(size, id as u64);
        write(&nodes[0], &[&nodes[1], &nodes[2], &nodes[3]], &block, &data).await;
        for node in &nodes {
            assert!(read(node, &block, 0, None).await.unwrap() == data);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreachable_datanode_is_named_as_bad_link() {
    let namenode = FakeNamenode::start().await;
    let dirs = [scratch(), scratch()];
    let first = start_datanode(&namenode, dirs[0].path(), &[]).await;
    let second = start_datanode(&namenode, dirs[1].path(), &[]).await;
    let mut gone = target(&second);
    // A port without a listener, which no other process can take during the test.
    let taken = tokio::net::TcpSocket::new_v4().unwrap();
    taken.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    gone.datanode.id.transfer_port = taken.local_addr().unwrap().port();
    let request = write_request(&block(1, 1001, 0), Stage::PipelineSetupCreate, vec![target(&second), gone.clone()]);
    let (_, answer) = Writer::ask(first.addresses().transfer, request).await;
    assert_eq!(answer.status, Status::Error);
    assert_eq!(answer.first_bad_link.as_deref(), Some(gone.datanode.id.transfer_address().as_str()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_pipeline_is_reported_and_recovered() {
    let namenode = FakeNamenode::start().await;
    let dirs = [scratch(), scratch(), scratch()];
    let first = start_datanode(&namenode, dirs[0].path(), &[]).await;
    let second = start_datanode(&namenode, dirs[1].path(), &[]).await;
    let third = start_datanode(&namenode, dirs[2].path(), &[]).await;
    let block = block(1, 1001, 128 << 20);
    let data = content(400_000, 1);
    let request = write_request(&block, Stage::PipelineSetupCreate, vec![target(&second)]);
    let mut writer = Writer::new(first.addresses().transfer, request).await;
    writer.send(&data[..102_400], false).await;
    assert!(writer.ack().await.is_success());
    second.shutdown(false).await;
    writer.send(&data[102_400..153_600], false).await;
    let ack = writer.ack().await;
    assert_eq!(ack.replies.iter().map(|reply| reply.status()).collect::<Vec<_>>(), [Status::Success, Status::Error]);
    drop(writer);

    // The first DataNode sends the acknowledged bytes to the third.
    let (sender, mut receiver) = open(first.addresses().transfer).await;
    let transfer = TransferBlock {
        block: block.clone(),
        token: Default::default(),
        client_name: "DFSClient_test".to_owned(),
        targets: vec![target(&third)],
    };
    sender.send_operation(&Operation::TransferBlock(transfer)).await.unwrap();
    let answer = receiver.receive_response().await.unwrap();
    assert_eq!(answer.status, Status::Success, "{answer:?}");

    // The pipeline continues with both, with a new stamp, from the acknowledged length.
    let mut request = write_request(&block, Stage::PipelineSetupStreamingRecovery, vec![target(&third)]);
    request.latest_stamp = GenerationStamp(1002);
    request.bytes_received_min = 102_400;
    request.bytes_received_max = 153_600;
    Writer::new(first.addresses().transfer, request).await.finish(&data[102_400..], 2).await;
    for node in [&first, &third] {
        let mut asked = block.clone();
        asked.block.stamp = GenerationStamp(1002);
        assert!(read(node, &asked, 0, None).await.unwrap() == data);
    }
    let mut finalized = block.block;
    finalized.stamp = GenerationStamp(1002);
    finalized.length = data.len() as u64;
    namenode.wait_event(BlockStatus::Received, finalized).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn append_is_recovered_after_client_death() {
    let namenode = FakeNamenode::start().await;
    let dirs = [scratch(), scratch()];
    let first = start_datanode(&namenode, dirs[0].path(), &[]).await;
    let second = start_datanode(&namenode, dirs[1].path(), &[]).await;
    let data = content(10_000, 1);
    write(&first, &[&second], &block(1, 1001, 128 << 20), &data[..700]).await;

    // An append to a replica that ends within a chunk begins there: its first packet fills the chunk, and its CRC
    // covers the new bytes.
    let mut append = write_request(&block(1, 1001, 0), Stage::PipelineSetupAppend, vec![target(&second)]);
    append.latest_stamp = GenerationStamp(1002);
    append.bytes_received_min = 700;
    let mut writer = Writer::new(first.addresses().transfer, append.clone()).await;
    writer.send(&data[700..1024], false).await;
    assert!(writer.ack().await.is_success());
    // A second append while the first runs is refused; the answer names this DataNode.
    let (_, refused) = Writer::ask(first.addresses().transfer, append).await;
    assert_ne!(refused.status, Status::Success);
    drop(writer);

    // The client reconnects: append recovery, then the rest.
    let mut recovery = write_request(&block(1, 1001, 0), Stage::PipelineSetupAppendRecovery, vec![target(&second)]);
    recovery.latest_stamp = GenerationStamp(1003);
    recovery.bytes_received_min = 1024;
    Writer::new(first.addresses().transfer, recovery).await.finish(&data[1024..], 2).await;

    // A close recovery only changes the stamp.
    let mut close = write_request(&block(1, 1003, 0), Stage::PipelineCloseRecovery, vec![target(&second)]);
    close.latest_stamp = GenerationStamp(1004);
    close.bytes_received_min = data.len() as u64;
    Writer::new(first.addresses().transfer, close).await;
    for node in [&first, &second] {
        // The DataNode finishes after its answer.
        until("the end of the recovery", async || {
            read(node, &block(1, 1004, 0), 0, None).await.is_ok_and(|bytes| bytes == data)
        })
        .await;
    }
}
