//! Keys that can change while the NameNode runs: `dfsadmin -reconfig namenode`. They are the keys of Apache's NameNode
//! whose value each use reads again.

use hearth_config::{ConfigError, Configuration, Reconfiguration, ReconfigurationError, keys};

use crate::blocks::BlockSettings;
use crate::state::Namenode;

/// Puts a value into force.
type Apply = fn(&mut BlockSettings, &Configuration) -> Result<(), ConfigError>;

const KEYS: [(&str, Apply); 6] = [
    (keys::DFS_HEARTBEAT_INTERVAL.name, |settings, configuration| {
        settings.heartbeat_interval = configuration.get(keys::DFS_HEARTBEAT_INTERVAL)?;
        Ok(())
    }),
    (keys::DFS_NAMENODE_HEARTBEAT_RECHECK_INTERVAL.name, |settings, configuration| {
        settings.heartbeat_recheck = configuration.get(keys::DFS_NAMENODE_HEARTBEAT_RECHECK_INTERVAL)?;
        Ok(())
    }),
    (keys::DFS_NAMENODE_REPLICATION_MAX_STREAMS.name, |settings, configuration| {
        settings.max_streams = configuration.get(keys::DFS_NAMENODE_REPLICATION_MAX_STREAMS)?;
        Ok(())
    }),
    (keys::DFS_NAMENODE_REPLICATION_MAX_STREAMS_HARD_LIMIT.name, |settings, configuration| {
        settings.max_streams_hard = configuration.get(keys::DFS_NAMENODE_REPLICATION_MAX_STREAMS_HARD_LIMIT)?;
        Ok(())
    }),
    (keys::DFS_NAMENODE_RECONSTRUCTION_PENDING_TIMEOUT.name, |settings, configuration| {
        settings.pending_timeout = configuration.get(keys::DFS_NAMENODE_RECONSTRUCTION_PENDING_TIMEOUT)?;
        Ok(())
    }),
    (keys::DFS_BLOCK_INVALIDATE_LIMIT.name, |settings, configuration| {
        settings.invalidate_limit = configuration.get(keys::DFS_BLOCK_INVALIDATE_LIMIT)? as usize;
        Ok(())
    }),
];

/// `configuration`: the one that the NameNode starts with.
pub fn reconfiguration(configuration: &Configuration) -> Reconfiguration {
    Reconfiguration::new(configuration.clone(), KEYS.map(|(key, _)| key))
}

impl Namenode {
    /// Reads the configuration files again and applies what can change. Blocks.
    ///
    /// Errors: a file cannot be read, or another call is at work. Nothing has changed then.
    pub fn reconfigure(&self) -> Result<(), ReconfigurationError> {
        let apply = |configuration: &Configuration, key: &'static str| {
            let Some((_, apply)) = KEYS.iter().find(|(known, _)| *known == key) else { return Ok(()) };
            apply(self.state.write().blocks.settings_mut(), configuration)
        };
        self.reconfiguration.run(|| self.clock.wall_ms(), apply)
    }
}
