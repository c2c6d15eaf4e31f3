//! Replicas that a balancer moves from one DataNode to another: by a stream or into memory if the source supports it,
//! otherwise in packets.

use std::sync::atomic::Ordering;
use std::time::Duration;

use hearth_testkit::until;
use hearth_types::{Block, DatanodeInfo, StorageType, Token};
use hearth_wire::data_transfer::{BlockOpResponse, OpCode, Operation, ReplaceBlock, Status};
use hearth_wire::proto::hdfs::received_deleted_block_info_proto::BlockStatus;
use tokio::time::Instant;

use super::client::{block, open, target};
use super::local_copies;
use super::one_sided_copies::{two, two_of_one_network};
use super::one_sided_writes::figure;
use super::streams::{Meddler, Meddling, Two};

const MIB: usize = 1 << 20;

/// Moves a replica like a balancer, from the first DataNode to the second.
async fn replace(two: &Two, moved: &Block, hint: &str) -> BlockOpResponse {
    replace_from(two, target(&two.nodes[0]).datanode, moved, hint).await
}

async fn replace_from(two: &Two, source: DatanodeInfo, moved: &Block, hint: &str) -> BlockOpResponse {
    let (sender, mut receiver) = open(two.nodes[1].addresses().transfer).await;
    let request = ReplaceBlock {
        block: block(moved.id.0, moved.stamp.0, moved.length),
        token: Token::default(),
        delete_hint: hint.into(),
        source,
        storage_type: StorageType::Disk,
        storage_id: None,
    };
    sender.send_operation(&Operation::ReplaceBlock(Box::new(request))).await.unwrap();
    loop {
        let answer = receiver.receive(BlockOpResponse::decode).await.unwrap();
        if answer.status != Status::InProgress {
            return answer;
        }
    }
}

/// Checks that the replicas were moved completely and reported with the hint, and that `replicas` of them were sent by
/// streams or one-sidedly.
async fn check(two: &Two, moved: &[Block], replicas: u64) {
    for (index, moved) in moved.iter().enumerate() {
        let hint = format!("datanode-{index}");
        let answer = replace(two, moved, &hint).await;
        assert_eq!(answer.status, Status::Success, "{answer:?}");
        two.namenodes[1].wait_event(BlockStatus::Received, *moved).await;
        two.namenodes[1].told(|told| {
            let hints: Vec<_> = told.delete_hints.iter().filter(|(block, _)| block == moved).collect();
            assert_eq!(hints, [&(*moved, hint)], "once, and with the hint");
        });
    }
    two.check(moved).await;
    assert_eq!(figure(&two.nodes[1], "hearth_stream_replicas").await, replicas);
}

async fn some(two: &Two) -> [Block; 3] {
    [two.write(1, 900).await, two.write(2, 300_000).await, two.write(3, 3 * MIB + 77).await]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moves_use_streams() {
    let two = Two::start(&[]).await;
    let moved = some(&two).await;
    check(&two, &moved, 3).await;
    let bytes: u64 = moved.iter().map(|moved| moved.length).sum();
    assert_eq!(figure(&two.nodes[1], "hearth_stream_received_bytes").await, bytes);
    // A copy of an existing replica is refused with that reason, by a source that has the replica and by one that does
    // not.
    assert_eq!(replace(&two, &moved[2], "").await.status, Status::ErrorExists);
    let unknown = Block { id: hearth_types::BlockId(77), ..moved[0] };
    assert_ne!(replace(&two, &unknown, "").await.status, Status::Success);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_moves_use_memory_on_one_machine() {
    let two = local_copies::two([&[], &[]]).await;
    let moved = some(&two).await;
    check(&two, &moved, 3).await;
    assert_eq!(figure(&two.nodes[0], "hearth_locally_forwarded_bytes").await, moved[2].length);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_moves_use_one_sided_network() {
    let two = two_of_one_network([&[], &[]]).await;
    let moved = some(&two).await;
    check(&two, &moved, 3).await;
    assert_eq!(figure(&two.nodes[1], "hearth_one_sided_written_bytes").await, moved[2].length);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moves_without_streams_use_packets() {
    for off in [0, 1] {
        let mut settings: [&[(&str, &str)]; 2] = [&[], &[]];
        settings[off] = &[("hearth.datanode.stream.connections", "0")];
        let two = two([None, None], settings).await;
        let moved = some(&two).await;
        check(&two, &moved, 0).await;
    }
}

/// A source that no longer supports the request, because it was replaced by an older version or by another
/// implementation: each replica is moved all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unsupported_send_replica_falls_back_to_copy() {
    let two = Two::start(&[]).await;
    let meddler = Meddler::start(two.nodes[0].addresses().transfer, Meddling::Without(OpCode::SendReplica as u8)).await;
    let mut source = target(&two.nodes[0]).datanode;
    source.id.transfer_port = meddler.address.port();
    for moved in some(&two).await {
        assert_eq!(replace_from(&two, source.clone(), &moved, "").await.status, Status::Success);
        two.check(&[moved]).await;
    }
    assert_eq!(figure(&two.nodes[1], "hearth_stream_replicas").await, 0);
    assert!(
        meddler.connections.load(Ordering::Relaxed) >= 2 + 3,
        "what it is, the question, and three times the replica"
    );
}

/// When a balancer disconnects, its moves are cancelled.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn move_is_cancelled_when_balancer_disconnects() {
    for networked in [false, true] {
        let settings: &[(&str, &str)] = &[
            ("dfs.datanode.balance.bandwidthPerSec", "1m"),
            // After half of this timeout the waiting balancer is sent a progress message, which detects its end.
            ("dfs.client.socket-timeout", "10000"),
            ("hearth.datanode.stream.resume.timeout", "1"),
        ];
        let settings = [settings; 2];
        let two = if networked { two_of_one_network(settings).await } else { two([None, None], settings).await };
        let moved = two.write(1, 48 * MIB).await;
        let balancer = tokio::time::timeout(Duration::from_secs(1), replace(&two, &moved, "")).await;
        assert!(balancer.is_err(), "48 seconds' worth");
        // Complete replicas stay.
        until("the removal of the partial replica", async || {
            figure(&two.nodes[1], "hearth_memory_used_bytes").await == 0
        })
        .await;
        assert!(two.namenodes[1].told(|told| told.events.is_empty()));
    }
}

/// The balancer's bandwidth applies to both ends; a NameNode's copies have their own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn balancer_bandwidth_is_enforced() {
    let slow: &[(&str, &str)] = &[("dfs.datanode.balance.bandwidthPerSec", "1m")];
    for (networked, slow) in [(false, [slow, &[]]), (false, [&[], slow]), (true, [slow, &[]]), (true, [&[], slow])] {
        let two = if networked { two_of_one_network(slow).await } else { two([None, None], slow).await };
        let moved = [two.write(1, 3 * MIB).await];
        let started = Instant::now();
        check(&two, &moved, 1).await;
        // The bytes of one second and one step may be sent ahead.
        assert!(started.elapsed() > Duration::from_millis(900), "{:?}", started.elapsed());
    }
}
