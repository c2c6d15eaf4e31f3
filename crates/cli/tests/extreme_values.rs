//! Servers and clients with every duration and every number at its end. Whatever an administrator has written, they serve
//! or say what is wrong; none panics.

use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::ensure;
use hearth_config::{Allowed, KeyInfo, keys};
use hearth_testkit::{ClusterSpec, Implementation, use_program, wait_until};

const PROGRAM: &str = env!("CARGO_BIN_EXE_hearth");

/// Longest time for a server to end after SIGTERM.
const ENDS_WITHIN: Duration = Duration::from_secs(60);

/// Time for which a write is tried again: not at all.
const AT_ONCE: Duration = Duration::ZERO;
/// The same, where the client does not try again itself, or has a lease of a second: a write fails there if a busy machine
/// delays a report for a second.
const TRIED_AGAIN: Duration = Duration::from_secs(120);

/// Form of a key's values. The first words of [`KeyInfo::form`].
const DURATION: &str = "duration";
const NUMBERS: [&str; 4] = ["whole number", "number", "percentage", "bytes"];

/// A DataNode is dead after twice this time and ten heartbeats.
const RECHECK: &str = "dfs.namenode.heartbeat.recheck-interval";

/// Returns the least and the greatest value that a key accepts.
fn ends(key: &KeyInfo) -> (&'static str, &'static str) {
    const LEAST: [&str; 7] = ["-1e308", "-9223372036854775808", "-2147483648", "-1", "0", "1ms", "1"];
    const MOST: [&str; 8] =
        ["1e308", "18446744073709551615", "9223372036854775807", "4294967295", "2147483647", "65535", "100", "1"];
    if let Allowed::Range { least, most: Some(most) } = key.allowed {
        return (least, most);
    }
    let accepted = |values: &[&'static str]| values.iter().copied().find(|value| key.check(value).is_ok());
    let first = |values: &[&'static str]| accepted(values).unwrap_or_else(|| panic!("no value of {}", key.name));
    match key.allowed {
        Allowed::Range { least, .. } => (least, first(&MOST)),
        _ => (first(&LEAST), first(&MOST)),
    }
}

/// Returns an end of every key of these forms, but not of `excepted`.
fn values(forms: &[&str], end: fn(&KeyInfo) -> &'static str, excepted: &[&str]) -> Vec<(&'static str, &'static str)> {
    let is_of_form = |key: &&KeyInfo| forms.iter().any(|form| key.form().starts_with(form));
    let all = keys::ALL.iter().filter(is_of_form);
    assert!(excepted.iter().all(|name| all.clone().any(|key| key.name == *name)), "an exception is no such key");
    all.filter(|key| !excepted.contains(&key.name)).map(|key| (key.name, end(key))).collect()
}

/// Writes and reads a file of several blocks with these values in force everywhere. `written_within`: time in which a
/// try to write it must begin that succeeds.
fn serve(label: &str, values: &[(&str, &str)], written_within: Duration) {
    use_program(PROGRAM.into());
    let mut spec = ClusterSpec::new(Implementation::Hearth, Implementation::Hearth).datanodes(2).labelled(label);
    for (key, value) in values {
        spec = spec.set(key, value);
    }
    let mut cluster = spec.start().unwrap();
    let content: Vec<u8> = (0..3_000_000_u32).map(|i| (i % 251) as u8).collect();
    let local = cluster.directory().join("content");
    std::fs::write(&local, &content).unwrap();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(PROGRAM);
        command.args(arguments).env("HADOOP_CONF_DIR", cluster.conf()).env("HADOOP_USER_NAME", "root");
        let output = command.stdin(Stdio::null()).output()?;
        ensure!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        anyhow::Ok(output.stdout)
    };
    let hearth = |arguments: &[&str]| run(arguments).unwrap();
    let local = local.display().to_string();
    wait_until("the file", written_within, || run(&["fs", "-put", "-f", &local, "/content"]).map(Some)).unwrap();
    assert!(hearth(&["fs", "-cat", "/content"]) == content, "other bytes");
    hearth(&["fs", "-rm", "-skipTrash", "/content"]);
    hearth(&["admin", "-report"]);
    for datanode in &mut cluster.datanodes {
        datanode.stop(ENDS_WITHIN).unwrap();
    }
    cluster.namenode.stop(ENDS_WITHIN).unwrap();
    let mut logs = 0;
    for entry in std::fs::read_dir(cluster.directory()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "log") {
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(!text.contains("panicked"), "{}:\n{text}", path.display());
            logs += 1;
        }
    }
    assert_eq!(logs, 3);
}

#[test]
fn the_longest_durations() {
    let values = values(
        &[DURATION],
        |key| ends(key).1,
        &[
            // Safe mode would not end.
            "dfs.namenode.safemode.extension",
            // The NameNode would not hear of a replica, so no file could be closed.
            "dfs.blockreport.incremental.intervalMsec",
        ],
    );
    serve("longest", &values, AT_ONCE);
}

#[test]
fn the_shortest_durations() {
    let mut values = values(
        &[DURATION],
        |key| ends(key).0,
        &[
            // With the shortest heartbeat, a pause of ten milliseconds would end a DataNode. `the_least_numbers` has it.
            RECHECK,
        ],
    );
    values.push((RECHECK, "300000"));
    serve("shortest", &values, TRIED_AGAIN);
}

#[test]
fn the_greatest_numbers() {
    let values = values(
        &NUMBERS,
        |key| ends(key).1,
        &[
            // Safe mode would not end.
            "dfs.namenode.safemode.min.datanodes",
            "dfs.namenode.resource.du.reserved",
            // No DataNode would have room for a block.
            "dfs.datanode.du.reserved",
            "dfs.datanode.du.reserved.pct",
            "dfs.blocksize",
            // No file would be admitted.
            "dfs.namenode.replication.min",
            "dfs.namenode.fs-limits.min-block-size",
            // Refused: more than dfs.replication.
            "dfs.namenode.maintenance.replication.min",
        ],
    );
    serve("greatest", &values, AT_ONCE);
}

#[test]
fn the_least_numbers() {
    let mut values = values(
        &NUMBERS,
        |key| ends(key).0,
        &[
            // Every DataNode would count as too busy.
            "dfs.namenode.redundancy.considerLoad.factor",
            // The file would need more blocks than it may have.
            "dfs.blocksize",
            "dfs.namenode.fs-limits.max-blocks-per-file",
            // Each byte would have a packet or a checksum of its own, which takes minutes.
            "dfs.bytes-per-checksum",
            "dfs.client-write-packet-size",
            // The connection of a program that has just ended would be the only one that a DataNode admits.
            "dfs.datanode.max.transfer.threads",
            // Answers of the NameNode, and reports to it, may be longer.
            "ipc.maximum.data.length",
            "ipc.maximum.response.length",
            // Refused: less than ipc.maximum.data.length.
            "hearth.rpc.message.memory",
        ],
    );
    values.push((RECHECK, "0"));
    serve("least", &values, TRIED_AGAIN);
}
