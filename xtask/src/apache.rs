//! Apache Hadoop from Maven Central: the peer, the oracle and the real client of the interop tests.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::run;

/// As pinned in `xtask/apache/pom.xml`.
pub const VERSION: &str = "3.4.2";

/// The other version that clusters are run with, once: what many still have.
const OLD_VERSION: &str = "3.3.6";

/// The directory of jars, fetched when it is not there. `testkit` looks for it at the same place.
pub fn fetch() -> Result<PathBuf> {
    fetch_into("contract.xml", VERSION, &format!("apache-{VERSION}-contract"))?;
    fetch_into("pom.xml", VERSION, &format!("apache-{VERSION}"))
}

/// What the slow suites need besides: the jobs of MapReduce, and an older version.
pub fn fetch_more() -> Result<()> {
    fetch_into("jobs.xml", VERSION, &format!("apache-{VERSION}-jobs"))?;
    fetch_into("pom.xml", OLD_VERSION, &format!("apache-{OLD_VERSION}"))?;
    Ok(())
}

/// HBase, which our Hadoop's jars come with once more: it brings its own choice of what they need.
pub fn fetch_hbase() -> Result<PathBuf> {
    fetch_jars("hbase.xml", "HBase", VERSION, &crate::root().join(".cache/hbase-2.6.4"))
}

/// Spark, with the Hadoop client that it was packed with.
pub fn fetch_spark() -> Result<PathBuf> {
    fetch_jars("spark.xml", "Spark", VERSION, &crate::root().join(".cache/spark-3.5.9"))
}

fn fetch_into(pom: &str, version: &str, name: &str) -> Result<PathBuf> {
    let home = crate::root().join(".cache").join(name);
    // The daemons' web servers insist on their pages' directories, which the jars do not carry.
    for pages in ["hdfs", "datanode", "router"] {
        let pages = home.join("web/webapps").join(pages);
        fs::create_dir_all(&pages).with_context(|| format!("cannot make {}", pages.display()))?;
    }
    let lib = fetch_jars(pom, &format!("Apache Hadoop {version}"), version, &home)?;
    fetch_native(&home)?;
    Ok(lib)
}

/// What `pom` names and all that it needs, into `lib/` of `home`. `version`: Hadoop's, where the pom leaves it open.
fn fetch_jars(pom: &str, what: &str, version: &str, home: &Path) -> Result<PathBuf> {
    let lib = home.join("lib");
    run::require(&[("java", "-version"), ("javac", "-version")], &["openjdk-17-jdk-headless"])?;
    fs::create_dir_all(home).with_context(|| format!("cannot make {}", home.display()))?;
    // What the jars were fetched by, so that a changed pom is followed by a new fetch.
    let pom = crate::root().join("xtask/apache").join(pom);
    let wanted = fs::read_to_string(&pom).with_context(|| format!("cannot read {}", pom.display()))?;
    let fetched = home.join("fetched-by.xml");
    if fs::read_to_string(&fetched).is_ok_and(|text| text == wanted) {
        return Ok(lib);
    }
    run::require(&[("mvn", "--version")], &["maven"])?;
    println!("fetching {what} from Maven Central into {}", lib.display());
    let part = home.join("lib.part");
    for stale in [&part, &lib] {
        if stale.exists() {
            fs::remove_dir_all(stale).with_context(|| format!("cannot remove {}", stale.display()))?;
        }
    }
    run::run_or_fail(
        std::process::Command::new("mvn")
            .args(["--batch-mode", "--quiet", "--file"])
            .arg(&pom)
            .args(["dependency:copy-dependencies", "-DincludeScope=runtime"])
            .arg(format!("-Dhadoop.version={version}"))
            // See `pom.xml`.
            .args((version == VERSION).then_some("-Drouter"))
            .arg(format!("-DoutputDirectory={}", part.display())),
    )?;
    fs::rename(&part, &lib).with_context(|| format!("cannot rename {}", part.display()))?;
    fs::write(&fetched, wanted).with_context(|| format!("cannot write {}", fetched.display()))?;
    Ok(lib)
}

/// libhadoop, which Java clients need for Unix sockets and descriptors. Apache publishes it in its distribution only; this
/// jar has it, built from the same sources, and it loads into any Hadoop 3.
const NATIVE: &str = "io.trino.hadoop:hadoop-apache:3.3.5-3";
const NATIVE_FILE: &str = "nativelib/Linux-amd64/libhadoop.so";

/// Into `native/` beside the jars.
fn fetch_native(home: &Path) -> Result<()> {
    let native = home.join("native");
    if native.join("libhadoop.so").exists() {
        return Ok(());
    }
    run::require(&[("mvn", "--version")], &["maven"])?;
    println!("fetching libhadoop.so of {NATIVE} from Maven Central into {}", native.display());
    let part = home.join("native.part");
    fs::create_dir_all(&part).with_context(|| format!("cannot make {}", part.display()))?;
    run::run_or_fail(
        std::process::Command::new("mvn")
            .args(["--batch-mode", "--quiet", "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:unpack"])
            .arg(format!("-Dartifact={NATIVE}"))
            .arg(format!("-Dmdep.unpack.includes={NATIVE_FILE}"))
            .arg(format!("-DoutputDirectory={}", part.display()))
            // Without a project the plugin leaves marks of its work in a directory `${project.basedir}` where it runs.
            .current_dir(&part),
    )?;
    fs::create_dir_all(&native).with_context(|| format!("cannot make {}", native.display()))?;
    // In one step: whoever finds it finds all of it.
    fs::rename(part.join(NATIVE_FILE), native.join("libhadoop.so"))
        .with_context(|| format!("{NATIVE} has no {NATIVE_FILE}"))?;
    fs::remove_dir_all(&part).with_context(|| format!("cannot remove {}", part.display()))
}
