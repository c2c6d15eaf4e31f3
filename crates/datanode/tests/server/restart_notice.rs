//! A DataNode that is about to restart for an upgrade: its writers are notified, and can continue after the restart.

use hearth_protocol::rpc::{RpcClient, RpcClientOptions};
use hearth_types::GenerationStamp;
use hearth_wire::data_transfer::{PipelineAck, Stage, Status, UNKNOWN_SEQNO};
use hearth_wire::proto::hdfs::{ShutdownDatanodeRequestProto, ShutdownDatanodeResponseProto};
use hearth_wire::rpc::protocols;

use super::client::{WAIT, Writer, block, content, read, target, write_request};
use super::namenode::FakeNamenode;
use super::recovery::ipc;
use super::{scratch, start_datanode};

async fn ask_to_end(datanode: &hearth_datanode::Handle, for_upgrade: bool) {
    let client = RpcClient::new(RpcClientOptions::default());
    let target = ipc(datanode, protocols::CLIENT_DATANODE);
    let request = ShutdownDatanodeRequestProto { for_upgrade };
    let _: ShutdownDatanodeResponseProto = client.call(&target, "shutdownDatanode", &request).await.unwrap();
}

fn statuses(ack: &PipelineAck) -> Vec<Status> {
    ack.replies.iter().map(|reply| reply.status()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_continue_after_announced_restart() {
    let namenode = FakeNamenode::start().await;
    let dirs = [scratch(), scratch()];
    let first = start_datanode(&namenode, dirs[0].path(), &[]).await;
    let second = start_datanode(&namenode, dirs[1].path(), &[]).await;
    let data = content(300_000, 1);
    let (alone, behind) = (block(1, 1001, 128 << 20), block(2, 1001, 128 << 20));
    let request = write_request(&alone, Stage::PipelineSetupCreate, vec![]);
    let mut writer = Writer::new(second.addresses().transfer, request).await;
    let request = write_request(&behind, Stage::PipelineSetupCreate, vec![target(&second)]);
    let mut through = Writer::new(first.addresses().transfer, request).await;
    for writer in [&mut writer, &mut through] {
        writer.send(&data[..100_000], false).await;
        assert!(writer.ack().await.is_success());
    }

    ask_to_end(&second, true).await;
    let told = tokio::time::timeout(WAIT, writer.ack()).await.expect("the writer is notified");
    assert_eq!((told.seqno, statuses(&told)), (UNKNOWN_SEQNO, vec![Status::OobRestart]));
    let told =
        tokio::time::timeout(WAIT, through.ack()).await.expect("the writer through another datanode is notified");
    assert_eq!((told.seqno, statuses(&told)), (UNKNOWN_SEQNO, vec![Status::Success, Status::OobRestart]));
    tokio::time::timeout(WAIT, second.ended()).await.expect("the datanode then stops");
    drop((writer, through));
    second.shutdown(true).await;
    drop(second);

    // After its restart it continues the write.
    let second = start_datanode(&namenode, dirs[1].path(), &[]).await;
    let mut request = write_request(&alone, Stage::PipelineSetupStreamingRecovery, vec![]);
    request.latest_stamp = GenerationStamp(1002);
    (request.bytes_received_min, request.bytes_received_max) = (100_000, 100_000);
    let writer = Writer::new(second.addresses().transfer, request).await;
    let rest = 100_000 / 512 * 512;
    let writer = Writer { offset: rest as u64, ..writer };
    writer.finish(&data[rest..], 1).await;
    let recovered = block(1, 1002, 0);
    assert!(read(&second, &recovered, 0, None).await.unwrap() == data);

    // A writer with more acknowledged bytes than the replica has cannot continue.
    let mut request = write_request(&behind, Stage::PipelineSetupStreamingRecovery, vec![]);
    request.latest_stamp = GenerationStamp(1002);
    (request.bytes_received_min, request.bytes_received_max) = (100_001, 200_000);
    let (_, answer) = Writer::ask(second.addresses().transfer, request).await;
    assert_eq!(answer.status, Status::Error, "{answer:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_shutdown_sends_no_restart_notice() {
    let namenode = FakeNamenode::start().await;
    let dir = scratch();
    let datanode = start_datanode(&namenode, dir.path(), &[]).await;
    let request = write_request(&block(1, 1001, 128 << 20), Stage::PipelineSetupCreate, vec![]);
    let mut writer = Writer::new(datanode.addresses().transfer, request).await;
    ask_to_end(&datanode, false).await;
    tokio::time::timeout(WAIT, datanode.ended()).await.expect("it ends");
    datanode.shutdown(true).await;
    assert!(writer.receiver.receive_ack().await.is_err());
}
