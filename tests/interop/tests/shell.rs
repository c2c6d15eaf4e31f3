//! `hearth fs` compared with `hdfs dfs`: the same command lines, the same output and exit codes.

#[path = "shell/options.rs"]
mod options;

use std::path::Path;
use std::process::{Command, ExitCode, Output};

use anyhow::{Context, Result, bail, ensure};
use hearth_interop::{Check, Session, Suite, program_said, run, slow, tool_said};
use hearth_testkit::{ClusterSpec, Implementation, ToolOutput, hearth_program};
use serde_json::Value;

const CHECKS: &[Check] = &[
    ("acls_and_attributes_match_apaches", acls_and_attributes),
    ("copies_preserve_requested_attributes", kept),
    ("local_paths_match_apaches", local_paths),
    ("moves_and_merges_match_apaches", moves),
    ("trashed_file_does_not_block_directory", trash),
    ("snapshot_output_matches_apaches_namenode", snapshots),
    ("snapshot_commands_match_apaches", own_snapshots),
    ("counts_and_quotas_match_apaches", counts),
    ("file_checksums_match_apaches", checksums),
    ("every_apache_option_is_listed_and_compared", options::told),
    ("every_option_matches_apaches", options::options),
    ("fsck_output_matches_apaches", fsck),
];

/// Lines of all checks that compare both programs.
const ALL_LINES: &[&[&str]] = &[
    LINES,
    KEPT_LINES,
    LOCAL_LINES,
    MOVE_LINES,
    TRASH_LINES,
    OWN_SNAPSHOT_LINES,
    COUNT_LINES,
    CHECKSUM_LINES,
    options::OPTION_LINES,
    options::CODE_LINES,
];

fn main() -> ExitCode {
    let makes: &[Implementation] =
        if slow() { &[Implementation::Apache, Implementation::Hearth] } else { &[Implementation::Hearth] };
    let clusters = makes.iter().map(|make| ClusterSpec::new(*make, *make).set("dfs.replication", 1)).collect();
    run(&[Suite { name: "shell", clusters, checks: CHECKS }])
}

/// Lines in a separate directory for each shell, `DIR`.
const LINES: &[&str] = &[
    "-getfacl DIR",
    "-setfacl -m user:bruce:rwx,group::r-x DIR/file",
    "-getfacl DIR/file",
    "-setfacl -R -m user:ann:rwx,default:user:ann:r-x DIR",
    "-chmod 1751 DIR",
    "-getfacl -R DIR",
    "-setfacl -x user:bruce DIR/file",
    "-setfacl -k DIR/sub",
    "-getfacl DIR/sub",
    "-setfacl --set user::rw-,user:carl:r--,group::---,other::--- DIR/file",
    "-getfacl DIR/file",
    "-setfacl -b DIR/file",
    "-getfacl DIR/file",
    // Errors.
    "-setfacl -b -m user:bruce:rwx DIR/file",
    "-setfacl -m user:bruce:rwz DIR/file",
    "-setfacl -m bruce:rwx DIR/file",
    "-setfacl DIR/file",
    "-setfacl -m user:bruce:rwx",
    "-setfacl --set user::rwx DIR/file",
    "-getfacl DIR/nothing",
    "-getfacl",
    "-setfattr -n user.note -v plain DIR/file",
    "-setfattr -n trusted.empty DIR",
    // One attribute of a file: Apache's order of several is that of a hash map.
    "-getfattr -R -d DIR",
    "-setfattr -n user.note2 -v 0x6162ff DIR/file",
    "-getfattr -n user.note2 -e hex DIR/file",
    "-getfattr -n user.note -e base64 DIR/file",
    "-setfattr -x user.note DIR/file",
    "-getfattr -d DIR/file",
    "-getfattr -n user.note DIR/file",
    "-setfattr -n note -v x DIR/file",
    "-setfattr -x user.note DIR/file",
    "-getfattr DIR/file",
    "-getfattr -e rot13 -d DIR/file",
];

fn acls_and_attributes(session: &mut Session) -> Result<()> {
    for directory in DIRECTORIES {
        done(session, &["-mkdir", "-p", &format!("{directory}/sub")])?;
        done(session, &["-touchz", &format!("{directory}/file")])?;
    }
    said_alike(session, LINES)
}

/// Directories of `hdfs dfs` and of `hearth fs`.
const DIRECTORIES: [&str; 2] = ["/apache", "/hearth"];

const KEPT_LINES: &[&str] = &[
    "-mkdir -p DIR/kept/from/sub",
    "-touchz DIR/kept/from/file",
    "-setfacl --set user::rwx,user:bruce:rwx,group::r--,mask::rw-,other::--x DIR/kept/from/file",
    "-setfacl -m user:carl:rwx,default:user:ann:r-x DIR/kept/from/sub",
    "-chmod 1770 DIR/kept/from/sub",
    "-setfattr -n user.note -v plain DIR/kept/from/file",
    "-setfattr -n trusted.note -v 0x6162ff DIR/kept/from/file",
    "-setfattr -n user.empty DIR/kept/from/sub",
    "-cp -pa DIR/kept/from DIR/kept/acls",
    "-getfacl -R DIR/kept/acls",
    "-getfattr -R -d DIR/kept/acls",
    "-cp -px DIR/kept/from DIR/kept/attributes",
    "-getfacl -R DIR/kept/attributes",
    // One attribute at a time: Apache's order of several is that of a hash map.
    "-getfattr -n user.note DIR/kept/attributes/file",
    "-getfattr -n trusted.note -e hex DIR/kept/attributes/file",
    "-getfattr -d DIR/kept/attributes/sub",
    "-cp -ptopax DIR/kept/from DIR/kept/all",
    "-getfacl -R DIR/kept/all",
    "-getfattr -n trusted.note -e hex DIR/kept/all/file",
    "-cp -p DIR/kept/from DIR/kept/status",
    "-getfacl -R DIR/kept/status",
    "-getfattr -R -d DIR/kept/status",
];

fn kept(session: &mut Session) -> Result<()> {
    said_alike(session, KEPT_LINES)
}

/// `LOCAL`: a directory with `tree/sub/file`.
const LOCAL_LINES: &[&str] = &[
    "-mkdir -p DIR/put/slash DIR/put/above",
    "-put LOCAL/tree/ DIR/put/slash",
    "-put LOCAL/tree/sub/.. DIR/put/above/",
    "-copyFromLocal LOCAL/tree//sub/./ DIR/put/new",
    "-find DIR/put",
    "-put LOCAL/tree/sub/file DIR/put/none/",
    "-put LOCAL/tree/ DIR/put/slash",
    "-cp DIR/put/new/file DIR/put/none/",
    "-touchz DIR/put/none/",
    "-mkdir DIR/put/none/",
    "-find DIR/put",
    // An HDFS URI without a host: the default file system, if that is HDFS.
    "-test -d hdfs://DIR/put/new",
    "-test -d hdfs:DIR/put/new",
    "-fs file:/// -ls hdfs://DIR",
];

fn local_paths(session: &mut Session) -> Result<()> {
    let local = session.local("paths")?;
    std::fs::create_dir_all(local.join("tree/sub"))?;
    std::fs::write(local.join("tree/sub/file"), "bytes")?;
    said_alike_of(session, &local, LOCAL_LINES)
}

/// `LOCALDIR`: a separate local directory for each shell, with `tree/sub/file` and `merged`.
const MOVE_LINES: &[&str] = &[
    "-mkdir -p DIR/move/from/one DIR/move/from/two DIR/move/into/tree",
    "-touchz DIR/move/file",
    // Two sources with one target name.
    "-mv DIR/move/from/* DIR/move/none",
    "-mv DIR/move/from/* DIR/move/file",
    "-find DIR/move",
    "-mv DIR/move/from/o* DIR/move/none",
    "-mv DIR/move/from/* DIR/move/into",
    "-find DIR/move",
    // The target has a directory of this name.
    "-moveFromLocal LOCALDIR/tree DIR/move/into",
    "-test -e file://LOCALDIR/tree/sub/file",
    "-moveFromLocal LOCALDIR/tree DIR/move",
    "-test -e file://LOCALDIR/tree",
    "-find DIR/move",
    "-getmerge DIR/move/tree/sub/file DIR/move/nothing LOCALDIR/merged",
    "-cat file://LOCALDIR/merged",
    "-getmerge DIR/move/tree/sub LOCALDIR/merged",
    "-cat file://LOCALDIR/merged",
    "-chmod 75 DIR/move/file",
];

fn moves(session: &mut Session) -> Result<()> {
    let local = session.local("moves")?;
    for directory in DIRECTORIES {
        let own = local.join(directory.trim_start_matches('/'));
        std::fs::create_dir_all(own.join("tree/sub"))?;
        std::fs::write(own.join("tree/sub/file"), "bytes")?;
        std::fs::write(own.join("merged"), "kept")?;
    }
    said_alike_of(session, &local, MOVE_LINES)
}

/// Removes a file, then one in a directory of the same name.
const TRASH_LINES: &[&str] = &[
    "-mkdir -p DIR/trash",
    "-touchz DIR/trash/name",
    "-D fs.trash.interval=60 -rm DIR/trash/name",
    "-mkdir -p DIR/trash/name/sub",
    "-touchz DIR/trash/name/file DIR/trash/name/sub/file",
    "-D fs.trash.interval=60 -rm DIR/trash/name/file",
];

fn trash(session: &mut Session) -> Result<()> {
    let conf = session.cluster.conf().to_owned();
    for line in TRASH_LINES {
        // Apache's shell prints the trash location in its log, so only the exit codes are compared.
        let theirs = apaches(session, &words(line, DIRECTORIES[0]))?.code;
        let ours = hearth(&conf, words(line, DIRECTORIES[1]))?;
        ensure!(theirs == 0 && ours.status.success(), "{line}: Apache: {theirs}, Hearth: {ours:?}");
    }
    // Apache's shell handles the NameNode's error only for the directory itself, not for one below it.
    let deeper = hearth(&conf, words("-D fs.trash.interval=60 -rm DIR/trash/name/sub/file", DIRECTORIES[1]))?;
    ensure!(deeper.status.success(), "{deeper:?}");
    // The directory has the name of the file, with milliseconds of 13 digits appended.
    let digits = "[0-9]".repeat(13);
    let [theirs, ours] = DIRECTORIES.map(|directory| format!(".Trash/Current{directory}/trash/name"));
    for path in [
        theirs.clone(),
        format!("{theirs}{digits}/file"),
        ours.clone(),
        format!("{ours}{digits}/file"),
        format!("{ours}{digits}/sub/file"),
    ] {
        done(session, &["-test", "-f", &path]).with_context(|| format!("{path} in the trash"))?;
    }
    Ok(())
}

const OWN_SNAPSHOT_LINES: &[&str] = &[
    "-createSnapshot DIR one",
    "-createSnapshot DIR one",
    "-createSnapshot DIR/file",
    "-createSnapshot DIR/nothing one",
    "-createSnapshot",
    "-renameSnapshot DIR one two",
    "-renameSnapshot DIR one",
    "-ls DIR/.snapshot/two/nothing",
    "-deleteSnapshot DIR one",
    "-deleteSnapshot DIR two",
    "-deleteSnapshot DIR",
];

fn own_snapshots(session: &mut Session) -> Result<()> {
    for directory in DIRECTORIES {
        done(session, &["-mkdir", "-p", directory])?;
        done(session, &["-touchz", &format!("{directory}/file")])?;
        session.tool(DFS_ADMIN, &["-allowSnapshot", directory])?.success()?;
    }
    said_alike(session, OWN_SNAPSHOT_LINES)
}

const COUNT_LINES: &[&str] = &[
    "-count DIR",
    "-count -v DIR DIR/file",
    "-count -q -h -v DIR",
    "-count -u -v DIR DIR/sub",
    "-count -x DIR",
    "-count -x -q DIR",
    "-count -s -v DIR",
    "-count -e -v DIR DIR/file",
    "-count -u -e -s DIR",
    "-count -q -t all -v DIR",
    "-count -u -t ssd,disk -h -v DIR DIR/sub",
    "-count -t disk DIR",
    "-count -q -t floppy DIR",
    "-count DIR/nothing",
];

fn counts(session: &mut Session) -> Result<()> {
    let local = session.local("counts")?.join("bytes");
    std::fs::write(&local, vec![7; 5000])?;
    let local = local.to_str().context("a path of text")?.to_owned();
    for directory in DIRECTORIES {
        session.tool(FS_SHELL, &["-rm", "-r", "-f", "-skipTrash", directory])?;
        done(session, &["-mkdir", "-p", &format!("{directory}/sub")])?;
        for name in ["file", "sub/gone"] {
            done(session, &["-put", &local, &format!("{directory}/{name}")])?;
        }
        for arguments in [
            &["-allowSnapshot", directory][..],
            &["-setQuota", "100", directory],
            &["-setSpaceQuota", "64m", directory],
            &["-setSpaceQuota", "32m", "-storageType", "DISK", directory],
        ] {
            session.tool(DFS_ADMIN, arguments)?.success()?;
        }
        done(session, &["-createSnapshot", directory, "one"])?;
        done(session, &["-rm", "-skipTrash", &format!("{directory}/sub/gone")])?;
    }
    said_alike(session, COUNT_LINES)
}

const CHECKSUM_LINES: &[&str] = &[
    "-checksum DIR/sums/several DIR/sums/one DIR/sums/none",
    "-D dfs.checksum.combine.mode=COMPOSITE_CRC -checksum DIR/sums/several",
    "-D dfs.checksum.combine.mode=COMPOSITE_CRC -checksum DIR/sums/one",
    "-D dfs.checksum.combine.mode=COMPOSITE_CRC -checksum DIR/sums/none",
];

fn checksums(session: &mut Session) -> Result<()> {
    let local = session.local("checksums")?.join("bytes");
    std::fs::write(&local, (0..2_600_001_u32).map(|at| (at >> 5) as u8).collect::<Vec<_>>())?;
    let local = local.to_str().context("a path of text")?.to_owned();
    for directory in DIRECTORIES.map(|directory| format!("{directory}/sums")) {
        done(session, &["-mkdir", "-p", &directory])?;
        session.dfs(&["-D", "dfs.blocksize=1048576", "-put", &local, &format!("{directory}/several")])?;
        done(session, &["-put", &local, &format!("{directory}/one")])?;
        done(session, &["-touchz", &format!("{directory}/none")])?;
    }
    said_alike(session, CHECKSUM_LINES)
}

fn words(line: &str, directory: &str) -> Vec<String> {
    line.split(' ').map(|word| word.replace("DIR", directory)).collect()
}

const FS_SHELL: &str = "org.apache.hadoop.fs.FsShell";
const DFS_ADMIN: &str = "org.apache.hadoop.hdfs.tools.DFSAdmin";

/// Runs `hdfs dfs WORDS`, in the shared JVM unless they begin with a generic option.
fn apaches(session: &mut Session, words: &[String]) -> Result<ToolOutput> {
    match words.first().map(String::as_str) {
        Some("-D" | "-fs") => session.cluster.apache()?.fs(session.cluster.conf(), words),
        _ => session.tool(FS_SHELL, words),
    }
}

/// Runs `hdfs dfs WORDS` in the shared JVM. It must succeed. Returns its standard output.
fn done(session: &mut Session, words: &[&str]) -> Result<String> {
    session.tool(FS_SHELL, words)?.success().with_context(|| format!("hdfs dfs {}", words.join(" ")))
}

/// Runs `hearth fs ARGUMENTS`.
fn hearth(conf: &Path, arguments: Vec<String>) -> Result<Output> {
    let mut command = Command::new(hearth_program()?);
    command.arg("fs").args(arguments).env("HADOOP_CONF_DIR", conf).output().context("hearth fs")
}

/// Like `said_alike`, with `local` for `LOCAL`.
fn said_alike_of(session: &mut Session, local: &Path, lines: &[&str]) -> Result<()> {
    let local = local.to_str().context("a path of text")?;
    let lines: Vec<String> = lines.iter().map(|line| line.replace("LOCAL", local)).collect();
    said_alike(session, &lines.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Compares output, error message and exit code of each line by `hdfs dfs` and by `hearth fs`.
fn said_alike(session: &mut Session, lines: &[&str]) -> Result<()> {
    let conf = session.cluster.conf().to_owned();
    let mut failures = Vec::new();
    for line in lines {
        let theirs = apaches(session, &words(line, DIRECTORIES[0]))?;
        let ours = hearth(&conf, words(line, DIRECTORIES[1]))?;
        let said = |stdout: &str, stderr: &str, directory: &str| {
            // Skips log lines and the list of all commands.
            let reason = stderr.lines().find(|line| {
                let named = [
                    "fattr:",
                    "facl:",
                    "Snapshot:",
                    "ls:",
                    "count:",
                    "put:",
                    "cp:",
                    "touchz:",
                    "mv:",
                    "getmerge:",
                    "moveFromLocal:",
                ];
                line.starts_with('-') || named.iter().any(|name| line.contains(name))
            });
            format!("{stdout}{}", reason.unwrap_or_default()).replace(directory, "DIR")
        };
        let theirs = (theirs.code, said(&theirs.stdout, &theirs.stderr, DIRECTORIES[0]));
        let (stdout, stderr) = (String::from_utf8_lossy(&ours.stdout), String::from_utf8_lossy(&ours.stderr));
        let ours = (ours.status.code().unwrap_or(-1), said(&stdout, &stderr, DIRECTORIES[1]));
        if ours != theirs {
            failures.push(format!("{line}\n  Apache: {theirs:?}\n  Hearth: {ours:?}"));
        }
    }
    ensure!(failures.is_empty(), "{} of {} lines differ:\n{}", failures.len(), lines.len(), failures.join("\n"));
    Ok(())
}

/// Lines of `hearth fsck` and `hdfs fsck`, with the same NameNode.
const FSCK_LINES: &[&str] = &[
    "/fsck",
    "/fsck -files",
    "/fsck -files -blocks -locations",
    "/fsck -files -blocks -racks",
    "/fsck -files -blocks -replicaDetails",
    "/fsck -files -blocks -upgradedomains",
    "/fsck -files -includeSnapshots",
    "/fsck -openforwrite -maintenance",
    "/fsck -storagepolicies",
    "/fsck -replicate",
    "/fsck -showprogress",
    "/fsck -list-corruptfileblocks",
    "/fsck -delete",
    "/fsck/none",
    "/fsck /other",
    "/fsck -nothing",
    "-blockId blk_1 blk_2",
    "-blockId nonsense",
    "",
];

fn fsck(session: &mut Session) -> Result<()> {
    // `-expunge -fs` has changed the default file system of the shared JVM.
    session.end_java();
    let conf = session.cluster.conf().to_owned();
    let local = session.local("fsck")?;
    std::fs::write(local.join("bytes"), [7; 5000])?;
    let (file, local) = (local.join("bytes"), local.to_str().context("a path of text")?.to_owned());
    done(session, &["-mkdir", "-p", "/fsck/sub"])?;
    for name in ["one", "sub/two"] {
        done(session, &["-put", file.to_str().context("text")?, &format!("/fsck/{name}")])?;
    }
    session.tool(DFS_ADMIN, &["-allowSnapshot", "/fsck"])?.success()?;
    done(session, &["-createSnapshot", "/fsck", "one"])?;
    let mut differing = Vec::new();
    for line in FSCK_LINES {
        let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let theirs = tool_said(session.java()?, "org.apache.hadoop.hdfs.tools.DFSck", &arguments, &local)?;
        let ours =
            Command::new(hearth_program()?).arg("fsck").args(&arguments).env("HADOOP_CONF_DIR", &conf).output()?;
        let ours = program_said(&ours, &local);
        // Java's -1. After a wrong line the usage follows, with different words in each program.
        let of = |said: &Value| {
            let complaint = said[2].as_str().unwrap_or_default();
            let complaint = complaint.split("Usage: ").next().unwrap_or_default();
            let complaint = complaint.split("Connecting to namenode").next().unwrap_or_default();
            (said[0].as_i64().map(|code| code & 0xff), said[1].clone(), complaint.to_owned())
        };
        if of(&theirs) != of(&ours) {
            differing.push(format!("{line}\n  Apache: {theirs}\n  Hearth: {ours}"));
        }
    }
    ensure!(differing.is_empty(), "{} lines differ:\n{}", differing.len(), differing.join("\n"));
    Ok(())
}

/// The class of a command of `hdfs`, and its arguments. Lines that change what other lines show come first.
const SNAPSHOT_LINES: &[&str] = &[
    "dfs -mkdir -p /snap/d/sub/deep",
    "dfs -touchz /snap/d/sub/f",
    "dfs -touchz /snap/d/g",
    "dfs -createSnapshot /snap/d one",
    "dfsadmin -allowSnapshot /snap/d",
    "dfsadmin -allowSnapshot /snap/d/sub",
    "dfs -createSnapshot /snap/d one",
    "dfs -createSnapshot /snap/d one",
    "dfs -mv /snap/d/g /snap/d/sub/h",
    "dfs -rm -skipTrash /snap/d/sub/f",
    "dfs -rm -r -skipTrash /snap/d/sub/deep",
    "dfs -touchz /snap/d/new",
    "dfs -createSnapshot /snap/d two",
    "dfs -chmod 700 /snap/d/new",
    "dfs -mv /snap/d/sub /snap/out",
    "lsSnapshottableDir",
    "lsSnapshot /snap/d",
    "snapshotDiff /snap/d one two",
    "snapshotDiff /snap/d two one",
    "snapshotDiff /snap/d two .",
    "snapshotDiff /snap/d one none",
    "dfs -ls -R /snap/d/.snapshot",
    "dfs -ls -d /snap/d/.snapshot/one/sub",
    "dfs -count /snap/d/.snapshot/one /snap/out",
    "dfs -mkdir /snap/d/.snapshot/one/x",
    "dfs -rm -r -skipTrash /snap/d",
    "dfs -mv /snap/d /snap/e",
    "dfsadmin -disallowSnapshot /snap/d",
    "dfs -renameSnapshot /snap/d two three",
    "dfs -renameSnapshot /snap/d two four",
    "dfs -ls /snap/d/.snapshot",
    "dfs -deleteSnapshot /snap/d none",
    "dfs -deleteSnapshot /snap/d one",
    "dfs -deleteSnapshot /snap/d three",
    "dfsadmin -disallowSnapshot /snap/d",
    "lsSnapshottableDir",
    "dfs -rm -r -skipTrash /snap",
];

/// Output of Apache's commands with Apache's NameNode, with masked times.
const SNAPSHOTS_SAID: &str = include_str!("shell/snapshots.txt");

fn snapshots(session: &mut Session) -> Result<()> {
    let mut said = String::new();
    for line in SNAPSHOT_LINES {
        let (command, arguments) = line.split_once(' ').unwrap_or((line, ""));
        let arguments: Vec<&str> = arguments.split(' ').filter(|word| !word.is_empty()).collect();
        let class = match command {
            "dfs" => FS_SHELL,
            "dfsadmin" => DFS_ADMIN,
            "lsSnapshottableDir" => "org.apache.hadoop.hdfs.tools.snapshot.LsSnapshottableDir",
            "lsSnapshot" => "org.apache.hadoop.hdfs.tools.snapshot.LsSnapshot",
            _ => "org.apache.hadoop.hdfs.tools.snapshot.SnapshotDiff",
        };
        let output = session.tool(class, &arguments)?;
        said.push_str(&format!("$ {line}: {}\n", output.code));
        for text in output.stdout.lines().chain(output.stderr.lines()) {
            // Skips log lines and stack traces.
            let is_log = ["20", "\tat ", "org.apache", "Caused by", "\t..."].iter().any(|mark| text.starts_with(mark));
            let words: Vec<&str> = text.split_whitespace().map(mask).collect();
            if !is_log && !words.is_empty() {
                said.push_str(&words.join(" "));
                said.push('\n');
            }
        }
    }
    if said != SNAPSHOTS_SAID {
        std::fs::write(session.local("snapshots")?.join("said.txt"), &said)?;
        let differing = said.lines().zip(SNAPSHOTS_SAID.lines()).find(|(ours, theirs)| ours != theirs);
        bail!("the first line that differs (ours, Apache's): {differing:?}; all that was said:\n{said}");
    }
    Ok(())
}

/// Masks dates and times, which differ between runs.
fn mask(word: &str) -> &str {
    let shape: String = word.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    match shape.as_str() {
        "0000-00-00" => "DAY",
        "00:00" => "TIME",
        address if address.starts_with("hdfs://") => "ADDRESS",
        _ => word,
    }
}
