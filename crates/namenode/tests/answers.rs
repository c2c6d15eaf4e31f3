//! Times, quotas, snapshots of open files, `/.reserved`, hosts files and targets of blocks: the answers of an Apache
//! NameNode 3.4.2.

mod support;

use std::path::Path;
use std::sync::Arc;

use hearth_config::Configuration;
use hearth_types::SystemClock;
use hearth_wire::proto::hdfs::*;
use support::*;

const ACCESS: &str = "org.apache.hadoop.security.AccessControlException";
const HADOOP_INVALID: &str = "org.apache.hadoop.fs.InvalidPathException";
const IO: &str = "java.io.IOException";
const MISSING: &str = "java.io.FileNotFoundException";

async fn start(configuration: Configuration) -> TestNamenode {
    TestNamenode::start_with(configuration, Arc::new(SystemClock::new())).await
}

async fn set_times(n: &TestNamenode, path: &str, modified: i64, accessed: i64) -> Answer<()> {
    let request = SetTimesRequestProto { src: path.into(), mtime: modified as u64, atime: accessed as u64 };
    n.call::<SetTimesResponseProto>("setTimes", &request).await.map(drop)
}

async fn allow(n: &TestNamenode, path: &str) {
    let request = AllowSnapshotRequestProto { snapshot_root: path.into() };
    n.call::<AllowSnapshotResponseProto>("allowSnapshot", &request).await.unwrap();
}

async fn snapshot_as(n: &TestNamenode, user: &str, path: &str, name: &str) -> Answer<()> {
    let request = CreateSnapshotRequestProto { snapshot_root: path.into(), snapshot_name: Some(name.into()) };
    n.call_as::<CreateSnapshotResponseProto>(user, "createSnapshot", &request).await.map(drop)
}

async fn differences(n: &TestNamenode, path: &str, from: &str, to: &str) -> Vec<String> {
    let request = GetSnapshotDiffReportRequestProto {
        snapshot_root: path.into(),
        from_snapshot: from.into(),
        to_snapshot: to.into(),
    };
    let answer: GetSnapshotDiffReportResponseProto = n.call("getSnapshotDiffReport", &request).await.unwrap();
    let entry = |entry: &SnapshotDiffReportEntryProto| {
        format!("{} ./{}", entry.modification_label, String::from_utf8_lossy(&entry.fullpath))
    };
    answer.diff_report.diff_report_entries.iter().map(entry).collect()
}

async fn set_quota(n: &TestNamenode, path: &str, names: i64, space: i64) {
    let request = SetQuotaRequestProto {
        path: path.into(),
        namespace_quota: names as u64,
        storagespace_quota: space as u64,
        storage_type: None,
    };
    n.call::<SetQuotaResponseProto>("setQuota", &request).await.unwrap();
}

async fn told(n: &TestNamenode, path: &str, length: i64) {
    let request = FsyncRequestProto {
        src: path.into(),
        client: "W".into(),
        last_block_length: Some(length),
        ..Default::default()
    };
    n.call::<FsyncResponseProto>("fsync", &request).await.unwrap();
}

async fn length(n: &TestNamenode, path: &str) -> u64 {
    let located = n.locations(path, 0, u64::MAX >> 1).await.unwrap();
    let status = n.info(path).await.unwrap().unwrap();
    if path.contains("/.snapshot/") {
        assert_eq!(located.file_length, status.length, "{path}");
    }
    status.length
}

#[tokio::test]
async fn negative_time_is_ignored() {
    let n = TestNamenode::start().await;
    n.mkdirs("/d").await.unwrap();
    set_times(&n, "/d", 5, 7).await.unwrap();
    for (modified, accessed) in [(-2, -2), (-1, -1), (i64::MIN, i64::MIN)] {
        set_times(&n, "/d", modified, accessed).await.unwrap();
        let status = n.info("/d").await.unwrap().unwrap();
        assert_eq!((status.modification_time, status.access_time), (5, 7));
    }
    set_times(&n, "/d", -3, 0).await.unwrap();
    let status = n.info("/d").await.unwrap().unwrap();
    assert_eq!((status.modification_time, status.access_time), (5, 0));
}

#[tokio::test]
async fn access_times_can_be_set_explicitly() {
    let n = start(configuration().with("dfs.namenode.accesstime.precision", "0")).await;
    n.write(&[], "/f", 0).await;
    set_times(&n, "/f", -1, 7).await.unwrap();
    n.locations("/f", 0, 1).await.unwrap();
    assert_eq!(n.info("/f").await.unwrap().unwrap().access_time, 7);
}

#[tokio::test]
async fn snapshots_without_permissions_allow_any_user() {
    for enabled in [true, false] {
        let n = start(configuration().with("dfs.permissions.enabled", enabled.to_string())).await;
        n.mkdirs("/d").await.unwrap();
        allow(&n, "/d").await;
        snapshot_as(&n, "root", "/d", "one").await.unwrap();
        let rename = RenameSnapshotRequestProto {
            snapshot_root: "/d".into(),
            snapshot_old_name: "one".into(),
            snapshot_new_name: "two".into(),
        };
        let remove = DeleteSnapshotRequestProto { snapshot_root: "/d".into(), snapshot_name: "two".into() };
        let outcomes = [
            snapshot_as(&n, "bob", "/d", "bobs").await,
            n.call_as::<RenameSnapshotResponseProto>("bob", "renameSnapshot", &rename).await.map(drop),
            n.call_as::<DeleteSnapshotResponseProto>("bob", "deleteSnapshot", &remove).await.map(drop),
        ];
        for outcome in outcomes {
            match enabled {
                true => refused(outcome, ACCESS, "Permission denied. user=bob is not the owner of inode=/d"),
                false => outcome.unwrap(),
            }
        }
        // Each user nevertheless sees only its own snapshottable directories.
        let answer: GetSnapshottableDirListingResponseProto =
            n.call_as("bob", "getSnapshottableDirListing", &GetSnapshottableDirListingRequestProto {}).await.unwrap();
        let listed = answer.snapshottable_dir_list.unwrap().snapshottable_dir_listing;
        assert!(listed.is_empty(), "{listed:?}");
    }
}

#[tokio::test]
async fn differences_include_quotas() {
    let mut n = TestNamenode::start().await;
    n.mkdirs("/d/sub").await.unwrap();
    allow(&n, "/d").await;
    snapshot_as(&n, "root", "/d", "one").await.unwrap();
    set_quota(&n, "/d", 100, i64::MAX).await;
    snapshot_as(&n, "root", "/d", "two").await.unwrap();
    set_quota(&n, "/d/sub", i64::MAX, 1 << 40).await;
    snapshot_as(&n, "root", "/d", "three").await.unwrap();
    for again in [false, true] {
        if again {
            n.restart().await;
        }
        assert_eq!(differences(&n, "/d", "one", "two").await, ["M ./"], "{again}");
        assert_eq!(differences(&n, "/d", "two", "three").await, ["M ./sub"], "{again}");
        assert_eq!(differences(&n, "/d", "one", "").await, ["M ./", "M ./sub"], "{again}");
    }
    // After the quotas are cleared again, they equal the earlier state.
    set_quota(&n, "/d", -1, i64::MAX).await;
    set_quota(&n, "/d/sub", i64::MAX, -1).await;
    assert_eq!(differences(&n, "/d", "one", "").await, Vec::<String>::new());
    assert_eq!(differences(&n, "/d", "three", "").await, ["M ./", "M ./sub"]);
    // The usage in a snapshot counts against no quota of its own.
    set_quota(&n, "/d", 4, i64::MAX).await;
    n.mkdirs("/d/a").await.unwrap();
    n.mkdirs("/d/b").await.unwrap();
    assert!(n.mkdirs("/d/c").await.is_err());
}

#[tokio::test]
async fn snapshot_follows_open_file_until_changed() {
    for captures in [false, true] {
        let setting = ("dfs.namenode.snapshot.capture.openfiles", captures.to_string());
        let mut n = start(configuration().with(setting.0, setting.1)).await;
        let mut datanode = TestDatanode::join(&n, 1).await;
        n.mkdirs("/d").await.unwrap();
        allow(&n, "/d").await;
        n.create("/d/f", "W", 1).await.unwrap();
        let block = n.add_block("/d/f", "W", None).await.unwrap().b;
        told(&n, "/d/f", 100).await;
        snapshot_as(&n, "root", "/d", "one").await.unwrap();
        let seen = |length: u64| if captures { 100 } else { length };
        told(&n, "/d/f", 200).await;
        assert_eq!(length(&n, "/d/.snapshot/one/f").await, seen(200));
        let changed = if captures { vec!["M ./f"] } else { vec![] };
        assert_eq!(differences(&n, "/d", "one", "").await, changed);
        n.restart().await;
        assert_eq!(length(&n, "/d/.snapshot/one/f").await, seen(200));

        let whole = ExtendedBlockProto { num_bytes: Some(300), ..block.clone() };
        datanode = {
            drop(datanode);
            TestDatanode::join_with(&n, 1, std::slice::from_ref(&whole)).await
        };
        assert!(n.complete("/d/f", "W", Some(&whole)).await.unwrap());
        assert_eq!(length(&n, "/d/.snapshot/one/f").await, seen(300));
        assert_eq!(differences(&n, "/d", "one", "").await, changed);

        // From here on the snapshot keeps the length that the file had.
        let again = n.append("/d/f", "W", 1).await.unwrap().block.unwrap();
        told(&n, "/d/f", 400).await;
        assert_eq!((length(&n, "/d/.snapshot/one/f").await, length(&n, "/d/f").await), (seen(300), 400));
        assert_eq!(differences(&n, "/d", "one", "").await, ["M ./f"]);
        snapshot_as(&n, "root", "/d", "two").await.unwrap();
        told(&n, "/d/f", 500).await;
        assert_eq!(length(&n, "/d/.snapshot/one/f").await, seen(300));
        assert_eq!(length(&n, "/d/.snapshot/two/f").await, if captures { 400 } else { 500 });
        let longer = ExtendedBlockProto { num_bytes: Some(600), ..again.b.clone() };
        datanode.received(&n, &longer).await;
        assert!(n.complete("/d/f", "W", Some(&longer)).await.unwrap());
        n.restart().await;
        TestDatanode::join_with(&n, 1, std::slice::from_ref(&longer)).await;
        assert_eq!(length(&n, "/d/.snapshot/one/f").await, seen(300));
        assert_eq!(length(&n, "/d/.snapshot/two/f").await, if captures { 400 } else { 600 });

        // A truncation leaves both as they are. The block is deleted with the last snapshot.
        assert!(n.truncate("/d/f", 0, "W").await.unwrap());
        assert_eq!(length(&n, "/d/.snapshot/one/f").await, seen(300));
        assert_eq!(length(&n, "/d/.snapshot/two/f").await, if captures { 400 } else { 600 });
        let has = |n: &TestNamenode| {
            let id = hearth_types::BlockId(block.block_id as i64);
            n.handle().namenode().read().blocks.inode_of(id).is_some()
        };
        for name in ["one", "two"] {
            assert!(has(&n), "before {name} is deleted");
            let remove = DeleteSnapshotRequestProto { snapshot_root: "/d".into(), snapshot_name: name.into() };
            n.call::<DeleteSnapshotResponseProto>("deleteSnapshot", &remove).await.unwrap();
        }
        assert!(!has(&n));
    }
}

#[tokio::test]
async fn abandoned_blocks_are_in_no_snapshot() {
    let n = TestNamenode::start().await;
    TestDatanode::join(&n, 1).await;
    n.mkdirs("/d").await.unwrap();
    allow(&n, "/d").await;
    n.create("/d/f", "W", 1).await.unwrap();
    let block = n.add_block("/d/f", "W", None).await.unwrap().b;
    told(&n, "/d/f", 100).await;
    snapshot_as(&n, "root", "/d", "one").await.unwrap();
    let given_up = AbandonBlockRequestProto { b: block, src: "/d/f".into(), holder: "W".into(), ..Default::default() };
    n.call::<AbandonBlockResponseProto>("abandonBlock", &given_up).await.unwrap();
    assert!(n.complete("/d/f", "W", None).await.unwrap());
    assert_eq!(length(&n, "/d/.snapshot/one/f").await, 0);
    assert_eq!(differences(&n, "/d", "one", "").await, Vec::<String>::new());
}

#[tokio::test]
async fn negative_numbers_are_reported_as_negative() {
    let n = TestNamenode::start().await;
    let request = CreateRequestProto { block_size: -1i64 as u64, ..new_file("/f", "c", 1) };
    let message = "Specified block size -1 is less than configured minimum value \
        dfs.namenode.fs-limits.min-block-size=1048576";
    refused(n.create_request("root", request).await, IO, message);
    let request = CreateRequestProto { replication: -1i32 as u32, ..new_file("/f", "c", 1) };
    let message =
        "Requested replication factor of -1 is less than the required minimum of 1 for /f, clientName=127.0.0.1";
    refused(n.create_request("root", request).await, IO, message);
    assert_eq!(n.info("/f").await.unwrap(), None);
}

#[tokio::test]
async fn reserved_paths() {
    let n = TestNamenode::start().await;
    n.write(&[], "/d/f", 0).await;
    let id = n.info("/d/f").await.unwrap().unwrap().file_id();
    let request = GetListingRequestProto { src: "/.reserved".into(), ..Default::default() };
    let listed: GetListingResponseProto = n.call("getListing", &request).await.unwrap();
    let entries = listed.dir_list.unwrap().partial_listing;
    for (entry, name) in entries.iter().zip([".inodes", "raw"]) {
        assert_eq!(entry.path, name.as_bytes());
        let shown = "dir len=0 repl=0 bs=0 rwxrwx--- :supergroup id=18446744073709551615 children=0 policy=0";
        assert_eq!(show_status(entry), shown);
    }
    let batch = GetBatchedListingRequestProto { paths: vec!["/.reserved".into(), "/d".into()], ..Default::default() };
    let batch: GetBatchedListingResponseProto = n.call("getBatchedListing", &batch).await.unwrap();
    assert_eq!(batch.listings.iter().map(|one| one.partial_listing.len()).collect::<Vec<_>>(), [2, 1]);

    assert_eq!(n.info("/.reserved/.inodes").await.unwrap(), None);
    assert_eq!(n.list("/.reserved/.inodes", "").await.unwrap(), None);
    assert_eq!(n.info("/.reserved/raw").await.unwrap().unwrap().file_id(), 16385);
    assert_eq!(n.info(&format!("/.reserved/.inodes/{id}")).await.unwrap().unwrap().file_id(), id);
    for (path, message) in [
        ("/.reserved/.inodes/x", "Invalid inode path: /.reserved/.inodes/x"),
        ("/.reserved/.inodes/99999999999999999999/a", "Invalid inode path: /.reserved/.inodes/99999999999999999999/a"),
        ("/.reserved/.inodes/-1", "File for given inode path does not exist: /.reserved/.inodes/-1"),
        ("/.reserved/.inodes/99999", "File for given inode path does not exist: /.reserved/.inodes/99999"),
    ] {
        refused(n.info(path).await, MISSING, message);
    }

    let invalid = "Invalid path name /.reserved";
    refused(n.set_permission("/.reserved", hearth_types::FsPermission(0o777)).await, HADOOP_INVALID, invalid);
    let owner =
        SetOwnerRequestProto { src: "/.reserved".into(), username: Some("bob".into()), groupname: Some("x".into()) };
    refused(n.call::<SetOwnerResponseProto>("setOwner", &owner).await, HADOOP_INVALID, invalid);
    refused(n.delete_as("root", "/.reserved", true).await, HADOOP_INVALID, invalid);
    refused(set_times(&n, "/.reserved", 1, 1).await, MISSING, "File/Directory /.reserved does not exist.");
    let entry = AclEntryProto {
        r#type: hearth_types::AclType::User as i32,
        scope: hearth_types::AclScope::Access as i32,
        permissions: 4,
        name: Some("ann".into()),
    };
    let acl = ModifyAclEntriesRequestProto { src: "/.reserved".into(), acl_spec: vec![entry] };
    let message = "Directory/File does not exist /.reserved";
    refused(n.call::<ModifyAclEntriesResponseProto>("modifyAclEntries", &acl).await, MISSING, message);
    for (target, source) in [(format!("/.reserved/.inodes/{id}"), "/d/g"), ("/d/f".into(), "/.reserved/raw/d/g")] {
        let odd = if target.starts_with("/.r") { target.clone() } else { source.to_owned() };
        let request = ConcatRequestProto { trg: target, srcs: vec![source.into()] };
        let message = format!("Concat operation doesn't support .reserved relative path : {odd}");
        refused(n.call::<ConcatResponseProto>("concat", &request).await, IO, &message);
    }
}

#[tokio::test]
async fn symbolic_links_are_refused() {
    let n = TestNamenode::start().await;
    n.mkdirs("/d").await.unwrap();
    let link = async |link: String| {
        let request = CreateSymlinkRequestProto {
            target: "/d".into(),
            link,
            dir_perm: FsPermissionProto { perm: 0o755 },
            create_parent: true,
        };
        n.call::<CreateSymlinkResponseProto>("createSymlink", &request).await
    };
    refused(link("/l".into()).await, "java.lang.UnsupportedOperationException", "Symlinks not supported");
    refused(link(format!("/{}", "x".repeat(8000))).await, IO, "Symlink path exceeds 8000 character limit");
    let target = async |path: &str| {
        let request = GetLinkTargetRequestProto { path: path.into() };
        n.call::<GetLinkTargetResponseProto>("getLinkTarget", &request).await
    };
    refused(target("/d/").await, IO, "Path /d/ is not a symbolic link");
    refused(target("/l").await, MISSING, "File does not exist: /l");
    refused(target("/.reserved").await, IO, "Path /.reserved is not a symbolic link");
    let request = GetFileLinkInfoRequestProto { src: "/d".into() };
    let status: GetFileLinkInfoResponseProto = n.call("getFileLinkInfo", &request).await.unwrap();
    assert_eq!(status.fs, n.info("/d").await.unwrap());
}

#[tokio::test]
async fn repeated_add_block_returns_same_block() {
    let mut n = TestNamenode::start().await;
    TestDatanode::join(&n, 1).await;
    n.create("/f", "W", 1).await.unwrap();
    let first = n.add_block("/f", "W", None).await.unwrap();
    let again = n.add_block("/f", "W", None).await.unwrap();
    assert_eq!((&again.b, again.locs.len()), (&first.b, 1));
    n.restart().await;
    let datanode = TestDatanode::join(&n, 1).await;
    let again = n.add_block("/f", "W", None).await.unwrap();
    assert_eq!((&again.b, again.locs.len()), (&first.b, 1));
    // A third call returns the same, now that the location is known.
    let more = n.add_block("/f", "W", None).await.unwrap();
    assert_eq!(more, again);
    let written = ExtendedBlockProto { num_bytes: Some(100), ..again.b };
    datanode.received(&n, &written).await;
    assert!(n.complete("/f", "W", Some(&written)).await.unwrap());
    assert_eq!(n.locations("/f", 0, 1000).await.unwrap().blocks[0].locs.len(), 1);
}

#[tokio::test]
async fn favored_datanodes_match_any_host_name() {
    let n = TestNamenode::start().await;
    for number in 1..=3 {
        TestDatanode::join(&n, number).await;
    }
    for (nth, (favoured, wanted)) in
        [("localhost:10002", 10_002), ("127.0.0.1:10003", 10_003), ("dn1:10001", 10_001), ("localhost:10002", 10_002)]
            .into_iter()
            .enumerate()
    {
        let path = format!("/f{nth}");
        n.create(&path, "W", 1).await.unwrap();
        let request = AddBlockRequestProto {
            src: path,
            client_name: "W".into(),
            favored_nodes: vec![favoured.into()],
            ..Default::default()
        };
        let located = n.add_block_request(request).await.unwrap();
        assert_eq!(located.locs[0].id.xfer_port, wanted, "{favoured}");
    }
    // An unknown name is no reason to refuse the block.
    n.create("/unknown", "W", 1).await.unwrap();
    let request = AddBlockRequestProto {
        src: "/unknown".into(),
        client_name: "W".into(),
        favored_nodes: vec!["no.such.host.invalid:1".into(), "odd".into()],
        ..Default::default()
    };
    assert_eq!(n.add_block_request(request).await.unwrap().locs.len(), 1);
}

async fn reported(n: &TestNamenode, kind: DatanodeReportTypeProto) -> Vec<(String, u32)> {
    let request = GetDatanodeReportRequestProto { r#type: kind as i32 };
    let answer: GetDatanodeReportResponseProto = n.call("getDatanodeReport", &request).await.unwrap();
    answer.di.into_iter().map(|info| (info.id.ip_addr, info.id.xfer_port)).collect()
}

async fn with_hosts(directory: &Path, text: &str, is_json: bool) -> TestNamenode {
    let file = directory.join("hosts");
    std::fs::write(&file, text).unwrap();
    let mut configuration = configuration().with("dfs.hosts", file.to_str().unwrap());
    if is_json {
        let provider = "org.apache.hadoop.hdfs.server.blockmanagement.CombinedHostFileManager";
        configuration.set("dfs.namenode.hosts.provider.classname", provider);
    }
    start(configuration).await
}

#[tokio::test]
async fn unseen_datanodes_of_hosts_file_are_dead() {
    use DatanodeReportTypeProto::{All, Dead, Live};
    let directory = tempfile::tempdir().unwrap();
    let json = r#"[{"hostName": "127.0.0.1"}, {"hostName": "127.0.0.9"}, {"hostName": "127.0.0.8", "port": 50}]"#;
    for (text, is_json) in
        [("127.0.0.1\n127.0.0.9\n127.0.0.8:50\n127.0.0.9\nno.such.host.invalid", false), (json, true)]
    {
        let n = with_hosts(directory.path(), text, is_json).await;
        TestDatanode::join(&n, 1).await;
        let dead = [("127.0.0.8".to_owned(), 50), ("127.0.0.9".to_owned(), 9866)];
        let mut found = reported(&n, Dead).await;
        found.sort();
        assert_eq!(found, dead, "{is_json}");
        assert_eq!(reported(&n, Live).await, [("127.0.0.1".to_owned(), 10_001)]);
        assert_eq!(reported(&n, All).await.len(), 3);
        let state = n.handle().namenode().read().blocks.cluster_statistics(n.handle().namenode().now());
        assert_eq!((state.dead_nodes, state.live_nodes), (2, 1));
        // Loopback addresses are often a second address of a node that has come.
        assert_eq!(state.dead_in_service_nodes, 0);
    }
    // TEST-NET-1, RFC 5737.
    let n = with_hosts(directory.path(), "127.0.0.1\n127.0.0.9\n192.0.2.9\n", false).await;
    TestDatanode::join(&n, 1).await;
    let state = n.handle().namenode().read().blocks.cluster_statistics(n.handle().namenode().now());
    assert_eq!((state.dead_nodes, state.dead_in_service_nodes), (2, 1));
    // A list without a node in service excludes no node, but its nodes are still expected.
    let json = r#"[{"hostName": "192.0.2.9", "adminState": "DECOMMISSIONED"}]"#;
    let n = with_hosts(directory.path(), json, true).await;
    TestDatanode::join(&n, 1).await;
    let request = GetDatanodeReportRequestProto { r#type: Dead as i32 };
    let answer: GetDatanodeReportResponseProto = n.call("getDatanodeReport", &request).await.unwrap();
    assert_eq!(answer.di.len(), 1);
    assert_eq!(answer.di[0].admin_state(), datanode_info_proto::AdminState::Decommissioned);
    let state = n.handle().namenode().read().blocks.cluster_statistics(n.handle().namenode().now());
    assert_eq!((state.dead_nodes, state.dead_in_service_nodes), (1, 0));
}

#[tokio::test]
async fn missing_json_hosts_file_admits_all_datanodes() {
    let directory = tempfile::tempdir().unwrap();
    let n = with_hosts(directory.path(), "", true).await;
    std::fs::remove_file(directory.path().join("hosts")).unwrap();
    let _: RefreshNodesResponseProto = n.call("refreshNodes", &RefreshNodesRequestProto {}).await.unwrap();
    TestDatanode::join(&n, 1).await;
    assert_eq!(reported(&n, DatanodeReportTypeProto::Live).await.len(), 1);
    let absent = configuration().with("dfs.hosts", directory.path().join("none").to_str().unwrap()).with(
        "dfs.namenode.hosts.provider.classname",
        "org.apache.hadoop.hdfs.server.blockmanagement.CombinedHostFileManager",
    );
    TestDatanode::join(&start(absent).await, 1).await;
}
