//! Protocols other than ClientProtocol. Every method of Apache's NameNode is answered, or refused with an exception
//! that its clients know.

mod support;

use std::sync::Arc;
use std::time::Duration;

use hearth_config::to_xml;
use hearth_namenode::Namenode;
use hearth_protocol::rpc::{RpcError, Target, hadoop_methods};
use hearth_testkit::{Effect, Reconfigured};
use hearth_types::ManualClock;
use hearth_wire::proto::common::*;
use hearth_wire::proto::hdfs::*;
use hearth_wire::rpc::{exceptions, protocols};
use prost::Message;
use support::*;

/// Protocols on the RPC port of Apache's NameNode. There, the lifeline protocol has a port of its own.
const PROTOCOLS: [&str; 12] = [
    protocols::CLIENT,
    protocols::DATANODE,
    protocols::DATANODE_LIFELINE,
    protocols::NAMENODE,
    protocols::HA_SERVICE,
    protocols::RECONFIGURATION,
    protocols::REFRESH_AUTHORIZATION_POLICY,
    protocols::REFRESH_USER_MAPPINGS,
    protocols::REFRESH_CALL_QUEUE,
    protocols::GENERIC_REFRESH,
    protocols::GET_USER_MAPPINGS,
    protocols::PROTOCOL_INFO,
];

async fn call_as<A: Message + Default>(
    n: &TestNamenode,
    user: &str,
    protocol: &'static str,
    method: &str,
    request: &impl Message,
) -> Answer<A> {
    let target = Target { address: n.handle().rpc_address(), protocol, user: user.into() };
    n.client().call(&target, method, request).await
}

async fn call<A: Message + Default>(n: &TestNamenode, protocol: &'static str, method: &str) -> Answer<A> {
    call_as(n, "root", protocol, method, &()).await
}

#[track_caller]
fn refusal<A: std::fmt::Debug>(answer: Answer<A>) -> (String, String) {
    match answer {
        Err(RpcError::Remote(remote)) => (remote.class, remote.message),
        other => panic!("{other:?} instead of an exception"),
    }
}

#[tokio::test]
async fn every_method_of_apaches_namenode_is_dispatched() {
    let n = TestNamenode::start().await;
    let mut unknown = Vec::new();
    for method in hadoop_methods() {
        let Some(protocol) = PROTOCOLS.iter().find(|one| **one == method.protocol) else { continue };
        // Tested with the proxy users.
        if method.name == "refreshSuperUserGroupsConfiguration" {
            continue;
        }
        // Requests are empty, so most calls fail; they must not fail as unknown calls.
        if let Err(RpcError::Remote(remote)) = call::<()>(&n, protocol, method.name).await
            && [exceptions::RPC_NO_SUCH_METHOD, exceptions::RPC_NO_SUCH_PROTOCOL].contains(&remote.class.as_str())
        {
            unknown.push((*protocol, method.name));
        }
    }
    assert_eq!(unknown, [], "not dispatched");
    assert_eq!(refusal(call::<()>(&n, protocols::NAMENODE, "getNothing").await).0, exceptions::RPC_NO_SUCH_METHOD);
}

#[tokio::test]
async fn block_keys_are_answered_when_tokens_are_off() {
    let n = TestNamenode::start().await;
    let answer: GetBlockKeysResponseProto = call(&n, protocols::NAMENODE, "getBlockKeys").await.unwrap();
    let keys = answer.keys.expect("Java's balancer reads them without a check");
    assert_eq!((keys.is_block_token_enabled, keys.all_keys.len()), (false, 0));
    assert_eq!(keys.current_key.key_bytes.as_deref(), Some(&b""[..]));
}

#[tokio::test]
async fn only_superusers_use_the_namenode_protocol() {
    let n = TestNamenode::start().await;
    let version: VersionResponseProto = call_as(&n, "bob", protocols::NAMENODE, "versionRequest", &()).await.unwrap();
    assert_eq!(version.info.block_pool_id, n.pool());
    let denied = refusal(call_as::<()>(&n, "bob", protocols::NAMENODE, "getTransactionId", &()).await);
    let message = "Access denied for user bob. Superuser privilege is required for operation getTransactionID";
    assert_eq!(denied, (exceptions::ACCESS_CONTROL.to_owned(), message.to_owned()));
}

#[tokio::test]
async fn checkpoints_are_refused_with_the_reason() {
    let n = TestNamenode::start().await;
    for method in
        ["rollEditLog", "getEditLogManifest", "startCheckpoint", "endCheckpoint", "registerSubordinateNamenode"]
    {
        let (class, message) = refusal(call::<()>(&n, protocols::NAMENODE, method).await);
        assert_eq!(class, exceptions::UNSUPPORTED_OPERATION);
        assert!(message.contains(method) && message.contains("no edit log"), "{message}");
    }
    let newest: GetTransactionIdResponseProto = call(&n, protocols::NAMENODE, "getTransactionId").await.unwrap();
    n.mkdirs("/d").await.unwrap();
    let later: GetTransactionIdResponseProto = call(&n, protocols::NAMENODE, "getTransactionId").await.unwrap();
    assert!(later.tx_id > newest.tx_id);
    let (class, message) = refusal(call::<()>(&n, protocols::NAMENODE, "getNextSPSPath").await);
    assert_eq!(class, exceptions::IO);
    assert!(message.starts_with("SPS service mode is NONE"), "{message}");
}

#[tokio::test]
async fn get_blocks_refuses_bad_arguments() {
    let n = TestNamenode::start().await;
    let datanode = DatanodeIdProto {
        ip_addr: "10.1.2.3".into(),
        host_name: "dn".into(),
        datanode_uuid: "uuid-1".into(),
        ..Default::default()
    };
    let ask = |size: i64, min: i64| GetBlocksRequestProto {
        datanode: datanode.clone(),
        size: size as u64,
        min_block_size: Some(min as u64),
        ..Default::default()
    };
    for (size, min) in [(0, 1), (-1, 1), (1, -1)] {
        let refused = refusal(call_as::<()>(&n, "root", protocols::NAMENODE, "getBlocks", &ask(size, min)).await);
        assert_eq!(refused.0, exceptions::ILLEGAL_ARGUMENT);
    }
    let refused = refusal(call_as::<()>(&n, "root", protocols::NAMENODE, "getBlocks", &ask(1, 1)).await);
    assert_eq!(refused.0, exceptions::HADOOP_ILLEGAL_ARGUMENT);
}

#[tokio::test]
async fn single_namenode_stays_active() {
    let n = TestNamenode::start().await;
    let status: GetServiceStatusResponseProto = call(&n, protocols::HA_SERVICE, "getServiceStatus").await.unwrap();
    assert_eq!((status.state(), status.ready_to_become_active), (HaServiceStateProto::Active, Some(true)));
    call::<MonitorHealthResponseProto>(&n, protocols::HA_SERVICE, "monitorHealth").await.unwrap();
    let denied = refusal(call_as::<()>(&n, "bob", protocols::HA_SERVICE, "monitorHealth", &()).await);
    assert_eq!(denied.0, exceptions::ACCESS_CONTROL);
    let ask = |source: HaRequestSource| TransitionToStandbyRequestProto {
        req_info: HaStateChangeRequestInfoProto { req_source: source as i32 },
    };
    let by_user = ask(HaRequestSource::RequestByUser);
    let refused = refusal(call_as::<()>(&n, "root", protocols::HA_SERVICE, "transitionToStandby", &by_user).await);
    assert_eq!(refused, (exceptions::SERVICE_FAILED.to_owned(), "HA for namenode is not enabled".to_owned()));
    let by_controller = ask(HaRequestSource::RequestByZkfc);
    let refused =
        refusal(call_as::<()>(&n, "root", protocols::HA_SERVICE, "transitionToStandby", &by_controller).await);
    assert_eq!(refused.0, exceptions::ACCESS_CONTROL);
}

#[tokio::test]
async fn refreshes_answer_like_apache() {
    let n = TestNamenode::start().await;
    let refused = refusal(call::<()>(&n, protocols::REFRESH_AUTHORIZATION_POLICY, "refreshServiceAcl").await);
    let text = "Service Level Authorization not enabled!";
    assert_eq!(refused, (exceptions::AUTHORIZATION.to_owned(), text.to_owned()));
    call::<()>(&n, protocols::REFRESH_CALL_QUEUE, "refreshCallQueue").await.unwrap();
    let denied = refusal(call_as::<()>(&n, "bob", protocols::REFRESH_CALL_QUEUE, "refreshCallQueue", &()).await);
    assert_eq!(denied.0, exceptions::ACCESS_CONTROL);
    let request = GenericRefreshRequestProto { identifier: Some("x".into()), args: Vec::new() };
    let refused = refusal(call_as::<()>(&n, "root", protocols::GENERIC_REFRESH, "refresh", &request).await);
    let text = "Identifier 'x' does not exist in RefreshRegistry. Valid options are: ";
    assert_eq!(refused, (exceptions::ILLEGAL_ARGUMENT.to_owned(), text.to_owned()));
}

#[tokio::test]
async fn changed_keys_apply_while_the_namenode_runs() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("hdfs-site.xml");
    let write = |properties: &[(&str, &str)]| std::fs::write(&file, to_xml(properties.iter().copied())).unwrap();
    write(&[("dfs.heartbeat.interval", "3")]);
    let mut conf = configuration();
    conf.add_file(&file).unwrap();
    let n = TestNamenode::start_with(conf, Arc::new(ManualClock::at(1000))).await;
    let list: ListReconfigurablePropertiesResponseProto =
        call(&n, protocols::RECONFIGURATION, "listReconfigurableProperties").await.unwrap();
    assert!(list.name.contains(&"dfs.heartbeat.interval".to_owned()), "{list:?}");
    let ask = async || -> GetReconfigurationStatusResponseProto {
        call(&n, protocols::RECONFIGURATION, "getReconfigurationStatus").await.unwrap()
    };
    let status = ask().await;
    assert_eq!((status.start_time, status.end_time), (0, None));
    write(&[
        ("dfs.heartbeat.interval", "1"),
        ("dfs.namenode.heartbeat.recheck-interval", "2s"),
        ("dfs.block.invalidate.limit", "-1"),
        ("dfs.replication", "1"),
    ]);
    for method in ["listReconfigurableProperties", "startReconfiguration", "getReconfigurationStatus"] {
        let denied = refusal(call_as::<()>(&n, "bob", protocols::RECONFIGURATION, method, &()).await);
        assert_eq!(denied.0, exceptions::ACCESS_CONTROL, "{method}");
    }
    let dead_after = || n.handle().namenode().read().blocks.settings().dead_after();
    assert_eq!(dead_after(), Duration::from_secs(630));
    call::<()>(&n, protocols::RECONFIGURATION, "startReconfiguration").await.unwrap();
    assert_eq!(dead_after(), Duration::from_secs(14));
    let status = ask().await;
    assert_eq!((status.start_time, status.end_time), (1000, Some(1000)));
    let changes: Vec<_> = status
        .changes
        .iter()
        .map(|change| (change.name.as_str(), change.old_value.as_str(), change.new_value.as_deref()))
        .collect();
    let wanted = [
        ("dfs.block.invalidate.limit", "1000", Some("-1")),
        ("dfs.heartbeat.interval", "3", Some("1")),
        ("dfs.namenode.heartbeat.recheck-interval", "300000", Some("2s")),
    ];
    assert_eq!(changes, wanted);
    let error = status.changes[0].error_message.as_deref().unwrap_or_default();
    assert!(error.contains("dfs.block.invalidate.limit") && error.contains("line"), "{error}");
    assert!(status.changes[1..].iter().all(|change| change.error_message.is_none()), "{status:?}");
    // A file that cannot be read changes nothing.
    std::fs::write(&file, "<configuration>").unwrap();
    let refused = refusal(call::<()>(&n, protocols::RECONFIGURATION, "startReconfiguration").await);
    assert!(refused.0 == exceptions::IO && refused.1.contains("XML"), "{refused:?}");
    assert_eq!(ask().await.changes.len(), 3);
}

const EFFECTS: [Effect<Namenode>; 20] = [
    ("dfs.block.invalidate.limit", "7", |n| n.read().blocks.settings().invalidate_limit.to_string(), "7"),
    (
        "dfs.datanode.fileio.profiling.sampling.percentage",
        "1",
        |n| n.slow_nodes.options().has_disks.to_string(),
        "true",
    ),
    ("dfs.datanode.max.disks.to.report", "8", |n| n.slow_nodes.options().disks_reported_max.to_string(), "8"),
    ("dfs.datanode.max.nodes.to.report", "9", |n| n.slow_nodes.options().nodes_reported_max.to_string(), "9"),
    ("dfs.datanode.outliers.report.interval", "10s", |n| format!("{:?}", n.slow_nodes.options().validity), "30s"),
    ("dfs.datanode.peer.stats.enabled", "true", |n| n.slow_nodes.options().has_peers.to_string(), "true"),
    ("dfs.heartbeat.interval", "1", |n| format!("{:?}", n.read().blocks.settings().heartbeat_interval), "1s"),
    (
        "dfs.namenode.heartbeat.recheck-interval",
        "11s",
        |n| format!("{:?}", n.read().blocks.settings().heartbeat_recheck),
        "11s",
    ),
    (
        "dfs.namenode.reconstruction.pending.timeout-sec",
        "12",
        |n| format!("{:?}", n.read().blocks.settings().pending_timeout),
        "12s",
    ),
    ("dfs.namenode.replication.max-streams", "13", |n| n.read().blocks.settings().max_streams.to_string(), "13"),
    (
        "dfs.namenode.replication.max-streams-hard-limit",
        "14",
        |n| n.read().blocks.settings().max_streams_hard.to_string(),
        "14",
    ),
    ("fs.protected.directories", "/safe/,/", |n| n.read().namespace.limits.protected.join(" "), "/safe /"),
    (
        "hadoop.caller.context.enabled",
        "true",
        |n| n.audit.as_ref().is_some_and(|audit| audit.context().is_some()).to_string(),
        "true",
    ),
    (
        "hearth.namenode.advertisements.max",
        "1m",
        |n| n.read().blocks.settings().advertisement_bytes_max.to_string(),
        "1048576",
    ),
    ("hearth.namenode.backup.dir", "/no/backups", |n| backups(n).0, "/no/backups"),
    ("hearth.namenode.backup.interval", "15", |n| backups(n).1, "15s"),
    ("hearth.namenode.backup.keep", "16", |n| backups(n).2, "16"),
    ("hearth.namenode.replication.window", "2m", |n| n.read().blocks.settings().transfer_window.to_string(), "2097152"),
    ("hearth.rpc.message.memory", "300m", |n| n.rpc.message_bytes().to_string(), "314572800"),
    ("hearth.web.read-only", "true", |n| n.protection.is_read_only().to_string(), "true"),
];

fn backups(namenode: &Namenode) -> (String, String, String) {
    let settings = namenode.backups.borrow().clone();
    settings.map_or_else(Default::default, |settings| {
        let (directory, interval) = (settings.directory.display().to_string(), format!("{:?}", settings.interval));
        (directory, interval, settings.keep.to_string())
    })
}

#[tokio::test]
async fn every_key_that_can_change_takes_effect() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("hdfs-site.xml");
    let write = |properties: &[(&str, &str)]| std::fs::write(&file, to_xml(properties.iter().copied())).unwrap();
    write(&[]);
    let mut conf = configuration();
    conf.add_file(&file).unwrap();
    conf.set("hearth.namenode.audit.log", directory.path().join("audit.log").to_str().unwrap());
    let n = TestNamenode::start_with(conf, Arc::new(ManualClock::at(1000))).await;
    let namenode = n.handle().namenode();
    assert_eq!(namenode.reconfiguration.keys().collect::<Vec<_>>(), EFFECTS.map(|(key, ..)| key));
    let reconfigure = || {
        namenode.reconfigure().unwrap();
        let changes = namenode.reconfiguration.last().unwrap().changes;
        changes.into_iter().map(|change| (change.key, change.error)).collect::<Vec<_>>()
    };
    let reconfigured = Reconfigured::new(&**namenode, &EFFECTS, &write, &reconfigure);
    n.mkdirs("/safe/below").await.unwrap();
    reconfigured.change_all();
    let refused = refusal(n.delete_as("root", "/safe", true).await);
    assert_eq!(refused.0, exceptions::ACCESS_CONTROL);
    reconfigured.refuse(&[
        ("dfs.datanode.peer.stats.enabled", "perhaps"),
        ("dfs.heartbeat.interval", "2d"),
        ("hearth.namenode.backup.keep", "-1"),
        ("hearth.rpc.message.memory", "1m"),
        ("hearth.web.read-only", "1"),
    ]);
    reconfigured.remove_all();
    assert!(n.delete_as("root", "/safe", true).await.unwrap());
}

#[tokio::test]
async fn protocol_signature_lists_methods() {
    let n = TestNamenode::start().await;
    let request = GetProtocolSignatureRequestProto {
        protocol: "org.apache.hadoop.hdfs.protocolPB.NamenodeProtocolPB".into(),
        rpc_kind: "RPC_PROTOCOL_BUFFER".into(),
    };
    let answer: GetProtocolSignatureResponseProto =
        call_as(&n, "root", protocols::PROTOCOL_INFO, "getProtocolSignature", &request).await.unwrap();
    let methods = hadoop_methods().filter(|method| method.protocol == protocols::NAMENODE).count();
    assert_eq!(answer.protocol_signature.iter().map(|one| one.methods.len()).collect::<Vec<_>>(), [methods]);
}

#[tokio::test]
async fn attributes_are_listed_with_their_values() {
    let n = TestNamenode::start().await;
    n.mkdirs("/d").await.unwrap();
    let space = x_attr_proto::XAttrNamespaceProto::User as i32;
    let xattr = XAttrProto { namespace: space, name: "a".into(), value: Some(b"one"[..].into()) };
    let request = SetXAttrRequestProto { src: "/d".into(), xattr: Some(xattr.clone()), flag: Some(1) };
    n.call::<SetXAttrResponseProto>("setXAttr", &request).await.unwrap();
    let request = ListXAttrsRequestProto { src: "/d".into() };
    let answer: ListXAttrsResponseProto = n.call("listXAttrs", &request).await.unwrap();
    assert_eq!(answer.xattrs, [xattr]);
}

#[tokio::test]
async fn metasave_writes_pending_work_to_a_file() {
    let n = TestNamenode::start().await;
    let datanodes = [TestDatanode::join(&n, 1).await];
    n.write(&datanodes, "/few", 10).await;
    let more = SetReplicationRequestProto { src: "/few".into(), replication: 2 };
    let _: SetReplicationResponseProto = n.call("setReplication", &more).await.unwrap();
    n.write(&datanodes, "/spoiled", 20).await;
    spoil(&n, "/spoiled").await;
    let request = MetaSaveRequestProto { filename: "work.txt".into() };
    let denied = refusal(n.call_as::<()>("bob", "metaSave", &request).await);
    assert_eq!(denied.0, exceptions::ACCESS_CONTROL);
    // The second file replaces the first one.
    for _ in 0..2 {
        n.call::<()>("metaSave", &request).await.unwrap();
    }
    let directory = n.path().join("metasave");
    let names: Vec<_> = std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["work.txt"]);
    let text = std::fs::read_to_string(directory.join("work.txt")).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let block = n.locations("/spoiled", 0, 1).await.unwrap().blocks.swap_remove(0);
    let spoiled = format!("blk_{}_{}", block.b.block_id, block.b.generation_stamp);
    let address = format!("{}:{}", block.locs[0].id.ip_addr, block.locs[0].id.xfer_port);
    let starts = [
        "3 files and directories, 2 blocks = 5 total filesystem objects".to_owned(),
        "Live Datanodes: 1".to_owned(),
        "Dead Datanodes: 0".to_owned(),
        "Metasave: Blocks waiting for reconstruction: 1".to_owned(),
        "/few: blk_".to_owned(),
        "Metasave: Blocks currently missing: 1".to_owned(),
        format!(
            "/spoiled: {spoiled} MISSING (replicas: live: 0 decommissioning and decommissioned: 0 corrupt: 1 in excess: 0 \
             maintenance mode: 0)  {address}(corrupt)"
        ),
        "Mis-replicated blocks that have been postponed:".to_owned(),
        "Metasave: Blocks being reconstructed: 0".to_owned(),
        "Metasave: Blocks 0 waiting deletion from 0 datanodes.".to_owned(),
        "Corrupt Blocks:".to_owned(),
        format!("Block={spoiled}\tSize=20\tNode={address}\tStorageID="),
        "Metasave: Number of datanodes: 1".to_owned(),
        format!("{address} IN "),
    ];
    assert_eq!(lines.len(), starts.len(), "{text}");
    for (line, start) in lines.iter().zip(&starts) {
        assert!(line.starts_with(start), "{line:?} does not begin with {start:?}");
    }
    assert!(lines[4].contains("(replicas: live: 1 ") && lines[4].contains(&address), "{text}");
}

#[tokio::test]
async fn metasave_writes_no_other_file() {
    let n = TestNamenode::start().await;
    for name in ["", ".", "..", "/dev/null", "../work.txt", "below/work.txt"] {
        let request = MetaSaveRequestProto { filename: name.into() };
        let (class, message) = refusal(n.call::<()>("metaSave", &request).await);
        assert_eq!(class, exceptions::IO);
        assert!(message.contains("a file name without a directory"), "{name}: {message}");
    }
    let directory = n.path().join("metasave");
    std::fs::create_dir(&directory).unwrap();
    std::fs::write(directory.join("notes"), "of somebody").unwrap();
    let (_, message) = refusal(n.call::<()>("metaSave", &MetaSaveRequestProto { filename: "notes".into() }).await);
    assert!(message.contains("is not a file of an earlier metasave"), "{message}");
    assert_eq!(std::fs::read_to_string(directory.join("notes")).unwrap(), "of somebody");
}
