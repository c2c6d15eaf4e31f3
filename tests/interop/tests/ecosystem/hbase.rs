//! HBase with its tables and its write-ahead log on Hearth: ZooKeeper, a master and two region servers, each in its own
//! JVM.
//!
//! The log is written by HBase's own client of the DataTransferProtocol (`asyncfs`, the default: one connection to each
//! DataNode, no pipeline) or by Hadoop's (`filesystem`). A row counts as acknowledged when its put has returned. It
//! must exist afterwards, whatever is killed.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hearth_interop::{Check, Session, Suite};
use hearth_testkit::{ClusterSpec, Driver, Engine, Implementation, Process, Settings, free_port, wait_until};
use serde_json::{Value, json};

const CHECKS: &[Check] = &[
    ("table_written_flushed_compacted", table),
    ("region_server_killed_amid_writes", region_server_killed),
    ("datanode_killed_amid_writes", datanode_killed),
    ("everything_killed_and_started", everything_killed),
];

/// Rows of the table before any kill.
const ROWS: u64 = 100_000;
const WRITERS: u64 = 4;
/// Number of acknowledged rows of each writer before and after a kill.
const ROWS_AMID: u64 = 1000;
/// Timeout for the start of a JVM, or for the takeover by another server. Most of the latter is ZooKeeper's timeout, on
/// a busy machine.
const PATIENCE: Duration = Duration::from_secs(240);

pub fn suite() -> Suite {
    let cluster = |namenode, provider: &str| {
        ClusterSpec::new(namenode, Implementation::Hearth)
            .datanodes(3)
            .labelled(provider)
            .set("dfs.replication", 2)
            .set("dfs.blocksize", 8 << 20)
            .set("hearth.memory.limit", "512m")
            .set("hbase.wal.provider", provider)
    };
    let clusters = vec![
        cluster(Implementation::Hearth, "asyncfs"),
        cluster(Implementation::Hearth, "filesystem"),
        cluster(Implementation::Apache, "asyncfs"),
    ];
    Suite { name: "hbase", clusters, checks: CHECKS }
}

/// HBase's processes and a client.
struct HBase {
    client: Driver,
    servers: Vec<Process>,
    /// Declared after the servers, which need these processes as long as they live.
    _others: Vec<Process>,
    /// Ranges of acknowledged rows, and of rows that may exist because their outcome is unknown.
    whole: Vec<Value>,
    perhaps: Vec<Value>,
    /// Number of the next writer's first row.
    next: u64,
}

/// Ports, which stay the same after a restart.
struct Places {
    zookeeper: u16,
    master: u16,
    servers: [u16; 2],
}

impl HBase {
    fn start(session: &Session) -> Result<Self> {
        let engine = Engine::hbase()?;
        let places = Places { zookeeper: free_port(), master: free_port(), servers: [free_port(), free_port()] };
        let directory = session.cluster.directory();
        let mut others = Vec::new();
        let mut servers = Vec::new();
        let start = |role: &str, conf: &Path, heap_mib, main: &str, verb: Option<&str>| -> Result<Process> {
            let mut command = engine.java(conf, heap_mib, main);
            command.args(verb);
            Process::start(role, &mut command, &directory.join(format!("{role}.log")))
        };
        let conf = configuration(session, &places, 0)?;
        others.push(start("zookeeper", &conf, 64, "org.apache.hadoop.hbase.zookeeper.HQuorumPeer", None)?);
        others.push(start("master", &conf, 256, "org.apache.hadoop.hbase.master.HMaster", Some("start"))?);
        for server in 0..places.servers.len() {
            let conf = configuration(session, &places, server)?;
            let main = "org.apache.hadoop.hbase.regionserver.HRegionServer";
            servers.push(start(&format!("server-{server}"), &conf, 384, main, Some("start"))?);
        }
        let client = Driver::start(&mut engine.our_java(&conf, 256, "Tables")?)?;
        let (whole, perhaps) = (Vec::new(), Vec::new());
        let mut hbase = Self { client, servers, _others: others, whole, perhaps, next: 1 << 40 };
        hbase.wait_servers()?;
        Ok(hbase)
    }

    /// Returns the ends of all logs.
    fn log_tails(&self) -> String {
        self.servers.iter().chain(&self._others).map(Process::log_tail).collect::<Vec<_>>().join("\n")
    }

    /// Waits until the master counts both servers, which is after the killed ones have expired.
    fn wait_servers(&mut self) -> Result<()> {
        wait_until("two region servers", PATIENCE, || {
            let mut all = self.servers.iter_mut().chain(&mut self._others);
            if let Err(ended) = all.try_for_each(Process::check_alive) {
                return Ok(Some(Err(ended)));
            }
            let servers = self.client.call("servers", json!({}))?;
            Ok((servers.as_array().map(Vec::len) == Some(2)).then_some(Ok(())))
        })?
    }

    fn put(&mut self, from: u64, to: u64) -> Result<()> {
        self.client.call("put", json!({"from": from, "to": to, "threads": WRITERS}))?;
        self.whole.push(json!([from, to]));
        Ok(())
    }

    /// Checks that every acknowledged row exists, and no row that was not written.
    fn verify(&mut self) -> Result<()> {
        let asked = json!({"whole": self.whole, "perhaps": self.perhaps});
        let answer = self.client.call("verify", asked)?;
        ensure!(answer["missing"] == 0 && answer["wrong"] == json!([]), "of {:?}: {answer}", self.whole);
        Ok(())
    }

    /// Writes rows while `disturb` runs, and until all writers make progress after it.
    fn amid_writes(&mut self, disturb: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        self.client.call("write", json!({"writers": WRITERS, "from": self.next}))?;
        // The numbering of `Tables.java`.
        self.next += WRITERS << 32;
        self.wait_written(ROWS_AMID)?;
        disturb(self)?;
        let after = self.written()?.into_iter().max().unwrap_or_default() + ROWS_AMID;
        self.wait_written(after)?;
        let stopped = self.client.call("stop", json!({}))?;
        for writer in stopped.as_array().context("the writers' rows")? {
            self.whole.push(json!([writer[0], writer[1]]));
            self.perhaps.push(json!([writer[1], writer[2]]));
        }
        Ok(())
    }

    fn written(&mut self) -> Result<Vec<u64>> {
        let written = self.client.call("written", json!({}))?;
        let written = written.as_array().context("a number for each writer")?;
        written.iter().map(|rows| rows.as_u64().context("a number of rows")).collect()
    }

    fn wait_written(&mut self, rows: u64) -> Result<()> {
        wait_until(&format!("{rows} rows of each writer"), PATIENCE, || {
            Ok(self.written()?.iter().all(|written| *written >= rows).then_some(()))
        })
    }
}

/// Makes a configuration directory for region server `server`, or for all other processes.
fn configuration(session: &Session, places: &Places, server: usize) -> Result<PathBuf> {
    let conf = session.cluster.conf_with(&format!("hbase-{server}-conf"), &[])?;
    let directory = session.cluster.directory();
    let mut settings = Settings::default();
    settings
        .set("hbase.rootdir", format!("{}/hbase", session.cluster.uri()))
        .set("hbase.tmp.dir", directory.join("hbase-tmp").display())
        .set("hbase.cluster.distributed", true)
        .set("hbase.wal.provider", session.cluster.namenode.setting("hbase.wal.provider").unwrap_or("asyncfs"))
        // The default: no log on a file system without hflush.
        .set("hbase.unsafe.stream.capability.enforce", true)
        .set("hbase.zookeeper.quorum", "127.0.0.1")
        .set("hbase.zookeeper.property.clientPort", places.zookeeper)
        .set("hbase.zookeeper.property.clientPortAddress", "127.0.0.1")
        .set("hbase.zookeeper.property.dataDir", directory.join("zookeeper").display())
        // The port of its page for operators would be the same in all instances.
        .set("hbase.zookeeper.property.admin.enableServer", false)
        .set("hbase.zookeeper.property.tickTime", 2000)
        .set("zookeeper.session.timeout", 12_000)
        .set("hbase.master.port", places.master)
        .set("hbase.master.hostname", "localhost")
        .set("hbase.master.ipc.address", "127.0.0.1")
        .set("hbase.master.info.port", -1)
        .set("hbase.master.wait.on.regionservers.mintostart", places.servers.len())
        .set("hbase.regionserver.port", places.servers[server])
        .set("hbase.unsafe.regionserver.hostname", "localhost")
        .set("hbase.regionserver.ipc.address", "127.0.0.1")
        .set("hbase.regionserver.info.port", -1);
    settings.write_as(&conf.join("hbase-site.xml"))?;
    // At this level the servers log the log's implementation and the takeover of a dead server's log.
    let told =
        ["wal", "util.RecoverLeaseFSUtils"].map(|what| format!("log4j.logger.org.apache.hadoop.hbase.{what}=INFO"));
    let path = conf.join("log4j.properties");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    fs::write(&path, text + &told.join("\n")).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(conf)
}

/// Runs a step with the HBase that the first check has started.
fn with(session: &mut Session, step: impl FnOnce(&mut Session, &mut HBase) -> Result<()>) -> Result<()> {
    let kept = session.kept.take().and_then(|kept| kept.downcast::<HBase>().ok());
    let mut hbase = kept.context("HBase does not run: an earlier check failed")?;
    let outcome = step(session, &mut hbase).with_context(|| hbase.log_tails());
    // After a failure it is not used by later steps.
    if outcome.is_ok() {
        session.kept = Some(hbase);
    }
    outcome
}

fn table(session: &mut Session) -> Result<()> {
    session.kept = Some(Box::new(HBase::start(session)?));
    with(session, |session, hbase| {
        let provider = match session.cluster.namenode.setting("hbase.wal.provider") {
            Some("filesystem") => "FSHLogProvider",
            _ => "AsyncFSWALProvider",
        };
        hbase.client.call("create", json!({"regions": 4}))?;
        hbase.put(0, ROWS)?;
        for server in &hbase.servers {
            ensure!(server.log_text().contains(provider), "{} writes its log otherwise", server.name());
        }
        hbase.client.call("flush", json!({}))?;
        let wrong = hbase.client.call("gets", json!({"below": ROWS, "count": 1000}))?;
        ensure!(wrong == 0, "{wrong} gets of 1000 gave something else");
        hbase.verify()?;
        // Another store file, so that the compaction has work to do.
        hbase.put(ROWS, ROWS + ROWS / 10)?;
        hbase.client.call("flush", json!({}))?;
        hbase.client.call("compact", json!({}))?;
        hbase.verify()
    })
}

fn region_server_killed(session: &mut Session) -> Result<()> {
    with(session, |_, hbase| {
        let holders = hbase.client.call("holders", json!({}))?;
        ensure!(holders.as_object().is_some_and(|holders| holders.len() == 2), "not on both servers: {holders}");
        hbase.amid_writes(|hbase| {
            hbase.servers.remove(0).kill();
            Ok(())
        })?;
        let holders = hbase.client.call("holders", json!({}))?;
        ensure!(holders.as_object().is_some_and(|holders| holders.len() == 1), "not on one server: {holders}");
        let log = hbase.servers[0].log_text();
        ensure!(log.contains("Recovered lease"), "the log was not taken over by lease recovery");
        hbase.verify()
    })
}

fn datanode_killed(session: &mut Session) -> Result<()> {
    with(session, |session, hbase| {
        hbase.amid_writes(|_| {
            session.cluster.datanodes[0].kill();
            Ok(())
        })?;
        hbase.verify()
    })
}

fn everything_killed(session: &mut Session) -> Result<()> {
    let (mut whole, mut perhaps) = (Vec::new(), Vec::new());
    with(session, |_, hbase| {
        // Not flushed: these rows are only in the log.
        hbase.put(2 * ROWS, 2 * ROWS + ROWS / 10)?;
        whole.append(&mut hbase.whole);
        perhaps.append(&mut hbase.perhaps);
        Ok(())
    })?;
    // Kills all of it with SIGKILL, as a drop does.
    session.kept = None;
    session.cluster.namenode.kill();
    session.cluster.datanodes.iter_mut().for_each(hearth_testkit::NodeProcess::kill);
    session.cluster.start_namenode()?;
    for index in 0..session.cluster.datanodes.len() {
        session.cluster.start_datanode(index)?;
    }
    session.cluster.wait_ready()?;
    session.kept = Some(Box::new(HBase::start(session)?));
    with(session, |_, hbase| {
        (hbase.whole, hbase.perhaps) = (whole, perhaps);
        hbase.verify()?;
        hbase.put(3 * ROWS, 3 * ROWS + ROWS / 10)?;
        hbase.client.call("flush", json!({}))?;
        hbase.verify()
    })
}
