//! Identifiers of block tokens in both encodings.

#![no_main]

use hearth_wire::block_token::{BlockTokenEncoding, BlockTokenIdentifier};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(identifier) = BlockTokenIdentifier::decode(data) {
        let encoded = identifier.encode(BlockTokenEncoding::Protobuf);
        // With an expiry of 0 the first byte is still that of a protobuf field.
        assert_eq!(BlockTokenIdentifier::decode(&encoded), Ok(identifier));
    }
});
