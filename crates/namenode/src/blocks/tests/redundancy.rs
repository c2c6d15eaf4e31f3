use std::time::Duration;

use hearth_types::{DatanodeAdminState, ReplicaState};

use super::cluster::*;
use crate::blocks::*;

#[test]
fn a_dead_nodes_replicas_are_copied_elsewhere() {
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

#[test]
fn many_small_blocks_do_not_trickle() {
    let mut cluster = Cluster::new(&["/a", "/a"]);
    let blocks: Vec<_> = (0..300).map(|_| cluster.write(1, 100).0).collect();
    for block in &blocks {
        cluster.map.set_replication(block.id, 2, cluster.now);
    }
    // Apache hands out two a node and heartbeat: 300 blocks would take 75 heartbeats of two nodes.
    cluster.run(15);
    assert!(blocks.iter().all(|block| cluster.good(*block).len() == 2));
}

#[test]
fn the_most_urgent_are_copied_first() {
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
fn transfers_that_never_arrive_are_given_again() {
    let mut cluster = Cluster::new(&["/a", "/a", "/a"]);
    let (block, nodes) = cluster.write(1, 100);
    cluster.map.set_replication(block.id, 2, cluster.now);
    cluster.beat(nodes[0]);
    assert_eq!(std::mem::take(&mut cluster.nodes[nodes[0]].transfers).len(), 1);
    cluster.beat(nodes[0]);
    assert!(cluster.nodes[nodes[0]].transfers.is_empty(), "it is pending");
    // The source forgot it, and says with every heartbeat that it sends nothing: no need to wait for 300 s.
    cluster.run(40);
    assert_eq!(cluster.good(block).len(), 2);
}

#[test]
fn too_many_replicas_are_trimmed_and_racks_kept() {
    let mut cluster = Cluster::new(&["/a", "/a", "/a", "/b"]);
    let (block, _) = cluster.write(4, 100);
    cluster.map.set_replication(block.id, 2, cluster.now);
    cluster.run(5);
    let left = cluster.good(block);
    assert_eq!(left.len(), 2);
    assert!(left.contains(&3), "one replica stays in the other rack: {left:?}");
}

#[test]
fn nothing_is_trimmed_on_the_word_of_a_node_that_has_not_reported() {
    let mut cluster = Cluster::new(&["/a", "/a", "/a"]);
    let (block, nodes) = cluster.write(3, 100);
    // It restarts with an empty disk and has registered and beaten, but not reported.
    cluster.nodes[nodes[0]].disk.clear();
    let registration = Registration {
        id: cluster.nodes[nodes[0]].id.clone(),
        software_version: "3.4.2".into(),
        rack: "/a".into(),
        offer: None,
    };
    cluster.map.register(registration, cluster.now).unwrap();
    cluster.map.set_replication(block.id, 1, cluster.now);
    cluster.map.tick(cluster.now);
    cluster.beat(nodes[1]);
    cluster.beat(nodes[2]);
    assert_eq!(cluster.good(block).len(), 2, "which of three would go is not known yet");
    cluster.nodes[nodes[0]].reported = false;
    cluster.run(10);
    assert_eq!(cluster.good(block).len(), 1);
}

/// Its connection broke while the report was decoded, and what followed it came on another one.
#[test]
fn a_report_from_before_a_deletion_brings_no_replica_back() {
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
    // A copy that comes to it again counts.
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
fn a_corrupt_replica_makes_room_where_every_node_has_one() {
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
fn the_last_replicas_are_kept_corrupt_as_they_are() {
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
    // A full report that says nothing new does not make rotten bytes good.
    cluster.nodes[nodes[0]].reported = false;
    cluster.run(5);
    assert_eq!(cluster.map.cluster_statistics(cluster.now).missing, 1);
}

#[test]
fn missing_blocks_of_which_one_replica_is_wanted_are_counted_as_they_come_and_go() {
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
fn a_vanished_replica_is_missed_by_the_full_report() {
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
fn one_rack_is_not_enough() {
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
fn a_leaving_node_is_emptied_first() {
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
fn the_balancer_names_whose_copy_goes() {
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
fn a_report_drawn_up_before_a_replica_arrived_does_not_take_it_away() {
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
fn a_deletion_that_was_not_heard_of_is_no_deletion_once_the_replica_is_needed() {
    let mut cluster = Cluster::new(&["/a", "/a"]);
    let (block, _) = cluster.write(2, 100);
    cluster.nodes.iter_mut().for_each(|node| node.deaf = true);
    cluster.map.set_replication(block.id, 1, cluster.now);
    cluster.run(10);
    let counted = |cluster: &Cluster| cluster.map.block_report(block.id, cluster.now).unwrap();
    assert_eq!((counted(&cluster).live, cluster.good(block).len()), (1, 2));
    let located = cluster.map.locate(block.id, 0, ReaderLocation::default(), cluster.now).unwrap();
    let kept = cluster.nth(&located.locations[0].id);
    // As long as the other is there, it is told again.
    cluster.nodes[1 - kept].reported = false;
    cluster.run(10);
    assert_eq!(cluster.map.cluster_statistics(cluster.now).pending_deletion, 0);
    // The other one is lost, and then this one reports.
    cluster.nodes[kept].up = false;
    cluster.run(1000);
    cluster.nodes[1 - kept].deaf = false;
    cluster.nodes[1 - kept].reported = false;
    cluster.run(10);
    assert_eq!((counted(&cluster).live, cluster.good(block).contains(&(1 - kept))), (1, true));
}

#[test]
fn what_a_restarted_node_was_to_delete_waits_until_the_others_have_reported() {
    let mut cluster = Cluster::new(&["/a", "/a"]);
    let (block, nodes) = cluster.write(2, 100);
    cluster.map.set_replication(block.id, 1, cluster.now);
    let chosen = nodes.iter().copied().find(|nth| {
        let located = cluster.map.locate(block.id, 0, ReaderLocation::default(), cluster.now).unwrap();
        located.locations[0].id != cluster.nodes[*nth].id
    });
    let (chosen, other) = (chosen.unwrap(), 1 - chosen.unwrap());
    // Both lose power before it is told; the other one loses its disk, too, and is the later to come back.
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
fn a_deletion_is_the_nodes_whatever_storage_it_names() {
    let mut cluster = Cluster::new(&["/a", "/a"]);
    let (block, nodes) = cluster.write(1, 100);
    let tell = |cluster: &mut Cluster, storage: &str, event: ReplicaEvent| {
        let (id, storage) = (cluster.nodes[nodes[0]].id.clone(), hearth_types::StorageId(storage.into()));
        cluster.map.replica_events(&id, &storage, hearth_types::StorageType::Disk, &[event], cluster.now).unwrap();
    };
    let live = |cluster: &Cluster| cluster.map.block_report(block.id, cluster.now).unwrap().live;
    // It moved to another storage, and was deleted there before that was told.
    tell(&mut cluster, "DS-other", ReplicaEvent::Deleted(block));
    assert_eq!(live(&cluster), 0);
    // A new one is told of after the deletion, and one that moves never by one.
    tell(&mut cluster, "DS-third", ReplicaEvent::Received { block, delete_hint: None });
    assert_eq!(live(&cluster), 1);
    tell(&mut cluster, "DS-other", ReplicaEvent::Received { block, delete_hint: None });
    assert_eq!(live(&cluster), 1);
    // What others have is not touched.
    let second = 1 - nodes[0];
    cluster.receive(second, block);
    tell(&mut cluster, "DS-third", ReplicaEvent::Deleted(block));
    assert_eq!(live(&cluster), 1);
}
