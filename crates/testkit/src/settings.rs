use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Hadoop configuration for a directory that `HADOOP_CONF_DIR` names.
#[derive(Clone, Default)]
pub struct Settings {
    values: BTreeMap<String, String>,
}

impl Settings {
    pub fn set(&mut self, key: impl Into<String>, value: impl ToString) -> &mut Self {
        self.values.insert(key.into(), value.to_string());
        self
    }

    pub fn get(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(String::as_str)
    }

    pub fn extend(&mut self, other: &Settings) -> &mut Self {
        self.values.extend(other.values.iter().map(|(key, value)| (key.clone(), value.clone())));
        self
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.values.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Writes all settings to the file `path`, for programs with their own configuration file.
    pub fn write_as(&self, path: &Path) -> Result<()> {
        fs::write(path, xml(self.iter())).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Writes core-site.xml (keys of `fs.`, `hadoop.`, `io.`, `ipc.`, `net.`), hdfs-site.xml (the rest) and a
    /// log4j.properties. The latter logs warnings to standard error, plus what the `log4j.` keys select.
    pub fn write(&self, directory: &Path) -> Result<()> {
        let core = |key: &str| ["fs.", "hadoop.", "io.", "ipc.", "net."].iter().any(|prefix| key.starts_with(prefix));
        let write = |name: &str, text: String| {
            let path = directory.join(name);
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
        };
        fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
        write("core-site.xml", xml(self.iter().filter(|(key, _)| core(key))))?;
        write("hdfs-site.xml", xml(self.iter().filter(|(key, _)| !core(key) && !key.starts_with("log4j."))))?;
        let logging = self.iter().filter(|(key, _)| key.starts_with("log4j."));
        write("log4j.properties", logging.fold(LOG4J.to_owned(), |text, (key, value)| text + key + "=" + value + "\n"))
    }
}

fn xml<'a>(values: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let mut text = String::from("<?xml version=\"1.0\"?>\n<configuration>\n");
    for (key, value) in values {
        let (key, value) = (escaped(key), escaped(value));
        writeln!(text, "  <property><name>{key}</name><value>{value}</value></property>").expect("a String takes all");
    }
    text.push_str("</configuration>\n");
    text
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

const LOG4J: &str = "\
log4j.rootLogger=WARN,err
log4j.appender.err=org.apache.log4j.ConsoleAppender
log4j.appender.err.target=System.err
log4j.appender.err.layout=org.apache.log4j.PatternLayout
log4j.appender.err.layout.ConversionPattern=%d{ISO8601} %p %c{2}: %m%n
log4j.logger.org.apache.hadoop.util.NativeCodeLoader=ERROR
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_written_to_hadoops_files() {
        let directory = tempfile::tempdir().unwrap();
        let mut settings = Settings::default();
        settings.set("fs.defaultFS", "hdfs://127.0.0.1:1").set("dfs.hosts", "a<b&c").set("log4j.logger.a.B", "INFO");
        settings.write(directory.path()).unwrap();
        let core = fs::read_to_string(directory.path().join("core-site.xml")).unwrap();
        let hdfs = fs::read_to_string(directory.path().join("hdfs-site.xml")).unwrap();
        assert!(core.contains("<name>fs.defaultFS</name><value>hdfs://127.0.0.1:1</value>") && !core.contains("hosts"));
        let logging = fs::read_to_string(directory.path().join("log4j.properties")).unwrap();
        assert!(logging.ends_with("\nlog4j.logger.a.B=INFO\n") && !hdfs.contains("log4j"));
        assert!(hdfs.contains("<name>dfs.hosts</name><value>a&lt;b&amp;c</value>"));
    }
}
