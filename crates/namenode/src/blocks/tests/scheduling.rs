//! Scheduling of copies: their order, sources and batch sizes, and how soon sources are notified.

use std::time::Duration;

use hearth_types::{Block, DatanodeAdminState};

use super::cluster::*;
use crate::blocks::*;

const MIB: u64 = 1 << 20;

fn windowed(window: u64) -> BlockSettings {
    BlockSettings { transfer_window: window, ..BlockSettings::default() }
}

/// Makes every node call awaitWork; `None` for nodes that already have work.
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

/// Blocks and bytes that were assigned to a node and not sent yet.
fn scheduled_transfers(cluster: &Cluster, nth: usize) -> (usize, u64) {
    let tasks = &cluster.nodes[nth].transfers;
    (tasks.len(), tasks.iter().map(|task| task.block.block.length).sum())
}

/// Creates blocks with one replica, on the first of two nodes, all with replication 2.
fn short_of_one(cluster: &mut Cluster, count: usize, length: u64) -> Vec<Block> {
    let blocks: Vec<_> = (0..count).map(|_| cluster.write(1, length).0).collect();
    cluster.add("/a");
    for block in &blocks {
        cluster.map.set_replication(block.id, 2, cluster.now);
    }
    blocks
}

/// Lets the node carry out its first transfer.
fn send_one(cluster: &mut Cluster, nth: usize) {
    let task = cluster.nodes[nth].transfers.remove(0);
    for target in task.targets {
        let to = cluster.nth(&target.datanode.id);
        cluster.receive(to, task.block.block);
    }
}

#[test]
fn await_work_repairs_without_waiting() {
    let mut cluster = Cluster::with(&["/a"], windowed(5 * MIB));
    let blocks = short_of_one(&mut cluster, 50, MIB / 2);
    let mut waits = await_all(&mut cluster);
    cluster.map.tick(cluster.now);
    assert!(is_woken(&mut waits[0]), "the node has work");
    assert!(!is_woken(&mut waits[1]), "the node has no work");
    let mut beats = 0;
    while blocks.iter().any(|block| cluster.good(*block).len() < 2) {
        cluster.beat(0);
        beats += 1;
        assert!(beats < 100, "the transfers never end");
        let (_, bytes) = scheduled_transfers(&cluster, 0);
        assert!(bytes <= cluster.map.settings().transfer_window, "{bytes} bytes at once");
        let mut wait = await_all(&mut cluster).swap_remove(0);
        while !cluster.nodes[0].transfers.is_empty() {
            send_one(&mut cluster, 0);
        }
        let left = blocks.iter().any(|block| cluster.good(*block).len() < 2);
        assert_eq!(is_woken(&mut wait), left, "the node is notified when it has sent its last replica");
    }
}

#[test]
fn window_is_refilled_when_half_free() {
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
    // Five are pending; with the next there would be more than half a window.
    assert!(!is_woken(&mut wait));
    send_one(&mut cluster, 0);
    assert!(is_woken(&mut wait));
    cluster.beat(0);
    assert_eq!(scheduled_transfers(&cluster, 0), (10, 10 * MIB));
}

#[test]
fn large_blocks_are_limited_by_max_streams() {
    let settings = BlockSettings { max_streams: 2, max_streams_hard: 4, ..windowed(MIB) };
    let mut cluster = Cluster::with(&["/a", "/a", "/a"], settings.clone());
    // Urgent blocks: a single replica each, on any node.
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
fn target_is_not_flooded_by_many_sources() {
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
    // Scheduling continues.
    for _ in 0..200 {
        for nth in 0..6 {
            cluster.transfer(nth);
            cluster.beat(nth);
        }
    }
    assert!(blocks.iter().all(|block| cluster.good(*block).contains(&new)));
}

#[test]
fn highest_priority_blocks_are_sent_first() {
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
    // Blocks that were given out while no node with an urgent block had room.
    assert!(low_before <= 8, "{low_before} of lower priority went before the last urgent one");
    assert!(one_of_many.iter().all(|block| cluster.good(*block).len() == 2));
    assert!(two_left.iter().all(|block| cluster.good(*block).len() == 3));
}

#[test]
fn least_loaded_source_is_chosen() {
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
fn leaving_and_maintenance_nodes_share_the_queue() {
    let mut cluster = Cluster::with(&["/a", "/a", "/a"], windowed(4 * MIB));
    let blocks: Vec<_> = (0..40).map(|_| cluster.write(2, MIB).0).collect();
    let excluded =
        HostLists { exclude: vec![HostEntry { names: vec!["host1".into()], port: None }], ..HostLists::default() };
    cluster.map.set_hosts(excluded, cluster.now);
    await_all(&mut cluster);
    // Heartbeats without the passing of time: everything happens by notification.
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
fn unsent_transfers_are_rescheduled_and_free_window() {
    let mut cluster = Cluster::with(&["/a"], windowed(4 * MIB));
    let blocks = short_of_one(&mut cluster, 12, MIB);
    await_all(&mut cluster);
    cluster.map.tick(cluster.now);
    cluster.beat(0);
    assert_eq!(scheduled_transfers(&cluster, 0).0, 4);
    // The source forgets all of them.
    cluster.nodes[0].transfers.clear();
    cluster.beat(0);
    assert_eq!(scheduled_transfers(&cluster, 0).0, 0, "the transfers are still pending");
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
fn await_work_is_single_and_pauses_in_safemode() {
    let mut cluster = Cluster::new(&["/a"]);
    short_of_one(&mut cluster, 1, MIB);
    let mut first = await_all(&mut cluster).swap_remove(0);
    let mut second = await_all(&mut cluster).swap_remove(0);
    let superseded = first.as_mut().unwrap().try_recv();
    assert!(matches!(superseded, Err(tokio::sync::oneshot::error::TryRecvError::Closed)));
    cluster.map.tick(cluster.now);
    assert!(is_woken(&mut second));
    assert!(await_all(&mut cluster)[0].is_none(), "work is due at once");
    cluster.map.enter_safe_mode();
    assert!(await_all(&mut cluster)[0].is_some(), "safe mode gives out no work");
    let stranger = node_id(77);
    assert!(cluster.map.await_work(&stranger).is_none(), "an unknown node must learn that it must register");
}

#[test]
fn unplaceable_blocks_do_not_block_others() {
    // More blocks than a round examines have one replica, and the only other node has no room for them.
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
