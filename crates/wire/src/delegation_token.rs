//! Identifier in a delegation token: the owner, the renewer, the user that acts for the owner, and the validity.
//!
//! ```text
//! version 0 | owner | renewer | real user | vlong issued | vlong latest end | vint number | vint key
//! names: vint length, text
//! ```
//! Source: `AbstractDelegationTokenIdentifier` of Hadoop 3.

use std::fmt;

/// Kind of tokens with such an identifier.
pub const DELEGATION_TOKEN_KIND: &str = "HDFS_DELEGATION_TOKEN";
/// Maximum bytes of a name. Source: `Text.DEFAULT_MAX_LEN`.
const NAME_BYTES_MAX: i64 = 1 << 20;

/// Times are milliseconds since the epoch.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DelegationTokenIdentifier {
    pub owner: String,
    pub renewer: String,
    pub real_user: String,
    pub issued_ms: i64,
    pub latest_end_ms: i64,
    pub sequence_number: i32,
    pub key_id: i32,
}

/// Error of bytes that are not such an identifier. The texts are Java's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DelegationTokenFormatError {
    #[error("Unknown version of delegation token {0}")]
    Version(i8),
    #[error("the delegation token ends too early")]
    Truncated,
    #[error("tried to deserialize {0} bytes of data!  newLength must be non-negative.")]
    Negative(i64),
    #[error("tried to deserialize {0} bytes of data, but maxLength = {NAME_BYTES_MAX}")]
    TooLong(i64),
    #[error("value too long to fit in integer")]
    NotAnInteger,
}

impl DelegationTokenIdentifier {
    pub fn decode(bytes: &[u8]) -> Result<Self, DelegationTokenFormatError> {
        let mut rest = bytes;
        match take(&mut rest, 1)?[0] as i8 {
            0 => {}
            other => return Err(DelegationTokenFormatError::Version(other)),
        }
        let owner = name(&mut rest)?;
        let renewer = name(&mut rest)?;
        let real_user = name(&mut rest)?;
        let issued_ms = vlong(&mut rest)?;
        let latest_end_ms = vlong(&mut rest)?;
        let sequence_number = vint(&mut rest)?;
        let key_id = vint(&mut rest)?;
        Ok(Self { owner, renewer, real_user, issued_ms, latest_end_ms, sequence_number, key_id })
    }
}

/// The form of Java's exception messages.
impl fmt::Display for DelegationTokenIdentifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "token for {}: {DELEGATION_TOKEN_KIND} owner={}, renewer={}, realUser={}, issueDate={}, maxDate={}, \
             sequenceNumber={}, masterKeyId={}",
            self.owner,
            self.owner,
            self.renewer,
            self.real_user,
            self.issued_ms,
            self.latest_end_ms,
            self.sequence_number,
            self.key_id
        )
    }
}

fn take<'a>(rest: &mut &'a [u8], bytes: usize) -> Result<&'a [u8], DelegationTokenFormatError> {
    let (taken, left) = rest.split_at_checked(bytes).ok_or(DelegationTokenFormatError::Truncated)?;
    *rest = left;
    Ok(taken)
}

/// Reads Hadoop's variable-length number: one byte for -112 to 127, else the first byte gives the sign and the number
/// of bytes that follow.
fn vlong(rest: &mut &[u8]) -> Result<i64, DelegationTokenFormatError> {
    let first = take(rest, 1)?[0] as i8;
    if first >= -112 {
        return Ok(i64::from(first));
    }
    let negative = first <= -121;
    let count = if negative { -120 - i32::from(first) } else { -112 - i32::from(first) } as usize;
    let bits = take(rest, count)?.iter().fold(0u64, |bits, byte| bits << 8 | u64::from(*byte)) as i64;
    Ok(if negative { !bits } else { bits })
}

fn vint(rest: &mut &[u8]) -> Result<i32, DelegationTokenFormatError> {
    i32::try_from(vlong(rest)?).map_err(|_| DelegationTokenFormatError::NotAnInteger)
}

fn name(rest: &mut &[u8]) -> Result<String, DelegationTokenFormatError> {
    let length = i64::from(vint(rest)?);
    match length {
        ..0 => Err(DelegationTokenFormatError::Negative(length)),
        0..NAME_BYTES_MAX => Ok(String::from_utf8_lossy(take(rest, length as usize)?).into_owned()),
        _ => Err(DelegationTokenFormatError::TooLong(length)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Written by Hadoop's `DelegationTokenIdentifier.write`.
    const ANN: &[u8] = b"\0\x03ann\x04yarn\0\x8a\x01\x9a\x00\x00\x00\x00\x8a\x01\x9b\x00\x00\x00\x00\x07\x02";

    #[test]
    fn identifier_is_decoded_and_formatted() {
        let id = DelegationTokenIdentifier::decode(ANN).unwrap();
        assert_eq!((id.owner.as_str(), id.renewer.as_str(), id.real_user.as_str()), ("ann", "yarn", ""));
        assert_eq!((id.issued_ms, id.latest_end_ms), (0x019a_0000_0000, 0x019b_0000_0000));
        assert_eq!((id.sequence_number, id.key_id), (7, 2));
        assert!(
            id.to_string().starts_with("token for ann: HDFS_DELEGATION_TOKEN owner=ann, renewer=yarn, realUser=, ")
        );
    }

    #[test]
    fn other_bytes_are_errors() {
        for length in 0..ANN.len() {
            let error = DelegationTokenIdentifier::decode(&ANN[..length]).unwrap_err();
            assert_eq!(error, DelegationTokenFormatError::Truncated, "{length}");
        }
        assert_eq!(DelegationTokenIdentifier::decode(b"\x01x"), Err(DelegationTokenFormatError::Version(1)));
        assert_eq!(DelegationTokenIdentifier::decode(b"\0\xff"), Err(DelegationTokenFormatError::Negative(-1)));
        let long = b"\0\x8c\x7f\xff\xff\xff";
        assert_eq!(DelegationTokenIdentifier::decode(long), Err(DelegationTokenFormatError::TooLong(0x7fff_ffff)));
        let longer = b"\0\x88\x7f\xff\xff\xff\xff\xff\xff\xff";
        assert_eq!(DelegationTokenIdentifier::decode(longer), Err(DelegationTokenFormatError::NotAnInteger));
    }
}
