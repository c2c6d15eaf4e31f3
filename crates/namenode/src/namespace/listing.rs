//! Listing of a directory in pages.

use super::inode::{InodeKind, Slot};
use super::permission::{Caller, Need};
use super::{Namespace, Purpose, compare_names};
use crate::error::Error;
use hearth_types::Access;

/// A page of a listing.
#[derive(Debug, PartialEq, Eq)]
pub struct Listing {
    /// Entries in order. The listing of a file has the file itself.
    pub entries: Vec<Slot>,
    /// True if the path is a file. Its entry is listed without a name.
    pub is_file: bool,
    /// True if the entries are states in a snapshot.
    pub in_snapshot: bool,
    /// Number of entries after this page; 0 ends the listing. In a snapshot any number above 0 is given as 1, because
    /// counting would visit the entries.
    pub remaining: usize,
}

/// Collects the next entries of a directory. `there` is their number if known, else 0; it is used as capacity.
fn page(rest: &mut impl Iterator<Item = Slot>, there: usize, limit: usize, weigh: impl Fn(Slot) -> usize) -> Vec<Slot> {
    let (mut entries, mut weight) = (Vec::with_capacity(limit.min(there)), 0);
    while entries.len() < limit && (entries.is_empty() || weight < limit) {
        let Some(slot) = rest.next() else { break };
        weight += weigh(slot);
        entries.push(slot);
    }
    entries
}

impl Namespace {
    /// Returns at most `limit` entries of a directory after the name `start_after`. `None` if the path does not exist.
    ///
    /// `weigh` gives the number of locations that each entry adds, if locations are requested. The page also ends when
    /// their sum reaches `limit`. A page has at least one entry if any are left.
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
            let mut rest = self.children_after(snapshot, slot, &start_name);
            let entries = page(&mut rest, 0, limit, weigh);
            let remaining = usize::from(rest.next().is_some());
            return Ok(Some(Listing { entries, is_file: false, in_snapshot: true, remaining }));
        }
        let skipped: usize;
        let mut rest: Box<dyn Iterator<Item = Slot>> = if start_name.is_empty() {
            skipped = 0;
            Box::new(children.iter())
        } else {
            skipped = children.rank_after(|slot| compare_names(&self.inode(slot).name, &start_name));
            Box::new(children.after(|slot| compare_names(&self.inode(slot).name, &start_name)))
        };
        let entries = page(&mut rest, children.len() - skipped, limit, weigh);
        let remaining = children.len() - skipped - entries.len();
        Ok(Some(Listing { entries, is_file: false, in_snapshot: false, remaining }))
    }

    /// Returns the name after which a page begins. Clients may also give the path of an inode by id.
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

#[cfg(test)]
mod tests {
    use hearth_types::FsPermission;

    use super::*;
    use crate::namespace::{Limits, visited_inodes};

    fn root() -> Caller {
        Caller { user: "root".into(), groups: [].into(), superuser: true, machine: "127.0.0.1".into() }
    }

    /// Creates a directory `/d` with the given subdirectories, and a snapshot `s` of it.
    fn kept(names: &[String]) -> Namespace {
        let mut namespace = Namespace::format(Limits::default(), "root", "supergroup", 1);
        for name in names {
            namespace.mkdirs(&root(), &format!("/d/{name}"), FsPermission(0o755), true, 1).unwrap();
        }
        namespace.allow_snapshots(&root(), "/d").unwrap();
        namespace.create_snapshot(&root(), "/d", "s", 1).unwrap();
        namespace
    }

    fn list(namespace: &Namespace, after: &[u8], limit: usize) -> (Vec<String>, usize) {
        let page = namespace.list(&root(), "/d/.snapshot/s", after, limit, |_| 0).unwrap().unwrap();
        let name = |slot: &Slot| String::from_utf8(namespace.inode(*slot).name.to_vec()).unwrap();
        (page.entries.iter().map(name).collect(), page.remaining)
    }

    #[test]
    fn snapshot_pages_list_each_entry_once() {
        let mut names: Vec<String> = (0..60).map(|number| number.to_string()).chain(["é".to_owned()]).collect();
        let mut namespace = kept(&names);
        names.sort_by(|a, b| compare_names(a.as_bytes(), b.as_bytes()));
        for number in 0..60 {
            let path = format!("/d/{number}");
            match number % 5 {
                0 => {
                    namespace.delete(&root(), &path, true, 2).unwrap();
                }
                1 => {
                    namespace.rename(&root(), &path, &format!("/d/new{number}"), false, false, 2).unwrap();
                }
                2 => {
                    // Replaces it by another one with the same name.
                    namespace.delete(&root(), &path, true, 2).unwrap();
                    namespace.mkdirs(&root(), &path, FsPermission(0o700), true, 2).unwrap();
                }
                3 => namespace.set_permission(&root(), &path, FsPermission(0o700)).unwrap(),
                _ => {
                    namespace.mkdirs(&root(), &format!("{path}more"), FsPermission(0o755), true, 2).unwrap();
                }
            }
        }
        for limit in 1..8 {
            let mut found: Vec<String> = Vec::new();
            loop {
                let after = found.last().cloned().unwrap_or_default();
                let (page, remaining) = list(&namespace, after.as_bytes(), limit);
                assert!(!page.is_empty() && page.len() <= limit);
                found.extend(page);
                if remaining == 0 {
                    break;
                }
            }
            assert_eq!(found, names, "{limit} at a time");
        }
        assert_eq!(list(&namespace, b"~", 5), (vec![], 0));
    }

    #[test]
    fn snapshot_page_visits_only_its_entries() {
        let names: Vec<String> = (0..2000).map(|number| format!("{number:04}")).collect();
        let mut namespace = kept(&names);
        for number in (0..2000).step_by(2) {
            namespace.delete(&root(), &format!("/d/{number:04}"), true, 2).unwrap();
        }
        let before = visited_inodes::counted();
        assert_eq!(list(&namespace, b"1500", 10), (names[1501..1511].to_vec(), 1));
        assert!(visited_inodes::counted() - before < 50, "{} visited", visited_inodes::counted() - before);
    }
}
