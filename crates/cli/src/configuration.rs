//! What servers and commands take from their surroundings: the configuration directory, the user, the host name.

use std::path::Path;

use anyhow::Context;
use hearth_config::{Configuration, Environment};

/// `core-site.xml` and `hdfs-site.xml` of HADOOP_CONF_DIR; without that variable, the defaults.
pub fn load() -> anyhow::Result<Configuration> {
    let home = std::env::var("HOME").unwrap_or_default();
    let environment = Environment::new(std::env::vars())
        .with_property("user.name", user())
        .with_property("user.home", home)
        .with_property("java.io.tmpdir", std::env::temp_dir().display().to_string());
    match std::env::var_os("HADOOP_CONF_DIR") {
        Some(dir) => {
            Configuration::load_dir(Path::new(&dir), environment).context("the configuration in HADOOP_CONF_DIR")
        }
        None => Ok(Configuration::empty().with_environment(environment)),
    }
}

/// HADOOP_USER_NAME, or whom this process runs as.
pub fn user() -> String {
    if let Some(name) = std::env::var("HADOOP_USER_NAME").ok().filter(|name| !name.is_empty()) {
        return name;
    }
    let uid = rustix::process::getuid().as_raw().to_string();
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let named = passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1) == Some(uid.as_str())).then(|| name.to_owned())
    });
    named.or_else(|| std::env::var("USER").ok()).unwrap_or(uid)
}

/// The machine's name, as clients would look it up.
pub fn host_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if name.is_empty() { "localhost".to_owned() } else { name }
}
