//! What has been acknowledged and is not in the tables yet.
//!
//! Two files take turns. Groups of changes are appended to one of them, each synced before its operations are answered; when it is
//! full the other one is begun anew, whose groups have gone into the tables meanwhile. A file is not cut for that: what is left of an
//! earlier turn behind the last group has lower numbers. In its first turn a file grows by zeros, many groups' room at a time. So
//! nearly every sync writes data only, and no metadata of the file system.
//!
//! ```text
//! file    group* (zeros, or what is left of an earlier turn)
//! group   mark (8 bytes), CRC32C of the rest (4), number (8), number of operations (4), length of the changes (8), changes
//! before there were marks (layout 2):
//! group   magic (4), length of the changes (4), CRC32C of the rest (4), number (8), number of operations (4), changes
//! ```
//! Numbers are little-endian and rise by one from group to group, through both files. The tables know the number of the last group
//! that they hold. A group that is not whole is the last that was begun: nobody was answered for it. Is a later one whole, then the disk
//! has lost what was acknowledged, and the journal is not opened.
//!
//! Changes hold bytes that users choose, as the values of extended attributes, and those may lie wherever a group is looked for: within
//! one that is torn, or where the last one ends, left by an earlier turn. They pass for no group, for nobody but the store knows its mark.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use hearth_types::crc32c;

use super::StoreError;
use super::encoding::BadEntry;
use super::group::{Group, HEADER};

const FILES: [&str; 2] = ["journal.0", "journal.1"];
/// What groups without a mark begin with.
const MAGIC: [u8; 4] = *b"HJnl";
/// Bytes before the changes of a group without a mark.
const HEADER_UNMARKED: usize = 24;
/// Up to the checksum, which is of all that follows it.
const UNCHECKED: usize = 12;

/// A file that is too short for a group becomes longer by so many bytes, and the group's.
const GROWTH: usize = 1 << 20;

/// A file keeps so many bytes more than it is full with. Few groups are as long as this.
const LONGER: u64 = 16 << 20;

/// What each group of a store begins with: random, and shown to nobody but those who may read its directory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Mark(pub u64);

impl Mark {
    pub fn random() -> std::io::Result<Self> {
        let mut bytes = [0; 8];
        getrandom::fill(&mut bytes).map_err(|error| std::io::Error::other(error.to_string()))?;
        Ok(Self(u64::from_le_bytes(bytes)))
    }
}

pub struct Journal {
    /// `None`: nothing can be written yet.
    mark: Option<Mark>,
    files: [File; 2],
    paths: [PathBuf; 2],
    /// Of the file that is written.
    current: usize,
    position: u64,
    /// How long the files are.
    lengths: [u64; 2],
    /// Of the last group.
    number: u64,
    /// A file is full when it has so many bytes.
    file_bytes: u64,
}

/// The groups that the tables do not hold.
pub struct Unapplied {
    pub run: Vec<Group>,
    /// The number of the last group.
    pub number: u64,
}

fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::Io { action, path, source }
}

impl Journal {
    /// Opens the journal of a namespace, made when it is not there. `mark`: what its groups begin with; `None`: they have none, and before
    /// any is written [`Self::mark_with`] is called. `applied`: the number of the last group in the tables. `file_bytes`: the length
    /// at which a file is full; what it holds is in memory, too, until it is in the tables.
    ///
    /// Errors: `Damaged` when groups are missing between the tables and what is there, or within it.
    pub fn open(
        directory: &Path,
        mark: Option<Mark>,
        applied: u64,
        file_bytes: u64,
    ) -> Result<(Self, Unapplied), StoreError> {
        let paths = FILES.map(|name| directory.join(name));
        let mut groups = Vec::new();
        let mut files = Vec::new();
        let mut lengths = [0; 2];
        // Of each file: where the reading stopped, and a whole group that is newer than those before that place.
        let mut ends = [End::default(); 2];
        for ((path, length), end) in paths.iter().zip(&mut lengths).zip(&mut ends) {
            let file = OpenOptions::new().create(true).read(true).write(true).truncate(false).open(path);
            let file = file.map_err(io("opening", path))?;
            let bytes = std::fs::read(path).map_err(io("reading", path))?;
            *length = bytes.len() as u64;
            let found = read_groups(&bytes, mark, applied).map_err(|error| StoreError::Damaged {
                path: path.clone(),
                problem: format!("a group that is whole makes no sense: {error}"),
            })?;
            *end = found.end;
            // With a group of its own behind that it is damage.
            if end.last.is_none() && end.later.is_none() && is_of_another_store(&bytes, mark) {
                let problem = format!(
                    "it begins with groups of another store, or of this one at another time. The files of one copy belong together; \
                     'truncate -s 0 {}' gives up the changes in it",
                    path.display()
                );
                return Err(StoreError::Damaged { path: path.clone(), problem });
            }
            groups.extend(found.groups);
            files.push(file);
        }
        File::open(directory).and_then(|directory| directory.sync_all()).map_err(io("syncing", directory))?;
        groups.sort_by_key(|(number, _)| *number);
        let mut unapplied = Unapplied { run: Vec::new(), number: applied };
        for (number, group) in groups {
            let missing = unapplied.number + 1;
            if number != missing {
                // It was in the file that ends before it; of none that does, in the one that the later group is not in.
                let ends_before = |end: &End| end.last == Some(unapplied.number);
                let is_without = |end: &End| end.last.is_none_or(|last| last < number);
                let at = ends.iter().position(ends_before).or_else(|| ends.iter().position(is_without)).unwrap_or(0);
                let found = format!("there is group {number} in {}", paths[1 - at].display());
                return Err(damaged(&paths[at], ends[at].offset, &found, missing, Some(&paths[1 - at])));
            }
            unapplied.run.push(group);
            unapplied.number = number;
        }
        for (path, end) in paths.iter().zip(&ends) {
            if let Some(later) = end.later {
                return Err(damaged(path, end.offset, &later.to_string(), unapplied.number + 1, None));
            }
        }
        let files = <[File; 2]>::try_from(files).expect("one of each path");
        let number = unapplied.number;
        let journal = Self { mark, files, paths, current: 0, position: 0, lengths, number, file_bytes };
        Ok((journal, unapplied))
    }

    /// Groups have this mark from now on. All that the journal holds without it is in the tables, which know it.
    pub fn mark_with(&mut self, mark: Mark) {
        self.mark = Some(mark);
    }

    /// The number of the last group.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Makes the changes of a group durable, of which there are some. After an error nothing may be appended any more: nobody knows what is on
    /// the disk.
    pub fn append(&mut self, group: &mut Group) -> Result<(), StoreError> {
        let path = &self.paths[self.current];
        let mark = self.mark.expect("a journal gets a mark before it is written");
        let number = self.number + 1;
        let operations = group.operations();
        let bytes = group.bytes();
        seal(bytes, mark, number, operations);
        let (file, length) = (&self.files[self.current], &mut self.lengths[self.current]);
        let end = self.position + bytes.len() as u64;
        if end > *length {
            // Zeros, for a hole would be filled, block by block, by the syncs to come. Where they do not fit the group still may.
            let zeros = file.write_all_at(&vec![0; GROWTH], end);
            *length = end + zeros.map_or(0, |()| GROWTH as u64);
        }
        file.write_all_at(bytes, self.position).and_then(|()| file.sync_data()).map_err(io("writing", path))?;
        self.position = end;
        self.number = number;
        Ok(())
    }

    pub fn is_full(&self) -> bool {
        self.position >= self.file_bytes
    }

    /// Goes on with the other file, from its beginning. All groups that it holds are in the tables.
    pub fn switch(&mut self) {
        self.current = 1 - self.current;
        self.position = 0;
        // One operation on a large tree may have taken gigabytes, which every start would read.
        let (length, longest) = (&mut self.lengths[self.current], self.file_bytes.saturating_add(LONGER));
        if *length > longest && self.files[self.current].set_len(longest).is_ok() {
            *length = longest;
        }
    }
}

/// Writes the header of a group, which has room for it.
fn seal(group: &mut [u8], mark: Mark, number: u64, operations: u32) {
    let length = (group.len() - HEADER) as u64;
    group[0..8].copy_from_slice(&mark.0.to_le_bytes());
    group[12..20].copy_from_slice(&number.to_le_bytes());
    group[20..24].copy_from_slice(&operations.to_le_bytes());
    group[24..32].copy_from_slice(&length.to_le_bytes());
    let sum = crc32c(&group[UNCHECKED..]);
    group[8..12].copy_from_slice(&sum.to_le_bytes());
}

/// Changes that were acknowledged are not there: people have to say that it may go on without them. `empty`: a file with later ones only.
fn damaged(path: &Path, offset: u64, found: &str, missing: u64, empty: Option<&Path>) -> StoreError {
    let empty = empty.map(|other| format!("; truncate -s 0 {}", other.display())).unwrap_or_default();
    let problem = format!(
        "at byte {offset} there is no whole group, but {found}. Changes from group {missing} of the journal on were acknowledged, \
         and would be lost. Put a good copy of the directory in its place; or, to go on without those changes, copy the \
         directory, and cut the journal there: truncate -s {offset} {}{empty}",
        path.display()
    );
    StoreError::Damaged { path: path.to_owned(), problem }
}

/// What there is in one file.
struct Found {
    /// Behind the one that is applied, with their numbers.
    groups: Vec<(u64, Group)>,
    end: End,
}

/// Where the groups of a file end, and what is behind that.
#[derive(Clone, Copy, Default)]
struct End {
    offset: u64,
    /// The number of the last group before it.
    last: Option<u64>,
    /// That it is none of an earlier turn's.
    later: Option<Later>,
}

#[derive(Clone, Copy)]
enum Later {
    Group {
        number: u64,
        offset: u64,
    },
    /// So much looks like groups that it was not looked through.
    Unknown,
}

impl std::fmt::Display for Later {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Group { number, offset } => write!(f, "group {number} is whole at byte {offset}"),
            Self::Unknown => f.write_str("too much behind it looks like groups to tell that there is none"),
        }
    }
}

/// What a header says, of a group for which there is room.
struct Header {
    number: u64,
    operations: u32,
    checksum: u32,
    /// Where the changes begin.
    changes: usize,
    /// Of header and changes.
    length: usize,
}

/// The header of the group at the beginning of `bytes`, if one can be there.
fn header(bytes: &[u8], mark: Option<Mark>) -> Option<Header> {
    let changes = if mark.is_some() { HEADER } else { HEADER_UNMARKED };
    let (header, rest) = bytes.split_at_checked(changes)?;
    let word = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes of the header"));
    let long = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("eight bytes of the header"));
    let (is_one, length) = match mark {
        Some(mark) => (long(0) == mark.0, long(24)),
        None => (header.starts_with(&MAGIC), u64::from(word(4))),
    };
    let length = usize::try_from(length).ok().filter(|length| is_one && *length <= rest.len())?;
    Some(Header { number: long(12), operations: word(20), checksum: word(8), changes, length: changes + length })
}

/// Whether a file in which no group was found begins with what none of this store's does. One that was never written has zeros there, and
/// one that was written last before groups had a mark, what they began with.
fn is_of_another_store(bytes: &[u8], mark: Option<Mark>) -> bool {
    bytes.first_chunk::<8>().is_some_and(|first| {
        let is_ours = mark.is_some_and(|mark| u64::from_le_bytes(*first) == mark.0);
        !is_ours && *first != [0; 8] && !first.starts_with(&MAGIC)
    })
}

/// The groups of one file behind the one that is `applied`. The first that is not whole, or does not follow the one before it, is where
/// the last turn ended.
fn read_groups(bytes: &[u8], mark: Option<Mark>, applied: u64) -> Result<Found, BadEntry> {
    let mut groups = Vec::new();
    let mut before = None;
    let mut at = 0;
    while let Some(header) = header(&bytes[at..], mark) {
        let group = &bytes[at..at + header.length];
        let follows = before.is_none_or(|before: u64| header.number == before.wrapping_add(1));
        if !follows || crc32c(&group[UNCHECKED..]) != header.checksum {
            break;
        }
        before = Some(header.number);
        at += header.length;
        if header.number > applied {
            groups.push((header.number, Group::read(&group[header.changes..], header.operations)?));
        }
    }
    // What earlier turns left is in the tables.
    let newest = before.map_or(applied, |before| before.max(applied));
    Ok(Found { groups, end: End { offset: at as u64, last: before, later: find_later(bytes, mark, at, newest) } })
}

/// Groups that the tables do not hold are fewer than this, in two files of any length that there is: what only looks like a header most
/// likely has another number.
const GROUPS_MAX: u64 = u32::MAX as u64;

/// How often all that is searched may be summed up at most.
const SUMS_MAX: usize = 8;

/// Searches what is behind `from` for a whole group with a number above `newest`, byte by byte: how long a damaged group was nobody knows.
/// Without a mark changes may hold anything, so it is bounded how much is summed up.
fn find_later(bytes: &[u8], mark: Option<Mark>, from: usize, newest: u64) -> Option<Later> {
    let mut summed = 0usize;
    let mut at = from;
    while let Some(next) = next_beginning(bytes.get(at..)?, mark) {
        at += next;
        if let Some(header) = header(&bytes[at..], mark)
            && header.number.checked_sub(newest).is_some_and(|more| (1..=GROUPS_MAX).contains(&more))
        {
            summed += header.length;
            if summed > SUMS_MAX * bytes.len() {
                return Some(Later::Unknown);
            }
            if crc32c(&bytes[at + UNCHECKED..at + header.length]) == header.checksum {
                return Some(Later::Group { number: header.number, offset: at as u64 });
            }
        }
        at += 1;
    }
    None
}

/// Where what groups begin with is first.
fn next_beginning(bytes: &[u8], mark: Option<Mark>) -> Option<usize> {
    match mark {
        Some(mark) => position(bytes, mark.0.to_le_bytes()),
        None => position(bytes, MAGIC),
    }
}

/// The length is known to the compiler: a whole journal is searched so at every start.
fn position<const N: usize>(bytes: &[u8], wanted: [u8; N]) -> Option<usize> {
    bytes.windows(N).position(|window| window == wanted)
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::encoding::tests::everything;
    use super::super::group::tests::{changes, group};
    use super::*;
    use crate::changes::Changes;

    fn put(id: u64) -> Changes {
        Changes { inodes_put: vec![(id, vec![id as u8; 100])], ..Changes::default() }
    }

    const MARK: Mark = Mark(0x0123_4567_89ab_cdef);

    fn open(directory: &Path, applied: u64) -> Result<(Journal, Unapplied), StoreError> {
        Journal::open(directory, Some(MARK), applied, 1 << 20)
    }

    fn marked(mark: Mark, number: u64, all: &[Changes]) -> Vec<u8> {
        let mut group = group(all);
        let operations = group.operations();
        seal(group.bytes(), mark, number, operations);
        group.bytes().to_vec()
    }

    /// A group as layout 2 has it.
    pub fn unmarked(number: u64, all: &[Changes]) -> Vec<u8> {
        let mut group = group(all);
        let operations = group.operations();
        let changes = &group.bytes()[HEADER..];
        let mut bytes = vec![0u8; HEADER_UNMARKED];
        bytes[0..4].copy_from_slice(&MAGIC);
        bytes[4..8].copy_from_slice(&(changes.len() as u32).to_le_bytes());
        bytes[12..20].copy_from_slice(&number.to_le_bytes());
        bytes[20..24].copy_from_slice(&operations.to_le_bytes());
        bytes.extend_from_slice(changes);
        let sum = crc32c(&bytes[UNCHECKED..]);
        bytes[8..12].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Groups with this number that users may have written into their attributes.
    fn forged(number: u64) -> [Vec<u8>; 2] {
        [unmarked(number, &[put(66)]), marked(Mark(0), number, &[put(66)])]
    }

    fn all(unapplied: &Unapplied) -> Vec<Changes> {
        unapplied.run.iter().flat_map(changes).collect()
    }

    fn ids(unapplied: &Unapplied) -> Vec<u64> {
        all(unapplied).iter().flat_map(|changes| changes.inodes_put.iter().map(|(id, _)| *id)).collect()
    }

    #[test]
    fn what_was_appended_is_found_and_what_is_in_the_tables_is_not() {
        let place = tempfile::tempdir().unwrap();
        let (mut journal, unapplied) = open(place.path(), 0).unwrap();
        assert_eq!((unapplied.run.len(), unapplied.number), (0, 0));
        journal.append(&mut group(&[put(1), put(2)])).unwrap();
        journal.append(&mut group(&[everything()])).unwrap();
        journal.switch();
        journal.append(&mut group(&[put(4)])).unwrap();
        drop(journal);
        let (journal, unapplied) = open(place.path(), 0).unwrap();
        assert_eq!(all(&unapplied), [put(1), put(2), everything(), put(4)]);
        assert_eq!((unapplied.number, journal.number()), (3, 3));
        assert_eq!(ids(&open(place.path(), 2).unwrap().1), [4]);
        assert!(open(place.path(), 3).unwrap().1.run.is_empty());
    }

    #[test]
    fn an_earlier_turn_is_not_taken_for_the_last_one() {
        let place = tempfile::tempdir().unwrap();
        let (mut journal, _) = open(place.path(), 0).unwrap();
        for id in 1..=10 {
            journal.append(&mut group(&[put(id)])).unwrap();
        }
        journal.switch();
        journal.append(&mut group(&[put(11)])).unwrap();
        journal.switch();
        // Groups of the same length: behind the second of them stands a whole one of the first turn.
        journal.append(&mut group(&[put(12)])).unwrap();
        journal.append(&mut group(&[put(13)])).unwrap();
        drop(journal);
        assert_eq!(ids(&open(place.path(), 10).unwrap().1), [11, 12, 13]);
    }

    #[test]
    fn a_file_grows_for_many_groups_at_a_time_and_what_it_grew_by_holds_none() {
        let place = tempfile::tempdir().unwrap();
        let (mut journal, _) = open(place.path(), 0).unwrap();
        let length = || std::fs::metadata(place.path().join(FILES[0])).unwrap().len();
        journal.append(&mut group(&[put(1)])).unwrap();
        let first = length();
        assert_eq!(first, journal.position + GROWTH as u64);
        let mut id = 1;
        while length() == first {
            id += 1;
            assert!(journal.position <= first, "what was written is behind the file's end");
            journal.append(&mut group(&[put(id)])).unwrap();
        }
        assert!(id > 1000, "longer after {id} groups");
        assert_eq!(length(), journal.position + GROWTH as u64);
        drop(journal);
        // Opened again, it is as long as it is: from its beginning, and behind what it has room for.
        let (mut journal, unapplied) = open(place.path(), 0).unwrap();
        assert_eq!((unapplied.number, ids(&unapplied).len()), (id, id as usize));
        let second = length();
        journal.append(&mut group(&[put(id + 1)])).unwrap();
        assert_eq!(length(), second);
        let mut long = group(&[Changes { inodes_put: vec![(id + 2, vec![5; second as usize])], ..Changes::default() }]);
        journal.append(&mut long).unwrap();
        assert_eq!(length(), journal.position + GROWTH as u64);
        drop(journal);
        assert_eq!(ids(&open(place.path(), id).unwrap().1), [id + 1, id + 2]);
    }

    #[test]
    fn a_torn_end_is_as_if_it_had_not_been_begun() {
        let place = tempfile::tempdir().unwrap();
        let (mut journal, _) = open(place.path(), 0).unwrap();
        journal.append(&mut group(&[put(1)])).unwrap();
        let whole = journal.position;
        journal.append(&mut group(&[put(2)])).unwrap();
        let length = journal.position;
        drop(journal);
        let path = place.path().join(FILES[0]);
        let bytes = std::fs::read(&path).unwrap();
        for torn in whole..length {
            std::fs::write(&path, &bytes[..torn as usize]).unwrap();
            assert_eq!(ids(&open(place.path(), 0).unwrap().1), [1], "{torn} of {length} bytes");
        }
        for wrong in whole..length {
            let mut bytes = bytes.clone();
            bytes[wrong as usize] ^= 1;
            std::fs::write(&path, &bytes).unwrap();
            assert_eq!(ids(&open(place.path(), 0).unwrap().1), [1], "byte {wrong} of {length}");
        }
        // The number that was lost is given again, and found.
        let (mut journal, unapplied) = open(place.path(), 0).unwrap();
        assert_eq!(unapplied.number, 1);
        journal.append(&mut group(&[put(22)])).unwrap();
        assert_eq!(ids(&open(place.path(), 1).unwrap().1), [22]);
    }

    #[test]
    fn a_whole_group_behind_a_damaged_one_is_damage_and_said_how_to_go_on() {
        let place = tempfile::tempdir().unwrap();
        let (mut journal, _) = open(place.path(), 0).unwrap();
        // What an earlier turn left is not taken for it.
        for id in 1..=9 {
            journal.append(&mut group(&[put(id)])).unwrap();
        }
        journal.switch();
        journal.append(&mut group(&[put(10)])).unwrap();
        journal.switch();
        journal.append(&mut group(&[put(11)])).unwrap();
        let second = journal.position;
        journal.append(&mut group(&[put(12)])).unwrap();
        let third = journal.position;
        journal.append(&mut group(&[put(13)])).unwrap();
        drop(journal);
        let path = place.path().join(FILES[0]);
        let good = std::fs::read(&path).unwrap();
        let damage = |from: u64| {
            let mut bytes = good.clone();
            bytes[from as usize] ^= 1;
            std::fs::write(&path, &bytes).unwrap();
        };
        for wrong in (second..third).step_by(5) {
            damage(wrong);
            let Err(StoreError::Damaged { path: named, problem }) = open(place.path(), 9) else {
                panic!("byte {wrong} is wrong, and group 13 is gone without a word");
            };
            assert_eq!(named, path);
            assert!(
                problem.starts_with(&format!("at byte {second} there is no whole group, but group 13 is whole at byte {third}. Changes from group 12 of"))
                    && problem.ends_with(&format!("truncate -s {second} {}", path.display())),
                "{problem}"
            );
            // Nothing of it was needed.
            assert!(ids(&open(place.path(), 13).unwrap().1).is_empty());
        }
        File::options().write(true).open(&path).unwrap().set_len(second).unwrap();
        assert_eq!(ids(&open(place.path(), 9).unwrap().1), [10, 11]);
        // Nothing of the last turn's file can be read from its beginning.
        damage(0);
        let refused = open(place.path(), 9).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(refused.contains("at byte 0 there is no whole group, but group 12 is whole"), "{refused}");
    }

    #[test]
    fn a_users_bytes_in_a_torn_group_are_no_group() {
        let place = tempfile::tempdir().unwrap();
        let (mut journal, _) = open(place.path(), 0).unwrap();
        journal.append(&mut group(&[put(1)])).unwrap();
        let value = (2..9).flat_map(forged).collect::<Vec<_>>().concat();
        let record = Changes { inodes_put: vec![(2, value)], ..Changes::default() };
        journal.append(&mut group(&[record, put(2)])).unwrap();
        let torn = journal.position - 1;
        drop(journal);
        File::options().write(true).open(place.path().join(FILES[0])).unwrap().set_len(torn).unwrap();
        assert_eq!(ids(&open(place.path(), 0).unwrap().1), [1]);
    }

    #[test]
    fn a_users_bytes_that_an_earlier_turn_left_are_no_group() {
        for forged in forged(3) {
            let place = tempfile::tempdir().unwrap();
            let (mut journal, _) = open(place.path(), 0).unwrap();
            // Behind as many bytes as the record of `put` has.
            let value = [vec![0; 100], forged].concat();
            let record = Changes { inodes_put: vec![(1, value)], ..Changes::default() };
            journal.append(&mut group(&[record])).unwrap();
            journal.switch();
            journal.switch();
            journal.append(&mut group(&[put(2)])).unwrap();
            drop(journal);
            let (_, unapplied) = open(place.path(), 1).unwrap();
            assert_eq!((ids(&unapplied), unapplied.number), (vec![2], 2));
        }
    }

    #[test]
    fn groups_of_before_there_were_marks_are_read_and_those_behind_them_have_one() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join(FILES[0]);
        let open_unmarked = || Journal::open(place.path(), None, 0, 1 << 20);
        let first = unmarked(1, &[put(1)]);
        let second = unmarked(2, &[put(2), everything()]);
        let whole = [first.as_slice(), &second, &unmarked(3, &[put(3)])].concat();
        let mut damaged = whole.clone();
        damaged[first.len() + 30] ^= 1;
        std::fs::write(&path, &damaged).unwrap();
        assert!(matches!(open_unmarked().err(), Some(StoreError::Damaged { .. })));
        std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
        let (mut journal, unapplied) = open_unmarked().unwrap();
        assert_eq!((all(&unapplied), unapplied.number), (vec![put(1), put(2), everything()], 2));
        journal.mark_with(MARK);
        journal.append(&mut group(&[put(4)])).unwrap();
        drop(journal);
        let (_, unapplied) = open(place.path(), 2).unwrap();
        assert_eq!((ids(&unapplied), unapplied.number), (vec![4], 3));
    }

    #[test]
    fn a_group_of_more_than_4_gib_is_as_long_as_it_is() {
        // Zeros that are only read take no memory.
        let mut bytes = vec![0u8; HEADER + (4usize << 30) + 7];
        seal(&mut bytes, MARK, 5, 1);
        let found = header(&bytes, Some(MARK)).unwrap();
        assert_eq!((found.length, found.number, found.operations), (bytes.len(), 5, 1));
        assert!(header(&bytes[..bytes.len() - 1], Some(MARK)).is_none(), "its end is missing");
        // A length that was damaged asks for nothing.
        bytes[24..32].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(header(&bytes, Some(MARK)).is_none());
    }

    #[test]
    fn a_file_that_a_long_group_made_longer_is_cut_when_its_turn_comes_again() {
        let place = tempfile::tempdir().unwrap();
        let file_bytes = 1000;
        let (mut journal, _) = Journal::open(place.path(), Some(MARK), 0, file_bytes).unwrap();
        let length = || std::fs::metadata(place.path().join(FILES[0])).unwrap().len();
        let long = Changes { inodes_put: vec![(1, vec![5; 20 << 20])], ..Changes::default() };
        journal.append(&mut group(&[long])).unwrap();
        journal.switch();
        journal.append(&mut group(&[put(2)])).unwrap();
        assert!(length() > file_bytes + LONGER, "what the tables may not have yet is cut");
        journal.switch();
        assert_eq!(length(), file_bytes + LONGER);
        journal.append(&mut group(&[put(3)])).unwrap();
        drop(journal);
        assert_eq!(ids(&open(place.path(), 1).unwrap().1), [2, 3]);
    }

    #[test]
    fn changes_that_look_like_groups_are_looked_through_for_a_bounded_time() {
        let header = |length: u32, number: u64| {
            let mut header = [0; HEADER_UNMARKED];
            header[0..4].copy_from_slice(&MAGIC);
            header[4..8].copy_from_slice(&length.to_le_bytes());
            header[12..20].copy_from_slice(&number.to_le_bytes());
            header
        };
        let count = (4usize << 20) / HEADER_UNMARKED;
        let length = |at: usize| ((count - at - 1) * HEADER_UNMARKED) as u32;
        let fakes: Vec<u8> = (0..count).flat_map(|at| header(length(at), 7)).collect();
        assert!(matches!(find_later(&fakes, None, 0, 1), Some(Later::Unknown)));
        // They look like none to who knows the mark.
        assert!(find_later(&fakes, Some(MARK), 0, 1).is_none());
        // The other file may hold any number of groups before it.
        let found = find_later(&[vec![7; 5], unmarked(5_000_000, &[put(1)])].concat(), None, 0, 1);
        assert!(matches!(found, Some(Later::Group { number: 5_000_000, offset: 5 })));
        let found = find_later(&[vec![7; 5], marked(MARK, 5_000_000, &[put(1)])].concat(), Some(MARK), 0, 1);
        assert!(matches!(found, Some(Later::Group { number: 5_000_000, offset: 5 })));
        // Numbers that cannot be, or that the tables have, are passed over.
        assert!(find_later(&fakes, None, 0, 7).is_none());
        let far: Vec<u8> = (0..count).flat_map(|at| header(length(at), u64::MAX)).collect();
        assert!(find_later(&far, None, 0, 1).is_none());
    }

    #[test]
    fn groups_of_another_store_are_not_taken_for_none() {
        let place = tempfile::tempdir().unwrap();
        let (mut journal, _) = open(place.path(), 0).unwrap();
        journal.append(&mut group(&[put(1)])).unwrap();
        drop(journal);
        // Tables of a copy from before groups had a mark; of another formatting.
        for mark in [None, Some(Mark(7))] {
            let error = Journal::open(place.path(), mark, 0, 1 << 20).map(drop).unwrap_err().to_string();
            assert!(error.contains("another store") && error.contains("truncate -s 0 "), "{error}");
        }
        let (_, unapplied) = open(place.path(), 0).unwrap();
        assert_eq!(ids(&unapplied), [1]);
    }

    #[test]
    fn a_gap_is_damage() {
        let place = tempfile::tempdir().unwrap();
        let (mut journal, _) = open(place.path(), 0).unwrap();
        journal.append(&mut group(&[put(1)])).unwrap();
        journal.append(&mut group(&[put(2)])).unwrap();
        let in_the_second = journal.position * 3 / 4;
        journal.switch();
        journal.append(&mut group(&[put(3)])).unwrap();
        drop(journal);
        let path = place.path().join(FILES[0]);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[in_the_second as usize] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        let Err(StoreError::Damaged { path: named, problem }) = open(place.path(), 0) else { panic!("a gap") };
        assert_eq!(named, path);
        let second = in_the_second * 2 / 3;
        let other = place.path().join(FILES[1]);
        let cut = format!("truncate -s {second} {}; truncate -s 0 {}", path.display(), other.display());
        assert!(problem.contains("there is group 3 in") && problem.ends_with(&cut), "{problem}");
        File::options().write(true).open(&path).unwrap().set_len(second).unwrap();
        File::options().write(true).open(&other).unwrap().set_len(0).unwrap();
        assert_eq!(ids(&open(place.path(), 0).unwrap().1), [1]);
    }
}
