//! The table of commands: names, options, usage.

use super::failure::Failure;
use super::options::{ANY, Arguments, Format};
use super::shell::Shell;

pub struct Command {
    pub name: &'static str,
    pub format: Format,
    /// Text behind the name in usage lines.
    pub takes: &'static str,
    /// Description for `-help`.
    pub about: &'static str,
    /// The command to use instead.
    pub deprecated_for: Option<&'static str>,
}

impl Command {
    const fn new(name: &'static str, format: Format, takes: &'static str, about: &'static str) -> Self {
        Self { name, format, takes, about, deprecated_for: None }
    }

    const fn deprecated(mut self, instead: &'static str) -> Self {
        self.deprecated_for = Some(instead);
        self
    }

    pub fn usage(&self) -> String {
        format!("-{} {}", self.name, self.takes).trim_end().to_owned()
    }
}

const LS_FLAGS: &[&str] = &["C", "d", "h", "q", "R", "t", "S", "r", "u", "e"];
const LS: &str = "[-C] [-d] [-h] [-q] [-R] [-t] [-S] [-r] [-u] [-e] [<path> ...]";
const DU_FLAGS: &[&str] = &["s", "h", "v", "x"];
const DU: &str = "[-s] [-h] [-v] [-x] <path> ...";
const RM_FLAGS: &[&str] = &["f", "r", "R", "skipTrash", "safely"];
const RM: &str = "[-f] [-r|-R] [-skipTrash] [-safely] <src> ...";
const PUT_FLAGS: &[&str] = &["f", "p", "l", "d", "v"];
const GET_FLAGS: &[&str] = &["f", "p", "crc", "ignoreCrc", "v"];
const THREADS: &[&str] = &["t", "q"];
const PUT: &str = "[-f] [-p] [-l] [-d] [-v] [-t <thread count>] [-q <thread pool queue size>] <localsrc> ... <dst>";
const GET: &str =
    "[-f] [-p] [-crc] [-ignoreCrc] [-v] [-t <thread count>] [-q <thread pool queue size>] <src> ... <localdst>";

/// All commands, sorted by name.
pub const COMMANDS: &[Command] = &[
    Command::new(
        "appendToFile",
        Format::new(2, ANY, &["n"]),
        "[-n] <localsrc> ... <dst>",
        "Appends local files, or standard input (-), to a file, which is created if missing. -n: each starts a new block.",
    ),
    Command::new(
        "cat",
        Format::new(1, ANY, &["ignoreCrc", "v"]),
        "[-ignoreCrc] [-v] <src> ...",
        "Prints files. -ignoreCrc: without verifying checksums; -v: then prints on standard error how many bytes each path carried.",
    ),
    Command::new(
        "checksum",
        Format::new(1, ANY, &["v"]),
        "[-v] <src> ...",
        "Prints checksums of files. -v: with the block size.",
    ),
    Command::new(
        "chgrp",
        Format::new(2, ANY, &["R"]),
        "[-R] GROUP PATH...",
        "Changes the group. -R: also of everything below.",
    ),
    Command::new(
        "chmod",
        Format::new(2, ANY, &["R"]).with_unknown(),
        "[-R] <MODE[,MODE]... | OCTALMODE> PATH...",
        "Changes permissions. -R: also of everything below. Modes as in chmod: u+rwX,o-rwx, 1777.",
    ),
    Command::new(
        "chown",
        Format::new(2, ANY, &["R"]),
        "[-R] [OWNER][:[GROUP]] PATH...",
        "Changes owner and group. -R: also of everything below.",
    ),
    Command::new(
        "concat",
        Format::new(2, ANY, &[]),
        "<target path> <src path> <src path> ...",
        "Appends files to the first one without copying, and removes them.",
    ),
    Command::new("copyFromLocal", Format::new(1, ANY, PUT_FLAGS).with_values(THREADS), PUT, "Like -put."),
    Command::new("copyToLocal", Format::new(1, ANY, GET_FLAGS).with_values(THREADS), GET, "Like -get."),
    Command::new(
        "count",
        Format::new(1, ANY, &["q", "h", "v", "x", "u", "e", "s"]).with_values(&["t"]),
        "[-q] [-h] [-v] [-t [<storage type>]] [-u] [-x] [-e] [-s] <path> ...",
        "Counts directories, files and bytes. -q: quotas first; -u: only quotas; -h: human-readable sizes; -v: a header; \
         -e: erasure-coding policy.",
    ),
    Command::new(
        "cp",
        Format::new(2, ANY, &["f", "d"]).with_values(THREADS).with_letters("p"),
        "[-f] [-p | -p[topax]] [-d] [-t <thread count>] [-q <thread pool queue size>] <src> ... <dst>",
        "Copies. -f: replaces; -p: preserves times, owner and permission, or the attributes named by its letters, also ACLs (a) and \
         extended attributes (x); -d: without a temporary file.",
    ),
    Command::new(
        "createSnapshot",
        Format::new(0, ANY, &[]),
        "<snapshotDir> [<snapshotName>]",
        "Creates a snapshot of a snapshottable directory.",
    ),
    Command::new(
        "deleteSnapshot",
        Format::new(0, ANY, &[]),
        "<snapshotDir> <snapshotName>",
        "Deletes a snapshot, with all data that only it contains.",
    ),
    Command::new("df", Format::new(0, ANY, &["h"]), "[-h] [<path> ...]", "Prints size and free space of file systems."),
    Command::new(
        "du",
        Format::new(0, ANY, DU_FLAGS),
        DU,
        "Prints the size of files, and the space of all their replicas. -s: one sum each; -h: human-readable sizes; -v: a header; -x: \
         without data that only snapshots contain.",
    ),
    Command::new("dus", Format::new(0, ANY, DU_FLAGS), DU, "Like -du -s.").deprecated("du -s"),
    Command::new(
        "expunge",
        Format::new(0, 2, &["immediate"]).with_values(&["fs"]),
        "[-immediate] [-fs <path>]",
        "Makes a checkpoint of the trash and removes those older than fs.trash.interval. -immediate: removes all of them.",
    ),
    Command::new(
        "find",
        Format::new(0, ANY, &["L", "H"]).with_unknown(),
        "<path> ... <expression> ...",
        "Finds paths. Expressions: -name PATTERN, -iname PATTERN, -print, -print0, joined by -a or -and, with ( and ) around them. -L, \
         -H: follow symbolic links; HDFS has none, and local ones are always followed.",
    ),
    Command::new(
        "get",
        Format::new(1, ANY, GET_FLAGS).with_values(THREADS),
        GET,
        "Copies to the local file system. -f: replaces; -p: preserves times, owner, permission; -crc: writes a checksum file .NAME.crc \
         beside each; -ignoreCrc: takes the bytes as they are stored; -t, -q: so many files at a time, so many waiting; -v: says which \
         path carried how many bytes.",
    ),
    Command::new(
        "getfacl",
        Format::new(0, ANY, &["R"]),
        "[-R] <path>",
        "Prints the access control list. -R: also of everything below.",
    ),
    Command::new(
        "getfattr",
        Format::new(0, ANY, &[]).with_values_anywhere(&["n", "e"]).with_flags_anywhere(&["R", "d"]).with_unknown(),
        "[-R] {-n name | -d} [-e en] <path>",
        "Prints extended attributes: the named one, or all (-d). -e: values as text, hex or base64; -R: also of everything below.",
    ),
    Command::new(
        "getmerge",
        Format::new(2, ANY, &["nl", "skip-empty-file"]),
        "[-nl] [-skip-empty-file] <src> <localdst>",
        "Copies the files of directories into one local file. -nl: a newline after each.",
    ),
    Command::new("head", Format::new(1, 1, &[]), "<file>", "Prints the first KiB."),
    Command::new("help", Format::new(0, ANY, &[]), "[cmd ...]", "Prints descriptions of commands."),
    Command::new(
        "ls",
        Format::new(0, ANY, LS_FLAGS),
        LS,
        "Lists. -C: paths only; -d: directories themselves; -h: human-readable sizes; -R: everything below; -t, -S: sorted by time, by \
         size; -r: reverse order; -u: access times; -e: erasure-coding policy; -q: ? for characters that cannot be printed.",
    ),
    Command::new("lsr", Format::new(0, ANY, LS_FLAGS), LS, "Like -ls -R.").deprecated("ls -R"),
    Command::new(
        "mkdir",
        Format::new(1, ANY, &["p"]),
        "[-p] <path> ...",
        "Creates directories. -p: also missing parents; no error if they exist.",
    ),
    Command::new(
        "moveFromLocal",
        // Copies one file at a time: Hadoop rejects -t, and -q has no effect without it.
        Format::new(1, ANY, PUT_FLAGS).with_values(&["q"]),
        "[-f] [-p] [-l] [-d] [-v] <localsrc> ... <dst>",
        "Like -put, one file at a time; copied files are removed. Directories are not merged with existing ones.",
    ),
    Command::new(
        "moveToLocal",
        Format::new(1, ANY, &["f", "p", "crc"]),
        "[-f] [-p] [-crc] <src> ... <localdst>",
        "Like -get; copied files are removed. Directories are not merged with existing ones.",
    ),
    Command::new("mv", Format::new(2, ANY, &[]), "<src> ... <dst>", "Renames, or moves into a directory."),
    Command::new(
        "put",
        Format::new(1, ANY, PUT_FLAGS).with_values(THREADS),
        PUT,
        "Copies local files, or standard input (-). -f: replaces; -p: preserves times, owner, permission; -l: replication 1; -d: \
         without a temporary file; -t, -q: number of concurrent copies, of queued files; -v: prints how many bytes each path carried.",
    ),
    Command::new(
        "renameSnapshot",
        Format::new(0, ANY, &[]),
        "<snapshotDir> <oldName> <newName>",
        "Renames a snapshot.",
    ),
    Command::new(
        "rm",
        Format::new(1, ANY, &["f", "r", "R", "skipTrash", "safely"]),
        "[-f] [-r|-R] [-skipTrash] [-safely] <src> ...",
        "Deletes. -f: ignores missing files; -r: directories; -skipTrash: permanently; -safely: asks before it \
         deletes more files than hadoop.shell.safely.delete.limit.num.files.",
    ),
    Command::new(
        "rmdir",
        Format::new(1, ANY, &["-ignore-fail-on-non-empty"]),
        "[--ignore-fail-on-non-empty] <dir> ...",
        "Removes empty directories.",
    ),
    Command::new("rmr", Format::new(1, ANY, RM_FLAGS), RM, "Like -rm -r.").deprecated("-rm -r"),
    Command::new(
        "setfacl",
        Format::new(0, ANY, &["b", "k", "R", "m", "x", "-set"]),
        "[-R] [{-b|-k} {-m|-x <acl_spec>} <path>]|[--set <acl_spec> <path>]",
        "Changes the access control list: -b removes all but the mode, -k the defaults, -x the named entries; -m adds or changes \
         entries, --set replaces all of them. -R: also of everything below. Entries: [default:]user|group|mask|other:[name]:rwx,...",
    ),
    Command::new(
        "setfattr",
        Format::new(0, ANY, &[]).with_values_anywhere(&["n", "v", "x"]).with_unknown(),
        "{-n name [-v value] | -x name} <path>",
        "Sets an extended attribute (-n, -v), or removes it (-x). Values: text, \"text\", 0x and hexadecimal, 0s and base64.",
    ),
    Command::new(
        "setrep",
        Format::new(2, ANY, &["R", "w"]),
        "[-R] [-w] <rep> <path> ...",
        "Sets the replication, also of everything below. -w: waits until all blocks have it.",
    ),
    Command::new(
        "stat",
        Format::new(1, ANY, &["R"]),
        "[-R] [format] <path> ...",
        "Prints attributes, with -R also of everything below: %a %A mode, %b bytes, %F kind, %g group, %n name, %o block size, %r replication, %u owner, %x %X \
         access time, %y %Y modification time.",
    ),
    Command::new(
        "tail",
        Format::new(1, 1, &["f"]).with_values(&["s"]),
        "[-f] [-s <sleep interval>] <file>",
        "Prints the last KiB. -f: also prints data as it is appended.",
    ),
    Command::new(
        "test",
        Format::new(1, 1, &["e", "d", "f", "s", "w", "z", "r"]),
        "-[defswrz] <path>",
        "Exit code 0 if the path exists (-e), a directory (-d), a file (-f), not empty (-s), empty (-z), writable (-w), \
         readable (-r).",
    ),
    Command::new(
        "text",
        Format::new(1, ANY, &["ignoreCrc"]),
        "[-ignoreCrc] <src> ...",
        "Prints files as text. Files compressed with gzip, zlib, bzip2, LZ4, Snappy or Zstandard are unpacked; the records of \
         sequence files and Avro files are shown.",
    ),
    Command::new(
        "touch",
        Format::new(1, ANY, &["a", "m", "c"]).with_values_anywhere(&["t"]),
        "[-a] [-m] [-t TIMESTAMP (yyyyMMdd:HHmmss) ] [-c] <path> ...",
        "Sets times to now, or to -t; creates a missing file unless -c.",
    ),
    Command::new("touchz", Format::new(1, ANY, &[]), "<path> ...", "Creates empty files."),
    Command::new(
        "truncate",
        Format::new(2, ANY, &["w"]),
        "[-w] <length> <path> ...",
        "Truncates files. -w: waits until it is done.",
    ),
    Command::new("usage", Format::new(0, ANY, &[]), "[cmd ...]", "Prints usage lines."),
];

pub fn find(name: &str) -> Option<&'static Command> {
    COMMANDS.iter().find(|command| command.name == name)
}

const GENERIC: &str = "
Generic options supported are:
-conf <configuration file>        specify an application configuration file
-D <property=value>               define a value for a given property
-fs <file:///|hdfs://namenode:port> specify default filesystem URL to use, overrides 'fs.defaultFS' property from configurations.

The general command line syntax is:
command [genericOptions] [commandOptions]

";

pub fn usage_of_all() -> String {
    let mut out = String::from("Usage: hadoop fs [generic options]\n");
    for command in COMMANDS.iter().filter(|command| command.deprecated_for.is_none()) {
        out.push_str(&format!("\t[{}]\n", command.usage()));
    }
    out.push_str(GENERIC);
    out
}

/// Returns one line for each command that is not deprecated: a tab, its usage, a tab, its description.
pub fn reference() -> String {
    let current = COMMANDS.iter().filter(|command| command.deprecated_for.is_none());
    current.map(|command| format!("\t{}\t{}\n", command.usage(), command.about)).collect()
}

fn named(arguments: &Arguments) -> Result<Vec<&'static Command>, Failure> {
    let lookup = |name: &String| {
        let unknown = || Failure::Message(format!("{name}: Unknown command"));
        find(name.strip_prefix('-').unwrap_or(name)).ok_or_else(unknown)
    };
    arguments.rest.iter().map(lookup).collect()
}

pub fn usage(shell: &mut Shell, arguments: Arguments) -> Result<(), Failure> {
    if arguments.rest.is_empty() {
        shell.line(usage_of_all().trim_end_matches('\n'));
    }
    for command in named(&arguments)? {
        shell.line(format_args!("Usage: hadoop fs [generic options] {}", command.usage()));
    }
    Ok(())
}

pub fn help(shell: &mut Shell, arguments: Arguments) -> Result<(), Failure> {
    let mut commands = named(&arguments)?;
    if commands.is_empty() {
        shell.line(usage_of_all().trim_end_matches('\n'));
        shell.line("");
        commands = COMMANDS.iter().collect();
    }
    for command in commands {
        shell.line(format_args!("{} :", command.usage()));
        shell.line(format_args!("  {}", command.about));
        if let Some(instead) = command.deprecated_for {
            shell.line(format_args!("  (DEPRECATED) Same as '{instead}'"));
        }
        shell.line("");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Checks that docs/compatibility/fs-options.md lists every option. The suite `shell` compares it with Apache's own
    /// usage.
    #[test]
    fn documented_options_match_command_table() {
        let page = include_str!("../../../../../docs/compatibility/fs-options.md");
        let mut told = BTreeSet::new();
        for row in page.lines().filter(|line| line.contains("| `-")) {
            let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
            let [command, option, beside, effect] = cells[..] else { panic!("four cells: {row}") };
            assert!(["as Apache's", "ours"].contains(&beside) || beside.starts_with("differs: "), "{row}");
            assert!(!effect.is_empty(), "{row}");
            let is_anywhere = effect.contains("*anywhere*");
            let option = option.trim_matches('`')[1..].to_owned();
            assert!(told.insert((command.to_owned(), option, is_anywhere)), "twice: {row}");
        }
        let mut taken = BTreeSet::new();
        for Command { name, format, .. } in COMMANDS {
            let before = taken.len();
            for option in format.flags.iter().chain(format.values) {
                taken.insert(((*name).to_owned(), (*option).to_owned(), false));
            }
            for option in format.flags_anywhere.iter().chain(format.values_anywhere).chain(&format.lettered) {
                taken.insert(((*name).to_owned(), (*option).to_owned(), true));
            }
            if taken.len() == before {
                let without = page.split_once("\nWithout options: ").unwrap().1.split_once('.').unwrap().0;
                assert!(
                    without.replace('\n', " ").split(", ").any(|known| known.trim() == *name),
                    "{name} has no options"
                );
            }
        }
        assert_eq!(told, taken);
    }

    #[test]
    fn usage_lines_name_every_option() {
        for command in COMMANDS.iter().filter(|command| !["find", "test"].contains(&command.name)) {
            let Format { flags, values, flags_anywhere, values_anywhere, .. } = command.format;
            for option in [flags, values, flags_anywhere, values_anywhere].into_iter().flatten() {
                // Apache's usage does not name this option either: it has no effect.
                if (command.name, *option) == ("moveFromLocal", "q") {
                    continue;
                }
                let named =
                    command.takes.split([' ', '[', ']', '|', '{', '}']).any(|word| word == format!("-{option}"));
                assert!(named, "-{} -{option}: {}", command.name, command.takes);
            }
        }
    }
}
