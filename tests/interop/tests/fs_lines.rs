//! Paths, patterns, listings and errors on the command line of `hearth fs`, compared with `hdfs dfs`: the same output,
//! error message and exit code.

use std::path::Path;
use std::process::{Command, ExitCode, Output, Stdio};

use anyhow::{Context, Result, ensure};
use hearth_interop::{Check, Session, Suite, program_said, run, slow, tool_said};
use hearth_testkit::{ClusterSpec, Driver, Implementation, hearth_program};
use serde_json::{Value, json};

const CHECKS: &[Check] = &[
    ("patterns_and_paths_match_apaches", patterns),
    ("listing_order_matches_apaches", listings),
    ("changes_and_errors_match_apaches", changes),
    ("removal_never_affects_pattern_parents", removals),
    ("file_inside_pattern_is_skipped_for_other_users", other_user),
    ("removal_fails_if_trash_is_a_file", trash),
    ("closed_output_succeeds_and_full_output_fails", outputs),
    ("text_of_packed_files_matches_apaches", packed),
    ("webhdfs_paths_match_apaches", over_http),
    ("mount_table_paths_match_apaches", mounted),
    ("archive_paths_match_apaches", archived),
    ("proxy_user_acts_for_another", proxied),
    ("kerberos_is_rejected", kerberos),
];

fn main() -> ExitCode {
    let makes: &[Implementation] =
        if slow() { &[Implementation::Apache, Implementation::Hearth] } else { &[Implementation::Hearth] };
    let clusters = makes
        .iter()
        .map(|make| {
            ClusterSpec::new(*make, *make).set("dfs.replication", 1).set("dfs.namenode.accesstime.precision", 0)
        })
        .collect();
    run(&[Suite { name: "fs_lines", clusters, checks: CHECKS }])
}

/// Directories of `hdfs dfs` and of `hearth fs`.
const DIRECTORIES: [&str; 2] = ["/apache", "/hearth"];

/// Lines in a separate directory for each shell, `DIR`, with `a/x`, `a/y`, `b/x`, `f`, `f1`, `s*r`.
const PATTERN_LINES: &[&str] = &[
    "-ls -d DIR/*",
    "-ls -d DIR//*",
    "-ls -d DIR/./a/../a/*",
    "-ls -d DIR/{a,b}/x",
    "-ls -d DIR/{a/x,b}",
    "-ls -d DIR/{b/x,a/y,a/x}",
    "-ls -d DIR/f{,1}",
    "-ls -d DIR/[a-b]",
    "-ls -d DIR/[!a-b]",
    "-ls -d DIR/[^f]*",
    "-ls -d DIR/?",
    "-ls -d DIR/f*/x",
    "-ls -d DIR/f/*",
    "-ls -d DIR/*/x",
    "-ls -d DIR/s\\*r",
    "-ls -d DIR/s\\?r",
    "-ls -d DIR/\\f",
    "-ls -d DIR/f DIR/none DIR/n* DIR/a",
    "-ls -d DIR/",
    "-ls -d DIR/a/.",
    "-ls -d DIR/a/..",
    "-ls -d hdfs:DIR/a",
    "-ls -d hdfs://DIR/a*",
    "-ls DIR/{}",
    "-ls DIR/{}/x",
    "-ls DIR/{,f1}",
    "-ls DIR/{,none}/x",
    "-ls DIR/\\",
    "-ls DIR/a\\",
    "-ls DIR/[",
    "-ls DIR/[a",
    "-ls DIR/{a",
    "-ls DIR/{a,b",
    "-ls ",
    "-ls a:b",
    "-ls hdfs:a",
    "-ls DIR/a:b",
    "-ls DIR/../../x",
    "-ls ../../../x",
    "-ls file://host/x",
    "-ls none:///x",
    "-ls none://host/x",
    "-ls //DIR",
    "-mkdir DIR/new\\*",
    "-ls -d DIR/new*",
    "-mkdir DIR/{}",
    "-touchz DIR/x:y",
    "-cat DIR/{}",
    "-cat DIR/none/*",
    "-stat %n DIR/{a,b}/x",
    "-count DIR/{}",
    "-du DIR/{,f1}",
    "-cp DIR/f DIR/{}",
    "-cp DIR/{} DIR/c",
    "-mv DIR/{} DIR/c",
    "-mv DIR/f DIR/{a,b}",
    "-chmod 600 DIR/{}",
    "-setrep 1 DIR/{}",
    "-test -e DIR/{}",
    "-find DIR/{} -name x",
    "-find DIR -name x",
];

fn patterns(session: &mut Session) -> Result<()> {
    let local = session.local("patterns")?;
    std::fs::write(local.join("f"), "bytes")?;
    for directory in DIRECTORIES {
        let at = |name: &str| format!("{directory}/{name}");
        done(session, &["-mkdir", "-p", &at("a"), &at("b")])?;
        let file = local.join("f").display().to_string();
        done(session, &["-put", &file, &at("f")])?;
        done(session, &["-touchz", &at("a/x"), &at("a/y"), &at("b/x"), &at("f1")])?;
        done(session, &["-touchz", &at("s\\*r")])?;
    }
    said_alike(session, &local, PATTERN_LINES)
}

/// Lines in `DIR/l`: names whose order depends on the sort key, and a directory.
const LISTING_LINES: &[&str] = &[
    "-ls DIR/l",
    "-ls -r DIR/l",
    "-ls -S DIR/l",
    "-ls -S -r DIR/l",
    "-ls -t DIR/l",
    "-ls -t -r DIR/l",
    "-ls -C DIR/l",
    "-ls -h DIR/l",
    "-ls -R DIR/l",
    "-ls -R -r DIR/l",
    "-ls -R -S DIR/l",
    "-ls -R -C DIR/l",
    "-ls DIR/l/*",
    "-ls DIR/l/sub DIR/l DIR/l/sub",
    "-ls -d DIR/l DIR/l/sub DIR/l/z",
    "-ls DIR/l/sub/none DIR/l/sub DIR/none",
    "-du DIR/l",
    "-count DIR/l/*",
    "-find DIR/l",
    "-getmerge DIR/l LOCALDIR",
    "-stat %n DIR/l/*",
];

fn listings(session: &mut Session) -> Result<()> {
    let local = session.local("listings")?;
    std::fs::write(local.join("bytes"), vec![b'x'; 12_345])?;
    let bytes = local.join("bytes").display().to_string();
    for directory in DIRECTORIES {
        let at = |name: &str| format!("{directory}/l/{name}");
        done(session, &["-mkdir", "-p", &at("sub/deep"), &at("sub-x"), &at("empty")])?;
        for name in ["a b", "a-b", "a%b", "z", "é", "sub/one"] {
            done(session, &["-touchz", &at(name)])?;
        }
        done(session, &["-put", &bytes, &at("big")])?;
        done(session, &["-chown", "a-long-name:g", &at("sub/one")])?;
        // Two names with the same time.
        done(session, &["-touch", "-m", "-t", "20200102:030405", &at("a b"), &at("a-b"), &at("big")])?;
        done(session, &["-touch", "-m", "-t", "20210102:030405", &at("z"), &at("é"), &at("a%b")])?;
        for directory in ["sub", "sub-x", "empty", "sub/deep", "sub/one"] {
            done(session, &["-touch", "-m", "-t", "20220102:030405", &at(directory)])?;
        }
    }
    said_alike(session, &local, LISTING_LINES)
}

const CHANGE_LINES: &[&str] = &[
    "-mkdir -p DIR/c/d/e",
    "-touch DIR/c/new",
    "-touch -c DIR/c/none",
    "-touch -a DIR/c/new",
    "-touch -t",
    "-touch -t yesterday DIR/c/new",
    "-touch DIR/none/new",
    "-touch -m -t 20200102:030405 DIR/c/new",
    "-stat %y DIR/c/new",
    "-mv DIR/c/d DIR/c/d",
    "-mv DIR/c/d DIR/c/d/e",
    "-mv DIR/c/d DIR/c/d/e/g",
    "-mv DIR/c/new DIR/c/new",
    "-mv DIR/c/new DIR/c",
    "-mv DIR/c/d DIR/c/none/",
    "-mv DIR/c/new DIR/c/none/x",
    "-cp DIR/c/d DIR/c/d",
    "-cp DIR/c/d DIR/c",
    "-cp DIR/c/d DIR/c/d/e/g",
    "-cp DIR/c/new DIR/c/new",
    "-cp DIR/c/new DIR/c",
    "-cp -f DIR/c/new DIR/c/new",
    "-cp -t x DIR/c/new DIR/c/new2",
    "-cp -t DIR/c/new DIR/c/new2",
    "-cp -q 0 -t -3 DIR/c/new DIR/c/new2",
    "-cp DIR/c/new -p DIR/c/new3",
    "-chown a_b DIR/c/new",
    "-chown a+b@c:d.e DIR/c/new",
    "-chown a:b:c DIR/c/new",
    "-chown : DIR/c/new",
    "-chown é DIR/c/new",
    "-chgrp a,b DIR/c/new",
    "-chgrp g:h DIR/c/new",
    "-chmod 600 DIR/c/none",
    "-chown ann DIR/c/none",
    "-count -q -t DIR/c",
    "-count -t DIR/c",
    "-count -q -t ssd DIR/c",
    "-tail -s DIR/c/new",
    "-tail -s x DIR/c/new",
    "-tail -f -s x DIR/c/new",
    "-tail",
    "-expunge -fs",
    "-setfattr -n user.x -v",
    "-setfattr DIR/c/new -n user.x -v 1",
    "-getfattr DIR/c/new -n user.x",
    "-getfattr DIR/c/new -d",
    "-getfattr -n",
    "-getfattr -z DIR/c/new",
    "-rm DIR/c/none ",
    "-rm -f DIR/c/none DIR/c/n{}",
    "-rm -z DIR/c/new",
    "-rm -r -f",
    "-rm -skipTrash DIR/c/new2 a:b",
    "-rm -skipTrash DIR/c/new2 DIR/../../x",
    "-rm -skipTrash -safely DIR/c/new2",
    "-rmdir DIR/c/{}",
    "-rm -r -skipTrash DIR/c/new DIR/c/none DIR/c/new3",
    "-find DIR/c",
];

fn changes(session: &mut Session) -> Result<()> {
    let local = session.local("changes")?;
    said_alike(session, &local, CHANGE_LINES)?;
    // Names with a space, which a line here cannot contain.
    for owner in ["a b", "a b:c", "", " "] {
        let theirs = apache(session, &["-chown".to_owned(), owner.to_owned(), "/apache/c/d".to_owned()], &local, 0)?;
        let ours = hearth(session, &["-chown".to_owned(), owner.to_owned(), "/hearth/c/d".to_owned()], &local, 1)?;
        ensure!(ours == theirs, "-chown {owner:?}: {ours}, but Apache's says {theirs}");
    }
    // Apache's shell empties the file before it is read.
    done(session, &["-put", "/etc/passwd", "/hearth/c/kept"])?;
    let conf = session.cluster.conf().to_owned();
    let output = program(&conf, &["-cp", "-f", "-d", "/hearth/c/kept", "/hearth/c/kept"])?.output()?;
    ensure!(output.status.code() == Some(1), "{output:?}");
    ensure!(
        done(session, &["-cat", "/hearth/c/kept"])? == std::fs::read_to_string("/etc/passwd")?,
        "the file was emptied"
    );
    Ok(())
}

/// Commands that must not change `/kept/d` and `/kept/d/a`, in HDFS and on this machine. Apache's shell removes some of
/// them.
const REMOVALS: &[&str] = &[
    "{}",
    "{,f1}",
    "{}/{}",
    "a/{}/..",
    "*/..",
    "{/,x}",
    "{,/x}",
    "{.,x/y}",
    "{..,x/y}",
    "\\",
    "\\.",
    "\\..",
    "a/\\..",
    "[.]",
    "x/../..\\",
];

fn removals(session: &mut Session) -> Result<()> {
    let conf = session.cluster.conf().to_owned();
    let local = session.local("removals")?;
    std::fs::create_dir_all(local.join("d/a"))?;
    done(session, &["-mkdir", "-p", "/kept/d/a", "/into"])?;
    let uri = format!("file://{}/d", local.display());
    for end in REMOVALS {
        for directory in ["/kept/d", &uri] {
            let path = format!("{directory}/{end}");
            let lines: [&[&str]; 6] = [
                &["-rm", "-r", "-skipTrash", &path],
                &["-rm", "-r", &path],
                &["-rmr", "-skipTrash", &path],
                &["-rmdir", &path],
                &["-mv", &path, "/into/x"],
                &["-chmod", "-R", "000", &path],
            ];
            for line in lines {
                let output = program(&conf, line)?.output()?;
                ensure!(output.status.code().is_some_and(|code| code != 0), "{line:?}: {output:?}");
            }
        }
        let moved =
            program(&conf, &["-moveFromLocal", &format!("{}/d/{end}", local.display()), "/into/y"])?.output()?;
        ensure!(moved.status.code().is_some_and(|code| code != 0), "-moveFromLocal {end}: {moved:?}");
        ensure!(local.join("d/a").is_dir(), "{end} removed a directory of this machine");
        done(session, &["-test", "-d", "/kept/d/a"]).with_context(|| format!("{end} removed a directory of HDFS"))?;
        let shown = done(session, &["-ls", "-d", "/kept/d", "/kept/d/a"])?;
        ensure!(shown.matches("drwxr-xr-x").count() == 2, "{end} changed permissions:\n{shown}");
    }
    Ok(())
}

fn other_user(session: &mut Session) -> Result<()> {
    let (conf, java) = (session.cluster.conf().to_owned(), session.cluster.apache()?.clone());
    done(session, &["-mkdir", "-p", "/open/d1/x", "/open/d2"])?;
    done(session, &["-touchz", "/open/d3"])?;
    for (pattern, code) in
        [("/open/d*/x", 0), ("/open/d3/*", 1), ("/open/d3/x*", 1), ("/open/*/none", 1), ("/open/d3/x", 1)]
    {
        let line = ["-ls", "-d", pattern];
        let mut theirs = java.java(&conf, "org.apache.hadoop.fs.FsShell");
        let theirs = theirs.args(line).env("HADOOP_USER_NAME", "ann").output()?;
        let ours = program(&conf, &line)?.env("HADOOP_USER_NAME", "ann").output()?;
        ensure!(ours.status.code() == Some(code), "{pattern}: {ours:?}");
        let (ours, theirs) = (program_said(&ours, "/nothing"), program_said(&theirs, "/nothing"));
        ensure!(ours == theirs, "{pattern}: {ours}, but Apache's says {theirs}");
    }
    Ok(())
}

fn trash(session: &mut Session) -> Result<()> {
    let conf = session.cluster.conf().to_owned();
    let java = session.cluster.apache()?.clone();
    for user in ["ann", "bob"] {
        let home = format!("/user/{user}");
        done(session, &["-mkdir", "-p", &home])?;
        done(session, &["-touchz", &format!("{home}/.Trash"), &format!("{home}/file")])?;
        done(session, &["-chown", "-R", user, &home])?;
    }
    // An item that cannot be moved to the trash stays.
    let line = ["-D", "fs.trash.interval=60", "-rm", "file"];
    let mut theirs = java.java(&conf, "org.apache.hadoop.fs.FsShell");
    let theirs = theirs.args(line).env("HADOOP_USER_NAME", "ann").output()?;
    let ours = program(&conf, &line)?.env("HADOOP_USER_NAME", "bob").output()?;
    for (output, user) in [(&theirs, "ann"), (&ours, "bob")] {
        let said = String::from_utf8_lossy(&output.stderr);
        let why = format!("/user/{user}/.Trash (is not a directory)");
        ensure!(output.status.code() == Some(1) && said.contains(&why), "{user}: {output:?}");
        ensure!(said.contains(&format!("/user/{user}/file to trash")), "{user}: {output:?}");
        done(session, &["-test", "-f", &format!("/user/{user}/file")])?;
    }
    // The file with the trash's name is deleted permanently.
    let ours =
        program(&conf, &["-D", "fs.trash.interval=60", "-rm", ".Trash"])?.env("HADOOP_USER_NAME", "bob").output()?;
    ensure!(ours.status.success(), "{ours:?}");
    Ok(())
}

fn outputs(session: &mut Session) -> Result<()> {
    let conf = session.cluster.conf().to_owned();
    done(session, &["-mkdir", "-p", "/many"])?;
    let names: Vec<String> = (0..3000).map(|number| format!("/many/a-name-that-is-rather-long-{number}")).collect();
    for some in names.chunks(1000) {
        done(session, &[&["-touchz"][..], &some.iter().map(String::as_str).collect::<Vec<_>>()].concat())?;
    }
    let local = session.local("outputs")?;
    let large = local.join("large");
    std::fs::write(&large, vec![b'x'; 4 << 20])?;
    done(session, &["-put", &large.display().to_string(), "/large"])?;
    for line in [
        &["-ls", "/many"][..],
        &["-ls", "-R", "/many"],
        &["-find", "/many"],
        &["-cat", "/large"],
        &["-text", "/large"],
        &["-rm", "/many/*0"],
    ] {
        // The reader of its output ends without reading.
        let mut child = program(&conf, line)?.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        drop(child.stdout.take());
        let output = child.wait_with_output()?;
        ensure!(output.status.code() == Some(0) && output.stderr.is_empty(), "{line:?}: {output:?}");
    }
    // Its output was not read, but it removed all of them.
    ensure!(done(session, &["-count", "/many"])?.split_whitespace().nth(1) == Some("2700"), "not all were removed");
    for line in [&["-ls", "/many"][..], &["-cat", "/large"], &["-help"], &["-count", "/"]] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full")?;
        let output = program(&conf, line)?.stdout(full).stderr(Stdio::piped()).spawn()?.wait_with_output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.code() == Some(1) && said.contains("No space left on device"), "{line:?}: {output:?}");
        ensure!(said.lines().count() == 1, "{line:?}: said more than once: {said}");
    }
    Ok(())
}

/// Codecs of Apache's client that need only its own jars.
const CODECS: [&str; 4] = ["GzipCodec", "DefaultCodec", "BZip2Codec", "SnappyCodec"];

fn packed(session: &mut Session) -> Result<()> {
    let conf = session.cluster.conf().to_owned();
    let local = session.local("packed")?;
    let mut program = session.cluster.apache()?.our_java(&conf, "Packed")?;
    let written = program.arg(&local).args(CODECS).output()?;
    ensure!(written.status.success(), "{written:?}");
    done(session, &["-put", &local.display().to_string(), "/packed"])?;
    let mut names: Vec<String> = Vec::new();
    for entry in std::fs::read_dir(&local)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if !name.starts_with('.') {
            names.push(name);
        }
    }
    ensure!(names.len() > 25, "{names:?}");
    for name in names {
        let line = ["-text".to_owned(), format!("/packed/{name}")];
        let theirs = apache(session, &line, &local, 0)?;
        let ours = hearth(session, &line, &local, 1)?;
        ensure!(ours == theirs, "-text {name}: {ours:.3000}\nApache's: {theirs:.3000}");
        ensure!(ours[0] == 0, "{name}: {ours}");
    }
    Ok(())
}

/// `WEB` stands for `webhdfs://HOST:PORT`.
const WEB_LINES: &[&str] = &[
    "-mkdir -p WEBDIR/w/sub",
    "-mkdir WEBDIR/w/sub",
    "-mkdir WEBDIR/w/no/such",
    "-put LOCAL/bytes WEBDIR/w/f",
    "-put LOCAL/bytes WEBDIR/w/f",
    "-put -f LOCAL/bytes WEBDIR/w/f",
    "-touchz WEBDIR/w/empty",
    "-appendToFile LOCAL/bytes WEBDIR/w/f",
    "-checksum DIR/w/f",
    "-cat WEBDIR/w/none",
    "-cat WEBDIR/w/sub",
    "-head WEBDIR/w/f",
    "-tail WEBDIR/w/f",
    "-text WEBDIR/w/empty",
    "-stat %n,%b,%o,%r,%F WEBDIR/w/f WEBDIR/w/sub",
    "-test -e WEBDIR/w/none",
    "-test -w WEBDIR/w/f",
    "-count WEBDIR/w",
    "-du -s WEBDIR/w",
    "-find WEBDIR/w",
    "-ls -C WEBDIR/w",
    "-ls -C WEBDIR/w/*",
    "-ls WEBDIR/w/none",
    "-ls -C WEBDIR/w/{}",
    "-cp WEBDIR/w/f WEBDIR/w/sub",
    "-cp WEBDIR/w/f DIR/w/copy",
    "-get WEBDIR/w/f LOCALDIR",
    "-mv WEBDIR/w/f WEBDIR/w/g",
    "-mv WEBDIR/w/g DIR/w/h",
    "-chmod 640 WEBDIR/w/g",
    "-chown ann:staff WEBDIR/w/g",
    "-setrep 1 WEBDIR/w/g",
    "-setfacl -m user:bruce:rwx,group::r-x WEBDIR/w/g",
    "-getfacl WEBDIR/w/g",
    "-setfattr -n user.note -v plain WEBDIR/w/g",
    "-getfattr -n user.note WEBDIR/w/g",
    "-setfattr -x user.note WEBDIR/w/g",
    "-truncate 100 WEBDIR/w/copy",
    "-rm -skipTrash WEBDIR/w/sub",
    "-rm -r -skipTrash WEBDIR/w/sub WEBDIR/w/none",
    "-rmdir WEBDIR/w",
    "-find DIR/w",
];

fn over_http(session: &mut Session) -> Result<()> {
    let local = session.local("web")?;
    // Longer than a piece, and than a packet.
    std::fs::write(local.join("bytes"), (0..700_001_u32).map(|at| (at >> 3) as u8 & 63 | 64).collect::<Vec<_>>())?;
    let web = format!("webhdfs://127.0.0.1:{}", session.cluster.namenode_http_port());
    let lines: Vec<String> = WEB_LINES.iter().map(|line| line.replace("WEB", &web)).collect();
    let lines: Vec<String> =
        lines.iter().map(|line| line.replace("LOCAL/", &format!("{}/", local.display()))).collect();
    said_alike(session, &local, &lines.iter().map(String::as_str).collect::<Vec<_>>())
}

const VIEW_LINES: &[&str] = &[
    "-ls -C viewfs://c/",
    "-ls -d viewfs://c/ viewfs://c/up",
    "-ls -C viewfs://c/up",
    "-ls -C viewfs://c/up/hereDIR",
    "-mkdir viewfs://c/up/hereDIR/v",
    "-touchz viewfs://c/up/hereDIR/v/f",
    "-ls -C viewfs://c/up/hereDIR/v/*",
    "-find viewfs://c/up/hereDIR/v",
    "-stat %n viewfs://c/up/hereDIR/v/f",
    "-cat viewfs://c/none",
    "-ls viewfs://c/up/none",
    "-mv viewfs://c/up/hereDIR/v/f viewfs://c/up/hereDIR/v/g",
    "-rm -r -skipTrash viewfs://c/up/hereDIR/v",
    "-ls viewfs://other/",
];

fn mounted(session: &mut Session) -> Result<()> {
    let local = session.local("views")?;
    let uri = session.cluster.uri().to_owned();
    let here = format!("{}/", uri.trim_end_matches('/'));
    let keys =
        [("fs.viewfs.mounttable.c.link./up/here", here.as_str()), ("fs.viewfs.mounttable.c.link./tmp", "file:///tmp")];
    let conf = session.cluster.conf_with("views", &keys)?;
    let mut java = Driver::java(session.cluster.apache()?, &conf)?;
    for directory in DIRECTORIES {
        done(session, &["-mkdir", "-p", directory])?;
    }
    said_alike_by(&mut java, &conf, &local, VIEW_LINES)
}

const ARCHIVE_LINES: &[&str] = &[
    "-ls -C har:///a.har",
    "-ls har:///a.har/d",
    "-ls -R -C har:///a.har",
    "-ls -C har:///a.har/d/*",
    "-cat har:///a.har/d/a+b",
    "-cat har:///a.har/d/f",
    "-cat har:///a.har/d/f har:///a.har/d/none",
    "-stat %n,%b,%F har:///a.har/d/f",
    "-find har:///a.har -name f",
    "-cp har:///a.har/d/f DIR/from-archive",
    "-cat DIR/from-archive",
    "-ls har:///none.har",
    "-ls har:///none",
];

fn archived(session: &mut Session) -> Result<()> {
    let local = session.local("archives")?;
    let archive = local.join("a.har");
    std::fs::create_dir_all(&archive)?;
    let index = "%2F dir 1700000000000+493+ann+g 0 0 d \n%2Fd dir 1700000000000+493+ann+g 0 0 f empty \n\
                 %2Fd%2Ff file part-0 3 5 1700000000000+420+ann+g \n%2Fd%2Fempty file part-0 8 0 1700000000000+420+ann+g \n";
    std::fs::write(archive.join("_index"), index)?;
    std::fs::write(archive.join("_masterindex"), format!("3 \n0 2147483647 0 {} \n", index.len()))?;
    std::fs::write(archive.join("part-0"), "xyzbytesmore")?;
    done(session, &["-put", &archive.display().to_string(), "/a.har"])?;
    for directory in DIRECTORIES {
        done(session, &["-mkdir", "-p", directory])?;
    }
    said_alike(session, &local, ARCHIVE_LINES)
}

fn proxied(session: &mut Session) -> Result<()> {
    let (conf, java) = (session.cluster.conf().to_owned(), session.cluster.apache()?.clone());
    done(session, &["-mkdir", "-p", "/user/zoe"])?;
    done(session, &["-chown", "zoe", "/user/zoe"])?;
    // User ann may not act for others: both programs get this answer from the NameNode.
    let line = ["-touchz", "/user/zoe/file"];
    let as_ann = |command: &mut Command| {
        Ok::<_, anyhow::Error>(command.env("HADOOP_USER_NAME", "ann").env("HADOOP_PROXY_USER", "zoe").output()?)
    };
    let theirs = as_ann(java.java(&conf, "org.apache.hadoop.fs.FsShell").args(line))?;
    let ours = as_ann(&mut program(&conf, &line)?)?;
    for output in [&theirs, &ours] {
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(1), "{output:?}");
        ensure!(said.contains("User: ann is not allowed to impersonate zoe"), "{said}");
    }
    // An empty value does not mean the user of the process.
    for line in [&["fs", "-ls", "/"][..], &["fsck", "/"], &["admin", "-safemode", "get"]] {
        let mut command = Command::new(hearth_program()?);
        let output = command.args(line).env("HADOOP_CONF_DIR", &conf).env("HADOOP_PROXY_USER", "").output()?;
        ensure!(!output.status.success(), "{line:?}: {output:?}");
        ensure!(String::from_utf8_lossy(&output.stderr).contains("HADOOP_PROXY_USER"), "{line:?}: {output:?}");
    }
    Ok(())
}

fn kerberos(session: &mut Session) -> Result<()> {
    let conf = session.cluster.conf().to_owned();
    for line in [
        &["fs", "-D", "hadoop.security.authentication=kerberos", "-ls", "/"][..],
        &["fs", "-D", "hadoop.security.authentication=kerberos", "-rm", "-r", "/kept"],
        &["fsck", "-D", "hadoop.security.authentication=kerberos", "/"],
        &["admin", "-D", "hadoop.security.authentication=KERBEROS", "-report"],
    ] {
        let output = Command::new(hearth_program()?).args(line).env("HADOOP_CONF_DIR", &conf).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(!output.status.success() && said.contains("hadoop.security.authentication"), "{line:?}: {output:?}");
    }
    Ok(())
}

/// Runs `hdfs dfs LINE`, which must succeed, in the shared JVM. Returns its standard output.
fn done(session: &mut Session, line: &[&str]) -> Result<String> {
    let arguments = json!({"class": "org.apache.hadoop.fs.FsShell", "arguments": line});
    let answer = session.java()?.call("tool", arguments)?;
    ensure!(answer["code"] == 0, "{line:?}: {answer}");
    Ok(answer["out"].as_str().unwrap_or_default().to_owned())
}

/// `hearth fs LINE`
fn program(conf: &Path, line: &[&str]) -> Result<Command> {
    let mut command = Command::new(hearth_program()?);
    command.arg("fs").args(line).env("HADOOP_CONF_DIR", conf).stdin(Stdio::null());
    command.env_remove("HADOOP_USER_NAME").env_remove("HADOOP_PROXY_USER");
    Ok(command)
}

/// Compares output, error message and exit code of each line by `hdfs dfs` and by `hearth fs`.
fn said_alike(session: &mut Session, local: &Path, lines: &[&str]) -> Result<()> {
    let conf = session.cluster.conf().to_owned();
    said_alike_by(session.java()?, &conf, local, lines)
}

fn said_alike_by(java: &mut Driver, conf: &Path, local: &Path, lines: &[&str]) -> Result<()> {
    let mut failures = Vec::new();
    for line in lines {
        let words = |nth: usize| -> Vec<String> {
            let own = format!("{}{}", local.display(), DIRECTORIES[nth]);
            let words = line.split(' ').map(|word| word.replace("LOCALDIR", &own).replace("DIR", DIRECTORIES[nth]));
            words.collect()
        };
        let theirs = apache_by(java, &words(0), local, 0)?;
        let ours = hearth_by(conf, &words(1), local, 1)?;
        if ours != theirs {
            failures.push(format!("{line}\n  Apache: {theirs}\n  Hearth: {ours}"));
        }
    }
    ensure!(failures.is_empty(), "{} of {} lines differ:\n{}", failures.len(), lines.len(), failures.join("\n"));
    Ok(())
}

fn apache(session: &mut Session, words: &[String], local: &Path, nth: usize) -> Result<Value> {
    apache_by(session.java()?, words, local, nth)
}

fn apache_by(java: &mut Driver, words: &[String], local: &Path, nth: usize) -> Result<Value> {
    let said = tool_said(java, "org.apache.hadoop.fs.FsShell", words, &local.display().to_string())?;
    Ok(comparable(said, nth))
}

fn hearth(session: &mut Session, words: &[String], local: &Path, nth: usize) -> Result<Value> {
    hearth_by(session.cluster.conf(), words, local, nth)
}

fn hearth_by(conf: &Path, words: &[String], local: &Path, nth: usize) -> Result<Value> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let output: Output = program(conf, &words)?.output().context("hearth fs")?;
    Ok(comparable(program_said(&output, &local.display().to_string()), nth))
}

/// Removes the name of the shell's own directory, and of an error message the list of all commands. Java's -1 becomes
/// the shell's 255.
fn comparable(said: Value, nth: usize) -> Value {
    let text = said.to_string().replace(DIRECTORIES[nth], "DIR");
    let mut said: Value = serde_json::from_str(&text).unwrap_or_default();
    if said[0] == -1 {
        said[0] = 255.into();
    }
    if let Some((complaint, _)) = said[2].as_str().and_then(|text| text.split_once("Usage: hadoop fs")) {
        said[2] = complaint.into();
    }
    said
}
