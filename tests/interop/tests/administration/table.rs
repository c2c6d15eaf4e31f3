//! `docs/compatibility/administration.md`: a row for each command line.
//!
//! The page is written by `HEARTH_WRITE_TABLES=1 cargo test -p hearth-interop --test administration`.

use std::sync::Mutex;

use anyhow::{Context, Result, ensure};
use hearth_interop::Session;
use hearth_testkit::workspace_root;
use serde_json::Value;

use super::lines::{DAY, LAST, Line, OWN_WORDS};

const PAGE: &str = "docs/compatibility/administration.md";

/// What `hearth` answered on Hearth's servers: the line, the exit code, the first line of its output.
static ANSWERS: Mutex<Vec<(String, i64, String)>> = Mutex::new(Vec::new());

/// Notes an answer for the page.
pub fn note(line: &Line, is_oracle: bool, answer: &Value) {
    if is_oracle {
        return;
    }
    let mut answers = ANSWERS.lock().expect("no test panicked in here");
    let text = [&answer[1][0], &answer[2]].into_iter().filter_map(Value::as_str).find(|text| !text.is_empty());
    let before_usage = text.unwrap_or_default().split("Usage:").next().unwrap_or_default();
    let mut first: String = before_usage.chars().take(90).collect();
    if first.trim().is_empty() && text.is_some() {
        first = "usage".to_owned();
    }
    answers.push((line.text.to_owned(), answer[0].as_i64().unwrap_or(-1), first.replace('|', "\\|")));
}

/// Holds the page against the lines and, on Hearth's servers, against their answers.
pub fn names_every_line(session: &mut Session) -> Result<()> {
    let path = workspace_root().join(PAGE);
    let answers = ANSWERS.lock().expect("no test panicked in here").clone();
    let lines: Vec<&Line> = DAY.iter().chain(LAST).collect();
    if std::env::var_os("HEARTH_WRITE_TABLES").is_some() {
        if session.is_oracle() {
            return Ok(());
        }
        ensure!(answers.len() == lines.len(), "{} answers to {} lines", answers.len(), lines.len());
        std::fs::write(&path, page(&answers)).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let row = |line: &str| format!("| `{}` |", line.replace('|', "\\|"));
    let missing: Vec<&str> = lines.iter().map(|line| line.text).filter(|line| !text.contains(&row(line))).collect();
    ensure!(missing.is_empty(), "{PAGE} lacks {missing:?}");
    if session.is_oracle() || answers.len() != lines.len() {
        return Ok(());
    }
    // Exit codes are part of the promise; the words are there to be read.
    let wrong: Vec<String> = answers
        .iter()
        .map(|(line, code, _)| format!("{} {code} |", row(line)))
        .filter(|start| !text.contains(start.as_str()))
        .collect();
    ensure!(wrong.is_empty(), "{PAGE} has other exit codes than {wrong:?}");
    Ok(())
}

fn page(answers: &[(String, i64, String)]) -> String {
    let mut out = String::from(HEAD);
    for (line, code, first) in answers {
        let note = match OWN_WORDS.iter().find(|(text, _)| text == line) {
            Some((_, why)) => format!("exit code; {why}"),
            None => "all".to_owned(),
        };
        let first = if first.is_empty() { String::new() } else { format!("`{first}`") };
        out += &format!("| `{}` | {code} | {note} | {first} |\n", line.replace('|', "\\|"));
    }
    out
}

const HEAD: &str = "# Administration beside Apache's tools

`hearth dfsadmin`, `cacheadmin`, `storagepolicies`, `haadmin`, `getconf`, `groups`, `debug`, `lsSnapshot`,
`lsSnapshottableDir`, `snapshotDiff` and `fsck` take the command lines of `hdfs`. With `alias hdfs=hearth` an
administrator's fingers need not learn anything.

The suite `administration` runs each line below by Apache's tool (3.4.2) and by `hearth`, on Apache's servers and on
Hearth's, and compares what the third column says: *all* is output, error output and exit code. Ports, times and sizes that change
between two runs are masked.

Differences:

- A server that does not answer: Java's message names its exception; Hearth's names the call, the address and the cause.
- `dfsadmin -evictWriters` without an address prints its usage. Apache's tool prints the message of an index error.
- `dfsadmin -safemode wait` looks every second instead of every five.
- `haadmin -failover` does not fence, and does not speak to failover controllers: with automatic failover, or with
  `--forcefence`, it refuses.
- `dfsadmin -fetchImage` checks the length of the image, and the file appears when it is complete. The suite
  `image` fetches by both tools, from both NameNodes, and compares the bytes.
- `dfsadmin -backup` is Hearth's own verb ([backup](../operations.md#backup-and-migration)).
- `dfsadmin -metasave` writes to the directory of `hearth.namenode.audit.log`; without an audit log, to `metasave` in
  `dfs.namenode.name.dir`. It takes a file name without a directory, and replaces only files of an earlier metasave. The suite
  compares the shape of each line. The reason of a corrupt replica is always `CORRUPTION_REPORTED`. Blocks waiting for deletion
  include those that Apache's NameNode counts per DataNode.
- `fsck` of a file whose only replica is corrupt, with `-list-corruptfileblocks`, `-blockId`, `-move` and `-delete`: the suite `cluster`
  compares the answers of both NameNodes and of both tools, and what `-move` leaves in `/lost+found`. The report of Hearth's
  NameNode also names each file that `-move` copies and `-delete` deletes.
- `debug verifyEC` refuses erasure-coded files, which Hearth's client cannot read.
- `getconf -confKey` prints the default of Hearth where it has one of its own, and otherwise that of Hadoop's files.
- `--config DIR` and `--loglevel LEVEL` may stand before or behind the subcommand. `-D`, `-fs` and `-conf` stand behind
  it, as in Hadoop.

## Subcommands that Hearth lacks

`hearth` refuses these subcommands of `hdfs` with one line, which says what to use instead.

| subcommand | exit code | use instead |
|---|---|---|
| `classpath` | 1 | Hearth needs no Java classes; for Java programs that use Hearth's jar, run `hadoop classpath` |
| `crypto` | 1 | encryption zones are not supported; with Apache's NameNode, run Apache's hdfs crypto |
| `dfsrouter` | 1 | run Apache's hdfs dfsrouter: it works in front of Hearth's NameNode |
| `dfsrouteradmin` | 1 | run Apache's hdfs dfsrouteradmin, which administers Apache's router |
| `diskbalancer` | 1 | plans for disks are refused by Hearth's DataNodes; with Apache's DataNodes, run Apache's hdfs |
| `ec` | 1 | erasure coding is not supported; with Apache's NameNode, run Apache's hdfs ec |
| `envvars` | 1 | Hearth has no shell environment of Hadoop; `hearth config` shows the configuration and its files |
| `fedbalance` | 1 | Hearth's NameNode has no federation; with Apache's router, run Apache's hdfs fedbalance |
| `fetchdt` | 1 | Hearth's tools need no delegation tokens; with Apache's servers, run Apache's hdfs fetchdt |
| `httpfs` | 1 | Hearth's NameNode and DataNodes serve WebHDFS themselves: use webhdfs:// and their HTTP ports |
| `jmxget` | 1 | read http://HOST:HTTP-PORT/jmx or /metrics of the NameNode or DataNode |
| `journalnode` | 1 | Hearth's NameNode does not use it; with Apache's NameNode, run Apache's hdfs |
| `mover` | 1 | run Apache's hdfs mover |
| `nfs3` | 1 | there is no NFS gateway of Hearth; run Apache's hdfs nfs3 |
| `oev` | 1 | Hearth's NameNode writes no edit log; for that of Apache's NameNode, run Apache's hdfs oev |
| `oiv` | 1 | run Apache's hdfs oiv on an image that `hearth dfsadmin -fetchImage` has fetched |
| `oiv_legacy` | 1 | run Apache's hdfs oiv_legacy |
| `portmap` | 1 | there is no NFS gateway of Hearth; run Apache's hdfs portmap |
| `secondarynamenode` | 1 | Hearth's NameNode does not use it; with Apache's NameNode, run Apache's hdfs |
| `sps` | 1 | the storage policy satisfier is not supported; with Apache's NameNode, run Apache's hdfs sps |
| `zkfc` | 1 | Hearth's NameNode does not use it; with Apache's NameNode, run Apache's hdfs |

## Lines

`NAME`: a word of each program's own. `DIRECTIVE`: the number of its cache directive. `LOCAL`: a local directory.

| line | exit code | compared | Hearth's answer on Hearth's servers |
|---|---|---|---|
";
