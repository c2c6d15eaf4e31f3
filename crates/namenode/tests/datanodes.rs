//! Answers to DataNodes over RPC: registration, refusals with their exceptions, and commands. The refusals are those
//! measured at an Apache NameNode 3.4.

mod support;

use hearth_protocol::rpc::RpcError;
use hearth_testkit::until;
use hearth_wire::proto::hdfs::block_command_proto::Action;
use hearth_wire::proto::hdfs::datanode_command_proto::Type;
use hearth_wire::proto::hdfs::*;
use hearth_wire::rpc::protocols;
use prost::Message;
use support::*;

async fn call<A: Message + Default>(n: &TestNamenode, method: &str, request: &impl Message) -> Answer<A> {
    let target = hearth_protocol::rpc::Target {
        address: n.handle().rpc_address(),
        protocol: protocols::DATANODE,
        user: "hdfs".into(),
    };
    n.client().call(&target, method, request).await
}

fn registration(n: &TestNamenode) -> DatanodeRegistrationProto {
    let identity = n.handle().identity();
    DatanodeRegistrationProto {
        datanode_id: DatanodeIdProto {
            ip_addr: "10.1.2.3".into(),
            host_name: "dn".into(),
            datanode_uuid: "uuid-1".into(),
            xfer_port: 10_001,
            info_port: 1,
            ipc_port: 2,
            info_secure_port: None,
        },
        storage_info: StorageInfoProto {
            layout_version: 12_345,
            namespace_id: identity.namespace_id,
            cluster_id: identity.cluster_id.clone(),
            c_time: identity.created_ms,
        },
        keys: Default::default(),
        software_version: "3.4.2".into(),
    }
}

async fn register(n: &TestNamenode, registration: DatanodeRegistrationProto) -> Answer<DatanodeRegistrationProto> {
    let request = RegisterDatanodeRequestProto { registration, ..Default::default() };
    call::<RegisterDatanodeResponseProto>(n, "registerDatanode", &request).await.map(|answer| answer.registration)
}

async fn beat(n: &TestNamenode, registration: DatanodeRegistrationProto) -> Answer<HeartbeatResponseProto> {
    let reports = vec![StorageReportProto {
        storage_uuid: "DS-1".into(),
        capacity: Some(1 << 40),
        remaining: Some(1 << 40),
        ..Default::default()
    }];
    let request = HeartbeatRequestProto {
        registration,
        reports,
        request_full_block_report_lease: Some(true),
        ..Default::default()
    };
    call(n, "sendHeartbeat", &request).await
}

#[track_caller]
fn class_of<A: std::fmt::Debug>(answer: Answer<A>) -> String {
    match answer {
        Err(RpcError::Remote(remote)) => remote.class,
        other => panic!("{other:?} instead of an exception"),
    }
}

fn kinds(answer: &HeartbeatResponseProto) -> Vec<Type> {
    answer.cmds.iter().map(DatanodeCommandProto::cmd_type).collect()
}

#[tokio::test]
async fn version_request_identifies_the_namenode() {
    let n = TestNamenode::start().await;
    let answer: VersionResponseProto = call(&n, "versionRequest", &VersionRequestProto {}).await.unwrap();
    assert_eq!(answer.info.block_pool_id, n.pool());
    assert_eq!(answer.info.storage_info.layout_version as i32, -67);
    assert_eq!((answer.info.capabilities(), answer.info.software_version.as_str()), (1, "3.4.2"));
}

#[tokio::test]
async fn registration_uses_the_connections_address() {
    let n = TestNamenode::start().await;
    let given = registration(&n);
    let returned = register(&n, given.clone()).await.unwrap();
    assert_eq!(returned.datanode_id.ip_addr, "127.0.0.1");
    assert!(!returned.keys.is_block_token_enabled);
    let answer = beat(&n, returned).await.unwrap();
    assert_eq!(kinds(&answer), []);
    assert_ne!(answer.full_block_report_lease_id(), 0);
    assert_eq!(answer.ha_status.state, 0, "ACTIVE");
    assert_eq!(kinds(&beat(&n, given).await.unwrap()), [Type::Register]);
}

#[tokio::test]
async fn client_is_sent_to_its_own_rack() {
    let directory = tempfile::tempdir().unwrap();
    let (script, asked) = (directory.path().join("rack-of"), directory.path().join("asked"));
    // 127.0.0.11 and .13 are in rack a, .12 and .14 in rack b.
    let text = format!(
        "#!/bin/sh\necho $1 >> {}\ncase $1 in *.11|*.13) echo /a;; *.12|*.14) echo /b;; *) exit 1;; esac\n",
        asked.display()
    );
    make_script(&script, &text);
    let settings = configuration().with("net.topology.script.file.name", script.to_str().unwrap());
    let n = TestNamenode::start_with(settings, std::sync::Arc::new(hearth_types::SystemClock::new())).await;
    let mut datanodes = Vec::new();
    for number in [11, 12] {
        datanodes.push(TestDatanode::join_from(&n, client_from(&format!("127.0.0.{number}")), number, &[]).await);
    }
    let file = CreateRequestProto { replication: 2, ..new_file("/f", "writer", 1) };
    n.create_request("root", file).await.unwrap();
    let located = n.add_block("/f", "writer", None).await.unwrap();
    let block = ExtendedBlockProto { num_bytes: Some(10), ..located.b };
    for datanode in &datanodes {
        datanode.received(&n, &block).await;
    }
    assert!(n.complete("/f", "writer", Some(&block)).await.unwrap());
    let request = GetBlockLocationsRequestProto { src: "/f".into(), offset: 0, length: 10 };
    for _ in 0..5 {
        for (client, nearest) in [("127.0.0.13", "127.0.0.11"), ("127.0.0.14", "127.0.0.12"), ("127.0.0.99", "")] {
            let answer: GetBlockLocationsResponseProto =
                client_from(client).call(&n.root(), "getBlockLocations", &request).await.unwrap();
            let locations = &answer.locations.unwrap().blocks[0].locs;
            assert_eq!(locations.len(), 2);
            let first = &locations[0].id.ip_addr;
            assert!(nearest.is_empty() || first == nearest, "{client} is sent to {first}");
        }
    }
    // The script runs once per machine, even for the one that it does not know.
    let mut asked: Vec<String> = std::fs::read_to_string(asked).unwrap().lines().map(str::to_owned).collect();
    asked.retain(|ip| ip != "127.0.0.1");
    asked.sort();
    assert_eq!(asked, ["127.0.0.11", "127.0.0.12", "127.0.0.13", "127.0.0.14", "127.0.0.99"]);
}

#[tokio::test]
async fn invalid_registrations_are_refused() {
    let n = TestNamenode::start().await;
    let old = DatanodeRegistrationProto { software_version: "2.0.6-alpha".into(), ..registration(&n) };
    assert!(class_of(register(&n, old).await).ends_with("IncorrectVersionException"));
    let newer = DatanodeRegistrationProto { software_version: "9.9.9-mine".into(), ..registration(&n) };
    register(&n, newer.clone()).await.unwrap();
    let mut elsewhere = newer;
    elsewhere.storage_info.c_time += 1;
    assert!(class_of(register(&n, elsewhere).await).ends_with("IncorrectVersionException"));
    let mut nameless = registration(&n);
    nameless.datanode_id.datanode_uuid.clear();
    assert_eq!(class_of(register(&n, nameless).await), "java.io.IOException");
    // A wrong namespace is detected at the next call.
    let mut wrong = registration(&n);
    wrong.storage_info.cluster_id = "CID-other".into();
    let wrong = register(&n, wrong).await.unwrap();
    let class = class_of(beat(&n, wrong).await);
    assert_eq!(class, "org.apache.hadoop.hdfs.protocol.UnregisteredNodeException");
}

#[tokio::test]
async fn reports_need_a_registration_and_a_valid_lease() {
    let n = TestNamenode::start().await;
    let given = registration(&n);
    let report = |registration: DatanodeRegistrationProto, lease: u64, count: u64| BlockReportRequestProto {
        registration,
        block_pool_id: "ignored".into(),
        reports: vec![StorageBlockReportProto {
            storage: DatanodeStorageProto { storage_uuid: "DS-1".into(), state: None, storage_type: None },
            blocks: Vec::new(),
            number_of_blocks: Some(count),
            blocks_buffers: Vec::new(),
        }],
        context: Some(BlockReportContextProto { total_rpcs: 1, cur_rpc: 0, id: 5, lease_id: Some(lease) }),
    };
    let unregistered = DatanodeRegistrationProto { software_version: "3.4.2".into(), ..given.clone() };
    let answer: BlockReportResponseProto = call(&n, "blockReport", &report(unregistered, 0, 0)).await.unwrap();
    assert_eq!(answer.cmd.unwrap().cmd_type(), Type::Register);
    let mine = register(&n, given).await.unwrap();
    let lease = beat(&n, mine.clone()).await.unwrap().full_block_report_lease_id();
    let invented: Answer<BlockReportResponseProto> = call(&n, "blockReport", &report(mine.clone(), 99, 0)).await;
    assert!(class_of(invented).ends_with("server.protocol.InvalidBlockReportLeaseException"));
    // More replicas than the buffers hold.
    let short: Answer<BlockReportResponseProto> = call(&n, "blockReport", &report(mine.clone(), lease, 3)).await;
    assert_eq!(class_of(short), "java.io.IOException");
    let good: BlockReportResponseProto = call(&n, "blockReport", &report(mine.clone(), lease, 0)).await.unwrap();
    assert_eq!(good.cmd.unwrap().cmd_type(), Type::Finalize);
    let again: Answer<BlockReportResponseProto> = call(&n, "blockReport", &report(mine, lease, 0)).await;
    assert!(class_of(again).ends_with("InvalidBlockReportLeaseException"));
}

#[tokio::test]
async fn a_fatal_disk_error_ends_a_registration() {
    let n = TestNamenode::start().await;
    let mine = register(&n, registration(&n)).await.unwrap();
    assert_eq!(kinds(&beat(&n, mine.clone()).await.unwrap()), []);
    for (error_code, wanted) in [(0, vec![]), (1, vec![]), (3, vec![Type::Register])] {
        let request = ErrorReportRequestProto { registration: mine.clone(), error_code, msg: "disk\nbroken".into() };
        let _: ErrorReportResponseProto = call(&n, "errorReport", &request).await.unwrap();
        assert_eq!(kinds(&beat(&n, mine.clone()).await.unwrap()), wanted, "code {error_code}");
    }
}

#[tokio::test]
async fn copies_and_deletions_travel_with_heartbeats() {
    let n = TestNamenode::start().await;
    let datanodes = vec![TestDatanode::join(&n, 1).await, TestDatanode::join(&n, 2).await];
    n.write(&datanodes, "/f", 100).await;
    let request = SetReplicationRequestProto { src: "/f".into(), replication: 2 };
    let _: SetReplicationResponseProto = n.call("setReplication", &request).await.unwrap();
    let located = n.locations("/f", 0, 100).await.unwrap().blocks.remove(0);
    let holder = datanodes.iter().find(|node| node.uuid == located.locs[0].id.datanode_uuid).unwrap();
    let other = datanodes.iter().find(|node| node.uuid != holder.uuid).unwrap();
    let command = holder.heartbeat(&n).await.remove(0).blk_cmd.unwrap();
    assert_eq!(command.action(), Action::Transfer);
    assert_eq!(command.blocks[0].block_id, located.b.block_id);
    assert_eq!(command.targets[0].datanodes[0].id.datanode_uuid, other.uuid);
    assert_eq!(command.target_storage_uuids[0].storage_uuids, [other.storage_id()]);
    other.received(&n, &located.b).await;
    assert_eq!(n.locations("/f", 0, 100).await.unwrap().blocks[0].locs.len(), 2);
    // One replica is enough now. The deletion of the excess replica requires an acknowledgement, that of a deleted file
    // does not.
    let request = SetReplicationRequestProto { src: "/f".into(), replication: 1 };
    let _: SetReplicationResponseProto = n.call("setReplication", &request).await.unwrap();
    let mut told = holder.heartbeat(&n).await;
    told.extend(other.heartbeat(&n).await);
    assert_eq!(told.len(), 1);
    let command = told.remove(0).blk_cmd.unwrap();
    assert_eq!((command.action(), command.blocks[0].num_bytes()), (Action::Invalidate, 100));
    n.delete_as("root", "/f", false).await.unwrap();
    let mut told = holder.heartbeat(&n).await;
    told.extend(other.heartbeat(&n).await);
    assert!(told.iter().all(|command| command.blk_cmd.as_ref().unwrap().blocks[0].num_bytes() == i64::MAX as u64));
    assert!(!told.is_empty());
}

#[tokio::test]
async fn get_blocks_requires_superuser() {
    let n = TestNamenode::start().await;
    let datanodes = vec![TestDatanode::join(&n, 1).await];
    n.write(&datanodes, "/f", 100).await;
    n.write(&datanodes, "/g", 1000).await;
    let target = |user: &str| hearth_protocol::rpc::Target {
        address: n.handle().rpc_address(),
        protocol: protocols::NAMENODE,
        user: user.into(),
    };
    let request = GetBlocksRequestProto {
        datanode: datanodes[0].id(),
        size: 1 << 30,
        min_block_size: Some(500),
        time_interval: None,
        storage_type: None,
    };
    let answer: GetBlocksResponseProto = n.client().call(&target("root"), "getBlocks", &request).await.unwrap();
    let lengths: Vec<u64> = answer.blocks.blocks.iter().map(|found| found.block.num_bytes()).collect();
    assert_eq!(lengths, [1000]);
    assert_eq!(answer.blocks.blocks[0].datanode_uuids, [datanodes[0].uuid.clone()]);
    let refused: Answer<GetBlocksResponseProto> = n.client().call(&target("bob"), "getBlocks", &request).await;
    assert!(class_of(refused).ends_with("AccessControlException"));
}

#[tokio::test]
async fn additional_datanode_only_for_open_block() {
    let n = TestNamenode::start().await;
    let datanodes = vec![TestDatanode::join(&n, 1).await, TestDatanode::join(&n, 2).await];
    n.write(&datanodes, "/closed", 100).await;
    let closed = n.locations("/closed", 0, 1).await.unwrap().blocks[0].b.clone();
    n.create("/w", "W", 1).await.unwrap();
    let written = n.add_block("/w", "W", None).await.unwrap();
    n.create("/other", "W", 1).await.unwrap();
    let other = n.add_block("/other", "W", None).await.unwrap().b;
    let more = async |block: &ExtendedBlockProto| {
        let request = GetAdditionalDatanodeRequestProto {
            src: "/w".into(),
            blk: block.clone(),
            existings: written.locs.clone(),
            num_additional_nodes: 1,
            client_name: "W".into(),
            existing_storage_uuids: written.storage_ids.clone(),
            ..Default::default()
        };
        n.call::<GetAdditionalDatanodeResponseProto>("getAdditionalDatanode", &request).await
    };
    assert_eq!(more(&written.b).await.unwrap().block.locs.len(), 2);
    let name =
        |block: &ExtendedBlockProto| format!("{}:blk_{}_{}", block.pool_id, block.block_id, block.generation_stamp);
    let unknown = ExtendedBlockProto { block_id: 77, ..closed.clone() };
    for (block, message) in [
        (&closed, format!("Unexpected BlockUCState: {} is COMPLETE but not UNDER_CONSTRUCTION", name(&closed))),
        (&unknown, format!("{} does not exist.", name(&unknown))),
        (&other, format!("Update {} but it is not the last block of its file; {} is", name(&other), name(&written.b))),
    ] {
        refused(more(block).await, "java.io.IOException", &message);
    }
}

#[tokio::test]
async fn disconnected_datanode_is_avoided_until_it_is_heard() {
    let n = TestNamenode::start().await;
    let one = TestDatanode::join_from(&n, client_from("127.0.0.21"), 1, &[]).await;
    let other = TestDatanode::join_from(&n, client_from("127.0.0.22"), 2, &[]).await;
    // A writer and reader on the machine of the first.
    let near = client_from("127.0.0.21");
    let target = n.root();
    let file = CreateRequestProto { replication: 2, ..new_file("/f", "writer", 1) };
    n.create_request("root", file).await.unwrap();
    let located = n.add_block("/f", "writer", None).await.unwrap();
    let block = ExtendedBlockProto { num_bytes: Some(10), ..located.b };
    for datanode in [&one, &other] {
        datanode.received(&n, &block).await;
    }
    assert!(n.complete("/f", "writer", Some(&block)).await.unwrap());
    let readers = async || {
        let request = GetBlockLocationsRequestProto { src: "/f".into(), offset: 0, length: 10 };
        let answer: GetBlockLocationsResponseProto = near.call(&target, "getBlockLocations", &request).await.unwrap();
        answer.locations.unwrap().blocks[0].locs.iter().map(|info| info.id.ip_addr.clone()).collect::<Vec<_>>()
    };
    let number = std::cell::Cell::new(0);
    let writers = async || {
        number.set(number.get() + 1);
        let path = format!("/w{}", number.get());
        let file = CreateRequestProto { replication: 2, ..new_file(&path, "writer", 1) };
        let _: CreateResponseProto = near.call(&target, "create", &file).await.unwrap();
        let request = AddBlockRequestProto { src: path, client_name: "writer".into(), ..Default::default() };
        let answer: AddBlockResponseProto = near.call(&target, "addBlock", &request).await.unwrap();
        answer.block.locs.iter().map(|info| info.id.ip_addr.clone()).collect::<Vec<_>>()
    };
    assert_eq!(readers().await, ["127.0.0.21", "127.0.0.22"]);
    assert_eq!(writers().await, ["127.0.0.21", "127.0.0.22"]);
    // Its process ends: the kernel closes its connections.
    drop(one);
    until("the end of the connection", async || readers().await == ["127.0.0.22", "127.0.0.21"]).await;
    for _ in 0..10 {
        assert_eq!(writers().await, ["127.0.0.22"]);
    }
    // Both are offered if no other is left.
    drop(other);
    until("the end of the other connection", async || writers().await.len() == 2).await;
    let _one = TestDatanode::join_from(&n, client_from("127.0.0.21"), 1, std::slice::from_ref(&block)).await;
    assert_eq!(readers().await, ["127.0.0.21", "127.0.0.22"]);
    assert_eq!(writers().await, ["127.0.0.21"]);
}
