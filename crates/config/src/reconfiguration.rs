//! Change of some keys while a server runs: `dfsadmin -reconfig`. The server reads its files again and applies the
//! values that differ. Source: ReconfigurableBase.java of Hadoop 3.4.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{ConfigError, Configuration, KeyInfo};

/// The values in force in a running server, and the last change of them.
#[derive(Debug)]
pub struct Reconfiguration {
    keys: Vec<&'static str>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The values in force.
    configuration: Configuration,
    is_running: bool,
    last: Option<ReconfigurationTask>,
}

/// A finished change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReconfigurationTask {
    /// Milliseconds since the epoch, here and below.
    pub started_ms: u64,
    pub ended_ms: u64,
    /// The keys whose values differed, sorted by name.
    pub changes: Vec<ChangedKey>,
}

/// A key whose value differed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChangedKey {
    pub key: &'static str,
    pub old: String,
    /// `None`: the key is no longer set and has no default.
    pub new: Option<String>,
    /// Reason why the old value stays in force. `None`: the new one is in force.
    pub error: Option<String>,
}

/// Errors of [`Reconfiguration::run`]. Nothing has changed then.
#[derive(Debug, thiserror::Error)]
pub enum ReconfigurationError {
    /// Hadoop's text.
    #[error("Another reconfiguration task is running.")]
    Running,
    #[error(transparent)]
    Configuration(#[from] ConfigError),
}

/// Ends a task when dropped.
struct Running<'a>(&'a Reconfiguration);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.lock().is_running = false;
    }
}

impl Reconfiguration {
    /// `configuration`: the values in force. `keys`: those that can change.
    pub fn new(configuration: Configuration, keys: impl IntoIterator<Item = &'static str>) -> Self {
        let mut keys: Vec<_> = keys.into_iter().collect();
        keys.sort_unstable();
        Self { keys, state: Mutex::new(State { configuration, is_running: false, last: None }) }
    }

    /// Returns the keys that can change, sorted by name.
    pub fn keys(&self) -> &[&'static str] {
        &self.keys
    }

    /// Returns the last finished task.
    pub fn last(&self) -> Option<ReconfigurationTask> {
        self.lock().last.clone()
    }

    /// Reads the configuration files again, and applies the keys whose values differ. Blocks.
    ///
    /// `now_ms`: milliseconds since the epoch. `apply`: puts the value of one key into force; called for valid values
    /// only.
    ///
    /// Errors: another task is running, or a file cannot be read. Errors of single keys are in the task.
    pub fn run(
        &self,
        now_ms: impl Fn() -> u64,
        mut apply: impl FnMut(&Configuration, &'static str) -> Result<(), ConfigError>,
    ) -> Result<(), ReconfigurationError> {
        let started_ms = now_ms();
        let mut in_force = {
            let mut state = self.lock();
            if state.is_running {
                return Err(ReconfigurationError::Running);
            }
            state.is_running = true;
            state.configuration.clone()
        };
        let _running = Running(self);
        let new = in_force.reread()?;
        let mut changes = Vec::new();
        for key in self.keys.iter().copied() {
            let (before, after) = (in_force.text(key)?, new.text(key));
            if after.as_ref().is_ok_and(|after| *after == before) {
                continue;
            }
            let checked = KeyInfo::of(key).map_or(Ok(()), |row| new.check_value(key, row));
            let outcome = checked.and_then(|()| apply(&new, key));
            let old = before.unwrap_or_default();
            let error = outcome.err().map(|error| error.to_string());
            match &error {
                None => {
                    tracing::info!(key, old, new = ?after.as_ref().ok(), "configuration changed");
                    in_force.adopt(key, &new);
                }
                Some(error) => tracing::warn!(key, error, "cannot change the configuration"),
            }
            changes.push(ChangedKey { key, old, new: after.ok().flatten(), error });
        }
        let mut state = self.lock();
        state.configuration = in_force;
        state.last = Some(ReconfigurationTask { started_ms, ended_ms: now_ms(), changes });
        Ok(())
    }

    /// No code panics while it holds the lock, so a poisoned one is intact.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Environment, keys};

    fn write(directory: &std::path::Path, properties: &[(&str, &str)]) {
        let text = crate::to_xml(properties.iter().copied());
        std::fs::write(directory.join("hdfs-site.xml"), text).unwrap();
    }

    #[test]
    fn changed_values_are_applied_and_reported() {
        let directory = tempfile::tempdir().unwrap();
        write(directory.path(), &[("dfs.heartbeat.interval", "5"), ("dfs.block.invalidate.limit", "7")]);
        let conf = Configuration::load_dir(directory.path(), Environment::empty()).unwrap();
        let names = [
            keys::DFS_HEARTBEAT_INTERVAL.name,
            keys::DFS_BLOCK_INVALIDATE_LIMIT.name,
            keys::DFS_NAMENODE_REPLICATION_MAX_STREAMS.name,
            keys::DFS_HOSTS.name,
        ];
        let reconfiguration = Reconfiguration::new(conf, names);
        assert!(reconfiguration.keys().is_sorted() && reconfiguration.last().is_none());
        let mut applied = Vec::new();
        // One key back to its default, one that is refused, one of another program.
        write(
            directory.path(),
            &[
                ("dfs.heartbeat.interval", "5s"),
                ("dfs.namenode.replication.max-streams", "many"),
                ("dfs.hosts", "/new"),
                ("dfs.replication", "1"),
            ],
        );
        let refuse_hosts = |conf: &Configuration, key: &str| conf.value_error(key, "/new", "no");
        let run = |applied: &mut Vec<&'static str>| {
            let apply = |conf: &Configuration, key: &'static str| {
                applied.push(key);
                if key == keys::DFS_HOSTS.name { Err(refuse_hosts(conf, key)) } else { Ok(()) }
            };
            reconfiguration.run(|| 9, apply).unwrap();
            reconfiguration.last().unwrap()
        };
        let task = run(&mut applied);
        assert_eq!(applied, ["dfs.block.invalidate.limit", "dfs.heartbeat.interval", "dfs.hosts"]);
        assert_eq!((task.started_ms, task.ended_ms), (9, 9));
        let shown: Vec<_> = task
            .changes
            .iter()
            .map(|change| (change.key, change.old.as_str(), change.new.as_deref(), change.error.is_some()))
            .collect();
        let wanted = [
            ("dfs.block.invalidate.limit", "7", Some("1000"), false),
            ("dfs.heartbeat.interval", "5", Some("5s"), false),
            ("dfs.hosts", "", Some("/new"), true),
            ("dfs.namenode.replication.max-streams", "2", Some("many"), true),
        ];
        assert_eq!(shown, wanted);
        // What was applied is in force; what was refused is tried again.
        applied.clear();
        assert_eq!(run(&mut applied).changes.len(), 2);
        assert_eq!(applied, ["dfs.hosts"]);
    }

    #[test]
    fn failed_or_second_task_changes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        write(directory.path(), &[("dfs.heartbeat.interval", "5")]);
        let conf = Configuration::load_dir(directory.path(), Environment::empty()).unwrap();
        let reconfiguration = Reconfiguration::new(conf, [keys::DFS_HEARTBEAT_INTERVAL.name]);
        std::fs::write(directory.path().join("hdfs-site.xml"), "<configuration>").unwrap();
        let broken = reconfiguration.run(|| 0, |_, _| Ok(()));
        assert!(matches!(broken, Err(ReconfigurationError::Configuration(_))), "{broken:?}");
        assert!(reconfiguration.last().is_none());
        write(directory.path(), &[("dfs.heartbeat.interval", "6")]);
        let within = |_: &Configuration, _: &'static str| {
            let second = reconfiguration.run(|| 0, |_, _| Ok(()));
            assert!(matches!(second, Err(ReconfigurationError::Running)), "{second:?}");
            Ok(())
        };
        reconfiguration.run(|| 0, within).unwrap();
        assert_eq!(reconfiguration.last().unwrap().changes.len(), 1);
    }
}
