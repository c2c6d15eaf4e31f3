//! The load generators as a user runs them, on an existing cluster.

use std::process::Command;

use hearth_testkit::{Cluster, ClusterSpec, Implementation, hearth_program};
use serde_json::Value;

const MIB: f64 = (1 << 20) as f64;

/// Returns the figures that `hearth-bench WORDS` prints.
fn bench(cluster: &Cluster, words: &str) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hearth-bench"));
    let uri = format!("hdfs://127.0.0.1:{}", cluster.namenode_rpc_port());
    command.args(words.split(' ')).args(["--fs", &uri, "--json"]);
    command.env("HADOOP_CONF_DIR", cluster.conf()).current_dir(cluster.directory());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Returns the output of `hearth fs WORDS`.
fn fs(cluster: &Cluster, words: &[&str]) -> String {
    let mut command = Command::new(hearth_program().unwrap());
    let output = command.arg("fs").args(words).env("HADOOP_CONF_DIR", cluster.conf()).output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn figure(said: &Value, work: &str, name: &str) -> Option<f64> {
    let figures = said["figures"].as_array().unwrap();
    figures.iter().find(|figure| figure["work"] == work && figure["figure"] == name)?["median"].as_f64()
}

#[test]
fn load_generators_use_existing_cluster() {
    let cluster = ClusterSpec::new(Implementation::Hearth, Implementation::Hearth).start().unwrap();
    let bytes = 3.0 * 1_500_000.0 / MIB;
    let is = |found: Option<f64>, wanted: f64| found.is_some_and(|found| (found - wanted).abs() < 0.001);

    let shape = "--size 1500000 --clients 3 --threads 1 --path /load/it";
    let written = bench(&cluster, &format!("write {shape} --piece 64k --path-choice tcp"));
    assert!(is(figure(&written, "write", "by packets"), bytes), "{written}");
    let read = bench(&cluster, &format!("read {shape} --piece 100k --path-choice tcp"));
    assert!(is(figure(&read, "read", "by packets"), bytes), "{read}");
    assert!(figure(&read, "read", "p99.9").unwrap() >= figure(&read, "read", "p50").unwrap(), "{read}");
    let short = bench(&cluster, &format!("pread {shape} --reads 130 --path-choice packets"));
    assert!(is(figure(&short, "pread", "by packets"), 130.0 * 4096.0 / MIB), "{short}");

    // The generator's files do not exist yet. At the end they are removed, and nothing else is.
    fs(&cluster, &["-mkdir", "-p", "/load/many"]);
    fs(&cluster, &["-touchz", "/load/many/other"]);
    let many = bench(&cluster, "saturate --clients 2,1 --size 1m --bytes 4m --path /load/many --clean");
    assert!(figure(&many, "2 clients", "throughput").unwrap() > 0.0, "{many}");
    assert!(figure(&many, "all", "kept as clients are added").is_some(), "{many}");
    bench(&cluster, "write --size 1m --clients 2 --threads 1 --path /load/gone --clean");
    let left = fs(&cluster, &["-ls", "-R", "/load"]);
    assert!(left.contains("/load/it/file-2") && left.contains("/load/many/other"), "{left}");
    assert!(!left.contains("/load/many/file-") && !left.contains("/load/gone"), "{left}");
    // Figures of a cluster given by the user are not recorded.
    assert!(!cluster.directory().join("hearth-bench.jsonl").exists());
}
