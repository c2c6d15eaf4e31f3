//! An archive of Hadoop's classes, so that the many short Java commands and the servers of the tests start faster.
//! `testkit` uses it.
//! Source: JEP 310 and 350, java(1) on application class-data sharing.

use std::collections::BTreeSet;
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::run;

/// Programs whose classes the archive has, with arguments with which each ends by itself soon. They need no
/// server: nothing listens on port 9, and the retries are turned off.
const PROGRAMS: &[(&str, &[&str])] = &[
    (FS_SHELL, &["-Dipc.client.connect.max.retries=0", "-fs", "hdfs://127.0.0.1:9", "-ls", "/"]),
    (
        "org.apache.hadoop.hdfs.tools.DFSAdmin",
        &["-Dipc.client.connect.max.retries=0", "-fs", "hdfs://127.0.0.1:9", "-report"],
    ),
    (NAMENODE, &["-Dfs.defaultFS=hdfs://127.0.0.1:9", "-format", "-force", "-nonInteractive"]),
];

/// Timeouts for servers to start, and to end, on a busy machine.
const READY_WITHIN: Duration = Duration::from_secs(180);
const ENDED_WITHIN: Duration = Duration::from_secs(60);

const FS_SHELL: &str = "org.apache.hadoop.fs.FsShell";
const NAMENODE: &str = "org.apache.hadoop.hdfs.server.namenode.NameNode";
const DATANODE: &str = "org.apache.hadoop.hdfs.server.datanode.DataNode";

/// Warnings to standard error, as the tests configure it.
const LOGGING: &str = "log4j.rootLogger=WARN,err\n\
                       log4j.appender.err=org.apache.log4j.ConsoleAppender\n\
                       log4j.appender.err.target=System.err\n\
                       log4j.appender.err.layout=org.apache.log4j.PatternLayout\n";

/// Makes `classes.jsa` beside `lib`, the directory of Hadoop's jars, and `classes.path` with the class path that it is
/// valid for. Does nothing if they exist, are newer than the jars, and were made as they are made now.
pub fn make(lib: &Path) -> Result<()> {
    let (archive, path_file) = (lib.with_file_name("classes.jsa"), lib.with_file_name("classes.path"));
    let recipe_file = lib.with_file_name("classes.recipe");
    let modified = |path: &Path| fs::metadata(path).and_then(|metadata| metadata.modified());
    let class_path = class_path(lib)?;
    // The paths are absolute: another place of the repository needs another archive.
    let is_of_this_place = fs::read_to_string(&path_file).is_ok_and(|made_for| made_for == class_path);
    let recipe = format!("{PROGRAMS:?} and a running cluster\n");
    let is_of_this_recipe = fs::read_to_string(&recipe_file).is_ok_and(|made_by| made_by == recipe);
    if let (Ok(made), Ok(fetched), true) = (modified(&archive), modified(lib), is_of_this_place && is_of_this_recipe)
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
        listing(&configured, &scratch, &list)
            .arg(format!("-Dhadoop.tmp.dir={}", scratch.display()))
            .arg(main)
            .args(*arguments)
            .status()
            .context("cannot start java")?;
        classes.extend(listed(&list)?);
    }
    let part = match of_cluster(&class_path, lib, &scratch) {
        Ok(more) => {
            let all = classes.union(&more).cloned().collect();
            // A class of a server may be one that no archive can have.
            dump(&class_path, &scratch, &all).or_else(|_| dump(&class_path, &scratch, &classes))?
        }
        Err(error) => {
            println!("Apache's servers of the tests start slowly: {error:#}");
            dump(&class_path, &scratch, &classes)?
        }
    };
    fs::write(&path_file, class_path).with_context(|| format!("cannot write {}", path_file.display()))?;
    fs::rename(&part, &archive).with_context(|| format!("cannot rename {}", part.display()))?;
    fs::write(&recipe_file, recipe).with_context(|| format!("cannot write {}", recipe_file.display()))?;
    fs::remove_dir_all(&scratch).with_context(|| format!("cannot remove {}", scratch.display()))
}

/// Returns `java`, which writes the names of the classes that it loads to the file `list`. The main class must follow.
fn listing(class_path: &str, directory: &Path, list: &Path) -> Command {
    let mut command = java(class_path, directory);
    // Options of the JVM may follow the class path. JAXB, which servers load, needs access to this package.
    command.arg("--add-opens=java.base/java.lang=ALL-UNNAMED");
    command.arg(format!("-XX:DumpLoadedClassList={}", list.display()));
    command
}

/// Returns the lines of a list of classes.
fn listed(list: &Path) -> Result<BTreeSet<String>> {
    let text = fs::read_to_string(list).with_context(|| format!("java wrote no list {}", list.display()))?;
    Ok(text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect())
}

/// Returns the classes that a NameNode and a DataNode load to start, and a client to store and read a file.
fn of_cluster(class_path: &str, lib: &Path, scratch: &Path) -> Result<BTreeSet<String>> {
    let directory = scratch.join("cluster");
    fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
    let any_port = || "127.0.0.1:0".to_owned();
    let settings = [
        ("fs.defaultFS", format!("hdfs://127.0.0.1:{}", free_port()?)),
        ("hadoop.tmp.dir", directory.display().to_string()),
        ("dfs.namenode.http-address", any_port()),
        ("dfs.namenode.datanode.registration.ip-hostname-check", "false".to_owned()),
        ("dfs.namenode.safemode.extension", "0".to_owned()),
        ("dfs.datanode.address", any_port()),
        ("dfs.datanode.http.address", any_port()),
        ("dfs.datanode.ipc.address", any_port()),
        ("dfs.datanode.hostname", "127.0.0.1".to_owned()),
        ("dfs.replication", "1".to_owned()),
    ];
    let properties: String = settings
        .iter()
        .map(|(key, value)| format!("<property><name>{key}</name><value>{value}</value></property>\n"))
        .collect();
    let settings = format!("<configuration>\n{properties}</configuration>\n");
    // In both files: values of `dfs.` in the first are replaced by Hadoop's defaults.
    for (name, text) in [("core-site.xml", &*settings), ("hdfs-site.xml", &*settings), ("log4j.properties", LOGGING)] {
        fs::write(directory.join(name), text).with_context(|| format!("cannot write {name}"))?;
    }
    let web = lib.with_file_name("web");
    let configured = format!("{class_path}:{}:{}", directory.display(), web.display());
    let list = |name: &str| directory.join(format!("{name}.list"));
    let start = |main: &str, list: &Path| -> Result<Server> {
        let child = listing(&configured, &directory, list).arg(main).spawn().context("cannot start java")?;
        Ok(Server(child))
    };
    let formatted = java(&configured, &directory).args([NAMENODE, "-format", "-force", "-nonInteractive"]).status();
    ensure!(formatted.context("cannot start java")?.success(), "the NameNode cannot be formatted");
    let namenode = start(NAMENODE, &list("namenode"))?;
    let datanode = start(DATANODE, &list("datanode"))?;
    let file = directory.join("log4j.properties").display().to_string();
    let deadline = Instant::now() + READY_WITHIN;
    loop {
        let mut put = listing(&configured, &directory, &list("put"));
        if put.args([FS_SHELL, "-put", "-f", &file, "/file"]).status().context("cannot start java")?.success() {
            break;
        }
        ensure!(Instant::now() < deadline, "Apache's cluster stores no file within {READY_WITHIN:?}");
        std::thread::sleep(Duration::from_millis(500));
    }
    let cat = listing(&configured, &directory, &list("cat")).args([FS_SHELL, "-cat", "/file"]).status();
    ensure!(cat.context("cannot start java")?.success(), "Apache's cluster does not return its file");
    // The lists are complete when the programs have ended by themselves.
    datanode.stop()?;
    namenode.stop()?;
    let mut classes = BTreeSet::new();
    for name in ["namenode", "datanode", "put", "cat"] {
        classes.extend(listed(&list(name))?);
    }
    Ok(classes)
}

/// A running server. It is killed when this is dropped.
struct Server(Child);

impl Server {
    /// Sends SIGTERM, and waits for the end.
    fn stop(mut self) -> Result<()> {
        run::run_or_fail(Command::new("kill").arg(self.0.id().to_string()))?;
        let deadline = Instant::now() + ENDED_WITHIN;
        while self.0.try_wait().context("waiting for a server's end")?.is_none() {
            if Instant::now() >= deadline {
                bail!("a server did not end within {ENDED_WITHIN:?}");
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns a port that nothing listens on now.
fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot listen on 127.0.0.1")?;
    Ok(listener.local_addr().context("no address of a listener")?.port())
}

/// Makes an archive of these classes in `scratch`. Returns its file.
fn dump(class_path: &str, scratch: &Path, classes: &BTreeSet<String>) -> Result<PathBuf> {
    let list = scratch.join("all.list");
    let all: Vec<&str> = classes.iter().map(String::as_str).collect();
    fs::write(&list, all.join("\n")).with_context(|| format!("cannot write {}", list.display()))?;
    let part = scratch.join("classes.jsa");
    let output = java(class_path, scratch)
        .arg("-Xshare:dump")
        .arg(format!("-XX:SharedClassListFile={}", list.display()))
        .arg(format!("-XX:SharedArchiveFile={}", part.display()))
        .output()
        .context("cannot start java")?;
    ensure!(output.status.success() && part.is_file(), "java -Xshare:dump ended with {} and no archive", output.status);
    Ok(part)
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
