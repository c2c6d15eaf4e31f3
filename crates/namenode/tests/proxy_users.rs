//! Users that act for others: `hadoop.proxyuser.*`, over RPC, WebHDFS and fsck. The texts are those of Apache's
//! NameNode 3.4.2.

mod support;

use std::path::Path;
use std::sync::Arc;

use hearth_config::{Configuration, Environment};
use hearth_protocol::rpc::{RpcClient, RpcClientOptions, Target};
use hearth_testkit::eventually;
use hearth_types::SystemClock;
use hearth_wire::proto::common::{
    RefreshSuperUserGroupsConfigurationRequestProto, RefreshSuperUserGroupsConfigurationResponseProto,
};
use hearth_wire::proto::hdfs::*;
use hearth_wire::rpc::protocols;
use support::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const AUTHORIZATION: &str = "org.apache.hadoop.security.authorize.AuthorizationException";

/// Allows `alice` to act for `bob`, `carol` for members of `users`, `dave` for all users from another network, `root`
/// for all users.
fn rules() -> Configuration {
    configuration()
        .with("hadoop.user.group.static.mapping.overrides", "root=root;bob=users;zoe=guests;eve=supergroup")
        .with("hadoop.proxyuser.alice.users", "bob")
        .with("hadoop.proxyuser.alice.hosts", "127.0.0.0/8")
        .with("hadoop.proxyuser.carol.groups", "users")
        .with("hadoop.proxyuser.carol.hosts", "localhost")
        .with("hadoop.proxyuser.dave.users", "*")
        .with("hadoop.proxyuser.dave.hosts", "10.0.0.0/8")
        .with("hadoop.proxyuser.root.groups", "*")
        .with("hadoop.proxyuser.root.hosts", "*")
}

async fn start(configuration: Configuration) -> TestNamenode {
    TestNamenode::start_with(configuration, Arc::new(SystemClock::new())).await
}

/// Creates a directory as `user`, on whose behalf `real` acts.
async fn mkdirs(n: &TestNamenode, real: &str, user: &str, path: &str) -> Answer<bool> {
    let client = RpcClient::new(RpcClientOptions { real_user: Some(real.into()), ..RpcClientOptions::default() });
    let target = Target { address: n.handle().rpc_address(), protocol: protocols::CLIENT, user: user.into() };
    let request = MkdirsRequestProto {
        src: path.into(),
        masked: FsPermissionProto { perm: 0o755 },
        create_parent: true,
        unmasked: None,
    };
    client.call::<MkdirsResponseProto>(&target, "mkdirs", &request).await.map(|answer| answer.result)
}

async fn refresh(n: &TestNamenode, user: &str) -> Answer<RefreshSuperUserGroupsConfigurationResponseProto> {
    let address = n.handle().rpc_address();
    let target = Target { address, protocol: protocols::REFRESH_USER_MAPPINGS, user: user.into() };
    let request = RefreshSuperUserGroupsConfigurationRequestProto {};
    n.client().call(&target, "refreshSuperUserGroupsConfiguration", &request).await
}

/// Returns the whole answer to a request.
async fn http(n: &TestNamenode, request: &str) -> String {
    let mut stream = tokio::net::TcpStream::connect(n.handle().http_address()).await.unwrap();
    stream.write_all(format!("{request} HTTP/1.0\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    String::from_utf8(answer).unwrap()
}

fn is_forbidden(answer: &str) -> bool {
    answer.lines().next().is_some_and(|status| status.contains(" 403 "))
}

/// Waits until the audit log ends with `end`, and returns its lines from `allowed=` on.
async fn audited(log: &Path, end: &str) -> Vec<String> {
    eventually(end, async || {
        let text = std::fs::read_to_string(log).unwrap();
        let lines: Vec<String> =
            text.lines().filter_map(|line| Some(line[line.find("allowed=")?..].to_owned())).collect();
        lines.last().is_some_and(|line| line.contains(end)).then_some(lines)
    })
    .await
}

#[tokio::test]
async fn rules_restrict_users_and_addresses() {
    let n = start(rules()).await;
    n.mkdirs_as("root", "/open", 0o777, true).await.unwrap();
    n.set_permission("/open", hearth_types::FsPermission(0o777)).await.unwrap();
    assert!(mkdirs(&n, "alice", "bob", "/open/by-alice").await.unwrap());
    assert!(mkdirs(&n, "carol", "bob", "/open/by-carol").await.unwrap());
    assert!(mkdirs(&n, "root", "zoe", "/open/by-root").await.unwrap());
    let owner = async |path: &str| n.info(path).await.unwrap().unwrap().owner;
    assert_eq!((owner("/open/by-alice").await, owner("/open/by-root").await), ("bob".into(), "zoe".into()));
    // The permissions of the effective user apply.
    let denied = mkdirs(&n, "root", "bob", "/closed").await.unwrap_err();
    assert!(denied.to_string().contains("Permission denied: user=bob, access=WRITE"), "{denied}");
    for (real, user, message) in [
        ("bob", "alice", "User: bob is not allowed to impersonate alice"),
        ("alice", "zoe", "User: alice is not allowed to impersonate zoe"),
        ("carol", "zoe", "User: carol is not allowed to impersonate zoe"),
        ("carol", "root", "User: carol is not allowed to impersonate root"),
        ("dave", "bob", "Unauthorized connection for super-user: dave from IP /127.0.0.1"),
        ("bob", "bob", "User: bob is not allowed to impersonate bob"),
    ] {
        refused(mkdirs(&n, real, user, "/open/none").await, AUTHORIZATION, message);
    }
    assert_eq!(n.info("/open/none").await.unwrap(), None);
}

#[tokio::test]
async fn other_protocols_check_proxy_rules() {
    let n = start(rules()).await;
    let client = RpcClient::new(RpcClientOptions { real_user: Some("carol".into()), ..RpcClientOptions::default() });
    let call = async |user: &str| {
        let target = Target { address: n.handle().rpc_address(), protocol: protocols::DATANODE, user: user.into() };
        client.call::<VersionResponseProto>(&target, "versionRequest", &VersionRequestProto {}).await
    };
    assert!(call("bob").await.is_ok());
    refused(call("zoe").await, AUTHORIZATION, "User: carol is not allowed to impersonate zoe");
}

#[tokio::test]
async fn refreshed_rules_apply_to_open_connections() {
    let directory = tempfile::tempdir().unwrap();
    let write = |users: &str| {
        let property =
            |name: &str, value: &str| format!("<property><name>{name}</name><value>{value}</value></property>");
        let text = format!(
            "<configuration>{}{}</configuration>",
            property("hadoop.proxyuser.alice.users", users),
            property("hadoop.proxyuser.alice.hosts", "*")
        );
        std::fs::write(directory.path().join("core-site.xml"), text).unwrap();
    };
    write("bob");
    let loaded = Configuration::load_dir(directory.path(), Environment::empty()).unwrap();
    let base = configuration();
    let set = |conf: Configuration, name: &str| conf.with(name, base.text(name).unwrap().unwrap());
    let n = start(base.names().fold(loaded, set)).await;
    let client = RpcClient::new(RpcClientOptions { real_user: Some("alice".into()), ..RpcClientOptions::default() });
    let stat = async |user: &str| {
        let target = Target { address: n.handle().rpc_address(), protocol: protocols::CLIENT, user: user.into() };
        client
            .call::<GetFileInfoResponseProto>(&target, "getFileInfo", &GetFileInfoRequestProto { src: "/".into() })
            .await
    };
    let not = |user: &str| format!("User: alice is not allowed to impersonate {user}");
    stat("bob").await.unwrap();
    refused(stat("zoe").await, AUTHORIZATION, &not("zoe"));

    write("zoe");
    refused(
        refresh(&n, "bob").await,
        "org.apache.hadoop.security.AccessControlException",
        "Access denied for user bob. Superuser privilege is required for operation refreshSuperUserGroupsConfiguration",
    );
    refused(stat("zoe").await, AUTHORIZATION, &not("zoe"));
    refresh(&n, "root").await.unwrap();
    stat("zoe").await.unwrap();
    refused(stat("bob").await, AUTHORIZATION, &not("bob"));

    // An unreadable configuration changes nothing and is reported.
    std::fs::write(directory.path().join("core-site.xml"), "<configuration>").unwrap();
    let error = refresh(&n, "root").await.unwrap_err().to_string();
    assert!(error.contains("core-site.xml"), "{error}");
    assert!(error.contains("the old ones stay in force"), "{error}");
    stat("zoe").await.unwrap();
}

#[tokio::test]
async fn webhdfs_and_fsck_honor_doas() {
    let n = start(rules()).await;
    let ask = async |path: &str, query: &str| http(&n, &format!("GET {path}?{query}")).await;
    let home = "op=GETHOMEDIRECTORY";
    for (query, user) in [
        ("user.name=alice&doas=bob", "bob"),
        ("user.name=carol&doas=bob", "bob"),
        // A user that names itself does not act for another.
        ("user.name=zoe&doas=zoe", "zoe"),
    ] {
        let answer = ask("/webhdfs/v1/", &format!("{home}&{query}")).await;
        assert!(answer.ends_with(&format!(r#"{{"Path":"/user/{user}"}}"#)), "{query}: {answer}");
    }
    for (query, message) in [
        ("user.name=alice&doas=zoe", "User: alice is not allowed to impersonate zoe"),
        ("user.name=carol&doas=zoe", "User: carol is not allowed to impersonate zoe"),
        ("user.name=dave&doas=bob", "Unauthorized connection for super-user: dave from IP /127.0.0.1"),
    ] {
        let answer = ask("/webhdfs/v1/", &format!("{home}&{query}")).await;
        assert!(is_forbidden(&answer) && answer.contains(AUTHORIZATION), "{query}: {answer}");
        assert!(answer.contains(message), "{query}: {answer}");
        // The check also applies where no call follows.
        let answer = http(&n, &format!("PUT /webhdfs/v1/f?op=CREATE&{query}")).await;
        assert!(is_forbidden(&answer) && answer.contains(message), "{query}: {answer}");
        let answer = ask("/fsck", &format!("path=%2F&{query}")).await;
        assert!(answer.ends_with(&format!("{message}\n\n\nFsck on path '/' FAILED")), "{query}: {answer}");
    }
    let answer = ask("/fsck", "path=%2F&ugi=alice&doas=bob").await;
    assert!(
        answer.contains("FSCK started by bob (auth:PROXY) via alice (auth:SIMPLE) from /127.0.0.1 for path /"),
        "{answer}"
    );
}

#[tokio::test]
async fn the_audit_log_names_both_users() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("audit.log");
    let n = start(rules().with("hearth.namenode.audit.log", log.to_str().unwrap())).await;
    n.mkdirs("/d").await.unwrap();
    mkdirs(&n, "alice", "bob", "/d/x").await.unwrap_err();
    http(&n, "GET /webhdfs/v1/d?op=LISTSTATUS&user.name=alice&doas=bob").await;
    http(&n, "GET /fsck?path=%2Fd&ugi=alice&doas=bob").await;
    let lines = audited(&log, "cmd=fsck").await;
    let both = "ugi=bob (auth:PROXY) via alice (auth:SIMPLE)\tip=/127.0.0.1";
    let wanted = [
        format!("allowed=false\t{both}\tcmd=mkdirs\tsrc=/d/x\tdst=null\tperm=null\tproto=rpc"),
        format!("allowed=true\t{both}\tcmd=listStatus\tsrc=/d\tdst=null\tperm=null\tproto=webhdfs"),
        format!("allowed=true\t{both}\tcmd=fsck\tsrc=/d\tdst=null\tperm=null\tproto=null"),
    ];
    assert_eq!(lines[1..], wanted);
}

#[tokio::test]
async fn trusted_web_proxy_forwards_client_address() {
    let from =
        "GET /webhdfs/v1/?op=GETHOMEDIRECTORY&user.name=dave&doas=bob HTTP/1.0\r\nX-Forwarded-For: 10.1.2.3\r\nX-More:";
    let n = start(rules()).await;
    assert!(is_forbidden(&http(&n, from).await));
    let n = start(rules().with("hadoop.proxyservers", "localhost")).await;
    let answer = http(&n, from).await;
    assert!(answer.ends_with(r#"{"Path":"/user/bob"}"#), "{answer}");
}
