//! Spark with its Parquet files on Hearth: `tests/interop/java/spark/Parquet.java` gets the same results as on Apache's
//! cluster.

use std::fs;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use hearth_interop::{Check, Session, Suite};
use hearth_testkit::{ClusterSpec, Engine, Implementation};

const CHECKS: &[Check] = &[("parquet", parquet)];

/// Number of lines that the program prints.
const ANSWERS: usize = 12;

pub fn suite() -> Suite {
    let combinations = [
        (Implementation::Apache, Implementation::Apache),
        (Implementation::Hearth, Implementation::Hearth),
        (Implementation::Apache, Implementation::Hearth),
    ];
    let clusters = combinations.map(|(namenode, datanodes)| {
        ClusterSpec::new(namenode, datanodes).datanodes(2).set("dfs.replication", 2).set("hearth.memory.limit", "512m")
    });
    Suite { name: "spark", clusters: clusters.to_vec(), checks: CHECKS }
}

/// Spark logs with log4j 2, to its standard error.
const LOG4J2: &str = "\
rootLogger.level = warn
rootLogger.appenderRef.err.ref = err
appender.err.type = Console
appender.err.name = err
appender.err.target = SYSTEM_ERR
appender.err.layout.type = PatternLayout
appender.err.layout.pattern = %d{ISO8601} %p %c{2}: %m%n
";

fn parquet(session: &mut Session) -> Result<()> {
    let conf = session.cluster.conf_with("spark-conf", &[])?;
    let log = conf.join("log4j2.properties");
    fs::write(&log, LOG4J2).with_context(|| format!("cannot write {}", log.display()))?;
    let mut command = Engine::spark()?.our_java(&conf, 1024, "Parquet")?;
    let local = session.local("spark")?;
    command.env("SPARK_LOCAL_DIRS", &local).current_dir(&local).stderr(Stdio::piped());
    let output = command.arg(format!("{}/spark", session.cluster.uri())).output().context("cannot start java")?;
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "it ended with {}\n{said}\n{errors}", output.status);
    let answers: Vec<&str> = said.lines().filter(|line| line.starts_with("= ")).collect();
    ensure!(answers.len() == ANSWERS, "{} answers: {said}", answers.len());
    ensure!(answers.contains(&"= in order: true"), "the output is not sorted: {said}");
    for answer in answers {
        let (name, value) = answer["= ".len()..].split_once(": ").context("expected a line of name and value")?;
        session.same_as_oracle(name, value.into())?;
    }
    Ok(())
}
