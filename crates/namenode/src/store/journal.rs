//! What has been acknowledged and is not in the tables yet.
//!
//! Two files take turns. Groups of changes are appended to one of them, each synced before its operations are answered; when it is
//! full the other one is begun anew, whose groups have gone into the tables meanwhile. A file is not cut for that: what is left of an
//! earlier turn behind the last group has lower numbers. In its first turn a file grows by zeros, many groups' room at a time. So
//! nearly every sync writes data only, and no metadata of the file system.
//!
//! ```text
//! file    head (4096 bytes) group* (zeros, or what is left of an earlier turn)
//! head    magic (8 bytes), mark (8), which of the two files it is (4), CRC32C of these (4), zeros
//! group   mark (8 bytes), CRC32C of the rest (4), number (8), number of operations (4), length of the changes (8), changes
//! before there were heads (layout 3):
//! file    group* (zeros, or what is left of an earlier turn)
//! before there were marks (layout 2):
//! group   magic (4), length of the changes (4), CRC32C of the rest (4), number (8), number of operations (4), changes
//! ```
//! Numbers are little-endian and rise by one from group to group, through both files. The tables know the number of the last group
//! that they hold. A group that is not whole is the last that was begun: nobody was answered for it. Is a later one whole, then the disk
//! has lost what was acknowledged, and the journal is not opened. Nor is it when it ends before the group that `journal_progress.rs` names, or when
//! a file is missing, shorter than it was, or has another mark than the tables: each start gives both files a new one.
//!
//! Changes hold bytes that users choose, as the values of extended attributes, and those may lie wherever a group is looked for: within
//! one that is torn, or where the last one ends, left by an earlier turn. They pass for no group, for nobody but the store knows its mark.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use hearth_types::crc32c;

use super::encoding::EncodingError;
use super::group::{Group, HEADER};
use super::journal_progress::{self, Progress, ProgressError, ProgressFile};
use super::{StoreError, io};

pub const FILES: [&str; 2] = ["journal.0", "journal.1"];
/// Bytes before the first group of a file.
const HEAD: usize = 4096;
const HEAD_MAGIC: [u8; 8] = *b"HJrnHead";
/// What groups without a mark begin with.
const MAGIC: [u8; 4] = *b"HJnl";
/// Bytes before the changes of a group without a mark.
const HEADER_UNMARKED: usize = 24;
/// Up to the checksum, which is of all that follows it.
const CHECKSUM_END: usize = 12;

/// A file that is too short for a group becomes longer by so many bytes, and the group's.
const GROWTH: usize = 1 << 20;

/// A file keeps so many bytes more than it is full with. Few groups are as long as this.
const FILE_SLACK: u64 = 16 << 20;

/// A random number at the beginning of each group and in the head of each file. Each start has a new one, and only readers of the
/// directory know it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Mark(pub u64);

impl Mark {
    pub fn random() -> std::io::Result<Self> {
        let mut bytes = [0; 8];
        getrandom::fill(&mut bytes).map_err(|error| std::io::Error::other(error.to_string()))?;
        Ok(Self(u64::from_le_bytes(bytes)))
    }
}

/// What the tables and VERSION say of the journal.
#[derive(Clone, Copy)]
pub struct Marks {
    /// Of files with a head.
    pub mark: Option<Mark>,
    /// Of groups in files without one; `None`: they have none either.
    pub headless: Option<Mark>,
    pub heads: Heads,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Heads {
    /// Layout 4: both files have a head with the tables' mark.
    Required,
    /// A start got as far as giving the tables a new mark, and perhaps not the files: all groups under the one before are in the tables.
    BeingWritten,
    /// Layout 3 and before: no file has one.
    None,
    /// The layout in VERSION is older than the tables: an earlier version may have written since, or it is an old VERSION file.
    Mixed,
}

/// A journal that can be written.
pub struct Journal {
    mark: Mark,
    files: [File; 2],
    paths: [PathBuf; 2],
    progress: ProgressFile,
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

/// What there is of a journal that is not whole.
pub struct Salvaged {
    /// The groups that follow the tables without a gap.
    pub unapplied: Unapplied,
    /// The highest number that a group is known to have had.
    pub known: u64,
    /// What is wrong, in words.
    pub problems: Vec<String>,
}

/// Reads the groups that the tables do not hold. `applied`: the number of the last group that they do.
///
/// Errors: `Missing` and `Damaged` when something that was acknowledged is not there, or may not be.
pub fn read(directory: &Path, marks: &Marks, applied: u64) -> Result<Unapplied, StoreError> {
    let paths = FILES.map(|name| directory.join(name));
    let contents = [content(&paths[0])?, content(&paths[1])?];
    let said = read_progress(directory, marks)?;
    let mut groups = Vec::new();
    // Of each file: where the reading stopped, and a whole group that is newer than those before that place.
    let mut ends = [GroupsEnd::default(); 2];
    for index in 0..2 {
        let Some(bytes) = &contents[index] else {
            let other = contents[1 - index].as_deref().unwrap_or_default();
            check_never_written(&paths[index], marks, applied, other)?;
            continue;
        };
        let found = read_file(&paths, index, bytes, marks, applied)?;
        if let Some(said) = &said
            && (bytes.len() as u64) < said.lengths[index]
        {
            return Err(cut(&paths[index], bytes.len() as u64, said.lengths[index]));
        }
        ends[index] = found.end;
        groups.extend(found.groups);
    }
    groups.sort_by_key(|(number, _)| *number);
    let mut unapplied = Unapplied { run: Vec::new(), number: applied };
    for (number, group) in groups {
        let missing = unapplied.number + 1;
        if number != missing {
            // It was in the file that ends before it; of none that does, in the one that the later group is not in.
            let ends_before = |end: &GroupsEnd| end.last == Some(unapplied.number);
            let is_without = |end: &GroupsEnd| end.last.is_none_or(|last| last < number);
            let at = ends.iter().position(ends_before).or_else(|| ends.iter().position(is_without)).unwrap_or(0);
            let found = format!("there is group {number} in {}", paths[1 - at].display());
            return Err(damaged(&paths[at], ends[at].offset, &found, missing));
        }
        unapplied.run.push(group);
        unapplied.number = number;
    }
    for (path, end) in paths.iter().zip(&ends) {
        if let Some(later) = end.later {
            return Err(damaged(path, end.offset, &later.to_string(), unapplied.number + 1));
        }
    }
    if let Some(said) = said.filter(|said| said.number > unapplied.number) {
        let newest = if ends[1].last > ends[0].last { 1 } else { 0 };
        let found = format!(
            "group {} was acknowledged, as {} says",
            said.number,
            directory.join(journal_progress::FILE).display()
        );
        return Err(damaged(&paths[newest], ends[newest].offset, &found, unapplied.number + 1));
    }
    Ok(unapplied)
}

/// As [`read`] for a journal that it refuses: all groups that can be used.
///
/// Errors: of the system only.
pub fn salvage(directory: &Path, marks: &Marks, applied: u64) -> Result<Salvaged, StoreError> {
    let paths = FILES.map(|name| directory.join(name));
    let contents = [content(&paths[0])?, content(&paths[1])?];
    let mut problems = Vec::new();
    let mut known = applied;
    match read_progress(directory, marks) {
        Ok(said) => {
            for (index, said) in said.iter().flat_map(|said| said.lengths.iter().enumerate()) {
                let length = contents[index].as_ref().map_or(0, |bytes| bytes.len() as u64);
                if contents[index].is_some() && length < *said {
                    problems.push(cut_problem(&paths[index], length, *said));
                }
            }
            known = known.max(said.map_or(0, |said| said.number));
        }
        Err(StoreError::Io { action, path, source }) => return Err(StoreError::Io { action, path, source }),
        Err(error) => problems.push(problem_of(error)),
    }
    let mut groups = Vec::new();
    for index in 0..2 {
        let Some(bytes) = &contents[index] else {
            let other = contents[1 - index].as_deref().unwrap_or_default();
            problems.extend(check_never_written(&paths[index], marks, applied, other).err().map(problem_of));
            continue;
        };
        match read_file(&paths, index, bytes, marks, applied) {
            Ok(found) => {
                if let Some(later) = found.end.later {
                    problems.push(format!(
                        "{}: at byte {} there is no whole group, but {later}",
                        paths[index].display(),
                        found.end.offset
                    ));
                    known = known.max(later.number());
                }
                groups.extend(found.groups);
            }
            Err(error) => problems.push(problem_of(error)),
        }
    }
    groups.sort_by_key(|(number, _)| *number);
    known = known.max(groups.last().map_or(0, |(number, _)| *number));
    let mut unapplied = Unapplied { run: Vec::new(), number: applied };
    for (number, group) in groups {
        if number == unapplied.number + 1 {
            unapplied.run.push(group);
            unapplied.number = number;
        }
    }
    Ok(Salvaged { unapplied, known, problems })
}

/// Without the advice, which is for those who start the NameNode.
fn problem_of(error: StoreError) -> String {
    match error {
        StoreError::Missing { path, lost } => format!("{} is missing: {lost}", path.display()),
        StoreError::Damaged { path, problem } => format!("{}: {problem}", path.display()),
        other => other.to_string(),
    }
}

/// Reads a whole file; `None` when it does not exist.
fn content(path: &Path) -> Result<Option<Vec<u8>>, StoreError> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io("reading", path)(error)),
    }
}

/// Reads what `journal_progress.rs` recorded of a journal with heads. It may be behind the tables: after a power failure they get what it had not yet.
fn read_progress(directory: &Path, marks: &Marks) -> Result<Option<Progress>, StoreError> {
    let (Heads::Required, Some(mark)) = (marks.heads, marks.mark) else { return Ok(None) };
    let path = directory.join(journal_progress::FILE);
    let damaged = |problem: &str| StoreError::Damaged { path: path.clone(), problem: problem.to_owned() };
    match journal_progress::read(&path, mark) {
        Ok(said) => Ok(Some(said)),
        Err(ProgressError::Missing) => {
            let lost = "it says how far the journal went, so a lost end of the journal would not be noticed";
            Err(StoreError::Missing { path, lost })
        }
        Err(ProgressError::Damaged(problem)) => Err(damaged(problem)),
        Err(ProgressError::Foreign) => Err(damaged(FOREIGN)),
        Err(ProgressError::System(error)) => Err(io("reading", &path)(error)),
    }
}

const FOREIGN: &str = "it is from another copy of the directory, or from before the NameNode's last start, and not of the same time as \
                       namespace.redb";

/// Whether a file of the journal may be missing: only one of an earlier layout that was never started.
fn check_never_written(path: &Path, marks: &Marks, applied: u64, other: &[u8]) -> Result<(), StoreError> {
    let is_unused = || read_groups(other, 0, marks.headless, applied).is_ok_and(|found| found.end.last.is_none());
    if marks.heads == Heads::None && applied == 0 && is_unused() {
        return Ok(());
    }
    Err(StoreError::Missing {
        path: path.to_owned(),
        lost: "it may hold changes that were acknowledged and are nowhere else",
    })
}

/// Reads one file of the journal.
fn read_file(
    paths: &[PathBuf; 2],
    index: usize,
    bytes: &[u8],
    marks: &Marks,
    applied: u64,
) -> Result<FileContents, StoreError> {
    let path = &paths[index];
    let wrong = |problem: String| StoreError::Damaged { path: path.clone(), problem };
    let senseless = |error: EncodingError| wrong(format!("a group that is whole makes no sense: {error}"));
    match (marks.heads, read_head(bytes)) {
        (Heads::None, Some(_)) => Err(wrong(FOREIGN.to_owned())),
        (_, Some((mark, place))) if marks.mark == Some(mark) => {
            if place != index as u32 {
                return Err(wrong(format!("it is a copy of {}", paths[1 - index].display())));
            }
            read_groups(bytes, HEAD, Some(mark), applied).map_err(senseless)
        }
        (Heads::Required, None) if bytes.is_empty() => Err(wrong("it is empty".to_owned())),
        (Heads::Required, None) if bytes.len() < HEAD => {
            Err(wrong(format!("it is cut: {} bytes are left", bytes.len())))
        }
        (Heads::Required, None) => Err(wrong(
            "it does not begin as a journal does: another file lies there, or its beginning is lost".to_owned(),
        )),
        (Heads::Required | Heads::Mixed, Some(_)) => Err(wrong(FOREIGN.to_owned())),
        (Heads::BeingWritten, _) => {
            // The head is an earlier start's. Groups that the tables lack come from another copy.
            let found = read_groups(bytes, 0, marks.headless, applied).map_err(senseless)?;
            if !found.groups.is_empty() || found.end.later.is_some() {
                return Err(wrong(
                    "it has changes that namespace.redb does not have: one of them is from another copy".to_owned(),
                ));
            }
            Ok(FileContents { groups: Vec::new(), end: GroupsEnd::default() })
        }
        (Heads::None | Heads::Mixed, None) => {
            let found = read_groups(bytes, 0, marks.headless, applied).map_err(senseless)?;
            // With a group of its own behind that it is damage.
            if found.end.last.is_none() && found.end.later.is_none() && is_of_another_store(bytes, marks.headless) {
                return Err(wrong(FOREIGN.to_owned()));
            }
            Ok(found)
        }
    }
}

/// Makes the files of the journal where they are missing.
pub fn create_files(directory: &Path) -> Result<(), StoreError> {
    for path in FILES.map(|name| directory.join(name)) {
        OpenOptions::new().create(true).write(true).truncate(false).open(&path).map_err(io("opening", &path))?;
    }
    sync_directory(directory)
}

fn sync_directory(directory: &Path) -> Result<(), StoreError> {
    File::open(directory).and_then(|directory| directory.sync_all()).map_err(io("syncing", directory))
}

impl Journal {
    /// Begins both files with a new mark. All that they hold is in the tables, up to the group `number`, and the tables have the mark.
    /// `file_bytes`: the length at which a file is full; what it holds is in memory, too, until it is in the tables.
    pub fn begin(directory: &Path, mark: Mark, number: u64, file_bytes: u64) -> Result<Self, StoreError> {
        let paths = FILES.map(|name| directory.join(name));
        let mut files = Vec::new();
        let mut lengths = [0; 2];
        for (index, path) in paths.iter().enumerate() {
            let file = OpenOptions::new().create(true).read(true).write(true).truncate(false).open(path);
            let file = file.map_err(io("opening", path))?;
            file.write_all_at(&head(mark, index as u32), 0)
                .and_then(|()| file.sync_all())
                .map_err(io("writing", path))?;
            lengths[index] = file.metadata().map_err(io("looking at", path))?.len();
            files.push(file);
        }
        let files = <[File; 2]>::try_from(files).expect("one of each path");
        let progress = ProgressFile::begin(directory, mark, Progress { number, lengths })?;
        sync_directory(directory)?;
        Ok(Self { mark, files, paths, progress, current: 0, position: HEAD as u64, lengths, number, file_bytes })
    }

    /// The number of the last group.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Makes the changes of a group durable, of which there are some. After an error nothing may be appended any more: nobody knows what is on
    /// the disk.
    pub fn append(&mut self, group: &mut Group) -> Result<(), StoreError> {
        let path = &self.paths[self.current];
        let number = self.number + 1;
        let operations = group.operations();
        let bytes = group.bytes();
        seal(bytes, self.mark, number, operations);
        let (file, length) = (&self.files[self.current], &mut self.lengths[self.current]);
        let end = self.position + bytes.len() as u64;
        let grows = end > *length;
        if grows {
            // Zeros, for a hole would be filled, block by block, by the syncs to come. Where they do not fit the group still may.
            let zeros = file.write_all_at(&vec![0; GROWTH], end);
            *length = end + zeros.map_or(0, |()| GROWTH as u64);
        }
        file.write_all_at(bytes, self.position).and_then(|()| file.sync_data()).map_err(io("writing", path))?;
        self.position = end;
        self.number = number;
        self.record_progress()?;
        if grows { self.sync_progress() } else { Ok(()) }
    }

    fn record_progress(&mut self) -> Result<(), StoreError> {
        self.progress.record(Progress { number: self.number, lengths: self.lengths })
    }

    /// Makes durable how far the journal is: before the tables get ahead of what was.
    pub fn sync_progress(&self) -> Result<(), StoreError> {
        self.progress.sync()
    }

    pub fn is_full(&self) -> bool {
        self.position >= self.file_bytes
    }

    /// Goes on with the other file, from its beginning. All groups that it holds are in the tables.
    pub fn switch(&mut self) -> Result<(), StoreError> {
        self.current = 1 - self.current;
        self.position = HEAD as u64;
        // One operation on a large tree may have taken gigabytes, which every start would read.
        let longest = self.file_bytes.saturating_add(FILE_SLACK);
        if self.lengths[self.current] > longest {
            // In this order: a file that is shorter than was said is refused.
            self.lengths[self.current] = longest;
            self.record_progress()?;
            self.sync_progress()?;
            // Where it stays longer nothing is wrong.
            if let Err(error) = self.files[self.current].set_len(longest) {
                tracing::warn!(path = %self.paths[self.current].display(), %error, "a file of the journal cannot be cut");
            }
        }
        Ok(())
    }
}

/// What a file begins with.
fn head(mark: Mark, index: u32) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    head[..8].copy_from_slice(&HEAD_MAGIC);
    head[8..16].copy_from_slice(&mark.0.to_le_bytes());
    head[16..20].copy_from_slice(&index.to_le_bytes());
    let sum = crc32c(&head[..20]);
    head[20..24].copy_from_slice(&sum.to_le_bytes());
    head
}

/// The mark of a file, and which of the two it is; `None`: it has no head.
fn read_head(bytes: &[u8]) -> Option<(Mark, u32)> {
    let head = bytes.first_chunk::<HEAD>()?;
    let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes of the head"));
    if !head.starts_with(&HEAD_MAGIC) || crc32c(&head[..20]) != word(20) {
        return None;
    }
    Some((Mark(u64::from_le_bytes(head[8..16].try_into().expect("eight bytes of the head"))), word(16)))
}

/// Writes the header of a group, which has room for it.
fn seal(group: &mut [u8], mark: Mark, number: u64, operations: u32) {
    let length = (group.len() - HEADER) as u64;
    group[0..8].copy_from_slice(&mark.0.to_le_bytes());
    group[12..20].copy_from_slice(&number.to_le_bytes());
    group[20..24].copy_from_slice(&operations.to_le_bytes());
    group[24..32].copy_from_slice(&length.to_le_bytes());
    let sum = crc32c(&group[CHECKSUM_END..]);
    group[8..12].copy_from_slice(&sum.to_le_bytes());
}

/// Changes that were acknowledged are not there: people have to say that it may go on without them.
fn damaged(path: &Path, offset: u64, found: &str, missing: u64) -> StoreError {
    let problem = format!(
        "at byte {offset} there is no whole group, but {found}. Changes from group {missing} of the journal on were acknowledged, \
         and would be lost"
    );
    StoreError::Damaged { path: path.to_owned(), problem }
}

fn cut(path: &Path, length: u64, was: u64) -> StoreError {
    StoreError::Damaged { path: path.to_owned(), problem: cut_to(length, was) }
}

fn cut_problem(path: &Path, length: u64, was: u64) -> String {
    format!("{}: {}", path.display(), cut_to(length, was))
}

fn cut_to(length: u64, was: u64) -> String {
    format!("it is cut: {length} of {was} bytes are left, and what was acknowledged may be among the others")
}

/// What there is in one file.
struct FileContents {
    /// Behind the one that is applied, with their numbers.
    groups: Vec<(u64, Group)>,
    end: GroupsEnd,
}

/// Where the groups of a file end, and what is behind that.
#[derive(Clone, Copy, Default)]
struct GroupsEnd {
    offset: u64,
    /// The number of the last group before it.
    last: Option<u64>,
    /// That it is none of an earlier turn's.
    later: Option<LaterGroup>,
}

#[derive(Clone, Copy)]
enum LaterGroup {
    Group {
        number: u64,
        offset: u64,
    },
    /// So much looks like groups that it was not looked through.
    Unknown,
}

impl LaterGroup {
    /// 0: not known.
    fn number(self) -> u64 {
        match self {
            Self::Group { number, .. } => number,
            Self::Unknown => 0,
        }
    }
}

impl std::fmt::Display for LaterGroup {
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

/// The groups of one file from the byte `from` on, behind the one that is `applied`. The first that is not whole, or does not follow the one before it, is where
/// the last turn ended.
fn read_groups(bytes: &[u8], from: usize, mark: Option<Mark>, applied: u64) -> Result<FileContents, EncodingError> {
    let mut groups = Vec::new();
    let mut before = None;
    let mut at = from;
    while let Some(header) = header(&bytes[at..], mark) {
        let group = &bytes[at..at + header.length];
        let follows = before.is_none_or(|before: u64| header.number == before.wrapping_add(1));
        if !follows || crc32c(&group[CHECKSUM_END..]) != header.checksum {
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
    Ok(FileContents {
        groups,
        end: GroupsEnd { offset: at as u64, last: before, later: find_later(bytes, mark, at, newest) },
    })
}

/// Groups that the tables do not hold are fewer than this, in two files of any length that there is: what only looks like a header most
/// likely has another number.
const GROUPS_MAX: u64 = u32::MAX as u64;

/// How often all that is searched may be summed up at most.
const SUMS_MAX: usize = 8;

/// Searches what is behind `from` for a whole group with a number above `newest`, byte by byte: how long a damaged group was nobody knows.
/// Without a mark changes may hold anything, so it is bounded how much is summed up.
fn find_later(bytes: &[u8], mark: Option<Mark>, from: usize, newest: u64) -> Option<LaterGroup> {
    let mut summed = 0usize;
    let mut at = from;
    while let Some(next) = next_group_start(bytes.get(at..)?, mark) {
        at += next;
        if let Some(header) = header(&bytes[at..], mark)
            && header.number.checked_sub(newest).is_some_and(|more| (1..=GROUPS_MAX).contains(&more))
        {
            summed += header.length;
            if summed > SUMS_MAX * bytes.len() {
                return Some(LaterGroup::Unknown);
            }
            if crc32c(&bytes[at + CHECKSUM_END..at + header.length]) == header.checksum {
                return Some(LaterGroup::Group { number: header.number, offset: at as u64 });
            }
        }
        at += 1;
    }
    None
}

/// Where what groups begin with is first.
fn next_group_start(bytes: &[u8], mark: Option<Mark>) -> Option<usize> {
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

    const MARKS: Marks = Marks { mark: Some(MARK), headless: Some(MARK), heads: Heads::Required };

    /// As a start does, but for the mark, which stays.
    fn open(directory: &Path, applied: u64) -> Result<(Journal, Unapplied), StoreError> {
        open_with(directory, applied, 1 << 20)
    }

    fn open_with(directory: &Path, applied: u64, file_bytes: u64) -> Result<(Journal, Unapplied), StoreError> {
        if !directory.join(FILES[0]).exists() {
            drop(Journal::begin(directory, MARK, applied, file_bytes)?);
        }
        let unapplied = read(directory, &MARKS, applied)?;
        Ok((Journal::begin(directory, MARK, unapplied.number, file_bytes)?, unapplied))
    }

    /// What `journal.last` says; after a power failure it may say what it said earlier.
    fn said_in(directory: &Path) -> Vec<u8> {
        std::fs::read(directory.join(journal_progress::FILE)).unwrap()
    }

    fn power_failure(directory: &Path, said: &[u8]) {
        std::fs::write(directory.join(journal_progress::FILE), said).unwrap();
    }

    fn problem(outcome: Result<(Journal, Unapplied), StoreError>) -> String {
        outcome.err().map(|error| error.to_string()).expect("it is refused")
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
        let sum = crc32c(&bytes[CHECKSUM_END..]);
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
        journal.switch().unwrap();
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
        journal.switch().unwrap();
        journal.append(&mut group(&[put(11)])).unwrap();
        journal.switch().unwrap();
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
        let said = said_in(place.path());
        journal.append(&mut group(&[put(2)])).unwrap();
        let length = journal.position;
        drop(journal);
        let path = place.path().join(FILES[0]);
        let bytes = std::fs::read(&path).unwrap();
        for torn in whole..length {
            let mut bytes = bytes.clone();
            bytes[torn as usize..].fill(0);
            std::fs::write(&path, &bytes).unwrap();
            // It was synced, and is known to have been: that is no torn end.
            power_failure(place.path(), &said);
            assert_eq!(ids(&read(place.path(), &MARKS, 0).unwrap()), [1], "{torn} of {length} bytes");
        }
        for wrong in whole..length {
            let mut bytes = bytes.clone();
            bytes[wrong as usize] ^= 1;
            std::fs::write(&path, &bytes).unwrap();
            assert_eq!(ids(&read(place.path(), &MARKS, 0).unwrap()), [1], "byte {wrong} of {length}");
        }
        // The number that was lost is given again, and found.
        let (mut journal, unapplied) = open(place.path(), 0).unwrap();
        assert_eq!(unapplied.number, 1);
        journal.append(&mut group(&[put(22)])).unwrap();
        assert_eq!(ids(&open(place.path(), 1).unwrap().1), [22]);
    }

    #[test]
    fn a_lost_end_is_told_from_a_torn_one() {
        let place = tempfile::tempdir().unwrap();
        let (mut journal, _) = open(place.path(), 0).unwrap();
        for id in 1..=3 {
            journal.append(&mut group(&[put(id)])).unwrap();
        }
        let ends: Vec<u64> = std::iter::once(HEAD as u64)
            .chain((1..=3).map(|nth| HEAD as u64 + (journal.position - HEAD as u64) / 3 * nth))
            .collect();
        drop(journal);
        let path = place.path().join(FILES[0]);
        let bytes = std::fs::read(&path).unwrap();
        for (lost, end) in ends[..3].iter().enumerate() {
            // The file system has lost it, and the file has its length.
            let mut zeroed = bytes.clone();
            zeroed[*end as usize..].fill(0);
            std::fs::write(&path, &zeroed).unwrap();
            let said = problem(open(place.path(), 0));
            assert!(
                said.contains(&format!("Changes from group {} of", lost + 1))
                    && said.contains("group 3 was acknowledged"),
                "{said}"
            );
            // Or it is cut, wherever that was.
            for length in [*end, *end + 1, *end + 100] {
                std::fs::write(&path, &bytes[..length as usize]).unwrap();
                let said = problem(open(place.path(), 0));
                assert!(said.contains("it is cut") && said.contains("hearth namenode -recover"), "{said}");
            }
        }
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(ids(&open(place.path(), 0).unwrap().1), [1, 2, 3]);
    }

    #[test]
    fn a_cut_file_is_found_after_a_power_failure_too() {
        let place = tempfile::tempdir().unwrap();
        let (mut journal, _) = open(place.path(), 0).unwrap();
        journal.append(&mut group(&[put(1)])).unwrap();
        // What is synced at the growth of a file is there after any failure.
        let said = said_in(place.path());
        journal.append(&mut group(&[put(2)])).unwrap();
        drop(journal);
        power_failure(place.path(), &said);
        let path = place.path().join(FILES[0]);
        let length = std::fs::metadata(&path).unwrap().len();
        File::options().write(true).open(&path).unwrap().set_len(length - 1).unwrap();
        assert!(problem(open(place.path(), 0)).contains("it is cut"));
    }

    #[test]
    fn what_is_left_of_a_journal_is_salvaged() {
        let place = tempfile::tempdir().unwrap();
        let (mut journal, _) = open(place.path(), 0).unwrap();
        for id in 1..=4 {
            journal.append(&mut group(&[put(id)])).unwrap();
        }
        let third = HEAD as u64 + (journal.position - HEAD as u64) / 2;
        drop(journal);
        let whole = salvage(place.path(), &MARKS, 1).unwrap();
        assert_eq!((ids(&whole.unapplied), whole.known, whole.problems.len()), (vec![2, 3, 4], 4, 0));
        let path = place.path().join(FILES[0]);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[third as usize + 40] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        let left = salvage(place.path(), &MARKS, 0).unwrap();
        assert_eq!((ids(&left.unapplied), left.known, left.problems.len()), (vec![1, 2], 4, 1));
        std::fs::remove_file(&path).unwrap();
        std::fs::remove_file(place.path().join(journal_progress::FILE)).unwrap();
        let left = salvage(place.path(), &MARKS, 2).unwrap();
        assert_eq!((left.unapplied.run.len(), left.known, left.problems.len()), (0, 2, 2), "{:?}", left.problems);
    }

    #[test]
    fn a_whole_group_behind_a_damaged_one_is_damage_and_said_how_to_go_on() {
        let place = tempfile::tempdir().unwrap();
        let (mut journal, _) = open(place.path(), 0).unwrap();
        // What an earlier turn left is not taken for it.
        for id in 1..=9 {
            journal.append(&mut group(&[put(id)])).unwrap();
        }
        journal.switch().unwrap();
        journal.append(&mut group(&[put(10)])).unwrap();
        journal.switch().unwrap();
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
                problem.starts_with(&format!("at byte {second} there is no whole group, but group 13 is whole at byte {third}. Changes from group 12 of")),
                "{problem}"
            );
            // Nothing of it was needed.
            assert!(ids(&read(place.path(), &MARKS, 13).unwrap()).is_empty());
        }
        // Nothing of the last turn's file can be read from its beginning.
        damage(HEAD as u64);
        let refused = problem(open(place.path(), 9));
        assert!(
            refused.contains(&format!("at byte {HEAD} there is no whole group, but group 12 is whole")),
            "{refused}"
        );
        damage(0);
        assert!(problem(open(place.path(), 9)).contains("it does not begin as a journal does"));
    }

    #[test]
    fn a_users_bytes_in_a_torn_group_are_no_group() {
        let place = tempfile::tempdir().unwrap();
        let (mut journal, _) = open(place.path(), 0).unwrap();
        journal.append(&mut group(&[put(1)])).unwrap();
        let value = (2..9).flat_map(forged).collect::<Vec<_>>().concat();
        let record = Changes { inodes_put: vec![(2, value)], ..Changes::default() };
        let said = said_in(place.path());
        journal.append(&mut group(&[record, put(2)])).unwrap();
        let torn = journal.position - 1;
        drop(journal);
        File::options().write(true).open(place.path().join(FILES[0])).unwrap().write_all_at(&[0], torn).unwrap();
        power_failure(place.path(), &said);
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
            journal.switch().unwrap();
            journal.switch().unwrap();
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
        let marks = Marks { mark: None, headless: None, heads: Heads::None };
        std::fs::write(place.path().join(FILES[1]), []).unwrap();
        let open_unmarked = || read(place.path(), &marks, 0);
        let first = unmarked(1, &[put(1)]);
        let second = unmarked(2, &[put(2), everything()]);
        let whole = [first.as_slice(), &second, &unmarked(3, &[put(3)])].concat();
        let mut damaged = whole.clone();
        damaged[first.len() + 30] ^= 1;
        std::fs::write(&path, &damaged).unwrap();
        assert!(matches!(open_unmarked().err(), Some(StoreError::Damaged { .. })));
        std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
        let unapplied = open_unmarked().unwrap();
        assert_eq!((all(&unapplied), unapplied.number), (vec![put(1), put(2), everything()], 2));
        let mut journal = Journal::begin(place.path(), MARK, 2, 1 << 20).unwrap();
        journal.append(&mut group(&[put(4)])).unwrap();
        drop(journal);
        let (_, unapplied) = open(place.path(), 2).unwrap();
        assert_eq!((ids(&unapplied), unapplied.number), (vec![4], 3));
    }

    #[test]
    fn files_without_a_head_are_read_as_earlier_versions_wrote_them() {
        let place = tempfile::tempdir().unwrap();
        let marks = Marks { mark: Some(MARK), headless: Some(MARK), heads: Heads::None };
        let paths = FILES.map(|name| place.path().join(name));
        // Formatted and never started: they are not there.
        assert_eq!(read(place.path(), &marks, 0).unwrap().number, 0);
        let missing = |applied| matches!(read(place.path(), &marks, applied), Err(StoreError::Missing { .. }));
        assert!(missing(1));
        std::fs::write(&paths[0], marked(MARK, 1, &[put(1)])).unwrap();
        assert!(missing(0), "the other one was made with the first");
        std::fs::write(&paths[1], []).unwrap();
        assert_eq!(ids(&read(place.path(), &marks, 0).unwrap()), [1]);
        std::fs::write(&paths[1], marked(Mark(7), 2, &[put(2)])).unwrap();
        assert!(matches!(read(place.path(), &marks, 0), Err(StoreError::Damaged { .. })), "of another copy");
        // An earlier version wrote into a directory of this one.
        let mixed = Marks { heads: Heads::Mixed, ..marks };
        std::fs::write(&paths[1], marked(MARK, 2, &[put(2)])).unwrap();
        assert_eq!(ids(&read(place.path(), &mixed, 0).unwrap()), [1, 2]);
    }

    #[test]
    fn a_start_that_was_interrupted_leaves_either_mark() {
        let place = tempfile::tempdir().unwrap();
        let (mut journal, _) = open(place.path(), 0).unwrap();
        journal.append(&mut group(&[put(1)])).unwrap();
        drop(journal);
        let marks = Marks { mark: Some(Mark(9)), headless: Some(MARK), heads: Heads::BeingWritten };
        assert_eq!(read(place.path(), &marks, 1).unwrap().number, 1);
        let head_of = |index: u32, mark| {
            File::options()
                .write(true)
                .open(place.path().join(FILES[index as usize]))
                .unwrap()
                .write_all_at(&head(mark, index), 0)
                .unwrap()
        };
        head_of(0, Mark(9));
        assert_eq!(read(place.path(), &marks, 1).unwrap().number, 1);
        // The head before, and a group that the tables do not have: it was not interrupted there.
        head_of(0, MARK);
        assert!(matches!(read(place.path(), &marks, 0), Err(StoreError::Damaged { .. })));
        std::fs::remove_file(place.path().join(FILES[1])).unwrap();
        assert!(matches!(read(place.path(), &marks, 1), Err(StoreError::Missing { .. })));
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
        let (mut journal, _) = open_with(place.path(), 0, file_bytes).unwrap();
        let length = || std::fs::metadata(place.path().join(FILES[0])).unwrap().len();
        let long = Changes { inodes_put: vec![(1, vec![5; 20 << 20])], ..Changes::default() };
        journal.append(&mut group(&[long])).unwrap();
        journal.switch().unwrap();
        journal.append(&mut group(&[put(2)])).unwrap();
        assert!(length() > file_bytes + FILE_SLACK, "what the tables may not have yet is cut");
        journal.switch().unwrap();
        assert_eq!(length(), file_bytes + FILE_SLACK);
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
        assert!(matches!(find_later(&fakes, None, 0, 1), Some(LaterGroup::Unknown)));
        // They look like none to who knows the mark.
        assert!(find_later(&fakes, Some(MARK), 0, 1).is_none());
        // The other file may hold any number of groups before it.
        let found = find_later(&[vec![7; 5], unmarked(5_000_000, &[put(1)])].concat(), None, 0, 1);
        assert!(matches!(found, Some(LaterGroup::Group { number: 5_000_000, offset: 5 })));
        let found = find_later(&[vec![7; 5], marked(MARK, 5_000_000, &[put(1)])].concat(), Some(MARK), 0, 1);
        assert!(matches!(found, Some(LaterGroup::Group { number: 5_000_000, offset: 5 })));
        // Numbers that cannot be, or that the tables have, are passed over.
        assert!(find_later(&fakes, None, 0, 7).is_none());
        let far: Vec<u8> = (0..count).flat_map(|at| header(length(at), u64::MAX)).collect();
        assert!(find_later(&far, None, 0, 1).is_none());
    }

    #[test]
    fn files_that_do_not_belong_together_are_refused_by_name() {
        let place = tempfile::tempdir().unwrap();
        let (mut journal, _) = open(place.path(), 0).unwrap();
        journal.append(&mut group(&[put(1)])).unwrap();
        drop(journal);
        let foreign = Marks { mark: Some(Mark(7)), ..MARKS };
        let error = read(place.path(), &foreign, 0).map(drop).unwrap_err().to_string();
        assert!(error.contains("from another copy") && error.contains("-recover"), "{error}");
        let [first, second] = FILES.map(|name| place.path().join(name));
        let kept = std::fs::read(&second).unwrap();
        std::fs::copy(&first, &second).unwrap();
        assert!(problem(open(place.path(), 0)).contains("it is a copy of"));
        std::fs::write(&second, head(Mark(7), 1)).unwrap();
        assert!(problem(open(place.path(), 0)).contains("from another copy"));
        std::fs::write(&second, kept).unwrap();
        // The tables may be ahead of the record: a start was interrupted that had put the journal's rest there.
        assert!(read(place.path(), &MARKS, 2).unwrap().run.is_empty());
        assert_eq!(ids(&open(place.path(), 0).unwrap().1), [1]);
    }

    #[test]
    fn a_gap_is_damage() {
        let place = tempfile::tempdir().unwrap();
        let (mut journal, _) = open(place.path(), 0).unwrap();
        journal.append(&mut group(&[put(1)])).unwrap();
        let second = journal.position;
        journal.append(&mut group(&[put(2)])).unwrap();
        journal.switch().unwrap();
        journal.append(&mut group(&[put(3)])).unwrap();
        drop(journal);
        let path = place.path().join(FILES[0]);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[second as usize + 40] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        let Err(StoreError::Damaged { path: named, problem }) = open(place.path(), 0) else { panic!("a gap") };
        assert_eq!(named, path);
        assert!(problem.contains("there is group 3 in") && problem.contains(&format!("at byte {second}")), "{problem}");
    }
}
