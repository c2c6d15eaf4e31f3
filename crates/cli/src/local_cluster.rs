//! A NameNode and some DataNodes on this machine: their directories and their configurations. `hearth up` and `hearth
//! demo` use it.
//!
//! ```text
//! DIR/name                 namespace          MEMORY/hearth-UID-HASH/dataN   replicas in memory
//! DIR/dataN                replicas on disk   DIR/processes/ROLE/*.xml        configuration of each process
//! DIR/logs/ROLE.log                           MEMORY/hearth-UID-HASH/dn_PORT  their domain sockets
//! ```

mod processes;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use hearth_config::{Configuration, Environment};
use hearth_fabric::local::check_path;

pub use processes::{Process, ProcessCluster};

/// Options that the user chose.
#[derive(Clone, Debug)]
pub struct LocalClusterOptions {
    pub dir: PathBuf,
    /// A tmpfs.
    pub memory_root: PathBuf,
    pub datanodes: usize,
    /// Port of the NameNode's RPC; 0 picks a free one.
    pub port: u16,
    /// Port of the NameNode's web pages; 0 picks a free one.
    pub http_port: u16,
    /// Keys that are added to every configuration, such as `dfs.blocksize`.
    pub settings: Vec<(String, String)>,
}

/// Paths and configurations of one local cluster.
#[derive(Clone, Debug)]
pub struct LocalCluster {
    options: LocalClusterOptions,
    memory_dir: PathBuf,
    /// Bytes of memory for replicas, derived from the machine's memory.
    memory_capacity: u64,
}

impl LocalCluster {
    /// Makes the directories.
    ///
    /// Errors: a directory that cannot be made, by its name.
    pub fn prepare(mut options: LocalClusterOptions) -> anyhow::Result<Self> {
        if options.datanodes == 0 {
            bail!("a file system needs at least one DataNode");
        }
        let make = |path: &Path| {
            std::fs::create_dir_all(path).with_context(|| format!("cannot make the directory {}", path.display()))
        };
        make(&options.dir)?;
        options.dir = options
            .dir
            .canonicalize()
            .with_context(|| format!("cannot find the directory {}", options.dir.display()))?;
        // Makes the name the same after a restart, so that the directory finds its memory again.
        let mut hasher = DefaultHasher::new();
        options.dir.hash(&mut hasher);
        let name = format!("hearth-{}-{:016x}", rustix::process::getuid().as_raw(), hasher.finish());
        let memory_dir = options.memory_root.join(name);
        for path in [options.dir.join("logs"), options.dir.join("name"), memory_dir.clone()] {
            make(&path)?;
        }
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(&memory_dir, std::fs::Permissions::from_mode(0o700))
            .with_context(|| format!("cannot restrict {}", memory_dir.display()))?;
        let memory_capacity = hearth_datanode::available_memory(&memory_dir);
        Ok(Self { options, memory_dir, memory_capacity })
    }

    pub fn dir(&self) -> &Path {
        &self.options.dir
    }

    pub fn datanodes(&self) -> usize {
        self.options.datanodes
    }

    /// Returns the directory of the replicas in memory.
    pub fn memory_dir(&self) -> &Path {
        &self.memory_dir
    }

    /// Removes the directories of the replicas in memory, as far as they are empty, and the sockets there. To be called
    /// when all DataNodes have ended.
    ///
    /// Returns the bytes of memory that files there still take: replicas that are kept, or that could not be written to
    /// disk.
    pub fn remove_memory(&self) -> u64 {
        remove_empty(&self.memory_dir)
    }

    fn log_file(&self, role: &str) -> PathBuf {
        self.options.dir.join("logs").join(format!("{role}.log"))
    }

    fn base_configuration(&self) -> Configuration {
        let replication = self.options.datanodes.min(3).to_string();
        let mut configuration = Configuration::empty()
            .with_environment(Environment::new(std::env::vars()))
            .with("dfs.replication", replication)
            // All DataNodes of one machine have the same address, and host names need not resolve.
            .with("dfs.namenode.datanode.registration.ip-hostname-check", "false")
            .with("dfs.namenode.safemode.extension", "0")
            // A user who stops it wants the machine's memory back.
            .with("hearth.memory.keep", "false")
            // The DataNodes share the machine's memory. Half of it stays for everything else.
            .with("hearth.memory.limit", (self.memory_capacity / 2 / self.options.datanodes as u64).to_string())
            // Clients of the same user have the rights of the DataNodes anyway.
            .with("hearth.local.write.trusted", "true");
        if let Some(path) = self.socket_path() {
            configuration.set("dfs.domain.socket.path", path);
        }
        for (key, value) in &self.options.settings {
            configuration.set(key, value.clone());
        }
        configuration
    }

    /// Returns where the DataNodes listen for clients of the same user on this machine: beside the memory, because only
    /// this user can write there. `None` if that path is too long for a socket.
    fn socket_path(&self) -> Option<String> {
        let path = self.memory_dir.join("dn_PORT");
        // A port number is at most as long as its placeholder.
        check_path(&path).is_ok().then(|| path.display().to_string())
    }

    /// Returns the NameNode's configuration.
    pub fn namenode(&self) -> Configuration {
        let Self { options, .. } = self;
        let address = format!("127.0.0.1:{}", options.port);
        self.base_configuration()
            .with("fs.defaultFS", format!("hdfs://{address}"))
            .with("dfs.namenode.rpc-address", address)
            .with("dfs.namenode.http-address", format!("127.0.0.1:{}", options.http_port))
            .with("dfs.namenode.name.dir", options.dir.join("name").display().to_string())
    }

    /// Returns the configuration of DataNode `number` (from 1), which registers with the NameNode at `namenode`. Its
    /// ports are free ones.
    pub fn datanode(&self, number: usize, namenode: SocketAddr) -> Configuration {
        let name = format!("data{number}");
        self.base_configuration()
            .with("fs.defaultFS", format!("hdfs://{namenode}"))
            .with("dfs.namenode.rpc-address", namenode.to_string())
            .with("dfs.datanode.data.dir", self.options.dir.join(&name).display().to_string())
            .with("dfs.datanode.address", "127.0.0.1:0")
            .with("dfs.datanode.ipc.address", "127.0.0.1:0")
            .with("dfs.datanode.http.address", "127.0.0.1:0")
            .with("dfs.datanode.du.reserved", "0")
            .with("hearth.memory.dir", self.memory_dir.join(&name).display().to_string())
    }

    /// Returns the configuration that any Hadoop client needs to use the file system at `namenode`. `http` is the
    /// address of its web pages, which tools such as `hdfs fsck` use.
    pub fn client(&self, namenode: SocketAddr, http: SocketAddr) -> Configuration {
        let mut configuration = Configuration::empty()
            .with("fs.defaultFS", format!("hdfs://{namenode}"))
            .with("dfs.namenode.rpc-address", namenode.to_string())
            .with("dfs.namenode.http-address", http.to_string())
            .with("dfs.replication", self.options.datanodes.min(3).to_string());
        if self.options.datanodes < 3 {
            // With fewer than three DataNodes, no other one can replace a lost one.
            configuration.set("dfs.client.block.write.replace-datanode-on-failure.policy", "NEVER");
        }
        if let Some(path) = self.socket_path() {
            configuration.set("dfs.domain.socket.path", path);
            // A Java client without libhadoop logs once that it cannot do this, and reads over TCP.
            configuration.set("dfs.client.read.shortcircuit", "true");
        }
        for (key, value) in &self.options.settings {
            configuration.set(key, value.clone());
        }
        configuration
    }
}

/// Removes `dir` with its directories and sockets, as far as they hold no files. Returns the bytes of the files.
fn remove_empty(dir: &Path) -> u64 {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    let mut left = 0;
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        match std::fs::symlink_metadata(&path) {
            Ok(found) if found.is_dir() => left += remove_empty(&path),
            // A DataNode that was killed has left it.
            Ok(found) if found.file_type().is_socket() => drop(std::fs::remove_file(&path)),
            Ok(found) => left += found.blocks() * 512,
            Err(_) => {}
        }
    }
    // Fails if a file is left.
    let _ = std::fs::remove_dir(dir);
    left
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn only_files_keep_directories_in_memory() {
        let directory = tempfile::tempdir().unwrap();
        let memory = directory.path().join("memory");
        for name in ["data1/DS-1/BP-1", "data2"] {
            std::fs::create_dir_all(memory.join(name)).unwrap();
        }
        drop(UnixListener::bind(memory.join("dn_9866")).unwrap());
        std::fs::write(memory.join("data1/DS-1/BP-1/blk_1_2.data"), vec![1; 10_000]).unwrap();
        assert!(remove_empty(&memory) >= 10_000);
        let left: Vec<_> = std::fs::read_dir(&memory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["data1"]);
        std::fs::remove_file(memory.join("data1/DS-1/BP-1/blk_1_2.data")).unwrap();
        assert_eq!(remove_empty(&memory), 0);
        assert!(!memory.exists());
    }
}
