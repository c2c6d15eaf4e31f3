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

/// Returns the variables and properties that values of the configuration can refer to.
fn environment() -> Environment {
    let home = std::env::var("HOME").unwrap_or_default();
    let variables =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    Environment::new(variables)
        .with_property("user.name", user_name())
        .with_property("user.home", home)
        .with_property("java.io.tmpdir", std::env::temp_dir().display().to_string())
}

/// Loads the configuration as programs that use Apache's libhdfs set it up. Like [`configuration`], but if
/// `HADOOP_CONF_DIR` is not set, each of the two files is taken from the first directory on `CLASSPATH` that holds it.
///
/// Errors: a file cannot be read, or is not a Hadoop configuration.
pub fn configuration_with_class_path() -> Result<Configuration, ConfigError> {
    let files = match (std::env::var_os("HADOOP_CONF_DIR"), std::env::var("CLASSPATH")) {
        (None, Ok(class_path)) => files_on(&class_path),
        _ => Vec::new(),
    };
    if files.is_empty() {
        return configuration();
    }
    let mut configuration = Configuration::empty().with_environment(environment());
    files.iter().try_for_each(|file| configuration.add_file(file))?;
    Ok(configuration)
}

/// Finds Hadoop's configuration files in the directories of a class path. Other entries are jars.
fn files_on(class_path: &str) -> Vec<PathBuf> {
    let directories: Vec<&Path> = class_path.split(':').filter(|entry| !entry.is_empty()).map(Path::new).collect();
    let find = |name| directories.iter().map(|directory| directory.join(name)).find(|file| file.is_file());
    ["core-site.xml", "hdfs-site.xml"].into_iter().filter_map(find).collect()
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
    fn class_path_gives_the_first_file_of_each_name() {
        let directory = tempfile::tempdir().unwrap();
        let [a, b] = ["a", "b"].map(|name| directory.path().join(name));
        for (folder, name) in [(&a, "core-site.xml"), (&b, "core-site.xml"), (&b, "hdfs-site.xml")] {
            std::fs::create_dir_all(folder).unwrap();
            std::fs::write(folder.join(name), "<configuration/>").unwrap();
        }
        let class_path = format!("/x/hadoop.jar:{0}/nothing::{0}:{1}:{1}/*", a.display(), b.display());
        assert_eq!(files_on(&class_path), [a.join("core-site.xml"), b.join("hdfs-site.xml")]);
        assert!(files_on("").is_empty());
    }

    #[test]
    fn proxied_user_keeps_the_real_user() {
        let of = |proxied: Option<&str>| Identity::of("ann".to_owned(), proxied.map(str::to_owned));
        assert_eq!(of(None).unwrap(), Identity { user: "ann".to_owned(), real_user: None });
        let bob = Identity { user: "bob".to_owned(), real_user: Some("ann".to_owned()) };
        assert_eq!(of(Some("bob")).unwrap(), bob);
        assert!(of(Some("")).is_err() && of(Some(" ")).is_err());
    }
}
