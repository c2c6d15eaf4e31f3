//! Removing files and trees, and concatenating files.

use std::collections::HashSet;

use hearth_types::{Access, BlockId};

use super::inode::{InodeId, InodeKind, Slot};
use super::path::{Trail, is_exactly_reserved, is_reserved_alias};
use super::permission::{Caller, Need};
use super::{Namespace, Purpose};
use crate::error::Error;

/// Result of removing a file or tree, for the block map and the leases.
#[derive(Default, Debug, PartialEq, Eq)]
pub struct Removed {
    pub blocks: Vec<BlockId>,
    /// Files that were open, with their lease holders.
    pub open_files: Vec<(InodeId, String)>,
    /// Files that now exist only in snapshots and have a block under construction.
    pub unfinished: Vec<InodeId>,
    /// Number of removed files and directories.
    pub inodes: u64,
    /// Blocks that stay, with their new replication. Only set when a snapshot was deleted.
    pub replications: Vec<(BlockId, u16)>,
}

impl Namespace {
    /// Deletes a file or directory. Returns `None` and does nothing if the path does not exist or is the root.
    ///
    /// Errors: `NotEmpty`, `NotADirectory`, `PermissionDenied`, `StickyBit`, `Protected`, `InvalidPath`.
    pub fn delete(
        &mut self,
        caller: &Caller,
        path: &str,
        recursive: bool,
        now_ms: u64,
    ) -> Result<Option<Removed>, Error> {
        if is_exactly_reserved(path) {
            return Err(Error::InvalidPath { path: path.into() });
        }
        let trail = self.resolve(caller, path, Purpose::Write)?;
        let need = Need {
            parent: Some(Access::WRITE),
            subtree: Some(Access::ALL),
            subtree_ignores_empty: true,
            ..Need::default()
        };
        self.check(caller, &trail, need)?;
        let Some(slot) = trail.target() else { return Ok(None) };
        if self.inode(slot).children().is_some_and(|children| !children.is_empty()) {
            if !recursive {
                return Err(Error::NotEmpty { path: trail.path() });
            }
            self.check_protected(&trail)?;
        }
        if trail.is_root() {
            return Ok(None);
        }
        self.check_no_snapshots(slot)?;
        Ok(Some(self.remove_tree(slot, now_ms)))
    }

    /// Removes an inode and everything below it from the namespace.
    pub fn remove_tree(&mut self, top: Slot, now_ms: u64) -> Removed {
        assert!(top != self.root, "the root is never removed");
        self.count_tree(top, false);
        // The effective storage policies are recorded here, because they cannot be determined after the tree is taken
        // apart.
        let mut tree = vec![(top, self.storage_policy(top).number)];
        let mut at = 0;
        while at < tree.len() {
            let (slot, inherited) = tree[at];
            if let InodeKind::Directory(children) = self.inode(slot).kind() {
                tree.extend(children.iter().map(|child| match self.inode(child).storage_policy() {
                    0 => (child, inherited),
                    own => (child, own),
                }));
            }
            at += 1;
        }
        let places = self.places_in_snapshots(&tree);
        let kept: Option<Vec<_>> = places.map(|places| {
            places.into_iter().map(|(directory, id)| (directory, id, self.kept_usage(directory, id))).collect()
        });
        // The snapshot states are preserved before anything is moved or removed.
        for (slot, _) in &tree {
            self.preserve(*slot);
            self.leave_entry(*slot);
        }
        self.unlink(top, now_ms);
        let mut removed = Removed::default();
        for (slot, policy) in tree {
            self.remove_inode(slot, policy, &mut removed);
        }
        match kept {
            Some(kept) => kept.iter().for_each(|(directory, id, before)| self.count_kept(*directory, *id, before)),
            None => self.recount_all(),
        }
        removed
    }

    /// Returns the directories outside a tree that keep an inode of the tree for snapshots once the tree is removed,
    /// each with that inode: the parent of the tree, and the earlier parents of inodes that have moved. Usage changes
    /// only there. Inodes that the tree's own directories keep count as part of these directories.
    ///
    /// Returns `None` if such a directory is itself removed: it has no ancestors to count for.
    fn places_in_snapshots(&self, tree: &[(Slot, u8)]) -> Option<Vec<(Slot, InodeId)>> {
        if self.quotas == 0 {
            return Some(Vec::new());
        }
        let top = self.inode(tree[0].0);
        let mut places = vec![(top.parent, top.id())];
        let moved: Vec<Slot> = tree.iter().map(|(slot, _)| *slot).filter(|slot| self.has_moved(*slot)).collect();
        if moved.is_empty() {
            return Some(places);
        }
        let within: HashSet<Slot> = tree.iter().map(|(slot, _)| *slot).collect();
        let mut seen = HashSet::from([(top.parent, top.id())]);
        for slot in moved {
            let inode = self.inode(slot);
            for version in inode.history().into_iter().flat_map(|history| &history.versions) {
                let directory = self.inode(version.frozen).parent;
                if within.contains(&directory) {
                    continue;
                }
                if self.inode(directory).is_gone() {
                    return None;
                }
                if seen.insert((directory, inode.id())) {
                    places.push((directory, inode.id()));
                }
            }
        }
        Some(places)
    }

    /// Appends the blocks of `sources` to `target` and removes the sources, all or nothing. Returns the target's slot
    /// and the blocks that moved.
    pub fn concat(
        &mut self,
        caller: &Caller,
        target: &str,
        sources: &[String],
        now_ms: u64,
    ) -> Result<(Slot, Vec<BlockId>), Error> {
        if sources.is_empty() {
            return Err(Error::ConcatNothing);
        }
        let paths = std::iter::once(target).chain(sources.iter().map(String::as_str));
        if let Some(alias) = paths.into_iter().find(|path| is_reserved_alias(path)) {
            return Err(Error::ConcatReserved { path: alias.into() });
        }
        let (trail, target_slot) = self.resolve_file(caller, target, Purpose::Write)?;
        self.check(caller, &trail, Need { target: Some(Access::WRITE), ..Need::default() })?;
        let target_file = self.inode(target_slot).as_file().expect("seen to be a file");
        if target_file.is_open() {
            return Err(Error::ConcatTargetOpen { path: trail.path() });
        }
        let target_block_size = self.inode(target_slot).block_size();
        let mut slots = Vec::with_capacity(sources.len());
        let mut seen = HashSet::new();
        for source in sources {
            let slot = self.check_concat_source(caller, source, &trail, target_slot, target_block_size)?;
            if !seen.insert(self.inode(slot).id()) {
                return Err(Error::ConcatTwice);
            }
            slots.push(slot);
        }
        self.check_concat_quota(target_slot, &slots)?;
        let mut moved = Vec::new();
        for slot in slots {
            // The file is removed, but its blocks now belong to the target.
            moved.extend(self.file_mut(slot).take_blocks());
            self.remove_tree(slot, now_ms);
        }
        let ids = moved.iter().map(|block| block.id).collect();
        self.file_mut(target_slot).add_blocks(moved);
        debug_assert!(self.inode(target_slot).replication() > 0);
        self.inode_mut(target_slot).set_modification_time_ms(now_ms);
        Ok((target_slot, ids))
    }

    fn check_concat_source(
        &self,
        caller: &Caller,
        source: &str,
        target: &Trail,
        target_slot: Slot,
        target_block_size: u64,
    ) -> Result<Slot, Error> {
        let (trail, slot) = self.resolve_file(caller, source, Purpose::Write)?;
        let need = Need { parent: Some(Access::WRITE), target: Some(Access::READ), ..Need::default() };
        self.check(caller, &trail, need)?;
        if slot == target_slot {
            return Err(Error::ConcatSelf { path: trail.path(), target: target.path() });
        }
        if trail.parent() != target.parent() {
            return Err(Error::ConcatElsewhere { path: trail.path(), target: target.path() });
        }
        if self.is_in_snapshots(slot) {
            return Err(Error::ConcatInSnapshot { path: trail.path() });
        }
        let inode = self.inode(slot);
        let file = inode.as_file().expect("seen to be a file");
        if file.is_open() || file.blocks().is_empty() {
            return Err(Error::ConcatSource { path: trail.path() });
        }
        if inode.block_size() > target_block_size {
            return Err(Error::ConcatBlockSize {
                path: trail.path(),
                size: inode.block_size(),
                target_size: target_block_size,
            });
        }
        Ok(slot)
    }
}
