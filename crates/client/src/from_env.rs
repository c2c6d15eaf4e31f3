//! Settings that Hadoop's clients take from the environment of their process. No other module of this crate reads the
//! environment.

use std::path::{Path, PathBuf};

use hearth_config::{ConfigError, Configuration, Environment};

/// Loads `core-site.xml` and `hdfs-site.xml` from `HADOOP_CONF_DIR`, or from `HADOOP_HOME/etc/hadoop` if that is not
/// set. Returns the defaults if neither variable is set.
///
/// Errors: a file in that directory cannot be read, or is not a Hadoop configuration.
pub fn configuration() -> Result<Configuration, ConfigError> {
    let home = std::env::var("HOME").unwrap_or_default();
    let variables =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let environment = Environment::new(variables)
        .with_property("user.name", user_name())
        .with_property("user.home", home)
        .with_property("java.io.tmpdir", std::env::temp_dir().display().to_string());
    let home = std::env::var_os("HADOOP_HOME").map(|home| Path::new(&home).join("etc/hadoop"));
    match std::env::var_os("HADOOP_CONF_DIR").map(PathBuf::from).or(home) {
        Some(dir) => Configuration::load_dir(&dir, environment),
        None => Ok(Configuration::empty().with_environment(environment)),
    }
}

/// Returns `HADOOP_USER_NAME`, or the operating system's name for the user of this process.
pub fn user_name() -> String {
    let name = std::env::var("HADOOP_USER_NAME").ok().filter(|name| !name.is_empty());
    name.unwrap_or_else(crate::os_user_name)
}

/// Returns `HADOOP_PROXY_USER`: the user on whose behalf the user of this process makes its calls. An empty value is
/// returned as it is, so that callers can refuse it.
pub fn proxy_user() -> Option<String> {
    std::env::var("HADOOP_PROXY_USER").ok()
}
