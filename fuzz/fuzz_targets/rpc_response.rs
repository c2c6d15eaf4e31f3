//! Frames that a server sends to an RPC client.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = hearth_wire::rpc::decode_response(Bytes::copy_from_slice(data));
});
