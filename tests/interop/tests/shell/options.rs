//! Every option of every command, on the same command lines with `hdfs dfs` and with `hearth fs`.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use hearth_interop::{Session, program_said, tool_said};
use serde_json::Value;

use super::{DFS_ADMIN, FS_SHELL, done, hearth, words};

/// Directories of `hdfs dfs` and of `hearth fs`. Those of the other checks have quotas and snapshots.
const OWN: [&str; 2] = ["/options-a", "/options-h"];

/// `DIR`: a separate directory for each shell. `LOCALDIR`: a local one, with `one` and `two` (files) and `tree` (a
/// directory of some).
pub const OPTION_LINES: &[&str] = &[
    "-mkdir -p DIR/o/sub/deep",
    "-mkdir -p DIR/o/sub",
    "-put -f -p -l -d LOCALDIR/one DIR/o/one",
    "-copyFromLocal -f -p -l -d LOCALDIR/two DIR/o/two",
    "-put -t x LOCALDIR/one DIR/o/wrong",
    "-put -t 2 -q y LOCALDIR/one DIR/o/wrong",
    "-put -t 3 -q 2 LOCALDIR/tree DIR/o/tree",
    "-copyFromLocal -t 0 -q 0 LOCALDIR/tree DIR/o/tree2",
    "-put -t 3 LOCALDIR/tree DIR/o/one",
    "-find DIR/o",
    "-moveFromLocal -t 3 LOCALDIR/moved DIR/o/moved",
    "-moveFromLocal -f -p -l -d -q 3 LOCALDIR/moved DIR/o/moved",
    "-cp -f -d -t 2 -q 3 DIR/o/one DIR/o/two DIR/o/sub",
    "-cp DIR/o/one DIR/o/kept -p",
    "-cp -t 2 DIR/o/tree DIR/o/sub/deep DIR/o/tree2",
    "-cp -f DIR/o/one DIR/o/sub/one",
    "-find DIR/o",
    // An owner and a group that exist on this machine.
    "-chown root:root DIR/o/one",
    "-get -f -p -crc DIR/o/one LOCALDIR/crc",
    "-copyToLocal -f -p -crc DIR/o/one LOCALDIR/crc2",
    "-get -t 3 -q 2 DIR/o/tree LOCALDIR/got",
    "-copyToLocal -t 3 -q 2 DIR/o/tree LOCALDIR/got2",
    "-get -ignoreCrc DIR/o/one LOCALDIR/ignored",
    "-copyToLocal -ignoreCrc DIR/o/one LOCALDIR/ignored2",
    "-ls -C file://LOCALDIR",
    "-ls -C file://LOCALDIR/got/a file://LOCALDIR/got2/b",
    "-put -f LOCALDIR/crc DIR/o/again",
    "-touch -t 20260102:030405 DIR/o/one",
    "-touch -a DIR/o/one -t 20260304:050607",
    "-touch -m -t 20260203:040506 DIR/o/two",
    "-touch -a -m -t 20260505:010203 DIR/o/sub/one",
    "-touch -c DIR/o/none",
    "-touch DIR/o/one -t",
    "-stat %n,%y,%x DIR/o/one DIR/o/sub/one",
    "-stat %n,%y DIR/o/two",
    "-stat -R %n,%F,%b,%r,%o DIR/o",
    "-stat -R DIR/o/none",
    "-ls DIR/o",
    "-ls -C DIR/o",
    "-ls -d DIR/o",
    "-ls -h DIR/o",
    "-ls -q DIR/o",
    "-ls -R DIR/o",
    "-ls -t DIR/o",
    "-ls -S DIR/o",
    "-ls -r DIR/o",
    "-ls -u DIR/o/sub",
    "-ls -e DIR/o",
    "-ls -z DIR/o",
    "-lsr DIR/o/sub",
    "-lsr -C -R DIR/o/sub",
    "-lsr -d DIR/o/sub",
    "-lsr -h -q DIR/o/sub",
    "-lsr -u -e DIR/o/sub",
    "-lsr -t -S -r DIR/o/sub/deep",
    "-du -s -h -v DIR/o",
    "-du -h DIR/o",
    "-dus -h -v -s DIR/o",
    "-du -v DIR/o/snap",
    "-du -x -v DIR/o/snap",
    "-du -s -x DIR/o/snap",
    "-dus -x DIR/o/snap",
    "-count -x -v DIR/o/snap",
    "-count -q -h -v DIR/o",
    "-count -u -e -s DIR/o/snap",
    "-count -q -t ssd DIR/o",
    "-cat -ignoreCrc DIR/o/one",
    "-text -ignoreCrc DIR/o/one",
    "-checksum -v DIR/o/one",
    "-test -e DIR/o/one",
    "-test -d DIR/o/one",
    "-test -f DIR/o/one",
    "-test -s DIR/o/one",
    "-test -z DIR/o/one",
    "-test -w DIR/o/one",
    "-test -r DIR/o/one",
    "-test -e -d DIR/o",
    "-test DIR/o",
    "-tail -s 100 DIR/o/one",
    "-tail -s x DIR/o/one",
    "-find -L DIR/o/sub -name o*",
    "-find -H DIR/o/sub -iname O*",
    "-find DIR/o/sub -print -name o*",
    "-find DIR/o/sub -name o* -print -a -print",
    "-find DIR/o/sub -size 5",
    "-appendToFile -n LOCALDIR/one DIR/o/two",
    "-stat %b DIR/o/two",
    "-truncate -w 10 DIR/o/two",
    "-getmerge -nl DIR/o/tree/a LOCALDIR/merged",
    "-cat file://LOCALDIR/merged",
    "-getmerge -nl -skip-empty-file DIR/o/tree/a LOCALDIR/merged",
    "-cat file://LOCALDIR/merged",
    "-chmod -R 750 DIR/o/sub",
    "-chown -R ann DIR/o/sub",
    "-chgrp -R crew DIR/o/sub",
    "-ls -R DIR/o/sub",
    "-setrep -R 2 DIR/o/sub",
    "-setfattr DIR/o/one -n user.a -v x",
    "-getfattr DIR/o/one -d",
    "-getfattr DIR/o/one -n user.a -e hex",
    "-getfattr -R -d DIR/o/sub",
    "-setfattr DIR/o/one -x user.a",
    "-getfattr DIR/o/one -n",
    "-setfacl -m user:ann:r-- DIR/o/one",
    "-setfacl -x user:ann DIR/o/one",
    "-setfacl -b DIR/o/one",
    "-setfacl -k DIR/o/sub",
    "-setfacl --set user::rw-,group::r--,other::--- DIR/o/one",
    "-setfacl -R -m group:crew:r-x DIR/o/sub",
    "-getfacl -R DIR/o/sub",
    "-rmdir --ignore-fail-on-non-empty DIR/o/sub",
    "-rm -f DIR/o/none",
    "-rm -skipTrash DIR/o/kept",
    "-rm -r -skipTrash DIR/o/tree2",
    "-rm -R DIR/o/sub/deep",
    "-rmr -f DIR/o/none",
    "-rmr -r -R -skipTrash DIR/o/sub",
    "-ls -C DIR/o",
];

/// Lines whose output differs between runs: only the exit codes are compared.
pub const CODE_LINES: &[&str] = &["-df -h /", "-expunge -immediate", "-expunge -fs file:///"];

/// Options whose commands prompt, wait, or never end.
const NOT_RUN: &[&str] = &["rm -safely", "rmr -safely", "tail -f"];

pub fn options(session: &mut Session) -> Result<()> {
    let local = session.local("options")?;
    for directory in OWN {
        let own = local.join(directory.trim_start_matches('/'));
        prepare(&own)?;
        let snapped = format!("{directory}/o/snap");
        session.tool(FS_SHELL, &["-rm", "-r", "-f", "-skipTrash", &format!("{directory}/o")])?;
        done(session, &["-mkdir", "-p", &format!("{snapped}/below")])?;
        let one = own.join("one");
        for name in ["kept", "gone", "below/gone"] {
            done(session, &["-put", one.to_str().context("text")?, &format!("{snapped}/{name}")])?;
        }
        session.tool(DFS_ADMIN, &["-allowSnapshot", &snapped])?.success()?;
        done(session, &["-createSnapshot", &snapped, "one"])?;
        for name in ["gone", "below/gone"] {
            done(session, &["-rm", "-skipTrash", &format!("{snapped}/{name}")])?;
        }
    }
    let mut differing = Vec::new();
    for line in OPTION_LINES {
        let (theirs, ours) = said(session, &local, line)?;
        if theirs != ours {
            differing.push(format!("{line}\n  Apache: {theirs}\n  Hearth: {ours}"));
        }
    }
    for line in CODE_LINES {
        let (theirs, ours) = said(session, &local, line)?;
        if theirs[0] != ours[0] {
            differing.push(format!("{line}\n  Apache: {theirs}\n  Hearth: {ours}"));
        }
    }
    // The checksum files are byte-identical.
    for name in [".crc.crc", ".crc2.crc"] {
        let [theirs, ours] = OWN.map(|own| std::fs::read(local.join(&own[1..]).join(name)));
        ensure!(theirs? == ours?, "{name} differs");
    }
    ensure!(differing.is_empty(), "{} lines differ:\n{}", differing.len(), differing.join("\n"));
    Ok(())
}

/// Makes the local files of one of the shells.
fn prepare(own: &Path) -> Result<()> {
    for directory in ["tree/a", "tree/b"] {
        std::fs::create_dir_all(own.join(directory))?;
    }
    let files = [("one", 5000), ("two", 700), ("moved", 3), ("tree/a/1", 40), ("tree/a/2", 0), ("tree/b/3", 9)];
    for ((name, bytes), second) in files.into_iter().zip(1_700_000_000..) {
        let text: String = (0..bytes).map(|at| if at % 20 == 19 { '\n' } else { 'x' }).collect();
        std::fs::write(own.join(name), text)?;
        // Some commands keep it, and lists are sorted by it.
        let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(second);
        File::options().write(true).open(own.join(name))?.set_modified(modified)?;
    }
    Ok(())
}

/// Returns exit code, output and the first line of the error output, of Apache's shell and of Hearth's.
fn said(session: &mut Session, local: &Path, line: &str) -> Result<(Value, Value)> {
    let conf = session.cluster.conf().to_owned();
    let text = local.to_str().context("a path of text")?;
    let line = line.replace("LOCALDIR", &format!("{text}DIR"));
    let theirs = tool_said(session.java()?, FS_SHELL, &words(&line, OWN[0]), text)?;
    let ours = program_said(&hearth(&conf, words(&line, OWN[1]))?, text);
    let of = |said: Value, directory: &str| -> Result<Value> {
        let said: Value = serde_json::from_str(&said.to_string().replace(directory, "DIR"))?;
        // After the reason the usage follows, with different words in each program.
        let complaint = said[2].as_str().unwrap_or_default();
        let reason = complaint.split("Usage: ").next().unwrap_or_default();
        // Java's -1.
        let code = said[0].as_i64().map(|code| code & 0xff);
        Ok(serde_json::json!([code, said[1], reason]))
    };
    Ok((of(theirs, OWN[0])?, of(ours, OWN[1])?))
}

/// The page of options for operators.
const PAGE: &str = include_str!("../../../../docs/compatibility/fs-options.md");

/// Returns command and option of each row of the page whose third cell is `beside`.
fn rows(beside: &str) -> BTreeSet<(String, String)> {
    let rows = PAGE.lines().filter(|line| line.contains("| `-"));
    let cells = rows.map(|row| row.trim_matches('|').split(" | ").map(str::trim).collect::<Vec<_>>());
    let wanted = cells.filter(|cells| cells[2].starts_with(beside));
    wanted.map(|cells| (cells[0].to_owned(), cells[1].trim_matches('`').to_owned())).collect()
}

/// Checks that the page has every option of Apache's usage, and that a line compares each option that the page calls
/// Apache's.
pub fn told(session: &mut Session) -> Result<()> {
    let usage = done(session, &["-usage"])?;
    let (theirs, ours): (BTreeSet<_>, BTreeSet<_>) = (rows("as Apache's"), rows("ours"));
    let theirs: BTreeSet<_> = theirs.into_iter().chain(rows("differs")).collect();
    let mut commands = BTreeSet::new();
    let mut wrong = Vec::new();
    for line in usage.lines().filter_map(|line| line.strip_prefix("\t[-")) {
        let mut line_words = line.split([' ', '[', ']', '|', '{', '}', '(', ')']).filter(|word| !word.is_empty());
        let command = line_words.next().context("a command")?.to_owned();
        for option in line_words.filter(|word| word.starts_with('-')) {
            // `-defswrz` stands for any one of these flags.
            let options: Vec<String> = match (command.as_str(), option) {
                ("test", letters) => letters[1..].chars().map(|letter| format!("-{letter}")).collect(),
                (_, option) => vec![option.to_owned()],
            };
            for option in options {
                if !theirs.contains(&(command.clone(), option.clone())) {
                    wrong.push(format!("-{command} {option} of Apache's usage is not in the table"));
                }
                if ours.contains(&(command.clone(), option.clone())) {
                    wrong.push(format!("-{command} {option} is Apache's, too"));
                }
            }
        }
        commands.insert(command);
    }
    ensure!(commands.len() > 30, "Apache's usage was not understood: {usage}");
    for command in &commands {
        let named = PAGE.contains(&format!("| {command} | "))
            || PAGE.contains(&format!(" {command},"))
            || PAGE.contains(&format!(" {command}."));
        if !named {
            wrong.push(format!("-{command} is not in the table"));
        }
    }
    let lines: Vec<Vec<&str>> =
        super::ALL_LINES.iter().flat_map(|lines| lines.iter()).map(|line| line.split(' ').collect()).collect();
    for (command, option) in rows("as Apache's") {
        let is_run = lines.iter().any(|words| {
            // Generic options may stand before the command.
            let Some(at) = words.iter().position(|word| *word == format!("-{command}")) else { return false };
            words[at + 1..].iter().any(|word| *word == option || option == "-p" && word.starts_with("-p"))
        });
        if !is_run && !NOT_RUN.contains(&format!("{command} {option}").as_str()) {
            wrong.push(format!("no line compares -{command} {option}"));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}
