use hearth_types::{DatanodeAdminState, DatanodeId, DatanodeUuid, StorageId, StorageReport, StorageType};

use super::cluster::*;
use crate::blocks::*;

fn registration(id: DatanodeId) -> Registration {
    Registration { id, software_version: "3.4.2".into(), rack: DEFAULT_RACK.into(), offer: None }
}

#[test]
fn known_uuid_at_new_address_is_moved_node() {
    let mut cluster = Cluster::new(&["/a", "/a"]);
    let (block, _) = cluster.write(2, 10);
    let old = cluster.nodes[0].id.clone();
    cluster.nodes[0].id.ip = "10.9.9.9".into();
    cluster.nodes[0].registered = false;
    cluster.beat(0);
    assert_eq!(cluster.map.datanodes(DatanodeFilter::All).len(), 2);
    assert!(cluster.map.find_datanode(&old).is_none());
    assert_eq!(cluster.map.block_report(block.id, cluster.now).unwrap().live, 2);
}

#[test]
fn new_uuid_at_known_address_replaces_node() {
    let mut cluster = Cluster::new(&["/a", "/a"]);
    let (block, _) = cluster.write(2, 10);
    let (open, _) = cluster.open(2);
    let new = DatanodeId { uuid: DatanodeUuid("another".into()), ..cluster.nodes[0].id.clone() };
    cluster.map.register(registration(new), cluster.now).unwrap();
    assert_eq!(cluster.map.datanodes(DatanodeFilter::All).len(), 2);
    assert_eq!(cluster.map.block_report(block.id, cluster.now).unwrap().live, 1);
    assert_eq!(cluster.map.expected_storages(open.id).len(), 1);
}

fn heartbeat_with(storages: &[StorageId]) -> Heartbeat {
    let report = |storage: &StorageId| StorageReport {
        storage: storage.clone(),
        storage_type: StorageType::Disk,
        failed: false,
        capacity: 1 << 40,
        dfs_used: 0,
        remaining: 1 << 40,
        block_pool_used: 0,
        non_dfs_used: 0,
    };
    Heartbeat {
        storages: storages.iter().map(report).collect(),
        transmits: 0,
        xceivers: 0,
        failed_volumes: 0,
        cache_capacity: 0,
        cache_used: 0,
        wants_report_lease: false,
    }
}

/// Checks that a start does not visit all open blocks for each storage that comes: the lock is held throughout.
#[test]
fn new_storages_do_not_visit_open_blocks() {
    const BLOCKS: usize = 50_000;
    let mut cluster = Cluster::empty(BlockSettings::default());
    for _ in 0..BLOCKS {
        let block = cluster.new_block();
        cluster.map.restore(block, 16386, 3, 0, false);
    }
    cluster.map.restored(cluster.now);
    for _ in 0..200 {
        cluster.add("/a");
    }
    assert!(cluster.map.visited_open_blocks < 1_000_000, "{} visited", cluster.map.visited_open_blocks);
    // A restarted, a dead and a replaced node with many storages.
    let many: Vec<StorageId> = (0..20).map(|nth| StorageId(format!("DS-{nth}").into())).collect();
    cluster.map.register(registration(node_id(200)), cluster.now).unwrap();
    cluster.map.heartbeat(&node_id(200), heartbeat_with(&many), cluster.now).unwrap();
    let before = cluster.map.visited_open_blocks;
    cluster.map.register(registration(node_id(200)), cluster.now).unwrap();
    assert_eq!(cluster.map.visited_open_blocks - before, BLOCKS);
    cluster.map.datanode_failed(&node_id(200), cluster.now);
    assert_eq!(cluster.map.visited_open_blocks - before, 2 * BLOCKS);
    let another = DatanodeId { uuid: DatanodeUuid("another".into()), ..node_id(200) };
    cluster.map.register(registration(another), cluster.now).unwrap();
    assert_eq!(cluster.map.visited_open_blocks - before, 4 * BLOCKS);
}

/// Checks that a block's replica on a storage that has left the map is expected again when the storage comes with
/// another node, and that the block is not searched after that.
#[test]
fn replica_on_a_returning_storage_is_expected_again() {
    let mut cluster = Cluster::new(&["/a", "/a"]);
    let (block, _) = cluster.open(2);
    let (waiting, _) = cluster.open(2);
    let storage = cluster.nodes[0].storage();
    let new = DatanodeId { uuid: DatanodeUuid("another".into()), ..cluster.nodes[0].id.clone() };
    cluster.map.register(registration(new.clone()), cluster.now).unwrap();
    assert_eq!(cluster.map.expected_storages(block.id).len(), 1);
    cluster.map.abandon(waiting.id);
    assert_eq!(cluster.map.with_missing.iter().copied().collect::<Vec<_>>(), [block.id]);
    cluster.map.heartbeat(&new, heartbeat_with(&[StorageId("DS-new".into())]), cluster.now).unwrap();
    assert_eq!(cluster.map.expected_storages(block.id).len(), 1, "another storage");
    cluster.map.heartbeat(&new, heartbeat_with(&[StorageId("DS-new".into()), storage]), cluster.now).unwrap();
    assert_eq!(cluster.map.expected_storages(block.id).len(), 2);
    assert!(cluster.map.with_missing.is_empty());
}

#[test]
fn node_without_uuid_or_unlisted_is_refused() {
    let mut cluster = Cluster::new(&["/a"]);
    let nameless = DatanodeId { uuid: DatanodeUuid("".into()), ..node_id(5) };
    assert!(matches!(
        cluster.map.register(registration(nameless), cluster.now),
        Err(RegistrationError::Disallowed { .. })
    ));
    let include = vec![HostEntry { names: vec!["host2".into(), "10.0.0.2".into()], port: Some(9866) }];
    cluster.map.set_hosts(HostLists { include, ..HostLists::default() }, cluster.now);
    assert!(cluster.map.register(registration(node_id(1)), cluster.now).is_ok());
    // Claiming the name of a listed node does not help; the listed address under another name does.
    let renamed = DatanodeId { host_name: "host9".into(), ..node_id(1) };
    assert!(cluster.map.register(registration(renamed), cluster.now).is_ok());
    let elsewhere = DatanodeId { host_name: "host2".into(), ..node_id(2) };
    let another_port = DatanodeId { transfer_port: 9999, ..node_id(1) };
    for stranger in [node_id(2), elsewhere, another_port] {
        assert!(matches!(
            cluster.map.register(registration(stranger), cluster.now),
            Err(RegistrationError::Disallowed { reason: "the host is not in the include-list", .. })
        ));
    }
    // The node that had already registered is rejected at its next heartbeat.
    let beat = Heartbeat {
        storages: vec![],
        transmits: 0,
        xceivers: 0,
        failed_volumes: 0,
        cache_capacity: 0,
        cache_used: 0,
        wants_report_lease: false,
    };
    assert!(cluster.map.heartbeat(&node_id(0), beat, cluster.now).is_err());
}

#[test]
fn unknown_or_moved_node_must_register() {
    let mut cluster = Cluster::new(&["/a"]);
    let beat = || Heartbeat {
        storages: vec![],
        transmits: 0,
        xceivers: 0,
        failed_volumes: 0,
        cache_capacity: 0,
        cache_used: 0,
        wants_report_lease: true,
    };
    let stranger = node_id(7);
    let register = HeartbeatAnswer { commands: vec![DatanodeCommand::Register], report_lease: 0 };
    assert_eq!(cluster.map.heartbeat(&stranger, beat(), cluster.now), Ok(register.clone()));
    let elsewhere = DatanodeId { ip: "10.1.1.1".into(), ..node_id(0) };
    assert_eq!(cluster.map.heartbeat(&elsewhere, beat(), cluster.now), Ok(register.clone()));
    assert_eq!(cluster.map.full_report(&stranger, None, &[], cluster.now), Err(ReportError::Unregistered));
    cluster.map.datanode_failed(&node_id(0), cluster.now);
    assert_eq!(cluster.map.heartbeat(&node_id(0), beat(), cluster.now), Ok(register));
}

#[test]
fn concurrent_full_reports_are_limited() {
    let settings = BlockSettings { report_leases: 2, ..BlockSettings::default() };
    let mut cluster = Cluster::with(&[], settings);
    let mut granted = 0;
    for nth in 0..4 {
        cluster.map.register(registration(node_id(nth)), cluster.now).unwrap();
        let beat = Heartbeat {
            storages: vec![],
            transmits: 0,
            xceivers: 0,
            failed_volumes: 0,
            cache_capacity: 0,
            cache_used: 0,
            wants_report_lease: true,
        };
        let lease = cluster.map.heartbeat(&node_id(nth), beat, cluster.now).unwrap().report_lease;
        granted += usize::from(lease != 0);
    }
    assert_eq!(granted, 2);
}

/// Returns the state of node `nth`. `None`: the map does not know it.
fn admin_state(cluster: &Cluster, nth: usize) -> Option<DatanodeAdminState> {
    let all = cluster.map.datanodes(DatanodeFilter::All);
    all.into_iter().find(|(info, _)| info.id == cluster.nodes[nth].id).map(|(info, _)| info.admin_state)
}

#[test]
fn returning_leaving_node_stays_until_it_reports() {
    let mut cluster = Cluster::new(&["/a", "/a"]);
    let (block, nodes) = cluster.write(1, 10);
    let holder = nodes[0];
    let entry = || HostEntry { names: vec![format!("host{}", holder + 1)], port: None };
    let leaving = HostLists { exclude: vec![entry()], ..HostLists::default() };
    let until = cluster.now.wall_ms + 10_000_000;
    let maintained = HostLists { maintenance: vec![(entry(), until)], ..HostLists::default() };
    for (hosts, on_the_way) in
        [(leaving, DatanodeAdminState::DecommissionInProgress), (maintained, DatanodeAdminState::EnteringMaintenance)]
    {
        // The only replica is away until the node is dead and forgotten; then the node comes back.
        cluster.nodes[holder].up = false;
        cluster.run(1000);
        assert_eq!(cluster.map.block_report(block.id, cluster.now).unwrap().live, 0);
        cluster.map.set_hosts(hosts, cluster.now);
        cluster.nodes[holder].registered = true;
        cluster.map.register(registration(cluster.nodes[holder].id.clone()), cluster.now).unwrap();
        cluster.map.tick(cluster.now);
        assert_eq!(admin_state(&cluster, holder), Some(on_the_way));
        cluster.nodes[holder].up = true;
        cluster.nodes[holder].reported = false;
        cluster.beat(holder);
        assert_eq!(admin_state(&cluster, holder), Some(on_the_way));
        cluster.map.set_hosts(HostLists::default(), cluster.now);
        assert_eq!(cluster.map.block_report(block.id, cluster.now).unwrap().live, 1);
    }
}

#[test]
fn leaving_node_waits_for_the_report_of_a_restarted_one() {
    let settings = BlockSettings { default_replication: 1, ..BlockSettings::default() };
    let mut cluster = Cluster::with(&["/a", "/a", "/a"], settings);
    let (block, nodes) = cluster.write(2, 10);
    let (leaving, restarted) = (nodes[0], nodes[1]);
    // One other replica would be enough, but it is gone.
    cluster.nodes[restarted].disk.clear();
    cluster.map.register(registration(cluster.nodes[restarted].id.clone()), cluster.now).unwrap();
    let exclude = vec![HostEntry { names: vec![format!("host{}", leaving + 1)], port: None }];
    cluster.map.set_hosts(HostLists { exclude, ..HostLists::default() }, cluster.now);
    assert_eq!(admin_state(&cluster, leaving), Some(DatanodeAdminState::DecommissionInProgress));
    cluster.nodes[restarted].reported = false;
    cluster.run(100);
    assert_eq!(admin_state(&cluster, leaving), Some(DatanodeAdminState::Decommissioned));
    assert!(cluster.good(block).iter().any(|nth| *nth != leaving));
}

/// A machine without power ends no connection, and its DataNode is alive for 10.5 minutes.
#[test]
fn leaving_node_does_not_rely_on_a_silent_one() {
    let settings = BlockSettings { default_replication: 1, ..BlockSettings::default() };
    let mut cluster = Cluster::with(&["/a", "/a", "/a"], settings);
    let (block, nodes) = cluster.write(2, 10);
    let (leaving, silent) = (nodes[0], nodes[1]);
    cluster.nodes[silent].up = false;
    cluster.nodes[silent].disk.clear();
    cluster.pass(cluster.map.settings().stale_after());
    for nth in 0..3 {
        cluster.beat(nth);
    }
    // One other replica would be enough, but it is gone.
    let exclude = vec![HostEntry { names: vec![format!("host{}", leaving + 1)], port: None }];
    cluster.map.set_hosts(HostLists { exclude, ..HostLists::default() }, cluster.now);
    assert_eq!(admin_state(&cluster, leaving), Some(DatanodeAdminState::DecommissionInProgress));
    cluster.run(100);
    assert_eq!(cluster.map.live_datanodes(), 3);
    assert_eq!(admin_state(&cluster, leaving), Some(DatanodeAdminState::Decommissioned));
    assert!(cluster.good(block).iter().any(|nth| *nth != leaving));
}

#[test]
fn excluded_nodes_match_name_address_and_port() {
    for (name, port, leaves) in [
        ("host2", None, true),
        ("HOST2", Some(9866), true),
        ("10.0.0.2", None, true),
        ("10.0.0.2", Some(9866), true),
        ("host2", Some(9867), false),
        ("10.0.0.2", Some(9867), false),
        ("10.0.0.3", None, false),
    ] {
        let lists = HostLists { exclude: vec![HostEntry { names: vec![name.into()], port }], ..HostLists::default() };
        assert_eq!(lists.is_excluded(&node_id(1)), leaves, "{name} {port:?}");
    }
}

#[test]
fn empty_node_may_leave_at_once() {
    let mut cluster = Cluster::new(&["/a", "/a"]);
    let exclude = vec![HostEntry { names: vec!["host2".into()], port: None }];
    cluster.map.set_hosts(HostLists { exclude, ..HostLists::default() }, cluster.now);
    let left = cluster.map.datanodes(DatanodeFilter::All);
    assert!(left.iter().any(|(info, _)| info.admin_state == DatanodeAdminState::Decommissioned));
}
