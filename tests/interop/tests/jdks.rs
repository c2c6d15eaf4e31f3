//! Hearth's jar on each version of Java that can be had: a program writes and reads by Hadoop's client, which the jar
//! gives single blocks, and by the jar's file system. `HEARTH_TEST_JDKS` names the versions. It is set by `cargo xtask
//! test --ecosystem`, and by `cargo xtask java --check-jdks`, which adds Java of aarch64 under qemu.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use hearth_interop::{Check, Session, Suite, run};
use hearth_testkit::{Apache, ClusterSpec, Implementation, JavaPath, Process, skip};

const CHECKS: &[Check] = &[("every_java_reads_and_writes", every_java)];

const JDKS: &str = "HEARTH_TEST_JDKS";

/// Versions that the jar is for.
const VERSIONS: [u32; 5] = [8, 11, 17, 21, 25];

/// Several blocks of 1 MiB, with a short last chunk.
const LENGTH: u64 = (3 << 20) + 70_001;

/// Timeout of the program. An emulated Java takes minutes.
const PATIENCE: Duration = Duration::from_secs(900);

fn main() -> ExitCode {
    if std::env::var_os(JDKS).is_none() {
        println!("needs several JDKs: cargo xtask java --check-jdks");
        println!("\ntest result: ok. 0 passed; 0 failed; {} ignored", CHECKS.len());
        return ExitCode::SUCCESS;
    }
    let cluster = ClusterSpec::new(Implementation::Hearth, Implementation::Hearth).java_path(JavaPath::Files);
    run(&[Suite { name: "jdks", clusters: vec![cluster], checks: CHECKS }])
}

fn every_java(session: &mut Session) -> Result<()> {
    let list = std::env::var(JDKS).with_context(|| JDKS.to_owned())?;
    let jdks: Vec<(&str, &Path)> = list
        .split(':')
        .map(|jdk| jdk.split_once('=').map(|(name, java)| (name, Path::new(java))))
        .collect::<Option<_>>()
        .with_context(|| format!("{JDKS} is not a list of VERSION=JAVA: {list}"))?;
    for version in VERSIONS.map(|version| version.to_string()) {
        if !jdks.iter().any(|(name, _)| *name == version) {
            skip(&format!("jdks Java {version}"), "it is not installed and was not fetched");
        }
    }
    let mut failures = Vec::new();
    for (name, java) in jdks {
        if let Err(error) = one_java(session, name, java) {
            failures.push(format!("Java {name}: {error:#}"));
        }
    }
    ensure!(failures.is_empty(), "{}", failures.join("\n"));
    Ok(())
}

fn one_java(session: &Session, name: &str, java: &Path) -> Result<()> {
    let version: u32 = name.split('-').next().unwrap_or_default().parse().with_context(|| format!("version {name}"))?;
    let stock = Apache::find()?.on_jdk(java, version);
    if let Err(error) = read_write(session, &stock, name, JavaPath::Stock) {
        let text = format!("{error:#}");
        // Java 24 took away what Hadoop's client learns the user by.
        if text.contains("getSubject is not supported") {
            skip(&format!("jdks Java {name}"), "Hadoop's client itself does not run on it");
            return Ok(());
        }
        bail!("without the jar: {text}");
    }
    let with_jar = stock.with_hearth_jar()?;
    for path in [JavaPath::Blocks, JavaPath::Files] {
        read_write(session, &with_jar, name, path).with_context(|| format!("by {path:?}"))?;
    }
    Ok(())
}

/// Runs the program, and checks that the bytes took this path.
fn read_write(session: &Session, apache: &Apache, jdk: &str, path: JavaPath) -> Result<()> {
    let mut settings = vec![
        ("fs.hdfs.impl", "org.apache.hadoop.hdfs.DistributedFileSystem"),
        ("fs.AbstractFileSystem.hdfs.impl", "org.apache.hadoop.fs.Hdfs"),
    ];
    settings.extend(path.settings());
    let name = format!("java-{jdk}-{}", path.name());
    let conf = session.cluster.conf_with(&name, &settings)?;
    let mut command = apache.portable_java(&conf, "ReadWrite")?;
    command.arg(format!("/{name}")).arg(LENGTH.to_string());
    let log = session.local("jdks")?.join(format!("{name}.log"));
    let mut program = Process::start(&name, &mut command, &log)?;
    let status = program.wait(PATIENCE)?;
    let said = program.log_text();
    ensure!(status.success(), "it ended with {status}\n{said}");
    let (by, memory) = match path {
        JavaPath::Stock => ("DFSInputStream", "0 bytes"),
        JavaPath::Blocks => ("DFSInputStream", "all"),
        JavaPath::Files => ("VectoredInputStream", "all"),
    };
    for line in [format!("= by: {by}"), format!("= from memory: {memory}"), format!("= done: {LENGTH}")] {
        ensure!(said.lines().any(|found| found == line), "no line {line:?} in {said}");
    }
    if jdk.ends_with("-aarch64") {
        ensure!(said.lines().any(|line| line.starts_with("= java: ") && line.ends_with(" aarch64")), "{said}");
    }
    path.check_log(&session.cluster, &said)
}
