//! File systems in the names of those who asked lately. Each has connections, and knows where replicas are; uploads of one user share
//! its lease.

use hearth_client::FileSystem;
use hearth_config::Configuration;
use hearth_web::webhdfs::Exception;
use parking_lot::Mutex;

use crate::refusal::refusal;

/// Kept for the next request; one that is forgotten stays as long as somebody reads or writes with it.
const KEPT_MAX: usize = 32;

pub(crate) struct FileSystems {
    configuration: Configuration,
    /// Who asked last comes first.
    kept: Mutex<Vec<FileSystem>>,
}

impl FileSystems {
    pub(crate) fn new(configuration: &Configuration) -> Self {
        // The one kind that WebHDFS has.
        let configuration = configuration.clone().with("dfs.checksum.combine.mode", "MD5MD5CRC");
        Self { configuration, kept: Mutex::default() }
    }

    /// `namenode`: `host:port`, or a nameservice of the configuration. Within a runtime.
    ///
    /// Errors: `IllegalArgumentException`, when it is neither.
    pub(crate) fn of(&self, namenode: &str, user: &str) -> Result<FileSystem, Exception> {
        let is_authority = |character: char| character.is_ascii_alphanumeric() || "-._:[]".contains(character);
        if !namenode.chars().all(is_authority) {
            return Err(Exception::illegal_argument(format!("{namenode:?} is no NameNode's address")));
        }
        let uri = format!("hdfs://{namenode}");
        let mut kept = self.kept.lock();
        let file_system = match kept.iter().position(|known| known.uri() == uri && known.user() == user) {
            Some(at) => kept.remove(at),
            None => FileSystem::connect(&self.configuration, Some(&uri), user).map_err(|error| refusal(&error))?,
        };
        kept.insert(0, file_system.clone());
        let longest_ago = if kept.len() > KEPT_MAX { kept.pop() } else { None };
        // Before it is dropped, which takes a while.
        drop(kept);
        drop(longest_ago);
        Ok(file_system)
    }

    /// The next request gets another one, with a lease of its own.
    pub(crate) fn forget(&self, file_system: &FileSystem) {
        let (uri, user) = (file_system.uri(), file_system.user());
        let mut kept = self.kept.lock();
        let at = kept.iter().position(|known| known.uri() == uri && known.user() == user);
        let forgotten = at.map(|at| kept.remove(at));
        drop(kept);
        drop(forgotten);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn few_are_kept_and_those_of_another_user_are_others() {
        let file_systems = FileSystems::new(&Configuration::empty());
        let users = || file_systems.kept.lock().iter().map(|known| known.user().to_owned()).collect::<Vec<_>>();
        for user in ["ann", "bob", "ann"] {
            assert_eq!(file_systems.of("h:1", user).unwrap().user(), user);
        }
        assert_eq!(users(), ["ann", "bob"]);
        file_systems.forget(&file_systems.of("h:1", "bob").unwrap());
        assert_eq!(users(), ["ann"]);
        for number in 0..KEPT_MAX {
            assert_eq!(file_systems.of("h:2", &format!("user{number}")).unwrap().uri(), "hdfs://h:2");
        }
        assert!(users().len() == KEPT_MAX && !users().contains(&"ann".to_owned()));
        for namenode in ["h/a", "a@h", "h 1", "h:x"] {
            assert!(file_systems.of(namenode, "ann").is_err(), "{namenode}");
        }
    }

    #[tokio::test]
    async fn nameservices_are_known_by_the_configuration() {
        let configuration = Configuration::empty()
            .with("dfs.nameservices", "two")
            .with("dfs.ha.namenodes.two", "a,b")
            .with("dfs.namenode.rpc-address.two.a", "127.0.0.1:1")
            .with("dfs.namenode.rpc-address.two.b", "127.0.0.1:2");
        let file_system = FileSystems::new(&configuration).of("two", "ann").unwrap();
        assert_eq!(file_system.namenode_address(), "127.0.0.1:1");
    }
}
