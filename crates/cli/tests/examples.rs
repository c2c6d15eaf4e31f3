//! The examples of configurations that packages install: servers start with them and keep files, and no key is without effect.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use anyhow::ensure;
use hearth_testkit::{free_port, wait_until};
use rustix::process::{Pid, Signal, kill_process};

const PROGRAM: &str = env!("CARGO_BIN_EXE_hearth");
const PATIENCE: Duration = Duration::from_secs(120);

/// An example on this machine: with directories, ports and hosts of the test.
struct Adapted {
    namenode: u16,
    http: u16,
    root: tempfile::TempDir,
}

impl Adapted {
    fn new() -> Self {
        // On a tmpfs, because of the replicas in memory. The name is short, because of the socket's path.
        let root = tempfile::Builder::new().prefix("hearth-ex-").tempdir_in("/dev/shm").unwrap();
        Self { namenode: free_port(), http: free_port(), root }
    }

    /// Writes the example's files for the server `name`. Returns their directory.
    fn write(&self, example: &str, name: &str) -> PathBuf {
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/examples").join(example);
        let own = self.root.path().join(name);
        for directory in ["conf", "memory", "run"] {
            fs::create_dir_all(own.join(directory)).unwrap();
        }
        let own_text = own.display().to_string();
        for file in ["core-site.xml", "hdfs-site.xml"] {
            let text = fs::read_to_string(from.join(file)).unwrap();
            let text = text
                .replace("/var/lib/hearth", &own_text)
                .replace("/run/hearth", &format!("{own_text}/run"))
                // No machine has this name, and nothing listens on port 1.
                .replace("namenode2.example.org:8020", "127.0.0.1:1")
                .replace("namenode1.example.org", "127.0.0.1")
                .replace("node1.example.org", "127.0.0.1")
                .replace(":8020", &format!(":{}", self.namenode))
                .replace("127.0.0.1:9870", &format!("127.0.0.1:{}", self.http))
                .replace(":9866", ":0")
                .replace(":9867", ":0")
                .replace(":9864", ":0")
                // The test's disk may be small.
                .replace("10g", "0");
            fs::write(own.join("conf").join(file), text).unwrap();
        }
        own.join("conf")
    }
}

/// A server. Dropping it kills it.
struct Server {
    child: Child,
    log: Receiver<String>,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    /// Starts a server and waits until it is ready.
    fn start(arguments: &[&str], conf: &Path) -> Self {
        let mut child = Command::new(PROGRAM)
            .args(arguments)
            .env("HADOOP_CONF_DIR", conf)
            .env("HADOOP_USER_NAME", "root")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (out, err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let (sender, log) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(err).lines().map_while(Result::ok) {
                eprintln!("{line}");
                let _ = sender.send(line);
            }
        });
        let (sender, ready) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let line = ready.recv_timeout(PATIENCE).expect("the server is ready");
        assert!(line.starts_with("READY"), "{line}");
        Self { child, log }
    }

    /// Ends it as systemd does. No key of its configuration was without effect.
    fn stop(mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        assert!(self.child.wait().unwrap().success());
        let ignored: Vec<String> = self.log.iter().filter(|line| line.contains("key has no effect")).collect();
        assert!(ignored.is_empty(), "{ignored:?}");
    }
}

/// Writes a file and reads it back, with the configuration in `conf`.
fn put_and_get(conf: &Path) {
    let bytes: Vec<u8> = (0..1_000_000_u32).map(|number| (number % 251) as u8).collect();
    let fs = |arguments: &[&str]| {
        let mut command = Command::new(PROGRAM);
        command.arg("fs").args(arguments).env("HADOOP_CONF_DIR", conf).env("HADOOP_USER_NAME", "root");
        command
    };
    let mut put = fs(&["-put", "-", "/file"]).stdin(Stdio::piped()).spawn().unwrap();
    put.stdin.take().unwrap().write_all(&bytes).unwrap();
    assert!(put.wait().unwrap().success());
    let got = fs(&["-cat", "/file"]).output().unwrap();
    assert!(got.status.success() && got.stdout == bytes, "{}", String::from_utf8_lossy(&got.stderr));
}

/// Runs `hearth config check` on a directory. There is neither a fault nor a warning.
fn check(conf: &Path, roles: &[&str]) {
    let mut command = Command::new(PROGRAM);
    command.args(["config", "check"]).args(roles.iter().flat_map(|role| ["--role", *role]));
    let checked = command.env("HADOOP_CONF_DIR", conf).env_remove("HEARTH_LOG").output().unwrap();
    let said = String::from_utf8(checked.stdout).unwrap();
    let conf = conf.display();
    assert!(checked.status.success() && said.starts_with("no faults, no warnings (read: "), "{conf}: {said}");
    for file in ["core-site.xml", "hdfs-site.xml"] {
        assert!(said.contains(file), "{conf}: {said}");
    }
}

/// As they are installed, before anything is adapted.
#[test]
fn configurations_have_no_faults_and_no_warnings() {
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
    let examples = packaging.join("examples");
    check(&examples.join("one-machine"), &[]);
    check(&examples.join("three-machines"), &[]);
    // The NameNodes are Apache's, with high availability.
    check(&examples.join("under-apache-namenode"), &["datanode", "client"]);
    let count = fs::read_dir(&examples).unwrap().count();
    assert_eq!(count, 3, "an example is not checked");

    // The files in the ConfigMap of the Kubernetes manifests.
    let manifests = fs::read_to_string(packaging.join("kubernetes/hearth.yaml")).unwrap();
    let conf = tempfile::tempdir().unwrap();
    for name in ["core-site.xml", "hdfs-site.xml"] {
        let (_, text) = manifests.split_once(&format!("\n  {name}: |\n")).unwrap();
        let lines = text.lines().take_while(|line| line.starts_with("    "));
        let text: String = lines.map(|line| format!("{line}\n")).collect();
        assert!(text.trim_end().ends_with("</configuration>"), "{text}");
        fs::write(conf.path().join(name), text).unwrap();
    }
    check(conf.path(), &[]);
}

#[test]
fn one_machine() {
    let adapted = Adapted::new();
    let conf = adapted.write("one-machine", "one");
    let namenode = Server::start(&["namenode", "-format-if-empty"], &conf);
    let datanode = Server::start(&["datanode"], &conf);
    put_and_get(&conf);
    datanode.stop();
    namenode.stop();
}

#[test]
fn three_machines() {
    let adapted = Adapted::new();
    let confs = ["node1", "node2", "node3"].map(|node| adapted.write("three-machines", node));
    let namenode = Server::start(&["namenode", "-format-if-empty"], &confs[0]);
    let datanodes = confs.each_ref().map(|conf| Server::start(&["datanode"], conf));
    put_and_get(&confs[0]);
    // The file is closed when one DataNode has reported its replica. The audit log is written by a thread of its own.
    wait_until("three replicas", PATIENCE, || {
        let mut fsck = Command::new(PROGRAM);
        fsck.args(["fsck", "/file", "-files", "-blocks"]);
        let fsck = fsck.env("HADOOP_CONF_DIR", &confs[1]).env("HADOOP_USER_NAME", "root").output()?;
        let report = String::from_utf8(fsck.stdout)?;
        ensure!(report.contains("Live_repl=3") && report.contains("HEALTHY"), "{report}");
        Ok(Some(()))
    })
    .unwrap();
    wait_until("the audit line", PATIENCE, || {
        let audit = fs::read_to_string(adapted.root.path().join("node1/audit.log"))?;
        ensure!(audit.contains("cmd=create\tsrc=/file"), "{audit}");
        Ok(Some(()))
    })
    .unwrap();
    datanodes.into_iter().for_each(Server::stop);
    namenode.stop();
}

/// The NameNode is Hearth's here: `tests/interop` has Apache's. The second of the nameservice cannot be reached.
#[test]
fn under_a_nameservice() {
    let adapted = Adapted::new();
    let namenode_conf = adapted.write("one-machine", "name");
    let conf = adapted.write("under-apache-namenode", "data");
    let namenode = Server::start(&["namenode", "-format-if-empty"], &namenode_conf);
    // Its ports are Hadoop's defaults, which this machine may use for something else. The cluster has one DataNode.
    let path = conf.join("hdfs-site.xml");
    let mut site = fs::read_to_string(&path).unwrap();
    for (key, value) in [
        ("dfs.datanode.address", "127.0.0.1:0"),
        ("dfs.datanode.ipc.address", "127.0.0.1:0"),
        ("dfs.datanode.http.address", "127.0.0.1:0"),
        ("dfs.replication", "1"),
    ] {
        let property = format!("<property><name>{key}</name><value>{value}</value></property></configuration>");
        site = site.replace("</configuration>", &property);
    }
    fs::write(&path, site).unwrap();
    let datanode = Server::start(&["datanode"], &conf);
    put_and_get(&conf);
    datanode.stop();
    namenode.stop();
}
