//! One cluster with DataNodes of both implementations. A file's storage policy decides which of them stores it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use hearth_testkit::{Apache, Cluster, ClusterSpec, Driver, Implementation, Scratch, usage, wait_until};
use serde_json::json;

use super::Arguments;
use crate::measure::ServerClock;

/// File that lists the DataNodes to decommission.
const EXCLUDED: &str = "excluded";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    Apache,
    Hearth,
}

pub const BOTH: [Side; 2] = [Side::Apache, Side::Hearth];

impl Side {
    pub fn name(self) -> &'static str {
        match self {
            Self::Apache => "Apache",
            Self::Hearth => "Hearth",
        }
    }

    fn implementation(self) -> Implementation {
        match self {
            Self::Apache => Implementation::Apache,
            Self::Hearth => Implementation::Hearth,
        }
    }

    /// Returns the directory of the file system whose blocks are stored only on DataNodes of this implementation.
    pub fn directory(self) -> String {
        format!("/{}", self.name())
    }

    pub fn path(self, name: &str) -> String {
        format!("{}/{name}", self.directory())
    }

    /// Returns the storage type that its DataNodes report, and the policy that selects it. Only the names differ: the
    /// medium is the same.
    fn storage(self) -> (&'static str, &'static str) {
        match self {
            Self::Apache => ("[DISK]", "HOT"),
            Self::Hearth => ("[SSD]", "ALL_SSD"),
        }
    }
}

/// The cluster and its only client.
pub struct Sides {
    pub cluster: Cluster,
    pub java: Driver,
    /// Disk directory of Hearth's DataNodes, outside of the cluster's directory.
    _disk: Scratch,
}

impl Sides {
    /// Starts an Apache NameNode, and configures `each` DataNodes of each implementation without starting them.
    /// Apache's DataNodes store their data in `data`, Hearth's on `disk`.
    pub fn start(
        arguments: &Arguments,
        each: usize,
        data: &Path,
        disk: &Path,
        memory_limit: Option<u64>,
    ) -> Result<Self> {
        let makes: Vec<Implementation> =
            BOTH.iter().flat_map(|side| std::iter::repeat_n(side.implementation(), each)).collect();
        let mut spec = ClusterSpec::mixed(Implementation::Apache, &makes)
            .only_namenode()
            .within(data)
            .set("dfs.blocksize", arguments.block_mib << 20)
            .set("dfs.datanode.transferTo.allowed", !arguments.no_transfer_to)
            .set_file("dfs.hosts.exclude", EXCLUDED)
            // The interval of a larger cluster: the NameNode's polling must not dominate the measurement.
            .set("dfs.namenode.redundancy.interval.seconds", 1)
            .set("dfs.namenode.decommission.interval", 1)
            .set("dfs.namenode.replication.max-streams", 20)
            .set("dfs.namenode.replication.max-streams-hard-limit", 40)
            .set("dfs.namenode.replication.work.multiplier.per.iteration", 20)
            // Half of the DataNodes belong to the other implementation and are idle, so the average load is
            // meaningless.
            .set("dfs.namenode.redundancy.considerLoad", false)
            // Shortens the sleep of the client in close(); see docs/benchmarks.
            .set("dfs.client.block.write.locateFollowingBlock.initial.delay.ms", 2)
            .set("dfs.client.block.write.locateFollowingBlock.retries", 12)
            .for_measuring();
        if let Some(limit) = memory_limit {
            spec = spec.set("hearth.memory.limit", limit);
        }
        let mut cluster = spec.start()?;
        let own_disk = Scratch::within(disk, "hearth-bench-")?;
        for (index, node) in cluster.datanodes.iter_mut().enumerate() {
            let side = if node.implementation() == Implementation::Hearth { Side::Hearth } else { Side::Apache };
            let directory = match (side, node.data_directory()) {
                (Side::Apache, Some(directory)) => directory,
                _ => own_disk.path().join(format!("datanode-{index}")),
            };
            let value = format!("{}file://{}", side.storage().0, directory.display());
            node.change(&[("dfs.datanode.data.dir", &value)])?;
        }
        let java = Driver::java(&Apache::for_measuring()?, cluster.conf())?;
        let mut sides = Self { cluster, java, _disk: own_disk };
        for side in BOTH {
            sides.java.call("mkdirs", json!({"path": side.directory()}))?;
            sides.java.call("policy", json!({"path": side.directory(), "policy": side.storage().1}))?;
        }
        Ok(sides)
    }

    /// Returns the indices of a side's DataNodes in the cluster's list.
    fn of(&self, side: Side) -> impl Iterator<Item = usize> + '_ {
        let is_of = move |(index, node): (usize, &hearth_testkit::NodeProcess)| {
            (node.implementation() == side.implementation()).then_some(index)
        };
        self.cluster.datanodes.iter().enumerate().filter_map(is_of)
    }

    /// Starts the first or the second DataNode of a side and waits until the NameNode counts it. Returns its address.
    pub fn start_datanode(&mut self, side: Side, which: usize) -> Result<String> {
        let index = self.of(side).nth(which).context("there are as many")?;
        self.cluster.start_datanode(index)?;
        self.cluster.wait_ready()?;
        let address = self.cluster.datanodes[index].setting("dfs.datanode.address").context("it has an address")?;
        Ok(address.to_owned())
    }

    /// Stops all DataNodes of a side, and waits until the NameNode counts only the others.
    pub fn stop_datanodes(&mut self, side: Side) -> Result<()> {
        let indices: Vec<usize> = self.of(side).collect();
        for index in indices {
            self.cluster.datanodes[index].kill();
        }
        let running = self.cluster.datanodes.iter().filter(|node| node.process().is_some()).count();
        self.cluster.wait_live(running as u64, Duration::from_secs(60))
    }

    /// Returns the process ids of a side's running DataNodes.
    pub fn processes(&self, side: Side) -> Vec<u32> {
        self.of(side).filter_map(|index| self.cluster.datanodes[index].id().ok()).collect()
    }

    pub fn clock(&self, side: Side) -> Result<Clocks> {
        self.processes(side).into_iter().map(ServerClock::start).collect::<Result<_>>().map(Clocks)
    }

    /// Lists `datanode` for decommissioning and refreshes the NameNode.
    pub fn decommission(&mut self, datanode: &str) -> Result<()> {
        let list: PathBuf = self.cluster.directory().join(EXCLUDED);
        std::fs::write(&list, format!("{datanode}\n")).with_context(|| format!("cannot write {}", list.display()))?;
        self.java.call("refreshNodes", json!({}))?;
        Ok(())
    }

    /// Deletes a file and waits until its blocks are gone.
    pub fn delete(&mut self, side: Side, path: &str) -> Result<()> {
        self.java.call("delete", json!({"path": path, "recursive": true}))?;
        let blocks = |sides: &Self| -> Result<u64> {
            let state = hearth_testkit::jmx_bean(
                sides.cluster.namenode_http_port(),
                "Hadoop:service=NameNode,name=FSNamesystem",
            )?;
            Ok(state["PendingDeletionBlocks"].as_u64().unwrap_or(0))
        };
        wait_until("deleted blocks to be handed out", Duration::from_secs(60), || {
            Ok((blocks(self)? == 0).then_some(()))
        })?;
        self.rest(side, Duration::from_secs(1), Duration::from_secs(60))
    }

    /// Waits until the DataNodes of a side have used almost no CPU time for a period of `rest`.
    pub fn rest(&self, side: Side, rest: Duration, within: Duration) -> Result<()> {
        let processes = self.processes(side);
        let used = || processes.iter().map(|process| Ok(usage(*process)?.cpu())).sum::<Result<f64>>();
        let (mut last, mut since) = (used()?, std::time::Instant::now());
        wait_until("the DataNodes to come to rest", within, || {
            let now = used()?;
            // The threshold allows for heartbeats and for a JVM's own background work.
            if now - last > 0.05 * since.elapsed().as_secs_f64().max(1.0) {
                (last, since) = (now, std::time::Instant::now());
            }
            Ok((since.elapsed() >= rest).then_some(()))
        })
    }
}

/// CPU clocks of several servers, started at the same moment.
pub struct Clocks(Vec<ServerClock>);

impl Clocks {
    /// Returns `(all but the flusher, the flusher)`, summed over the servers.
    pub fn elapsed(&self) -> Result<(f64, f64)> {
        let mut sum = (0.0, 0.0);
        for clock in &self.0 {
            let (work, flusher) = clock.elapsed()?;
            sum = (sum.0 + work, sum.1 + flusher);
        }
        Ok(sum)
    }
}
