//! Spark with its Parquet files on Hearth: `tests/interop/java/spark/Parquet.java` gets the same results as on Apache's
//! cluster, by Hadoop's client alone and with Hearth's jar.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use hearth_interop::{Check, Session, Suite};
use hearth_testkit::{ClusterSpec, Engine, Implementation, JavaPath, hearth_jar, packet_bytes};

const CHECKS: &[Check] = &[("parquet", parquet)];

/// Number of lines that the program prints.
const ANSWERS: usize = 12;

pub fn suite() -> Suite {
    use Implementation::{Apache, Hearth};
    let kinds = [
        (Apache, Apache, JavaPath::Stock),
        (Hearth, Hearth, JavaPath::Stock),
        (Apache, Hearth, JavaPath::Stock),
        (Hearth, Hearth, JavaPath::Blocks),
        (Hearth, Hearth, JavaPath::Files),
        (Apache, Apache, JavaPath::Files),
    ];
    let clusters = kinds.map(|(namenode, datanodes, path)| {
        let spec = ClusterSpec::new(namenode, datanodes)
            .datanodes(2)
            .java_path(path)
            .set("dfs.replication", 2)
            .set("hearth.memory.limit", "512m");
        if path == JavaPath::Stock { spec } else { spec.labelled(path.name()) }
    });
    Suite { name: "spark", clusters: clusters.to_vec(), checks: CHECKS }
}

/// The program reads its tables more than ten times. They have a few megabytes.
const MUCH: u64 = 8 << 20;
const LITTLE: u64 = 2 << 20;

fn parquet(session: &mut Session) -> Result<()> {
    let path = JavaPath::of(&session.cluster);
    let mut command = submitted(session, path)?;
    let before = sent(session)?;
    let output = command.arg(format!("{}/spark", session.cluster.uri())).output().context("cannot start java")?;
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "it ended with {}\n{said}\n{errors}", output.status);
    let answers: Vec<&str> = said.lines().filter(|line| line.starts_with("= ")).collect();
    ensure!(answers.len() == ANSWERS, "{} answers: {said}", answers.len());
    ensure!(answers.contains(&"= in order: true"), "the output is not sorted: {said}");
    path.check_log(&session.cluster, &errors)?;
    if let (Some(before), Some(after)) = (before, sent(session)?) {
        let sent = after - before;
        let is_expected = if path == JavaPath::Stock { sent > MUCH } else { sent < LITTLE };
        ensure!(is_expected, "the DataNodes sent {sent} bytes in packets to a Spark that reads by {path:?}");
    }
    for answer in answers {
        let (name, value) = answer["= ".len()..].split_once(": ").context("expected a line of name and value")?;
        session.same_as_oracle(name, value.into())?;
    }
    if path == JavaPath::Files && session.cluster.all_datanodes_are_hearth() { methods(session) } else { Ok(()) }
}

/// Spark's Hadoop lacks types that newer versions have. No class of the jar's file system may name one.
fn methods(session: &Session) -> Result<()> {
    let mut command = Engine::spark()?.with_hearth_jar()?.our_java(session.cluster.conf(), 512, "Methods")?;
    let output = command.arg(format!("{}/methods", session.cluster.uri())).output().context("cannot start java")?;
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "it ended with {}\n{said}\n{errors}", output.status);
    for line in [
        "= hadoop: 3.3.4",
        "= written by: HearthOutputStream",
        "= read by: HearthInputStream",
        "= classes: all",
        "= failures: []",
    ] {
        ensure!(said.lines().any(|found| found == line), "no line {line:?} in {said}");
    }
    Ok(())
}

/// Returns how many bytes the DataNodes have sent in packets, if they are Hearth's.
fn sent(session: &Session) -> Result<Option<u64>> {
    session.cluster.all_datanodes_are_hearth().then(|| packet_bytes(&session.cluster)).transpose()
}

/// Returns the command that submits the program as docs/using.md says: Hearth's jar and its settings are Spark's, and
/// Hadoop's configuration knows nothing of them.
fn submitted(session: &Session, path: JavaPath) -> Result<Command> {
    const SOCKET: &str = "dfs.domain.socket.path";
    let stock = "org.apache.hadoop.hdfs.DistributedFileSystem";
    let mut without = vec![];
    if path != JavaPath::Stock {
        without.extend([
            ("fs.hdfs.impl", stock),
            ("fs.AbstractFileSystem.hdfs.impl", "org.apache.hadoop.fs.Hdfs"),
            ("dfs.client.replica.accessor.builder.classes", ""),
            (SOCKET, ""),
        ]);
    }
    let conf = session.cluster.conf_with("spark-conf", &without)?;
    Engine::configure_spark_log(&conf)?;
    let mut command = Engine::spark()?.our_java(&conf, 1024, "org.apache.spark.deploy.SparkSubmit")?;
    let local = session.local("spark")?;
    command.env("SPARK_LOCAL_DIRS", &local).current_dir(&local).stderr(Stdio::piped());
    command.args(["--master", "local[2]"]);
    if path != JavaPath::Stock {
        command.arg("--conf").arg(format!("spark.jars={}", hearth_jar()?.display()));
        let socket = session.cluster.namenode.setting(SOCKET).context("clusters with the jar have a socket")?;
        for (key, value) in path.settings().iter().chain(&[(SOCKET, socket)]) {
            command.arg("--conf").arg(format!("spark.hadoop.{key}={value}"));
        }
    }
    // Instead of a jar: the program is on the class path.
    command.args(["--class", "Parquet", "spark-internal"]);
    Ok(command)
}
