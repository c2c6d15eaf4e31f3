use super::BlockFileError;
use crate::{ChecksumKind, ChecksumSpec};

/// Bytes before the first CRC of a meta file.
pub const META_HEADER_BYTES: usize = 7;

/// The only version that short-circuit clients accept.
pub const META_VERSION: u16 = 1;

/// `u16 version, u8 kind, u32 bytes per chunk`, all big-endian; the CRCs of the chunks follow.
pub fn encode_meta_header(spec: ChecksumSpec) -> [u8; META_HEADER_BYTES] {
    let mut header = [0; META_HEADER_BYTES];
    header[..2].copy_from_slice(&META_VERSION.to_be_bytes());
    header[2] = spec.kind as u8;
    header[3..].copy_from_slice(&spec.bytes_per_chunk.to_be_bytes());
    header
}

/// The inverse of [`encode_meta_header`]; what follows the header in `bytes` is ignored.
pub fn decode_meta_header(bytes: &[u8]) -> Result<ChecksumSpec, BlockFileError> {
    let Some((header, _)) = bytes.split_first_chunk::<META_HEADER_BYTES>() else {
        return Err(BlockFileError::MetaTooShort { bytes: bytes.len() });
    };
    let found = u16::from_be_bytes([header[0], header[1]]);
    if found != META_VERSION {
        return Err(BlockFileError::MetaVersion { found });
    }
    let kind = ChecksumKind::from_number(header[2]).ok_or(BlockFileError::ChecksumKind { found: header[2] })?;
    let bytes_per_chunk = u32::from_be_bytes([header[3], header[4], header[5], header[6]]);
    if bytes_per_chunk == 0 || bytes_per_chunk > i32::MAX as u32 {
        return Err(BlockFileError::BytesPerChunk { found: bytes_per_chunk });
    }
    Ok(ChecksumSpec { kind, bytes_per_chunk })
}

/// Bytes of the whole meta file of a replica of `length` bytes.
pub fn meta_file_bytes(spec: ChecksumSpec, length: u64) -> u64 {
    META_HEADER_BYTES as u64 + spec.checksum_bytes(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_as_hadoop_writes_it() {
        assert_eq!(encode_meta_header(ChecksumSpec::DEFAULT), [0, 1, 2, 0, 0, 2, 0]);
        assert_eq!(decode_meta_header(&[0, 1, 2, 0, 0, 2, 0, 9, 9]), Ok(ChecksumSpec::DEFAULT));
        assert_eq!(meta_file_bytes(ChecksumSpec::DEFAULT, 513), 15);
    }

    #[test]
    fn bad_headers_are_errors() {
        assert_eq!(decode_meta_header(&[0, 1, 2]), Err(BlockFileError::MetaTooShort { bytes: 3 }));
        assert_eq!(decode_meta_header(&[0, 2, 2, 0, 0, 2, 0]), Err(BlockFileError::MetaVersion { found: 2 }));
        assert_eq!(decode_meta_header(&[0, 1, 5, 0, 0, 2, 0]), Err(BlockFileError::ChecksumKind { found: 5 }));
        assert_eq!(decode_meta_header(&[0, 1, 2, 0, 0, 0, 0]), Err(BlockFileError::BytesPerChunk { found: 0 }));
    }
}
