//! Recorded connections of Apache Hadoop 3.4.2 (`vectors/`, made by `capture-vectors` of `tests/interop`): every byte
//! is decoded, and encoding the result again gives the same message.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use hearth_wire::data_transfer::{
    self, BlockOpResponse, Decoded, Operation, PacketHead, PipelineAck, ReadBlock, Stage, Status, client_read_status,
};
use hearth_wire::proto::hdfs::*;
use hearth_wire::rpc::{
    CONNECTION_HEADER_BYTES, CallFrame, ConnectionHeader, FRAME_BYTES_MAX_DEFAULT, FRAME_LENGTH_BYTES, Outcome,
    Request, decode_request, decode_response, frame_length,
};
use prost::Message;

/// Returns the recorded connections whose names start with `kind`: name, bytes to the server, bytes to the client.
fn connections(kind: &str) -> Vec<(String, Bytes, Bytes)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
    let mut paths: Vec<PathBuf> = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let mut found = Vec::new();
    for path in paths {
        let name = path.file_name().unwrap().to_str().unwrap();
        if let Some(name) = name.strip_suffix(".to-server.bin").filter(|name| name.starts_with(kind)) {
            let to_client = directory.join(format!("{name}.to-client.bin"));
            found.push((name.to_owned(), fs::read(&path).unwrap().into(), fs::read(to_client).unwrap().into()));
        }
    }
    assert!(!found.is_empty(), "no vectors of {kind}");
    found
}

/// Splits a stream into its frames. The recording may end within one.
fn frames(mut stream: Bytes) -> Vec<Bytes> {
    let mut frames = Vec::new();
    while let Some(prefix) = stream.first_chunk::<FRAME_LENGTH_BYTES>() {
        let length = frame_length(*prefix, FRAME_BYTES_MAX_DEFAULT).unwrap();
        if stream.len() < FRAME_LENGTH_BYTES + length {
            break;
        }
        frames.push(stream.slice(FRAME_LENGTH_BYTES..FRAME_LENGTH_BYTES + length));
        stream = stream.slice(FRAME_LENGTH_BYTES + length..);
    }
    frames
}

/// Decodes and encodes again. A field that Hearth's schema lacks, or has with another number or type, is not in the
/// result.
fn again<M: Message + Default + std::fmt::Debug>(bytes: &Bytes) -> (Vec<u8>, String) {
    let message = M::decode(bytes.clone()).unwrap();
    (message.encode_to_vec(), format!("{message:?}"))
}

/// Result for one message: its bytes after re-encoding, and its debug text.
type Again = fn(&Bytes) -> (Vec<u8>, String);

/// Returns the decoders of the request and of the response of each method.
fn methods() -> BTreeMap<&'static str, (Again, Again)> {
    macro_rules! methods {
        ($($name:literal $request:ident $response:ident;)*) => {
            BTreeMap::from([$(($name, (again::<$request> as Again, again::<$response> as Again)),)*])
        };
    }
    methods! {
        "addBlock" AddBlockRequestProto AddBlockResponseProto;
        "append" AppendRequestProto AppendResponseProto;
        "blockReceivedAndDeleted" BlockReceivedAndDeletedRequestProto BlockReceivedAndDeletedResponseProto;
        "blockReport" BlockReportRequestProto BlockReportResponseProto;
        "commitBlockSynchronization" CommitBlockSynchronizationRequestProto CommitBlockSynchronizationResponseProto;
        "complete" CompleteRequestProto CompleteResponseProto;
        "concat" ConcatRequestProto ConcatResponseProto;
        "create" CreateRequestProto CreateResponseProto;
        "delete" DeleteRequestProto DeleteResponseProto;
        "fsync" FsyncRequestProto FsyncResponseProto;
        "getBlockLocations" GetBlockLocationsRequestProto GetBlockLocationsResponseProto;
        "getContentSummary" GetContentSummaryRequestProto GetContentSummaryResponseProto;
        "getDatanodeReport" GetDatanodeReportRequestProto GetDatanodeReportResponseProto;
        "getFileInfo" GetFileInfoRequestProto GetFileInfoResponseProto;
        "getFsStats" GetFsStatusRequestProto GetFsStatsResponseProto;
        "getListing" GetListingRequestProto GetListingResponseProto;
        "getServerDefaults" GetServerDefaultsRequestProto GetServerDefaultsResponseProto;
        "initReplicaRecovery" InitReplicaRecoveryRequestProto InitReplicaRecoveryResponseProto;
        "isFileClosed" IsFileClosedRequestProto IsFileClosedResponseProto;
        "mkdirs" MkdirsRequestProto MkdirsResponseProto;
        "recoverLease" RecoverLeaseRequestProto RecoverLeaseResponseProto;
        "registerDatanode" RegisterDatanodeRequestProto RegisterDatanodeResponseProto;
        "rename" RenameRequestProto RenameResponseProto;
        "rename2" Rename2RequestProto Rename2ResponseProto;
        "sendHeartbeat" HeartbeatRequestProto HeartbeatResponseProto;
        "setOwner" SetOwnerRequestProto SetOwnerResponseProto;
        "setPermission" SetPermissionRequestProto SetPermissionResponseProto;
        "setReplication" SetReplicationRequestProto SetReplicationResponseProto;
        "setSafeMode" SetSafeModeRequestProto SetSafeModeResponseProto;
        "setTimes" SetTimesRequestProto SetTimesResponseProto;
        "truncate" TruncateRequestProto TruncateResponseProto;
        "updateBlockForPipeline" UpdateBlockForPipelineRequestProto UpdateBlockForPipelineResponseProto;
        "updatePipeline" UpdatePipelineRequestProto UpdatePipelineResponseProto;
        "updateReplicaUnderRecovery" UpdateReplicaUnderRecoveryRequestProto UpdateReplicaUnderRecoveryResponseProto;
        "versionRequest" VersionRequestProto VersionResponseProto;
    }
}

#[test]
fn calls_and_answers_round_trip() {
    let methods = methods();
    let (mut seen, mut lost, mut errors) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for (name, to_server, to_client) in connections("rpc-") {
        ConnectionHeader::decode(to_server[..CONNECTION_HEADER_BYTES].try_into().unwrap()).unwrap();
        let mut calls: BTreeMap<i32, CallFrame> = BTreeMap::new();
        let mut check = |method: &str, part: &str, decoder: Again, bytes: &Bytes| {
            let (encoded, text) = decoder(bytes);
            if encoded != *bytes {
                lost.insert(format!("{name}: {method} {part}: {text}\n  {bytes:02x?}\n  {encoded:02x?}"));
            }
        };
        for frame in frames(to_server.slice(CONNECTION_HEADER_BYTES..)) {
            match decode_request(frame).unwrap() {
                Request::Call(call) => {
                    if let Some((request, _)) = methods.get(call.method.as_str()) {
                        check(&call.method, "request", *request, &call.request);
                    }
                    seen.insert(call.method.clone());
                    calls.insert(call.call_id, call);
                }
                Request::Context(context) => assert!(context.protocol.ends_with("Protocol"), "{context:?}"),
                Request::Ping | Request::Sasl(_) => {}
            }
        }
        for frame in frames(to_client) {
            let response = decode_response(frame).unwrap();
            let call = &calls[&response.call_id];
            assert_eq!(response.client_id, call.client_id);
            match response.outcome {
                Outcome::Success(message) => {
                    if let Some((_, answer)) = methods.get(call.method.as_str()) {
                        check(&call.method, "response", *answer, &message);
                    }
                }
                Outcome::Error(error) => {
                    errors.insert(format!("{} {}", call.method, error.class));
                }
            }
        }
    }
    let lost: Vec<String> = lost.into_iter().collect();
    assert!(lost.is_empty(), "{} messages come back different:\n{}", lost.len(), lost.join("\n"));
    assert_eq!(errors, BTreeSet::from(["create org.apache.hadoop.fs.FileAlreadyExistsException".to_owned()]));
    let missing: Vec<_> = methods.keys().filter(|method| !seen.contains(**method)).collect();
    assert!(missing.is_empty(), "never called: {missing:?}");
}

/// Removes one decoded item from the front of `bytes`.
fn take<T>(bytes: &mut Bytes, decoded: Decoded<T>) -> T {
    match decoded {
        Decoded::Complete(value, used) => {
            *bytes = bytes.slice(used..);
            value
        }
        Decoded::Needs(more) => panic!("{more} bytes are missing behind {bytes:02x?}"),
    }
}

/// Removes an operation from the front, and compares it with Hearth's encoding of it.
fn take_operation(bytes: &mut Bytes) -> Operation {
    let all = bytes.clone();
    let operation = take(bytes, Operation::decode(&all).unwrap());
    let (mut said, mut ours) = (all.slice(..all.len() - bytes.len()), Bytes::from(operation.encode()));
    if matches!(operation, Operation::WriteBlock(_)) {
        // Version and code, then the message. Hearth does not encode a source without identity, nor a time on another
        // machine's monotonic clock.
        let parse = |bytes: &Bytes| {
            let mut message = OpWriteBlockProto::decode_length_delimited(bytes.slice(3..)).unwrap();
            message.source = message.source.filter(|source| !source.id.datanode_uuid.is_empty());
            message.targets.iter_mut().for_each(|target| target.last_block_report_monotonic = None);
            Bytes::from(message.encode_to_vec())
        };
        (said, ours) = (parse(&said), parse(&ours));
    }
    assert_eq!(said, ours, "{operation:?}");
    operation
}

fn take_packet(bytes: &mut Bytes) -> PacketHead {
    let all = bytes.clone();
    let head = take(bytes, PacketHead::decode(&all).unwrap());
    let mut buffer = [0; data_transfer::PACKET_HEADER_BYTES_MAX];
    let length = head.header.encode(head.checksum_bytes, &mut buffer);
    assert_eq!(buffer[..length], all[..all.len() - bytes.len()], "{head:?}");
    head
}

/// Bit by bit, from the definition: polynomial 0x1edc6f41, reflected.
fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg());
        }
    }
    !crc
}

/// Returns the bytes after a packet's header, after checking their CRCs.
fn take_body(bytes: &mut Bytes, head: PacketHead) -> Bytes {
    let checksums = bytes.split_to(head.checksum_bytes);
    let data = bytes.split_to(head.data_bytes);
    let expected: Vec<u8> = data.chunks(512).flat_map(|chunk| crc32c(chunk).to_be_bytes()).collect();
    assert_eq!(checksums, expected, "CRCs of the packet at {}", head.header.offset);
    data
}

#[test]
fn recorded_writes_round_trip() {
    let mut stages = Vec::new();
    for (name, mut to_server, mut to_client) in connections("write-block") {
        let Operation::WriteBlock(write) = take_operation(&mut to_server) else { panic!("{name}: no write") };
        stages.push(write.stage);
        let all = to_client.clone();
        let answer = take(&mut to_client, BlockOpResponse::decode(&all).unwrap());
        assert_eq!(answer.status, Status::Success, "{name}: {answer:?}");
        let mut seqnos = Vec::new();
        while !to_server.is_empty() {
            let head = take_packet(&mut to_server);
            take_body(&mut to_server, head);
            seqnos.push(head.header.seqno);
        }
        for seqno in seqnos {
            let all = to_client.clone();
            let ack = take(&mut to_client, PipelineAck::decode(&all).unwrap());
            assert_eq!((ack.seqno, ack.is_success()), (seqno, true), "{name}: {ack:?}");
            assert_eq!(ack.encode(), all[..all.len() - to_client.len()], "{name}: {ack:?}");
        }
        assert!(to_client.is_empty(), "{name}: {to_client:02x?}");
    }
    assert!(stages.contains(&Stage::PipelineSetupCreate) && stages.contains(&Stage::PipelineSetupAppend), "{stages:?}");
}

#[test]
fn recorded_reads_round_trip() {
    for (name, mut to_server, mut to_client) in connections("read-block") {
        while !to_server.is_empty() {
            let Operation::ReadBlock(read) = take_operation(&mut to_server) else { panic!("{name}: no read") };
            let ReadBlock { offset, length, .. } = read;
            let all = to_client.clone();
            let answer = take(&mut to_client, BlockOpResponse::decode(&all).unwrap());
            let checksum = answer.read_checksum.unwrap_or_else(|| panic!("{name}: {answer:?}"));
            assert_eq!(answer.encode(), all[..all.len() - to_client.len()], "{name}: {answer:?}");
            let mut end = checksum.chunk_offset;
            loop {
                let head = take_packet(&mut to_client);
                assert_eq!(head.header.offset, end, "{name}");
                end += take_body(&mut to_client, head).len() as u64;
                if head.header.last {
                    break;
                }
            }
            assert!(end >= offset + length.unwrap_or(0), "{name}: ends at {end}");
            let all = to_server.clone();
            assert_eq!(take(&mut to_server, client_read_status(&all).unwrap()), Status::ChecksumOk);
        }
        assert!(to_client.is_empty(), "{name}: {to_client:02x?}");
    }
}

#[test]
fn recorded_block_checksums_round_trip() {
    for (name, mut to_server, mut to_client) in connections("block-checksum") {
        let operation = take_operation(&mut to_server);
        assert!(matches!(operation, Operation::BlockChecksum(_)), "{name}: {operation:?}");
        let all = to_client.clone();
        let answer = take(&mut to_client, BlockOpResponse::decode(&all).unwrap());
        assert_eq!(answer.encode(), all, "{name}: {answer:?}");
        assert!(to_server.is_empty() && to_client.is_empty(), "{name}");
    }
}
