use super::BlockFileError;
use crate::{ChecksumKind, ChecksumSpec};

/// Bytes before the first CRC of a meta file.
pub const META_HEADER_BYTES: usize = ChecksumSpec::META_HEADER_BYTES;

/// The only version that short-circuit clients accept.
pub const META_VERSION: u16 = 1;

/// Decodes the header like [`ChecksumSpec::from_meta_header`], but returns a descriptive error. Bytes after the header
/// are ignored.
pub fn decode_meta_header(bytes: &[u8]) -> Result<ChecksumSpec, BlockFileError> {
    let Some((header, _)) = bytes.split_first_chunk::<META_HEADER_BYTES>() else {
        return Err(BlockFileError::MetaTooShort { bytes: bytes.len() });
    };
    ChecksumSpec::from_meta_header(*header).ok_or_else(|| {
        let version = u16::from_be_bytes([header[0], header[1]]);
        if version != META_VERSION {
            BlockFileError::MetaVersion { found: version }
        } else if ChecksumKind::from_number(header[2]).is_none() {
            BlockFileError::ChecksumKind { found: header[2] }
        } else {
            BlockFileError::BytesPerChunk { found: u32::from_be_bytes([header[3], header[4], header[5], header[6]]) }
        }
    })
}

/// Returns the size in bytes of the whole meta file for a replica of `length` bytes.
pub fn meta_file_bytes(spec: ChecksumSpec, length: u64) -> u64 {
    META_HEADER_BYTES as u64 + spec.checksum_bytes(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_matches_hadoop() {
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
