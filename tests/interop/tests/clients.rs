//! The common clients, `hdfs dfs`, Apache's FileSystem and hdfs-native, store and read real files.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use hearth_interop::{Check, Session, Suite, run, slow};
use hearth_testkit::{ClusterSpec, Content, Driver, Implementation, sha256_hex};
use serde_json::{Value, json};

const BLOCK: u64 = 1 << 20;
/// Sizes around the boundaries of chunks (512 bytes), packets (about 64 KiB) and blocks.
const SIZES: [u64; 12] =
    [0, 1, 511, 512, 513, 65_024, 65_025, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, 3 * BLOCK + 70_001];

/// Bytes of a large file, whose last positions need 32 bits, and number of small files.
const LARGE: (u64, u64) = ((2 << 30) + 200_003, 4000);
/// The same on the other clusters. `cargo xtask test --cluster` uses the large amounts on all of them.
const LARGE_ELSEWHERE: (u64, u64) = (256 << 20, 1000);

const CHECKS: &[Check] = &[
    ("dfs_puts_lists_reads_and_gets_every_size", dfs_sizes),
    ("dfs_appends", dfs_appends),
    ("dfs_puts_and_gets_a_large_file", dfs_large),
    ("java_stores_reads_and_extends_every_size", java_sizes),
    ("java_reads_anywhere", java_preads),
    ("java_checksums", java_checksums),
    ("flushed_data_is_visible_before_close", flushed_is_seen),
    ("java_truncates", java_truncates),
    ("java_concatenates", java_concatenates),
    ("java_renames_and_deletes", java_namespace),
    ("hdfs_native_stores_reads_and_appends_every_size", native_sizes),
    ("hdfs_native_stores_and_reads_a_large_file", native_large),
    ("thousands_of_small_files_from_java", java_small_files),
    ("small_files_from_hdfs_native", native_small_files),
    ("a_dead_writers_file_is_recovered", lease_recovery),
    ("everything_survives_kills", survives_kills),
];

fn main() -> ExitCode {
    let [oracle, ours_below_apaches, apaches_below_ours, ours] = ClusterSpec::every_combination();
    // One of the clusters with Hearth's DataNodes keeps its replicas in mapped files, the other in memory.
    let ours_below_apaches = ours_below_apaches.labelled("mmap").set("hearth.storage.engine", "mmap");
    // The comparison works without the oracle, too: Apache's NameNode and Apache's DataNode each take part in another
    // cluster.
    let oracle = slow().then_some(oracle);
    let clusters = oracle.into_iter().chain([ours_below_apaches, apaches_below_ours, ours]).map(|spec| {
        spec.set("dfs.blocksize", BLOCK)
            // Otherwise Java's client sleeps 400 ms in most closes (see docs/benchmarks), which takes minutes with
            // small files.
            .set("dfs.client.block.write.locateFollowingBlock.initial.delay.ms", 2)
            .set("dfs.client.block.write.locateFollowingBlock.retries", 14)
    });
    run(&[Suite { name: "clients", clusters: clusters.collect(), checks: CHECKS }])
}

fn large(session: &Session) -> (u64, u64) {
    let is_ours = session.cluster.namenode.implementation() == Implementation::Hearth
        && session.cluster.all_datanodes_are_hearth();
    if is_ours || slow() { LARGE } else { LARGE_ELSEWHERE }
}

fn content(size: u64) -> Content {
    Content::new(1000 + size)
}

fn path_text(path: &Path) -> Result<&str> {
    path.to_str().context("a temporary path is text")
}

fn same_file(path: &Path, expected: Content, length: u64) -> Result<()> {
    let found = local_sha256(path)?;
    ensure!(found == expected.sha256(0, length), "{} of {length} bytes differs", path.display());
    Ok(())
}

fn local_sha256(path: &Path) -> Result<String> {
    use sha2::{Digest, Sha256};
    let mut hasher = Sha256::new();
    let mut file = fs::File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    std::io::copy(&mut file, &mut hasher).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Reads all of `path` and compares it with `parts`, in which the file was written.
fn reads_as(client: &mut Driver, path: &str, parts: &[(Content, u64, u64)]) -> Result<()> {
    let mut whole = Vec::new();
    for (content, position, length) in parts {
        whole.extend(content.bytes(*position, usize::try_from(*length)?));
    }
    let answer = client.call("read", json!({ "path": path }))?;
    ensure!(answer["length"] == whole.len(), "{path} has {} bytes, not {}", answer["length"], whole.len());
    ensure!(answer["sha256"] == sha256_hex(&whole), "{path} differs");
    Ok(())
}

fn dfs_sizes(session: &mut Session) -> Result<()> {
    let local = session.local("sizes")?;
    let mut arguments = vec!["-put".to_owned()];
    for size in SIZES {
        let path = local.join(format!("{size}"));
        content(size).write_file(&path, size)?;
        arguments.push(path_text(&path)?.to_owned());
    }
    arguments.push("/sizes".to_owned());
    session.dfs(&["-mkdir", "/sizes"])?;
    session.dfs(&arguments.iter().map(String::as_str).collect::<Vec<_>>())?;

    let listed = session.dfs(&["-ls", "/sizes"])?;
    for size in SIZES {
        let line = listed.lines().find(|line| line.ends_with(&format!(" /sizes/{size}")));
        let line = line.with_context(|| format!("/sizes/{size} is not listed:\n{listed}"))?;
        ensure!(line.split_whitespace().nth(4) == Some(&size.to_string()), "{line}");
    }

    let back = session.local("sizes-back")?;
    session.dfs(&["-get", "/sizes/*", path_text(&back)?])?;
    for size in SIZES {
        same_file(&back.join(size.to_string()), content(size), size)?;
    }
    // Compares bytes, not text, because `dfs` would replace invalid UTF-8.
    let output = session.cluster.apache()?.fs(session.cluster.conf(), ["-checksum", "/sizes/513"])?.success()?;
    let sum = output.split_whitespace().skip(1).collect::<Vec<_>>().join(" ");
    session.same_as_oracle("checksum of /sizes/513", Value::String(sum))
}

fn dfs_appends(session: &mut Session) -> Result<()> {
    let local = session.local("appends")?;
    let (first, second) = (Content::new(1), Content::new(2));
    let (first_path, second_path) = (local.join("first"), local.join("second"));
    first.write_file(&first_path, 700)?;
    second.write_file(&second_path, BLOCK)?;
    session.dfs(&["-appendToFile", path_text(&first_path)?, "/appended"])?;
    session.dfs(&["-appendToFile", path_text(&second_path)?, path_text(&first_path)?, "/appended"])?;
    let parts = [(first, 0, 700), (second, 0, BLOCK), (first, 0, 700)];
    reads_as(session.java()?, "/appended", &parts)
}

fn dfs_large(session: &mut Session) -> Result<()> {
    let local = session.local("large")?;
    let (path, back) = (local.join("large"), local.join("large-back"));
    let (large, (length, _)) = (Content::new(2), large(session));
    large.write_file(&path, length)?;
    let block_size = format!("-Ddfs.blocksize={}", 32 << 20);
    session.dfs(&[&block_size, "-put", path_text(&path)?, "/large"])?;
    fs::remove_file(&path)?;
    session.dfs(&["-get", "/large", path_text(&back)?])?;
    same_file(&back, large, length)?;
    fs::remove_file(&back)?;
    // The second position needs 32 bits. `-get` has read the whole file by the same class.
    for position in [length / 2 - 5, length - 100_000] {
        let part = json!({"path": "/large", "position": position, "length": 100_000});
        let answer = session.java()?.call("pread", part)?;
        ensure!(answer["sha256"] == large.sha256(position, 100_000), "/large differs at {position}: {answer}");
    }
    session.dfs(&["-rm", "-skipTrash", "/large"])?;
    Ok(())
}

fn java_sizes(session: &mut Session) -> Result<()> {
    let java = session.java()?;
    for size in SIZES {
        let path = format!("/java/{size}");
        java.call("store", json!({"path": path, "seed": content(size).seed, "length": size}))?;
        reads_as(java, &path, &[(content(size), 0, size)])?;
        // Reads across the same boundaries again, from every starting offset.
        for more in [1, 511, BLOCK] {
            let part = json!({"path": path, "seed": 5, "length": more});
            java.call("extend", part)?;
        }
        let more = Content::new(5);
        reads_as(java, &path, &[(content(size), 0, size), (more, 0, 1), (more, 0, 511), (more, 0, BLOCK)])?;
    }
    Ok(())
}

fn java_preads(session: &mut Session) -> Result<()> {
    let size = 3 * BLOCK + 70_001;
    let java = session.java()?;
    java.call("store", json!({"path": "/preads", "seed": 6, "length": size}))?;
    java.call("open", json!({"path": "/preads", "handle": "preads"}))?;
    let positions = [0, 1, 511, 512, 513, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK - 300, size - 1, size - 600];
    for position in positions {
        for length in [1, 512, 4096, 100_000] {
            let answer = java.call("pread", json!({"handle": "preads", "position": position, "length": length}))?;
            let there = length.min(size - position);
            ensure!(answer["length"] == there, "{length} bytes at {position}: {answer}");
            ensure!(answer["sha256"] == Content::new(6).sha256(position, there), "{length} bytes at {position} differ");
        }
        let answer = java.call("read", json!({"handle": "preads", "position": position, "length": 3000}))?;
        let there = 3000.min(size - position);
        ensure!(answer["sha256"] == Content::new(6).sha256(position, there), "streaming from {position} differs");
    }
    java.call("close", json!({"handle": "preads"}))?;
    Ok(())
}

fn java_checksums(session: &mut Session) -> Result<()> {
    for size in SIZES {
        let path = format!("/checksums/{size}");
        let java = session.java()?;
        java.call("store", json!({"path": path, "seed": content(size).seed, "length": size}))?;
        let whole = java.call("checksum", json!({ "path": path }))?;
        let part = java.call("checksum", json!({"path": path, "length": size / 2}))?;
        session.same_as_oracle(&format!("checksum of {path}"), whole)?;
        session.same_as_oracle(&format!("checksum of half of {path}"), part)?;
    }
    Ok(())
}

fn flushed_is_seen(session: &mut Session) -> Result<()> {
    let content = Content::new(7);
    let java = session.java()?;
    for (flush, path) in [("hflush", "/flushed"), ("hsync", "/synced")] {
        java.call("create", json!({"path": path, "handle": "out"}))?;
        let mut written = 0;
        for length in [1, 511, 1, 512, 100_000, BLOCK] {
            java.call("write", json!({"handle": "out", "seed": 7, "position": written, "length": length}))?;
            java.call(flush, json!({"handle": "out"}))?;
            written += length;
            reads_as(java, path, &[(content, 0, written)]).with_context(|| format!("after {flush} at {written}"))?;
        }
        java.call("write", json!({"handle": "out", "seed": 7, "position": written, "length": 10}))?;
        java.call("hsync", json!({"handle": "out", "updateLength": true}))?;
        let status = java.call("stat", json!({ "path": path }))?;
        ensure!(status["length"] == written + 10, "after hsync(UPDATE_LENGTH): {status}");
        java.call("close", json!({"handle": "out"}))?;
        reads_as(java, path, &[(content, 0, written + 10)])?;
    }
    Ok(())
}

fn java_truncates(session: &mut Session) -> Result<()> {
    let java = session.java()?;
    let size = 2 * BLOCK + 1000;
    for to in [size, 2 * BLOCK, 2 * BLOCK - 1, BLOCK + 700, BLOCK, 513, 512, 1, 0] {
        java.call("store", json!({"path": "/truncated", "seed": 8, "length": size}))?;
        let done = java.call("truncate", json!({"path": "/truncated", "length": to}))?;
        let at_edge = to == size || to % BLOCK == 0;
        ensure!(done == at_edge, "truncating to {to} answered {done}");
        wait_closed(java, "/truncated")?;
        reads_as(java, "/truncated", &[(Content::new(8), 0, to)]).with_context(|| format!("truncated to {to}"))?;
        java.call("extend", json!({"path": "/truncated", "seed": 9, "length": 600}))?;
        let parts = [(Content::new(8), 0, to), (Content::new(9), 0, 600)];
        reads_as(java, "/truncated", &parts).with_context(|| format!("extended after truncating to {to}"))?;
    }
    Ok(())
}

fn wait_closed(java: &mut Driver, path: &str) -> Result<()> {
    hearth_testkit::wait_until(&format!("{path} to be closed"), std::time::Duration::from_secs(180), || {
        Ok(java.call("isClosed", json!({ "path": path }))?.as_bool().unwrap_or(false).then_some(()))
    })
}

fn java_concatenates(session: &mut Session) -> Result<()> {
    let java = session.java()?;
    for (name, length) in [("a", BLOCK), ("b", 2 * BLOCK), ("c", 700)] {
        let path = format!("/concat/{name}");
        java.call("store", json!({"path": path, "seed": 10, "position": length, "length": length}))?;
    }
    java.call("concat", json!({"path": "/concat/a", "from": ["/concat/b", "/concat/c"]}))?;
    let ten = Content::new(10);
    reads_as(java, "/concat/a", &[(ten, BLOCK, BLOCK), (ten, 2 * BLOCK, 2 * BLOCK), (ten, 700, 700)])?;
    ensure!(java.call("exists", json!({"path": "/concat/b"}))? == false, "/concat/b is still there");
    Ok(())
}

fn java_namespace(session: &mut Session) -> Result<()> {
    let java = session.java()?;
    java.call("mkdirs", json!({"path": "/names/a/b", "permission": "750"}))?;
    java.call("store", json!({"path": "/names/a/b/file", "seed": 1, "length": 10}))?;
    let answers = [
        ("rename", json!({"from": "/names/a/b", "to": "/names/c"})),
        ("rename", json!({"from": "/names/a/b", "to": "/names/d"})),
        ("rename", json!({"from": "/names/c", "to": "/names/c/below"})),
        ("exists", json!({"path": "/names/c/file"})),
        ("rename", json!({"from": "/names/c/file", "to": "/names/moved", "overwrite": false})),
        ("delete", json!({"path": "/names/nothing"})),
        ("delete", json!({"path": "/names/c", "recursive": false})),
        ("delete", json!({"path": "/names", "recursive": false})),
        ("setrep", json!({"path": "/names/moved", "replication": 2})),
        ("chmod", json!({"path": "/names/moved", "permission": "600"})),
        ("chown", json!({"path": "/names/moved", "owner": "someone", "group": "some"})),
        ("times", json!({"path": "/names/moved", "modified": 1_000_000, "accessed": 2_000_000})),
        ("stat", json!({"path": "/names/moved"})),
        ("stat", json!({"path": "/names/nothing"})),
        ("read", json!({"path": "/names/a"})),
        ("store", json!({"path": "/names/moved/below", "seed": 1, "length": 1})),
        ("store", json!({"path": "/names/moved", "overwrite": false, "seed": 1, "length": 1})),
        ("mkdirs", json!({"path": "/names/moved"})),
        ("summary", json!({"path": "/names"})),
        ("defaults", json!({})),
        ("delete", json!({"path": "/names", "recursive": true})),
        ("exists", json!({"path": "/names"})),
    ];
    let mut found = Vec::new();
    for (number, (operation, arguments)) in answers.iter().enumerate() {
        let answer = match java.call(operation, arguments.clone()) {
            Ok(value) => value,
            // The exception class is part of the contract; the text may contain ports and inode ids.
            Err(error) if !error.class().is_empty() => json!({ "thrown": error.class() }),
            Err(error) => return Err(error.into()),
        };
        found.push((format!("{number} {operation} {arguments}"), answer));
    }
    found.into_iter().try_for_each(|(name, answer)| session.same_as_oracle(&name, answer))
}

fn native_sizes(session: &mut Session) -> Result<()> {
    let local = session.local("native")?;
    let more = Content::new(11);
    more.write_file(&local.join("more"), 1000)?;
    for size in SIZES {
        let (path, file) = (format!("/native/{size}"), local.join(format!("{size}")));
        content(size).write_file(&file, size)?;
        let put = session.python()?.call("put", json!({"path": path, "local": path_text(&file)?}));
        if let Err(error) = put {
            // It gives up after 15.5 s if the NameNode still lacks a report of a replica. This is what the NameNode knows.
            let arguments = [path.as_str(), "-openforwrite", "-files", "-blocks", "-replicaDetails"];
            let known = session.cluster.apache()?.fsck(session.cluster.conf(), arguments)?;
            bail!("{path}: {error}\n{}\n{}", known.stdout, known.stderr);
        }
        let native = session.python()?;
        reads_as(native, &path, &[(content(size), 0, size)])?;
        let append = native.call("append", json!({"path": path, "local": path_text(&local.join("more"))?}));
        append.with_context(|| format!("appending to {path}"))?;
        let parts = [(content(size), 0, size), (more, 0, 1000)];
        reads_as(native, &path, &parts)?;
        reads_as(session.java()?, &path, &parts).context("read by Java")?;
    }
    let listed = session.python()?.call("list", json!({"path": "/native"}))?;
    ensure!(listed.as_array().is_some_and(|list| list.len() == SIZES.len()), "{listed}");
    let middle =
        session.python()?.call("pread", json!({"path": "/native/3145728", "position": BLOCK - 5, "length": 10}))?;
    ensure!(middle["sha256"] == content(3 * BLOCK).sha256(BLOCK - 5, 10), "10 bytes across two blocks differ");
    Ok(())
}

fn native_large(session: &mut Session) -> Result<()> {
    let file = session.local("native-large")?.join("large");
    let (large, (length, _)) = (Content::new(12), large(session));
    large.write_file(&file, length)?;
    let native = session.python()?;
    native.call("put", json!({"path": "/native-large", "local": path_text(&file)?, "blockSize": 32 << 20}))?;
    fs::remove_file(&file)?;
    let answer = native.call("read", json!({"path": "/native-large"}))?;
    ensure!(
        answer["length"] == length && answer["sha256"] == large.sha256(0, length),
        "/native-large differs: {answer}"
    );
    native.call("delete", json!({"path": "/native-large"}))?;
    Ok(())
}

fn java_small_files(session: &mut Session) -> Result<()> {
    let (_, count) = large(session);
    small_files(session.java()?, "/small", count, 100)?;
    let listed = session.java()?.call("list", json!({"path": "/small"}))?;
    ensure!(listed.as_array().is_some_and(|list| list.len() as u64 == count), "not all {count} are listed");
    Ok(())
}

fn native_small_files(session: &mut Session) -> Result<()> {
    // hdfs-native sleeps in most closes, and no setting changes that. So it stores few files, eight at a time.
    small_files(session.python()?, "/native-small", 300, 3000)
}

fn small_files(client: &mut Driver, directory: &str, count: u64, length: u64) -> Result<()> {
    let arguments = json!({"dir": directory, "count": count, "length": length, "seed": 13, "threads": 8});
    client.call("storeMany", arguments.clone())?;
    client.call("readMany", arguments)?;
    Ok(())
}

fn lease_recovery(session: &mut Session) -> Result<()> {
    let mut writer = session.another_java()?;
    let length = BLOCK + 12_345;
    writer.call("create", json!({"path": "/left-open", "handle": "out"}))?;
    writer.call("write", json!({"handle": "out", "seed": 14, "length": length}))?;
    writer.call("hflush", json!({"handle": "out"}))?;
    writer.kill();
    let java = session.java()?;
    java.call("recoverLease", json!({"path": "/left-open"}))?;
    wait_closed(java, "/left-open")?;
    reads_as(java, "/left-open", &[(Content::new(14), 0, length)])?;
    java.call("extend", json!({"path": "/left-open", "seed": 15, "length": 100}))?;
    reads_as(java, "/left-open", &[(Content::new(14), 0, length), (Content::new(15), 0, 100)])
}

/// Checks that closed files, and flushed data of an open one, survive SIGKILL of every daemon.
fn survives_kills(session: &mut Session) -> Result<()> {
    let size = 2 * BLOCK + 77;
    let java = session.java()?;
    java.call("store", json!({"path": "/kept", "seed": 16, "length": size}))?;
    small_files(java, "/kept-small", 200, 100)?;
    java.call("create", json!({"path": "/kept-open", "handle": "out"}))?;
    java.call("write", json!({"handle": "out", "seed": 17, "length": 70_000}))?;
    java.call("hsync", json!({"handle": "out", "updateLength": true}))?;

    session.cluster.datanodes[0].kill();
    session.cluster.namenode.kill();
    session.cluster.start_namenode()?;
    session.cluster.start_datanode(0)?;
    session.cluster.wait_ready()?;

    let mut reader = session.another_java()?;
    reads_as(&mut reader, "/kept", &[(Content::new(16), 0, size)])?;
    let arguments = json!({"dir": "/kept-small", "count": 200, "length": 100, "seed": 13, "threads": 4});
    reader.call("readMany", arguments)?;
    reader.call("recoverLease", json!({"path": "/kept-open"}))?;
    wait_closed(&mut reader, "/kept-open")?;
    reads_as(&mut reader, "/kept-open", &[(Content::new(17), 0, 70_000)])
}
