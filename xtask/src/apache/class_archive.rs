//! An archive of Hadoop's classes, so that the many short Java commands of the tests start faster. `testkit` uses it.
//! Source: JEP 310 and 350, java(1) on application class-data sharing.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// Programs whose classes the archive has, with arguments with which each ends by itself soon. They need no
/// server: nothing listens on port 9, and the retries are turned off.
const PROGRAMS: &[(&str, &[&str])] = &[
    ("org.apache.hadoop.fs.FsShell", &["-Dipc.client.connect.max.retries=0", "-fs", "hdfs://127.0.0.1:9", "-ls", "/"]),
    (
        "org.apache.hadoop.hdfs.tools.DFSAdmin",
        &["-Dipc.client.connect.max.retries=0", "-fs", "hdfs://127.0.0.1:9", "-report"],
    ),
    (
        "org.apache.hadoop.hdfs.server.namenode.NameNode",
        &["-Dfs.defaultFS=hdfs://127.0.0.1:9", "-format", "-force", "-nonInteractive"],
    ),
];

/// Warnings to standard error, as the tests configure it.
const LOGGING: &str = "log4j.rootLogger=WARN,err\n\
                       log4j.appender.err=org.apache.log4j.ConsoleAppender\n\
                       log4j.appender.err.target=System.err\n\
                       log4j.appender.err.layout=org.apache.log4j.PatternLayout\n";

/// Makes `classes.jsa` beside `lib`, the directory of Hadoop's jars, and `classes.path` with the class path that it is
/// valid for. Does nothing if they exist and are newer than the jars.
pub fn make(lib: &Path) -> Result<()> {
    let (archive, path_file) = (lib.with_file_name("classes.jsa"), lib.with_file_name("classes.path"));
    let modified = |path: &Path| fs::metadata(path).and_then(|metadata| metadata.modified());
    let class_path = class_path(lib)?;
    // The paths are absolute: another place of the repository needs another archive.
    let is_of_this_place = fs::read_to_string(&path_file).is_ok_and(|made_for| made_for == class_path);
    if let (Ok(made), Ok(fetched), true) = (modified(&archive), modified(lib), is_of_this_place)
        && made > fetched
    {
        return Ok(());
    }
    let scratch = lib.with_file_name("classes.part");
    let _ = fs::remove_dir_all(&scratch);
    fs::create_dir_all(&scratch).with_context(|| format!("cannot make {}", scratch.display()))?;
    // Hadoop's programs do not start without these files.
    for (name, text) in [("core-site.xml", "<configuration/>\n"), ("log4j.properties", LOGGING)] {
        fs::write(scratch.join(name), text).with_context(|| format!("cannot write {name}"))?;
    }
    let configured = format!("{class_path}:{}", scratch.display());
    let mut classes = BTreeSet::new();
    for (main, arguments) in PROGRAMS {
        let list = scratch.join("classes.list");
        // How the program ends does not matter.
        java(&configured, &scratch)
            .arg(format!("-XX:DumpLoadedClassList={}", list.display()))
            .arg(format!("-Dhadoop.tmp.dir={}", scratch.display()))
            .arg(main)
            .args(*arguments)
            .status()
            .context("cannot start java")?;
        let text = fs::read_to_string(&list).with_context(|| format!("{main} wrote no list of its classes"))?;
        classes.extend(text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned));
    }
    let list = scratch.join("all.list");
    let all: Vec<String> = classes.into_iter().collect();
    fs::write(&list, all.join("\n")).with_context(|| format!("cannot write {}", list.display()))?;
    let part = scratch.join("classes.jsa");
    let output = java(&class_path, &scratch)
        .arg("-Xshare:dump")
        .arg(format!("-XX:SharedClassListFile={}", list.display()))
        .arg(format!("-XX:SharedArchiveFile={}", part.display()))
        .output()
        .context("cannot start java")?;
    ensure!(part.is_file(), "java -Xshare:dump ended with {} and no archive", output.status);
    fs::write(&path_file, class_path).with_context(|| format!("cannot write {}", path_file.display()))?;
    fs::rename(&part, &archive).with_context(|| format!("cannot rename {}", part.display()))?;
    fs::remove_dir_all(&scratch).with_context(|| format!("cannot remove {}", scratch.display()))
}

fn java(class_path: &str, directory: &Path) -> Command {
    let mut command = Command::new("java");
    // The archive is for JVMs with the same collector.
    command.args(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", class_path]).current_dir(directory);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    for name in ["HADOOP_CONF_DIR", "HADOOP_USER_NAME", "HADOOP_HOME", "JAVA_TOOL_OPTIONS", "CLASSPATH"] {
        command.env_remove(name);
    }
    command
}

/// Returns all jars of `lib`, sorted. No pattern: its order differs from one file system to another.
fn class_path(lib: &Path) -> Result<String> {
    let entries = fs::read_dir(lib).with_context(|| format!("cannot read {}", lib.display()))?;
    let mut jars: Vec<PathBuf> = entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    jars.retain(|path| path.extension().is_some_and(|extension| extension == "jar"));
    jars.sort();
    let jars: Vec<String> = jars.iter().map(|jar| jar.display().to_string()).collect();
    Ok(jars.join(":"))
}
