//! Whole files and ranges of files as [`Bytes`], in one call.

use std::ops::Range;

use bytes::Bytes;

use crate::{CreateOptions, Error, FileSystem, PositionedReader, Reader};

impl FileSystem {
    /// Reads a whole file into memory. The bytes are verified against their checksums.
    ///
    /// ```no_run
    /// # async fn example(fs: hearth_client::FileSystem) -> Result<(), hearth_client::Error> {
    /// let bytes = fs.read_bytes("/data/part-0.json").await?;
    /// let text = String::from_utf8_lossy(&bytes);
    /// # Ok(()) }
    /// ```
    ///
    /// For many files, [`FileSystem::read_files`] needs fewer requests.
    pub async fn read_bytes(&self, path: &str) -> Result<Bytes, Error> {
        let reader = self.open(path).await?;
        reader.read_range(0..reader.length()).await
    }

    /// Reads a range of a file into memory. A range that extends beyond the end of the file is cut there. To read
    /// several ranges of one file, open it once and use [`Reader::read_ranges`].
    pub async fn read_range(&self, path: &str, range: Range<u64>) -> Result<Bytes, Error> {
        self.open(path).await?.read_range(range).await
    }

    /// Creates or replaces a file whose content is `bytes`, and closes it. Missing parent directories are created.
    ///
    /// Readers can see the file before it is complete. To make it appear at once, write it at another path and rename
    /// it ([`FileSystem::rename_to`]).
    ///
    /// ```no_run
    /// # async fn example(fs: hearth_client::FileSystem) -> Result<(), hearth_client::Error> {
    /// fs.write_all("/data/_SUCCESS", b"").await?;
    /// # Ok(()) }
    /// ```
    pub async fn write_all(&self, path: &str, bytes: impl AsRef<[u8]>) -> Result<(), Error> {
        let mut writer = self.create(path, CreateOptions { overwrite: true, ..CreateOptions::default() }).await?;
        writer.write(bytes.as_ref()).await?;
        writer.close().await
    }
}

impl Reader {
    /// Reads a range of the file into memory, without moving the position. A range that extends beyond the end of the
    /// file is cut there.
    pub async fn read_range(&self, range: Range<u64>) -> Result<Bytes, Error> {
        self.positioned().read_range(range).await
    }
}

impl PositionedReader {
    /// Reads a range of the file into memory: see [`Reader::read_range`].
    pub async fn read_range(&self, range: Range<u64>) -> Result<Bytes, Error> {
        let length = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX);
        Ok(self.read_vec(range.start, length).await?.into())
    }
}
