//! The replicas in a full block report, with any count and any split into buffers.

#![no_main]

use bytes::Bytes;
use hearth_wire::block_report::{decode, encode};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((cut, rest)) = data.split_first() else { return };
    let (front, back) = rest.split_at(usize::from(*cut).min(rest.len()));
    let pieces = [Bytes::copy_from_slice(front), Bytes::copy_from_slice(back)];
    let replicas: Vec<_> = decode(u64::MAX, &pieces).map_while(Result::ok).collect();
    let (count, encoded) = encode(replicas.iter().copied());
    assert_eq!(decode(count, &encoded).collect::<Result<Vec<_>, _>>(), Ok(replicas));
});
