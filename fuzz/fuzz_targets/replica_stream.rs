//! Frames of a replica stream, in both directions, and its handshake.

#![no_main]

use hearth_wire::data_transfer::{Decoded, StreamTerms, ToReceiver, ToSender};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut encoded = Vec::new();
    if let Ok(Decoded::Complete(frame, _)) = ToReceiver::decode(data) {
        if let ToReceiver::Data(piece) = &frame {
            assert!(piece.body_bytes() <= 5 << 20 && piece.end() <= i64::MAX as u64);
        }
        frame.encode_into(&mut encoded);
        assert_eq!(ToReceiver::decode(&encoded), Ok(Decoded::Complete(frame, encoded.len())));
    }
    encoded.clear();
    if let Ok(Decoded::Complete(frame, _)) = ToSender::decode(data) {
        frame.encode_into(&mut encoded);
        let again = ToSender::decode(&encoded).expect("what was decoded is encoded so that it can be");
        assert!(matches!(again, Decoded::Complete(..)));
    }
    if let Ok(Decoded::Complete(StreamTerms::Accepted(limits), _)) = StreamTerms::decode(data) {
        assert!(limits.window_bytes >= 2048 && limits.replicas_max > 0);
    }
});
