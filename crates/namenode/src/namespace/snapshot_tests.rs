//! Random operations on a namespace with snapshots and on a model that copies everything: a map of paths for the
//! current state and one per snapshot. Between operations the namespace is sometimes encoded and rebuilt, as a restart
//! does.

use std::collections::{BTreeMap, BTreeSet};

use hearth_types::{Block, BlockId, FsPermission};
use proptest::prelude::*;

use super::tests::{make_file, sections_of};
use super::*;
use crate::changes::Changes;

fn caller() -> Caller {
    Caller { user: "root".into(), groups: [].into(), superuser: true, machine: "127.0.0.1".into() }
}

#[derive(Clone, Debug)]
enum Operation {
    Mkdirs(String),
    Create(String),
    Append(String),
    Grow(String),
    Truncate(String),
    Mode(String, u16),
    Policy(String, u8),
    Delete(String),
    Rename(String, String),
    Snapshot(bool, u8),
    Drop(bool, u8),
    Reopen,
}

/// Few names, so that operations affect the same paths. `/s` and `/t` can have snapshots, paths below `/u` cannot.
fn paths() -> impl Strategy<Value = String> {
    let top = prop::sample::select(vec!["s", "s", "t", "u"]);
    let below = prop::collection::vec(prop::sample::select(vec!["a", "b", "é"]), 1..4);
    (top, below).prop_map(|(top, names)| format!("/{top}/{}", names.join("/")))
}

fn operations() -> impl Strategy<Value = Operation> {
    prop_oneof![
        3 => paths().prop_map(Operation::Mkdirs),
        5 => paths().prop_map(Operation::Create),
        2 => paths().prop_map(Operation::Append),
        2 => paths().prop_map(Operation::Grow),
        2 => paths().prop_map(Operation::Truncate),
        2 => (paths(), 0u16..0o1000).prop_map(|(path, mode)| Operation::Mode(path, mode)),
        2 => (paths(), prop::sample::select(vec![0u8, 7, 12])).prop_map(|(path, policy)| Operation::Policy(path, policy)),
        3 => paths().prop_map(Operation::Delete),
        7 => (paths(), paths()).prop_map(|(from, to)| Operation::Rename(from, to)),
        4 => (any::<bool>(), 0u8..5).prop_map(|(first, name)| Operation::Snapshot(first, name)),
        2 => (any::<bool>(), 0u8..5).prop_map(|(first, name)| Operation::Drop(first, name)),
        1 => Just(Operation::Reopen),
    ]
}

#[derive(Clone, Debug, PartialEq)]
struct Entry {
    id: u64,
    mode: u16,
    policy: u8,
    /// For a file: its blocks with their lengths.
    blocks: Option<Vec<(BlockId, u64)>>,
}

type Tree = BTreeMap<String, Entry>;

/// Returns limits under which a snapshot never changes, even for files that are still being written.
fn limits() -> Limits {
    Limits { snapshots_capture_open_files: true, ..Limits::default() }
}

#[derive(Default)]
struct Stored {
    inodes: BTreeMap<u64, Vec<u8>>,
    versions: BTreeMap<(u64, u32), Vec<u8>>,
    snapshots: BTreeMap<u32, crate::changes::SnapshotRow>,
    names: Vec<(u32, String)>,
    counters: Option<Counters>,
}

impl Stored {
    fn take(&mut self, changes: Changes) {
        self.inodes.extend(changes.inodes_put);
        self.inodes.retain(|id, _| !changes.inodes_removed.contains(id));
        self.versions.extend(changes.versions_put);
        self.versions.retain(|key, _| !changes.versions_removed.contains(key));
        self.snapshots.extend(changes.snapshots_put);
        self.snapshots.retain(|id, _| !changes.snapshots_removed.contains(id));
        self.names.extend(changes.names_put);
        self.counters = changes.counters.or(self.counters);
    }

    /// Returns all rows as one change.
    fn changes(&self) -> Changes {
        Changes {
            inodes_put: self.inodes.clone().into_iter().collect(),
            versions_put: self.versions.clone().into_iter().collect(),
            snapshots_put: self.snapshots.clone().into_iter().collect(),
            names_put: self.names.clone(),
            counters: self.counters,
            ..Changes::default()
        }
    }

    fn reopen(&self) -> Namespace {
        let mut rebuild = Rebuild::start(limits(), self.counters.unwrap(), self.names.clone()).unwrap();
        rebuild.join(sections_of(&rebuild, &self.inodes, 2).unwrap()).unwrap();
        for ((id, until), record) in &self.versions {
            rebuild.version(*id, *until, record).unwrap();
        }
        for (id, row) in &self.snapshots {
            let (name, modification_time_ms) = (row.name.clone(), row.modification_time_ms);
            rebuild.snapshot(Snapshot { id: *id, name, modification_time_ms }, row.root).unwrap();
        }
        rebuild.finish().unwrap()
    }
}

fn entry(namespace: &Namespace, slot: Slot) -> Entry {
    let inode = namespace.inode(slot);
    let blocks = inode.as_file().map(|file| file.blocks().iter().map(|block| (block.id, block.length)).collect());
    Entry { id: inode.id().0, mode: inode.permission().0, policy: inode.storage_policy(), blocks }
}

/// Returns everything below a path, excluding the path itself, by relative path.
fn contents(namespace: &Namespace, top: &str) -> Tree {
    let trail = namespace.resolve(&caller(), top, Purpose::Read).unwrap();
    let mut tree = Tree::new();
    let mut waiting = vec![(trail.target().unwrap(), String::new())];
    while let Some((directory, path)) = waiting.pop() {
        let children = namespace.children_at(trail.snapshot, directory);
        let names: Vec<&[u8]> = children.iter().map(|slot| &*namespace.inode(*slot).name).collect();
        assert!(names.is_sorted_by(|a, b| compare_names(a, b).is_lt()), "{top}{path} lists its names in order");
        for slot in children {
            let path = format!("{path}/{}", String::from_utf8_lossy(&namespace.inode(slot).name));
            let found = namespace.resolve(&caller(), &format!("{}{path}", top.trim_end_matches('/')), Purpose::Read);
            assert_eq!(found.unwrap().target(), Some(slot), "{top}{path}");
            tree.insert(path.clone(), entry(namespace, slot));
            if namespace.inode(slot).is_directory() {
                waiting.push((slot, path));
            }
        }
    }
    tree
}

fn below(tree: &Tree, top: &str) -> Tree {
    let prefix = format!("{top}/");
    let inner = tree.iter().filter(|(path, _)| path.starts_with(&prefix));
    inner.map(|(path, entry)| (path[top.len()..].to_owned(), entry.clone())).collect()
}

/// Returns data that is derived and not stored: blocks that snapshots keep, and usage per medium.
fn derived(namespace: &Namespace) -> (Vec<SnapshotBlock>, Usage) {
    let mut kept: Vec<SnapshotBlock> = namespace.blocks_of_all_snapshots().collect();
    kept.sort_by_key(|kept| kept.record.id);
    (kept, namespace.tree_usage(namespace.lookup("/s").unwrap()))
}

struct World {
    namespace: Namespace,
    now: Tree,
    /// By directory and name.
    snapshots: BTreeMap<(String, String), (u32, Tree)>,
    /// Blocks that the namespace has not released.
    blocks: BTreeSet<BlockId>,
    time_ms: u64,
}

impl World {
    fn new() -> Self {
        let mut namespace = Namespace::format(limits(), "root", "supergroup", 1);
        for path in ["/s", "/t", "/u"] {
            namespace.mkdirs(&caller(), path, FsPermission(0o755), true, 1).unwrap();
        }
        namespace.set_quota(&caller(), "/s", Limit::Set(10_000), Limit::Set(1 << 40), None).unwrap();
        namespace.allow_snapshots(&caller(), "/s").unwrap();
        namespace.allow_snapshots(&caller(), "/t").unwrap();
        let now = contents(&namespace, "/");
        Self { namespace, now, snapshots: BTreeMap::new(), blocks: BTreeSet::new(), time_ms: 1 }
    }

    fn add_block(&mut self, slot: Slot, length: u64) {
        let (id, stamp) = (self.namespace.next_block_id(), self.namespace.next_stamp());
        self.namespace.push_block(slot, BlockRecord::new(Block { id, stamp, length }, RecordState::Complete));
        self.blocks.insert(id);
    }

    fn forget(&mut self, removed: Removed) {
        for block in removed.blocks {
            assert!(self.blocks.remove(&block), "{block:?} is released once");
        }
    }

    fn file(&self, path: &str) -> Option<Slot> {
        self.namespace.lookup(path).filter(|slot| self.namespace.is_file(*slot))
    }

    fn copy(&mut self, path: &str) {
        if let Some(slot) = self.namespace.lookup(path) {
            self.now.insert(path.to_owned(), entry(&self.namespace, slot));
        }
    }

    fn act(&mut self, operation: &Operation) {
        self.time_ms += 1;
        let (caller, now) = (caller(), self.time_ms);
        match operation {
            Operation::Mkdirs(path) => {
                if self.namespace.mkdirs(&caller, path, FsPermission(0o755), true, now).is_ok() {
                    let ends: Vec<usize> =
                        path.match_indices('/').map(|(at, _)| at).skip(1).chain([path.len()]).collect();
                    ends.into_iter().for_each(|end| self.copy(&path[..end]));
                }
            }
            Operation::Create(path) => {
                let Ok(trail) = self.namespace.check_create(&caller, path, true, false, false) else { return };
                if trail.target().is_some() {
                    return;
                }
                let file = NewFile {
                    modes: FsPermission(0o644).into(),
                    replication: 2,
                    block_size: 1 << 20,
                    storage_policy: 0,
                    writer: Writer { client: "w".into(), machine: "m".into(), truncation: None },
                    caller: &caller,
                };
                let slot = self.namespace.create_file(&trail, file, now).unwrap();
                self.add_block(slot, 10);
                self.add_block(slot, 20);
                self.namespace.file_mut(slot).close();
                self.copy(path);
            }
            Operation::Append(path) => {
                let Some(slot) = self.file(path) else { return };
                self.add_block(slot, 30);
                self.copy(path);
            }
            Operation::Grow(path) => {
                let Some(slot) = self.file(path) else { return };
                let stamp = self.namespace.next_stamp();
                self.namespace.file_mut(slot).change_last(|last| {
                    last.length += 1;
                    last.set_stamp(stamp);
                });
                self.copy(path);
            }
            Operation::Truncate(path) => {
                let Some(slot) = self.file(path) else { return };
                if let Some(block) = self.namespace.pop_block(slot)
                    && !self.namespace.keeps_block(slot, block)
                {
                    self.blocks.remove(&block.id);
                }
                self.copy(path);
            }
            Operation::Mode(path, mode) => {
                if self.namespace.set_permission(&caller, path, FsPermission(*mode)).is_ok() {
                    self.copy(path);
                }
            }
            Operation::Policy(path, policy) => {
                if let Ok(slot) = self.namespace.check_storage_policy(&caller, path) {
                    self.namespace.set_storage_policy(slot, *policy);
                    self.copy(path);
                }
            }
            Operation::Delete(path) => {
                let Ok(Some(removed)) = self.namespace.delete(&caller, path, true, now) else { return };
                self.forget(removed);
                self.now.retain(|other, _| other != path && !is_below(other, path));
            }
            Operation::Rename(from, to) => {
                let Ok(renamed) = self.namespace.rename(&caller, from, to, true, false, now) else { return };
                if let Some(removed) = renamed.overwritten {
                    self.forget(removed);
                }
                let moved: Vec<(String, Entry)> =
                    self.now.extract_if(.., |other, _| other == from || is_below(other, from)).collect();
                self.now.remove(to);
                let moved = moved.into_iter().map(|(path, entry)| (format!("{to}{}", &path[from.len()..]), entry));
                self.now.extend(moved);
            }
            Operation::Snapshot(first, name) => {
                let (root, name) = (if *first { "/s" } else { "/t" }, format!("n{name}"));
                let made = self.namespace.create_snapshot(&caller, root, &name, now);
                let key = (root.to_owned(), name);
                assert_eq!(made.is_err(), self.snapshots.contains_key(&key));
                if let Ok(path) = made {
                    assert_eq!(path, format!("{root}/.snapshot/{}", key.1));
                    let id = self.namespace.counters().last_snapshot;
                    self.snapshots.insert(key, (id, below(&self.now, root)));
                }
            }
            Operation::Drop(first, name) => {
                let (root, name) = (if *first { "/s" } else { "/t" }, format!("n{name}"));
                let removed = self.namespace.delete_snapshot(&caller, root, &name, now);
                let key = (root.to_owned(), name);
                assert_eq!(removed.is_ok(), self.snapshots.remove(&key).is_some());
                if let Ok(removed) = removed {
                    self.forget(removed);
                }
            }
            Operation::Reopen => {}
        }
    }

    fn drop_snapshots(&mut self) {
        for ((root, name), _) in std::mem::take(&mut self.snapshots) {
            let removed = self.namespace.delete_snapshot(&caller(), &root, &name, 9).unwrap();
            self.forget(removed);
        }
    }

    /// Reopens the namespace as a restart does.
    fn reopen(&mut self, stored: &Stored) {
        let before = derived(&self.namespace);
        self.namespace = stored.reopen();
        assert_eq!(derived(&self.namespace), before);
        self.check_beginnings();
    }

    fn check(&self) {
        assert_eq!(contents(&self.namespace, "/"), self.now);
        for ((root, name), (_, tree)) in &self.snapshots {
            assert_eq!(&contents(&self.namespace, &format!("{root}/.snapshot/{name}")), tree, "{root} {name}");
        }
        let trees = self.snapshots.values().map(|(_, tree)| tree).chain([&self.now]);
        let of_entry = |entry: &Entry| entry.blocks.clone().unwrap_or_default().into_iter().map(|(id, _)| id);
        let held: BTreeSet<BlockId> = trees.flat_map(|tree| tree.values().flat_map(of_entry)).collect();
        assert_eq!(self.blocks, held, "blocks are kept while they are referenced");
        let live: BTreeSet<BlockId> = self.now.values().flat_map(of_entry).collect();
        let kept: BTreeSet<BlockId> = self.namespace.blocks_of_all_snapshots().map(|kept| kept.record.id).collect();
        assert_eq!(kept, held.difference(&live).copied().collect(), "the blocks that only snapshots have");
        assert_eq!(self.namespace.iter().count(), self.now.len() + 1);
        assert_eq!(self.namespace.block_count() as usize, live.len());
        if self.snapshots.is_empty() {
            assert_eq!(self.namespace.inode_count() as usize, self.now.len() + 1, "no unused inode is kept");
            assert_eq!(self.namespace.inodes.len(), self.now.len() + 1, "no unused state is kept");
        }
        let limited = self.namespace.lookup("/s").unwrap();
        let quota = self.namespace.inode(limited).quota().unwrap();
        assert_eq!(quota.used, self.namespace.tree_usage(limited), "the usage counted against the quota");
        if self.snapshots.is_empty() {
            assert_eq!(quota.used.names as usize, below(&self.now, "/s").len() + 1);
        }
        self.check_sum();
        self.check_differences();
        let last = self.namespace.counters().last_snapshot;
        for main in self.namespace.by_id.values() {
            for (from, until) in (0..last).flat_map(|from| [(from, from + 1), (from, last)]) {
                let found = self.namespace.is_in_any(*main, from, until);
                assert_eq!(found, self.namespace.is_in_any_of_all(*main, from, until), "{from} to {until}");
            }
        }
    }

    /// Checks a summary that is computed a few inodes at a time and includes inodes that only snapshots have.
    fn check_sum(&self) {
        let summary = sum(&self.namespace, "/s", 3);
        assert_eq!(summary.usage, self.namespace.tree_usage(self.namespace.lookup("/s").unwrap()));
        let (tree, kept) = (below(&self.now, "/s"), &summary.in_snapshots);
        assert_eq!(*kept, kept_below(&self.namespace, self.namespace.lookup("/s").unwrap()));
        let files: Vec<u64> = tree.values().filter_map(|entry| entry.blocks.as_deref().map(length_of)).collect();
        assert_eq!(summary.files - kept.files, files.len() as u64);
        assert_eq!(summary.directories - kept.directories, (tree.len() - files.len()) as u64 + 1);
        assert_eq!(summary.length - kept.length, files.iter().sum::<u64>());
        if self.snapshots.is_empty() {
            assert_eq!(*kept, SnapshotUsage::default());
        }
    }

    /// Checks that a page may begin at any difference, or between two, and then has exactly the differences from there
    /// on.
    fn check_beginnings(&self) {
        for ((root, _), (earlier, _)) in &self.snapshots {
            let scope = self.namespace.lookup(root).unwrap();
            let later = self.snapshots.iter().filter(|((other, _), (id, _))| other == root && id > earlier);
            for later in later.map(|(_, (id, _))| Some(SnapshotId(*id))).chain([None]) {
                let from = |start: &[Name]| -> Vec<Difference> {
                    self.namespace.differences(scope, SnapshotId(*earlier), later, start).collect()
                };
                let found = from(&[]);
                let paths = found.iter().flat_map(|difference| {
                    let (path, mut below) = (difference.path.clone(), difference.path.clone());
                    below.push("b".as_bytes().into());
                    [path, below]
                });
                for start in paths {
                    let rest = found.iter().filter(|difference| compare_paths(&difference.path, &start).is_ge());
                    assert!(rest.eq(&from(&start)), "{root} {earlier} {later:?} from {start:?}");
                }
            }
        }
    }

    /// Checks the differences of every pair of snapshots of a directory, and of each snapshot and the current state.
    fn check_differences(&self) {
        for ((root, _), (earlier, then)) in &self.snapshots {
            let later = self.snapshots.iter().filter(|((other, _), (id, _))| other == root && id > earlier);
            let later = later.map(|(_, (id, tree))| (Some(SnapshotId(*id)), tree.clone()));
            for (later, now) in later.chain([(None, below(&self.now, root))]) {
                let scope = self.namespace.lookup(root).unwrap();
                let found: Vec<Difference> =
                    self.namespace.differences(scope, SnapshotId(*earlier), later, &[]).collect();
                assert!(found.is_sorted_by(|a, b| compare_paths(&a.path, &b.path).is_lt()), "sorted by path");
                let mut told: Vec<String> = Vec::new();
                for difference in &found {
                    let path = |names: &RelativePath| -> String {
                        names.iter().map(|name| format!("/{}", String::from_utf8_lossy(name))).collect()
                    };
                    let here = path(&difference.path);
                    told.push(format!("M {here}"));
                    let name = |name: &[u8]| format!("{here}/{}", String::from_utf8_lossy(name));
                    told.extend(difference.created.iter().map(|entry| format!("+ {}", name(&entry.name))));
                    told.extend(difference.deleted.iter().map(|entry| match &entry.renamed_to {
                        None => format!("- {}", name(&entry.name)),
                        Some(to) => format!("R {} {}", name(&entry.name), path(to)),
                    }));
                }
                told.sort();
                assert_eq!(told, expected_differences(then, &now), "{root} {earlier} {later:?}");
            }
        }
    }
}

fn expected_differences(then: &Tree, now: &Tree) -> Vec<String> {
    let parent = |path: &str| path[..path.rfind('/').unwrap()].to_owned();
    let place = |id: u64| now.iter().find(|(_, entry)| entry.id == id).map(|(path, entry)| (path.clone(), entry));
    // Reached paths: the directory itself, and entries of a reached directory that still exist somewhere.
    let mut reached: BTreeSet<String> = [String::new()].into();
    for (path, entry) in then {
        if reached.contains(&parent(path)) && place(entry.id).is_some() {
            reached.insert(path.clone());
        }
    }
    let mut told = BTreeSet::new();
    for path in &reached {
        let place_now = match then.get(path) {
            None => String::new(),
            Some(entry) => {
                let (place, then_now) = place(entry.id).unwrap();
                let length = |entry: &Entry| entry.blocks.iter().flatten().map(|(_, length)| length).sum::<u64>();
                let state = |entry: &Entry| (entry.mode, entry.policy, length(entry));
                if state(entry) != state(then_now) {
                    told.insert(format!("M {path}"));
                }
                place
            }
        };
        for (child, entry) in then.iter().filter(|(child, _)| parent(child) == *path) {
            let same = now.get(&format!("{place_now}{}", &child[path.len()..]));
            if same.is_some_and(|same| same.id == entry.id) {
                continue;
            }
            told.insert(format!("M {path}"));
            told.insert(match place(entry.id) {
                None => format!("- {child}"),
                Some((to, _)) => format!("R {child} {to}"),
            });
        }
        if then.get(path).is_some_and(|entry| entry.blocks.is_some()) {
            continue;
        }
        for (child, entry) in now.iter().filter(|(child, _)| parent(child) == place_now) {
            let before = format!("{path}{}", &child[place_now.len()..]);
            if then.get(&before).is_none_or(|then| then.id != entry.id) {
                told.insert(format!("M {path}"));
                told.insert(format!("+ {before}"));
            }
        }
    }
    told.into_iter().collect()
}

/// Acts on a namespace, makes an image of it, imports that, and checks that nothing is missing or left over.
fn check_image(operations: &[Operation]) {
    let (mut world, mut stored) = (World::new(), Stored::default());
    for operation in operations {
        world.act(operation);
        stored.take(world.namespace.take_changes());
    }
    let before = derived(&world.namespace);
    world.namespace = crate::image::tests::round_trip(&stored.changes(), limits());
    assert_eq!(derived(&world.namespace), before);
    world.check();
    world.drop_snapshots();
    world.check();
}

fn mkdirs(path: &str) -> Operation {
    Operation::Mkdirs(path.into())
}

fn rename(from: &str, to: &str) -> Operation {
    Operation::Rename(from.into(), to.into())
}

/// Snapshots of `/s` (true) and `/t` are numbered together. One of them says nothing about the other directory.
#[test]
fn an_image_has_moves_between_snapshotted_directories() {
    let snapshot = Operation::Snapshot;
    let delete = |path: &str| Operation::Delete(path.into());
    // In both directions, because the import visits directories in the order of ids.
    let there = [snapshot(true, 0), mkdirs("/t/a/b/b"), mkdirs("/s/b/a"), snapshot(false, 1), rename("/t/a", "/s/é")];
    let both = [&there[..], &[snapshot(true, 2), rename("/s/b", "/t/b")]].concat();
    check_image(&both);
    // Out of both, to a place without snapshots.
    check_image(&[&both[..], &[rename("/s/é", "/u/a"), rename("/t/b", "/u/b")]].concat());
    // Away and back, with a snapshot at either place.
    let away =
        [mkdirs("/s/a/b"), snapshot(true, 0), rename("/s/a", "/t/a"), snapshot(false, 0), rename("/t/a", "/s/a")];
    check_image(&away);
    let again = [snapshot(true, 1), rename("/s/a", "/t/a"), snapshot(false, 1), snapshot(true, 2)];
    let again = [&away[..], &again, &[rename("/t/a", "/s/a"), snapshot(false, 2)]].concat();
    check_image(&again);
    for (is_first, name) in [(true, 0), (true, 1), (true, 2), (false, 0), (false, 1), (false, 2)] {
        check_image(&[&again[..], &[Operation::Drop(is_first, name)]].concat());
    }
    // Removed after the move: with and without a snapshot of the new place, alone and with its parent.
    check_image(&[&there[..], &[delete("/s/é")]].concat());
    check_image(&[&both[..], &[delete("/s/é"), delete("/t/b")]].concat());
    let below = [mkdirs("/s/a"), rename("/s/é", "/s/a/é"), snapshot(true, 2), snapshot(false, 3), delete("/s/a")];
    check_image(&[&there[..], &below].concat());
    // The moved directory's former parent moves below it.
    let parent = [mkdirs("/t/a/b/b"), snapshot(true, 0), snapshot(false, 0), rename("/t/a/b", "/s/b")];
    let parent = [&parent[..], &[rename("/t/a", "/s/b/a")]].concat();
    check_image(&parent);
    check_image(&[&parent[..], &[snapshot(true, 1), delete("/s/b")]].concat());
    check_image(&[&parent[..], &[snapshot(true, 1), Operation::Drop(false, 0), delete("/s/b/a")]].concat());
}

/// The format has one length for each block and one for the file.
#[test]
fn an_image_has_blocks_that_grew_behind_a_snapshot() {
    let file = || "/t/b".to_owned();
    let cut = [Operation::Create(file()), Operation::Snapshot(false, 0), Operation::Truncate(file())];
    let grown = [&cut[..], &[Operation::Grow(file())]].concat();
    check_image(&grown);
    check_image(&[&grown[..], &[Operation::Truncate(file())]].concat());
    check_image(&[&grown[..], &[Operation::Snapshot(false, 1), Operation::Delete(file())]].concat());
    // DataNodes have more of a block that only a snapshot has than the snapshot has.
    let longer = [Operation::Create(file()), Operation::Snapshot(false, 0), Operation::Grow(file())];
    check_image(&[&longer[..], &[Operation::Truncate(file())]].concat());
}

/// The policy at the removal counts for the blocks, not that of the snapshot.
#[test]
fn an_image_has_policies_of_removed_files() {
    let file = || "/s/b".to_owned();
    for (then, last) in [(7, 0), (0, 7), (7, 12), (0, 0)] {
        let policy = |number| Operation::Policy(file(), number);
        let made = [Operation::Create(file()), policy(then), Operation::Snapshot(true, 0), policy(last)];
        check_image(&[&made[..], &[Operation::Delete(file())]].concat());
    }
}

#[test]
fn unknown_policy_of_a_removed_file_is_refused() {
    let file = || "/s/b".to_owned();
    let (mut world, mut stored) = (World::new(), Stored::default());
    let snapshot = Operation::Snapshot(true, 0);
    for operation in [Operation::Create(file()), snapshot, Operation::Policy(file(), 3), Operation::Delete(file())] {
        world.act(&operation);
        stored.take(world.namespace.take_changes());
    }
    let said = crate::image::tests::refusal(&stored.changes());
    assert!(said.contains("storage policy 3"), "{said}");
}

/// Apache's NameNode refuses to remove an inode that has moved and has no difference from before the move.
#[test]
fn an_image_has_a_difference_for_each_move() {
    let (mut world, mut stored) = (World::new(), Stored::default());
    for operation in [
        mkdirs("/s/a"),
        Operation::Create("/s/b".into()),
        mkdirs("/s/é"),
        Operation::Snapshot(true, 0),
        rename("/s/a", "/t/a"),
        rename("/s/b", "/t/b"),
        rename("/s/é", "/t/é"),
        Operation::Snapshot(false, 0),
        rename("/t/a", "/s/a"),
        rename("/t/b", "/s/b"),
    ] {
        world.act(&operation);
        stored.take(world.namespace.take_changes());
    }
    let differences = crate::image::tests::differences(&stored.changes());
    assert_eq!(differences[&world.now["/s/a"].id], [1, 0]);
    assert_eq!(differences[&world.now["/s/b"].id], [1, 0]);
    assert_eq!(differences[&world.now["/t/é"].id], [0]);
}

/// Checks that neither writing nor importing an image visits every snapshot for each moved inode, which would take
/// minutes.
#[test]
fn image_of_moved_inodes_skips_snapshots() {
    const MOVED: u32 = 200;
    let mut namespace = Namespace::format(limits(), "root", "supergroup", 1);
    for path in ["/s", "/t"] {
        namespace.mkdirs(&caller(), path, FsPermission(0o755), true, 1).unwrap();
        namespace.allow_snapshots(&caller(), path).unwrap();
    }
    for name in 0..MOVED {
        namespace.mkdirs(&caller(), &format!("/s/{name}/a"), FsPermission(0o755), true, 1).unwrap();
    }
    let snapshots = |namespace: &mut Namespace, names: std::ops::Range<u32>| {
        for (name, path) in names.flat_map(|name| [(name, "/s"), (name, "/t")]) {
            namespace.create_snapshot(&caller(), path, &name.to_string(), 1).unwrap();
        }
    };
    snapshots(&mut namespace, 0..250);
    for name in 0..MOVED {
        namespace.rename(&caller(), &format!("/s/{name}"), &format!("/t/{name}"), false, false, 2).unwrap();
    }
    snapshots(&mut namespace, 250..500);
    for name in 0..MOVED {
        // A change below the moved directory, and the removal of half of them.
        namespace.set_permission(&caller(), &format!("/t/{name}/a"), FsPermission(0o700)).unwrap();
        if name % 2 == 0 {
            namespace.delete(&caller(), &format!("/t/{name}"), true, 3).unwrap();
        }
    }
    let mut stored = Stored::default();
    stored.take(namespace.take_changes());
    let before = visited_inodes::counted();
    let imported = crate::image::tests::round_trip(&stored.changes(), limits());
    let visited = visited_inodes::counted() - before;
    assert!(visited < 20_000, "{visited} visited");
    for path in ["/", "/s/.snapshot/0", "/s/.snapshot/249", "/s/.snapshot/250", "/t/.snapshot/0", "/t/.snapshot/499"] {
        assert_eq!(contents(&imported, path), contents(&namespace, path), "{path}");
    }
}

proptest! {
    // Each case makes two stores on disk.
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn an_image_has_everything(operations in prop::collection::vec(operations(), 1..80)) {
        check_image(&operations);
    }
}

proptest! {
    #[test]
    fn a_snapshot_is_a_copy_of_everything(operations in prop::collection::vec(operations(), 1..80)) {
        let (mut world, mut stored) = (World::new(), Stored::default());
        for operation in &operations {
            world.act(operation);
            stored.take(world.namespace.take_changes());
            if matches!(operation, Operation::Reopen) {
                world.reopen(&stored);
            }
            world.check();
        }
        world.reopen(&stored);
        world.check();
        // Without snapshots nothing of the history remains.
        world.drop_snapshots();
        world.check();
        stored.take(world.namespace.take_changes());
        prop_assert!(stored.versions.is_empty() && stored.snapshots.is_empty());
    }
}

/// Checks that removing files does not visit every snapshot of another directory for each file, which would block all
/// other operations.
#[test]
fn removal_skips_snapshots_of_other_directories() {
    let mut namespace = Namespace::format(limits(), "root", "supergroup", 1);
    for path in ["/s", "/t/a/b/c/d/e/f/g/h"] {
        namespace.mkdirs(&caller(), path, FsPermission(0o755), true, 1).unwrap();
    }
    for name in 0..500 {
        let path = format!("/t/a/b/c/d/e/f/g/h/{name}");
        namespace.mkdirs(&caller(), &path, FsPermission(0o755), true, 1).unwrap();
    }
    namespace.allow_snapshots(&caller(), "/s").unwrap();
    for name in 0..1000 {
        namespace.create_snapshot(&caller(), "/s", &name.to_string(), 1).unwrap();
    }
    let before = visited_inodes::counted();
    namespace.delete(&caller(), "/t", true, 2).unwrap();
    assert!(visited_inodes::counted() - before < 5000, "{} visited", visited_inodes::counted() - before);
}

/// Creates a directory with a snapshot, and in it a hundred directories with a hundred subdirectories each, which have
/// two entries each. All have changed since the snapshot.
fn changed_since_a_snapshot() -> (Namespace, Slot, SnapshotId) {
    let mut namespace = Namespace::format(limits(), "root", "supergroup", 1);
    let names = || (0..100).flat_map(|a| (0..100).map(move |b| (a, b)));
    for (a, b) in names() {
        for c in 0..2 {
            namespace.mkdirs(&caller(), &format!("/s/{a}/{b}/{c}"), FsPermission(0o755), true, 1).unwrap();
        }
    }
    namespace.allow_snapshots(&caller(), "/s").unwrap();
    namespace.create_snapshot(&caller(), "/s", "one", 1).unwrap();
    for (a, b) in names() {
        namespace.set_permission(&caller(), &format!("/s/{a}/{b}"), FsPermission(0o700)).unwrap();
    }
    let (top, snapshot) = (namespace.lookup("/s").unwrap(), SnapshotId(namespace.counters().last_snapshot));
    (namespace, top, snapshot)
}

/// Checks that a page does not compare the whole tree, which would block all other changes.
#[test]
fn difference_page_does_not_walk_whole_tree() {
    const PAGE: usize = 500;
    let (namespace, top, snapshot) = changed_since_a_snapshot();
    let (mut start, mut told) = (RelativePath::new(), 0);
    for pages in 1.. {
        let before = visited_inodes::counted();
        let page: Vec<Difference> = namespace.differences(top, snapshot, None, &start).take(PAGE + 1).collect();
        let looked_at = visited_inodes::counted() - before;
        told += page.len().min(PAGE);
        let Some(next) = page.get(PAGE) else {
            // The last page must visit all deeper levels to know that there are no more differences.
            assert_eq!((pages, told), (20, 10_000));
            assert!(looked_at < 40_000, "{looked_at} for the last page");
            break;
        };
        // The visited inodes include the entries of differing directories in both states.
        assert!(looked_at < 3000, "{looked_at} for page {pages}");
        start = next.path.clone();
    }
}

/// Checks that a page in the middle of a large directory begins after the last difference, without visiting the entries
/// before it.
#[test]
fn difference_page_skips_earlier_entries() {
    let mut namespace = Namespace::format(limits(), "root", "supergroup", 1);
    for name in 0..5000 {
        namespace.mkdirs(&caller(), &format!("/s/{name}"), FsPermission(0o755), true, 1).unwrap();
    }
    namespace.allow_snapshots(&caller(), "/s").unwrap();
    namespace.create_snapshot(&caller(), "/s", "one", 1).unwrap();
    for name in 0..5000 {
        namespace.set_permission(&caller(), &format!("/s/{name}"), FsPermission(0o700)).unwrap();
    }
    let (top, snapshot) = (namespace.lookup("/s").unwrap(), SnapshotId(namespace.counters().last_snapshot));
    let before = visited_inodes::counted();
    let page = namespace.differences(top, snapshot, None, &["4000".as_bytes().into()]).take(100);
    assert_eq!(page.last().map(|last| last.path), Some(vec!["4090".as_bytes().into()]));
    assert!(visited_inodes::counted() - before < 300, "{} visited", visited_inodes::counted() - before);
}

fn length_of(blocks: &[(BlockId, u64)]) -> u64 {
    blocks.iter().map(|(_, length)| length).sum()
}

/// Computes in one pass the usage that snapshots keep of inodes that no longer exist.
fn kept_below(namespace: &Namespace, top: Slot) -> SnapshotUsage {
    let (mut kept, mut waiting) = (SnapshotUsage::default(), vec![top]);
    while let Some(slot) = waiting.pop() {
        let inode = namespace.inode(slot);
        match inode.kind() {
            InodeKind::Directory(children) => {
                kept.directories += u64::from(inode.is_gone());
                waiting.extend(children.iter());
            }
            InodeKind::File(_) if inode.is_gone() => {
                let last = inode.history().unwrap().versions.last().unwrap().frozen;
                kept.files += 1;
                kept.length += namespace.inode(last).as_file().unwrap().length();
                kept.space_consumed += namespace.own_usage(slot).reported_space();
            }
            InodeKind::File(_) => {}
        }
        for place in namespace.former_children(slot) {
            match place {
                quota::FormerChild::Gone(slot) => waiting.push(slot),
                quota::FormerChild::Moved { snapshot, state } => add_moved(namespace, &mut kept, snapshot, state),
            }
        }
    }
    kept
}

fn add_moved(namespace: &Namespace, kept: &mut SnapshotUsage, snapshot: SnapshotId, slot: Slot) {
    let inode = namespace.inode(slot);
    let Some(file) = inode.as_file() else {
        kept.directories += 1;
        let children = namespace.children_in(snapshot, slot).into_iter();
        return children.for_each(|child| add_moved(namespace, kept, snapshot, child));
    };
    let space = file.length() * u64::from(inode.replication());
    kept.files += 1;
    kept.length += file.length();
    kept.space_consumed += space;
    kept.moved_space_consumed += space;
}

fn sum(namespace: &Namespace, path: &str, at_once: usize) -> Summary {
    let missing = |path| Error::FileMissing { path };
    let mut summing = namespace.start_summing(&caller(), path, missing).unwrap();
    loop {
        if let Some(summary) = namespace.continue_summing(&mut summing, at_once).unwrap() {
            return summary;
        }
    }
}

#[test]
fn summary_skips_inodes_removed_during_walk() {
    let mut namespace = Namespace::format(limits(), "root", "supergroup", 1);
    for name in 0..50 {
        namespace.mkdirs(&caller(), &format!("/d/{name}"), FsPermission(0o755), true, 1).unwrap();
    }
    let missing = |path| Error::FileMissing { path };
    let mut summing = namespace.start_summing(&caller(), "/d", missing).unwrap();
    assert_eq!(namespace.continue_summing(&mut summing, 10).unwrap(), None);
    namespace.delete(&caller(), "/d", true, 2).unwrap();
    namespace.mkdirs(&caller(), "/d/another", FsPermission(0o755), true, 2).unwrap();
    let summary = namespace.continue_summing(&mut summing, usize::MAX).unwrap().unwrap();
    assert_eq!((summary.directories, summary.usage.names), (10, 10));
    assert_eq!(sum(&namespace, "/d", 1).directories, 2);
}

/// Checks that removing or renaming one of many entries does not recount the quota usage entry by entry.
#[test]
fn removal_does_not_recount_quotas() {
    let mut namespace = Namespace::format(limits(), "root", "supergroup", 1);
    for name in 0..600 {
        namespace.mkdirs(&caller(), &format!("/s/{name}"), FsPermission(0o755), true, 1).unwrap();
    }
    namespace.set_quota(&caller(), "/s", Limit::Set(100_000), Limit::Keep, None).unwrap();
    namespace.allow_snapshots(&caller(), "/s").unwrap();
    namespace.create_snapshot(&caller(), "/s", "one", 1).unwrap();
    let before = visited_inodes::counted();
    for name in 0..300 {
        namespace.delete(&caller(), &format!("/s/{name}"), true, 2).unwrap();
        let (from, to) = (format!("/s/{}", name + 300), format!("/s/new{name}"));
        namespace.rename(&caller(), &from, &to, false, false, 2).unwrap();
    }
    assert!(visited_inodes::counted() - before < 10_000, "{} visited", visited_inodes::counted() - before);
    let slot = namespace.lookup("/s").unwrap();
    assert_eq!(namespace.inode(slot).quota().unwrap().used, namespace.tree_usage(slot));
}

/// Checks that deleting a snapshot recounts quotas only if the snapshot alone had a file, or a removed or moved inode.
#[test]
fn snapshot_deletion_recounts_only_changed_quotas() {
    let mut namespace = Namespace::format(limits(), "root", "supergroup", 1);
    for name in 0..500 {
        namespace.mkdirs(&caller(), &format!("/s/{name}"), FsPermission(0o755), true, 1).unwrap();
    }
    assert!(make_file(&mut namespace, "/s/file", 100));
    namespace.set_quota(&caller(), "/s", Limit::Set(100_000), Limit::Set(1 << 30), None).unwrap();
    namespace.allow_snapshots(&caller(), "/s").unwrap();
    let used = |namespace: &Namespace| {
        let slot = namespace.lookup("/s").unwrap();
        let counted = namespace.inode(slot).quota().unwrap().used;
        assert_eq!(counted, namespace.tree_usage(slot));
        (counted.names, counted.space)
    };
    let before = visited_inodes::counted();
    for name in 0..20 {
        namespace.create_snapshot(&caller(), "/s", "one", 1).unwrap();
        namespace.set_permission(&caller(), &format!("/s/{name}"), FsPermission(0o700)).unwrap();
        namespace.delete_snapshot(&caller(), "/s", "one", 2).unwrap();
    }
    assert!(visited_inodes::counted() - before < 500, "{} visited", visited_inodes::counted() - before);
    assert_eq!(used(&namespace), (502, 100));
    namespace.create_snapshot(&caller(), "/s", "two", 3).unwrap();
    namespace.rename(&caller(), "/s/0", "/s/moved", false, false, 4).unwrap();
    namespace.delete(&caller(), "/s/1", true, 4).unwrap();
    namespace.delete(&caller(), "/s/file", true, 4).unwrap();
    assert_eq!(used(&namespace), (503, 100));
    namespace.delete_snapshot(&caller(), "/s", "two", 5).unwrap();
    assert_eq!(used(&namespace), (500, 0));
}

/// Checks that removing inodes that a snapshot has at another place counts only these places.
#[test]
fn removal_of_moved_inodes_does_not_recount_quotas() {
    let mut namespace = Namespace::format(limits(), "root", "supergroup", 1);
    for name in 0..300 {
        assert!(make_file(&mut namespace, &format!("/q/s/file{name}"), 100));
        assert!(make_file(&mut namespace, &format!("/q/s/directory{name}/inner"), 10));
    }
    for path in ["/q", "/q/s", "/q/to"] {
        namespace.mkdirs(&caller(), path, FsPermission(0o755), true, 1).unwrap();
        namespace.set_quota(&caller(), path, Limit::Set(100_000), Limit::Keep, None).unwrap();
    }
    namespace.allow_snapshots(&caller(), "/q/s").unwrap();
    namespace.create_snapshot(&caller(), "/q/s", "one", 1).unwrap();
    let before = visited_inodes::counted();
    for name in 0..300 {
        let moved = format!("/q/to/file{name}");
        namespace.rename(&caller(), &format!("/q/s/file{name}"), &moved, false, false, 2).unwrap();
        let slot = namespace.lookup(&moved).unwrap();
        namespace.set_storage_policy(slot, [7, 12][name % 2]);
        namespace.delete(&caller(), &moved, true, 2).unwrap();
        // A tree whose inodes come from several places.
        let from = format!("/q/s/directory{name}");
        let tree = format!("/q/to/tree{name}");
        namespace.mkdirs(&caller(), &tree, FsPermission(0o755), true, 2).unwrap();
        namespace.rename(&caller(), &format!("{from}/inner"), &format!("{tree}/inner"), false, false, 2).unwrap();
        if name % 2 == 0 {
            namespace.rename(&caller(), &from, &format!("{tree}/directory"), false, false, 2).unwrap();
        }
        namespace.delete(&caller(), &tree, true, 2).unwrap();
    }
    assert!(visited_inodes::counted() - before < 60_000, "{} visited", visited_inodes::counted() - before);
    for path in ["/q", "/q/s", "/q/to"] {
        let slot = namespace.lookup(path).unwrap();
        assert_eq!(namespace.inode(slot).quota().unwrap().used, namespace.tree_usage(slot), "{path}");
    }
    // Its earlier parent is removed too: everything is counted again.
    assert!(make_file(&mut namespace, "/q/s/last/inner", 10));
    namespace.create_snapshot(&caller(), "/q/s", "two", 3).unwrap();
    namespace.rename(&caller(), "/q/s/last/inner", "/q/to/inner", false, false, 4).unwrap();
    namespace.delete(&caller(), "/q/s/last", true, 4).unwrap();
    namespace.delete(&caller(), "/q/to/inner", true, 4).unwrap();
    for path in ["/q", "/q/s", "/q/to"] {
        let slot = namespace.lookup(path).unwrap();
        assert_eq!(namespace.inode(slot).quota().unwrap().used, namespace.tree_usage(slot), "{path}");
    }
}
