//! `-cat`, `-head`, `-tail`

use std::time::Duration;

use super::failure::Failure;
use super::item::Item;
use super::options::Arguments;
use super::shell::Shell;

/// Number of bytes that head and tail show.
const PIECE_BYTES: u64 = 1024;

pub async fn cat(shell: &mut Shell, arguments: Arguments) -> Result<(), Failure> {
    for item in shell.existing(&arguments.rest).await? {
        if let Err(failure) = print(shell, &item, 0, u64::MAX).await {
            shell.report(&failure);
        }
    }
    if arguments.has("v") {
        shell.report_paths_read();
    }
    Ok(())
}

/// Prints at most `limit` bytes from offset `from`. Returns the number of bytes printed.
pub async fn print(shell: &mut Shell, item: &Item, from: u64, limit: u64) -> Result<u64, Failure> {
    if item.is_directory() {
        return Err(Failure::is_directory(&item.shown));
    }
    let mut source = shell.open(item).await?;
    if from > 0 {
        source.seek(from).await?;
    }
    let mut printed = 0;
    while printed < limit {
        let next = source.next().await?;
        if next.is_empty() {
            break;
        }
        let count = (next.len() as u64).min(limit - printed) as usize;
        shell.bytes(&next[..count])?;
        source.consume(count);
        printed += count as u64;
    }
    Ok(printed)
}

pub async fn head(shell: &mut Shell, arguments: Arguments) -> Result<(), Failure> {
    for item in shell.existing(&arguments.rest).await? {
        if let Err(failure) = print(shell, &item, 0, PIECE_BYTES).await {
            shell.report(&failure);
        }
    }
    Ok(())
}

pub async fn tail(shell: &mut Shell, arguments: Arguments) -> Result<(), Failure> {
    let pause = match arguments.value("s") {
        None => Duration::from_secs(5),
        // Without -f the interval has no effect and is not parsed.
        Some(_) if !arguments.has("f") => Duration::from_secs(5),
        Some(ms) => match ms.parse::<i64>() {
            Ok(ms) if ms > 0 => Duration::from_millis(ms.unsigned_abs()),
            Ok(_) => Duration::from_secs(5),
            Err(_) => return Err(Failure::Usage(format!("For input string: \"{ms}\""))),
        },
    };
    let items = shell.existing(&arguments.rest).await?;
    let [item] = items.as_slice() else { return Ok(()) };
    let length = item.status()?.length;
    let mut position = length.saturating_sub(PIECE_BYTES);
    position += print(shell, item, position, u64::MAX).await?;
    while arguments.has("f") {
        shell.flush();
        tokio::time::sleep(pause).await;
        // Opened again in each round, because that asks the DataNodes for the current length of a file being written.
        let source = item.store.open(&item.path, &item.shown).await?;
        let length = source.length().unwrap_or(0);
        drop(source);
        if length > position {
            position += print(shell, item, position, u64::MAX).await?;
        }
    }
    Ok(())
}
