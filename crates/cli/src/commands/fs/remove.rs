//! `-rm` and `-rmdir`

use std::io::{BufRead, IsTerminal, Write};

use super::failure::Failure;
use super::item::Item;
use super::options::Arguments;
use super::shell::Shell;
use super::store::Store;
use super::trash;

/// `hadoop.shell.delete.limit.num.files`: `-safely` asks before more go.
const SAFE_FILES: u64 = 100;

pub async fn rm(shell: &mut Shell, arguments: Arguments, recursive: bool) -> Result<(), Failure> {
    let recursive = recursive || arguments.has("r") || arguments.has("R");
    let forced = arguments.has("f");
    for argument in &arguments.rest {
        let items = match shell.items(argument).await {
            Ok(items) => items,
            // A pattern that matches nothing.
            Err(Failure::Path { .. }) if forced => continue,
            Err(failure) => {
                shell.report(&failure);
                continue;
            }
        };
        for item in items {
            if !item.exists() && forced {
                continue;
            }
            if let Err(failure) = one(shell, &arguments, recursive, &item).await {
                shell.report(&failure);
            }
        }
    }
    Ok(())
}

async fn one(shell: &mut Shell, arguments: &Arguments, recursive: bool, item: &Item) -> Result<(), Failure> {
    item.status()?;
    if item.is_directory() && !recursive {
        return Err(Failure::is_directory(&item.shown));
    }
    if !arguments.has("skipTrash") && trash::take(shell, item).await? {
        return Ok(());
    }
    if arguments.has("safely") && item.is_directory() && !confirmed(shell, item).await? {
        return Ok(());
    }
    if !item.store.delete(&item.path, &item.shown, recursive).await? {
        return Err(Failure::path(&item.shown, "Input/output error"));
    }
    shell.line(format_args!("Deleted {}", item.shown));
    Ok(())
}

async fn confirmed(shell: &mut Shell, item: &Item) -> Result<bool, Failure> {
    let Store::Hdfs(fs) = &item.store else { return Ok(true) };
    let summary = fs.content_summary(&item.path).await?;
    if summary.files + summary.directories <= SAFE_FILES {
        return Ok(true);
    }
    if !std::io::stdin().is_terminal() {
        shell.report(&Failure::Message(format!("Delete aborted at user request: \"{}\"", item.uri())));
        return Ok(false);
    }
    shell.flush();
    print!(
        "Proceed deleting {} files and directories of {}? (Y or N) ",
        summary.files + summary.directories,
        item.uri()
    );
    let _ = std::io::stdout().flush();
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    let yes = read.is_ok() && answer.trim().eq_ignore_ascii_case("y");
    if !yes {
        shell.report(&Failure::Message(format!("Delete aborted at user request: \"{}\"", item.uri())));
    }
    Ok(yes)
}

pub async fn rmdir(shell: &mut Shell, arguments: Arguments) -> Result<(), Failure> {
    let ignore = arguments.has("-ignore-fail-on-non-empty");
    for item in shell.existing(&arguments.rest).await {
        let removed = async {
            if !item.is_directory() {
                return Err(Failure::not_directory(&item.shown));
            }
            if !item.children().await?.is_empty() {
                return if ignore { Ok(()) } else { Err(Failure::path(&item.shown, "Directory is not empty")) };
            }
            item.store.delete(&item.path, &item.shown, false).await.map(|_| ())
        };
        if let Err(failure) = removed.await {
            shell.report(&failure);
        }
    }
    Ok(())
}
