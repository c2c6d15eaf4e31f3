//! Extended attributes, ACLs and quotas: the answers of Apache's NameNode, and their persistence over a restart.

mod support;

use hearth_types::FsPermission;
use hearth_wire::proto::hdfs::*;
use support::{Answer, MIB, TestDatanode, TestNamenode, refused};

const ACCESS: &str = "org.apache.hadoop.security.AccessControlException";
const IO: &str = "java.io.IOException";
const MISSING: &str = "java.io.FileNotFoundException";
const ILLEGAL: &str = "HadoopIllegalArgumentException";

const USER: i32 = 0;
const TRUSTED: i32 = 1;
const SYSTEM: i32 = 3;
const CREATE: u32 = 1;
const REPLACE: u32 = 2;

fn xattr(namespace: i32, name: &str, value: Option<&[u8]>) -> XAttrProto {
    XAttrProto { namespace, name: name.into(), value: value.map(|value| value.to_vec().into()) }
}

async fn set_xattr(n: &TestNamenode, user: &str, path: &str, attribute: XAttrProto, flag: u32) -> Answer<()> {
    let request = SetXAttrRequestProto { src: path.into(), xattr: Some(attribute), flag: Some(flag) };
    n.call_as::<SetXAttrResponseProto>(user, "setXAttr", &request).await.map(drop)
}

async fn get_xattrs(n: &TestNamenode, user: &str, path: &str, names: &[&str]) -> Answer<Vec<(String, Vec<u8>)>> {
    let xattrs = names.iter().map(|name| xattr(USER, name, None)).collect();
    let request = GetXAttrsRequestProto { src: path.into(), xattrs };
    let answer: GetXAttrsResponseProto = n.call_as(user, "getXAttrs", &request).await?;
    let value = |xattr: XAttrProto| (xattr.name, xattr.value.map(|value| value.to_vec()).unwrap_or_default());
    Ok(answer.xattrs.into_iter().map(value).collect())
}

async fn remove_xattr(n: &TestNamenode, path: &str, name: &str) -> Answer<()> {
    let request = RemoveXAttrRequestProto { src: path.into(), xattr: Some(xattr(USER, name, None)) };
    n.call::<RemoveXAttrResponseProto>("removeXAttr", &request).await.map(drop)
}

#[tokio::test]
async fn extended_attributes() {
    let mut n = TestNamenode::start().await;
    n.mkdirs("/d").await.unwrap();
    assert_eq!(get_xattrs(&n, "root", "/d", &[]).await.unwrap(), []);
    refused(
        get_xattrs(&n, "root", "/d", &["k"]).await,
        "org.apache.hadoop.hdfs.protocol.XAttrNotFoundException",
        "At least one of the attributes provided was not found.",
    );
    refused(remove_xattr(&n, "/d", "k").await, IO, "No matching attributes found for remove operation");
    let set = async |namespace, name: &str, value: &[u8], flag| {
        set_xattr(&n, "root", "/d", xattr(namespace, name, Some(value)), flag).await
    };
    let missing = "XAttr: k does not exist. The CREATE flag must be specified.";
    refused(set(USER, "k", b"v", REPLACE).await, IO, missing);
    set(USER, "k", b"v", CREATE).await.unwrap();
    let exists = "XAttr: k already exists. The REPLACE flag must be specified.";
    refused(set(USER, "k", b"w", CREATE).await, IO, exists);
    refused(set(USER, "k", b"w", 0).await, ILLEGAL, "A flag must be specified.");
    set(USER, "k", b"w", CREATE | REPLACE).await.unwrap();
    let denied = "User doesn't have permission for xattr: system.k";
    refused(set(SYSTEM, "k", b"w", CREATE).await, ACCESS, denied);
    let trusted = xattr(TRUSTED, "k", Some(b"t"));
    let denied = "User doesn't have permission for xattr: trusted.k";
    refused(set_xattr(&n, "bob", "/d", trusted, CREATE).await, ACCESS, denied);
    set(TRUSTED, "t", b"t", CREATE).await.unwrap();
    let big =
        "The XAttr is too big. The maximum combined size of the name and value is 16384, but the total size is 17001";
    refused(set(USER, "k", &[0; 17000], REPLACE).await, ILLEGAL, big);
    for number in 2..32 {
        set(USER, &format!("n{number}"), b"", CREATE).await.unwrap();
    }
    let full = "Cannot add additional XAttr to inode, would exceed limit of 32";
    refused(set(USER, "more", b"", CREATE).await, IO, full);
    refused(get_xattrs(&n, "root", "/nope", &[]).await, MISSING, "cannot find /nope");
    // Only superusers see trusted attributes, and only users with write permission may set any.
    assert_eq!(get_xattrs(&n, "bob", "/d", &[]).await.unwrap().len(), 31);
    refused(
        set_xattr(&n, "bob", "/d", xattr(USER, "b", None), CREATE).await,
        ACCESS,
        "Permission denied: user=bob, access=WRITE, inode=\"/d\":root:supergroup:drwxr-xr-x",
    );
    remove_xattr(&n, "/d", "n2").await.unwrap();
    n.restart().await;
    assert_eq!(get_xattrs(&n, "root", "/d", &[]).await.unwrap().len(), 31);
    assert_eq!(get_xattrs(&n, "root", "/d", &["k"]).await.unwrap(), [("k".to_owned(), b"w".to_vec())]);
}

/// Parses `user:bob:rwx`, `default:group::r-x`.
fn acl_entry(text: &str) -> AclEntryProto {
    let (scope, text) = text.strip_prefix("default:").map_or((0, text), |rest| (1, rest));
    let parts: Vec<&str> = text.split(':').collect();
    let kinds = ["user", "group", "mask", "other"];
    let bit = |(at, letter)| if parts[2].as_bytes()[at] == letter { 4 >> at } else { 0 };
    AclEntryProto {
        r#type: kinds.iter().position(|kind| *kind == parts[0]).unwrap() as i32,
        scope,
        permissions: [b'r', b'w', b'x'].into_iter().enumerate().map(bit).sum(),
        name: (!parts[1].is_empty()).then(|| parts[1].to_owned()),
    }
}

async fn acl(n: &TestNamenode, path: &str) -> (u32, Vec<AclEntryProto>) {
    let request = GetAclStatusRequestProto { src: path.into() };
    let answer: GetAclStatusResponseProto = n.call("getAclStatus", &request).await.unwrap();
    (answer.result.permission.unwrap().perm, answer.result.entries)
}

fn acl_entries(texts: &[&str]) -> Vec<AclEntryProto> {
    texts.iter().map(|text| acl_entry(text)).collect()
}

async fn modify_acl(n: &TestNamenode, path: &str, entries: &[&str]) -> Answer<()> {
    let request = ModifyAclEntriesRequestProto { src: path.into(), acl_spec: acl_entries(entries) };
    n.call::<ModifyAclEntriesResponseProto>("modifyAclEntries", &request).await.map(drop)
}

async fn set_acl(n: &TestNamenode, path: &str, entries: &[&str]) -> Answer<()> {
    let request = SetAclRequestProto { src: path.into(), acl_spec: acl_entries(entries) };
    n.call::<SetAclResponseProto>("setAcl", &request).await.map(drop)
}

#[tokio::test]
async fn access_control_lists() {
    const ACL: &str = "org.apache.hadoop.hdfs.protocol.AclException";
    let mut n = TestNamenode::start().await;
    n.mkdirs_as("root", "/d", 0o750, true).await.unwrap();
    n.create("/f", "W", 1).await.unwrap();
    assert_eq!(acl(&n, "/f").await, (0o644, vec![]));
    let default = "Invalid ACL: only directories may have a default ACL. Path: /f Path: /f";
    refused(modify_acl(&n, "/f", &["default:user:bob:rwx"]).await, ACL, default);
    let incomplete = "Invalid ACL: the user, group and other entries are required. Path: /f";
    refused(set_acl(&n, "/f", &["user:bob:rwx"]).await, ACL, incomplete);
    modify_acl(&n, "/f", &["user:bob:rwx"]).await.unwrap();
    assert_eq!(acl(&n, "/f").await, (0o674, acl_entries(&["user:bob:rwx", "group::r--"])));
    assert_eq!(n.info("/f").await.unwrap().unwrap().flags, Some(1));

    // Bob has access by its named entry, limited by the mask; a group member has access by the group's entry.
    let access = async |user: &str, mode: i32| {
        let request = CheckAccessRequestProto { path: "/d".into(), mode };
        n.call_as::<CheckAccessResponseProto>(user, "checkAccess", &request).await.map(drop)
    };
    let refusal = |user: &str, mode: &str, more: &str| {
        format!("Permission denied: user={user}, access={mode}, inode=\"/d\":root:supergroup:drwx{more}")
    };
    refused(access("bob", 5).await, ACCESS, &refusal("bob", "READ_EXECUTE", "r-x---"));
    modify_acl(&n, "/d", &["user:bob:r-x", "default:user:bob:rwx"]).await.unwrap();
    access("bob", 5).await.unwrap();
    refused(access("bob", 2).await, ACCESS, &refusal("bob", "WRITE", "r-x---+"));
    refused(access("alice", 1).await, ACCESS, &refusal("alice", "EXECUTE", "r-x---+"));
    modify_acl(&n, "/d", &["group:users:--x"]).await.unwrap();
    access("alice", 1).await.unwrap();
    modify_acl(&n, "/d", &["mask::r--"]).await.unwrap();
    refused(access("bob", 1).await, ACCESS, &refusal("bob", "EXECUTE", "r-----+"));

    // A new inode in the directory inherits the default entries, and the umask is ignored.
    let stored = acl_entries(&[
        "default:user::rwx",
        "default:user:bob:rwx",
        "default:group::r-x",
        "default:mask::rwx",
        "default:other::---",
    ]);
    let request = MkdirsRequestProto {
        src: "/d/in".into(),
        masked: FsPermissionProto { perm: 0o755 },
        create_parent: false,
        unmasked: Some(FsPermissionProto { perm: 0o777 }),
    };
    n.call::<MkdirsResponseProto>("mkdirs", &request).await.unwrap();
    let mut inherited = acl_entries(&["user:bob:rwx", "group::r-x"]);
    inherited.extend(stored.clone());
    assert_eq!(acl(&n, "/d/in").await, (0o770, inherited));
    n.restart().await;
    let mut all = acl_entries(&["user:bob:r-x", "group::r-x", "group:users:--x"]);
    all.extend(stored);
    assert_eq!(acl(&n, "/d").await, (0o740, all));
    let request = RemoveDefaultAclRequestProto { src: "/d".into() };
    n.call::<RemoveDefaultAclResponseProto>("removeDefaultAcl", &request).await.unwrap();
    let needed = "Invalid ACL: mask is required and cannot be deleted. Path: /d";
    let remove = async |entries: &[&str]| {
        let request = RemoveAclEntriesRequestProto { src: "/d".into(), acl_spec: acl_entries(entries) };
        n.call::<RemoveAclEntriesResponseProto>("removeAclEntries", &request).await.map(drop)
    };
    refused(remove(&["mask::---"]).await, ACL, needed);
    remove(&["user:bob:---"]).await.unwrap();
    assert_eq!(acl(&n, "/d").await, (0o750, acl_entries(&["group::r-x", "group:users:--x"])));
    n.call::<RemoveAclResponseProto>("removeAcl", &RemoveAclRequestProto { src: "/d".into() }).await.unwrap();
    assert_eq!(acl(&n, "/d").await, (0o750, vec![]));
}

#[tokio::test]
async fn quotas() {
    const KEEP: u64 = i64::MAX as u64;
    const CLEAR: u64 = u64::MAX;
    const NAMES: &str = "org.apache.hadoop.hdfs.protocol.NSQuotaExceededException";
    const SPACE: &str = "org.apache.hadoop.hdfs.protocol.DSQuotaExceededException";
    let mut n = TestNamenode::start().await;
    let datanodes = [TestDatanode::join(&n, 1).await, TestDatanode::join(&n, 2).await];
    let request = |path: &str, names: u64, space: u64| SetQuotaRequestProto {
        path: path.into(),
        namespace_quota: names,
        storagespace_quota: space,
        storage_type: None,
    };
    n.create("/f", "W", 1).await.unwrap();
    n.mkdirs("/qn").await.unwrap();
    n.mkdirs("/other/a/b/c").await.unwrap();
    let set = async |user: &str, request: SetQuotaRequestProto| {
        n.call_as::<SetQuotaResponseProto>(user, "setQuota", &request).await.map(drop)
    };
    let not_directory = "org.apache.hadoop.fs.PathIsNotDirectoryException";
    refused(set("root", request("/f", 1, KEEP)).await, not_directory, "`/f': Is not a directory");
    refused(set("root", request("/nope", 1, KEEP)).await, MISSING, "Directory does not exist: /nope");
    let denied = "Access denied for user bob. Superuser privilege is required for operation setQuota";
    refused(set("bob", request("/qn", 1, KEEP)).await, ACCESS, denied);
    let illegal = "Illegal value for nsQuota or ssQuota : -5 and 1";
    refused(set("root", request("/qn", -5i64 as u64, 1)).await, "IllegalArgumentException", illegal);
    set("root", request("/qn", 2, MIB)).await.unwrap();
    n.mkdirs("/qn/a").await.unwrap();
    let full = |count| {
        format!("The NameSpace quota (directories and files) of directory /qn is exceeded: quota=2 file count={count}")
    };
    refused(n.mkdirs("/qn/b").await, NAMES, &full(3));
    assert!(n.delete_as("root", "/qn/a", true).await.unwrap());
    refused(n.rename_as("root", "/other/a", "/qn/a").await, NAMES, &full(4));
    n.create_request("root", CreateRequestProto { replication: 2, ..support::new_file("/qn/r2", "W", 1) })
        .await
        .unwrap();
    refused(
        n.add_block("/qn/r2", "W", None).await,
        SPACE,
        "The DiskSpace quota of /qn is exceeded: quota = 1048576 B = 1 MB but diskspace consumed = 2097152 B = 2 MB",
    );
    assert!(n.delete_as("root", "/qn/r2", true).await.unwrap());
    n.write(&datanodes, "/qn/r1", 100).await;
    let usage = async |n: &TestNamenode| {
        let request = GetQuotaUsageRequestProto { path: "/qn".into() };
        let usage = n.call::<GetQuotaUsageResponseProto>("getQuotaUsage", &request).await.unwrap().usage;
        (usage.file_and_directory_count, usage.quota, usage.space_consumed, usage.space_quota)
    };
    let (names, quota, space, space_quota) = usage(&n).await;
    assert_eq!((names, quota, space_quota), (2, 2, MIB));
    assert!((100..MIB).contains(&space), "{space}");
    n.restart().await;
    assert_eq!(usage(&n).await, (2, 2, space, MIB));
    refused(n.mkdirs("/qn/b").await, NAMES, &full(3));
    n.call::<SetQuotaResponseProto>("setQuota", &request("/qn", CLEAR, CLEAR)).await.unwrap();
    n.mkdirs("/qn/b").await.unwrap();
    assert_eq!(usage(&n).await, (3, CLEAR, space, CLEAR));
}

async fn set_policy_as(n: &TestNamenode, user: &str, path: &str, policy: &str) -> Answer<()> {
    let request = SetStoragePolicyRequestProto { src: path.into(), policy_name: policy.into() };
    n.call_as::<SetStoragePolicyResponseProto>(user, "setStoragePolicy", &request).await.map(drop)
}

#[tokio::test]
async fn moved_blocks_take_policy_of_new_place() {
    let mut n = TestNamenode::start().await;
    let datanodes = vec![TestDatanode::join(&n, 1).await];
    for path in ["/hot/f", "/hot/sub/g", "/hot/own/h", "/hot/target", "/hot/source"] {
        n.write(&datanodes, path, 100).await;
    }
    n.mkdirs("/cold").await.unwrap();
    for (path, policy) in [("/cold", "COLD"), ("/hot/own", "WARM"), ("/hot/target", "ALL_SSD")] {
        set_policy_as(&n, "root", path, policy).await.unwrap();
    }
    n.rename2("/hot/f", "/cold/f", false).await.unwrap();
    // The old rename moves it into the directory.
    assert!(n.rename_as("root", "/hot/sub", "/cold").await.unwrap());
    n.rename2("/hot/own", "/cold/own", false).await.unwrap();
    let request = ConcatRequestProto { trg: "/hot/target".into(), srcs: vec!["/hot/source".into()] };
    n.call::<ConcatResponseProto>("concat", &request).await.unwrap();
    for again in [false, true] {
        if again {
            n.restart().await;
        }
        let state = n.handle().namenode().read();
        for (path, wanted) in
            [("/cold/f", &[2][..]), ("/cold/sub/g", &[2]), ("/cold/own/h", &[5]), ("/hot/target", &[12, 12])]
        {
            let file = state.namespace.inode(state.namespace.lookup(path).unwrap()).as_file().unwrap();
            let policies: Vec<u8> = file.blocks().iter().map(|block| state.blocks.policy(block.id).unwrap()).collect();
            assert_eq!(policies, wanted, "{path}, after a restart: {again}");
        }
    }
}

#[tokio::test]
async fn denied_policy_change_reveals_nothing() {
    let n = TestNamenode::start().await;
    n.mkdirs("/closed").await.unwrap();
    n.create("/closed/f", "W", 1).await.unwrap();
    n.set_permission("/closed", FsPermission(0o700)).await.unwrap();
    for path in ["/closed/f", "/closed/missing"] {
        for policy in ["LAZY_PERSIST", "COLD"] {
            let error = set_policy_as(&n, "bob", path, policy).await.unwrap_err();
            let class = Some("org.apache.hadoop.security.AccessControlException");
            assert_eq!(error.remote_class(), class, "{path} {policy}: {error}");
        }
    }
}
