//! Apache's NameNodes in nameservices: several for one namespace (high availability, edits in a shared directory,
//! manual state changes), or several namespaces (federation). DataNodes of either implementation serve all of them.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::http::live_datanodes;
use crate::{Apache, Implementation, NodeProcess, Process, Scratch, Settings, free_port, jmx_bean, wait_until};

const READY_WITHIN: Duration = Duration::from_secs(120);
const TMPFS: &str = "/dev/shm";

/// Description of the daemons to start.
pub struct NameservicesSpec {
    /// Names, each with the number of its NameNodes.
    pub nameservices: Vec<(&'static str, usize)>,
    pub datanodes: Vec<Implementation>,
    /// Settings of daemons and clients.
    pub settings: Settings,
}

/// Running NameNodes and DataNodes. Dropping this kills them.
pub struct Nameservices {
    // Declared before `directory`, so that the processes end first.
    pub namenodes: Vec<NamenodeInstance>,
    pub datanodes: Vec<NodeProcess>,
    client: Settings,
    apache: Apache,
    _memory: Scratch,
    directory: tempfile::TempDir,
}

/// One NameNode.
pub struct NamenodeInstance {
    pub nameservice: &'static str,
    /// Id as in `haadmin`: nn0, nn1, ...
    pub id: String,
    pub rpc_port: u16,
    pub http_port: u16,
    pub node: NodeProcess,
}

impl NameservicesSpec {
    /// Starts everything. NameNodes of a highly available nameservice start as standby, and the first becomes active.
    pub fn start(self) -> Result<Nameservices> {
        let apache = Apache::find()?;
        let directory = tempfile::Builder::new().prefix("hearth-test-").tempdir().context("a temporary directory")?;
        let memory = Scratch::within(Path::new(TMPFS), "hearth-test-")?;
        let mut client = self.settings.clone();
        client
            .set("fs.defaultFS", format!("hdfs://{}", self.nameservices[0].0))
            .set("hadoop.tmp.dir", directory.path().join("tmp").display())
            .set("dfs.nameservices", self.nameservices.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(","))
            .set("dfs.blocksize", 1 << 20)
            .set("dfs.namenode.fs-limits.min-block-size", 1)
            .set("dfs.namenode.safemode.extension", 0)
            .set("dfs.namenode.datanode.registration.ip-hostname-check", false)
            .set("dfs.heartbeat.interval", 1)
            .set("dfs.namenode.heartbeat.recheck-interval", 2000)
            .set("dfs.ha.fencing.methods", "shell(/bin/true)")
            // A change of state may take long on a busy machine. The default is 20 s.
            .set("ha.failover-controller.cli-check.rpc-timeout.ms", 120_000)
            .set("dfs.ha.tail-edits.period", 1);
        let mut planned = Vec::new();
        for (name, count) in &self.nameservices {
            let ids: Vec<String> = (0..*count).map(|index| format!("nn{index}")).collect();
            for id in &ids {
                let (rpc_port, http_port) = (free_port(), free_port());
                let suffix = if *count > 1 { format!("{name}.{id}") } else { (*name).to_owned() };
                client
                    .set(format!("dfs.namenode.rpc-address.{suffix}"), format!("127.0.0.1:{rpc_port}"))
                    .set(format!("dfs.namenode.http-address.{suffix}"), format!("127.0.0.1:{http_port}"));
                planned.push((*name, id.clone(), rpc_port, http_port, *count > 1));
            }
            if *count > 1 {
                client.set(format!("dfs.ha.namenodes.{name}"), ids.join(","));
                let key = format!("dfs.client.failover.proxy.provider.{name}");
                if client.get(&key).is_none() {
                    let package = "org.apache.hadoop.hdfs.server.namenode.ha";
                    client.set(key, format!("{package}.ConfiguredFailoverProxyProvider"));
                }
            }
        }
        if !planned[0].4 {
            // Only a highly available nameservice is addressed by its name.
            client.set("fs.defaultFS", format!("hdfs://127.0.0.1:{}", planned[0].2));
        }
        client.write(&directory.path().join("client-conf"))?;

        let mut namenodes = Vec::new();
        for (nameservice, id, rpc_port, http_port, is_ha) in planned {
            let name = format!("namenode-{nameservice}-{id}");
            let mut settings = client.clone();
            settings
                .set("dfs.nameservice.id", nameservice)
                .set("dfs.namenode.name.dir", format!("file://{}", directory.path().join(&name).display()));
            if is_ha {
                let shared = directory.path().join(format!("{nameservice}-shared"));
                settings
                    .set("dfs.ha.namenode.id", &id)
                    .set("dfs.namenode.shared.edits.dir", format!("file://{}", shared.display()));
            }
            let mut node = NodeProcess::prepare(Implementation::Apache, &name, directory.path(), &settings)?;
            node.set_cluster_id("CID-hearth-test");
            namenodes.push(NamenodeInstance { nameservice, id, rpc_port, http_port, node });
        }
        let mut datanodes = Vec::new();
        for (index, make) in self.datanodes.iter().enumerate() {
            let name = format!("datanode-{index}");
            let mut settings = client.clone();
            settings
                .set("dfs.datanode.data.dir", format!("file://{}", directory.path().join(&name).display()))
                .set("dfs.datanode.hostname", "127.0.0.1")
                .set("hearth.memory.dir", memory.path().join(&name).display());
            for kind in ["", "http.", "ipc."] {
                settings.set(format!("dfs.datanode.{kind}address"), format!("127.0.0.1:{}", free_port()));
            }
            datanodes.push(NodeProcess::prepare(*make, &name, directory.path(), &settings)?);
        }
        let mut cluster = Nameservices { namenodes, datanodes, client, apache, _memory: memory, directory };
        cluster.start_all().with_context(|| cluster.log_tails())?;
        Ok(cluster)
    }
}

impl Nameservices {
    fn start_all(&mut self) -> Result<()> {
        for index in 0..self.namenodes.len() {
            let first =
                (0..index).find(|earlier| self.namenodes[*earlier].nameservice == self.namenodes[index].nameservice);
            if let Some(first) = first {
                // Does the work of -bootstrapStandby without another JVM. The first NameNode is still standby and
                // writes nothing.
                self.copy_namespace(first, index)?;
            }
            self.start_namenode(index)?;
            self.wait_up(index)?;
        }
        for index in 0..self.datanodes.len() {
            self.start_datanode(index)?;
        }
        for index in 0..self.namenodes.len() {
            if self.is_ha(index) && self.namenodes[index].id == "nn0" {
                self.admin(index, "-transitionToActive", &[])?;
            }
        }
        for index in 0..self.namenodes.len() {
            self.wait_datanodes(index)?;
        }
        Ok(())
    }

    fn copy_namespace(&self, from: usize, to: usize) -> Result<()> {
        let directory = |index: usize| self.namenodes[index].node.data_directory().context("it has one");
        let (from, to) = (directory(from)?, directory(to)?);
        fs::create_dir_all(&to)?;
        let status =
            Command::new("cp").arg("-a").arg(from.join("current")).arg(&to).status().context("cannot start cp")?;
        ensure!(status.success(), "cp ended with {status}");
        Ok(())
    }

    fn is_ha(&self, index: usize) -> bool {
        let name = self.namenodes[index].nameservice;
        self.namenodes.iter().filter(|other| other.nameservice == name).count() > 1
    }

    pub fn start_namenode(&mut self, index: usize) -> Result<()> {
        self.namenodes[index].node.start(Some(&self.apache))
    }

    pub fn start_datanode(&mut self, index: usize) -> Result<()> {
        self.datanodes[index].start(Some(&self.apache))
    }

    pub fn apache(&self) -> &Apache {
        &self.apache
    }

    /// Returns the clients' HADOOP_CONF_DIR.
    pub fn conf(&self) -> std::path::PathBuf {
        self.directory.path().join("client-conf")
    }

    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Returns a client's setting.
    pub fn setting(&self, key: &str) -> Option<&str> {
        self.client.get(key)
    }

    /// Waits until its web pages answer.
    pub fn wait_up(&mut self, index: usize) -> Result<()> {
        let NamenodeInstance { id, http_port, node, .. } = &mut self.namenodes[index];
        wait_until(&format!("{id} to come up"), READY_WITHIN, || {
            if let Err(ended) = node.check_alive() {
                return Ok(Some(Err(ended)));
            }
            jmx_bean(*http_port, "Hadoop:service=NameNode,name=NameNodeStatus")?;
            Ok(Some(Ok(())))
        })?
    }

    /// Waits until every running DataNode is live with free space, and the NameNode has left safe mode. A registered
    /// DataNode is live, but gets no blocks before its first heartbeat has reported the space.
    pub fn wait_datanodes(&mut self, index: usize) -> Result<()> {
        let running = self.datanodes.iter().filter(|datanode| datanode.process().is_some()).count() as u64;
        let Self { namenodes, datanodes, .. } = self;
        let namenode = &mut namenodes[index];
        let what = format!("{} of {} to know its datanodes", namenode.id, namenode.nameservice);
        wait_until(&what, READY_WITHIN, || {
            let mut nodes = std::iter::once(&mut namenode.node).chain(datanodes.iter_mut());
            if let Err(ended) = nodes.try_for_each(NodeProcess::check_alive) {
                return Ok(Some(Err(ended)));
            }
            let state = jmx_bean(namenode.http_port, "Hadoop:service=NameNode,name=FSNamesystemState")?;
            let live = live_datanodes(namenode.http_port)?;
            let with_room = live.values().filter(|shown| shown["capacity"].as_u64() != Some(0)).count() as u64;
            Ok((with_room >= running && state["FSState"] == "Operational").then_some(Ok(())))
        })?
    }

    /// Returns its state: active, standby, observer.
    pub fn state(&self, index: usize) -> Result<String> {
        let bean = jmx_bean(self.namenodes[index].http_port, "Hadoop:service=NameNode,name=NameNodeStatus")?;
        Ok(bean["State"].as_str().unwrap_or_default().to_owned())
    }

    /// Runs `hdfs haadmin COMMAND OPTIONS ID`.
    pub fn admin(&self, index: usize, command: &str, options: &[&str]) -> Result<String> {
        let NamenodeInstance { nameservice, id, .. } = &self.namenodes[index];
        let mut arguments = vec!["-ns", nameservice, command];
        arguments.extend(options);
        arguments.push(id);
        let output = self.apache.run(&self.conf(), "org.apache.hadoop.hdfs.tools.DFSHAAdmin", &arguments)?;
        output.success().with_context(|| format!("hdfs haadmin {}", arguments.join(" ")))
    }

    /// Returns the ends of all logs.
    pub fn log_tails(&self) -> String {
        let nodes = self.namenodes.iter().map(|served| &served.node).chain(&self.datanodes);
        nodes.filter_map(|node| node.process()).map(Process::log_tail).collect::<Vec<_>>().join("\n")
    }
}

impl Drop for Nameservices {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.log_tails());
        }
    }
}
