//! Packet headers.

#![no_main]

use hearth_wire::data_transfer::{Decoded, PACKET_BYTES_MAX, PACKET_HEADER_BYTES_MAX, PacketHead};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    match PacketHead::decode(data) {
        Ok(Decoded::Complete(head, consumed)) => {
            assert!(consumed <= data.len() && head.body_bytes() <= PACKET_BYTES_MAX);
            let mut buffer = [0; PACKET_HEADER_BYTES_MAX];
            let length = head.header.encode(head.checksum_bytes, &mut buffer);
            assert_eq!(PacketHead::decode(&buffer[..length]), Ok(Decoded::Complete(head, length)));
        }
        Ok(Decoded::Needs(missing)) => assert!(missing > 0 && missing <= PACKET_BYTES_MAX),
        Err(_) => {}
    }
});
