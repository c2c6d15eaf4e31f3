//! What sources are told to copy: in which order, by whom, how much at a time, and how soon they hear of it.

use std::time::Duration;

use hearth_types::{Block, DatanodeAdminState};

use super::cluster::*;
use crate::blocks::*;

const MIB: u64 = 1 << 20;

fn windowed(window: u64) -> BlockSettings {
    BlockSettings { transfer_window: window, ..BlockSettings::default() }
}

/// Has every node ask to be told of work; who was told already is due.
fn await_all(cluster: &mut Cluster) -> Vec<Option<WorkWait>> {
    (0..cluster.nodes.len())
        .map(|nth| {
            let id = cluster.nodes[nth].id.clone();
            cluster.map.await_work(&id)
        })
        .collect()
}

fn is_woken(wait: &mut Option<WorkWait>) -> bool {
    wait.as_mut().is_none_or(|wait| wait.try_recv().is_ok())
}

/// Blocks and bytes of what a node was told to send and has not sent.
fn scheduled_transfers(cluster: &Cluster, nth: usize) -> (usize, u64) {
    let tasks = &cluster.nodes[nth].transfers;
    (tasks.len(), tasks.iter().map(|task| task.block.block.length).sum())
}

/// Blocks of one replica on the first of two nodes, all to have two.
fn short_of_one(cluster: &mut Cluster, count: usize, length: u64) -> Vec<Block> {
    let blocks: Vec<_> = (0..count).map(|_| cluster.write(1, length).0).collect();
    cluster.add("/a");
    for block in &blocks {
        cluster.map.set_replication(block.id, 2, cluster.now);
    }
    blocks
}

/// The node sends the first thing that it was told to.
fn send_one(cluster: &mut Cluster, nth: usize) {
    let task = cluster.nodes[nth].transfers.remove(0);
    for target in task.targets {
        let to = cluster.nth(&target.datanode.id);
        cluster.receive(to, task.block.block);
    }
}

#[test]
fn who_awaits_work_is_whole_again_without_time_passing() {
    let mut cluster = Cluster::with(&["/a"], windowed(5 * MIB));
    let blocks = short_of_one(&mut cluster, 50, MIB / 2);
    let mut waits = await_all(&mut cluster);
    cluster.map.tick(cluster.now);
    assert!(is_woken(&mut waits[0]), "it has work");
    assert!(!is_woken(&mut waits[1]), "it has none");
    let mut beats = 0;
    while blocks.iter().any(|block| cluster.good(*block).len() < 2) {
        cluster.beat(0);
        beats += 1;
        assert!(beats < 100, "it never ends");
        let (_, bytes) = scheduled_transfers(&cluster, 0);
        assert!(bytes <= cluster.map.settings().transfer_window, "{bytes} bytes at once");
        let mut wait = await_all(&mut cluster).swap_remove(0);
        while !cluster.nodes[0].transfers.is_empty() {
            send_one(&mut cluster, 0);
        }
        let left = blocks.iter().any(|block| cluster.good(*block).len() < 2);
        assert_eq!(is_woken(&mut wait), left, "it is told of the next when it has sent the last");
    }
}

#[test]
fn a_window_of_bytes_is_filled_and_half_of_it_is_free_before_it_is_filled_again() {
    let mut cluster = Cluster::with(&["/a"], windowed(10 * MIB));
    short_of_one(&mut cluster, 40, MIB);
    await_all(&mut cluster);
    cluster.map.tick(cluster.now);
    cluster.beat(0);
    assert_eq!(scheduled_transfers(&cluster, 0), (10, 10 * MIB));
    let mut wait = await_all(&mut cluster).swap_remove(0);
    for _ in 0..5 {
        assert!(!is_woken(&mut wait));
        send_one(&mut cluster, 0);
    }
    // Five are on their way; with the next there would be more than half a window.
    assert!(!is_woken(&mut wait));
    send_one(&mut cluster, 0);
    assert!(is_woken(&mut wait));
    cluster.beat(0);
    assert_eq!(scheduled_transfers(&cluster, 0), (10, 10 * MIB));
}

#[test]
fn large_blocks_are_as_many_as_hadoops_keys_say() {
    let settings = BlockSettings { max_streams: 2, max_streams_hard: 4, ..windowed(MIB) };
    let mut cluster = Cluster::with(&["/a", "/a", "/a"], settings.clone());
    // Urgent ones: a single replica each, on any node.
    let urgent: Vec<_> = (0..60).map(|_| cluster.write(1, MIB).0).collect();
    cluster.add("/a");
    for block in &urgent {
        cluster.map.set_replication(block.id, 2, cluster.now);
    }
    await_all(&mut cluster);
    cluster.map.tick(cluster.now);
    for nth in 0..3 {
        cluster.beat(nth);
        assert_eq!(scheduled_transfers(&cluster, nth).0, settings.max_streams_hard as usize);
    }
    let mut cluster = Cluster::with(&["/a", "/a", "/a"], settings.clone());
    let low: Vec<_> = (0..60).map(|_| cluster.write(2, MIB).0).collect();
    for block in &low {
        cluster.map.set_replication(block.id, 3, cluster.now);
    }
    await_all(&mut cluster);
    cluster.map.tick(cluster.now);
    for nth in 0..3 {
        cluster.beat(nth);
        assert_eq!(scheduled_transfers(&cluster, nth).0, settings.max_streams as usize);
    }
}

#[test]
fn a_target_is_not_flooded_by_many_sources() {
    let mut cluster = Cluster::with(&["/a"; 6], windowed(8 * MIB));
    let blocks: Vec<_> = (0..80).map(|_| cluster.write(6, MIB).0).collect();
    let new = cluster.add("/a");
    for block in &blocks {
        cluster.map.set_replication(block.id, 7, cluster.now);
    }
    await_all(&mut cluster);
    cluster.map.tick(cluster.now);
    (0..6).for_each(|nth| cluster.beat(nth));
    let sent: u64 = (0..6).map(|nth| scheduled_transfers(&cluster, nth).1).sum();
    assert_eq!(sent, 16 * MIB, "two windows, not six");
    // And it goes on.
    for _ in 0..200 {
        for nth in 0..6 {
            cluster.transfer(nth);
            cluster.beat(nth);
        }
    }
    assert!(blocks.iter().all(|block| cluster.good(*block).contains(&new)));
}

#[test]
fn the_greatest_risk_goes_first_whatever_came_first() {
    let mut cluster = Cluster::with(&["/a", "/a", "/a", "/a"], windowed(MIB));
    let two_left: Vec<_> = (0..30).map(|_| cluster.write(2, MIB).0).collect();
    let one_of_many: Vec<_> = (0..30).map(|_| cluster.write(1, MIB).0).collect();
    for block in &two_left {
        cluster.map.set_replication(block.id, 3, cluster.now);
    }
    for block in &one_of_many {
        cluster.map.set_replication(block.id, 2, cluster.now);
    }
    await_all(&mut cluster);
    let mut order: Vec<Block> = Vec::new();
    for _ in 0..200 {
        cluster.map.tick(cluster.now);
        for nth in 0..4 {
            cluster.beat(nth);
            order.extend(cluster.nodes[nth].transfers.iter().map(|task| task.block.block));
        }
        (0..4).for_each(|nth| cluster.transfer(nth));
    }
    let last_urgent = order.iter().rposition(|block| one_of_many.contains(block)).unwrap();
    let low_before = order[..last_urgent].iter().filter(|block| two_left.contains(block)).count();
    // Those that were handed out while no node with an urgent block had room.
    assert!(low_before <= 8, "{low_before} of lower priority went before the last urgent one");
    assert!(one_of_many.iter().all(|block| cluster.good(*block).len() == 2));
    assert!(two_left.iter().all(|block| cluster.good(*block).len() == 3));
}

#[test]
fn the_source_with_the_least_to_send_is_chosen() {
    let mut cluster = Cluster::with(&["/a", "/a", "/a"], windowed(64 * MIB));
    let blocks: Vec<_> = (0..24).map(|_| cluster.write(3, MIB).0).collect();
    cluster.add("/a");
    for block in &blocks {
        cluster.map.set_replication(block.id, 4, cluster.now);
    }
    await_all(&mut cluster);
    cluster.map.tick(cluster.now);
    (0..3).for_each(|nth| cluster.beat(nth));
    let each: Vec<usize> = (0..3).map(|nth| scheduled_transfers(&cluster, nth).0).collect();
    assert_eq!(each, [8, 8, 8]);
}

#[test]
fn a_leaving_node_and_one_in_maintenance_are_served_from_the_same_queue() {
    let mut cluster = Cluster::with(&["/a", "/a", "/a"], windowed(4 * MIB));
    let blocks: Vec<_> = (0..40).map(|_| cluster.write(2, MIB).0).collect();
    let excluded =
        HostLists { exclude: vec![HostEntry { names: vec!["host1".into()], port: None }], ..HostLists::default() };
    cluster.map.set_hosts(excluded, cluster.now);
    await_all(&mut cluster);
    // Heartbeats, but no second passes: all is done by waking.
    cluster.map.tick(cluster.now);
    for _ in 0..100 {
        for nth in 0..3 {
            cluster.beat(nth);
            assert!(scheduled_transfers(&cluster, nth).1 <= 4 * MIB);
            cluster.transfer(nth);
        }
    }
    for block in &blocks {
        assert_eq!(cluster.good(*block).into_iter().filter(|nth| *nth != 0).count(), 2);
    }
    cluster.run(40);
    let all = cluster.map.datanodes(DatanodeFilter::All);
    let leaving = all.into_iter().find(|(info, _)| info.id.host_name == "host1").unwrap();
    assert_eq!(leaving.0.admin_state, DatanodeAdminState::Decommissioned);
}

#[test]
fn what_a_source_never_sends_is_given_again_and_its_window_is_free() {
    let mut cluster = Cluster::with(&["/a"], windowed(4 * MIB));
    let blocks = short_of_one(&mut cluster, 12, MIB);
    await_all(&mut cluster);
    cluster.map.tick(cluster.now);
    cluster.beat(0);
    assert_eq!(scheduled_transfers(&cluster, 0).0, 4);
    // It forgets all of them.
    cluster.nodes[0].transfers.clear();
    cluster.beat(0);
    assert_eq!(scheduled_transfers(&cluster, 0).0, 0, "they are on their way");
    for _ in 0..30 {
        cluster.pass(Duration::from_secs(1));
        cluster.map.tick(cluster.now);
        cluster.beat(0);
        cluster.beat(1);
        cluster.transfer(0);
    }
    assert!(blocks.iter().all(|block| cluster.good(*block).len() == 2));
}

#[test]
fn one_question_is_open_at_a_time_and_nobody_is_told_in_safe_mode() {
    let mut cluster = Cluster::new(&["/a"]);
    short_of_one(&mut cluster, 1, MIB);
    let mut first = await_all(&mut cluster).swap_remove(0);
    let mut second = await_all(&mut cluster).swap_remove(0);
    let superseded = first.as_mut().unwrap().try_recv();
    assert!(matches!(superseded, Err(tokio::sync::oneshot::error::TryRecvError::Closed)));
    cluster.map.tick(cluster.now);
    assert!(is_woken(&mut second));
    assert!(await_all(&mut cluster)[0].is_none(), "it is due at once");
    cluster.map.enter_safe_mode();
    assert!(await_all(&mut cluster)[0].is_some(), "no work is handed out");
    let stranger = node_id(77);
    assert!(cluster.map.await_work(&stranger).is_none(), "it is to hear that it must register");
}

#[test]
fn what_nobody_can_take_does_not_keep_the_rest_from_its_turn() {
    // More blocks than a round looks at have one replica, and the only other node has no room for them.
    let mut cluster = Cluster::new(&["/a", "/a"]);
    let stuck: Vec<Block> = (0..4000).map(|_| cluster.write(1, 2 * BLOCK_SIZE).0).collect();
    let (small, _) = cluster.write(2, 10);
    for node in &mut cluster.nodes {
        node.room = node.disk.values().map(|replica| replica.length).sum();
    }
    for block in stuck {
        cluster.map.set_replication(block.id, 2, cluster.now);
    }
    cluster.add("/a");
    cluster.nodes[2].room = BLOCK_SIZE;
    (0..3).for_each(|nth| cluster.beat(nth));
    cluster.map.set_replication(small.id, 3, cluster.now);
    cluster.run(10);
    assert_eq!(cluster.good(small).len(), 3);
}
