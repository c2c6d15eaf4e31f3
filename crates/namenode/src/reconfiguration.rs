//! Keys that can change while the NameNode runs: `dfsadmin -reconfig namenode`. They are those keys of Apache's NameNode
//! that Hearth reads, and keys of Hearth's own. docs/compatibility/configuration.md has all keys, and why the others
//! need a restart.

use hearth_config::{ConfigError, Configuration, ReconfigurableKey, ReconfigurationError, reconfigurable};
use parking_lot::{MappedRwLockWriteGuard, RwLockWriteGuard};

use crate::audit::ContextLimits;
use crate::blocks::BlockSettings;
use crate::image::BackupSettings;
use crate::settings::{message_bytes, protected_directories};
use crate::slow_nodes::SlowNodeOptions;
use crate::state::Namenode;

pub const KEYS: &[ReconfigurableKey<Namenode>] = &[
    // DataNodes and their blocks.
    reconfigurable!(DFS_HEARTBEAT_INTERVAL, |namenode, value| namenode.block_settings().heartbeat_interval = value),
    reconfigurable!(DFS_NAMENODE_HEARTBEAT_RECHECK_INTERVAL, |namenode, value| {
        namenode.block_settings().heartbeat_recheck = value;
    }),
    reconfigurable!(DFS_NAMENODE_REPLICATION_MAX_STREAMS, |namenode, value| {
        namenode.block_settings().max_streams = value;
    }),
    reconfigurable!(DFS_NAMENODE_REPLICATION_MAX_STREAMS_HARD_LIMIT, |namenode, value| {
        namenode.block_settings().max_streams_hard = value;
    }),
    reconfigurable!(DFS_NAMENODE_RECONSTRUCTION_PENDING_TIMEOUT, |namenode, value| {
        namenode.block_settings().pending_timeout = value;
    }),
    reconfigurable!(DFS_BLOCK_INVALIDATE_LIMIT, |namenode, value| {
        namenode.block_settings().invalidate_limit = value as usize;
    }),
    reconfigurable!(HEARTH_NAMENODE_REPLICATION_WINDOW, |namenode, value| {
        namenode.block_settings().transfer_window = value;
    }),
    reconfigurable!(HEARTH_NAMENODE_ADVERTISEMENTS_MAX, |namenode, value| {
        namenode.state.write().blocks.set_advertisement_bytes_max(value as usize);
    }),
    // Slow DataNodes and disks.
    reconfigurable!(DFS_DATANODE_PEER_STATS_ENABLED, set_slow_nodes),
    reconfigurable!(DFS_DATANODE_FILEIO_PROFILING_SAMPLING_PERCENTAGE, set_slow_nodes),
    reconfigurable!(DFS_DATANODE_OUTLIERS_REPORT_INTERVAL, set_slow_nodes),
    reconfigurable!(DFS_DATANODE_MAX_NODES_TO_REPORT, set_slow_nodes),
    reconfigurable!(DFS_DATANODE_MAX_DISKS_TO_REPORT, set_slow_nodes),
    // The namespace and its copies.
    reconfigurable!(FS_PROTECTED_DIRECTORIES, |namenode, value| {
        namenode.state.write().namespace.limits.protected = protected_directories(value);
    }),
    reconfigurable!(HEARTH_NAMENODE_BACKUP_DIR, set_backups),
    reconfigurable!(HEARTH_NAMENODE_BACKUP_INTERVAL, set_backups),
    reconfigurable!(HEARTH_NAMENODE_BACKUP_KEEP, set_backups),
    // Ports and the audit log.
    reconfigurable!(HEARTH_RPC_MESSAGE_MEMORY, set_message_memory),
    reconfigurable!(HEARTH_WEB_READ_ONLY, |namenode, value| namenode.protection.set_read_only(value)),
    reconfigurable!(HADOOP_CALLER_CONTEXT_ENABLED, set_caller_context),
];

fn set_slow_nodes(namenode: &Namenode, configuration: &Configuration) -> Result<(), ConfigError> {
    namenode.slow_nodes.set_options(SlowNodeOptions::read(configuration)?);
    Ok(())
}

fn set_backups(namenode: &Namenode, configuration: &Configuration) -> Result<(), ConfigError> {
    namenode.backups.send_replace(BackupSettings::read(configuration)?);
    Ok(())
}

fn set_message_memory(namenode: &Namenode, configuration: &Configuration) -> Result<(), ConfigError> {
    namenode.rpc.set_message_bytes(message_bytes(configuration)?);
    Ok(())
}

fn set_caller_context(namenode: &Namenode, configuration: &Configuration) -> Result<(), ConfigError> {
    let limits = ContextLimits::read(configuration)?;
    if let Some(audit) = &namenode.audit {
        audit.set_context(limits);
    }
    Ok(())
}

impl Namenode {
    /// Reads the configuration files again and applies what can change. Blocks.
    ///
    /// Errors: a file cannot be read, or another call is at work. Nothing has changed then.
    pub fn reconfigure(&self) -> Result<(), ReconfigurationError> {
        self.reconfiguration.run(self, || self.clock.wall_ms())
    }

    /// Each use reads the current values.
    fn block_settings(&self) -> MappedRwLockWriteGuard<'_, BlockSettings> {
        RwLockWriteGuard::map(self.state.write(), |state| state.blocks.settings_mut())
    }
}
