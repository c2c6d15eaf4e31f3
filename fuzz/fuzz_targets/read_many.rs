//! Range requests on a connection of many reads, and the headers before the answers' bytes.

#![no_main]

use hearth_wire::data_transfer::{Decoded, RangeHead, RangeRequest, ReadManyTerms};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut encoded = Vec::new();
    if let Ok(Decoded::Complete(range, _)) = RangeRequest::decode(data) {
        range.encode_into(&mut encoded);
        assert_eq!(RangeRequest::decode(&encoded), Ok(Decoded::Complete(range, encoded.len())));
    }
    encoded.clear();
    if let Ok(Decoded::Complete(head, _)) = RangeHead::decode(data) {
        assert!(head.following_bytes() <= 2 << 20);
        head.encode_into(&mut encoded);
        let again = RangeHead::decode(&encoded).expect("what was decoded is encoded so that it can be");
        assert!(matches!(again, Decoded::Complete(..)));
    }
    let _ = ReadManyTerms::decode(data);
});
