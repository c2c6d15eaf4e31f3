//! HTTP pages: fsck, and the pages of the cluster's state.

mod support;

use std::sync::Arc;
use std::time::Duration;

use hearth_config::Configuration;
use hearth_namenode::fsck::{BlockCopier, Copied, CopyFuture, CopyRequest, FsckRequest, fsck};
use hearth_testkit::{eventually, until};
use hearth_types::{ByteRange, FsPermission, SystemClock};
use hearth_web::{Disconnected, TextSender};
use hearth_wire::proto::hdfs::*;
use support::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
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
    send(n, &format!("GET {path} HTTP/1.0")).await
}

/// Sends a request with these lines in its head.
async fn send(n: &TestNamenode, head: &str) -> String {
    let mut socket = tokio::net::TcpStream::connect(n.handle().http_address()).await.unwrap();
    socket.write_all(format!("{head}\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    answer
}

/// Returns the JSON of a page, which must be there.
async fn data(n: &TestNamenode, path: &str) -> serde_json::Value {
    let answer = http(n, path).await;
    assert!(answer.starts_with("HTTP/1.0 200 "), "{path}: {answer}");
    assert!(answer.contains("\r\ncontent-type: application/json"), "{path}: {answer}");
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(body).unwrap()
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
    let failed = " milliseconds\nfsck encountered internal errors!\n\n\nFsck on path '/d' FAILED";
    assert!(by_bob.ends_with(failed) && by_bob.matches("FSCK ended at ").count() == 2, "{by_bob}");
    // This NameNode has no client that could copy: -move leaves no directory, and -delete with it deletes nothing.
    let unmoved = ask(FsckRequest { move_to_lost: true, delete: true, ..request.clone() }).await;
    for part in ["\nFSCK cannot copy the remains of the corrupt file /d/f: ", "\nFSCK did not delete /d/f: "] {
        assert!(unmoved.contains(part), "{part}: {unmoved}");
    }
    assert!(unmoved.ends_with(failed) && n.info("/lost+found").await.unwrap().is_none(), "{unmoved}");
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

/// Copier for DataNodes without data: it copies no bytes. A copy ends when the test permits it.
struct TestCopier {
    begun: UnboundedSender<CopyRequest>,
    permits: Arc<Semaphore>,
}

impl BlockCopier for TestCopier {
    fn copy(&self, request: CopyRequest) -> CopyFuture {
        let permits = self.permits.clone();
        self.begun.send(request.clone()).unwrap();
        Box::pin(async move {
            permits.acquire().await.unwrap().forget();
            let bytes = request.blocks.iter().map(|block| block.length()).sum();
            Ok(Copied { blocks: request.blocks.len(), bytes, unreadable: None })
        })
    }
}

/// Starts a NameNode with a [`TestCopier`]. Returns it with the copies that have begun, and the permits to end them.
async fn start_with_copier(
    configuration: Configuration,
) -> (TestNamenode, UnboundedReceiver<CopyRequest>, Arc<Semaphore>) {
    let (begun, copies) = unbounded_channel();
    let permits = Arc::new(Semaphore::new(0));
    let copier = Arc::new(TestCopier { begun, permits: permits.clone() });
    let n = TestNamenode::start_with_copier(configuration, Arc::new(SystemClock::new()), Some(copier)).await;
    (n, copies, permits)
}

/// Creates a closed file of `count` blocks with 100 bytes each, and returns them.
async fn write_blocks(n: &TestNamenode, datanode: &TestDatanode, path: &str, count: usize) -> Vec<ExtendedBlockProto> {
    n.create(path, "writer", 1).await.unwrap();
    let mut blocks: Vec<ExtendedBlockProto> = Vec::new();
    for _ in 0..count {
        let located = n.add_block(path, "writer", blocks.last()).await.unwrap();
        let block = ExtendedBlockProto { num_bytes: Some(100), ..located.b };
        datanode.received(n, &block).await;
        blocks.push(block);
    }
    assert!(n.complete(path, "writer", blocks.last()).await.unwrap());
    blocks
}

/// Loses two of three blocks of a file, and changes something while the third is copied.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fsck_keeps_files_that_change_while_they_are_copied() {
    for (change, wanted) in [
        ("none", "FSCK deleted the corrupt file /d/f\n"),
        ("a block is back", "FSCK did not delete /d/f: this run has not copied every block with a good replica\n"),
        ("append", "FSCK did not delete /d/f: it has changed since it was copied\n"),
    ] {
        let (n, mut copies, permits) = start_with_copier(configuration()).await;
        let datanode = TestDatanode::join(&n, 1).await;
        let blocks = write_blocks(&n, &datanode, "/d/f", 3).await;
        datanode.full_report(&n, &blocks[2..]).await;
        let changing = async {
            let copy = eventually("a copy", async || copies.try_recv().ok()).await;
            assert_eq!(copy.blocks, [ByteRange::with_length(200, 100).unwrap()]);
            match change {
                "a block is back" => datanode.received(&n, &blocks[0]).await,
                "append" => {
                    let last = n.append("/d/f", "A", 4 | 32).await.unwrap().block.unwrap();
                    let added = n.add_block("/d/f", "A", Some(&last.b)).await.unwrap();
                    let added = ExtendedBlockProto { num_bytes: Some(100), ..added.b };
                    datanode.received(&n, &added).await;
                    assert!(n.complete("/d/f", "A", Some(&added)).await.unwrap());
                }
                _ => {}
            }
            permits.add_permits(1);
        };
        let request = FsckRequest { move_to_lost: true, delete: true, ..asked("/d") };
        let (said, ()) = tokio::join!(told(&n, request), changing);
        assert!(
            said.contains("FSCK copied the remains of the corrupt file /d/f to /lost+found/d/f: 1 files, 100 B\n"),
            "{said}"
        );
        assert!(said.contains(wanted), "{change}: {said}");
        assert_eq!(n.info("/d/f").await.unwrap().is_some(), change != "none", "{change}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fsck_that_waits_to_copy_stops_when_client_disconnects() {
    let (n, mut copies, permits) = start_with_copier(configuration()).await;
    let datanode = TestDatanode::join(&n, 1).await;
    let mut kept = Vec::new();
    for path in ["/d/1", "/d/2"] {
        kept.extend(write_blocks(&n, &datanode, path, 2).await.pop());
    }
    datanode.full_report(&n, &kept).await;
    let start = |path: &str| {
        let (telling, listening) = TextSender::new(PATIENCE);
        let request = FsckRequest { move_to_lost: true, ..asked(path) };
        (tokio::spawn(fsck(n.handle().namenode().clone(), request, telling)), listening)
    };
    let (first, mut first_listening) = start("/d/1");
    eventually("the first copy", async || copies.try_recv().ok()).await;
    let (second, mut listening) = start("/d/2");
    let mut heard = String::new();
    // The second report sends no more until it has the turn.
    while !heard.contains(" MISSING 1 blocks ") {
        heard.push_str(std::str::from_utf8(&listening.next().await.unwrap()).unwrap());
    }
    drop(listening);
    permits.add_permits(2);
    assert_eq!(second.await.unwrap(), Err(Disconnected));
    while first_listening.next().await.is_some() {}
    assert_eq!(first.await.unwrap(), Ok(()));
    assert_eq!(copies.try_recv().ok(), None);
    assert!(n.info("/lost+found/d/1").await.unwrap().is_some());
    assert!(n.info("/lost+found/d/2").await.unwrap().is_none());
}

#[tokio::test]
async fn fsck_copies_are_audited_with_real_user_and_machine() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("audit.log");
    let configuration = configuration()
        .with("hearth.namenode.audit.log", log.to_str().unwrap())
        .with("hadoop.proxyuser.alice.users", "root")
        .with("hadoop.proxyuser.alice.hosts", "*");
    let (n, _copies, permits) = start_with_copier(configuration).await;
    let datanode = TestDatanode::join(&n, 1).await;
    let blocks = write_blocks(&n, &datanode, "/d/f", 2).await;
    datanode.full_report(&n, &blocks[1..]).await;
    permits.add_permits(1);
    let by_alice = FsckRequest { user: "alice".into(), do_as: Some("root".into()), ..asked("/d") };
    let said = told(&n, FsckRequest { move_to_lost: true, ..by_alice }).await;
    assert!(said.contains("FSCK copied the remains of the corrupt file /d/f "), "{said}");
    let lines = eventually("four audit lines", async || {
        let text = std::fs::read_to_string(&log).unwrap();
        let of_fsck = text.lines().filter(|line| line.ends_with("\tproto=null"));
        let lines: Vec<String> = of_fsck.filter_map(|line| Some(line[line.find("allowed=")?..].to_owned())).collect();
        (lines.len() >= 4).then_some(lines)
    })
    .await;
    let line = |command: &str, source: &str, target: &str| {
        format!(
            "allowed=true\tugi=root (auth:PROXY) via alice (auth:SIMPLE)\tip=/1.2.3.4\tcmd={command}\tsrc={source}\tdst={target}\tperm=null\tproto=null"
        )
    };
    let expected = [
        line("mkdirs", "/lost+found", "null"),
        line("mkdirs", "/lost+found/d/f", "null"),
        line("move", "/d/f", "/lost+found/d/f"),
        line("fsck", "/d", "null"),
    ];
    assert_eq!(lines, expected);
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
    let front = http(&n, "/plain").await;
    assert!(front.contains("<td>2</td><td>3.4.2-of-its-own</td>"), "{front}");
    assert!(http(&n, "/jmx?qry=*:*").await.contains("\"VolumeFailuresTotal\": 2"));
    assert!(http(&n, "/metrics").await.contains("\nhearth_namenode_failed_volumes 2\n"));
}

/// A name that would run a script if it were put into a page as HTML.
const HOSTILE: &str = "<img src=x onerror=alert(1)>&\"'";
/// The same, encoded for a URL.
const HOSTILE_ENCODED: &str = "%3Cimg%20src=x%20onerror=alert(1)%3E%26%22%27";

#[tokio::test]
async fn interface_is_served_with_protecting_headers() {
    let n = TestNamenode::start().await;
    for path in ["/", "/ui/namenode.js", "/ui/overview", "/plain", "/jmx", "/webhdfs/v1/?op=LISTSTATUS", "/none"] {
        let answer = http(&n, path).await;
        let head = answer.split("\r\n\r\n").next().unwrap();
        for header in ["content-security-policy: default-src 'none'; ", "x-frame-options: SAMEORIGIN", "nosniff"] {
            assert!(head.contains(header), "{path}: {header} in {head}");
        }
    }
    assert!(http(&n, "/").await.contains("<title>Hearth NameNode</title>"));
    assert!(http(&n, "/explorer.html").await.contains("\r\nlocation: /?page=files\r\n"));
    assert!(http(&n, "/dfshealth.html").await.contains("\r\nlocation: /\r\n"));
    let denied = configuration().with("dfs.xframe.value", "DENY");
    let n = TestNamenode::start_with(denied, Arc::new(SystemClock::new())).await;
    assert!(http(&n, "/").await.contains("\r\nx-frame-options: DENY\r\n"));
}

#[tokio::test]
async fn tools_get_the_pages_of_apaches_namenode() {
    let n = TestNamenode::start().await;
    assert!(http(&n, "/isActive").await.ends_with("\r\n\r\nI am Active!\n"));
    assert!(http(&n, "/topology").await.ends_with("\r\n\r\nNo DataNodes"));
    let _datanode = TestDatanode::join(&n, 1).await;
    let text = http(&n, "/topology").await;
    assert!(text.ends_with("\r\n\r\nRack: /default-rack\n   127.0.0.1:10001 (dn1)\n\n"), "{text}");
    let json = send(&n, "GET /topology HTTP/1.0\r\nAccept: application/json").await;
    let wanted = r#"[{"/default-rack":[{"hostname":"dn1","ip":"127.0.0.1:10001"}]}]"#;
    assert!(json.ends_with(wanted), "{json}");
    let progress = data(&n, "/startupProgress").await;
    let names: Vec<&str> =
        progress["phases"].as_array().unwrap().iter().filter_map(|one| one["name"].as_str()).collect();
    assert_eq!(names, ["LoadingFsImage", "LoadingEdits", "SavingCheckpoint", "SafeMode"]);
    assert_eq!((&progress["percentComplete"], &progress["phases"][3]["status"]), (&1.0.into(), &"COMPLETE".into()));
}

#[tokio::test]
async fn interface_tells_who_acts() {
    let n = TestNamenode::start().await;
    let who = async |query: &str| {
        let session = data(&n, &format!("/ui/session{query}")).await;
        (session["user"].as_str().unwrap().to_owned(), session["superuser"].as_bool().unwrap())
    };
    assert_eq!(who("").await, ("dr.who".to_owned(), false));
    assert_eq!(who("?user.name=").await, ("dr.who".to_owned(), false));
    assert_eq!(who("?user.name=bob").await, ("bob".to_owned(), false));
    assert_eq!(who("?user.name=root").await, ("root".to_owned(), true));
    assert_eq!(who("?user.name=eve").await, ("eve".to_owned(), true));
    let session = data(&n, "/ui/session").await;
    assert_eq!((&session["readOnly"], &session["requiredHeader"]), (&false.into(), &serde_json::Value::Null));
    let refused = http(&n, "/ui/session?user.name=%3Cb%3E").await;
    assert!(refused.starts_with("HTTP/1.0 400 ") && refused.contains("IllegalArgumentException"), "{refused}");
}

#[tokio::test]
async fn interface_shows_the_cluster() {
    let n = TestNamenode::start().await;
    let datanodes = vec![TestDatanode::join(&n, 1).await, TestDatanode::join(&n, 2).await];
    n.write(&datanodes, "/d/f", 100).await;
    datanodes[0].heartbeat_with_failed_volumes(&n, 2).await;
    let overview = data(&n, "/ui/overview").await;
    assert_eq!((&overview["files"], &overview["blocks"], &overview["directories"]), (&1.into(), &1.into(), &2.into()));
    assert_eq!((&overview["datanodes"]["live"], &overview["safeMode"]["on"]), (&2.into(), &false.into()));
    assert_eq!(overview["datanodes"]["failedVolumes"], 2);

    let names = async |query: &str| -> Vec<String> {
        let found = data(&n, &format!("/ui/datanodes?{query}")).await;
        let found = found["datanodes"].as_array().unwrap().clone();
        found.iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names("state=live").await, ["dn1:10001", "dn2:10002"]);
    assert_eq!(names("").await, ["dn1:10001", "dn2:10002"]);
    assert_eq!(names("find=DN2").await, ["dn2:10002"]);
    assert_eq!(names("offset=1&limit=1").await, ["dn2:10002"]);
    assert_eq!(names("state=failed-volumes").await, ["dn1:10001"]);
    for state in ["dead", "decommissioning", "maintenance"] {
        assert!(names(&format!("state={state}")).await.is_empty(), "{state}");
    }
    assert!(http(&n, "/ui/datanodes?state=none").await.starts_with("HTTP/1.0 400 "));
    let first = data(&n, "/ui/datanodes?limit=1").await;
    assert_eq!(first["total"], 2);
    let first = &first["datanodes"][0];
    assert_eq!((&first["state"], &first["failedVolumes"]), (&"live".into(), &2.into()));
    assert!(first["web"].as_str().unwrap().starts_with("http://127.0.0.1:"), "{first}");
    assert_eq!(first["storages"].as_array().unwrap().len(), 1);
    assert!(first["lastContactSeconds"].as_u64().unwrap() < 60);

    // The first sample is taken at the start.
    let history = eventually("a sample", async || {
        let history = data(&n, "/ui/history").await;
        (!history["times"].as_array().unwrap().is_empty()).then_some(history)
    })
    .await;
    assert!(history["series"]["files"][0].is_number(), "{history}");
    let series = |name: &str| history["series"][name].as_array().map(Vec::len);
    assert_eq!((series("rpcProcessingNanos"), series("journalSyncNanos")), (series("files"), series("files")));

    // Users are told apart by their calls.
    assert!(http(&n, "/webhdfs/v1/?op=LISTSTATUS&user.name=bob").await.starts_with("HTTP/1.0 200 "));
    let users = data(&n, "/ui/users").await;
    let operations = users["windows"][0]["ops"].as_array().unwrap().clone();
    assert_eq!(operations[0]["opType"], "*");
    let listed = operations.iter().find(|operation| operation["opType"] == "getListing").unwrap();
    assert_eq!(listed["topUsers"][0], serde_json::json!({ "user": "bob", "count": 1 }));
}

#[tokio::test]
async fn slow_datanodes_and_disks_are_shown() {
    let n = TestNamenode::start().await;
    let problems = data(&n, "/ui/problems").await;
    assert!(problems["slow"]["datanodes"].is_null() && problems["slow"]["disks"].is_null(), "{problems}");

    let measuring = configuration()
        .with("dfs.datanode.peer.stats.enabled", "true")
        .with("dfs.datanode.fileio.profiling.sampling.percentage", "1");
    let mut n = TestNamenode::start_with(measuring, Arc::new(SystemClock::new())).await;
    let datanodes = [TestDatanode::join(&n, 1).await, TestDatanode::join(&n, 2).await];
    assert_eq!(data(&n, "/ui/problems").await["slow"], serde_json::json!({ "datanodes": [], "disks": [] }));
    let slow = data(&n, "/ui/datanodes?find=dn2").await["datanodes"][0]["web"].as_str().unwrap().to_owned();
    let slow = slow.strip_prefix("http://").unwrap();
    datanodes[0].heartbeat_with_slow(&n, slow, "/data/1").await;
    let shown = data(&n, "/ui/problems").await["slow"].clone();
    assert_eq!(shown["datanodes"][0]["SlowNode"], slow);
    assert_eq!(shown["datanodes"][0]["SlowPeerLatencyWithReportingNodes"][0]["ReportedLatency"], 90.0);
    assert_eq!(shown["disks"][0]["Latencies"], serde_json::json!({ "WRITE": 70.0 }));
    let overview = data(&n, "/ui/overview").await;
    assert_eq!(overview["slow"], serde_json::json!({ "datanodes": 1, "disks": 1 }));
    let beans = http(&n, "/jmx?qry=Hadoop:service=NameNode,name=NameNodeStatus").await;
    assert!(beans.contains("SlowPeerLatencyWithReportingNodes") && beans.contains(":/data/1"), "{beans}");
    let metrics = http(&n, "/metrics").await;
    for line in ["hearth_namenode_slow_datanodes 1", "hearth_namenode_slow_disks 1"] {
        assert!(metrics.lines().any(|found| found == line), "{line} in {metrics}");
    }

    // Every user may ask, as on Apache's NameNode.
    let asked = GetSlowDatanodeReportRequestProto {};
    let answer: GetSlowDatanodeReportResponseProto = n.call_as("bob", "getSlowDatanodeReport", &asked).await.unwrap();
    let named: Vec<&str> = answer.datanode_info_proto.iter().map(|info| info.id.host_name.as_str()).collect();
    assert_eq!(named, ["dn2"]);

    // A NameNode that does not know the sender asks it to register, and ignores its reports.
    n.restart().await;
    datanodes[0].heartbeat_with_slow(&n, slow, "/data/1").await;
    assert_eq!(data(&n, "/ui/problems").await["slow"], serde_json::json!({ "datanodes": [], "disks": [] }));
}

#[tokio::test]
async fn only_superusers_see_open_files_and_all_problems() {
    let n = TestNamenode::start().await;
    let datanodes = vec![TestDatanode::join(&n, 1).await];
    let path = format!("/d/{HOSTILE}");
    n.write(&datanodes, &path, 100).await;
    spoil(&n, &path).await;
    for number in 0..3 {
        n.create(&format!("/open/{HOSTILE}{number}"), "W", 1).await.unwrap();
    }
    let refused = http(&n, "/ui/open-files?user.name=bob").await;
    assert!(refused.starts_with("HTTP/1.0 403 ") && refused.contains("AccessControlException"), "{refused}");
    assert!(http(&n, "/ui/log?user.name=bob").await.starts_with("HTTP/1.0 403 "));
    assert!(data(&n, "/ui/log?user.name=root").await["lines"].is_array());
    let refused = http(&n, "/ui/log-level?user.name=bob").await;
    assert!(refused.starts_with("HTTP/1.0 403 ") && refused.contains("Superuser privilege"), "{refused}");
    let open = data(&n, "/ui/open-files?user.name=root").await;
    assert_eq!((&open["total"], &open["holders"], &open["hasMore"]), (&3.into(), &1.into(), &false.into()));
    let files = open["files"].as_array().unwrap();
    assert_eq!((&files[0]["path"], &files[0]["holder"]), (&format!("/open/{HOSTILE}0").into(), &"W".into()));
    let after = files[1]["id"].as_u64().unwrap();
    let rest = data(&n, &format!("/ui/open-files?user.name=root&after={after}")).await;
    assert_eq!((rest["files"].as_array().unwrap().len(), &rest["next"]), (1, &files[2]["id"]));
    assert!(http(&n, "/ui/open-files?user.name=root&after=x").await.starts_with("HTTP/1.0 400 "));

    let seen = data(&n, "/ui/problems?user.name=bob").await;
    assert_eq!((&seen["missing"]["count"], &seen["missing"]["blocks"][0]["path"]), (&1.into(), &path.as_str().into()));
    assert!(seen["corrupt"]["blocks"].is_null() && seen["lowRedundancy"]["blocks"].is_null(), "{seen}");
    let seen = data(&n, "/ui/problems?user.name=root").await;
    assert_eq!(seen["corrupt"]["blocks"][0]["path"], path);
    assert_eq!(seen["corrupt"]["blocks"][0]["corrupt"], 1);
    assert!(seen["lowRedundancy"]["blocks"].is_array());
}

#[tokio::test]
async fn hostile_names_are_data_in_every_page() {
    let n = TestNamenode::start().await;
    assert!(n.mkdirs(&format!("/{HOSTILE}")).await.unwrap());
    let listed = data(&n, "/webhdfs/v1/?op=LISTSTATUS_BATCH").await;
    let entries = &listed["DirectoryListing"]["partialListing"]["FileStatuses"]["FileStatus"];
    assert_eq!(entries[0]["pathSuffix"], HOSTILE);
    let status = data(&n, &format!("/webhdfs/v1/{HOSTILE_ENCODED}?op=GETFILESTATUS")).await;
    assert_eq!(status["FileStatus"]["type"], "DIRECTORY");
    let fsck = http(&n, &format!("/fsck?path=/{HOSTILE_ENCODED}")).await;
    assert!(fsck.contains("\r\ncontent-type: text/plain; charset=utf-8\r\n") && fsck.contains(HOSTILE), "{fsck}");
    // Versions come from DataNodes.
    let _datanode = TestDatanode::join_of_version(&n, 1, "3.4.2<b>").await;
    let plain = http(&n, "/plain").await;
    assert!(plain.contains("3.4.2&lt;b&gt;") && !plain.contains("<b>"), "{plain}");
}

#[tokio::test]
async fn changes_of_other_sites_and_of_a_read_only_port_are_refused() {
    let n = TestNamenode::start().await;
    let mkdirs = async |n: &TestNamenode, headers: &str| {
        send(n, &format!("PUT /webhdfs/v1/d?op=MKDIRS&user.name=root HTTP/1.0\r\nHost: namenode:9870{headers}")).await
    };
    let exists = async |n: &TestNamenode| n.info("/d").await.unwrap().is_some();
    let refused = mkdirs(&n, "\r\nOrigin: http://evil.example").await;
    assert!(refused.starts_with("HTTP/1.0 403 ") && refused.contains("AccessControlException"), "{refused}");
    assert!(!exists(&n).await);
    assert!(mkdirs(&n, "\r\nOrigin: http://namenode:9870").await.ends_with("{\"boolean\":true}"));
    assert!(exists(&n).await && n.delete_as("root", "/d", true).await.unwrap());
    // A client that is not a browser says nothing about its origin.
    assert!(mkdirs(&n, "").await.ends_with("{\"boolean\":true}"));
    let level = async |n: &TestNamenode, method: &str, rest: &str| {
        send(n, &format!("{method} /ui/log-level?module=a&level=DEBUG&user.name={rest}")).await
    };
    for method in ["PUT", "DELETE"] {
        let refused = level(&n, method, "root HTTP/1.0\r\nHost: namenode:9870\r\nOrigin: http://evil.example").await;
        assert!(refused.starts_with("HTTP/1.0 403 ") && refused.contains("another site"), "{refused}");
        let refused = level(&n, method, "bob HTTP/1.0\r\nHost: namenode:9870\r\nOrigin: http://namenode:9870").await;
        assert!(refused.starts_with("HTTP/1.0 403 ") && refused.contains("Superuser privilege"), "{refused}");
        // A superuser comes as far as the log, which this process has not registered.
        let passed = level(&n, method, "root HTTP/1.0\r\nHost: namenode:9870\r\nOrigin: http://namenode:9870").await;
        assert!(passed.contains("UnsupportedOperationException"), "{passed}");
    }

    let strict = configuration().with("dfs.webhdfs.rest-csrf.enabled", "true");
    let n = TestNamenode::start_with(strict, Arc::new(SystemClock::new())).await;
    let browser = "\r\nUser-Agent: Mozilla/5.0\r\nOrigin: http://namenode:9870";
    let refused = mkdirs(&n, browser).await;
    assert!(refused.starts_with("HTTP/1.0 400 ") && refused.contains("Missing Required Header for CSRF"), "{refused}");
    assert!(!exists(&n).await);
    assert_eq!(data(&n, "/ui/session").await["requiredHeader"], "x-xsrf-header");
    assert!(mkdirs(&n, &format!("{browser}\r\nX-XSRF-HEADER: x")).await.ends_with("{\"boolean\":true}"));

    let read_only = configuration().with("hearth.web.read-only", "true");
    let n = TestNamenode::start_with(read_only, Arc::new(SystemClock::new())).await;
    let refused = mkdirs(&n, "").await;
    assert!(refused.starts_with("HTTP/1.0 403 ") && refused.contains("hearth.web.read-only"), "{refused}");
    assert!(http(&n, "/fsck?path=/&delete=1").await.starts_with("HTTP/1.0 403 "));
    let refused = level(&n, "PUT", "root HTTP/1.0\r\nHost: namenode:9870").await;
    assert!(refused.starts_with("HTTP/1.0 403 ") && refused.contains("hearth.web.read-only"), "{refused}");
    assert!(http(&n, "/fsck?path=/").await.starts_with("HTTP/1.0 200 "));
    assert!(!exists(&n).await && n.mkdirs("/d").await.unwrap());
    assert_eq!(data(&n, "/ui/session").await["readOnly"], true);
}
