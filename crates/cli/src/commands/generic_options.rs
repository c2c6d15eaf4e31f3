//! Hadoop's generic options, on top of the configuration of HADOOP_CONF_DIR.

use std::path::Path;

use anyhow::{Context, bail};
use hearth_config::Configuration;

/// Takes `-fs URI`, `-D key=value` (also `-Dkey=value`) and `-conf FILE` off the front of `words`. The rest is the
/// command. Hadoop options without a meaning here (`-jt`, `-files`, `-libjars`, `-archives`) are dropped with their
/// value.
pub fn with_generic_options(words: Vec<String>) -> anyhow::Result<(Configuration, Vec<String>)> {
    let mut configuration = crate::configuration::load()?;
    let mut words = words.into_iter().peekable();
    while let Some(word) = words.peek().cloned() {
        let mut value = |name: &str| -> anyhow::Result<String> {
            words.next();
            words.next().with_context(|| format!("{name} needs a value"))
        };
        match word.as_str() {
            "-fs" => {
                let uri = value("-fs")?;
                let uri = if uri.contains("://") { uri } else { format!("hdfs://{uri}") };
                configuration.set("fs.defaultFS", uri);
            }
            "-D" => set(&mut configuration, &value("-D")?)?,
            "-conf" => {
                let file = value("-conf")?;
                configuration.add_file(Path::new(&file))?;
            }
            "-jt" | "-files" | "-libjars" | "-archives" => {
                value(&word)?;
            }
            "-tokenCacheFile" => bail!("-tokenCacheFile is not supported: delegation tokens are not used"),
            _ => match word.strip_prefix("-D") {
                Some(setting) if setting.contains('=') => {
                    set(&mut configuration, setting)?;
                    words.next();
                }
                _ => break,
            },
        }
    }
    Ok((configuration, words.collect()))
}

/// The generic options, as Hadoop's tools list them after their usage.
pub const GENERIC_USAGE: &str = "Generic options supported are:
-conf <configuration file>        specify an application configuration file
-D <property=value>               define a value for a given property
-fs <file:///|hdfs://namenode:port> specify default filesystem URL to use, overrides 'fs.defaultFS' property from configurations.
-jt <local|resourcemanager:port>  specify a ResourceManager
-files <file1,...>                specify a comma-separated list of files to be copied to the map reduce cluster
-libjars <jar1,...>               specify a comma-separated list of jar files to be included in the classpath
-archives <archive1,...>          specify a comma-separated list of archives to be unarchived on the compute machines

The general command line syntax is:
command [genericOptions] [commandOptions]

";

fn set(configuration: &mut Configuration, setting: &str) -> anyhow::Result<()> {
    let Some((name, value)) = setting.split_once('=') else { bail!("-D needs key=value, not {setting:?}") };
    configuration.set(name, value);
    Ok(())
}
