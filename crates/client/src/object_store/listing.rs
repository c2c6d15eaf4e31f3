//! Lists of objects: directories of HDFS, without temporary files.

use futures_util::StreamExt;
use futures_util::stream::{BoxStream, try_unfold};

use super::path::Path;
use super::{Error, HdfsObjectStore, ListResult, ObjectMeta, Result, STORE, meta, read_error, upload};
use crate::{ErrorKind, FileKind, FileStatus, FileSystem, Listing};

/// An entry of a directory that a list shows.
enum Entry {
    Object(ObjectMeta),
    Directory(Path),
}

/// A directory that is being listed.
struct Directory {
    listing: Listing,
    /// Prefix of its entries; empty for the root of the store.
    prefix: Path,
}

impl Directory {
    /// Starts to list the directory of `prefix`. Returns `None` if no directory exists there.
    async fn open(fs: &FileSystem, path: &str, prefix: Path) -> Result<Option<Self>> {
        match fs.list(path).await {
            Ok(listing) => Ok(Some(Self { listing, prefix })),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
            Err(error) => Err(read_error(&prefix, error)),
        }
    }

    /// Returns the next entry, or `None` at the end.
    async fn next(&mut self) -> Result<Option<Entry>> {
        while let Some(status) = self.listing.next().await.map_err(|error| read_error(&self.prefix, error))? {
            if let Some(entry) = entry(&self.prefix, &status)? {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }
}

/// Returns the entry of a directory, or `None` if lists leave it out.
///
/// Errors: the name is not UTF-8, or cannot be part of an object's path.
fn entry(prefix: &Path, status: &FileStatus) -> Result<Option<Entry>> {
    // The list of a file is its own status, without a name.
    if status.local_name.is_empty() || status.kind == FileKind::Symlink {
        return Ok(None);
    }
    let name = std::str::from_utf8(&status.local_name)
        .map_err(|error| Error::Generic { store: STORE, source: error.into() })?;
    if upload::is_temporary(name) {
        return Ok(None);
    }
    let location = match prefix.as_ref() {
        "" => Path::parse(name),
        prefix => Path::parse(format!("{prefix}/{name}")),
    }?;
    Ok(Some(match status.kind {
        FileKind::Directory => Entry::Directory(location),
        _ => Entry::Object(meta(location, status)),
    }))
}

/// Lists all objects below `prefix` that follow `offset`.
pub(super) fn list(
    store: &HdfsObjectStore,
    prefix: Option<&Path>,
    offset: Option<Path>,
) -> BoxStream<'static, Result<ObjectMeta>> {
    let store = store.clone();
    // Directories that were found and not listed yet, and the one that is being listed.
    let state = (vec![prefix.cloned().unwrap_or_default()], None::<Directory>);
    try_unfold(state, move |(mut waiting, mut current)| {
        let (store, offset) = (store.clone(), offset.clone());
        async move {
            loop {
                let Some(directory) = &mut current else {
                    let Some(prefix) = waiting.pop() else { return Ok(None) };
                    let path = store.directory_of(Some(&prefix));
                    current = Directory::open(&store.fs, &path, prefix).await?;
                    continue;
                };
                match directory.next().await? {
                    None => current = None,
                    Some(Entry::Directory(path)) => {
                        if offset.as_ref().is_none_or(|offset| may_follow(&path, offset)) {
                            waiting.push(path);
                        }
                    }
                    Some(Entry::Object(meta)) => {
                        if offset.as_ref().is_none_or(|offset| meta.location > *offset) {
                            return Ok(Some((meta, (waiting, current))));
                        }
                    }
                }
            }
        }
    })
    .boxed()
}

/// Returns true if a path in `directory` can follow `offset`.
fn may_follow(directory: &Path, offset: &Path) -> bool {
    let start = format!("{directory}/");
    offset.as_ref().starts_with(&start) || start.as_str() > offset.as_ref()
}

/// Lists the objects and directories in the directory of `prefix`.
pub(super) async fn list_directory(store: &HdfsObjectStore, prefix: Option<&Path>) -> Result<ListResult> {
    let mut result = ListResult { common_prefixes: Vec::new(), objects: Vec::new(), extensions: Default::default() };
    let path = store.directory_of(prefix);
    let Some(mut directory) = Directory::open(&store.fs, &path, prefix.cloned().unwrap_or_default()).await? else {
        return Ok(result);
    };
    while let Some(entry) = directory.next().await? {
        match entry {
            Entry::Object(meta) => result.objects.push(meta),
            Entry::Directory(path) => result.common_prefixes.push(path),
        }
    }
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_before_the_offset_are_skipped() {
        let of = |directory: &str, offset: &str| may_follow(&Path::from(directory), &Path::from(offset));
        assert!(of("a", "a/b") && of("b", "a/b") && of("a", "a") && of("a", ""));
        assert!(!of("a", "b") && !of("a/b", "a/c"));
        // `a/x` follows `a b`, because `/` follows the blank.
        assert!(of("a", "a b") && !of("a", "a0"));
    }
}
