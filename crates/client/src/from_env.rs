//! Settings that Hadoop's clients take from the environment of their process. No other module of this crate reads the
//! environment.

use std::path::{Path, PathBuf};

use hearth_config::{ConfigError, Configuration, Environment};

use crate::{Error, ErrorKind};

/// Directory of the configuration that Hearth's packages install.
const PACKAGED: &str = "/etc/hearth";

/// Loads `core-site.xml` and `hdfs-site.xml` from `HADOOP_CONF_DIR`, or from `HADOOP_HOME/etc/hadoop` if that is not
/// set. If neither variable is set: from `/etc/hearth`, else the defaults.
///
/// Errors: a file in that directory cannot be read, or is not a Hadoop configuration.
pub fn configuration() -> Result<Configuration, ConfigError> {
    let home = std::env::var_os("HADOOP_HOME").map(|home| Path::new(&home).join("etc/hadoop"));
    let packaged = || Some(PathBuf::from(PACKAGED)).filter(|dir| dir.is_dir());
    match std::env::var_os("HADOOP_CONF_DIR").map(PathBuf::from).or(home).or_else(packaged) {
        Some(dir) => configuration_in(&dir),
        None => Ok(Configuration::empty().with_environment(environment())),
    }
}

/// Loads the files of a given directory. Variables in values refer to the environment of this process.
///
/// Errors: a file in that directory cannot be read, or is not a Hadoop configuration.
pub fn configuration_in(directory: &Path) -> Result<Configuration, ConfigError> {
    Configuration::load_dir(directory, environment())
}

fn environment() -> Environment {
    let home = std::env::var("HOME").unwrap_or_default();
    let variables =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    Environment::new(variables)
        .with_property("user.name", user_name())
        .with_property("user.home", home)
        .with_property("java.io.tmpdir", std::env::temp_dir().display().to_string())
}

/// Returns `HADOOP_USER_NAME`, or the operating system's name for the user of this process.
pub fn user_name() -> String {
    let name = std::env::var("HADOOP_USER_NAME").ok().filter(|name| !name.is_empty());
    name.unwrap_or_else(crate::os_user_name)
}

/// User that calls act for, and the real user that makes them if that is another one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// User whose files and rights count.
    pub user: String,
    /// User that makes the calls, if it acts on behalf of `user`.
    pub real_user: Option<String>,
}

impl Identity {
    /// Takes both from `HADOOP_PROXY_USER` and [`user_name`].
    ///
    /// Errors: kind `InvalidConfiguration` if `HADOOP_PROXY_USER` is set to nothing.
    pub fn of_process() -> Result<Self, Error> {
        Self::of(user_name(), std::env::var("HADOOP_PROXY_USER").ok())
    }

    fn of(user: String, proxied: Option<String>) -> Result<Self, Error> {
        match proxied {
            None => Ok(Self { user, real_user: None }),
            Some(proxied) if proxied.trim().is_empty() => {
                let why = "HADOOP_PROXY_USER is set to nothing: unset it, or set it to the user to act for";
                Err(Error::new(ErrorKind::InvalidConfiguration, why))
            }
            Some(proxied) => Ok(Self { user: proxied, real_user: Some(user) }),
        }
    }
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
