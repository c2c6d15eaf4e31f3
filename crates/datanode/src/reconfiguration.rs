//! Keys that can change while the DataNode runs: `dfsadmin -reconfig datanode`.

use hearth_config::{ConfigError, Configuration, Reconfiguration, ReconfigurationError, keys};

use crate::datanode::Datanode;

const BALANCE: &str = keys::DFS_DATANODE_BALANCE_BANDWIDTH_PER_SEC.name;
const TRANSFER: &str = keys::DFS_DATANODE_DATA_TRANSFER_BANDWIDTH_PER_SEC.name;

/// `configuration`: the one that the DataNode starts with.
pub(crate) fn reconfiguration(configuration: &Configuration) -> Reconfiguration {
    Reconfiguration::new(configuration.clone(), [BALANCE, TRANSFER])
}

impl Datanode {
    /// Reads the configuration files again and applies what can change. Blocks.
    ///
    /// Errors: a file cannot be read, or another call is at work. Nothing has changed then.
    pub(crate) fn reconfigure(&self) -> Result<(), ReconfigurationError> {
        self.reconfiguration.run(|| self.options.clock.wall_ms(), |configuration, key| self.apply(configuration, key))
    }

    fn apply(&self, configuration: &Configuration, key: &str) -> Result<(), ConfigError> {
        match key {
            BALANCE => {
                let rate = configuration.get(keys::DFS_DATANODE_BALANCE_BANDWIDTH_PER_SEC)?;
                self.replicas.balance_throttle.set_rate(rate);
            }
            TRANSFER => {
                let rate = configuration.get(keys::DFS_DATANODE_DATA_TRANSFER_BANDWIDTH_PER_SEC)?;
                self.replicas.transfer_throttle.set_rate(rate);
            }
            _ => {}
        }
        Ok(())
    }
}
