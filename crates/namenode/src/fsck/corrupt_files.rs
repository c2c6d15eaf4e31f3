//! `-list-corruptfileblocks`: files with blocks that have no good replica left.

use std::fmt::Write;

use hearth_types::BlockId;

use super::{BATCH, Fsck, Outcome, PART_BYTES};
use crate::State;
use crate::namespace::{InodeId, SnapshotPaths, is_below};

/// Entries per answer; the tool asks again with the cookie.
const PAGE: usize = 100;
/// Limit of blocks skipped under one lock to get to the start of the answer: each takes little work.
const PASSED_MAX: usize = 100_000;

/// Progress of the list.
#[derive(Default)]
pub(super) struct CorruptFiles {
    /// The last block that was skipped or examined.
    seen: Option<BlockId>,
    /// Number of blocks skipped or examined.
    passed: usize,
    /// Number of entries sent.
    found: usize,
}

impl Fsck {
    /// Produces the next entries, as many as the lock may be held for, each with the number of its block. The cookie is
    /// the last of these numbers; it follows the entries when the page is full, because the tool accepts it at any
    /// place.
    pub(super) fn continue_list(&mut self) -> Outcome {
        let namenode = self.namenode.clone();
        let state = namenode.read();
        let to_pass = self.request.start_after.saturating_sub(self.corrupt.passed);
        let limit = to_pass.clamp(BATCH, PASSED_MAX);
        let blocks = state.blocks.missing_blocks(self.corrupt.seen, limit);
        let mut is_whole = blocks.len() < limit;
        let (mut looked_at, mut paths) = (0, SnapshotPaths::new(&state.namespace));
        for block in blocks {
            if self.corrupt.found >= PAGE {
                is_whole = true;
                break;
            }
            if looked_at + paths.looked_at() >= BATCH || self.out.len() >= PART_BYTES {
                is_whole = false;
                break;
            }
            self.corrupt.seen = Some(block);
            self.corrupt.passed += 1;
            if self.corrupt.passed > self.request.start_after {
                looked_at += 1;
                self.list_one(&state, &mut paths, block);
            }
        }
        if is_whole {
            self.end_list();
            return Outcome::End;
        }
        if self.out.is_empty() {
            // The tool does not print the empty line, but sees that the search continues.
            self.out.push('\n');
        }
        Outcome::Continue
    }

    fn list_one(&mut self, state: &State, paths: &mut SnapshotPaths<'_>, block: BlockId) {
        let Some(inode) = state.blocks.inode_of(block).map(InodeId) else { return };
        let now = state.namespace.slot(inode).map(|slot| state.namespace.path_of(slot));
        if now.as_deref().is_some_and(|now| !self.is_asked_for(now)) {
            return;
        }
        let snapshots = match (self.request.include_snapshots, &now) {
            (true, _) => usize::MAX,
            (false, Some(_)) => 0,
            // A file that exists only in snapshots is listed under the newest snapshot's path.
            (false, None) => 1,
        };
        let mut then = paths.of(inode, snapshots).into_iter();
        let Some(file) = now.or_else(|| then.next()).filter(|file| self.is_asked_for(file)) else { return };
        self.corrupt.found += 1;
        let number = self.corrupt.passed;
        self.write(format_args!("{block}\t{number}\t{file}\n"));
        for path in then {
            self.write(format_args!("{block}\t{path}\n"));
        }
    }

    fn is_asked_for(&self, file: &str) -> bool {
        let top = self.request.path.trim_end_matches('/');
        top.is_empty() || file == top || is_below(file, top)
    }

    fn end_list(&mut self) {
        let (cookie, found) = (self.corrupt.passed.max(self.request.start_after), self.corrupt.found);
        let count = if found == 0 { "no".to_owned() } else { found.to_string() };
        let path = &self.request.path;
        let _ =
            write!(self.out, "Cookie:\t{cookie}\n\n\nThe filesystem under path '{path}' has {count} CORRUPT files\n\n");
    }
}
