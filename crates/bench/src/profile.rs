//! `--profile`: CPU time of a workload as flame graphs, one for each kind of participating process.
//!
//! perf(1) samples this process and all its descendants. Its output is split by process here, then folded and drawn by
//! inferno.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use inferno::collapse::Collapse;
use inferno::collapse::perf::Folder;
use inferno::flamegraph;
use rustix::process::{Pid, Signal, kill_process};

use crate::watch::watched;

/// Samples per second on each processor: a prime number, so that no periodic activity is in step with it.
const SAMPLES_PER_SECOND: &str = "197";

/// Bytes of a thread's stack that are kept with each sample. Deeper frames are not seen. Two processors write 3 MB of
/// samples per second to disk.
const STACK: &str = "dwarf,8192";

/// Interval between scans for new processes.
const LOOK: Duration = Duration::from_millis(100);

/// Time after which perf has started.
const BEGUN: Duration = Duration::from_millis(500);

const NEEDS: &str = "--profile needs perf, which samples a running process. On Debian: apt-get install linux-perf; on Ubuntu: \
    apt-get install linux-tools-$(uname -r); on Fedora: dnf install perf. Without root, kernel.perf_event_paranoid must be 2 or less (sysctl), \
    and 1 or less to see the kernel's part";

/// Set while this program is being sampled, which slows what is measured.
static SAMPLED: AtomicBool = AtomicBool::new(false);

pub fn is_sampled() -> bool {
    SAMPLED.load(Ordering::Relaxed)
}

/// Runs `work` and writes `FOLDER/NAME-PROCESS.svg` for each kind of process that used CPU time.
pub fn profiled(folder: &Path, name: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let data = folder.join(format!("{name}.perf.data"));
    let mut perf = Perf::start(&data)?;
    SAMPLED.store(true, Ordering::Relaxed);
    let own = std::process::id();
    let (outcome, kinds) = watched(LOOK, HashMap::new(), |kinds| look(own, kinds), || Ok(work()))?;
    perf.stop()?;
    let drawn = draw(folder, name, &data, &kinds);
    let _ = fs::remove_file(&data);
    for path in drawn? {
        println!("{}", path.display());
    }
    outcome
}

struct Perf(Child);

impl Perf {
    fn start(data: &Path) -> Result<Self> {
        let mut command = Command::new("perf");
        command.args(["record", "--quiet", "-F", SAMPLES_PER_SECOND, "--call-graph", STACK, "-p"]);
        command.arg(std::process::id().to_string()).arg("-o").arg(data);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let child = command.spawn().with_context(|| format!("cannot start perf: {NEEDS}"))?;
        let mut perf = Self(child);
        // perf prints nothing when it starts. If it cannot start, it ends.
        std::thread::sleep(BEGUN);
        perf.check()?;
        Ok(perf)
    }

    fn check(&mut self) -> Result<()> {
        let Some(status) = self.0.try_wait().context("waiting for perf")? else { return Ok(()) };
        let said = self.0.stderr.take().map(std::io::read_to_string);
        bail!("perf ended with {status}: {}\n{NEEDS}", said.and_then(Result::ok).unwrap_or_default().trim())
    }

    /// Stops perf, which writes its data and ends.
    fn stop(&mut self) -> Result<()> {
        self.check()?;
        kill_process(Pid::from_child(&self.0), Signal::INT).context("cannot stop perf")?;
        self.0.wait().context("waiting for perf")?;
        Ok(())
    }
}

impl Drop for Perf {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Records the kind of each process that descends from `own`. The last scan counts, because a process that has just
/// been forked looks like its parent.
fn look(own: u32, kinds: &mut HashMap<u32, String>) {
    let processes = fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    for process in processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()) {
        if process == own {
            kinds.insert(own, "client".to_owned());
        } else if descends(process, own)
            && let Ok(words) = fs::read(format!("/proc/{process}/cmdline"))
            && let Some(kind) = kind(&words)
        {
            kinds.insert(process, kind);
        }
    }
}

fn descends(process: u32, from: u32) -> bool {
    let mut at = process;
    // Deeper than any tree of processes here.
    for _ in 0..8 {
        let Ok(status) = fs::read_to_string(format!("/proc/{at}/status")) else { return false };
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok());
        match parent {
            Some(parent) if parent == from => return true,
            Some(parent) if parent > 1 => at = parent,
            _ => return false,
        }
    }
    false
}

/// Returns the kind of a process by its command line. `None`: its time is not of interest.
fn kind(command_line: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(command_line);
    let words: Vec<&str> = text.split('\0').collect();
    let program = Path::new(words.first()?).file_name()?.to_str()?;
    match program {
        "java" => {
            let class = words.iter().skip(1).find_map(|word| {
                [("DataNode", "datanode"), ("NameNode", "namenode"), ("Driver", "client")]
                    .into_iter()
                    .find(|(class, _)| word.rsplit('.').next() == Some(class))
            });
            Some(format!("apache-{}", class.map_or("other", |(_, kind)| kind)))
        }
        "sh" | "perf" => None,
        _ => match words.get(1..) {
            Some(["stream-end", role, ..]) => Some(format!("stream-{role}")),
            Some([role @ ("datanode" | "namenode"), ..]) => Some((*role).to_owned()),
            _ => Some(program.to_owned()),
        },
    }
}

/// Draws one graph for each kind of process. Returns the written files.
fn draw(folder: &Path, name: &str, data: &Path, kinds: &HashMap<u32, String>) -> Result<Vec<PathBuf>> {
    let mut script = Command::new("perf")
        .args(["script", "--no-inline", "-F", "comm,pid,tid,time,event,ip,sym,dso", "-i"])
        .arg(data)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start perf script")?;
    let parts = tempfile::tempdir_in(folder).context("a folder for samples")?;
    let lines = BufReader::new(script.stdout.take().context("piped above")?);
    let parted = part(lines, kinds, parts.path());
    let status = script.wait().context("waiting for perf script")?;
    let parted = parted?;
    ensure!(status.success(), "perf script ended with {status}");
    let mut written = Vec::new();
    for (kind, part) in parted {
        let mut folded = Vec::new();
        let reader = BufReader::new(File::open(&part).with_context(|| format!("cannot read {}", part.display()))?);
        Folder::default().collapse(reader, &mut folded).context("folding samples")?;
        let mut options = flamegraph::Options::default();
        options.title = format!("hearth-bench {name}: {kind}");
        options.count_name = format!("samples at {SAMPLES_PER_SECOND} a second");
        let path = folder.join(format!("{name}-{kind}.svg"));
        let file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        flamegraph::from_reader(&mut options, folded.as_slice(), BufWriter::new(file))
            .with_context(|| format!("drawing {}", path.display()))?;
        written.push(path);
    }
    ensure!(!written.is_empty(), "perf has no samples of {name}; it may have been too short");
    Ok(written)
}

/// Splits the samples in perf script's `lines` into one file for each kind of process. Samples are separated by empty
/// lines, and the first line of each names the process.
fn part(lines: impl BufRead, kinds: &HashMap<u32, String>, into: &Path) -> Result<BTreeMap<String, PathBuf>> {
    let mut files: BTreeMap<String, (PathBuf, BufWriter<File>)> = BTreeMap::new();
    let mut kind: Option<&String> = None;
    let mut begins = true;
    for line in lines.split(b'\n') {
        let line = line.context("reading perf script's output")?;
        if begins && !line.is_empty() {
            kind = process(&String::from_utf8_lossy(&line)).and_then(|process| kinds.get(&process));
        }
        begins = line.is_empty();
        let Some(kind) = kind else { continue };
        if !files.contains_key(kind) {
            let path = into.join(kind);
            let file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
            files.insert(kind.clone(), (path, BufWriter::new(file)));
        }
        let (_, file) = files.get_mut(kind).context("it was just made")?;
        file.write_all(&line).and_then(|()| file.write_all(b"\n")).context("writing samples")?;
    }
    let flushed = files.into_iter().map(|(kind, (path, mut file))| {
        file.flush().context("writing samples")?;
        Ok((kind, path))
    });
    flushed.collect()
}

/// Parses the process id in a sample's first line: `a thread's name PID/TID TIME: EVENT:`.
fn process(line: &str) -> Option<u32> {
    line.split_whitespace().find_map(|word| {
        let (process, thread) = word.split_once('/')?;
        thread.parse::<u32>().ok()?;
        process.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_classified_by_command_line() {
        let of = |words: &[&str]| kind(words.join("\0").as_bytes());
        assert_eq!(of(&["/x/hearth", "datanode"]).as_deref(), Some("datanode"));
        assert_eq!(of(&["/x/hearth-bench", "stream-end", "send", "--carrier"]).as_deref(), Some("stream-send"));
        let java = ["/usr/bin/java", "-Xmx1g", "org.apache.hadoop.hdfs.server.datanode.DataNode"];
        assert_eq!(of(&java).as_deref(), Some("apache-datanode"));
        assert_eq!(of(&["sh", "-c", "read"]), None);
    }

    #[test]
    fn samples_are_split_by_process() {
        let text = "tokio worker 7/9 1.0: cpu-clock:\n\tab main (/x)\n\nsh 3/3 1.1: cpu-clock:\n\tcd f (/y)\n\n";
        let folder = tempfile::tempdir().unwrap();
        let kinds = HashMap::from([(7, "datanode".to_owned())]);
        let parted = part(text.as_bytes(), &kinds, folder.path()).unwrap();
        assert_eq!(parted.keys().collect::<Vec<_>>(), ["datanode"]);
        let samples = fs::read_to_string(&parted["datanode"]).unwrap();
        assert!(samples.contains("main") && !samples.contains("(/y)"), "{samples}");
        let mut folded = Vec::new();
        Folder::default().collapse(samples.as_bytes(), &mut folded).unwrap();
        assert!(String::from_utf8(folded).unwrap().contains("main 1"));
    }
}
