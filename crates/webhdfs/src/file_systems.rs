//! Cache of file systems, one per NameNode and recent user. Each has its own connections and knowledge of replica
//! locations. All uploads of one user share a lease.

use hearth_client::FileSystem;
use hearth_config::Configuration;
use hearth_web::webhdfs::Exception;
use parking_lot::Mutex;

use crate::exceptions::exception_for;

/// Maximum number of cached file systems. An evicted one lives on while a reader or writer uses it.
const CACHED_MAX: usize = 32;

pub(crate) struct FileSystems {
    configuration: Configuration,
    /// The cached file systems, most recently used first.
    cached: Mutex<Vec<CachedFileSystem>>,
}

/// User on whose behalf a file system is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct User<'a> {
    pub name: &'a str,
    /// The user who makes the calls on behalf of `name` (`doas`).
    pub acted_for_by: Option<&'a str>,
}

impl<'a> From<&'a str> for User<'a> {
    fn from(name: &'a str) -> Self {
        Self { name, acted_for_by: None }
    }
}

struct CachedFileSystem {
    file_system: FileSystem,
    acted_for_by: Option<String>,
}

impl CachedFileSystem {
    fn is_of(&self, uri: &str, user: User<'_>) -> bool {
        self.file_system.uri() == uri
            && self.file_system.user() == user.name
            && self.acted_for_by.as_deref() == user.acted_for_by
    }
}

impl FileSystems {
    pub(crate) fn new(configuration: &Configuration) -> Self {
        // The only kind of checksum that WebHDFS has.
        let configuration = configuration.clone().with("dfs.checksum.combine.mode", "MD5MD5CRC");
        Self { configuration, cached: Mutex::default() }
    }

    /// Returns the file system of `namenode` for `user`. `namenode`: `host:port`, or a nameservice of the
    /// configuration. Must be called within a runtime.
    ///
    /// Errors: `IllegalArgumentException` if `namenode` is neither.
    pub(crate) fn get<'a>(&self, namenode: &str, user: impl Into<User<'a>>) -> Result<FileSystem, Exception> {
        let user = user.into();
        let is_authority = |character: char| character.is_ascii_alphanumeric() || "-._:[]".contains(character);
        if !namenode.chars().all(is_authority) {
            return Err(Exception::illegal_argument(format!("{namenode:?} is not the address of a NameNode")));
        }
        let uri = format!("hdfs://{namenode}");
        let mut cached = self.cached.lock();
        let found = match cached.iter().position(|known| known.is_of(&uri, user)) {
            Some(at) => cached.remove(at),
            None => {
                let connected = FileSystem::connect_for(&self.configuration, Some(&uri), user.name, user.acted_for_by);
                let file_system = connected.map_err(|error| exception_for(&error))?;
                CachedFileSystem { file_system, acted_for_by: user.acted_for_by.map(str::to_owned) }
            }
        };
        let file_system = found.file_system.clone();
        cached.insert(0, found);
        let longest_ago = if cached.len() > CACHED_MAX { cached.pop() } else { None };
        // Release the lock before the drop, which takes a while.
        drop(cached);
        drop(longest_ago);
        Ok(file_system)
    }

    /// Removes a file system from the cache. The next request gets a new one, with a lease of its own.
    pub(crate) fn forget(&self, file_system: &FileSystem) {
        let mut cached = self.cached.lock();
        let at = cached.iter().position(|known| known.file_system.is_same(file_system));
        let forgotten = at.map(|at| cached.remove(at));
        drop(cached);
        drop(forgotten);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn cache_is_bounded_and_separates_users() {
        let file_systems = FileSystems::new(&Configuration::empty());
        let users =
            || file_systems.cached.lock().iter().map(|known| known.file_system.user().to_owned()).collect::<Vec<_>>();
        for user in ["ann", "bob", "ann"] {
            assert_eq!(file_systems.get("h:1", user).unwrap().user(), user);
        }
        assert_eq!(users(), ["ann", "bob"]);
        file_systems.forget(&file_systems.get("h:1", "bob").unwrap());
        assert_eq!(users(), ["ann"]);
        for number in 0..CACHED_MAX {
            assert_eq!(file_systems.get("h:2", format!("user{number}").as_str()).unwrap().uri(), "hdfs://h:2");
        }
        assert!(users().len() == CACHED_MAX && !users().contains(&"ann".to_owned()));
        for namenode in ["h/a", "a@h", "h 1", "h:x"] {
            assert!(file_systems.get(namenode, "ann").is_err(), "{namenode}");
        }
    }

    #[tokio::test]
    async fn cache_separates_proxy_users() {
        let file_systems = FileSystems::new(&Configuration::empty());
        let by = |acted_for_by| User { name: "ann", acted_for_by };
        for acted_for_by in [None, Some("hive"), Some("knox"), Some("hive")] {
            assert_eq!(file_systems.get("h:1", by(acted_for_by)).unwrap().user(), "ann");
        }
        let cached: Vec<_> = file_systems.cached.lock().iter().map(|cached| cached.acted_for_by.clone()).collect();
        assert_eq!(cached, [Some("hive".to_owned()), Some("knox".to_owned()), None]);
        file_systems.forget(&file_systems.get("h:1", by(Some("knox"))).unwrap());
        assert_eq!(file_systems.cached.lock().len(), 2);
    }

    #[tokio::test]
    async fn nameservices_come_from_the_configuration() {
        let configuration = Configuration::empty()
            .with("dfs.nameservices", "two")
            .with("dfs.ha.namenodes.two", "a,b")
            .with("dfs.namenode.rpc-address.two.a", "127.0.0.1:1")
            .with("dfs.namenode.rpc-address.two.b", "127.0.0.1:2");
        let file_system = FileSystems::new(&configuration).get("two", "ann").unwrap();
        assert_eq!(file_system.namenode_address(), "127.0.0.1:1");
    }
}
