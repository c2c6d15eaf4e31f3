use std::time::Duration;

use hearth_types::{Block, DatanodeAdminState, ReplicaState};

use super::cluster::*;
use crate::blocks::*;

#[test]
fn replicas_of_dead_node_are_copied() {
    let mut cluster = Cluster::new(&["/a", "/a", "/a", "/a"]);
    let (block, nodes) = cluster.write(3, 100);
    cluster.nodes[nodes[0]].up = false;
    cluster.run(600);
    assert_eq!(cluster.map.live_datanodes(), 4, "630 seconds of silence make a node dead");
    cluster.run(60);
    assert_eq!(cluster.map.live_datanodes(), 3);
    assert_eq!(cluster.good(block).len(), 4);
    assert_eq!(cluster.map.cluster_statistics(cluster.now).low_redundancy, 0);
    // It comes back: one too many.
    cluster.nodes[nodes[0]].up = true;
    cluster.run(20);
    assert_eq!(cluster.good(block).len(), 3);
}

/// Checks that the end of safe mode does not check all blocks in one hold of the lock.
#[test]
fn blocks_are_checked_in_rounds_after_safe_mode() {
    let settings = BlockSettings { safe_extension: Duration::ZERO, ..BlockSettings::default() };
    let mut cluster = Cluster::empty(settings);
    let blocks: Vec<Block> = (0..10_000).map(|_| Block { length: 10, ..cluster.new_block() }).collect();
    for block in &blocks {
        cluster.map.restore(*block, 16386, 3, 0, true);
    }
    cluster.map.restored(cluster.now);
    let nth = cluster.add("/a");
    for block in &blocks {
        let on_disk =
            OnDisk { stamp: block.stamp.0, length: block.length, state: ReplicaState::Finalized, rotten: false };
        cluster.nodes[nth].disk.insert(block.id.0, on_disk);
    }
    cluster.nodes[nth].registered = false;
    cluster.beat(nth);
    cluster.beat(nth);
    assert!(!cluster.map.in_safe_mode());
    let low = |cluster: &Cluster| cluster.map.cluster_statistics(cluster.now).low_redundancy;
    assert!((1..=2_000).contains(&low(&cluster)), "{} checked", low(&cluster));
    // Blocks may go in the meantime.
    for block in blocks.iter().step_by(10) {
        cluster.map.remove(block.id);
    }
    let mut rounds = 0;
    while low(&cluster) < 9_000 {
        let before = low(&cluster);
        cluster.map.tick(cluster.now);
        assert!((1..=2_000).contains(&(low(&cluster) - before)), "{before} and then {} checked", low(&cluster));
        rounds += 1;
    }
    assert!(rounds >= 3, "{rounds} rounds");
    assert!(!cluster.map.continue_check(cluster.now));
    assert_eq!(low(&cluster), 9_000);
}

#[test]
fn small_blocks_are_copied_in_batches() {
    let mut cluster = Cluster::new(&["/a", "/a"]);
    let blocks: Vec<_> = (0..300).map(|_| cluster.write(1, 100).0).collect();
    for block in &blocks {
        cluster.map.set_replication(block.id, 2, cluster.now);
    }
    // Apache gives out two blocks per node and heartbeat: 300 blocks would take 75 heartbeats of two nodes.
    cluster.run(15);
    assert!(blocks.iter().all(|block| cluster.good(*block).len() == 2));
}

#[test]
fn most_urgent_blocks_are_copied_first() {
    let mut cluster = Cluster::new(&["/a", "/a", "/a", "/a", "/a"]);
    let low: Vec<_> = (0..200).map(|_| cluster.write(2, BLOCK_SIZE / 2).0).collect();
    let (urgent, _) = cluster.write(1, BLOCK_SIZE / 2);
    for block in &low {
        cluster.map.set_replication(block.id, 3, cluster.now);
    }
    cluster.map.set_replication(urgent.id, 3, cluster.now);
    for nth in 0..5 {
        cluster.beat(nth);
    }
    assert!(cluster.nodes.iter().any(|node| node.transfers.iter().any(|task| task.block.block == urgent)));
}

#[test]
fn lost_transfers_are_rescheduled() {
    let mut cluster = Cluster::new(&["/a", "/a", "/a"]);
    let (block, nodes) = cluster.write(1, 100);
    cluster.map.set_replication(block.id, 2, cluster.now);
    cluster.beat(nodes[0]);
    assert_eq!(std::mem::take(&mut cluster.nodes[nodes[0]].transfers).len(), 1);
    cluster.beat(nodes[0]);
    assert!(cluster.nodes[nodes[0]].transfers.is_empty(), "it is pending");
    // The source forgot the transfer, and reports with every heartbeat that it sends nothing: no need to wait for 300
    // s.
    cluster.run(40);
    assert_eq!(cluster.good(block).len(), 2);
}

#[test]
fn excess_replicas_are_trimmed_keeping_racks() {
    let mut cluster = Cluster::new(&["/a", "/a", "/a", "/b"]);
    let (block, _) = cluster.write(4, 100);
    cluster.map.set_replication(block.id, 2, cluster.now);
    cluster.run(5);
    let left = cluster.good(block);
    assert_eq!(left.len(), 2);
    assert!(left.contains(&3), "one replica stays in the other rack: {left:?}");
}

#[test]
fn nothing_is_trimmed_while_contents_are_uncertain() {
    let mut cluster = Cluster::new(&["/a", "/a", "/a"]);
    let (block, nodes) = cluster.write(3, 100);
    // It restarts with an empty disk; it has registered and sent a heartbeat, but not reported.
    cluster.nodes[nodes[0]].disk.clear();
    register(&mut cluster, nodes[0]);
    cluster.map.set_replication(block.id, 1, cluster.now);
    cluster.map.tick(cluster.now);
    cluster.beat(nodes[1]);
    cluster.beat(nodes[2]);
    assert_eq!(cluster.good(block).len(), 2, "none of the three is chosen while contents are uncertain");
    cluster.nodes[nodes[0]].reported = false;
    cluster.run(10);
    assert_eq!(cluster.good(block).len(), 1);
}

/// Registers a node again, without a report.
fn register(cluster: &mut Cluster, nth: usize) {
    let node = &cluster.nodes[nth];
    let registration =
        Registration { id: node.id.clone(), software_version: "3.4.2".into(), rack: node.rack.clone(), offer: None };
    cluster.map.register(registration, cluster.now).unwrap();
}

/// Returns a block with two replicas, one too many, the node that shall delete one and has not been told yet, and the
/// other node.
fn with_queued_deletion() -> (Cluster, Block, usize, usize) {
    let mut cluster = Cluster::new(&["/a", "/a"]);
    let (block, _) = cluster.write(2, 100);
    cluster.map.set_replication(block.id, 1, cluster.now);
    assert_eq!(cluster.map.cluster_statistics(cluster.now).pending_deletion, 1);
    let located = cluster.map.locate(block.id, 0, ReaderLocation::default(), cluster.now).unwrap();
    let other = cluster.nth(&located.locations[0].id);
    (cluster, block, 1 - other, other)
}

#[test]
fn queued_deletion_is_not_sent_if_the_other_replica_is_uncertain() {
    let (mut cluster, block, chosen, other) = with_queued_deletion();
    // The other node restarts without its replicas, and has not reported yet.
    cluster.nodes[other].disk.clear();
    register(&mut cluster, other);
    for _ in 0..3 {
        cluster.beat(chosen);
        assert_eq!(cluster.good(block), [chosen]);
        cluster.map.tick(cluster.now);
    }
    cluster.nodes[other].reported = false;
    cluster.run(20);
    assert_eq!(cluster.good(block), [chosen]);
    let report = cluster.map.block_report(block.id, cluster.now).unwrap();
    assert_eq!((report.live, report.excess), (1, 0));
}

#[test]
fn queued_deletion_is_sent_once_the_other_replica_is_certain() {
    let (mut cluster, block, chosen, other) = with_queued_deletion();
    register(&mut cluster, other);
    cluster.beat(chosen);
    assert_eq!(cluster.good(block).len(), 2);
    cluster.map.tick(cluster.now);
    cluster.beat(chosen);
    assert_eq!(cluster.good(block).len(), 2);
    cluster.nodes[other].reported = false;
    cluster.run(10);
    assert_eq!(cluster.good(block).len(), 1);
    let figures = cluster.map.cluster_statistics(cluster.now);
    assert_eq!((figures.pending_deletion, figures.missing, figures.low_redundancy), (0, 0, 0));
}

/// A machine without power ends no connection.
#[test]
fn queued_deletion_does_not_rely_on_a_silent_node() {
    let (mut cluster, block, chosen, other) = with_queued_deletion();
    cluster.nodes[other].up = false;
    cluster.nodes[other].disk.clear();
    cluster.pass(cluster.map.settings().stale_after());
    cluster.beat(chosen);
    assert_eq!(cluster.good(block), [chosen]);
    assert_eq!(cluster.map.live_datanodes(), 2);
    cluster.run(1000);
    assert_eq!(cluster.map.live_datanodes(), 1);
    assert_eq!(cluster.good(block), [chosen]);
    assert_eq!(cluster.map.block_report(block.id, cluster.now).unwrap().live, 1);
}

#[test]
fn nothing_is_trimmed_if_it_would_rely_on_a_silent_node() {
    let mut cluster = Cluster::new(&["/a", "/a", "/b"]);
    let (block, _) = cluster.write(3, 100);
    // The only one in its rack, so that its replica is not the one to go.
    cluster.nodes[2].up = false;
    cluster.pass(cluster.map.settings().stale_after());
    for _ in 0..2 {
        cluster.beat(0);
        cluster.beat(1);
        cluster.map.set_replication(block.id, 2, cluster.now);
        cluster.map.tick(cluster.now);
    }
    assert_eq!(cluster.good(block).len(), 3);
    cluster.nodes[2].up = true;
    cluster.run(10);
    let left = cluster.good(block);
    assert!(left.len() == 2 && left.contains(&2), "{left:?}");
}

#[test]
fn kept_replicas_count_for_the_limit_of_a_heartbeat() {
    let mut cluster = Cluster::with(&["/a", "/a"], BlockSettings { invalidate_limit: 10, ..BlockSettings::default() });
    let blocks: Vec<Block> = (0..25).map(|_| cluster.write(2, 100).0).collect();
    for block in &blocks {
        cluster.map.set_replication(block.id, 1, cluster.now);
    }
    let queued = |cluster: &Cluster| cluster.map.cluster_statistics(cluster.now).pending_deletion;
    assert_eq!(queued(&cluster), 25);
    let is_kept_on_first = |block: &&Block| {
        let located = cluster.map.locate(block.id, 0, ReaderLocation::default(), cluster.now).unwrap();
        cluster.nth(&located.locations[0].id) == 0
    };
    let on_first = blocks.iter().filter(is_kept_on_first).count() as u64;
    // Most deletions rely on this node.
    let (other, relying) = if on_first > 12 { (0, on_first) } else { (1, 25 - on_first) };
    register(&mut cluster, other);
    assert_eq!(queued(&cluster), relying, "its own deletions are dropped");
    cluster.beat(1 - other);
    assert_eq!(queued(&cluster), relying - 10);
    cluster.run(10);
    assert!(blocks.iter().all(|block| cluster.good(*block).len() == 2));
    cluster.nodes[other].reported = false;
    cluster.run(30);
    assert!(blocks.iter().all(|block| cluster.good(*block).len() == 1));
}

/// The datanode's connection broke while the report was decoded, and its later events came on another connection.
#[test]
fn report_before_deletion_restores_no_replica() {
    let mut cluster = Cluster::new(&["/a", "/a"]);
    let (block, _) = cluster.write(2, 100);
    let before = [0, 1].map(|nth| cluster.contents(nth));
    cluster.map.set_replication(block.id, 1, cluster.now);
    cluster.run(5);
    let left = cluster.good(block);
    assert_eq!(left.len(), 1);
    let other = 1 - left[0];
    cluster.book_report(other, 0, &before[other]);
    let report = cluster.map.block_report(block.id, cluster.now).unwrap();
    assert_eq!((report.live, report.excess), (1, 0));
    cluster.run(10);
    assert_eq!(cluster.good(block), left, "the real one is kept");
    // A copy that arrives again counts.
    cluster.map.set_replication(block.id, 2, cluster.now);
    cluster.run(20);
    cluster.report(other, 0);
    assert_eq!(cluster.good(block).len(), 2);
    assert_eq!(cluster.map.block_report(block.id, cluster.now).unwrap().live, 2);
}

#[test]
fn a_corrupt_replica_is_replaced_and_then_deleted() {
    let mut cluster = Cluster::new(&["/a", "/a", "/a", "/a"]);
    let (block, nodes) = cluster.write(3, 100);
    let bad = nodes[1];
    cluster.nodes[bad].disk.get_mut(&block.id.0).unwrap().rotten = true;
    let (id, storage) = (cluster.nodes[bad].id.clone(), cluster.nodes[bad].storage());
    cluster.map.report_bad_replica(block, &id, Some(&storage), cluster.now);
    assert_eq!(cluster.map.cluster_statistics(cluster.now).corrupt, 1);
    let located = cluster.map.locate(block.id, 0, ReaderLocation::default(), cluster.now).unwrap();
    assert!(located.locations.iter().all(|info| info.id != id));
    cluster.run(20);
    assert_eq!(cluster.good(block).len(), 3);
    assert!(!cluster.nodes[bad].disk.get(&block.id.0).is_some_and(|on_disk| on_disk.rotten));
    assert_eq!(cluster.map.cluster_statistics(cluster.now).corrupt, 0);
}

#[test]
fn corrupt_replica_is_deleted_to_make_room() {
    let mut cluster = Cluster::new(&["/a", "/a", "/a"]);
    let (block, nodes) = cluster.write(3, 100);
    for bad in &nodes[..2] {
        cluster.nodes[*bad].disk.get_mut(&block.id.0).unwrap().rotten = true;
        let (id, storage) = (cluster.nodes[*bad].id.clone(), cluster.nodes[*bad].storage());
        cluster.map.report_bad_replica(block, &id, Some(&storage), cluster.now);
    }
    cluster.run(60);
    assert_eq!(cluster.good(block).len(), 3);
    assert_eq!(cluster.map.cluster_statistics(cluster.now).corrupt, 0);
}

#[test]
fn last_replicas_are_kept_even_if_corrupt() {
    let mut cluster = Cluster::new(&["/a", "/a"]);
    let (block, nodes) = cluster.write(2, 100);
    for nth in &nodes {
        let (id, storage) = (cluster.nodes[*nth].id.clone(), cluster.nodes[*nth].storage());
        cluster.map.report_bad_replica(block, &id, Some(&storage), cluster.now);
    }
    cluster.run(30);
    assert!(nodes.iter().all(|nth| cluster.nodes[*nth].disk.contains_key(&block.id.0)));
    let located = cluster.map.locate(block.id, 0, ReaderLocation::default(), cluster.now).unwrap();
    assert!(located.corrupt);
    assert_eq!(located.locations.len(), 2);
    let figures = cluster.map.cluster_statistics(cluster.now);
    assert_eq!((figures.missing, figures.corrupt), (1, 1));
    // A full report without news does not make corrupt bytes good.
    cluster.nodes[nodes[0]].reported = false;
    cluster.run(5);
    assert_eq!(cluster.map.cluster_statistics(cluster.now).missing, 1);
}

#[test]
fn missing_blocks_with_replication_one_are_counted() {
    let mut cluster = Cluster::new(&["/a", "/a"]);
    let blocks = [1, 2, 1].map(|replication| cluster.write(replication, 100));
    for (block, nodes) in &blocks {
        for nth in nodes {
            let (id, storage) = (cluster.nodes[*nth].id.clone(), cluster.nodes[*nth].storage());
            cluster.map.report_bad_replica(*block, &id, Some(&storage), cluster.now);
        }
    }
    let counted = |cluster: &Cluster| {
        let figures = cluster.map.cluster_statistics(cluster.now);
        (figures.missing, figures.missing_with_replication_one)
    };
    assert_eq!(counted(&cluster), (3, 2));
    let [(one, _), (two, _), (last, nodes)] = blocks;
    cluster.map.set_replication(two.id, 1, cluster.now);
    assert_eq!(counted(&cluster), (3, 3));
    cluster.map.set_replication(one.id, 3, cluster.now);
    assert_eq!(counted(&cluster), (3, 2));
    cluster.map.remove(two.id);
    assert_eq!(counted(&cluster), (2, 1));
    cluster.receive(nodes[0], last);
    assert_eq!(counted(&cluster), (1, 0));
}

#[test]
fn full_report_detects_vanished_replica() {
    let mut cluster = Cluster::new(&["/a", "/a", "/a"]);
    let (block, nodes) = cluster.write(2, 100);
    cluster.nodes[nodes[0]].disk.clear();
    cluster.nodes[nodes[0]].reported = false;
    cluster.run(20);
    assert_eq!(cluster.good(block).len(), 2);
}

#[test]
fn unknown_and_outdated_replicas_are_deleted() {
    let mut cluster = Cluster::new(&["/a", "/a"]);
    cluster.map.note_stamp(hearth_types::GenerationStamp(1001));
    let stray = OnDisk { stamp: 1001, length: 5, state: ReplicaState::Finalized, rotten: false };
    cluster.nodes[0].disk.insert(999, stray);
    cluster.nodes[0].reported = false;
    cluster.run(10);
    assert!(cluster.nodes[0].disk.is_empty());
}

#[test]
fn blocks_are_spread_over_two_racks() {
    let mut cluster = Cluster::new(&["/a", "/a"]);
    let (block, _) = cluster.write(2, 100);
    cluster.add("/b");
    cluster.map.set_replication(block.id, 2, cluster.now);
    cluster.run(30);
    let left = cluster.good(block);
    assert_eq!(left.len(), 2);
    assert!(left.contains(&2), "{left:?}");
}

#[test]
fn leaving_node_is_drained_before_it_goes() {
    let mut cluster = Cluster::new(&["/a", "/a", "/a", "/a"]);
    let blocks: Vec<_> = (0..20).map(|_| cluster.write(3, 100).0).collect();
    let host = |name: &str| HostLists {
        exclude: vec![HostEntry { names: vec![name.into()], port: None }],
        ..HostLists::default()
    };
    cluster.map.set_hosts(host("host2"), cluster.now);
    let admin = |cluster: &Cluster| {
        let all = cluster.map.datanodes(DatanodeFilter::All);
        all.into_iter().find(|(info, _)| info.id.host_name == "host2").unwrap().0.admin_state
    };
    assert_eq!(admin(&cluster), DatanodeAdminState::DecommissionInProgress);
    cluster.run(100);
    assert_eq!(admin(&cluster), DatanodeAdminState::Decommissioned);
    for block in &blocks {
        assert_eq!(cluster.good(*block).into_iter().filter(|nth| *nth != 1).count(), 3);
    }
    cluster.map.set_hosts(HostLists::default(), cluster.now);
    assert_eq!(admin(&cluster), DatanodeAdminState::Normal);
    cluster.run(20);
    assert!(blocks.iter().all(|block| cluster.good(*block).len() == 3));
}

#[test]
fn balancer_hint_selects_the_deleted_copy() {
    let mut cluster = Cluster::new(&["/a", "/a", "/a"]);
    let (block, nodes) = cluster.write(2, 100);
    let to = (0..3).find(|nth| !nodes.contains(nth)).unwrap();
    let on_disk = cluster.nodes[nodes[1]].disk[&block.id.0];
    cluster.nodes[to].disk.insert(block.id.0, on_disk);
    let delete_hint = Some(cluster.nodes[nodes[1]].id.uuid.clone());
    cluster.event(to, ReplicaEvent::Received { block, delete_hint });
    cluster.run(5);
    let mut wanted = vec![nodes[0], to];
    wanted.sort();
    assert_eq!(cluster.good(block), wanted);
}

#[test]
fn older_report_does_not_remove_new_replica() {
    let mut cluster = Cluster::new(&["/a"]);
    let id = cluster.nodes[0].id.clone();
    let storage = cluster.nodes[0].storage();
    let heartbeat = Heartbeat {
        storages: vec![hearth_types::StorageReport {
            storage: storage.clone(),
            storage_type: hearth_types::StorageType::Disk,
            failed: false,
            capacity: 1 << 40,
            dfs_used: 0,
            remaining: 1 << 40,
            block_pool_used: 0,
            non_dfs_used: 0,
        }],
        transmits: 0,
        xceivers: 0,
        failed_volumes: 0,
        cache_capacity: 0,
        cache_used: 0,
        wants_report_lease: true,
    };
    let lease = cluster.map.heartbeat(&id, heartbeat, cluster.now).unwrap().report_lease;
    let (block, _) = cluster.write(1, 10);
    let empty = [StorageContents { storage, storage_type: hearth_types::StorageType::Disk, replicas: vec![] }];
    let context = Some(ReportContext { calls: 1, call: 0, lease });
    assert_eq!(cluster.map.full_report(&id, context, &empty, cluster.now), Ok(true));
    assert_eq!(cluster.map.block_report(block.id, cluster.now).unwrap().live, 1);
    // The lease is used up.
    assert_eq!(cluster.map.full_report(&id, context, &empty, cluster.now), Err(ReportError::InvalidLease { lease }));
    cluster.pass(Duration::from_secs(1));
    let forced = Some(ReportContext { calls: 1, call: 0, lease: 0 });
    assert!(cluster.map.full_report(&id, forced, &empty, cluster.now).is_ok());
    assert_eq!(cluster.map.block_report(block.id, cluster.now).unwrap().live, 0);
}

#[test]
fn lost_deletion_is_dropped_if_replica_needed() {
    let mut cluster = Cluster::new(&["/a", "/a"]);
    let (block, _) = cluster.write(2, 100);
    cluster.nodes.iter_mut().for_each(|node| node.deaf = true);
    cluster.map.set_replication(block.id, 1, cluster.now);
    cluster.run(10);
    let counted = |cluster: &Cluster| cluster.map.block_report(block.id, cluster.now).unwrap();
    assert_eq!((counted(&cluster).live, cluster.good(block).len()), (1, 2));
    let located = cluster.map.locate(block.id, 0, ReaderLocation::default(), cluster.now).unwrap();
    let kept = cluster.nth(&located.locations[0].id);
    // While the other replica exists, the deletion is sent again.
    cluster.nodes[1 - kept].reported = false;
    cluster.run(10);
    assert_eq!(cluster.map.cluster_statistics(cluster.now).pending_deletion, 0);
    // The other replica is lost, and then this node reports.
    cluster.nodes[kept].up = false;
    cluster.run(1000);
    cluster.nodes[1 - kept].deaf = false;
    cluster.nodes[1 - kept].reported = false;
    cluster.run(10);
    assert_eq!((counted(&cluster).live, cluster.good(block).contains(&(1 - kept))), (1, true));
}

#[test]
fn deletions_of_restarted_node_wait_for_reports() {
    let mut cluster = Cluster::new(&["/a", "/a"]);
    let (block, nodes) = cluster.write(2, 100);
    cluster.map.set_replication(block.id, 1, cluster.now);
    let chosen = nodes.iter().copied().find(|nth| {
        let located = cluster.map.locate(block.id, 0, ReaderLocation::default(), cluster.now).unwrap();
        located.locations[0].id != cluster.nodes[*nth].id
    });
    let (chosen, other) = (chosen.unwrap(), 1 - chosen.unwrap());
    // Both lose power before the deletion is sent; the other one also loses its disk, and comes back later.
    for nth in [chosen, other] {
        cluster.nodes[nth].registered = false;
    }
    cluster.nodes[other].disk.clear();
    cluster.beat(chosen);
    cluster.beat(chosen);
    cluster.beat(other);
    cluster.run(20);
    assert_eq!(cluster.good(block), [chosen]);
}

#[test]
fn deletion_applies_to_any_storage_of_node() {
    let mut cluster = Cluster::new(&["/a", "/a"]);
    let (block, nodes) = cluster.write(1, 100);
    let tell = |cluster: &mut Cluster, storage: &str, event: ReplicaEvent| {
        let (id, storage) = (cluster.nodes[nodes[0]].id.clone(), hearth_types::StorageId(storage.into()));
        cluster.map.replica_events(&id, &storage, hearth_types::StorageType::Disk, &[event], cluster.now).unwrap();
    };
    let live = |cluster: &Cluster| cluster.map.block_report(block.id, cluster.now).unwrap().live;
    // The replica moved to another storage, and was deleted there before the move was reported.
    tell(&mut cluster, "DS-other", ReplicaEvent::Deleted(block));
    assert_eq!(live(&cluster), 0);
    // A new replica is reported after the deletion; a moved one is never reported together with one.
    tell(&mut cluster, "DS-third", ReplicaEvent::Received { block, delete_hint: None });
    assert_eq!(live(&cluster), 1);
    tell(&mut cluster, "DS-other", ReplicaEvent::Received { block, delete_hint: None });
    assert_eq!(live(&cluster), 1);
    // Replicas on other nodes are not affected.
    let second = 1 - nodes[0];
    cluster.receive(second, block);
    tell(&mut cluster, "DS-third", ReplicaEvent::Deleted(block));
    assert_eq!(live(&cluster), 1);
}
