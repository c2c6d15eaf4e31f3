//! Directory of a namespace: its identity, its files and its lock.
//!
//! ```text
//! DIR/in_use.lock             held by the running NameNode
//! DIR/current/VERSION         cluster, namespace and pool, in Hadoop's form; storageType identifies it as Hearth's
//! DIR/current/namespace.redb  the tables, the journal's marks, and a copy of the identity
//! DIR/current/journal.0, .1   changes that are not in the tables yet; see `journal.rs`
//! DIR/current/journal.last    progress of the journal; see `journal_progress.rs`
//! DIR/current.formatting/     an unfinished format
//! ```

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use hearth_types::block_file::{parse_properties, print_properties};
use hearth_types::{BlockPoolId, PoolIdentity};
use rustix::fs::{FlockOperation, flock};

use super::journal::{Journal, Mark};
use super::tables::Tables;
use super::{StoreError, io};
use crate::changes::Changes;
use crate::namespace::Limits;

/// Version of the store's tables, records and journal. 1: no journal. 2: groups without marks. 3: files without heads.
pub(super) const LAYOUT: u32 = 4;
const STORAGE_TYPE: &str = "HEARTH_NAME_NODE";

/// Content of the VERSION file.
pub type Version = PoolIdentity;

/// Mode of the namespace's directory.
const PRIVATE: u32 = 0o700;

/// A directory that this process has locked for the lifetime of this value.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    /// The kernel releases the lock however the process ends.
    lock: File,
}

impl Directory {
    /// Locks a directory, and creates it if it is missing.
    pub fn lock(path: &Path) -> Result<Self, StoreError> {
        fs::create_dir_all(path).map_err(io("creating", path))?;
        let lock_path = path.join("in_use.lock");
        let mut lock = OpenOptions::new()
            .create(true)
            .read(true)
            .write(true)
            .truncate(false)
            .open(&lock_path)
            .map_err(io("opening", &lock_path))?;
        if let Err(error) = flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            if error != rustix::io::Errno::WOULDBLOCK {
                return Err(io("locking", &lock_path)(error.into()));
            }
            let mut holder = String::new();
            let _ = Read::by_ref(&mut lock).take(100).read_to_string(&mut holder);
            let holder = if holder.trim().is_empty() { "unknown".into() } else { holder.trim().to_owned() };
            return Err(StoreError::InUse { path: path.to_owned(), holder });
        }
        // The process id is only information for the operator: the lock itself is the kernel's.
        lock.set_len(0).and_then(|()| writeln!(lock, "{}", std::process::id())).map_err(io("writing", &lock_path))?;
        Ok(Self { path: path.to_owned(), lock })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn is_formatted(&self) -> bool {
        self.path.join("current").exists()
    }

    /// Checks that the directory may be formatted automatically: it contains nothing but the remains of an unfinished
    /// format.
    ///
    /// Errors: `NotEmpty` if there is anything else, which may be a namespace with a part missing.
    pub fn check_empty(&self) -> Result<(), StoreError> {
        for entry in fs::read_dir(&self.path).map_err(io("reading", &self.path))? {
            let name = entry.map_err(io("reading", &self.path))?.file_name();
            if !["in_use.lock", "current.formatting", "lost+found"].iter().any(|known| name == *known) {
                let found = name.to_string_lossy().into_owned();
                return Err(StoreError::NotEmpty { path: self.path.clone(), found });
            }
        }
        Ok(())
    }

    /// Returns the identity of the namespace.
    pub fn version(&self) -> Result<Version, StoreError> {
        if !self.is_formatted() {
            return Err(StoreError::NotFormatted { path: self.path.clone() });
        }
        Ok(self.stored_version()?.0)
    }

    /// Returns the identity with the layout. If the layout is not the current one, an earlier version wrote the
    /// directory last.
    pub(super) fn stored_version(&self) -> Result<(Version, u32), StoreError> {
        read_version(&self.version_file())
    }

    pub(super) fn version_file(&self) -> PathBuf {
        self.path.join("current/VERSION")
    }

    /// Updates the layout in the VERSION file to the current one. Call it after everything was read, and before
    /// anything is written that an earlier version does not know. An earlier version would overlook changes that are
    /// only in the journal, or would not recognize its groups, and lose them.
    pub(super) fn claim_layout(&self) -> Result<(), StoreError> {
        let (version, layout) = self.stored_version()?;
        if layout == LAYOUT {
            return Ok(());
        }
        tracing::info!(from = layout, to = LAYOUT, "upgrading the namespace directory to a newer layout");
        self.replace_version(&version)
    }

    /// Rewrites the VERSION file with the current layout.
    pub(super) fn replace_version(&self, version: &Version) -> Result<(), StoreError> {
        let part = self.path.join("current/VERSION.part");
        write_version(&part, version)?;
        fs::rename(&part, self.version_file()).map_err(io("renaming", &part))?;
        sync(&self.current())
    }

    /// Restricts the namespace directory, and with it the journal's mark, to this process's user, as Apache's NameNode
    /// does (`dfs.namenode.name.dir.perm`). Stores of earlier versions may be readable by all users.
    ///
    /// Errors: the mode cannot be read. A failure to change the mode is only logged, because the owner has allowed this
    /// process to use the directory.
    pub(super) fn make_private(&self) -> Result<(), StoreError> {
        let current = self.current();
        let about = fs::metadata(&current).map_err(io("looking at", &current))?;
        if about.permissions().mode() & 0o777 & !PRIVATE != 0 {
            match fs::set_permissions(&current, Permissions::from_mode(PRIVATE)) {
                Ok(()) => {
                    tracing::info!(path = %current.display(), "restricted access to the namespace to its own user")
                }
                Err(error) => {
                    tracing::warn!(path = %current.display(), %error, "cannot restrict the namespace directory to its user: other users may read it");
                }
            }
        }
        Ok(())
    }

    /// Returns the path of the files.
    pub(super) fn current(&self) -> PathBuf {
        self.path.join("current")
    }

    pub(super) fn database(&self) -> PathBuf {
        self.path.join("current/namespace.redb")
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // Unlocks explicitly, because a child that was just forked may still have the file open.
        let _ = flock(&self.lock, FlockOperation::Unlock);
    }
}

/// Reads the identity and the layout.
fn read_version(path: &Path) -> Result<(Version, u32), StoreError> {
    let bad = |problem: String| StoreError::BadVersion { path: path.to_owned(), problem };
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => match error.kind() {
            std::io::ErrorKind::NotFound => {
                return Err(StoreError::Missing { path: path.to_owned(), lost: "it identifies the namespace" });
            }
            std::io::ErrorKind::InvalidData => return Err(bad("it is not UTF-8 text".to_owned())),
            _ => return Err(io("reading", path)(error)),
        },
    };
    let properties = parse_properties(&text).map_err(|error| bad(error.to_string()))?;
    let get = |key: &str| {
        properties.get(key).filter(|value| !value.is_empty()).ok_or_else(|| bad(format!("{key} is missing")))
    };
    let layout = get("layoutVersion")?;
    match get("storageType")?.as_str() {
        STORAGE_TYPE => {}
        "NAME_NODE" => {
            let directory = path.ancestors().nth(2).unwrap_or(path);
            return Err(StoreError::Apache { path: directory.to_owned(), layout: layout.clone() });
        }
        other => return Err(bad(format!("storageType is {other}, not {STORAGE_TYPE}"))),
    }
    let layout: u32 = layout.parse().map_err(|_| bad(format!("layoutVersion is {layout}, not a number")))?;
    if layout > LAYOUT {
        return Err(StoreError::Newer { path: path.to_owned(), layout, known: LAYOUT });
    }
    let number = |key: &str| get(key)?.parse::<u64>().map_err(|_| bad(format!("{key} is not a number")));
    let version = Version {
        pool: BlockPoolId::new(get("blockpoolID")?.as_str()),
        namespace_id: u32::try_from(number("namespaceID")?).map_err(|_| bad("namespaceID is out of range".into()))?,
        cluster_id: get("clusterID")?.clone(),
        created_ms: number("cTime")?,
    };
    Ok((version, layout))
}

/// Gives the journal a new mark. All groups up to `number` must be in the tables, and the journal must have no others.
pub(super) fn begin_journal(
    current: &Path,
    tables: &mut Tables,
    version: &Version,
    number: u64,
    file_bytes: u64,
) -> Result<Journal, StoreError> {
    let mark = Mark::random().map_err(io("getting random bytes for", current))?;
    tables.mark_journal(mark, version)?;
    let journal = Journal::begin(current, mark, number, file_bytes)?;
    tables.journal_is_marked()?;
    Ok(journal)
}

/// Creates a new namespace with the contents `first`. Afterwards either all of it exists, or nothing.
///
/// Errors: `AlreadyFormatted` unless `force` is set. With `force` the old namespace is removed.
pub fn format(directory: &Directory, version: &Version, first: &Changes, force: bool) -> Result<(), StoreError> {
    make(directory, version, 0, force, |tables| tables.put(first, 0))
}

/// Creates a new namespace with the contents that `fill` puts into the tables, up to journal group `number`. They are
/// loaded before the namespace appears, which takes the memory of a start. Afterwards either all of it exists, or
/// nothing.
///
/// Errors: `AlreadyFormatted`; `Record` if the contents are not a namespace; those of `fill`.
pub fn fill<E: From<StoreError>>(
    directory: &Directory,
    version: &Version,
    number: u64,
    limits: Limits,
    fill: impl FnOnce(&mut Tables) -> Result<(), E>,
) -> Result<(), E> {
    make(directory, version, number, false, |tables| {
        fill(tables)?;
        drop(tables.load(limits)?);
        Ok(())
    })
}

fn make<E: From<StoreError>>(
    directory: &Directory,
    version: &Version,
    number: u64,
    force: bool,
    fill: impl FnOnce(&mut Tables) -> Result<(), E>,
) -> Result<(), E> {
    let current = directory.path.join("current");
    if current.exists() && !force {
        let cluster = directory.version().map_or_else(|_| "(unknown)".into(), |version| version.cluster_id);
        return Err(StoreError::AlreadyFormatted { path: directory.path.clone(), cluster }.into());
    }
    let formatting = directory.path.join("current.formatting");
    if formatting.exists() {
        fs::remove_dir_all(&formatting).map_err(io("removing", &formatting))?;
    }
    DirBuilder::new().mode(PRIVATE).create(&formatting).map_err(io("creating", &formatting))?;
    let mut tables = Tables::create(&formatting.join("namespace.redb"))?;
    fill(&mut tables)?;
    drop(begin_journal(&formatting, &mut tables, version, number, 0)?);
    drop(tables);
    write_version(&formatting.join("VERSION"), version)?;
    sync(&formatting)?;
    if current.exists() {
        fs::remove_dir_all(&current).map_err(io("removing", &current))?;
    }
    fs::rename(&formatting, &current).map_err(io("renaming", &formatting))?;
    Ok(sync(&directory.path)?)
}

fn write_version(path: &Path, version: &Version) -> Result<(), StoreError> {
    let text = print_properties(
        "The namespace of a Hearth NameNode",
        &[
            ("namespaceID", &version.namespace_id.to_string()),
            ("clusterID", &version.cluster_id),
            ("cTime", &version.created_ms.to_string()),
            ("storageType", STORAGE_TYPE),
            ("blockpoolID", version.pool.as_str()),
            ("layoutVersion", &LAYOUT.to_string()),
        ],
    );
    let mut file = File::create(path).map_err(io("creating", path))?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(io("writing", path))
}

fn sync(directory: &Path) -> Result<(), StoreError> {
    File::open(directory).and_then(|file| file.sync_all()).map_err(io("syncing", directory))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version() -> Version {
        Version {
            pool: BlockPoolId::new("BP-1-127.0.0.1-2"),
            namespace_id: 5,
            cluster_id: "CID-x".into(),
            created_ms: 2,
        }
    }

    #[test]
    fn formatted_directory_is_not_formatted_again() {
        let place = tempfile::tempdir().unwrap();
        let directory = Directory::lock(place.path()).unwrap();
        assert!(matches!(directory.version(), Err(StoreError::NotFormatted { .. })));
        format(&directory, &version(), &Changes::default(), false).unwrap();
        assert_eq!(directory.version().unwrap(), version());
        let again = format(&directory, &version(), &Changes::default(), false);
        assert!(matches!(again, Err(StoreError::AlreadyFormatted { cluster, .. }) if cluster == "CID-x"));
        let other = Version { cluster_id: "CID-y".into(), ..version() };
        format(&directory, &other, &Changes::default(), true).unwrap();
        assert_eq!(directory.version().unwrap(), other);
    }

    #[test]
    fn opening_upgrades_earlier_layout() {
        let place = tempfile::tempdir().unwrap();
        let directory = Directory::lock(place.path()).unwrap();
        format(&directory, &version(), &Changes::default(), false).unwrap();
        let path = place.path().join("current/VERSION");
        let text = fs::read_to_string(&path).unwrap();
        let now = format!("layoutVersion={LAYOUT}\n");
        for before in ["layoutVersion=1\n", "layoutVersion=2\n", "layoutVersion=3\n"] {
            fs::write(&path, text.replace(&now, before)).unwrap();
            assert!(fs::read_to_string(&path).unwrap().contains(before));
            directory.claim_layout().unwrap();
            assert!(fs::read_to_string(&path).unwrap().contains(&now));
            assert_eq!(directory.version().unwrap(), version());
        }
    }

    #[test]
    fn namespace_directory_is_private() {
        let place = tempfile::tempdir().unwrap();
        let directory = Directory::lock(place.path()).unwrap();
        format(&directory, &version(), &Changes::default(), false).unwrap();
        let mode = || fs::metadata(directory.current()).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(), 0o700);
        // The mode that earlier versions set.
        fs::set_permissions(directory.current(), Permissions::from_mode(0o755)).unwrap();
        directory.make_private().unwrap();
        assert_eq!(mode(), 0o700);
    }

    #[test]
    fn directory_lock_is_exclusive() {
        let place = tempfile::tempdir().unwrap();
        let first = Directory::lock(place.path()).unwrap();
        let second = Directory::lock(place.path());
        assert!(matches!(second, Err(StoreError::InUse { holder, .. }) if holder == std::process::id().to_string()));
        drop(first);
        Directory::lock(place.path()).unwrap();
    }

    #[test]
    fn foreign_directories_are_refused_by_name() {
        let place = tempfile::tempdir().unwrap();
        let directory = Directory::lock(place.path()).unwrap();
        fs::create_dir(place.path().join("current")).unwrap();
        let write = |text: &str| fs::write(place.path().join("current/VERSION"), text).unwrap();
        write("storageType=NAME_NODE\nlayoutVersion=-66\nclusterID=c\n");
        assert!(matches!(directory.version(), Err(StoreError::Apache { layout, .. }) if layout == "-66"));
        write("storageType=DATA_NODE\nlayoutVersion=-57\n");
        assert!(matches!(directory.version(), Err(StoreError::BadVersion { .. })));
        write("storageType=HEARTH_NAME_NODE\nlayoutVersion=5\n");
        assert!(matches!(directory.version(), Err(StoreError::Newer { layout: 5, .. })));
        write("rubbish");
        assert!(matches!(directory.version(), Err(StoreError::BadVersion { .. })));
        fs::remove_file(place.path().join("current/VERSION")).unwrap();
        assert!(matches!(directory.version(), Err(StoreError::Missing { .. })));
        // A system error must not be reported as damage.
        fs::create_dir(place.path().join("current/VERSION")).unwrap();
        assert!(matches!(directory.version(), Err(StoreError::Io { .. })));
    }
}
