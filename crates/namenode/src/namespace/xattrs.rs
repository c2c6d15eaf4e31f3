//! Extended attributes: named values that users and programs attach to files and directories.

use super::inode::Slot;
use super::permission::{Caller, Need};
use super::{Namespace, Purpose};
use crate::error::Error;
use hearth_types::{Access, Xattr, XattrSpace};

/// Attribute that hides a file's content from superusers. It has no value and can never be removed.
const UNREADABLE_BY_SUPERUSER: &str = "hdfs.unreadable.by.superuser";

fn is_unreadable_mark(xattr: &Xattr) -> bool {
    xattr.space == XattrSpace::Security && &*xattr.name == UNREADABLE_BY_SUPERUSER
}

/// Returns whether the attribute counts against the limit per inode.
fn is_counted(xattr: &Xattr) -> bool {
    matches!(xattr.space, XattrSpace::User | XattrSpace::Trusted)
}

fn is_visible(xattr: &Xattr, caller: &Caller, raw: bool) -> bool {
    match xattr.space {
        XattrSpace::User => true,
        XattrSpace::Trusted => caller.superuser,
        XattrSpace::Raw => raw,
        XattrSpace::Security | XattrSpace::System => is_unreadable_mark(xattr),
    }
}

/// Flags of the `setXAttr` call: what it may do.
#[derive(Clone, Copy, Debug)]
pub struct XattrFlags {
    pub create: bool,
    pub replace: bool,
}

fn is_raw(path: &str) -> bool {
    path == "/.reserved/raw" || path.starts_with("/.reserved/raw/")
}

/// Checks that the caller may use this attribute name.
///
/// Errors: `XattrDenied`, `XattrUnreadableValue`.
fn check_may_name(caller: &Caller, xattr: &Xattr, raw: bool) -> Result<(), Error> {
    match xattr.space {
        XattrSpace::User => Ok(()),
        XattrSpace::Trusted if caller.superuser => Ok(()),
        XattrSpace::Raw if raw => Ok(()),
        _ if is_unreadable_mark(xattr) && xattr.value.is_empty() => Ok(()),
        _ if is_unreadable_mark(xattr) => Err(Error::XattrUnreadableValue { name: xattr.full_name() }),
        _ => Err(Error::XattrDenied { name: xattr.full_name() }),
    }
}

impl Namespace {
    /// Errors: `XattrTooBig`, `XattrDenied`, `CannotFind`, `XattrExists`, `XattrMissing`, `XattrLimit`, permission
    /// errors.
    pub fn set_xattr(&mut self, caller: &Caller, path: &str, xattr: Xattr, flags: XattrFlags) -> Result<(), Error> {
        let (size, limit) = (xattr.name.len() + xattr.value.len(), self.limits.xattr_bytes_max);
        if size > limit {
            return Err(Error::XattrTooBig { limit, size });
        }
        let slot = self.check_xattr_change(caller, path, &xattr)?;
        if is_unreadable_mark(&xattr) && !self.is_file(slot) {
            return Err(Error::XattrUnreadableDirectory);
        }
        if !flags.create && !flags.replace {
            return Err(Error::XattrFlags);
        }
        let existing = self.inode(slot).xattrs();
        let found = existing.iter().position(|other| other.is(&xattr));
        match found {
            Some(_) if !flags.replace => return Err(Error::XattrExists { name: xattr.name.into() }),
            None if !flags.create => return Err(Error::XattrMissing { name: xattr.name.into() }),
            _ => {}
        }
        let count = existing.iter().filter(|other| is_counted(other)).count();
        let added = usize::from(found.is_none() && is_counted(&xattr));
        if count + added > self.limits.xattrs_max {
            return Err(Error::XattrLimit { limit: self.limits.xattrs_max });
        }
        let xattrs = &mut self.inode_mut(slot).features_mut().xattrs;
        // The newest comes first, in Apache's listing order.
        if let Some(at) = found {
            xattrs.remove(at);
        }
        xattrs.insert(0, xattr);
        Ok(())
    }

    /// Errors: `XattrNothingRemoved`, `XattrUnreadableForever`, and those of `set_xattr`.
    pub fn remove_xattr(&mut self, caller: &Caller, path: &str, xattr: &Xattr) -> Result<(), Error> {
        let slot = self.check_xattr_change(caller, path, xattr)?;
        let existing = self.inode(slot).xattrs();
        if !existing.is_empty() && is_unreadable_mark(xattr) {
            return Err(Error::XattrUnreadableForever { name: xattr.full_name() });
        }
        let at = existing.iter().position(|other| other.is(xattr)).ok_or(Error::XattrNothingRemoved)?;
        let inode = self.inode_mut(slot);
        inode.features_mut().xattrs.remove(at);
        inode.drop_empty_features();
        Ok(())
    }

    fn check_xattr_change(&self, caller: &Caller, path: &str, xattr: &Xattr) -> Result<Slot, Error> {
        check_may_name(caller, xattr, is_raw(path))?;
        let (trail, slot) = self.resolve_existing(caller, path, Purpose::Write, |path| Error::CannotFind { path })?;
        if xattr.space == XattrSpace::User && self.limits.permissions_enabled {
            let inode = self.inode(slot);
            if inode.is_directory() && inode.permission().0 & 0o1000 != 0 {
                self.check_owner(caller, &trail)?;
            } else {
                self.check(caller, &trail, Need { target: Some(Access::WRITE), ..Need::default() })?;
            }
        }
        Ok(slot)
    }

    /// Returns the requested attributes with their values. If none is requested, returns all that the caller may see.
    ///
    /// Errors: `XattrNotFound`, `XattrDenied`, `CannotFind`, permission errors.
    pub fn xattrs(&self, caller: &Caller, path: &str, wanted: &[Xattr]) -> Result<Vec<Xattr>, Error> {
        let raw = is_raw(path);
        for xattr in wanted {
            check_may_name(caller, xattr, raw)?;
        }
        let (trail, slot) = self.resolve_existing(caller, path, Purpose::Read, |path| Error::CannotFind { path })?;
        self.check(caller, &trail, Need { target: Some(Access::READ), ..Need::default() })?;
        let visible = || self.inode(slot).xattrs().iter().filter(|xattr| is_visible(xattr, caller, raw));
        if wanted.is_empty() {
            return Ok(visible().cloned().collect());
        }
        let find = |wanted: &Xattr| visible().find(|xattr| xattr.is(wanted)).cloned().ok_or(Error::XattrNotFound);
        wanted.iter().map(find).collect()
    }

    /// Refuses to let a superuser read a file that is closed to superusers.
    pub fn check_readable_by_superuser(&self, caller: &Caller, slot: Slot) -> Result<(), Error> {
        if caller.superuser && self.inode(slot).xattrs().iter().any(is_unreadable_mark) {
            return Err(Error::UnreadableBySuperuser { user: caller.user.to_string() });
        }
        Ok(())
    }
}
