use std::fmt::Write;

use super::{BATCH, Fsck};
use crate::namespace::InodeId;

/// Entries of one answer; the tool asks again with the cookie.
const PAGE: usize = 100;

impl Fsck {
    /// Files with blocks of which no good replica is left, numbered; the cookie is the last number.
    pub(super) fn list_corrupt_files(&mut self) {
        let path = self.request.path.as_str();
        let top = path.trim_end_matches('/');
        let below = |file: &str| {
            top.is_empty() || file == top || file.strip_prefix(top).is_some_and(|rest| rest.starts_with('/'))
        };
        let mut cookie = self.request.start_after;
        let mut lines = String::new();
        let (mut found, mut passed, mut seen) = (0, 0, None);
        'all: loop {
            let state = self.namenode.read();
            let blocks = state.blocks.missing_blocks(seen, BATCH);
            let Some(last) = blocks.last() else { break };
            seen = Some(*last);
            for block in blocks {
                passed += 1;
                if passed <= self.request.start_after {
                    continue;
                }
                if found == PAGE {
                    break 'all;
                }
                cookie += 1;
                let Some(inode) = state.blocks.inode_of(block).map(InodeId) else { continue };
                let now = state.namespace.slot(inode).map(|slot| state.namespace.path_of(slot));
                let mut then = state.namespace.paths_in_snapshots(inode).into_iter();
                // What only snapshots have is told under the newest one's path.
                let Some(file) = now.or_else(|| then.next()).filter(|file| below(file)) else { continue };
                found += 1;
                let _ = writeln!(lines, "{block}\t{cookie}\t{file}");
                if self.request.include_snapshots {
                    then.for_each(|path| lines.push_str(&format!("{block}\t{path}\n")));
                }
            }
        }
        let count = if found == 0 { "no".to_owned() } else { found.to_string() };
        let _ = write!(
            self.out,
            "Cookie:\t{cookie}\n{lines}\n\nThe filesystem under path '{path}' has {count} CORRUPT files\n\n"
        );
    }
}
