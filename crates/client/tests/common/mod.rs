use hearth_client::FileSystem;

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
