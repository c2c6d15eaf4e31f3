#![allow(dead_code, reason = "each test file uses its part")]

use hearth_client::{Error, FileSystem};
use hearth_testkit::eventually;

/// Waits until a file that is being recovered, as by a truncation within a block, is closed.
pub async fn wait_closed(fs: &FileSystem, path: &str) -> Result<(), Error> {
    let closed = async || match fs.is_file_closed(path).await {
        Ok(false) => None,
        Ok(true) => Some(Ok(())),
        Err(error) => Some(Err(error)),
    };
    eventually(&format!("the end of the recovery of {path}"), closed).await
}

/// Returns all bytes of a file as `next` returns them. `take`: maps the number of available bytes to the number
/// consumed at a time.
pub async fn streamed(fs: &FileSystem, path: &str, take: impl Fn(usize) -> usize) -> anyhow::Result<Vec<u8>> {
    let mut reader = fs.open(path).await?;
    let mut bytes = Vec::new();
    loop {
        let next = reader.next().await?;
        if next.is_empty() {
            return Ok(bytes);
        }
        let count = take(next.len());
        bytes.extend_from_slice(&next[..count]);
        reader.consume(count);
    }
}
