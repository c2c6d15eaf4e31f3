//! The environment of servers and commands: the configuration directory, the user, the host name.

use std::path::PathBuf;
use std::sync::OnceLock;

use anyhow::{Context, bail};
pub use hearth_client::from_env::{Identity, user_name as user};
use hearth_client::{FileSystem, WebFileSystem};
use hearth_config::{Configuration, Finding, Program};

/// Directory of `--config`.
static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();

/// Makes `load` read this directory instead of the one that the environment names. Called once, before `load`.
pub fn load_from(directory: PathBuf) {
    let set = DIRECTORY.set(directory);
    assert!(set.is_ok(), "the directory is set once");
}

/// Reads `core-site.xml` and `hdfs-site.xml` of `--config`, else of HADOOP_CONF_DIR, else of HADOOP_HOME/etc/hadoop.
/// Without any of them: of /etc/hearth, else the defaults.
pub fn load() -> anyhow::Result<Configuration> {
    if let Some(directory) = DIRECTORY.get() {
        let read = hearth_client::from_env::configuration_in(directory);
        return read.with_context(|| format!("cannot read the configuration in {}", directory.display()));
    }
    hearth_client::from_env::configuration()
        .context("cannot read the configuration in HADOOP_CONF_DIR, HADOOP_HOME/etc/hadoop or /etc/hearth")
}

/// Checks the configuration of a server that is about to start, and logs a warning for each key that is probably wrong.
///
/// Errors: all values with which `program` does not start.
pub fn check(configuration: &Configuration, program: Program) -> anyhow::Result<()> {
    let report = configuration.check(&[program]);
    report.warnings.iter().for_each(Finding::warn);
    refuse(&report.faults)
}

/// Returns an error that lists all faults, if there are any.
pub fn refuse(faults: &[Finding]) -> anyhow::Result<()> {
    match faults {
        [] => Ok(()),
        [fault] => bail!("a value of the configuration cannot be used: {fault}"),
        faults => {
            let lines: String = faults.iter().map(|fault| format!("\n  {fault}")).collect();
            bail!("{} values of the configuration cannot be used:{lines}", faults.len())
        }
    }
}

/// Connects to the file system at `uri`, or of `fs.defaultFS`, as this process's user. With HADOOP_PROXY_USER it acts
/// for that user, as far as the NameNode allows it.
///
/// Errors: HADOOP_PROXY_USER is set but empty. Continuing as the process's user would do what was meant for another
/// user.
pub fn connect(configuration: &Configuration, uri: Option<&str>) -> anyhow::Result<FileSystem> {
    hearth_client::trace::start(configuration, "hearth-client", &host_name())?;
    let Identity { user, real_user } = Identity::of_process()?;
    Ok(FileSystem::connect_for(configuration, uri, &user, real_user.as_deref())?)
}

/// Like `connect`, over HTTP. `authority`: `host:port` of a NameNode's web server, or a nameservice.
pub fn connect_web(configuration: &Configuration, authority: &str) -> anyhow::Result<WebFileSystem> {
    let Identity { user, real_user } = Identity::of_process()?;
    Ok(WebFileSystem::connect(configuration, authority, &user, real_user.as_deref())?)
}

/// Returns the machine's name, as clients would look it up.
pub fn host_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if name.is_empty() { "localhost".to_owned() } else { name }
}
