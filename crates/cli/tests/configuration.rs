//! Configurations with faults: `hearth config` finds them, and servers do not start with them.

use std::path::Path;
use std::process::{Command, Output};

const PROGRAM: &str = env!("CARGO_BIN_EXE_hearth");

/// Runs a command line that ends by itself, with the configuration in `conf`.
fn hearth(conf: &Path, line: &str) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(line.split(' ')).env("HADOOP_CONF_DIR", conf).env("HADOOP_USER_NAME", "root").env_remove("HEARTH_LOG");
    command.output().unwrap()
}

/// Runs a command line and returns its exit code, its standard output and its standard error.
fn run(conf: &Path, line: &str) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = hearth(conf, line);
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

/// Makes a directory with `hdfs-site.xml`, one property a line, the first on line 2.
fn directory(properties: &[(&str, &str)]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let lines: String = properties
        .iter()
        .map(|(name, value)| format!("<property><name>{name}</name><value>{value}</value></property>\n"))
        .collect();
    let text = format!("<configuration>\n{lines}</configuration>\n");
    std::fs::write(directory.path().join("hdfs-site.xml"), text).unwrap();
    directory
}

const FAULTY: [(&str, &str); 5] = [
    ("fs.defaultFS", "hdfs://127.0.0.1:1"),
    ("dfs.heartbeat.interval", "3 parsecs"),
    ("hearth.rpc.message.memory", "1m"),
    ("dfs.client.failover.max.attempts", "many"),
    ("hearth.memroy.limit", "1g"),
];

#[test]
fn check_lists_faults_and_warnings() {
    let conf = directory(&FAULTY);
    let file = conf.path().join("hdfs-site.xml").display().to_string();
    let (code, out, _) = run(conf.path(), "config check");
    assert_eq!(code, Some(1), "{out}");
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines.len(), 5, "{out}");
    let starts = [
        format!("fault (client): dfs.client.failover.max.attempts = \"many\" ({file} line 5): wanted a whole number"),
        format!(
            "fault (namenode, datanode): dfs.heartbeat.interval = \"3 parsecs\" ({file} line 3): wanted a duration"
        ),
        format!("fault (namenode, datanode): hearth.rpc.message.memory = \"1m\" ({file} line 4): wanted ipc.maximum"),
        format!("warning: hearth.memroy.limit = \"1g\" ({file} line 6): unknown key"),
        format!("3 faults, 1 warning (read: {file}; checked for: namenode, datanode, client)"),
    ];
    for (line, start) in lines.iter().zip(&starts) {
        assert!(line.starts_with(start), "{start}\n{line}");
    }
    assert!(lines[3].ends_with("did you mean hearth.memory.limit?"), "{}", lines[3]);
    // Only the client's fault remains for clients; the others become warnings.
    let (code, out, _) = run(conf.path(), "config check --role client");
    assert_eq!((code, out.matches("fault (client)").count()), (Some(1), 1), "{out}");
    let (code, out, _) = run(conf.path(), "config check --role client -D dfs.client.failover.max.attempts=3");
    assert_eq!(code, Some(0), "{out}");
    assert!(out.contains("warning: dfs.heartbeat.interval"), "{out}");
    // The option of all subcommands names the directory as well.
    let empty = tempfile::tempdir().unwrap();
    let line = format!("config check --role client --config {}", empty.path().display());
    assert_eq!(run(conf.path(), &line).1, "no faults, no warnings (read: no files; checked for: client)\n");
}

#[test]
fn show_has_values_with_their_source() {
    let conf = directory(&[("dfs.replication", "2"), ("dfs.block.size", "64m")]);
    let file = conf.path().join("hdfs-site.xml").display().to_string();
    let (code, out, _) = run(conf.path(), "config show -D dfs.heartbeat.interval=5");
    let wanted = format!(
        "dfs.blocksize = 64m  ({file} line 3; default 134217728)\n\
         dfs.heartbeat.interval = 5  (-D; default 3)\n\
         dfs.replication = 2  ({file} line 2; default 3)\n"
    );
    assert_eq!((code, out), (Some(0), wanted));
    let (code, out, _) = run(conf.path(), "config show --all --role datanode");
    assert_eq!(code, Some(0));
    assert!(out.contains("hearth.memory.limit = 0  (default)\n") && !out.contains("dfs.namenode.acls"), "{out}");
    let (code, out, _) = run(conf.path(), "config show dfs.replication");
    assert!(code == Some(0) && out.starts_with("dfs.replication = 2\n"), "{out}");
    let (code, _, said) = run(conf.path(), "config show dfs.replicaton");
    assert!(code == Some(1) && said.ends_with("did you mean dfs.replication?\n"), "{said}");
}

#[test]
fn logs_can_be_json() {
    let conf = directory(&[&FAULTY[..], &[("hearth.log.format", "json")]].concat());
    let text = directory(&FAULTY);
    for (conf, line) in [(&conf, "namenode"), (&conf, "datanode"), (&text, "--log-format json namenode")] {
        let (_, _, said) = run(conf.path(), line);
        let (log, _) = said.split_once("hearth: 2 values").unwrap();
        let events: Vec<serde_json::Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let unknown = events.iter().find(|event| event["fields"]["key"] == "hearth.memroy.limit").unwrap();
        assert_eq!(unknown["level"], "WARN", "{unknown}");
        assert!(unknown["message"].as_str().unwrap().ends_with("did you mean hearth.memory.limit?"), "{unknown}");
    }
}

#[test]
fn servers_refuse_all_faults_together() {
    let conf = directory(&FAULTY);
    for server in ["namenode", "datanode", "datanode --flush"] {
        let (code, out, said) = run(conf.path(), server);
        assert_eq!((code, out.as_str()), (Some(1), ""), "{said}");
        let (log, refusal) = said.split_once("hearth: 2 values of the configuration cannot be used:\n").unwrap();
        assert_eq!(refusal.lines().count(), 2, "{refusal}");
        for part in ["dfs.heartbeat.interval = \"3 parsecs\"", "hearth.rpc.message.memory = \"1m\"", "line 3", "line 4"]
        {
            assert!(refusal.contains(part), "{part}: {refusal}");
        }
        // Logged once each: the unknown key, and the value that only clients refuse.
        assert_eq!(log.matches("did you mean hearth.memory.limit?").count(), 1, "{log}");
        assert_eq!(log.matches("(read by: client)").count(), 1, "{log}");
    }
    let data = tempfile::tempdir().unwrap();
    let line = format!(
        "up --port 0 --http-port 0 --dir {}/d -D dfs.replication=none -D dfs.replicaton=1",
        data.path().display()
    );
    let (code, out, said) = run(conf.path(), &line);
    assert_eq!((code, out.as_str()), (Some(1), ""), "{said}");
    assert!(said.contains("hearth: a value of the configuration cannot be used: dfs.replication = \"none\""), "{said}");
    assert!(said.contains("hearth: warning: dfs.replicaton = \"1\""), "{said}");
    assert!(!data.path().join("d").exists(), "a directory was made before the refusal");
}
