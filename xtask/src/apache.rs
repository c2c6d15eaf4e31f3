//! Apache Hadoop from Maven Central: the peer, the oracle and the real client of the interop tests.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::run;

mod class_archive;

/// Version pinned in `xtask/apache/pom.xml`.
pub const VERSION: &str = "3.4.2";

/// A second version, which many users still have. The suites `cluster` and `java` run with it, too.
const OLD_VERSION: &str = "3.3.6";

/// Returns the directory of jars, which are fetched if missing. `testkit` looks in the same place.
pub fn fetch() -> Result<PathBuf> {
    fetch_into("contract.xml", VERSION, &format!("apache-{VERSION}-contract"))?;
    let lib = fetch_into("pom.xml", VERSION, &format!("apache-{VERSION}"))?;
    if let Err(error) = class_archive::make(&lib) {
        println!("Java programs of the tests start slowly: {error:#}");
    }
    Ok(lib)
}

/// Fetches what only the slow suites need: the jobs of MapReduce, and an older version.
pub fn fetch_more() -> Result<()> {
    fetch_into("jobs.xml", VERSION, &format!("apache-{VERSION}-jobs"))?;
    fetch_into("pom.xml", OLD_VERSION, &format!("apache-{OLD_VERSION}"))?;
    Ok(())
}

/// Fetches HBase with another copy of Hadoop's jars, because HBase selects its own versions of their dependencies.
pub fn fetch_hbase() -> Result<PathBuf> {
    fetch_jars("hbase.xml", "HBase", VERSION, &crate::root().join(".cache/hbase-2.6.4"))
}

/// Fetches Spark, with the Hadoop client that it is packaged with.
pub fn fetch_spark() -> Result<PathBuf> {
    fetch_jars("spark.xml", "Spark", VERSION, &crate::root().join(".cache/spark-3.5.9"))
}

fn fetch_into(pom: &str, version: &str, name: &str) -> Result<PathBuf> {
    let home = crate::root().join(".cache").join(name);
    // The daemons' web servers require the directories of their pages, which the jars do not contain.
    for pages in ["hdfs", "datanode", "router"] {
        let pages = home.join("web/webapps").join(pages);
        fs::create_dir_all(&pages).with_context(|| format!("cannot make {}", pages.display()))?;
    }
    let lib = fetch_jars(pom, &format!("Apache Hadoop {version}"), version, &home)?;
    fetch_native(&home)?;
    Ok(lib)
}

/// Fetches the artifacts that `pom` names and their dependencies into `lib/` of `home`. `version`: Hadoop's version, if
/// the pom leaves it open.
fn fetch_jars(pom: &str, what: &str, version: &str, home: &Path) -> Result<PathBuf> {
    let lib = home.join("lib");
    run::require(&[("java", "-version"), ("javac", "-version")], &["openjdk-17-jdk-headless"])?;
    fs::create_dir_all(home).with_context(|| format!("cannot make {}", home.display()))?;
    // Records the pom of the fetched jars, so that a changed pom causes a new fetch.
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

/// The libhadoop that Java clients need for Unix sockets and file descriptors. Apache publishes it only in its
/// distribution. This jar contains it, built from the same sources. Any Hadoop 3 can load it.
const NATIVE: &str = "io.trino.hadoop:hadoop-apache:3.3.5-3";
const NATIVE_FILE: &str = "nativelib/Linux-amd64/libhadoop.so";

/// Fetches libhadoop into `native/` beside the jars.
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
            // Without a project, the plugin creates marker files in a directory `${project.basedir}` of its working
            // directory.
            .current_dir(&part),
    )?;
    fs::create_dir_all(&native).with_context(|| format!("cannot make {}", native.display()))?;
    // Renamed in one step, so that other processes never see an incomplete file.
    fs::rename(part.join(NATIVE_FILE), native.join("libhadoop.so"))
        .with_context(|| format!("{NATIVE} has no {NATIVE_FILE}"))?;
    fs::remove_dir_all(&part).with_context(|| format!("cannot remove {}", part.display()))
}
