//! Files over RDMA: a NameNode and three DataNodes on hosts of their own, and a client on a fourth, in the virtual machine that
//! `cargo xtask test` boots (SoftiWARP; four network namespaces). Every byte over RDMA and no other path, unless a test says so.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hearth_testkit::{Content, Process, Settings, wait_until};

/// The client's host; the DataNodes are on 1 to 3, the NameNode with the first.
const CLIENT: usize = 4;
const FILE_BYTES: u64 = 256 << 20;
const LONG: Duration = Duration::from_secs(120);

struct Net {
    directory: tempfile::TempDir,
    memory: Vec<tempfile::TempDir>,
    settings: Settings,
    nodes: Vec<(String, Process)>,
}

/// The program of this build. Inside the machine nothing is built.
fn program() -> PathBuf {
    if let Some(program) = std::env::var_os("HEARTH_PROGRAM") {
        return program.into();
    }
    let us = std::env::current_exe().unwrap();
    us.ancestors().nth(2).unwrap().join("hearth")
}

fn on_host(host: usize, conf: &Path) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &format!("host{host}")]).arg(program()).env("HADOOP_CONF_DIR", conf);
    command
}

fn checked(mut command: Command) -> Result<Output> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{command:?}: {}\n{text}", output.status);
    Ok(output)
}

impl Net {
    /// `None`, and it is said so, outside of the machine.
    fn start(test: &str, settings: &[(&str, &str)]) -> Option<Self> {
        if std::env::var_os("HEARTH_VM").is_none() {
            // The suite in the virtual machine runs it: nothing is left out.
            println!("not here: {test}: cargo xtask test runs it in its virtual machine");
            return None;
        }
        Some(Self::build(settings).unwrap_or_else(|error| panic!("{test}: {error:#}")))
    }

    fn build(settings: &[(&str, &str)]) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let mut common = Settings::default();
        common
            .set("fs.defaultFS", "hdfs://10.9.0.1:9000")
            .set("hadoop.tmp.dir", directory.path().join("tmp").display())
            .set("dfs.namenode.name.dir", format!("file://{}", directory.path().join("name").display()))
            .set("dfs.namenode.http-address", "10.9.0.1:9870")
            .set("dfs.namenode.safemode.extension", "0")
            // Nobody in the machine knows names.
            .set("dfs.namenode.datanode.registration.ip-hostname-check", false)
            .set("dfs.heartbeat.interval", "1")
            .set("dfs.blocksize", 32 << 20)
            .set("dfs.replication", 3)
            // Disks are memory in this machine: nothing is written behind the write unless a test wants it.
            .set("hearth.memory.flush.delay", 600)
            .set("hearth.memory.limit", "400m");
        for (key, value) in settings {
            common.set(*key, value);
        }
        let mut net = Self { directory, memory: Vec::new(), settings: common, nodes: Vec::new() };
        let conf = net.conf("namenode", &[])?;
        let mut format = on_host(1, &conf);
        format.args(["namenode", "-format", "-nonInteractive"]);
        checked(format)?;
        let mut namenode = on_host(1, &conf);
        namenode.arg("namenode");
        let log = net.directory.path().join("namenode.log");
        net.nodes.push(("namenode".to_owned(), Process::start("namenode", &mut namenode, &log)?));
        for host in 1..=3 {
            net.memory.push(tempfile::tempdir_in("/dev/shm")?);
            net.start_datanode(host)?;
        }
        let report = net.conf("report", &[])?;
        wait_until("three live datanodes", LONG, || {
            let output = on_host(CLIENT, &report).args(["admin", "-report"]).output()?;
            Ok(String::from_utf8_lossy(&output.stdout).contains("Live datanodes (3)").then_some(()))
        })
        .with_context(|| net.logs())?;
        Ok(net)
    }

    fn conf(&self, name: &str, changes: &[(&str, &str)]) -> Result<PathBuf> {
        let mut settings = self.settings.clone();
        for (key, value) in changes {
            settings.set(*key, value);
        }
        let conf = self.directory.path().join(format!("{name}-conf"));
        settings.write(&conf)?;
        Ok(conf)
    }

    fn start_datanode(&mut self, host: usize) -> Result<()> {
        let name = format!("datanode{host}");
        let at = |port: u16| format!("10.9.0.{host}:{port}");
        let disk = format!("file://{}", self.directory.path().join(&name).display());
        let memory = self.memory[host - 1].path().join("memory").display().to_string();
        let conf = self.conf(
            &name,
            &[
                ("dfs.datanode.address", &*at(9866)),
                ("dfs.datanode.ipc.address", &*at(9867)),
                ("dfs.datanode.http.address", &*at(9864)),
                ("hearth.one-sided.address", &*at(0)),
                ("dfs.datanode.hostname", &*format!("10.9.0.{host}")),
                ("dfs.datanode.data.dir", &*disk),
                ("hearth.memory.dir", &*memory),
            ],
        )?;
        let mut command = on_host(host, &conf);
        command.arg("datanode");
        let log = self.directory.path().join(format!("{name}.log"));
        self.nodes.push((name.clone(), Process::start(&name, &mut command, &log)?));
        Ok(())
    }

    fn kill_datanode(&mut self, host: usize) {
        let name = format!("datanode{host}");
        let at = self.nodes.iter().position(|(node, _)| *node == name).expect("it runs");
        self.nodes.remove(at).1.kill();
    }

    /// A client that uses `paths` only.
    fn client(&self, paths: &str, replication: u16) -> Result<Command> {
        let name = format!("{}-{replication}", paths.replace(',', "-"));
        let replication = replication.to_string();
        let conf = self.conf(&name, &[("hearth.client.paths", paths), ("dfs.replication", &*replication)])?;
        let mut command = on_host(CLIENT, &conf);
        command.arg("fs");
        Ok(command)
    }

    fn logs(&self) -> String {
        self.nodes.iter().map(|(name, node)| format!("--- {name}\n{}\n", node.log_tail())).collect()
    }

    fn put(&self, content: Content, length: u64, replication: u16, path: &str) -> Result<()> {
        let file = self.directory.path().join("put");
        content.write_file(&file, length)?;
        let mut put = self.client("packets", replication)?;
        put.args(["-put", "-f"]).arg(&file).arg(path);
        checked(put)?;
        std::fs::remove_file(&file)?;
        Ok(())
    }

    fn getting(&self, paths: &str, path: &str) -> Result<(Command, PathBuf)> {
        let to = self.directory.path().join("got");
        let _ = std::fs::remove_file(&to);
        let mut get = self.client(paths, 3)?;
        get.args(["-get", "-v", path]).arg(&to);
        Ok((get, to))
    }

    /// Reads the file, checks every byte of it, and returns what was said of the paths.
    fn get(&self, paths: &str, path: &str, content: Content, length: u64) -> Result<String> {
        let (get, to) = self.getting(paths, path)?;
        let output = checked(get).with_context(|| self.logs())?;
        check(&to, content, length)?;
        Ok(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// Piece by piece: the machine has little memory.
fn check(file: &Path, content: Content, length: u64) -> Result<()> {
    use std::os::unix::fs::FileExt;
    let file = File::open(file)?;
    ensure!(file.metadata()?.len() == length, "{} of {length} bytes", file.metadata()?.len());
    let (mut got, mut expected) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    let mut at = 0;
    while at < length {
        let part = (length - at).min(1 << 20) as usize;
        file.read_exact_at(&mut got[..part], at)?;
        content.fill(at, &mut expected[..part]);
        ensure!(got[..part] == expected[..part], "other bytes within 1 MiB of {at}");
        at += part as u64;
    }
    Ok(())
}

#[test]
fn every_byte_of_a_large_file_comes_over_rdma() {
    let Some(net) = Net::start("large file", &[]) else { return };
    let outcome = (|| {
        for (replication, seed) in [(1, 1), (3, 2)] {
            let content = Content::new(seed);
            let path = format!("/large-{replication}");
            net.put(content, FILE_BYTES, replication, &path)?;
            // With this client there is no other path: what it reads came one-sidedly.
            let said = net.get("one-sided", &path, content, FILE_BYTES)?;
            print!("{said}");
            ensure!(said.contains(&format!("one-sided {FILE_BYTES}, packets 0")), "{said}");
            let mut remove = net.client("packets", 1)?;
            remove.args(["-rm", "-skipTrash", &path]);
            checked(remove)?;
        }
        // In slabs: in the answer, or written to the client.
        for (seed, length) in [(3, 1), (4, 5000), (5, 60_000), (6, 65_537)] {
            let path = format!("/small-{length}");
            net.put(Content::new(seed), length, 1, &path)?;
            net.get("one-sided", &path, Content::new(seed), length)?;
        }
        Ok::<_, anyhow::Error>(())
    })();
    outcome.unwrap_or_else(|error| panic!("{error:#}"));
}

#[test]
fn a_datanode_killed_half_way_costs_no_byte_and_its_keys_are_void_when_it_is_back() {
    let Some(mut net) = Net::start("killed", &[]) else { return };
    let outcome = (|| {
        let content = Content::new(7);
        net.put(content, FILE_BYTES, 3, "/killed")?;
        for host in 1..=3 {
            let (mut get, to) = net.getting("one-sided,packets", "/killed")?;
            let log = net.directory.path().join("get.log");
            let mut getting = Process::start("get", &mut get, &log)?;
            wait_until("half of it", LONG, || {
                let half = std::fs::metadata(&to).is_ok_and(|file| file.len() > FILE_BYTES / 4);
                // A quick one is through already: then the next read finds the datanode gone.
                Ok((half || getting.exited()?.is_some()).then_some(()))
            })?;
            net.kill_datanode(host);
            let status = getting.wait(LONG)?;
            ensure!(status.success(), "{status}\n{}\n{}", getting.log_text(), net.logs());
            check(&to, content, FILE_BYTES)?;
            // Back on the same port with the same files, and keys of its own.
            net.start_datanode(host)?;
            wait_until("the datanode", LONG, || {
                let output = net.client("packets", 3)?.args(["-ls", "/"]).output()?;
                Ok(output.status.success().then_some(()))
            })?;
            net.get("one-sided,packets", "/killed", content, FILE_BYTES)?;
        }
        Ok::<_, anyhow::Error>(())
    })();
    outcome.unwrap_or_else(|error| panic!("{error:#}"));
}

#[test]
fn a_file_of_twice_the_memory_is_read() {
    let settings =
        [("hearth.memory.limit", "128m"), ("hearth.memory.flush.delay", "1"), ("hearth.advertise.lease", "2")];
    let Some(net) = Net::start("memory", &settings) else { return };
    let outcome = (|| {
        let content = Content::new(8);
        net.put(content, FILE_BYTES, 1, "/twice")?;
        for _ in 0..3 {
            let said = net.get("one-sided,packets", "/twice", content, FILE_BYTES)?;
            print!("{said}");
        }
        Ok::<_, anyhow::Error>(())
    })();
    outcome.unwrap_or_else(|error| panic!("{error:#}"));
}
