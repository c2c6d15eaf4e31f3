//! Content summaries: total usage of a tree.

use std::sync::Arc;

use super::file::FilePart;
use super::inode::{Inode, InodeId, InodeKind, Slot};
use super::permission::Caller;
use super::quota::{FormerChild, Quota, Usage};
use super::{Namespace, Purpose, SnapshotId, join};
use crate::error::Error;
use hearth_types::Access;

/// Access that the caller needs to each directory of a tree that is summed up.
const TREE_ACCESS: Access = Access::READ_EXECUTE;

#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Bytes of all files.
    pub length: u64,
    pub files: u64,
    /// Number of directories, including the path itself.
    pub directories: u64,
    /// Bytes of all replicas at the requested replication. A block under construction counts with its full size.
    pub space_consumed: u64,
    /// Total usage as quotas count it.
    pub usage: Usage,
    /// Quota of the path itself.
    pub quota: Option<Quota>,
    /// True if the path itself is a directory.
    pub is_directory: bool,
    pub is_root: bool,
    /// The part that only snapshots have.
    pub in_snapshots: SnapshotUsage,
}

/// Usage of removed or moved inodes that snapshots still have.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub struct SnapshotUsage {
    pub length: u64,
    pub files: u64,
    pub directories: u64,
    pub space_consumed: u64,
    /// Space of inodes that were moved away rather than removed. It also counts at their new place.
    pub moved_space_consumed: u64,
}

impl Summary {
    /// Adds the usage in snapshots to the totals.
    fn with_snapshots(mut self) -> Self {
        let kept = &self.in_snapshots;
        self.files += kept.files;
        self.directories += kept.directories;
        self.length = self.length.saturating_add(kept.length);
        self.space_consumed = self.usage.reported_space().saturating_add(kept.moved_space_consumed);
        self
    }
}

/// A summary in progress, computed in parts. The tree may be the whole namespace, and no change can be made while a
/// part is computed.
pub struct SummaryWalk {
    caller: Caller,
    summary: Summary,
    left: Vec<PendingItem>,
}

/// A file or directory still to be visited. An inode that is removed before that is skipped.
enum PendingItem {
    /// The current state, or the state at removal.
    Now(InodeId),
    /// The state in the snapshot that is summed up. `path` is set for directories.
    InSnapshot { snapshot: SnapshotId, inode: InodeId, path: Option<Arc<str>> },
    /// The state in a snapshot, for a tree that was moved away.
    Moved { snapshot: SnapshotId, inode: InodeId },
}

impl Namespace {
    /// Starts the summary of a file or tree. Call [`Self::continue_summing`] until it returns the result.
    ///
    /// Errors: that of `missing`.
    pub fn start_summing(
        &self,
        caller: &Caller,
        path: &str,
        missing: impl FnOnce(String) -> Error,
    ) -> Result<SummaryWalk, Error> {
        let (trail, top) = self.resolve_existing(caller, path, Purpose::Read, missing)?;
        let inode = self.inode(top);
        let mut summary =
            Summary { is_directory: inode.is_directory(), is_root: trail.is_root(), ..Summary::default() };
        let left = match trail.snapshot {
            Some(snapshot) => PendingItem::InSnapshot { snapshot, inode: inode.id(), path: Some(trail.path().into()) },
            None => {
                summary.quota = inode.quota().cloned();
                PendingItem::Now(inode.id())
            }
        };
        Ok(SummaryWalk { caller: caller.clone(), summary, left: vec![left] })
    }

    /// Visits up to `limit` more files and directories. Returns the summary when all have been visited.
    ///
    /// Errors: `PermissionDenied` if one of the directories may not be listed.
    pub fn continue_summing(&self, summing: &mut SummaryWalk, limit: usize) -> Result<Option<Summary>, Error> {
        for _ in 0..limit {
            let Some(next) = summing.left.pop() else {
                return Ok(Some(std::mem::take(&mut summing.summary).with_snapshots()));
            };
            match next {
                PendingItem::Now(inode) => self.sum_now(summing, inode)?,
                PendingItem::InSnapshot { snapshot, inode, path } => {
                    self.sum_in_snapshot(summing, snapshot, inode, path.as_deref())?;
                }
                PendingItem::Moved { snapshot, inode } => self.sum_moved(summing, snapshot, inode),
            }
        }
        Ok(None)
    }

    fn sum_now(&self, summing: &mut SummaryWalk, id: InodeId) -> Result<(), Error> {
        #[cfg(test)]
        super::visited_inodes::count();
        let SummaryWalk { caller, summary, left } = summing;
        let Some(slot) = self.by_id.get(id.0).copied() else { return Ok(()) };
        let inode = self.inode(slot);
        let own = self.own_usage(slot);
        summary.usage = summary.usage.plus(&own, 1);
        if inode.is_gone() {
            self.sum_kept(&mut summary.in_snapshots, slot, &own);
        }
        match inode.kind() {
            InodeKind::Directory(children) => {
                if !inode.is_gone() {
                    self.check_listing(caller, inode, || self.path_of(slot))?;
                    summary.directories += 1;
                }
                left.extend(children.iter().map(|child| PendingItem::Now(self.id_of(child))));
            }
            InodeKind::File(file) if !inode.is_gone() => {
                summary.files += 1;
                summary.length = summary.length.saturating_add(file.visible_length());
            }
            InodeKind::File(_) => {}
        }
        for place in self.former_children(slot) {
            left.push(match place {
                FormerChild::Gone(slot) => PendingItem::Now(self.id_of(slot)),
                FormerChild::Moved { snapshot, state } => {
                    summary.usage.names += 1;
                    PendingItem::Moved { snapshot, inode: self.id_of(state) }
                }
            });
        }
        Ok(())
    }

    /// Adds a removed file or directory with the usage `own`.
    fn sum_kept(&self, kept: &mut SnapshotUsage, slot: Slot, own: &Usage) {
        let inode = self.inode(slot);
        if inode.is_directory() {
            kept.directories += 1;
            return;
        }
        kept.files += 1;
        let last = inode.history().and_then(|history| history.versions.last());
        let length = last.and_then(|last| self.inode(last.frozen).as_file()).map_or(0, FilePart::length);
        kept.length = kept.length.saturating_add(length);
        kept.space_consumed = kept.space_consumed.saturating_add(own.reported_space());
    }

    /// Adds a file or directory of the snapshot that is summed up.
    fn sum_in_snapshot(
        &self,
        summing: &mut SummaryWalk,
        snapshot: SnapshotId,
        id: InodeId,
        path: Option<&str>,
    ) -> Result<(), Error> {
        let SummaryWalk { caller, summary, left } = summing;
        let Some(slot) = self.inode_in(snapshot, id) else { return Ok(()) };
        summary.usage.names += 1;
        let inode = self.inode(slot);
        if let Some(file) = inode.as_file() {
            summary.files += 1;
            summary.length = summary.length.saturating_add(file.length());
            let space = file.length().saturating_mul(u64::from(inode.replication()));
            summary.usage.space += i128::from(space);
            return Ok(());
        }
        let path = path.unwrap_or_default();
        self.check_listing(caller, inode, || path.to_owned())?;
        summary.directories += 1;
        left.extend(self.children_in(snapshot, slot).into_iter().map(|child| {
            let inode = self.inode(child);
            let path = inode.is_directory().then(|| join(path, &inode.name).into());
            PendingItem::InSnapshot { snapshot, inode: inode.id(), path }
        }));
        Ok(())
    }

    /// Adds a file or directory of a tree that was moved away, in its state in a snapshot.
    fn sum_moved(&self, summing: &mut SummaryWalk, snapshot: SnapshotId, id: InodeId) {
        let Some(slot) = self.inode_in(snapshot, id) else { return };
        let (inode, kept) = (self.inode(slot), &mut summing.summary.in_snapshots);
        let Some(file) = inode.as_file() else {
            kept.directories += 1;
            let children = self.children_in(snapshot, slot).into_iter();
            return summing
                .left
                .extend(children.map(|child| PendingItem::Moved { snapshot, inode: self.id_of(child) }));
        };
        kept.files += 1;
        kept.length = kept.length.saturating_add(file.length());
        let space = file.length().saturating_mul(u64::from(inode.replication()));
        kept.space_consumed = kept.space_consumed.saturating_add(space);
        kept.moved_space_consumed = kept.moved_space_consumed.saturating_add(space);
    }

    fn check_listing(&self, caller: &Caller, inode: &Inode, path: impl FnOnce() -> String) -> Result<(), Error> {
        if !self.checks_rights_of(caller) || self.may(caller, inode, TREE_ACCESS) {
            return Ok(());
        }
        Err(self.denied(caller, TREE_ACCESS, path(), inode))
    }
}
