//! The calls that both implementations receive, in an order in which each has the same state.

use std::time::Duration;

use anyhow::{Context, Result};
use hearth_testkit::wait_until;
use hearth_wire::rpc::protocols::{
    CLIENT, CLIENT_DATANODE, DATANODE, GENERIC_REFRESH, GET_USER_MAPPINGS, HA_SERVICE, INTER_DATANODE, NAMENODE,
    PROTOCOL_INFO, RECONFIGURATION, REFRESH_AUTHORIZATION_POLICY, REFRESH_CALL_QUEUE, REFRESH_USER_MAPPINGS,
};
use serde_json::{Value as Json, json};

use crate::caller::Caller;

/// File of one and a half blocks that was written before, in its own directory.
pub const WRITTEN: &str = "/written/file";
const WRITER: &str = "DFSClient_comparing";

fn perm(mode: u32) -> Json {
    json!({"perm": mode})
}

/// Returns an ExtendedBlockProto with another length.
fn with_length(block: &Json, length: u64) -> Json {
    let mut block = block.clone();
    block["num_bytes"] = length.into();
    block
}

fn create(path: &str, flag: u32) -> Json {
    json!({
        "src": path, "masked": perm(0o644), "client_name": WRITER, "create_flag": flag, "create_parent": true,
        "replication": 1, "block_size": 1 << 20,
    })
}

/// Calls of clients to a NameNode.
pub fn client(c: &mut Caller) -> Result<()> {
    let mut ask = |method: &str, situation: &str, request: Json| c.call(CLIENT, method, situation, request);
    for method in ["getServerDefaults", "getStoragePolicies", "msync", "upgradeStatus", "getHAServiceState"] {
        ask(method, "", json!({}))?;
    }
    // Directories and their status.
    ask("mkdirs", "", json!({"src": "/d/sub", "masked": perm(0o755), "create_parent": true}))?;
    ask("mkdirs", "no parent", json!({"src": "/no/sub", "masked": perm(0o755), "create_parent": false}))?;
    for (situation, path) in [
        ("a directory", "/d"),
        ("a file", WRITTEN),
        ("missing", "/none"),
        ("below a file", "/written/file/x"),
        ("the root", "/"),
    ] {
        ask("getFileInfo", situation, json!({"src": path}))?;
        ask("getFileLinkInfo", situation, json!({"src": path}))?;
        ask("getLocatedFileInfo", situation, json!({"src": path, "need_block_token": true}))?;
        ask("getContentSummary", situation, json!({"path": path}))?;
        ask("getQuotaUsage", situation, json!({"path": path}))?;
        ask("isFileClosed", situation, json!({"src": path}))?;
        ask("getPreferredBlockSize", situation, json!({"filename": path}))?;
        ask("getStoragePolicy", situation, json!({"path": path}))?;
        ask("getAclStatus", situation, json!({"src": path}))?;
        ask("getXAttrs", situation, json!({"src": path}))?;
        ask("listXAttrs", situation, json!({"src": path}))?;
        ask("checkAccess", situation, json!({"path": path, "mode": 4}))?;
        ask("getLinkTarget", situation, json!({"path": path}))?;
        ask("getEnclosingRoot", situation, json!({"filename": path}))?;
        ask("getEZForPath", situation, json!({"src": path}))?;
        ask("getErasureCodingPolicy", situation, json!({"src": path}))?;
        for (located, how) in [(false, ""), (true, ", located")] {
            let request = json!({"src": path, "start_after": "", "need_location": located});
            ask("getListing", &format!("{situation}{how}"), request)?;
        }
        ask("getBlockLocations", situation, json!({"src": path, "offset": 0, "length": 1u64 << 40}))?;
    }
    ask(
        "getBatchedListing",
        "",
        json!({"paths": ["/d", "/written", "/none"], "start_after": "", "need_location": true}),
    )?;
    ask("getBlockLocations", "behind the end", json!({"src": WRITTEN, "offset": 1u64 << 30, "length": 1}))?;
    attributes(&mut ask)?;
    writing(&mut ask)?;
    snapshots(&mut ask)?;
    caching(&mut ask)?;
    administration(&mut ask)
}

type Ask<'a> = dyn FnMut(&str, &str, Json) -> Result<Json> + 'a;

fn attributes(ask: &mut Ask) -> Result<()> {
    ask("setPermission", "", json!({"src": "/d", "permission": perm(0o750)}))?;
    ask("setOwner", "", json!({"src": "/d", "username": "someone"}))?;
    ask("setTimes", "", json!({"src": WRITTEN, "mtime": 1_600_000_000_000u64, "atime": 1_600_000_001_000u64}))?;
    ask("setReplication", "", json!({"src": WRITTEN, "replication": 1}))?;
    ask("setReplication", "a directory", json!({"src": "/d", "replication": 1}))?;
    ask("setStoragePolicy", "", json!({"src": "/d", "policy_name": "WARM"}))?;
    ask("getStoragePolicy", "set", json!({"path": "/d"}))?;
    ask("unsetStoragePolicy", "", json!({"src": "/d"}))?;
    ask("satisfyStoragePolicy", "", json!({"src": "/d"}))?;
    let user = json!({"type": 0, "scope": 0, "permissions": 5, "name": "ann"});
    let all = json!([
        {"type": 0, "scope": 0, "permissions": 7}, {"type": 1, "scope": 0, "permissions": 5},
        {"type": 3, "scope": 0, "permissions": 0}, user,
    ]);
    ask("modifyAclEntries", "", json!({"src": "/d", "acl_spec": [user]}))?;
    ask("getAclStatus", "with entries", json!({"src": "/d"}))?;
    ask("getFileInfo", "with an ACL", json!({"src": "/d"}))?;
    ask("setAcl", "", json!({"src": "/d/sub", "acl_spec": all}))?;
    let mut default = all.clone();
    default.as_array_mut().into_iter().flatten().for_each(|entry| entry["scope"] = 1.into());
    ask("modifyAclEntries", "default", json!({"src": "/d/sub", "acl_spec": default}))?;
    ask("getAclStatus", "with a default", json!({"src": "/d/sub"}))?;
    ask(
        "removeAclEntries",
        "",
        json!({"src": "/d", "acl_spec": [{"type": 0, "scope": 0, "permissions": 0, "name": "ann"}]}),
    )?;
    ask("removeDefaultAcl", "", json!({"src": "/d/sub"}))?;
    ask("removeAcl", "", json!({"src": "/d/sub"}))?;
    for (name, value) in [("full", json!("value")), ("empty", json!(""))] {
        let xattr = json!({"namespace": 0, "name": name, "value": value});
        ask("setXAttr", name, json!({"src": "/d", "xattr": xattr, "flag": 1}))?;
    }
    let without = json!({"namespace": 0, "name": "without"});
    ask("setXAttr", "without a value", json!({"src": "/d", "xattr": without, "flag": 1}))?;
    ask("getXAttrs", "all", json!({"src": "/d"}))?;
    ask("getXAttrs", "one", json!({"src": "/d", "xattrs": [{"namespace": 0, "name": "full"}]}))?;
    ask("getXAttrs", "none such", json!({"src": "/d", "xattrs": [{"namespace": 0, "name": "none"}]}))?;
    ask("listXAttrs", "all", json!({"src": "/d"}))?;
    ask("removeXAttr", "", json!({"src": "/d", "xattr": {"namespace": 0, "name": "full"}}))?;
    ask("setQuota", "", json!({"path": "/d", "namespace_quota": 100, "storagespace_quota": 1u64 << 40}))?;
    ask(
        "setQuota",
        "of a medium",
        json!({"path": "/d", "namespace_quota": i64::MAX, "storagespace_quota": 1u64 << 40, "storage_type": 1}),
    )?;
    ask("getQuotaUsage", "with quotas", json!({"path": "/d"}))?;
    ask("getContentSummary", "with quotas", json!({"path": "/d"}))?;
    Ok(())
}

fn writing(ask: &mut Ask) -> Result<()> {
    ask("create", "", create("/w/open", 1))?;
    ask("create", "once more", create("/w/open", 1))?;
    let added = ask("addBlock", "", json!({"src": "/w/open", "client_name": WRITER}))?;
    let located = added.get("block").cloned().context("a block")?;
    let block = located["b"].clone();
    ask(
        "getAdditionalDatanode",
        "",
        json!({
            "src": "/w/open", "blk": block, "existings": located["locs"], "num_additional_nodes": 1, "client_name": WRITER,
            "existing_storage_uuids": located["storage_ids"],
        }),
    )?;
    let updated = ask("updateBlockForPipeline", "", json!({"block": block, "client_name": WRITER}))?;
    let node = located["locs"][0]["id"].clone();
    let newer = updated["block"]["b"].clone();
    ask(
        "updatePipeline",
        "",
        json!({
            "client_name": WRITER, "old_block": block, "new_block": newer, "new_nodes": [node], "storage_ids": located["storage_ids"],
        }),
    )?;
    ask("fsync", "", json!({"src": "/w/open", "client": WRITER, "last_block_length": 0}))?;
    ask("getBlockLocations", "open", json!({"src": "/w/open", "offset": 0, "length": 100}))?;
    ask("listOpenFiles", "", json!({"id": 0, "types": [1], "path": "/"}))?;
    ask("renewLease", "", json!({"client_name": WRITER}))?;
    ask("complete", "too early", json!({"src": "/w/open", "client_name": WRITER, "last": newer}))?;
    ask("abandonBlock", "", json!({"b": newer, "src": "/w/open", "holder": WRITER}))?;
    ask("complete", "", json!({"src": "/w/open", "client_name": WRITER}))?;
    ask("addBlock", "closed", json!({"src": "/w/open", "client_name": WRITER}))?;
    ask("create", "over another", create("/w/open", 3))?;
    ask("recoverLease", "", json!({"src": "/w/open", "client_name": "another"}))?;
    ask("append", "an empty file", json!({"src": "/w/open", "client_name": WRITER}))?;
    ask("complete", "appended", json!({"src": "/w/open", "client_name": WRITER}))?;
    ask("append", "a block in part", json!({"src": "/written/part", "client_name": WRITER}))?;
    ask("getBlockLocations", "appended", json!({"src": "/written/part", "offset": 0, "length": 100}))?;
    ask("truncate", "open", json!({"src": "/written/part", "new_length": 1, "client_name": WRITER}))?;
    ask("append", "in a new block", json!({"src": "/written/part2", "client_name": WRITER, "flag": 36}))?;
    ask("truncate", "", json!({"src": "/written/cut", "new_length": 1, "client_name": WRITER}))?;
    ask("concat", "", json!({"trg": "/written/c1", "srcs": ["/written/c2"]}))?;
    ask("rename", "", json!({"src": "/written/c1", "dst": "/written/c3"}))?;
    ask("rename", "missing", json!({"src": "/none", "dst": "/none2"}))?;
    ask("rename2", "", json!({"src": "/written/c3", "dst": "/written/c4", "overwrite_dest": true}))?;
    ask("delete", "", json!({"src": "/written/c4", "recursive": false}))?;
    ask("delete", "missing", json!({"src": "/none", "recursive": false}))?;
    ask("createSymlink", "", json!({"target": "/a", "link": "/l", "dir_perm": perm(0o755), "create_parent": false}))?;
    let length = with_length(&block, 1);
    ask(
        "reportBadBlocks",
        "a block that is gone",
        json!({"blocks": [{
            "b": length, "offset": 0, "locs": [], "corrupt": false,
            "block_token": {"identifier": "", "password": "", "kind": "", "service": ""},
        }]}),
    )?;
    Ok(())
}

fn snapshots(ask: &mut Ask) -> Result<()> {
    ask("allowSnapshot", "", json!({"snapshot_root": "/s"}))?;
    ask("createSnapshot", "", json!({"snapshot_root": "/s", "snapshot_name": "one"}))?;
    ask(
        "mkdirs",
        "in a snapshottable directory",
        json!({"src": "/s/new", "masked": perm(0o755), "create_parent": true}),
    )?;
    ask("rename", "in a snapshottable directory", json!({"src": "/s/old", "dst": "/s/renamed"}))?;
    ask("delete", "in a snapshottable directory", json!({"src": "/s/gone", "recursive": true}))?;
    ask("createSnapshot", "the second", json!({"snapshot_root": "/s", "snapshot_name": "two"}))?;
    ask("getFileInfo", "snapshottable", json!({"src": "/s"}))?;
    ask("getFileInfo", "the list of snapshots", json!({"src": "/s/.snapshot"}))?;
    ask("getFileInfo", "a snapshot", json!({"src": "/s/.snapshot/one"}))?;
    ask(
        "getListing",
        "the list of snapshots",
        json!({"src": "/s/.snapshot", "start_after": "", "need_location": false}),
    )?;
    ask("getListing", "a snapshot", json!({"src": "/s/.snapshot/one", "start_after": "", "need_location": false}))?;
    ask("getContentSummary", "with snapshots", json!({"path": "/s"}))?;
    ask("getSnapshottableDirListing", "", json!({}))?;
    ask("getSnapshotListing", "", json!({"snapshot_root": "/s"}))?;
    let between = json!({"snapshot_root": "/s", "from_snapshot": "one", "to_snapshot": "two"});
    ask("getSnapshotDiffReport", "", between.clone())?;
    ask(
        "getSnapshotDiffReportListing",
        "",
        json!({
            "snapshot_root": "/s", "from_snapshot": "one", "to_snapshot": "two", "cursor": {"start_path": "", "index": -1},
        }),
    )?;
    ask(
        "renameSnapshot",
        "",
        json!({"snapshot_root": "/s", "snapshot_old_name": "two", "snapshot_new_name": "three"}),
    )?;
    ask("deleteSnapshot", "", json!({"snapshot_root": "/s", "snapshot_name": "three"}))?;
    ask("disallowSnapshot", "with snapshots", json!({"snapshot_root": "/s"}))?;
    Ok(())
}

fn caching(ask: &mut Ask) -> Result<()> {
    ask("addCachePool", "", json!({"info": {"pool_name": "p", "mode": 0o755}}))?;
    ask("modifyCachePool", "", json!({"info": {"pool_name": "p", "limit": 1 << 20}}))?;
    ask("listCachePools", "", json!({"prev_pool_name": ""}))?;
    let added =
        ask("addCacheDirective", "", json!({"info": {"path": "/d", "pool": "p", "replication": 1}, "cache_flags": 0}))?;
    let id = added["id"].clone();
    ask("modifyCacheDirective", "", json!({"info": {"id": id, "replication": 2}, "cache_flags": 0}))?;
    ask("listCacheDirectives", "", json!({"prev_id": 0, "filter": {}}))?;
    ask("removeCacheDirective", "", json!({"id": id}))?;
    ask("removeCachePool", "", json!({"pool_name": "p"}))?;
    ask("listCachePools", "none", json!({"prev_pool_name": ""}))?;
    Ok(())
}

fn administration(ask: &mut Ask) -> Result<()> {
    for method in [
        "getFsStats",
        "getFsReplicatedBlockStats",
        "getFsECBlockGroupStats",
        "getSlowDatanodeReport",
        "getDataEncryptionKey",
        "getErasureCodingPolicies",
        "getErasureCodingCodecs",
        "getCurrentEditLogTxid",
        "refreshNodes",
        "finalizeUpgrade",
        "saveNamespace",
        "rollEdits",
    ] {
        ask(method, "", json!({}))?;
    }
    for (situation, number) in [("all", 1), ("live", 2), ("dead", 3)] {
        ask("getDatanodeReport", situation, json!({"type": number}))?;
        ask("getDatanodeStorageReport", situation, json!({"type": number}))?;
    }
    ask("setSafeMode", "", json!({"action": 3}))?;
    ask("rollingUpgrade", "", json!({"action": 1}))?;
    ask("restoreFailedStorage", "", json!({"arg": "check"}))?;
    ask("setBalancerBandwidth", "", json!({"bandwidth": 10 << 20}))?;
    // Apache's NameNode writes a file for this call.
    ask("metaSave", "", json!({"filename": "/dev/null"}))?;
    ask("listCorruptFileBlocks", "", json!({"path": "/"}))?;
    ask("getDelegationToken", "", json!({"renewer": "yarn"}))?;
    let token = json!({"token": {"identifier": "x", "password": "", "kind": "HDFS_DELEGATION_TOKEN", "service": ""}});
    ask("renewDelegationToken", "", token.clone())?;
    ask("cancelDelegationToken", "", token)?;
    ask("listEncryptionZones", "", json!({"id": 0}))?;
    ask("listReencryptionStatus", "", json!({"id": 0}))?;
    ask("createEncryptionZone", "", json!({"src": "/d", "key_name": "k"}))?;
    ask("reencryptEncryptionZone", "", json!({"action": 2, "zone": "/d"}))?;
    ask("setErasureCodingPolicy", "", json!({"src": "/d/sub", "ec_policy_name": "RS-10-4-1024k"}))?;
    ask("unsetErasureCodingPolicy", "", json!({"src": "/d/sub"}))?;
    ask("addErasureCodingPolicies", "", json!({"ec_policies": []}))?;
    ask("removeErasureCodingPolicy", "", json!({"ec_policy_name": "none"}))?;
    ask("enableErasureCodingPolicy", "", json!({"ec_policy_name": "none"}))?;
    ask("disableErasureCodingPolicy", "", json!({"ec_policy_name": "none"}))?;
    ask("getECTopologyResultForPolicies", "", json!({"policies": ["none"]}))?;
    ask("getEditsFromTxid", "", json!({"txid": 1}))?;
    Ok(())
}

/// Calls beside ClientProtocol. `user` is not a superuser.
pub fn others(c: &mut Caller, datanode: &Json) -> Result<()> {
    c.call(NAMENODE, "versionRequest", "by a balancer", json!({}))?;
    for method in ["getBlockKeys", "isUpgradeFinalized", "isRollingUpgrade", "getTransactionId", "getNextSPSPath"] {
        c.call(NAMENODE, method, "", json!({}))?;
    }
    for method in ["getMostRecentCheckpointTxId", "rollEditLog", "getEditLogManifest", "registerSubordinateNamenode"] {
        c.call(NAMENODE, method, "", json!({}))?;
    }
    for method in ["startCheckpoint", "endCheckpoint"] {
        c.call(NAMENODE, method, "", json!({}))?;
    }
    c.call(NAMENODE, "getBlocks", "", json!({"datanode": datanode, "size": 1u64 << 40, "min_block_size": 1 << 20}))?;
    c.call(NAMENODE, "getBlocks", "no size", json!({"datanode": datanode, "size": 0, "min_block_size": 1}))?;
    c.call(
        NAMENODE,
        "getBlocks",
        "no such medium",
        json!({
            "datanode": datanode, "size": 1u64 << 40, "min_block_size": 1, "storage_type": 3,
        }),
    )?;
    let mut stranger = datanode.clone();
    stranger["datanode_uuid"] = "00000000-0000-0000-0000-000000000000".into();
    stranger["ip_addr"] = "127.0.0.9".into();
    c.call(NAMENODE, "getBlocks", "no such datanode", json!({"datanode": stranger, "size": 1, "min_block_size": 1}))?;
    c.call(HA_SERVICE, "monitorHealth", "", json!({}))?;
    c.call(HA_SERVICE, "getServiceStatus", "", json!({}))?;
    for method in ["transitionToActive", "transitionToStandby", "transitionToObserver"] {
        for (situation, source) in [("by a user", 0), ("by a controller", 2)] {
            c.call(HA_SERVICE, method, situation, json!({"req_info": {"req_source": source}}))?;
        }
    }
    c.call(REFRESH_AUTHORIZATION_POLICY, "refreshServiceAcl", "", json!({}))?;
    c.call(REFRESH_USER_MAPPINGS, "refreshUserToGroupsMappings", "", json!({}))?;
    c.call(REFRESH_CALL_QUEUE, "refreshCallQueue", "", json!({}))?;
    c.call(GENERIC_REFRESH, "refresh", "", json!({"identifier": "none", "args": []}))?;
    c.call(GET_USER_MAPPINGS, "getGroupsForUser", "", json!({"user": "nobody"}))?;
    c.call(RECONFIGURATION, "listReconfigurableProperties", "", json!({}))?;
    c.call(RECONFIGURATION, "getReconfigurationStatus", "", json!({}))?;
    for class in
        ["hdfs.protocolPB.ClientNamenodeProtocolPB", "ipc.protocolPB.GenericRefreshProtocolPB", "no.such.Class"]
    {
        signature(c, &format!("org.apache.hadoop.{class}"), "RPC_PROTOCOL_BUFFER", class)?;
    }
    signature(c, "org.apache.hadoop.hdfs.protocolPB.ClientDatanodeProtocolPB", "RPC_PROTOCOL_BUFFER", "not served")?;
    signature(c, "org.apache.hadoop.hdfs.protocolPB.ClientNamenodeProtocolPB", "RPC_WRITABLE", "another kind")?;
    signature(c, "org.apache.hadoop.hdfs.protocolPB.ClientNamenodeProtocolPB", "RPC_NONE", "no kind")?;
    c.call(PROTOCOL_INFO, "getProtocolVersions", "", json!({"protocol": "org.apache.hadoop.ipc.ProtocolMetaInfoPB"}))?;
    Ok(())
}

fn signature(c: &mut Caller, class: &str, kind: &str, situation: &str) -> Result<()> {
    c.call(PROTOCOL_INFO, "getProtocolSignature", situation, json!({"protocol": class, "rpc_kind": kind}))?;
    Ok(())
}

/// Calls of a user that is not a superuser.
pub fn stranger(c: &mut Caller, datanode: &Json) -> Result<()> {
    c.call(NAMENODE, "versionRequest", "by anyone", json!({}))?;
    c.call(NAMENODE, "getBlockKeys", "by anyone", json!({}))?;
    c.call(NAMENODE, "getBlocks", "by anyone", json!({"datanode": datanode, "size": 1}))?;
    c.call(HA_SERVICE, "monitorHealth", "by anyone", json!({}))?;
    c.call(HA_SERVICE, "transitionToActive", "by anyone", json!({"req_info": {"req_source": 0}}))?;
    c.call(RECONFIGURATION, "startReconfiguration", "by anyone", json!({}))?;
    c.call(RECONFIGURATION, "listReconfigurableProperties", "by anyone", json!({}))?;
    Ok(())
}

/// Calls of a DataNode to a NameNode, from a simulated DataNode.
pub fn datanode_protocol(c: &mut Caller) -> Result<()> {
    let version = c.call(DATANODE, "versionRequest", "", json!({}))?;
    let mut storage_info = version["info"]["storage_info"].clone();
    storage_info["layout_version"] = 4_294_967_239u32.into();
    let none = json!({"is_block_token_enabled": false, "key_update_interval": 0, "token_life_time": 0,
        "current_key": {"key_id": 0, "expiry_date": 0}});
    let registration = json!({
        "datanode_id": {"ip_addr": "127.0.0.1", "host_name": "127.0.0.1", "xfer_port": 1, "info_port": 2, "ipc_port": 3,
            "datanode_uuid": "11111111-2222-3333-4444-555555555555"},
        "storage_info": storage_info, "keys": none, "software_version": "3.4.2",
    });
    let registered = c.call(DATANODE, "registerDatanode", "", json!({"registration": registration}))?;
    let registration = registered.get("registration").cloned().context("a registration")?;
    let pool = version["info"]["block_pool_id"].clone();
    let storage = json!({"storage_uuid": "DS-talk", "state": 0, "storage_type": 1});
    // No free space, so that no block is placed here.
    let report = json!({"storage_uuid": "DS-talk", "storage": storage, "capacity": 1, "remaining": 0});
    let beat = |lease: bool| {
        json!({
            "registration": registration, "reports": [report], "xceiver_count": 1, "request_full_block_report_lease": lease,
        })
    };
    let answer = c.call(DATANODE, "sendHeartbeat", "that wants a lease", beat(true))?;
    c.call(DATANODE, "sendHeartbeat", "", beat(false))?;
    c.call(DATANODE, "blockReport", "", json!({
        "registration": registration, "block_pool_id": pool, "reports": [{"storage": storage, "number_of_blocks": 0}],
        "context": {"total_rpcs": 1, "cur_rpc": 0, "id": 7, "lease_id": answer["full_block_report_lease_id"]},
    }))?;
    c.call(
        DATANODE,
        "blockReceivedAndDeleted",
        "",
        json!({"registration": registration, "block_pool_id": pool, "blocks": []}),
    )?;
    c.call(DATANODE, "cacheReport", "", json!({"registration": registration, "block_pool_id": pool, "blocks": []}))?;
    c.call(DATANODE, "errorReport", "", json!({"registration": registration, "error_code": 0, "msg": "compared"}))?;
    c.call(DATANODE, "reportBadBlocks", "", json!({"blocks": []}))?;
    Ok(())
}

/// Calls to a DataNode's IPC port. `block`: a block that it has.
pub fn datanode(c: &mut Caller, block: &Json, nothing: &Json) -> Result<()> {
    let token = json!({"identifier": "", "password": "", "kind": "", "service": ""});
    for (situation, block) in [("", block), ("no such block", nothing)] {
        c.call(CLIENT_DATANODE, "getReplicaVisibleLength", situation, json!({"block": block}))?;
    }
    c.call(CLIENT_DATANODE, "getBlockLocalPathInfo", "", json!({"block": block, "token": token}))?;
    for method in [
        "getDatanodeInfo",
        "getBalancerBandwidth",
        "getVolumeReport",
        "evictWriters",
        "getReconfigurationStatus",
        "listReconfigurableProperties",
        "refreshNamenodes",
        "queryDiskBalancerPlan",
    ] {
        c.call(CLIENT_DATANODE, method, "", json!({}))?;
    }
    c.call(CLIENT_DATANODE, "triggerBlockReport", "", json!({"incremental": false}))?;
    c.call(CLIENT_DATANODE, "deleteBlockPool", "in use", json!({"block_pool": block["pool_id"], "force": false}))?;
    for method in ["getReconfigurationStatus", "listReconfigurableProperties"] {
        c.call(RECONFIGURATION, method, "of a datanode", json!({}))?;
    }
    let located = json!({"b": block, "offset": 0, "corrupt": false, "block_token": token, "locs": []});
    let missing = json!({"b": nothing, "offset": 0, "corrupt": false, "block_token": token, "locs": []});
    for (situation, located) in [("", located), ("no such block", missing)] {
        let stamp = block["generation_stamp"].as_u64().context("a stamp")?;
        let request = json!({"block": {"new_gen_stamp": stamp + 1000, "block": located}});
        c.call(INTER_DATANODE, "initReplicaRecovery", situation, request)?;
    }
    signature(c, "org.apache.hadoop.hdfs.protocolPB.ClientDatanodeProtocolPB", "RPC_PROTOCOL_BUFFER", "of a datanode")?;
    Ok(())
}

/// Waits until the last block of [`WRITTEN`] has a location, and returns it.
pub fn written_block(c: &mut Caller) -> Result<Json> {
    let before = c.heard.len();
    let block = wait_until("the written file's block", Duration::from_secs(60), || {
        let located = c.call(CLIENT, "getBlockLocations", "", json!({"src": WRITTEN, "offset": 0, "length": 1}))?;
        let block = located["locations"]["blocks"][0].clone();
        Ok(block["locs"].as_array().is_some_and(|locations| !locations.is_empty()).then_some(block))
    });
    c.heard.truncate(before);
    block
}
