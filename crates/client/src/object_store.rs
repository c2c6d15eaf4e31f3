//! Adapter to the crate [object_store](https://docs.rs/object_store), with the feature `object_store`. DataFusion, Delta
//! Lake, Polars and others use HDFS through it.
//!
//! This module re-exports that crate, so that a program uses the same version.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//!
//! use hearth_client::FileSystem;
//! use hearth_client::object_store::path::Path;
//! use hearth_client::object_store::{HdfsObjectStore, ObjectStore, ObjectStoreExt};
//!
//! let fs = FileSystem::builder().from_env().build()?;
//! let store: Arc<dyn ObjectStore> = Arc::new(HdfsObjectStore::new(fs).with_root("/warehouse"));
//! store.put(&Path::from("tables/t/part-0"), "bytes".into()).await?;
//! let bytes = store.get(&Path::from("tables/t/part-0")).await?.bytes().await?;
//! # Ok(()) }
//! ```
//!
//! How objects map to HDFS:
//!
//! - An object is a file. Directories are not objects: they are created as needed, stay when they become empty, and
//!   appear only as common prefixes.
//! - A put, a multipart upload and a copy write a temporary file in the directory of the object, whose name starts with
//!   `.hearth-put#`, and rename it. Readers see the old object or the whole new one. Lists leave the temporary files
//!   out. After a crash they stay, and can be deleted.
//! - The entity tag consists of inode number, modification time and length. HDFS has no versions, no tags and no
//!   attributes, and cannot compare and replace: those requests end in `NotSupported` or `NotImplemented`.
//! - A copy reads and writes the bytes. A rename is one atomic operation, and also moves directories.

mod listing;
mod upload;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt, TryStreamExt};

#[doc(no_inline)]
pub use ::object_store::*;

use self::path::Path;
use crate::{ByteRange, ErrorKind, FileKind, FileStatus, FileSystem, Reader};
use upload::{TemporaryFile, Upload};

/// Name of this store in errors.
const STORE: &str = "HDFS";

/// Number of objects that `delete_stream` deletes at once.
const DELETES_AT_ONCE: usize = 16;

/// Longest range that is fetched as one piece of memory instead of a stream.
const PIECE_BYTES_MAX: u64 = 8 << 20;

/// Number of times that an object is looked up again if it is replaced while it is opened.
const OPEN_ATTEMPTS: usize = 4;

/// Object store in a directory of HDFS. Cheap to clone. See the [module](self) for how objects map to files.
#[derive(Clone, Debug)]
pub struct HdfsObjectStore {
    fs: FileSystem,
    /// Absolute path of the directory that object paths start at; empty for `/`.
    root: Arc<str>,
}

impl HdfsObjectStore {
    /// Creates a store of the whole file system.
    pub fn new(fs: FileSystem) -> Self {
        Self { fs, root: "".into() }
    }

    /// Returns the same store, but with object paths that start at the directory `root`, which must be absolute.
    pub fn with_root(self, root: &str) -> Self {
        Self { root: format!("/{}", root.trim_matches('/')).trim_end_matches('/').into(), ..self }
    }

    /// Returns the file system.
    pub fn file_system(&self) -> &FileSystem {
        &self.fs
    }

    /// Returns the path of an object's file.
    ///
    /// Errors: the name is reserved for temporary files.
    fn file_of(&self, location: &Path) -> Result<String> {
        if location.filename().is_some_and(upload::is_temporary) {
            let why = format!("{location} has the name of a temporary file");
            return Err(Error::Generic { store: STORE, source: why.into() });
        }
        Ok(self.directory_of(Some(location)))
    }

    /// Returns the path of the directory of this prefix.
    fn directory_of(&self, prefix: Option<&Path>) -> String {
        match prefix.map(Path::as_ref).unwrap_or_default() {
            "" if self.root.is_empty() => "/".to_owned(),
            "" => self.root.to_string(),
            prefix => format!("{}/{prefix}", self.root),
        }
    }

    /// Returns the status of an object.
    ///
    /// Errors: `NotFound`, also for a directory.
    async fn status(&self, location: &Path) -> Result<FileStatus> {
        let file = self.file_of(location)?;
        let status = self.fs.status(&file).await.map_err(|error| read_error(location, error))?;
        if status.kind != FileKind::File { Err(no_object(location)) } else { Ok(status) }
    }

    /// Opens an object, and returns the metadata of exactly this object.
    async fn open(&self, location: &Path) -> Result<(Reader, ObjectMeta)> {
        let mut attempt = 1;
        loop {
            let status = self.status(location).await?;
            // Another object may have this path by now, so the file is opened by its inode.
            let file = match status.inode {
                0 => self.file_of(location)?,
                inode => format!("/.reserved/.inodes/{inode}"),
            };
            match self.fs.open(&file).await {
                Ok(reader) => {
                    // A file that is being written has more bytes than its status says.
                    let size = reader.length();
                    return Ok((reader, ObjectMeta { size, ..meta(location.clone(), &status) }));
                }
                Err(error) if error.kind() == ErrorKind::NotFound && attempt < OPEN_ATTEMPTS => attempt += 1,
                Err(error) => return Err(read_error(location, error)),
            }
        }
    }
}

impl fmt::Display for HdfsObjectStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HdfsObjectStore({}{})", self.fs.uri(), self.root)
    }
}

#[async_trait]
impl ObjectStore for HdfsObjectStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let replace = match options.mode {
            PutMode::Overwrite => true,
            PutMode::Create => false,
            PutMode::Update(_) => return Err(not_implemented("put_opts with PutMode::Update")),
        };
        refuse_attributes(&options.attributes)?;
        let file = self.file_of(location)?;
        let (temporary, mut writer) = TemporaryFile::create(&self.fs, location, &file).await?;
        for piece in &payload {
            writer.write(piece).await.map_err(|error| write_error(location, error))?;
        }
        temporary.publish(writer, location, &file, replace).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        refuse_attributes(&options.attributes)?;
        let file = self.file_of(location)?;
        let (temporary, writer) = TemporaryFile::create(&self.fs, location, &file).await?;
        Ok(Box::new(Upload::start(temporary, writer, location.clone(), file)))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        if options.version.is_some() {
            return Err(Error::NotSupported { source: "HDFS has no versions of files".into() });
        }
        if options.head {
            let meta = meta(location.clone(), &self.status(location).await?);
            options.check_preconditions(&meta)?;
            let payload = GetResultPayload::Stream(futures_util::stream::empty().boxed());
            let range = range_of(options.range.as_ref(), meta.size)?;
            return Ok(GetResult {
                payload,
                meta,
                range,
                attributes: Attributes::default(),
                extensions: Extensions::default(),
            });
        }
        let (mut reader, meta) = self.open(location).await?;
        options.check_preconditions(&meta)?;
        let range = range_of(options.range.as_ref(), meta.size)?;
        let length = range.end - range.start;
        let failed = {
            let location = location.clone();
            move |error| read_error(&location, error)
        };
        let stream = if length <= PIECE_BYTES_MAX {
            let bytes = range.clone();
            futures_util::stream::once(async move { reader.read_range(bytes).await.map_err(failed) }).boxed()
        } else {
            reader.seek(range.start).await.map_err(&failed)?;
            reader.into_stream_of(length).map_err(failed).boxed()
        };
        Ok(GetResult {
            payload: GetResultPayload::Stream(stream),
            meta,
            range,
            attributes: Attributes::default(),
            extensions: Extensions::default(),
        })
    }

    /// Requests all ranges at once.
    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let file = self.file_of(location)?;
        let reader = self.fs.open(&file).await.map_err(|error| read_error(location, error))?;
        let mut wanted = Vec::with_capacity(ranges.len());
        for range in ranges {
            let range = range_of(Some(&GetRange::Bounded(range.clone())), reader.length())?;
            wanted.extend(ByteRange::new(range.start, range.end));
        }
        let bytes = reader.read_ranges(&wanted).await.into_iter();
        bytes.map(|bytes| bytes.map(Bytes::from).map_err(|error| read_error(location, error))).collect()
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let store = self.clone();
        let deleted = locations.map(move |location| {
            let store = store.clone();
            async move {
                let location = location?;
                // Deleting the root would delete no object.
                if location.as_ref().is_empty() {
                    return Err(no_object(&location));
                }
                let file = store.file_of(&location)?;
                match store.fs.delete(&file, false).await {
                    Ok(true) => Ok(location),
                    Ok(false) => Err(no_object(&location)),
                    // A directory is not an object.
                    Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => Err(no_object(&location)),
                    Err(error) => Err(read_error(&location, error)),
                }
            }
        });
        deleted.buffered(DELETES_AT_ONCE).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        listing::list(self, prefix, None)
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        listing::list(self, prefix, Some(offset.clone()))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        listing::list_directory(self, prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let replace = matches!(options.mode, CopyMode::Overwrite);
        let (mut reader, _) = self.open(from).await?;
        let file = self.file_of(to)?;
        // Checked again when the copy is renamed. This check saves the copy.
        if !replace && self.fs.exists(&file).await.map_err(|error| write_error(to, error))? {
            let why = "the target of the copy exists";
            return Err(Error::AlreadyExists { path: to.to_string(), source: why.into() });
        }
        let (temporary, mut writer) = TemporaryFile::create(&self.fs, to, &file).await?;
        loop {
            let bytes = reader.next().await.map_err(|error| read_error(from, error))?;
            if bytes.is_empty() {
                break;
            }
            writer.write(bytes).await.map_err(|error| write_error(to, error))?;
            let count = bytes.len();
            reader.consume(count);
        }
        temporary.publish(writer, to, &file, replace).await.map(drop)
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        let overwrite = matches!(options.target_mode, RenameTargetMode::Overwrite);
        let (source, target) = (self.file_of(from)?, self.file_of(to)?);
        let options = crate::RenameOptions { overwrite, to_trash: false };
        let refused = match self.fs.rename_to(&source, &target, options).await {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        // Either the source or the target's directory is missing.
        if refused.kind() != ErrorKind::NotFound || !self.fs.exists(&source).await.unwrap_or(false) {
            return Err(write_error(if refused.kind() == ErrorKind::NotFound { from } else { to }, refused));
        }
        let Some((directory, _)) = target.rsplit_once('/').filter(|(directory, _)| !directory.is_empty()) else {
            return Err(write_error(to, refused));
        };
        self.fs.mkdirs(directory).await.map_err(|error| write_error(to, error))?;
        self.fs.rename_to(&source, &target, options).await.map_err(|error| write_error(to, error))
    }
}

/// Returns the metadata of a file.
fn meta(location: Path, status: &FileStatus) -> ObjectMeta {
    ObjectMeta {
        location,
        last_modified: (UNIX_EPOCH + Duration::from_millis(status.modification_time_ms)).into(),
        size: status.length,
        e_tag: Some(entity_tag(status)),
        version: None,
    }
}

fn entity_tag(status: &FileStatus) -> String {
    format!("{:x}-{:x}-{:x}", status.inode, status.modification_time_ms, status.length)
}

/// Returns the requested range of an object of `size` bytes.
fn range_of(range: Option<&GetRange>, size: u64) -> Result<Range<u64>> {
    match range {
        None => Ok(0..size),
        Some(range) => range.as_range(size).map_err(|error| Error::Generic { store: STORE, source: error.into() }),
    }
}

fn refuse_attributes(attributes: &Attributes) -> Result<()> {
    if attributes.is_empty() { Ok(()) } else { Err(not_implemented("attributes of objects")) }
}

fn not_implemented(operation: &str) -> Error {
    Error::NotImplemented { operation: operation.to_owned(), implementer: "HdfsObjectStore".to_owned() }
}

fn no_object(location: &Path) -> Error {
    Error::NotFound { path: location.to_string(), source: "no file exists at this path".into() }
}

/// Converts an error of a call that reads or deletes an object.
fn read_error(location: &Path, error: crate::Error) -> Error {
    match error.kind() {
        // A path below a file, and a directory, name no object.
        ErrorKind::NotADirectory | ErrorKind::IsADirectory => {
            Error::NotFound { path: location.to_string(), source: error.into() }
        }
        _ => write_error(location, error),
    }
}

/// Converts an error of a call that creates an object.
fn write_error(location: &Path, error: crate::Error) -> Error {
    let path = location.to_string();
    match error.kind() {
        ErrorKind::NotFound => Error::NotFound { path, source: error.into() },
        ErrorKind::AlreadyExists => Error::AlreadyExists { path, source: error.into() },
        ErrorKind::PermissionDenied => Error::PermissionDenied { path, source: error.into() },
        ErrorKind::Unsupported => Error::NotSupported { source: error.into() },
        _ => Error::Generic { store: STORE, source: error.into() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(root: Option<&str>) -> HdfsObjectStore {
        let fs = FileSystem::builder().url("hdfs://h:1").user("ada").build().unwrap();
        let store = HdfsObjectStore::new(fs);
        root.map_or(store.clone(), |root| store.with_root(root))
    }

    #[test]
    fn object_paths_start_at_the_root() {
        for (root, directory, file) in
            [(None, "/", "/a/b"), (Some("/"), "/", "/a/b"), (Some("/x/y/"), "/x/y", "/x/y/a/b")]
        {
            let store = store(root);
            assert_eq!(store.directory_of(None), directory, "{root:?}");
            assert_eq!(store.directory_of(Some(&Path::from("/"))), directory, "{root:?}");
            assert_eq!(store.file_of(&Path::from("a/b")).unwrap(), file, "{root:?}");
        }
        assert_eq!(store(Some("x")).to_string(), "HdfsObjectStore(hdfs://h:1/x)");
    }

    #[test]
    fn names_of_temporary_files_are_refused() {
        let name = upload::temporary_beside("/a/b");
        let location = Path::parse(name.trim_start_matches('/')).unwrap();
        assert!(store(None).file_of(&location).is_err(), "{location}");
    }

    #[test]
    fn errors_of_missing_objects() {
        let location = Path::from("a");
        let of = |kind| read_error(&location, crate::Error::new(kind, "why"));
        for kind in [ErrorKind::NotFound, ErrorKind::NotADirectory, ErrorKind::IsADirectory] {
            assert!(matches!(of(kind), Error::NotFound { .. }), "{kind:?}");
        }
        assert!(matches!(of(ErrorKind::PermissionDenied), Error::PermissionDenied { .. }));
        assert!(matches!(of(ErrorKind::Unreachable), Error::Generic { .. }));
    }
}
