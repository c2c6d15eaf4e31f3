//! In-memory tree of files and directories.
//!
//! The namespace is a pure state machine. Every function takes the time and the caller as arguments, does no I/O and
//! never blocks. A function that changes the namespace makes all its checks first and records each change. Before the
//! lock is released, [`Namespace::take_changes`] returns the recorded changes, encoded for the store.

mod acl;
mod arena;
mod attributes;
mod children;
mod create;
mod features;
mod file;
mod history;
mod inode;
mod listing;
mod lookup_cache;
mod name;
mod packed_inode;
mod path;
mod permission;
mod principals;
mod quota;
mod rebuild;
mod record;
mod remove;
mod rename;
mod sequence;
mod snapshot_diff;
mod snapshot_paths;
#[cfg(test)]
mod snapshot_tests;
mod snapshots;
pub(crate) mod stored;
mod summary;
#[cfg(test)]
pub(crate) mod tests;
#[cfg(test)]
pub(crate) mod visited_inodes;
mod writers;
mod xattrs;

use std::borrow::Cow;

use hearth_types::{BlockId, FsPermission, GenerationStamp};

pub use attributes::{EffectivePolicy, Policies};
pub use children::{Children, compare_names};
pub use create::{Modes, NewFile};
pub use file::{BlockRecord, Blocks, FilePart, RecordState, Truncation, Writer};
pub use history::{Snapshot, SnapshotBlock, SnapshotId};
pub use inode::{Inode, InodeId, InodeKind, Slot};
pub use listing::Listing;
pub use name::Name;
pub use packed_inode::Attributes;
pub use path::{Trail, is_below, is_exactly_reserved, is_reserved, is_valid, is_within_limits};
pub use permission::{Caller, Need, join};
pub use principals::{PrincipalId, Principals};
pub use quota::{Limit, QUOTA_TYPES, Quota, Usage};
pub use rebuild::{Rebuild, Section};
pub use record::RecordError;
pub use remove::Removed;
pub use rename::Renamed;
pub use snapshot_diff::{Changed, Difference, Differences, RelativePath, compare_paths};
pub use snapshot_paths::SnapshotPaths;
pub use snapshots::{SNAPSHOT_QUOTA, Snapshottable};
pub use summary::{SnapshotUsage, Summary, SummaryWalk};
pub use xattrs::XattrFlags;

use crate::changes::{Changes, Counters};
use crate::dense_map::DenseMap;
use crate::error::Error;
use arena::Arena;
use features::Features;
use history::Timeline;
use lookup_cache::{LookupCache, LookupKey};
use writers::Writers;

/// Purpose of resolving a path. It decides how malformed or reserved paths are refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    Read,
    Write,
    /// A new inode will be created at the path, so the path must be valid.
    Create,
}

/// Rules set by the configuration.
#[derive(Clone, Debug)]
pub struct Limits {
    pub permissions_enabled: bool,
    /// Maximum length of one name in bytes; 0 for no limit.
    pub component_length_max: usize,
    pub directory_items_max: usize,
    pub block_size_min: u64,
    pub blocks_per_file_max: usize,
    pub replication_min: u16,
    pub replication_max: u16,
    /// Minimum interval between two stored access times of a file. 0 turns access times off.
    pub access_time_precision_ms: u64,
    /// `fs.protected.directories`, canonical.
    pub protected: Vec<String>,
    /// If true, directories below the protected ones are protected as well.
    pub protects_subdirectories: bool,
    /// Maximum number of files, directories and blocks together; 0 for no limit.
    pub objects_max: u64,
    /// If true, only superusers may set storage policies.
    pub superuser_sets_storage_policy: bool,
    /// Maximum number of user and trusted attributes of one inode.
    pub xattrs_max: usize,
    /// Maximum size in bytes of one attribute's name and value.
    pub xattr_bytes_max: usize,
    /// If true, new inodes in a directory with a default ACL inherit that ACL instead of applying the client's umask.
    pub posix_acl_inheritance: bool,
    /// Maximum number of snapshots of one directory.
    pub snapshots_max: usize,
    /// Maximum number of snapshots of all directories together.
    pub snapshots_total_max: usize,
    /// If true, the owner of the parent directory may set quotas.
    pub owner_sets_quota: bool,
    /// If true, a snapshot keeps an open file as it was when the snapshot was made. Otherwise the file's state in the
    /// snapshot follows the writer until the file is closed, as in Apache's NameNode.
    pub snapshots_capture_open_files: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            permissions_enabled: true,
            component_length_max: 255,
            directory_items_max: 1024 * 1024,
            block_size_min: 1024 * 1024,
            blocks_per_file_max: 10_000,
            replication_min: 1,
            replication_max: 512,
            access_time_precision_ms: 3_600_000,
            protected: Vec::new(),
            protects_subdirectories: false,
            objects_max: 0,
            superuser_sets_storage_policy: false,
            xattrs_max: 32,
            xattr_bytes_max: 16384,
            posix_acl_inheritance: true,
            snapshots_max: SNAPSHOT_QUOTA,
            snapshots_total_max: SNAPSHOT_QUOTA,
            owner_sets_quota: false,
            snapshots_capture_open_files: false,
        }
    }
}

/// Number of inode pages that a thread handles as one work item: about 150,000 inodes.
const PART_PAGES: usize = 32;

pub struct Namespace {
    inodes: Arena,
    /// Inodes by id, including those that only snapshots have.
    by_id: DenseMap<Slot>,
    root: Slot,
    pub names: Principals,
    counters: Counters,
    pub limits: Limits,
    files: u64,
    blocks: u64,
    /// Ids of inodes that are new or changed since the last `take_changes`. An id may occur twice.
    changed: Vec<InodeId>,
    removed: Vec<InodeId>,
    counters_changed: bool,
    /// Number of directories with a quota.
    quotas: u64,
    /// Files that may have changed since quotas were last counted, with their usage before the change.
    touched: Vec<(InodeId, Usage)>,
    /// All snapshots.
    timeline: Timeline,
    /// Cache of recent name lookups.
    lookup_cache: LookupCache,
    writers: Writers,
}

impl Namespace {
    /// Returns an empty namespace as formatting leaves it. The root belongs to the user who formats.
    pub fn format(limits: Limits, user: &str, group: &str, now_ms: u64) -> Self {
        let mut names = Principals::default();
        let (owner, group) = (names.intern(user), names.intern(group));
        let attributes = Attributes::directory(InodeId::ROOT, owner, group, FsPermission(0o755), now_ms);
        let root = Inode::new(attributes, Features::default(), InodeKind::Directory(Box::default()));
        let mut inodes = Arena::default();
        let root = inodes.insert(root);
        let mut by_id = DenseMap::default();
        by_id.insert(InodeId::ROOT.0, root);
        Self {
            inodes,
            by_id,
            root,
            names,
            counters: Counters::FRESH,
            limits,
            files: 0,
            blocks: 0,
            changed: vec![InodeId::ROOT],
            removed: Vec::new(),
            counters_changed: true,
            quotas: 0,
            touched: Vec::new(),
            timeline: Timeline::default(),
            lookup_cache: LookupCache::default(),
            writers: Writers::default(),
        }
    }

    pub fn root(&self) -> Slot {
        self.root
    }

    pub fn inode(&self, slot: Slot) -> &Inode {
        self.inodes.get(slot)
    }

    /// Returns the inode for changing it, and records it as changed.
    pub fn inode_mut(&mut self, slot: Slot) -> &mut Inode {
        self.touch(slot);
        self.preserve(slot);
        let inode = self.inodes.get_mut(slot);
        self.changed.push(inode.id());
        inode
    }

    /// Returns the file part of an inode that is known to be a file, and records the inode as changed.
    pub fn file_mut(&mut self, slot: Slot) -> &mut FilePart {
        self.inode_mut(slot).as_file_mut().expect("the inode was seen to be a file")
    }

    /// Returns an open file for a change by its writer, and records it as changed. Snapshots that contain the file see
    /// the change, unless they capture open files.
    pub fn writing_mut(&mut self, slot: Slot) -> &mut Inode {
        if self.limits.snapshots_capture_open_files {
            return self.inode_mut(slot);
        }
        self.touch(slot);
        let inode = self.inodes.get_mut(slot);
        self.changed.push(inode.id());
        inode
    }

    /// Like [`Self::writing_mut`], but returns the file part.
    pub fn written_mut(&mut self, slot: Slot) -> &mut FilePart {
        self.writing_mut(slot).as_file_mut().expect("the inode was seen to be a file")
    }

    /// Returns the file or directory with this id. `None` also for an inode that only snapshots have.
    pub fn slot(&self, id: InodeId) -> Option<Slot> {
        self.by_id.get(id.0).copied().filter(|slot| !self.inode(*slot).is_gone())
    }

    /// Number of files and directories, including the root and the inodes that only snapshots have.
    pub fn inode_count(&self) -> u64 {
        self.by_id.len() as u64
    }

    pub fn file_count(&self) -> u64 {
        self.files
    }

    /// Number of blocks of all files, including blocks under construction.
    pub fn block_count(&self) -> u64 {
        self.blocks
    }

    /// Opens a file for writing.
    pub fn open_file(&mut self, slot: Slot, writer: Writer) {
        let writer = self.writers.share(writer);
        self.file_mut(slot).open(writer);
    }

    /// Replaces the writer of an open file. Snapshots that follow the file keep following it.
    pub fn change_writer(&mut self, slot: Slot, writer: Writer) {
        let writer = self.writers.share(writer);
        self.written_mut(slot).open(writer);
    }

    /// Iterates over all inodes in no particular order, except those that only snapshots have.
    pub fn iter(&self) -> impl Iterator<Item = &Inode> {
        self.by_id.values().map(|slot| self.inode(*slot)).filter(|inode| !inode.is_gone())
    }

    /// Returns all inodes, including those that only snapshots have, in parts for several threads.
    pub fn parts(&self) -> Vec<impl Iterator<Item = (Slot, &Inode)> + Send> {
        let has_frozen = self.timeline.has_versions();
        let is_main = move |slot: Slot, inode: &Inode| !has_frozen || self.by_id.get(inode.id().0) == Some(&slot);
        let count = self.inodes.page_count();
        let ranges = (0..count).step_by(PART_PAGES).map(|first| first..count.min(first + PART_PAGES));
        let part = |pages| self.inodes.of_pages(pages).filter(move |(slot, inode)| is_main(*slot, inode));
        ranges.map(part).collect()
    }

    /// Returns a lookup of storage policies for many files in sequence.
    pub fn policies(&self) -> Policies<'_> {
        Policies { namespace: self, last: None }
    }

    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Allocates the id of a new block.
    pub fn next_block_id(&mut self) -> BlockId {
        self.counters.last_block += 1;
        self.counters_changed = true;
        BlockId(self.counters.last_block)
    }

    pub fn next_stamp(&mut self) -> GenerationStamp {
        self.counters.last_stamp += 1;
        self.counters_changed = true;
        GenerationStamp(self.counters.last_stamp)
    }

    /// Returns the full path of an inode.
    pub fn path_of(&self, slot: Slot) -> String {
        let mut names = Vec::new();
        let mut at = slot;
        while at != self.root {
            let inode = self.inode(at);
            names.push(&inode.name);
            at = inode.parent;
        }
        if names.is_empty() {
            return "/".into();
        }
        let mut path = String::new();
        for name in names.iter().rev() {
            path.push('/');
            path.push_str(&String::from_utf8_lossy(name));
        }
        path
    }

    /// Returns the child of a directory named `name`. `None` also if `directory` is a file.
    pub fn child(&self, directory: Slot, name: &[u8]) -> Option<Slot> {
        let children = self.inode(directory).children()?;
        let key = LookupKey::new(directory, name);
        if let Some(slot) = self.lookup_cache.find(key).filter(|slot| self.is_child(*slot, directory, name)) {
            return Some(slot);
        }
        let slot = children.find(|slot| compare_names(&self.inode(slot).name, name))?;
        self.lookup_cache.note(key, slot);
        Some(slot)
    }

    /// Returns whether the inode at `slot`, if any, is currently the entry `name` of `directory`. A frozen snapshot
    /// state does not count.
    fn is_child(&self, slot: Slot, directory: Slot, name: &[u8]) -> bool {
        self.inodes.find(slot).is_some_and(|inode| {
            inode.parent == directory
                && *inode.name == *name
                && !inode.is_gone()
                && self.by_id.get(inode.id().0) == Some(&slot)
        })
    }

    /// Resolves a path to an inode without any checks.
    pub fn lookup(&self, path: &str) -> Option<Slot> {
        path::components(path).try_fold(self.root, |slot, name| self.child(slot, name))
    }

    /// Resolves `path` for a caller. Malformed paths are refused as Apache refuses them, and the caller must be allowed
    /// to traverse every directory of the path.
    ///
    /// Errors: `InvalidFileName` (create), `RelativePath`, `InodeMissing` (`/.reserved/.inodes/ID`),
    /// `NotADirectory` or, to create, `ParentNotADirectory`, `PermissionDenied`.
    pub fn resolve(&self, caller: &Caller, path: &str, purpose: Purpose) -> Result<Trail, Error> {
        if purpose == Purpose::Create && !is_valid(path) {
            return Err(Error::InvalidFileName { path: path.into() });
        }
        let trail = self.trail(caller, path, purpose)?;
        self.check_traverse(caller, &trail).map_err(|error| match (purpose, error) {
            (Purpose::Create, Error::NotADirectory { path }) => Error::ParentNotADirectory { path },
            (_, error) => error,
        })?;
        if purpose != Purpose::Read && (trail.snapshot.is_some() || trail.is_snapshot_list) {
            return Err(Error::SnapshotReadOnly);
        }
        Ok(trail)
    }

    /// Like `resolve`, for a path that must exist. `missing` makes the operation's own error.
    pub fn resolve_existing(
        &self,
        caller: &Caller,
        path: &str,
        purpose: Purpose,
        missing: impl FnOnce(String) -> Error,
    ) -> Result<(Trail, Slot), Error> {
        let trail = self.resolve(caller, path, purpose)?;
        match trail.target() {
            Some(slot) => Ok((trail, slot)),
            None => Err(missing(trail.path())),
        }
    }

    /// Like `resolve`, for a path that must be a file.
    pub fn resolve_file(&self, caller: &Caller, path: &str, purpose: Purpose) -> Result<(Trail, Slot), Error> {
        let (trail, slot) = self.resolve_existing(caller, path, purpose, |path| Error::FileMissing { path })?;
        if self.inode(slot).is_directory() {
            return Err(Error::NotAFile { path: trail.path() });
        }
        Ok((trail, slot))
    }

    fn trail(&self, caller: &Caller, path: &str, purpose: Purpose) -> Result<Trail, Error> {
        if !path.starts_with('/') {
            return Err(Error::RelativePath { path: path.into() });
        }
        let canonical = if is_reserved(path) { self.dereference(caller, path, purpose)? } else { Cow::Borrowed(path) };
        let mut existing = Vec::with_capacity(path::DEPTH_USUAL + 1);
        existing.push(self.root);
        let mut names = path::Components::for_path(&canonical);
        let (mut snapshot, mut is_snapshot_list) = (None, false);
        for text in canonical.split('/').filter(|name| !name.is_empty()) {
            let name = text.as_bytes();
            if existing.len() == names.len() + 1 {
                let at = existing[names.len()];
                if is_snapshot_list {
                    // The next name is that of a snapshot: from here on the path lies in the snapshot.
                    is_snapshot_list = false;
                    snapshot = Some(SnapshotId::NONE);
                    if let Some((id, top)) = self.snapshot_top(at, name) {
                        snapshot = Some(id);
                        existing.push(top);
                    }
                } else if let Some(snapshot) = snapshot {
                    existing.extend(self.child_in(snapshot, at, name));
                } else if name == b".snapshot" && self.is_snapshottable(at) {
                    is_snapshot_list = true;
                    existing.push(at);
                } else {
                    existing.extend(self.child(at, name));
                }
            }
            names.push(text);
        }
        if is_snapshot_list {
            // The list itself has no inode.
            existing.pop();
        }
        Ok(Trail { existing, names, snapshot, is_snapshot_list })
    }

    /// Translates `/.reserved/.inodes/ID/rest` and `/.reserved/raw/path` into the path that they refer to.
    fn dereference<'a>(&self, caller: &Caller, path: &'a str, purpose: Purpose) -> Result<Cow<'a, str>, Error> {
        let mut parts = path::components(path).skip(1);
        match parts.next() {
            Some(b".inodes") => {
                let Some(id) = parts.next() else { return Ok(Cow::Borrowed(path)) };
                let clean =
                    || format!("/{}", path.split('/').filter(|name| !name.is_empty()).collect::<Vec<_>>().join("/"));
                let missing = || Error::InodeMissing { path: clean() };
                let id = std::str::from_utf8(id).ok().and_then(|id| id.parse::<i64>().ok());
                let id = id.ok_or_else(|| Error::InodePathInvalid { path: clean() })?;
                let id = u64::try_from(id).map_err(|_| missing())?;
                // The walk continues below a file too, so that the later lookup reports that it is not a directory.
                let slot = self.slot(InodeId(id)).ok_or_else(missing)?;
                let mut full = self.path_of(slot);
                for part in parts {
                    // Java clients ask for the parent of a file by its id.
                    if part == b".." {
                        full.truncate(full.rfind('/').unwrap_or(0));
                        if full.is_empty() {
                            full.push('/');
                        }
                    } else {
                        full = join(&full, part);
                    }
                }
                Ok(Cow::Owned(full))
            }
            Some(b"raw") => {
                // The raw tree is for encrypted bytes and raw attributes. Nothing is encrypted here, so it is the same
                // tree.
                if purpose != Purpose::Read && self.checks_rights_of(caller) {
                    return Err(Error::SuperuserOnly { user: caller.user.to_string() });
                }
                let mut full = String::new();
                for part in parts {
                    full = join(&full, part);
                }
                Ok(Cow::Owned(if full.is_empty() { "/".into() } else { full }))
            }
            _ => Ok(Cow::Borrowed(path)),
        }
    }

    /// Links a new inode into its directory and gives it an id. The name was checked before.
    fn attach(&mut self, parent: Slot, name: &[u8], mut inode: Inode, now_ms: u64) -> Slot {
        self.counters.last_inode += 1;
        self.counters_changed = true;
        let id = InodeId(self.counters.last_inode);
        let since = self.counters.last_snapshot;
        inode.change(|attributes| (attributes.id, attributes.since) = (id, since));
        inode.parent = parent;
        inode.name = name.into();
        if !inode.is_directory() {
            self.files += 1;
        }
        let slot = self.inodes.insert(inode);
        self.by_id.insert(id.0, slot);
        self.changed.push(id);
        self.link(parent, slot, now_ms);
        self.count_new(slot);
        slot
    }

    /// Adds an inode to the entries of `parent` and updates that directory's modification time.
    fn link(&mut self, parent: Slot, slot: Slot, now_ms: u64) {
        let mut children = self.take_children(parent, now_ms);
        let name = &self.inode(slot).name;
        children.insert(slot, |other| compare_names(&self.inode(other).name, name));
        self.put_children(parent, children);
    }

    /// Removes an inode from the entries of its directory and updates that directory's modification time.
    fn unlink(&mut self, slot: Slot, now_ms: u64) {
        let parent = self.inode(slot).parent;
        self.preserve(slot);
        self.leave_entry(slot);
        let mut children = self.take_children(parent, now_ms);
        let name = &self.inode(slot).name;
        children.remove(|other| compare_names(&self.inode(other).name, name));
        self.put_children(parent, children);
    }

    /// Takes the entries out of a directory while they change, because comparing names needs access to the other
    /// inodes.
    fn take_children(&mut self, directory: Slot, now_ms: u64) -> Children {
        let inode = self.inode_mut(directory);
        inode.set_modification_time_ms(now_ms);
        match inode.kind_mut() {
            InodeKind::Directory(children) => std::mem::take(&mut **children),
            InodeKind::File(_) => unreachable!("a parent is a directory"),
        }
    }

    fn put_children(&mut self, directory: Slot, entries: Children) {
        match self.inodes.get_mut(directory).kind_mut() {
            InodeKind::Directory(children) => **children = entries,
            InodeKind::File(_) => unreachable!("a parent is a directory"),
        }
    }

    /// Appends a block to an open file.
    pub fn push_block(&mut self, slot: Slot, block: BlockRecord) {
        self.written_mut(slot).add_blocks([block]);
        self.blocks += 1;
    }

    /// Removes the last block of a file that is open, or whose state snapshots have already frozen.
    pub fn pop_block(&mut self, slot: Slot) -> Option<BlockRecord> {
        let last = self.written_mut(slot).pop();
        self.blocks -= u64::from(last.is_some());
        last
    }

    /// Returns the encoded changes since the last call. Call it before releasing the lock.
    pub fn take_changes(&mut self) -> Changes {
        self.settle();
        let mut changes = Changes::default();
        let mut changed = std::mem::take(&mut self.changed);
        changed.sort_unstable();
        changed.dedup();
        changes.inodes_put.reserve_exact(changed.len());
        for id in &changed {
            if let Some(slot) = self.by_id.get(id.0).filter(|slot| !self.inodes.get(**slot).is_gone()) {
                let inode = self.inodes.get(*slot);
                let parent = self.inodes.get(inode.parent).id();
                changes.inodes_put.push((id.0, record::encode(inode, parent)));
            }
        }
        changes.inodes_removed = std::mem::take(&mut self.removed).into_iter().map(|id| id.0).collect();
        changes.names_put = self.names.take_new();
        if std::mem::take(&mut self.counters_changed) {
            changes.counters = Some(self.counters);
        }
        self.take_history(&mut changes);
        // Keeps the buffer for the next operation.
        changed.clear();
        self.changed = changed;
        changes
    }
}
