//! Random operations on a namespace and on a simple model of it, a map from paths. Between operations the namespace is
//! sometimes encoded and rebuilt, as a restart does.

use std::collections::BTreeMap;

use hearth_types::{Block, BlockId, FsPermission, GenerationStamp};
use proptest::prelude::*;

use super::*;
use crate::changes::Changes;

fn caller() -> Caller {
    Caller { user: "root".into(), groups: [].into(), superuser: true, machine: "127.0.0.1".into() }
}

#[derive(Clone, Debug)]
enum Operation {
    Mkdirs(String),
    Create(String, u64),
    Delete(String, bool),
    Rename(String, String),
    Rename2(String, String, bool),
    Mode(String, u16),
    Owner(String, String),
    Reopen,
}

/// Few names, so that operations affect the same paths.
fn paths() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(vec!["a", "b", "c", "é"]), 1..4)
        .prop_map(|names| format!("/{}", names.join("/")))
}

fn operations() -> impl Strategy<Value = Operation> {
    prop_oneof![
        3 => paths().prop_map(Operation::Mkdirs),
        4 => (paths(), 0u64..1000).prop_map(|(path, length)| Operation::Create(path, length)),
        2 => (paths(), any::<bool>()).prop_map(|(path, recursive)| Operation::Delete(path, recursive)),
        3 => (paths(), paths()).prop_map(|(from, to)| Operation::Rename(from, to)),
        3 => (paths(), paths(), any::<bool>()).prop_map(|(from, to, over)| Operation::Rename2(from, to, over)),
        1 => (paths(), 0u16..0o1000).prop_map(|(path, mode)| Operation::Mode(path, mode)),
        1 => (paths(), "[a-c]{1,2}").prop_map(|(path, user)| Operation::Owner(path, user)),
        1 => Just(Operation::Reopen),
    ]
}

#[derive(Clone, Debug, PartialEq)]
struct Entry {
    /// `None` for directories.
    length: Option<u64>,
    mode: u16,
    owner: String,
}

/// Paths in order, without the root.
#[derive(Clone, Default, Debug, PartialEq)]
struct Model(BTreeMap<String, Entry>);

impl Model {
    fn is_directory(&self, path: &str) -> bool {
        path == "/" || self.0.get(path).is_some_and(|entry| entry.length.is_none())
    }

    fn exists(&self, path: &str) -> bool {
        path == "/" || self.0.contains_key(path)
    }

    fn parent(path: &str) -> &str {
        match path.rsplit_once('/') {
            Some(("", _)) | None => "/",
            Some((parent, _)) => parent,
        }
    }

    fn below(&self, path: &str) -> Vec<String> {
        self.0.keys().filter(|other| is_below(other, path)).cloned().collect()
    }

    /// Returns whether a file is among the ancestors of `path`.
    fn is_blocked(&self, path: &str) -> bool {
        let mut at = Self::parent(path);
        while at != "/" {
            if self.exists(at) && !self.is_directory(at) {
                return true;
            }
            at = Self::parent(at);
        }
        false
    }

    /// Returns the mode of the nearest existing ancestor. The root's mode is 755.
    fn mode_above(&self, path: &str) -> u16 {
        match Self::parent(path) {
            "/" => 0o755,
            parent => self.0.get(parent).map_or_else(|| self.mode_above(parent), |entry| entry.mode),
        }
    }

    fn make_parents(&mut self, path: &str, mode: u16) {
        let parent = Self::parent(path).to_owned();
        if !self.exists(&parent) {
            self.make_parents(&parent, mode);
            self.0.insert(parent, Entry { length: None, mode, owner: "root".into() });
        }
    }

    fn mkdirs(&mut self, path: &str) -> bool {
        if self.is_directory(path) {
            return true;
        }
        if self.exists(path) || self.is_blocked(path) {
            return false;
        }
        self.make_parents(path, 0o755);
        self.0.insert(path.into(), Entry { length: None, mode: 0o755, owner: "root".into() });
        true
    }

    fn create(&mut self, path: &str, length: u64) -> bool {
        if self.exists(path) || self.is_blocked(path) {
            return false;
        }
        self.make_parents(path, self.mode_above(path) | 0o300);
        self.0.insert(path.into(), Entry { length: Some(length), mode: 0o644, owner: "root".into() });
        true
    }

    fn remove(&mut self, path: &str) {
        for below in self.below(path) {
            self.0.remove(&below);
        }
        self.0.remove(path);
    }

    fn relocate(&mut self, from: &str, to: &str) {
        for path in self.below(from).into_iter().chain([from.to_owned()]) {
            let entry = self.0.remove(&path).expect("just listed");
            self.0.insert(format!("{to}{}", &path[from.len()..]), entry);
        }
    }

    fn rename(&mut self, from: &str, to: &str) -> bool {
        if self.is_blocked(from) || self.is_blocked(to) || !self.exists(from) {
            return false;
        }
        let to = if self.is_directory(to) {
            format!("{to}/{}", from.rsplit_once('/').expect("absolute").1)
        } else {
            to.to_owned()
        };
        if from == to {
            return true;
        }
        if is_below(&to, from) || self.exists(&to) || !self.is_directory(Self::parent(&to)) {
            return false;
        }
        self.relocate(from, &to);
        true
    }

    fn rename2(&mut self, from: &str, to: &str, overwrite: bool) -> bool {
        if self.is_blocked(from) || self.is_blocked(to) || !self.exists(from) || from == to || is_below(to, from) {
            return false;
        }
        if self.exists(to) {
            if self.is_directory(from) != self.is_directory(to) || !overwrite || !self.below(to).is_empty() {
                return false;
            }
            self.remove(to);
        } else if !self.is_directory(Self::parent(to)) {
            return false;
        }
        self.relocate(from, to);
        true
    }
}

/// Content of a store after all changes so far.
#[derive(Default)]
struct Stored {
    inodes: BTreeMap<u64, Vec<u8>>,
    names: Vec<(u32, String)>,
    counters: Option<Counters>,
}

impl Stored {
    fn take(&mut self, changes: Changes) {
        self.inodes.extend(changes.inodes_put);
        for id in changes.inodes_removed {
            self.inodes.remove(&id);
        }
        self.names.extend(changes.names_put);
        self.counters = changes.counters.or(self.counters);
    }

    fn reopen(&self) -> Namespace {
        let counters = self.counters.expect("formatting stores the counters");
        let mut rebuild = Rebuild::start(Limits::default(), counters, self.names.clone()).unwrap();
        rebuild.join(sections_of(&rebuild, &self.inodes, 3).unwrap()).unwrap();
        rebuild.finish().unwrap()
    }
}

/// Divides stored inodes among `count` sections.
pub fn sections_of(
    rebuild: &Rebuild,
    inodes: &BTreeMap<u64, Vec<u8>>,
    count: usize,
) -> Result<Vec<Section>, RecordError> {
    let mut sections: Vec<Section> = (0..count).map(|_| rebuild.section()).collect();
    for (at, (id, record)) in inodes.iter().enumerate() {
        sections[at * count / inodes.len()].inode(*id, record)?;
    }
    Ok(sections)
}

/// Returns all paths of a namespace with the data that the model has of them.
fn contents(namespace: &Namespace) -> Model {
    let mut model = Model::default();
    let mut waiting = vec![namespace.root()];
    while let Some(slot) = waiting.pop() {
        let inode = namespace.inode(slot);
        if let Some(children) = inode.children() {
            let names: Vec<&[u8]> = children.iter().map(|child| &*namespace.inode(child).name).collect();
            assert!(names.is_sorted_by(|a, b| compare_names(a, b).is_lt()));
            waiting.extend(children.iter());
        }
        let path = namespace.path_of(slot);
        assert_eq!(namespace.lookup(&path), Some(slot));
        if path != "/" {
            let entry = Entry {
                length: inode.as_file().map(FilePart::length),
                mode: inode.permission().0,
                owner: namespace.names.text(inode.owner()).to_string(),
            };
            model.0.insert(path, entry);
        }
    }
    model
}

/// Creates a closed file of two blocks, and its missing ancestors. Returns false if the path exists.
pub(crate) fn make_file(namespace: &mut Namespace, path: &str, length: u64) -> bool {
    let caller = caller();
    let Ok(trail) = namespace.check_create(&caller, path, true, false, true) else { return false };
    if trail.target().is_some() {
        return false;
    }
    let writer = Writer { client: "w".into(), machine: "127.0.0.1".into(), truncation: None };
    let file = NewFile {
        modes: FsPermission(0o644).into(),
        replication: 1,
        block_size: 1 << 20,
        storage_policy: 0,
        writer,
        caller: &caller,
    };
    let slot = namespace.create_file(&trail, file, 1).unwrap();
    for part in [length / 2, length - length / 2] {
        let (id, stamp) = (namespace.next_block_id(), namespace.next_stamp());
        namespace.push_block(slot, BlockRecord::new(Block { id, stamp, length: part }, RecordState::Complete));
    }
    namespace.file_mut(slot).close();
    true
}

fn act(namespace: &mut Namespace, model: &mut Model, operation: &Operation) -> (bool, bool) {
    let caller = caller();
    match operation {
        Operation::Mkdirs(path) => {
            (namespace.mkdirs(&caller, path, FsPermission(0o755), true, 1).is_ok(), model.mkdirs(path))
        }
        Operation::Create(path, length) => (make_file(namespace, path, *length), model.create(path, *length)),
        Operation::Delete(path, recursive) => {
            let expected =
                model.exists(path) && !model.is_blocked(path) && (*recursive || model.below(path).is_empty());
            if expected {
                model.remove(path);
            }
            (matches!(namespace.delete(&caller, path, *recursive, 1), Ok(Some(_))), expected)
        }
        Operation::Rename(from, to) => {
            (namespace.rename_old(&caller, from, to, 1).is_ok_and(|renamed| renamed.is_some()), model.rename(from, to))
        }
        Operation::Rename2(from, to, overwrite) => {
            (namespace.rename(&caller, from, to, *overwrite, false, 1).is_ok(), model.rename2(from, to, *overwrite))
        }
        Operation::Mode(path, mode) => {
            let expected = model.0.get_mut(path).map(|entry| entry.mode = *mode).is_some();
            (namespace.set_permission(&caller, path, FsPermission(*mode)).is_ok(), expected)
        }
        Operation::Owner(path, owner) => {
            let expected = model.0.get_mut(path).map(|entry| entry.owner = owner.clone()).is_some();
            (namespace.set_owner(&caller, path, Some(owner), None).is_ok(), expected)
        }
        Operation::Reopen => (true, true),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn namespace_matches_model_across_reopening(operations in prop::collection::vec(operations(), 1..60)) {
        let mut namespace = Namespace::format(Limits::default(), "root", "supergroup", 1);
        let mut model = Model::default();
        let mut stored = Stored::default();
        stored.take(namespace.take_changes());
        for operation in &operations {
            let before = model.clone();
            let (done, expected) = act(&mut namespace, &mut model, operation);
            prop_assert_eq!(done, expected, "{:?} on {:?}", operation, before);
            let changes = namespace.take_changes();
            if !done {
                // A failed operation must not change anything.
                prop_assert!(changes.is_empty(), "{:?} failed and left {:?}", operation, changes);
            }
            stored.take(changes);
            if matches!(operation, Operation::Reopen) {
                namespace = stored.reopen();
            }
            prop_assert_eq!(&contents(&namespace), &model, "after {:?}", operation);
        }
        let again = stored.reopen();
        prop_assert_eq!(&contents(&again), &model);
        prop_assert_eq!(again.counters(), namespace.counters());
        prop_assert_eq!(again.file_count(), model.0.values().filter(|entry| entry.length.is_some()).count() as u64);
        prop_assert_eq!(again.block_count(), 2 * again.file_count());
    }
}

#[test]
fn removed_tree_lists_blocks_and_writers() {
    let mut namespace = Namespace::format(Limits::default(), "root", "supergroup", 1);
    assert!(make_file(&mut namespace, "/t/a/f", 10));
    assert!(make_file(&mut namespace, "/t/g", 10));
    let open = namespace.lookup("/t/g").unwrap();
    let id = namespace.inode(open).id();
    namespace.file_mut(open).open(Writer { client: "w".into(), machine: "m".into(), truncation: None });
    let mut removed = namespace.delete(&caller(), "/t", true, 2).unwrap().unwrap();
    removed.blocks.sort();
    let first = Counters::FRESH.last_block;
    assert_eq!(removed.blocks, (1..=4).map(|i| BlockId(first + i)).collect::<Vec<_>>());
    assert_eq!(removed.open_files, [(id, "w".to_owned())]);
    assert_eq!(removed.inodes, 4);
    assert_eq!((namespace.inode_count(), namespace.block_count()), (1, 0));
    assert_eq!(namespace.next_stamp(), GenerationStamp(1005));
}

#[test]
fn damaged_tree_is_refused() {
    let mut namespace = Namespace::format(Limits::default(), "root", "supergroup", 1);
    namespace.mkdirs(&caller(), "/a/b", FsPermission(0o755), true, 1).unwrap();
    let mut stored = Stored::default();
    stored.take(namespace.take_changes());
    let rebuild = |stored: &Stored| {
        let mut rebuild = Rebuild::start(Limits::default(), stored.counters.unwrap(), stored.names.clone())?;
        rebuild.join(sections_of(&rebuild, &stored.inodes, 2)?)?;
        rebuild.finish().map(drop)
    };
    rebuild(&stored).unwrap();
    let a = namespace.inode(namespace.lookup("/a").unwrap()).id();
    let lost = stored.inodes.remove(&a.0).unwrap();
    assert_eq!(rebuild(&stored), Err(RecordError::NoParent { inode: a.0 + 1, parent: a.0 }));
    stored.inodes.insert(a.0, lost);
    stored.inodes.remove(&InodeId::ROOT.0);
    assert_eq!(rebuild(&stored), Err(RecordError::NoRoot));
}

#[test]
fn rename_into_directory_requires_execute() {
    let mut namespace =
        Namespace::format(Limits { permissions_enabled: true, ..Limits::default() }, "root", "supergroup", 1);
    let bob = Caller { user: "bob".into(), superuser: false, ..caller() };
    for (path, mode) in [("/mine", 0o777), ("/drop", 0o732), ("/through", 0o733)] {
        namespace.mkdirs(&caller(), path, FsPermission(0o755), true, 1).unwrap();
        namespace.set_permission(&caller(), path, FsPermission(mode)).unwrap();
    }
    assert!(make_file(&mut namespace, "/mine/f", 10));
    // The directory may be written but not traversed, so its entries may not be looked up.
    assert!(matches!(namespace.rename_old(&bob, "/mine/f", "/drop", 2), Err(Error::PermissionDenied { .. })));
    assert!(namespace.lookup("/mine/f").is_some());
    assert!(namespace.rename_old(&bob, "/mine/f", "/through", 2).unwrap().is_some());
    assert!(namespace.lookup("/through/f").is_some());
}

#[test]
fn subdirectories_are_protected_if_configured() {
    let limits = |protects_subdirectories| Limits {
        protected: vec!["/safe".into()],
        protects_subdirectories,
        ..Limits::default()
    };
    for protects_subdirectories in [false, true] {
        let mut namespace = Namespace::format(limits(protects_subdirectories), "root", "supergroup", 1);
        for path in ["/safe/a/b/c", "/other/a"] {
            namespace.mkdirs(&caller(), path, FsPermission(0o755), true, 1).unwrap();
        }
        let refused = |error: Error| error.to_string();
        let whole = namespace.delete(&caller(), "/safe", true, 2).map(drop).unwrap_err();
        assert_eq!(refused(whole), "Cannot delete/rename non-empty protected directory /safe");
        let below = namespace.rename(&caller(), "/safe/a/b", "/moved", true, false, 2).map(drop);
        let deleted = namespace.delete(&caller(), "/safe/a", true, 2).map(drop);
        if protects_subdirectories {
            let said = "Cannot delete/rename subdirectory under protected subdirectory /safe";
            assert_eq!(refused(below.unwrap_err()), said);
            assert_eq!(refused(deleted.unwrap_err()), said);
        } else {
            below.unwrap();
            deleted.unwrap();
        }
        // An empty directory may be deleted, and so may one elsewhere.
        namespace.mkdirs(&caller(), "/safe/empty", FsPermission(0o755), true, 3).unwrap();
        assert!(namespace.delete(&caller(), "/safe/empty", true, 4).unwrap().is_some());
        assert!(namespace.delete(&caller(), "/other", true, 4).unwrap().is_some());
    }
}
