//! Snappy and LZ4 in Hadoop's framing: a block is its unpacked length, then chunks until the block is complete. A chunk
//! is its length and that many packed bytes. All lengths have four bytes. Source: BlockCompressorStream.java.

use std::io::{self, BufRead, Read};

use super::reading::{ReadBytes, malformed};

/// Maximum packed bytes of a chunk. Hadoop's writers put at most one buffer into a chunk, 256 KiB by default.
const CHUNK_BYTES_MAX: u64 = 64 << 20;

/// Maximum number of bytes that one packed byte can stand for. LZ4 encodes its longest matches in bytes that stand for
/// 255 each; Snappy's matches are shorter.
const EXPANSION_MAX: u64 = 256;

pub struct Framed<R> {
    source: R,
    unpack: fn(&[u8], usize) -> Option<Vec<u8>>,
    /// Remaining bytes of the current block.
    left: u64,
    chunk: io::Cursor<Vec<u8>>,
}

impl<R: BufRead> Framed<R> {
    pub fn snappy(source: R) -> Self {
        Self::of(source, |packed, limit| {
            let length = snap::raw::decompress_len(packed).ok().filter(|length| *length <= limit)?;
            let mut unpacked = vec![0; length];
            let count = snap::raw::Decoder::new().decompress(packed, &mut unpacked).ok()?;
            unpacked.truncate(count);
            Some(unpacked)
        })
    }

    pub fn lz4(source: R) -> Self {
        Self::of(source, |packed, limit| {
            let mut unpacked = vec![0; limit];
            let count = lz4_flex::block::decompress_into(packed, &mut unpacked).ok()?;
            unpacked.truncate(count);
            Some(unpacked)
        })
    }

    fn of(source: R, unpack: fn(&[u8], usize) -> Option<Vec<u8>>) -> Self {
        Self { source, unpack, left: 0, chunk: io::Cursor::default() }
    }

    /// Reads the next chunk. Returns false at the end.
    fn next_chunk(&mut self) -> io::Result<bool> {
        if self.left == 0 {
            if self.source.fill_buf()?.is_empty() {
                return Ok(false);
            }
            self.left = u64::from(self.source.u32()?);
            // An empty block marks the end.
            if self.left == 0 {
                return Ok(false);
            }
        }
        let length = u64::from(self.source.u32()?);
        if length > CHUNK_BYTES_MAX {
            return Err(malformed(format!("a chunk of {length} bytes; the maximum is {CHUNK_BYTES_MAX}")));
        }
        let packed = self.source.exactly(length)?;
        let limit = self.left.min(length * EXPANSION_MAX);
        let unpacked = (self.unpack)(&packed, limit as usize);
        let unpacked = unpacked.ok_or_else(|| malformed("a chunk that cannot be unpacked".to_owned()))?;
        self.left = self.left.saturating_sub(unpacked.len() as u64);
        self.chunk = io::Cursor::new(unpacked);
        Ok(true)
    }
}

impl<R: BufRead> Read for Framed<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.chunk.read(into)? {
                0 if !into.is_empty() => {}
                count => return Ok(count),
            }
            if !self.next_chunk()? {
                return Ok(0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::codec::Codec;
    use super::super::{FileFormat, shown};

    fn framed(blocks: &[&[&str]], pack: impl Fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
        let mut out = Vec::new();
        for chunks in blocks {
            let whole: usize = chunks.iter().map(|chunk| chunk.len()).sum();
            out.extend((whole as u32).to_be_bytes());
            for chunk in *chunks {
                let packed = pack(chunk.as_bytes());
                out.extend((packed.len() as u32).to_be_bytes());
                out.extend(packed);
            }
        }
        out
    }

    #[test]
    fn blocks_and_their_chunks_are_unpacked() {
        let long = "abc".repeat(50_000);
        let blocks: [&[&str]; 2] = [&["one ", "two "], &[&long]];
        let snappy = framed(&blocks, |bytes| snap::raw::Encoder::new().compress_vec(bytes).unwrap());
        let lz4 = framed(&blocks, lz4_flex::block::compress);
        for (codec, bytes) in [(Codec::Snappy, snappy), (Codec::Lz4, lz4)] {
            let form = FileFormat::Compressed(codec);
            assert_eq!(shown(form, &bytes).unwrap(), format!("one two {long}"), "{codec:?}");
            assert!(shown(form, &bytes[..bytes.len() - 3]).is_err(), "{codec:?} cut");
            assert!(shown(form, &[0, 0, 0, 9, 0xff, 0xff, 0xff, 0xff, 1]).unwrap_err().contains("4294967295"));
            assert!(shown(form, &[0, 0, 0, 9, 0, 0, 0, 4, 0xff, 0xff, 0xff, 0x0f]).is_err(), "{codec:?} of nothing");
        }
    }
}
