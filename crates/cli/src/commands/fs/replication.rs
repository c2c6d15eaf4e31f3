//! `-setrep`

use std::time::Duration;

use hearth_types::FileKind;

use super::failure::Failure;
use super::item::Item;
use super::options::Arguments;
use super::shell::Shell;
use super::store::Store;

pub async fn setrep(shell: &mut Shell, mut arguments: Arguments) -> Result<(), Failure> {
    let wanted = arguments.rest.remove(0);
    let wanted = match wanted.parse::<u16>() {
        Ok(0) => return Err(Failure::Usage("replication must be >= 1".to_owned())),
        Ok(wanted) => wanted,
        Err(_) => {
            eprintln!("setrep: Illegal replication, a positive integer expected");
            return Err(Failure::Usage(format!("For input string: \"{wanted}\"")));
        }
    };
    let mut changed = Vec::new();
    for item in shell.existing(&arguments.rest).await? {
        set(shell, &item, wanted, &mut changed).await;
    }
    if arguments.has("w") {
        for item in &changed {
            wait(shell, item, wanted).await?;
        }
    }
    Ok(())
}

/// Sets the replication of a file, or of every file below a directory.
async fn set(shell: &mut Shell, item: &Item, wanted: u16, changed: &mut Vec<Item>) {
    let Store::Hdfs(fs) = &item.store else { return };
    let outcome = async {
        if item.is_directory() {
            return item.children().await;
        }
        if item.status()?.kind == FileKind::Symlink {
            return Err(Failure::path(&item.shown, "Symlinks unsupported"));
        }
        let done = fs.set_replication(&item.path, wanted).await.map_err(|error| Failure::of(&item.shown, error))?;
        if !done {
            return Err(Failure::Message(format!("Could not set replication for: {}", item.shown)));
        }
        Ok(Vec::new())
    };
    match outcome.await {
        Ok(children) if item.is_directory() => {
            for child in &children {
                Box::pin(set(shell, child, wanted, changed)).await;
            }
        }
        Ok(_) => {
            shell.line(format_args!("Replication {wanted} set: {}", item.shown));
            changed.push(item.clone());
        }
        Err(failure) => shell.report(&failure),
    }
}

/// Waits until every block has exactly `wanted` replicas.
async fn wait(shell: &mut Shell, item: &Item, wanted: u16) -> Result<(), Failure> {
    let Store::Hdfs(fs) = &item.store else { return Ok(()) };
    shell.bytes(format!("Waiting for {} ...", item.shown).as_bytes())?;
    let mut warned = false;
    loop {
        let length = fs.status(&item.path).await?.length;
        let located = fs.locations(&item.path, 0, length).await?;
        if located.blocks.iter().all(|block| block.locations.len() == usize::from(wanted)) {
            break;
        }
        let too_many = located.blocks.iter().any(|block| block.locations.len() > usize::from(wanted));
        if too_many && !warned {
            warned = true;
            shell.bytes(b"\nWARNING: the waiting time may be long for DECREASING the number of replications.\n")?;
        }
        shell.bytes(b".")?;
        shell.flush();
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    shell.line(" done");
    Ok(())
}
