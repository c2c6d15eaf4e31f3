//! DistCp from an Apache cluster and back to it: content and attributes on the target are the same. The numbers of
//! copied and skipped files are the same as between two Apache clusters. Slow: `cargo xtask test --cluster`.

use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use hearth_interop::{Check, Session, Suite, run, slow};
use hearth_testkit::{Cluster, ClusterSpec, Driver, Implementation};
use serde_json::{Value, json};

const DISTCP: &str = "org.apache.hadoop.tools.DistCp";
/// Replication, block size, user, group, permission, checksum type, ACL, extended attributes, times.
const PRESERVE_ALL: &str = "-prbugpcaxt";
const BLOCK: u64 = 1 << 20;

const CHECKS: &[Check] = &[("distcp_there_again_and_back", there_and_back)];

fn main() -> ExitCode {
    if !slow() {
        println!("takes minutes: cargo xtask test --cluster\n\ntest result: ok. 0 passed; 0 failed; 2 ignored");
        return ExitCode::SUCCESS;
    }
    let clusters = [Implementation::Apache, Implementation::Hearth].map(|make| spec(make).datanodes(2));
    run(&[Suite { name: "distcp", clusters: clusters.to_vec(), checks: CHECKS }])
}

fn spec(make: Implementation) -> ClusterSpec {
    ClusterSpec::new(make, make)
        .set("dfs.client.block.write.locateFollowingBlock.initial.delay.ms", 2)
        .set("dfs.client.block.write.locateFollowingBlock.retries", 14)
        .set("hearth.memory.limit", "512m")
}

fn there_and_back(session: &mut Session) -> Result<()> {
    let peer = spec(Implementation::Apache).start()?;
    let mut there = Driver::java(peer.apache()?, peer.conf())?;
    populate(&mut there)?;
    let source = format!("{}/source", peer.uri());
    let copied = format!("{}/copied", session.cluster.uri());

    let counters = distcp(&session.cluster, &[PRESERVE_ALL, &source, &copied])?;
    session.same_as_oracle("copied", counters)?;
    same_trees("copied", &tree(&mut there, "/source")?, &tree(session.java()?, "/copied")?)?;

    change(&mut there)?;
    let counters = distcp(&session.cluster, &["-update", "-delete", PRESERVE_ALL, &source, &copied])?;
    session.same_as_oracle("updated", counters)?;
    same_trees("updated", &tree(&mut there, "/source")?, &tree(session.java()?, "/copied")?)?;

    let back = format!("{}/back", peer.uri());
    let counters = distcp(&session.cluster, &["-update", PRESERVE_ALL, &copied, &back])?;
    session.same_as_oracle("back", counters)?;
    let tree_back = tree(&mut there, "/back")?;
    same_trees("back", &tree(session.java()?, "/copied")?, &tree_back)?;
    // Nothing has changed, so everything is skipped, by its checksum.
    let counters = distcp(&session.cluster, &["-update", PRESERVE_ALL, &copied, &back])?;
    ensure!(!counters.to_string().contains("Files Copied"), "nothing had changed: {counters}");
    session.same_as_oracle("unchanged", counters)
}

/// Files of zero, one and several blocks. Every attribute that can be preserved differs from that of a new file.
fn populate(there: &mut Driver) -> Result<()> {
    there.call("mkdirs", json!({"path": "/source/deep/deeper"}))?;
    there.call("mkdirs", json!({"path": "/source/empty"}))?;
    let files = [
        ("changed", 70_001),
        ("grown", BLOCK - 1),
        ("gone", 10),
        ("deep/nothing", 0),
        ("deep/modes", 513),
        ("deep/deeper/blocks", 3 * BLOCK + 70_001),
    ];
    for (seed, (name, length)) in files.iter().enumerate() {
        let path = format!("/source/{name}");
        there.call("store", json!({"path": path, "seed": seed, "position": 0, "length": length}))?;
    }
    let small =
        json!({"path": "/source/deep/small-blocks", "seed": 7, "position": 0, "length": 150_000, "blockSize": 65_536});
    there.call("store", small)?;
    there.call("chmod", json!({"path": "/source/deep/modes", "permission": "640"}))?;
    there.call("chmod", json!({"path": "/source/empty", "permission": "1777"}))?;
    there.call("chown", json!({"path": "/source/deep/modes", "owner": "alice", "group": "staff"}))?;
    there.call("chown", json!({"path": "/source/deep/deeper", "owner": "bob", "group": "staff"}))?;
    there.call("setrep", json!({"path": "/source/deep/deeper/blocks", "replication": 2}))?;
    there.call("setXAttr", json!({"path": "/source/deep/modes", "name": "user.colour", "value": "blue"}))?;
    there.call("setXAttr", json!({"path": "/source/deep/deeper", "name": "user.colour", "value": "red"}))?;
    there.call("modifyAcl", json!({"path": "/source/grown", "acl": "user:carol:rw-,group:staff:r--"}))?;
    there.call("modifyAcl", json!({"path": "/source/deep/deeper", "acl": "default:user:carol:r-x"}))?;
    let times = json!({"path": "/source/deep/modes", "modified": 981_173_106_000_u64, "accessed": 981_173_107_000_u64});
    there.call("times", times)?;
    Ok(())
}

/// Changes that an update must detect: other bytes of the same length, more bytes, a new file, a deleted file, and
/// changed attributes alone.
fn change(there: &mut Driver) -> Result<()> {
    let changed = json!({"path": "/source/changed", "seed": 99, "position": 0, "length": 70_001, "overwrite": true});
    there.call("store", changed)?;
    there.call("extend", json!({"path": "/source/grown", "seed": 1, "position": BLOCK - 1, "length": 5000}))?;
    there.call("store", json!({"path": "/source/empty/new", "seed": 12, "position": 0, "length": 1234}))?;
    there.call("delete", json!({"path": "/source/gone"}))?;
    there.call("chmod", json!({"path": "/source/deep/modes", "permission": "604"}))?;
    there.call("chown", json!({"path": "/source/deep/nothing", "owner": "dave", "group": "staff"}))?;
    there.call("setXAttr", json!({"path": "/source/deep/modes", "name": "user.shape", "value": "round"}))?;
    Ok(())
}

fn tree(driver: &mut Driver, path: &str) -> Result<Value> {
    Ok(driver.call("tree", json!({"path": path}))?)
}

fn same_trees(what: &str, from: &Value, to: &Value) -> Result<()> {
    let (from, to) = (from.as_object().context("a tree")?, to.as_object().context("a tree")?);
    ensure!(from.len() >= 8, "{what}: {} entries", from.len());
    for (path, expected) in from {
        let found = to.get(path).with_context(|| format!("{what}: {path} is missing"))?;
        // Only DistCp's last step can set the time of a directory that files were copied into. It must be the same
        // nevertheless.
        ensure!(found == expected, "{what}: {path} is\n{found}, but was\n{expected}");
    }
    let surplus: Vec<_> = to.keys().filter(|path| !from.contains_key(*path)).collect();
    ensure!(surplus.is_empty(), "{what}: {surplus:?} besides");
    Ok(())
}

/// Runs DistCp in one JVM (LocalJobRunner) on the files of `cluster`. Returns its counters, except for the speed.
fn distcp(cluster: &Cluster, arguments: &[&str]) -> Result<Value> {
    // The logger that prints the counters.
    let conf = cluster.conf_with("distcp-conf", &[("log4j.logger.org.apache.hadoop.mapreduce.Job", "INFO")])?;
    let output = cluster.apache()?.job(&conf, DISTCP, arguments)?;
    let said = format!("{}\n{}", output.stdout, output.stderr);
    output.success().with_context(|| format!("distcp {}", arguments.join(" ")))?;
    let (_, counters) = said.split_once("DistCp Counters").with_context(|| format!("no counters in\n{said}"))?;
    let counters = counters.lines().skip(1).map_while(|line| line.strip_prefix("\t\t"));
    Ok(counters.filter(|line| !line.starts_with("Bandwidth")).collect())
}
