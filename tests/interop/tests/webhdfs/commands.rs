//! Apache's own WebHDFS client: `hdfs dfs` and FileSystem.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use hearth_interop::{Session, tool_said};
use hearth_testkit::{Content, Driver};
use serde_json::{Value, json};

use crate::BLOCK;

const SHELL: &str = "org.apache.hadoop.fs.FsShell";

fn uri(session: &Session) -> String {
    format!("webhdfs://127.0.0.1:{}", session.cluster.namenode_http_port())
}

/// Returns a JVM whose file system is WebHDFS.
fn web(session: &Session) -> Result<Driver> {
    let conf = session.cluster.conf_with("webhdfs-conf", &[("fs.defaultFS", &uri(session))])?;
    Driver::java(session.cluster.apache()?, &conf)
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a temporary path is text")
}

/// `LOCAL`: a directory of this machine with the files `small` (60 lines), `large` (several blocks) and `empty`.
const MADE: &[&str] = &[
    "-mkdir -p /shell/dir/sub",
    "-mkdir /shell/dir",
    "-mkdir /none/dir",
    "-put LOCAL/small /shell/small",
    "-put LOCAL/small /shell/small",
    "-put -f LOCAL/large /shell/dir/large",
    "-put LOCAL/empty /shell/empty",
    "-put LOCAL/small /none/small",
    "-copyFromLocal LOCAL/small LOCAL/empty /shell/dir/sub",
    "-touchz /shell/touched",
    "-appendToFile LOCAL/small /shell/touched",
    "-appendToFile LOCAL/small LOCAL/small /shell/new",
    "-appendToFile LOCAL/small /shell/dir",
    "-ls -R /shell",
    "-ls /shell/dir",
    "-ls -d /shell",
    "-ls -C /shell",
    "-ls /shell/*",
    "-ls /shell/none",
    "-cat /shell/small /shell/new",
    "-cat /shell/none",
    "-cat /shell/dir",
    "-head /shell/small",
    "-tail /shell/small",
    "-text /shell/small",
    "-checksum /shell/small",
    "-checksum /shell/dir/large",
    "-checksum /shell/empty",
    "-checksum /shell/none",
    "-stat %n,%o,%r,%u,%g,%b,%F,%a,%A /shell/dir /shell/small",
    "-stat %n /shell/none",
    "-count /shell /shell/small",
    "-count -q -v /shell",
    "-count /shell/none",
    "-du /shell",
    "-du -s /shell",
    "-test -e /shell/small",
    "-test -e /shell/none",
    "-test -d /shell/small",
    "-find /shell -name s*",
    "-get /shell/dir/large LOCAL/large-back",
    "-get /shell/dir LOCAL/tree-back",
    "-get /shell/none LOCAL/none-back",
    "-getmerge /shell/dir/sub LOCAL/merged",
];

const CHANGED: &[&str] = &[
    "-setfacl -m user:ann:rwx,group::r-x /shell/small",
    "-getfacl /shell/small",
    "-setfacl -m default:user:ann:r-x /shell/dir",
    "-getfacl -R /shell/dir",
    "-setfacl -x user:ann /shell/small",
    "-getfacl /shell/small",
    "-setfacl -b /shell/small",
    "-getfacl /shell/small",
    "-getfacl /shell/none",
    "-setfattr -n user.note -v plain /shell/small",
    "-getfattr -n user.note /shell/small",
    "-getfattr -n user.note -e hex /shell/small",
    "-getfattr -n user.note -e base64 /shell/small",
    "-getfattr -d /shell/small",
    "-getfattr -n user.none /shell/small",
    "-setfattr -x user.note /shell/small",
    "-getfattr -d /shell/small",
    "-mv /shell/touched /shell/dir/moved",
    "-mv /shell/none /shell/dir/moved2",
    "-mv /shell/new /shell/small",
    "-mv /shell/dir /shell/dir/sub",
    "-cp /shell/dir/moved /shell/copy",
    "-cp /shell/dir/moved /shell/copy",
    "-cp -p /shell/small /shell/dir/kept",
    "-chmod 640 /shell/copy",
    "-chmod -R 750 /shell/dir",
    "-chmod 640 /shell/none",
    "-chown ann:staff /shell/copy",
    "-chgrp crew /shell/small",
    "-setrep 2 /shell/copy",
    "-touch -t 20260102:030405 /shell/copy",
    "-stat %y,%x /shell/copy",
    "-truncate 1048576 /shell/dir/large",
    "-truncate 99999999 /shell/dir/large",
    "-truncate 5 /shell/dir",
    "-ls -R /shell",
    "-rm /shell/none",
    "-rm /shell/dir",
    "-rmdir /shell/dir",
    "-rm /shell/copy",
    "-rm -skipTrash /shell/new",
    "-rm -r /shell/dir",
    "-ls -R /shell",
    "-rm -r -f /shell /shell/none",
    "-ls /shell",
];

const LARGE: usize = 2 * BLOCK + BLOCK / 2;

pub fn said_alike(session: &mut Session) -> Result<()> {
    let local = session.local("shell")?;
    let small: String = (0..60).map(|line| format!("{line}: the quick brown fox\n")).collect();
    let large = Content::new(50).bytes(0, LARGE);
    std::fs::write(local.join("small"), &small)?;
    std::fs::write(local.join("large"), &large)?;
    std::fs::write(local.join("empty"), "")?;
    let mut web = web(session)?;
    let mut differing = said(session, &mut web, &local, "made", MADE)?;
    for (name, expected) in [
        ("large-back", large.as_slice()),
        ("tree-back/large", large.as_slice()),
        ("tree-back/sub/small", small.as_bytes()),
        ("tree-back/sub/empty", b"".as_slice()),
    ] {
        let path = local.join(name);
        let found = std::fs::read(&path).with_context(|| format!("{} was not fetched", path.display()))?;
        ensure!(found == expected, "{name} was read back as different {} bytes", found.len());
    }
    differing.extend(said(session, &mut web, &local, "changed", CHANGED)?);
    let lines = MADE.len() + CHANGED.len();
    ensure!(differing.is_empty(), "{} of {lines} lines differ:\n{}", differing.len(), differing.join("\n"));
    Ok(())
}

/// Runs the lines, and returns those whose result or output differs from the oracle's.
fn said(session: &mut Session, web: &mut Driver, local: &Path, name: &str, lines: &[&str]) -> Result<Vec<String>> {
    let local = text(local)?;
    let mut differing = Vec::new();
    for (nth, line) in lines.iter().enumerate() {
        let words: Vec<String> = line.split(' ').map(|word| word.replace("LOCAL", local)).collect();
        let answer = tool_said(web, SHELL, &words, local)?;
        if let Err(error) = session.same_as_oracle(&format!("{name} {nth}: {line}"), answer) {
            differing.push(format!("{error:#}"));
        }
    }
    Ok(differing)
}

/// With the commands of an interactive user.
pub fn many_blocks(session: &mut Session) -> Result<()> {
    let (local, uri, content, length) = (session.local("blocks")?, uri(session), Content::new(51), 700_001);
    let (from, back): (PathBuf, PathBuf) = (local.join("file"), local.join("back"));
    content.write_file(&from, length)?;
    session.dfs(&["-fs", &uri, "-D", "dfs.blocksize=65536", "-put", text(&from)?, "/blocks"])?;
    session.dfs(&["-fs", &uri, "-get", "/blocks", text(&back)?])?;
    let found = std::fs::read(&back).with_context(|| format!("cannot read {}", back.display()))?;
    ensure!(found == content.bytes(0, usize::try_from(length)?), "different {} bytes were read back", found.len());
    let located = session.java()?.call("locations", json!({"path": "/blocks"}))?;
    let blocks = located.as_array().context("a list of blocks")?.len();
    ensure!(blocks == 11, "{blocks} blocks: {located}");
    Ok(())
}

/// Sizes around the boundaries of chunks, packets and blocks.
const SIZES: [usize; 9] = [0, 1, 511, 513, 65_025, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 70_001];

/// Characters that have a special meaning in URLs or in parts of them.
const ODD_NAME: &str = "odd ?\"\\()[]_-=&+;,{}#%'`~!@$^*|<>.\u{fc}";

pub fn by_both_protocols(session: &mut Session) -> Result<()> {
    let mut web = web(session)?;
    for size in SIZES {
        let (by_hdfs, by_web) = (format!("/both/hdfs-{size}"), format!("/both/web-{size}"));
        let (content, length) = (Content::new(60 + size as u64), size as u64);
        let stored = |path: &str| json!({"path": path, "seed": content.seed, "length": length});
        session.java()?.call("store", stored(&by_hdfs))?;
        web.call("store", stored(&by_web))?;
        for path in [&by_hdfs, &by_web] {
            let parts = [(content, length)];
            read_by_both(session, &mut web, path, &parts)?;
            same_by_both(session, &mut web, "checksum", json!({ "path": path }))?;
            same_by_both(session, &mut web, "locations", json!({ "path": path }))?;
            same_by_both(session, &mut web, "stat", json!({ "path": path }))?;
            for position in [0, length / 2, length.saturating_sub(1)] {
                let part = json!({"path": path, "position": position, "length": 1000});
                let found = web.call("pread", part)?;
                let there = 1000.min(length - position);
                ensure!(found["sha256"] == content.sha256(position, there), "{path} at {position}: {found}");
            }
        }
        // Each client appends to the file that the other one created.
        let more = Content::new(61);
        let extended = |path: &str| json!({"path": path, "seed": more.seed, "length": 70_000});
        web.call("extend", extended(&by_hdfs))?;
        session.java()?.call("extend", extended(&by_web))?;
        for path in [&by_hdfs, &by_web] {
            read_by_both(session, &mut web, path, &[(content, length), (more, 70_000)])?;
        }
    }
    let (odd, content) = (format!("/both/{ODD_NAME}"), Content::new(62));
    web.call("store", json!({"path": odd, "seed": content.seed, "length": 1000}))?;
    read_by_both(session, &mut web, &odd, &[(content, 1000)])?;
    same_by_both(session, &mut web, "list", json!({"path": "/both"}))?;
    same_by_both(session, &mut web, "summary", json!({"path": "/both"}))?;
    same_by_both(session, &mut web, "defaults", json!({}))
}

/// `parts`: each with its length, from the start of its content.
fn read_by_both(session: &mut Session, web: &mut Driver, path: &str, parts: &[(Content, u64)]) -> Result<()> {
    let mut whole = Vec::new();
    for (content, length) in parts {
        whole.extend(content.bytes(0, usize::try_from(*length)?));
    }
    let wanted = json!({"length": whole.len(), "sha256": hearth_testkit::sha256_hex(&whole)});
    let asked = json!({ "path": path });
    for (protocol, found) in
        [("hdfs", session.java()?.call("read", asked.clone())?), ("webhdfs", web.call("read", asked)?)]
    {
        ensure!(found == wanted, "{path} by {protocol}: {found}, not {wanted}");
    }
    Ok(())
}

/// Access times in the answers may differ, because a reader changes them.
fn same_by_both(session: &mut Session, web: &mut Driver, operation: &str, arguments: Value) -> Result<()> {
    let mut hdfs = session.java()?.call(operation, arguments.clone())?;
    let mut web = web.call(operation, arguments.clone())?;
    for answer in [&mut hdfs, &mut web] {
        forget_access(answer);
    }
    ensure!(hdfs == web, "{operation} {arguments}: by webhdfs {web}, by hdfs {hdfs}");
    Ok(())
}

fn forget_access(answer: &mut Value) {
    match answer {
        Value::Array(items) => items.iter_mut().for_each(forget_access),
        Value::Object(fields) => drop(fields.remove("accessed")),
        _ => {}
    }
}
