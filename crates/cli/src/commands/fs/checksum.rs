//! `-checksum`

use super::failure::Failure;
use super::item::Item;
use super::options::Arguments;
use super::shell::Shell;
use super::store::Store;

pub async fn checksum(shell: &mut Shell, arguments: Arguments) -> Result<(), Failure> {
    for item in shell.existing(&arguments.rest).await? {
        if let Err(failure) = one(shell, &item, arguments.has("v")).await {
            shell.report(&failure);
        }
    }
    Ok(())
}

async fn one(shell: &mut Shell, item: &Item, verbose: bool) -> Result<(), Failure> {
    if item.is_directory() {
        return Err(Failure::is_directory(&item.shown));
    }
    let Store::Hdfs(fs) = &item.store else {
        shell.line(format_args!("{}\tNONE\t", item.shown));
        return Ok(());
    };
    let checksum = fs.checksum(&item.path, None).await.map_err(|error| Failure::of(&item.shown, error))?;
    let hex: String = checksum.bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    let block_size = item.status()?.block_size;
    let block_size = if verbose { format!("\tBlockSize={block_size}") } else { String::new() };
    shell.line(format_args!("{}\t{}\t{hex}{block_size}", item.shown, checksum.algorithm()));
    Ok(())
}
