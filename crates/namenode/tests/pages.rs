//! HTTP pages: fsck, and the pages of the cluster's state.

mod support;

use std::sync::Arc;
use std::time::Duration;

use hearth_namenode::fsck::{FsckRequest, fsck};
use hearth_testkit::{eventually, until};
use hearth_types::{FsPermission, SystemClock};
use hearth_web::{Disconnected, TextSender};
use hearth_wire::proto::hdfs::*;
use support::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;

/// Maximum time that a client may take to read.
const PATIENCE: Duration = Duration::from_secs(60);

fn asked(path: &str) -> FsckRequest {
    FsckRequest { user: "root".into(), machine: "1.2.3.4".into(), path: path.into(), ..Default::default() }
}

/// Returns the whole report.
async fn told(n: &TestNamenode, request: FsckRequest) -> String {
    let (telling, mut listening) = TextSender::new(PATIENCE);
    let made = tokio::spawn(fsck(n.handle().namenode().clone(), request, telling));
    let mut text = Vec::new();
    while let Some(piece) = listening.next().await {
        text.extend_from_slice(&piece);
    }
    assert_eq!(made.await.unwrap(), Ok(()));
    String::from_utf8(text).unwrap()
}

/// Runs many calls, a few at a time: each waits until it is durable.
async fn all_of<C: Future<Output = ()> + Send + 'static>(calls: impl Iterator<Item = C>) {
    let mut running = JoinSet::new();
    for call in calls {
        if running.len() >= 64 {
            running.join_next().await.unwrap().unwrap();
        }
        running.spawn(call);
    }
    while let Some(done) = running.join_next().await {
        done.unwrap();
    }
}

async fn make_directories(n: &Arc<TestNamenode>, paths: impl Iterator<Item = String>) {
    let make = |path: String| {
        let n = n.clone();
        async move { assert!(n.mkdirs(&path).await.unwrap()) }
    };
    all_of(paths.map(make)).await;
}

async fn allow_snapshots(n: &TestNamenode, path: &str) {
    let allow = AllowSnapshotRequestProto { snapshot_root: path.into() };
    let _: AllowSnapshotResponseProto = n.call("allowSnapshot", &allow).await.unwrap();
}

async fn make_snapshots(n: &Arc<TestNamenode>, path: &'static str, names: impl Iterator<Item = String>) {
    let make = |name: String| {
        let n = n.clone();
        async move {
            let request = CreateSnapshotRequestProto { snapshot_root: path.into(), snapshot_name: Some(name) };
            let _: CreateSnapshotResponseProto = n.call("createSnapshot", &request).await.unwrap();
        }
    };
    all_of(names.map(make)).await;
}

async fn http(n: &TestNamenode, path: &str) -> String {
    let mut socket = tokio::net::TcpStream::connect(n.handle().http_address()).await.unwrap();
    socket.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn fsck_report_matches_apaches() {
    let n = TestNamenode::start().await;
    let datanodes = vec![TestDatanode::join(&n, 1).await];
    n.write(&datanodes, "/d/f", 100).await;
    n.create("/d/open", "W", 1).await.unwrap();
    let ask = |request: FsckRequest| told(&n, request);
    let request = asked("/d");
    let healthy = ask(FsckRequest { files: true, blocks: true, locations: true, ..request.clone() }).await;
    assert!(healthy.starts_with("FSCK started by root (auth:SIMPLE) from /1.2.3.4 for path /d at "), "{healthy}");
    let pool = n.pool();
    assert!(
        healthy.contains(&format!(
            "\n\n/d <dir>\n/d/f 100 bytes, replicated: replication=1, 1 block(s):  OK\n\
             0. {pool}:blk_1073741825_1001 len=100 Live_repl=1  [DatanodeInfoWithStorage[127.0.0.1:10001,DS-1,DISK]]\n\n\
             \nStatus: HEALTHY\n Number of data-nodes:\t1\n"
        )),
        "{healthy}"
    );
    assert!(healthy.contains("\n Total files:\t1 (Files currently being written: 1)\n"), "{healthy}");
    assert!(healthy.ends_with(" milliseconds\n\n\nThe filesystem under path '/d' is HEALTHY"), "{healthy}");

    spoil(&n, "/d/f").await;
    let corrupt = ask(request.clone()).await;
    assert!(
        corrupt.contains(&format!(
            "\n/d/f: CORRUPT blockpool {pool} block blk_1073741825\n\n/d/f: CORRUPT 1 blocks of total size 100 B.\nStatus: CORRUPT\n"
        )),
        "{corrupt}"
    );
    assert!(corrupt.ends_with("is CORRUPT"), "{corrupt}");
    let list = ask(FsckRequest { list_corrupt: true, ..request.clone() }).await;
    assert!(
        list.ends_with(
            "\nblk_1073741825\t1\t/d/f\nCookie:\t1\n\n\nThe filesystem under path '/d' has 1 CORRUPT files\n\n"
        ),
        "{list}"
    );
    let strange = ask(FsckRequest { list_corrupt: true, user: "bob".into(), ..request.clone() }).await;
    // Java's tool repeats its request forever, unless a line begins with "Access denied for user" (Hadoop 3.4) or the
    // cookie is not a number (all versions).
    let refused = "Access denied for user bob. Superuser privilege is required for operation listCorruptFileBlocks";
    assert!(strange.contains(&format!(" milliseconds\n{refused}\n")) && !strange.contains("/d/f"), "{strange}");
    assert!(strange.ends_with("\n\n\nFsck on path '/d' FAILED\nCookie:\tnone\n"), "{strange}");
    let block = ask(FsckRequest { block_ids: vec!["blk_1073741825".into(), "blk_9".into()], ..request.clone() }).await;
    assert!(
        block.contains("\nBlock Id: blk_1073741825\nBlock belongs to: /d/f\nNo. of Expected Replica: 1\n"),
        "{block}"
    );
    assert!(block.contains("dn1/default-rack is CORRUPT\t ReasonCode: CORRUPTION_REPORTED\n"), "{block}");
    assert!(block.ends_with("\nBlock blk_9 does not exist\n"), "{block}");
    let missing = ask(FsckRequest { path: "/nope".into(), ..request.clone() }).await;
    assert!(missing.ends_with("\n\n\nPath '/nope' does not exist"), "{missing}");

    // A user sees nothing below a directory that it cannot list.
    n.mkdirs_as("root", "/d/private", 0o700, true).await.unwrap();
    let hidden = ask(FsckRequest { user: "bob".into(), files: true, ..request.clone() }).await;
    assert!(
        hidden.contains("\n/d/private: not checked: Permission denied: user=bob") && hidden.ends_with("is CORRUPT"),
        "{hidden}"
    );
    n.delete_as("root", "/d/private", true).await.unwrap();

    // A user without permission to delete a file cannot delete it with fsck either.
    let by_bob = ask(FsckRequest { user: "bob".into(), delete: true, ..request.clone() }).await;
    assert!(by_bob.contains("cannot delete the corrupt file /d/f"), "{by_bob}");
    assert!(n.info("/d/f").await.unwrap().is_some());
    ask(FsckRequest { delete: true, ..request }).await;
    assert!(n.info("/d/f").await.unwrap().is_none());
}

#[tokio::test]
async fn fsck_skips_unreadable_paths() {
    let n = TestNamenode::start().await;
    let datanodes = vec![TestDatanode::join(&n, 1).await];
    n.mkdirs("/d").await.unwrap();
    n.mkdirs_as("root", "/d/private", 0o700, true).await.unwrap();
    for path in ["/d/a", "/d/private/f", "/d/shut", "/d/z"] {
        n.write(&datanodes, path, 100).await;
    }
    n.set_permission("/d/shut", FsPermission(0o600)).await.unwrap();
    let request = FsckRequest { files: true, ..asked("/d") };
    let said = told(&n, FsckRequest { user: "bob".into(), ..request.clone() }).await;
    for part in [
        "\n/d/private: not checked: Permission denied: user=bob, access=READ_EXECUTE, inode=\"/d/private\":root",
        "\n/d/shut: not checked: Permission denied: user=bob, access=READ, inode=\"/d/shut\":root",
        "\n/d/a 100 bytes, ",
        "\n/d/z 100 bytes, ",
        "\nStatus: INCOMPLETE\n",
        "\n Total files:\t2\n",
        "milliseconds\n2 paths were not checked: user bob may not read them. ",
    ] {
        assert!(said.contains(part), "{part} in {said}");
    }
    assert!(said.ends_with("\n\n\nFsck on path '/d' FAILED") && !said.contains("/d/private/f"), "{said}");
    // Known corruption takes precedence.
    spoil(&n, "/d/z").await;
    let said = told(&n, FsckRequest { user: "bob".into(), ..request.clone() }).await;
    assert!(said.contains("\nStatus: CORRUPT\n") && said.ends_with("path '/d' is CORRUPT"), "{said}");
    let said = told(&n, request).await;
    assert!(said.contains("/d/private/f 100 bytes") && said.contains("\n Total files:\t4\n"), "{said}");
}

#[tokio::test]
async fn fsck_replicate_queues_misplaced_blocks() {
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("rack-of");
    make_script(&script, "#!/bin/sh\ncase $1 in *.11|*.12) echo /a;; *.13) echo /b;; *) exit 1;; esac\n");
    let settings = configuration().with("net.topology.script.file.name", script.to_str().unwrap());
    let n = TestNamenode::start_with(settings, Arc::new(SystemClock::new())).await;
    let mut datanodes = Vec::new();
    for number in [11, 12, 13] {
        datanodes.push(TestDatanode::join_from(&n, client_from(&format!("127.0.0.{number}")), number, &[]).await);
    }
    let file = CreateRequestProto { replication: 2, ..new_file("/f", "writer", 1) };
    n.create_request("root", file).await.unwrap();
    let located = n.add_block("/f", "writer", None).await.unwrap();
    let block = ExtendedBlockProto { num_bytes: Some(10), ..located.b };
    for datanode in &datanodes[..2] {
        datanode.received(&n, &block).await;
    }
    assert!(n.complete("/f", "writer", Some(&block)).await.unwrap());
    let said = told(&n, asked("/f")).await;
    assert!(
        said.contains("Replica placement policy is violated") && said.contains("queued for replication:\t0\n"),
        "{said}"
    );
    let said = http(&n, "/fsck?ugi=root&path=%2Ff&replicate=1").await;
    assert!(said.contains("\n Blocks queued for replication:\t1\n") && said.ends_with("is HEALTHY"), "{said}");
}

#[tokio::test]
async fn fsck_block_requires_access_to_its_file() {
    let n = TestNamenode::start().await;
    let datanodes = vec![TestDatanode::join(&n, 1).await];
    n.write(&datanodes, "/d/f", 100).await;
    n.set_permission("/d", FsPermission(0o700)).await.unwrap();
    let request = FsckRequest { block_ids: vec!["blk_1073741825".into()], ..asked("/") };
    let said = told(&n, request.clone()).await;
    assert!(said.contains("\nBlock belongs to: /d/f\n"), "{said}");
    let said = told(&n, FsckRequest { user: "bob".into(), ..request }).await;
    assert!(said.ends_with("\n\nBlock blk_1073741825 is of a file that user bob may not reach\n"), "{said}");
    assert!(!said.contains("/d") && !said.contains("dn1"), "{said}");
}

#[tokio::test]
async fn fsck_acts_for_requested_user() {
    let configuration = configuration().with("hadoop.http.staticuser.user", "somebody");
    let n = TestNamenode::start_with(configuration, Arc::new(SystemClock::new())).await;
    n.mkdirs("/d").await.unwrap();
    for (user, query) in [
        ("bob", "user.name=bob&ugi=root"),
        ("bob", "ugi=bob,supergroup"),
        ("bob", "ugi=bob&doas=bob"),
        ("somebody", ""),
        ("somebody", "ugi="),
    ] {
        let said = http(&n, &format!("/fsck?path=%2Fd&{query}")).await;
        assert!(said.contains(&format!("FSCK started by {user} (auth:SIMPLE) from ")), "{query}: {said}");
    }
    let said = http(&n, "/fsck?path=%2Fd&ugi=bob&doas=root").await;
    let refused = "User: bob is not allowed to impersonate root\n\n\nFsck on path '/d' FAILED";
    assert!(said.ends_with(&format!("\r\n\r\n{refused}")), "{said}");
    let said = http(&n, "/fsck?path=%2Fd&ugi=bob&doas=root&listcorruptfileblocks=1").await;
    assert!(said.ends_with(&format!("\r\n\r\n{refused}\nCookie:\tnone\n")), "{said}");
}

#[tokio::test]
async fn fsck_deletions_are_audited() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("audit.log");
    let configuration = configuration().with("hearth.namenode.audit.log", log.to_str().unwrap());
    let n = TestNamenode::start_with(configuration, Arc::new(SystemClock::new())).await;
    let datanodes = vec![TestDatanode::join(&n, 1).await];
    n.write(&datanodes, "/d/f", 100).await;
    spoil(&n, "/d/f").await;
    let by_bob = FsckRequest { user: "bob".into(), ..asked("/d") };
    told(&n, FsckRequest { list_corrupt: true, ..by_bob.clone() }).await;
    told(&n, FsckRequest { delete: true, ..by_bob }).await;
    told(&n, FsckRequest { delete: true, ..asked("/d") }).await;
    let lines = eventually("five audit lines", async || {
        let text = std::fs::read_to_string(&log).unwrap();
        let over_http = text.lines().filter(|line| line.ends_with("\tdst=null\tperm=null\tproto=null"));
        let lines: Vec<String> = over_http.filter_map(|line| Some(line[line.find("allowed=")?..].to_owned())).collect();
        (lines.len() >= 5).then_some(lines)
    })
    .await;
    let line = |allowed: bool, user: &str, command: &str, path: &str| {
        format!(
            "allowed={allowed}\tugi={user} (auth:SIMPLE)\tip=/1.2.3.4\tcmd={command}\tsrc={path}\tdst=null\tperm=null\tproto=null"
        )
    };
    let expected = [
        line(false, "bob", "fsck", "/d"),
        line(false, "bob", "delete", "/d/f"),
        line(true, "bob", "fsck", "/d"),
        line(true, "root", "delete", "/d/f"),
        line(true, "root", "fsck", "/d"),
    ];
    assert_eq!(lines, expected);
}

#[tokio::test]
async fn fsck_counts_leaving_replicas_like_apache() {
    let directory = tempfile::tempdir().unwrap();
    let hosts = directory.path().join("hosts.json");
    let of =
        |port: u32, state: &str| format!(r#"{{"hostName": "127.0.0.1", "port": {port}, "adminState": "{state}"}}"#);
    let write_hosts = |states: [&str; 3]| {
        let entries: Vec<String> = (10_001..).zip(states).map(|(port, state)| of(port, state)).collect();
        std::fs::write(&hosts, format!("[{}]", entries.join(", "))).unwrap();
    };
    write_hosts(["NORMAL"; 3]);
    let provider = "org.apache.hadoop.hdfs.server.blockmanagement.CombinedHostFileManager";
    let configuration = configuration()
        .with("dfs.hosts", hosts.to_str().unwrap())
        .with("dfs.namenode.hosts.provider.classname", provider);
    let n = TestNamenode::start_with(configuration, Arc::new(SystemClock::new())).await;
    let mut datanodes = Vec::new();
    for number in 1..=3 {
        datanodes.push(TestDatanode::join(&n, number).await);
    }
    n.create_request("root", CreateRequestProto { replication: 3, ..new_file("/f", "writer", 1) }).await.unwrap();
    let located = n.add_block("/f", "writer", None).await.unwrap();
    let block = ExtendedBlockProto { num_bytes: Some(100), ..located.b };
    for datanode in &datanodes {
        datanode.received(&n, &block).await;
    }
    assert!(n.complete("/f", "writer", Some(&block)).await.unwrap());
    // In this order, because the last DataNode would leave at once while two others stay.
    write_hosts(["NORMAL", "IN_MAINTENANCE", "DECOMMISSIONED"]);
    let _: RefreshNodesResponseProto = n.call("refreshNodes", &RefreshNodesRequestProto {}).await.unwrap();

    let request = FsckRequest { files: true, blocks: true, maintenance: true, ..asked("/f") };
    let said = told(&n, request.clone()).await;
    for line in [
        "1 block(s):  OK\n",
        " len=100 Live_repl=1\n",
        "\n Under-replicated blocks:\t0 (0.0 %)\n",
        "\n Average block replication:\t3.0\n",
        "\n Missing replicas:\t\t0 (0.0 %)\n DecommissioningReplicas:\t1\n InMaintenanceReplicas:\t1\n Blocks queued",
    ] {
        assert!(said.contains(line), "{line} in {said}");
    }
    let more = SetReplicationRequestProto { src: "/f".into(), replication: 4 };
    let _: SetReplicationResponseProto = n.call("setReplication", &more).await.unwrap();
    let said = told(&n, request).await;
    for line in [
        "Target Replicas is 4 but found 1 live replica(s), 0 decommissioned replica(s), 1 decommissioning replica(s)0, \
         entering maintenance replica(s) and 1 in maintenance replica(s).\n",
        "\n Under-replicated blocks:\t1 (100.0 %)\n",
        "\n Missing replicas:\t\t1 (25.0 %)\n",
    ] {
        assert!(said.contains(line), "{line} in {said}");
    }
}

#[tokio::test]
async fn fsck_shows_progress_and_pages_directories() {
    let n = Arc::new(TestNamenode::start().await);
    // More entries than in a page, and more than are visited under one lock.
    make_directories(&n, (0..2000).map(|number| format!("/d/{number:04}"))).await;
    let write = |number: u32| {
        let n = n.clone();
        async move { drop(n.write(&[], &format!("/d/files/{number}"), 0).await) }
    };
    all_of((0..250).map(write)).await;
    let said = told(&n, asked("/d")).await;
    let (_, after) = said.split_once('\n').unwrap();
    // At the beginning and after each thousand entries there is a line feed, and after each hundred files a dot.
    assert!(after.starts_with("\n\n\n..\nStatus: HEALTHY\n"), "{said}");
    assert!(said.contains("\n Total dirs:\t\t\t2002\n") && said.contains("\n Total files:\t250\n"), "{said}");
    let named = told(&n, FsckRequest { files: true, ..asked("/d") }).await;
    let dirs: Vec<&str> = named.lines().filter_map(|line| line.strip_suffix(" <dir>")).collect();
    let expected = (0..2000).map(|number| format!("/d/{number:04}"));
    assert!(dirs.iter().copied().eq(std::iter::once("/d".to_owned()).chain(expected).chain(["/d/files".to_owned()])));
    assert_eq!(named.matches("block(s):  OK\n").count(), 250);
}

/// Checks the same for snapshots, of which there is more than a page, too.
#[tokio::test]
async fn fsck_pages_snapshots() {
    let n = Arc::new(TestNamenode::start().await);
    make_directories(&n, (0..1100).map(|number| format!("/d/{number:04}"))).await;
    allow_snapshots(&n, "/d").await;
    make_snapshots(&n, "/d", ["all".to_owned()].into_iter()).await;
    let delete = |number: u32| {
        let n = n.clone();
        async move { assert!(n.delete_as("root", &format!("/d/{number:04}"), false).await.unwrap()) }
    };
    all_of((0..1100).map(delete)).await;
    let within = told(&n, FsckRequest { files: true, ..asked("/d/.snapshot/all") }).await;
    let expected = (0..1100).map(|number| format!("/d/.snapshot/all/{number:04} <dir>"));
    let lines: Vec<&str> = within.lines().filter(|line| line.ends_with(" <dir>")).collect();
    assert!(lines.iter().skip(1).copied().eq(expected) && lines[0] == "/d/.snapshot/all <dir>", "{within}");

    make_snapshots(&n, "/d", (0..1050).map(|number| format!("s{number:04}"))).await;
    // The snapshots of the directory come before the directory.
    let said = told(&n, FsckRequest { files: true, include_snapshots: true, ..asked("/d") }).await;
    let lines: Vec<&str> = said.lines().filter(|line| line.ends_with(" <dir>")).collect();
    assert_eq!(lines[..3], ["/d/.snapshot <dir>", "/d/.snapshot/all <dir>", "/d/.snapshot/all/0000 <dir>"]);
    assert_eq!(lines[lines.len() - 2..], ["/d/.snapshot/s1049 <dir>", "/d <dir>"]);
    assert_eq!(lines.len(), 1 + 1101 + 1050 + 1);
}

#[tokio::test]
async fn corrupt_file_list_streams_and_includes_snapshots() {
    let n = Arc::new(TestNamenode::start().await);
    let datanodes = vec![TestDatanode::join(&n, 1).await];
    for path in ["/d/a", "/d/b", "/other"] {
        n.write(&datanodes, path, 100).await;
        spoil(&n, path).await;
    }
    allow_snapshots(&n, "/d").await;
    // More than are visited under one lock.
    make_snapshots(&n, "/d", (0..1100).map(|number| format!("s{number:04}"))).await;
    make_snapshots(&n, "/d", ["last".to_owned()].into_iter()).await;
    assert!(n.delete_as("root", "/d/b", false).await.unwrap());
    let request = FsckRequest { list_corrupt: true, ..asked("/d") };
    let list = told(&n, request.clone()).await;
    let end = "Cookie:\t3\n\n\nThe filesystem under path '/d' has 2 CORRUPT files\n\n";
    let found = "\nblk_1073741825\t1\t/d/a\nblk_1073741826\t2\t/d/.snapshot/last/b\n";
    assert!(list.ends_with(&format!("{found}{end}")), "{list}");
    let next = told(&n, FsckRequest { start_after: 2, ..request.clone() }).await;
    assert!(next.ends_with("\nCookie:\t3\n\n\nThe filesystem under path '/d' has no CORRUPT files\n\n"), "{next}");

    let (telling, mut listening) = TextSender::new(PATIENCE);
    let request = FsckRequest { include_snapshots: true, ..request };
    let made = tokio::spawn(fsck(n.handle().namenode().clone(), request, telling));
    // The report is not sent in one piece.
    let mut text = listening.next().await.unwrap().to_vec();
    assert!(text.starts_with(b"FSCK started by root") && text.iter().filter(|byte| **byte == b'\n').count() == 1);
    while let Some(piece) = listening.next().await {
        text.extend_from_slice(&piece);
    }
    assert_eq!(made.await.unwrap(), Ok(()));
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("\nblk_1073741825\t1\t/d/a\nblk_1073741825\t/d/.snapshot/last/a\n"), "{text}");
    assert!(text.contains("\nblk_1073741826\t2\t/d/.snapshot/last/b\n") && text.ends_with(end), "{text}");
    assert_eq!(text.matches("blk_1073741825\t/d/.snapshot/s").count(), 1100);
    assert_eq!(text.matches("blk_1073741826\t/d/.snapshot/s").count(), 1100);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fsck_stops_when_client_disconnects() {
    let n = TestNamenode::start().await;
    let datanodes = vec![TestDatanode::join(&n, 1).await];
    let paths: Vec<String> = (10..40).map(|number| format!("/d/{number}")).collect();
    for path in &paths {
        n.write(&datanodes, path, 100).await;
        spoil(&n, path).await;
    }
    let (telling, mut listening) = TextSender::new(PATIENCE);
    let request = FsckRequest { delete: true, ..asked("/d") };
    let made = tokio::spawn(fsck(n.handle().namenode().clone(), request, telling));
    let mut heard = String::new();
    while !heard.contains("FSCK deleted the corrupt file /d/10\n") {
        heard.push_str(std::str::from_utf8(&listening.next().await.unwrap()).unwrap());
    }
    // From here on the client reads nothing. The only further deletions are those whose reports fit in the buffer;
    // nothing shows that the last of them was made.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(!made.is_finished());
    drop(listening);
    assert_eq!(made.await.unwrap(), Err(Disconnected));
    let mut left = Vec::new();
    for path in &paths {
        if n.info(path).await.unwrap().is_some() {
            left.push(path);
        }
    }
    assert!(left.len() < paths.len(), "{left:?}");
    assert!(left.len() > paths.len() / 2, "{left:?}");
    assert!(left.iter().copied().eq(&paths[paths.len() - left.len()..]), "{left:?}");
    // A client that stays connected gets the whole report, also over HTTP.
    let said = http(&n, "/fsck?ugi=root&path=%2Fd&delete=1").await;
    assert_eq!(said.matches("FSCK deleted the corrupt file ").count(), left.len(), "{said}");
    assert!(said.ends_with("The filesystem under path '/d' is CORRUPT"), "{said}");
    assert!(told(&n, asked("/d")).await.ends_with("The filesystem under path '/d' is HEALTHY"));
}

/// Checks the state of a file right before its deletion: a client may take a minute to read the report of a file, which
/// is deleted only after that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fsck_keeps_files_that_became_healthy() {
    let n = TestNamenode::start().await;
    let datanodes = vec![TestDatanode::join(&n, 1).await];
    let mut tries = 0;
    let mut left = vec![("/well", false), ("/reopened", true)];
    while let Some((name, is_reopened)) = left.pop() {
        tries += 1;
        let top = format!("{name}{tries}");
        let paths: Vec<String> = (1..=4).map(|number| format!("{top}/{number}")).collect();
        for path in &paths {
            n.write(&datanodes, path, 100).await;
            spoil(&n, path).await;
        }
        let (telling, mut listening) = TextSender::new(PATIENCE);
        let request = FsckRequest { delete: true, ..asked(&top) };
        let made = tokio::spawn(fsck(n.handle().namenode().clone(), request, telling));
        // The report has a start line, then for each file its problem and its deletion. Four pieces fit in the buffer:
        // after the client has read one, two files are deleted and the third has been judged.
        let mut said = listening.next().await.unwrap().to_vec();
        until("the second deletion", async || n.info(&paths[1]).await.unwrap().is_none()).await;
        // Nothing shows that the third file was judged.
        tokio::time::sleep(Duration::from_millis(500)).await;
        for path in &paths[2..] {
            let block = n.locations(path, 0, 1).await.unwrap().blocks[0].b.clone();
            datanodes[0].received(&n, &block).await;
        }
        if is_reopened {
            n.append(&paths[2], "W", 4).await.unwrap();
        }
        while let Some(piece) = listening.next().await {
            said.extend_from_slice(&piece);
        }
        assert_eq!(made.await.unwrap(), Ok(()));
        let said = String::from_utf8(said).unwrap();
        if !said.contains(&format!("\n{}: CORRUPT ", paths[2])) {
            // On a stalled machine the file was healthy before it was judged.
            assert!(tries < 7, "{said}");
            left.push((name, is_reopened));
            continue;
        }
        let reason = if is_reopened { "it is being written" } else { "it is no longer corrupt" };
        assert!(said.contains(&format!("\nFSCK did not delete {}: {reason}\n", paths[2])), "{said}");
        assert_eq!(said.matches("FSCK deleted the corrupt file ").count(), 2, "{said}");
        for path in &paths[2..] {
            assert!(n.info(path).await.unwrap().is_some(), "{path}");
        }
    }
}

#[tokio::test]
async fn pages_show_reports_of_datanodes() {
    let n = TestNamenode::start().await;
    let datanode = TestDatanode::join_of_version(&n, 1, "3.4.2-of-its-own").await;
    let info = async || {
        let answer = http(&n, "/jmx?qry=Hadoop:service=NameNode,name=NameNodeInfo").await;
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        let beans: serde_json::Value = serde_json::from_str(body).unwrap();
        let live: serde_json::Value = serde_json::from_str(beans["beans"][0]["LiveNodes"].as_str().unwrap()).unwrap();
        (live["dn1:10001"]["version"].clone(), live["dn1:10001"]["volfails"].clone())
    };
    assert_eq!(info().await, ("3.4.2-of-its-own".into(), 0.into()));
    datanode.heartbeat_with_failed_volumes(&n, 2).await;
    assert_eq!(info().await, ("3.4.2-of-its-own".into(), 2.into()));
    let front = http(&n, "/").await;
    assert!(front.contains("<td>2</td><td>3.4.2-of-its-own</td>"), "{front}");
    assert!(http(&n, "/jmx?qry=*:*").await.contains("\"VolumeFailuresTotal\": 2"));
    assert!(http(&n, "/metrics").await.contains("\nhearth_namenode_failed_volumes 2\n"));
}
