//! Values that are valid one by one, but not together.

use crate::{ConfigError, Configuration, KeyInfo, Program, keys};

impl Configuration {
    /// Checks the values that depend on each other, and the bounds of limits.
    ///
    /// Errors: the first value with which `program` must not start.
    pub fn refuse_contradictions(&self, program: Program) -> Result<(), ConfigError> {
        match self.contradictions(program).into_iter().next() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Returns an error for each value with which `program` must not start.
    pub(crate) fn contradictions(&self, program: Program) -> Vec<ConfigError> {
        let checks = match program {
            Program::Namenode => vec![
                self.check_pair(),
                self.check_replications(),
                self.check_directories(),
                self.check_message_memory(),
            ],
            Program::Datanode => vec![self.check_message_memory()],
            Program::Client => Vec::new(),
        };
        checks.into_iter().filter_map(Result::err).collect()
    }

    /// Rejects a nameservice with several NameNodes. Two NameNodes that both considered themselves active would each
    /// have a namespace of its own.
    fn check_pair(&self) -> Result<(), ConfigError> {
        let Some(own) = self.own_nameservice()? else { return Ok(()) };
        let ids = self.namenode_ids(&own)?;
        if ids.len() < 2 {
            return Ok(());
        }
        let key = format!("dfs.ha.namenodes.{own}");
        let wanted = "one name: Hearth's NameNode has no standby (a pair of Apache's takes Hearth's DataNodes)";
        Err(self.value_error(&key, &ids.join(","), wanted))
    }

    /// Source: `BlockManager.initMinReplication`, `initMaxReplication`, `initMinReplicationToBeInMaintenance`.
    fn check_replications(&self) -> Result<(), ConfigError> {
        self.check_bounds(&[keys::DFS_NAMENODE_REPLICATION_MIN.name, keys::DFS_REPLICATION_MAX.name])?;
        let minimum = self.get(keys::DFS_NAMENODE_REPLICATION_MIN)?;
        let maximum = self.get(keys::DFS_REPLICATION_MAX)?;
        let maintenance = self.get(keys::DFS_NAMENODE_MAINTENANCE_REPLICATION_MIN)?;
        let usual = u32::from(self.get(keys::DFS_REPLICATION)?);
        let at_most = |key: &str, value: u32, other: &str, most: u32| match value > most {
            true => Err(self.value_error(key, &value.to_string(), format!("wanted {other} = {most} or less"))),
            false => Ok(()),
        };
        at_most(keys::DFS_NAMENODE_REPLICATION_MIN.name, minimum, keys::DFS_REPLICATION_MAX.name, maximum)?;
        at_most(keys::DFS_NAMENODE_MAINTENANCE_REPLICATION_MIN.name, maintenance, keys::DFS_REPLICATION.name, usual)
    }

    /// Source: the constructor of `FSDirectory`, and that of `SnapshotManager`.
    fn check_directories(&self) -> Result<(), ConfigError> {
        self.check_bounds(&[
            keys::DFS_NAMENODE_FS_LIMITS_MAX_DIRECTORY_ITEMS.name,
            keys::DFS_NAMENODE_FS_LIMITS_MAX_XATTR_SIZE.name,
        ])?;
        let of_directory = self.get(keys::DFS_NAMENODE_SNAPSHOT_MAX_LIMIT)?;
        if of_directory > self.get(keys::DFS_NAMENODE_SNAPSHOT_FILESYSTEM_LIMIT)? {
            let wanted = "cannot be greater than dfs.namenode.snapshot.filesystem.limit";
            let key = keys::DFS_NAMENODE_SNAPSHOT_MAX_LIMIT.name;
            return Err(self.value_error(key, &of_directory.to_string(), wanted));
        }
        Ok(())
    }

    /// One request of the greatest length must fit.
    fn check_message_memory(&self) -> Result<(), ConfigError> {
        let memory = keys::HEARTH_RPC_MESSAGE_MEMORY;
        let request = self.get(keys::IPC_MAXIMUM_DATA_LENGTH)?;
        // The default grows with the other key.
        if self.is_set(memory.name) && self.get(memory)? < request {
            let wanted = format!("wanted {} = {request} or more", keys::IPC_MAXIMUM_DATA_LENGTH.name);
            return Err(self.value_error(memory.name, &self.text(memory.name)?.unwrap_or_default(), wanted));
        }
        Ok(())
    }

    fn check_bounds(&self, names: &[&str]) -> Result<(), ConfigError> {
        for key in names.iter().filter_map(|name| KeyInfo::of(name)) {
            self.check_value(key.name, key)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(settings: &[(&str, &str)]) -> Configuration {
        settings.iter().fold(Configuration::empty(), |conf, (key, value)| conf.with(key, *value))
    }

    #[test]
    fn contradictory_values_are_refused_by_key() {
        for (key, value, other) in [
            ("dfs.namenode.replication.min", "0", "1 to 32767"),
            ("dfs.namenode.replication.min", "513", "dfs.replication.max"),
            ("dfs.replication.max", "32768", "32767"),
            ("dfs.namenode.maintenance.replication.min", "4", "dfs.replication"),
            ("dfs.namenode.fs-limits.max-directory-items", "6400001", "6400000"),
            ("dfs.namenode.fs-limits.max-xattr-size", "0", "32768"),
            ("dfs.namenode.snapshot.max.limit", "65537", "dfs.namenode.snapshot.filesystem.limit"),
            ("hearth.rpc.message.memory", "64m", "ipc.maximum.data.length"),
        ] {
            let said = of(&[(key, value)]).refuse_contradictions(Program::Namenode).unwrap_err().to_string();
            assert!(said.contains(key) && said.contains(value) && said.contains(other), "{said}");
        }
        for program in Program::ALL {
            Configuration::empty().refuse_contradictions(*program).unwrap();
        }
        let less = [("hearth.rpc.message.memory", "64m"), ("ipc.maximum.data.length", "64m")];
        of(&less).refuse_contradictions(Program::Datanode).unwrap();
        of(&less[..1]).refuse_contradictions(Program::Datanode).unwrap_err();
        of(&less[..1]).refuse_contradictions(Program::Client).unwrap();
        // A longer request raises the default.
        of(&[("ipc.maximum.data.length", "1g")]).refuse_contradictions(Program::Namenode).unwrap();
    }

    #[test]
    fn namenode_of_a_pair_is_refused() {
        let pair = [("dfs.nameservices", "ns"), ("dfs.ha.namenodes.ns", "a,b")];
        let said = of(&pair).refuse_contradictions(Program::Namenode).unwrap_err().to_string();
        assert!(said.contains("dfs.ha.namenodes.ns") && said.contains("a,b"), "{said}");
        of(&pair).refuse_contradictions(Program::Datanode).unwrap();
        of(&[pair[0], ("dfs.ha.namenodes.ns", "a")]).refuse_contradictions(Program::Namenode).unwrap();
        of(&[("dfs.nameservices", "ns,other"), pair[1]]).refuse_contradictions(Program::Namenode).unwrap();
    }
}
