//! What a tree holds in all.

use super::inode::InodeKind;
use super::inode::Slot;
use super::path::Trail;
use super::permission::{Caller, Need};
use super::quota::{Quota, Usage};
use super::{Namespace, Purpose};
use crate::error::Error;
use hearth_types::Access;

#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Bytes of all files.
    pub length: u64,
    pub files: u64,
    /// The path itself included, if it is one.
    pub directories: u64,
    /// Bytes of all replicas that were asked for; a block that is being written counts in full.
    pub space_consumed: u64,
    /// The same and more as quotas count.
    pub usage: Usage,
    /// The quota of the path itself.
    pub quota: Option<Quota>,
    /// Whether the path itself is a directory.
    pub is_directory: bool,
    pub is_root: bool,
    /// How much of it only snapshots have.
    pub in_snapshots: Kept,
}

/// What snapshots have of what was removed or moved away.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub struct Kept {
    pub length: u64,
    pub files: u64,
    pub directories: u64,
    pub space_consumed: u64,
    /// What of it was not removed, but moved away: it counts where it is now as well.
    pub moved_space_consumed: u64,
}

impl Namespace {
    /// Sums up a file or tree.
    ///
    /// Errors: `missing`'s, `PermissionDenied` when some directory of it may not be listed.
    pub fn summarize(
        &self,
        caller: &Caller,
        path: &str,
        missing: impl FnOnce(String) -> Error,
    ) -> Result<Summary, Error> {
        let (trail, top) = self.resolve_existing(caller, path, Purpose::Read, missing)?;
        self.check(caller, &trail, Need { subtree: Some(Access::READ_EXECUTE), ..Need::default() })?;
        let mut summary =
            Summary { is_directory: self.inode(top).is_directory(), is_root: trail.is_root(), ..Summary::default() };
        summary.quota = self.inode(top).quota().cloned();
        if trail.snapshot.is_some() {
            return Ok(self.summarize_snapshot(summary, &trail, top));
        }
        summary.usage = self.tree_usage(top);
        summary.in_snapshots = self.kept_below(top);
        summary.space_consumed = summary.usage.told_space().saturating_add(summary.in_snapshots.moved_space_consumed);
        summary.files = summary.in_snapshots.files;
        summary.directories = summary.in_snapshots.directories;
        summary.length = summary.in_snapshots.length;
        let mut waiting = vec![top];
        while let Some(slot) = waiting.pop() {
            match self.inode(slot).kind() {
                InodeKind::Directory(children) => {
                    summary.directories += 1;
                    waiting.extend(children.iter());
                }
                InodeKind::File(file) => {
                    summary.files += 1;
                    summary.length = summary.length.saturating_add(file.length());
                }
            }
        }
        Ok(summary)
    }

    fn summarize_snapshot(&self, mut summary: Summary, trail: &Trail, top: Slot) -> Summary {
        summary.quota = None;
        let mut waiting = vec![top];
        while let Some(slot) = waiting.pop() {
            summary.usage.names += 1;
            let inode = self.inode(slot);
            match inode.as_file() {
                None => {
                    summary.directories += 1;
                    waiting.extend(self.children_at(trail.snapshot, slot));
                }
                Some(file) => {
                    summary.files += 1;
                    summary.length = summary.length.saturating_add(file.length());
                    let space = file.length().saturating_mul(u64::from(inode.replication()));
                    summary.space_consumed = summary.space_consumed.saturating_add(space);
                }
            }
        }
        summary.usage.space = summary.space_consumed.into();
        summary
    }
}
