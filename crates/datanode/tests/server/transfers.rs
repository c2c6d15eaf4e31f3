//! Copies from one DataNode to another that a NameNode orders, with memory for only some of them.

use hearth_datanode::Handle;
use hearth_types::{Block, DatanodeInfo, DatanodeUuid};
use hearth_wire::proto::hdfs::received_deleted_block_info_proto::BlockStatus;
use hearth_wire::proto::hdfs::{
    BlockCommandProto, DatanodeCommandProto, DatanodeInfosProto, StorageTypesProto, StorageUuidsProto,
    block_command_proto, datanode_command_proto,
};
use tokio::time::Instant;

use super::client::{block, content, read, target, write};
use super::namenode::{FakeNamenode, invalidate, with_blocks};
use super::one_sided_writes::figure;
use super::{scratch, start_datanode};

/// Builds the command that makes a DataNode send `blocks` to `to`.
pub fn transfer(blocks: &[Block], to: &Handle) -> DatanodeCommandProto {
    transfer_to(blocks, &target(to).datanode)
}

/// Like `transfer`, to the address in `target`.
pub fn transfer_to(blocks: &[Block], target: &DatanodeInfo) -> DatanodeCommandProto {
    let each = |_: &Block| DatanodeInfosProto { datanodes: vec![target.into()] };
    let command = BlockCommandProto {
        targets: blocks.iter().map(each).collect(),
        target_storage_uuids: blocks.iter().map(|_| StorageUuidsProto { storage_uuids: vec![String::new()] }).collect(),
        target_storage_types: blocks.iter().map(|_| StorageTypesProto { storage_types: vec![0] }).collect(),
        ..Default::default()
    };
    with_blocks(block_command_proto::Action::Transfer, blocks, command)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_without_memory_are_copied_between_disks() {
    // A NameNode each, so that a command reaches the intended DataNode.
    let namenodes = [FakeNamenode::start().await, FakeNamenode::start().await];
    let dirs = [scratch(), scratch()];
    let disks = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let mut nodes = Vec::new();
    for index in 0..2 {
        let disk = disks[index].path().display().to_string();
        // The first DataNode has no memory at all, the second has memory for the first few replicas.
        let settings = [("hearth.memory.limit", ["1k", "8m"][index]), ("dfs.datanode.data.dir", disk.as_str())];
        nodes.push(start_datanode(&namenodes[index], dirs[index].path(), &settings).await);
    }
    let mut finalized = Vec::new();
    for id in 1..=6 {
        // Whole pieces and parts of pieces, also of chunks.
        let size = (2 << 20) + [0, 1, 700, 4096, 512 << 10, 99_999][id as usize - 1];
        let stored = block(id, 1001, 128 << 20);
        write(&nodes[0], &[], &stored, &content(size, id as u64)).await;
        finalized.push(Block { length: size as u64, ..stored.block });
    }
    namenodes[0].told(|told| told.commands.push_back(transfer(&finalized, &nodes[1])));
    for copy in &finalized {
        namenodes[1].wait_event(BlockStatus::Received, *copy).await;
    }
    for copy in &finalized {
        let data = content(copy.length as usize, copy.id.0 as u64);
        assert!(read(&nodes[1], &block(copy.id.0, 1001, 0), 0, None).await.unwrap() == data, "{copy}");
    }
    let used = figure(&nodes[1], "hearth_memory_used_bytes").await;
    assert!((1..7 << 20).contains(&used), "copies leave a quarter of memory: {used}");
    // The copies evicted no replica, and none moved to disk halfway.
    assert_eq!(figure(&nodes[1], "hearth_memory_evictions").await, 0);
    assert_eq!(figure(&nodes[1], "hearth_memory_full").await, 0);
}

/// The DataNode sends a heartbeat once an hour: it receives the command because it polls for work.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_is_fetched_on_namenode_notification() {
    let namenodes = [FakeNamenode::start().await, FakeNamenode::start().await];
    namenodes[0].told(|told| told.answers_questions = true);
    let dirs = [scratch(), scratch()];
    let mut nodes = Vec::new();
    for index in 0..2 {
        nodes.push(start_datanode(&namenodes[index], dirs[index].path(), &[("dfs.heartbeat.interval", "1h")]).await);
    }
    for id in 1..=3 {
        let stored = block(id, 1001, 128 << 20);
        write(&nodes[0], &[], &stored, &content(1000, id as u64)).await;
        let finalized = Block { length: 1000, ..stored.block };
        namenodes[0].told(|told| told.commands.push_back(transfer(&[finalized], &nodes[1])));
        namenodes[1].wait_event(BlockStatus::Received, finalized).await;
    }
}

/// The target accepts connections, but sends nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unresponsive_target_delays_nothing_else() {
    let namenode = FakeNamenode::start().await;
    let dir = scratch();
    let node = start_datanode(&namenode, dir.path(), &[]).await;
    let mut stored = Vec::new();
    // More blocks than are copied at once, and one that is to be deleted.
    for id in 1..=71 {
        let new = block(id, 1001, 128 << 20);
        write(&node, &[], &new, &content(1000, id as u64)).await;
        stored.push(Block { length: 1000, ..new.block });
    }
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut target = target(&node).datanode;
    target.id.uuid = DatanodeUuid("silent".into());
    target.id.transfer_port = silent.local_addr().unwrap().port();
    namenode.told(|told| {
        told.commands.push_back(transfer_to(&stored[..70], &target));
        told.commands.push_back(invalidate(&stored[70..]));
    });
    namenode.wait_event(BlockStatus::Deleted, stored[70]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn registrations_are_limited_to_heartbeat_pace() {
    let namenode = FakeNamenode::start().await;
    let dir = scratch();
    let _node = start_datanode(&namenode, dir.path(), &[]).await;
    let register =
        || DatanodeCommandProto { cmd_type: datanode_command_proto::Type::Register as i32, ..Default::default() };
    let asking = async {
        loop {
            namenode.told(|told| {
                if told.commands.is_empty() {
                    told.commands.push_back(register());
                }
            });
            // The pace of the requests: the DataNode sets that of its answers.
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    };
    let began = Instant::now();
    // A few seconds: one for each heartbeat.
    let some = namenode.wait("five registrations", |told| told.registrations.len() >= 5);
    tokio::select! {
        () = asking => unreachable!("it goes on"),
        () = some => {}
    }
    let registrations = namenode.told(|told| told.registrations.len()) as u64;
    assert!(registrations <= began.elapsed().as_secs() + 3, "{registrations} in {:?}", began.elapsed());
}
