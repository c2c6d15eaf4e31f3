//! The environment of servers and commands: the configuration directory, the user, the host name.

use anyhow::Context;
pub use hearth_client::from_env::user_name as user;
use hearth_client::{FileSystem, WebFileSystem};
use hearth_config::Configuration;

/// Reads `core-site.xml` and `hdfs-site.xml` of HADOOP_CONF_DIR, else of HADOOP_HOME/etc/hadoop. Without either
/// variable: the defaults.
pub fn load() -> anyhow::Result<Configuration> {
    hearth_client::from_env::configuration().context("cannot read the configuration in HADOOP_CONF_DIR")
}

/// Connects to the file system at `uri`, or of `fs.defaultFS`, as this process's user. With HADOOP_PROXY_USER it acts
/// for that user, as far as the NameNode allows it.
///
/// Errors: HADOOP_PROXY_USER is set but empty. Continuing as the process's user would do what was meant for another
/// user.
pub fn connect(configuration: &Configuration, uri: Option<&str>) -> anyhow::Result<FileSystem> {
    let Identity { user, real_user } = Identity::of_process()?;
    Ok(FileSystem::connect_for(configuration, uri, &user, real_user.as_deref())?)
}

/// Like `connect`, over HTTP. `authority`: `host:port` of a NameNode's web server, or a nameservice.
pub fn connect_web(configuration: &Configuration, authority: &str) -> anyhow::Result<WebFileSystem> {
    let Identity { user, real_user } = Identity::of_process()?;
    Ok(WebFileSystem::connect(configuration, authority, &user, real_user.as_deref())?)
}

/// User that commands act for, and the real user if that is another one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    pub user: String,
    pub real_user: Option<String>,
}

impl Identity {
    pub fn of_process() -> anyhow::Result<Self> {
        Self::of(user(), std::env::var("HADOOP_PROXY_USER").ok())
    }

    fn of(user: String, proxied: Option<String>) -> anyhow::Result<Self> {
        match proxied {
            None => Ok(Self { user, real_user: None }),
            Some(proxied) if proxied.trim().is_empty() => {
                anyhow::bail!("HADOOP_PROXY_USER is set to nothing: unset it, or set it to the user to act for")
            }
            Some(proxied) => Ok(Self { user: proxied, real_user: Some(user) }),
        }
    }
}

/// Returns the machine's name, as clients would look it up.
pub fn host_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if name.is_empty() { "localhost".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxied_user_keeps_the_real_user() {
        let of = |proxied: Option<&str>| Identity::of("ann".to_owned(), proxied.map(str::to_owned));
        assert_eq!(of(None).unwrap(), Identity { user: "ann".to_owned(), real_user: None });
        let bob = Identity { user: "bob".to_owned(), real_user: Some("ann".to_owned()) };
        assert_eq!(of(Some("bob")).unwrap(), bob);
        assert!(of(Some("")).is_err() && of(Some(" ")).is_err());
    }
}
