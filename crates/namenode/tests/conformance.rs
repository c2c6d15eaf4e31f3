//! Answers measured at an Apache NameNode 3.4.2, compared with ours: the same outcome, exception class and text.

mod support;

use std::sync::Arc;

use hearth_types::{FsPermission, SystemClock};
use hearth_wire::proto::hdfs::*;
use support::*;
use tokio::time::Instant;

const ACCESS: &str = "org.apache.hadoop.security.AccessControlException";
const MISSING: &str = "java.io.FileNotFoundException";
const IO: &str = "java.io.IOException";
const ILLEGAL: &str = "java.lang.IllegalArgumentException";
const HADOOP_ILLEGAL: &str = "org.apache.hadoop.HadoopIllegalArgumentException";
const EXISTS: &str = "org.apache.hadoop.fs.FileAlreadyExistsException";
const NOT_DIRECTORY: &str = "org.apache.hadoop.fs.ParentNotDirectoryException";
const INVALID: &str = "org.apache.hadoop.fs.InvalidPathException";
const LEASE: &str = "org.apache.hadoop.hdfs.server.namenode.LeaseExpiredException";
const BEING_CREATED: &str = "org.apache.hadoop.hdfs.protocol.AlreadyBeingCreatedException";
const SAFE_MODE: &str = "org.apache.hadoop.hdfs.server.namenode.SafeModeException";

/// Starts with two DataNodes, `/f` of 100 bytes, `/e` empty, `/d` with `x` and `y`, `/priv` closed to others.
async fn populated() -> (TestNamenode, Vec<TestDatanode>) {
    let namenode = TestNamenode::start().await;
    let datanodes = vec![TestDatanode::join(&namenode, 1).await, TestDatanode::join(&namenode, 2).await];
    namenode.write(&datanodes, "/f", 100).await;
    namenode.write(&datanodes, "/e", 0).await;
    namenode.write(&datanodes, "/d/x", 10).await;
    namenode.write(&datanodes, "/d/y", 10).await;
    namenode.mkdirs_as("root", "/priv", 0o700, true).await.unwrap();
    (namenode, datanodes)
}

#[tokio::test]
async fn questions() {
    let (n, _datanodes) = populated().await;
    let root = n.info("/").await.unwrap().unwrap();
    assert_eq!(show_status(&root), "dir len=0 repl=0 bs=0 rwxr-xr-x root:supergroup id=16385 children=4 policy=0");
    assert_eq!(
        show_status(&n.info("/f").await.unwrap().unwrap()),
        "file len=100 repl=1 bs=1048576 rw-r--r-- root:supergroup id=16386 children=0 policy=0"
    );
    for path in ["/nope", "/a//b/", "/a/../b", "/f/x"] {
        assert!(n.info(path).await.unwrap().is_none(), "{path}");
    }
    refused(n.info("nope").await, "java.lang.AssertionError", "Absolute path required, but got 'nope'");
    refused(n.info("").await, "java.lang.AssertionError", "Absolute path required, but got ''");
    let reserved = n.info("/.reserved").await.unwrap().unwrap();
    assert_eq!(show_status(&reserved), "dir len=0 repl=0 bs=0 rwxrwx--T : id=18446744073709551615 children=0 policy=0");
    assert_eq!(n.info("/.reserved/.inodes/16385").await.unwrap().unwrap().file_id(), 16385);
    refused(
        n.info("/.reserved/.inodes/99999").await,
        MISSING,
        "File for given inode path does not exist: /.reserved/.inodes/99999",
    );
    refused(n.info_as("bob", "/f/x").await, ACCESS, "/f (is not a directory)");

    assert_eq!(n.list("/.reserved", "").await.unwrap().unwrap(), [".inodes", "raw"]);
    assert_eq!(n.list("/nope", "").await.unwrap(), None);
    assert_eq!(n.list("/f", "").await.unwrap().unwrap(), [""]);
    assert_eq!(n.list("/", "").await.unwrap().unwrap(), ["d", "e", "f", "priv"]);
    assert_eq!(n.list("/", "e").await.unwrap().unwrap(), ["f", "priv"]);
    assert_eq!(n.list("/", "ea").await.unwrap().unwrap(), ["f", "priv"]);
    refused(n.list("/f/x", "").await, ACCESS, "/f (is not a directory)");

    refused(n.locations("/nope", 0, 1).await, MISSING, "File does not exist: /nope");
    refused(n.locations("/d", 0, 1).await, MISSING, "Path is not a file: /d");
    refused(n.locations("/f", -1i64 as u64, 1).await, ILLEGAL, "Negative offset is not supported. File: /f");
    let located = n.locations("/f", 1000, 10).await.unwrap();
    assert_eq!((located.file_length, located.under_construction, located.blocks.len()), (100, false, 0));
    assert_eq!(show(&located.last_block.unwrap()), "blk_1073741825_1001 size=100 offset=0 locs=1");
    assert!(located.is_last_block_complete);
    let located = n.locations("/f", 0, 10).await.unwrap();
    assert_eq!(show(&located.blocks[0]), "blk_1073741825_1001 size=100 offset=0 locs=1");
    let located = n.locations("/e", 0, 10).await.unwrap();
    assert_eq!(
        (located.file_length, located.blocks.len(), located.last_block, located.is_last_block_complete),
        (0, 0, None, false)
    );

    refused(n.is_closed("/nope").await, MISSING, "File does not exist: /nope");
    refused(n.is_closed("/d").await, MISSING, "Path is not a file: /d");
    assert!(n.is_closed("/f").await.unwrap());
    let size = |path: &str| GetPreferredBlockSizeRequestProto { filename: path.into() };
    let answer = n.call::<GetPreferredBlockSizeResponseProto>("getPreferredBlockSize", &size("/d")).await;
    refused(answer, MISSING, "Path is not a file: /d");
    let summary = |path: &str| GetContentSummaryRequestProto { path: path.into() };
    let answer = n.call::<GetContentSummaryResponseProto>("getContentSummary", &summary("/nope")).await;
    refused(answer, MISSING, "File does not exist: /nope");
    let answer: GetContentSummaryResponseProto = n.call("getContentSummary", &summary("/")).await.unwrap();
    let found = answer.summary;
    assert_eq!((found.length, found.file_count, found.directory_count), (120, 4, 3));
    assert_eq!((found.quota, found.space_quota, found.space_consumed), (i64::MAX as u64, u64::MAX, 120));
    let usage = GetQuotaUsageRequestProto { path: "/nope".into() };
    let answer = n.call::<GetQuotaUsageResponseProto>("getQuotaUsage", &usage).await;
    refused(answer, MISSING, "File/Directory does not exist: /nope");
    let access = |path: &str| CheckAccessRequestProto { path: path.into(), mode: 4 };
    let answer = n.call::<CheckAccessResponseProto>("checkAccess", &access("/nope")).await;
    refused(answer, MISSING, "Path not found: /nope");
    refused(
        n.call_as::<CheckAccessResponseProto>("bob", "checkAccess", &access("/priv")).await,
        ACCESS,
        "Permission denied: user=bob, access=READ, inode=\"/priv\":root:supergroup:drwx------",
    );
    let link = |path: &str| GetLinkTargetRequestProto { path: path.into() };
    let answer = n.call::<GetLinkTargetResponseProto>("getLinkTarget", &link("/f")).await;
    refused(answer, IO, "Path /f is not a symbolic link");
    let answer = n.call::<GetLinkTargetResponseProto>("getLinkTarget", &link("/nope")).await;
    refused(answer, MISSING, "File does not exist: /nope");
    let defaults: GetServerDefaultsResponseProto =
        n.call("getServerDefaults", &GetServerDefaultsRequestProto {}).await.unwrap();
    let defaults = defaults.server_defaults;
    assert_eq!((defaults.block_size, defaults.bytes_per_checksum, defaults.write_packet_size), (134217728, 512, 65536));
    assert_eq!((defaults.replication, defaults.file_buffer_size, defaults.policy_id()), (2, 4096, 7));
    assert_eq!((defaults.key_provider_uri.as_deref(), defaults.checksum_type), (Some(""), Some(2)));
}

#[tokio::test]
async fn batched_listings() {
    let (n, _datanodes) = populated().await;
    let request = GetBatchedListingRequestProto {
        paths: vec!["/d".into(), "/nope".into(), "/f".into()],
        start_after: Default::default(),
        need_location: true,
    };
    let answer: GetBatchedListingResponseProto = n.call("getBatchedListing", &request).await.unwrap();
    assert!(!answer.has_more);
    let counts: Vec<usize> = answer.listings.iter().map(|entry| entry.partial_listing.len()).collect();
    assert_eq!(counts, [2, 0, 1]);
    let exception = answer.listings[1].exception.clone().unwrap();
    assert_eq!((exception.class_name.as_str(), exception.message()), (MISSING, "Path /nope does not exist"));
    assert!(answer.listings[0].partial_listing[0].locations.is_some());
}

#[tokio::test]
async fn mkdirs() {
    let (n, _datanodes) = populated().await;
    refused(n.mkdirs("/f").await, EXISTS, "Path is not a directory: /f");
    refused(n.mkdirs("/f/x").await, NOT_DIRECTORY, "/f (is not a directory)");
    assert!(n.mkdirs("/d").await.unwrap());
    assert!(n.mkdirs("/").await.unwrap());
    refused(n.mkdirs_as("root", "/q/r", 0o755, false).await, MISSING, "Parent directory doesn't exist: /q");
    refused(n.mkdirs_as("root", "/f/r", 0o755, false).await, NOT_DIRECTORY, "/f (is not a directory)");
    for bad in ["/a:b", "/a//b", "/a/./b", "a/b"] {
        refused(n.mkdirs(bad).await, INVALID, &format!("Invalid path name Invalid file name: {bad}"));
    }
    let reserved = "File name \".reserved\" is reserved and cannot be created. If this is during upgrade change the \
                    name of the existing file or directory to another name before upgrading to the new release.";
    refused(n.mkdirs("/.reserved").await, HADOOP_ILLEGAL, reserved);
    refused(n.mkdirs("/d/.snapshot").await, HADOOP_ILLEGAL, "\".snapshot\" is a reserved name.");
    refused(n.mkdirs("/d/.snapshot/x").await, HADOOP_ILLEGAL, "\".snapshot\" is a reserved name.");
    assert!(n.mkdirs("/trail/").await.unwrap());
    let long = "n".repeat(256);
    refused(
        n.mkdirs(&format!("/{long}")).await,
        "FSLimitException$PathComponentTooLongException",
        &format!("The maximum path component name limit of {long} in directory / is exceeded: limit=255 length=256"),
    );
    refused(n.mkdirs(&"/n".repeat(4500)).await, IO, "mkdirs: Pathname too long.  Limit 8000 characters, 1000 levels.");
    refused(
        n.mkdirs_as("bob", "/priv/x", 0o755, true).await,
        ACCESS,
        "Permission denied: user=bob, access=EXECUTE, inode=\"/priv\":root:supergroup:drwx------",
    );
    n.mkdirs_as("root", "/p0/p1/p2", 0, true).await.unwrap();
    for (path, mode) in [("/p0", "-wx------"), ("/p0/p1", "-wx------"), ("/p0/p1/p2", "---------")] {
        let status = n.info(path).await.unwrap().unwrap();
        assert_eq!(FsPermission(status.permission.perm as u16).to_string(), mode, "{path}");
    }
}

#[tokio::test]
async fn create() {
    let (n, _datanodes) = populated().await;
    let first = n.create("/c1", "cl1", 1).await.unwrap();
    assert_eq!((first.length, first.file_type), (0, 2));
    refused(
        n.create("/c1", "cl1", 1).await,
        BEING_CREATED,
        "Failed to CREATE_FILE /c1 for cl1 on 127.0.0.1 because cl1 is already the current lease holder.",
    );
    refused(
        n.create("/c1", "cl2", 1).await,
        BEING_CREATED,
        "Failed to CREATE_FILE /c1 for cl2 on 127.0.0.1 because this file lease is currently owned by cl1 on 127.0.0.1",
    );
    let second = n.create("/c1", "cl2", 3).await.unwrap();
    assert_eq!(second.file_id(), first.file_id() + 1);
    refused(n.create("/f", "c", 1).await, EXISTS, "/f for client 127.0.0.1 already exists");
    refused(n.create("/d", "c", 1).await, EXISTS, "/d already exists as a directory");
    refused(n.create("/f/x", "c", 1).await, NOT_DIRECTORY, "/f (is not a directory)");
    refused(n.create("/f/x/y", "c", 1).await, NOT_DIRECTORY, "/f (is not a directory)");
    let request = CreateRequestProto { create_parent: false, ..new_file("/zz/x", "c", 1) };
    refused(n.create_request("root", request).await, MISSING, "Parent directory doesn't exist: /zz");
    refused(n.create("/ow", "c", 2).await, MISSING, "Can't overwrite non-existent /ow");
    refused(n.create("/nofl", "c", 0).await, MISSING, "Can't overwrite non-existent /nofl");
    n.create("/e", "c", 2).await.unwrap();
    refused(
        n.create_request("root", CreateRequestProto { block_size: 1000, ..new_file("/b", "c", 1) }).await,
        IO,
        "Specified block size 1000 is less than configured minimum value \
         dfs.namenode.fs-limits.min-block-size=1048576",
    );
    refused(
        n.create_request("root", CreateRequestProto { replication: 0, ..new_file("/r0", "c", 1) }).await,
        IO,
        "Requested replication factor of 0 is less than the required minimum of 1 for /r0, clientName=127.0.0.1",
    );
    refused(
        n.create_request("root", CreateRequestProto { replication: 600, ..new_file("/r6", "c", 1) }).await,
        IO,
        "Requested replication factor of 600 exceeds maximum of 512 for /r6, clientName=127.0.0.1",
    );
    refused(n.create("/a:b", "c", 1).await, INVALID, "Invalid path name /a:b");
    refused(n.create("/", "c", 1).await, EXISTS, "/ already exists as a directory");
    refused(n.create("zz", "c", 1).await, INVALID, "Invalid path name zz");
    refused(n.create("/.reserved/x", "c", 1).await, INVALID, "Invalid path name /.reserved/x");
    refused(
        n.create_request("bob", new_file("/priv/x", "c", 1)).await,
        ACCESS,
        "Permission denied: user=bob, access=EXECUTE, inode=\"/priv\":root:supergroup:drwx------",
    );
    n.set_permission("/", FsPermission(0o777)).await.unwrap();
    refused(
        n.create_request("bob", new_file("/f", "c", 3)).await,
        ACCESS,
        "Permission denied: user=bob, access=WRITE, inode=\"/f\":root:supergroup:-rw-r--r--",
    );
    let request = CreateRequestProto { storage_policy: Some("NOPE".into()), ..new_file("/p", "c", 1) };
    refused(n.create_request("root", request).await, HADOOP_ILLEGAL, "Cannot find a block policy with the name NOPE");
    // A refused operation must not change anything.
    assert_eq!(n.list("/", "").await.unwrap().unwrap(), ["c1", "d", "e", "f", "priv"]);
    let file = n.create_request("bob", new_file("/home/bob/f", "c", 1)).await.unwrap();
    assert_eq!((file.owner.as_str(), file.group.as_str()), ("bob", "supergroup"));
}

#[tokio::test]
async fn writing() {
    let (n, datanodes) = populated().await;
    n.create("/w", "W", 1).await.unwrap();
    let inode = n.info("/w").await.unwrap().unwrap().file_id();
    let not_owner =
        format!("Client (=X) is not the lease owner (=W: /w (inode {inode}) Holder X does not have any open files.");
    refused(n.add_block("/w", "X", None).await, LEASE, &not_owner);
    let first = n.add_block("/w", "W", None).await.unwrap();
    assert_eq!(show(&first), "blk_1073741828_1004 size=0 offset=0 locs=1");
    assert_eq!(show(&n.add_block("/w", "W", None).await.unwrap()), show(&first));
    let full = ExtendedBlockProto { num_bytes: Some(MIB), ..first.b.clone() };
    let second = n.add_block("/w", "W", Some(&full)).await.unwrap();
    assert_eq!(show(&second), "blk_1073741829_1005 size=0 offset=1048576 locs=1");
    // The first block is committed, but not reported.
    refused(
        n.add_block("/w", "W", Some(&second.b)).await,
        "namenode.NotReplicatedYetException",
        "Not replicated yet: /w",
    );
    let bogus = ExtendedBlockProto { block_id: 12345, ..first.b.clone() };
    refused(
        n.add_block("/w", "W", Some(&bogus)).await,
        IO,
        &format!(
            "Cannot allocate block in /w: passed 'previous' block {}:blk_12345_1004 does not match actual last block \
             in file blk_1073741829_1005",
            n.pool()
        ),
    );
    let by_id = |id: u64, path: &str, previous: &ExtendedBlockProto| AddBlockRequestProto {
        src: path.into(),
        client_name: "W".into(),
        previous: Some(previous.clone()),
        file_id: Some(id),
        ..Default::default()
    };
    refused(
        n.add_block_request(by_id(999999, "/w", &full)).await,
        MISSING,
        "File does not exist: /w (inode 999999) [Lease. Holder: W, pending creates: 1]",
    );
    assert_eq!(show(&n.add_block_request(by_id(inode, "/other", &full)).await.unwrap()), show(&second));
    let other_pool = ExtendedBlockProto { pool_id: "BP-x".into(), ..full.clone() };
    refused(
        n.add_block("/w", "W", Some(&other_pool)).await,
        IO,
        &format!("Unexpected BlockPoolId BP-x - expected {}", n.pool()),
    );
    n.create("/w2", "W", 1).await.unwrap();
    let request = AddBlockRequestProto {
        src: "/w2".into(),
        client_name: "W".into(),
        exclude_nodes: datanodes.iter().map(TestDatanode::info).collect(),
        ..Default::default()
    };
    refused(
        n.add_block_request(request).await,
        IO,
        "File /w2 could only be written to 0 of the 1 minReplication nodes. There are 2 datanode(s) running and \
         2 node(s) are excluded in this operation.",
    );
    refused(
        n.add_block("/f", "W", None).await,
        LEASE,
        "File is not open for writing: /f (inode 16386) [Lease. Holder: W, pending creates: 2]",
    );
    let directory = n.info("/d").await.unwrap().unwrap().file_id();
    refused(
        n.add_block("/d", "W", None).await,
        LEASE,
        &format!("INode is not a regular file: /d (inode {directory}) [Lease. Holder: W, pending creates: 2]"),
    );
    assert_eq!(n.info("/w").await.unwrap().unwrap().length, MIB);
    let located = n.locations("/w", 0, MIB).await.unwrap();
    assert_eq!((located.file_length, located.under_construction, located.is_last_block_complete), (MIB, true, false));
    assert_eq!(
        located.blocks.iter().map(show).collect::<Vec<_>>(),
        ["blk_1073741828_1004 size=1048576 offset=0 locs=1"]
    );
    assert_eq!(show(&located.last_block.unwrap()), "blk_1073741829_1005 size=0 offset=1048576 locs=1");

    assert!(!n.complete("/w", "W", Some(&second.b)).await.unwrap());
    refused(n.complete("/w", "X", Some(&second.b)).await, LEASE, &not_owner);
    refused(
        n.complete("/f", "W", None).await,
        LEASE,
        "File is not open for writing: /f (inode 16386) [Lease. Holder: W, pending creates: 2]",
    );
    refused(
        n.complete("/nope", "W", None).await,
        MISSING,
        "File does not exist: /nope (inode 0) [Lease. Holder: W, pending creates: 2]",
    );
    assert!(n.complete("/w2", "W", None).await.unwrap());
    assert!(n.complete("/w2", "W", None).await.unwrap());
    pipelines(&n, &datanodes, &first, &second, &not_owner).await;
}

async fn pipelines(
    n: &TestNamenode,
    datanodes: &[TestDatanode],
    first: &LocatedBlockProto,
    second: &LocatedBlockProto,
    not_owner: &str,
) {
    let pool = n.pool();
    let update = |block: &ExtendedBlockProto, client: &str| UpdateBlockForPipelineRequestProto {
        block: block.clone(),
        client_name: client.into(),
    };
    let answer: UpdateBlockForPipelineResponseProto =
        n.call("updateBlockForPipeline", &update(&second.b, "W")).await.unwrap();
    assert_eq!(show(&answer.block), "blk_1073741829_1006 size=0 offset=-1 locs=0");
    refused(
        n.call::<UpdateBlockForPipelineResponseProto>("updateBlockForPipeline", &update(&second.b, "X")).await,
        LEASE,
        &format!("Lease mismatch: {pool}:blk_1073741829_1005 is accessed by a non lease holder X"),
    );
    refused(
        n.call::<UpdateBlockForPipelineResponseProto>("updateBlockForPipeline", &update(&first.b, "W")).await,
        IO,
        &format!("Unexpected BlockUCState: {pool}:blk_1073741828_1004 is COMMITTED but not UNDER_CONSTRUCTION"),
    );
    let unknown = ExtendedBlockProto { block_id: 77, generation_stamp: 1, ..first.b.clone() };
    refused(
        n.call::<UpdateBlockForPipelineResponseProto>("updateBlockForPipeline", &update(&unknown, "W")).await,
        IO,
        &format!("{pool}:blk_77_1 does not exist."),
    );
    let same = UpdatePipelineRequestProto {
        client_name: "W".into(),
        old_block: second.b.clone(),
        new_block: second.b.clone(),
        new_nodes: vec![second.locs[0].id.clone()],
        storage_ids: second.storage_ids.clone(),
    };
    refused(
        n.call::<UpdatePipelineResponseProto>("updatePipeline", &same).await,
        IO,
        &format!(
            "Update {pool}:blk_1073741829_1005 but the new block {pool}:blk_1073741829_1005 does not have a larger \
             generation stamp than the last block {pool}:blk_1073741829_1005"
        ),
    );
    let more = |excludes: Vec<DatanodeInfoProto>| GetAdditionalDatanodeRequestProto {
        src: "/w".into(),
        blk: second.b.clone(),
        existings: second.locs.clone(),
        excludes,
        num_additional_nodes: 1,
        client_name: "W".into(),
        existing_storage_uuids: second.storage_ids.clone(),
        file_id: None,
    };
    let answer: GetAdditionalDatanodeResponseProto = n.call("getAdditionalDatanode", &more(Vec::new())).await.unwrap();
    assert_eq!(show(&answer.block), "blk_1073741829_1005 size=0 offset=-1 locs=2");
    let all = datanodes.iter().map(TestDatanode::info).collect();
    let answer: GetAdditionalDatanodeResponseProto = n.call("getAdditionalDatanode", &more(all)).await.unwrap();
    assert_eq!(show(&answer.block), "blk_1073741829_1005 size=0 offset=-1 locs=1");
    let abandon = |holder: &str| AbandonBlockRequestProto {
        b: second.b.clone(),
        src: "/w".into(),
        holder: holder.into(),
        file_id: None,
    };
    refused(n.call::<AbandonBlockResponseProto>("abandonBlock", &abandon("X")).await, LEASE, not_owner);
    n.call::<AbandonBlockResponseProto>("abandonBlock", &abandon("W")).await.unwrap();
    n.call::<AbandonBlockResponseProto>("abandonBlock", &abandon("W")).await.unwrap();
    let fsync = |client: &str| FsyncRequestProto {
        src: "/w".into(),
        client: client.into(),
        last_block_length: None,
        file_id: None,
    };
    n.call::<FsyncResponseProto>("fsync", &fsync("W")).await.unwrap();
    refused(n.call::<FsyncResponseProto>("fsync", &fsync("X")).await, LEASE, not_owner);
    let renew = RenewLeaseRequestProto { client_name: "nobody".into(), namespaces: Vec::new() };
    n.call::<RenewLeaseResponseProto>("renewLease", &renew).await.unwrap();
    let renew = RenewLeaseRequestProto { namespaces: vec!["ns1".into()], ..renew };
    refused(
        n.call::<RenewLeaseResponseProto>("renewLease", &renew).await,
        IO,
        "namespaces([ns1]) should be null or empty",
    );
    assert!(!n.is_closed("/w").await.unwrap());

    refused(n.recover_lease("/nope", "X").await, MISSING, "File does not exist: /nope");
    refused(n.recover_lease("/d", "X").await, MISSING, "Path is not a file: /d");
    assert!(n.recover_lease("/f", "X").await.unwrap());
    n.create("/open-empty", "E", 1).await.unwrap();
    assert!(n.recover_lease("/open-empty", "X").await.unwrap());
    // The first block is committed, but has still not been reported.
    assert!(!n.recover_lease("/w", "X").await.unwrap());

    let file = n.create("/moving", "M", 1).await.unwrap();
    assert!(n.rename_as("root", "/moving", "/moved").await.unwrap());
    let request = AddBlockRequestProto {
        src: "/moving".into(),
        client_name: "M".into(),
        file_id: file.file_id,
        ..Default::default()
    };
    n.add_block_request(request.clone()).await.unwrap();
    assert!(n.delete_as("root", "/moved", false).await.unwrap());
    n.create("/keeps-the-lease", "M", 1).await.unwrap();
    refused(
        n.add_block_request(request).await,
        MISSING,
        &format!("File does not exist: /moving (inode {}) [Lease. Holder: M, pending creates: 1]", file.file_id()),
    );
}

#[tokio::test]
async fn complete_waits_for_block_report() {
    let (n, datanodes) = populated().await;
    for attempt in 1..=5 {
        let (path, began) = (format!("/late{attempt}"), Instant::now());
        n.create(&path, "L", 1).await.unwrap();
        let located = n.add_block(&path, "L", None).await.unwrap();
        let block = ExtendedBlockProto { num_bytes: Some(5), ..located.b.clone() };
        let holder = datanodes.iter().find(|datanode| datanode.uuid == located.locs[0].id.datanode_uuid).unwrap();
        let report = async {
            // Nothing outside of the NameNode shows that the call has arrived and waits.
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            holder.received(&n, &block).await;
        };
        let (closed, ()) = tokio::join!(n.complete(&path, "L", Some(&block)), report);
        if closed.unwrap() {
            return;
        }
        assert!(attempt < 5, "each report is too late");
        assert!(began.elapsed().as_millis() >= 1000, "only a stalled machine may be too late");
    }
}

#[tokio::test]
async fn append() {
    let (n, datanodes) = populated().await;
    refused(
        n.append("/nope", "A", 4).await,
        MISSING,
        "Failed to append to non-existent file /nope for client 127.0.0.1",
    );
    refused(n.append("/d", "A", 4).await, EXISTS, "Cannot append to directory /d; already exists as a directory.");
    let answer = n.append("/f", "A", 4).await.unwrap();
    assert_eq!(show(&answer.block.unwrap()), "blk_1073741825_1001 size=100 offset=0 locs=1");
    assert_eq!(
        show_status(&answer.stat.unwrap()),
        "file len=100 repl=1 bs=1048576 rw-r--r-- root:supergroup id=16386 children=0 policy=0"
    );
    refused(
        n.append("/f", "A", 4).await,
        BEING_CREATED,
        "Failed to APPEND_FILE /f for A on 127.0.0.1 because A is already the current lease holder.",
    );
    refused(
        n.append("/f", "B", 4).await,
        BEING_CREATED,
        "Failed to APPEND_FILE /f for B on 127.0.0.1 because this file lease is currently owned by A on 127.0.0.1",
    );
    let request = AppendRequestProto { src: "/d/x".into(), client_name: "B".into(), flag: None };
    refused(
        n.call_as::<AppendResponseProto>("bob", "append", &request).await,
        ACCESS,
        "Permission denied: user=bob, access=WRITE, inode=\"/d/x\":root:supergroup:-rw-r--r--",
    );
    let answer = n.append("/e", "A", 4).await.unwrap();
    assert_eq!((answer.block, answer.stat.unwrap().length), (None, 0));
    n.write(&datanodes, "/full", MIB).await;
    let answer = n.append("/full", "A", 4).await.unwrap();
    assert_eq!((answer.block, answer.stat.unwrap().length), (None, MIB));
    // On a block boundary the next block is added without naming the last one.
    let next = n.add_block("/full", "A", None).await.unwrap();
    assert_eq!((next.offset, next.b.num_bytes()), (MIB, 0));
    let written = n.write(&datanodes, "/new-block", 100).await;
    let answer = n.append("/new-block", "A", 4 | 32).await.unwrap();
    let last = answer.block.unwrap();
    assert_eq!((last.offset as i64, last.locs.len(), last.b.num_bytes()), (-1, 0, 100));
    assert_eq!(answer.stat.unwrap().file_id(), written.file_id());
    assert_eq!(n.add_block("/new-block", "A", Some(&last.b)).await.unwrap().offset, 100);
    assert!(n.delete_as("root", "/f", false).await.unwrap());
}

#[tokio::test]
async fn truncate() {
    let (n, datanodes) = populated().await;
    refused(n.truncate("/nope", 1, "T").await, MISSING, "File does not exist: /nope");
    refused(n.truncate("/d", 1, "T").await, MISSING, "Path is not a file: /d");
    refused(n.truncate("/f", -1, "T").await, HADOOP_ILLEGAL, "Cannot truncate to a negative file size: -1.");
    refused(
        n.truncate("/f", 4_000_000, "T").await,
        HADOOP_ILLEGAL,
        "Cannot truncate to a larger file size. Current size: 100, truncate size: 4000000.",
    );
    assert!(n.truncate("/f", 100, "T").await.unwrap());
    n.write(&datanodes, "/t", 1000).await;
    let holder = n.locations("/t", 0, 1).await.unwrap().blocks[0].locs[0].id.datanode_uuid.clone();
    let datanode = datanodes.iter().find(|datanode| datanode.uuid == holder).unwrap();
    assert!(!n.truncate("/t", 700, "T").await.unwrap());
    assert!(!n.truncate("/t", 700, "T").await.unwrap());
    refused(
        n.truncate("/t", 600, "T").await,
        BEING_CREATED,
        "Failed to TRUNCATE_FILE /t for T on 127.0.0.1 because /t is being truncated.",
    );
    assert!(!n.is_closed("/t").await.unwrap());
    // Clients that wait for the truncation poll the length.
    assert_eq!(n.info("/t").await.unwrap().unwrap().length, 1000);
    // The DataNode receives the command to truncate the block, and reports that it has.
    let commands = datanode.heartbeat(&n).await;
    let recovery = commands.iter().find_map(|command| command.recovery_cmd.as_ref()).expect("a recovery command");
    let recovering = &recovery.blocks[0];
    let located = &recovering.block;
    assert_eq!(recovering.truncate_block.as_ref().map(|block| block.num_bytes()), Some(700));
    datanode.synchronize(&n, &located.b, recovering.new_gen_stamp, 700).await.unwrap();
    assert!(n.is_closed("/t").await.unwrap());
    // The answer was lost, so the DataNode reports it again.
    datanode.synchronize(&n, &located.b, recovering.new_gen_stamp, 700).await.unwrap();
    assert_eq!(n.info("/t").await.unwrap().unwrap().length, 700);
    assert!(n.truncate("/t", 0, "T").await.unwrap());
    assert_eq!(n.info("/t").await.unwrap().unwrap().length, 0);
    assert!(n.is_closed("/t").await.unwrap());
}

#[tokio::test]
async fn concat() {
    let (n, datanodes) = populated().await;
    for (path, length) in [("/k1", 100), ("/k2", 100), ("/k3", 0), ("/d/k4", 10)] {
        n.write(&datanodes, path, length).await;
    }
    let concat = async |target: &str, sources: &[&str]| {
        let srcs = sources.iter().map(|source| source.to_string()).collect();
        n.call::<ConcatResponseProto>("concat", &ConcatRequestProto { trg: target.into(), srcs }).await
    };
    refused(concat("/k1", &[]).await, ILLEGAL, "No sources given");
    refused(
        concat("/k1", &["/k1"]).await,
        HADOOP_ILLEGAL,
        "concat: the src file /k1 is the same with the target file /k1",
    );
    refused(
        concat("/k1", &["/k3"]).await,
        HADOOP_ILLEGAL,
        "concat: source file /k3 is invalid or empty or underConstruction",
    );
    refused(
        concat("/k1", &["/d/k4"]).await,
        HADOOP_ILLEGAL,
        "Source file /d/k4 is not in the same directory with the target /k1",
    );
    refused(concat("/k1", &["/nope"]).await, MISSING, "File does not exist: /nope");
    refused(
        concat("/k1", &["/k2", "/k2"]).await,
        HADOOP_ILLEGAL,
        "concat: at least two of the source files are the same",
    );
    refused(concat("/nope", &["/k2"]).await, MISSING, "File does not exist: /nope");
    concat("/k1", &["/k2"]).await.unwrap();
    assert_eq!(n.info("/k1").await.unwrap().unwrap().length, 200);
    assert!(n.info("/k2").await.unwrap().is_none());
    let located = n.locations("/k1", 0, 200).await.unwrap();
    assert_eq!(
        located.blocks.iter().map(|block| (block.offset, block.locs.len())).collect::<Vec<_>>(),
        [(0, 1), (100, 1)]
    );
}

#[tokio::test]
async fn rename() {
    let (n, datanodes) = populated().await;
    n.write(&datanodes, "/rf1", 5).await;
    n.write(&datanodes, "/rf2", 5).await;
    n.mkdirs("/r1/sub").await.unwrap();
    n.mkdirs("/r2").await.unwrap();
    let rename = async |source: &str, destination: &str| n.rename_as("root", source, destination).await;
    assert!(!rename("/nope", "/x").await.unwrap());
    assert!(!rename("/rf1", "/rf2").await.unwrap());
    assert!(rename("/rf1", "/rf1").await.unwrap());
    assert!(!rename("/r1", "/r1").await.unwrap());
    assert!(!rename("/", "/x").await.unwrap());
    assert!(!rename("/r1", "/r1/sub/x").await.unwrap());
    assert!(!rename("/rf1", "/nope/x").await.unwrap());
    refused(rename("/rf1", "/rf2/x").await, NOT_DIRECTORY, "/rf2 (is not a directory)");
    assert!(rename("/rf1", "/r2").await.unwrap());
    assert!(rename("/r1", "/r2").await.unwrap());
    assert_eq!(n.list("/r2", "").await.unwrap().unwrap(), ["r1", "rf1"]);
    assert!(rename("/r2/rf1", "/").await.unwrap());
    assert!(n.info("/rf1").await.unwrap().is_some());
    refused(
        n.rename_as("bob", "/priv/x", "/y").await,
        ACCESS,
        "Permission denied: user=bob, access=EXECUTE, inode=\"/priv\":root:supergroup:drwx------",
    );
    refused(rename("/rf1", "/a:b").await, INVALID, "Invalid path name Invalid file name: /a:b");
    refused(rename("/rf1", "/.reserved").await, INVALID, "Invalid path name Cannot rename to or from /.reserved");
}

#[tokio::test]
async fn rename2() {
    let (n, datanodes) = populated().await;
    for path in ["/s1", "/s2"] {
        n.write(&datanodes, path, 5).await;
    }
    for path in ["/sd1", "/sd2/x", "/sd3"] {
        n.mkdirs(path).await.unwrap();
    }
    refused(n.rename2("/nope", "/x", false).await, MISSING, "rename source /nope is not found.");
    refused(n.rename2("/s1", "/s2", false).await, EXISTS, "rename destination /s2 already exists");
    refused(n.rename2("/s1", "/s1", false).await, EXISTS, "The source /s1 and destination /s1 are the same");
    refused(n.rename2("/", "/x", false).await, IO, "rename source cannot be the root");
    refused(n.rename2("/sd1", "/", true).await, IO, "rename destination cannot be the root");
    refused(
        n.rename2("/sd2", "/sd2/x/y", false).await,
        IO,
        "Rename destination /sd2/x/y is a directory or file under source /sd2",
    );
    refused(n.rename2("/s1", "/nope/x", false).await, MISSING, "rename destination parent /nope/x not found.");
    refused(n.rename2("/s1", "/s2/x", false).await, NOT_DIRECTORY, "/s2 (is not a directory)");
    refused(n.rename2("/s1", "/sd1", true).await, IO, "Source /s1 and destination /sd1 must both be directories");
    refused(n.rename2("/sd1", "/s1", true).await, IO, "Source /sd1 and destination /s1 must both be directories");
    refused(n.rename2("/sd1", "/sd2", true).await, IO, "rename destination directory is not empty: /sd2");
    refused(n.rename2("/sd1", "/sd3", false).await, EXISTS, "rename destination /sd3 already exists");
    n.rename2("/sd1", "/sd3", true).await.unwrap();
    n.rename2("/s1", "/s2", true).await.unwrap();
    assert!(n.info("/sd1").await.unwrap().is_none() && n.info("/s1").await.unwrap().is_none());
}

#[tokio::test]
async fn delete() {
    let (n, _datanodes) = populated().await;
    let not_empty = "org.apache.hadoop.fs.PathIsNotEmptyDirectoryException";
    assert!(!n.delete_as("root", "/nope", true).await.unwrap());
    assert!(!n.delete_as("root", "/", true).await.unwrap());
    refused(n.delete_as("root", "/", false).await, not_empty, "`/ is non empty': Directory is not empty");
    refused(n.delete_as("root", "/d", false).await, not_empty, "`/d is non empty': Directory is not empty");
    refused(n.delete_as("root", "/f/x", false).await, ACCESS, "/f (is not a directory)");
    refused(
        n.delete_as("bob", "/d/x", false).await,
        ACCESS,
        "Permission denied: user=bob, access=WRITE, inode=\"/d\":root:supergroup:drwxr-xr-x",
    );
    refused(n.delete_as("root", "/.reserved", true).await, INVALID, "Invalid path name /.reserved");
    n.mkdirs("/empty").await.unwrap();
    assert!(n.delete_as("root", "/empty", false).await.unwrap());

    n.mkdirs_as("root", "/tmp", 0o1777, true).await.unwrap();
    n.mkdirs_as("alice", "/tmp/ad", 0o777, true).await.unwrap();
    let sticky = "Permission denied by sticky bit: user=bob, path=\"/tmp/ad\":alice:supergroup:drwxrwxrwx, \
                  parent=\"/tmp\":root:supergroup:drwxrwxrwt";
    refused(n.delete_as("bob", "/tmp/ad", true).await, ACCESS, sticky);
    refused(n.rename_as("bob", "/tmp/ad", "/tmp/mine").await, ACCESS, sticky);
    assert!(n.delete_as("alice", "/tmp/ad", true).await.unwrap());
}

#[tokio::test]
async fn attributes() {
    let (n, _datanodes) = populated().await;
    let replication = async |path: &str, replication: u32| {
        let request = SetReplicationRequestProto { src: path.into(), replication };
        n.call::<SetReplicationResponseProto>("setReplication", &request).await.map(|answer| answer.result)
    };
    assert!(!replication("/d", 2).await.unwrap());
    assert!(!replication("/nope", 2).await.unwrap());
    assert!(replication("/f", 2).await.unwrap());
    refused(
        replication("/f", 0).await,
        IO,
        "Requested replication factor of 0 is less than the required minimum of 1 for /f",
    );
    refused(n.set_permission("/nope", FsPermission(0o755)).await, MISSING, "Directory/File does not exist /nope");
    let request = SetPermissionRequestProto { src: "/f".into(), permission: FsPermissionProto { perm: 0o777 } };
    refused(
        n.call_as::<SetPermissionResponseProto>("bob", "setPermission", &request).await,
        ACCESS,
        "Permission denied. user=bob is not the owner of inode=/f",
    );
    let owner = async |user: &str, path: &str, owner: Option<&str>, group: Option<&str>| {
        let request = SetOwnerRequestProto {
            src: path.into(),
            username: owner.map(str::to_owned),
            groupname: group.map(str::to_owned),
        };
        n.call_as::<SetOwnerResponseProto>(user, "setOwner", &request).await.map(drop)
    };
    owner("root", "/d/x", Some("bob"), None).await.unwrap();
    refused(
        owner("bob", "/d/x", Some("alice"), None).await,
        ACCESS,
        "User bob is not a super user (non-super user cannot change owner).",
    );
    refused(owner("bob", "/d/x", None, Some("wheel")).await, ACCESS, "User bob does not belong to wheel");
    owner("bob", "/d/x", None, Some("users")).await.unwrap();
    let status = n.info("/d/x").await.unwrap().unwrap();
    assert_eq!((status.owner.as_str(), status.group.as_str()), ("bob", "users"));
    refused(owner("root", "/nope", None, None).await, MISSING, "Directory/File does not exist /nope");
    // A member of the supergroup may do anything.
    owner("eve", "/d/x", Some("alice"), None).await.unwrap();
    let times = async |path: &str, mtime: i64, atime: i64| {
        let request = SetTimesRequestProto { src: path.into(), mtime: mtime as u64, atime: atime as u64 };
        n.call::<SetTimesResponseProto>("setTimes", &request).await.map(drop)
    };
    refused(times("/nope", 1, 1).await, MISSING, "File/Directory /nope does not exist.");
    times("/d", 5, -1).await.unwrap();
    times("/d", -1, 7).await.unwrap();
    let status = n.info("/d").await.unwrap().unwrap();
    assert_eq!((status.modification_time, status.access_time), (5, 7));
}

#[tokio::test]
async fn policies() {
    let (n, _datanodes) = populated().await;
    let set = async |path: &str, policy: &str| {
        let request = SetStoragePolicyRequestProto { src: path.into(), policy_name: policy.into() };
        n.call::<SetStoragePolicyResponseProto>("setStoragePolicy", &request).await.map(drop)
    };
    let get = async |path: &str| {
        let request = GetStoragePolicyRequestProto { path: path.into() };
        let answer = n.call::<GetStoragePolicyResponseProto>("getStoragePolicy", &request).await;
        answer.map(|answer| (answer.storage_policy.policy_id, answer.storage_policy.name))
    };
    refused(set("/d", "NOPE").await, HADOOP_ILLEGAL, "Cannot find a block policy with the name NOPE");
    refused(set("/nope", "HOT").await, MISSING, "File/Directory does not exist: /nope");
    refused(
        set("/f", "LAZY_PERSIST").await,
        HADOOP_ILLEGAL,
        "Policy BlockStoragePolicy{LAZY_PERSIST:15, storageTypes=[RAM_DISK, DISK], creationFallbacks=[DISK], \
         replicationFallbacks=[DISK]} cannot be set after file creation.",
    );
    n.create("/lazy", "c", 1 | 16).await.unwrap();
    assert_eq!(get("/lazy").await.unwrap(), (15, "LAZY_PERSIST".into()));
    let for_good = "Existing policy LAZY_PERSIST cannot be changed after file creation.";
    refused(set("/lazy", "HOT").await, HADOOP_ILLEGAL, for_good);
    let request = UnsetStoragePolicyRequestProto { src: "/lazy".into() };
    let unset = n.call::<UnsetStoragePolicyResponseProto>("unsetStoragePolicy", &request).await;
    refused(unset.map(drop), HADOOP_ILLEGAL, for_good);
    n.set_permission("/lazy", FsPermission(0o600)).await.unwrap();
    let request = GetStoragePolicyRequestProto { path: "/lazy".into() };
    let strange = n.call_as::<GetStoragePolicyResponseProto>("bob", "getStoragePolicy", &request).await;
    assert!(strange.is_err_and(|error| error.to_string().contains("denied")));
    set("/d", "ONE_SSD").await.unwrap();
    assert_eq!(n.info("/d").await.unwrap().unwrap().storage_policy(), 10);
    assert_eq!(n.info("/d/x").await.unwrap().unwrap().storage_policy(), 10);
    assert_eq!(get("/d/x").await.unwrap(), (10, "ONE_SSD".into()));
    assert_eq!(get("/f").await.unwrap(), (7, "HOT".into()));
    refused(get("/nope").await, MISSING, "File/Directory does not exist: /nope");
    let request = UnsetStoragePolicyRequestProto { src: "/d".into() };
    n.call::<UnsetStoragePolicyResponseProto>("unsetStoragePolicy", &request).await.unwrap();
    assert_eq!(get("/d/x").await.unwrap().0, 7);
    let all: GetStoragePoliciesResponseProto =
        n.call("getStoragePolicies", &GetStoragePoliciesRequestProto {}).await.unwrap();
    assert_eq!(all.policies.iter().map(|policy| policy.policy_id).collect::<Vec<_>>(), [1, 2, 5, 7, 10, 12, 14, 15]);
}

#[tokio::test]
async fn storage_policy_can_require_superuser() {
    for superuser_only in [false, true] {
        let configuration =
            configuration().with("dfs.storage.policy.permissions.superuser-only", superuser_only.to_string());
        let n = TestNamenode::start_with(configuration, Arc::new(SystemClock::new())).await;
        n.mkdirs("/open").await.unwrap();
        n.set_permission("/open", FsPermission(0o777)).await.unwrap();
        let set = SetStoragePolicyRequestProto { src: "/open".into(), policy_name: "COLD".into() };
        let set_by_bob = n.call_as::<SetStoragePolicyResponseProto>("bob", "setStoragePolicy", &set).await.map(drop);
        let unset = UnsetStoragePolicyRequestProto { src: "/open".into() };
        let unset_by_bob =
            n.call_as::<UnsetStoragePolicyResponseProto>("bob", "unsetStoragePolicy", &unset).await.map(drop);
        if superuser_only {
            let denied = |operation: &str| {
                format!("Access denied for user bob. Superuser privilege is required for operation {operation}")
            };
            refused(set_by_bob, ACCESS, &denied("setStoragePolicy"));
            refused(unset_by_bob, ACCESS, &denied("unsetStoragePolicy"));
        } else {
            set_by_bob.unwrap();
            unset_by_bob.unwrap();
        }
        n.call::<SetStoragePolicyResponseProto>("setStoragePolicy", &set).await.unwrap();
    }
}

#[tokio::test]
async fn object_limit_is_enforced() {
    // The root counts as one object.
    let configuration = configuration().with("dfs.namenode.max.objects", "4").with("dfs.replication", "1");
    let n = TestNamenode::start_with(configuration, Arc::new(SystemClock::new())).await;
    let datanodes = vec![TestDatanode::join(&n, 1).await];
    n.mkdirs("/a").await.unwrap();
    n.write(&datanodes, "/a/1", 100).await;
    let said = "Exceeded the configured number of objects 4 in the filesystem.";
    refused(n.mkdirs("/b").await.map(drop), "java.io.IOException", said);
    refused(n.create("/c", "client", 1).await.map(drop), "java.io.IOException", said);
    // Creating an existing directory again succeeds, and reading still works.
    n.mkdirs("/a").await.unwrap();
    assert!(n.info("/a/1").await.unwrap().is_some());
}

/// Checks that no page before the last one is empty: an empty page ends the listing of Java's client.
#[tokio::test]
async fn corrupt_files_below_path_are_listed() {
    let configuration = configuration().with("dfs.namenode.max-corrupt-file-blocks-returned", "2");
    let n = TestNamenode::start_with(configuration, Arc::new(SystemClock::new())).await;
    let datanodes = vec![TestDatanode::join(&n, 1).await];
    for path in ["/a/1", "/a/2", "/a/3", "/a/4", "/b/1", "/a/5", "/b/2", "/b/3", "/a/6"] {
        n.write(&datanodes, path, 100).await;
        spoil(&n, path).await;
    }
    let mut cookie = None;
    for expected in [vec!["/b/1", "/b/2"], vec!["/b/3"], vec![]] {
        let request = ListCorruptFileBlocksRequestProto { path: "/b".into(), cookie };
        let answer: ListCorruptFileBlocksResponseProto = n.call("listCorruptFileBlocks", &request).await.unwrap();
        assert_eq!(answer.corrupt.files, expected);
        cookie = Some(answer.corrupt.cookie);
    }
}

#[tokio::test]
async fn administration() {
    let (n, _datanodes) = populated().await;
    let superuser = |operation: &str| {
        format!("Access denied for user bob. Superuser privilege is required for operation {operation}")
    };
    let report = GetDatanodeReportRequestProto { r#type: DatanodeReportTypeProto::Live as i32 };
    let answer: GetDatanodeReportResponseProto = n.call("getDatanodeReport", &report).await.unwrap();
    assert_eq!(answer.di.len(), 2);
    let answer = n.call_as::<GetDatanodeReportResponseProto>("bob", "getDatanodeReport", &report).await;
    refused(answer, ACCESS, &superuser("datanodeReport"));
    let files = ListOpenFilesRequestProto::default();
    let answer = n.call_as::<ListOpenFilesResponseProto>("bob", "listOpenFiles", &files).await;
    refused(answer, ACCESS, &superuser("listOpenFiles"));
    n.append("/f", "A", 4).await.unwrap();
    let answer: ListOpenFilesResponseProto = n.call("listOpenFiles", &files).await.unwrap();
    assert_eq!((answer.entries.len(), answer.has_more), (1, false));
    assert_eq!((answer.entries[0].path.as_str(), answer.entries[0].client_name.as_str()), ("/f", "A"));
    let corrupt = ListCorruptFileBlocksRequestProto { path: "/".into(), cookie: None };
    let answer: ListCorruptFileBlocksResponseProto = n.call("listCorruptFileBlocks", &corrupt).await.unwrap();
    assert_eq!((answer.corrupt.files.len(), answer.corrupt.cookie.as_str()), (0, "0"));
    let answer = n.call_as::<RollEditsResponseProto>("bob", "rollEdits", &RollEditsRequestProto {}).await;
    refused(answer, ACCESS, &superuser("rollEditLog"));
    let answer = n.call_as::<RefreshNodesResponseProto>("bob", "refreshNodes", &RefreshNodesRequestProto {}).await;
    refused(answer, ACCESS, &superuser("refreshNodes"));
    n.call::<RefreshNodesResponseProto>("refreshNodes", &RefreshNodesRequestProto {}).await.unwrap();
    let answer = n.call::<SaveNamespaceResponseProto>("saveNamespace", &SaveNamespaceRequestProto::default()).await;
    refused(answer, IO, "Safe mode should be turned ON in order to create namespace image.");
    let answer: UpgradeStatusResponseProto = n.call("upgradeStatus", &UpgradeStatusRequestProto {}).await.unwrap();
    assert!(answer.upgrade_finalized);
    let answer: GetDelegationTokenResponseProto =
        n.call("getDelegationToken", &GetDelegationTokenRequestProto { renewer: "r".into() }).await.unwrap();
    assert!(answer.token.is_none());
    let answer: GetEzForPathResponseProto =
        n.call("getEZForPath", &GetEzForPathRequestProto { src: "/d".into() }).await.unwrap();
    assert!(answer.zone.is_none());
    let answer: ListEncryptionZonesResponseProto =
        n.call("listEncryptionZones", &ListEncryptionZonesRequestProto { id: 0 }).await.unwrap();
    assert_eq!((answer.zones.len(), answer.has_more), (0, false));
    let acl = GetAclStatusRequestProto { src: "/nope".into() };
    refused(n.call::<GetAclStatusResponseProto>("getAclStatus", &acl).await, MISSING, "cannot find /nope");
    refused(
        n.call::<CreateSnapshotResponseProto>(
            "createSnapshot",
            &CreateSnapshotRequestProto { snapshot_root: "/d".into(), snapshot_name: None },
        )
        .await,
        "org.apache.hadoop.hdfs.protocol.SnapshotException",
        "Directory is not a snapshottable directory: /d",
    );
    let zone = CreateEncryptionZoneRequestProto { src: "/d".into(), key_name: None };
    refused(
        n.call::<CreateEncryptionZoneResponseProto>("createEncryptionZone", &zone).await,
        IO,
        "Can't create an encryption zone for /d since no key provider is available.",
    );
    let answer = n.call::<MsyncResponseProto>("noSuchMethod", &MsyncRequestProto {}).await;
    assert!(
        matches!(answer, Err(error) if error.remote_class() == Some("org.apache.hadoop.ipc.RpcNoSuchMethodException"))
    );
}

#[tokio::test]
async fn safe_mode() {
    let (n, _datanodes) = populated().await;
    let set = async |user: &str, action: SafeModeActionProto| {
        let request = SetSafeModeRequestProto { action: action as i32, checked: None };
        n.call_as::<SetSafeModeResponseProto>(user, "setSafeMode", &request).await.map(|answer| answer.result)
    };
    assert!(!set("bob", SafeModeActionProto::Get).await.unwrap());
    refused(
        set("bob", SafeModeActionProto::Enter).await,
        ACCESS,
        "Access denied for user bob. Superuser privilege is required for operation safemode_enter",
    );
    assert!(set("root", SafeModeActionProto::Enter).await.unwrap());
    let first_line = |answer: Result<(), hearth_protocol::rpc::RpcError>| match answer {
        Err(hearth_protocol::rpc::RpcError::Remote(remote)) => {
            assert_eq!(remote.class, SAFE_MODE);
            assert!(remote.message.ends_with("NamenodeHostName:namenode"), "{}", remote.message);
            remote.message.lines().next().unwrap_or_default().to_owned()
        }
        other => panic!("{other:?}"),
    };
    let suffix = "Name node is in safe mode.";
    assert_eq!(first_line(n.mkdirs("/smx").await.map(drop)), format!("Cannot create directory /smx. {suffix}"));
    assert_eq!(first_line(n.mkdirs("/d").await.map(drop)), format!("Cannot create directory /d. {suffix}"));
    assert_eq!(
        first_line(n.delete_as("root", "/nope", true).await.map(drop)),
        format!("Cannot delete /nope. {suffix}")
    );
    assert_eq!(n.locations("/f", 0, 1).await.unwrap().blocks.len(), 1);
    let renew = RenewLeaseRequestProto { client_name: "W".into(), namespaces: Vec::new() };
    let answer = n.call::<RenewLeaseResponseProto>("renewLease", &renew).await;
    assert_eq!(first_line(answer.map(drop)), format!("Cannot renew lease for W. {suffix}"));
    let times = SetTimesRequestProto { src: "/d".into(), mtime: 1, atime: 1 };
    let answer = n.call::<SetTimesResponseProto>("setTimes", &times).await;
    assert_eq!(first_line(answer.map(drop)), format!("Cannot set times /d. {suffix}"));
    let saved: SaveNamespaceResponseProto =
        n.call("saveNamespace", &SaveNamespaceRequestProto::default()).await.unwrap();
    assert!(saved.saved());
    assert!(!set("root", SafeModeActionProto::Leave).await.unwrap());
    n.mkdirs("/smx").await.unwrap();
}

#[tokio::test]
async fn full_directory_allows_only_renames_within() {
    let full = configuration().with("dfs.namenode.fs-limits.max-directory-items", "2");
    let n = TestNamenode::start_with(full, Arc::new(SystemClock::new())).await;
    for path in ["/d/a", "/d/b._COPYING_", "/e"] {
        n.mkdirs(path).await.unwrap();
    }
    assert!(n.rename_as("root", "/d/b._COPYING_", "/d/b").await.unwrap());
    n.rename2("/d/a", "/d/c", false).await.unwrap();
    assert_eq!(n.list("/d", "").await.unwrap().unwrap(), ["b", "c"]);
    let message = |answer: Answer<()>| answer.unwrap_err().to_string();
    assert!(message(n.rename_as("root", "/e", "/d/e").await.map(drop)).contains("limit"));
    assert!(message(n.rename2("/e", "/d/e", false).await).contains("limit"));
}
