//! The file systems that paths can be in, HDFS and the local one, behind one set of calls.

use std::fs;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

use hearth_client::{CreateOptions, ErrorKind, MkdirsOptions, Reader, WebReader, WebWriter, Writer};
use hearth_types::{FileFlags, FileKind, FileStatus, FsPermission};

use super::archive::Archive;
use super::failure::Failure;
use super::local_checksums::{self, ChecksumWriter};
use super::paths;
use super::remote::Remote;
use super::view::{Resolved, View, read_only};

#[derive(Clone, Debug)]
pub enum Store {
    Hdfs(Remote),
    Local,
    /// Hadoop archive, read only.
    Archive(Arc<Archive>),
    /// Directories of a mount table above its mount points.
    View(Arc<View>),
}

impl Store {
    /// Returns whether both are the same file system.
    pub fn same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Hdfs(one), Self::Hdfs(other)) => one.uri() == other.uri(),
            (Self::Local, Self::Local) => true,
            (Self::Archive(one), Self::Archive(other)) => {
                (one.uri(), one.directory()) == (other.uri(), other.directory())
            }
            (Self::View(one), Self::View(other)) => one.uri() == other.uri(),
            _ => false,
        }
    }

    /// Returns the URI: `hdfs://host:port` or `file:`.
    pub fn uri(&self) -> String {
        match self {
            Self::Hdfs(fs) => fs.uri().to_owned(),
            Self::Local => "file:".to_owned(),
            Self::Archive(archive) => archive.uri().to_owned(),
            Self::View(view) => view.uri().to_owned(),
        }
    }

    /// Returns the directory that relative paths start from.
    pub fn working_directory(&self) -> String {
        match self {
            Self::Hdfs(fs) => fs.home().to_owned(),
            Self::Archive(archive) => archive.directory().to_owned(),
            Self::View(view) => view.home().to_owned(),
            Self::Local => {
                std::env::current_dir().map_or_else(|_| "/".to_owned(), |path| path.to_string_lossy().into_owned())
            }
        }
    }

    /// Makes `path` (which may be a pattern) absolute, without empty components, `.` and `..`.
    ///
    /// Errors: the path goes above the root. In the local file system the root is its own parent.
    pub fn plain(&self, path: &str) -> Result<String, Failure> {
        let whole = paths::absolute(path, &self.working_directory());
        if !whole.starts_with("/..") {
            return Ok(whole);
        }
        let below = whole.split('/').skip_while(|part| matches!(*part, "" | "..")).collect::<Vec<_>>().join("/");
        match self {
            Self::Local => Ok(format!("/{below}")),
            _ if !whole.split('/').any(|part| part == "..") => Ok(whole),
            _ => Err(invalid_name(&whole, &format!("{}{whole}", self.uri()))),
        }
    }

    /// Errors: the file system cannot have a file of this name.
    pub fn check_name(&self, name: &str) -> Result<(), Failure> {
        match self {
            Self::Local => Ok(()),
            _ if name.contains(':') => {
                let why = format!("java.net.URISyntaxException: Relative path in absolute URI: {name}");
                Err(Failure::Usage(why))
            }
            _ => Ok(()),
        }
    }

    /// Like `plain`, for a path that is not a pattern.
    pub fn absolute(&self, path: &str) -> Result<String, Failure> {
        let whole = self.plain(path)?;
        match self {
            Self::Local => Ok(whole),
            _ if paths::is_valid_in_hdfs(&whole) => Ok(whole),
            _ => Err(invalid_name(&whole, path)),
        }
    }

    /// Returns the root directory, and its file system.
    pub fn root(&self) -> (Self, String) {
        self.enter("/".to_owned())
    }

    /// Returns the entry `name` of the directory `path`, and its file system.
    pub fn below(&self, path: &str, name: &str) -> (Self, String) {
        self.enter(if path.ends_with('/') { format!("{path}{name}") } else { format!("{path}/{name}") })
    }

    /// Returns the file system of an absolute path, and the path there.
    pub fn enter(&self, path: String) -> (Self, String) {
        match self {
            Self::View(view) => match view.resolve(&path) {
                Resolved::In(store, path) => (store, path),
                _ => (self.clone(), path),
            },
            _ => (self.clone(), path),
        }
    }

    /// Failure of an `operation` that this file system does not have.
    fn refused(&self, operation: &str, path: &str) -> Failure {
        match self {
            Self::View(_) => read_only(operation, path),
            _ => Failure::path(path, format!("{operation} is not possible: an archive is read-only")),
        }
    }

    /// Like `list`. `None` if the path does not exist. A local file has no entries.
    pub async fn list_if_there(&self, path: &str) -> Result<Option<Vec<FileStatus>>, Failure> {
        match self {
            Self::Hdfs(fs) => match fs.list_all(path).await {
                Ok(entries) => Ok(Some(entries)),
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
                Err(error) => Err(Failure::of(path, error)),
            },
            Self::Local if !fs::metadata(path).is_ok_and(|metadata| metadata.is_dir()) => Ok(None),
            Self::Local => self.list(path, path).await.map(Some),
            Self::Archive(archive) => Box::pin(archive.list(path)).await,
            Self::View(view) => view.list(path).await.map(Some),
        }
    }

    /// Returns the status, or `None` if the path does not exist.
    pub async fn status(&self, path: &str, shown: &str) -> Result<Option<FileStatus>, Failure> {
        match self {
            Self::Hdfs(fs) => match fs.status(path).await {
                Ok(status) => Ok(Some(status)),
                // Over HTTP, the NameNode reports a missing path by an exception.
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
                Err(error) => Err(Failure::of(shown, error)),
            },
            Self::Local => match fs::metadata(path).or_else(|_| fs::symlink_metadata(path)) {
                Ok(metadata) => Ok(Some(local_status(Vec::new(), &metadata))),
                Err(error) if is_missing(&error) => Ok(None),
                Err(error) => Err(Failure::local(shown, error)),
            },
            Self::Archive(archive) => Box::pin(archive.status(path)).await,
            Self::View(view) => Ok(view.status(path)),
        }
    }

    /// Returns the entries of a directory, by name.
    pub async fn list(&self, path: &str, shown: &str) -> Result<Vec<FileStatus>, Failure> {
        match self {
            Self::Hdfs(fs) => fs.list_all(path).await.map_err(|error| Failure::of(shown, error)),
            Self::Local => {
                let mut entries = Vec::new();
                for entry in fs::read_dir(path).map_err(|error| Failure::local(shown, error))? {
                    let entry = entry.map_err(|error| Failure::local(shown, error))?;
                    if local_checksums::is_checksum_file(entry.file_name().as_encoded_bytes()) {
                        continue;
                    }
                    let metadata = fs::metadata(entry.path()).or_else(|_| entry.metadata());
                    let metadata = metadata.map_err(|error| Failure::local(shown, error))?;
                    entries.push(local_status(entry.file_name().into_encoded_bytes(), &metadata));
                }
                entries.sort_by(|one, other| one.local_name.cmp(&other.local_name));
                Ok(entries)
            }
            Self::Archive(archive) => Box::pin(archive.list(path)).await?.ok_or_else(|| Failure::not_found(shown)),
            Self::View(view) => view.list(path).await,
        }
    }

    pub async fn mkdirs(&self, path: &str, shown: &str, parents: bool) -> Result<(), Failure> {
        match self {
            Self::Hdfs(fs) => {
                let options = MkdirsOptions { parents, ..MkdirsOptions::default() };
                fs.mkdirs_with(path, options).await.map_err(|error| Failure::of(shown, error))
            }
            Self::Local => {
                let made = if parents { fs::create_dir_all(path) } else { fs::create_dir(path) };
                made.map_err(|error| Failure::local(shown, error))
            }
            Self::Archive(_) | Self::View(_) => Err(self.refused("mkdir", path)),
        }
    }

    /// Renames a path. Returns false if the NameNode refuses.
    pub async fn rename(&self, from: &str, to: &str, shown: &str) -> Result<bool, Failure> {
        match self {
            Self::Hdfs(fs) => fs.rename(from, to).await.map_err(|error| Failure::of(shown, error)),
            Self::Local => {
                let renamed = fs::rename(from, to).and_then(|()| match fs::symlink_metadata(to)?.is_dir() {
                    true => Ok(()),
                    false => local_checksums::rename(Path::new(from), Path::new(to)),
                });
                renamed.map(|()| true).map_err(|error| Failure::local(shown, error))
            }
            Self::Archive(_) | Self::View(_) => Err(self.refused("rename", from)),
        }
    }

    /// Deletes a path. Returns false if it did not exist.
    pub async fn delete(&self, path: &str, shown: &str, recursive: bool) -> Result<bool, Failure> {
        match self {
            Self::Hdfs(fs) => fs.delete(path, recursive).await.map_err(|error| Failure::of(shown, error)),
            Self::Local => {
                let removed = match fs::symlink_metadata(path) {
                    Err(error) => Err(error),
                    Ok(metadata) if !metadata.is_dir() => {
                        fs::remove_file(path).and_then(|()| local_checksums::remove(Path::new(path)))
                    }
                    Ok(_) if recursive => fs::remove_dir_all(path),
                    Ok(_) => fs::remove_dir(path),
                };
                match removed {
                    Ok(()) => Ok(true),
                    Err(error) if is_missing(&error) => Ok(false),
                    Err(error) => Err(Failure::local(shown, error)),
                }
            }
            Self::Archive(_) | Self::View(_) => Err(self.refused("delete", path)),
        }
    }

    /// Returns whether `path` is a symbolic link of the local file system. All other calls follow links.
    pub fn is_link(&self, path: &str) -> bool {
        matches!(self, Self::Local) && fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink())
    }

    /// Opens a file and verifies its bytes against their checksums.
    pub async fn open(&self, path: &str, shown: &str) -> Result<Source, Failure> {
        self.open_with(path, shown, true).await
    }

    /// Like `open`; without `verify` the bytes are not checked.
    pub async fn open_with(&self, path: &str, shown: &str, verify: bool) -> Result<Source, Failure> {
        match self {
            Self::Hdfs(fs) => fs.open(path, verify).await.map_err(|error| Failure::of(shown, error)),
            Self::Local => {
                let input = local_checksums::open(path, verify).map_err(|error| Failure::local(shown, error))?;
                Ok(Source::local(input, shown))
            }
            Self::Archive(archive) => Box::pin(archive.open(path, shown)).await,
            Self::View(_) => Err(Failure::is_directory(shown)),
        }
    }

    /// Creates or replaces a file. Removes the stale checksum file of a local one.
    pub async fn create(&self, path: &str, shown: &str, options: CreateOptions) -> Result<Sink, Failure> {
        match self {
            Self::Hdfs(fs) => fs.create(path, options).await.map_err(|error| Failure::of(shown, error)),
            Self::Local => {
                let mut open = fs::OpenOptions::new();
                open.write(true).truncate(options.overwrite).create(true).create_new(!options.overwrite);
                let file = open.open(path).map_err(|error| Failure::local(shown, error))?;
                local_checksums::remove(Path::new(path)).map_err(|error| Failure::local(shown, error))?;
                Ok(Sink::Local { file, sums: None, shown: shown.to_owned() })
            }
            Self::Archive(_) | Self::View(_) => Err(self.refused("create", path)),
        }
    }

    pub async fn set_permission(&self, path: &str, shown: &str, permission: FsPermission) -> Result<(), Failure> {
        match self {
            Self::Hdfs(fs) => fs.set_permission(path, permission).await.map_err(|error| Failure::of(shown, error)),
            Self::Local => {
                let mode = fs::Permissions::from_mode(u32::from(permission.0));
                fs::set_permissions(path, mode).map_err(|error| Failure::local(shown, error))
            }
            Self::Archive(_) | Self::View(_) => Err(self.refused("setPermission", path)),
        }
    }

    pub async fn set_owner(
        &self,
        path: &str,
        shown: &str,
        user: Option<&str>,
        group: Option<&str>,
    ) -> Result<(), Failure> {
        match self {
            Self::Hdfs(fs) => fs.set_owner(path, user, group).await.map_err(|error| Failure::of(shown, error)),
            Self::Local => {
                let number = |file: &str, name: Option<&str>| match name {
                    None => Ok(None),
                    Some(name) => number_of(file, name)
                        .map(Some)
                        .ok_or_else(|| Failure::path(shown, format!("{name} is not known on this machine"))),
                };
                let (user, group) = (number("/etc/passwd", user)?, number("/etc/group", group)?);
                std::os::unix::fs::chown(path, user, group).map_err(|error| Failure::local(shown, error))
            }
            Self::Archive(_) | Self::View(_) => Err(self.refused("setOwner", path)),
        }
    }

    /// Sets times, in milliseconds since the epoch.
    pub async fn set_times(
        &self,
        path: &str,
        shown: &str,
        modified: Option<u64>,
        read: Option<u64>,
    ) -> Result<(), Failure> {
        let time = |ms: u64| std::time::UNIX_EPOCH + std::time::Duration::from_millis(ms);
        match self {
            Self::Hdfs(fs) => {
                let set = fs.set_times(path, modified.map(time), read.map(time)).await;
                set.map_err(|error| Failure::of(shown, error))
            }
            Self::Local => {
                let mut times = fs::FileTimes::new();
                if let Some(ms) = modified {
                    times = times.set_modified(time(ms));
                }
                if let Some(ms) = read {
                    times = times.set_accessed(time(ms));
                }
                let file = fs::File::open(path).map_err(|error| Failure::local(shown, error))?;
                file.set_times(times).map_err(|error| Failure::local(shown, error))
            }
            Self::Archive(_) | Self::View(_) => Err(self.refused("setTimes", path)),
        }
    }
}

fn invalid_name(path: &str, from: &str) -> Failure {
    Failure::Usage(format!("Pathname {path} from {from} is not a valid DFS filename."))
}

/// Returns whether the path does not exist, also because a component above it is not a directory.
fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn local_status(name: Vec<u8>, metadata: &fs::Metadata) -> FileStatus {
    let kind = if metadata.is_dir() {
        FileKind::Directory
    } else if metadata.is_symlink() {
        FileKind::Symlink
    } else {
        FileKind::File
    };
    let ms = |seconds: i64, nanoseconds: i64| (seconds * 1000 + nanoseconds / 1_000_000).max(0) as u64;
    let file = kind == FileKind::File;
    FileStatus {
        kind,
        local_name: name,
        length: if file { metadata.len() } else { 0 },
        permission: FsPermission(metadata.mode() as u16 & FsPermission::MASK),
        owner: name_of("/etc/passwd", metadata.uid()),
        group: name_of("/etc/group", metadata.gid()),
        modification_time_ms: ms(metadata.mtime(), metadata.mtime_nsec()),
        access_time_ms: ms(metadata.atime(), metadata.atime_nsec()),
        replication: u16::from(file),
        // The block size that Hadoop's local file system reports.
        block_size: if file { 32 << 20 } else { 0 },
        inode: metadata.ino(),
        children: -1,
        storage_policy: 0,
        flags: FileFlags(0),
        symlink: None,
        erasure_coding_policy: None,
    }
}

/// Returns the name with id `number` in a file of the format of the password file.
pub fn name_of(file: &str, number: u32) -> String {
    let text = fs::read_to_string(file).unwrap_or_default();
    let found = text.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(number)).then(|| name.to_owned())
    });
    found.unwrap_or_else(|| number.to_string())
}

fn number_of(file: &str, name: &str) -> Option<u32> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let found = text.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next()? == name).then(|| fields.nth(1)?.parse().ok()).flatten()
    });
    found.or_else(|| name.parse().ok())
}

/// Source of bytes.
pub enum Source {
    Hdfs(Box<Reader>),
    Web(Box<WebReader>),
    /// Bytes of another file: their start there, their count, and how many were read.
    Part {
        whole: Box<Source>,
        start: u64,
        length: u64,
        position: u64,
    },
    Local {
        input: Box<dyn Input>,
        buffer: Vec<u8>,
        start: usize,
        end: usize,
        shown: String,
    },
}

/// Local file or standard input.
pub trait Input: Read + Send {
    /// Returns the length in bytes, or `None` if it is unknown.
    fn length(&self) -> Option<u64> {
        None
    }

    fn seek_to(&mut self, position: u64) -> io::Result<()>;
}

impl Input for fs::File {
    fn length(&self) -> Option<u64> {
        self.metadata().ok().filter(|metadata| metadata.is_file()).map(|metadata| metadata.len())
    }

    fn seek_to(&mut self, position: u64) -> io::Result<()> {
        self.seek(SeekFrom::Start(position)).map(|_| ())
    }
}

impl Input for io::Stdin {
    fn seek_to(&mut self, _position: u64) -> io::Result<()> {
        Err(io::ErrorKind::NotSeekable.into())
    }
}

/// Size of one read from a local file. Fits the second-level cache.
const LOCAL_READ_BYTES: usize = 256 << 10;

impl Source {
    pub fn local(input: Box<dyn Input>, shown: &str) -> Self {
        Self::Local { input, buffer: Vec::new(), start: 0, end: 0, shown: shown.to_owned() }
    }

    /// Returns `length` bytes of `whole`, from `start` on.
    pub async fn part(mut whole: Self, start: u64, length: u64) -> Result<Self, Failure> {
        Box::pin(whole.seek(start)).await?;
        Ok(Self::Part { whole: Box::new(whole), start, length, position: 0 })
    }

    pub fn standard_input() -> Self {
        Self::local(Box::new(io::stdin()), "-")
    }

    pub fn length(&self) -> Option<u64> {
        match self {
            Self::Hdfs(reader) => Some(reader.length()),
            Self::Web(reader) => Some(reader.length()),
            Self::Part { length, .. } => Some(*length),
            Self::Local { input, .. } => input.length(),
        }
    }

    pub async fn seek(&mut self, position: u64) -> Result<(), Failure> {
        match self {
            Self::Hdfs(reader) => Ok(reader.seek(position).await?),
            Self::Web(reader) => Ok(reader.seek(position)?),
            Self::Part { whole, start, length, position: at } => {
                *at = position.min(*length);
                Box::pin(whole.seek(*start + *at)).await
            }
            Self::Local { input, start, end, shown, .. } => {
                (*start, *end) = (0, 0);
                input.seek_to(position).map_err(|error| Failure::local(shown, error))
            }
        }
    }

    /// Returns the next bytes, empty at the end. Report with `consume` how many were used.
    pub async fn next(&mut self) -> Result<&[u8], Failure> {
        match self {
            Self::Hdfs(reader) => Ok(reader.next().await?),
            Self::Web(reader) => Ok(reader.next().await?),
            Self::Part { whole, length, position, .. } => {
                let left = usize::try_from(*length - *position).unwrap_or(usize::MAX);
                if left == 0 {
                    return Ok(&[]);
                }
                let next = Box::pin(whole.next()).await?;
                Ok(&next[..next.len().min(left)])
            }
            Self::Local { input, buffer, start, end, shown } => {
                if start == end {
                    buffer.resize(LOCAL_READ_BYTES, 0);
                    *start = 0;
                    *end = read_some(&mut **input, buffer).map_err(|error| Failure::local(shown, error))?;
                }
                Ok(&buffer[*start..*end])
            }
        }
    }

    pub fn consume(&mut self, count: usize) {
        match self {
            Self::Hdfs(reader) => reader.consume(count),
            Self::Web(reader) => reader.consume(count),
            Self::Part { whole, position, .. } => {
                *position += count as u64;
                whole.consume(count);
            }
            Self::Local { start, .. } => *start += count,
        }
    }

    /// Reads into the caller's memory. Returns 0 at the end.
    pub async fn read(&mut self, into: &mut [u8]) -> Result<usize, Failure> {
        match self {
            Self::Local { input, start, end, shown, .. } if start == end => {
                read_some(&mut **input, into).map_err(|error| Failure::local(shown, error))
            }
            source => {
                let next = source.next().await?;
                let count = next.len().min(into.len());
                into[..count].copy_from_slice(&next[..count]);
                source.consume(count);
                Ok(count)
            }
        }
    }
}

fn read_some(input: &mut dyn Input, into: &mut [u8]) -> io::Result<usize> {
    loop {
        match input.read(into) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            outcome => return outcome,
        }
    }
}

/// Target of bytes.
pub enum Sink {
    Hdfs(Box<Writer>),
    Web(Box<WebWriter>),
    Local { file: fs::File, sums: Option<Box<ChecksumWriter>>, shown: String },
}

impl Sink {
    /// Writes a checksum file beside a local file that was just created at `path`.
    pub fn with_checksums(mut self, path: &str) -> Result<Self, Failure> {
        if let Self::Local { sums, shown, .. } = &mut self {
            let summer = ChecksumWriter::create(Path::new(path)).map_err(|error| Failure::local(shown, error))?;
            *sums = Some(Box::new(summer));
        }
        Ok(self)
    }

    /// Copies all of `from`. `moved` gets the length of every piece.
    pub async fn take(&mut self, from: &mut Source, mut moved: impl FnMut(u64)) -> Result<(), Failure> {
        loop {
            let count = match self {
                // Copied directly into the packet that is being filled.
                Self::Hdfs(writer) => {
                    let count = from.read(writer.space().await?).await?;
                    writer.advance(count).await?;
                    count
                }
                Self::Web(writer) => {
                    let next = from.next().await?;
                    writer.write(next).await?;
                    let count = next.len();
                    from.consume(count);
                    count
                }
                // Written directly from the receive buffer.
                Self::Local { file, sums, shown } => {
                    let next = from.next().await?;
                    write_local(file, sums, next).map_err(|error| Failure::local(shown, error))?;
                    let count = next.len();
                    from.consume(count);
                    count
                }
            };
            if count == 0 {
                return Ok(());
            }
            moved(count as u64);
        }
    }

    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        match self {
            Self::Hdfs(writer) => Ok(writer.write(bytes).await?),
            Self::Web(writer) => Ok(writer.write(bytes).await?),
            Self::Local { file, sums, shown } => {
                write_local(file, sums, bytes).map_err(|error| Failure::local(shown, error))
            }
        }
    }

    pub async fn close(self) -> Result<(), Failure> {
        match self {
            Self::Hdfs(writer) => Ok(writer.close().await?),
            Self::Web(writer) => Ok(writer.close().await?),
            Self::Local { mut file, sums, shown } => {
                let flushed = file.flush().and_then(|()| sums.map_or(Ok(()), |sums| sums.finish()));
                flushed.map_err(|error| Failure::local(&shown, error))
            }
        }
    }
}

fn write_local(file: &mut fs::File, sums: &mut Option<Box<ChecksumWriter>>, bytes: &[u8]) -> io::Result<()> {
    file.write_all(bytes)?;
    sums.as_mut().map_or(Ok(()), |sums| sums.add(bytes))
}
