//! Checksum files of local files: `.NAME.crc` beside `NAME`, as Hadoop's local file system writes and checks them.
//!
//! The file begins with `crc` and a zero byte, then the number of bytes per checksum, then one CRC-32 for each chunk.
//! Numbers are big-endian. Source: ChecksumFileSystem.java.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use hearth_types::ChecksumKind;

use super::store::Input;

const MAGIC: &[u8; 4] = b"crc\0";
/// `file.bytes-per-checksum`
const CHUNK_BYTES: usize = 512;
/// Longest chunk that a checksum file may ask for. It bounds a reader's buffer.
const CHUNK_BYTES_MAX: usize = 1 << 20;
/// Size of one read from a file whose chunks are shorter than this.
const READ_BYTES: usize = 256 << 10;

/// Returns the path of the checksum file of the file at `path`.
pub fn checksum_path(path: &Path) -> Option<PathBuf> {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name()?);
    name.push(".crc");
    Some(path.with_file_name(name))
}

/// Returns whether `name` is that of a checksum file, which listings omit.
pub fn is_checksum_file(name: &[u8]) -> bool {
    name.starts_with(b".") && name.ends_with(b".crc")
}

/// Removes the checksum file of the file at `path`, if it exists.
pub fn remove(path: &Path) -> io::Result<()> {
    match checksum_path(path).map(fs::remove_file) {
        Some(Err(error)) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Renames the checksum file together with its file. If the source has none, the target's is removed.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    let (Some(from), Some(of_target)) = (checksum_path(from), checksum_path(to)) else { return Ok(()) };
    match fs::rename(from, of_target) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => remove(to),
        outcome => outcome,
    }
}

/// Writer of a checksum file, for a file that is written from its start.
pub struct ChecksumWriter {
    out: BufWriter<File>,
    /// The current, incomplete chunk.
    chunk: Vec<u8>,
}

impl ChecksumWriter {
    pub fn create(path: &Path) -> io::Result<Self> {
        let sums = checksum_path(path).ok_or(io::ErrorKind::InvalidInput)?;
        let mut out = BufWriter::new(File::create(sums)?);
        out.write_all(MAGIC)?;
        out.write_all(&(CHUNK_BYTES as u32).to_be_bytes())?;
        Ok(Self { out, chunk: Vec::with_capacity(CHUNK_BYTES) })
    }

    pub fn add(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(CHUNK_BYTES - self.chunk.len()));
            self.chunk.extend_from_slice(now);
            bytes = later;
            if self.chunk.len() == CHUNK_BYTES {
                self.end_chunk()?;
            }
        }
        Ok(())
    }

    fn end_chunk(&mut self) -> io::Result<()> {
        let sum = ChecksumKind::Crc32.of(&self.chunk);
        self.chunk.clear();
        self.out.write_all(&sum.to_be_bytes())
    }

    pub fn finish(mut self) -> io::Result<()> {
        if !self.chunk.is_empty() {
            self.end_chunk()?;
        }
        self.out.flush()
    }
}

/// A local file whose bytes are verified against its checksum file.
struct VerifiedInput {
    file: File,
    sums: File,
    chunk_bytes: usize,
    shown: String,
    /// Verified bytes. Those from `start` on are not yet consumed.
    buffer: Vec<u8>,
    start: usize,
    /// File offset of the end of `buffer`: a multiple of the chunk, except at the file's end.
    position: u64,
}

/// Bytes that do not match the checksum file.
#[derive(Debug)]
pub struct BadChecksum(String);

impl BadChecksum {
    fn error(what: String) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, Self(what))
    }
}

impl std::fmt::Display for BadChecksum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Checksum error: {}", self.0)
    }
}

impl std::error::Error for BadChecksum {}

/// Opens a local file for reading. Its bytes are verified if `verify` is set and it has a checksum file. A malformed
/// checksum file is ignored, as Hadoop does.
pub fn open(path: &str, verify: bool) -> io::Result<Box<dyn Input>> {
    let file = File::open(path)?;
    let sums = checksum_path(Path::new(path)).filter(|_| verify).and_then(|sums| File::open(sums).ok());
    let Some(mut sums) = sums else { return Ok(Box::new(file)) };
    let mut head = [0; 8];
    if sums.read_exact(&mut head).is_err() || !head.starts_with(MAGIC) {
        return Ok(Box::new(file));
    }
    let chunk_bytes = u32::from_be_bytes([head[4], head[5], head[6], head[7]]) as usize;
    if !(1..=CHUNK_BYTES_MAX).contains(&chunk_bytes) {
        return Ok(Box::new(file));
    }
    let shown = path.to_owned();
    Ok(Box::new(VerifiedInput { file, sums, chunk_bytes, shown, buffer: Vec::new(), start: 0, position: 0 }))
}

impl VerifiedInput {
    /// Reads and verifies the next chunks into `buffer`, which must be consumed.
    fn fill(&mut self) -> io::Result<()> {
        let chunks = (READ_BYTES / self.chunk_bytes).max(1);
        self.buffer.clear();
        self.start = 0;
        let read = (&mut self.file).take((chunks * self.chunk_bytes) as u64).read_to_end(&mut self.buffer)?;
        let mut sums = Vec::new();
        let wanted = read.div_ceil(self.chunk_bytes) * 4;
        (&mut self.sums).take(wanted as u64).read_to_end(&mut sums)?;
        let mut stored = sums.chunks_exact(4);
        for (nth, chunk) in self.buffer.chunks(self.chunk_bytes).enumerate() {
            let at = self.position + (nth * self.chunk_bytes) as u64;
            let Some(stored) = stored.next() else {
                let what = format!("file:{} at {at}: its checksum file is too short", self.shown);
                return Err(BadChecksum::error(what));
            };
            let wanted = i32::from_be_bytes([stored[0], stored[1], stored[2], stored[3]]);
            let found = ChecksumKind::Crc32.of(chunk) as i32;
            if wanted != found {
                let what = format!("file:{} at {at} exp: {wanted} got: {found}", self.shown);
                return Err(BadChecksum::error(what));
            }
        }
        self.position += read as u64;
        Ok(())
    }
}

impl Read for VerifiedInput {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.start == self.buffer.len() {
            self.fill()?;
        }
        let count = (self.buffer.len() - self.start).min(into.len());
        into[..count].copy_from_slice(&self.buffer[self.start..self.start + count]);
        self.start += count;
        Ok(count)
    }
}

impl Input for VerifiedInput {
    fn length(&self) -> Option<u64> {
        self.file.length()
    }

    fn seek_to(&mut self, position: u64) -> io::Result<()> {
        let chunk = position / self.chunk_bytes as u64;
        self.position = chunk * self.chunk_bytes as u64;
        self.file.seek_to(self.position)?;
        self.sums.seek_to(8 + chunk * 4)?;
        self.fill()?;
        self.start = ((position - chunk * self.chunk_bytes as u64) as usize).min(self.buffer.len());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(path: &Path, verify: bool) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        open(path.to_str().unwrap(), verify)?.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    #[test]
    fn checksum_mismatch_is_an_error_unless_disabled() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let bytes: Vec<u8> = (0..700_001_u32).map(|at| (at >> 3) as u8).collect();
        let mut summer = ChecksumWriter::create(&path).unwrap();
        for piece in bytes.chunks(1000) {
            summer.add(piece).unwrap();
        }
        summer.finish().unwrap();
        fs::write(&path, &bytes).unwrap();
        assert_eq!(fs::metadata(directory.path().join(".file.crc")).unwrap().len(), 8 + 4 * 700_001_u64.div_ceil(512));
        assert!(all(&path, true).unwrap() == bytes);
        let mut input = open(path.to_str().unwrap(), true).unwrap();
        input.seek_to(1300).unwrap();
        let mut some = [0; 100];
        input.read_exact(&mut some).unwrap();
        assert!(some == bytes[1300..1400]);

        let mut spoiled = bytes.clone();
        spoiled[600_000] ^= 1;
        fs::write(&path, &spoiled).unwrap();
        let error = all(&path, true).unwrap_err().to_string();
        assert!(error.starts_with(&format!("Checksum error: file:{} at 599552 exp: ", path.display())), "{error}");
        assert!(all(&path, false).unwrap() == spoiled);
        // One byte more than the checksums cover.
        fs::write(&path, [&bytes[..], &[0; 512]].concat()).unwrap();
        assert!(all(&path, true).unwrap_err().to_string().contains("Checksum error"));
        // A malformed checksum file is ignored.
        fs::write(directory.path().join(".file.crc"), b"other").unwrap();
        assert_eq!(all(&path, true).unwrap().len(), bytes.len() + 512);
    }

    #[test]
    fn checksum_files_follow_renames_and_removals() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at(".one.crc"), "1").unwrap();
        fs::write(at(".two.crc"), "2").unwrap();
        rename(&at("one"), &at("two")).unwrap();
        assert!(!at(".one.crc").exists() && fs::read(at(".two.crc")).unwrap() == b"1");
        rename(&at("none"), &at("two")).unwrap();
        assert!(!at(".two.crc").exists());
        remove(&at("two")).unwrap();
        assert!(is_checksum_file(b".a.crc") && !is_checksum_file(b"a.crc") && !is_checksum_file(b".a"));
    }
}
