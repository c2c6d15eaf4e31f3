//! Reading half of an image. Nothing in the file is trusted: lengths are checked against the file before memory is taken.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use hearth_wire::delimited::{Framing, find};
use hearth_wire::proto::hdfs::fsimage::ImageSummaryProto;
use md5::{Digest, Md5};
use prost::Message;

use super::{ImageError, LAYOUT_VERSION, MAGIC, OLDEST_LAYOUT_VERSION, ON_DISK_VERSION, hex, io};

/// Bytes that are read at a time.
const CHUNK: u64 = 1 << 20;
/// Longest summary, in bytes. A section takes about 30.
const SUMMARY_MAX: u64 = 1 << 20;
/// Longest message, in bytes: that of a directory with 6,400,000 children takes 60 MiB.
const MESSAGE_MAX: usize = 256 << 20;

/// Place of a section in the file.
#[derive(Clone, Copy)]
struct Extent {
    offset: u64,
    length: u64,
}

/// An open image.
pub(super) struct Input {
    file: File,
    path: PathBuf,
    sections: HashMap<String, Extent>,
}

impl Input {
    /// Opens an image, and checks its digest, its version and its list of sections. Reads the whole file.
    ///
    /// Errors: `Damaged`; `Unsupported` for a compressed image or a version that we do not know; `Io`.
    pub fn open(path: &Path, md5: &[u8; 16]) -> Result<Self, ImageError> {
        let damaged = |problem: String| ImageError::Damaged { path: path.to_owned(), problem };
        let unsupported = |what: String| ImageError::Unsupported { path: path.to_owned(), what };
        let file = File::open(path).map_err(io("opening", path))?;
        let length = file.metadata().map_err(io("looking at", path))?.len();
        let found = digest_of(&file, path)?;
        if found != *md5 {
            return Err(damaged(format!("its MD5 digest is {}, and {} is expected", hex(&found), hex(md5))));
        }
        let tail = length.checked_sub(4).filter(|tail| *tail > MAGIC.len() as u64);
        let tail = tail.ok_or_else(|| damaged(format!("{length} bytes are too few")))?;
        let mut magic = [0; 8];
        file.read_exact_at(&mut magic, 0).map_err(io("reading", path))?;
        if magic != *MAGIC {
            return Err(damaged("it does not begin with HDFSIMG1".to_owned()));
        }
        let mut number = [0; 4];
        file.read_exact_at(&mut number, tail).map_err(io("reading", path))?;
        let size = u64::from(u32::from_be_bytes(number));
        let begin = tail.checked_sub(size).filter(|begin| *begin >= MAGIC.len() as u64 && size <= SUMMARY_MAX);
        let begin = begin.ok_or_else(|| damaged(format!("a summary of {size} bytes does not fit")))?;
        let mut bytes = vec![0; size as usize];
        file.read_exact_at(&mut bytes, begin).map_err(io("reading", path))?;
        let summary = ImageSummaryProto::decode_length_delimited(&bytes[..])
            .map_err(|error| damaged(format!("its summary is not valid: {error}")))?;
        if summary.on_disk_version != ON_DISK_VERSION {
            return Err(unsupported(format!("its file version {} is unknown", summary.on_disk_version)));
        }
        let layout = summary.layout_version as i32;
        if !(LAYOUT_VERSION..=OLDEST_LAYOUT_VERSION).contains(&layout) {
            return Err(unsupported(format!(
                "its layout version is {layout}, and {OLDEST_LAYOUT_VERSION} to {LAYOUT_VERSION} are known"
            )));
        }
        if let Some(codec) = summary.codec.filter(|codec| !codec.is_empty()) {
            return Err(unsupported(format!(
                "it is compressed with {codec}; set dfs.image.compress to false and save the namespace again"
            )));
        }
        let mut sections = HashMap::new();
        for section in summary.sections {
            let name = section.name.unwrap_or_default();
            let (offset, length) = (section.offset.unwrap_or(0), section.length.unwrap_or(0));
            let end = offset.checked_add(length).filter(|end| offset >= MAGIC.len() as u64 && *end <= begin);
            if end.is_none() {
                return Err(damaged(format!("the section {name} lies outside of the file")));
            }
            // Parts of sections, for parallel loading.
            if name.ends_with("_SUB") {
                continue;
            }
            if sections.insert(name.clone(), Extent { offset, length }).is_some() {
                return Err(damaged(format!("it has two sections {name}")));
            }
        }
        Ok(Self { file, path: path.to_owned(), sections })
    }

    /// Returns the names of all sections.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.sections.keys().map(String::as_str)
    }

    /// Returns a section's messages. A missing section is an empty one.
    pub fn section(&self, name: &'static str) -> SectionReader<'_> {
        let Extent { offset, length } = self.sections.get(name).copied().unwrap_or(Extent { offset: 0, length: 0 });
        SectionReader { input: self, name, next: offset, end: offset + length, buffer: Vec::new(), at: 0 }
    }

    /// Returns the error for content that is not valid.
    pub fn damaged(&self, problem: impl Into<String>) -> ImageError {
        ImageError::Damaged { path: self.path.clone(), problem: problem.into() }
    }

    /// Returns the error for content that Hearth does not have.
    pub fn unsupported(&self, what: impl Into<String>) -> ImageError {
        ImageError::Unsupported { path: self.path.clone(), what: what.into() }
    }
}

/// Computes the MD5 digest of the file at `path`.
pub fn digest(path: &Path) -> Result<[u8; 16], ImageError> {
    digest_of(&File::open(path).map_err(io("opening", path))?, path)
}

fn digest_of(mut file: &File, path: &Path) -> Result<[u8; 16], ImageError> {
    let mut md5 = Md5::new();
    let mut chunk = vec![0; CHUNK as usize];
    loop {
        match file.read(&mut chunk).map_err(io("reading", path))? {
            0 => return Ok(md5.finalize().into()),
            count => md5.update(&chunk[..count]),
        }
    }
}

/// Messages of a section, one after the other.
pub(super) struct SectionReader<'a> {
    input: &'a Input,
    name: &'static str,
    /// Position in the file after the buffer.
    next: u64,
    end: u64,
    buffer: Vec<u8>,
    /// Position of the next message in the buffer.
    at: usize,
}

impl SectionReader<'_> {
    /// Returns the next message. `None` at the end of the section.
    pub fn next<M: Message + Default>(&mut self) -> Result<Option<M>, ImageError> {
        loop {
            let rest = &self.buffer[self.at..];
            if rest.is_empty() && self.next == self.end {
                return Ok(None);
            }
            match find(rest, MESSAGE_MAX).map_err(|error| self.damaged(&error.to_string()))? {
                Framing::Complete { start, end } => {
                    let message = M::decode(&rest[start..end]).map_err(|error| self.damaged(&error.to_string()))?;
                    self.at += end;
                    return Ok(Some(message));
                }
                Framing::Needs(missing) => self.fill(missing as u64)?,
            }
        }
    }

    /// Like [`Self::next`], for a message that must be there.
    pub fn required<M: Message + Default>(&mut self) -> Result<M, ImageError> {
        self.next()?.ok_or_else(|| self.damaged("it ends early"))
    }

    fn fill(&mut self, missing: u64) -> Result<(), ImageError> {
        let left = self.end - self.next;
        if missing > left {
            return Err(self.damaged("it ends in the middle of a message"));
        }
        self.buffer.drain(..self.at);
        self.at = 0;
        let (kept, wanted) = (self.buffer.len(), missing.max(CHUNK).min(left));
        self.buffer.resize(kept + wanted as usize, 0);
        let read = self.input.file.read_exact_at(&mut self.buffer[kept..], self.next);
        read.map_err(io("reading", &self.input.path))?;
        self.next += wanted;
        Ok(())
    }

    pub fn damaged(&self, problem: &str) -> ImageError {
        self.input.damaged(format!("section {}: {problem}", self.name))
    }
}
