//! A NameNode and DataNodes of either implementation, as processes on free ports in their own directory.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::http::live_datanodes;
use crate::java_path::{ACCESSOR_KEY, FILES};
use crate::{
    Apache, JavaPath, Process, Scratch, Settings, free_port, hearth_program, in_virtual_machine, jmx_bean, wait_until,
};

/// Timeout for the start of a JVM: on a busy machine, or in the virtual machine.
const READY_WITHIN: Duration = Duration::from_secs(180);
const READY_IN_VM_WITHIN: Duration = Duration::from_secs(300);

/// A tmpfs that every Linux has.
const TMPFS: &str = "/dev/shm";

/// Implementation of a daemon.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Implementation {
    Apache,
    Hearth,
}

/// Description of a cluster to start: `ClusterSpec::new(..).datanodes(3).start()`.
#[derive(Clone)]
pub struct ClusterSpec {
    namenode: Implementation,
    /// Implementation of each DataNode.
    datanodes: Vec<Implementation>,
    settings: Settings,
    files: Vec<(String, String)>,
    environment: Vec<(&'static str, &'static str)>,
    label: Option<String>,
    version: Option<String>,
    directory: Option<PathBuf>,
    for_measuring: bool,
    short_circuit: bool,
    hearth_jar: bool,
    ports: Option<NamenodePorts>,
    only_namenode: bool,
    address: &'static str,
}

/// Ports on which the NameNode listens, and the ones that DataNodes and clients use. A proxy of the caller may be in
/// between.
#[derive(Clone, Copy, Debug)]
pub struct NamenodePorts {
    pub rpc: u16,
    pub seen: u16,
}

impl ClusterSpec {
    /// Describes a cluster with one DataNode, replication 1, and blocks of 1 MiB, which may be as small as one chunk.
    pub fn new(namenode: Implementation, datanodes: Implementation) -> Self {
        let mut settings = Settings::default();
        settings
            .set("dfs.replication", 1)
            .set("dfs.blocksize", 1 << 20)
            .set("dfs.namenode.fs-limits.min-block-size", 1)
            .set("dfs.namenode.safemode.extension", 0)
            .set("dfs.namenode.datanode.registration.ip-hostname-check", false)
            .set("dfs.datanode.du.reserved", 0)
            .set("dfs.heartbeat.interval", 1)
            // A DataNode is dead after 2 * recheck + 10 * heartbeat: 14 s.
            .set("dfs.namenode.heartbeat.recheck-interval", 2000);
        Self {
            namenode,
            datanodes: vec![datanodes],
            settings,
            files: Vec::new(),
            environment: Vec::new(),
            label: None,
            version: None,
            directory: None,
            for_measuring: false,
            short_circuit: false,
            hearth_jar: false,
            ports: None,
            only_namenode: false,
            address: "127.0.0.1",
        }
    }

    /// Describes a cluster with DataNodes of different implementations, in this order.
    pub fn mixed(namenode: Implementation, datanodes: &[Implementation]) -> Self {
        Self { datanodes: datanodes.to_vec(), ..Self::new(namenode, Implementation::Apache) }
    }

    /// Returns every combination of implementations, for suites that run over all of them. The first is the oracle.
    pub fn every_combination() -> [Self; 4] {
        [
            Self::new(Implementation::Apache, Implementation::Apache),
            Self::new(Implementation::Apache, Implementation::Hearth),
            Self::new(Implementation::Hearth, Implementation::Apache),
            Self::new(Implementation::Hearth, Implementation::Hearth),
        ]
    }

    /// Returns the name, such as "ApacheNN+HearthDN" or "ApacheNN+2HearthDN+1ApacheDN", with the label of
    /// [`ClusterSpec::labelled`].
    pub fn name(&self) -> String {
        let of = |make| self.datanodes.iter().filter(|datanode| **datanode == make).count();
        let datanodes = match (of(Implementation::Hearth), of(Implementation::Apache)) {
            (_, 0) => "HearthDN".to_owned(),
            (0, _) => "ApacheDN".to_owned(),
            (hearth, apache) => format!("{hearth}HearthDN+{apache}ApacheDN"),
        };
        let label = self.label.as_ref().map(|label| format!("+{label}")).unwrap_or_default();
        format!("{:?}NN+{datanodes}{label}", self.namenode)
    }

    /// Sets the number of DataNodes to `count`, all like the first.
    pub fn datanodes(mut self, count: usize) -> Self {
        self.datanodes = vec![self.datanodes[0]; count];
        self
    }

    /// Uses another version of Apache's daemons and tools.
    pub fn apache_version(mut self, version: &str) -> Self {
        self.version = Some(version.to_owned());
        self
    }

    /// Adds a label, to distinguish clusters of the same implementations.
    pub fn labelled(mut self, label: &str) -> Self {
        self.label = Some(label.to_owned());
        self
    }

    /// Sets a key for both the daemons and the clients.
    pub fn set(mut self, key: &str, value: impl ToString) -> Self {
        self.settings.set(key, value);
        self
    }

    /// Sets a key to a file in the cluster's directory, which is created empty.
    pub fn set_file(mut self, key: &str, name: &str) -> Self {
        self.files.push((key.to_owned(), name.to_owned()));
        self
    }

    /// Makes the cluster's directory below `directory`, e.g. on a tmpfs, instead of the system's temporary directory.
    pub fn within(mut self, directory: &Path) -> Self {
        self.directory = Some(directory.to_owned());
        self
    }

    /// Sets a variable in the environment of Hearth's daemons.
    pub fn environment(mut self, name: &'static str, value: &'static str) -> Self {
        self.environment.push((name, value));
        self
    }

    /// Starts JVMs with their default options instead of the fast-start options.
    pub fn for_measuring(mut self) -> Self {
        self.for_measuring = true;
        self
    }

    /// Enables domain sockets, in the cluster's directory unless a setting names another one, and Java with libhadoop,
    /// which uses them. Apache's DataNode needs a directory whose ancestors other users cannot write to: see
    /// [`ClusterSpec::within`].
    pub fn short_circuit(mut self) -> Self {
        self.short_circuit = true;
        self
    }

    /// Enables domain sockets, and adds the jar of Hearth's Java binding to JVMs, whose clients use it to read local
    /// replicas. They have no libhadoop, so they read nothing by descriptor on their own.
    pub fn hearth_jar(mut self) -> Self {
        self.hearth_jar = true;
        self
    }

    /// Settings with which JVMs that have Hearth's jar read whole files by Hearth's client. Those of [`JavaPath::Blocks`],
    /// which they may have, are without effect then.
    pub const HEARTH_FILE_SYSTEM: [(&'static str, &'static str); 3] = [(ACCESSOR_KEY, ""), FILES[0], FILES[1]];

    /// Like [`ClusterSpec::hearth_jar`], but JVMs read whole files by Hearth's client.
    pub fn hearth_file_system(self) -> Self {
        Self::HEARTH_FILE_SYSTEM.into_iter().fold(self.hearth_jar(), |spec, (key, value)| spec.set(key, value))
    }

    /// Lets the HDFS clients of JVMs read by `path`, and log at level INFO whether they do.
    pub fn java_path(self, path: JavaPath) -> Self {
        let spec = self.set("log4j.logger.io.hearth", "INFO");
        match path {
            JavaPath::Stock => spec,
            JavaPath::Blocks => spec.hearth_jar(),
            JavaPath::Files => spec.hearth_file_system(),
        }
    }

    /// Address of this machine that all daemons listen on, except for the NameNode's web pages; 127.0.0.1 by default.
    /// Proxies do not support it.
    pub fn at(mut self, address: &'static str) -> Self {
        self.address = address;
        self
    }

    pub fn ports(mut self, ports: NamenodePorts) -> Self {
        self.ports = Some(ports);
        self
    }

    /// Lets [`ClusterSpec::start`] start no DataNodes. The caller starts them one by one, for example after a
    /// configuration change.
    pub fn only_namenode(mut self) -> Self {
        self.only_namenode = true;
        self
    }

    /// Starts everything, and waits until all DataNodes are live and the NameNode has left safe mode.
    pub fn start(self) -> Result<Cluster> {
        let name = self.name();
        let at_once = if self.only_namenode { 0 } else { self.datanodes.len() };
        let mut cluster = self.prepare()?;
        cluster.start_namenode().with_context(|| format!("{name}: starting its namenode"))?;
        for index in 0..at_once {
            cluster.start_datanode(index).with_context(|| format!("{name}: starting its datanode {index}"))?;
        }
        cluster.wait_ready().with_context(|| name)?;
        Ok(cluster)
    }

    /// Makes the directories and configurations of a cluster without starting it.
    fn prepare(self) -> Result<Cluster> {
        let apache = match &self.version {
            Some(version) => Apache::of_version(version),
            None if self.for_measuring => Apache::for_measuring(),
            None => Apache::find(),
        };
        let apache = match apache {
            Ok(apache) => Some(apache),
            Err(error)
                if self.namenode == Implementation::Apache || self.datanodes.contains(&Implementation::Apache) =>
            {
                return Err(error);
            }
            Err(_) => None,
        };
        let apache = match apache {
            Some(apache) if self.short_circuit => Some(apache.with_native()?),
            Some(apache) if self.hearth_jar => Some(apache.with_hearth_jar()?),
            other => other,
        };
        let parent = self.directory.clone().unwrap_or_else(std::env::temp_dir);
        let directory = Scratch::within(&parent, "hearth-test-")?;
        let http_port = free_port();
        let ports = self.ports.unwrap_or_else(|| {
            let rpc = free_port();
            NamenodePorts { rpc, seen: rpc }
        });
        let (rpc_port, seen_port, address) = (ports.rpc, ports.seen, self.address);
        let mut client = self.settings.clone();
        client
            .set("fs.defaultFS", format!("hdfs://{address}:{seen_port}"))
            .set("hadoop.tmp.dir", directory.path().join("tmp").display())
            .set("dfs.namenode.http-address", format!("127.0.0.1:{http_port}"));
        if self.hearth_jar && client.get(ACCESSOR_KEY).is_none() {
            for (key, value) in JavaPath::Blocks.settings() {
                client.set(*key, value);
            }
        }
        if self.short_circuit {
            client.set("dfs.client.read.shortcircuit", true);
        }
        if (self.short_circuit || self.hearth_jar) && client.get("dfs.domain.socket.path").is_none() {
            client.set("dfs.domain.socket.path", directory.path().join("dn_PORT").display());
        }
        for (key, name) in &self.files {
            let path = directory.path().join(name);
            fs::write(&path, "").with_context(|| format!("cannot write {}", path.display()))?;
            client.set(key, path.display());
        }
        if self.datanodes.len() < 3 && client.get("dfs.client.block.write.replace-datanode-on-failure.policy").is_none()
        {
            client.set("dfs.client.block.write.replace-datanode-on-failure.policy", "NEVER");
        }
        let mut namenode_settings = client.clone();
        namenode_settings
            .set("fs.defaultFS", format!("hdfs://{address}:{rpc_port}"))
            .set("dfs.namenode.name.dir", format!("file://{}", directory.path().join("namenode").display()));
        let mut namenode = NodeProcess::prepare(self.namenode, "namenode", directory.path(), &namenode_settings)?;
        namenode.environment = self.environment.clone();
        let memory = match self.datanodes.contains(&Implementation::Hearth) {
            false => None,
            true => Some(Scratch::within(Path::new(TMPFS), "hearth-test-")?),
        };
        let mut datanodes = Vec::new();
        for (index, make) in self.datanodes.iter().enumerate() {
            let name = format!("datanode-{index}");
            let data = directory.path().join(&name);
            let mut settings = client.clone();
            settings.set("dfs.datanode.data.dir", format!("file://{}", data.display()));
            if settings.get("dfs.datanode.hostname").is_none() {
                settings.set("dfs.datanode.hostname", address);
            }
            if let Some(memory) = &memory {
                settings.set("hearth.memory.dir", memory.path().join(&name).display());
            }
            for kind in ["", "http.", "ipc."] {
                settings.set(format!("dfs.datanode.{kind}address"), format!("{address}:{}", free_port()));
            }
            let mut datanode = NodeProcess::prepare(*make, &name, directory.path(), &settings)?;
            datanode.environment = self.environment.clone();
            datanodes.push(datanode);
        }
        let conf = directory.path().join("client-conf");
        client.write(&conf)?;
        Ok(Cluster { namenode, datanodes, conf, client, rpc_port, http_port, apache, _memory: memory, directory })
    }
}

/// Daemon of a cluster. Its configuration remains while its process stops and starts.
pub struct NodeProcess {
    make: Implementation,
    role: String,
    conf: PathBuf,
    settings: Settings,
    log: PathBuf,
    process: Option<Process>,
    /// Number of processes started so far.
    starts: usize,
    cluster_id: Option<String>,
    environment: Vec<(&'static str, &'static str)>,
}

impl NodeProcess {
    /// Prepares a daemon. `role`: begins with `namenode` or `datanode`. Configuration and log go to `directory`.
    pub fn prepare(make: Implementation, role: &str, directory: &Path, settings: &Settings) -> Result<Self> {
        let conf = directory.join(format!("{role}-conf"));
        settings.write(&conf)?;
        Ok(Self {
            make,
            role: role.to_owned(),
            conf,
            settings: settings.clone(),
            log: directory.join(format!("{role}.log")),
            process: None,
            starts: 0,
            cluster_id: None,
            environment: Vec::new(),
        })
    }

    /// Returns the port in `key`'s value `127.0.0.1:PORT`.
    pub fn port(&self, key: &str) -> Result<u16> {
        let value = self.settings.get(key).with_context(|| format!("{} has no {key}", self.role))?;
        let port = value.rsplit(':').next().and_then(|port| port.parse().ok());
        port.with_context(|| format!("{key} is {value}"))
    }

    /// Returns the storage directory on disk, the first one of a list.
    pub fn data_directory(&self) -> Option<PathBuf> {
        let key = if self.role.starts_with("namenode") { "dfs.namenode.name.dir" } else { "dfs.datanode.data.dir" };
        let first = self.settings.get(key)?.split(',').next()?;
        first.strip_prefix("file://").map(PathBuf::from)
    }

    /// Returns the directory of its configuration, which may be changed between a kill and a start.
    pub fn conf(&self) -> &Path {
        &self.conf
    }

    pub fn process(&self) -> Option<&Process> {
        self.process.as_ref()
    }

    /// Returns the process id. Error if it does not run.
    pub fn id(&self) -> Result<u32> {
        self.process.as_ref().map(Process::id).with_context(|| format!("{} does not run", self.role))
    }

    /// Starts its process. A NameNode without a directory is formatted first.
    pub fn start(&mut self, apache: Option<&Apache>) -> Result<()> {
        if self.process.is_some() {
            bail!("{} runs already", self.role);
        }
        let role = if self.role.starts_with("namenode") { "namenode" } else { "datanode" };
        if role == "namenode" && !self.data_directory().is_some_and(|directory| directory.exists()) {
            let mut command = self.command(role, apache)?;
            command.args(["-format", "-nonInteractive"]);
            if let Some(id) = &self.cluster_id {
                command.args(["-clusterid", id]);
            }
            let output = command.output();
            let output = output.context("cannot start the namenode's program")?;
            if !output.status.success() {
                bail!("formatting ended with {}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
            }
        }
        let mut command = self.command(role, apache)?;
        self.process = Some(Process::start(&self.role, &mut command, &self.log)?);
        self.starts += 1;
        Ok(())
    }

    fn command(&self, role: &str, apache: Option<&Apache>) -> Result<Command> {
        match self.make {
            Implementation::Apache => {
                let main = match role {
                    "namenode" => "org.apache.hadoop.hdfs.server.namenode.NameNode",
                    _ => "org.apache.hadoop.hdfs.server.datanode.DataNode",
                };
                Ok(apache.context("Apache Hadoop is missing")?.java(&self.conf, main))
            }
            Implementation::Hearth => {
                let mut command = Command::new(hearth_program()?);
                command.arg(role).env("HADOOP_CONF_DIR", &self.conf).envs(self.environment.iter().copied());
                Ok(command)
            }
        }
    }

    pub fn implementation(&self) -> Implementation {
        self.make
    }

    /// Returns a setting of its configuration.
    pub fn setting(&self, key: &str) -> Option<&str> {
        self.settings.get(key)
    }

    /// Changes its configuration for the next start.
    pub fn change(&mut self, changes: &[(&str, &str)]) -> Result<()> {
        for (key, value) in changes {
            self.settings.set(*key, value);
        }
        self.settings.write(&self.conf)
    }

    /// Sets the cluster id for formatting. NameNodes that share DataNodes need the same one.
    pub fn set_cluster_id(&mut self, id: &str) {
        self.cluster_id = Some(id.to_owned());
    }

    /// Starts the other implementation the next time, with the same configuration and directories.
    pub fn switch_implementation(&mut self, make: Implementation) {
        self.make = make;
    }

    /// Sends SIGKILL.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill();
        }
    }

    /// Sends SIGTERM and waits for the end.
    pub fn stop(&mut self, within: Duration) -> Result<()> {
        if let Some(mut process) = self.process.take() {
            process.terminate(within)?;
        }
        Ok(())
    }

    /// Returns an error with the end of its log if it has ended by itself.
    pub fn check_alive(&mut self) -> Result<()> {
        self.process.as_mut().map_or(Ok(()), Process::check_alive)
    }
}

/// Running cluster. Dropping it kills all processes and removes its directory. If the test is failing, the ends of the
/// logs are printed first.
pub struct Cluster {
    // Declared before `directory`, so that the processes end first.
    pub namenode: NodeProcess,
    pub datanodes: Vec<NodeProcess>,
    conf: PathBuf,
    client: Settings,
    rpc_port: u16,
    http_port: u16,
    apache: Option<Apache>,
    /// Directory of Hearth's DataNodes for replicas in memory.
    _memory: Option<Scratch>,
    directory: Scratch,
}

impl Cluster {
    /// `hdfs://127.0.0.1:PORT`
    pub fn uri(&self) -> &str {
        self.client.get("fs.defaultFS").expect("set when prepared")
    }

    /// Returns whether all daemons are Apache's.
    pub fn is_apache(&self) -> bool {
        self.namenode.make == Implementation::Apache
            && self.datanodes.iter().all(|datanode| datanode.make == Implementation::Apache)
    }

    /// Returns whether none of the DataNodes is Apache's.
    pub fn all_datanodes_are_hearth(&self) -> bool {
        self.datanodes.iter().all(|datanode| datanode.make == Implementation::Hearth)
    }

    /// Returns the clients' HADOOP_CONF_DIR.
    pub fn conf(&self) -> &Path {
        &self.conf
    }

    /// Makes another configuration directory for clients, with some settings changed.
    pub fn conf_with(&self, name: &str, changes: &[(&str, &str)]) -> Result<PathBuf> {
        let mut settings = self.client.clone();
        for (key, value) in changes {
            settings.set(*key, value);
        }
        let conf = self.directory.path().join(name);
        settings.write(&conf)?;
        Ok(conf)
    }

    /// Returns the cluster's directory, where a test may put files too.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub fn namenode_rpc_port(&self) -> u16 {
        self.rpc_port
    }

    pub fn namenode_http_port(&self) -> u16 {
        self.http_port
    }

    pub fn apache(&self) -> Result<&Apache> {
        self.apache.as_ref().context("Apache Hadoop is missing; run `cargo xtask apache`")
    }

    pub fn start_namenode(&mut self) -> Result<()> {
        self.namenode.start(self.apache.as_ref())
    }

    pub fn start_datanode(&mut self, index: usize) -> Result<()> {
        self.datanodes[index].start(self.apache.as_ref())
    }

    /// Waits until every running DataNode is reachable and live, and the NameNode has left safe mode.
    pub fn wait_ready(&mut self) -> Result<()> {
        let running = self.datanodes.iter().filter(|datanode| datanode.process.is_some()).count() as u64;
        let within = if in_virtual_machine() { READY_IN_VM_WITHIN } else { READY_WITHIN };
        let ready = wait_until("the cluster to be ready", within, || {
            // An error here is final, because the process is not restarted.
            let mut nodes = std::iter::once(&mut self.namenode).chain(&mut self.datanodes);
            if let Err(ended) = nodes.try_for_each(NodeProcess::check_alive) {
                return Ok(Some(Err(ended)));
            }
            let state = jmx_bean(self.http_port, "Hadoop:service=NameNode,name=FSNamesystemState")?;
            let live = state["NumLiveDataNodes"].as_u64().unwrap_or(0);
            // A DataNode that was just killed still counts as live while it restarts.
            let started = |datanode: &&NodeProcess| datanode.process.is_some();
            let reached = self.datanodes.iter().filter(started).all(|datanode| {
                let address = datanode.setting("dfs.datanode.address").unwrap_or_default();
                TcpStream::connect(address).is_ok()
            });
            // A registered DataNode is live, but gets no blocks before it has reported its free space.
            let has_room = self.datanodes.iter().filter(started).all(|datanode| {
                let address = datanode.setting("dfs.datanode.address").unwrap_or_default();
                self.live_datanode(address).map_or(true, |shown| shown["capacity"].as_u64() != Some(0))
            });
            let registered =
                || self.datanodes.iter().filter(started).all(|datanode| self.has_registered(datanode).unwrap_or(false));
            let is_ready = reached && live >= running && has_room && state["FSState"] == "Operational" && registered();
            Ok(is_ready.then_some(Ok(())))
        });
        ready.and_then(|ended| ended).with_context(|| self.log_tails())
    }

    /// Returns whether the current process of a DataNode has registered. After a restart, the live entry of the
    /// NameNode may still be that of the old process, even if the new one accepts connections already. Apache's
    /// DataNode does that seconds before it can serve.
    fn has_registered(&self, datanode: &NodeProcess) -> Result<bool> {
        let key = "dfs.datanode.http.address";
        let is_here = datanode.setting(key).is_some_and(|address| address.starts_with("127.0.0.1:"));
        // The first process of Apache's is live only once it has registered, and its page costs much CPU time.
        let is_first_apaches = datanode.make == Implementation::Apache && datanode.starts == 1;
        if is_first_apaches || !is_here {
            return Ok(true);
        }
        let info = jmx_bean(datanode.port(key)?, "Hadoop:service=DataNode,name=DataNodeInfo")?;
        let namenodes = info["BPServiceActorInfo"].as_str().context("a text with its namenodes")?;
        let namenodes: Vec<Value> = serde_json::from_str(namenodes)?;
        Ok(!namenodes.is_empty() && namenodes.iter().all(|namenode| namenode["ActorState"] == "RUNNING"))
    }

    /// Waits until the NameNode counts `live` DataNodes as live.
    pub fn wait_live(&self, live: u64, within: Duration) -> Result<()> {
        wait_until(&format!("{live} live datanodes"), within, || {
            let state = jmx_bean(self.http_port, "Hadoop:service=NameNode,name=FSNamesystemState")?;
            Ok((state["NumLiveDataNodes"].as_u64() == Some(live)).then_some(()))
        })
    }

    /// Returns the NameNode's entry of the live DataNode whose data port is at `address`, ip:port.
    pub fn live_datanode(&self, address: &str) -> Result<Value> {
        let wanted = live_datanodes(self.http_port)?.into_values().find(|node| node["xferaddr"] == address);
        wanted.with_context(|| format!("{address} is not live"))
    }

    fn processes(&self) -> impl Iterator<Item = &Process> {
        let nodes = std::iter::once(&self.namenode).chain(&self.datanodes);
        nodes.filter_map(|node| node.process.as_ref())
    }

    /// Returns the ends of all logs.
    pub fn log_tails(&self) -> String {
        self.processes().map(Process::log_tail).collect::<Vec<_>>().join("\n")
    }

    /// Returns the last `count` warnings and errors of each log.
    pub fn last_warnings(&self, count: usize) -> Vec<String> {
        self.processes().flat_map(|process| process.last_warnings(count)).collect()
    }

    /// Removes the data of a NameNode, so that its next start formats a new namespace.
    pub fn forget_namespace(&mut self) -> Result<()> {
        let directory = self.namenode.data_directory().context("the namenode's directory is known")?;
        fs::remove_dir_all(&directory).with_context(|| format!("cannot remove {}", directory.display()))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.log_tails());
        }
    }
}
