//! What Java's HDFS clients read by: Hadoop's client alone, or Hearth's jar in one of its two ways.

use anyhow::{Context, Result, ensure};

use crate::{Cluster, get_text};

/// How the HDFS clients of JVMs read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JavaPath {
    /// Hadoop's client as it is.
    Stock,
    /// Hadoop's client, to which Hearth's jar gives the blocks of its machine.
    Blocks,
    /// Hearth's client, by the file system class of Hearth's jar.
    Files,
}

/// Key of the classes that may give Hadoop's client the blocks of its machine.
pub(crate) const ACCESSOR_KEY: &str = "dfs.client.replica.accessor.builder.classes";

const FILE_SYSTEM_KEY: &str = "fs.hdfs.impl";

/// Settings of [`JavaPath::Files`].
pub(crate) const FILES: [(&str, &str); 2] = [
    (FILE_SYSTEM_KEY, "io.hearth.hdfs.HearthFileSystem"),
    ("fs.AbstractFileSystem.hdfs.impl", "io.hearth.hdfs.HearthHdfs"),
];

impl JavaPath {
    /// Returns a word for names of clusters and directories.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stock => "stock",
            Self::Blocks => "blocks",
            Self::Files => "files",
        }
    }

    /// Returns the settings of docs/using.md, besides `dfs.domain.socket.path`.
    pub fn settings(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Stock => &[],
            Self::Blocks => &[(ACCESSOR_KEY, "io.hearth.hdfs.LocalReplicaAccessorBuilder")],
            Self::Files => &FILES,
        }
    }

    /// Returns the path that clients of a cluster are configured for.
    pub fn of(cluster: &Cluster) -> Self {
        let setting = |key| cluster.namenode.setting(key).unwrap_or_default();
        if setting(FILE_SYSTEM_KEY).starts_with("io.hearth.") {
            Self::Files
        } else if setting(ACCESSOR_KEY).starts_with("io.hearth.") {
            Self::Blocks
        } else {
            Self::Stock
        }
    }

    /// Checks that the log of a client that has read files of `cluster` names this path, or why it was not taken. The log
    /// has the lines of level INFO of `io.hearth`.
    pub fn check_log(self, cluster: &Cluster, log: &str) -> Result<()> {
        let says = |text: &str| log.contains(text);
        let (unused, used) = match self {
            Self::Stock => {
                ensure!(!says("io.hearth") && !says("hearth.hdfs"), "Hearth's jar is in use: {log}");
                return Ok(());
            }
            Self::Blocks => {
                ("Hearth is not used", "Hearth reads blocks of DataNodes on this machine from their memory")
            }
            Self::Files => ("Hearth's client is not used", "Hearth's client reads the files of hdfs://"),
        };
        let expected = if cluster.all_datanodes_are_hearth() { used } else { unused };
        let other = if expected == used { unused } else { used };
        ensure!(says(expected) && !says(other), "{expected:?} is not what the log says: {log}");
        Ok(())
    }
}

/// Returns how many bytes Hearth's DataNodes of a cluster have sent in the packets of HDFS since their start: everything
/// that Hadoop's client alone reads. What comes from memory, by RDMA or multiplexed is not part of it.
pub fn packet_bytes(cluster: &Cluster) -> Result<u64> {
    const FIGURE: &str = "hearth_datanode_read_bytes";
    let mut sum = 0.0;
    for datanode in &cluster.datanodes {
        let page = get_text(datanode.port("dfs.datanode.http.address")?, "/metrics")?;
        let line = page.lines().find(|line| line.starts_with(FIGURE) && line.contains("\"packets\""));
        let line = line.with_context(|| format!("no {FIGURE} of packets in {page}"))?;
        let value: f64 = line.rsplit(' ').next().unwrap_or_default().parse().with_context(|| line.to_owned())?;
        sum += value;
    }
    Ok(sum as u64)
}
