//! Frames that clients send to an RPC server.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = hearth_wire::rpc::decode_request(Bytes::copy_from_slice(data));
    if let Some(header) = data.first_chunk()
        && let Ok(header) = hearth_wire::rpc::ConnectionHeader::decode(*header)
    {
        assert_eq!(hearth_wire::rpc::ConnectionHeader::decode(header.encode()), Ok(header));
    }
});
