//! Conversion of messages of the NameNode and DataNode protocols to Hearth's types.

#![no_main]

use hearth_types::{DatanodeInfo, ExtendedBlock, FileStatus, LocatedBlocks, ServerDefaults, StorageReport};
use hearth_wire::proto::hdfs::*;
use libfuzzer_sys::fuzz_target;
use prost::Message;

/// Checks that an accepted message is the same after a round trip over the wire.
fn check<M, T>(body: &[u8])
where
    M: Message + Default + for<'a> From<&'a T>,
    T: TryFrom<M, Error: std::fmt::Debug> + PartialEq + std::fmt::Debug,
{
    let Ok(message) = M::decode(body) else { return };
    let Ok(value) = T::try_from(message) else { return };
    let again = M::decode(M::from(&value).encode_to_vec().as_slice()).expect("our own message");
    assert_eq!(T::try_from(again).expect("our own message"), value);
}

fuzz_target!(|data: &[u8]| {
    let Some((which, body)) = data.split_first() else { return };
    match which % 6 {
        0 => check::<LocatedBlocksProto, LocatedBlocks>(body),
        1 => check::<StorageReportProto, StorageReport>(body),
        2 => check::<FsServerDefaultsProto, ServerDefaults>(body),
        3 => check::<DatanodeInfoProto, DatanodeInfo>(body),
        4 => check::<HdfsFileStatusProto, FileStatus>(body),
        _ => check::<ExtendedBlockProto, ExtendedBlock>(body),
    }
});
