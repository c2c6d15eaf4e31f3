//! Control messages of one-sided connections, and advertisements inside other messages.

#![no_main]

use bytes::Bytes;
use hearth_wire::rdma_control::{Advertisement, ControlMessage, WriteMessage};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let bytes = Bytes::copy_from_slice(data);
    if let Ok(message) = ControlMessage::decode(&bytes) {
        // Default values are written explicitly, so a message at the maximum length can become longer.
        if let Ok(encoded) = message.encode() {
            assert_eq!(ControlMessage::decode(&encoded), Ok(message));
        }
    }
    if let Ok(message) = WriteMessage::decode(&bytes)
        && let Ok(encoded) = message.encode()
    {
        assert_eq!(WriteMessage::decode(&encoded), Ok(message));
    }
    if let Ok(advertisement) = Advertisement::decode(&bytes) {
        assert_eq!(Advertisement::decode(&advertisement.encode()), Ok(advertisement));
    }
});
