//! `cargo xtask java`: the jar of the Java binding, with native libraries for every platform that Hearth supports, and what else a repository
//! such as Maven Central demands: jars of the sources and of their documentation, and the POM.

mod jdks;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

pub use jdks::{native as native_jdks, variable as jdks_variable};

use crate::{apache, old_glibc, root, run};

/// Version in `bindings/java/pom.xml`, which a test compares.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The class of users, which every jar has in its form.
const CLASS: &str = "io/hearth/hdfs/HearthFileSystem";

/// Architectures that the jar has libraries for.
const ARCHITECTURES: [&str; 2] = ["x86_64", "aarch64"];

/// Largest size of a library. The build fails above it, so that growth is a decision.
const LIBRARY_BYTES_MAX: u64 = 6 << 20;

#[derive(Args)]
pub struct JavaArguments {
    /// Only the library for this architecture. Can be repeated
    #[arg(long, value_name = "ARCHITECTURE", value_parser = ARCHITECTURES)]
    architecture: Vec<String>,
    /// Then write and read by the jar with Java 11, 17, 21 and 25, with Java 8 if it is installed, and with aarch64's under qemu.
    /// What is missing is fetched, up to 300 MB
    #[arg(long)]
    check_jdks: bool,
}

pub fn run(arguments: &JavaArguments) -> Result<()> {
    let mut architectures: Vec<&str> = arguments.architecture.iter().map(String::as_str).collect();
    if architectures.is_empty() {
        architectures.extend(ARCHITECTURES);
    }
    let files = publication(&libraries(&architectures)?, &crate::target().join("java"))?;
    if arguments.check_jdks {
        check_jdks(&files[0], &architectures)?;
    }
    for file in files {
        println!("{}", file.display());
    }
    Ok(())
}

/// Builds the jar as users get it, with a library for each architecture. Returns its path.
pub fn release(architectures: &[&str]) -> Result<PathBuf> {
    jar(&libraries(architectures)?, &crate::target().join("java"))
}

/// Builds the native library for each architecture.
fn libraries<'a>(architectures: &[&'a str]) -> Result<Vec<(&'a str, PathBuf)>> {
    let mut libraries = Vec::new();
    for architecture in architectures {
        add_target(architecture)?;
        run::run_or_fail(old_glibc::cargo(architecture)?.args(["--release", "--package", "hearth-java"]))?;
        let library = old_glibc::built(architecture, "release").join("libhearth_java.so");
        check(&library)?;
        libraries.push((*architecture, library));
    }
    Ok(libraries)
}

/// Runs a program with the jar on every Java that can be had: `tests/interop/tests/jdks.rs`.
fn check_jdks(jar: &Path, architectures: &[&str]) -> Result<()> {
    apache::fetch()?;
    let mut runtimes = Vec::new();
    for architecture in architectures {
        if *architecture == std::env::consts::ARCH {
            runtimes.extend(jdks::native()?);
        } else {
            ensure!(*architecture == "aarch64", "no Java of {architecture} can be emulated here");
            runtimes.push(jdks::emulated()?);
        }
    }
    let mut test = run::cargo();
    test.args(["test", "--package", "hearth-interop", "--test", "jdks"]);
    run::run_or_fail(test.env("HEARTH_JAR", jar).env("HEARTH_TEST_JDKS", jdks::variable(&runtimes)))
}

/// Installs Rust's standard library for an architecture, if it is missing.
fn add_target(architecture: &str) -> Result<()> {
    if old_glibc::has_standard_library(architecture)? {
        return Ok(());
    }
    let target = old_glibc::triple(architecture);
    let without = "or leave this library out: cargo xtask java --architecture";
    if !run::exists("rustup", "--version") {
        bail!(
            "Rust's standard library for {target} is missing, and so is rustup, which adds it; install it as your Rust \
             was installed, {without} {}",
            std::env::consts::ARCH
        );
    }
    println!("rustup target add {target}");
    let mut add = Command::new("rustup");
    run::run_or_fail(add.args(["target", "add", &target]).current_dir(root()))
        .with_context(|| format!("cannot add {target}; try again, {without} {}", std::env::consts::ARCH))
}

/// Checks that a library is small, and needs glibc alone and no newer one than every system has.
fn check(library: &Path) -> Result<()> {
    let bytes = fs::metadata(library).with_context(|| format!("cannot read {}", library.display()))?.len();
    ensure!(bytes <= LIBRARY_BYTES_MAX, "{} has {bytes} bytes, more than {LIBRARY_BYTES_MAX}", library.display());
    println!("{}: {:.1} MiB", library.display(), bytes as f64 / f64::from(1 << 20));
    old_glibc::needs_only_libc(library)?;
    old_glibc::check(library)
}

/// Builds the jar alone in `directory`, with a library for each architecture.
pub fn jar(libraries: &[(&str, PathBuf)], directory: &Path) -> Result<PathBuf> {
    package(libraries, directory, &[])?;
    Ok(named(directory, ".jar"))
}

/// Builds all that is published in `directory`, the jar first, and checks it.
fn publication(libraries: &[(&str, PathBuf)], directory: &Path) -> Result<Vec<PathBuf>> {
    run::require(&[("javadoc", "--version"), ("jar", "--version")], &["openjdk-17-jdk-headless"])?;
    let [jar, sources, documentation, pom] =
        [".jar", "-sources.jar", "-javadoc.jar", ".pom"].map(|end| named(directory, end));
    // Those of an earlier build would hide that this one made none.
    for file in [&jar, &sources, &documentation, &pom] {
        if file.exists() {
            fs::remove_file(file).with_context(|| format!("cannot remove {}", file.display()))?;
        }
    }
    package(libraries, directory, &["--activate-profiles", "publish"])?;
    let architectures: Vec<&str> = libraries.iter().map(|(architecture, _)| *architecture).collect();
    check_natives(&entries(&jar, "class")?, &architectures).with_context(|| jar.display().to_string())?;
    entries(&sources, "java")?;
    entries(&documentation, "html")?;
    let template = fs::read_to_string(root().join("bindings/java/pom.xml")).context("cannot read the POM")?;
    let library = run::package("hearth-java")?;
    let repository = library["repository"].as_str();
    if repository.is_none() {
        println!(
            "the POM has no url and scm, which Maven Central demands: give bindings/java/native/Cargo.toml a `repository`"
        );
    }
    fs::write(&pom, published_pom(&template, repository)?)
        .with_context(|| format!("cannot write {}", pom.display()))?;
    Ok(vec![jar, sources, documentation, pom])
}

fn named(directory: &Path, end: &str) -> PathBuf {
    directory.join(format!("hearth-hdfs-{VERSION}{end}"))
}

/// Returns the names of the files in a jar, which has [`CLASS`] with the given extension.
fn entries(jar: &Path, extension: &str) -> Result<Vec<String>> {
    ensure!(jar.is_file(), "Maven has made no {}", jar.display());
    let listed = run::output(Command::new("jar").arg("tf").arg(jar))?;
    let names: Vec<String> = listed.lines().map(str::to_owned).collect();
    let class = format!("{CLASS}.{extension}");
    ensure!(names.contains(&class), "{} has no {class}", jar.display());
    Ok(names)
}

/// Checks that the jar has the native libraries of these architectures, and no other one.
fn check_natives(entries: &[String], architectures: &[&str]) -> Result<()> {
    let wanted: BTreeSet<String> = architectures
        .iter()
        .map(|architecture| format!("io/hearth/hdfs/linux-{architecture}/libhearth_java.so"))
        .collect();
    let found: BTreeSet<String> = entries.iter().filter(|name| name.ends_with(".so")).cloned().collect();
    ensure!(found == wanted, "native libraries {found:?} instead of {wanted:?}");
    Ok(())
}

/// Returns the POM with the address of the sources, if there is one.
fn published_pom(template: &str, repository: Option<&str>) -> Result<String> {
    const PLACE: &str = "  <licenses>\n";
    let Some(address) = repository else { return Ok(template.to_owned()) };
    ensure!(
        address.starts_with("https://") && !address.contains(['<', '>', '&']),
        "the address of the sources, {address}, is not an https:// URL that XML can have as it is"
    );
    let Some((before, after)) = template.split_once(PLACE) else { bail!("the POM names no licenses") };
    let scm = format!(
        "  <scm>\n    <connection>scm:git:{address}</connection>\n    <developerConnection>scm:git:{address}</developerConnection>\n    \
         <url>{address}</url>\n  </scm>\n"
    );
    Ok(format!("{before}  <url>{address}</url>\n{scm}{PLACE}{after}"))
}

/// Lets Maven package the classes in `directory`, with a library for each architecture. `options`: of Maven.
fn package(libraries: &[(&str, PathBuf)], directory: &Path, options: &[&str]) -> Result<()> {
    run::require(&[("mvn", "--version"), ("javac", "-version")], &["maven", "openjdk-17-jdk-headless"])?;
    let natives = directory.join("natives");
    // Maven copies the libraries beside the classes, and leaves those of an earlier build there.
    let copies =
        ARCHITECTURES.map(|architecture| directory.join(format!("classes/io/hearth/hdfs/linux-{architecture}")));
    for old in copies.iter().chain([&natives]).filter(|old| old.exists()) {
        fs::remove_dir_all(old).with_context(|| format!("cannot remove {}", old.display()))?;
    }
    for (architecture, library) in libraries {
        let platform = natives.join(format!("linux-{architecture}"));
        fs::create_dir_all(&platform).with_context(|| format!("cannot make {}", platform.display()))?;
        fs::copy(library, platform.join("libhearth_java.so"))
            .with_context(|| format!("cannot copy {}", library.display()))?;
    }
    let maven = |offline: &[&str]| {
        let mut command = Command::new("mvn");
        command.args(["--batch-mode", "--quiet"]).args(offline).arg("--file").arg(root().join("bindings/java/pom.xml"));
        command.arg(format!("-Dhearth.build={}", directory.display())).args(options).arg("package");
        command
    };
    // Without the network if an earlier build has fetched what Maven needs.
    let offline = maven(&["--offline"]).output().context("cannot start mvn")?;
    if !offline.status.success() {
        run::run_or_fail(&mut maven(&[]))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jar_has_exactly_the_libraries_that_were_built() {
        let mut entries = vec![format!("{CLASS}.class")];
        entries.extend(["x86_64", "aarch64"].map(|name| format!("io/hearth/hdfs/linux-{name}/libhearth_java.so")));
        check_natives(&entries, &["aarch64", "x86_64"]).unwrap();
        assert!(check_natives(&entries, &["x86_64"]).is_err());
        assert!(check_natives(&entries[..2], &["aarch64", "x86_64"]).is_err());
    }

    #[test]
    fn pom_has_what_maven_central_demands() {
        let template = fs::read_to_string(root().join("bindings/java/pom.xml")).unwrap();
        let pom = published_pom(&template, Some("https://example.org/hearth")).unwrap();
        for part in [
            "  <groupId>io.hearth</groupId>\n  <artifactId>hearth-hdfs</artifactId>\n  <version>",
            "  <name>",
            "  <description>",
            "  <url>https://example.org/hearth</url>\n",
            "  <scm>\n    <connection>scm:git:https://example.org/hearth</connection>\n",
            "    <url>https://example.org/hearth</url>\n  </scm>\n",
            "  <licenses>\n    <license>\n      <name>Apache-2.0</name>\n",
            "  <developers>\n    <developer>\n      <name>",
        ] {
            assert!(pom.contains(&format!("\n{part}")), "{part}");
        }
        assert_eq!(published_pom(&template, None).unwrap(), template);
        assert!(published_pom(&template, Some("git@example.org:hearth")).is_err());
    }
}
