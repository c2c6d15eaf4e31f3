//! State after a restart, and after repeated calls.

mod support;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hearth_namenode::namespace::Limits;
use hearth_namenode::store::{Directory, Store, recover};
use hearth_protocol::rpc::RpcClient;
use hearth_testkit::{eventually, until};
use hearth_types::{BlockId, ManualClock};
use hearth_wire::proto::hdfs::*;
use prost::Message;
use support::*;

const DELETED: DeleteResponseProto = DeleteResponseProto { result: true };

/// Makes a call that may be repeated under the same id.
async fn repeat<A: prost::Message + Default>(
    namenode: &TestNamenode,
    client: &RpcClient,
    call: hearth_protocol::rpc::CallId,
    method: &str,
    request: &impl prost::Message,
) -> A {
    client.call_as(call, 1, &namenode.root(), method, request).await.unwrap()
}

#[tokio::test]
async fn repeated_call_gets_first_answer_after_restart() {
    let mut n = TestNamenode::start().await;
    let client = n.client().clone();
    n.mkdirs("/d").await.unwrap();
    let (create, delete, rename) = (client.new_call(), client.new_call(), client.new_call());
    let new = new_file("/d/f", "W", 1);
    let first: CreateResponseProto = repeat(&n, &client, create, "create", &new).await;
    let again: CreateResponseProto = repeat(&n, &client, create, "create", &new).await;
    assert_eq!(first, again);
    // A failed rename is executed again; a successful one is not.
    let request = RenameRequestProto { src: "/later".into(), dst: "/renamed".into() };
    assert!(!repeat::<RenameResponseProto>(&n, &client, rename, "rename", &request).await.result);
    n.mkdirs("/later").await.unwrap();
    assert!(repeat::<RenameResponseProto>(&n, &client, rename, "rename", &request).await.result);
    assert!(repeat::<RenameResponseProto>(&n, &client, rename, "rename", &request).await.result);
    let remove = DeleteRequestProto { src: "/renamed".into(), recursive: true };
    assert_eq!(repeat::<DeleteResponseProto>(&n, &client, delete, "delete", &remove).await, DELETED);

    n.restart().await;
    let again: CreateResponseProto = repeat(&n, &client, create, "create", &new).await;
    assert_eq!(first, again);
    assert!(repeat::<RenameResponseProto>(&n, &client, rename, "rename", &request).await.result);
    assert_eq!(repeat::<DeleteResponseProto>(&n, &client, delete, "delete", &remove).await, DELETED);
    assert!(!n.delete_as("root", "/renamed", true).await.unwrap());
}

/// Appends `length` bytes as another client, to a file whose blocks are full.
async fn append_block(n: &TestNamenode, datanode: &TestDatanode, path: &str, length: u64) {
    n.append(path, "other", 4).await.unwrap();
    let located = n.add_block(path, "other", None).await.unwrap();
    let block = ExtendedBlockProto { num_bytes: Some(length), ..located.b };
    datanode.received(n, &block).await;
    assert!(n.complete(path, "other", Some(&block)).await.unwrap());
}

#[tokio::test]
async fn repeated_truncate_is_applied_once() {
    let mut n = TestNamenode::start().await;
    let datanodes = [TestDatanode::join(&n, 1).await];
    n.write(&datanodes, "/f", 100).await;
    let client = n.client().clone();
    let (truncate, same) = (client.new_call(), client.new_call());
    let length = async |n: &TestNamenode| n.info("/f").await.unwrap().unwrap().length;
    let cut = TruncateRequestProto { src: "/f".into(), new_length: 0, client_name: "C".into() };
    assert!(repeat::<TruncateResponseProto>(&n, &client, truncate, "truncate", &cut).await.result);
    // Truncating to the present length changes nothing but succeeds.
    assert!(repeat::<TruncateResponseProto>(&n, &client, same, "truncate", &cut).await.result);
    append_block(&n, &datanodes[0], "/f", 70).await;
    for call in [truncate, same] {
        assert!(repeat::<TruncateResponseProto>(&n, &client, call, "truncate", &cut).await.result);
        assert_eq!(length(&n).await, 70, "data appended since was truncated");
    }
    n.restart().await;
    for call in [truncate, same] {
        assert!(repeat::<TruncateResponseProto>(&n, &client, call, "truncate", &cut).await.result);
        assert_eq!(length(&n).await, 70, "data appended since was truncated after a restart");
    }
}

#[tokio::test]
async fn repeated_change_keeps_later_changes() {
    let mut n = TestNamenode::start().await;
    let client = n.client().clone();
    n.mkdirs("/d").await.unwrap();
    let (mode, times, quota, acl, mkdirs) =
        (client.new_call(), client.new_call(), client.new_call(), client.new_call(), client.new_call());
    let chmod = |mode| SetPermissionRequestProto { src: "/d".into(), permission: FsPermissionProto { perm: mode } };
    let touch = |mtime| SetTimesRequestProto { src: "/d".into(), mtime, atime: u64::MAX };
    let limit = |names| SetQuotaRequestProto {
        path: "/d".into(),
        namespace_quota: names,
        storagespace_quota: i64::MAX as u64,
        storage_type: None,
    };
    let bare = RemoveAclRequestProto { src: "/d".into() };
    let make = MkdirsRequestProto {
        src: "/m".into(),
        masked: FsPermissionProto { perm: 0o755 },
        create_parent: true,
        unmasked: None,
    };
    async fn all(n: &TestNamenode, client: &RpcClient, calls: &[(hearth_protocol::rpc::CallId, &str, Vec<u8>)]) {
        for (call, method, request) in calls {
            let answer = match *method {
                "setPermission" => repeat::<SetPermissionResponseProto>(
                    n,
                    client,
                    *call,
                    method,
                    &raw::<SetPermissionRequestProto>(request),
                )
                .await
                .encode_to_vec(),
                "setTimes" => {
                    repeat::<SetTimesResponseProto>(n, client, *call, method, &raw::<SetTimesRequestProto>(request))
                        .await
                        .encode_to_vec()
                }
                "setQuota" => {
                    repeat::<SetQuotaResponseProto>(n, client, *call, method, &raw::<SetQuotaRequestProto>(request))
                        .await
                        .encode_to_vec()
                }
                "removeAcl" => {
                    repeat::<RemoveAclResponseProto>(n, client, *call, method, &raw::<RemoveAclRequestProto>(request))
                        .await
                        .encode_to_vec()
                }
                _ => repeat::<MkdirsResponseProto>(n, client, *call, method, &raw::<MkdirsRequestProto>(request))
                    .await
                    .encode_to_vec(),
            };
            drop(answer);
        }
    }
    fn raw<M: Message + Default>(bytes: &[u8]) -> M {
        M::decode(bytes).unwrap()
    }
    let calls = [
        (mode, "setPermission", chmod(0o777).encode_to_vec()),
        (times, "setTimes", touch(5000).encode_to_vec()),
        (quota, "setQuota", limit(50).encode_to_vec()),
        (acl, "removeAcl", bare.encode_to_vec()),
        (mkdirs, "mkdirs", make.encode_to_vec()),
    ];
    all(&n, &client, &calls).await;
    // Another client changes it in between.
    n.call::<SetTimesResponseProto>("setTimes", &touch(6000)).await.unwrap();
    n.call::<SetQuotaResponseProto>("setQuota", &limit(60)).await.unwrap();
    n.call::<SetPermissionResponseProto>("setPermission", &chmod(0o750)).await.unwrap();
    assert!(n.delete_as("root", "/m", true).await.unwrap());
    for is_after_a_restart in [false, true] {
        if is_after_a_restart {
            n.restart().await;
        }
        all(&n, &client, &calls).await;
        let status = n.info("/d").await.unwrap().unwrap();
        assert_eq!((status.permission.perm, status.modification_time), (0o750, 6000), "{is_after_a_restart}");
        assert!(n.info("/m").await.unwrap().is_none(), "{is_after_a_restart}");
        let summary: GetContentSummaryResponseProto =
            n.call("getContentSummary", &GetContentSummaryRequestProto { path: "/d".into() }).await.unwrap();
        assert_eq!(summary.summary.quota, 60, "{is_after_a_restart}");
    }
}

/// Creates a file, adds a block and reports `told` bytes of it.
async fn open_file(n: &TestNamenode, path: &str, told: i64) -> ExtendedBlockProto {
    n.create_request("root", CreateRequestProto { replication: 2, ..new_file(path, "W", 1) }).await.unwrap();
    let block = n.add_block(path, "W", None).await.unwrap().b;
    if told > 0 {
        let told = FsyncRequestProto {
            src: path.into(),
            client: "W".into(),
            last_block_length: Some(told),
            ..Default::default()
        };
        n.call::<FsyncResponseProto>("fsync", &told).await.unwrap();
    }
    block
}

#[tokio::test]
async fn file_with_lost_last_block_closes() {
    let mut n = TestNamenode::start().await;
    let datanodes = [TestDatanode::join(&n, 1).await, TestDatanode::join(&n, 2).await];
    n.write(&datanodes, "/whole", 10).await;
    open_file(&n, "/untold", 0).await;
    open_file(&n, "/told", 100).await;
    let whole = n.locations("/whole", 0, 1).await.unwrap().blocks[0].b.clone();
    // The writer and both DataNodes are gone, with everything in their memory.
    n.restart().await;
    TestDatanode::join_with(&n, 1, std::slice::from_ref(&whole)).await;
    wait_for_safe_mode_to_end(&n).await;
    for path in ["/untold", "/told"] {
        assert!(!n.recover_lease(path, "B").await.unwrap(), "{path}: the other datanode may have it");
    }
    TestDatanode::join(&n, 2).await;
    for (path, length) in [("/untold", 0), ("/told", 100)] {
        assert!(n.recover_lease(path, "B").await.unwrap(), "{path}: all DataNodes are back, and none has it");
        assert!(n.is_closed(path).await.unwrap());
        assert_eq!(n.info(path).await.unwrap().unwrap().length, length, "{path}");
    }
    let missing = n.locations("/told", 0, 100).await.unwrap().blocks;
    assert!(missing.len() == 1 && missing[0].locs.is_empty(), "{missing:?}");
    // The result is the same after another restart.
    n.restart().await;
    assert!(n.is_closed("/told").await.unwrap());
    assert_eq!(n.info("/told").await.unwrap().unwrap().length, 100);
}

#[tokio::test]
async fn lost_unreported_block_does_not_block_recovery() {
    let mut n = TestNamenode::start().await;
    let datanode = TestDatanode::join(&n, 1).await;
    n.write(&[datanode], "/whole", 10).await;
    for restarts in [false, true] {
        let path = format!("/lost{restarts}");
        let whole = n.locations("/whole", 0, 1).await.unwrap().blocks[0].b.clone();
        n.create(&path, "W", 1).await.unwrap();
        let block = n.add_block(&path, "W", None).await.unwrap().b;
        let block = ExtendedBlockProto { num_bytes: Some(33), ..block };
        assert!(!n.complete(&path, "W", Some(&block)).await.unwrap(), "its replica is not reported");
        assert!(!n.recover_lease(&path, "B").await.unwrap(), "it may be reported yet");
        if restarts {
            n.restart().await;
        }
        // The DataNode restarts without the replica.
        TestDatanode::join_with(&n, 1, std::slice::from_ref(&whole)).await;
        wait_for_safe_mode_to_end(&n).await;
        assert!(n.recover_lease(&path, "B").await.unwrap(), "{path}");
        assert_eq!(n.info(&path).await.unwrap().unwrap().length, 33);
    }
}

#[tokio::test]
async fn files_blocks_and_leases_survive_restart() {
    let mut n = TestNamenode::start().await;
    let mut datanodes = vec![TestDatanode::join(&n, 1).await];
    let written = n.write(&datanodes, "/d/f", 100).await;
    // Safe mode waits for one of the two blocks: the fraction 0.999 is rounded down.
    n.write(&datanodes, "/d/other", 100).await;
    let request =
        SetOwnerRequestProto { src: "/d".into(), username: Some("bob".into()), groupname: Some("users".into()) };
    n.call::<SetOwnerResponseProto>("setOwner", &request).await.unwrap();
    n.create("/open", "W", 1).await.unwrap();
    let block = n.add_block("/open", "W", None).await.unwrap().b;
    let fsync =
        FsyncRequestProto { src: "/open".into(), client: "W".into(), last_block_length: Some(77), file_id: None };
    n.call::<FsyncResponseProto>("fsync", &fsync).await.unwrap();
    let closed = n.locations("/d/f", 0, 1).await.unwrap().blocks[0].b.clone();

    n.restart().await;
    // Until the block is reported, the NameNode is in safe mode and refuses readers with that reason.
    refused_in_safe_mode(n.mkdirs("/x").await);
    refused_in_safe_mode(n.locations("/d/f", 0, 1).await);
    assert_eq!(n.info("/d/f").await.unwrap().unwrap(), written);
    datanodes = vec![TestDatanode::join_with(&n, 1, std::slice::from_ref(&closed)).await];
    wait_for_safe_mode_to_end(&n).await;
    assert_eq!(n.locations("/d/f", 0, 1).await.unwrap().blocks[0].locs.len(), 1);
    let directory = n.info("/d").await.unwrap().unwrap();
    assert_eq!((directory.owner.as_str(), directory.group.as_str()), ("bob", "users"));
    // The writer continues where it was.
    assert_eq!(n.info("/open").await.unwrap().unwrap().length, 77);
    let full = ExtendedBlockProto { num_bytes: Some(100), ..block };
    datanodes[0].received(&n, &full).await;
    assert!(n.complete("/open", "W", Some(&full)).await.unwrap());
    // Ids are not assigned again.
    let next = n.create("/next", "W", 1).await.unwrap();
    assert!(next.file_id() > n.info("/open").await.unwrap().unwrap().file_id());
    let next = n.add_block("/next", "W", None).await.unwrap();
    assert_eq!((next.b.block_id, next.b.generation_stamp), (full.block_id + 1, full.generation_stamp + 1));
}

/// Returns the ids of the blocks that a DataNode with these finalized blocks is told to delete, and the bytes that keep
/// the NameNode in safe mode.
async fn deleted_after_report(n: &TestNamenode, blocks: &[ExtendedBlockProto]) -> (Vec<u64>, u64) {
    let datanode = TestDatanode::join_with(n, 1, blocks).await;
    let commands = datanode.heartbeat(n).await;
    let deleted = commands.into_iter().filter_map(|command| command.blk_cmd).flat_map(|command| command.blocks);
    let bytes_in_future = n.handle().namenode().read().blocks.bytes_in_future();
    (deleted.map(|block| block.block_id).collect(), bytes_in_future)
}

#[tokio::test]
async fn blocks_of_lost_changes_are_kept_after_recovery() {
    let mut n = TestNamenode::start().await;
    let datanodes = [TestDatanode::join(&n, 1).await];
    let mut blocks = Vec::new();
    // Safe mode waits for one of the two blocks.
    for path in ["/kept1", "/kept2"] {
        n.write(&datanodes, path, 10).await;
        blocks.push(n.locations(path, 0, 1).await.unwrap().blocks[0].b.clone());
    }
    // Now the tables have all changes.
    n.restart().await;
    let copy = n.copied_directory();
    let datanodes = [TestDatanode::join_with(&n, 1, &blocks).await];
    wait_for_safe_mode_to_end(&n).await;
    n.write(&datanodes, "/lost", 20).await;
    let lost = n.locations("/lost", 0, 1).await.unwrap().blocks[0].b.clone();
    assert_eq!(lost.generation_stamp, blocks[1].generation_stamp + 1);
    blocks.push(lost.clone());

    // The journal's end is lost, and with it the last file.
    std::fs::remove_file(copy.path().join("current/journal.last")).unwrap();
    let recovery = recover(&Directory::lock(copy.path()).unwrap(), Limits::default(), true).unwrap();
    assert!(!recovery.problems.is_empty());
    n.restart_on(copy).await;
    assert!(n.info("/lost").await.unwrap().is_none());
    let set = async |n: &TestNamenode, action: SafeModeActionProto| {
        let request = SetSafeModeRequestProto { action: action as i32, checked: None };
        n.call::<SetSafeModeResponseProto>("setSafeMode", &request).await.unwrap().result
    };
    for _ in 0..2 {
        assert_eq!(deleted_after_report(&n, &blocks).await, (vec![], 20));
        assert!(set(&n, SafeModeActionProto::Leave).await, "safe mode stays");
        n.restart().await;
    }
    assert_eq!(deleted_after_report(&n, &blocks).await, (vec![], 20));
    assert!(!set(&n, SafeModeActionProto::ForceExit).await);
    assert_eq!(deleted_after_report(&n, &blocks).await, (vec![lost.block_id], 0));
    // This is stored.
    n.restart().await;
    TestDatanode::join_with(&n, 1, &blocks).await;
    wait_for_safe_mode_to_end(&n).await;
    assert_eq!(deleted_after_report(&n, &blocks).await, (vec![lost.block_id], 0));
}

/// The NameNode is killed between storing a new block and answering. The writer asks again and must be able to close
/// the file.
#[tokio::test]
async fn unanswered_block_gets_new_targets_after_restart() {
    let mut n = TestNamenode::start().await;
    TestDatanode::join(&n, 1).await;
    n.create("/f", "W", 1).await.unwrap();
    let lost = n.add_block("/f", "W", None).await.unwrap().b;
    n.restart().await;
    let datanode = TestDatanode::join(&n, 1).await;
    let again = n.add_block("/f", "W", None).await.unwrap();
    assert_eq!(again.locs.len(), 1);
    assert_eq!(again.b.block_id, lost.block_id);
    let full = ExtendedBlockProto { num_bytes: Some(100), ..again.b };
    datanode.received(&n, &full).await;
    assert!(n.complete("/f", "W", Some(&full)).await.unwrap());
    let located = n.locations("/f", 0, 1000).await.unwrap();
    assert_eq!(located.blocks.len(), 1);
    assert_eq!((located.file_length, located.under_construction), (100, false));
}

#[track_caller]
fn refused_in_safe_mode<A: std::fmt::Debug>(answer: Answer<A>) {
    let class = "org.apache.hadoop.hdfs.server.namenode.SafeModeException";
    match answer {
        Err(error) => assert_eq!(error.remote_class(), Some(class), "{error}"),
        Ok(answer) => panic!("{answer:?} in safe mode"),
    }
}

async fn wait_for_safe_mode_to_end(n: &TestNamenode) {
    until("the end of safe mode", async || !n.handle().namenode().read().blocks.in_safe_mode()).await;
}

#[tokio::test]
async fn silent_writer_loses_its_lease() {
    let clock = Arc::new(ManualClock::at(1_700_000_000_000));
    let n = TestNamenode::start_with_quick_leases(clock.clone()).await;
    let datanode = TestDatanode::join(&n, 1).await;
    n.create("/soft", "W", 1).await.unwrap();
    n.create("/hard", "W", 1).await.unwrap();
    let recovery = "org.apache.hadoop.hdfs.protocol.RecoveryInProgressException";
    let block = n.add_block("/hard", "W", None).await.unwrap().b;

    // After the soft limit an empty file is closed at once for another client; then it exists.
    clock.advance(Duration::from_secs(61));
    datanode.heartbeat(&n).await;
    refused(
        n.create("/soft", "B", 1).await,
        "org.apache.hadoop.fs.FileAlreadyExistsException",
        "/soft for client 127.0.0.1 already exists",
    );
    assert!(n.is_closed("/soft").await.unwrap());
    // With data, lease recovery starts, after which the old writer's stamp is invalid.
    refused(
        n.append("/hard", "B", 4).await,
        recovery,
        "Failed to APPEND_FILE /hard for B on 127.0.0.1 because lease recovery is in progress. Try again later.",
    );
    let commands = datanode.heartbeat(&n).await;
    let recovering = commands.iter().find_map(|command| command.recovery_cmd.as_ref()).unwrap().blocks[0].clone();
    assert_eq!(recovering.block.b.block_id, block.block_id);
    datanode.synchronize(&n, &recovering.block.b, recovering.new_gen_stamp, 42).await.unwrap();
    assert!(n.is_closed("/hard").await.unwrap());
    assert_eq!(n.info("/hard").await.unwrap().unwrap().length, 42);

    // After the hard limit the NameNode starts recovery itself.
    n.create("/left", "W", 1).await.unwrap();
    n.add_block("/left", "W", None).await.unwrap();
    // In two steps, each too short for the DataNode to be considered dead before its next heartbeat.
    for seconds in [600, 601] {
        clock.advance(Duration::from_secs(seconds));
        datanode.heartbeat(&n).await;
    }
    let recovering = datanode.recovery(&n).await;
    datanode.synchronize(&n, &recovering.block.b, recovering.new_gen_stamp, 7).await.unwrap();
    assert!(n.is_closed("/left").await.unwrap());
}

#[tokio::test]
async fn all_files_of_a_dead_client_close() {
    const FILES: usize = 1000;
    let clock = Arc::new(ManualClock::at(1_700_000_000_000));
    let n = TestNamenode::start_with_quick_leases(clock.clone()).await;
    for number in 0..FILES {
        n.create(&format!("/d/{number}"), "W", 1).await.unwrap();
    }
    let open = || n.handle().namenode().read().leases.file_count();
    assert_eq!(open(), FILES);
    clock.advance(Duration::from_secs(1201));
    // The clock stands still: no file may wait for the lease to expire once more.
    until("the end of all files", async || open() == 0).await;
    assert!(n.is_closed("/d/0").await.unwrap() && n.is_closed("/d/999").await.unwrap());
}

/// More files than a round of the lease monitor examines wait for replicas of their last blocks.
#[tokio::test]
async fn files_that_cannot_close_do_not_delay_others() {
    const STUCK: usize = 201;
    let clock = Arc::new(ManualClock::at(1_700_000_000_000));
    let n = TestNamenode::start_with_quick_leases(clock.clone()).await;
    let datanode = TestDatanode::join(&n, 1).await;
    let (mut blocks, mut completions) = (Vec::new(), tokio::task::JoinSet::new());
    for number in 0..STUCK {
        let src = format!("/stuck/{number}");
        n.create(&src, "W", 1).await.unwrap();
        let block = ExtendedBlockProto { num_bytes: Some(33), ..n.add_block(&src, "W", None).await.unwrap().b };
        let request =
            CompleteRequestProto { src, client_name: "W".into(), last: Some(block.clone()), ..Default::default() };
        let (client, root) = (n.client().clone(), n.root());
        completions.spawn(async move { client.call::<CompleteResponseProto>(&root, "complete", &request).await });
        blocks.push(block);
    }
    while let Some(answer) = completions.join_next().await {
        assert!(!answer.unwrap().unwrap().result, "no replica is reported");
    }
    for number in 0..300 {
        n.create(&format!("/empty/{number}"), "W", 1).await.unwrap();
    }
    // In two steps, each too short for the DataNode to be considered dead before its next heartbeat.
    for seconds in [600, 601] {
        clock.advance(Duration::from_secs(seconds));
        datanode.heartbeat(&n).await;
    }
    let open = || n.handle().namenode().read().leases.file_count();
    until("the end of the empty files", async || open() == STUCK).await;
    assert!(n.is_closed("/empty/299").await.unwrap() && !n.is_closed("/stuck/0").await.unwrap());
    // Each is closed as soon as its replica is reported.
    for block in &blocks {
        datanode.received(&n, block).await;
    }
    until("the end of all files", async || open() == 0).await;
    assert_eq!(n.info("/stuck/200").await.unwrap().unwrap().length, 33);
}

#[tokio::test]
async fn truncation_restarts_when_primary_restarts() {
    let clock = Arc::new(ManualClock::at(1_700_000_000_000));
    let n = TestNamenode::start_with_quick_leases(clock.clone()).await;
    let mut datanodes = [TestDatanode::join(&n, 1).await];
    n.write(&datanodes, "/t", 1000).await;
    assert!(!n.truncate("/t", 700, "T").await.unwrap());
    let first = datanodes[0].recovery(&n).await;
    // The command is sent once, and not again while the recovery may be running: time for some checks of leases.
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(datanodes[0].heartbeat(&n).await.iter().all(|command| command.recovery_cmd.is_none()));

    clock.advance(Duration::from_secs(1));
    datanodes[0] = TestDatanode::join_with(&n, 1, std::slice::from_ref(&first.block.b)).await;
    let second = datanodes[0].recovery(&n).await;
    assert_eq!(second.truncate_block.as_ref().map(|block| block.num_bytes()), Some(700));
    assert!(second.new_gen_stamp > first.new_gen_stamp);
    assert!(datanodes[0].synchronize(&n, &first.block.b, first.new_gen_stamp, 700).await.is_err());
    datanodes[0].synchronize(&n, &second.block.b, second.new_gen_stamp, 700).await.unwrap();
    assert!(n.is_closed("/t").await.unwrap());
    assert_eq!(n.info("/t").await.unwrap().unwrap().length, 700);

    // The next client that opens the file is not affected by the recovery, also after some checks of leases.
    n.append("/t", "A", 4).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(datanodes[0].heartbeat(&n).await.iter().all(|command| command.recovery_cmd.is_none()));
    refused(
        n.append("/t", "B", 4).await,
        "org.apache.hadoop.hdfs.protocol.AlreadyBeingCreatedException",
        "Failed to APPEND_FILE /t for B on 127.0.0.1 because this file lease is currently owned by A on 127.0.0.1",
    );
}

/// While a file is truncated in place, its reported length stays unchanged until that is done: clients that wait for
/// the truncation poll the length.
#[tokio::test]
async fn truncated_file_keeps_reported_length_across_restart() {
    let mut n = TestNamenode::start().await;
    let mut datanodes = [TestDatanode::join(&n, 1).await];
    n.write(&datanodes, "/t", 1000).await;
    let block = n.locations("/t", 0, 1).await.unwrap().blocks[0].b.clone();
    assert!(!n.truncate("/t", 700, "T").await.unwrap());
    n.restart().await;
    datanodes[0] = TestDatanode::join_with(&n, 1, std::slice::from_ref(&block)).await;
    wait_for_safe_mode_to_end(&n).await;
    assert_eq!(n.info("/t").await.unwrap().unwrap().length, 1000);
    let task = datanodes[0].recovery(&n).await;
    assert_eq!(task.truncate_block.as_ref().map(|block| block.num_bytes()), Some(700));
    datanodes[0].synchronize(&n, &task.block.b, task.new_gen_stamp, 700).await.unwrap();
    assert!(n.is_closed("/t").await.unwrap());
    assert_eq!(n.info("/t").await.unwrap().unwrap().length, 700);
}

#[tokio::test]
async fn a_renewed_lease_lasts() {
    let clock = Arc::new(ManualClock::at(1_700_000_000_000));
    let n = TestNamenode::start_with(configuration(), clock.clone()).await;
    n.create("/kept", "W", 1).await.unwrap();
    for _ in 0..3 {
        clock.advance(Duration::from_secs(50));
        let renew = RenewLeaseRequestProto { client_name: "W".into(), namespaces: Vec::new() };
        n.call::<RenewLeaseResponseProto>("renewLease", &renew).await.unwrap();
    }
    refused(
        n.create("/kept", "B", 1).await,
        "org.apache.hadoop.hdfs.protocol.AlreadyBeingCreatedException",
        "Failed to CREATE_FILE /kept for B on 127.0.0.1 because this file lease is currently owned by W on 127.0.0.1",
    );
}

#[tokio::test]
async fn unknown_stamp_is_refused() {
    let mut n = TestNamenode::start().await;
    let datanode = TestDatanode::join(&n, 1).await;
    n.create("/open", "W", 1).await.unwrap();
    let located = n.add_block("/open", "W", None).await.unwrap();
    let update = |generation_stamp| UpdatePipelineRequestProto {
        client_name: "W".into(),
        old_block: located.b.clone(),
        new_block: ExtendedBlockProto { generation_stamp, ..located.b.clone() },
        new_nodes: vec![datanode.id()],
        storage_ids: vec![datanode.storage_id().into()],
    };
    let (pool, block, stamp) = (n.pool(), located.b.block_id, located.b.generation_stamp);
    for made_up in [stamp + 1, 1 << 56, u64::MAX] {
        refused(
            n.call::<UpdatePipelineResponseProto>("updatePipeline", &update(made_up)).await,
            "java.io.IOException",
            &format!(
                "Update {pool}:blk_{block}_{stamp} but the generation stamp of the new block \
                 {pool}:blk_{block}_{made_up} was never given out"
            ),
        );
    }
    let request = UpdateBlockForPipelineRequestProto { block: located.b.clone(), client_name: "W".into() };
    let given: UpdateBlockForPipelineResponseProto = n.call("updateBlockForPipeline", &request).await.unwrap();
    let given = given.block.b.generation_stamp;
    assert!(given > stamp);
    n.call::<UpdatePipelineResponseProto>("updatePipeline", &update(given)).await.unwrap();
    n.restart().await;
    assert_eq!(n.locations("/open", 0, 1).await.unwrap().last_block.unwrap().b.generation_stamp, given);
}

#[tokio::test]
async fn recovery_waits_for_missing_pipeline_datanode() {
    let mut n = TestNamenode::start().await;
    let datanode = TestDatanode::join(&n, 1).await;
    n.create("/open", "W", 1).await.unwrap();
    let block = n.add_block("/open", "W", None).await.unwrap().b;
    n.restart().await;
    wait_for_safe_mode_to_end(&n).await;
    let request = UpdateBlockForPipelineRequestProto { block: block.clone(), client_name: "W".into() };
    let given: UpdateBlockForPipelineResponseProto = n.call("updateBlockForPipeline", &request).await.unwrap();
    let update = UpdatePipelineRequestProto {
        client_name: "W".into(),
        old_block: block.clone(),
        new_block: given.block.b,
        new_nodes: vec![datanode.id()],
        storage_ids: vec![datanode.storage_id().into()],
    };
    n.call::<UpdatePipelineResponseProto>("updatePipeline", &update).await.unwrap();
    assert!(!n.recover_lease("/open", "B").await.unwrap(), "what was acknowledged is there");
    TestDatanode::join(&n, 1).await;
    let expected = n.handle().namenode().read().blocks.expected_storages(BlockId(block.block_id as i64));
    assert_eq!(expected.len(), 1);
}

/// Returns whether the file would be known after the NameNode is killed at this moment and restarted.
fn is_on_disk(namenode: &Path, path: &str) -> bool {
    let copy = tempfile::tempdir().unwrap();
    std::fs::create_dir(copy.path().join("current")).unwrap();
    for entry in std::fs::read_dir(namenode.join("current")).unwrap() {
        let from = entry.unwrap().path();
        std::fs::copy(&from, copy.path().join("current").join(from.file_name().unwrap())).unwrap();
    }
    let directory = Directory::lock(copy.path()).unwrap();
    let (_store, loaded) = Store::open(directory, Limits::default(), 8 << 20).unwrap();
    loaded.namespace.lookup(path).is_some()
}

#[tokio::test]
async fn deletion_is_sent_after_it_is_durable() {
    let n = TestNamenode::start().await;
    let datanodes = [TestDatanode::join(&n, 1).await];
    for which in 0..40 {
        let path = format!("/file{which}");
        n.write(&datanodes, &path, 5).await;
        let told = async {
            while datanodes[0].heartbeat(&n).await.is_empty() {
                tokio::task::yield_now().await;
            }
            assert!(!is_on_disk(n.path(), &path), "{path} loses its replica, but would exist after a restart");
        };
        let (deleted, ()) = tokio::join!(n.delete_as("root", &path, false), told);
        assert!(deleted.unwrap());
    }
}

#[tokio::test]
async fn repeated_call_waits_until_change_is_durable() {
    let n = TestNamenode::start().await;
    for which in 0..40 {
        let path = format!("/directory{which}");
        let again = async {
            while n.info(&path).await.unwrap().is_none() {}
            assert!(n.mkdirs(&path).await.unwrap());
            assert!(is_on_disk(n.path(), &path), "{path} was acknowledged, but would not exist after a restart");
        };
        let (made, ()) = tokio::join!(n.mkdirs(&path), again);
        assert!(made.unwrap());
    }
}

#[tokio::test]
async fn failed_recovery_is_started_again() {
    let clock = Arc::new(ManualClock::at(1_700_000_000_000));
    let n = TestNamenode::start_with_quick_leases(clock.clone()).await;
    let datanode = TestDatanode::join(&n, 1).await;
    let open = async |path: &str, client: &str| {
        n.create(path, client, 1).await.unwrap();
        n.add_block(path, client, None).await.unwrap().b.block_id
    };
    let first = open("/first", "W").await;
    clock.advance(Duration::from_secs(600));
    datanode.heartbeat(&n).await;
    let second = open("/second", "X").await;
    clock.advance(Duration::from_secs(601));
    datanode.heartbeat(&n).await;
    assert_eq!(datanode.recovery(&n).await.block.b.block_id, first);
    // The recovery fails. Before that, the other file's lease expires as well.
    clock.advance(Duration::from_secs(600));
    datanode.heartbeat(&n).await;
    let mut led: Vec<u64> = datanode.recoveries(&n, 2).await.iter().map(|recovery| recovery.block.b.block_id).collect();
    led.sort();
    assert_eq!(led, [first, second]);
}

#[tokio::test]
async fn recovery_keeps_length_reported_by_writer() {
    let clock = Arc::new(ManualClock::at(1_700_000_000_000));
    let n = TestNamenode::start_with_quick_leases(clock.clone()).await;
    let datanodes = [TestDatanode::join(&n, 1).await, TestDatanode::join(&n, 2).await];
    let file = CreateRequestProto { replication: 2, ..new_file("/f", "W", 1) };
    n.create_request("root", file).await.unwrap();
    let block = n.add_block("/f", "W", None).await.unwrap();
    assert_eq!(block.locs.len(), 2);
    let told =
        FsyncRequestProto { src: "/f".into(), client: "W".into(), last_block_length: Some(100), ..Default::default() };
    n.call::<FsyncResponseProto>("fsync", &told).await.unwrap();
    clock.advance(Duration::from_secs(61));
    datanodes[0].heartbeat(&n).await;
    n.append("/f", "B", 4).await.unwrap_err();
    let task = datanodes[0].recovery(&n).await;
    refused(
        datanodes[0].synchronize(&n, &task.block.b, task.new_gen_stamp, 40).await,
        "java.io.IOException",
        &format!(
            "blk_{}_{} is not cut to 40 bytes: its writer has told of more, and datanodes that may have them are waited \
             for",
            block.b.block_id, block.b.generation_stamp
        ),
    );
    assert!(!n.is_closed("/f").await.unwrap());
    datanodes[0].synchronize(&n, &task.block.b, task.new_gen_stamp, 100).await.unwrap();
    assert!(n.is_closed("/f").await.unwrap());
    assert_eq!(n.info("/f").await.unwrap().unwrap().length, 100);
}

#[tokio::test]
async fn block_on_silent_datanode_is_not_dropped() {
    let clock = Arc::new(ManualClock::at(1_700_000_000_000));
    let n = TestNamenode::start_with_quick_leases(clock.clone()).await;
    let mut datanodes = [TestDatanode::join(&n, 1).await, TestDatanode::join(&n, 2).await];
    let file = CreateRequestProto { replication: 2, ..new_file("/f", "W", 1) };
    n.create_request("root", file).await.unwrap();
    let block = n.add_block("/f", "W", None).await.unwrap();
    assert_eq!(block.locs.len(), 2);
    clock.advance(Duration::from_secs(61));
    // The DataNode restarts without the replica.
    datanodes[0] = TestDatanode::join(&n, 1).await;
    n.append("/f", "B", 4).await.unwrap_err();
    let task = datanodes[0].recovery(&n).await;
    refused(
        datanodes[0].synchronize_nothing(&n, &task.block.b, task.new_gen_stamp).await,
        "java.io.IOException",
        &format!(
            "blk_{}_{} is not dropped: datanodes that may have bytes of it cannot be asked, and none that can be shows \
             that there are none",
            block.b.block_id, block.b.generation_stamp
        ),
    );
    assert!(!n.is_closed("/f").await.unwrap());
    // The other DataNode is back, but may not have been asked: it has to lead the recovery.
    datanodes[1].heartbeat(&n).await;
    datanodes[0].synchronize_nothing(&n, &task.block.b, task.new_gen_stamp).await.unwrap_err();
    clock.advance(Duration::from_secs(91));
    datanodes[0].heartbeat(&n).await;
    datanodes[1].heartbeat(&n).await;
    let task = eventually("a recovery", async || {
        let mut led = Vec::new();
        for datanode in &datanodes {
            let commands = datanode.heartbeat(&n).await;
            led.extend(commands.into_iter().filter_map(|command| command.recovery_cmd));
        }
        led.first().map(|command| command.blocks[0].clone())
    })
    .await;
    datanodes[0].synchronize_nothing(&n, &task.block.b, task.new_gen_stamp).await.unwrap();
    assert!(n.is_closed("/f").await.unwrap());
    assert_eq!(n.locations("/f", 0, 1).await.unwrap().blocks.len(), 0);
    // The answer was lost.
    datanodes[0].synchronize_nothing(&n, &task.block.b, task.new_gen_stamp).await.unwrap();
}
