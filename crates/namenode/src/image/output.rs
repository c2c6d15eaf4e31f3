//! Writing half of an image: length-prefixed messages, sections, summary and digest.

use std::io::Write;
use std::path::{Path, PathBuf};

use hearth_wire::proto::hdfs::fsimage::{ImageSectionProto, ImageSummaryProto};
use md5::{Digest, Md5};
use prost::Message;

use super::{ImageError, LAYOUT_VERSION, MAGIC, ON_DISK_VERSION, io};

/// Bytes that are collected before they are written.
const BUFFER: usize = 256 << 10;

/// An image that is being written. The digest is computed on the way.
pub(super) struct Output<W: Write> {
    file: W,
    /// Path for errors.
    path: PathBuf,
    buffer: Vec<u8>,
    digest: Md5,
    /// Bytes before the buffer.
    written: u64,
    section_begin: u64,
    sections: Vec<ImageSectionProto>,
}

impl<W: Write> Output<W> {
    pub fn new(file: W, path: &Path) -> Self {
        Self {
            file,
            path: path.to_owned(),
            buffer: MAGIC.to_vec(),
            digest: Md5::new(),
            written: 0,
            section_begin: MAGIC.len() as u64,
            sections: Vec::new(),
        }
    }

    fn position(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Appends a message with its length.
    pub fn message(&mut self, message: &impl Message) -> Result<(), ImageError> {
        message.encode_length_delimited(&mut self.buffer).expect("a vector grows as needed");
        if self.buffer.len() >= BUFFER { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), ImageError> {
        self.digest.update(&self.buffer);
        self.file.write_all(&self.buffer).map_err(io("writing", &self.path))?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Ends the section that consists of all messages since the last section.
    pub fn end_section(&mut self, name: &str) {
        let (offset, end) = (self.section_begin, self.position());
        self.section_begin = end;
        let (name, length) = (Some(name.to_owned()), Some(end - offset));
        self.sections.push(ImageSectionProto { name, length, offset: Some(offset) });
    }

    /// Writes the summary. Returns the length in bytes and the digest of the whole image.
    pub fn finish(mut self) -> Result<(u64, [u8; 16]), ImageError> {
        let summary = ImageSummaryProto {
            on_disk_version: ON_DISK_VERSION,
            layout_version: LAYOUT_VERSION as u32,
            // Java reads an absent name as an empty one: no compression.
            codec: None,
            sections: std::mem::take(&mut self.sections),
        };
        let begin = self.buffer.len();
        summary.encode_length_delimited(&mut self.buffer).expect("a vector grows as needed");
        let length = u32::try_from(self.buffer.len() - begin).expect("the summary has a dozen sections");
        self.buffer.extend(length.to_be_bytes());
        self.flush()?;
        self.file.flush().map_err(io("writing", &self.path))?;
        Ok((self.written, self.digest.finalize().into()))
    }
}
