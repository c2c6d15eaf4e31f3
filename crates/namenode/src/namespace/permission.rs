//! Permission checks: traversal, permission bits, the sticky bit, ownership, the superuser.

use std::sync::Arc;

use hearth_types::{Access, FsPermission};

use super::Namespace;
use super::inode::{Inode, InodeKind, Slot};
use super::path::{Trail, is_below};
use crate::error::Error;

/// Identity of a caller for permission checks.
#[derive(Clone, Debug)]
pub struct Caller {
    pub user: Arc<str>,
    /// Groups of the user. Empty for superusers, whose groups are never needed.
    pub groups: Arc<[String]>,
    /// True for the user that runs the NameNode and for members of `dfs.permissions.superusergroup`.
    pub superuser: bool,
    /// IP address of the caller, as text.
    pub machine: Arc<str>,
}

/// Permissions that an operation needs on a path in addition to traversal. They are checked in the order of the fields.
#[derive(Clone, Copy, Default)]
pub struct Need {
    /// Access to the nearest existing inode above the target.
    pub ancestor: Option<Access>,
    /// Access to the target's directory. If it includes `WRITE`, the target may be removed, so the sticky bit of the
    /// directory is checked.
    pub parent: Option<Access>,
    pub target: Option<Access>,
    /// Access to every directory of the target's subtree.
    pub subtree: Option<Access>,
    /// If true, `subtree` requires no permission on empty directories.
    pub subtree_ignores_empty: bool,
    pub owner: bool,
}

impl Namespace {
    /// Refuses a path that passes through a file, or through a directory that the caller may not traverse.
    pub fn check_traverse(&self, caller: &Caller, trail: &Trail) -> Result<(), Error> {
        // All existing inodes except that of the last component.
        let ancestors = trail.existing.len().min(trail.names.len());
        for (depth, slot) in trail.existing[..ancestors].iter().enumerate() {
            let inode = self.inode(*slot);
            if !inode.is_directory() {
                return Err(Error::NotADirectory { path: trail.prefix(depth) });
            }
            if self.checks_rights_of(caller) && !self.may(caller, inode, Access::EXECUTE) {
                return Err(self.denied(caller, Access::EXECUTE, trail.prefix(depth), inode));
            }
        }
        Ok(())
    }

    /// Returns whether permissions are checked for this caller.
    pub fn checks_rights_of(&self, caller: &Caller) -> bool {
        self.limits.permissions_enabled && !caller.superuser
    }

    /// Checks `need` on a path whose traversal has been checked.
    pub fn check(&self, caller: &Caller, trail: &Trail, need: Need) -> Result<(), Error> {
        if !self.checks_rights_of(caller) {
            return Ok(());
        }
        if need.parent.is_some_and(|access| access.includes(Access::WRITE)) {
            self.check_sticky(caller, trail)?;
        }
        if let (Some(access), false) = (need.ancestor, trail.is_root()) {
            let depth = (trail.existing.len() - 1).min(trail.names.len() - 1);
            self.check_one(caller, trail, depth, access)?;
        }
        if let (Some(access), Some(_)) = (need.parent, trail.parent()) {
            self.check_one(caller, trail, trail.names.len() - 1, access)?;
        }
        if let (Some(access), Some(_)) = (need.target, trail.target()) {
            self.check_one(caller, trail, trail.names.len(), access)?;
        }
        if let (Some(access), Some(target)) = (need.subtree, trail.target()) {
            self.check_subtree(caller, trail, target, access, need.subtree_ignores_empty)?;
        }
        if need.owner {
            self.check_owner(caller, trail)?;
        }
        Ok(())
    }

    fn check_one(&self, caller: &Caller, trail: &Trail, depth: usize, access: Access) -> Result<(), Error> {
        let inode = self.inode(trail.existing[depth]);
        if self.may(caller, inode, access) {
            return Ok(());
        }
        Err(self.denied(caller, access, trail.prefix(depth), inode))
    }

    fn breaks_sticky(&self, caller: &Caller, parent: &Inode, inode: &Inode) -> bool {
        self.checks_rights_of(caller)
            && parent.permission().0 & 0o1000 != 0
            && !self.owns(caller, parent)
            && !self.owns(caller, inode)
    }

    /// Checks the sticky bit: in a sticky directory only the owners of the entry and of the directory may remove the
    /// entry.
    pub fn check_sticky(&self, caller: &Caller, trail: &Trail) -> Result<(), Error> {
        let (Some(parent), Some(target)) = (trail.parent(), trail.target()) else { return Ok(()) };
        let (parent, inode) = (self.inode(parent), self.inode(target));
        if !self.breaks_sticky(caller, parent, inode) {
            return Ok(());
        }
        Err(Error::StickyBit {
            user: caller.user.to_string(),
            path: trail.path(),
            inode: self.ownership_text(inode),
            parent: format!("\"{}\":{}", trail.parent_path(), self.ownership_text(parent)),
        })
    }

    /// Allows only the owner and the superuser, even if permissions are off.
    pub fn check_owner(&self, caller: &Caller, trail: &Trail) -> Result<(), Error> {
        match trail.target() {
            Some(target) if !caller.superuser && !self.owns(caller, self.inode(target)) => {
                Err(Error::NotOwner { user: caller.user.to_string(), path: trail.path() })
            }
            _ => Ok(()),
        }
    }

    /// Checks access to the whole subtree: `READ` for a difference report, everything for a recursive delete.
    fn check_subtree(
        &self,
        caller: &Caller,
        trail: &Trail,
        top: Slot,
        access: Access,
        ignore_empty: bool,
    ) -> Result<(), Error> {
        let mut waiting = vec![(trail.path(), top)];
        while let Some((path, slot)) = waiting.pop() {
            let inode = self.inode(slot);
            let InodeKind::Directory(children) = inode.kind() else { continue };
            let asked = !(ignore_empty && children.is_empty());
            if asked && !self.may(caller, inode, access) {
                return Err(self.denied(caller, access, path, inode));
            }
            for child in self.children_at(trail.snapshot, slot) {
                let (parent, inode) = (inode, self.inode(child));
                // Entries deleted with the tree are protected by the sticky bit as if they were deleted alone.
                if access == Access::ALL && self.breaks_sticky(caller, parent, inode) {
                    return Err(Error::StickyBit {
                        user: caller.user.to_string(),
                        path: join(&path, &inode.name),
                        inode: self.ownership_text(inode),
                        // Apache reports the owner of the tree's top here.
                        parent: format!("\"{path}\":{}", self.ownership_text(self.inode(top))),
                    });
                }
                if inode.is_directory() {
                    waiting.push((join(&path, &inode.name), child));
                }
            }
        }
        Ok(())
    }

    pub fn require_superuser(&self, caller: &Caller, operation: &'static str) -> Result<(), Error> {
        if caller.superuser || !self.limits.permissions_enabled {
            return Ok(());
        }
        Err(Error::SuperuserRequired { user: caller.user.to_string(), operation })
    }

    /// Refuses to delete or rename a directory of `fs.protected.directories` that is not empty.
    pub fn check_protected(&self, trail: &Trail) -> Result<(), Error> {
        if self.limits.protected.is_empty() {
            return Ok(());
        }
        let path = trail.path();
        for protected in &self.limits.protected {
            if *protected == path {
                return Err(Error::Protected { path });
            }
            if is_below(protected, &path)
                && self.lookup(protected).and_then(|slot| self.inode(slot).children()).is_some_and(|c| !c.is_empty())
            {
                return Err(Error::ProtectedDescendant { path: protected.clone() });
            }
        }
        if self.limits.protects_subdirectories {
            let mut above = path.as_str();
            while let Some(end) = above.rfind('/').filter(|end| *end > 0) {
                above = &above[..end];
                if self.limits.protected.iter().any(|protected| protected == above) {
                    return Err(Error::BelowProtected { path: above.to_owned() });
                }
            }
        }
        Ok(())
    }

    pub(super) fn owns(&self, caller: &Caller, inode: &Inode) -> bool {
        **self.names.text(inode.owner()) == *caller.user
    }

    /// Returns whether the caller has this access. The first match of owner, ACL, group and others decides.
    pub fn may(&self, caller: &Caller, inode: &Inode, access: Access) -> bool {
        let mode = inode.permission().0;
        let bits = if self.owns(caller, inode) {
            mode >> 6
        } else if let Some(may) = self.may_by_acl(caller, inode, access) {
            return may;
        } else if caller.groups.iter().any(|group| **group == **self.names.text(inode.group())) {
            mode >> 3
        } else {
            mode
        };
        Access::from_bits(bits as u8).includes(access)
    }

    pub(super) fn denied(&self, caller: &Caller, access: Access, path: String, inode: &Inode) -> Error {
        Error::PermissionDenied {
            user: caller.user.to_string(),
            access: access.name(),
            path,
            inode: self.ownership_text(inode),
        }
    }

    /// Formats `owner:group:drwxr-xr-x`.
    fn ownership_text(&self, inode: &Inode) -> String {
        let kind = if inode.is_directory() { 'd' } else { '-' };
        let permission = FsPermission(inode.permission().0 & FsPermission::MASK);
        let more = if inode.acl().is_empty() { "" } else { "+" };
        format!("{}:{}:{kind}{permission}{more}", self.names.text(inode.owner()), self.names.text(inode.group()))
    }
}

/// Appends a name to the path `directory`.
pub fn join(directory: &str, name: &[u8]) -> String {
    let name = String::from_utf8_lossy(name);
    if directory == "/" { format!("/{name}") } else { format!("{directory}/{name}") }
}
