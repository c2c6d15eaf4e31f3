//! Sequence files: a header with the classes of keys and values, then records. Either each value is packed by itself,
//! or many records together.
//!
//! Source: SequenceFile.java, versions 4 to 6.

use std::io::{self, BufRead, Read};

use super::codec::Codec;
use super::reading::{ReadBytes, bounded, malformed};
use super::writable::{VALUE_BYTES_MAX, Writable};
use super::{Out, Stopped};

const OLDEST_VERSION: u8 = 4;
const NEWEST_VERSION: u8 = 6;

/// First version whose header names the codec.
const WITH_CODEC: u8 = 5;

/// First version whose header has text pairs (metadata).
const WITH_METADATA: u8 = 6;

/// In place of a record's length: the sync mark from the header follows.
const MARK_FOLLOWS: i32 = -1;

/// Maximum bytes of a class name.
const NAME_BYTES_MAX: u64 = 4096;

/// Maximum bytes of all text pairs.
const METADATA_BYTES_MAX: u64 = 64 << 20;

/// Maximum bytes that a block of records unpacks to. Hadoop's writers pack a megabyte at a time.
const PACKED_BYTES_MAX: u64 = 256 << 20;

/// Text is collected up to this size before it is printed.
const TEXT_BYTES: usize = 64 << 10;

struct Header {
    key: Writable,
    value: Writable,
    /// Codec of values, or of blocks of records.
    codec: Option<Codec>,
    in_blocks: bool,
    mark: [u8; 16],
}

impl Header {
    fn read(from: &mut impl BufRead) -> io::Result<Self> {
        let [s, e, q, version] = from.fixed()?;
        if [s, e, q] != *b"SEQ" {
            return Err(malformed("not a SequenceFile".to_owned()));
        }
        if !(OLDEST_VERSION..=NEWEST_VERSION).contains(&version) {
            return Err(malformed(format!(
                "a SequenceFile of version {version}; versions {OLDEST_VERSION} to {NEWEST_VERSION} can be shown"
            )));
        }
        let classes = [from.string(NAME_BYTES_MAX)?, from.string(NAME_BYTES_MAX)?];
        let (packed, in_blocks) = (from.u8()? != 0, from.u8()? != 0);
        let codec = match packed {
            false => None,
            true if version < WITH_CODEC => Some(Codec::Zlib),
            true => {
                let class = from.string(NAME_BYTES_MAX)?;
                let unknown = || malformed(format!("Unknown codec: {class}"));
                Some(Codec::of_class(&class).ok_or_else(unknown)?)
            }
        };
        if version >= WITH_METADATA {
            let pairs = bounded(i64::from(from.i32()?), METADATA_BYTES_MAX / 2)?;
            let mut limited = from.by_ref().take(METADATA_BYTES_MAX);
            for _ in 0..2 * pairs {
                let length = limited.length(METADATA_BYTES_MAX)?;
                limited.exactly(length)?;
            }
        }
        let mark = from.fixed()?;
        let [key, value] = classes;
        let (key, value) = (Writable::of_class(&key)?, Writable::of_class(&value)?);
        Ok(Self { key, value, codec, in_blocks, mark })
    }

    fn check_mark(&self, from: &mut impl Read) -> io::Result<()> {
        if from.fixed()? == self.mark { Ok(()) } else { Err(malformed("File is corrupt!".to_owned())) }
    }
}

/// Prints a line for each record: key, tab, value.
pub fn show(mut from: impl BufRead, out: Out) -> Result<(), Stopped> {
    let header = Header::read(&mut from)?;
    let mut text = Vec::new();
    while !from.fill_buf()?.is_empty() {
        if header.in_blocks {
            show_block(&header, &mut from, &mut text, out)?;
        } else {
            show_record(&header, &mut from, &mut text)?;
        }
        print(&mut text, TEXT_BYTES, out)?;
    }
    print(&mut text, 1, out)
}

fn print(text: &mut Vec<u8>, least: usize, out: Out) -> Result<(), Stopped> {
    if text.len() >= least {
        out(text).map_err(Stopped::Output)?;
        text.clear();
    }
    Ok(())
}

/// Shows a record, or reads a sync mark alone.
fn show_record(header: &Header, from: &mut impl BufRead, text: &mut Vec<u8>) -> io::Result<()> {
    let mut length = from.i32()?;
    if length == MARK_FOLLOWS {
        header.check_mark(from)?;
        if from.fill_buf()?.is_empty() {
            return Ok(());
        }
        length = from.i32()?;
    }
    let length = bounded(i64::from(length), VALUE_BYTES_MAX)?;
    let key_length = bounded(i64::from(from.i32()?), length)?;
    let key = from.exactly(key_length)?;
    let value = from.exactly(length - key_length)?;
    let value = match header.codec {
        Some(codec) => unpacked(codec, &value)?,
        None => value,
    };
    show_pair(header, &key, &value, text)
}

fn show_pair(header: &Header, key: &[u8], value: &[u8], text: &mut Vec<u8>) -> io::Result<()> {
    header.key.show(key, text)?;
    text.push(b'\t');
    header.value.show(value, text)?;
    text.push(b'\n');
    Ok(())
}

/// Unpacks all of `packed`.
fn unpacked(codec: Codec, packed: &[u8]) -> io::Result<Vec<u8>> {
    let mut unpacked = Vec::new();
    codec.decoder(packed)?.take(VALUE_BYTES_MAX + 1).read_to_end(&mut unpacked)?;
    bounded(unpacked.len() as i64, VALUE_BYTES_MAX)?;
    Ok(unpacked)
}

/// Shows many records: lengths of keys, keys, lengths of values, values, each packed by itself.
fn show_block(header: &Header, from: &mut impl BufRead, text: &mut Vec<u8>, out: Out) -> Result<(), Stopped> {
    if from.i32()? != MARK_FOLLOWS {
        return Err(malformed("File is corrupt!".to_owned()).into());
    }
    header.check_mark(from)?;
    let records = from.length(i32::MAX as u64)?;
    let mut packed = [(); 4].map(|()| Vec::new());
    for bytes in &mut packed {
        let length = from.length(PACKED_BYTES_MAX)?;
        *bytes = from.exactly(length)?;
    }
    let [mut key_lengths, mut keys, mut value_lengths, mut values] =
        [part(header, &packed[0])?, part(header, &packed[1])?, part(header, &packed[2])?, part(header, &packed[3])?];
    for _ in 0..records {
        let key = key_lengths.length(VALUE_BYTES_MAX)?;
        let key = keys.exactly(key)?;
        let value = value_lengths.length(VALUE_BYTES_MAX)?;
        let value = values.exactly(value)?;
        show_pair(header, &key, &value, text)?;
        print(text, TEXT_BYTES, out)?;
    }
    Ok(())
}

/// Reads one of the parts of a block.
fn part<'a>(header: &Header, packed: &'a [u8]) -> io::Result<io::BufReader<Box<dyn Read + 'a>>> {
    let codec = header.codec.ok_or_else(|| malformed("blocks of records that are not packed".to_owned()))?;
    Ok(io::BufReader::new(codec.decoder(packed)?))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::super::{FileFormat, shown};

    const MARK: [u8; 16] = *b"0123456789abcdef";

    fn zlib(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn name(text: &str) -> Vec<u8> {
        [&[text.len() as u8][..], text.as_bytes()].concat()
    }

    fn header(version: u8, packed: bool, in_blocks: bool) -> Vec<u8> {
        let mut out = b"SEQ".to_vec();
        out.push(version);
        out.extend(name("org.apache.hadoop.io.IntWritable"));
        out.extend(name("org.apache.hadoop.io.Text"));
        out.extend([u8::from(packed), u8::from(in_blocks)]);
        if packed && version > 4 {
            out.extend(name("org.apache.hadoop.io.compress.DefaultCodec"));
        }
        if version > 5 {
            out.extend([0, 0, 0, 1]);
            out.extend([name("key"), name("value")].concat());
        }
        out.extend(MARK);
        out
    }

    fn record(key: i32, value: &str, pack: impl Fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
        let value = pack(&name(value));
        let mut out = (4 + value.len() as i32).to_be_bytes().to_vec();
        out.extend(4_i32.to_be_bytes());
        out.extend(key.to_be_bytes());
        out.extend(value);
        out
    }

    fn mark() -> Vec<u8> {
        [&(-1_i32).to_be_bytes()[..], &MARK].concat()
    }

    fn block(records: &[(i32, &str)]) -> Vec<u8> {
        let mut parts = [(); 4].map(|()| Vec::new());
        for (key, value) in records {
            let value = name(value);
            parts[0].push(4);
            parts[1].extend(key.to_be_bytes());
            parts[2].push(value.len() as u8);
            parts[3].extend(value);
        }
        let mut out = mark();
        out.push(records.len() as u8);
        for part in parts {
            let packed = zlib(&part);
            out.push(packed.len() as u8);
            out.extend(packed);
        }
        out
    }

    #[test]
    fn records_are_shown_in_every_packing() {
        for version in 4..=6 {
            let plain = [
                header(version, false, false),
                record(1, "one", <[u8]>::to_vec),
                mark(),
                record(-2, "two", <[u8]>::to_vec),
                mark(),
            ];
            let packed = [header(version, true, false), record(1, "one", zlib), record(-2, "two", zlib)];
            let blocks = [header(version, true, true), block(&[(1, "one")]), block(&[(-2, "two")])];
            for file in [plain.concat(), packed.concat(), blocks.concat()] {
                assert_eq!(shown(FileFormat::SequenceFile, &file).unwrap(), "1\tone\n-2\ttwo\n", "version {version}");
            }
        }
    }

    #[test]
    fn malformed_sequence_file_is_rejected_without_panic() {
        let good = [header(6, true, true), block(&[(1, "one"), (2, "two")])].concat();
        let start = header(6, true, true).len();
        for end in 0..good.len() {
            let outcome = shown(FileFormat::SequenceFile, &good[..end]);
            assert!(if end == start { outcome.is_ok() } else { outcome.is_err() }, "cut at {end}");
        }
        for at in 0..good.len() {
            for flip in [0x01, 0x80, 0xff] {
                let mut bad = good.clone();
                bad[at] ^= flip;
                let _ = shown(FileFormat::SequenceFile, &bad);
            }
        }
        let huge = [header(6, false, false), vec![0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 4]].concat();
        assert!(shown(FileFormat::SequenceFile, &huge).unwrap_err().contains("2147483647"));
        let mut unmarked = [header(6, false, false), mark()].concat();
        *unmarked.last_mut().unwrap() ^= 1;
        assert_eq!(shown(FileFormat::SequenceFile, &unmarked).unwrap_err(), "File is corrupt!");
    }
}
