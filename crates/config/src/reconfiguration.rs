//! Change of some keys while a server runs: `dfsadmin -reconfig`. The server reads its files again and applies the
//! values that differ. Each server has a table of the keys that can change, with a row of [`crate::reconfigurable`] for
//! each. Source: ReconfigurableBase.java of Hadoop 3.4.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{ConfigError, Configuration, KeyInfo, Program};

/// A key that can change while a server of type `S` runs.
pub struct ReconfigurableKey<S: 'static> {
    pub name: &'static str,
    /// Puts the key's value into force. All other values of the configuration are those in force.
    ///
    /// Errors: the server cannot use the value; the old one is still in force.
    pub apply: fn(&S, &Configuration) -> Result<(), ConfigError>,
}

/// Creates a [`ReconfigurableKey`] from the constant of a key of [`keys`](crate::keys). It is followed by the code that
/// puts the value into force:
///
/// ```text
/// reconfigurable!(DFS_BLOCK_INVALIDATE_LIMIT, |server, value| server.set_limit(value))
/// reconfigurable!(HEARTH_MEMORY_LIMIT, function_of_server_and_configuration)
/// ```
#[macro_export]
macro_rules! reconfigurable {
    ($key:ident, |$server:ident, $value:ident| $apply:expr) => {
        $crate::ReconfigurableKey {
            name: $crate::keys::$key.name,
            apply: |$server, configuration| {
                let $value = configuration.get($crate::keys::$key)?;
                $apply;
                Ok(())
            },
        }
    };
    ($key:ident, $apply:path) => {
        $crate::ReconfigurableKey { name: $crate::keys::$key.name, apply: $apply }
    };
}

/// The values in force in a running server of type `S`, and the last change of them.
pub struct Reconfiguration<S: 'static> {
    program: Program,
    /// Sorted by name.
    keys: Vec<&'static ReconfigurableKey<S>>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The values in force. None refers to a key that can change.
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
struct Running<'a>(&'a Mutex<State>);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        lock(self.0).is_running = false;
    }
}

/// No code panics while it holds the lock, so a poisoned one is intact.
fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<S: 'static> Reconfiguration<S> {
    /// `configuration`: the values in force. `keys`: those that can change.
    pub fn new(program: Program, mut configuration: Configuration, keys: &'static [ReconfigurableKey<S>]) -> Self {
        let mut keys: Vec<_> = keys.iter().collect();
        keys.sort_unstable_by_key(|key| key.name);
        // Otherwise a change of one key would seem to change the others that refer to it, which the server would not
        // know.
        configuration.fix_references(|name| keys.binary_search_by_key(&name, |key| key.name).is_ok());
        Self { program, keys, state: Mutex::new(State { configuration, is_running: false, last: None }) }
    }

    /// Returns the names of the keys that can change, sorted.
    pub fn keys(&self) -> impl Iterator<Item = &'static str> {
        self.keys.iter().map(|key| key.name)
    }

    /// Returns the values in force.
    pub fn configuration(&self) -> Configuration {
        lock(&self.state).configuration.clone()
    }

    /// Returns the last finished task.
    pub fn last(&self) -> Option<ReconfigurationTask> {
        lock(&self.state).last.clone()
    }

    /// Reads the configuration files again, and applies the keys whose values differ. Blocks.
    ///
    /// `now_ms`: milliseconds since the epoch.
    ///
    /// Errors: another task is running, or a file cannot be read. Errors of single keys are in the task.
    pub fn run(&self, server: &S, now_ms: impl Fn() -> u64) -> Result<(), ReconfigurationError> {
        let started_ms = now_ms();
        let mut in_force = {
            let mut state = lock(&self.state);
            if state.is_running {
                return Err(ReconfigurationError::Running);
            }
            state.is_running = true;
            state.configuration.clone()
        };
        let _running = Running(&self.state);
        let new = in_force.reread()?;
        let mut changes = Vec::new();
        for row in &self.keys {
            let key = row.name;
            let (before, after) = (in_force.text(key)?, new.text(key));
            if after.as_ref().is_ok_and(|after| *after == before) {
                continue;
            }
            let old = before.unwrap_or_default();
            let error = match self.put_into_force(server, row, &in_force, &new) {
                Ok(changed) => {
                    tracing::info!(key, old, new = ?after.as_ref().ok(), "configuration changed");
                    in_force = changed;
                    None
                }
                Err(error) => {
                    tracing::warn!(key, %error, "cannot change the configuration");
                    Some(error.to_string())
                }
            };
            changes.push(ChangedKey { key, old, new: after.ok().flatten(), error });
        }
        let mut state = lock(&self.state);
        state.configuration = in_force;
        state.last = Some(ReconfigurationTask { started_ms, ended_ms: now_ms(), changes });
        Ok(())
    }

    /// Checks the new value of one key and applies it. Returns the values then in force.
    fn put_into_force(
        &self,
        server: &S,
        row: &ReconfigurableKey<S>,
        in_force: &Configuration,
        new: &Configuration,
    ) -> Result<Configuration, ConfigError> {
        let key = row.name;
        let mut changed = in_force.clone();
        changed.adopt(key, new)?;
        if let Some(info) = KeyInfo::of(key) {
            changed.check_value(key, info)?;
        }
        let is_of_key = |error: &ConfigError| matches!(error, ConfigError::Value { key: of, .. } if of == key);
        if let Some(error) = changed.contradictions(self.program).into_iter().find(is_of_key) {
            return Err(error);
        }
        (row.apply)(server, &changed)?;
        Ok(changed)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use super::*;
    use crate::{Environment, keys};

    fn write(directory: &std::path::Path, properties: &[(&str, &str)]) {
        let text = crate::to_xml(properties.iter().copied());
        std::fs::write(directory.join("hdfs-site.xml"), text).unwrap();
    }

    /// The keys that were applied, with the new values.
    #[derive(Default)]
    struct Server {
        applied: Mutex<Vec<(&'static str, String)>>,
    }

    impl Server {
        fn note(&self, key: &'static str, value: impl std::fmt::Debug) {
            self.applied.lock().unwrap().push((key, format!("{value:?}")));
        }

        fn taken(&self) -> Vec<(&'static str, String)> {
            std::mem::take(&mut *self.applied.lock().unwrap())
        }
    }

    fn refuse(server: &Server, configuration: &Configuration) -> Result<(), ConfigError> {
        server.note("dfs.hosts", ());
        Err(configuration.value_error("dfs.hosts", "/new", "no"))
    }

    const KEYS: &[ReconfigurableKey<Server>] = &[
        reconfigurable!(DFS_HEARTBEAT_INTERVAL, |server, value| server.note("heartbeat", value)),
        reconfigurable!(DFS_BLOCK_INVALIDATE_LIMIT, |server, value| server.note("limit", value)),
        reconfigurable!(DFS_NAMENODE_REPLICATION_MAX_STREAMS, |server, value| server.note("streams", value)),
        reconfigurable!(HEARTH_RPC_MESSAGE_MEMORY, |server, value| server.note("memory", value)),
        reconfigurable!(DFS_HOSTS, refuse),
    ];

    #[test]
    fn changed_values_are_applied_and_reported() {
        let directory = tempfile::tempdir().unwrap();
        write(directory.path(), &[("dfs.heartbeat.interval", "5"), ("dfs.block.invalidate.limit", "7")]);
        let conf = Configuration::load_dir(directory.path(), Environment::empty()).unwrap();
        let (server, reconfiguration) = (Server::default(), Reconfiguration::new(Program::Namenode, conf, KEYS));
        assert!(reconfiguration.keys().is_sorted() && reconfiguration.last().is_none());
        // One key back to its default, one that is refused, one that is invalid, one that contradicts another value,
        // and one that cannot change.
        write(
            directory.path(),
            &[
                ("dfs.heartbeat.interval", "${seconds}s"),
                ("seconds", "6"),
                ("dfs.namenode.replication.max-streams", "many"),
                ("dfs.hosts", "/new"),
                ("dfs.replication", "1"),
                ("hearth.rpc.message.memory", "1m"),
            ],
        );
        let run = || {
            reconfiguration.run(&server, || 9).unwrap();
            reconfiguration.last().unwrap()
        };
        let task = run();
        let wanted = [("limit", "1000"), ("heartbeat", "6s"), ("dfs.hosts", "()")];
        assert_eq!(server.taken(), wanted.map(|(key, value)| (key, value.to_owned())));
        assert_eq!((task.started_ms, task.ended_ms), (9, 9));
        let shown: Vec<_> = task
            .changes
            .iter()
            .map(|change| (change.key, change.old.as_str(), change.new.as_deref(), change.error.is_some()))
            .collect();
        let wanted = [
            ("dfs.block.invalidate.limit", "7", Some("1000"), false),
            ("dfs.heartbeat.interval", "5", Some("6s"), false),
            ("dfs.hosts", "", Some("/new"), true),
            ("dfs.namenode.replication.max-streams", "2", Some("many"), true),
            ("hearth.rpc.message.memory", "201326592", Some("1m"), true),
        ];
        assert_eq!(shown, wanted);
        let of_memory = task.changes[4].error.as_deref().unwrap();
        assert!(of_memory.contains("ipc.maximum.data.length"), "{of_memory}");
        let in_force = reconfiguration.configuration();
        assert_eq!(in_force.get(keys::DFS_HEARTBEAT_INTERVAL).unwrap().as_secs(), 6);
        assert_eq!(in_force.get(keys::DFS_REPLICATION).unwrap(), 3);
        // What was applied is in force; what was refused is tried again.
        assert_eq!(run().changes.len(), 3);
        assert_eq!(server.taken(), [("dfs.hosts", "()".to_owned())]);
    }

    #[test]
    fn values_that_refer_to_a_changed_key_are_applied() {
        let directory = tempfile::tempdir().unwrap();
        let write_limit = |limit: &str| {
            write(
                directory.path(),
                &[
                    ("dfs.block.invalidate.limit", limit),
                    ("dfs.namenode.replication.max-streams", "${other}"),
                    ("other", "${dfs.block.invalidate.limit}"),
                ],
            );
        };
        write_limit("7");
        let mut conf = Configuration::load_dir(directory.path(), Environment::empty()).unwrap();
        conf.set("dfs.heartbeat.interval", "${dfs.block.invalidate.limit}");
        let (server, reconfiguration) = (Server::default(), Reconfiguration::new(Program::Namenode, conf, KEYS));
        let run = || {
            reconfiguration.run(&server, || 0).unwrap();
            reconfiguration.last().unwrap().changes
        };
        assert_eq!(run(), []);
        for (old, new) in [("7", "8"), ("8", "9")] {
            write_limit(new);
            let changes = run();
            let is_from_old = |change: &ChangedKey| change.old == old && change.new.as_deref() == Some(new);
            assert!(changes.iter().all(is_from_old), "{changes:?}");
            let wanted = [("limit", new.to_owned()), ("heartbeat", format!("{new}s")), ("streams", new.to_owned())];
            assert_eq!(server.taken(), wanted);
            // A key that cannot change keeps its value.
            let in_force = reconfiguration.configuration();
            let of = |name: &str| in_force.entries_set().find(|entry| entry.name == name).unwrap();
            assert_eq!([of("dfs.namenode.replication.max-streams").value, of("other").value], [new, "7"]);
            assert!(of("other").place().contains("hdfs-site.xml line"));
            assert_eq!(of("dfs.heartbeat.interval").source, crate::Source::Set);
        }
        assert_eq!(run(), []);
    }

    /// Starts a second task from within the first.
    #[derive(Default)]
    struct Nested {
        reconfiguration: OnceLock<Reconfiguration<Nested>>,
        second: OnceLock<Result<(), ReconfigurationError>>,
    }

    fn start_second(server: &Nested, _: &Configuration) -> Result<(), ConfigError> {
        let second = server.reconfiguration.get().unwrap().run(server, || 0);
        server.second.set(second).unwrap();
        Ok(())
    }

    const NESTED_KEYS: &[ReconfigurableKey<Nested>] = &[reconfigurable!(DFS_HEARTBEAT_INTERVAL, start_second)];

    #[test]
    fn failed_or_second_task_changes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        write(directory.path(), &[("dfs.heartbeat.interval", "5")]);
        let conf = Configuration::load_dir(directory.path(), Environment::empty()).unwrap();
        let server = Nested::default();
        let reconfiguration =
            server.reconfiguration.get_or_init(|| Reconfiguration::new(Program::Datanode, conf, NESTED_KEYS));
        std::fs::write(directory.path().join("hdfs-site.xml"), "<configuration>").unwrap();
        let broken = reconfiguration.run(&server, || 0);
        assert!(matches!(broken, Err(ReconfigurationError::Configuration(_))), "{broken:?}");
        assert!(reconfiguration.last().is_none());
        write(directory.path(), &[("dfs.heartbeat.interval", "6")]);
        reconfiguration.run(&server, || 0).unwrap();
        let second = server.second.get();
        assert!(matches!(second, Some(Err(ReconfigurationError::Running))), "{second:?}");
        assert_eq!(reconfiguration.last().unwrap().changes.len(), 1);
    }
}
