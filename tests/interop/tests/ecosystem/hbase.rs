//! HBase with its tables and its write-ahead log on Hearth: ZooKeeper, a master and two region servers, each in its own
//! JVM.
//!
//! The log is written by HBase's own client of the DataTransferProtocol (`asyncfs`, the default: one connection to each
//! DataNode, no pipeline) or by Hadoop's (`filesystem`). A row counts as acknowledged when its put has returned. It
//! must exist afterwards, whatever is killed.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hearth_interop::{Check, Session, Suite};
use hearth_testkit::{
    Cluster, ClusterSpec, Engine, HBase, HBaseSpec, Implementation, JavaPath, Process, packet_bytes, wait_until,
};
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

/// Bytes of the values of the rows of the first check.
const VALUE_BYTES: u64 = 96 * ROWS;

pub fn suite() -> Suite {
    let cluster = |namenode, provider: &str, path: JavaPath| {
        let label = if path == JavaPath::Stock { provider.to_owned() } else { format!("{provider}+{}", path.name()) };
        ClusterSpec::new(namenode, Implementation::Hearth)
            .datanodes(3)
            .java_path(path)
            .labelled(&label)
            .set("dfs.replication", 2)
            .set("dfs.blocksize", 8 << 20)
            .set("hearth.memory.limit", "512m")
            .set("hbase.wal.provider", provider)
    };
    let clusters = vec![
        cluster(Implementation::Hearth, "asyncfs", JavaPath::Stock),
        cluster(Implementation::Hearth, "filesystem", JavaPath::Stock),
        cluster(Implementation::Apache, "asyncfs", JavaPath::Stock),
        cluster(Implementation::Hearth, "asyncfs", JavaPath::Blocks),
        cluster(Implementation::Hearth, "asyncfs", JavaPath::Files),
        cluster(Implementation::Hearth, "filesystem", JavaPath::Files),
    ];
    Suite { name: "hbase", clusters, checks: CHECKS }
}

/// HBase's processes and a client, and what the client has written.
struct Rows {
    hbase: HBase,
    /// Ranges of acknowledged rows, and of rows that may exist because their outcome is unknown.
    whole: Vec<Value>,
    perhaps: Vec<Value>,
    /// Number of the next writer's first row.
    next: u64,
}

impl Rows {
    fn start(session: &Session) -> Result<Self> {
        let mut engine = Engine::hbase()?;
        if JavaPath::of(&session.cluster) != JavaPath::Stock {
            engine = engine.with_hearth_jar()?;
        }
        let spec = HBaseSpec {
            name: "hbase",
            engine,
            servers: 2,
            server_heap_mib: 384,
            wal_provider: session.cluster.namenode.setting("hbase.wal.provider").unwrap_or("asyncfs"),
            changes: &[],
            within: PATIENCE,
        };
        let hbase = HBase::start(&session.cluster, &spec)?;
        Ok(Self { hbase, whole: Vec::new(), perhaps: Vec::new(), next: 1 << 40 })
    }

    fn put(&mut self, from: u64, to: u64) -> Result<()> {
        self.hbase.client.call("put", json!({"from": from, "to": to, "threads": WRITERS}))?;
        self.whole.push(json!([from, to]));
        Ok(())
    }

    /// Checks that every acknowledged row exists, and no row that was not written.
    fn verify(&mut self) -> Result<()> {
        let asked = json!({"whole": self.whole, "perhaps": self.perhaps});
        let answer = self.hbase.client.call("verify", asked)?;
        ensure!(answer["missing"] == 0 && answer["wrong"] == json!([]), "of {:?}: {answer}", self.whole);
        Ok(())
    }

    /// Writes rows while `disturb` runs, and until all writers make progress after it.
    fn amid_writes(&mut self, disturb: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        self.hbase.client.call("write", json!({"writers": WRITERS, "from": self.next}))?;
        // The numbering of `Tables.java`.
        self.next += WRITERS << 32;
        self.wait_written(ROWS_AMID)?;
        disturb(self)?;
        let after = self.written()?.into_iter().max().unwrap_or_default() + ROWS_AMID;
        self.wait_written(after)?;
        let stopped = self.hbase.client.call("stop", json!({}))?;
        for writer in stopped.as_array().context("the writers' rows")? {
            self.whole.push(json!([writer[0], writer[1]]));
            self.perhaps.push(json!([writer[1], writer[2]]));
        }
        Ok(())
    }

    fn written(&mut self) -> Result<Vec<u64>> {
        let written = self.hbase.client.call("written", json!({}))?;
        let written = written.as_array().context("a number for each writer")?;
        written.iter().map(|rows| rows.as_u64().context("a number of rows")).collect()
    }

    fn wait_written(&mut self, rows: u64) -> Result<()> {
        wait_until(&format!("{rows} rows of each writer"), PATIENCE, || {
            Ok(self.written()?.iter().all(|written| *written >= rows).then_some(()))
        })
    }
}

/// Runs a step with the HBase that the first check has started.
fn with(session: &mut Session, step: impl FnOnce(&mut Session, &mut Rows) -> Result<()>) -> Result<()> {
    let kept = session.kept.take().and_then(|kept| kept.downcast::<Rows>().ok());
    let mut rows = kept.context("HBase does not run: an earlier check failed")?;
    let outcome = step(session, &mut rows).with_context(|| rows.hbase.log_tails());
    // After a failure it is not used by later steps.
    if outcome.is_ok() {
        session.kept = Some(rows);
    }
    outcome
}

fn table(session: &mut Session) -> Result<()> {
    session.kept = Some(Box::new(Rows::start(session)?));
    with(session, |session, rows| {
        let provider = match session.cluster.namenode.setting("hbase.wal.provider") {
            Some("filesystem") => "FSHLogProvider",
            _ => "AsyncFSWALProvider",
        };
        rows.hbase.client.call("create", json!({"regions": 4}))?;
        rows.put(0, ROWS)?;
        for server in &rows.hbase.servers {
            ensure!(server.log_text().contains(provider), "{} writes its log otherwise", server.name());
        }
        rows.hbase.client.call("flush", json!({}))?;
        let wrong = rows.hbase.client.call("gets", json!({"below": ROWS, "count": 1000}))?;
        ensure!(wrong == 0, "{wrong} gets of 1000 gave something else");
        rows.verify()?;
        // Another store file, so that the compaction has work to do.
        rows.put(ROWS, ROWS + ROWS / 10)?;
        rows.hbase.client.call("flush", json!({}))?;
        rows.hbase.client.call("compact", json!({}))?;
        scan(&session.cluster, rows)
    })
}

/// Reads all rows from the store files, and checks the path that their bytes take.
fn scan(cluster: &Cluster, rows: &mut Rows) -> Result<()> {
    let before = packet_bytes(cluster)?;
    rows.verify()?;
    let sent = packet_bytes(cluster)? - before;
    let path = JavaPath::of(cluster);
    let is_expected = if path == JavaPath::Stock { sent > VALUE_BYTES / 2 } else { sent < VALUE_BYTES / 8 };
    ensure!(is_expected, "the DataNodes sent {sent} bytes in packets to region servers that read by {path:?}");
    let logs: String = rows.hbase.servers.iter().map(Process::log_text).collect();
    path.check_log(cluster, &logs)
}

fn region_server_killed(session: &mut Session) -> Result<()> {
    with(session, |_, rows| {
        let holders = rows.hbase.client.call("holders", json!({}))?;
        ensure!(holders.as_object().is_some_and(|holders| holders.len() == 2), "not on both servers: {holders}");
        rows.amid_writes(|rows| {
            rows.hbase.servers.remove(0).kill();
            Ok(())
        })?;
        let holders = rows.hbase.client.call("holders", json!({}))?;
        ensure!(holders.as_object().is_some_and(|holders| holders.len() == 1), "not on one server: {holders}");
        let log = rows.hbase.servers[0].log_text();
        ensure!(log.contains("Recovered lease"), "the log was not taken over by lease recovery");
        rows.verify()
    })
}

fn datanode_killed(session: &mut Session) -> Result<()> {
    with(session, |session, rows| {
        rows.amid_writes(|_| {
            session.cluster.datanodes[0].kill();
            Ok(())
        })?;
        rows.verify()
    })
}

fn everything_killed(session: &mut Session) -> Result<()> {
    let (mut whole, mut perhaps) = (Vec::new(), Vec::new());
    with(session, |_, rows| {
        // Not flushed: these rows are only in the log.
        rows.put(2 * ROWS, 2 * ROWS + ROWS / 10)?;
        whole.append(&mut rows.whole);
        perhaps.append(&mut rows.perhaps);
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
    session.kept = Some(Box::new(Rows::start(session)?));
    with(session, |_, rows| {
        (rows.whole, rows.perhaps) = (whole, perhaps);
        rows.verify()?;
        rows.put(3 * ROWS, 3 * ROWS + ROWS / 10)?;
        rows.hbase.client.call("flush", json!({}))?;
        rows.verify()
    })
}
