//! Mode, owner, times, replication and storage policy of existing inodes.

use hearth_types::{Access, FsPermission};

use super::inode::{InodeKind, Slot};
use super::permission::{Caller, Need};
use super::{Namespace, Purpose, is_exactly_reserved};
use crate::error::Error;

/// Storage policy that is in effect for an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EffectivePolicy {
    /// Number of the inode's own policy, else of the nearest ancestor's; 0 if none is set.
    pub number: u8,
}

/// Lookup of storage policies for many inodes. Successive inodes are often in the same directory, whose policy is
/// looked up once.
pub struct Policies<'a> {
    pub(super) namespace: &'a Namespace,
    /// The last directory, and the policy in effect for it.
    pub(super) last: Option<(Slot, EffectivePolicy)>,
}

impl Policies<'_> {
    /// Like [`Namespace::storage_policy`], for an inode that is not gone.
    pub fn of(&mut self, slot: Slot) -> EffectivePolicy {
        let inode = self.namespace.inode(slot);
        let own = inode.storage_policy();
        if own != 0 || slot == self.namespace.root {
            return EffectivePolicy { number: own };
        }
        match self.last {
            Some((parent, policy)) if parent == inode.parent => policy,
            _ => {
                let policy = self.namespace.storage_policy(inode.parent);
                self.last = Some((inode.parent, policy));
                policy
            }
        }
    }
}

impl Namespace {
    /// Errors: `AttributesOfMissing`, `NotOwner`, traversal errors.
    pub fn set_permission(&mut self, caller: &Caller, path: &str, permission: FsPermission) -> Result<(), Error> {
        if is_exactly_reserved(path) {
            return Err(Error::InvalidPath { path: path.into() });
        }
        let (trail, slot) =
            self.resolve_existing(caller, path, Purpose::Write, |path| Error::AttributesOfMissing { path })?;
        self.check_owner(caller, &trail)?;
        self.inode_mut(slot)
            .change(|attributes| attributes.permission = FsPermission(permission.0 & FsPermission::MASK));
        Ok(())
    }

    /// Sets the owner and the group; `None` leaves the value unchanged.
    ///
    /// Errors: `AttributesOfMissing`, `NotOwner`, `OwnerChangeDenied`, `NotInGroup`, traversal errors.
    pub fn set_owner(
        &mut self,
        caller: &Caller,
        path: &str,
        owner: Option<&str>,
        group: Option<&str>,
    ) -> Result<(), Error> {
        if is_exactly_reserved(path) {
            return Err(Error::InvalidPath { path: path.into() });
        }
        let (trail, slot) =
            self.resolve_existing(caller, path, Purpose::Write, |path| Error::AttributesOfMissing { path })?;
        self.check_owner(caller, &trail)?;
        if !caller.superuser {
            if owner.is_some_and(|owner| *owner != *caller.user) {
                return Err(Error::OwnerChangeDenied { user: caller.user.to_string() });
            }
            if let Some(group) = group.filter(|group| !caller.groups.iter().any(|mine| mine == group)) {
                return Err(Error::NotInGroup { user: caller.user.to_string(), group: group.into() });
            }
        }
        let owner = owner.map(|owner| self.names.intern(owner));
        let group = group.map(|group| self.names.intern(group));
        self.inode_mut(slot).change(|attributes| {
            attributes.owner = owner.unwrap_or(attributes.owner);
            attributes.group = group.unwrap_or(attributes.group);
        });
        Ok(())
    }

    /// Sets the times, in milliseconds since the epoch. `None` leaves the value unchanged.
    pub fn set_times(
        &mut self,
        caller: &Caller,
        path: &str,
        modification_ms: Option<u64>,
        access_ms: Option<u64>,
    ) -> Result<(), Error> {
        let (trail, slot) =
            self.resolve_existing(caller, path, Purpose::Write, |path| Error::TimesOfMissing { path })?;
        self.check(caller, &trail, Need { target: Some(Access::WRITE), ..Need::default() })?;
        if modification_ms.is_none() && access_ms.is_none() {
            return Ok(());
        }
        self.inode_mut(slot).change(|attributes| {
            attributes.modification_time_ms = modification_ms.unwrap_or(attributes.modification_time_ms);
            attributes.access_time_ms = access_ms.unwrap_or(attributes.access_time_ms);
        });
        Ok(())
    }

    /// Returns whether the access time of a file is old enough to be stored again.
    pub fn access_time_is_due(&self, slot: Slot, now_ms: u64) -> bool {
        let precision = self.limits.access_time_precision_ms;
        precision > 0 && now_ms > self.inode(slot).access_time_ms().saturating_add(precision)
    }

    /// Returns the file's slot and its previous replication. `None` for a directory or a missing path.
    ///
    /// Errors: replication out of bounds, `PermissionDenied`, traversal errors.
    pub fn set_replication(
        &mut self,
        caller: &Caller,
        path: &str,
        replication: u32,
    ) -> Result<Option<(Slot, u16)>, Error> {
        self.check_replication(path, replication, None)?;
        let trail = self.resolve(caller, path, Purpose::Write)?;
        self.check(caller, &trail, Need { target: Some(Access::WRITE), ..Need::default() })?;
        let Some(slot) = trail.target().filter(|slot| !self.inode(*slot).is_directory()) else { return Ok(None) };
        let old = self.inode(slot).replication();
        if u32::from(old) != replication {
            self.check_replication_quota(slot, replication as u16)?;
            self.inode_mut(slot).change(|attributes| attributes.replication = replication as u16);
        }
        Ok(Some((slot, old)))
    }

    /// Returns the inode for which `caller` wants to set a policy.
    ///
    /// Errors: `FileOrDirectoryMissing`, `PermissionDenied`, traversal errors.
    pub fn check_storage_policy(&self, caller: &Caller, path: &str) -> Result<Slot, Error> {
        let (trail, slot) =
            self.resolve_existing(caller, path, Purpose::Write, |path| Error::FileOrDirectoryMissing { path })?;
        self.check(caller, &trail, Need { target: Some(Access::WRITE), ..Need::default() })?;
        Ok(slot)
    }

    /// Sets a policy on an inode that has been checked; 0 removes it. No replicas move.
    pub fn set_storage_policy(&mut self, slot: Slot, number: u8) {
        self.settle();
        let new = match number {
            0 if slot != self.root => self.storage_policy(self.inode(slot).parent),
            _ => EffectivePolicy { number },
        };
        let is_counted = self.quotas > 0 && new != self.storage_policy(slot);
        let before = is_counted.then(|| self.tree_usage(slot));
        self.inode_mut(slot).change(|attributes| attributes.storage_policy = number);
        if let Some(before) = before {
            // The whole tree is counted here.
            self.touched.clear();
            self.count_other_policy(slot, &before);
        }
    }

    /// Returns the policy in effect for an inode: its own, else the nearest ancestor's. For a file that only snapshots
    /// have, it is the policy that was in effect when the file was removed. For such a directory, it comes from the
    /// newest state in a snapshot.
    pub fn storage_policy(&self, slot: Slot) -> EffectivePolicy {
        let mut at = slot;
        loop {
            let inode = self.inode(at);
            let own = inode.storage_policy();
            if own != 0 || at == self.root || (inode.is_gone() && !inode.is_directory()) {
                return EffectivePolicy { number: own };
            }
            at = self.newest_of_gone(at).unwrap_or(inode.parent);
        }
    }

    /// Returns whether the inode is a file, for answers that differ by kind.
    pub fn is_file(&self, slot: Slot) -> bool {
        matches!(self.inode(slot).kind(), InodeKind::File(_))
    }
}
