//! Progress file of the journal.
//!
//! A journal that lost its end looks like one whose last group was never completed. This file distinguishes the two: it
//! has the number of the last synced group and the lengths of the journal's files. It is written after each sync of the
//! journal. The file itself is synced less often: when a journal file has grown, and before the tables get ahead of it.
//! If the process is killed, nothing is lost. After a power failure it may be a few seconds old, and is then a lower
//! bound.
//!
//! ```text
//! file    two slots of 512 bytes, written alternately: a torn write leaves the other slot intact
//! slot    magic (8 bytes), mark (8), sequence (8), number of the last group (8), lengths of the journal's files
//!         (8 each), CRC32C of these (4)
//! ```

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use hearth_types::crc32c;

use super::journal::Mark;
use super::{StoreError, io};

pub const FILE: &str = "journal.last";
const MAGIC: [u8; 8] = *b"HJrnLast";
const SLOT: usize = 512;
/// Size in bytes of a slot's fields, without the checksum.
const BODY: usize = 48;

/// Content of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Number of a group that is durable, together with all earlier groups.
    pub number: u64,
    /// Minimum lengths of the journal's files in bytes.
    pub lengths: [u64; 2],
}

/// The progress file, open for writing.
pub struct ProgressFile {
    file: File,
    path: PathBuf,
    mark: Mark,
    sequence: u64,
}

/// Reason why the file has no usable progress.
#[derive(Debug)]
pub enum ProgressError {
    Missing,
    /// The file is empty, truncated or overwritten.
    Damaged(&'static str),
    /// The content belongs to another copy or to an earlier start.
    Foreign,
    System(std::io::Error),
}

/// Reads the newest progress under this mark.
pub fn read(path: &Path, mark: Mark) -> Result<Progress, ProgressError> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(ProgressError::Missing),
        Err(error) => return Err(ProgressError::System(error)),
    };
    if bytes.is_empty() {
        return Err(ProgressError::Damaged("it is empty"));
    }
    if bytes.len() < 2 * SLOT {
        return Err(ProgressError::Damaged("it is truncated"));
    }
    let slots: Vec<_> = bytes.chunks_exact(SLOT).take(2).filter_map(slot).collect();
    if slots.is_empty() {
        return Err(ProgressError::Damaged("it has nothing that the NameNode wrote"));
    }
    let ours = slots.into_iter().filter(|(of, ..)| *of == mark);
    ours.max_by_key(|(_, sequence, _)| *sequence).map(|(.., said)| said).ok_or(ProgressError::Foreign)
}

fn slot(bytes: &[u8]) -> Option<(Mark, u64, Progress)> {
    let (body, rest) = bytes.split_at_checked(BODY)?;
    let sum = u32::from_le_bytes(*rest.first_chunk()?);
    if !body.starts_with(&MAGIC) || crc32c(body) != sum {
        return None;
    }
    let long = |at: usize| u64::from_le_bytes(body[at..at + 8].try_into().expect("eight bytes of the slot"));
    Some((Mark(long(8)), long(16), Progress { number: long(24), lengths: [long(32), long(40)] }))
}

impl ProgressFile {
    /// Starts the file for a new mark. Its content is durable on return, its name after the directory is synced.
    pub fn begin(directory: &Path, mark: Mark, said: Progress) -> Result<Self, StoreError> {
        let path = directory.join(FILE);
        let file = OpenOptions::new().create(true).read(true).write(true).truncate(false).open(&path);
        let file = file.map_err(io("opening", &path))?;
        let mut last = Self { file, path, mark, sequence: 0 };
        // Both slots are written, so that nothing of an earlier mark remains.
        last.record(said)?;
        last.record(said)?;
        last.file.set_len(2 * SLOT as u64).map_err(io("writing", &last.path))?;
        last.sync()?;
        Ok(last)
    }

    /// Records what is durable. It costs one write into the page cache.
    pub fn record(&mut self, said: Progress) -> Result<(), StoreError> {
        self.sequence += 1;
        let mut slot = [0; SLOT];
        slot[..8].copy_from_slice(&MAGIC);
        let numbers = [self.mark.0, self.sequence, said.number, said.lengths[0], said.lengths[1]];
        for (place, number) in slot[8..BODY].chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        let sum = crc32c(&slot[..BODY]);
        slot[BODY..BODY + 4].copy_from_slice(&sum.to_le_bytes());
        let place = self.sequence % 2 * SLOT as u64;
        self.file.write_all_at(&slot, place).map_err(io("writing", &self.path))
    }

    /// Makes the recorded progress durable.
    pub fn sync(&self) -> Result<(), StoreError> {
        self.file.sync_data().map_err(io("syncing", &self.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARK: Mark = Mark(5);

    #[test]
    fn torn_slot_leaves_previous_one() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join(FILE);
        let said = |number| Progress { number, lengths: [number * 2, 9] };
        let mut last = ProgressFile::begin(place.path(), MARK, said(1)).unwrap();
        for number in 2..5 {
            last.record(said(number)).unwrap();
            assert_eq!(read(&path, MARK).unwrap(), said(number));
        }
        let whole = std::fs::read(&path).unwrap();
        assert_eq!(whole.len(), 2 * SLOT);
        let newest = last.sequence as usize % 2 * SLOT;
        for wrong in newest..newest + BODY {
            let mut bytes = whole.clone();
            bytes[wrong] ^= 1;
            std::fs::write(&path, &bytes).unwrap();
            assert_eq!(read(&path, MARK).unwrap(), said(3), "byte {wrong}");
        }
        // A new start replaces both slots.
        std::fs::write(&path, &whole).unwrap();
        assert!(matches!(read(&path, Mark(6)), Err(ProgressError::Foreign)));
        ProgressFile::begin(place.path(), Mark(6), said(7)).unwrap();
        assert_eq!(read(&path, Mark(6)).unwrap(), said(7));
        assert!(matches!(read(&path, MARK), Err(ProgressError::Foreign)));
    }

    #[test]
    fn unusable_progress_files_are_distinguished() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join(FILE);
        assert!(matches!(read(&path, MARK), Err(ProgressError::Missing)));
        for bytes in [&[][..], &[7; 100], &[7; 2 * SLOT]] {
            std::fs::write(&path, bytes).unwrap();
            assert!(matches!(read(&path, MARK), Err(ProgressError::Damaged(_))), "{} bytes", bytes.len());
        }
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(matches!(read(&path, MARK), Err(ProgressError::System(_))));
    }
}
