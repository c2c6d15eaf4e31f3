//! Builders of file systems: configuration, user and address, from the environment or given in code.

use hearth_config::{Configuration, keys};

use crate::{Error, ErrorKind, FileSystem, WebFileSystem, from_env};

/// What both builders collect.
#[derive(Clone, Debug, Default)]
struct Settings {
    /// Base of the configuration. `None` uses the defaults.
    configuration: Option<Configuration>,
    /// Settings on top of it, in the order in which they were given.
    set: Vec<(String, String)>,
    url: Option<String>,
    user: Option<String>,
    real_user: Option<String>,
    /// Users that the environment names: the user, and the one that makes the calls on its behalf.
    environment: Option<(String, Option<String>)>,
    /// First error of a call that read the environment. `build` returns it.
    failed: Option<Error>,
}

/// Settings of a finished builder.
struct Resolved {
    configuration: Configuration,
    url: Option<String>,
    user: String,
    real_user: Option<String>,
}

impl Settings {
    fn read_environment(&mut self) {
        match from_env::configuration() {
            Ok(configuration) => self.configuration = Some(configuration),
            Err(error) => drop(self.failed.get_or_insert(error.into())),
        }
        match from_env::Identity::of_process() {
            Ok(from_env::Identity { user, real_user }) => self.environment = Some((user, real_user)),
            Err(error) => drop(self.failed.get_or_insert(error)),
        }
    }

    fn resolve(self) -> Result<Resolved, Error> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let mut configuration = self.configuration.unwrap_or_else(Configuration::empty);
        for (key, value) in self.set {
            configuration.set(&key, value);
        }
        let (user, real_user) = match (self.user, self.environment) {
            (Some(user), _) => (user, self.real_user),
            (None, Some((user, real_user))) => (user, self.real_user.or(real_user)),
            (None, None) => {
                let why = "no user is given: call user() or from_env() before build()";
                return Err(Error::new(ErrorKind::InvalidConfiguration, why));
            }
        };
        Ok(Resolved { configuration, url: self.url, user, real_user })
    }
}

/// Methods that both builders have.
macro_rules! settings {
    () => {
        /// Takes the configuration and the user as Hadoop's clients do.
        ///
        /// The configuration is `core-site.xml` and `hdfs-site.xml` in the directory `HADOOP_CONF_DIR`, or in
        /// `HADOOP_HOME/etc/hadoop` if that is not set, or in `/etc/hearth` without both. The user is
        /// `HADOOP_USER_NAME`, or the user of this process. With `HADOOP_PROXY_USER`, that user makes the calls on
        /// behalf of the user named there.
        ///
        /// Without this call, the builder reads nothing of the environment. An unreadable configuration is reported by
        /// `build`. Values given by other methods take precedence, in any order, except that a later
        /// `configuration` replaces this one.
        pub fn from_env(mut self) -> Self {
            self.settings.read_environment();
            self
        }

        /// Uses this configuration instead of the defaults.
        pub fn configuration(mut self, configuration: Configuration) -> Self {
            self.settings.configuration = Some(configuration);
            self
        }

        /// Sets the user on whose behalf calls are made.
        pub fn user(mut self, user: impl Into<String>) -> Self {
            self.settings.user = Some(user.into());
            self
        }

        /// Sets the user that makes the calls as a proxy. The NameNode must allow this user to act for the other one
        /// (`hadoop.proxyuser.*`).
        pub fn real_user(mut self, real_user: impl Into<String>) -> Self {
            self.settings.real_user = Some(real_user.into());
            self
        }

        /// Sets a key of Hadoop or Hearth, such as `dfs.client.socket-timeout`. `build` checks the value.
        pub fn set(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
            self.settings.set.push((key.into(), value.into()));
            self
        }

        /// Sets the number of replicas of new files (`dfs.replication`). [`CreateOptions`](crate::CreateOptions) can
        /// give another number for one file.
        pub fn replication(self, replicas: u16) -> Self {
            self.set(keys::DFS_REPLICATION.name, replicas.to_string())
        }

        /// Sets the block size of new files in bytes (`dfs.blocksize`). [`CreateOptions`](crate::CreateOptions) can
        /// give another size for one file.
        pub fn block_size(self, bytes: u64) -> Self {
            self.set(keys::DFS_BLOCKSIZE.name, bytes.to_string())
        }
    };
}

/// Builder of a [`FileSystem`].
///
/// ```no_run
/// # fn example() -> Result<(), hearth_client::Error> {
/// use hearth_client::FileSystem;
///
/// // As Hadoop's clients: HADOOP_CONF_DIR, HADOOP_USER_NAME.
/// let fs = FileSystem::builder().from_env().build()?;
///
/// // From settings in code. Nothing of the environment is read.
/// let fs = FileSystem::builder()
///     .url("hdfs://namenode.example:8020")
///     .user("ada")
///     .replication(2)
///     .set("dfs.client.socket-timeout", "20s")
///     .build()?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "a builder does nothing until build is called"]
pub struct FileSystemBuilder {
    settings: Settings,
}

impl FileSystemBuilder {
    settings!();

    /// Sets the file system: `hdfs://host:port`, `hdfs://nameservice`, or only the authority. Without this call it is
    /// `fs.defaultFS` of the configuration.
    pub fn url(mut self, url: impl Into<String>) -> Self {
        self.settings.url = Some(url.into());
        self
    }

    /// Makes the file system. Nothing is sent yet: an unreachable NameNode is detected by the first call.
    ///
    /// Errors: kind `InvalidConfiguration` if the configuration cannot be read or used, or names no file system, or if
    /// no user is given.
    pub fn build(self) -> Result<FileSystem, Error> {
        let Resolved { configuration, url, user, real_user } = self.settings.resolve()?;
        let url = url.map(|url| if url.contains("://") { url } else { format!("hdfs://{url}") });
        FileSystem::connect_for(&configuration, url.as_deref(), &user, real_user.as_deref())
    }
}

impl FileSystem {
    /// Returns a builder without settings.
    pub fn builder() -> FileSystemBuilder {
        FileSystemBuilder::default()
    }
}

/// Builder of a [`WebFileSystem`].
///
/// ```no_run
/// # fn example() -> Result<(), hearth_client::Error> {
/// use hearth_client::WebFileSystem;
///
/// let fs = WebFileSystem::builder().from_env().url("webhdfs://namenode.example:9870").build()?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "a builder does nothing until build is called"]
pub struct WebFileSystemBuilder {
    settings: Settings,
}

impl WebFileSystemBuilder {
    settings!();

    /// Sets the file system: `webhdfs://` and the `host:port` of the NameNode's web server, `webhdfs://nameservice`, or
    /// only the authority. Without this call it is `fs.defaultFS` of the configuration.
    pub fn url(mut self, url: impl Into<String>) -> Self {
        self.settings.url = Some(url.into());
        self
    }

    /// Makes the file system. Nothing is sent yet.
    ///
    /// Errors: kind `InvalidConfiguration` if the configuration cannot be read or used, if the URL is missing or not of
    /// WebHDFS, or if no user is given.
    pub fn build(self) -> Result<WebFileSystem, Error> {
        let Resolved { configuration, url, user, real_user } = self.settings.resolve()?;
        let url = match url {
            Some(url) => url,
            None => configuration.get(keys::FS_DEFAULT_FS)?,
        };
        let (scheme, rest) = url.split_once("://").unwrap_or(("webhdfs", &url));
        let authority = rest.split('/').next().unwrap_or_default();
        if !scheme.eq_ignore_ascii_case("webhdfs") || authority.is_empty() {
            let why = format!("{url:?} is not the address of a WebHDFS file system: wanted webhdfs://host:port");
            return Err(Error::new(ErrorKind::InvalidConfiguration, why));
        }
        WebFileSystem::connect(&configuration, authority, &user, real_user.as_deref())
    }
}

impl WebFileSystem {
    /// Returns a builder without settings.
    pub fn builder() -> WebFileSystemBuilder {
        WebFileSystemBuilder::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_may_lack_the_scheme() {
        for url in ["hdfs://h:1", "h:1", "hdfs://h:1/a/b"] {
            let fs = FileSystem::builder().url(url).user("ada").build().unwrap();
            assert_eq!((fs.uri(), fs.user(), fs.home()), ("hdfs://h:1", "ada", "/user/ada"), "{url}");
        }
        for url in ["webhdfs://h:1", "h:1"] {
            let fs = WebFileSystem::builder().url(url).user("ada").build().unwrap();
            assert_eq!((fs.uri(), fs.user()), ("webhdfs://h:1", "ada"), "{url}");
        }
        let wrong = [
            FileSystem::builder().url("s3://b").user("ada").build().unwrap_err(),
            FileSystem::builder().user("ada").build().unwrap_err(),
            WebFileSystem::builder().url("hdfs://h:1").user("ada").build().unwrap_err(),
        ];
        for error in wrong {
            assert_eq!(error.kind(), ErrorKind::InvalidConfiguration, "{error}");
        }
    }

    #[test]
    fn user_is_required_without_the_environment() {
        let error = FileSystem::builder().url("h:1").build().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfiguration);
        assert!(error.to_string().contains("user()"), "{error}");
    }

    #[test]
    fn later_settings_replace_the_configuration() {
        let configuration =
            Configuration::empty().with("fs.defaultFS", "hdfs://h:1").with("dfs.user.home.dir.prefix", "/home");
        let builder = FileSystem::builder().set("fs.defaultFS", "hdfs://h:2").configuration(configuration).user("ada");
        let fs = builder.clone().build().unwrap();
        assert_eq!((fs.uri(), fs.home()), ("hdfs://h:2", "/home/ada"));
        let settings = builder.replication(7).block_size(1 << 20).settings.resolve().unwrap();
        assert_eq!(settings.configuration.get(keys::DFS_REPLICATION).unwrap(), 7);
        assert_eq!(settings.configuration.get(keys::DFS_BLOCKSIZE).unwrap(), 1 << 20);
        let wrong = FileSystem::builder().url("h:1").user("ada").set("dfs.blocksize", "much").build().unwrap_err();
        assert_eq!(wrong.kind(), ErrorKind::InvalidConfiguration);
    }

    #[test]
    fn given_user_replaces_those_of_the_environment() {
        let environment = Some(("bob".to_owned(), Some("ann".to_owned())));
        let users = |settings: Settings| {
            let resolved = settings.resolve().unwrap();
            (resolved.user, resolved.real_user)
        };
        let settings = Settings { environment, ..Settings::default() };
        assert_eq!(users(settings.clone()), ("bob".to_owned(), Some("ann".to_owned())));
        let given = Settings { user: Some("eve".to_owned()), ..settings };
        assert_eq!(users(given.clone()), ("eve".to_owned(), None));
        let proxied = Settings { real_user: Some("root".to_owned()), ..given };
        assert_eq!(users(proxied), ("eve".to_owned(), Some("root".to_owned())));
    }
}
