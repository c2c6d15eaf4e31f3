//! Access control lists: permissions of named users and groups in addition to the mode bits, and defaults for new
//! inodes in a directory.
//!
//! A whole ACL also contains the three entries of the mode bits. If it has named entries, the group bits of the mode
//! hold its mask, which limits the permissions of named users and all groups. The group's own permissions are then
//! stored in an entry.

use hearth_types::{Access, AclChange, AclEntry, AclScope, AclType, FsPermission, whole_acl};

use super::inode::{Inode, Slot};
use super::permission::Caller;
use super::{Namespace, Purpose};
use crate::error::Error;

/// Maximum number of entries of one scope. Source: AclTransformation.java.
const ENTRIES_MAX: usize = 32;

const BASE: [AclType; 3] = [AclType::User, AclType::Group, AclType::Other];

/// Builder of a changed ACL.
#[derive(Default)]
struct Builder {
    entries: Vec<AclEntry>,
    /// By scope: the existing or given mask, whether the mask was given or removed, and whether any entry was.
    mask: [Option<AclEntry>; 2],
    mask_changed: [bool; 2],
    changed: [bool; 2],
}

impl Builder {
    fn keep(&mut self, entry: &AclEntry) {
        match entry.kind {
            AclType::Mask => self.mask[entry.scope as usize] = Some(entry.clone()),
            _ => self.entries.push(entry.clone()),
        }
    }

    fn give(&mut self, entry: &AclEntry) {
        self.note(entry);
        self.keep(entry);
    }

    fn note(&mut self, entry: &AclEntry) {
        self.changed[entry.scope as usize] = true;
        self.mask_changed[entry.scope as usize] |= entry.kind == AclType::Mask;
    }

    fn build(mut self) -> Result<Vec<AclEntry>, String> {
        self.copy_defaults();
        self.add_masks()?;
        validated(self.entries)
    }

    /// Fills the missing base entries of a default ACL from the access ACL.
    fn copy_defaults(&mut self) {
        if !self.entries.iter().any(|entry| entry.scope == AclScope::Default) {
            return;
        }
        for kind in BASE {
            let find = |scope| self.entries.iter().find(|entry| entry.key() == (scope, kind, None));
            if let (None, Some(access)) = (find(AclScope::Default), find(AclScope::Access)) {
                self.entries.push(AclEntry::unnamed(AclScope::Default, kind, access.access));
            }
        }
    }

    /// Computes a mask that is not given as the union of the entries that it limits.
    fn add_masks(&mut self) -> Result<(), String> {
        for scope in [AclScope::Access, AclScope::Default] {
            let of_scope = || self.entries.iter().filter(|entry| entry.scope == scope);
            if of_scope().next().is_none() {
                continue;
            }
            let needed = of_scope().any(|entry| entry.name.is_some());
            let at = scope as usize;
            match self.mask[at].take() {
                None if needed && self.mask_changed[at] => {
                    return Err("Invalid ACL: mask is required and cannot be deleted.".into());
                }
                Some(mask) if !self.changed[at] || self.mask_changed[at] => self.entries.push(mask),
                None if !needed => {}
                _ => {
                    let bounded = of_scope().filter(|entry| entry.kind == AclType::Group || entry.name.is_some());
                    let union = bounded.fold(0, |bits, entry| bits | entry.access.bits());
                    self.entries.push(AclEntry::unnamed(scope, AclType::Mask, Access::from_bits(union)));
                }
            }
        }
        Ok(())
    }
}

fn validated(mut entries: Vec<AclEntry>) -> Result<Vec<AclEntry>, String> {
    entries.sort_by(|a, b| a.key().cmp(&b.key()));
    if entries.windows(2).any(|pair| pair[0].key() == pair[1].key()) {
        return Err("Invalid ACL: multiple entries with same scope, type and name.".into());
    }
    let nameless = |entry: &&AclEntry| matches!(entry.kind, AclType::Mask | AclType::Other);
    if let Some(entry) = entries.iter().filter(nameless).find(|entry| entry.name.is_some()) {
        return Err(format!("Invalid ACL: this entry type must not have a name: {entry}."));
    }
    check_count(&entries)?;
    let has = |scope, kind| entries.iter().any(|entry| entry.key() == (scope, kind, None));
    if !BASE.iter().all(|kind| has(AclScope::Access, *kind)) {
        return Err("Invalid ACL: the user, group and other entries are required.".into());
    }
    let defaults = entries.iter().any(|entry| entry.scope == AclScope::Default);
    if defaults && !BASE.iter().all(|kind| has(AclScope::Default, *kind)) {
        return Err("Invalid default ACL: the user, group and other entries are required.".into());
    }
    Ok(entries)
}

fn check_count(entries: &[AclEntry]) -> Result<(), String> {
    for (scope, name) in [(AclScope::Access, "access"), (AclScope::Default, "default")] {
        let count = entries.iter().filter(|entry| entry.scope == scope).count();
        if count > ENTRIES_MAX {
            return Err(format!(
                "Invalid ACL: ACL has {count} {name} entries, which exceeds maximum of {ENTRIES_MAX}."
            ));
        }
    }
    Ok(())
}

/// Returns the whole ACL after a change. `existing` is the whole ACL before it.
fn changed(existing: &[AclEntry], change: &AclChange) -> Result<Vec<AclEntry>, String> {
    let mut builder = Builder::default();
    let empty = Vec::new();
    let given = match change {
        AclChange::Modify(entries) | AclChange::Remove(entries) | AclChange::Set(entries) => entries,
        AclChange::RemoveDefault | AclChange::RemoveAll => &empty,
    };
    check_count(given)?;
    let named = |entry: &AclEntry| given.iter().any(|other| other.key() == entry.key());
    match change {
        AclChange::Modify(entries) => {
            existing.iter().filter(|entry| !named(entry)).for_each(|entry| builder.keep(entry));
            entries.iter().for_each(|entry| builder.give(entry));
        }
        AclChange::Remove(_) => {
            for entry in existing {
                if named(entry) { builder.note(entry) } else { builder.keep(entry) }
            }
        }
        AclChange::Set(entries) => {
            entries.iter().for_each(|entry| builder.give(entry));
            for entry in existing {
                if !builder.changed[entry.scope as usize] {
                    builder.keep(entry);
                }
            }
        }
        AclChange::RemoveDefault | AclChange::RemoveAll => {
            let kept = existing.iter().filter(|entry| entry.scope == AclScope::Access).cloned().collect();
            return validated(kept);
        }
    }
    builder.build()
}

/// Splits a whole ACL into mode bits and stored entries. `mode` has the previous bits, for those that no entry sets.
fn split(whole: &[AclEntry], mode: FsPermission) -> (FsPermission, Vec<AclEntry>) {
    let (access, defaults): (Vec<&AclEntry>, Vec<&AclEntry>) =
        whole.iter().partition(|entry| entry.scope == AclScope::Access);
    // The first entry is the owner's, the last is that of others. Before the last is the mask, or the group if there is
    // no mask.
    let bits = |at: usize| u16::from(access[at].access.bits());
    let permission =
        FsPermission(mode.0 & 0o1000 | bits(0) << 6 | bits(access.len() - 2) << 3 | bits(access.len() - 1));
    let mut stored = Vec::new();
    if access.len() > BASE.len() {
        stored.extend(access[1..access.len() - 2].iter().map(|entry| (*entry).clone()));
    }
    stored.extend(defaults.into_iter().cloned());
    (permission, stored)
}

impl Inode {
    /// Returns the whole ACL, including the entries for the mode bits.
    fn whole_acl(&self) -> Vec<AclEntry> {
        let of_scope = |scope| whole_acl(self.permission(), self.acl(), scope);
        [AclScope::Access, AclScope::Default].into_iter().flat_map(of_scope).collect()
    }
}

impl Namespace {
    /// Errors: `Acl` with the problem, `AttributesOfMissing`, `NotOwner`, traversal errors.
    pub fn change_acl(&mut self, caller: &Caller, path: &str, change: &AclChange) -> Result<(), Error> {
        let missing = |path| Error::AttributesOfMissing { path };
        let (trail, slot) = self.resolve_existing(caller, path, Purpose::Write, missing)?;
        self.check_owner(caller, &trail)?;
        let inode = self.inode(slot);
        let refuse = |problem: String| Error::Acl { problem, path: path.into() };
        let removes_all = match change {
            AclChange::RemoveAll => true,
            AclChange::Set(entries) => entries.is_empty(),
            _ => false,
        };
        let (permission, stored) = if removes_all {
            // The group bits held the mask; the group gets its own permissions back.
            let group = inode.acl().iter().find(|entry| entry.key() == (AclScope::Access, AclType::Group, None));
            let mode = inode.permission().0;
            let mode = group.map_or(mode, |group| mode & !0o070 | u16::from(group.access.bits()) << 3);
            (FsPermission(mode), Vec::new())
        } else {
            split(&changed(&inode.whole_acl(), change).map_err(refuse)?, inode.permission())
        };
        if !inode.is_directory() && stored.iter().any(|entry| entry.scope == AclScope::Default) {
            let problem = format!("Invalid ACL: only directories may have a default ACL. Path: {}", trail.path());
            return Err(refuse(problem));
        }
        let inode = self.inode_mut(slot);
        inode.change(|attributes| attributes.permission = permission);
        inode.features_mut().acl = stored;
        inode.drop_empty_features();
        Ok(())
    }

    /// Returns the mode and the stored entries of a new inode in `parent`. `masked` and `unmasked` are the requested
    /// mode with and without the client's umask; a default ACL replaces the umask.
    pub(super) fn inherited(
        &self,
        parent: Slot,
        is_directory: bool,
        masked: FsPermission,
        unmasked: Option<FsPermission>,
    ) -> (FsPermission, Vec<AclEntry>) {
        let of_parent = self.inode(parent).acl();
        let defaults: Vec<&AclEntry> = of_parent.iter().filter(|entry| entry.scope == AclScope::Default).collect();
        if defaults.is_empty() {
            return (masked, Vec::new());
        }
        let mode = unmasked.filter(|_| self.limits.posix_acl_inheritance).unwrap_or(masked);
        let minimal = defaults.len() == BASE.len();
        let of_mode = |shift: u16| Access::from_bits((mode.0 >> shift) as u8);
        let mut whole: Vec<AclEntry> = Vec::new();
        for entry in &defaults {
            let bound = match (entry.kind, &entry.name) {
                (AclType::User, None) => of_mode(6),
                (AclType::Group, None) if minimal => of_mode(3),
                (AclType::Mask, _) => of_mode(3),
                (AclType::Other, _) => of_mode(0),
                _ => Access::ALL,
            };
            let access = Access::from_bits(entry.access.bits() & bound.bits());
            whole.push(AclEntry { scope: AclScope::Access, access, ..(*entry).clone() });
        }
        if is_directory {
            whole.extend(defaults.into_iter().cloned());
        }
        split(&whole, mode)
    }

    /// Returns whether the access entries of an inode permit the access to a caller that is not its owner. `None` if it
    /// has no ACL.
    pub(super) fn may_by_acl(&self, caller: &Caller, inode: &Inode, access: Access) -> Option<bool> {
        let entries = inode.acl();
        if entries.first().is_none_or(|entry| entry.scope != AclScope::Access) {
            return None;
        }
        let mask = Access::from_bits((inode.permission().0 >> 3) as u8);
        let mut matched = false;
        for entry in entries.iter().take_while(|entry| entry.scope == AclScope::Access) {
            let applies = match (entry.kind, entry.name.as_deref()) {
                (AclType::User, name) => name == Some(&*caller.user),
                (_, name) => {
                    let group = name.unwrap_or_else(|| self.names.text(inode.group()));
                    caller.groups.iter().any(|mine| mine == group)
                }
            };
            if !applies {
                continue;
            }
            matched = true;
            if mask.includes(access) && entry.access.includes(access) {
                return Some(true);
            }
            // The entry of a named user decides. Among group entries, any one may permit the access.
            if entry.kind == AclType::User {
                break;
            }
        }
        let other = Access::from_bits(inode.permission().0 as u8);
        Some(!matched && other.includes(access))
    }
}
