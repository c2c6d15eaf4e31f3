//! Engines that store their data on HDFS: Apache HBase and Apache Spark, with the Hadoop clients that they include.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::apache::{compiled, without_environment};
use crate::prerequisites::{Missing, hearth_jar, workspace_root};

/// Location of an engine's jars, and the options of JVMs that use them.
#[derive(Clone)]
pub struct Engine {
    lib: PathBuf,
    /// Directory of the project's Java programs for it, below the workspace.
    sources: &'static str,
    options: Vec<String>,
    /// Jars on the class path besides the engine's.
    jars: Vec<PathBuf>,
}

/// Options for a fast start, which suits tests.
const FAST_START: [&str; 3] = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto"];

/// Spark logs with log4j 2: warnings to standard error, and what Hearth's jar reports.
const LOG4J2: &str = "\
rootLogger.level = warn
rootLogger.appenderRef.err.ref = err
logger.hearth.name = io.hearth
logger.hearth.level = info
appender.err.type = Console
appender.err.name = err
appender.err.target = SYSTEM_ERR
appender.err.layout.type = PatternLayout
appender.err.layout.pattern = %d{ISO8601} %p %c{2}: %m%n
";

/// Packages that both need access to, from the options that their own scripts give Java 17.
const ADD_OPENS: [&str; 10] = [
    "java.base/java.io",
    "java.base/java.lang",
    "java.base/java.lang.invoke",
    "java.base/java.lang.reflect",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
];

impl Engine {
    /// Finds HBase. Error of kind [`Missing`] if its jars were not fetched.
    pub fn hbase() -> Result<Self> {
        Self::find("HBase", ".cache/hbase-2.6.4/lib", "tests/interop/java/hbase")
    }

    /// Finds Spark. Error of kind [`Missing`] if its jars were not fetched.
    pub fn spark() -> Result<Self> {
        Self::find("Spark", ".cache/spark-3.5.9/lib", "tests/interop/java/spark")
    }

    fn find(what: &'static str, lib: &str, sources: &'static str) -> Result<Self> {
        let lib = workspace_root().join(lib);
        if !lib.is_dir() {
            bail!(Missing { what, cure: "cargo xtask test --ecosystem" });
        }
        let mut options: Vec<String> = FAST_START.map(str::to_owned).to_vec();
        options.extend(ADD_OPENS.map(|package| format!("--add-opens={package}=ALL-UNNAMED")));
        options.push("--add-exports=java.base/sun.nio.ch=ALL-UNNAMED".to_owned());
        options.push("--add-exports=java.base/jdk.internal.misc=ALL-UNNAMED".to_owned());
        Ok(Self { lib, sources, options, jars: Vec::new() })
    }

    /// Adds the jar of Hearth's Java binding, as in the engine's directory of jars.
    ///
    /// Error of kind [`Missing`] if it was not built.
    pub fn with_hearth_jar(mut self) -> Result<Self> {
        self.jars.push(hearth_jar()?);
        Ok(self)
    }

    /// Uses the JVM's default options instead of the fast-start options.
    pub fn for_measuring(mut self) -> Self {
        self.options.retain(|option| !FAST_START.contains(&option.as_str()));
        self
    }

    /// Configures the log of a Spark that uses the configuration in `conf`.
    pub fn configure_spark_log(conf: &Path) -> Result<()> {
        let path = conf.join("log4j2.properties");
        std::fs::write(&path, LOG4J2).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Returns `java MAIN` with the configuration in `conf` and a heap of at most `heap_mib` MiB.
    pub fn java(&self, conf: &Path, heap_mib: u32, main: &str) -> Command {
        self.java_with(&[conf], heap_mib, main)
    }

    /// Returns one of the project's Java programs for it, compiled if it has changed.
    pub fn our_java(&self, conf: &Path, heap_mib: u32, main: &str) -> Result<Command> {
        let class_path = format!("{}/*", self.lib.display());
        Ok(self.java_with(&[conf, &compiled(self.sources, &class_path, &[])?], heap_mib, main))
    }

    fn java_with(&self, class_path: &[&Path], heap_mib: u32, main: &str) -> Command {
        let own = class_path.iter().copied().chain(self.jars.iter().map(PathBuf::as_path));
        let mut places: Vec<String> = own.map(|path| path.display().to_string()).collect();
        places.push(format!("{}/*", self.lib.display()));
        let mut command = Command::new("java");
        command.args(&self.options).arg(format!("-Xmx{heap_mib}m")).arg("-cp").arg(places.join(":"));
        command.arg(main).stdin(Stdio::null());
        without_environment(&mut command);
        command
    }
}
