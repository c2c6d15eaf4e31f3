//! RPC frames compared byte by byte with those of Apache Hadoop, and properties for arbitrary bytes.

use bytes::Bytes;
use hearth_wire::proto::common::RpcSaslProto;
use hearth_wire::proto::common::rpc_sasl_proto::SaslState;
use hearth_wire::proto::hdfs::VersionRequestProto;
use hearth_wire::rpc::*;
use hearth_wire::trace::SpanContext;
use proptest::prelude::*;

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap()).collect()
}

const CLIENT: ClientId = ClientId([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);

fn decode(framed: &[u8]) -> Request {
    let length = frame_length(framed[..4].try_into().unwrap(), FRAME_BYTES_MAX_DEFAULT).unwrap();
    assert_eq!(length, framed.len() - 4);
    decode_request(Bytes::copy_from_slice(&framed[4..])).unwrap()
}

#[test]
fn context() {
    let context =
        ConnectionContext { effective_user: "hdfs".into(), real_user: None, protocol: protocols::DATANODE.into() };
    let golden = bytes(concat!(
        "0000005d1a0802100018052210000102030405060708090a0b0c0d0e0f28014112060a04686466731a376f72672e6170616368652e6861646f6f",
        "702e686466732e7365727665722e70726f746f636f6c2e446174616e6f646550726f746f636f6c"
    ));
    assert_eq!(encode_context(CLIENT, &context), golden);
    assert_eq!(decode(&golden), Request::Context(context));
}

#[test]
fn call() {
    let golden = bytes(concat!(
        "000000681a0802100018002210000102030405060708090a0b0c0d0e0f28004b0a0e76657273696f6e5265717565737412376f72672e61706163",
        "68652e6861646f6f702e686466732e7365727665722e70726f746f636f6c2e446174616e6f646550726f746f636f6c180100"
    ));
    assert_eq!(encode_call(0, CLIENT, 0, protocols::DATANODE, "versionRequest", &VersionRequestProto {}), golden);
    let Request::Call(call) = decode(&golden) else { panic!("not a call") };
    assert_eq!((call.call_id, call.retry_count, call.protocol_version), (0, 0, 1));
    assert_eq!((call.protocol.as_str(), call.method.as_str()), (protocols::DATANODE, "versionRequest"));
    assert_eq!(ClientId::try_from(&call.client_id[..]), Ok(CLIENT));
    assert!(call.request.is_empty());
}

#[test]
fn ping() {
    let golden = bytes("0000001b1a0802100018072210000102030405060708090a0b0c0d0e0f2801");
    assert_eq!(encode_ping(CLIENT), golden);
    assert_eq!(decode(&golden), Request::Ping);
}

#[test]
fn sasl() {
    let negotiate = RpcSaslProto { state: SaslState::Negotiate as i32, ..Default::default() };
    let golden = bytes("0000000e0a08021000184122002801021001");
    assert_eq!(encode_sasl_request(&negotiate), golden);
    assert_eq!(decode(&golden), Request::Sasl(negotiate));

    let success = RpcSaslProto { state: SaslState::Success as i32, ..Default::default() };
    let golden = bytes("000000120e08dfffffff0f100018093a004001021000");
    assert_eq!(encode_sasl_response(&success), golden);
    let response = decode_response(Bytes::copy_from_slice(&golden[4..])).unwrap();
    assert_eq!(response.call_id, call_id::SASL);
    assert_eq!(response.outcome, Outcome::Success(Bytes::from_static(&[0x10, 0])));
}

#[test]
fn errors_and_frame_limits() {
    let error = RemoteError {
        class: exceptions::RPC_NO_SUCH_METHOD.into(),
        message: "Unknown method x".into(),
        code: Some(ErrorCode::ErrorNoSuchMethod),
        fatal: false,
    };
    let frame = encode_error(7, &Bytes::copy_from_slice(&CLIENT.0), 2, &error);
    let response = decode_response(frame.slice(4..)).unwrap();
    assert_eq!((response.call_id, response.outcome), (7, Outcome::Error(error)));

    assert_eq!(frame_length([0, 0, 1, 0], 256), Ok(256));
    assert_eq!(frame_length([0, 0, 1, 1], 256), Err(FrameTooLong { length: 257, limit: 256 }));
    assert!(frame_length([0xff; 4], FRAME_BYTES_MAX_DEFAULT).is_err());
}

#[test]
fn calls_carry_the_callers_span() {
    let trace = Some(SpanContext { trace_id: [1; 16], span_id: [2; 8] });
    let context = CallContext { state_id: Some(7), trace };
    let frame = encode_call_with(context, 3, CLIENT, 0, "p", "m", &VersionRequestProto {});
    let Request::Call(call) = decode(&frame) else { panic!("not a call") };
    assert_eq!((call.trace, call.state_id), (trace, Some(7)));
    let plain = encode_call_with(CallContext::default(), 3, CLIENT, 0, "p", "m", &VersionRequestProto {});
    assert_eq!(plain, encode_call(3, CLIENT, 0, "p", "m", &VersionRequestProto {}));
}

#[test]
fn bad_requests_report_call_and_reason() {
    // callId 5 without rpcKind.
    let error = decode_request(Bytes::from(bytes("0610001 80a2200".replace(' ', "").as_str()))).unwrap_err();
    assert_eq!((error.call_id, error.kind.code()), (5, ErrorCode::FatalInvalidRpcHeader));
    // A negative id without a meaning (-2).
    let error = decode_request(Bytes::from(bytes("08080210001803220 0".replace(' ', "").as_str()))).unwrap_err();
    assert_eq!(error.kind, RequestErrorKind::OutOfBand { call_id: -2 });
    // A call without its request message.
    let call = encode_call(3, CLIENT, 0, "p", "m", &VersionRequestProto {});
    let error = decode_request(call.slice(4..call.len() - 1)).unwrap_err();
    assert_eq!((error.call_id, error.kind.code()), (3, ErrorCode::FatalDeserializingRequest));
    let error = decode_request(Bytes::new()).unwrap_err();
    assert_eq!(error.call_id, call_id::INVALID);
}

proptest! {
    #[test]
    fn calls_round_trip(id in 0i32.., retry in -1i32..100, protocol in ".{0,40}", method in ".{0,40}", body in any::<u64>()) {
        let frame = encode_call(id, CLIENT, retry, &protocol, &method, &body);
        match decode(&frame) {
            Request::Call(call) => {
                prop_assert_eq!((call.call_id, call.retry_count), (id, retry));
                prop_assert_eq!((call.protocol, call.method), (protocol, method));
                prop_assert_eq!(<u64 as prost::Message>::decode(call.request).unwrap(), body);
            }
            other => prop_assert!(false, "{:?}", other),
        }
    }

    #[test]
    fn responses_round_trip(id in any::<i32>(), retry in any::<i32>(), body in proptest::collection::vec(any::<u8>(), 0..300)) {
        let frame = encode_success(id, &Bytes::from_static(&CLIENT.0), retry, &body);
        let response = decode_response(frame.slice(4..)).unwrap();
        prop_assert_eq!(response.call_id, id);
        prop_assert_eq!(response.outcome, Outcome::Success(Bytes::from(body)));
        prop_assert!(decode_response(Bytes::from([&frame[4..], &[0]].concat())).is_err());
    }

    #[test]
    fn any_bytes_are_decoded_or_refused(body in proptest::collection::vec(any::<u8>(), 0..200)) {
        let body = Bytes::from(body);
        let _ = decode_request(body.clone());
        let _ = decode_response(body);
    }

    #[test]
    fn damaged_frames_are_decoded_or_refused(at in 0usize..104, value in any::<u8>(), cut in 0usize..104) {
        let frame = encode_call(0, CLIENT, 0, protocols::DATANODE, "versionRequest", &VersionRequestProto {});
        let mut damaged = frame[4..].to_vec();
        let at = at.min(damaged.len() - 1);
        damaged[at] = value;
        let _ = decode_request(Bytes::from(damaged.clone()));
        damaged.truncate(cut);
        let _ = decode_request(Bytes::from(damaged));
    }
}
