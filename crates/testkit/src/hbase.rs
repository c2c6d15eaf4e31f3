//! HBase on a cluster: ZooKeeper, a master and region servers, each in its own JVM, and a client.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;

use crate::{Cluster, Driver, Engine, Process, Settings, free_port, wait_until};

/// Description of an HBase to start.
pub struct HBaseSpec<'a> {
    /// Name of its directories, on disk and in HDFS: different for each HBase of a cluster.
    pub name: &'a str,
    pub engine: Engine,
    /// Number of region servers.
    pub servers: usize,
    /// Heap of a region server in MiB.
    pub server_heap_mib: u32,
    /// Implementation of the write-ahead log: `asyncfs` or `filesystem`.
    pub wal_provider: &'a str,
    /// Settings of its HDFS clients.
    pub changes: &'a [(&'a str, &'a str)],
    /// Timeout for the start of its JVMs.
    pub within: Duration,
}

/// Running HBase. Dropping it kills its processes.
pub struct HBase {
    /// `tests/interop/java/hbase/Tables.java`
    pub client: Driver,
    pub servers: Vec<Process>,
    /// Declared after the servers, which need these processes as long as they live.
    others: Vec<Process>,
}

/// Ports, which stay the same after a restart.
struct Places {
    zookeeper: u16,
    master: u16,
    servers: Vec<u16>,
}

impl HBase {
    /// Starts everything, and waits until the master counts all region servers.
    pub fn start(cluster: &Cluster, spec: &HBaseSpec<'_>) -> Result<Self> {
        let places = Places {
            zookeeper: free_port(),
            master: free_port(),
            servers: (0..spec.servers).map(|_| free_port()).collect(),
        };
        let mut others = Vec::new();
        let mut servers = Vec::new();
        let start = |role: &str, conf: &Path, heap_mib, main: &str, verb: Option<&str>| -> Result<Process> {
            let mut command = spec.engine.java(conf, heap_mib, main);
            command.args(verb);
            Process::start(role, &mut command, &cluster.directory().join(format!("{}-{role}.log", spec.name)))
        };
        let conf = configuration(cluster, spec, &places, 0)?;
        others.push(start("zookeeper", &conf, 64, "org.apache.hadoop.hbase.zookeeper.HQuorumPeer", None)?);
        others.push(start("master", &conf, 256, "org.apache.hadoop.hbase.master.HMaster", Some("start"))?);
        for server in 0..spec.servers {
            let conf = configuration(cluster, spec, &places, server)?;
            let main = "org.apache.hadoop.hbase.regionserver.HRegionServer";
            servers.push(start(&format!("server-{server}"), &conf, spec.server_heap_mib, main, Some("start"))?);
        }
        let client = Driver::start(&mut spec.engine.our_java(&conf, 256, "Tables")?)?;
        let mut hbase = Self { client, servers, others };
        hbase.wait_servers(spec.servers, spec.within)?;
        Ok(hbase)
    }

    /// Returns the ends of all logs.
    pub fn log_tails(&self) -> String {
        self.servers.iter().chain(&self.others).map(Process::log_tail).collect::<Vec<_>>().join("\n")
    }

    /// Waits until the master counts `count` region servers: killed ones have expired then.
    fn wait_servers(&mut self, count: usize, within: Duration) -> Result<()> {
        wait_until(&format!("{count} region servers"), within, || {
            let mut all = self.servers.iter_mut().chain(&mut self.others);
            if let Err(ended) = all.try_for_each(Process::check_alive) {
                return Ok(Some(Err(ended)));
            }
            let servers = self.client.call("servers", json!({}))?;
            Ok((servers.as_array().map(Vec::len) == Some(count)).then_some(Ok(())))
        })?
    }
}

/// Makes a configuration directory for region server `server`, or for all other processes.
fn configuration(cluster: &Cluster, spec: &HBaseSpec<'_>, places: &Places, server: usize) -> Result<PathBuf> {
    let name = spec.name;
    let conf = cluster.conf_with(&format!("{name}-{server}-conf"), spec.changes)?;
    let directory = cluster.directory();
    let mut settings = Settings::default();
    settings
        .set("hbase.rootdir", format!("{}/{name}", cluster.uri()))
        .set("hbase.tmp.dir", directory.join(format!("{name}-tmp")).display())
        .set("hbase.cluster.distributed", true)
        .set("hbase.wal.provider", spec.wal_provider)
        // The default: no log on a file system without hflush.
        .set("hbase.unsafe.stream.capability.enforce", true)
        .set("hbase.zookeeper.quorum", "127.0.0.1")
        .set("hbase.zookeeper.property.clientPort", places.zookeeper)
        .set("hbase.zookeeper.property.clientPortAddress", "127.0.0.1")
        .set("hbase.zookeeper.property.dataDir", directory.join(format!("{name}-zookeeper")).display())
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
