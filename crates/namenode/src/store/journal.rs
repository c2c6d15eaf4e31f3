//! Journal of acknowledged changes that are not in the tables yet.
//!
//! The journal has two files that alternate. Groups of changes are appended to the current file, and each is synced
//! before its operations are answered. When the file is full, the journal switches to the other file and overwrites it
//! from the start: by then the groups of that file are in the tables. Files are not truncated for that: groups left
//! from an earlier turn have lower numbers. In its first turn a file is extended with zeros, with room for many groups
//! at a time. So nearly every sync writes only data, and no metadata of the file system.
//!
//! ```text
//! file    head (4096 bytes) group* (zeros, or groups left from an earlier turn)
//! head    magic (8 bytes), mark (8), index of the file (4), CRC32C of these (4), zeros
//! group   mark (8 bytes), CRC32C of the rest (4), number (8), number of operations (4), length of the changes (8),
//!         changes
//! before there were heads (layout 3):
//! file    group* (zeros, or groups left from an earlier turn)
//! before there were marks (layout 2):
//! group   magic (4), length of the changes (4), CRC32C of the rest (4), number (8), number of operations (4), changes
//! ```
//! Numbers are little-endian. Group numbers rise by one from group to group, through both files. The tables store the
//! number of the last group that they have. An incomplete group is the last that was started; its operations were not
//! answered. If a later group is complete, the disk has lost acknowledged changes, and the journal is refused. It is
//! also refused if it ends before the group that `journal_progress.rs` names, or if a file is missing, shorter than
//! before, or has another mark than the tables. Each start gives both files a new mark.
//!
//! Changes contain bytes chosen by users, such as values of extended attributes. These may be found wherever a group is
//! searched for: inside a torn group, or left from an earlier turn after the last group. They cannot pass for a group,
//! because only the store knows its mark.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use hearth_types::crc32c;

use super::encoding::EncodingError;
use super::group::{Group, HEADER};
use super::journal_progress::{self, Progress, ProgressError, ProgressFile};
use super::{StoreError, io};

pub const FILES: [&str; 2] = ["journal.0", "journal.1"];
/// Size of the head in bytes, before the first group of a file.
const HEAD: usize = 4096;
const HEAD_MAGIC: [u8; 8] = *b"HJrnHead";
/// First bytes of a group without a mark.
const MAGIC: [u8; 4] = *b"HJnl";
/// Size in bytes of the header of a group without a mark.
const HEADER_UNMARKED: usize = 24;
/// End of the checksum field. The checksum covers everything after it.
const CHECKSUM_END: usize = 12;

/// Extra bytes by which a file is extended when it is too short for a group.
const GROWTH: usize = 1 << 20;

/// Bytes that a file keeps in addition to the length at which it is full. Few groups are longer than this.
const FILE_SLACK: u64 = 16 << 20;

/// Random number at the start of each group and in the head of each file. Each start chooses a new one, and only
/// readers of the directory know it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Mark(pub u64);

impl Mark {
    pub fn random() -> std::io::Result<Self> {
        let mut bytes = [0; 8];
        getrandom::fill(&mut bytes).map_err(|error| std::io::Error::other(error.to_string()))?;
        Ok(Self(u64::from_le_bytes(bytes)))
    }
}

/// Expected state of the journal according to the tables and VERSION.
#[derive(Clone, Copy)]
pub struct Marks {
    /// Mark of files with a head.
    pub mark: Option<Mark>,
    /// Mark of groups in files without a head; `None` if those groups have no mark.
    pub headless: Option<Mark>,
    pub heads: Heads,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Heads {
    /// Layout 4: both files have a head with the tables' mark.
    Required,
    /// A start was interrupted after it gave the tables a new mark, and perhaps before the files had it. All groups
    /// with the previous mark are in the tables.
    BeingWritten,
    /// Layout 3 and before: no file has a head.
    None,
    /// The layout in VERSION is older than the tables. Either an earlier version may have written since, or the VERSION
    /// file is outdated.
    Mixed,
}

/// A journal open for writing.
pub struct Journal {
    mark: Mark,
    files: [File; 2],
    paths: [PathBuf; 2],
    progress: ProgressFile,
    /// Index of the file that is being written.
    current: usize,
    position: u64,
    /// Lengths of the files.
    lengths: [u64; 2],
    /// Number of the last group.
    number: u64,
    /// Length in bytes at which a file is full.
    file_bytes: u64,
}

/// Groups that the tables do not have.
pub struct Unapplied {
    pub run: Vec<Group>,
    /// Number of the last group.
    pub number: u64,
}

/// The usable part of a damaged journal.
pub struct Salvaged {
    /// Groups that follow the tables without a gap.
    pub unapplied: Unapplied,
    /// Highest group number that is known to have existed.
    pub known: u64,
    /// Descriptions of the problems.
    pub problems: Vec<String>,
}

/// Reads the groups that the tables do not have. `applied` is the number of the last group that they have.
///
/// Errors: `Missing` and `Damaged` if acknowledged changes are missing, or may be.
pub fn read(directory: &Path, marks: &Marks, applied: u64) -> Result<Unapplied, StoreError> {
    let paths = FILES.map(|name| directory.join(name));
    let contents = [content(&paths[0])?, content(&paths[1])?];
    let said = read_progress(directory, marks)?;
    let mut groups = Vec::new();
    // For each file: the place where reading stopped, and a complete newer group after that place, if any.
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
            // The missing group was in the file that ends just before it. If neither does, it was in the file without
            // the later group.
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

/// Like [`read`], for a journal that `read` refuses: returns all groups that can be used.
///
/// Errors: system errors only.
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
                        "{}: at byte {} there is no complete group, but {later}",
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

/// Formats a problem without the advice, which is meant for starting the NameNode.
fn problem_of(error: StoreError) -> String {
    match error {
        StoreError::Missing { path, lost } => format!("{} is missing: {lost}", path.display()),
        StoreError::Damaged { path, problem } => format!("{}: {problem}", path.display()),
        other => other.to_string(),
    }
}

/// Reads a whole file. `None` if it does not exist.
fn content(path: &Path) -> Result<Option<Vec<u8>>, StoreError> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io("reading", path)(error)),
    }
}

/// Reads the progress file of a journal with heads. It may be behind the tables: after a power failure, a start adds to
/// the tables what the progress file does not record yet.
fn read_progress(directory: &Path, marks: &Marks) -> Result<Option<Progress>, StoreError> {
    let (Heads::Required, Some(mark)) = (marks.heads, marks.mark) else { return Ok(None) };
    let path = directory.join(journal_progress::FILE);
    let damaged = |problem: &str| StoreError::Damaged { path: path.clone(), problem: problem.to_owned() };
    match journal_progress::read(&path, mark) {
        Ok(said) => Ok(Some(said)),
        Err(ProgressError::Missing) => {
            let lost = "it records the journal's progress; without it a lost end of the journal would go unnoticed";
            Err(StoreError::Missing { path, lost })
        }
        Err(ProgressError::Damaged(problem)) => Err(damaged(problem)),
        Err(ProgressError::Foreign) => Err(damaged(FOREIGN)),
        Err(ProgressError::System(error)) => Err(io("reading", &path)(error)),
    }
}

const FOREIGN: &str = "it is from another copy of the directory, or from before the NameNode's last start, and does not match \
                       namespace.redb";

/// Checks that a missing journal file was never written. That is only possible in an earlier layout that was never
/// started.
fn check_never_written(path: &Path, marks: &Marks, applied: u64, other: &[u8]) -> Result<(), StoreError> {
    let is_unused = || read_groups(other, 0, marks.headless, applied).is_ok_and(|found| found.end.last.is_none());
    if marks.heads == Heads::None && applied == 0 && is_unused() {
        return Ok(());
    }
    Err(StoreError::Missing {
        path: path.to_owned(),
        lost: "it may have held acknowledged changes that exist nowhere else",
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
    let senseless = |error: EncodingError| wrong(format!("a group with a valid checksum cannot be decoded: {error}"));
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
            Err(wrong(format!("it is truncated: {} bytes are left", bytes.len())))
        }
        (Heads::Required, None) => Err(wrong(
            "it does not begin as a journal does: it is a different file, or its beginning is lost".to_owned(),
        )),
        (Heads::Required | Heads::Mixed, Some(_)) => Err(wrong(FOREIGN.to_owned())),
        (Heads::BeingWritten, _) => {
            // The head belongs to an earlier start. Groups that the tables lack come from another copy.
            let found = read_groups(bytes, 0, marks.headless, applied).map_err(senseless)?;
            if !found.groups.is_empty() || found.end.later.is_some() {
                return Err(wrong(
                    "it has changes that namespace.redb does not have: one of the two is from another copy".to_owned(),
                ));
            }
            Ok(FileContents { groups: Vec::new(), end: GroupsEnd::default() })
        }
        (Heads::None | Heads::Mixed, None) => {
            let found = read_groups(bytes, 0, marks.headless, applied).map_err(senseless)?;
            // If one of this store's groups follows, the file is damaged, not foreign.
            if found.end.last.is_none() && found.end.later.is_none() && is_of_another_store(bytes, marks.headless) {
                return Err(wrong(FOREIGN.to_owned()));
            }
            Ok(found)
        }
    }
}

/// Creates the files of the journal that are missing.
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
    /// Starts both files with a new mark. The tables must have all of the files' groups, up to `number`, and the mark.
    /// `file_bytes` is the length at which a file is full. The groups of a file also stay in memory until they are in
    /// the tables.
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
        let files = <[File; 2]>::try_from(files).expect("one file per path");
        let progress = ProgressFile::begin(directory, mark, Progress { number, lengths })?;
        sync_directory(directory)?;
        Ok(Self { mark, files, paths, progress, current: 0, position: HEAD as u64, lengths, number, file_bytes })
    }

    /// Returns the number of the last group.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Makes the changes of a non-empty group durable. After an error nothing more may be appended, because the state
    /// of the disk is unknown.
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
            // Zeros are written, because a hole would be filled block by block during later syncs. If the zeros do not
            // fit, the group still may.
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

    /// Makes the recorded progress durable. It must be durable before the tables get ahead of it.
    pub fn sync_progress(&self) -> Result<(), StoreError> {
        self.progress.sync()
    }

    pub fn is_full(&self) -> bool {
        self.position >= self.file_bytes
    }

    /// Continues with the other file, from its beginning. All of its groups must be in the tables.
    pub fn switch(&mut self) -> Result<(), StoreError> {
        self.current = 1 - self.current;
        self.position = HEAD as u64;
        // One operation on a large tree may have made the file gigabytes long, and every start reads the whole file.
        let longest = self.file_bytes.saturating_add(FILE_SLACK);
        if self.lengths[self.current] > longest {
            // The new length is recorded first: a file that is shorter than its recorded length is refused.
            self.lengths[self.current] = longest;
            self.record_progress()?;
            self.sync_progress()?;
            // A file that stays longer does no harm.
            if let Err(error) = self.files[self.current].set_len(longest) {
                tracing::warn!(path = %self.paths[self.current].display(), %error, "cannot truncate a journal file");
            }
        }
        Ok(())
    }
}

/// Returns the head of a file.
fn head(mark: Mark, index: u32) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    head[..8].copy_from_slice(&HEAD_MAGIC);
    head[8..16].copy_from_slice(&mark.0.to_le_bytes());
    head[16..20].copy_from_slice(&index.to_le_bytes());
    let sum = crc32c(&head[..20]);
    head[20..24].copy_from_slice(&sum.to_le_bytes());
    head
}

/// Reads the mark and the index of a file. `None` if it has no head.
fn read_head(bytes: &[u8]) -> Option<(Mark, u32)> {
    let head = bytes.first_chunk::<HEAD>()?;
    let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes of the head"));
    if !head.starts_with(&HEAD_MAGIC) || crc32c(&head[..20]) != word(20) {
        return None;
    }
    Some((Mark(u64::from_le_bytes(head[8..16].try_into().expect("eight bytes of the head"))), word(16)))
}

/// Fills in the header of a group. The group has space for it.
fn seal(group: &mut [u8], mark: Mark, number: u64, operations: u32) {
    let length = (group.len() - HEADER) as u64;
    group[0..8].copy_from_slice(&mark.0.to_le_bytes());
    group[12..20].copy_from_slice(&number.to_le_bytes());
    group[20..24].copy_from_slice(&operations.to_le_bytes());
    group[24..32].copy_from_slice(&length.to_le_bytes());
    let sum = crc32c(&group[CHECKSUM_END..]);
    group[8..12].copy_from_slice(&sum.to_le_bytes());
}

/// Returns the error for lost acknowledged changes. An operator has to confirm that the NameNode may continue without
/// them.
fn damaged(path: &Path, offset: u64, found: &str, missing: u64) -> StoreError {
    let problem = format!(
        "at byte {offset} there is no complete group, but {found}. Changes from group {missing} of the journal on were acknowledged \
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
    format!("it is truncated: {length} of {was} bytes are left, and the rest may have held acknowledged changes")
}

/// Groups read from one file.
struct FileContents {
    /// Groups after the applied one, with their numbers.
    groups: Vec<(u64, Group)>,
    end: GroupsEnd,
}

/// End of the groups of a file, and the result of the search after it.
#[derive(Clone, Copy, Default)]
struct GroupsEnd {
    offset: u64,
    /// Number of the last group before the end.
    last: Option<u64>,
    /// A newer group after the end, which is not left from an earlier turn.
    later: Option<LaterGroup>,
}

#[derive(Clone, Copy)]
enum LaterGroup {
    Group {
        number: u64,
        offset: u64,
    },
    /// Too many places look like groups, so the search was stopped.
    Unknown,
}

impl LaterGroup {
    /// Returns the group's number; 0 if it is unknown.
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
            Self::Group { number, offset } => write!(f, "group {number} at byte {offset} is complete"),
            Self::Unknown => f.write_str("too many places after it look like groups to rule one out"),
        }
    }
}

/// Parsed header of a group that fits in the file.
struct Header {
    number: u64,
    operations: u32,
    checksum: u32,
    /// Offset of the changes.
    changes: usize,
    /// Length of header and changes.
    length: usize,
}

/// Parses the header of a group at the start of `bytes`, if there can be one.
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

/// Returns whether a file without groups begins with bytes that no file of this store has. An unused file of this store
/// begins with zeros, and one last written before groups had marks begins with [`MAGIC`].
fn is_of_another_store(bytes: &[u8], mark: Option<Mark>) -> bool {
    bytes.first_chunk::<8>().is_some_and(|first| {
        let is_ours = mark.is_some_and(|mark| u64::from_le_bytes(*first) == mark.0);
        !is_ours && *first != [0; 8] && !first.starts_with(&MAGIC)
    })
}

/// Reads the groups of one file from byte `from`, and returns those after group `applied`. The last turn ended at the
/// first group that is incomplete or not in sequence.
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
    // Groups left from earlier turns are in the tables.
    let newest = before.map_or(applied, |before| before.max(applied));
    Ok(FileContents {
        groups,
        end: GroupsEnd { offset: at as u64, last: before, later: find_later(bytes, mark, at, newest) },
    })
}

/// Upper limit for the number of groups that the tables do not have, for two files of any realistic length. Data that
/// only looks like a header most likely has a number outside this range.
const GROUPS_MAX: u64 = u32::MAX as u64;

/// Limit on checksum computation, as a multiple of the searched bytes.
const SUMS_MAX: usize = 8;

/// Searches byte by byte after `from` for a complete group with a number above `newest`, because the length of a
/// damaged group is unknown. Without a mark the changes may contain anything, so the amount of data to checksum is
/// limited.
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

/// Returns the first offset where a group may start.
fn next_group_start(bytes: &[u8], mark: Option<Mark>) -> Option<usize> {
    match mark {
        Some(mark) => position(bytes, mark.0.to_le_bytes()),
        None => position(bytes, MAGIC),
    }
}

/// The pattern length is a compile-time constant for speed: a whole journal is searched at every start.
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

    /// Opens the journal as a start does, but keeps the mark.
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

    /// Returns the content of `journal.last`. After a power failure it may have older content.
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

    /// Encodes a group in the form of layout 2.
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
    fn read_returns_only_unapplied_groups() {
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
    fn groups_of_earlier_turn_are_ignored() {
        let place = tempfile::tempdir().unwrap();
        let (mut journal, _) = open(place.path(), 0).unwrap();
        for id in 1..=10 {
            journal.append(&mut group(&[put(id)])).unwrap();
        }
        journal.switch().unwrap();
        journal.append(&mut group(&[put(11)])).unwrap();
        journal.switch().unwrap();
        // Groups of equal length: after the second one there is a complete group of the first turn.
        journal.append(&mut group(&[put(12)])).unwrap();
        journal.append(&mut group(&[put(13)])).unwrap();
        drop(journal);
        assert_eq!(ids(&open(place.path(), 10).unwrap().1), [11, 12, 13]);
    }

    #[test]
    fn file_grows_by_zeros_for_many_groups() {
        let place = tempfile::tempdir().unwrap();
        let (mut journal, _) = open(place.path(), 0).unwrap();
        let length = || std::fs::metadata(place.path().join(FILES[0])).unwrap().len();
        journal.append(&mut group(&[put(1)])).unwrap();
        let first = length();
        assert_eq!(first, journal.position + GROWTH as u64);
        let mut id = 1;
        while length() == first {
            id += 1;
            assert!(journal.position <= first, "data was written beyond the file's end");
            journal.append(&mut group(&[put(id)])).unwrap();
        }
        assert!(id > 1000, "the file grew after {id} groups");
        assert_eq!(length(), journal.position + GROWTH as u64);
        drop(journal);
        // After reopening, it keeps its length: from its beginning, and beyond its capacity.
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
    fn torn_last_group_is_ignored() {
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
            // The group was synced, and that is recorded: so it is not a torn end.
            power_failure(place.path(), &said);
            assert_eq!(ids(&read(place.path(), &MARKS, 0).unwrap()), [1], "{torn} of {length} bytes");
        }
        for wrong in whole..length {
            let mut bytes = bytes.clone();
            bytes[wrong as usize] ^= 1;
            std::fs::write(&path, &bytes).unwrap();
            assert_eq!(ids(&read(place.path(), &MARKS, 0).unwrap()), [1], "byte {wrong} of {length}");
        }
        // The lost number is assigned again, and that group is found.
        let (mut journal, unapplied) = open(place.path(), 0).unwrap();
        assert_eq!(unapplied.number, 1);
        journal.append(&mut group(&[put(22)])).unwrap();
        assert_eq!(ids(&open(place.path(), 1).unwrap().1), [22]);
    }

    #[test]
    fn lost_end_is_distinguished_from_torn_end() {
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
            // The file system has lost the group, but kept the file's length.
            let mut zeroed = bytes.clone();
            zeroed[*end as usize..].fill(0);
            std::fs::write(&path, &zeroed).unwrap();
            let said = problem(open(place.path(), 0));
            assert!(
                said.contains(&format!("Changes from group {} of", lost + 1))
                    && said.contains("group 3 was acknowledged"),
                "{said}"
            );
            // Or the file is truncated, at several places.
            for length in [*end, *end + 1, *end + 100] {
                std::fs::write(&path, &bytes[..length as usize]).unwrap();
                let said = problem(open(place.path(), 0));
                assert!(said.contains("it is truncated") && said.contains("hearth namenode -recover"), "{said}");
            }
        }
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(ids(&open(place.path(), 0).unwrap().1), [1, 2, 3]);
    }

    #[test]
    fn truncation_is_detected_after_power_failure() {
        let place = tempfile::tempdir().unwrap();
        let (mut journal, _) = open(place.path(), 0).unwrap();
        journal.append(&mut group(&[put(1)])).unwrap();
        // Progress that is synced when a file grows survives any failure.
        let said = said_in(place.path());
        journal.append(&mut group(&[put(2)])).unwrap();
        drop(journal);
        power_failure(place.path(), &said);
        let path = place.path().join(FILES[0]);
        let length = std::fs::metadata(&path).unwrap().len();
        File::options().write(true).open(&path).unwrap().set_len(length - 1).unwrap();
        assert!(problem(open(place.path(), 0)).contains("it is truncated"));
    }

    #[test]
    fn usable_groups_are_salvaged() {
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
    fn complete_group_after_damage_is_reported() {
        let place = tempfile::tempdir().unwrap();
        let (mut journal, _) = open(place.path(), 0).unwrap();
        // Groups left from an earlier turn are not mistaken for it.
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
                panic!("byte {wrong} is wrong, and group 13 was dropped silently");
            };
            assert_eq!(named, path);
            assert!(
                problem.starts_with(&format!("at byte {second} there is no complete group, but group 13 at byte {third} is complete. Changes from group 12 of")),
                "{problem}"
            );
            // None of it was needed.
            assert!(ids(&read(place.path(), &MARKS, 13).unwrap()).is_empty());
        }
        // The file of the last turn cannot be read from its beginning.
        damage(HEAD as u64);
        let refused = problem(open(place.path(), 9));
        assert!(
            refused.contains(&format!("at byte {HEAD} there is no complete group, but group 12 at byte")),
            "{refused}"
        );
        damage(0);
        assert!(problem(open(place.path(), 9)).contains("it does not begin as a journal does"));
    }

    #[test]
    fn user_bytes_in_torn_group_are_ignored() {
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
    fn user_bytes_of_earlier_turn_are_ignored() {
        for forged in forged(3) {
            let place = tempfile::tempdir().unwrap();
            let (mut journal, _) = open(place.path(), 0).unwrap();
            // Preceded by as many bytes as the record of `put` has.
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
    fn unmarked_groups_are_read_before_marked_ones() {
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
    fn files_without_head_are_read() {
        let place = tempfile::tempdir().unwrap();
        let marks = Marks { mark: Some(MARK), headless: Some(MARK), heads: Heads::None };
        let paths = FILES.map(|name| place.path().join(name));
        // Formatted and never started: the files do not exist.
        assert_eq!(read(place.path(), &marks, 0).unwrap().number, 0);
        let missing = |applied| matches!(read(place.path(), &marks, applied), Err(StoreError::Missing { .. }));
        assert!(missing(1));
        std::fs::write(&paths[0], marked(MARK, 1, &[put(1)])).unwrap();
        assert!(missing(0), "both files were created together");
        std::fs::write(&paths[1], []).unwrap();
        assert_eq!(ids(&read(place.path(), &marks, 0).unwrap()), [1]);
        std::fs::write(&paths[1], marked(Mark(7), 2, &[put(2)])).unwrap();
        assert!(matches!(read(place.path(), &marks, 0), Err(StoreError::Damaged { .. })), "it is from another copy");
        // An earlier version wrote into a directory of this version.
        let mixed = Marks { heads: Heads::Mixed, ..marks };
        std::fs::write(&paths[1], marked(MARK, 2, &[put(2)])).unwrap();
        assert_eq!(ids(&read(place.path(), &mixed, 0).unwrap()), [1, 2]);
    }

    #[test]
    fn interrupted_start_accepts_either_mark() {
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
        // With the previous head and a group that the tables lack, the start was not interrupted at that point.
        head_of(0, MARK);
        assert!(matches!(read(place.path(), &marks, 0), Err(StoreError::Damaged { .. })));
        std::fs::remove_file(place.path().join(FILES[1])).unwrap();
        assert!(matches!(read(place.path(), &marks, 1), Err(StoreError::Missing { .. })));
    }

    #[test]
    fn group_longer_than_4_gib_is_parsed() {
        // Zeros that are only read take no memory.
        let mut bytes = vec![0u8; HEADER + (4usize << 30) + 7];
        seal(&mut bytes, MARK, 5, 1);
        let found = header(&bytes, Some(MARK)).unwrap();
        assert_eq!((found.length, found.number, found.operations), (bytes.len(), 5, 1));
        assert!(header(&bytes[..bytes.len() - 1], Some(MARK)).is_none(), "the end of the group is missing");
        // A damaged length causes no allocation.
        bytes[24..32].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(header(&bytes, Some(MARK)).is_none());
    }

    #[test]
    fn oversized_file_is_truncated_on_reuse() {
        let place = tempfile::tempdir().unwrap();
        let file_bytes = 1000;
        let (mut journal, _) = open_with(place.path(), 0, file_bytes).unwrap();
        let length = || std::fs::metadata(place.path().join(FILES[0])).unwrap().len();
        let long = Changes { inodes_put: vec![(1, vec![5; 20 << 20])], ..Changes::default() };
        journal.append(&mut group(&[long])).unwrap();
        journal.switch().unwrap();
        journal.append(&mut group(&[put(2)])).unwrap();
        assert!(length() > file_bytes + FILE_SLACK, "a group that may be missing in the tables was truncated");
        journal.switch().unwrap();
        assert_eq!(length(), file_bytes + FILE_SLACK);
        journal.append(&mut group(&[put(3)])).unwrap();
        drop(journal);
        assert_eq!(ids(&open(place.path(), 1).unwrap().1), [2, 3]);
    }

    #[test]
    fn search_for_later_group_is_bounded() {
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
        // With a known mark they do not look like groups.
        assert!(find_later(&fakes, Some(MARK), 0, 1).is_none());
        // The other file may have any number of groups before it.
        let found = find_later(&[vec![7; 5], unmarked(5_000_000, &[put(1)])].concat(), None, 0, 1);
        assert!(matches!(found, Some(LaterGroup::Group { number: 5_000_000, offset: 5 })));
        let found = find_later(&[vec![7; 5], marked(MARK, 5_000_000, &[put(1)])].concat(), Some(MARK), 0, 1);
        assert!(matches!(found, Some(LaterGroup::Group { number: 5_000_000, offset: 5 })));
        // Numbers that are impossible, or that the tables have, are skipped.
        assert!(find_later(&fakes, None, 0, 7).is_none());
        let far: Vec<u8> = (0..count).flat_map(|at| header(length(at), u64::MAX)).collect();
        assert!(find_later(&far, None, 0, 1).is_none());
    }

    #[test]
    fn mismatched_files_are_refused_by_name() {
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
        // The tables may be ahead of the progress file: an interrupted start had already applied the remaining journal.
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
