//! `-ls`

use hearth_types::{FileFlags, FileKind, FileStatus};

use super::failure::Failure;
use super::item::Item;
use super::options::Arguments;
use super::shell::Shell;
use super::size::size;
use super::time::Calendar;

struct Options {
    paths_only: bool,
    directories_themselves: bool,
    human: bool,
    hide_unprintable: bool,
    recursive: bool,
    by_time: bool,
    by_size: bool,
    backwards: bool,
    access_times: bool,
    erasure_coding: bool,
}

pub async fn ls(shell: &mut Shell, arguments: Arguments, recursive: bool) -> Result<(), Failure> {
    let options = Options {
        paths_only: arguments.has("C"),
        directories_themselves: arguments.has("d"),
        human: arguments.has("h"),
        hide_unprintable: arguments.has("q"),
        recursive: (recursive || arguments.has("R")) && !arguments.has("d"),
        by_time: arguments.has("t"),
        by_size: arguments.has("S") && !arguments.has("t"),
        backwards: arguments.has("r"),
        access_times: arguments.has("u"),
        erasure_coding: arguments.has("e"),
    };
    let paths = if arguments.rest.is_empty() { vec![".".to_owned()] } else { arguments.rest };
    let mut widths = Widths::new();
    for item in shell.all_items(&paths).await? {
        if !item.exists() {
            shell.report(&Failure::not_found(&item.shown));
        } else if item.is_directory() && !options.directories_themselves {
            if let Err(failure) = list(shell, &options, &mut widths, &item).await {
                shell.report(&failure);
            }
        } else {
            print(shell, &options, &mut widths, &[item]);
        }
    }
    Ok(())
}

/// Number of entries of a recursive listing that share column widths.
const GROUP: usize = 100;

async fn list(shell: &mut Shell, options: &Options, widths: &mut Widths, directory: &Item) -> Result<(), Failure> {
    if !options.recursive {
        let mut children = directory.sorted_children().await?;
        order(options, &mut children);
        if !options.paths_only && !children.is_empty() {
            shell.line(format_args!("Found {} items", children.len()));
        }
        print(shell, options, widths, &children);
        return Ok(());
    }
    // Below the top, any sort option sorts by path. Source: Ls.java.
    let children = match options.by_time || options.by_size || options.backwards {
        true => directory.sorted_children().await?,
        false => directory.children().await?,
    };
    for group in children.chunks(GROUP) {
        widths.fit(options, group);
        for child in group {
            if !shell.output_taken() {
                return Ok(());
            }
            line(shell, options, widths, child);
            if child.is_directory()
                && let Err(failure) = Box::pin(list(shell, options, widths, child)).await
            {
                shell.report(&failure);
            }
        }
    }
    Ok(())
}

/// Sorts entries, which are sorted by path, in the requested order. Entries that compare equal stay sorted by path.
fn order(options: &Options, items: &mut [Item]) {
    let by = |key: fn(&FileStatus, bool) -> u64, items: &mut [Item]| {
        let key = |item: &Item| item.status.as_ref().map_or(0, |status| key(status, options.access_times));
        items.sort_by(|one, other| match options.backwards {
            true => key(one).cmp(&key(other)),
            false => key(other).cmp(&key(one)),
        });
    };
    if options.by_time {
        by(|status, access| if access { status.access_time_ms } else { status.modification_time_ms }, items);
    } else if options.by_size {
        by(|status, _| status.length, items);
    } else if options.backwards {
        items.reverse();
    }
}

/// Column widths: those of the widest entry so far. They grow during a command.
struct Widths {
    replication: usize,
    owner: usize,
    group: usize,
    size: usize,
    /// Width for the entries that are printed together.
    policy: usize,
}

impl Widths {
    fn new() -> Self {
        Self { replication: 3, owner: 0, group: 0, size: 10, policy: 0 }
    }

    /// Widens the columns for `items`. A size counts with the digits of its byte count, also if it is printed in
    /// another form.
    fn fit(&mut self, options: &Options, items: &[Item]) {
        self.policy = 0;
        for status in items.iter().filter_map(|item| item.status.as_ref()) {
            self.replication = self.replication.max(replication(status).len());
            self.owner = self.owner.max(status.owner.chars().count());
            self.group = self.group.max(status.group.chars().count());
            self.size = self.size.max(status.length.to_string().len());
            if options.erasure_coding {
                self.policy = self.policy.max(policy(status).len());
            }
        }
    }
}

fn replication(status: &FileStatus) -> String {
    if status.kind == FileKind::File { status.replication.to_string() } else { "-".to_owned() }
}

fn policy(status: &FileStatus) -> &'static str {
    if status.flags.contains(FileFlags::ERASURE_CODED) {
        policy_of(status.erasure_coding_policy)
    } else if status.kind == FileKind::File {
        "Replicated"
    } else {
        ""
    }
}

fn print(shell: &mut Shell, options: &Options, widths: &mut Widths, items: &[Item]) {
    widths.fit(options, items);
    for item in items {
        line(shell, options, widths, item);
    }
}

fn line(shell: &mut Shell, options: &Options, widths: &Widths, item: &Item) {
    if options.paths_only {
        return shell.line(&item.shown);
    }
    let shown = if options.hide_unprintable {
        item.shown.chars().map(|letter| if is_printable(letter) { letter } else { '?' }).collect()
    } else {
        item.shown.clone()
    };
    let Some(status) = &item.status else { return };
    let kind = if status.kind == FileKind::Directory { 'd' } else { '-' };
    let acl = if status.flags.contains(FileFlags::HAS_ACL) { "+" } else { " " };
    let ms = if options.access_times { status.access_time_ms } else { status.modification_time_ms };
    // An empty column has no space after it either.
    let column = |text: &str, width: usize| if width > 0 { format!("{text:<width$} ") } else { String::new() };
    shell.line(format_args!(
        "{kind}{}{acl}{:>replication$} {}{}{}{:>size$} {} {shown}",
        status.permission,
        replication(status),
        column(&status.owner, widths.owner),
        column(&status.group, widths.group),
        column(policy(status), if options.erasure_coding { widths.policy } else { 0 }),
        size(status.length, options.human),
        Calendar::local(ms).to_the_minute(),
        replication = widths.replication,
        size = widths.size,
    ));
}

/// Source: SystemErasureCodingPolicies.java.
fn policy_of(number: Option<u8>) -> &'static str {
    match number {
        Some(1) => "RS-6-3-1024k",
        Some(2) => "RS-3-2-1024k",
        Some(3) => "RS-LEGACY-6-3-1024k",
        Some(4) => "XOR-2-1-1024k",
        Some(5) => "RS-10-4-1024k",
        _ => "ErasureCoded",
    }
}

/// Returns whether a letter is neither control, format, private nor unassigned. Source: PrintableString.java.
fn is_printable(letter: char) -> bool {
    if letter.is_control() || letter.is_whitespace() {
        return !letter.is_control();
    }
    // Rust escapes characters that cannot be displayed. A letter precedes it, because a combining mark alone would be
    // escaped, too.
    !['a', letter].iter().collect::<String>().escape_debug().to_string().contains("\\u{")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::{Duration, UNIX_EPOCH};

    use hearth_config::Configuration;

    use super::super::commands;
    use super::*;

    #[tokio::test]
    async fn sorting_is_stable_by_encoded_path() {
        let directory = tempfile::tempdir().unwrap();
        for (name, seconds, bytes) in [("a b", 5, 1), ("a-b", 5, 2), ("a%b", 9, 2)] {
            let path = directory.path().join(name);
            fs::write(&path, vec![0; bytes]).unwrap();
            let times = fs::FileTimes::new().set_modified(UNIX_EPOCH + Duration::from_secs(seconds));
            fs::File::options().write(true).open(&path).unwrap().set_times(times).unwrap();
        }
        let mut shell = Shell::new(Configuration::empty());
        let item = shell.item(directory.path().to_str().unwrap()).await.unwrap();
        let children = item.sorted_children().await.unwrap();
        let listed = |words: &[&str]| {
            let words = words.iter().map(|word| (*word).to_owned()).collect();
            let arguments = commands::find("ls").unwrap().format.parse(words).unwrap();
            let options = Options {
                paths_only: false,
                directories_themselves: false,
                human: false,
                hide_unprintable: false,
                recursive: false,
                by_time: arguments.has("t"),
                by_size: arguments.has("S"),
                backwards: arguments.has("r"),
                access_times: false,
                erasure_coding: false,
            };
            let mut items = children.clone();
            order(&options, &mut items);
            items.iter().map(|item| item.name().to_owned()).collect::<Vec<_>>()
        };
        // In the sort key a space is `%20`, and a percent sign `%25`.
        assert_eq!(listed(&[]), ["a b", "a%b", "a-b"]);
        assert_eq!(listed(&["-r"]), ["a-b", "a%b", "a b"]);
        assert_eq!(listed(&["-t"]), ["a%b", "a b", "a-b"]);
        assert_eq!(listed(&["-t", "-r"]), ["a b", "a-b", "a%b"]);
        assert_eq!(listed(&["-S"]), ["a%b", "a-b", "a b"]);
        assert_eq!(listed(&["-S", "-r"]), ["a b", "a%b", "a-b"]);
    }

    #[test]
    fn undisplayable_letters_are_unprintable() {
        for letter in ['a', ' ', '"', '\\', 'é', '\u{301}', '\u{a0}', '日', '😀'] {
            assert!(is_printable(letter), "{letter:?}");
        }
        for letter in ['\n', '\t', '\u{7f}', '\u{200d}', '\u{e000}', '\u{378}'] {
            assert!(!is_printable(letter), "{letter:?}");
        }
    }
}
