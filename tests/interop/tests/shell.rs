//! `hearth fs` beside `hdfs dfs`: the same command lines, the same output and exit codes.

use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
use hearth_interop::{Check, Session, Suite, run, slow};
use hearth_testkit::{ClusterSpec, Make, hearth_program};

const CHECKS: &[Check] = &[("acls_and_attributes_are_changed_and_shown_alike", acls_and_attributes)];

fn main() -> ExitCode {
    let makes: &[Make] = if slow() { &[Make::Apache, Make::Hearth] } else { &[Make::Hearth] };
    let clusters = makes.iter().map(|make| ClusterSpec::new(*make, *make).set("dfs.replication", 1)).collect();
    run(&[Suite { name: "shell", clusters, checks: CHECKS }])
}

/// Below a directory of each shell's own, `DIR`.
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
    // What goes wrong.
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
    // One of a file: Apache's order of several is a hash map's.
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
    let conf = session.cluster.conf().to_owned();
    let apache = session.cluster.apache()?;
    for directory in ["/apache", "/hearth"] {
        let (sub, file) = (format!("{directory}/sub"), format!("{directory}/file"));
        apache.fs(&conf, ["-mkdir", "-p", &sub])?.success()?;
        apache.fs(&conf, ["-touchz", &file])?.success()?;
    }
    let mut failures = Vec::new();
    for line in LINES {
        let words =
            |directory: &str| -> Vec<String> { line.split(' ').map(|word| word.replace("DIR", directory)).collect() };
        let theirs = apache.fs(&conf, words("/apache"))?;
        let ours = Command::new(hearth_program()?)
            .arg("fs")
            .args(words("/hearth"))
            .env("HADOOP_CONF_DIR", &conf)
            .output()
            .context("hearth fs")?;
        let said = |stdout: &str, stderr: &str, directory: &str| {
            // Log lines and the list of all commands aside.
            let reason =
                stderr.lines().find(|line| line.starts_with('-') || line.contains("fattr:") || line.contains("facl:"));
            format!("{stdout}{}", reason.unwrap_or_default()).replace(directory, "DIR")
        };
        let theirs = (theirs.code, said(&theirs.stdout, &theirs.stderr, "/apache"));
        let (stdout, stderr) = (String::from_utf8_lossy(&ours.stdout), String::from_utf8_lossy(&ours.stderr));
        let ours = (ours.status.code().unwrap_or(-1), said(&stdout, &stderr, "/hearth"));
        if ours != theirs {
            failures.push(format!("{line}\n  Apache: {theirs:?}\n  Hearth: {ours:?}"));
        }
    }
    ensure!(failures.is_empty(), "{} of {} lines differ:\n{}", failures.len(), LINES.len(), failures.join("\n"));
    Ok(())
}
