//! Avro files: a header with the schema as JSON, then blocks of packed values. Each value is printed as a line of JSON.
//!
//! Source: the Avro 1.11 specification; JsonEncoder.java.

mod json;
mod schema;

use std::io::{self, BufRead, Read};

use super::reading::{ReadBytes, bounded, malformed};
use super::{Out, Stopped};
use schema::Schemas;

/// Maximum bytes of the header's keys and values together.
const HEADER_BYTES_MAX: u64 = 64 << 20;

/// Maximum bytes of a block, packed and unpacked. Writers begin a new block after some ten thousand bytes.
const BLOCK_BYTES_MAX: u64 = 256 << 20;

/// Maximum number of values that take no bytes in a block, or of such elements in an array.
const EMPTY_VALUES_MAX: u64 = 1 << 24;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum BlockCodec {
    None,
    Deflate,
    /// Followed by a CRC-32 of the unpacked bytes.
    Snappy,
    Bzip2,
    Zstandard,
}

/// Prints each value of a file as a line of JSON.
pub fn show(mut from: impl BufRead, out: Out) -> Result<(), Stopped> {
    if from.fixed()? != *b"Obj\x01" {
        return Err(malformed("Not an Avro data file.".to_owned()).into());
    }
    let (schemas, packing) = header(&mut from)?;
    let mark: [u8; 16] = from.fixed()?;
    let mut text = Vec::new();
    while !from.fill_buf()?.is_empty() {
        let count = zigzag(&mut from)?;
        let length = bounded(zigzag(&mut from)?, BLOCK_BYTES_MAX)?;
        let packed = from.exactly(length)?;
        let block = unpack(packing, packed)?;
        let mut rest = block.as_slice();
        for _ in 0..element_count(count, rest.len())? {
            json::show(&schemas, schemas.root, &mut rest, &mut text)?;
            text.push(b'\n');
            out(&text).map_err(Stopped::Output)?;
            text.clear();
        }
        if !rest.is_empty() {
            return Err(malformed(format!("{} bytes after the last value of a block", rest.len())).into());
        }
        if from.fixed()? != mark {
            return Err(malformed("Invalid sync!".to_owned()).into());
        }
    }
    Ok(())
}

fn header(from: &mut impl BufRead) -> io::Result<(Schemas, BlockCodec)> {
    let mut from = from.by_ref().take(HEADER_BYTES_MAX);
    let (mut schema, mut codec) = (None, Vec::new());
    loop {
        let mut count = zigzag(&mut from)?;
        if count == 0 {
            break;
        }
        if count < 0 {
            zigzag(&mut from)?;
            count = count.checked_neg().ok_or_else(|| malformed("an invalid count of entries".to_owned()))?;
        }
        for _ in 0..count {
            let key = counted(&mut from)?;
            let value = counted(&mut from)?;
            match key.as_slice() {
                b"avro.schema" => schema = Some(value),
                b"avro.codec" => codec = value,
                _ => {}
            }
        }
    }
    let schema = schema.ok_or_else(|| malformed("an Avro file without a schema".to_owned()))?;
    let packing = match codec.as_slice() {
        b"" | b"null" => BlockCodec::None,
        b"deflate" => BlockCodec::Deflate,
        b"snappy" => BlockCodec::Snappy,
        b"bzip2" => BlockCodec::Bzip2,
        b"zstandard" => BlockCodec::Zstandard,
        other => return Err(malformed(format!("Unrecognized codec: {}", String::from_utf8_lossy(other)))),
    };
    Ok((Schemas::parse(&schema)?, packing))
}

fn counted(from: &mut impl Read) -> io::Result<Vec<u8>> {
    let length = bounded(zigzag(from)?, HEADER_BYTES_MAX)?;
    from.exactly(length)
}

fn unpack(packing: BlockCodec, mut packed: Vec<u8>) -> io::Result<Vec<u8>> {
    let mut unpacked = Vec::new();
    match packing {
        BlockCodec::None => return Ok(packed),
        BlockCodec::Deflate => read_all(flate2::bufread::DeflateDecoder::new(packed.as_slice()), &mut unpacked)?,
        BlockCodec::Bzip2 => read_all(super::codec::Codec::Bzip2.decoder(packed.as_slice())?, &mut unpacked)?,
        BlockCodec::Zstandard => read_all(super::codec::Codec::Zstandard.decoder(packed.as_slice())?, &mut unpacked)?,
        BlockCodec::Snappy => {
            let short = || malformed("a block without its checksum".to_owned());
            let crc = packed.split_off(packed.len().checked_sub(4).ok_or_else(short)?);
            let broken = |error: snap::Error| malformed(error.to_string());
            bounded(snap::raw::decompress_len(&packed).map_err(broken)? as i64, BLOCK_BYTES_MAX)?;
            unpacked = snap::raw::Decoder::new().decompress_vec(&packed).map_err(broken)?;
            if crc32fast::hash(&unpacked).to_be_bytes() != *crc {
                return Err(malformed("Checksum failure".to_owned()));
            }
        }
    }
    Ok(unpacked)
}

fn read_all(from: impl Read, into: &mut Vec<u8>) -> io::Result<()> {
    from.take(BLOCK_BYTES_MAX + 1).read_to_end(into)?;
    bounded(into.len() as i64, BLOCK_BYTES_MAX).map(|_| ())
}

/// Returns the number of elements that follow, limited by what `left` bytes can hold. Elements that take no bytes are
/// bounded, too.
fn element_count(count: i64, left: usize) -> io::Result<u64> {
    bounded(count, (left as u64).max(EMPTY_VALUES_MAX))
}

/// Reads a number with 7 bits in each byte and the sign in the lowest bit.
fn zigzag(from: &mut impl Read) -> io::Result<i64> {
    let mut value = 0_u64;
    for shift in (0..70).step_by(7) {
        let byte = from.u8()?;
        value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
        if byte < 0x80 {
            return Ok((value >> 1) as i64 ^ -((value & 1) as i64));
        }
    }
    Err(malformed("a number of more than 64 bits".to_owned()))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::super::{FileFormat, shown};

    fn number(value: i64) -> Vec<u8> {
        let mut left = (value << 1 ^ value >> 63) as u64;
        let mut out = Vec::new();
        while left >= 0x80 {
            out.push(left as u8 | 0x80);
            left >>= 7;
        }
        out.push(left as u8);
        out
    }

    fn string(text: &str) -> Vec<u8> {
        [number(text.len() as i64), text.as_bytes().to_vec()].concat()
    }

    const MARK: &[u8; 16] = b"0123456789abcdef";

    fn file(schema: &str, codec: &str, blocks: &[(i64, Vec<u8>)]) -> Vec<u8> {
        let mut out = b"Obj\x01".to_vec();
        out.extend(
            [number(2), string("avro.schema"), string(schema), string("avro.codec"), string(codec), number(0)].concat(),
        );
        out.extend(MARK);
        for (count, data) in blocks {
            let packed = match codec {
                "deflate" => {
                    let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
                    encoder.write_all(data).unwrap();
                    encoder.finish().unwrap()
                }
                "snappy" => {
                    let packed = snap::raw::Encoder::new().compress_vec(data).unwrap();
                    [packed, crc32fast::hash(data).to_be_bytes().to_vec()].concat()
                }
                _ => data.clone(),
            };
            out.extend([number(*count), number(packed.len() as i64), packed, MARK.to_vec()].concat());
        }
        out
    }

    const SCHEMA: &str = r#"{"type": "record", "name": "R", "namespace": "n", "fields": [
        {"name": "b", "type": "boolean"},
        {"name": "i", "type": "int"},
        {"name": "d", "type": "double"},
        {"name": "s", "type": ["null", "string"]},
        {"name": "y", "type": "bytes"},
        {"name": "a", "type": {"type": "array", "items": "long"}},
        {"name": "m", "type": {"type": "map", "values": "string"}},
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["X", "Y"]}},
        {"name": "f", "type": {"type": "fixed", "name": "other.F", "size": 2}},
        {"name": "next", "type": ["null", "R", "E", "other.F"]}]}"#;

    fn record(next: &[u8]) -> Vec<u8> {
        let parts = [
            vec![1],
            number(-3),
            1.5_f64.to_le_bytes().to_vec(),
            [number(1), string("q\"\n\u{1}é")].concat(),
            [number(2), vec![b'a', 0xe9]].concat(),
            [number(2), number(1), number(-2), number(0)].concat(),
            [number(-1), number(4), string("k"), string("v"), number(0)].concat(),
            number(1),
            b"z\xff".to_vec(),
            next.to_vec(),
        ];
        parts.concat()
    }

    #[test]
    fn values_are_shown_as_json() {
        let inner = |next: &str| {
            let text = r#"{"b":true,"i":-3,"d":1.5,"s":{"string":"q\"\n\u0001é"},"y":"aé","a":[1,-2],"m":{"k":"v"},"e":"Y","f":"zÿ","next":"#;
            format!("{text}{next}}}")
        };
        let nested = [number(1), record(&number(0))].concat();
        let named = [number(2), number(0)].concat();
        let fixed = [number(3), b"ab".to_vec()].concat();
        for codec in ["null", "deflate", "snappy"] {
            let blocks =
                [(2, [record(&number(0)), record(&nested)].concat()), (2, [record(&named), record(&fixed)].concat())];
            let lines = [
                inner("null"),
                inner(&format!("{{\"n.R\":{}}}", inner("null"))),
                inner(r#"{"n.E":"X"}"#),
                inner(r#"{"other.F":"ab"}"#),
            ];
            assert_eq!(
                shown(FileFormat::Avro, &file(SCHEMA, codec, &blocks)).unwrap(),
                lines.join("\n") + "\n",
                "{codec}"
            );
        }
        assert_eq!(shown(FileFormat::Avro, &file("\"string\"", "null", &[(1, string("x"))])).unwrap(), "\"x\"\n");
        assert_eq!(shown(FileFormat::Avro, &file("\"int\"", "null", &[])).unwrap(), "");
    }

    #[test]
    fn malformed_avro_is_rejected_without_panic() {
        let nested = [number(1), record(&number(0))].concat();
        let good = file(SCHEMA, "null", &[(1, record(&nested))]);
        for at in 0..good.len() {
            let _ = shown(FileFormat::Avro, &good[..at]);
            for flip in [0x01, 0x80, 0xff] {
                let mut bad = good.clone();
                bad[at] ^= flip;
                let _ = shown(FileFormat::Avro, &bad);
            }
        }
        for end in [good.len() - 1, good.len() - 20] {
            assert!(shown(FileFormat::Avro, &good[..end]).is_err());
        }
        for (schema, count, data, why) in [
            ("\"null\"", i64::MAX, vec![], "a length of"),
            ("\"null\"", -1, vec![], "a length of"),
            ("\"string\"", 1, number(1 << 40), "a length of"),
            ("{\"type\": \"array\", \"items\": \"null\"}", 1, number(1 << 40), "a length of"),
            ("[\"null\"]", 1, number(7), "no branch"),
            ("\"int\"", 1, vec![0xff; 11], "64 bits"),
            ("\"Other\"", 0, vec![], "Other"),
            ("{\"type\": \"fixed\", \"name\": \"F\", \"size\": -1}", 0, vec![], "size"),
        ] {
            let said = shown(FileFormat::Avro, &file(schema, "null", &[(count, data)])).unwrap_err();
            assert!(said.contains(why), "{schema}: {said}");
        }
        let said = shown(FileFormat::Avro, &file("\"int\"", "xz", &[])).unwrap_err();
        assert_eq!(said, "Unrecognized codec: xz");
        // A linked list that is too deep: each element contains the next.
        let list = r#"{"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}"#;
        let said = shown(FileFormat::Avro, &file(list, "null", &[(1, vec![2; 100_000])])).unwrap_err();
        assert!(said.contains("deep"), "{said}");
    }
}
