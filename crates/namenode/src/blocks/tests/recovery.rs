use std::time::Duration;

use hearth_types::{Block, GenerationStamp, ReplicaState, StorageId, StorageReport, StorageType};

use super::cluster::*;
use crate::blocks::*;

fn task(cluster: &mut Cluster) -> (usize, RecoveryTask) {
    for nth in 0..cluster.nodes.len() {
        cluster.beat(nth);
        if let Some(task) = cluster.nodes[nth].recoveries.pop() {
            return (nth, task);
        }
    }
    panic!("no node was asked to recover");
}

#[test]
fn primary_result_completes_the_block() {
    let mut cluster = Cluster::new(&["/a", "/a", "/a"]);
    let (block, nodes) = cluster.open(3);
    let id = cluster.new_stamp();
    assert!(cluster.map.may_recover(block.id, cluster.now));
    assert!(cluster.map.start_recovery(block.id, id, cluster.now).unwrap().is_some());
    assert_eq!(cluster.map.state(block.id), Some(BlockState::UnderRecovery));
    assert!(!cluster.map.may_recover(block.id, cluster.now));
    let (_, task) = task(&mut cluster);
    assert_eq!((task.recovery_id, task.block.block.id, task.locations.len()), (id, block.id, 3));
    let wrong = GenerationStamp(id.0 + 5);
    assert!(matches!(cluster.map.check_recovery(block.id, wrong), Err(BlockError::RecoveryMismatch { .. })));
    let result = Block { stamp: id, length: 321, ..block };
    let mut holders = Vec::new();
    for nth in &nodes[..2] {
        cluster.receive(*nth, result);
        let node = &cluster.nodes[*nth];
        holders.push(cluster.map.find_storage(&node.id, &node.storage()).unwrap());
    }
    assert_eq!(cluster.map.finish_recovery(block.id, id, 321, &holders, cluster.now), Ok(BlockState::Complete));
    assert_eq!(cluster.map.block(block.id), Some(result));
    assert!(matches!(cluster.map.check_recovery(block.id, id), Err(BlockError::NotUnderRecovery { .. })));
    // The third node's replica has the old stamp: replaced.
    cluster.nodes[nodes[2]].reported = false;
    cluster.run(30);
    assert_eq!(cluster.good(result).len(), 3);
}

#[test]
fn each_attempt_has_new_primary_after_pause() {
    let mut cluster = Cluster::new(&["/a", "/a", "/a"]);
    let (block, _) = cluster.open(3);
    let mut primaries = Vec::new();
    for _ in 0..3 {
        let id = cluster.new_stamp();
        cluster.map.start_recovery(block.id, id, cluster.now).unwrap();
        primaries.push(task(&mut cluster).0);
        assert!(!cluster.map.may_recover(block.id, cluster.now));
        cluster.pass(Duration::from_secs(90));
        assert!(cluster.map.may_recover(block.id, cluster.now));
    }
    primaries.sort();
    primaries.dedup();
    assert_eq!(primaries.len(), 3);
}

#[test]
fn dead_or_restarted_primary_is_replaced() {
    let mut cluster = Cluster::new(&["/a", "/a", "/a"]);
    let (block, _) = cluster.open(3);
    let attempt = |cluster: &mut Cluster| {
        let id = cluster.new_stamp();
        cluster.map.start_recovery(block.id, id, cluster.now).unwrap();
        let (primary, _) = task(cluster);
        assert!(!cluster.map.may_recover(block.id, cluster.now));
        cluster.pass(Duration::from_secs(1));
        primary
    };
    let first = attempt(&mut cluster);
    cluster.nodes[first].registered = false;
    cluster.beat(first);
    assert!(cluster.map.may_recover(block.id, cluster.now));
    let second = attempt(&mut cluster);
    assert_ne!(second, first);
    let other = 3 - first - second;
    cluster.nodes[other].registered = false;
    cluster.beat(other);
    assert!(!cluster.map.may_recover(block.id, cluster.now), "the restart of another node changes nothing");
    cluster.nodes[second].up = false;
    cluster.pass(Duration::from_secs(1000));
    cluster.beat(first);
    let third = attempt(&mut cluster);
    assert_ne!(third, second);
}

#[test]
fn truncation_reopens_and_shortens_the_block() {
    let mut cluster = Cluster::new(&["/a", "/a"]);
    let (block, nodes) = cluster.write(2, 1000);
    let id = cluster.new_stamp();
    cluster.map.start_truncation(block.id, id, 600, cluster.now).unwrap();
    let (_, task) = task(&mut cluster);
    assert_eq!(task.truncate, Some(Block { stamp: id, length: 600, ..block }));
    let cut = Block { stamp: id, length: 600, ..block };
    let mut holders = Vec::new();
    for nth in &nodes {
        cluster.receive(*nth, cut);
        let node = &cluster.nodes[*nth];
        holders.push(cluster.map.find_storage(&node.id, &node.storage()).unwrap());
    }
    assert_eq!(
        cluster.map.classify_missing_tail(block.id, 600, &holders, cluster.now),
        MissingBytes::Empty,
        "the block shall be truncated"
    );
    assert_eq!(cluster.map.finish_recovery(block.id, id, 600, &holders, cluster.now), Ok(BlockState::Complete));
    assert_eq!(cluster.good(cut).len(), 2);
    assert_eq!(cluster.map.block_report(block.id, cluster.now).unwrap().live, 2);
}

#[test]
fn pipeline_is_rebuilt_from_reports_after_restart() {
    let mut cluster = Cluster::empty(BlockSettings::default());
    let block = cluster.new_block();
    cluster.map.restore(block, 16386, 2, 0, false);
    cluster.map.note_stamp(GenerationStamp(cluster.stamp));
    cluster.map.restored(cluster.now);
    assert!(!cluster.map.in_safe_mode(), "an open block alone does not delay the end of safe mode");
    assert_eq!(cluster.map.start_recovery(block.id, GenerationStamp(5000), cluster.now), Ok(None));
    let nth = cluster.add("/a");
    cluster.writing(nth, Block { length: 44, ..block });
    cluster.pass(Duration::from_secs(91));
    assert!(cluster.map.start_recovery(block.id, GenerationStamp(5001), cluster.now).unwrap().is_some());
    assert_eq!(task(&mut cluster).1.recovery_id, GenerationStamp(5001));
}

#[test]
fn truncation_continues_after_restart() {
    let mut cluster = Cluster::empty(BlockSettings::default());
    let block = Block { length: 600, ..cluster.new_block() };
    cluster.map.restore(block, 16386, 1, 0, false);
    cluster.map.restore_truncation(block.id, 600, None);
    cluster.map.restored(cluster.now);
    let nth = cluster.add("/a");
    cluster.receive(nth, Block { length: 1000, ..block });
    let id = cluster.new_stamp();
    cluster.map.start_recovery(block.id, id, cluster.now).unwrap();
    assert_eq!(task(&mut cluster).1.truncate, Some(Block { stamp: id, length: 600, ..block }));
}

#[test]
fn old_pipeline_member_is_not_asked() {
    let mut cluster = Cluster::new(&["/a", "/a", "/a"]);
    let (block, nodes) = cluster.open(3);
    let left: Vec<StorageIndex> = cluster.map.expected_storages(block.id)[1..].to_vec();
    let stamp = cluster.new_stamp();
    cluster.map.update_pipeline(block, stamp, 10, &left).unwrap();
    // A late report of the dropped member.
    cluster.writing(nodes[0], Block { length: 10, ..block });
    assert_eq!(cluster.map.expected_storages(block.id), left);
}

#[test]
fn bad_block_reports_of_open_block_are_ignored() {
    let mut cluster = Cluster::new(&["/a"]);
    let (block, nodes) = cluster.open(1);
    let (id, storage) = (cluster.nodes[0].id.clone(), cluster.nodes[0].storage());
    cluster.map.report_bad_replica(block, &id, Some(&storage), cluster.now);
    let block = Block { length: 100, ..block };
    cluster.receive(nodes[0], block);
    assert_eq!(cluster.map.commit(block, cluster.now), Ok(BlockState::Complete));
}

/// Runs a recovery in which no node has a byte; returns its classification.
fn absence(cluster: &mut Cluster, block: Block) -> MissingBytes {
    let id = cluster.new_stamp();
    cluster.map.start_recovery(block.id, id, cluster.now).unwrap().unwrap();
    for nth in 0..cluster.nodes.len() {
        cluster.beat(nth);
        cluster.nodes[nth].recoveries.clear();
    }
    cluster.map.classify_missing_bytes(block.id, cluster.now)
}

#[test]
fn missing_bytes_are_empty_only_if_proven() {
    // The primary has run since the block began.
    let mut cluster = Cluster::new(&["/a", "/a", "/a"]);
    let (block, nodes) = cluster.open(3);
    assert_eq!(absence(&mut cluster, block), MissingBytes::Empty);

    // One node is silent, and the others report an empty replica each; then they restart, and do not report it any
    // more.
    let (block, _) = cluster.open(3);
    cluster.nodes[nodes[0]].up = false;
    cluster.run(40);
    assert_eq!(absence(&mut cluster, block), MissingBytes::Empty);
    let start_anew = |cluster: &mut Cluster, which: &[usize]| {
        cluster.pass(Duration::from_secs(1));
        for nth in which {
            cluster.nodes[*nth].disk.remove(&block.id.0);
            cluster.nodes[*nth].registered = false;
            cluster.beat(*nth);
        }
        cluster.pass(Duration::from_secs(1));
    };
    start_anew(&mut cluster, &nodes[1..]);
    assert_eq!(absence(&mut cluster, block), MissingBytes::Unknown, "the silent node may have bytes");
    cluster.nodes[nodes[0]].up = true;
    cluster.beat(nodes[0]);
    assert_eq!(
        cluster.map.classify_missing_bytes(block.id, cluster.now),
        MissingBytes::Unknown,
        "the node is back, but did not lead"
    );
    assert_eq!(absence(&mut cluster, block), MissingBytes::Empty);
    start_anew(&mut cluster, &nodes);
    assert_eq!(
        cluster.map.classify_missing_bytes(block.id, cluster.now),
        MissingBytes::Empty,
        "all nodes reported without it, and no bytes were ever reported"
    );
    cluster.nodes[nodes[0]].up = false;
    cluster.run(1000);
    assert_eq!(absence(&mut cluster, block), MissingBytes::Unknown, "a dead node may come back");
}

#[test]
fn block_lost_by_all_nodes_is_missing() {
    let mut cluster = Cluster::new(&["/a", "/a"]);
    let (block, nodes) = cluster.open(2);
    cluster.map.set_length(block.id, 7).unwrap();
    assert_eq!(absence(&mut cluster, block), MissingBytes::Unknown, "the bytes were reported before");
    let start_anew = |cluster: &mut Cluster| {
        cluster.pass(Duration::from_secs(100));
        for nth in &nodes {
            cluster.nodes[*nth].registered = false;
            cluster.beat(*nth);
        }
    };
    cluster.nodes[nodes[0]].disk.get_mut(&block.id.0).unwrap().length = 44;
    start_anew(&mut cluster);
    assert_eq!(absence(&mut cluster, block), MissingBytes::Unknown, "both nodes still have it");
    // One node reports that it has no replica. Its finding is not conclusive even if it leads, because it had reported
    // bytes before.
    cluster.nodes[nodes[1]].disk.clear();
    cluster.nodes[nodes[1]].registered = false;
    cluster.beat(nodes[1]);
    for _ in 0..2 {
        cluster.pass(Duration::from_secs(100));
        assert_eq!(absence(&mut cluster, block), MissingBytes::Unknown);
    }
    cluster.nodes.iter_mut().for_each(|node| node.disk.clear());
    start_anew(&mut cluster);
    assert_eq!(absence(&mut cluster, block), MissingBytes::Lost { length: 44 });
    cluster.map.give_up(block.id, 44, cluster.now);
    assert_eq!(cluster.map.state(block.id), Some(BlockState::Complete));
    assert_eq!(cluster.map.cluster_statistics(cluster.now).missing, 1);
    // The replica comes back after all.
    cluster.receive(nodes[1], Block { length: 44, ..block });
    cluster.run(20);
    assert_eq!(cluster.good(Block { length: 44, ..block }).len(), 2);
    assert_eq!(cluster.map.cluster_statistics(cluster.now).missing, 0);
}

/// An open block after a restart of the namenode, before any of its datanodes is back.
fn restarted(replication: u16) -> (Cluster, Block) {
    let mut cluster = Cluster::empty(BlockSettings::default());
    let block = cluster.new_block();
    cluster.map.restore(block, 16386, replication, 0, false);
    cluster.map.restored(cluster.now);
    (cluster, block)
}

#[test]
fn restarted_block_is_lost_after_report_timeout() {
    let mut cluster = Cluster::empty(BlockSettings::default());
    let (empty, told, held) = (cluster.new_block(), cluster.new_block(), cluster.new_block());
    let told = Block { length: 7, ..told };
    for block in [empty, told, held] {
        cluster.map.restore(block, 16386, 2, 0, false);
    }
    cluster.map.restored(cluster.now);
    let nth = cluster.add("/a");
    assert!(!cluster.map.is_lost_and_empty(empty.id, cluster.now), "a datanode that is not back may have the block");
    cluster.writing(nth, Block { length: 44, ..held });
    cluster.run(700);
    let nowhere = [empty, told, held].map(|block| cluster.map.is_lost_and_empty(block.id, cluster.now));
    assert_eq!(nowhere, [true, false, false]);
    // For a block that was begun after the restart, all holders are known.
    let begun = cluster.new_block();
    cluster.map.begin(begun, 16386, 2, 0, &[]);
    assert!(cluster.map.is_lost_and_empty(begun.id, cluster.now));
}

#[test]
fn restarted_block_is_lost_after_all_storages_report() {
    let mut stored: Vec<(String, bool)> = crate::blocks::initial_storages();
    let mut seen = Cluster::empty(BlockSettings::default());
    seen.map.restored(seen.now);
    for _ in 0..3 {
        seen.add("/a");
    }
    stored.extend(seen.map.take_storage_changes());
    assert_eq!(stored.len(), 4, "{stored:?}");
    assert!(seen.map.take_storage_changes().is_empty());
    seen.run(20);
    assert!(seen.map.take_storage_changes().is_empty(), "known ids are not stored again");

    let names = |stored: &[(String, bool)]| Some(stored.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>());
    let restart = |names: Option<Vec<String>>| {
        let mut cluster = Cluster::empty(BlockSettings::default());
        let (empty, told) = (cluster.new_block(), cluster.new_block());
        cluster.map.restore(empty, 16386, 2, 0, false);
        cluster.map.restore(Block { length: 7, ..told }, 16387, 2, 0, false);
        cluster.map.restore_storages(names);
        cluster.map.restored(cluster.now);
        (cluster, empty.id, told.id)
    };
    let (mut cluster, empty, told) = restart(names(&stored));
    for nth in 0..3 {
        assert!(!cluster.map.has_no_holder(empty, cluster.now), "{nth} of three are back");
        cluster.add("/a");
    }
    cluster.run(5);
    assert!(cluster.map.has_no_holder(empty, cluster.now) && cluster.map.has_no_holder(told, cluster.now));
    assert!(cluster.map.is_lost_and_empty(empty, cluster.now) && !cluster.map.is_lost_and_empty(told, cluster.now));
    // A block to be truncated waits, because it belonged to a closed file.
    cluster.map.restore_truncation(told, 3, None);
    assert!(!cluster.map.has_no_holder(told, cluster.now));

    // Two storages never come back: they are waited for, and then forgotten.
    let (mut cluster, empty, _) = restart(names(&stored));
    cluster.add("/a");
    cluster.run(5);
    cluster.map.forget_silent_storages(cluster.now);
    assert!(!cluster.map.has_no_holder(empty, cluster.now) && cluster.map.take_storage_changes().is_empty());
    cluster.run(700);
    cluster.map.forget_silent_storages(cluster.now);
    let forgotten = cluster.map.take_storage_changes();
    assert_eq!(forgotten.iter().filter(|(_, is_there)| !is_there).count(), 2, "{forgotten:?}");

    // The ids of an earlier version are not known: the first start waits, and stores that all ids are known from then
    // on.
    let (mut cluster, empty, _) = restart(None);
    cluster.add("/a");
    cluster.run(5);
    assert!(!cluster.map.has_no_holder(empty, cluster.now));
    cluster.map.take_storage_changes();
    cluster.run(700);
    cluster.map.forget_silent_storages(cluster.now);
    assert_eq!(cluster.map.take_storage_changes(), crate::blocks::initial_storages());
}

#[test]
fn pipeline_updated_after_restart_is_waited_for() {
    let (mut cluster, block) = restarted(1);
    // Its only member is not back yet.
    let stamp = cluster.new_stamp();
    cluster.map.update_pipeline(block, stamp, 0, &[]).unwrap();
    assert!(!cluster.map.is_lost_and_empty(block.id, cluster.now), "other nodes may have had no time to report");
    cluster.map.expect_unknown(block.id, vec![StorageId(format!("DS-{}", node_id(0).uuid).into())]);
    cluster.run(700);
    assert!(!cluster.map.is_lost_and_empty(block.id, cluster.now), "the writer has reported the holder");
    cluster.add("/a");
    assert_eq!(cluster.map.expected_storages(block.id).len(), 1);
    let id = cluster.new_stamp();
    assert!(cluster.map.start_recovery(block.id, id, cluster.now).unwrap().is_some());
}

#[test]
fn expected_length_is_not_written_length() {
    let mut cluster = Cluster::new(&["/a", "/a"]);
    let (block, nodes) = cluster.open(2);
    for nth in &nodes {
        // The length that clients give in their first packet: the block size.
        cluster.writing(*nth, Block { length: BLOCK_SIZE, ..block });
        cluster.nodes[*nth].disk.clear();
        cluster.nodes[*nth].registered = false;
    }
    assert_eq!(absence(&mut cluster, block), MissingBytes::Empty);
}

#[test]
fn empty_replica_is_not_conclusive_after_restart() {
    let (mut cluster, block) = restarted(2);
    // The machine crashed: the replica left here is empty, and other nodes are not back.
    let nth = cluster.add("/a");
    let left = OnDisk {
        stamp: block.stamp.0,
        length: 0,
        state: hearth_types::ReplicaState::WaitingToBeRecovered,
        rotten: false,
    };
    cluster.nodes[nth].disk.insert(block.id.0, left);
    cluster.nodes[nth].reported = false;
    cluster.beat(nth);
    cluster.pass(Duration::from_secs(10));
    assert_eq!(absence(&mut cluster, block), MissingBytes::Unknown);
    cluster.run(700);
    assert_eq!(absence(&mut cluster, block), MissingBytes::Empty);
}

/// Restarts a node after a crash of its machine, with the first `length` bytes of an open block.
fn start_with(cluster: &mut Cluster, nth: usize, block: Block, length: u64) {
    let left = OnDisk { stamp: block.stamp.0, length, state: ReplicaState::WaitingToBeRecovered, rotten: false };
    cluster.nodes[nth].disk.insert(block.id.0, left);
    cluster.nodes[nth].registered = false;
    cluster.beat(nth);
}

/// Attempts to recover the block; returns the new stamp, and the nodes to ask.
fn attempt(cluster: &mut Cluster, block: Block) -> (GenerationStamp, Vec<usize>) {
    let id = cluster.new_stamp();
    cluster.map.start_recovery(block.id, id, cluster.now).unwrap().unwrap();
    let (_, task) = task(cluster);
    (id, task.locations.iter().map(|target| cluster.nth(&target.datanode.id)).collect())
}

/// Returns the classification of a result in which these nodes have `length` bytes of the block.
fn judged(cluster: &Cluster, block: Block, length: u64, nodes: &[usize]) -> MissingBytes {
    let storage = |nth: &usize| {
        let node = &cluster.nodes[*nth];
        cluster.map.find_storage(&node.id, &node.storage()).unwrap()
    };
    let holders: Vec<StorageIndex> = nodes.iter().map(storage).collect();
    cluster.map.classify_missing_tail(block.id, length, &holders, cluster.now)
}

/// A block for which the writer has reported 10 bytes. One node has restarted with 2 of them, the other is silent.
fn half_lost() -> (Cluster, Block, usize, usize) {
    let mut cluster = Cluster::new(&["/a", "/a"]);
    let (block, nodes) = cluster.open(2);
    let (short, silent) = (nodes[0], nodes[1]);
    cluster.map.set_length(block.id, 10).unwrap();
    cluster.nodes[silent].up = false;
    cluster.run(40);
    start_with(&mut cluster, short, block, 2);
    (cluster, block, short, silent)
}

#[test]
fn reported_bytes_are_kept_while_holder_may_return() {
    let (mut cluster, block, short, silent) = half_lost();
    let (id, asked) = attempt(&mut cluster, block);
    assert_eq!(asked, [short, silent], "the silent node may answer");
    assert_eq!(judged(&cluster, block, 2, &[short]), MissingBytes::Unknown);
    // The short node has finalized its replica all the same; it would take precedence over the other node's replica.
    cluster.receive(short, Block { stamp: id, length: 2, ..block });
    cluster.nodes[silent].up = true;
    cluster.run(91);
    assert_eq!(judged(&cluster, block, 2, &[short]), MissingBytes::Unknown, "the silent node was not asked");
    assert_eq!(attempt(&mut cluster, block).1, [silent]);
    assert_eq!(judged(&cluster, block, 10, &[silent]), MissingBytes::Empty);

    // Alternatively the silent node has restarted as well: no node has more bytes than were found.
    start_with(&mut cluster, silent, block, 3);
    cluster.run(91);
    assert_eq!(attempt(&mut cluster, block).1, [short, silent]);
    assert_eq!(judged(&cluster, block, 2, &[short, silent]), MissingBytes::Lost { length: 10 });
}

#[test]
fn wait_for_reported_bytes_is_bounded() {
    let (mut cluster, block, short, silent) = half_lost();
    attempt(&mut cluster, block);
    cluster.run(600);
    assert_eq!(cluster.map.live_datanodes(), 1);
    attempt(&mut cluster, block);
    assert_eq!(judged(&cluster, block, 2, &[short]), MissingBytes::Unknown, "a dead node may come back");
    cluster.run(60);
    attempt(&mut cluster, block);
    assert_eq!(judged(&cluster, block, 2, &[short]), MissingBytes::Lost { length: 10 });
    // The silent node is back before the result is reported, and leads the next attempt.
    cluster.nodes[silent].up = true;
    cluster.run(91);
    assert_eq!(attempt(&mut cluster, block).1, [silent]);
}

#[test]
fn silent_nodes_are_asked_after_others_restart() {
    let mut cluster = Cluster::new(&["/a", "/a", "/a"]);
    let (block, nodes) = cluster.open(3);
    cluster.nodes[nodes[2]].up = false;
    cluster.run(40);
    assert_eq!(attempt(&mut cluster, block).1, nodes[..2]);
    // The lost bytes had never been reported to the namenode.
    for nth in &nodes[..2] {
        start_with(&mut cluster, *nth, block, 2);
    }
    cluster.run(91);
    assert_eq!(attempt(&mut cluster, block).1, nodes);
}

/// Sends a heartbeat that lists storages other than the node's own, with `failed` failed volumes.
fn beat_without(cluster: &mut Cluster, nth: usize, failed: u32) {
    let storage = StorageReport {
        storage: StorageId("DS-other".into()),
        storage_type: StorageType::Disk,
        failed: false,
        capacity: BLOCK_SIZE,
        dfs_used: 0,
        remaining: BLOCK_SIZE,
        block_pool_used: 0,
        non_dfs_used: 0,
    };
    let heartbeat = Heartbeat {
        storages: vec![storage],
        transmits: 0,
        xceivers: 0,
        failed_volumes: failed,
        cache_capacity: 0,
        cache_used: 0,
        wants_report_lease: false,
    };
    cluster.map.heartbeat(&cluster.nodes[nth].id.clone(), heartbeat, cluster.now).unwrap();
}

#[test]
fn block_on_failed_storage_is_not_lost() {
    let mut cluster = Cluster::new(&["/a"]);
    let (block, _) = cluster.open(1);
    // Bytes acknowledged by hflush are in the datanode's memory, and were not reported to the namenode.
    beat_without(&mut cluster, 0, 1);
    assert!(cluster.map.expected_storages(block.id).is_empty());
    assert!(!cluster.map.is_lost_and_empty(block.id, cluster.now));
    let id = cluster.new_stamp();
    assert_eq!(cluster.map.start_recovery(block.id, id, cluster.now), Ok(None), "no node can lead");
    cluster.pass(Duration::from_secs(100));
    assert!(!cluster.map.may_recover(block.id, cluster.now), "no stamps are consumed");
    assert_eq!(cluster.map.classify_missing_bytes(block.id, cluster.now), MissingBytes::Unknown);

    // The datanode starts again with the disk, and finds the replica.
    cluster.nodes[0].disk.get_mut(&block.id.0).unwrap().length = 44;
    cluster.nodes[0].registered = false;
    cluster.beat(0);
    assert_eq!(cluster.map.expected_storages(block.id).len(), 1);
    assert_eq!(absence(&mut cluster, block), MissingBytes::Unknown, "the replica exists");
    // Alternatively it does not find it.
    cluster.nodes[0].disk.clear();
    cluster.nodes[0].registered = false;
    cluster.beat(0);
    cluster.pass(Duration::from_secs(100));
    assert_eq!(absence(&mut cluster, block), MissingBytes::Lost { length: 44 });
}

#[test]
fn failed_storage_reports_count_until_it_returns() {
    let mut cluster = Cluster::new(&["/a", "/a"]);
    let (block, nodes) = cluster.open(2);
    for nth in &nodes {
        cluster.nodes[*nth].disk.get_mut(&block.id.0).unwrap().length = 44;
        cluster.nodes[*nth].registered = false;
        cluster.beat(*nth);
    }
    // One storage fails; the other datanode restarts without the replica.
    beat_without(&mut cluster, nodes[0], 1);
    let start_empty = |cluster: &mut Cluster, nth: usize| {
        cluster.pass(Duration::from_secs(100));
        cluster.nodes[nth].disk.clear();
        cluster.nodes[nth].registered = false;
        cluster.beat(nth);
    };
    start_empty(&mut cluster, nodes[1]);
    assert_eq!(absence(&mut cluster, block), MissingBytes::Unknown, "the failed storage may have bytes");
    start_empty(&mut cluster, nodes[0]);
    cluster.pass(Duration::from_secs(100));
    assert_eq!(absence(&mut cluster, block), MissingBytes::Lost { length: 44 });

    // If a pipeline member has run all the time and has no bytes, there were none.
    let (block, nodes) = cluster.open(2);
    beat_without(&mut cluster, nodes[0], 2);
    assert_eq!(absence(&mut cluster, block), MissingBytes::Empty);
}

#[test]
fn updated_pipeline_drops_failed_storage() {
    let mut cluster = Cluster::new(&["/a", "/a"]);
    let (block, nodes) = cluster.open(2);
    let left = cluster.map.expected_storages(block.id);
    let left: Vec<StorageIndex> = left.into_iter().filter(|storage| cluster.nth_of(*storage) == nodes[1]).collect();
    beat_without(&mut cluster, nodes[0], 1);
    let stamp = cluster.new_stamp();
    cluster.map.update_pipeline(block, stamp, 10, &left).unwrap();
    cluster.beat(nodes[0]);
    assert_eq!(cluster.map.expected_storages(block.id), left);
}
