//! `-truncate`

use std::time::Duration;

use super::failure::Failure;
use super::item::Item;
use super::options::Arguments;
use super::shell::Shell;
use super::store::Store;

pub async fn truncate(shell: &mut Shell, mut arguments: Arguments) -> Result<(), Failure> {
    let text = arguments.rest.remove(0);
    let length = text
        .parse::<u64>()
        .map_err(|_| Failure::Usage(format!("Illegal length, a non-negative integer expected: {text}")))?;
    let mut waiting = Vec::new();
    for item in shell.existing(&arguments.rest).await? {
        match one(shell, &item, length).await {
            Ok(true) => {}
            Ok(false) => waiting.push(item),
            Err(failure @ Failure::Usage(_)) => return Err(failure),
            Err(failure) => shell.report(&failure),
        }
    }
    if arguments.has("w") {
        for item in &waiting {
            wait(shell, item, length).await?;
        }
    } else {
        for item in &waiting {
            shell.line(format_args!(
                "Truncating {} to length: {length}. Wait for block recovery to complete before further updating this file.",
                item.shown
            ));
        }
    }
    Ok(())
}

/// Truncates a file. Returns true if it has its new length now, and false if a block is still being truncated.
async fn one(shell: &mut Shell, item: &Item, length: u64) -> Result<bool, Failure> {
    if item.is_directory() {
        return Err(Failure::is_directory(&item.shown));
    }
    let current = item.status()?.length;
    if current < length {
        return Err(Failure::Usage(format!(
            "Cannot truncate to a larger file size. Current size: {current}, truncate size: {length}."
        )));
    }
    let done = match &item.store {
        Store::Hdfs(fs) => fs.truncate(&item.path, length).await.map_err(|error| Failure::of(&item.shown, error))?,
        Store::Archive(_) | Store::View(_) => {
            return Err(Failure::path(&item.shown, "it cannot be truncated: it is read-only"));
        }
        Store::Local => {
            let file = std::fs::OpenOptions::new().write(true).open(&item.path);
            let cut = file.and_then(|file| file.set_len(length));
            let cut = cut.and_then(|()| super::local_checksums::remove(std::path::Path::new(&item.path)));
            cut.map_err(|error| Failure::local(&item.shown, error))?;
            true
        }
    };
    if done {
        shell.line(format_args!("Truncated {} to length: {length}", item.shown));
    }
    Ok(done)
}

async fn wait(shell: &mut Shell, item: &Item, length: u64) -> Result<(), Failure> {
    let Store::Hdfs(fs) = &item.store else { return Ok(()) };
    shell.line(format_args!("Waiting for {} ...", item.shown));
    shell.flush();
    while !fs.is_file_closed(&item.path).await? {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    shell.line(format_args!("Truncated {} to length: {length}", item.shown));
    Ok(())
}
