//! Damages every file of the directory in every way: the NameNode must start with all acknowledged changes, or refuse
//! and report the problem.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use hearth_types::FsPermission;

use super::committer::tests::{caller, copied, formatted};
use super::committer::{Store, read_back};
use super::group::Group;
use super::journal::Journal;
use super::tables::Tables;
use super::{Directory, StoreError, recover};
use crate::changes::{Changes, Counters};
use crate::namespace::{Limits, Namespace};

const FILE_BYTES: u64 = 1 << 20;
const FILES: [&str; 5] = ["VERSION", "namespace.redb", "journal.0", "journal.1", "journal.last"];

/// A running NameNode that is killed at a place chosen by the test.
struct Running {
    place: tempfile::TempDir,
    journal: Journal,
    tables: Tables,
    namespace: Namespace,
    /// Acknowledged paths.
    made: Vec<String>,
}

impl Running {
    fn start(place: tempfile::TempDir, made: Vec<String>) -> Self {
        let directory = Directory::lock(place.path()).unwrap();
        let (journal, tables, loaded) = read_back(&directory, Limits::default(), FILE_BYTES).unwrap();
        Self { place, journal, tables, namespace: loaded.namespace, made }
    }

    fn make(&mut self, path: &str) -> Group {
        self.namespace.mkdirs(&caller(), path, FsPermission(0o755), true, 7).unwrap();
        let mut group = Group::default();
        group.push(&self.namespace.take_changes());
        self.journal.append(&mut group).unwrap();
        self.made.push(path.to_owned());
        group
    }

    /// Stops as SIGKILL does.
    fn kill(self) -> (tempfile::TempDir, Vec<String>) {
        drop((self.journal, self.tables));
        (self.place, self.made)
    }
}

/// Starts the NameNode in a stopped one's directory, makes a change, and stops it.
fn go_on(place: &Path, path: &str) {
    let opened = Store::open(Directory::lock(place).unwrap(), Limits::default(), FILE_BYTES).unwrap();
    let (store, mut namespace) = (opened.0, opened.1.namespace);
    namespace.mkdirs(&caller(), path, FsPermission(0o755), true, 7).unwrap();
    drop(store.submit(namespace.take_changes()));
}

/// Copies of one namespace at several times, and of others.
struct Copies {
    /// Final state after the kill or the stop.
    end: tempfile::TempDir,
    /// Paths that had been acknowledged by then.
    made: Vec<String>,
    /// An earlier state since the last start.
    earlier: tempfile::TempDir,
    /// The state before the last start.
    before_start: tempfile::TempDir,
    /// A copy of `before_start` that made changes of its own.
    fork: tempfile::TempDir,
    other_cluster: tempfile::TempDir,
}

/// Creates the copies. `is_stopped`: stopped in order, rather than killed.
fn copies(is_stopped: bool) -> Copies {
    let place = tempfile::tempdir().unwrap();
    drop(formatted(place.path()));
    go_on(place.path(), "/first");
    let before_start = copied(place.path());
    let fork = copied(place.path());
    for path in ["/fork1", "/fork2", "/fork3", "/fork4", "/fork5", "/fork6"] {
        go_on(fork.path(), path);
    }
    let other_cluster = tempfile::tempdir().unwrap();
    drop(formatted(other_cluster.path()));
    // An identity that differs from all others of this test.
    let version = other_cluster.path().join("current/VERSION");
    let text = fs::read_to_string(&version).unwrap().replace("clusterID=CID", "clusterID=CID-other");
    fs::write(&version, text).unwrap();
    let mut running = Running::start(place, vec!["/first".to_owned()]);
    let mut run = vec![running.make("/a1"), running.make("/a2")];
    let earlier = copied(running.place.path());
    run.push(running.make("/a3"));
    // The tables have the groups of one file, and the other file is being written.
    running.journal.sync_progress().unwrap();
    let number = running.journal.number();
    running.tables.apply(&run, number).unwrap();
    running.journal.switch().unwrap();
    let mut rest = vec![running.make("/b1"), running.make("/b2")];
    // Switches back to the first file, whose groups are in the tables. Now both files have groups that the tables lack.
    running.journal.switch().unwrap();
    rest.push(running.make("/c1"));
    if is_stopped {
        running.journal.sync_progress().unwrap();
        let number = running.journal.number();
        running.tables.apply(&rest, number).unwrap();
    }
    let (end, made) = running.kill();
    Copies { end, made, earlier, before_start, fork, other_cluster }
}

/// Starts the NameNode. Returns the error, and asserts that no path is lost.
fn start(place: &Path, made: &[String]) -> Result<(), String> {
    let directory = Directory::lock(place).unwrap();
    match Store::open(directory, Limits::default(), FILE_BYTES) {
        Err(error) => Err(error.to_string()),
        Ok((_store, loaded)) => {
            let lost: Vec<_> = made.iter().filter(|path| loaded.namespace.lookup(path).is_none()).collect();
            assert!(lost.is_empty(), "it starts without {lost:?}");
            Ok(())
        }
    }
}

/// A way to damage a file.
type Way = Box<dyn FnOnce(&Path)>;

/// Copies the final directory and damages one file.
fn damaged(copies: &Copies, name: &str, damage: impl FnOnce(&Path)) -> tempfile::TempDir {
    let copy = copied(copies.end.path());
    damage(&copy.path().join("current").join(name));
    copy
}

fn cut(path: &Path, length: u64) {
    fs::File::options().write(true).open(path).unwrap().set_len(length).unwrap();
}

/// Replaces the file by that of another directory.
fn from(place: &tempfile::TempDir, path: &Path) {
    fs::copy(place.path().join("current").join(path.file_name().unwrap()), path).unwrap();
}

/// Reads the table for operators: the outcome for each file and each kind of damage.
fn table() -> BTreeMap<(String, String), Vec<String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/compatibility/name-directory.md");
    let text = fs::read_to_string(&path).unwrap();
    let mut lines = text.lines().filter(|line| line.starts_with('|')).map(|line| {
        line.trim_matches('|').split('|').map(|cell| cell.trim().trim_matches('`').to_owned()).collect::<Vec<_>>()
    });
    let heads = lines.next().expect("the table has a head");
    let mut table = BTreeMap::new();
    for row in lines.filter(|row| FILES.contains(&row[0].as_str())) {
        assert_eq!(row.len(), heads.len(), "{row:?}");
        for (head, cell) in heads.iter().zip(&row).skip(1) {
            let allowed = cell.split(" or ").map(str::to_owned).collect();
            table.insert((row[0].clone(), head.clone()), allowed);
        }
    }
    table
}

#[test]
fn start_checks_every_file() {
    let mut table = table();
    for is_stopped in [false, true] {
        let copies = copies(is_stopped);
        start(copied(copies.end.path()).path(), &copies.made).expect("an undamaged directory starts");
        for name in FILES {
            let sibling = if name == "journal.1" { "journal.0" } else { "journal.1" };
            let length = fs::metadata(copies.end.path().join("current").join(name)).unwrap().len();
            type Damage = (&'static str, Vec<Way>);
            let one = |damage: fn(&Path)| -> Vec<Way> { vec![Box::new(damage)] };
            let taken = |of: &tempfile::TempDir| -> Vec<Way> {
                let of = of.path().to_owned();
                vec![Box::new(move |path: &Path| {
                    fs::copy(of.join("current").join(path.file_name().unwrap()), path).unwrap();
                })]
            };
            let cuts = [1, length / 2, length - 2];
            let damages: [Damage; 8] = [
                ("missing", one(|path| fs::remove_file(path).unwrap())),
                ("empty", one(|path| cut(path, 0))),
                ("cut", cuts.map(|length| Box::new(move |path: &Path| cut(path, length)) as Way).into()),
                ("older, since the last start", taken(&copies.earlier)),
                ("older, before the last start", taken(&copies.before_start)),
                ("of a copy that went on", taken(&copies.fork)),
                ("of another cluster", taken(&copies.other_cluster)),
                (
                    "another file of it",
                    vec![Box::new(move |path: &Path| {
                        fs::copy(path.with_file_name(sibling), path).unwrap();
                    })],
                ),
            ];
            for (damage, ways) in damages {
                let allowed = table.remove(&(name.to_owned(), damage.to_owned()));
                let allowed = allowed.unwrap_or_else(|| panic!("the table has no entry for {name}, {damage}"));
                for (nth, way) in ways.into_iter().enumerate() {
                    let place = damaged(&copies, name, way);
                    let outcome = start(place.path(), &copies.made);
                    let what = format!("{name}, {damage}, {nth}, stopped: {is_stopped}: {outcome:?}");
                    let word = if outcome.is_ok() { "starts" } else { "refuses" };
                    assert!(allowed.iter().any(|allowed| allowed == word), "{what}, and the table says {allowed:?}");
                    if let Err(said) = outcome {
                        assert!(said.contains("hearth namenode -recover") && said.contains("Do not format"), "{what}");
                        // A refused start must not have changed anything: with the good file put back, it starts.
                        from(&copies.end, &place.path().join("current").join(name));
                        start(place.path(), &copies.made).unwrap_or_else(|error| panic!("{what}, then {error}"));
                    }
                }
                table.insert((name.to_owned(), damage.to_owned()), allowed);
            }
        }
    }
    // All cases were run for both kinds of stop.
    assert_eq!(table.len(), FILES.len() * 8, "{table:?}");
}

/// Returns the files and their contents.
fn contents(place: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = fs::read_dir(place.join("current")).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| (path.clone(), fs::read(&path).unwrap())).collect()
}

#[test]
fn damaged_directory_can_be_recovered() {
    let copies = copies(false);
    let try_recovery =
        |place: &Path, force| recover(&Directory::lock(place).unwrap(), Limits::default(), force).unwrap();
    let nothing = try_recovery(copied(copies.end.path()).path(), false);
    assert!(nothing.problems.is_empty(), "{:?}", nothing.problems);
    for (name, kept) in [("VERSION", 6), ("journal.0", 5), ("journal.1", 3), ("journal.last", 6)] {
        let place = damaged(&copies, name, |path| fs::remove_file(path).unwrap());
        let before = contents(place.path());
        let looked = try_recovery(place.path(), false);
        assert!(!looked.problems.is_empty(), "{name}");
        // Groups are counted through all starts: there was one before this start.
        assert_eq!(looked.kept, kept + 1, "{name}");
        assert_eq!(contents(place.path()).len(), before.len());
        let journals = |contents: BTreeMap<PathBuf, Vec<u8>>| -> Vec<_> {
            contents.into_iter().filter(|(path, _)| !path.ends_with("namespace.redb")).collect()
        };
        assert!(journals(contents(place.path())) == journals(before), "{name}: examining changes nothing");
        start(place.path(), &[]).expect_err("examining does not repair it");
        let mended = try_recovery(place.path(), true);
        assert!(mended.copies.iter().all(|copy| copy.is_file()));
        let kept_paths = &copies.made[..1 + kept as usize];
        start(place.path(), kept_paths).unwrap_or_else(|error| panic!("{name}: {error}"));
        let opened = Store::open(Directory::lock(place.path()).unwrap(), Limits::default(), FILE_BYTES).unwrap();
        let counters = opened.1.namespace.counters();
        // Numbers assigned in the lost changes must not be assigned again.
        let is_skipped = counters.last_inode > u64::from(u32::MAX >> 8);
        assert_eq!(is_skipped, name != "VERSION", "{name}: {counters:?}");
        let mut lost_stamps = Vec::from_iter(is_skipped.then_some(1001..=counters.last_stamp));
        assert_eq!(opened.1.lost_stamps, lost_stamps, "{name}");
        // Another recovery adds its lost stamps, and not those that were issued since the first.
        let issued = Counters { last_stamp: counters.last_stamp + 7, ..counters };
        drop(opened.0.submit(Changes { counters: Some(issued), ..Changes::default() }));
        drop(opened);
        fs::remove_file(place.path().join("current/journal.last")).unwrap();
        try_recovery(place.path(), true);
        let (store, loaded) =
            Store::open(Directory::lock(place.path()).unwrap(), Limits::default(), FILE_BYTES).unwrap();
        let last_stamp = loaded.namespace.counters().last_stamp;
        assert!(last_stamp > issued.last_stamp, "{name}");
        lost_stamps.push(issued.last_stamp + 1..=last_stamp);
        assert_eq!(loaded.lost_stamps, lost_stamps, "{name}");
        // They stay until they are given up.
        drop(store.submit(Changes { lost_stamps_given_up: true, ..Changes::default() }));
        drop(store);
        let opened = Store::open(Directory::lock(place.path()).unwrap(), Limits::default(), FILE_BYTES).unwrap();
        assert!(opened.1.lost_stamps.is_empty(), "{name}");
    }
    // Without tables recovery is impossible.
    let place = damaged(&copies, "namespace.redb", |path| cut(path, 100));
    let refused = recover(&Directory::lock(place.path()).unwrap(), Limits::default(), true);
    assert!(matches!(refused, Err(StoreError::Damaged { .. })), "{refused:?}");
}

#[test]
fn missing_current_is_not_formatted_automatically() {
    let place = tempfile::tempdir().unwrap();
    let directory = Directory::lock(place.path()).unwrap();
    fs::create_dir(place.path().join("current.formatting")).unwrap();
    directory.check_empty().unwrap();
    fs::write(place.path().join("journal.0"), b"x").unwrap();
    assert!(matches!(directory.check_empty(), Err(StoreError::NotEmpty { found, .. }) if found == "journal.0"));
}
