use hearth_types::{Block, GenerationStamp};

use super::cluster::*;
use crate::blocks::*;

#[test]
fn a_block_is_complete_with_its_first_report_after_commit() {
    let mut cluster = Cluster::new(&["/a", "/a", "/a"]);
    let (block, nodes) = cluster.open(3);
    assert_eq!(cluster.map.state(block.id), Some(BlockState::UnderConstruction));
    let block = Block { length: 100, ..block };
    assert_eq!(cluster.map.commit(block, cluster.now), Ok(BlockState::Committed));
    let mut wait = cluster.map.wait_for_replicas(block.id).unwrap();
    assert!(wait.try_recv().is_err());
    cluster.receive(nodes[1], block);
    assert_eq!(wait.try_recv(), Ok(()));
    assert_eq!(cluster.map.state(block.id), Some(BlockState::Complete));
    assert!(cluster.map.wait_for_replicas(block.id).is_none());
    // A repeated commit is no error.
    assert_eq!(cluster.map.commit(block, cluster.now), Ok(BlockState::Complete));
}

#[test]
fn reports_may_come_before_the_commit() {
    let mut cluster = Cluster::new(&["/a", "/a"]);
    let (block, _) = cluster.write(2, 77);
    assert_eq!(cluster.map.state(block.id), Some(BlockState::Complete));
    let located = cluster.map.locate(block.id, 0, ReaderLocation::default(), cluster.now).unwrap();
    assert_eq!(located.locations.len(), 2);
    assert_eq!(located.block.block, block);
    assert!(!located.corrupt);
}

#[test]
fn contradictory_commits_change_nothing() {
    let mut cluster = Cluster::new(&["/a"]);
    let (block, _) = cluster.open(1);
    cluster.map.set_length(block.id, 50).unwrap();
    let shorter = Block { length: 49, ..block };
    assert!(matches!(cluster.map.commit(shorter, cluster.now), Err(BlockError::LengthShrank { .. })));
    let other = Block { stamp: GenerationStamp(block.stamp.0 + 1), length: 50, ..block };
    assert!(matches!(cluster.map.commit(other, cluster.now), Err(BlockError::StampMismatch { .. })));
    let unknown = cluster.new_block();
    assert_eq!(cluster.map.commit(unknown, cluster.now), Err(BlockError::UnknownBlock { block: unknown.id }));
    assert_eq!(cluster.map.state(block.id), Some(BlockState::UnderConstruction));
}

#[test]
fn replica_of_wrong_length_is_replaced() {
    let mut cluster = Cluster::new(&["/a", "/a", "/a"]);
    let (block, nodes) = cluster.open(2);
    let full = Block { length: 1000, ..block };
    cluster.receive(nodes[0], Block { length: 900, ..block });
    cluster.receive(nodes[1], full);
    cluster.map.commit(full, cluster.now).unwrap();
    assert_eq!(cluster.map.block_report(block.id, cluster.now).unwrap().corrupt, 1);
    cluster.run(30);
    let good = cluster.good(full);
    assert_eq!(good.len(), 2);
    for node in good {
        assert_eq!(cluster.nodes[node].disk[&block.id.0].length, 1000);
    }
}

#[test]
fn pipeline_update_forgets_dropped_member() {
    let mut cluster = Cluster::new(&["/a", "/a", "/a"]);
    let (block, nodes) = cluster.open(3);
    let stamp = cluster.new_stamp();
    let left: Vec<StorageIndex> = cluster.map.expected_storages(block.id)[1..].to_vec();
    cluster.map.update_pipeline(block, stamp, 10, &left).unwrap();
    assert_eq!(cluster.map.expected_storages(block.id), left);
    assert!(matches!(cluster.map.update_pipeline(block, stamp, 10, &left), Err(BlockError::OlderState { .. })));
    let block = Block { stamp, length: 20, ..block };
    cluster.receive(nodes[1], block);
    cluster.receive(nodes[2], block);
    cluster.map.commit(block, cluster.now).unwrap();
    // The dropped member still has its old replica; its next full report reveals it.
    cluster.nodes[nodes[0]].reported = false;
    cluster.run(20);
    assert_eq!(cluster.good(block).len(), 3);
}

/// The writer's last DataNode died when the block was complete: the other one only takes on the new stamp, and may
/// report it before the writer reports it to the namenode.
#[test]
fn new_stamp_report_may_precede_pipeline_update() {
    let mut cluster = Cluster::new(&["/a", "/a", "/a"]);
    let (block, nodes) = cluster.open(2);
    let whole = Block { length: 100, ..block };
    cluster.receive(nodes[0], whole);
    cluster.receive(nodes[1], whole);
    let restamped = Block { stamp: cluster.new_stamp(), ..whole };
    cluster.receive(nodes[0], restamped);
    let left = cluster.map.expected_storages(block.id)[..1].to_vec();
    cluster.map.update_pipeline(whole, restamped.stamp, 100, &left).unwrap();
    assert_eq!(cluster.map.commit(restamped, cluster.now), Ok(BlockState::Complete));
    assert_eq!(cluster.map.block_report(block.id, cluster.now).unwrap().corrupt, 0);
    cluster.run(20);
    assert_eq!(cluster.good(restamped).len(), 2);
}

#[test]
fn append_reopens_on_the_replicas() {
    let mut cluster = Cluster::new(&["/a", "/a", "/a"]);
    let (block, nodes) = cluster.write(2, 500);
    let pipeline = cluster.map.reopen(block.id).unwrap();
    let mut members: Vec<usize> = pipeline.iter().map(|storage| cluster.nth_of(*storage)).collect();
    members.sort();
    let mut wanted = nodes.clone();
    wanted.sort();
    assert_eq!(members, wanted);
    assert!(matches!(cluster.map.reopen(block.id), Err(BlockError::NotComplete { .. })));
    let stamp = cluster.new_stamp();
    cluster.map.update_pipeline(block, stamp, 500, &pipeline).unwrap();
    let longer = Block { stamp, length: 800, ..block };
    for nth in &nodes {
        cluster.writing(*nth, Block { length: 500, ..longer });
        cluster.receive(*nth, longer);
    }
    assert_eq!(cluster.map.commit(longer, cluster.now), Ok(BlockState::Complete));
    cluster.run(10);
    assert_eq!(cluster.good(longer).len(), 2);
}

#[test]
fn removed_block_is_deleted_on_all_nodes() {
    let mut cluster = Cluster::new(&["/a", "/a", "/a"]);
    let (block, _) = cluster.write(3, 10);
    let mut wait = {
        let (open, _) = cluster.open(1);
        let wait = cluster.map.wait_for_replicas(open.id).unwrap();
        cluster.map.abandon(open.id);
        wait
    };
    assert_eq!(wait.try_recv(), Ok(()), "a caller that waits for an abandoned block is notified");
    cluster.map.remove(block.id);
    assert_eq!(cluster.map.locate(block.id, 0, ReaderLocation::default(), cluster.now), None);
    assert_eq!(cluster.map.cluster_statistics(cluster.now).pending_deletion, 4);
    cluster.run(4);
    assert!(cluster.nodes.iter().all(|node| node.disk.is_empty()));
    assert_eq!(cluster.map.cluster_statistics(cluster.now).pending_deletion, 0);
}

#[test]
fn locations_are_nearest_first_leaving_last() {
    let mut cluster = Cluster::new(&["/a", "/a", "/b", "/b"]);
    let (block, _) = cluster.write(4, 10);
    let order = |cluster: &Cluster, ip: &str| {
        let located = cluster.map.locate(block.id, 0, ReaderLocation { ip: Some(ip) }, cluster.now).unwrap();
        located.locations.iter().map(|info| cluster.nth(&info.id)).collect::<Vec<_>>()
    };
    for _ in 0..20 {
        let sorted = order(&cluster, "10.0.0.3");
        assert_eq!(sorted[..2], [2, 3]);
    }
    let hosts =
        HostLists { exclude: vec![HostEntry { names: vec!["10.0.0.3".into()], port: None }], ..HostLists::default() };
    cluster.map.set_hosts(hosts, cluster.now);
    assert_eq!(order(&cluster, "10.0.0.3")[3], 2);
}
