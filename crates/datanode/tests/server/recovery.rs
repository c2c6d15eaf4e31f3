use hearth_protocol::rpc::{RpcClient, RpcClientOptions, Target};
use hearth_types::{DatanodeInfo, GenerationStamp, LocatedBlock};
use hearth_wire::data_transfer::Stage;
use hearth_wire::proto::hdfs::{
    BlockRecoveryCommandProto, DatanodeCommandProto, GetReplicaVisibleLengthRequestProto,
    GetReplicaVisibleLengthResponseProto, RecoveringBlockProto, datanode_command_proto,
};
use hearth_wire::rpc::{exceptions, protocols};

use super::client::{Writer, block, content, read, target, write_request};
use super::namenode::FakeNamenode;
use super::{scratch, start_datanode};

pub fn ipc(handle: &hearth_datanode::Handle, protocol: &'static str) -> Target {
    Target { address: handle.addresses().ipc, protocol, user: "tester".into() }
}

async fn visible_length(
    handle: &hearth_datanode::Handle,
    block: &hearth_types::ExtendedBlock,
) -> Result<u64, hearth_protocol::rpc::RpcError> {
    let client = RpcClient::new(RpcClientOptions::default());
    let request = GetReplicaVisibleLengthRequestProto { block: block.into() };
    let target = ipc(handle, protocols::CLIENT_DATANODE);
    let answer: GetReplicaVisibleLengthResponseProto =
        client.call(&target, "getReplicaVisibleLength", &request).await?;
    Ok(answer.length)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn abandoned_block_is_recovered_to_one_length() {
    let namenode = FakeNamenode::start().await;
    let dirs = [scratch(), scratch()];
    let first = start_datanode(&namenode, dirs[0].path(), &[]).await;
    let second = start_datanode(&namenode, dirs[1].path(), &[]).await;
    let open = block(1, 1001, 128 << 20);
    let data = content(150_000, 1);
    let request = write_request(&open, Stage::PipelineSetupCreate, vec![target(&second)]);
    let mut writer = Writer::new(first.addresses().transfer, request).await;
    writer.send(&data[..100_000], false).await;
    assert!(writer.ack().await.is_success());
    assert_eq!(visible_length(&first, &open).await.unwrap(), 100_000);
    let missing = visible_length(&first, &block(2, 1001, 0)).await.unwrap_err();
    assert_eq!(missing.remote_class(), Some(exceptions::REPLICA_NOT_FOUND));

    let locations: Vec<DatanodeInfo> = [&first, &second].map(|node| target(node).datanode).to_vec();
    let located = LocatedBlock { locations, ..LocatedBlock::nowhere(open.clone()) };
    let recovering = RecoveringBlockProto {
        new_gen_stamp: 1005,
        block: (&located).into(),
        truncate_block: None,
        ec_policy: None,
        block_indices: None,
    };
    // Sent to the DataNode with the next heartbeat, which leads the recovery.
    namenode.told(|told| {
        told.commands.push_back(DatanodeCommandProto {
            cmd_type: datanode_command_proto::Type::BlockRecovery as i32,
            recovery_cmd: Some(BlockRecoveryCommandProto { blocks: vec![recovering] }),
            ..Default::default()
        });
    });
    namenode.wait("commitBlockSynchronization", |told| !told.synchronized.is_empty()).await;
    let commit = namenode.told(|told| told.synchronized.remove(0));
    assert_eq!((commit.new_gen_stamp, commit.new_length), (1005, 100_000));
    assert_eq!((commit.new_targets.len(), commit.new_target_storages.len()), (2, 2));
    assert!(commit.close_file && !commit.delete_block);

    let mut recovered = open.clone();
    recovered.block.stamp = GenerationStamp(1005);
    for node in [&first, &second] {
        assert!(read(node, &recovered, 0, None).await.unwrap() == data[..100_000]);
    }
    // The old writer is shut out permanently.
    assert!(writer.receiver.receive_ack().await.is_err());
}
