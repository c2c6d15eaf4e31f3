use hearth_client::FileSystem;

/// All bytes of a file, as `next` shows them. `take`: how many of so many are taken at a time.
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
