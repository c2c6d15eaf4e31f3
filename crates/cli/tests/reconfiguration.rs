//! Changes of running servers: keys by `hearth dfsadmin -reconfig`, levels of the log by `/logLevel` and the
//! page of the log.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use hearth_config::{Program, keys, to_xml};
use hearth_testkit::{free_port, reconfigurable_rows, wait_until};
use serde_json::{Value, json};

const PROGRAM: &str = env!("CARGO_BIN_EXE_hearth");

/// Longest wait for a server.
const WAIT: Duration = Duration::from_secs(60);

/// A server. Dropping it kills it.
struct Server {
    child: Child,
    /// The line that it prints when it is ready.
    ready: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    fn start(arguments: &[&str], conf: &Path) -> Self {
        let mut command = Command::new(PROGRAM);
        command.args(arguments).env("HADOOP_CONF_DIR", conf).env("HADOOP_USER_NAME", "root").env_remove("HEARTH_LOG");
        let log = File::create(conf.join(format!("{}.log", arguments[0]))).unwrap();
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        let server = Self { child, ready };
        assert!(server.ready.starts_with("READY"), "{arguments:?} did not start");
        server
    }

    /// Returns one of its addresses.
    fn address(&self, name: &str) -> &str {
        let prefix = format!("{name}=");
        self.ready.split_whitespace().find_map(|word| word.strip_prefix(&prefix)).unwrap()
    }
}

/// Writes the servers' file. `changed`: values besides the fixed ones.
fn write(root: &Path, namenode: u16, changed: &[(&str, &str)]) {
    let at = |name: &str| root.join(name).display().to_string();
    let fixed = [
        ("fs.defaultFS", format!("hdfs://127.0.0.1:{namenode}")),
        ("dfs.namenode.http-address", "127.0.0.1:0".to_owned()),
        ("dfs.namenode.name.dir", at("name")),
        ("dfs.namenode.safemode.extension", "0".to_owned()),
        ("dfs.namenode.resource.du.reserved", "0".to_owned()),
        ("dfs.namenode.datanode.registration.ip-hostname-check", "false".to_owned()),
        ("dfs.datanode.address", "127.0.0.1:0".to_owned()),
        ("dfs.datanode.ipc.address", "127.0.0.1:0".to_owned()),
        ("dfs.datanode.http.address", "127.0.0.1:0".to_owned()),
        ("dfs.datanode.data.dir", at("data")),
        ("hearth.memory.dir", at("memory")),
        ("hearth.memory.limit", "16m".to_owned()),
    ];
    let all = fixed.iter().map(|(name, value)| (*name, value.as_str())).chain(changed.iter().copied());
    std::fs::write(root.join("hdfs-site.xml"), to_xml(all)).unwrap();
}

/// Returns the answer of a web port.
fn fetch(address: &str, path: &str) -> String {
    request(address, "GET", path)
}

fn request(address: &str, method: &str, path: &str) -> String {
    let mut socket = TcpStream::connect(address).unwrap();
    write!(socket, "{method} {path} HTTP/1.1\r\nHost: {address}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    answer
}

/// Returns the JSON of an answer.
fn body(answer: &str) -> Value {
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

#[test]
fn levels_of_the_log_change_while_a_server_runs() {
    let root = tempfile::Builder::new().prefix("hearth-re-").tempdir_in("/dev/shm").unwrap();
    let (root, namenode_port) = (root.path(), free_port());
    write(root, namenode_port, &[("dfs.heartbeat.interval", "1")]);
    let namenode = Server::start(&["namenode", "-format-if-empty"], root);
    let web = namenode.address("http");
    // Each change of a key has a line at level info.
    let logged = |heartbeat: &str| {
        write(root, namenode_port, &[("dfs.heartbeat.interval", heartbeat)]);
        let mut command = Command::new(PROGRAM);
        command.args(["dfsadmin", "-reconfig", "namenode", namenode.address("rpc"), "start"]);
        let output = command.env("HADOOP_CONF_DIR", root).env("HADOOP_USER_NAME", "root").output().unwrap();
        assert!(output.status.success(), "{output:?}");
        std::fs::read_to_string(root.join("namenode.log")).unwrap().matches("configuration changed").count()
    };
    assert_eq!(logged("2"), 1);
    let shown = fetch(web, "/logLevel?log=hearth_config");
    assert!(shown.starts_with("HTTP/1.1 200") && shown.contains("Effective Level: <b>INFO</b>"), "{shown}");
    let changed = fetch(web, "/logLevel?log=hearth_config&level=WARN");
    assert!(changed.contains("<!-- OUTPUT -->Setting Level to WARN ..."), "{changed}");
    assert!(fetch(web, "/logLevel?log=hearth_config").contains("Effective Level: <b>WARN</b>"));
    assert!(fetch(web, "/logLevel?log=org.apache.hadoop").contains("Effective Level: <b>INFO</b>"));
    assert_eq!(logged("3"), 1);
    fetch(web, "/logLevel?log=hearth_config&level=info");
    assert_eq!(logged("4"), 2);
    // Another user than the server's may not change levels.
    let refused = fetch(web, "/logLevel?log=root&level=OFF&user.name=bob");
    assert!(refused.starts_with("HTTP/1.1 403"), "{refused}");
    assert!(fetch(web, "/logLevel?log=root&level=LOUD").contains("Bad Level : <b>LOUD</b>"));

    // The page of the log shows the same levels, and changes them in the name of a superuser.
    let entry =
        |module: &str, level: &str, changed: bool| json!({ "module": module, "level": level, "changed": changed });
    let shown = body(&fetch(web, "/ui/log-level?user.name=root"));
    let levels = json!([entry("", "INFO", false), entry("hearth_config", "INFO", true)]);
    assert_eq!((&shown["start"], &shown["levels"]), (&json!("info"), &levels));
    let changed = request(web, "PUT", "/ui/log-level?user.name=root&module=hearth_config&level=warn");
    assert_eq!(body(&changed), json!({ "module": "hearth_config", "level": "WARN" }));
    assert_eq!(logged("5"), 2);
    let refused = request(web, "PUT", "/ui/log-level?user.name=bob&module=hearth_config&level=info");
    assert!(refused.starts_with("HTTP/1.1 403") && refused.contains("Superuser privilege"), "{refused}");
    let refused = request(web, "PUT", "/ui/log-level?user.name=root&module=hearth_config&level=loud");
    assert!(refused.starts_with("HTTP/1.1 400") && refused.contains("wanted OFF, FATAL"), "{refused}");
    assert_eq!(logged("6"), 2);
    let reset = request(web, "DELETE", "/ui/log-level?user.name=root");
    assert_eq!(body(&reset), json!({ "module": "all modules", "level": "INFO" }));
    assert_eq!(body(&fetch(web, "/ui/log-level?user.name=root"))["levels"], json!([entry("", "INFO", false)]));
    assert_eq!(logged("7"), 3);
}

#[test]
fn servers_change_keys_while_they_run() {
    // On a tmpfs, because of the replicas in memory.
    let root = tempfile::Builder::new().prefix("hearth-re-").tempdir_in("/dev/shm").unwrap();
    let (root, namenode_port) = (root.path(), free_port());
    write(root, namenode_port, &[("dfs.heartbeat.interval", "1")]);
    let namenode = Server::start(&["namenode", "-format-if-empty"], root);
    let datanode = Server::start(&["datanode"], root);
    let hearth = |line: &str| {
        let mut command = Command::new(PROGRAM);
        command.args(line.split(' ')).env("HADOOP_CONF_DIR", root).env("HADOOP_USER_NAME", "root");
        let output = command.output().unwrap();
        assert!(output.status.success(), "{line}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let at_namenode = format!("dfsadmin -reconfig namenode {}", namenode.address("rpc"));
    let at_datanode = format!("dfsadmin -reconfig datanode {}", datanode.address("ipc"));
    for (server, key) in
        [(&at_namenode, "dfs.heartbeat.interval"), (&at_datanode, "dfs.datanode.balance.bandwidthPerSec")]
    {
        let listed = hearth(&format!("{server} properties"));
        assert!(listed.contains("Reconfigurable properties:\n") && listed.contains(&format!("{key}\n")), "{listed}");
        let status = hearth(&format!("{server} status"));
        assert!(status.ends_with("no task was found.\n"), "{status}");
    }
    // Each server lists the keys that the documentation names, and the documentation has all keys.
    for (server, name, program) in
        [(&at_namenode, "NameNode", Program::Namenode), (&at_datanode, "DataNode", Program::Datanode)]
    {
        let rows = reconfigurable_rows(name).unwrap();
        let read = keys::ALL.iter().filter(|key| key.programs().contains(&program)).map(|key| key.name);
        let mut read: Vec<&str> = read.collect();
        read.sort_unstable();
        assert_eq!(rows.iter().map(|row| row.key.as_str()).collect::<Vec<_>>(), read, "keys of the {name}");
        let changeable: Vec<&str> = rows.iter().filter(|row| row.hearth).map(|row| row.key.as_str()).collect();
        let listed = hearth(&format!("{server} properties"));
        assert_eq!(listed.lines().skip(1).collect::<Vec<_>>(), changeable, "{name}");
        let wrong: Vec<_> = rows.iter().filter(|row| row.hearth != row.why_not.is_empty()).collect();
        assert!(wrong.is_empty(), "a reason for each key that cannot change, and for no other: {wrong:?}");
    }
    let changed = [
        ("dfs.heartbeat.interval", "2"),
        ("dfs.datanode.balance.bandwidthPerSec", "7m"),
        // Cannot change, and so is not mentioned.
        ("dfs.replication", "1"),
    ];
    write(root, namenode_port, &changed);
    for server in [&at_namenode, &at_datanode] {
        assert!(hearth(&format!("{server} start")).starts_with("Started reconfiguration task on node ["));
    }
    let status = hearth(&format!("{at_namenode} status"));
    let change = "SUCCESS: Changed property dfs.heartbeat.interval\n\tFrom: \"1\"\n\tTo: \"2\"\n";
    assert!(status.contains(" and finished at ") && status.ends_with(change), "{status}");
    let status = hearth(&format!("{at_datanode} status"));
    let change = "SUCCESS: Changed property dfs.datanode.balance.bandwidthPerSec\n\tFrom: \"100m\"\n\tTo: \"7m\"\n";
    assert!(status.ends_with(change), "{status}");
    let bandwidth = hearth(&format!("dfsadmin -getBalancerBandwidth {}", datanode.address("ipc")));
    assert!(bandwidth.contains(&(7 << 20).to_string()), "{bandwidth}");
    // A value that cannot be used changes nothing, and is reported.
    write(root, namenode_port, &[("dfs.heartbeat.interval", "0"), ("dfs.datanode.balance.bandwidthPerSec", "7m")]);
    hearth(&format!("{at_namenode} start"));
    let status = hearth(&format!("{at_namenode} status"));
    assert!(
        status.contains("FAILED: Change property dfs.heartbeat.interval\n\tFrom: \"2\"\n\tTo: \"0\"\n"),
        "{status}"
    );
    assert!(status.contains("wanted 1ms to 1d"), "{status}");
}

#[test]
fn changed_keys_change_what_servers_do() {
    let root = tempfile::Builder::new().prefix("hearth-re-").tempdir_in("/dev/shm").unwrap();
    let (root, namenode_port) = (root.path(), free_port());
    let usual = [("dfs.heartbeat.interval", "1"), ("dfs.blockreport.intervalMsec", "6h")];
    write(root, namenode_port, &usual);
    let namenode = Server::start(&["namenode", "-format-if-empty"], root);
    let datanode = Server::start(&["datanode"], root);
    let reconfigure = |changed: &[(&str, &str)]| {
        write(root, namenode_port, changed);
        for words in [["namenode", namenode.address("rpc")], ["datanode", datanode.address("ipc")]] {
            let mut command = Command::new(PROGRAM);
            command.args(["dfsadmin", "-reconfig"]).args(words).arg("start");
            let output = command.env("HADOOP_CONF_DIR", root).env("HADOOP_USER_NAME", "root").output().unwrap();
            assert!(output.status.success(), "{output:?}");
        }
    };
    let make = |name: &str| {
        let path = format!("/webhdfs/v1/{name}?op=MKDIRS&user.name=root");
        request(namenode.address("http"), "PUT", &path)
    };
    let made = make("before");
    assert!(made.starts_with("HTTP/1.1 200"), "{made}");
    let reports = || {
        let log = std::fs::read_to_string(root.join("datanode.log")).unwrap();
        log.matches("full block report sent").count()
    };
    wait_until("the first report", WAIT, || Ok((reports() > 0).then_some(()))).unwrap();
    // The next reports would be sent hours later.
    let shown = |web: &str, key: &str| fetch(web, &format!("/conf?format=json&name={key}"));
    reconfigure(&[usual[0], ("dfs.blockreport.intervalMsec", "200"), ("hearth.web.read-only", "true")]);
    let sent = reports();
    wait_until("three more reports", WAIT, || Ok((reports() >= sent + 3).then_some(()))).unwrap();
    let refused = make("during");
    assert!(refused.starts_with("HTTP/1.1 403") && refused.contains("hearth.web.read-only"), "{refused}");
    for server in [&namenode, &datanode] {
        let text = shown(server.address("http"), "hearth.web.read-only");
        assert!(text.contains("\"value\":\"true\""), "{text}");
    }
    reconfigure(&usual);
    assert!(make("after").starts_with("HTTP/1.1 200"));
}
