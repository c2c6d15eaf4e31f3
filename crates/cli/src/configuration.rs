//! What servers and commands take from their surroundings: the configuration directory, the user, the host name.

use std::path::{Path, PathBuf};

use anyhow::Context;
use hearth_config::{Configuration, Environment};

/// `core-site.xml` and `hdfs-site.xml` of HADOOP_CONF_DIR, else of HADOOP_HOME/etc/hadoop; without either variable, the
/// defaults.
pub fn load() -> anyhow::Result<Configuration> {
    let home = std::env::var("HOME").unwrap_or_default();
    let variables =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let environment = Environment::new(variables)
        .with_property("user.name", user())
        .with_property("user.home", home)
        .with_property("java.io.tmpdir", std::env::temp_dir().display().to_string());
    let home = std::env::var_os("HADOOP_HOME").map(|home| Path::new(&home).join("etc/hadoop"));
    match std::env::var_os("HADOOP_CONF_DIR").map(PathBuf::from).or(home) {
        Some(dir) => Configuration::load_dir(&dir, environment).context("the configuration in HADOOP_CONF_DIR"),
        None => Ok(Configuration::empty().with_environment(environment)),
    }
}

/// HADOOP_USER_NAME, or whom this process runs as.
pub fn user() -> String {
    if let Some(name) = std::env::var("HADOOP_USER_NAME").ok().filter(|name| !name.is_empty()) {
        return name;
    }
    hearth_client::os_user_name()
}

/// The machine's name, as clients would look it up.
pub fn host_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if name.is_empty() { "localhost".to_owned() } else { name }
}
