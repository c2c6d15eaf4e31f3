//! A page of a directory.

use super::inode::{InodeKind, Slot};
use super::permission::{Caller, Need};
use super::{Namespace, Purpose, compare_names};
use crate::error::Error;
use hearth_types::Access;

/// One page.
#[derive(Debug, PartialEq, Eq)]
pub struct Listing {
    /// In order; a file lists itself.
    pub entries: Vec<Slot>,
    /// The entries are the path itself, which is a file: it is listed without a name.
    pub is_file: bool,
    /// The entries are states in a snapshot.
    pub in_snapshot: bool,
    /// Entries after this page; 0 ends the listing.
    pub remaining: usize,
}

impl Namespace {
    /// The entries of a directory after the name `start_after`, at most `limit`. `None` where nothing exists.
    ///
    /// `weigh`: with locations asked for, how many each entry brings; the page ends also when their sum reaches
    /// `limit`. At least one entry is given while there are any.
    ///
    /// Errors: `NotADirectory`, `PermissionDenied`, `StartAfterMissing`.
    pub fn list(
        &self,
        caller: &Caller,
        path: &str,
        start_after: &[u8],
        limit: usize,
        weigh: impl Fn(Slot) -> usize,
    ) -> Result<Option<Listing>, Error> {
        let trail = self.resolve(caller, path, Purpose::Read)?;
        let Some(slot) = trail.target() else { return Ok(None) };
        let InodeKind::Directory(children) = self.inode(slot).kind() else {
            return Ok(Some(Listing {
                entries: vec![slot],
                is_file: true,
                in_snapshot: trail.snapshot.is_some(),
                remaining: 0,
            }));
        };
        self.check(caller, &trail, Need { target: Some(Access::READ_EXECUTE), ..Need::default() })?;
        let start_name = self.start_name(caller, start_after)?;
        if let Some(snapshot) = trail.snapshot {
            return Ok(Some(self.list_in(self.children_in(snapshot, slot), &start_name, limit, weigh)));
        }
        let skipped: usize;
        let mut rest: Box<dyn Iterator<Item = Slot>> = if start_name.is_empty() {
            skipped = 0;
            Box::new(children.iter())
        } else {
            skipped = children.rank_after(|slot| compare_names(&self.inode(slot).name, &start_name));
            Box::new(children.after(|slot| compare_names(&self.inode(slot).name, &start_name)))
        };
        let mut entries = Vec::with_capacity(limit.min(children.len() - skipped));
        let mut weight = 0;
        while entries.len() < limit && (entries.is_empty() || weight < limit) {
            let Some(slot) = rest.next() else { break };
            weight += weigh(slot);
            entries.push(slot);
        }
        let remaining = children.len() - skipped - entries.len();
        Ok(Some(Listing { entries, is_file: false, in_snapshot: false, remaining }))
    }

    /// As [`Namespace::list`] of a directory's children in a snapshot.
    fn list_in(&self, all: Vec<Slot>, start_name: &[u8], limit: usize, weigh: impl Fn(Slot) -> usize) -> Listing {
        let is_before = |slot: &Slot| {
            let name = &self.inode(*slot).name;
            !start_name.is_empty() && compare_names(name, start_name).is_le()
        };
        let rest = &all[all.partition_point(is_before)..];
        let mut weight = 0;
        let fits = |slot: &&Slot| {
            let fits = weight < limit;
            weight += weigh(**slot);
            fits
        };
        let entries: Vec<Slot> = rest.iter().take(limit).take_while(fits).copied().collect();
        let remaining = rest.len() - entries.len();
        Listing { entries, is_file: false, in_snapshot: true, remaining }
    }

    /// The name after which a page begins; clients may also give an inode's path by number.
    fn start_name(&self, caller: &Caller, start_after: &[u8]) -> Result<Vec<u8>, Error> {
        if !start_after.starts_with(b"/.reserved/.inodes/") {
            return Ok(start_after.to_vec());
        }
        let text = String::from_utf8_lossy(start_after);
        let slot = self.resolve(caller, &text, Purpose::Read).ok().and_then(|trail| trail.target());
        match slot {
            Some(slot) => Ok(self.inode(slot).name.to_vec()),
            None => Err(Error::StartAfterMissing { name: text.into_owned() }),
        }
    }
}
