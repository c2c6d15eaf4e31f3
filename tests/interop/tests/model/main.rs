//! Random operations through the Rust client, compared with a model, a map from path to bytes. NameNode and DataNodes
//! are killed (SIGKILL) and restarted between and during operations. Acknowledged data must exist, and nothing else.
//!
//! `HEARTH_MODEL_SEED=N` repeats one run, `HEARTH_MODEL_STEPS=N` makes it longer.

mod random;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use hearth_client::{CreateOptions, ErrorKind, FileSystem, RenameOptions, Writer, os_user_name};
use hearth_config::{Configuration, Environment};
use hearth_interop::{Check, Session, Suite, run};
use hearth_testkit::{Cluster, ClusterSpec, Content, Implementation};
use hearth_types::FileKind;
use random::Random;

/// Small, so that few bytes make many blocks.
const BLOCK: u64 = 128 << 10;
const DATANODES: usize = 3;
const STEPS: u64 = 150;
/// Number of steps on Apache's own servers, which validate the test itself. Their restarts take seconds each.
const STEPS_OF_THE_ORACLE: u64 = 25;
/// Fixed, so that each run of the suite is the same everywhere. Changing them makes a new test.
const SEEDS: [u64; 2] = [1, 2];

const CHECKS: &[Check] = &[("nothing_acknowledged_is_lost", nothing_acknowledged_is_lost)];

fn main() -> ExitCode {
    let clusters = [Implementation::Apache, Implementation::Hearth].map(|make| {
        ClusterSpec::new(make, make)
            .datanodes(DATANODES)
            .set("dfs.replication", 2)
            .set("dfs.blocksize", BLOCK)
            // With two of three DataNodes alive, there may be no replacement for a dead one.
            .set("dfs.client.block.write.replace-datanode-on-failure.best-effort", true)
    });
    run(&[Suite { name: "model", clusters: clusters.to_vec(), checks: CHECKS }])
}

fn nothing_acknowledged_is_lost(session: &mut Session) -> Result<()> {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().context(name.to_owned()));
    let oracle = session.is_oracle();
    let steps = match number("HEARTH_MODEL_STEPS").transpose()? {
        Some(steps) => steps,
        None if oracle => STEPS_OF_THE_ORACLE,
        None => STEPS,
    };
    let seeds = match number("HEARTH_MODEL_SEED").transpose()? {
        Some(seed) => vec![seed],
        None if oracle => SEEDS[..1].to_vec(),
        None => SEEDS.to_vec(),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    for seed in seeds {
        runtime.block_on(async {
            let mut run = Run::new(&mut session.cluster, seed)?;
            run.go(steps).await.with_context(|| format!("seed {seed}, after:\n{}", run.history.join("\n")))
        })?;
    }
    Ok(())
}

/// Content of files by path: the data that a reader must find.
type Files = BTreeMap<String, Vec<u8>>;

/// File that is being written.
struct Open {
    path: String,
    writer: Writer,
    /// All bytes passed to the writer, after the earlier content of the file.
    written: Vec<u8>,
    /// Number of those bytes that a flush has acknowledged.
    acknowledged: usize,
    /// Set if a process was killed since the last flush. If a DataNode was killed while it received a replica, that
    /// replica is unreadable until a pipeline recovery or lease recovery has repaired it.
    shaken: bool,
}

struct Run<'a> {
    cluster: &'a mut Cluster,
    fs: FileSystem,
    root: String,
    random: Random,
    files: Files,
    open: Option<Open>,
    /// Operations so far, for the report of a failure.
    history: Vec<String>,
}

/// Process to kill while an operation runs.
#[derive(Clone, Copy, Debug)]
enum Victim {
    Namenode,
    Datanode(usize),
}

impl<'a> Run<'a> {
    fn new(cluster: &'a mut Cluster, seed: u64) -> Result<Self> {
        let fs = connect(cluster)?;
        let root = format!("/model-{seed}");
        Ok(Self { cluster, fs, root, random: Random::new(seed), files: Files::new(), open: None, history: Vec::new() })
    }

    async fn go(&mut self, steps: u64) -> Result<()> {
        self.fs.mkdirs(&self.root).await?;
        for step in 0..steps {
            self.step(step).await.with_context(|| format!("step {step}"))?;
        }
        self.give_up_writer().await?;
        self.check_everything().await
    }

    async fn step(&mut self, step: u64) -> Result<()> {
        match self.random.below(100) {
            0..24 => self.write_file(step).await,
            24..34 => self.append(step).await,
            34..40 => self.truncate().await,
            40..48 => self.rename().await,
            48..53 => self.delete().await,
            53..56 => self.concatenate(step).await,
            56..62 => self.start_writer(step).await,
            62..76 => self.use_writer(step).await,
            76..88 => self.read().await,
            88..93 => self.restart_datanodes(),
            93..96 => self.restart_namenode(),
            96..98 => self.give_up_writer().await,
            _ => self.check_everything().await,
        }
    }

    fn shake(&mut self) {
        if let Some(open) = &mut self.open {
            open.shaken = true;
        }
    }

    fn note(&mut self, what: String) {
        self.history.push(what);
    }

    /// Returns one of a few names, so that operations affect the same files.
    fn any_path(&mut self) -> String {
        let root = &self.root;
        format!("{root}/d{}/f{}", self.random.below(3), self.random.below(5))
    }

    /// Returns an existing closed file.
    fn known_path(&mut self) -> Option<String> {
        let open = self.open.as_ref().map(|open| open.path.clone());
        let known: Vec<&String> = self.files.keys().filter(|path| Some(*path) != open.as_ref()).collect();
        if known.is_empty() {
            return None;
        }
        Some(known[self.random.below(known.len() as u64) as usize].clone())
    }

    fn any_length(&mut self) -> usize {
        match self.random.below(8) {
            0 => 0,
            1 => 1 + self.random.below(600) as usize,
            2 => BLOCK as usize,
            3 => (BLOCK - 1 + self.random.below(3)) as usize,
            4 => (4 * BLOCK) as usize,
            _ => self.random.below(3 * BLOCK) as usize,
        }
    }

    /// Chooses a process to kill during one of six operations.
    fn any_victim(&mut self) -> Option<Victim> {
        match self.random.below(12) {
            0 => Some(Victim::Datanode(self.random.below(DATANODES as u64) as usize)),
            1 => Some(Victim::Namenode),
            _ => None,
        }
    }

    /// Runs `operation` while `victim` is killed and restarted. `Ok(None)`: the operation failed because of that, and
    /// its effect is unknown.
    async fn disturbed<T>(
        &mut self,
        victim: Option<Victim>,
        operation: impl Future<Output = Result<T, hearth_client::Error>>,
    ) -> Result<Option<T>> {
        let Some(victim) = victim else { return Ok(Some(operation.await?)) };
        let pause = Duration::from_millis(self.random.below(60));
        self.shake();
        let cluster = &mut *self.cluster;
        let (outcome, restarted) = tokio::join!(operation, async {
            // Varies the moment of the restart in the operation.
            tokio::time::sleep(pause).await;
            tokio::task::block_in_place(|| restart(cluster, victim))
        });
        restarted?;
        Ok(outcome.inspect_err(|error| eprintln!("{victim:?} killed: {error}")).ok())
    }

    async fn write_file(&mut self, step: u64) -> Result<()> {
        let path = self.any_path();
        if self.open.as_ref().is_some_and(|open| open.path == path) {
            return Ok(());
        }
        let content = Content::new(step).bytes(0, self.any_length());
        let victim = self.any_victim();
        self.note(format!("write {path} {} {victim:?}", content.len()));
        let fs = self.fs.clone();
        let flush_at = self.random.below(2) * content.len() as u64 / 2;
        let options = CreateOptions { overwrite: true, ..CreateOptions::default() };
        let done = self
            .disturbed(victim, async {
                let mut writer = fs.create(&path, options).await?;
                let (first, second) = content.split_at(flush_at as usize);
                writer.write(first).await?;
                if flush_at > 0 {
                    writer.hflush().await?;
                }
                writer.write(second).await?;
                writer.close().await
            })
            .await?;
        if done.is_some() {
            self.files.insert(path, content);
            return Ok(());
        }
        // Not acknowledged: the earlier file, or any prefix of the new one.
        self.adopt(&path, |found, before| before == found || found.is_some_and(|found| content.starts_with(found)))
            .await
    }

    async fn append(&mut self, step: u64) -> Result<()> {
        let Some(path) = self.known_path() else { return Ok(()) };
        let more = Content::new(step).bytes(0, self.any_length());
        let victim = self.any_victim();
        self.note(format!("append {path} {} {victim:?}", more.len()));
        let fs = self.fs.clone();
        let done = self
            .disturbed(victim, async {
                let mut writer = fs.append(&path).await?;
                writer.write(&more).await?;
                writer.close().await
            })
            .await?;
        let mut whole = self.files[&path].clone();
        let before = whole.len();
        whole.extend(&more);
        if done.is_some() {
            self.files.insert(path, whole);
            return Ok(());
        }
        self.adopt(&path, |found, _| found.is_some_and(|found| found.len() >= before && whole.starts_with(found))).await
    }

    async fn truncate(&mut self) -> Result<()> {
        let Some(path) = self.known_path() else { return Ok(()) };
        let length = self.random.below(self.files[&path].len() as u64 + 1);
        let victim = self.any_victim();
        self.note(format!("truncate {path} {length} {victim:?}"));
        let fs = self.fs.clone();
        let done = self.disturbed(victim, fs.truncate(&path, length)).await?;
        if done.is_some() {
            self.files.get_mut(&path).context("a known path")?.truncate(length as usize);
            return self.wait_closed(&path).await;
        }
        let cut = self.files[&path][..length as usize].to_vec();
        self.adopt(&path, |found, before| found == before || found == Some(&cut)).await
    }

    async fn rename(&mut self) -> Result<()> {
        let (Some(from), to) = (self.known_path(), self.any_path()) else { return Ok(()) };
        if self.open.as_ref().is_some_and(|open| open.path == to) || from == to {
            return Ok(());
        }
        let parent = to.rsplit_once('/').context("an absolute path")?.0.to_owned();
        self.fs.mkdirs(&parent).await?;
        let victim = self.any_victim();
        self.note(format!("rename {from} {to} {victim:?}"));
        let fs = self.fs.clone();
        let options = RenameOptions { overwrite: true, ..RenameOptions::default() };
        let done = self.disturbed(victim, fs.rename_to(&from, &to, options)).await?;
        let mut after = self.files.clone();
        let moved = after.remove(&from).context("a known path")?;
        after.insert(to, moved);
        self.settle(done.is_some(), after).await
    }

    async fn delete(&mut self) -> Result<()> {
        let Some(path) = self.known_path() else { return Ok(()) };
        let victim = self.any_victim();
        self.note(format!("delete {path} {victim:?}"));
        let fs = self.fs.clone();
        let done = self.disturbed(victim, fs.delete(&path, false)).await?;
        if let Some(deleted) = done {
            ensure!(deleted, "{path} did not exist when it was deleted");
        }
        let mut after = self.files.clone();
        after.remove(&path);
        self.settle(done.is_some(), after).await
    }

    async fn concatenate(&mut self, step: u64) -> Result<()> {
        let Some(target) = self.known_path() else { return Ok(()) };
        if self.files[&target].is_empty() {
            return Ok(());
        }
        let source = format!("{target}-more");
        let more = Content::new(step).bytes(0, 1 + self.any_length());
        let mut writer = self.fs.create(&source, CreateOptions::default()).await?;
        writer.write(&more).await?;
        writer.close().await?;
        self.files.insert(source.clone(), more);
        let victim = self.any_victim();
        self.note(format!("concat {target} {victim:?}"));
        let fs = self.fs.clone();
        let done = self.disturbed(victim, fs.concat(&target, &[&source])).await?;
        let mut after = self.files.clone();
        let more = after.remove(&source).context("inserted above")?;
        after.get_mut(&target).context("a known path")?.extend(more);
        self.settle(done.is_some(), after).await
    }

    async fn start_writer(&mut self, step: u64) -> Result<()> {
        if self.open.is_some() {
            return self.use_writer(step).await;
        }
        let path = self.any_path();
        self.note(format!("open {path}"));
        let (writer, written) = match self.files.get(&path) {
            Some(before) => (self.fs.append(&path).await?, before.clone()),
            None => (self.fs.create(&path, CreateOptions::default()).await?, Vec::new()),
        };
        let acknowledged = written.len();
        self.files.insert(path.clone(), written.clone());
        self.open = Some(Open { path, writer, written, acknowledged, shaken: true });
        Ok(())
    }

    /// Writes, flushes or closes. If that fails because too many processes were killed, the file is given up.
    async fn use_writer(&mut self, step: u64) -> Result<()> {
        let Some(mut open) = self.open.take() else { return Ok(()) };
        let more = Content::new(step).bytes(0, self.any_length());
        let victim = self.any_victim();
        let choice = self.random.below(5);
        self.note(format!("writer of {}: {} more, {choice}, {victim:?}", open.path, more.len()));
        open.written.extend(&more);
        let mut writer = open.writer;
        let outcome = self
            .disturbed(victim, async {
                writer.write(&more).await?;
                match choice {
                    0 => Ok(Some(writer)),
                    1 => writer.hsync().await.map(|()| Some(writer)),
                    2 => writer.close().await.map(|()| None),
                    _ => writer.hflush().await.map(|()| Some(writer)),
                }
            })
            .await;
        let flushed = choice != 0;
        match outcome {
            Ok(Some(Some(writer))) => {
                if flushed {
                    open.acknowledged = open.written.len();
                    open.shaken = victim.is_some();
                }
                if flushed && !open.shaken {
                    self.seen_by_a_new_reader(&open.path, &open.written).await?;
                }
                self.open = Some(Open { writer, ..open });
                Ok(())
            }
            Ok(Some(None)) => {
                self.files.insert(open.path, open.written);
                Ok(())
            }
            // An earlier kill may have left too few DataNodes for the pipeline.
            Ok(None) | Err(_) => self.recover(&open.path, open.acknowledged, &open.written).await,
        }
    }

    /// Drops the writer without a close, as when its process dies.
    async fn give_up_writer(&mut self) -> Result<()> {
        let Some(open) = self.open.take() else { return Ok(()) };
        self.note(format!("give up {}", open.path));
        drop(open.writer);
        self.recover(&open.path, open.acknowledged, &open.written).await
    }

    /// Recovers the lease of a file without a writer, and checks that all acknowledged bytes exist.
    async fn recover(&mut self, path: &str, acknowledged: usize, written: &[u8]) -> Result<()> {
        self.wait_closed(path).await?;
        let found = self.contents(path).await?.with_context(|| format!("{path} is missing"))?;
        ensure!(
            found.len() >= acknowledged && written.starts_with(&found),
            "{path} has {} bytes; {acknowledged} were acknowledged of {} written",
            found.len(),
            written.len()
        );
        self.files.insert(path.to_owned(), found);
        Ok(())
    }

    async fn read(&mut self) -> Result<()> {
        let Some(path) = self.known_path() else { return Ok(()) };
        let expected = self.files[&path].clone();
        let from = self.random.below(expected.len() as u64 + 1) as usize;
        let count = self.random.below(2 * BLOCK) as usize;
        let victim = match self.any_victim() {
            // A read need not survive the loss of the NameNode.
            Some(Victim::Namenode) => None,
            other => other,
        };
        self.note(format!("read {path} {from} {count} {victim:?}"));
        let fs = self.fs.clone();
        let mut buffer = vec![0; count];
        let got = self
            .disturbed(victim, async {
                let reader = fs.open(&path).await?;
                reader.read_at(from as u64, &mut buffer).await
            })
            .await?
            .with_context(|| format!("{path} was not readable with one of two replicas lost"))?;
        let end = expected.len().min(from + count);
        ensure!(got == end - from && buffer[..got] == expected[from..end], "{count} bytes at {from} of {path} differ");
        Ok(())
    }

    async fn seen_by_a_new_reader(&self, path: &str, expected: &[u8]) -> Result<()> {
        let found = self.contents(path).await?.with_context(|| format!("{path} is missing"))?;
        ensure!(found == expected, "{path}: {} bytes seen after a flush of {}", found.len(), expected.len());
        Ok(())
    }

    fn restart_datanodes(&mut self) -> Result<()> {
        let all = self.random.below(4) == 0;
        let one = self.random.below(DATANODES as u64) as usize;
        self.note(if all { "restart all datanodes".to_owned() } else { format!("restart datanode {one}") });
        self.shake();
        let victims: Vec<usize> = if all { (0..DATANODES).collect() } else { vec![one] };
        tokio::task::block_in_place(|| {
            victims.iter().for_each(|victim| self.cluster.datanodes[*victim].kill());
            victims.iter().try_for_each(|victim| self.cluster.start_datanode(*victim))?;
            self.cluster.wait_ready()
        })
    }

    fn restart_namenode(&mut self) -> Result<()> {
        self.note("restart the namenode".to_owned());
        self.shake();
        tokio::task::block_in_place(|| restart(self.cluster, Victim::Namenode))
    }

    /// Updates the model after an operation: to `after` if it was acknowledged, else to that or the earlier state,
    /// whichever is found.
    async fn settle(&mut self, acknowledged: bool, after: Files) -> Result<()> {
        if !acknowledged {
            let mut before = self.files.clone();
            if let Some(open) = &self.open {
                before.remove(&open.path);
            }
            let found = self.everything_closed().await?;
            if found == before {
                return Ok(());
            }
            let mut closed = after.clone();
            if let Some(open) = &self.open {
                closed.remove(&open.path);
            }
            ensure!(found == closed, "neither before nor after: {}", difference(&found, &closed));
        }
        self.files = after;
        Ok(())
    }

    /// Accepts the state of `path` that is found after an operation with unknown outcome, if it is a permitted one.
    async fn adopt(&mut self, path: &str, may_be: impl Fn(Option<&Vec<u8>>, Option<&Vec<u8>>) -> bool) -> Result<()> {
        if self.fs.exists(path).await? {
            self.wait_closed(path).await?;
        }
        let found = self.contents(path).await?;
        let before = self.files.get(path);
        ensure!(
            may_be(found.as_ref(), before),
            "{path} has {:?} bytes, {:?} before the operation",
            found.as_ref().map(Vec::len),
            before.map(Vec::len)
        );
        match found {
            Some(found) => drop(self.files.insert(path.to_owned(), found)),
            None => drop(self.files.remove(path)),
        }
        Ok(())
    }

    /// Recovers the lease if there is one, and waits until the file is closed.
    async fn wait_closed(&self, path: &str) -> Result<()> {
        for attempt in 0..900 {
            if self.fs.is_file_closed(path).await? {
                return Ok(());
            }
            // Requested too often, a recovery would be overtaken by the next.
            if attempt % 25 == 0 {
                match self.fs.recover_lease(path).await {
                    // A recovery is already running.
                    Err(error) if error.kind() == ErrorKind::Busy => {}
                    other => drop(other?),
                }
            }
            // The pace of the checks: a DataNode recovers the last block.
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        bail!("{path} was not closed within three minutes of lease recovery")
    }

    async fn contents(&self, path: &str) -> Result<Option<Vec<u8>>> {
        let mut reader = match self.fs.open(path).await {
            Ok(reader) => reader,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("opening {path}")),
        };
        let mut bytes = Vec::new();
        loop {
            let next = reader.next().await.with_context(|| format!("reading {path} at {}", bytes.len()))?;
            if next.is_empty() {
                return Ok(Some(bytes));
            }
            bytes.extend_from_slice(next);
            let count = next.len();
            reader.consume(count);
        }
    }

    /// Returns all files below the root, except the one that is being written.
    async fn everything_closed(&self) -> Result<Files> {
        let mut files = Files::new();
        let mut directories = vec![self.root.clone()];
        while let Some(directory) = directories.pop() {
            for status in self.fs.list_all(&directory).await? {
                let path = format!("{directory}/{}", String::from_utf8_lossy(&status.local_name));
                match status.kind {
                    FileKind::Directory => directories.push(path),
                    _ if self.open.as_ref().is_some_and(|open| open.path == path) => {}
                    _ => {
                        let contents = self.contents(&path).await?.with_context(|| format!("{path} is missing"))?;
                        files.insert(path, contents);
                    }
                }
            }
        }
        Ok(files)
    }

    async fn check_everything(&mut self) -> Result<()> {
        self.note("check everything".to_owned());
        let found = self.everything_closed().await?;
        let mut expected = self.files.clone();
        if let Some(open) = &self.open {
            expected.remove(&open.path);
            if !open.shaken {
                let seen = self.contents(&open.path).await?.with_context(|| format!("{} is gone", open.path))?;
                ensure!(seen.len() >= open.acknowledged && open.written.starts_with(&seen), "{} differs", open.path);
            }
        }
        ensure!(found == expected, "{}", difference(&found, &expected));
        Ok(())
    }
}

fn difference(found: &Files, expected: &Files) -> String {
    let mut lines = Vec::new();
    for path in found.keys().chain(expected.keys()).collect::<std::collections::BTreeSet<_>>() {
        let (found, expected) = (found.get(path), expected.get(path));
        if found != expected {
            let (has, should) = (found.map(Vec::len), expected.map(Vec::len));
            lines.push(format!("{path} has {has:?} bytes, should have {should:?}"));
        }
    }
    lines.join("; ")
}

fn connect(cluster: &Cluster) -> Result<FileSystem> {
    let configuration = Configuration::load_dir(cluster.conf(), Environment::empty())?;
    Ok(FileSystem::connect(&configuration, None, &os_user_name())?)
}

fn restart(cluster: &mut Cluster, victim: Victim) -> Result<()> {
    match victim {
        Victim::Namenode => {
            cluster.namenode.kill();
            cluster.start_namenode()?;
        }
        Victim::Datanode(index) => {
            cluster.datanodes[index].kill();
            cluster.start_datanode(index)?;
        }
    }
    cluster.wait_ready()
}
