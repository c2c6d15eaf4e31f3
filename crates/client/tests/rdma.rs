//! Files over RDMA: a NameNode and three DataNodes on hosts of their own, and a client on a fourth, in the virtual
//! machine that `cargo xtask test` boots (SoftiWARP; four network namespaces). Every byte takes RDMA and no other path,
//! unless a test states otherwise.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hearth_testkit::{Content, Process, Settings, in_virtual_machine, left_to_virtual_machine, wait_until};
use tokio::time::Instant;

/// The client's host. The DataNodes are on 1 to 3, the NameNode on the host of the first.
const CLIENT: usize = 4;
/// Four blocks. The network of the virtual machine is slow.
const FILE_BYTES: u64 = 64 << 20;
/// Eight blocks, for tests that interrupt a transfer or exceed the memory.
const LONG_FILE_BYTES: u64 = 128 << 20;
const LONG: Duration = Duration::from_secs(120);

struct Net {
    directory: tempfile::TempDir,
    memory: Vec<tempfile::TempDir>,
    settings: Settings,
    nodes: Vec<(String, Process)>,
}

/// Returns the program of this build. Inside the machine nothing is built.
fn program() -> PathBuf {
    if let Some(program) = std::env::var_os("HEARTH_PROGRAM") {
        return program.into();
    }
    let us = std::env::current_exe().unwrap();
    us.ancestors().nth(2).unwrap().join("hearth")
}

fn in_namespace(host: usize) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &format!("host{host}")]);
    command
}

fn on_host(host: usize, conf: &Path) -> Command {
    let mut command = in_namespace(host);
    command.arg(program()).env("HADOOP_CONF_DIR", conf);
    command
}

fn checked(mut command: Command) -> Result<Output> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{command:?}: {}\n{text}", output.status);
    Ok(output)
}

impl Net {
    /// Starts the cluster. Outside the virtual machine, leaves the test to it and returns `None`.
    fn start(test: &str, settings: &[(&str, &str)]) -> Option<Self> {
        if !in_virtual_machine() {
            left_to_virtual_machine(test, "it needs network namespaces with RDMA");
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
            // The machine has no name resolution.
            .set("dfs.namenode.datanode.registration.ip-hostname-check", false)
            .set("dfs.heartbeat.interval", "1")
            .set("dfs.blocksize", 16 << 20)
            .set("dfs.replication", 3)
            // Disks are memory in this machine: no write-behind unless a test needs it.
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

    /// Restarts a DataNode after its end, on the same port with the same files. Returns when the NameNode knows it.
    fn restart_datanode(&mut self, host: usize) -> Result<()> {
        let log = self.directory.path().join(format!("datanode{host}.log"));
        let registrations = || Ok::<_, anyhow::Error>(std::fs::read_to_string(&log)?.matches(" registered ").count());
        let before = registrations()?;
        self.start_datanode(host)?;
        wait_until("the restarted datanode", LONG, || Ok((registrations()? > before).then_some(())))
    }

    fn remove(&self, path: &str) -> Result<()> {
        let mut remove = self.client("packets", 1)?;
        remove.args(["-rm", "-skipTrash", path]);
        checked(remove).map(drop)
    }

    /// Sets the replication. Returns when every block has that number of replicas.
    fn set_replication(&self, replication: u16, path: &str) -> Result<()> {
        let mut set = self.client("packets", 1)?;
        set.args(["-setrep", "-w", &replication.to_string(), path]);
        checked(set).map(drop).with_context(|| self.logs())
    }

    /// Creates a client that uses `paths` only.
    fn client(&self, paths: &str, replication: u16) -> Result<Command> {
        self.client_on(CLIENT, paths, replication)
    }

    fn client_on(&self, host: usize, paths: &str, replication: u16) -> Result<Command> {
        let name = format!("{}-{replication}", paths.replace(',', "-"));
        let replication = replication.to_string();
        let conf = self.conf(&name, &[("hearth.client.paths", paths), ("dfs.replication", &*replication)])?;
        let mut command = on_host(host, &conf);
        command.arg("fs");
        Ok(command)
    }

    fn logs(&self) -> String {
        self.nodes.iter().map(|(name, node)| format!("--- {name}\n{}\n", node.log_tail())).collect()
    }

    /// Writes a file by one of `paths`, and returns the output about the paths used.
    fn put(&self, paths: &str, content: Content, length: u64, replication: u16, path: &str) -> Result<String> {
        let (put, file) = self.putting(paths, content, length, replication, path)?;
        let output = checked(put).with_context(|| self.logs())?;
        std::fs::remove_file(&file)?;
        Ok(String::from_utf8_lossy(&output.stderr).into_owned())
    }

    fn putting(
        &self,
        paths: &str,
        content: Content,
        length: u64,
        replication: u16,
        path: &str,
    ) -> Result<(Command, PathBuf)> {
        let file = self.directory.path().join("put");
        content.write_file(&file, length)?;
        let mut put = self.client(paths, replication)?;
        // To the file itself, because a test may look at it while it grows.
        put.args(["-put", "-f", "-d", "-v"]).arg(&file).arg(path);
        Ok((put, file))
    }

    /// Reads a value from a DataNode's `/metrics`: the sum over all labels.
    fn figure(&self, host: usize, name: &str) -> Result<u64> {
        let request = "GET /metrics HTTP/1.0\\r\\nHost: datanode\\r\\n\\r\\n";
        let script = format!("exec 3<>/dev/tcp/10.9.0.{host}/9864; printf '{request}' >&3; cat <&3");
        let mut get = in_namespace(CLIENT);
        get.args(["bash", "-c", &script]);
        let text = String::from_utf8(checked(get)?.stdout)?;
        let value = |line: &str| {
            let rest = line.strip_prefix(name)?;
            let rest = rest.strip_prefix("_total").unwrap_or(rest);
            let rest = rest.strip_prefix('{').and_then(|labels| Some(labels.split_once('}')?.1)).unwrap_or(rest);
            rest.strip_prefix(' ')?.trim().parse::<u64>().ok()
        };
        let values: Vec<u64> = text.lines().filter_map(value).collect();
        ensure!(!values.is_empty(), "no {name} in\n{text}");
        Ok(values.iter().sum())
    }

    fn sum(&self, figure: &str) -> Result<u64> {
        (1..=3).map(|host| self.figure(host, figure)).sum()
    }

    fn getting(&self, paths: &str, path: &str) -> Result<(Command, PathBuf)> {
        self.getting_on(CLIENT, paths, path)
    }

    fn getting_on(&self, host: usize, paths: &str, path: &str) -> Result<(Command, PathBuf)> {
        let to = self.directory.path().join("got");
        let _ = std::fs::remove_file(&to);
        let mut get = self.client_on(host, paths, 3)?;
        get.args(["-get", "-v", path]).arg(&to);
        Ok((get, to))
    }

    /// Reads the file, checks every byte of it, and returns the output about the paths used.
    fn get(&self, paths: &str, path: &str, content: Content, length: u64) -> Result<String> {
        self.get_on(CLIENT, paths, path, content, length)
    }

    fn get_on(&self, host: usize, paths: &str, path: &str, content: Content, length: u64) -> Result<String> {
        let (get, to) = self.getting_on(host, paths, path)?;
        let output = checked(get).with_context(|| self.logs())?;
        check(&to, content, length)?;
        Ok(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// Returns the hosts of the DataNodes of the last pipeline in a client's log.
fn pipeline(log: &str) -> Option<Vec<usize>> {
    let names = log.lines().rev().find_map(|line| line.split_once("datanodes=")?.1.split_whitespace().next())?;
    names.split(',').map(|name| name.strip_prefix("10.9.0.")?.split(':').next()?.parse().ok()).collect()
}

fn feed(into: &mut impl Write, content: Content, range: std::ops::Range<u64>) -> Result<()> {
    let mut piece = vec![0; 1 << 20];
    for at in range.step_by(piece.len()) {
        content.fill(at, &mut piece);
        into.write_all(&piece)?;
    }
    Ok(())
}

/// Checks the file piece by piece, because the machine has little memory.
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
        ensure!(got[..part] == expected[..part], "wrong bytes within 1 MiB of {at}");
        at += part as u64;
    }
    Ok(())
}

#[test]
fn large_file_is_transferred_entirely_over_rdma() {
    let Some(net) = Net::start("large file", &[]) else { return };
    let outcome = (|| {
        for (replication, seed) in [(1, 1), (3, 2)] {
            let content = Content::new(seed);
            let path = format!("/large-{replication}");
            let figures = ["hearth_one_sided_written_bytes", "hearth_one_sided_forwarded_bytes"];
            let before = [net.sum(figures[0])?, net.sum(figures[1])?];
            let said = net.put("one-sided", content, FILE_BYTES, replication, &path)?;
            print!("{said}");
            ensure!(said.contains(&format!("one-sided {FILE_BYTES}, packets 0")), "{said}");
            // From client to DataNode, and from DataNode to DataNode.
            let replicas_bytes = u64::from(replication) * FILE_BYTES;
            let written = net.sum(figures[0])? - before[0];
            ensure!(written == replicas_bytes, "{written} bytes written one-sidedly");
            let forwarded = net.sum(figures[1])? - before[1];
            ensure!(forwarded == replicas_bytes - FILE_BYTES, "{forwarded} bytes passed on one-sidedly");
            // This client allows no other path, so its reads are one-sided.
            let said = net.get("one-sided", &path, content, FILE_BYTES)?;
            print!("{said}");
            ensure!(said.contains(&format!("one-sided {FILE_BYTES}, packets 0")), "{said}");
            // Each of three replicas, read on its own host: the NameNode lists the local replica first.
            for host in (1..=3).filter(|_| replication == 3) {
                let before = net.figure(host, "hearth_datanode_read_bytes")?;
                net.get_on(host, "packets", &path, content, FILE_BYTES)?;
                let read = net.figure(host, "hearth_datanode_read_bytes")? - before;
                ensure!(read == FILE_BYTES, "{read} bytes read from the replicas on host {host}");
            }
            net.remove(&path)?;
        }
        // In slabs: in the answer, or written to the client.
        for (seed, length) in [(3, 1), (4, 5000), (5, 60_000), (6, 65_537)] {
            let path = format!("/small-{length}");
            net.put("packets", Content::new(seed), length, 1, &path)?;
            net.get("one-sided", &path, Content::new(seed), length)?;
        }
        Ok::<_, anyhow::Error>(())
    })();
    outcome.unwrap_or_else(|error| panic!("{error:#}"));
}

#[test]
fn read_survives_datanode_restart_with_new_keys() {
    let Some(mut net) = Net::start("killed", &[]) else { return };
    let outcome = (|| {
        let content = Content::new(7);
        net.put("packets", content, LONG_FILE_BYTES, 3, "/killed")?;
        for host in 1..=3 {
            let (mut get, to) = net.getting("one-sided,packets", "/killed")?;
            let log = net.directory.path().join("get.log");
            let mut getting = Process::start("get", &mut get, &log)?;
            wait_until("half of it", LONG, || {
                let half = std::fs::metadata(&to).is_ok_and(|file| file.len() > LONG_FILE_BYTES / 4);
                // A fast transfer may already be complete. Then the next read finds the datanode gone.
                Ok((half || getting.exited()?.is_some()).then_some(()))
            })?;
            net.kill_datanode(host);
            let status = getting.wait(LONG)?;
            ensure!(status.success(), "{status}\n{}\n{}", getting.log_text(), net.logs());
            check(&to, content, LONG_FILE_BYTES)?;
            // Restarted on the same port with the same files, but with new keys.
            net.start_datanode(host)?;
            wait_until("the datanode", LONG, || {
                let output = net.client("packets", 3)?.args(["-ls", "/"]).output()?;
                Ok(output.status.success().then_some(()))
            })?;
            net.get("one-sided,packets", "/killed", content, LONG_FILE_BYTES)?;
        }
        Ok::<_, anyhow::Error>(())
    })();
    outcome.unwrap_or_else(|error| panic!("{error:#}"));
}

/// Kills the first, the middle and the last datanode of the pipeline. The write continues by whichever path, and
/// nothing is lost.
#[test]
fn writer_survives_a_killed_datanode() {
    const BYTES: u64 = 48 << 20;
    let Some(mut net) = Net::start("killed under a writer", &[("dfs.blocksize", &BYTES.to_string())]) else { return };
    let outcome = (|| {
        for position in 0..3 {
            let (content, path) = (Content::new(20 + position as u64), format!("/killed-{position}"));
            let log = net.directory.path().join(format!("put-{position}.log"));
            let mut put = net.client("one-sided", 3)?;
            put.args(["-put", "-v", "-", &path]).env("HEARTH_LOG", "hearth_client=debug");
            let mut putting = put.stdin(Stdio::piped()).stderr(File::create(&log)?).spawn()?;
            let mut input = putting.stdin.take().context("its input")?;
            feed(&mut input, content, 0..BYTES / 2)?;
            let written = |net: &Net, host| net.figure(host, "hearth_one_sided_written_bytes");
            let pipeline = wait_until("half of it", LONG, || {
                let Some(pipeline) = pipeline(&std::fs::read_to_string(&log)?) else { return Ok(None) };
                // Bytes that the client has in flight may be missing.
                Ok((written(&net, pipeline[0])? > BYTES / 2 - (16 << 20)).then_some(pipeline))
            })?;
            ensure!(pipeline.len() == 3, "a pipeline of {pipeline:?}");
            net.kill_datanode(pipeline[position]);
            feed(&mut input, content, BYTES / 2..BYTES)?;
            drop(input);
            let status = putting.wait()?;
            let said = std::fs::read_to_string(&log)?;
            ensure!(status.success(), "{status}\n{said}\n{}", net.logs());
            println!("killed: {}; {}", position, said.lines().last().unwrap_or_default());
            net.get("one-sided,packets", &path, content, BYTES)?;
            // Every remaining datanode has all of the file.
            for host in pipeline.iter().filter(|host| **host != pipeline[position]) {
                let before = net.figure(*host, "hearth_datanode_read_bytes")?;
                net.get_on(*host, "packets", &path, content, BYTES)?;
                let read = net.figure(*host, "hearth_datanode_read_bytes")? - before;
                ensure!(read == BYTES, "{read} bytes read from the replica on host {host}");
            }
            net.remove(&path)?;
            net.restart_datanode(pipeline[position])?;
        }
        Ok::<_, anyhow::Error>(())
    })();
    outcome.unwrap_or_else(|error| panic!("{error:#}"));
}

/// Copies that the NameNode orders, with and without a one-sided network, and one whose target is killed half way.
#[test]
fn replicas_are_copied_over_rdma() {
    const KEY: &str = "hearth.one-sided.transport";
    for transport in ["rdma", "none"] {
        // A datanode counts as dead after eleven seconds of silence.
        let settings = [(KEY, transport), ("dfs.namenode.heartbeat.recheck-interval", "500")];
        let Some(net) = Net::start("copies", &settings) else { return };
        let outcome = (|| {
            let content = Content::new(40);
            net.put("packets", content, FILE_BYTES, 1, "/copied")?;
            let (started, bytes) = (Instant::now(), 2 * FILE_BYTES);
            let mut set = net.client("packets", 1)?;
            set.args(["-setrep", "3", "/copied"]);
            checked(set)?;
            wait_until("both copies", LONG, || {
                let came = net.sum("hearth_one_sided_written_bytes")? + net.sum("hearth_stream_received_bytes")?;
                Ok((came == bytes).then_some(()))
            })?;
            println!("{} MiB copied to two DataNodes in {:?}: {transport}", FILE_BYTES >> 20, started.elapsed());
            net.set_replication(3, "/copied")?;
            let expected = if transport == "rdma" { [bytes, bytes, 0] } else { [0, 0, bytes] };
            let came = ["one_sided_forwarded_bytes", "one_sided_written_bytes", "stream_received_bytes"];
            for (name, expected) in came.into_iter().zip(expected) {
                let actual = net.sum(&format!("hearth_{name}"))?;
                ensure!(actual == expected, "{name} is {actual}, and should be {expected}");
            }
            for host in 1..=3 {
                let before = net.figure(host, "hearth_datanode_read_bytes")?;
                net.get_on(host, "packets", "/copied", content, FILE_BYTES)?;
                let read = net.figure(host, "hearth_datanode_read_bytes")? - before;
                ensure!(read == FILE_BYTES, "{read} bytes read from the replicas on host {host}");
            }
            Ok::<_, anyhow::Error>(())
        })();
        outcome.unwrap_or_else(|error| panic!("{transport}: {error:#}\n{}", net.logs()));
    }
}

#[test]
fn copies_survive_a_killed_datanode() {
    let settings = [
        ("dfs.namenode.heartbeat.recheck-interval", "500"),
        // Slow enough to be killed half way.
        ("dfs.datanode.data.transfer.bandwidthPerSec", "40m"),
        // A single block, so that its other replica is not on the datanode that is killed.
        ("dfs.blocksize", "256m"),
    ];
    let Some(mut net) = Net::start("killed under copies", &settings) else { return };
    let outcome = (|| {
        let content = Content::new(41);
        net.put("packets", content, LONG_FILE_BYTES, 1, "/copied")?;
        let mut set = net.client("packets", 1)?;
        set.args(["-setrep", "2", "/copied"]);
        checked(set)?;
        let written = |net: &Net, host| net.figure(host, "hearth_one_sided_written_bytes");
        let target = wait_until("a copy under way", LONG, || {
            for host in 1..=3 {
                if written(&net, host)? > 16 << 20 {
                    return Ok(Some(host));
                }
            }
            Ok(None)
        })?;
        net.kill_datanode(target);
        net.set_replication(2, "/copied")?;
        let left = (1..=3).filter(|host| *host != target);
        let copied = left.clone().map(|host| written(&net, host)).sum::<Result<u64>>()?;
        ensure!(copied == LONG_FILE_BYTES, "{copied} bytes copied to the remaining datanode");
        for host in left {
            net.get_on(host, "packets", "/copied", content, LONG_FILE_BYTES)?;
        }
        Ok::<_, anyhow::Error>(())
    })();
    outcome.unwrap_or_else(|error| panic!("{error:#}"));
}

/// Other clients can read flushed data while the file is open.
#[test]
fn data_flushed_over_rdma_is_visible() {
    let Some(net) = Net::start("hflush", &[]) else { return };
    let outcome = (|| {
        let mut inside = in_namespace(CLIENT);
        inside.arg(std::env::current_exe()?);
        inside.args(["--ignored", "--exact", "inside::flushes", "--nocapture"]);
        inside.env("HADOOP_CONF_DIR", net.conf("flushing", &[("hearth.client.paths", "one-sided,packets")])?);
        checked(inside).with_context(|| net.logs())?;
        Ok::<_, anyhow::Error>(())
    })();
    outcome.unwrap_or_else(|error| panic!("{error:#}"));
}

/// Programs that tests of this file run in the network of the client's host.
mod inside {
    use hearth_client::{CreateOptions, DataPath, FileSystem};
    use hearth_config::{Configuration, Environment};

    use super::*;

    #[test]
    #[ignore = "another test runs it"]
    fn flushes() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(flushing()).unwrap();
    }

    async fn flushing() -> Result<()> {
        let conf = PathBuf::from(std::env::var_os("HADOOP_CONF_DIR").context("a configuration")?);
        let conf = Configuration::load_dir(&conf, Environment::empty())?;
        let [writing, reading] = [(); 2].map(|()| FileSystem::connect(&conf, None, &hearth_client::os_user_name()));
        let (writing, reading) = (writing?, reading?);
        let content = Content::new(30);
        let mut writer = writing.create("/flushed", CreateOptions::default()).await?;
        let mut length = 0;
        // The first write is large enough for a one-sided block. The next ones end within and across chunks.
        for (index, more) in [700_000, 1, 100, 511, 3 << 20, 65_536, 12_345].into_iter().enumerate() {
            writer.write(&content.bytes(length, more)).await?;
            length += more as u64;
            if index % 3 == 2 {
                writer.hsync().await?
            } else {
                writer.hflush().await?
            }
            let mut reader = reading.open("/flushed").await?;
            ensure!(reader.length() == length, "{} of {length} bytes are visible", reader.length());
            let mut bytes = vec![0; length as usize];
            let count = reader.read(&mut bytes).await?;
            ensure!(count == bytes.len() && bytes == content.bytes(0, count), "bytes differ from the {length} flushed");
        }
        writer.close().await?;
        let statistics = writing.statistics();
        ensure!(statistics.written_bytes(DataPath::OneSided) == length, "{statistics:?} of {length}");
        Ok(())
    }
}

#[test]
fn a_file_of_twice_the_memory_is_written() {
    let settings = [("hearth.memory.limit", "64m"), ("hearth.memory.flush.delay", "1")];
    let Some(net) = Net::start("memory for writers", &settings) else { return };
    let outcome = (|| {
        let content = Content::new(9);
        let said = net.put("one-sided", content, LONG_FILE_BYTES, 1, "/twice")?;
        print!("{said}");
        ensure!(said.contains(&format!("one-sided {LONG_FILE_BYTES}, packets 0")), "{said}");
        net.get("one-sided,packets", "/twice", content, LONG_FILE_BYTES)?;
        net.remove("/twice")?;
        let said = net.put("one-sided", content, LONG_FILE_BYTES, 3, "/twice")?;
        ensure!(said.contains(&format!("one-sided {LONG_FILE_BYTES}, packets 0")), "{said}");
        net.get("one-sided,packets", "/twice", content, LONG_FILE_BYTES)?;
        Ok::<_, anyhow::Error>(())
    })();
    outcome.unwrap_or_else(|error| panic!("{error:#}"));
}

#[test]
fn a_file_of_twice_the_memory_is_read() {
    let settings =
        [("hearth.memory.limit", "64m"), ("hearth.memory.flush.delay", "1"), ("hearth.advertise.lease", "2")];
    let Some(net) = Net::start("memory", &settings) else { return };
    let outcome = (|| {
        let content = Content::new(8);
        net.put("packets", content, LONG_FILE_BYTES, 1, "/twice")?;
        // The second time from what the first has left in memory.
        for _ in 0..2 {
            let said = net.get("one-sided,packets", "/twice", content, LONG_FILE_BYTES)?;
            print!("{said}");
        }
        Ok::<_, anyhow::Error>(())
    })();
    outcome.unwrap_or_else(|error| panic!("{error:#}"));
}
