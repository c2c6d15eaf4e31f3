//! Rebuilds the namespace from its stored records, on several threads.
//!
//! Each thread decodes the records of some ids into a [`Section`]: inodes in an arena of its own, and a list of their
//! parent directories. [`Rebuild::join`] concatenates the sections without copying inodes, and links them: several
//! threads set each inode's parent and sort each directory's entries. Snapshot states are added last, one by one.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use hearth_types::GenerationStamp;

use super::arena::Arena;
use super::children::Children;
use super::file::BlockRecord;
use super::history::{InodeVersion, SNAPSHOT_BLOCKS, Snapshot, SnapshotId, Timeline};
use super::inode::{Inode, InodeId, Slot};
use super::principals::Principals;
use super::record::{RecordError, RecordReader, decode, decode_snapshot_blocks};
use super::writers::Writers;
use super::{Limits, Namespace, compare_names};
use crate::changes::Counters;
use crate::dense_map::{DenseMap, IdHasher};
use crate::parallel;

/// Placeholder parent of the root until its parent is set.
const NO_PARENT: Slot = Slot(u32::MAX);

/// Depth of the tree at which a walk upwards in a snapshot ends.
const DEPTH_MAX: usize = 10_000;

/// Number of directory entries that a thread sorts as one work item.
const SORTED_AT_ONCE: usize = 1 << 16;

type ByNumber<V> = HashMap<u64, V, BuildHasherDefault<IdHasher>>;

/// Restores a stored namespace.
pub struct Rebuild {
    namespace: Namespace,
    /// Snapshot states: inode id, version (range of snapshots and slot), and the parent's id.
    versions: Vec<(InodeId, InodeVersion, InodeId)>,
    /// Inodes that may have a quota or snapshots. There are few of them.
    unusual: Vec<Slot>,
}

/// The decoded inodes of a range of ids, before they are joined into the namespace.
pub struct Section {
    /// Number of user and group names.
    names: u32,
    last_inode: u64,
    /// Until the section is joined, the parent of each inode is an index into `directories`.
    inodes: Arena,
    by_id: DenseMap<Slot>,
    /// Parent directories of this section's inodes, and those inodes.
    directories: Vec<(InodeId, Vec<Slot>)>,
    places: ByNumber<u32>,
    /// Parent of the previous inode, and its index. Most inodes are siblings of the inode that was created just before.
    last_parent: Option<(InodeId, u32)>,
    unusual: Vec<Slot>,
    writers: Writers,
    files: u64,
    blocks: u64,
    quotas: u64,
}

impl Section {
    /// Restores one inode. No other section may have it.
    pub fn inode(&mut self, id: u64, record: &[u8]) -> Result<(), RecordError> {
        let id = InodeId(id);
        let (mut inode, parent) = decode(id, record, &mut self.writers)?;
        check_names(id, &inode, self.names)?;
        if id.0 > self.last_inode {
            return Err(RecordError::Counter { inode: id.0, last: self.last_inode });
        }
        if let Some(file) = inode.as_file() {
            self.files += 1;
            self.blocks += file.blocks().len() as u64;
        }
        self.quotas += u64::from(inode.quota().is_some());
        let is_unusual = inode.features().is_some();
        // The root has no parent directory.
        let place = (id != InodeId::ROOT).then(|| self.place(parent));
        inode.parent = place.map_or(NO_PARENT, Slot);
        let slot = self.inodes.insert(inode);
        self.by_id.insert(id.0, slot);
        if let Some(place) = place {
            self.directories[place as usize].1.push(slot);
        }
        if is_unusual {
            self.unusual.push(slot);
        }
        Ok(())
    }

    /// Returns the index of a directory in `directories`.
    fn place(&mut self, directory: InodeId) -> u32 {
        match self.last_parent {
            Some((last, place)) if last == directory => place,
            _ => {
                let place = *self.places.entry(directory.0).or_insert_with(|| {
                    self.directories.push((directory, Vec::new()));
                    self.directories.len() as u32 - 1
                });
                self.last_parent = Some((directory, place));
                place
            }
        }
    }
}

fn check_names(id: InodeId, inode: &Inode, names: u32) -> Result<(), RecordError> {
    match [inode.owner().0, inode.group().0].into_iter().find(|name| *name >= names) {
        Some(name) => Err(RecordError::UnknownName { inode: id.0, name }),
        None => Ok(()),
    }
}

impl Rebuild {
    /// `names` has every stored user and group name with its number, ordered by number.
    pub fn start(
        limits: Limits,
        counters: Counters,
        stored_names: impl IntoIterator<Item = (u32, String)>,
    ) -> Result<Self, RecordError> {
        let mut names = Principals::default();
        for (number, name) in stored_names {
            if !names.restore(number, &name) {
                return Err(RecordError::Names { number });
            }
        }
        let stamp = GenerationStamp(counters.last_stamp);
        if stamp >= BlockRecord::STAMP_MAX {
            return Err(RecordError::Stamp { stamp });
        }
        let namespace = Namespace {
            inodes: Arena::default(),
            by_id: DenseMap::default(),
            root: Slot(0),
            names,
            counters,
            limits,
            files: 0,
            blocks: 0,
            changed: Vec::new(),
            removed: Vec::new(),
            counters_changed: false,
            quotas: 0,
            touched: Vec::new(),
            timeline: Timeline::default(),
            lookup_cache: Default::default(),
            writers: Writers::default(),
        };
        Ok(Self { namespace, versions: Vec::new(), unusual: Vec::new() })
    }

    /// Returns a section to fill. Several may be filled at the same time.
    pub fn section(&self) -> Section {
        Section {
            names: self.namespace.names.count() as u32,
            last_inode: self.namespace.counters.last_inode,
            inodes: Arena::default(),
            by_id: DenseMap::default(),
            directories: Vec::new(),
            places: ByNumber::default(),
            last_parent: None,
            unusual: Vec::new(),
            writers: Writers::default(),
            files: 0,
            blocks: 0,
            quotas: 0,
        }
    }

    /// Joins all sections, links the inodes and checks that they form one tree. Must be called once.
    pub fn join(&mut self, sections: Vec<Section>) -> Result<(), RecordError> {
        let namespace = &mut self.namespace;
        let mut joined = Vec::with_capacity(sections.len());
        for mut section in sections {
            let pages = section.inodes.page_count();
            let base = namespace.inodes.append(section.inodes);
            let raise = |slot: &mut Slot| slot.0 += base;
            section.by_id.values_mut().for_each(raise);
            section.directories.iter_mut().flat_map(|(_, inodes)| inodes).for_each(raise);
            section.unusual.iter_mut().for_each(raise);
            if let Err(id) = namespace.by_id.absorb(section.by_id) {
                panic!("inode {id} is in two sections");
            }
            namespace.writers.absorb(section.writers);
            namespace.files += section.files;
            namespace.blocks += section.blocks;
            namespace.quotas += section.quotas;
            self.unusual.extend(section.unusual);
            joined.push(JoinedSection { pages, directories: section.directories });
        }
        let is_directory = |slot: &Slot| namespace.inode(*slot).is_directory();
        namespace.root = namespace.slot(InodeId::ROOT).filter(is_directory).ok_or(RecordError::NoRoot)?;
        let directories = place_parents(namespace, joined)?;
        put_entries(namespace, directories)
    }

    /// Restores a row of the versions table. `until` is the number of the last snapshot that can have it, or
    /// `SNAPSHOT_BLOCKS`.
    pub fn version(&mut self, id: u64, until: u32, bytes: &[u8]) -> Result<(), RecordError> {
        let damaged = || RecordError::Damaged { inode: id, offset: 0 };
        let id = InodeId(id);
        let mut reader = RecordReader { bytes, at: 0 };
        if until == SNAPSHOT_BLOCKS {
            let slot = *self.namespace.by_id.get(id.0).ok_or_else(damaged)?;
            let (lost, cuts, policy) = decode_snapshot_blocks(&mut reader).ok_or_else(damaged)?;
            let inode = self.namespace.inodes.get_mut(slot);
            let history = inode.history_mut();
            (history.snapshot_blocks, history.truncations) = (lost, cuts);
            if history.gone {
                inode.change(|attributes| attributes.storage_policy = policy);
            }
            return Ok(());
        }
        let from = reader.small().ok_or_else(damaged)?;
        let (frozen, parent) = decode(id, &bytes[reader.at..], &mut self.namespace.writers)?;
        check_names(id, &frozen, self.namespace.names.count() as u32)?;
        if !self.namespace.by_id.contains(id.0) {
            let slot = self.namespace.inodes.insert(frozen.ghost());
            self.namespace.by_id.insert(id.0, slot);
            self.namespace.timeline.gone += 1;
        }
        let frozen = self.namespace.inodes.insert(frozen);
        self.versions.push((id, InodeVersion { from, until, frozen }, parent));
        Ok(())
    }

    /// Restores a row of the snapshots table.
    pub fn snapshot(&mut self, snapshot: Snapshot, root: u64) -> Result<(), RecordError> {
        let namespace = &mut self.namespace;
        let slot = namespace.slot(InodeId(root)).ok_or(RecordError::NoSnapshotRoot { snapshot: snapshot.id, root })?;
        namespace.timeline.roots.insert(snapshot.id, slot);
        let snapshots = namespace.inodes.get_mut(slot).history_mut().snapshots.get_or_insert_default();
        snapshots.push(snapshot);
        snapshots.sort_by(|a, b| compare_names(a.name.as_bytes(), b.name.as_bytes()));
        self.unusual.push(slot);
        Ok(())
    }

    /// Links the snapshot states and computes quota usage.
    pub fn finish(mut self) -> Result<Namespace, RecordError> {
        let namespace = &mut self.namespace;
        let mut restored = Vec::with_capacity(self.versions.len());
        for (id, version, parent) in std::mem::take(&mut self.versions) {
            let parent_slot = *namespace.by_id.get(parent.0).unwrap_or(&namespace.root);
            namespace.inodes.get_mut(version.frozen).parent = parent_slot;
            restored.push((id, parent_slot, SnapshotId(version.until)));
            namespace.restore_version(id, version);
        }
        for (id, parent, snapshot) in restored {
            check_leads_up(namespace, id, parent, snapshot)?;
        }
        for slot in self.unusual {
            if namespace.inode(slot).snapshots().is_some() {
                let id = namespace.inode(slot).id();
                namespace.timeline.snapshottable.insert(id);
            }
            namespace.recount(slot);
        }
        Ok(self.namespace)
    }
}

/// Checks that the way upwards from `parent` in a snapshot ends. A cycle would make later walks endless.
fn check_leads_up(namespace: &Namespace, id: InodeId, parent: Slot, snapshot: SnapshotId) -> Result<(), RecordError> {
    let mut at = parent;
    for _ in 0..DEPTH_MAX {
        match namespace.state_in(snapshot, at) {
            Some(state) if at != namespace.root => at = namespace.inode(state).parent,
            _ => return Ok(()),
        }
    }
    Err(RecordError::Unreachable { inode: id.0 })
}

/// A section whose inodes are in the namespace's arena.
struct JoinedSection {
    /// Number of inode pages of the section. They follow those of the previous section.
    pages: usize,
    /// Same as in [`Section`].
    directories: Vec<(InodeId, Vec<Slot>)>,
}

/// Children of a directory.
struct DirectoryEntries {
    slot: Slot,
    inodes: Vec<Slot>,
}

/// Sets the parent of each inode. Returns the directories that have entries.
fn place_parents(
    namespace: &mut Namespace,
    sections: Vec<JoinedSection>,
) -> Result<Vec<DirectoryEntries>, RecordError> {
    let mut directories: Vec<DirectoryEntries> = Vec::new();
    let mut places: ByNumber<usize> = ByNumber::default();
    let mut parents: Vec<(usize, Vec<Slot>)> = Vec::with_capacity(sections.len());
    for section in sections {
        let mut slots = Vec::with_capacity(section.directories.len());
        for (parent, inodes) in section.directories {
            let inode = namespace.inode(inodes[0]).id().0;
            let slot = namespace.slot(parent).ok_or(RecordError::NoParent { inode, parent: parent.0 })?;
            if !namespace.inode(slot).is_directory() {
                return Err(RecordError::ParentIsFile { inode, parent: parent.0 });
            }
            slots.push(slot);
            let place = *places.entry(u64::from(slot.0)).or_insert(directories.len());
            match directories.get_mut(place) {
                Some(directory) => directory.inodes.extend(inodes),
                None => directories.push(DirectoryEntries { slot, inodes }),
            }
        }
        parents.push((section.pages, slots));
    }
    let mut pages = namespace.inodes.pages_mut();
    let mut work = Vec::new();
    for (count, slots) in &parents {
        work.extend(pages.by_ref().take(*count).map(|page| (page, slots)));
    }
    parallel::map(work, |(page, slots)| {
        for inode in page.filter(|inode| inode.parent != NO_PARENT) {
            inode.parent = slots[inode.parent.0 as usize];
        }
    });
    drop(pages);
    let root = namespace.root;
    namespace.inodes.get_mut(root).parent = root;
    check_reachable(namespace, &directories)?;
    Ok(directories)
}

/// Checks that every directory leads to the root. A cycle would make later walks endless.
fn check_reachable(namespace: &Namespace, directories: &[DirectoryEntries]) -> Result<(), RecordError> {
    let mut reached = DenseMap::<()>::default();
    reached.insert(u64::from(namespace.root.0), ());
    let mut way = Vec::new();
    for directory in directories {
        let mut at = directory.slot;
        while !reached.contains(u64::from(at.0)) {
            // Each step leads to another directory that has entries. More steps than such directories are a cycle.
            if way.len() == directories.len() {
                let inode = namespace.inode(directory.inodes[0]).id().0;
                return Err(RecordError::Unreachable { inode });
            }
            way.push(at);
            at = namespace.inode(at).parent;
        }
        for slot in way.drain(..) {
            reached.insert(u64::from(slot.0), ());
        }
    }
    Ok(())
}

/// Sorts the entries of all directories and stores them in the directories.
fn put_entries(namespace: &mut Namespace, directories: Vec<DirectoryEntries>) -> Result<(), RecordError> {
    let mut work = vec![Vec::new()];
    let mut count = 0;
    for directory in directories {
        if count >= SORTED_AT_ONCE {
            work.push(Vec::new());
            count = 0;
        }
        count += directory.inodes.len();
        work.last_mut().expect("the list is never empty").push(directory);
    }
    let sorted = parallel::map(work, |directories: Vec<DirectoryEntries>| {
        directories.into_iter().map(|directory| sorted(namespace, directory)).collect::<Result<Vec<_>, _>>()
    });
    for entries in sorted {
        for (directory, children) in entries? {
            namespace.put_children(directory, children);
        }
    }
    Ok(())
}

fn sorted(namespace: &Namespace, directory: DirectoryEntries) -> Result<(Slot, Children), RecordError> {
    let DirectoryEntries { slot, mut inodes } = directory;
    let name = |slot: &Slot| &namespace.inode(*slot).name;
    let order = |a: &Slot, b: &Slot| compare_names(name(a), name(b));
    if !inodes.is_sorted_by(|a, b| order(a, b).is_lt()) {
        inodes.sort_unstable_by(order);
        if let Some(twice) = inodes.windows(2).find(|pair| order(&pair[0], &pair[1]).is_eq()) {
            let name = String::from_utf8_lossy(name(&twice[0])).into_owned();
            return Err(RecordError::Twice { parent: namespace.inode(slot).id().0, name });
        }
    }
    Ok((slot, Children::from_sorted(inodes)))
}

#[cfg(test)]
mod tests {
    use hearth_types::FsPermission;

    use super::super::features::Features;
    use super::super::inode::InodeKind;
    use super::super::packed_inode::Attributes;
    use super::super::principals::PrincipalId;
    use super::super::record::encode;
    use super::*;

    const COUNTERS: Counters = Counters { last_inode: 99_999, ..Counters::FRESH };

    fn record(parent: u64, name: &str) -> Vec<u8> {
        let attributes = Attributes::directory(InodeId(0), PrincipalId(0), PrincipalId(0), FsPermission(0o755), 1);
        let mut inode = Inode::new(attributes, Features::default(), InodeKind::Directory(Box::default()));
        inode.name = name.as_bytes().into();
        encode(&inode, InodeId(parent))
    }

    /// Builds a namespace from directories given by id, parent and name, each in a section of its own.
    fn built(inodes: &[(u64, u64, &str)]) -> Result<Namespace, RecordError> {
        let names = [(0, "root".to_owned())];
        let mut rebuild = Rebuild::start(Limits::default(), COUNTERS, names)?;
        let mut sections = vec![rebuild.section()];
        sections[0].inode(InodeId::ROOT.0, &record(InodeId::ROOT.0, ""))?;
        for (id, parent, name) in inodes {
            let mut section = rebuild.section();
            section.inode(*id, &record(*parent, name))?;
            sections.push(section);
        }
        rebuild.join(sections)?;
        rebuild.finish()
    }

    #[test]
    fn sections_join_into_one_tree() {
        let namespace = built(&[(20_000, 16385, "b"), (20_001, 20_002, "x"), (20_002, 16385, "a")]).unwrap();
        assert_eq!(namespace.path_of(namespace.slot(InodeId(20_001)).unwrap()), "/a/x");
        let names = |path| {
            let children = namespace.inode(namespace.lookup(path).unwrap()).children().unwrap();
            children.iter().map(|slot| String::from_utf8_lossy(&namespace.inode(slot).name).into_owned()).collect()
        };
        let (all, below): (Vec<String>, Vec<String>) = (names("/"), names("/a"));
        assert_eq!((all, below), (vec!["a".to_owned(), "b".to_owned()], vec!["x".to_owned()]));
    }

    #[test]
    fn free_slots_between_sections_are_reused() {
        let mut namespace = built(&[(20_000, 16385, "b"), (20_001, 16385, "a")]).unwrap();
        let pages = namespace.inodes.page_count();
        let caller = super::super::Caller {
            user: "root".into(),
            groups: [].into(),
            superuser: true,
            machine: "127.0.0.1".into(),
        };
        for number in 0..1000 {
            namespace.mkdirs(&caller, &format!("/a/{number}"), FsPermission(0o755), false, 1).unwrap();
        }
        assert_eq!((namespace.inode_count(), namespace.inodes.page_count()), (1003, pages));
    }

    #[test]
    fn cycles_in_snapshots_are_refused() {
        let names = [(0, "root".to_owned())];
        let finished = |versions: &[(u64, u64, &str)]| {
            let mut rebuild = Rebuild::start(Limits::default(), COUNTERS, names.clone()).unwrap();
            let mut section = rebuild.section();
            section.inode(InodeId::ROOT.0, &record(InodeId::ROOT.0, "")).unwrap();
            rebuild.join(vec![section]).unwrap();
            for (id, parent, name) in versions {
                // The range of snapshots begins at 0.
                rebuild.version(*id, 1, &[&[0u8][..], &record(*parent, name)].concat()).unwrap();
            }
            rebuild.finish().err()
        };
        assert_eq!(finished(&[(20_000, 16385, "a"), (20_001, 20_000, "b")]), None);
        let circle = finished(&[(20_000, 20_001, "a"), (20_001, 20_000, "b")]);
        assert_eq!(circle, Some(RecordError::Unreachable { inode: 20_000 }));
    }

    #[test]
    fn duplicate_names_and_cycles_are_refused() {
        let twice = built(&[(20_000, 16385, "a"), (20_001, 16385, "b"), (20_002, 16385, "a")]).err();
        assert_eq!(twice, Some(RecordError::Twice { parent: 16385, name: "a".into() }));
        let circle = built(&[(20_000, 16385, "a"), (20_001, 20_002, "b"), (20_002, 20_001, "c")]).err();
        assert_eq!(circle, Some(RecordError::Unreachable { inode: 20_001 }));
        let itself = built(&[(20_000, 20_000, "a")]).err();
        assert_eq!(itself, Some(RecordError::Unreachable { inode: 20_000 }));
        let orphan = built(&[(20_000, 20_001, "a")]).err();
        assert_eq!(orphan, Some(RecordError::NoParent { inode: 20_000, parent: 20_001 }));
    }
}
