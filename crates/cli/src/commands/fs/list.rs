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
    for path in &paths {
        let mut items = match shell.items(path).await {
            Ok(items) => items,
            Err(failure) => {
                shell.report(&failure);
                continue;
            }
        };
        order(&options, &mut items);
        // Files of one argument come first and together, as in Hadoop: their columns fit each other.
        let (directories, others): (Vec<_>, Vec<_>) =
            items.into_iter().partition(|item| item.is_directory() && !options.directories_themselves);
        let (files, missing): (Vec<_>, Vec<_>) = others.into_iter().partition(Item::exists);
        for item in &missing {
            shell.report(&Failure::not_found(&item.shown));
        }
        print(shell, &options, &files);
        for directory in directories {
            if let Err(failure) = list(shell, &options, &directory, true).await {
                shell.report(&failure);
            }
        }
    }
    Ok(())
}

async fn list(shell: &mut Shell, options: &Options, directory: &Item, top: bool) -> Result<(), Failure> {
    let mut children = directory.children().await?;
    order(options, &mut children);
    if options.recursive {
        let widths = Widths::of(options, &children);
        for child in &children {
            line(shell, options, &widths, child);
            if child.is_directory()
                && let Err(failure) = Box::pin(list(shell, options, child, false)).await
            {
                shell.report(&failure);
            }
        }
        return Ok(());
    }
    if top && !options.paths_only && !children.is_empty() {
        shell.line(format_args!("Found {} items", children.len()));
    }
    print(shell, options, &children);
    Ok(())
}

fn order(options: &Options, items: &mut [Item]) {
    let status = |item: &Item| item.status.clone();
    if options.by_time {
        let time = |item: &Item| {
            status(item).map_or(0, |s| if options.access_times { s.access_time_ms } else { s.modification_time_ms })
        };
        items.sort_by(|one, other| time(other).cmp(&time(one)).then_with(|| one.path.cmp(&other.path)));
    } else if options.by_size {
        let length = |item: &Item| status(item).map_or(0, |s| s.length);
        items.sort_by(|one, other| length(other).cmp(&length(one)).then_with(|| one.path.cmp(&other.path)));
    }
    if options.backwards {
        items.reverse();
    }
}

/// Widths that the columns of one page have.
struct Widths {
    replication: usize,
    owner: usize,
    group: usize,
    size: usize,
    policy: usize,
}

impl Widths {
    fn of(options: &Options, items: &[Item]) -> Self {
        // The size is at least ten wide.
        let mut widths = Self { replication: 3, owner: 0, group: 0, size: 10, policy: 0 };
        for status in items.iter().filter_map(|item| item.status.as_ref()) {
            widths.replication = widths.replication.max(replication(status).len());
            widths.owner = widths.owner.max(status.owner.chars().count());
            widths.group = widths.group.max(status.group.chars().count());
            widths.size = widths.size.max(size(status.length, options.human).len());
            widths.policy = widths.policy.max(policy(status).len());
        }
        widths
    }
}

fn replication(status: &FileStatus) -> String {
    if status.kind == FileKind::File { status.replication.to_string() } else { "-".to_owned() }
}

fn policy(status: &FileStatus) -> &'static str {
    if status.flags.contains(FileFlags::ERASURE_CODED) {
        "ErasureCoded"
    } else if status.kind == FileKind::File {
        "Replicated"
    } else {
        ""
    }
}

fn print(shell: &mut Shell, options: &Options, items: &[Item]) {
    let widths = Widths::of(options, items);
    for item in items {
        line(shell, options, &widths, item);
    }
}

fn line(shell: &mut Shell, options: &Options, widths: &Widths, item: &Item) {
    let shown = if options.hide_unprintable {
        item.shown.chars().map(|letter| if letter.is_control() { '?' } else { letter }).collect()
    } else {
        item.shown.clone()
    };
    if options.paths_only {
        return shell.line(shown);
    }
    let Some(status) = &item.status else { return };
    let kind = if status.kind == FileKind::Directory { 'd' } else { '-' };
    let acl = if status.flags.contains(FileFlags::HAS_ACL) { "+" } else { " " };
    let ms = if options.access_times { status.access_time_ms } else { status.modification_time_ms };
    let policy = if options.erasure_coding {
        format!(" {:<width$}", policy(status), width = widths.policy)
    } else {
        String::new()
    };
    shell.line(format_args!(
        "{kind}{}{acl}{:>replication$} {:<owner$} {:<group$}{policy} {:>size$} {} {shown}",
        status.permission,
        replication(status),
        status.owner,
        status.group,
        size(status.length, options.human),
        Calendar::local(ms).to_the_minute(),
        replication = widths.replication,
        owner = widths.owner,
        group = widths.group,
        size = widths.size,
    ));
}
