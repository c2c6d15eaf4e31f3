//! Snapshots over the wire: reading them, refused operations, deletions sent to DataNodes, and the state after a
//! restart.

mod support;

use hearth_namenode::blocks::BlockState;
use hearth_types::BlockId;
use hearth_wire::proto::hdfs::*;
use support::*;

const SNAPSHOT: &str = "org.apache.hadoop.hdfs.protocol.SnapshotException";

async fn allow(n: &TestNamenode, path: &str) -> Answer<AllowSnapshotResponseProto> {
    n.call("allowSnapshot", &AllowSnapshotRequestProto { snapshot_root: path.into() }).await
}

async fn snapshot(n: &TestNamenode, path: &str, name: &str) -> Answer<String> {
    let name = Some(name.to_owned()).filter(|name| !name.is_empty());
    let request = CreateSnapshotRequestProto { snapshot_root: path.into(), snapshot_name: name };
    n.call::<CreateSnapshotResponseProto>("createSnapshot", &request).await.map(|answer| answer.snapshot_path)
}

async fn remove(n: &TestNamenode, path: &str, name: &str) -> Answer<DeleteSnapshotResponseProto> {
    let request = DeleteSnapshotRequestProto { snapshot_root: path.into(), snapshot_name: name.into() };
    n.call("deleteSnapshot", &request).await
}

async fn compare(n: &TestNamenode, path: &str, from: &str, to: &str) -> Answer<GetSnapshotDiffReportResponseProto> {
    let request = GetSnapshotDiffReportRequestProto {
        snapshot_root: path.into(),
        from_snapshot: from.into(),
        to_snapshot: to.into(),
    };
    n.call("getSnapshotDiffReport", &request).await
}

async fn differences(n: &TestNamenode, path: &str, from: &str, to: &str) -> Vec<String> {
    let answer = compare(n, path, from, to).await.unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let entry = |entry: &SnapshotDiffReportEntryProto| {
        let target = entry.target_path.as_ref().map(|target| format!(" -> {}", text(target))).unwrap_or_default();
        format!("{} ./{}{target}", entry.modification_label, text(&entry.fullpath))
    };
    answer.diff_report.diff_report_entries.iter().map(entry).collect()
}

#[tokio::test]
async fn snapshot_contents_survive_restart() {
    let mut n = TestNamenode::start().await;
    let datanodes = vec![TestDatanode::join(&n, 1).await];
    let file = n.write(&datanodes, "/d/sub/f", 100).await;
    n.write(&datanodes, "/d/g", 50).await;
    allow(&n, "/d").await.unwrap();
    assert_eq!(n.list("/d/.snapshot", "").await.unwrap(), Some(vec![]));
    assert_eq!(snapshot(&n, "/d", "one").await.unwrap(), "/d/.snapshot/one");
    let block = n.locations("/d/sub/f", 0, 1).await.unwrap().blocks[0].b.clone();

    assert!(n.delete_as("root", "/d/sub", true).await.unwrap());
    n.rename2("/d/g", "/d/h", false).await.unwrap();
    assert_eq!(snapshot(&n, "/d", "two").await.unwrap(), "/d/.snapshot/two");
    for again in [false, true] {
        if again {
            n.restart().await;
            TestDatanode::join_with(&n, 1, std::slice::from_ref(&block)).await;
        }
        assert_eq!(n.list("/d", "").await.unwrap().unwrap(), ["h"]);
        assert_eq!(n.list("/d/.snapshot", "").await.unwrap().unwrap(), ["one", "two"]);
        let request = GetListingRequestProto {
            src: "/d/.snapshot".into(),
            start_after: Default::default(),
            need_location: false,
        };
        let listed: GetListingResponseProto = n.call("getListing", &request).await.unwrap();
        let children: Vec<_> =
            listed.dir_list.unwrap().partial_listing.iter().map(|snapshot| snapshot.children_num()).collect();
        assert_eq!(children, [1, 1], "the present number of children");
        assert_eq!(n.list("/d/.snapshot/one", "").await.unwrap().unwrap(), ["g", "sub"]);
        assert_eq!(n.list("/d/.snapshot/one", "g").await.unwrap().unwrap(), ["sub"]);
        assert_eq!(n.list("/d/.snapshot/two", "").await.unwrap().unwrap(), ["h"]);
        assert_eq!(n.info("/d/.snapshot/one/sub/f").await.unwrap().unwrap(), file);
        assert_eq!(n.info("/d/.snapshot/one/h").await.unwrap(), None);
        assert_eq!(n.info("/d/.snapshot/none").await.unwrap(), None);
        let located = n.locations("/d/.snapshot/one/sub/f", 0, 100).await.unwrap();
        assert_eq!((located.file_length, located.under_construction), (100, false));
        assert_eq!((located.blocks[0].b.block_id, located.blocks[0].locs.len()), (block.block_id, 1));
        assert_eq!(
            differences(&n, "/d", "one", "two").await,
            ["M ./", "R ./g -> h", "- ./sub"],
            "after a restart: {again}"
        );
        assert_eq!(differences(&n, "/d", "two", "one").await, ["M ./", "R ./h -> g", "+ ./sub"]);
        let request = GetContentSummaryRequestProto { path: "/d".into() };
        let summary: GetContentSummaryResponseProto = n.call("getContentSummary", &request).await.unwrap();
        // The renamed file counts under both names, as in Apache's NameNode.
        assert_eq!((summary.summary.length, summary.summary.snapshot_length), (200, Some(150)));
        let counted = (summary.summary.file_count, summary.summary.snapshot_file_count);
        assert_eq!((counted, summary.summary.space_consumed), ((3, Some(2)), 200));
    }
}

#[tokio::test]
async fn blocks_are_deleted_with_last_snapshot() {
    let n = TestNamenode::start().await;
    let datanodes = vec![TestDatanode::join(&n, 1).await];
    n.write(&datanodes, "/d/f", 100).await;
    let block = n.locations("/d/f", 0, 1).await.unwrap().blocks[0].b.block_id;
    allow(&n, "/d").await.unwrap();
    snapshot(&n, "/d", "one").await.unwrap();
    snapshot(&n, "/d", "two").await.unwrap();
    n.delete_as("root", "/d/f", true).await.unwrap();
    let has = |n: &TestNamenode| n.handle().namenode().read().blocks.inode_of(BlockId(block as i64)).is_some();
    assert!(has(&n));
    remove(&n, "/d", "two").await.unwrap();
    assert!(has(&n));
    assert_eq!(n.locations("/d/.snapshot/one/f", 0, 100).await.unwrap().blocks.len(), 1);
    remove(&n, "/d", "one").await.unwrap();
    assert!(!has(&n));
}

#[tokio::test]
async fn snapshot_blocks_keep_last_storage_policy() {
    let mut n = TestNamenode::start().await;
    let datanodes = vec![TestDatanode::join(&n, 1).await];
    let paths = ["/d/sub/f", "/d/own", "/d/none", "/d/cut"];
    let mut blocks = Vec::new();
    for path in paths {
        n.write(&datanodes, path, 100).await;
        blocks.push(BlockId(n.locations(path, 0, 1).await.unwrap().blocks[0].b.block_id as i64));
    }
    let set = async |n: &TestNamenode, path: &str, policy: &str| {
        let request = SetStoragePolicyRequestProto { src: path.into(), policy_name: policy.into() };
        n.call::<SetStoragePolicyResponseProto>("setStoragePolicy", &request).await.unwrap();
    };
    set(&n, "/d/sub", "WARM").await;
    set(&n, "/d/own", "ALL_SSD").await;
    allow(&n, "/d").await.unwrap();
    snapshot(&n, "/d", "one").await.unwrap();
    // The policy that was last in effect counts, not that of the snapshot.
    set(&n, "/d/sub", "COLD").await;
    for path in ["/d/sub", "/d/own", "/d/none"] {
        assert!(n.delete_as("root", path, true).await.unwrap());
    }
    // This file exists, but no longer has the block.
    assert!(n.truncate("/d/cut", 0, "T").await.unwrap());
    set(&n, "/d/cut", "ONE_SSD").await;
    // The present policy of the file's former directory does not count either.
    set(&n, "/d", "HOT").await;
    for again in [false, true, true] {
        if again {
            n.restart().await;
        }
        let policies: Vec<_> = {
            let state = n.handle().namenode().read();
            blocks.iter().map(|block| state.blocks.policy(*block)).collect()
        };
        assert_eq!(policies, [Some(2), Some(12), Some(0), Some(10)], "after a restart: {again}");
        let status = n.info("/d/.snapshot/one/sub/f").await.unwrap().unwrap();
        assert_eq!(status.storage_policy(), 5, "after a restart: {again}");
    }
}

/// Checks that blocks appended by concat get the replication of the target's other blocks: snapshots may have a higher
/// one than the file.
#[tokio::test]
async fn concatenated_blocks_get_replication_of_snapshots() {
    let mut n = TestNamenode::start().await;
    let datanodes = vec![TestDatanode::join(&n, 1).await];
    let set = async |n: &TestNamenode, replication: u32| {
        let request = SetReplicationRequestProto { src: "/d/target".into(), replication };
        assert!(n.call::<SetReplicationResponseProto>("setReplication", &request).await.unwrap().result);
    };
    n.write(&datanodes, "/d/target", 100).await;
    set(&n, 3).await;
    allow(&n, "/d").await.unwrap();
    snapshot(&n, "/d", "one").await.unwrap();
    set(&n, 1).await;
    // A file that a snapshot has cannot be a source.
    n.write(&datanodes, "/d/source", 50).await;
    let request = ConcatRequestProto { trg: "/d/target".into(), srcs: vec!["/d/source".into()] };
    n.call::<ConcatResponseProto>("concat", &request).await.unwrap();
    for again in [false, true] {
        if again {
            n.restart().await;
        }
        let replications: Vec<u16> = {
            let namenode = n.handle().namenode();
            let (state, now) = (namenode.read(), namenode.now());
            let file = state.namespace.inode(state.namespace.lookup("/d/target").unwrap()).as_file().unwrap();
            file.blocks().iter().map(|block| state.blocks.block_report(block.id, now).unwrap().replication).collect()
        };
        assert_eq!(replications, [3, 3], "after a restart: {again}");
        assert_eq!(n.info("/d/target").await.unwrap().unwrap().block_replication, Some(1), "after a restart: {again}");
    }
}

fn knows(n: &TestNamenode, block: u64) -> bool {
    n.handle().namenode().read().blocks.inode_of(BlockId(block as i64)).is_some()
}

/// Returns the blocks of a file with their lengths, and the length of the file.
async fn lengths(n: &TestNamenode, path: &str) -> (Vec<(u64, u64)>, u64) {
    let located = n.locations(path, 0, 1 << 30).await.unwrap();
    (located.blocks.iter().map(|block| (block.b.block_id, block.b.num_bytes())).collect(), located.file_length)
}

#[tokio::test]
async fn truncating_snapshot_block_copies_it() {
    let n = TestNamenode::start().await;
    let datanodes = vec![TestDatanode::join(&n, 1).await];
    n.write(&datanodes, "/d/f", 1000).await;
    allow(&n, "/d").await.unwrap();
    snapshot(&n, "/d", "one").await.unwrap();
    let (old, _) = lengths(&n, "/d/f").await;
    assert!(!n.truncate("/d/f", 700, "T").await.unwrap());
    refused(
        n.truncate("/d/f", 600, "T").await,
        "org.apache.hadoop.hdfs.protocol.AlreadyBeingCreatedException",
        "Failed to TRUNCATE_FILE /d/f for T on 127.0.0.1 because /d/f is being truncated.",
    );
    let task = datanodes[0].recovery(&n).await;
    // The old block still exists; the new block will be copied from it.
    assert_eq!((task.block.b.block_id, task.block.b.num_bytes(), task.block.locs.len()), (old[0].0, 1000, 1));
    let copy = task.truncate_block.unwrap();
    assert_ne!(copy.block_id, old[0].0);
    assert_eq!((copy.num_bytes(), copy.gen_stamp), (700, task.new_gen_stamp));
    let stamp = task.new_gen_stamp;
    datanodes[0].synchronize(&n, &task.block.b, stamp, 700).await.unwrap();
    assert!(n.is_closed("/d/f").await.unwrap());
    // The answer was lost.
    datanodes[0].synchronize(&n, &task.block.b, stamp, 700).await.unwrap();
    assert_eq!(lengths(&n, "/d/f").await, (vec![(copy.block_id, 700)], 700));
    assert_eq!(lengths(&n, "/d/.snapshot/one/f").await, (old.clone(), 1000));
    // The copy belongs to the file alone, so it is truncated in place.
    assert!(!n.truncate("/d/f", 500, "T").await.unwrap());
    let task = datanodes[0].recovery(&n).await;
    assert_eq!((task.block.b.block_id, task.truncate_block.unwrap().block_id), (copy.block_id, copy.block_id));
    datanodes[0].synchronize(&n, &task.block.b, task.new_gen_stamp, 500).await.unwrap();
    assert!(n.is_closed("/d/f").await.unwrap());
    remove(&n, "/d", "one").await.unwrap();
    assert!(knows(&n, copy.block_id) && !knows(&n, old[0].0));
}

#[tokio::test]
async fn copy_source_stays_until_copy_is_made() {
    for (restart, delete) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut n = TestNamenode::start().await;
        let datanodes = vec![TestDatanode::join(&n, 1).await];
        n.write(&datanodes, "/d/f", 1000).await;
        allow(&n, "/d").await.unwrap();
        snapshot(&n, "/d", "one").await.unwrap();
        let source = n.locations("/d/f", 0, 1).await.unwrap().blocks[0].b.clone();
        assert!(!n.truncate("/d/f", 700, "T").await.unwrap());
        // From here on only the truncation needs the source block.
        remove(&n, "/d", "one").await.unwrap();
        assert!(knows(&n, source.block_id));
        let mut datanode = None;
        if restart {
            n.restart().await;
            assert!(knows(&n, source.block_id));
            datanode = Some(TestDatanode::join_with(&n, 1, std::slice::from_ref(&source)).await);
        }
        let datanode = datanode.as_ref().unwrap_or(&datanodes[0]);
        if delete {
            assert!(n.delete_as("root", "/d/f", true).await.unwrap());
            assert!(!knows(&n, source.block_id));
            n.restart().await;
            assert!(!knows(&n, source.block_id));
            continue;
        }
        let task = datanode.recovery(&n).await;
        let copy = task.truncate_block.unwrap();
        assert_eq!((task.block.b.block_id, copy.num_bytes()), (source.block_id, 700));
        datanode.synchronize(&n, &task.block.b, task.new_gen_stamp, 700).await.unwrap();
        assert!(n.is_closed("/d/f").await.unwrap());
        assert_eq!(lengths(&n, "/d/f").await, (vec![(copy.block_id, 700)], 700));
        assert!(!knows(&n, source.block_id), "after a restart: {restart}");
        n.restart().await;
        assert_eq!(n.info("/d/f").await.unwrap().unwrap().length, 700);
        assert!(!knows(&n, source.block_id));
    }
}

#[tokio::test]
async fn snapshot_during_truncation_keeps_copy_source() {
    // `early`: the earlier snapshot with the source block is deleted before the file, and not after it.
    for (restart, early) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut n = TestNamenode::start_with_quick_leases(std::sync::Arc::new(hearth_types::SystemClock::new())).await;
        let mut datanode = TestDatanode::join(&n, 1).await;
        n.write(std::slice::from_ref(&datanode), "/d/f", 1000).await;
        allow(&n, "/d").await.unwrap();
        snapshot(&n, "/d", "one").await.unwrap();
        let source = n.locations("/d/f", 0, 1).await.unwrap().blocks[0].b.clone();
        assert!(!n.truncate("/d/f", 700, "T").await.unwrap());
        snapshot(&n, "/d", "two").await.unwrap();
        if early {
            remove(&n, "/d", "one").await.unwrap();
        }
        assert!(n.delete_as("root", "/d/f", true).await.unwrap());
        if !early {
            remove(&n, "/d", "one").await.unwrap();
        }
        assert!(knows(&n, source.block_id), "the copy is not made yet");
        if restart {
            n.restart().await;
            assert!(knows(&n, source.block_id));
            datanode = TestDatanode::join_with(&n, 1, std::slice::from_ref(&source)).await;
        }
        let task = datanode.recovery(&n).await;
        let copy = task.truncate_block.unwrap();
        assert_eq!((task.block.b.block_id, copy.num_bytes()), (source.block_id, 700));
        datanode.synchronize(&n, &task.block.b, task.new_gen_stamp, 700).await.unwrap();
        assert_eq!(lengths(&n, "/d/.snapshot/two/f").await, (vec![(copy.block_id, 700)], 700));
        assert!(!knows(&n, source.block_id) && knows(&n, copy.block_id));
        n.restart().await;
        assert_eq!(lengths(&n, "/d/.snapshot/two/f").await, (vec![(copy.block_id, 700)], 700));
        remove(&n, "/d", "two").await.unwrap();
        assert!(!knows(&n, copy.block_id));
    }
}

#[tokio::test]
async fn snapshot_survives_deletion_during_truncation() {
    for restart in [false, true] {
        let mut n = TestNamenode::start().await;
        let datanode = TestDatanode::join(&n, 1).await;
        n.write(std::slice::from_ref(&datanode), "/d/f", 1000).await;
        allow(&n, "/d").await.unwrap();
        snapshot(&n, "/d", "one").await.unwrap();
        let (old, _) = lengths(&n, "/d/f").await;
        assert!(!n.truncate("/d/f", 700, "T").await.unwrap());
        assert!(n.delete_as("root", "/d/f", true).await.unwrap());
        if restart {
            n.restart().await;
        }
        assert!(knows(&n, old[0].0));
        assert_eq!(lengths(&n, "/d/.snapshot/one/f").await, (old.clone(), 1000));
        // When the last snapshot with the unfinished copy is deleted, the copy's source is deleted, too.
        snapshot(&n, "/d", "two").await.unwrap();
        remove(&n, "/d", "one").await.unwrap();
        assert!(!knows(&n, old[0].0));
    }
    let n = TestNamenode::start().await;
    let datanode = TestDatanode::join(&n, 1).await;
    n.write(std::slice::from_ref(&datanode), "/d/f", 1000).await;
    allow(&n, "/d").await.unwrap();
    snapshot(&n, "/d", "one").await.unwrap();
    let (old, _) = lengths(&n, "/d/f").await;
    assert!(!n.truncate("/d/f", 700, "T").await.unwrap());
    snapshot(&n, "/d", "two").await.unwrap();
    let (new, _) = lengths(&n, "/d/.snapshot/two/f").await;
    assert!(n.delete_as("root", "/d/f", true).await.unwrap());
    remove(&n, "/d", "one").await.unwrap();
    assert!(knows(&n, old[0].0) && knows(&n, new[0].0));
    remove(&n, "/d", "two").await.unwrap();
    assert!(!knows(&n, old[0].0) && !knows(&n, new[0].0));
}

#[tokio::test]
async fn abandoned_copy_releases_its_source() {
    let n = TestNamenode::start().await;
    let datanode = TestDatanode::join(&n, 1).await;
    n.write(std::slice::from_ref(&datanode), "/d/f", 1000).await;
    allow(&n, "/d").await.unwrap();
    snapshot(&n, "/d", "one").await.unwrap();
    let source = n.locations("/d/f", 0, 1).await.unwrap().blocks[0].b.block_id;
    assert!(!n.truncate("/d/f", 700, "T").await.unwrap());
    remove(&n, "/d", "one").await.unwrap();
    assert!(knows(&n, source));
    let copy = n.locations("/d/f", 0, 1).await.unwrap().blocks[0].b.clone();
    let request =
        AbandonBlockRequestProto { b: copy.clone(), src: "/d/f".into(), holder: "T".into(), ..Default::default() };
    n.call::<AbandonBlockResponseProto>("abandonBlock", &request).await.unwrap();
    assert!(!knows(&n, copy.block_id) && !knows(&n, source));
}

#[tokio::test]
async fn snapshot_refusals_match_apache() {
    let n = TestNamenode::start().await;
    n.mkdirs("/d/sub").await.unwrap();
    refused(snapshot(&n, "/d", "s").await, SNAPSHOT, "Directory is not a snapshottable directory: /d");
    let bob = AllowSnapshotRequestProto { snapshot_root: "/d".into() };
    refused(
        n.call_as::<AllowSnapshotResponseProto>("bob", "allowSnapshot", &bob).await,
        "org.apache.hadoop.security.AccessControlException",
        "Access denied for user bob. Superuser privilege is required for operation allowSnapshot",
    );
    // The path is checked for a snapshottable ancestor before it is looked up. The root counts as snapshottable.
    n.mkdirs("/other").await.unwrap();
    for path in ["/other", "/other/none"] {
        let message = format!("The path {path} is neither snapshottable nor under a snapshot root!");
        refused(compare(&n, path, "s", "").await, SNAPSHOT, &message);
    }
    for path in ["/none", "/none/below"] {
        let class = "java.io.FileNotFoundException";
        refused(compare(&n, path, "s", "").await, class, "Directory does not exist: /none");
    }
    refused(compare(&n, "/", "s", "").await, SNAPSHOT, "Cannot find the snapshot of directory / with name s");
    allow(&n, "/d").await.unwrap();
    allow(&n, "/d").await.unwrap();
    refused(
        allow(&n, "/d/sub").await,
        SNAPSHOT,
        "Nested snapshottable directories not allowed: path=/d/sub, the ancestor /d is already a snapshottable directory.",
    );
    snapshot(&n, "/d", "s").await.unwrap();
    refused(
        snapshot(&n, "/d", "s").await,
        SNAPSHOT,
        "Failed to add snapshot: there is already a snapshot with the same name \"s\".",
    );
    refused(
        n.delete_as("root", "/d", true).await,
        SNAPSHOT,
        "The directory /d cannot be deleted since /d is snapshottable and already has snapshots",
    );
    refused(
        n.rename2("/d", "/e", false).await,
        SNAPSHOT,
        "The directory /d cannot be deleted since /d is snapshottable and already has snapshots",
    );
    let read_only = "Modification on a read-only snapshot is disallowed";
    let class = "org.apache.hadoop.hdfs.protocol.SnapshotAccessControlException";
    refused(n.mkdirs("/d/.snapshot/s/x").await, class, read_only);
    refused(n.create("/d/.snapshot/s/x", "w", 1).await, class, read_only);
    refused(n.delete_as("root", "/d/.snapshot/s/sub", true).await, class, read_only);
    refused(n.rename2("/d/.snapshot/s/sub", "/y", false).await, class, read_only);
    let disallow = DisallowSnapshotRequestProto { snapshot_root: "/d".into() };
    refused(
        n.call::<DisallowSnapshotResponseProto>("disallowSnapshot", &disallow).await,
        SNAPSHOT,
        "The directory /d has snapshot(s). Please redo the operation after removing all the snapshots.",
    );
    let rename = |old: &str, new: &str| RenameSnapshotRequestProto {
        snapshot_root: "/d".into(),
        snapshot_old_name: old.into(),
        snapshot_new_name: new.into(),
    };
    let _: RenameSnapshotResponseProto = n.call("renameSnapshot", &rename("s", "t")).await.unwrap();
    refused(
        n.call::<RenameSnapshotResponseProto>("renameSnapshot", &rename("s", "u")).await,
        SNAPSHOT,
        "The snapshot s does not exist for directory /d",
    );
    refused(
        remove(&n, "/d", "s").await,
        SNAPSHOT,
        "Cannot delete snapshot s from path /d: the snapshot does not exist.",
    );
    remove(&n, "/d", "t").await.unwrap();
    let _: DisallowSnapshotResponseProto = n.call("disallowSnapshot", &disallow).await.unwrap();
    assert!(n.delete_as("root", "/d", true).await.unwrap());
}

#[tokio::test]
async fn snapshottable_directories_and_snapshots_are_listed() {
    let n = TestNamenode::start().await;
    n.mkdirs("/a/d").await.unwrap();
    let nothing: GetSnapshottableDirListingResponseProto =
        n.call("getSnapshottableDirListing", &GetSnapshottableDirListingRequestProto {}).await.unwrap();
    assert!(nothing.snapshottable_dir_list.is_none());
    allow(&n, "/a/d").await.unwrap();
    let name = snapshot(&n, "/a/d", "").await.unwrap();
    let name = name.strip_prefix("/a/d/.snapshot/").unwrap().to_owned();
    assert!(name.starts_with("s20") && name.len() == "s20261122-121530.123".len(), "{name}");
    let list: GetSnapshottableDirListingResponseProto =
        n.call("getSnapshottableDirListing", &GetSnapshottableDirListingRequestProto {}).await.unwrap();
    let list = list.snapshottable_dir_list.unwrap().snapshottable_dir_listing;
    assert_eq!((&*list[0].parent_fullpath, &*list[0].dir_status.path), (&b"/a"[..], &b"d"[..]));
    assert_eq!((list[0].snapshot_number, list[0].snapshot_quota), (1, 65536));
    let request = GetSnapshotListingRequestProto { snapshot_root: "/a/d".into() };
    let list: GetSnapshotListingResponseProto = n.call("getSnapshotListing", &request).await.unwrap();
    let list = list.snapshot_list.unwrap().snapshot_listing;
    assert_eq!((&*list[0].parent_fullpath, &*list[0].dir_status.path), (&b"/a/d"[..], name.as_bytes()));
}

/// Creates /d/f with 100 reported bytes, then the snapshot `one`; the writer keeps the file open. Returns the file's
/// block.
async fn open_file_in_a_snapshot(n: &TestNamenode) -> ExtendedBlockProto {
    n.mkdirs("/d").await.unwrap();
    allow(n, "/d").await.unwrap();
    n.create("/d/f", "W", 1).await.unwrap();
    let block = n.add_block("/d/f", "W", None).await.unwrap().b;
    let told = FsyncRequestProto {
        src: "/d/f".into(),
        client: "W".into(),
        last_block_length: Some(100),
        ..Default::default()
    };
    n.call::<FsyncResponseProto>("fsync", &told).await.unwrap();
    snapshot(n, "/d", "one").await.unwrap();
    block
}

#[tokio::test]
async fn open_block_of_deleted_file_is_finished() {
    for restart in [false, true] {
        let mut n = TestNamenode::start_with_quick_leases(std::sync::Arc::new(hearth_types::SystemClock::new())).await;
        let mut datanode = TestDatanode::join(&n, 1).await;
        let block = open_file_in_a_snapshot(&n).await;
        assert!(n.delete_as("root", "/d/f", false).await.unwrap());
        let state =
            |n: &TestNamenode| n.handle().namenode().read().blocks.state(BlockId(block.block_id as i64)).unwrap();
        if restart {
            n.restart().await;
            let written = ExtendedBlockProto { num_bytes: Some(120), ..block.clone() };
            datanode = TestDatanode::join_with(&n, 1, &[written]).await;
        }
        let task = datanode.recovery(&n).await;
        assert_eq!(task.block.b.block_id, block.block_id);
        datanode.synchronize(&n, &task.block.b, task.new_gen_stamp, 120).await.unwrap();
        for _ in 0..2 {
            assert_eq!(state(&n), BlockState::Complete);
            let located = n.locations("/d/.snapshot/one/f", 0, 1000).await.unwrap();
            let found = &located.blocks[0];
            assert_eq!((located.file_length, found.b.num_bytes(), found.locs.len()), (100, 100, 1));
            assert_eq!(found.b.generation_stamp, task.new_gen_stamp);
            n.restart().await;
            let whole =
                ExtendedBlockProto { num_bytes: Some(120), generation_stamp: task.new_gen_stamp, ..block.clone() };
            TestDatanode::join_with(&n, 1, &[whole]).await;
        }
        remove(&n, "/d", "one").await.unwrap();
        assert!(!knows(&n, block.block_id));
    }
}

#[tokio::test]
async fn lost_snapshot_block_is_missing() {
    let n = TestNamenode::start_with_quick_leases(std::sync::Arc::new(hearth_types::SystemClock::new())).await;
    TestDatanode::join(&n, 1).await;
    let block = open_file_in_a_snapshot(&n).await;
    // The DataNode restarts without the replica.
    let datanode = TestDatanode::join(&n, 1).await;
    assert!(n.delete_as("root", "/d/f", false).await.unwrap());
    let task = datanode.recovery(&n).await;
    datanode.synchronize_nothing(&n, &task.block.b, task.new_gen_stamp).await.unwrap();
    let state = n.handle().namenode().read().blocks.state(BlockId(block.block_id as i64));
    assert_eq!(state, Some(BlockState::Complete));
    let located = n.locations("/d/.snapshot/one/f", 0, 1000).await.unwrap();
    assert_eq!((located.file_length, located.blocks[0].locs.len()), (100, 0));
}

#[tokio::test]
async fn refused_replacement_keeps_the_file() {
    let n = TestNamenode::start().await;
    let datanodes = [TestDatanode::join(&n, 1).await];
    n.write(&datanodes, "/d/f", 100).await;
    allow(&n, "/d").await.unwrap();
    let quota = SetQuotaRequestProto {
        path: "/d".into(),
        namespace_quota: 1,
        storagespace_quota: i64::MAX as u64,
        storage_type: None,
    };
    n.call::<SetQuotaResponseProto>("setQuota", &quota).await.unwrap();
    // The quota is already exceeded by one, but the new file replaces the old one, so nothing is added.
    n.create("/d/f", "W", 3).await.unwrap();
    assert!(n.complete("/d/f", "W", None).await.unwrap());
    // If a snapshot keeps the old file, the new one is an addition.
    snapshot(&n, "/d", "one").await.unwrap();
    let before = n.info("/d/f").await.unwrap().unwrap().file_id();
    let error = n.create("/d/f", "W", 3).await.unwrap_err();
    assert_eq!(error.remote_class(), Some("org.apache.hadoop.hdfs.protocol.NSQuotaExceededException"), "{error}");
    assert_eq!(n.info("/d/f").await.unwrap().unwrap().file_id(), before);
}
