//! Creating directories and files.

use hearth_types::{Access, FsPermission};

use super::features::Features;
use super::file::{FilePart, Writer};
use super::inode::{Inode, InodeId, InodeKind, Slot};
use super::packed_inode::Attributes;
use super::path::{self, Trail};
use super::permission::{Caller, Need};
use super::{Children, Namespace, Purpose, Removed, is_exactly_reserved};
use crate::error::Error;

/// Id of an inode that is not linked yet. Linking assigns the real id.
const UNNUMBERED: InodeId = InodeId(0);

/// Requested mode of a new inode.
#[derive(Clone, Copy, Debug)]
pub struct Modes {
    /// Mode with the client's umask applied.
    pub masked: FsPermission,
    /// Mode without the umask, for a directory whose default ACL replaces the umask. `None` if the client does not send
    /// it.
    pub unmasked: Option<FsPermission>,
}

impl From<FsPermission> for Modes {
    fn from(masked: FsPermission) -> Self {
        Self { masked, unmasked: None }
    }
}

impl Modes {
    /// Adds write and execute permission for the owner, so that the creator of a tree can always traverse it and write
    /// to it.
    fn for_ancestors(self) -> Self {
        let open = |mode: FsPermission| FsPermission(mode.0 | 0o300);
        Self { masked: open(self.masked), unmasked: self.unmasked.map(open) }
    }
}

/// Arguments of `create` besides the path.
pub struct NewFile<'a> {
    pub modes: Modes,
    pub replication: u32,
    /// Block size in bytes.
    pub block_size: u64,
    /// Number of a storage policy that is set on the file itself; 0 for none.
    pub storage_policy: u8,
    pub writer: Writer,
    pub caller: &'a Caller,
}

impl Namespace {
    /// Checks that one more file, directory or block may be created (`dfs.namenode.max.objects`). Source:
    /// FSNamesystem.java, `checkFsObjectLimit`.
    pub fn check_object_limit(&self) -> Result<(), Error> {
        let maximum = self.limits.objects_max;
        if maximum != 0 && maximum <= self.inode_count() + self.block_count() {
            return Err(Error::TooManyObjects { maximum });
        }
        Ok(())
    }

    /// Creates a directory and its missing ancestors. An existing directory is left unchanged.
    ///
    /// Returns its slot. Errors: `InvalidFileName`, `ExistsAsFile`, `ParentNotADirectory`, `ParentMissing`,
    /// `PermissionDenied`, `ReservedName`, `SnapshotName`, `ComponentTooLong`, `DirectoryFull`.
    pub fn mkdirs(
        &mut self,
        caller: &Caller,
        path: &str,
        modes: impl Into<Modes>,
        make_parents: bool,
        now_ms: u64,
    ) -> Result<Slot, Error> {
        let modes = modes.into();
        let trail = self.resolve(caller, path, Purpose::Create)?;
        if let Some(slot) = trail.target() {
            if self.inode(slot).is_directory() {
                return Ok(slot);
            }
            return Err(Error::ExistsAsFile { path: path.into() });
        }
        self.check(caller, &trail, Need { ancestor: Some(Access::WRITE), ..Need::default() })?;
        if !make_parents {
            self.check_parent(&trail)?;
        }
        self.check_object_limit()?;
        self.check_new_names(&trail)?;
        let parent = self.make_ancestors(caller, &trail, modes.for_ancestors(), now_ms);
        Ok(self.make_directory(caller, parent, trail.last_name(), modes, now_ms))
    }

    /// Checks that a file may be created at a path and returns the resolved path. The caller decides about an existing
    /// target.
    ///
    /// `overwrite` and `create` are the flags of the call.
    pub fn check_create(
        &self,
        caller: &Caller,
        path: &str,
        create: bool,
        overwrite: bool,
        make_parents: bool,
    ) -> Result<Trail, Error> {
        let below_reserved = path::is_reserved(path) && !path::is_reserved_alias(path);
        if !path::is_valid(path) || is_exactly_reserved(path) || below_reserved {
            return Err(Error::InvalidPath { path: path.into() });
        }
        let trail = self.resolve(caller, path, Purpose::Create)?;
        self.check(caller, &trail, Need { ancestor: Some(Access::WRITE), ..Need::default() })?;
        match trail.target() {
            Some(slot) if self.inode(slot).is_directory() => {
                return Err(Error::ExistsAsDirectory { path: trail.path() });
            }
            Some(_) if overwrite => {
                self.check(caller, &trail, Need { target: Some(Access::WRITE), ..Need::default() })?;
            }
            Some(_) => {}
            None => {
                if !make_parents {
                    self.check_parent(&trail)?;
                }
                if !create {
                    return Err(Error::OverwriteMissing { path: path.into() });
                }
            }
        }
        Ok(trail)
    }

    /// Checks the block size and replication of a new file.
    pub fn check_new_file(&self, path: &str, block_size: u64, replication: u32, machine: &str) -> Result<(), Error> {
        // The value is a Java long: a negative number arrives as a huge one.
        if block_size < self.limits.block_size_min || block_size > i64::MAX as u64 {
            return Err(Error::BlockSizeTooSmall { size: block_size as i64, minimum: self.limits.block_size_min });
        }
        self.check_replication(path, replication, Some(machine))
    }

    /// Checks a replication factor against the configured bounds. `machine` is that of the creating client.
    pub fn check_replication(&self, path: &str, replication: u32, machine: Option<&str>) -> Result<(), Error> {
        let (minimum, maximum) = (u32::from(self.limits.replication_min), u32::from(self.limits.replication_max));
        let client = || machine.map_or(String::new(), |machine| format!(", clientName={machine}"));
        // The same applies to a Java int.
        if replication < minimum || replication > i32::MAX as u32 {
            let replication = replication as i32;
            return Err(Error::ReplicationTooSmall { replication, minimum, path: path.into(), client: client() });
        }
        if replication > maximum {
            return Err(Error::ReplicationTooLarge { replication, maximum, path: path.into(), client: client() });
        }
        Ok(())
    }

    /// Creates an empty open file at a free path that `check_create` and `check_new_file` have accepted.
    ///
    /// Errors: an invalid name, a full directory, an exceeded quota. All checks are made before the first change.
    pub fn create_file(&mut self, trail: &Trail, file: NewFile<'_>, now_ms: u64) -> Result<Slot, Error> {
        self.check_new_names(trail)?;
        Ok(self.put_file(trail, file, now_ms))
    }

    /// Like [`Namespace::create_file`], but replaces an existing file. [`Removed`] lists the blocks and leases to
    /// release.
    ///
    /// Errors: an invalid name, or an exceeded name quota if a snapshot keeps the old file.
    pub fn replace_file(
        &mut self,
        mut trail: Trail,
        replaced: Slot,
        file: NewFile<'_>,
        now_ms: u64,
    ) -> Result<(Slot, Removed), Error> {
        self.check_name(&trail, trail.names.len() - 1, trail.last_name())?;
        if self.is_in_snapshots(replaced) {
            self.check_name_quota(self.inode(replaced).parent, 1)?;
        }
        let removed = self.remove_tree(replaced, now_ms);
        trail.forget_target();
        Ok((self.put_file(&trail, file, now_ms), removed))
    }

    /// Adds the file. The caller has made all checks.
    fn put_file(&mut self, trail: &Trail, file: NewFile<'_>, now_ms: u64) -> Slot {
        assert!(trail.target().is_none(), "the path is free");
        // Missing ancestors take the mode of their nearest existing ancestor.
        let above = Modes::from(self.inode(trail.ancestor()).permission());
        let parent = self.make_ancestors(file.caller, trail, above.for_ancestors(), now_ms);
        let owner = self.names.intern(&file.caller.user);
        let group = self.inode(parent).group();
        let (permission, features) = self.rights_in(parent, false, file.modes);
        let attributes = Attributes {
            id: UNNUMBERED,
            owner,
            group,
            permission,
            storage_policy: file.storage_policy,
            replication: file.replication as u16,
            block_size: file.block_size,
            modification_time_ms: now_ms,
            access_time_ms: now_ms,
            since: 0,
        };
        let mut part = FilePart::default();
        part.open(self.writers.share(file.writer));
        let inode = Inode::new(attributes, features, InodeKind::File(part));
        self.attach(parent, trail.last_name(), inode, now_ms)
    }

    /// Returns the mode and the ACL of a new inode.
    fn rights_in(&self, parent: Slot, is_directory: bool, modes: Modes) -> (FsPermission, Features) {
        let valid = |mode: FsPermission| FsPermission(mode.0 & FsPermission::MASK);
        let (masked, unmasked) = (valid(modes.masked), modes.unmasked.map(valid));
        let (permission, acl) = self.inherited(parent, is_directory, masked, unmasked);
        (permission, Features { acl, ..Features::default() })
    }

    /// Checks that the target's parent directory exists.
    fn check_parent(&self, trail: &Trail) -> Result<(), Error> {
        match trail.parent() {
            None if !trail.is_root() => Err(Error::ParentMissing { path: trail.parent_path() }),
            _ => Ok(()),
        }
    }

    /// Checks the names of all components that do not exist yet, and that the directory above them has room.
    pub(super) fn check_new_names(&self, trail: &Trail) -> Result<(), Error> {
        let first_new = trail.existing.len() - 1;
        for depth in first_new..trail.names.len() {
            self.check_name(trail, depth, trail.names.get(depth))?;
        }
        self.check_room(trail, trail.existing[first_new])?;
        self.check_name_quota(trail.existing[first_new], trail.names.len() - first_new)
    }

    /// Checks a new name for component `depth` of the path.
    pub(super) fn check_name(&self, trail: &Trail, depth: usize, name: &[u8]) -> Result<(), Error> {
        if depth == 0 && name == b".reserved" {
            return Err(Error::ReservedName { name: ".reserved".into() });
        }
        if name == b".snapshot" {
            return Err(Error::SnapshotName);
        }
        let limit = self.limits.component_length_max;
        if limit > 0 && name.len() > limit {
            return Err(Error::ComponentTooLong {
                name: String::from_utf8_lossy(name).into_owned(),
                directory: trail.prefix(depth),
                limit,
                length: name.len(),
            });
        }
        Ok(())
    }

    pub(super) fn check_room(&self, trail: &Trail, directory: Slot) -> Result<(), Error> {
        let items = self.inode(directory).children().map_or(0, Children::len) + 1;
        if items > self.limits.directory_items_max {
            return Err(Error::DirectoryFull {
                directory: trail.prefix(trail.existing.len() - 1),
                limit: self.limits.directory_items_max,
                items,
            });
        }
        Ok(())
    }

    /// Creates all missing ancestors of the target. Returns the last one.
    fn make_ancestors(&mut self, caller: &Caller, trail: &Trail, modes: Modes, now_ms: u64) -> Slot {
        let mut parent = trail.ancestor();
        for depth in trail.existing.len() - 1..trail.names.len() - 1 {
            parent = self.make_directory(caller, parent, trail.names.get(depth), modes, now_ms);
        }
        parent
    }

    fn make_directory(&mut self, caller: &Caller, parent: Slot, name: &[u8], modes: Modes, now_ms: u64) -> Slot {
        let owner = self.names.intern(&caller.user);
        let group = self.inode(parent).group();
        let (permission, features) = self.rights_in(parent, true, modes);
        let attributes = Attributes::directory(UNNUMBERED, owner, group, permission, now_ms);
        let inode = Inode::new(attributes, features, InodeKind::Directory(Box::default()));
        self.attach(parent, name, inode, now_ms)
    }
}
