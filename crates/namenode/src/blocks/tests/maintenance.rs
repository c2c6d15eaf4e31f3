use hearth_types::{Block, DatanodeAdminState};

use super::cluster::*;
use crate::blocks::*;

/// Puts `nth` into maintenance for `seconds` from now.
fn maintain(cluster: &mut Cluster, nth: usize, seconds: u64) {
    let entry = HostEntry { names: vec![format!("host{}", nth + 1)], port: None };
    let until = cluster.now.wall_ms + seconds * 1000;
    let hosts = HostLists { maintenance: vec![(entry, until)], ..HostLists::default() };
    cluster.map.set_hosts(hosts, cluster.now);
}

fn admin(cluster: &Cluster, nth: usize) -> DatanodeAdminState {
    let all = cluster.map.datanodes(DatanodeFilter::All);
    all.into_iter().find(|(info, _)| info.id == cluster.nodes[nth].id).unwrap().0.admin_state
}

fn readers_are_sent_to(cluster: &Cluster, block: Block) -> Vec<usize> {
    let located = cluster.map.locate(block.id, 0, ReaderLocation::default(), cluster.now).unwrap();
    assert!(!located.corrupt);
    located.locations.iter().map(|location| cluster.nth(&location.id)).collect()
}

#[test]
fn replicas_in_maintenance_are_not_copied() {
    let mut cluster = Cluster::new(&["/a", "/a", "/a", "/a"]);
    let blocks: Vec<Block> = (0..20).map(|_| cluster.write(3, 100).0).collect();
    let before: Vec<Vec<usize>> = blocks.iter().map(|block| cluster.good(*block)).collect();
    maintain(&mut cluster, 1, 10_000);
    assert_eq!(admin(&cluster, 1), DatanodeAdminState::InMaintenance, "each block has a replica elsewhere");
    cluster.run(10);
    assert!(blocks.iter().all(|block| !readers_are_sent_to(&cluster, *block).contains(&1)));
    // Switched off for hours.
    cluster.nodes[1].up = false;
    cluster.run(3000);
    assert_eq!(cluster.map.live_datanodes(), 3);
    assert_eq!(blocks.iter().map(|block| cluster.good(*block)).collect::<Vec<_>>(), before);
    assert_eq!(cluster.map.cluster_statistics(cluster.now).low_redundancy, 0);
    cluster.nodes[1].up = true;
    cluster.run(10);
    cluster.map.set_hosts(HostLists::default(), cluster.now);
    assert_eq!(admin(&cluster, 1), DatanodeAdminState::Normal);
    cluster.run(30);
    assert_eq!(blocks.iter().map(|block| cluster.good(*block)).collect::<Vec<_>>(), before);
    assert!(blocks.iter().all(|block| readers_are_sent_to(&cluster, *block).len() == 3));
}

#[test]
fn maintenance_waits_for_the_last_replica() {
    let mut cluster = Cluster::new(&["/a", "/a"]);
    let (block, nodes) = cluster.write(1, 100);
    let holder = nodes[0];
    maintain(&mut cluster, holder, 10_000);
    assert_eq!(admin(&cluster, holder), DatanodeAdminState::EnteringMaintenance);
    assert_eq!(readers_are_sent_to(&cluster, block), [holder]);
    cluster.run(100);
    assert_eq!(admin(&cluster, holder), DatanodeAdminState::InMaintenance);
    assert_eq!(cluster.good(block).len(), 2);
    assert_eq!(readers_are_sent_to(&cluster, block), [1 - holder]);
    // Back in service, the block has one replica too many.
    cluster.map.set_hosts(HostLists::default(), cluster.now);
    cluster.run(30);
    assert_eq!(cluster.good(block).len(), 1);
}

#[test]
fn absent_node_is_dead_after_maintenance() {
    let mut cluster = Cluster::new(&["/a", "/a", "/a", "/a"]);
    let (block, nodes) = cluster.write(3, 100);
    let away = nodes[0];
    maintain(&mut cluster, away, 2000);
    cluster.nodes[away].up = false;
    cluster.run(1900);
    assert_eq!(cluster.good(block).len(), 3, "including the one in maintenance");
    cluster.run(200);
    assert_eq!(admin(&cluster, away), DatanodeAdminState::Normal);
    assert_eq!(cluster.good(block).iter().filter(|nth| **nth != away).count(), 3);
    // A node in maintenance that is present is treated like any other.
    maintain(&mut cluster, nodes[1], 100);
    cluster.run(150);
    assert_eq!(admin(&cluster, nodes[1]), DatanodeAdminState::Normal);
    assert!(readers_are_sent_to(&cluster, block).contains(&nodes[1]));
}

#[test]
fn maintenance_can_become_decommissioning() {
    let mut cluster = Cluster::new(&["/a", "/a", "/a", "/a"]);
    let (block, nodes) = cluster.write(3, 100);
    maintain(&mut cluster, nodes[0], 10_000);
    let exclude = vec![HostEntry { names: vec![format!("host{}", nodes[0] + 1)], port: None }];
    cluster.map.set_hosts(HostLists { exclude, ..HostLists::default() }, cluster.now);
    assert_eq!(admin(&cluster, nodes[0]), DatanodeAdminState::DecommissionInProgress);
    cluster.run(60);
    assert_eq!(admin(&cluster, nodes[0]), DatanodeAdminState::Decommissioned);
    assert_eq!(cluster.good(block).iter().filter(|nth| **nth != nodes[0]).count(), 3);
}
