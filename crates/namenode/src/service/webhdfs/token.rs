//! Tokens as text for URLs: base64 of their form as Hadoop "Writables".
//!
//! ```text
//! vint length, identifier | vint length, password | vint length, kind | vint length, service
//! ```
//! Source: `Token.encodeToUrlString`, `WritableUtils.writeVLong`.

use base64::Engine;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use hearth_wire::proto::common::TokenProto;

/// Written without padding; read with or without it.
const FOR_URLS: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::URL_SAFE,
    GeneralPurposeConfig::new().with_encode_padding(false).with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

pub fn encode(token: &TokenProto) -> String {
    let mut bytes = Vec::new();
    for field in [&token.identifier[..], &token.password[..], token.kind.as_bytes(), token.service.as_bytes()] {
        push_length(&mut bytes, field.len());
        bytes.extend_from_slice(field);
    }
    FOR_URLS.encode(bytes)
}

/// Returns `None` if the text is not a token.
pub fn decode(text: &str) -> Option<TokenProto> {
    let bytes = FOR_URLS.decode(text).ok()?;
    let mut rest = &bytes[..];
    let identifier = Bytes::copy_from_slice(field(&mut rest)?);
    let password = Bytes::copy_from_slice(field(&mut rest)?);
    let kind = String::from_utf8(field(&mut rest)?.to_vec()).ok()?;
    let service = String::from_utf8(field(&mut rest)?.to_vec()).ok()?;
    Some(TokenProto { identifier, password, kind, service })
}

/// One byte up to 127; else -112 minus the number of bytes that follow, and those bytes.
fn push_length(bytes: &mut Vec<u8>, length: usize) {
    if length <= 127 {
        bytes.push(length as u8);
        return;
    }
    let digits = length.to_be_bytes();
    let digits = &digits[length.leading_zeros() as usize / 8..];
    bytes.push((-112 - digits.len() as i8) as u8);
    bytes.extend_from_slice(digits);
}

fn field<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let first = take(rest, 1)?[0] as i8;
    let length = match first {
        0.. => first as usize,
        // Longer ones do not fit into a URL.
        -116..=-113 => take(rest, (-112 - first) as usize)?.iter().fold(0, |length, byte| length << 8 | *byte as usize),
        _ => return None,
    };
    take(rest, length)
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(count)?;
    *rest = left;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_round_trip_and_empty_matches_java() {
        assert_eq!(encode(&TokenProto::default()), "AAAAAA");
        for length in [0, 1, 127, 128, 300, 70_000] {
            let token = TokenProto {
                identifier: vec![0xff; length].into(),
                password: Bytes::from_static(b"secret"),
                kind: "WEBHDFS delegation".into(),
                service: String::new(),
            };
            let text = encode(&token);
            assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)));
            assert_eq!(decode(&text), Some(token));
        }
    }

    #[test]
    fn invalid_token_is_none() {
        for text in ["", "A", "AAAA", "!!!!", "f____w", "gP__", "j_____8"] {
            assert_eq!(decode(text), None, "{text}");
        }
        assert_eq!(decode("AAAAAA=="), decode("AAAAAA"));
    }
}
