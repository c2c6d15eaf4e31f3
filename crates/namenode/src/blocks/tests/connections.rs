//! Datanodes whose connection has ended: offered to writers only if no other is left, to readers last.

use std::time::Duration;

use hearth_types::{Block, DatanodeId, DatanodeUuid};

use super::cluster::*;
use crate::blocks::*;

/// A cluster in which each node is heard on a connection of its own.
fn connected(racks: &[&str]) -> Cluster {
    let mut cluster = Cluster::new(racks);
    for nth in 0..racks.len() {
        hear(&mut cluster, nth, own(nth));
    }
    cluster
}

fn own(nth: usize) -> ConnectionId {
    ConnectionId(nth as u64 + 1)
}

fn hear(cluster: &mut Cluster, nth: usize, connection: ConnectionId) {
    cluster.map.heard_on(&cluster.nodes[nth].id, connection);
    cluster.beat(nth);
}

/// Returns the nodes that are disconnected because of it.
fn end(cluster: &mut Cluster, connection: ConnectionId) -> Vec<usize> {
    let ended = cluster.map.connection_ended(connection, cluster.now);
    ended.iter().map(|id| cluster.nth(id)).collect()
}

fn targets(cluster: &mut Cluster, request: PlacementRequest<'_>) -> Vec<usize> {
    let chosen = cluster.map.allocate_targets(&request, cluster.now).unwrap();
    let mut chosen: Vec<usize> = chosen.into_iter().map(|target| cluster.nth_of(target)).collect();
    chosen.sort_unstable();
    chosen
}

fn three() -> PlacementRequest<'static> {
    PlacementRequest { additional: 3, block_size: 1, writer: Some("10.0.0.1"), ..PlacementRequest::default() }
}

fn readers_at(cluster: &Cluster, block: Block, ip: &str) -> Vec<usize> {
    let located = cluster.map.locate(block.id, 0, ReaderLocation { ip: Some(ip) }, cluster.now).unwrap();
    located.locations.iter().map(|location| cluster.nth(&location.id)).collect()
}

#[test]
fn disconnected_node_gets_no_writer_until_it_is_heard() {
    let mut cluster = connected(&["/a", "/a", "/b"]);
    assert_eq!(targets(&mut cluster, three()), [0, 1, 2]);
    assert_eq!(end(&mut cluster, own(0)), [0]);
    let favored = ["10.0.0.1:9866".to_owned()];
    for _ in 0..20 {
        assert_eq!(targets(&mut cluster, three()), [1, 2]);
        assert_eq!(targets(&mut cluster, PlacementRequest { favored: &favored, ..three() }), [1, 2]);
    }
    let gateway = cluster.map.gateway("10.0.0.1", 1, |_| false, cluster.now).unwrap();
    assert_ne!(cluster.nth(&gateway), 0);
    // It is alive, and its replicas count.
    assert_eq!(cluster.map.live_datanodes(), 3);
    // A heartbeat over a new connection.
    hear(&mut cluster, 0, ConnectionId(100));
    assert_eq!(targets(&mut cluster, three()), [0, 1, 2]);
}

#[test]
fn disconnected_nodes_are_better_than_none() {
    let mut cluster = connected(&["/a", "/a", "/b"]);
    for nth in 0..3 {
        end(&mut cluster, own(nth));
    }
    assert_eq!(targets(&mut cluster, three()), [0, 1, 2]);
    assert!(cluster.map.gateway("10.0.0.1", 1, |_| false, cluster.now).is_some());
    hear(&mut cluster, 2, ConnectionId(100));
    assert_eq!(targets(&mut cluster, three()), [2]);
    // The one that is connected is excluded: its writer has just failed there.
    let excluded = [cluster.nodes[2].id.clone()];
    assert_eq!(targets(&mut cluster, PlacementRequest { excluded: &excluded, ..three() }), [0, 1]);
}

#[test]
fn disconnected_nodes_are_used_to_reach_the_minimum() {
    let mut cluster = Cluster::with(&[], BlockSettings { min_replication: 2, ..BlockSettings::default() });
    for nth in 0..3 {
        cluster.add("/a");
        hear(&mut cluster, nth, own(nth));
    }
    end(&mut cluster, own(0));
    assert_eq!(targets(&mut cluster, three()), [1, 2]);
    end(&mut cluster, own(1));
    assert_eq!(targets(&mut cluster, three()), [0, 1, 2]);
    // Also by a running pipeline that has too few members.
    let (block, _) = cluster.open(3);
    let expected = cluster.map.expected_storages(block.id);
    let chosen: Vec<StorageIndex> = expected.into_iter().filter(|target| cluster.nth_of(*target) == 2).collect();
    assert_eq!(chosen.len(), 1);
    let request = PlacementRequest { chosen: &chosen, additional: 1, block_size: 1, ..PlacementRequest::default() };
    assert_eq!(cluster.map.additional_targets(&request, cluster.now).len(), 1);
}

#[test]
fn readers_are_sent_to_disconnected_nodes_last() {
    let mut cluster = connected(&["/a", "/a", "/b"]);
    let (block, _) = cluster.write(3, 100);
    assert_eq!(readers_at(&cluster, block, "10.0.0.1")[0], 0);
    end(&mut cluster, own(0));
    // Behind a node that leaves, which serves until it has gone.
    let exclude = vec![HostEntry { names: vec!["host3".into()], port: None }];
    cluster.map.set_hosts(HostLists { exclude, ..HostLists::default() }, cluster.now);
    for _ in 0..20 {
        assert_eq!(readers_at(&cluster, block, "10.0.0.1"), [1, 2, 0]);
    }
    // The only replica is offered all the same.
    let (only, nodes) = cluster.write(1, 100);
    end(&mut cluster, own(nodes[0]));
    assert_eq!(readers_at(&cluster, only, "10.0.0.9"), nodes);
    hear(&mut cluster, 0, ConnectionId(100));
    assert_eq!(readers_at(&cluster, block, "10.0.0.1")[0], 0);
}

#[test]
fn only_the_last_connection_of_a_node_counts() {
    let mut cluster = connected(&["/a", "/a"]);
    // A node reconnects before the end of its old connection is seen.
    hear(&mut cluster, 0, ConnectionId(100));
    assert!(!cluster.map.is_datanode_on(own(0)) && cluster.map.is_datanode_on(ConnectionId(100)));
    assert!(end(&mut cluster, own(0)).is_empty());
    assert_eq!(targets(&mut cluster, three()), [0, 1]);
    // Two nodes share a connection; one of them calls on another one, too.
    hear(&mut cluster, 1, ConnectionId(100));
    hear(&mut cluster, 0, ConnectionId(101));
    assert_eq!(end(&mut cluster, ConnectionId(100)), [1]);
    assert_eq!(targets(&mut cluster, three()), [0]);
    // Seen again, for example by a late task of that connection.
    assert!(end(&mut cluster, ConnectionId(100)).is_empty());
    hear(&mut cluster, 1, ConnectionId(102));
    // A node that was replaced is not known by its connection any more.
    let new = DatanodeId { uuid: DatanodeUuid("another".into()), ..cluster.nodes[0].id.clone() };
    let registration =
        Registration { id: new, software_version: "3.4.2".into(), rack: DEFAULT_RACK.into(), offer: None };
    cluster.map.register(registration, cluster.now).unwrap();
    assert!(!cluster.map.is_datanode_on(ConnectionId(101)));
    assert!(cluster.map.connection_ended(ConnectionId(101), cluster.now).is_empty());
    // An unknown node is not remembered.
    cluster.map.heard_on(&node_id(9), ConnectionId(103));
    assert!(!cluster.map.is_datanode_on(ConnectionId(103)));
}

#[test]
fn idle_connections_of_rare_heartbeats_may_close() {
    for (interval, after, disconnected) in [(3, 1, true), (3, 20, true), (30, 1, true), (30, 10, false)] {
        let heartbeat_interval = Duration::from_secs(interval);
        let mut cluster =
            Cluster::with(&["/a", "/a"], BlockSettings { heartbeat_interval, ..BlockSettings::default() });
        hear(&mut cluster, 0, own(0));
        cluster.pass(Duration::from_secs(after));
        assert_eq!(!end(&mut cluster, own(0)).is_empty(), disconnected, "{interval} s, {after} s");
    }
}

#[test]
fn copies_neither_come_from_nor_go_to_disconnected_nodes() {
    let mut cluster = connected(&["/a", "/a", "/a", "/a"]);
    let (block, nodes) = cluster.write(2, 100);
    let others: Vec<usize> = (0..4).filter(|nth| !nodes.contains(nth)).collect();
    end(&mut cluster, own(nodes[0]));
    end(&mut cluster, own(others[0]));
    cluster.map.set_replication(block.id, 4, cluster.now);
    cluster.map.tick(cluster.now);
    cluster.beat(nodes[1]);
    let sent: Vec<usize> = cluster.nodes[nodes[1]]
        .transfers
        .iter()
        .flat_map(|task| task.targets.iter().map(|target| cluster.nth(&target.datanode.id)))
        .collect();
    assert_eq!(sent, [others[1]]);
    // The last copy is made when its target is back.
    hear(&mut cluster, others[0], ConnectionId(100));
    cluster.run(20);
    assert_eq!(cluster.good(block).len(), 4);
}

#[test]
fn queued_deletion_waits_for_a_disconnected_node() {
    for comes_back in [false, true] {
        let mut cluster = connected(&["/a", "/a"]);
        let (block, _) = cluster.write(2, 100);
        cluster.map.set_replication(block.id, 1, cluster.now);
        let other = readers_at(&cluster, block, "10.0.0.9")[0];
        let chosen = 1 - other;
        assert_eq!(end(&mut cluster, own(other)), [other]);
        for _ in 0..3 {
            cluster.beat(chosen);
            assert_eq!(cluster.good(block).len(), 2);
            cluster.map.tick(cluster.now);
        }
        if comes_back {
            hear(&mut cluster, other, ConnectionId(100));
            cluster.run(10);
            assert_eq!(cluster.good(block).len(), 1);
        } else {
            cluster.nodes[other].up = false;
            cluster.nodes[other].disk.clear();
            cluster.run(1000);
            assert_eq!(cluster.good(block), [chosen]);
        }
    }
}

#[test]
fn connected_node_leads_a_recovery() {
    let mut cluster = connected(&["/a", "/a"]);
    let (block, _) = cluster.open(2);
    // Heard last, and gone since.
    cluster.pass(Duration::from_secs(1));
    cluster.beat(1);
    end(&mut cluster, own(1));
    let stamp = cluster.new_stamp();
    let primary = cluster.map.start_recovery(block.id, stamp, cluster.now).unwrap().unwrap();
    assert_eq!(cluster.nth(&cluster.map.datanode_info(primary).id), 0);
}
