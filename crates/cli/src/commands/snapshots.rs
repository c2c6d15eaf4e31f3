//! `hearth lsSnapshottableDir`, `lsSnapshot`, `snapshotDiff`: the output and exit codes of `hdfs`. Source:
//! LsSnapshottableDir.java, LsSnapshot.java, SnapshotDiff.java of Hadoop 3.4.

use std::process::ExitCode;

use hearth_client::{FileStatus, SnapshotDifference};

use super::fs::time::Calendar;
use super::tool::{self, Tool, ToolArguments, first_line};

const LIST_DIRECTORIES_USAGE: &str = "hdfs lsSnapshottableDir: \n\tGet the list of snapshottable directories that are \
owned by the current user.\n\tReturn all the snapshottable directories if the current user is a super user.\n";

const LIST_USAGE: &str =
    "hdfs lsSnapshot <snapshotDir>: \n\tGet the list of snapshots for a snapshottable directory.\n";

const DIFFERENCES_USAGE: &str = "hdfs snapshotDiff <snapshotDir> <from> <to>:\n\tGet the difference between two \
snapshots, \n\tor between a snapshot and the current tree of a directory.\n\tFor <from>/<to>, users can use \".\" to \
present the current status,\n\tand use \".snapshot/snapshot_name\" to present a snapshot,\n\twhere \".snapshot/\" can be \
omitted\n";

pub fn list_directories(arguments: ToolArguments) -> anyhow::Result<ExitCode> {
    tool::run("lsSnapshottableDir", arguments, async |tool: &Tool, words: Vec<String>| {
        if !words.is_empty() {
            eprintln!("Usage: \n{LIST_DIRECTORIES_USAGE}");
            return 1;
        }
        ended("lsSnapshottableDir", print_directories(tool).await)
    })
}

pub fn list(arguments: ToolArguments) -> anyhow::Result<ExitCode> {
    tool::run("lsSnapshot", arguments, async |tool: &Tool, words: Vec<String>| {
        let [path] = words.as_slice() else {
            eprintln!("Invalid no of arguments");
            eprintln!("Usage: \n{LIST_USAGE}");
            return 1;
        };
        ended("lsSnapshot", print_snapshots(tool, path).await)
    })
}

pub fn differences(arguments: ToolArguments) -> anyhow::Result<ExitCode> {
    tool::run("snapshotDiff", arguments, async |tool: &Tool, words: Vec<String>| {
        let [path, from, to] = words.as_slice() else {
            eprintln!("Usage: \n{DIFFERENCES_USAGE}");
            return 1;
        };
        ended("snapshotDiff", print_differences(tool, path, from, to).await)
    })
}

/// Reports a failure. Returns the exit code.
fn ended(name: &str, outcome: anyhow::Result<()>) -> u8 {
    match outcome {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("{name}: {}", first_line(&error));
            1
        }
    }
}

async fn print_directories(tool: &Tool) -> anyhow::Result<()> {
    let directories = tool.fs()?.snapshottable_directories().await?;
    let rows = directories.iter().map(|directory| Row {
        status: &directory.status,
        numbers: vec![directory.snapshots.to_string(), directory.snapshots_max.to_string()],
        last: directory.path.clone(),
    });
    print(&rows.collect::<Vec<_>>());
    Ok(())
}

async fn print_snapshots(tool: &Tool, path: &str) -> anyhow::Result<()> {
    let (fs, there) = tool.fs_of(path)?;
    let snapshots = fs.snapshots(there).await?;
    let rows = snapshots.iter().map(|snapshot| Row {
        status: &snapshot.status,
        numbers: vec![snapshot.id.to_string()],
        last: format!("{} {}", if snapshot.is_deleted { "DELETED" } else { "ACTIVE" }, snapshot.path),
    });
    print(&rows.collect::<Vec<_>>());
    Ok(())
}

/// A line of a list.
struct Row<'a> {
    status: &'a FileStatus,
    /// Numbers behind the time.
    numbers: Vec<String>,
    last: String,
}

/// Prints rows with columns as wide as their longest cell, as `ls -l` does. Nothing gives an empty line.
fn print(rows: &[Row<'_>]) {
    if rows.is_empty() {
        println!();
        return;
    }
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            let status = row.status;
            let fixed =
                [status.replication.to_string(), status.owner.clone(), status.group.clone(), status.length.to_string()];
            fixed.into_iter().chain(row.numbers.iter().cloned()).collect()
        })
        .collect();
    let width = |column: usize| cells.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    for (row, cells) in rows.iter().zip(&cells) {
        let right = |column: usize| format!("{:>width$}", cells[column], width = width(column));
        // A column of empty names has no space behind it.
        let left = |column: usize| match width(column) {
            0 => String::new(),
            width => format!("{:<width$} ", cells[column]),
        };
        let time = Calendar::local(row.status.modification_time_ms).to_the_minute();
        let numbers: String = (4..cells.len()).map(|column| right(column) + " ").collect();
        println!(
            "d{} {} {}{}{} {time} {numbers}{}",
            row.status.permission,
            right(0),
            left(1),
            left(2),
            right(3),
            row.last
        );
    }
}

async fn print_differences(tool: &Tool, path: &str, from: &str, to: &str) -> anyhow::Result<()> {
    let (fs, there) = tool.fs_of(path)?;
    let (from, to) = (snapshot_name(from), snapshot_name(to));
    let differences = fs.snapshot_differences(there, from, to).await?;
    let state = |name: &str| match name {
        "" => "current directory".to_owned(),
        name => format!("snapshot {name}"),
    };
    println!("Difference between {} and {} under directory {}:", state(from), state(to), fs.absolute(there)?);
    for difference in differences {
        println!("{}", shown(&difference));
    }
    println!();
    Ok(())
}

/// Returns the name of a snapshot, or nothing for the current state.
fn snapshot_name(text: &str) -> &str {
    if text == "." {
        return "";
    }
    let name = text.strip_prefix("/.snapshot/").or_else(|| text.strip_prefix(".snapshot/"));
    name.unwrap_or(text)
}

fn shown(difference: &SnapshotDifference) -> String {
    let path = |path: &str| if path.is_empty() { ".".to_owned() } else { format!("./{path}") };
    match difference {
        SnapshotDifference::Modified(at) => format!("M\t{}", path(at)),
        SnapshotDifference::Created(at) => format!("+\t{}", path(at)),
        SnapshotDifference::Deleted(at) => format!("-\t{}", path(at)),
        SnapshotDifference::Renamed(from, to) => format!("R\t{} -> {}", path(from), path(to)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_may_be_named_by_their_path() {
        for (text, name) in [(".", ""), (".snapshot/s", "s"), ("/.snapshot/s", "s"), ("s", "s"), ("", "")] {
            assert_eq!(snapshot_name(text), name);
        }
    }

    #[test]
    fn differences_are_relative_to_the_directory() {
        assert_eq!(shown(&SnapshotDifference::Modified(String::new())), "M\t.");
        assert_eq!(shown(&SnapshotDifference::Renamed("a".to_owned(), "b/c".to_owned())), "R\t./a -> ./b/c");
    }
}
