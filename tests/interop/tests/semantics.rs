//! Proxy users, times, snapshots of open files, reserved paths, symbolic links, and block targets: Apache's servers and
//! Hearth's give the same results, with the same exceptions and texts.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hearth_interop::{Check, Session, Suite, run, tool_said};
use hearth_testkit::{ClusterSpec, Implementation, wait_until};
use serde_json::{Value, json};

const HOSTS: &str = "hosts";

const CHECKS: &[Check] = &[
    ("proxy_rules_match_apaches", acting_for_others),
    ("proxy_rules_are_reloaded", rules_again),
    ("times_and_quotas_of_snapshots", snapshots),
    ("snapshots_follow_open_files", open_files),
    ("reserved_paths", reserved),
    ("invalid_links_and_numbers", odd),
    ("favoured_datanodes_and_repeated_blocks", targets),
    ("included_but_unseen_datanodes_are_dead", never_came),
];

fn main() -> ExitCode {
    let spec = |namenode: Implementation, datanodes: Implementation| {
        ClusterSpec::new(namenode, datanodes)
            .datanodes(2)
            .set("hearth.memory.limit", "64m")
            .set("dfs.namenode.accesstime.precision", 0)
            .set("hadoop.user.group.static.mapping.overrides", "bob=staff;zoe=guests")
            .set("hadoop.proxyuser.alice.users", "bob")
            .set("hadoop.proxyuser.alice.hosts", "127.0.0.0/8")
            .set("hadoop.proxyuser.carol.groups", "staff,others")
            .set("hadoop.proxyuser.carol.hosts", "localhost")
            .set("hadoop.proxyuser.dave.users", "*")
            .set("hadoop.proxyuser.dave.hosts", "10.0.0.1,10.1.0.0/16")
            .set("hadoop.proxyuser.erin.users", "bob")
            .set("hadoop.proxyuser.finn.hosts", "*")
            .set_file("dfs.hosts", HOSTS)
    };
    let clusters = vec![
        spec(Implementation::Apache, Implementation::Apache),
        spec(Implementation::Hearth, Implementation::Hearth),
    ];
    run(&[Suite { name: "semantics", clusters, checks: CHECKS }])
}

/// Returns the result of an operation, as text.
fn outcome(session: &mut Session, operation: &str, arguments: Value) -> Result<String> {
    Ok(match session.java()?.call(operation, arguments) {
        Ok(value) => format!("ok {value}"),
        Err(error) => error.to_string(),
    })
}

fn compared(session: &mut Session, what: &str, operation: &str, arguments: Value) -> Result<String> {
    let found = outcome(session, operation, arguments.clone())?;
    session.same_as_oracle(&format!("{what}: {operation} {arguments}"), found.as_str().into())?;
    Ok(found)
}

fn root(session: &mut Session) -> Result<()> {
    session.java()?.call("as", json!({"user": whoami()}))?;
    Ok(())
}

fn whoami() -> String {
    hearth_client::os_user_name()
}

fn tool(session: &mut Session, class: &str, words: &[&str]) -> Result<Value> {
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    tool_said(session.java()?, &format!("org.apache.hadoop.{class}"), &words, "LOCAL")
}

fn tool_compared(session: &mut Session, class: &str, words: &[&str]) -> Result<Value> {
    let said = tool(session, class, words)?;
    session.same_as_oracle(&format!("{class} {}", words.join(" ")), said.clone())?;
    Ok(said)
}

/// User, and the proxy user that acts for it.
const PAIRS: &[(&str, &str)] = &[
    ("bob", "alice"),
    ("zoe", "alice"),
    ("alice", "alice"),
    ("bob", "carol"),
    ("zoe", "carol"),
    ("bob", "dave"),
    ("bob", "erin"),
    ("bob", "finn"),
    ("bob", "bob"),
    ("bob", "nobody-knows"),
];

fn acting_for_others(session: &mut Session) -> Result<()> {
    root(session)?;
    session.java()?.call("mkdirs", json!({"path": "/proxy"}))?;
    session.java()?.call("chmod", json!({"path": "/proxy", "permission": "777"}))?;
    let web = format!("webhdfs://127.0.0.1:{}", session.cluster.namenode_http_port());
    for over in [None, Some(web)] {
        let by = if over.is_some() { "webhdfs" } else { "rpc" };
        let mut allowed = 0;
        for (user, real) in PAIRS {
            // Apache's NameNode treats this as no proxying, and its DataNode as proxying, which the NameNode then
            // refuses.
            if over.is_some() && user == real {
                continue;
            }
            let mut who = json!({"user": user, "real": real});
            if let Some(uri) = &over {
                who["uri"] = uri.as_str().into();
            }
            session.java()?.call("asProxy", who)?;
            let what = format!("{user} by {real} over {by}");
            let (directory, file) = (format!("/proxy/{by}-{user}-{real}"), format!("/proxy/{by}-{user}-{real}/f"));
            let made = compared(session, &what, "mkdirs", json!({"path": directory}))?;
            if !made.starts_with("ok") {
                continue;
            }
            allowed += 1;
            let bytes = json!({"path": file, "seed": 1, "position": 0, "length": 700_000});
            ensure!(compared(session, &what, "store", bytes)?.starts_with("ok"), "{what} cannot write");
            ensure!(compared(session, &what, "read", json!({"path": file}))?.starts_with("ok"), "{what} cannot read");
            let more = json!({"path": file, "seed": 1, "position": 700_000, "length": 5});
            ensure!(compared(session, &what, "extend", more)?.starts_with("ok"), "{what} cannot append");
            compared(session, &what, "checksum", json!({"path": file}))?;
            root(session)?;
            let status = session.java()?.call("stat", json!({"path": file}))?;
            ensure!(status["owner"] == *user, "{what}: {status}");
        }
        ensure!(allowed >= 2, "{allowed} of the pairs over {by} may");
    }
    root(session)
}

fn rules_again(session: &mut Session) -> Result<()> {
    let may = |session: &mut Session, user: &str| -> Result<String> {
        session.java()?.call("asProxy", json!({"user": user, "real": "alice"}))?;
        outcome(session, "exists", json!({"path": "/"}))
    };
    ensure!(may(session, "bob")? == "ok true");
    session.cluster.namenode.change(&[("hadoop.proxyuser.alice.users", "zoe")])?;
    root(session)?;
    tool_compared(session, "hdfs.tools.DFSAdmin", &["-refreshSuperUserGroupsConfiguration"])?;
    ensure!(may(session, "zoe")? == "ok true");
    let refused = may(session, "bob")?;
    ensure!(refused.ends_with("User: alice is not allowed to impersonate bob"), "{refused}");
    session.cluster.namenode.change(&[("hadoop.proxyuser.alice.users", "bob")])?;
    root(session)?;
    tool(session, "hdfs.tools.DFSAdmin", &["-refreshSuperUserGroupsConfiguration"])?;
    session.java()?.call("as", json!({"user": "mallory"}))?;
    root(session)
}

fn snapshots(session: &mut Session) -> Result<()> {
    let (shell, admin, diff) = ("fs.FsShell", "hdfs.tools.DFSAdmin", "hdfs.tools.snapshot.SnapshotDiff");
    for path in ["/s/d", "/s/e"] {
        session.java()?.call("mkdirs", json!({"path": path}))?;
    }
    session.java()?.call("store", json!({"path": "/s/f", "seed": 1, "position": 0, "length": 10}))?;
    for (modified, accessed) in [(1000, 2000), (-2, -2), (-1, 7), (-5, -1), (0, 0)] {
        let times = json!({"path": "/s/f", "modified": modified, "accessed": accessed});
        compared(session, "times", "times", times)?;
        let status = session.java()?.call("stat", json!({"path": "/s/f"}))?;
        ensure!(status["modified"].is_u64(), "{status}");
        let told = json!([status["modified"], status["accessed"]]);
        session.same_as_oracle(&format!("times after {modified}, {accessed}"), told)?;
    }
    tool_compared(session, admin, &["-allowSnapshot", "/s"])?;
    tool_compared(session, shell, &["-createSnapshot", "/s", "one"])?;
    tool_compared(session, admin, &["-setQuota", "100", "/s"])?;
    tool_compared(session, diff, &["/s", "one", "."])?;
    tool_compared(session, shell, &["-createSnapshot", "/s", "two"])?;
    tool_compared(session, admin, &["-setSpaceQuota", "1g", "/s/d"])?;
    tool_compared(session, shell, &["-createSnapshot", "/s", "three"])?;
    tool_compared(session, admin, &["-clrQuota", "/s"])?;
    tool_compared(session, admin, &["-clrSpaceQuota", "/s/d"])?;
    // Between two snapshots, Apache's NameNode compares the earlier one with the current state. It reports a quota that
    // was set and cleared again since the snapshot, although nothing differs.
    let said = tool(session, diff, &["/s", "three", "."])?;
    session.same_as_oracle("at the end: differences from three to .", said)
}

/// With the default of `dfs.namenode.snapshot.capture.openfiles`.
fn open_files(session: &mut Session) -> Result<()> {
    let (shell, diff) = ("fs.FsShell", "hdfs.tools.snapshot.SnapshotDiff");
    session.java()?.call("mkdirs", json!({"path": "/o"}))?;
    tool(session, "hdfs.tools.DFSAdmin", &["-allowSnapshot", "/o"])?;
    let write = |session: &mut Session, position: u64, length: u64| -> Result<()> {
        let bytes = json!({"handle": "w", "seed": 1, "position": position, "length": length});
        session.java()?.call("write", bytes)?;
        session.java()?.call("hsync", json!({"handle": "w", "updateLength": true}))?;
        Ok(())
    };
    let look = |session: &mut Session, when: &str| -> Result<()> {
        for name in ["one", "two"] {
            let path = format!("/o/.snapshot/{name}/f");
            compared(session, when, "lengths", json!({"path": path}))?;
            let said = tool(session, diff, &["/o", name, "."])?;
            session.same_as_oracle(&format!("{when}: differences since {name}"), said)?;
        }
        Ok(())
    };
    session.java()?.call("create", json!({"path": "/o/f", "handle": "w"}))?;
    write(session, 0, 100)?;
    tool_compared(session, shell, &["-createSnapshot", "/o", "one"])?;
    look(session, "after the first snapshot")?;
    write(session, 100, 100)?;
    look(session, "written on")?;
    // Into a second block.
    write(session, 200, 1 << 20)?;
    tool_compared(session, shell, &["-createSnapshot", "/o", "two"])?;
    look(session, "two blocks")?;
    write(session, (1 << 20) + 200, 50)?;
    session.java()?.call("close", json!({"handle": "w"}))?;
    look(session, "closed")?;
    let more = json!({"path": "/o/f", "seed": 1, "position": (1 << 20) + 250, "length": 5});
    session.java()?.call("extend", more)?;
    look(session, "appended to")?;
    session.java()?.call("delete", json!({"path": "/o/f"}))?;
    look(session, "deleted")
}

fn reserved(session: &mut Session) -> Result<()> {
    let shell = "fs.FsShell";
    session.java()?.call("mkdirs", json!({"path": "/r/d"}))?;
    session.java()?.call("store", json!({"path": "/r/f", "seed": 1, "position": 0, "length": 10}))?;
    for path in ["/.reserved", "/.reserved/.inodes"] {
        for words in [
            vec!["-ls", "-d", path],
            vec!["-ls", path],
            vec!["-stat", "%n %F %u:%g %a %b %r", path],
            vec!["-chmod", "755", path],
            vec!["-chown", "ann:staff", path],
            vec!["-setrep", "2", path],
            vec!["-mkdir", path],
            vec!["-touchz", path],
            vec!["-getfacl", path],
            vec!["-setfacl", "-m", "user:ann:r--", path],
            vec!["-getfattr", "-d", path],
            vec!["-setfattr", "-n", "user.a", "-v", "b", path],
            vec!["-count", path],
            vec!["-cat", path],
            vec!["-mv", path, "/r/moved"],
            vec!["-mv", "/r/d", path],
            vec!["-truncate", "1", path],
        ] {
            let mut said = tool(session, shell, &words)?;
            without_times(&mut said);
            session.same_as_oracle(&format!("-fs {}", words.join(" ")), said)?;
        }
        for (operation, arguments) in [
            ("times", json!({"path": path, "modified": 1, "accessed": 1})),
            ("isClosed", json!({"path": path})),
            ("recoverLease", json!({"path": path})),
            ("setQuota", json!({"path": path, "names": 10, "space": i64::MAX})),
            ("concat", json!({"path": path, "from": ["/r/f"]})),
            ("concat", json!({"path": "/r/f", "from": [path]})),
            ("policy", json!({"path": path, "policy": "HOT"})),
            ("truncate", json!({"path": path, "length": 1})),
        ] {
            compared(session, "reserved", operation, arguments)?;
        }
        session.java()?.call("mkdirs", json!({"path": "/r/d"}))?;
        session.java()?.call("store", json!({"path": "/r/f", "seed": 1, "position": 0, "length": 10}))?;
    }
    for path in
        ["/.reserved/.inodes/x", "/.reserved/.inodes/-7", "/.reserved/.inodes/99999999", "/.reserved/.inodes/16385"]
    {
        compared(session, "by number", "exists", json!({"path": path}))?;
    }
    Ok(())
}

/// Removes the times that `-ls` shows.
fn without_times(said: &mut Value) {
    for line in said[1].as_array_mut().into_iter().flatten() {
        let text = line.as_str().unwrap_or_default().replace("DAY TIME ", "");
        *line = text.into();
    }
}

fn odd(session: &mut Session) -> Result<()> {
    session.java()?.call("mkdirs", json!({"path": "/x"}))?;
    for (operation, arguments) in [
        ("symlink", json!({"target": "/x", "link": "/link"})),
        ("symlink", json!({"target": "/x", "link": format!("/{}", "l".repeat(8001))})),
        ("linkTarget", json!({"path": "/x"})),
        ("linkTarget", json!({"path": "/none"})),
        ("linkTarget", json!({"path": "/.reserved"})),
        ("rawCreate", json!({"path": "/x/a", "replication": 1, "blockSize": -1})),
        ("rawCreate", json!({"path": "/x/a", "replication": 1, "blockSize": 0})),
        ("rawCreate", json!({"path": "/x/a", "replication": -1, "blockSize": 1 << 20})),
        ("rawCreate", json!({"path": "/x/a", "replication": 0, "blockSize": 1 << 20})),
    ] {
        compared(session, "odd", operation, arguments)?;
    }
    Ok(())
}

fn targets(session: &mut Session) -> Result<()> {
    // Ends the JVM, to discard state that a refused call left in the client's thread.
    session.end_java();
    let port = |address: &str| address.rsplit(':').next().unwrap_or_default().to_owned();
    let wanted = session.cluster.datanodes[1].setting("dfs.datanode.address").unwrap_or_default().to_owned();
    for (nth, host) in ["localhost", "127.0.0.1", "localhost"].into_iter().enumerate() {
        let path = format!("/x/favoured-{nth}");
        session.java()?.call("rawCreate", json!({"path": path, "replication": 1, "blockSize": 1 << 20}))?;
        let favored = format!("{host}:{}", port(&wanted));
        let block = session.java()?.call("rawAddBlock", json!({"path": path, "favored": [favored]}));
        let block = block.with_context(|| format!("a block at {favored}"))?;
        ensure!(block["targets"] == json!([wanted]), "{favored}: {block}");
    }
    // A repeated request, also after a restart, returns the same block.
    let path = "/x/favoured-0";
    let again = json!({"path": path, "favored": []});
    let before = session.java()?.call("rawAddBlock", again.clone()).context("before the restart")?;
    session.cluster.namenode.kill();
    session.cluster.start_namenode()?;
    session.cluster.wait_ready()?;
    session.end_java();
    let after = session.java()?.call("rawAddBlock", again).context("after the restart")?;
    ensure!(before["block"] == after["block"], "{before}, then {after}");
    ensure!(after["targets"].as_array().is_some_and(|targets| targets.len() == 1), "{after}");
    Ok(())
}

fn never_came(session: &mut Session) -> Result<()> {
    let hosts = session.cluster.directory().join(HOSTS);
    std::fs::write(&hosts, "127.0.0.1\n127.0.0.9\n127.0.0.8:50\n127.0.0.9\nno.such.host.invalid\n")?;
    session.java()?.call("refreshNodes", json!({}))?;
    wait_until("the datanodes", Duration::from_secs(60), || {
        let all = session.java()?.call("datanodes", json!({}))?;
        let all = all.as_array().cloned().unwrap_or_default();
        Ok((all.iter().filter(|node| node["live"] == true).count() == 2).then_some(()))
    })?;
    let all = session.java()?.call("datanodes", json!({}))?;
    let mut dead: Vec<String> = all
        .as_array()
        .into_iter()
        .flatten()
        .filter(|node| node["live"] == false)
        .map(|node| format!("{} {}", node["address"], node["state"]))
        .collect();
    dead.sort();
    ensure!(dead.len() == 2, "{all}");
    session.same_as_oracle("dead", json!(dead))?;
    std::fs::write(&hosts, "")?;
    session.java()?.call("refreshNodes", json!({})).map(drop).map_err(Into::into)
}
