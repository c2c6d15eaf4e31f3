//! Renaming: the old call, which returns false on most failures, and the new call, which returns an error with the
//! reason.

use super::inode::Slot;
use super::path::{Trail, is_below, is_exactly_reserved};
use super::permission::{Caller, Need};
use super::remove::Removed;
use super::{Namespace, Purpose};
use crate::error::Error;
use hearth_types::Access;

/// Result of a rename that was done.
#[derive(Default, Debug, PartialEq, Eq)]
pub struct Renamed {
    /// `None` unless an existing target was overwritten.
    pub overwritten: Option<Removed>,
    /// The moved inode, if another storage policy is now in effect for it.
    pub other_policy: Option<Slot>,
}

impl Namespace {
    /// Implements the old rename. A directory as destination means "move into it". Returns `None` for most failures.
    ///
    /// Errors: `InvalidFileName`, `ParentNotADirectory`, `NotADirectory`, `PermissionDenied`, `StickyBit`, `Protected`,
    /// names that are too long, full directories.
    pub fn rename_old(
        &mut self,
        caller: &Caller,
        source: &str,
        destination: &str,
        now_ms: u64,
    ) -> Result<Option<Renamed>, Error> {
        // Apache's NameNode looks for the source first and finds none.
        if is_exactly_reserved(source) {
            return Ok(None);
        }
        self.check_not_reserved(source, destination)?;
        let source = self.resolve(caller, source, Purpose::Write)?;
        let mut destination = self.resolve(caller, destination, Purpose::Create)?;
        if source.is_root() {
            return Ok(None);
        }
        if let Some(directory) = destination.target().filter(|slot| self.inode(*slot).is_directory()) {
            let name = source.names.name(source.names.len() - 1);
            destination.names.push(name);
            destination.existing.extend(self.child(directory, name.as_bytes()));
            self.check_traverse(caller, &destination)?;
        }
        self.check_non_empty_protected(&source)?;
        self.check_rename_rights(caller, &source, &destination, false)?;
        let Some(moved) = source.target() else { return Ok(None) };
        if source.text() == destination.text() {
            return Ok(Some(Renamed::default()));
        }
        if is_below(destination.text(), source.text()) || destination.target().is_some() {
            return Ok(None);
        }
        let Some(parent) = destination.parent() else { return Ok(None) };
        let snapshottable = self.check_no_snapshots(moved)?;
        self.check_nested(snapshottable, &source, parent)?;
        self.check_new_place(&destination, parent, moved)?;
        self.check_rename_quota(moved, parent, None)?;
        let other_policy = self.relocate(moved, parent, destination.last_name(), now_ms);
        Ok(Some(Renamed { overwritten: None, other_policy }))
    }

    /// Implements the new rename. `overwrite` replaces a file by a file, or an empty directory by a directory.
    /// `to_trash` requires the permissions of a recursive delete.
    pub fn rename(
        &mut self,
        caller: &Caller,
        source: &str,
        destination: &str,
        overwrite: bool,
        to_trash: bool,
        now_ms: u64,
    ) -> Result<Renamed, Error> {
        self.check_not_reserved(source, destination)?;
        let source = self.resolve(caller, source, Purpose::Write)?;
        let destination = self.resolve(caller, destination, Purpose::Create)?;
        self.check_non_empty_protected(&source)?;
        self.check_rename_rights(caller, &source, &destination, to_trash)?;
        let (source_path, destination_path) = (source.path(), destination.path());
        let moved = source.target().ok_or_else(|| Error::RenameSourceMissing { path: source_path.clone() })?;
        if source.is_root() {
            return Err(Error::RenameRoot);
        }
        if source_path == destination_path {
            return Err(Error::RenameSame { source_path, destination: destination_path });
        }
        if is_below(&destination_path, &source_path) {
            return Err(Error::RenameBelowItself { source_path, destination: destination_path });
        }
        if destination.is_root() {
            return Err(Error::RenameToRoot);
        }
        let snapshottable = self.check_no_snapshots(moved)?;
        let replaced = destination.target();
        if let Some(replaced) = replaced {
            self.check_overwrite(moved, replaced, &source_path, &destination_path, overwrite)?;
            self.check_sticky(caller, &destination)?;
            self.check_no_snapshots(replaced)?;
        }
        let Some(parent) = destination.parent() else {
            return Err(Error::RenameParentMissing { path: destination_path });
        };
        self.check_nested(snapshottable, &source, parent)?;
        self.check_new_place(&destination, parent, moved)?;
        self.check_rename_quota(moved, parent, replaced)?;
        let overwritten = replaced.map(|replaced| self.remove_tree(replaced, now_ms));
        let other_policy = self.relocate(moved, parent, destination.last_name(), now_ms);
        Ok(Renamed { overwritten, other_policy })
    }

    fn check_not_reserved(&self, source: &str, destination: &str) -> Result<(), Error> {
        if is_exactly_reserved(source) || is_exactly_reserved(destination) {
            return Err(Error::RenameReserved);
        }
        Ok(())
    }

    fn check_non_empty_protected(&self, source: &Trail) -> Result<(), Error> {
        match source.target() {
            Some(slot) if self.inode(slot).children().is_some_and(|children| !children.is_empty()) => {
                self.check_protected(source)
            }
            _ => Ok(()),
        }
    }

    fn check_rename_rights(
        &self,
        caller: &Caller,
        source: &Trail,
        destination: &Trail,
        to_trash: bool,
    ) -> Result<(), Error> {
        let need = Need {
            parent: Some(Access::WRITE),
            subtree: to_trash.then_some(Access::ALL),
            subtree_ignores_empty: true,
            ..Need::default()
        };
        self.check(caller, source, need)?;
        self.check(caller, destination, Need { ancestor: Some(Access::WRITE), ..Need::default() })
    }

    fn check_overwrite(
        &self,
        moved: Slot,
        replaced: Slot,
        source: &str,
        destination: &str,
        overwrite: bool,
    ) -> Result<(), Error> {
        let (moved, replaced) = (self.inode(moved), self.inode(replaced));
        if moved.is_directory() != replaced.is_directory() {
            return Err(Error::RenameKinds { source_path: source.into(), destination: destination.into() });
        }
        if !overwrite {
            return Err(Error::RenameExists { path: destination.into() });
        }
        if replaced.children().is_some_and(|children| !children.is_empty()) {
            return Err(Error::RenameNotEmpty { path: destination.into() });
        }
        Ok(())
    }

    fn check_new_place(&self, destination: &Trail, parent: Slot, moved: Slot) -> Result<(), Error> {
        self.check_name(destination, destination.names.len() - 1, destination.last_name())?;
        // A move within the same directory needs no additional room.
        if destination.target().is_none() && self.inode(moved).parent != parent {
            self.check_room(destination, parent)?;
        }
        Ok(())
    }

    /// Moves an inode to a new name. Its own times stay; those of both directories are updated. Returns the inode if
    /// another storage policy is in effect for it now.
    fn relocate(&mut self, slot: Slot, parent: Slot, name: &[u8], now_ms: u64) -> Option<Slot> {
        let policy = self.storage_policy(slot);
        self.count_tree(slot, false);
        let (from, id) = (self.inode(slot).parent, self.inode(slot).id());
        let kept = [from, parent].map(|directory| self.kept_usage(directory, id));
        self.unlink(slot, now_ms);
        let inode = self.inode_mut(slot);
        inode.parent = parent;
        inode.name = name.into();
        self.link(parent, slot, now_ms);
        // Its usage was recorded for its former place.
        self.touched.clear();
        self.count_tree(slot, true);
        self.count_kept(from, id, &kept[0]);
        if parent != from {
            self.count_kept(parent, id, &kept[1]);
        }
        let has_other_policy = self.storage_policy(slot) != policy;
        if has_other_policy {
            // Its files now count for other media, also in quotas of directories within the tree.
            self.recount_tree(slot);
        }
        has_other_policy.then_some(slot)
    }
}
