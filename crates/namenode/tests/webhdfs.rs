//! WebHDFS requests over HTTP, and answers in the form of Apache's NameNode.

mod support;

use std::sync::Arc;

use hearth_testkit::eventually;
use hearth_types::SystemClock;
use serde_json::{Value, json};
use support::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

struct Told {
    status: u16,
    head: String,
    body: String,
}

impl Told {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    fn location(&self) -> &str {
        self.head.lines().find_map(|line| line.strip_prefix("location: ")).expect("the answer has a location")
    }

    /// Asserts that the answer is a refusal with this status and class, and a message that begins with `message`.
    #[track_caller]
    fn is_refused(&self, status: u16, class: &str, message: &str) {
        assert_eq!(self.status, status, "{}", self.body);
        let told = self.json();
        let refusal = &told["RemoteException"];
        let name = class.rsplit('.').next().unwrap();
        assert_eq!((&refusal["javaClassName"], &refusal["exception"]), (&json!(class), &json!(name)), "{told}");
        assert!(refusal["message"].as_str().unwrap().starts_with(message), "{told}");
    }
}

/// Sends a request. `target` is the part after `/webhdfs/v1`.
async fn ask(n: &TestNamenode, method: &str, target: &str) -> Told {
    let mut socket = tokio::net::TcpStream::connect(n.handle().http_address()).await.unwrap();
    socket.write_all(format!("{method} /webhdfs/v1{target} HTTP/1.0\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Told { status, head: head.to_owned(), body: body.to_owned() }
}

/// Sends a GET request as root, and asserts that it is not refused.
async fn get(n: &TestNamenode, path: &str, query: &str) -> Value {
    let told = ask(n, "GET", &format!("{path}?user.name=root&op={query}")).await;
    assert_eq!(told.status, 200, "{}", told.body);
    told.json()
}

/// Like [`get`], for requests that change something. An empty answer is null.
async fn make(n: &TestNamenode, method: &str, path: &str, query: &str) -> Value {
    let told = ask(n, method, &format!("{path}?user.name=root&op={query}")).await;
    assert_eq!(told.status, 200, "{}", told.body);
    if told.body.is_empty() { Value::Null } else { told.json() }
}

#[tokio::test]
async fn directories_are_created_and_listed() {
    let n = TestNamenode::start_with(configuration().with("dfs.ls.limit", "2"), Arc::new(SystemClock::new())).await;
    for name in ["a", "b", "c%20d", "e", "f"] {
        let made = make(&n, "PUT", &format!("/d/{name}"), "MKDIRS&permission=700").await;
        assert_eq!(made, json!({ "boolean": true }));
    }
    let status = get(&n, "/d", "GETFILESTATUS").await;
    let status = &status["FileStatus"];
    for (name, value) in [
        ("pathSuffix", json!("")),
        ("type", json!("DIRECTORY")),
        ("permission", json!("700")),
        ("owner", json!("root")),
        ("childrenNum", json!(5)),
        ("replication", json!(0)),
    ] {
        assert_eq!(status[name], value, "{name} of {status}");
    }
    // More entries than fit in a page.
    let listing = get(&n, "/d", "LISTSTATUS").await;
    let entries = listing["FileStatuses"]["FileStatus"].as_array().unwrap();
    let names: Vec<&str> = entries.iter().map(|entry| entry["pathSuffix"].as_str().unwrap()).collect();
    assert_eq!(names, ["a", "b", "c d", "e", "f"]);
    assert!(entries.iter().all(|entry| entry["permission"] == "700"));
    assert_eq!(get(&n, "/d/a", "LISTSTATUS").await, json!({ "FileStatuses": { "FileStatus": [] } }));
    let page = get(&n, "/d", "LISTSTATUS_BATCH&startAfter=b").await;
    let page = &page["DirectoryListing"];
    assert_eq!(page["partialListing"]["FileStatuses"]["FileStatus"][0]["pathSuffix"], "c d");
    assert_eq!(page["remainingEntries"], 1);
    let summary = get(&n, "/d", "GETCONTENTSUMMARY").await;
    let summary = &summary["ContentSummary"];
    assert_eq!((&summary["directoryCount"], &summary["quota"]), (&json!(6), &json!(-1)));
    assert_eq!((&summary["typeQuota"], &summary["ecPolicy"]), (&json!({}), &json!("")));
    assert_eq!(get(&n, "/d", "GETQUOTAUSAGE").await["QuotaUsage"]["fileAndDirectoryCount"], 6);

    let missing = ask(&n, "GET", "/nope?op=GETFILESTATUS").await;
    missing.is_refused(404, "java.io.FileNotFoundException", "File does not exist: /nope");
    let missing = ask(&n, "GET", "/nope?op=LISTSTATUS").await;
    missing.is_refused(404, "java.io.FileNotFoundException", "File /nope does not exist.");
}

#[tokio::test]
async fn user_name_parameter_is_trusted() {
    let n = TestNamenode::start().await;
    make(&n, "PUT", "/mine", "MKDIRS&permission=700").await;
    let access = "org.apache.hadoop.security.AccessControlException";
    let denied = ask(&n, "PUT", "/mine/x?op=MKDIRS&user.name=bob").await;
    denied.is_refused(403, access, "Permission denied: user=bob, access=");
    let denied = ask(&n, "GET", "/mine?op=LISTSTATUS").await;
    denied.is_refused(403, access, "Permission denied: user=dr.who, access=");
    assert_eq!(ask(&n, "GET", "/?op=GETHOMEDIRECTORY").await.json(), json!({ "Path": "/user/dr.who" }));
    assert_eq!(get(&n, "/", "GETTRASHROOT").await, json!({ "Path": "/user/root/.Trash" }));
    let denied = ask(&n, "GET", "/mine?op=LISTSTATUS&user.name=bob&doas=root").await;
    let class = "org.apache.hadoop.security.authorize.AuthorizationException";
    denied.is_refused(403, class, "User: bob is not allowed to impersonate root");
    assert_eq!(get(&n, "/mine", "LISTSTATUS&doas=root").await, json!({ "FileStatuses": { "FileStatus": [] } }));
    assert_eq!(ask(&n, "GET", "/mine?op=CHECKACCESS&fsaction=rwx&user.name=root").await.body, "");
    let denied = ask(&n, "GET", "/mine?op=CHECKACCESS&fsaction=r--&user.name=bob").await;
    denied.is_refused(403, access, "Permission denied: user=bob, access=READ");
    assert_eq!(get(&n, "/", "GETDELEGATIONTOKEN&renewer=yarn").await, json!({ "Token": null }));
}

#[tokio::test]
async fn invalid_requests_are_refused() {
    let n = TestNamenode::start().await;
    let illegal = "java.lang.IllegalArgumentException";
    let unsupported = "java.lang.UnsupportedOperationException";
    ask(&n, "GET", "/").await.is_refused(400, unsupported, "NULL is not supported");
    for (method, query, message) in [
        ("GET", "op=mkdirs", "Invalid value for webhdfs parameter \"op\": mkdirs is not a valid GET operation."),
        ("POST", "op=OPEN", "Invalid value for webhdfs parameter \"op\": OPEN is not a valid POST operation."),
        ("PUT", "op=RENAME", "Required param destination for op: RENAME is null or empty"),
        ("PUT", "op=RENAME&destination=x", "Invalid value for webhdfs parameter \"destination\": "),
        ("PUT", "op=SETOWNER", "Both owner and group are empty."),
        ("GET", "op=GETXATTRS", "Required param encoding for op: GETXATTRS is null or empty"),
        ("GET", "op=CHECKACCESS&fsaction=rw", "Invalid value for webhdfs parameter \"fsaction\": Invalid value: "),
        ("PUT", "op=MKDIRS&permission=9", "Invalid value for webhdfs parameter \"permission\": Failed to parse"),
        ("POST", "op=TRUNCATE", "Required param newlength for op: TRUNCATE is null or empty"),
        ("DELETE", "op=DELETE&recursive=1", "Invalid value for webhdfs parameter \"recursive\": Failed to parse"),
        // Parameters of the method's other operations are validated, too.
        ("GET", "op=GETFILESTATUS&offset=x", "Invalid value for webhdfs parameter \"offset\": Failed to parse \"x\""),
        ("GET", "op=LISTSTATUS&fsaction=xyz", "Invalid value for webhdfs parameter \"fsaction\": Invalid value: \"xyz"),
        ("GET", "op=CHECKACCESS&fsaction=", "Required param fsaction for op: CHECKACCESS is null or empty"),
        ("GET", "op=LISTSTATUS&encoding=none", "Invalid value for webhdfs parameter \"encoding\": No enum constant"),
        ("PUT", "op=MKDIRS&replication=0", "Invalid value for webhdfs parameter \"replication\": Invalid parameter"),
        ("PUT", "op=MKDIRS&destination=x", "Invalid value for webhdfs parameter \"destination\": Invalid parameter"),
        ("PUT", "op=MKDIRS&aclspec=x", "Invalid value for webhdfs parameter \"aclspec\": Invalid value: \"x\""),
        ("POST", "op=UNSETSTORAGEPOLICY&newlength=x", "Invalid value for webhdfs parameter \"newlength\": Failed"),
        ("DELETE", "op=DELETESNAPSHOT&recursive=1", "Invalid value for webhdfs parameter \"recursive\": Failed"),
    ] {
        ask(&n, method, &format!("/x?user.name=root&{query}")).await.is_refused(400, illegal, message);
    }
    let symlink = ask(&n, "PUT", "/x?op=CREATESYMLINK&destination=/y&user.name=root").await;
    symlink.is_refused(400, unsupported, "Symlinks not supported");
    let path = ask(&n, "GET", "/a//b?op=OPEN").await;
    path.is_refused(400, "org.apache.hadoop.fs.InvalidPathException", "Invalid path name /a//b");
    let patch = ask(&n, "PATCH", "/x?op=OPEN").await;
    assert!(patch.status == 405 && patch.head.contains("allow: GET, HEAD, PUT, POST, DELETE"), "{}", patch.head);
    // Parameters of other methods are ignored.
    assert_eq!(get(&n, "/", "LISTSTATUS&permission=9").await, json!({ "FileStatuses": { "FileStatus": [] } }));
}

#[tokio::test]
async fn request_with_body_gets_answer() {
    let n = TestNamenode::start().await;
    let _datanode = TestDatanode::join(&n, 1).await;
    let mut socket = tokio::net::TcpStream::connect(n.handle().http_address()).await.unwrap();
    let body = vec![7u8; 3 << 20];
    let head = format!("PUT /webhdfs/v1/f?op=CREATE HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", body.len());
    socket.write_all(head.as_bytes()).await.unwrap();
    socket.write_all(&body).await.unwrap();
    let mut answer = [0; 12];
    socket.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 307");
}

#[tokio::test]
async fn attributes_are_changed_and_reported() {
    let n = TestNamenode::start().await;
    let datanodes = vec![TestDatanode::join(&n, 1).await];
    n.write(&datanodes, "/d/f", 100).await;
    for query in [
        "SETPERMISSION&permission=640",
        "SETOWNER&owner=bob&group=users",
        "SETTIMES&modificationtime=1000&accesstime=2000",
        "SETXATTR&xattr.name=user.a&xattr.value=0x6162&flag=CREATE",
        "SETACL&aclspec=user::rw-,group::r--,other::---,user:alice:r--",
    ] {
        assert_eq!(make(&n, "PUT", "/d/f", query).await, Value::Null, "{query}");
    }
    assert_eq!(make(&n, "PUT", "/d/f", "SETREPLICATION&replication=3").await, json!({ "boolean": true }));
    let status = get(&n, "/d/f", "GETFILESTATUS").await;
    let status = &status["FileStatus"];
    for (name, value) in [
        ("type", json!("FILE")),
        ("length", json!(100)),
        ("owner", json!("bob")),
        ("group", json!("users")),
        ("permission", json!("640")),
        ("modificationTime", json!(1000)),
        ("accessTime", json!(2000)),
        ("replication", json!(3)),
        ("blockSize", json!(MIB)),
        ("aclBit", json!(true)),
    ] {
        assert_eq!(status[name], value, "{name} of {status}");
    }
    let acl = get(&n, "/d/f", "GETACLSTATUS").await;
    let entries = json!(["user:alice:r--", "group::r--"]);
    let wanted = json!({ "AclStatus": {
        "owner": "bob", "group": "users", "permission": "640", "stickyBit": false, "entries": entries,
    }});
    assert_eq!(acl, wanted);
    for (encoding, value) in [("text", "\"ab\""), ("HEX", "0x6162"), ("base64", "0sYWI=")] {
        let found = get(&n, "/d/f", &format!("GETXATTRS&xattr.name=user.a&encoding={encoding}")).await;
        assert_eq!(found, json!({ "XAttrs": [{ "name": "user.a", "value": value }] }));
    }
    assert_eq!(get(&n, "/d/f", "LISTXATTRS").await, json!({ "XAttrNames": "[\"user.a\"]" }));
    make(&n, "PUT", "/d/f", "REMOVEXATTR&xattr.name=user.a").await;
    assert_eq!(get(&n, "/d/f", "LISTXATTRS").await, json!({ "XAttrNames": "[]" }));

    make(&n, "PUT", "/d", "SETSTORAGEPOLICY&storagepolicy=COLD").await;
    let policy = get(&n, "/d", "GETSTORAGEPOLICY").await;
    let wanted = json!({ "BlockStoragePolicy": {
        "id": 2, "name": "COLD", "storageTypes": ["ARCHIVE"], "creationFallbacks": [], "replicationFallbacks": [],
        "copyOnCreateFile": false,
    }});
    assert_eq!(policy, wanted);
    make(&n, "POST", "/d", "UNSETSTORAGEPOLICY").await;
    let policies = get(&n, "/", "GETALLSTORAGEPOLICY").await;
    assert!(policies["BlockStoragePolicies"]["BlockStoragePolicy"].as_array().unwrap().len() > 5);
    make(&n, "PUT", "/d", "SETQUOTA&namespacequota=10").await;
    make(&n, "PUT", "/d", "SETQUOTABYSTORAGETYPE&storagespacequota=1000000&storagetype=ssd").await;
    let usage = get(&n, "/d", "GETQUOTAUSAGE").await;
    assert_eq!((&usage["QuotaUsage"]["quota"], &usage["QuotaUsage"]["spaceQuota"]), (&json!(10), &json!(-1)));
    assert_eq!(usage["QuotaUsage"]["typeQuota"], json!({ "SSD": { "consumed": 0, "quota": 1_000_000 } }));
    assert_eq!(get(&n, "/", "GETSERVERDEFAULTS").await["FsServerDefaults"]["replication"], 2);
    assert_eq!(get(&n, "/d/f", "GETECPOLICY").await, Value::Null);
    assert!(get(&n, "/", "GETSTATUS").await["FsStatus"]["capacity"].as_u64().unwrap() > 0);

    let renamed = make(&n, "PUT", "/d/f", "RENAME&destination=/d//g/").await;
    assert_eq!(renamed, json!({ "boolean": true }));
    assert_eq!(make(&n, "PUT", "/d/g", "RENAME&destination=/d/h&renameoptions=overwrite").await, Value::Null);
    assert_eq!(make(&n, "DELETE", "/d/h", "DELETE").await, json!({ "boolean": true }));
    assert_eq!(make(&n, "DELETE", "/d/h", "DELETE").await, json!({ "boolean": false }));
    make(&n, "PUT", "/user/ann/.Trash", "MKDIRS").await;
    let roots = get(&n, "/", "GETTRASHROOTS&allusers=true").await;
    assert_eq!(roots["Paths"][0]["path"], "/user/ann/.Trash");
    assert_eq!(get(&n, "/", "GETTRASHROOTS").await, json!({ "Paths": null }));
}

#[tokio::test]
async fn snapshots_are_made_compared_and_removed() {
    let n = TestNamenode::start().await;
    make(&n, "PUT", "/s/a", "MKDIRS").await;
    let none = get(&n, "/", "GETSNAPSHOTTABLEDIRECTORYLIST").await;
    assert_eq!(none, json!({ "SnapshottableDirectoryList": null }));
    make(&n, "PUT", "/s", "ALLOWSNAPSHOT").await;
    let made = make(&n, "PUT", "/s", "CREATESNAPSHOT&snapshotname=one").await;
    assert_eq!(made, json!({ "Path": "/s/.snapshot/one" }));
    make(&n, "PUT", "/s/b", "MKDIRS").await;
    make(&n, "PUT", "/s/a", "RENAME&destination=/s/c").await;
    make(&n, "PUT", "/s", "CREATESNAPSHOT&snapshotname=2").await;
    make(&n, "PUT", "/s", "RENAMESNAPSHOT&oldsnapshotname=2&snapshotname=two").await;
    let diff = get(&n, "/s", "GETSNAPSHOTDIFF&oldsnapshotname=one&snapshotname=two").await;
    let wanted = json!({ "SnapshotDiffReport": {
        "snapshotRoot": "/s", "fromSnapshot": "one", "toSnapshot": "two", "diffList": [
            { "type": "MODIFY", "sourcePath": "" },
            { "type": "CREATE", "sourcePath": "b" },
            { "type": "RENAME", "sourcePath": "a", "targetPath": "c" },
        ],
    }});
    assert_eq!(diff, wanted);
    let listing = get(&n, "/s", "GETSNAPSHOTDIFFLISTING&oldsnapshotname=one&snapshotname=two").await;
    let listing = &listing["SnapshotDiffReportListing"];
    assert_eq!((&listing["lastIndex"], &listing["lastPath"]), (&json!(-1), &json!("")));
    let counts = ["modifyList", "createList", "deleteList"].map(|name| listing[name].as_array().unwrap().len());
    assert_eq!(counts, [1, 2, 1]);
    let snapshots = get(&n, "/s", "GETSNAPSHOTLIST").await;
    let first = &snapshots["SnapshotList"][0];
    let told = (&first["fullPath"], &first["deletionStatus"]);
    assert_eq!(told, (&json!("/s/.snapshot/one"), &json!("ACTIVE")));
    let directories = get(&n, "/", "GETSNAPSHOTTABLEDIRECTORYLIST").await;
    let first = &directories["SnapshottableDirectoryList"][0];
    let told = (&first["parentFullPath"], &first["dirStatus"]["pathSuffix"], &first["snapshotNumber"]);
    assert_eq!(told, (&json!("/"), &json!("s"), &json!(2)));
    for name in ["one", "two"] {
        make(&n, "DELETE", "/s", &format!("DELETESNAPSHOT&snapshotname={name}")).await;
    }
    make(&n, "PUT", "/s", "DISALLOWSNAPSHOT").await;
}

#[tokio::test]
async fn clients_are_redirected_to_datanodes() {
    let n = TestNamenode::start().await;
    let io = "java.io.IOException";
    let nobody = ask(&n, "PUT", "/f?op=CREATE&user.name=root").await;
    nobody.is_refused(403, io, "Failed to find datanode, suggest to check cluster health. excludeDatanodes=null");
    let datanodes = vec![TestDatanode::join(&n, 1).await];
    let rpc = n.handle().rpc_address();
    let to = |path: &str, query: &str| format!("http://dn1:11001/webhdfs/v1{path}?{query}");
    let created = ask(&n, "PUT", "/a%20b?op=create&user.name=bob&permission=640&createflag=create,overwrite").await;
    assert_eq!((created.status, created.body.as_str()), (307, ""));
    let query = format!(
        "op=CREATE&user.name=bob&namenoderpcaddress={rpc}&createflag=CREATE%2COVERWRITE&createparent=true&\
         overwrite=false&permission=640"
    );
    assert_eq!(created.location(), to("/a%20b", &query));
    let created = ask(&n, "PUT", "/f?op=CREATE&storagepolicy=COLD&ecpolicy=RS-3-2-1024k").await;
    let query = format!(
        "op=CREATE&namenoderpcaddress={rpc}&createflag=&createparent=true&ecpolicy=RS-3-2-1024k&overwrite=false&\
         storagepolicy=COLD"
    );
    assert_eq!(created.location(), to("/f", &query));
    let nobody = ask(&n, "PUT", "/f?op=CREATE&excludedatanodes=127.0.0.1:10001").await;
    let said = "Failed to find datanode, suggest to check cluster health. excludeDatanodes=127.0.0.1:10001";
    nobody.is_refused(403, io, said);
    // Java's client excludes a DataNode when it retries: it is avoided if there is another one.
    assert_eq!(ask(&n, "PUT", "/f?op=CREATE&excludedatanodes=dn1:11001").await.status, 307);

    n.write(&datanodes, "/f", 100).await;
    let opened = ask(&n, "GET", "/f?op=OPEN&offset=10&length=5&user.name=root").await;
    assert_eq!(opened.status, 307);
    let query = format!("op=OPEN&user.name=root&namenoderpcaddress={rpc}&length=5&offset=10");
    assert_eq!(opened.location(), to("/f", &query));
    let told = ask(&n, "GET", "/f?op=OPEN&noredirect=true").await;
    let query = format!("op=OPEN&namenoderpcaddress={rpc}&offset=0");
    assert_eq!((told.status, told.json()), (200, json!({ "Location": to("/f", &query) })));
    let checked = ask(&n, "GET", "/f?op=GETFILECHECKSUM").await;
    assert_eq!(checked.location(), to("/f", &format!("op=GETFILECHECKSUM&namenoderpcaddress={rpc}")));
    let appended = ask(&n, "POST", "/f?op=APPEND&buffersize=4096").await;
    assert_eq!(appended.location(), to("/f", &format!("op=APPEND&namenoderpcaddress={rpc}&buffersize=4096")));
    n.write(&datanodes, "/empty", 0).await;
    assert_eq!(ask(&n, "GET", "/empty?op=OPEN").await.status, 307);

    let outside = ask(&n, "GET", "/f?op=OPEN&offset=100").await;
    outside.is_refused(403, io, "Offset=100 out of the range [0, 100); OPEN, path=/f");
    let missing = ask(&n, "GET", "/nope?op=OPEN").await;
    missing.is_refused(404, "java.io.FileNotFoundException", "File /nope not found.");
    let nobody = ask(&n, "GET", "/f?op=OPEN&excludedatanodes=127.0.0.1").await;
    nobody.is_refused(403, io, "No active nodes contain this block");

    let located = get(&n, "/f", "GET_BLOCK_LOCATIONS").await;
    let located = &located["LocatedBlocks"];
    assert_eq!((&located["fileLength"], &located["isUnderConstruction"]), (&json!(100), &json!(false)));
    assert_eq!(located["locatedBlocks"][0]["locations"][0]["infoPort"], 11001);
    assert_eq!(located["lastLocatedBlock"]["block"]["numBytes"], 100);
    let located = get(&n, "/f", "GETFILEBLOCKLOCATIONS&offset=0&length=1").await;
    let first = &located["BlockLocations"]["BlockLocation"][0];
    assert_eq!((&first["hosts"], &first["length"], &first["offset"]), (&json!(["dn1"]), &json!(100), &json!(0)));
    assert_eq!(first["topologyPaths"], json!(["/default-rack/127.0.0.1:10001"]));
}

#[tokio::test]
async fn audit_log_names_webhdfs() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("audit.log");
    let configuration = configuration().with("hearth.namenode.audit.log", log.to_str().unwrap());
    let n = TestNamenode::start_with(configuration, Arc::new(SystemClock::new())).await;
    make(&n, "PUT", "/d", "MKDIRS&permission=700").await;
    ask(&n, "DELETE", "/d?op=DELETE&user.name=bob").await;
    let lines = eventually("two audit lines", async || {
        let text = std::fs::read_to_string(&log).unwrap();
        let lines: Vec<String> =
            text.lines().filter_map(|line| Some(line[line.find("allowed=")?..].to_owned())).collect();
        (lines.len() >= 2).then_some(lines)
    })
    .await;
    let line = |allowed: bool, user: &str, command: &str, permissions: &str| {
        format!(
            "allowed={allowed}\tugi={user} (auth:SIMPLE)\tip=/127.0.0.1\tcmd={command}\tsrc=/d\tdst=null\t\
             perm={permissions}\tproto=webhdfs"
        )
    };
    let expected = [line(true, "root", "mkdirs", "root:supergroup:rwx------"), line(false, "bob", "delete", "null")];
    assert_eq!(lines, expected);
}
