use std::collections::HashSet;

use super::cluster::*;
use crate::blocks::*;

fn choose(cluster: &mut Cluster, request: PlacementRequest<'_>) -> Vec<usize> {
    let targets = cluster.map.allocate_targets(&request, cluster.now).unwrap();
    targets.into_iter().map(|target| cluster.nth_of(target)).collect()
}

#[test]
fn default_placement_follows_apache() {
    let mut cluster = Cluster::new(&["/a", "/a", "/a", "/b", "/b", "/b"]);
    for _ in 0..50 {
        let chosen = choose(
            &mut cluster,
            PlacementRequest { additional: 3, block_size: 1, writer: Some("10.0.0.2"), ..Default::default() },
        );
        assert_eq!(chosen[0], 1);
        assert_eq!(chosen[1..].iter().filter(|nth| **nth >= 3).count(), 2, "{chosen:?}");
    }
}

#[test]
fn any_writer_gets_two_racks() {
    let mut cluster = Cluster::new(&["/a", "/a", "/a", "/b", "/b", "/b"]);
    let mut firsts = HashSet::new();
    for _ in 0..100 {
        let chosen = choose(&mut cluster, PlacementRequest { additional: 3, block_size: 1, ..Default::default() });
        let in_a = chosen.iter().filter(|nth| **nth < 3).count();
        assert!(in_a == 1 || in_a == 2, "{chosen:?}");
        assert_eq!(chosen.iter().collect::<HashSet<_>>().len(), 3);
        firsts.insert(chosen[0]);
    }
    assert!(firsts.len() >= 5, "the first target varies: {firsts:?}");
}

#[test]
fn replicas_are_limited_by_node_count() {
    let mut cluster = Cluster::new(&["/a", "/b"]);
    assert_eq!(choose(&mut cluster, PlacementRequest { additional: 5, block_size: 1, ..Default::default() }).len(), 2);
}

#[test]
fn http_client_is_sent_to_first_replica_node() {
    let cluster = Cluster::new(&["/a", "/a", "/b"]);
    let gateway = |block_size: u64, unwanted: &[usize]| {
        let is_unwanted = |id: &hearth_types::DatanodeId| unwanted.contains(&cluster.nth(id));
        let found = cluster.map.gateway("10.0.0.2", block_size, is_unwanted, cluster.now);
        found.map(|id| cluster.nth(&id))
    };
    for _ in 0..20 {
        assert_eq!(gateway(BLOCK_SIZE, &[]), Some(1));
        assert_eq!(gateway(BLOCK_SIZE, &[1]), Some(0), "a node of the same rack");
    }
    assert_eq!(gateway(u64::MAX, &[0, 1]), Some(2), "even without room");
    assert_eq!(gateway(BLOCK_SIZE, &[0, 1, 2]), None);
}

#[test]
fn excluded_full_busy_and_leaving_nodes_are_not_chosen() {
    let mut cluster = Cluster::new(&["/a", "/a", "/a", "/a", "/a"]);
    cluster.nodes[0].room = BLOCK_SIZE - 1;
    cluster.nodes[1].xceivers = 1000;
    for nth in 0..5 {
        cluster.beat(nth);
    }
    let hosts =
        HostLists { exclude: vec![HostEntry { names: vec!["host3".into()], port: None }], ..HostLists::default() };
    cluster.map.set_hosts(hosts, cluster.now);
    let excluded = [cluster.nodes[3].id.clone()];
    let chosen = choose(
        &mut cluster,
        PlacementRequest { additional: 3, block_size: BLOCK_SIZE, excluded: &excluded, ..Default::default() },
    );
    assert_eq!(chosen, [4]);
    // A pipeline that needs a replacement accepts a busy node, and none of the others.
    let needy = PlacementRequest {
        additional: 3,
        block_size: BLOCK_SIZE,
        excluded: &excluded,
        at_any_load: true,
        ..Default::default()
    };
    let found = cluster.map.additional_targets(&needy, cluster.now);
    let mut found: Vec<usize> = found.into_iter().map(|target| cluster.nth_of(target)).collect();
    found.sort_unstable();
    assert_eq!(found, [1, 4]);
    let all: Vec<_> = cluster.nodes.iter().map(|node| node.id.clone()).collect();
    let request = PlacementRequest { additional: 3, block_size: BLOCK_SIZE, excluded: &all, ..Default::default() };
    let error = cluster.map.allocate_targets(&request, cluster.now).unwrap_err();
    assert_eq!(
        error.to_string(),
        "could only be written to 0 of the 1 minReplication nodes. There are 5 datanode(s) running and 5 node(s) are excluded in this operation."
    );
}

#[test]
fn scheduled_room_is_not_given_twice() {
    let mut cluster = Cluster::new(&["/a"]);
    cluster.nodes[0].room = 3 * BLOCK_SIZE;
    cluster.beat(0);
    for _ in 0..3 {
        let request = PlacementRequest { additional: 1, block_size: BLOCK_SIZE, ..Default::default() };
        cluster.map.allocate_targets(&request, cluster.now).unwrap();
    }
    let request = PlacementRequest { additional: 1, block_size: BLOCK_SIZE, ..Default::default() };
    assert!(cluster.map.allocate_targets(&request, cluster.now).is_err());
}

#[test]
fn favored_nodes_first_and_no_local_write() {
    let mut cluster = Cluster::new(&["/a", "/a", "/a", "/a", "/a"]);
    let favored = ["host5:9866".to_owned(), "10.0.0.4:9866".to_owned(), "host1:1".to_owned()];
    let chosen = choose(
        &mut cluster,
        PlacementRequest { additional: 2, block_size: 1, favored: &favored, ..Default::default() },
    );
    assert_eq!(chosen.iter().copied().collect::<HashSet<_>>(), HashSet::from([3, 4]));
    for _ in 0..20 {
        let request = PlacementRequest {
            additional: 4,
            block_size: 1,
            writer: Some("10.0.0.1"),
            avoid_local_node: true,
            ..Default::default()
        };
        assert!(!choose(&mut cluster, request).contains(&0));
    }
    // Only a preference: if no other node exists, the local node is chosen.
    let request = PlacementRequest {
        additional: 5,
        block_size: 1,
        writer: Some("10.0.0.1"),
        avoid_local_node: true,
        ..Default::default()
    };
    assert_eq!(choose(&mut cluster, request).len(), 5);
}

#[test]
fn further_targets_are_new_nodes() {
    let mut cluster = Cluster::new(&["/a", "/a", "/b"]);
    let (block, nodes) = cluster.open(2);
    let chosen = cluster.map.expected_storages(block.id);
    let request = PlacementRequest { additional: 2, block_size: 1, chosen: &chosen, ..Default::default() };
    let more = cluster.map.additional_targets(&request, cluster.now);
    assert_eq!(more.len(), 1);
    assert!(!nodes.contains(&cluster.nth_of(more[0])));
}
