//! The audit log: the same commands produce the same lines as with Apache's NameNode, character by character, except
//! for the time and log4j's prefix.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hearth_interop::{Check, Session, Suite, run, tool_said};
use hearth_testkit::{ClusterSpec, Implementation, get_text, wait_until};
use serde_json::{Value, json};

const LOG: &str = "audit.log";
const CHECKS: &[Check] = &[("same_commands_give_same_audit_lines", same_lines)];

fn main() -> ExitCode {
    let clusters = [Implementation::Apache, Implementation::Hearth].map(|namenode| {
        ClusterSpec::new(namenode, Implementation::Hearth)
            .set("hearth.memory.limit", "64m")
            .set("hadoop.caller.context.enabled", true)
            .set("hadoop.caller.context.max.size", 20)
            .set("dfs.namenode.audit.log.debug.cmdlist", "checkAccess,setTimes")
            .set("dfs.permissions.superusergroup", "nobody-is-in-it")
            .set("hadoop.proxyuser.alice.users", "bob")
            .set("hadoop.proxyuser.alice.hosts", "*")
            .set_file("hearth.namenode.audit.log", LOG)
            .set("log4j.logger.org.apache.hadoop.hdfs.server.namenode.FSNamesystem.audit", "INFO")
    });
    run(&[Suite { name: "audit", clusters: clusters.to_vec(), checks: CHECKS }])
}

/// Operations of the Java driver. `true` marks those that must be refused.
fn commands() -> Vec<(&'static str, Value, bool)> {
    let mut all = Vec::new();
    let mut add = |operation: &'static str, arguments: Value| all.push((operation, arguments, false));
    add("mkdirs", json!({"path": "/a/b"}));
    add("mkdirs", json!({"path": "/a/odd \u{e9}\t\"name\\"}));
    for (name, length) in [("f", 3000), ("g", 700_000), ("h", 1)] {
        add("store", json!({"path": format!("/a/{name}"), "seed": 1, "position": 0, "length": length}));
    }
    add("extend", json!({"path": "/a/f", "seed": 1, "position": 3000, "length": 100}));
    add("read", json!({"path": "/a/f"}));
    add("stat", json!({"path": "/a/f"}));
    add("exists", json!({"path": "/a/nothing"}));
    add("list", json!({"path": "/a"}));
    add("list", json!({"path": "/a", "recursive": true}));
    add("summary", json!({"path": "/a"}));
    add("checksum", json!({"path": "/a/f"}));
    add("isClosed", json!({"path": "/a/f"}));
    add("setrep", json!({"path": "/a/f", "replication": 2}));
    add("setrep", json!({"path": "/a/b", "replication": 2}));
    add("chmod", json!({"path": "/a/b", "permission": "1750"}));
    add("chmod", json!({"path": "/a/f", "permission": "1640"}));
    add("chown", json!({"path": "/a/f", "owner": "ann", "group": "staff"}));
    add("times", json!({"path": "/a/f", "modified": 1000, "accessed": 2000}));
    add("concat", json!({"path": "/a/h", "from": ["/a/g"]}));
    add("setXAttr", json!({"path": "/a/f", "name": "user.colour", "value": "blue"}));
    add("modifyAcl", json!({"path": "/a/f", "acl": "user:carol:rw-"}));
    add("tree", json!({"path": "/a"}));
    // Block recovery follows.
    add("truncate", json!({"path": "/a/f", "length": 1000}));
    add("setQuota", json!({"path": "/a", "names": 100, "space": i64::MAX}));
    add("setQuota", json!({"path": "/a", "names": i64::MAX, "space": 1 << 30}));
    add("setQuota", json!({"path": "/a", "names": -1, "space": i64::MAX}));
    add("setQuota", json!({"path": "/a", "names": i64::MAX, "space": -1}));
    add("rename", json!({"from": "/a/f", "to": "/a/moved"}));
    add("rename", json!({"from": "/a/moved", "to": "/a/b"}));
    add("rename", json!({"from": "/a/nothing", "to": "/a/b"}));
    add("rename", json!({"from": "/a/b/moved", "to": "/a/f", "overwrite": false}));
    add("rename", json!({"from": "/a/f", "to": "/a/h", "overwrite": true}));
    add("recoverLease", json!({"path": "/a/h"}));
    add("df", json!({}));
    add("defaults", json!({}));
    add("delete", json!({"path": "/a/h"}));
    add("delete", json!({"path": "/a/nothing"}));
    // Caller contexts of clients. The second is truncated, and its signature is too long.
    add("callerContext", json!({"context": "job\t1", "signature": "signed"}));
    add("mkdirs", json!({"path": "/a/c"}));
    add("callerContext", json!({"context": "a context that is too long", "signature": "s".repeat(41)}));
    add("mkdirs", json!({"path": "/a/d"}));
    add("chmod", json!({"path": "/a/c", "permission": "700"}));
    add("as", json!({"user": "mallory"}));
    let mut refuse = |operation: &'static str, arguments: Value| all.push((operation, arguments, true));
    refuse("list", json!({"path": "/a/c"}));
    refuse("mkdirs", json!({"path": "/a/c/d"}));
    refuse("store", json!({"path": "/a/c/f", "seed": 1, "position": 0, "length": 1}));
    refuse("delete", json!({"path": "/a/d"}));
    refuse("rename", json!({"from": "/a/d", "to": "/a/e"}));
    refuse("rename", json!({"from": "/a/d", "to": "/a/e", "overwrite": true}));
    refuse("chmod", json!({"path": "/a/d", "permission": "777"}));
    refuse("chown", json!({"path": "/a/d", "owner": "mallory"}));
    refuse("setQuota", json!({"path": "/a", "names": 1, "space": i64::MAX}));
    refuse("refreshNodes", json!({}));
    all
}

/// The same commands for a user, sent by a proxy user.
fn commands_for_another() -> Vec<(&'static str, Value, bool)> {
    vec![
        ("asProxy", json!({"user": "bob", "real": "alice"}), false),
        ("list", json!({"path": "/a"}), false),
        ("mkdirs", json!({"path": "/a/c/e"}), true),
        ("asProxy", json!({"user": "zoe", "real": "alice"}), false),
        ("mkdirs", json!({"path": "/a/c/e"}), true),
    ]
}

fn same_lines(session: &mut Session) -> Result<()> {
    for (operation, arguments, refused) in commands().into_iter().chain(commands_for_another()) {
        let outcome = session.java()?.call(operation, arguments.clone());
        match outcome {
            Err(error) => ensure!(refused, "{operation} {arguments}: {error}"),
            Ok(answer) => ensure!(!refused, "{operation} {arguments} was allowed: {answer}"),
        }
    }
    let port = session.cluster.namenode_http_port();
    let file = session
        .cluster
        .directory()
        .join(if session.cluster.namenode.implementation() == Implementation::Apache { "namenode.log" } else { LOG });
    let until = |what: &str| {
        wait_until(&format!("{what} in the audit log"), Duration::from_secs(60), || {
            let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
            let lines: Vec<String> = text
                .lines()
                .filter(|line| line.contains(" INFO FSNamesystem.audit: "))
                .filter_map(|line| Some(line[line.find("allowed=")?..].to_owned()))
                .collect();
            Ok(lines.last().is_some_and(|line| line.contains(what)).then_some(lines))
        })
    };
    get_text(port, "/webhdfs/v1/a?op=LISTSTATUS&user.name=alice&doas=bob")?;
    session.java()?.call("as", json!({"user": hearth_client::os_user_name()}))?;
    let arguments = ["-refreshSuperUserGroupsConfiguration".to_owned()];
    tool_said(session.java()?, "org.apache.hadoop.hdfs.tools.DFSAdmin", &arguments, "LOCAL")?;
    // Apache's NameNode writes the line of `fsck` after its answer, so the next command waits for it.
    get_text(port, "/fsck?ugi=alice&doas=bob&path=%2Fa%2Fd")?;
    until("via alice (auth:SIMPLE)\tip=/127.0.0.1\tcmd=fsck")?;
    get_text(port, "/fsck?ugi=root&path=%2Fa%2Fd")?;
    until("ugi=root (auth:SIMPLE)\tip=/127.0.0.1\tcmd=fsck")?;
    session.java()?.call("exists", json!({"path": "/the-end"}))?;
    let lines = until("src=/the-end")?;
    ensure!(lines.len() > 60, "{} lines:\n{}", lines.len(), lines.join("\n"));
    // Compared one by one, so that the failure shows the line.
    for (i, line) in lines.iter().enumerate() {
        session.same_as_oracle(&format!("line {i}"), line.as_str().into())?;
    }
    session.same_as_oracle("the number of lines", lines.len().into())
}
