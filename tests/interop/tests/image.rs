//! The namespace moves between Hearth's NameNode and Apache's by images, with all its data, and back.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hearth_interop::{Check, Session, Suite, run};
use hearth_testkit::{ClusterSpec, Content, Implementation, hearth_program, sha256_hex, wait_until};
use serde_json::json;

const BLOCK: u64 = 1 << 20;
const STOPS_WITHIN: Duration = Duration::from_secs(180);

const CHECKS: &[Check] = &[
    ("offline_viewer_reads_fetched_image", offline_viewer),
    ("apache_takes_the_namespace_over", to_apache),
    ("apaches_image_is_imported", from_apache),
    ("apache_deletes_imported_snapshots", and_back),
    ("import_refuses_damage_and_existing_namespaces", refusals),
];

fn main() -> ExitCode {
    let cluster = ClusterSpec::new(Implementation::Hearth, Implementation::Hearth)
        .set("dfs.blocksize", BLOCK)
        .set("dfs.namenode.accesstime.precision", 0)
        .set("dfs.namenode.acls.enabled", true);
    run(&[Suite { name: "image", clusters: vec![cluster], checks: CHECKS }])
}

/// Files that are stored once, with their lengths in bytes.
const FILES: [(&str, u64); 7] = [
    ("/a/empty", 0),
    ("/a/b/one", 1),
    ("/a/b/three-blocks", 2 * BLOCK + 70_001),
    ("/s/stays", 513),
    ("/s/d/moves-inside", 65_537),
    ("/s/moves-out", 700),
    ("/s/gone", BLOCK + 3),
];
const EXTENDED: &str = "/s/grows";
/// First length of the file that grows, and what it gets.
const GROWS: (u64, u64) = (9_000, 700);
/// Directories with the same history of moved inodes. Hearth's NameNode makes the first one, and Apache's the second one.
const TRAVELS: [&str; 2] = ["/travels-h", "/travels-a"];
/// Files of such a directory that are stored once, with their lengths in bytes. `from` and `to` have snapshots.
const TRAVELLERS: [(&str, u64); 14] = [
    ("from/file", 3000),
    ("from/dir/inner", 500),
    ("from/brief", 600),
    ("from/both", 1300),
    ("from/parent/first", 700),
    ("from/parent/second", 800),
    ("from/removed", 1100),
    ("from/removed-dir/inner", 1200),
    ("from/lost", 400),
    ("from/left", 1000),
    ("from/left-dir/inner", 1500),
    ("from/cut-inside", 2 * BLOCK + 77),
    ("to/own", 900),
    ("to/cut", 2 * BLOCK + 78),
];
/// Snapshots of such a directory, in the order in which Apache's NameNode deletes them, or the reverse.
const TRAVEL_SNAPSHOTS: [(&str, &str); 8] = [
    ("to", "n3"),
    ("from", "n1"),
    ("to", "n1"),
    ("from", "n3"),
    ("to", "n2"),
    ("from", "n2"),
    ("to", "n5"),
    ("to", "n4"),
];
/// Lengths to which files are truncated, and what is appended then, with its seed.
const CUT: (u64, u64, u64) = (BLOCK, 300, 6);
const CUT_INSIDE: (u64, u64, u64) = (BLOCK + 10, 20, 8);
const OPEN: &str = "/open/file";
const OPEN_LENGTH: u64 = 70_000;

fn seed(path: &str) -> u64 {
    path.bytes().fold(7, |seed, byte| seed * 31 % 1_000_003 + u64::from(byte))
}

/// Runs `hearth LINE` on the cluster.
fn hearth(session: &Session, line: &str) -> Result<String> {
    hearth_in(session.cluster.conf(), line)
}

fn hearth_in(conf: &Path, line: &str) -> Result<String> {
    let mut command = Command::new(hearth_program()?);
    let output = command.env("HADOOP_CONF_DIR", conf).args(line.split(' ')).output().context("cannot start hearth")?;
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(
        output.status.success(),
        "hearth {line}: {}\n{out}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(out)
}

/// Makes a namespace with everything that an image can have.
fn fill(session: &mut Session) -> Result<()> {
    for line in
        ["fs -mkdir -p /a/b /s/d /s/e /quota /acl /policy /open", "admin -allowSnapshot /s", "admin -allowSnapshot /a"]
    {
        hearth(session, line)?;
    }
    let java = session.java()?;
    for (path, length) in FILES {
        java.call("store", json!({"path": path, "seed": seed(path), "length": length}))?;
    }
    java.call("store", json!({"path": EXTENDED, "seed": seed(EXTENDED), "length": GROWS.0}))?;
    for line in [
        "fs -setfacl -m user:bob:rwx,group:staff:r-x,default:user:bob:r-- /acl",
        "fs -setfacl -m user:bob:r-- /a/b/one",
        "fs -setfattr -n user.note -v hello /a",
        "fs -setfattr -n trusted.note -v 0x00ff /a/b/one",
        "fs -chown bob:staff /a/b",
        "fs -chmod 1770 /a/b",
        "fs -setrep 2 /a/b/one",
        "admin -setQuota 100 /quota",
        "admin -setSpaceQuota 1g /quota",
        "admin -setSpaceQuota 512m -storageType DISK /quota",
        "storagepolicies -setStoragePolicy -path /policy -policy ALL_SSD",
        "cacheadmin -addPool pool -owner bob -group staff -mode 0750 -limit 1000000",
        "cacheadmin -addDirective -path /a/b/one -pool pool -replication 1",
        "fs -createSnapshot /s s1",
        "fs -createSnapshot /a a1",
    ] {
        hearth(session, line)?;
    }
    session.java()?.call("extend", json!({"path": EXTENDED, "seed": 5, "length": GROWS.1}))?;
    for line in [
        "fs -mv /s/d/moves-inside /s/e/moved",
        "fs -mv /s/moves-out /moved-out",
        "fs -rm -skipTrash /s/gone",
        "fs -mkdir /s/new",
        "fs -createSnapshot /s s2",
        "fs -mv /s/e/moved /s/d/moves-inside",
        "fs -chmod 700 /s/stays",
        "fs -rm -r -skipTrash /s/new",
        "fs -renameSnapshot /a a1 renamed",
    ] {
        hearth(session, line)?;
    }
    let mut writer = session.another_java()?;
    writer.call("create", json!({"path": OPEN, "handle": "out"}))?;
    writer.call("write", json!({"handle": "out", "seed": 9, "length": OPEN_LENGTH}))?;
    writer.call("hflush", json!({"handle": "out"}))?;
    // The file stays open.
    writer.kill();
    Ok(())
}

/// Makes inodes that move between directories with snapshots, and files that are cut and grow after a snapshot.
fn travel(session: &mut Session, top: &str) -> Result<()> {
    let run = |session: &Session, lines: &[&str]| -> Result<()> {
        lines.iter().try_for_each(|line| hearth(session, &line.replace("TOP", top)).map(drop))
    };
    run(
        session,
        &["fs -mkdir -p TOP/from TOP/to TOP/aside", "admin -allowSnapshot TOP/from", "admin -allowSnapshot TOP/to"],
    )?;
    let java = session.java()?;
    for (name, length) in TRAVELLERS {
        let path = format!("{top}/{name}");
        java.call("store", json!({"path": path, "seed": seed(&path), "length": length}))?;
    }
    let (cut, cut_inside) = (format!("{top}/to/cut"), format!("{top}/from/cut-inside"));
    run(session, &["fs -createSnapshot TOP/from n1", "fs -createSnapshot TOP/to n1"])?;
    hearth(session, &format!("fs -truncate {} {cut}", CUT.0))?;
    session.java()?.call("extend", json!({"path": cut, "seed": CUT.2, "length": CUT.1}))?;
    run(
        session,
        &[
            // Away and back, with a snapshot of the other place, and without one.
            "fs -mv TOP/from/file TOP/from/dir TOP/to",
            "fs -createSnapshot TOP/to n2",
            "fs -mv TOP/to/file TOP/to/dir TOP/from",
            "fs -mv TOP/from/brief TOP/aside",
            "fs -mv TOP/aside/brief TOP/from",
            "fs -createSnapshot TOP/from n2",
            // Over to the other one, and a child of the directory before it.
            "fs -mv TOP/from/parent/first TOP/to",
            "fs -mv TOP/from/both TOP/from/parent TOP/to",
            "fs -createSnapshot TOP/to n3",
            "fs -createSnapshot TOP/from n3",
        ],
    )?;
    // The snapshots have the block, so DataNodes make a shorter copy while the rest goes on.
    hearth(session, &format!("fs -truncate {} {cut_inside}", CUT_INSIDE.0))?;
    run(
        session,
        &[
            // Removed there, after a snapshot and without one.
            "fs -mv TOP/from/removed TOP/from/removed-dir TOP/to",
            "fs -createSnapshot TOP/to n4",
            "fs -mv TOP/from/lost TOP/to",
            "fs -rm -r -skipTrash TOP/to/removed TOP/to/removed-dir TOP/to/lost",
            // No snapshot has these at their new place.
            "fs -mv TOP/from/left TOP/from/left-dir TOP/aside",
        ],
    )?;
    let java = session.java()?;
    wait_until("the truncation inside a block", Duration::from_secs(90), || {
        Ok(java.call("isClosed", json!({"path": cut_inside}))?.as_bool().unwrap_or(false).then_some(()))
    })?;
    java.call("extend", json!({"path": cut_inside, "seed": CUT_INSIDE.2, "length": CUT_INSIDE.1}))?;
    run(session, &["fs -createSnapshot TOP/to n5"])
}

/// Returns permission, length and path of everything in such a directory and in its snapshots. The paths begin below it.
fn travelled(session: &Session, top: &str) -> Result<BTreeSet<String>> {
    let out = hearth(session, &format!("fs -ls -R {top} {top}/from/.snapshot {top}/to/.snapshot"))?;
    let entry = |line: &str| -> Result<String> {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [permission, _, _, _, length, _, _, path] = fields[..] else { anyhow::bail!("{line}") };
        let below = path.strip_prefix(top).with_context(|| line.to_owned())?;
        Ok(format!("{permission} {length} {below}"))
    };
    out.lines().map(entry).collect()
}

/// Returns files of such a directory with their bytes: those that it has in the end, and before [`delete_travels`] also
/// those in its snapshots and those that are removed.
fn travelled_files(top: &str, with_snapshots: bool) -> Vec<(String, Vec<u8>)> {
    let original = |name: &str| {
        let length = TRAVELLERS.iter().find(|(known, _)| *known == name).expect("it is stored").1;
        Content::new(seed(&format!("{top}/{name}"))).bytes(0, length as usize)
    };
    let changed = |name: &str, (length, more, seed): (u64, u64, u64)| {
        [&original(name)[..length as usize], &Content::new(seed).bytes(0, more as usize)[..]].concat()
    };
    let (cut, cut_inside) = (changed("to/cut", CUT), changed("from/cut-inside", CUT_INSIDE));
    let mut files = vec![
        ("to/cut".to_owned(), cut.clone()),
        ("from/cut-inside".to_owned(), cut_inside),
        ("from/file".to_owned(), original("from/file")),
        ("from/dir/inner".to_owned(), original("from/dir/inner")),
        ("from/brief".to_owned(), original("from/brief")),
        ("to/own".to_owned(), original("to/own")),
        ("to/first".to_owned(), original("from/parent/first")),
    ];
    if with_snapshots {
        for (name, _) in TRAVELLERS {
            let (directory, below) = name.split_once('/').expect("it is in a directory");
            files.push((format!("{directory}/.snapshot/n1/{below}"), original(name)));
        }
        for (path, name) in [
            ("to/both", "from/both"),
            ("to/parent/second", "from/parent/second"),
            ("aside/left", "from/left"),
            ("aside/left-dir/inner", "from/left-dir/inner"),
            ("to/.snapshot/n2/file", "from/file"),
            ("to/.snapshot/n2/dir/inner", "from/dir/inner"),
            ("from/.snapshot/n2/file", "from/file"),
            ("from/.snapshot/n2/dir/inner", "from/dir/inner"),
            ("from/.snapshot/n2/brief", "from/brief"),
            ("from/.snapshot/n2/both", "from/both"),
            ("from/.snapshot/n2/parent/first", "from/parent/first"),
            ("to/.snapshot/n3/first", "from/parent/first"),
            ("to/.snapshot/n3/both", "from/both"),
            ("to/.snapshot/n3/parent/second", "from/parent/second"),
            ("from/.snapshot/n3/removed", "from/removed"),
            ("to/.snapshot/n4/removed", "from/removed"),
            ("to/.snapshot/n4/removed-dir/inner", "from/removed-dir/inner"),
        ] {
            files.push((path.to_owned(), original(name)));
        }
        files.push(("to/.snapshot/n2/cut".to_owned(), cut));
    }
    files.into_iter().map(|(path, bytes)| (format!("{top}/{path}"), bytes)).collect()
}

/// Removes inodes that have moved, and then all snapshots one by one. Each time nothing else may change, and Apache's
/// NameNode may log no error.
fn delete_travels(session: &Session, top: &str, snapshots: &[(&str, &str)]) -> Result<()> {
    let log = || -> Result<String> { Ok(session.cluster.namenode.process().context("it runs")?.log_text()) };
    let already = log()?.len();
    let mut expected = travelled(session, top)?;
    let mut check = |what: &str, is_gone: &dyn Fn(&str) -> bool| -> Result<()> {
        let before = expected.len();
        expected.retain(|entry| entry.rsplit_once(' ').is_none_or(|(_, path)| !is_gone(path)));
        ensure!(expected.len() < before, "{what}: nothing was there");
        let found = travelled(session, top)?;
        let (lost, left): (Vec<_>, Vec<_>) =
            (expected.difference(&found).collect(), found.difference(&expected).collect());
        ensure!(lost.is_empty() && left.is_empty(), "{what}: {lost:?} are lost, and {left:?} are left or have changed");
        Ok(())
    };
    let removed = ["/to/both", "/to/parent", "/aside/left", "/aside/left-dir"];
    hearth(session, &format!("fs -rm -r -skipTrash {}", removed.map(|path| format!("{top}{path}")).join(" ")))?;
    check("the removal of moved inodes", &|path: &str| removed.iter().any(|gone| path.starts_with(gone)))?;
    for (directory, name) in snapshots {
        hearth(session, &format!("fs -deleteSnapshot {top}/{directory} {name}"))?;
        let snapshot = format!("/{directory}/.snapshot/{name}");
        let below = format!("{snapshot}/");
        check(&format!("the removal of {snapshot}"), &|path: &str| path == snapshot || path.starts_with(&below))?;
    }
    let log = log()?;
    let new = log.get(already..).context("the log was cut")?;
    let is_error = |line: &&str| [" ERROR ", " FATAL ", "INodeReference"].iter().any(|text| line.contains(text));
    let errors: Vec<&str> = new.lines().filter(is_error).collect();
    ensure!(errors.is_empty(), "{errors:#?}");
    Ok(())
}

/// Returns what users see of the namespace, line by line. `travels`: the directories of [`TRAVELS`] that exist.
fn seen(session: &Session, travels: &[&str]) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    let travels = travels.iter().map(|top| format!("fs -ls -R {top}/from/.snapshot {top}/to/.snapshot"));
    let others = [
        "fs -ls -R /",
        "fs -ls -R /s/.snapshot",
        "fs -ls -R /a/.snapshot/renamed",
        "fs -getfacl -R /",
        "fs -getfattr -R -d /",
        "fs -count -q /quota",
        "fs -count -q -t DISK /quota",
        "fs -stat %F_%a_%b_%g_%o_%r_%u_%Y /a/b/three-blocks /s/.snapshot/s1/grows",
        "storagepolicies -getStoragePolicy -path /policy",
        "cacheadmin -listPools",
        "cacheadmin -listDirectives",
        "lsSnapshottableDir",
        "snapshotDiff /s s1 s2",
        "snapshotDiff /s s2 .",
    ];
    for line in others.into_iter().map(str::to_owned).chain(travels) {
        // The length of an open file depends on what the NameNode last heard of its writer.
        let out = hearth(session, &line)?;
        lines.extend(out.lines().filter(|said| !said.contains(OPEN)).map(|said| format!("{line}: {said}")));
    }
    Ok(lines)
}

fn same(before: &[String], after: &[String]) -> Result<()> {
    let (before, after): (BTreeSet<&String>, BTreeSet<&String>) = (before.iter().collect(), after.iter().collect());
    let gone = before.difference(&after).map(|line| format!("\n  - {line}"));
    let new = after.difference(&before).map(|line| format!("\n  + {line}"));
    let differing: String = gone.chain(new).collect();
    ensure!(differing.is_empty(), "the namespace has changed{differing}");
    Ok(())
}

/// Reads all files, also in snapshots. `travels`: as for [`seen`].
fn read_all(session: &mut Session, travels: &[&str]) -> Result<()> {
    let bytes = |path: &str, length: u64| Content::new(seed(path)).bytes(0, length as usize);
    let mut expected: Vec<(String, Vec<u8>)> = Vec::new();
    for (path, length) in FILES {
        let now = match path {
            "/s/moves-out" => Some("/moved-out"),
            "/s/gone" => None,
            path => Some(path),
        };
        expected.extend(now.map(|now| (now.to_owned(), bytes(path, length))));
        if let Some(below) = path.strip_prefix("/s/") {
            expected.push((format!("/s/.snapshot/s1/{below}"), bytes(path, length)));
        }
    }
    expected.push(("/s/.snapshot/s2/e/moved".to_owned(), bytes("/s/d/moves-inside", 65_537)));
    let first = bytes(EXTENDED, GROWS.0);
    expected.push((format!("/s/.snapshot/s1{}", &EXTENDED[2..]), first.clone()));
    expected.push((EXTENDED.to_owned(), [first, Content::new(5).bytes(0, GROWS.1 as usize)].concat()));
    expected.extend(travels.iter().flat_map(|top| travelled_files(top, true)));
    read_each(session, expected)
}

fn read_each(session: &mut Session, expected: Vec<(String, Vec<u8>)>) -> Result<()> {
    let mut java = session.another_java()?;
    for (path, bytes) in expected {
        let found = java.call("read", json!({"path": path})).with_context(|| path.clone())?;
        ensure!(
            found["sha256"] == sha256_hex(&bytes),
            "{path} reads as {found}, not as the {} bytes stored",
            bytes.len()
        );
    }
    java.kill();
    Ok(())
}

fn offline_viewer(session: &mut Session) -> Result<()> {
    fill(session)?;
    travel(session, TRAVELS[0])?;
    let local = session.local("fetched")?;
    let image = fetched(session, &local)?;
    let name = image.file_name().context("it has a name")?.to_string_lossy().into_owned();
    ensure!(name.starts_with("fsimage_") && name.len() == "fsimage_".len() + 19, "{name}");
    let viewer = |processor: &str, out: &Path| -> Result<String> {
        let (image, out_path) = (image.display().to_string(), out.display().to_string());
        let main = "org.apache.hadoop.hdfs.tools.offlineImageViewer.OfflineImageViewerPB";
        let arguments = ["-p", processor, "-i", &image, "-o", &out_path, "-delimiter", "|"];
        let count = if processor == "Delimited" { arguments.len() } else { arguments.len() - 2 };
        session.cluster.apache()?.run(session.cluster.conf(), main, &arguments[..count])?.success()?;
        std::fs::read_to_string(out).context("the viewer has written nothing")
    };
    let xml = viewer("XML", &local.join("image.xml"))?;
    for text in
        ["<name>three-blocks</name>", "<name>s1</name>", "<name>renamed</name>", "<poolName>pool</poolName>", "bob"]
    {
        ensure!(xml.contains(text), "{text} is not in the image");
    }
    let delimited = viewer("Delimited", &local.join("image.txt"))?;
    let viewed: BTreeSet<&str> = delimited.lines().skip(1).filter_map(|line| line.split('|').next()).collect();
    let listed = hearth(session, "fs -ls -R /")?;
    let listed: BTreeSet<&str> = listed.lines().filter_map(|line| line.split_whitespace().last()).collect();
    let missing: Vec<_> = listed.difference(&viewed).collect();
    ensure!(missing.is_empty() && listed.len() > 15, "{missing:?} are not in the image, which has {viewed:?}");
    // A caller that expects another namespace gets nothing.
    let port = session.cluster.namenode_http_port();
    let refused = hearth_testkit::get_text(port, "/imagetransfer?getimage=1&txid=latest&storageInfo=-67:1:2:CID");
    ensure!(refused.is_err(), "an image was sent to a foreign NameNode");
    Ok(())
}

/// Fetches the image into `local` by Apache's tool and by Hearth's: the same name and the same bytes. Returns the file.
fn fetched(session: &Session, local: &Path) -> Result<PathBuf> {
    let (theirs, ours) = (local.join("by-apaches"), local.join("by-hearths"));
    std::fs::create_dir(&theirs)?;
    std::fs::create_dir(&ours)?;
    let directory = theirs.display().to_string();
    session.cluster.apache()?.dfsadmin(session.cluster.conf(), ["-fetchImage", &directory])?.success()?;
    hearth(session, &format!("dfsadmin -fetchImage {}", ours.display()))?;
    let (theirs, ours) = (only_file(&theirs)?, only_file(&ours)?);
    ensure!(theirs.file_name() == ours.file_name(), "{} instead of {}", ours.display(), theirs.display());
    let bytes = std::fs::read(&theirs)?;
    ensure!(!bytes.is_empty() && bytes == std::fs::read(&ours)?, "{} has other bytes", ours.display());
    Ok(theirs)
}

fn only_file(directory: &Path) -> Result<PathBuf> {
    let files: Vec<PathBuf> = std::fs::read_dir(directory)?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    let [file] = &files[..] else { anyhow::bail!("{files:?} instead of one file") };
    Ok(file.clone())
}

/// Starts the NameNode of `make` on a directory of names.
fn restart_as(session: &mut Session, make: Implementation, names: &Path) -> Result<()> {
    session.end_java();
    session.cluster.namenode.stop(STOPS_WITHIN)?;
    session.cluster.namenode.change(&[("dfs.namenode.name.dir", &format!("file://{}", names.display()))])?;
    session.cluster.namenode.switch_implementation(make);
    session.cluster.start_namenode()?;
    session.cluster.wait_ready()
}

/// Backs the namespace up. Returns the directory.
fn backup(session: &Session, name: &str) -> Result<PathBuf> {
    let directory = session.local("backups")?.join(name);
    hearth(session, &format!("admin -backup {}", directory.display()))?;
    Ok(directory)
}

fn to_apache(session: &mut Session) -> Result<()> {
    let before = seen(session, &TRAVELS[..1])?;
    let directory = backup(session, "first")?;
    ensure!(hearth(session, &format!("admin -backup {}", directory.display())).is_err(), "a backup was replaced");
    restart_as(session, Implementation::Apache, &directory)?;
    same(&before, &seen(session, &TRAVELS[..1])?)?;
    read_all(session, &TRAVELS[..1])?;
    fetched(session, &session.local("fetched-from-apaches")?)?;
    // The lease came over: Apache recovers the file that its writer left open.
    let open = hearth(session, "admin -listOpenFiles")?;
    ensure!(open.contains(OPEN), "{open}");
    let java = session.java()?;
    java.call("recoverLease", json!({"path": OPEN}))?;
    wait_until("the recovery of the open file", Duration::from_secs(90), || {
        Ok(java.call("isClosed", json!({"path": OPEN}))?.as_bool().unwrap_or(false).then_some(()))
    })?;
    let found = java.call("read", json!({"path": OPEN}))?;
    let expected = sha256_hex(&Content::new(9).bytes(0, OPEN_LENGTH as usize));
    ensure!(found["sha256"] == expected, "{OPEN} reads as {found}");
    // Ids and stamps continue.
    java.call("store", json!({"path": "/by-apache", "seed": 3, "length": BLOCK + 1}))?;
    // The same history, made by Apache.
    travel(session, TRAVELS[1])?;
    let [ours, apaches] = TRAVELS.map(|top| travelled(session, top));
    let (ours, apaches) = (ours?, apaches?);
    let differing: Vec<&String> = ours.symmetric_difference(&apaches).collect();
    ensure!(differing.is_empty() && ours.len() > 60, "{differing:?} of {} entries", ours.len());
    let fsck = session.cluster.apache()?.fsck(session.cluster.conf(), ["/"])?.success()?;
    ensure!(fsck.contains("is HEALTHY"), "{fsck}");
    Ok(())
}

fn from_apache(session: &mut Session) -> Result<()> {
    let before = seen(session, &TRAVELS)?;
    let names = session.cluster.namenode.data_directory().context("it is set")?;
    let target = session.local("imported")?;
    let import = |session: &Session| -> Result<String> {
        let conf = session
            .cluster
            .conf_with("import", &[("dfs.namenode.name.dir", &format!("file://{}", target.display()))])?;
        hearth_in(&conf, &format!("namenode -importCheckpoint {}", names.display()))
    };
    // Its changes since the start are only in the edit log, which is not imported.
    let said = import(session).err().map(|error| format!("{error:#}")).unwrap_or_default();
    ensure!(said.contains("-saveNamespace"), "{said}");
    for line in ["admin -safemode enter", "admin -saveNamespace", "admin -safemode leave"] {
        hearth(session, line)?;
    }
    session.end_java();
    session.cluster.namenode.stop(STOPS_WITHIN)?;
    println!("{}", import(session)?);
    restart_as(session, Implementation::Hearth, &target)?;
    same(&before, &seen(session, &TRAVELS)?)?;
    read_all(session, &TRAVELS)?;
    let java = session.java()?;
    let found = java.call("read", json!({"path": "/by-apache"}))?;
    ensure!(
        found["sha256"] == sha256_hex(&Content::new(3).bytes(0, BLOCK as usize + 1)),
        "/by-apache reads as {found}"
    );
    java.call("store", json!({"path": "/by-hearth", "seed": 4, "length": BLOCK + 2}))?;
    // It starts again.
    restart_as(session, Implementation::Hearth, &target)?;
    ensure!(hearth(session, "fs -ls /")?.contains("/by-hearth"), "it is lost");
    Ok(())
}

fn and_back(session: &mut Session) -> Result<()> {
    let before = seen(session, &TRAVELS)?;
    let directory = backup(session, "second")?;
    restart_as(session, Implementation::Apache, &directory)?;
    same(&before, &seen(session, &TRAVELS)?)?;
    read_all(session, &TRAVELS)?;
    let reversed: Vec<(&str, &str)> = TRAVEL_SNAPSHOTS.into_iter().rev().collect();
    delete_travels(session, TRAVELS[0], &TRAVEL_SNAPSHOTS)?;
    delete_travels(session, TRAVELS[1], &reversed)?;
    read_each(session, TRAVELS.iter().flat_map(|top| travelled_files(top, false)).collect())?;
    for line in [
        "fs -deleteSnapshot /s s1",
        "fs -deleteSnapshot /s s2",
        "fs -deleteSnapshot /a renamed",
        "admin -disallowSnapshot /s",
        "fs -rm -r -skipTrash /s",
        "admin -safemode enter",
        "admin -saveNamespace",
        "admin -safemode leave",
    ] {
        hearth(session, line)?;
    }
    let fsck = session.cluster.apache()?.fsck(session.cluster.conf(), ["/"])?.success()?;
    ensure!(fsck.contains("is HEALTHY"), "{fsck}");
    // Apache reads what it has made of our image.
    restart_as(session, Implementation::Apache, &directory)?;
    for top in TRAVELS {
        let found = travelled(session, top)?;
        ensure!(found.iter().any(|entry| entry.ends_with(" /to/first")), "{found:?}");
    }
    let listed = hearth(session, "fs -ls -R /")?;
    ensure!(listed.contains("/moved-out") && !listed.contains("/s/"), "{listed}");
    Ok(())
}

fn refusals(session: &mut Session) -> Result<()> {
    let names = session.cluster.namenode.data_directory().context("it is set")?;
    session.end_java();
    session.cluster.namenode.stop(STOPS_WITHIN)?;
    let import = |from: &Path, into: &Path| -> Result<String> {
        let conf = session
            .cluster
            .conf_with("refusals", &[("dfs.namenode.name.dir", &format!("file://{}", into.display()))])?;
        let outcome = hearth_in(&conf, &format!("namenode -importCheckpoint {}", from.display()));
        Ok(outcome.err().map(|error| format!("{error:#}")).unwrap_or_default())
    };
    let existing = session.local("imported")?;
    let said = import(&names, &existing)?;
    ensure!(said.contains("already formatted"), "{said}");
    let current = names.join("current");
    let mut images: Vec<PathBuf> = std::fs::read_dir(&current)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_none() && path.display().to_string().contains("fsimage_"))
        .collect();
    images.sort();
    let image = images.pop().context("Apache has saved an image")?;
    let bytes = std::fs::read(&image)?;
    std::fs::write(&image, &bytes[..bytes.len() / 2])?;
    let fresh = session.local("fresh")?;
    let said = import(&names, &fresh)?;
    ensure!(said.contains("MD5") && !said.contains("panicked"), "{said}");
    ensure!(!fresh.join("current").exists(), "half of an image was imported");
    std::fs::write(&image, &bytes)?;
    ensure!(import(&names, &fresh)?.is_empty(), "the whole image is imported");
    Ok(())
}
