//! Acknowledgements and answers of DataNodes, and the final status that readers send.

#![no_main]

use hearth_wire::data_transfer::{
    BlockOpResponse, Decoded, PipelineAck, ShmResponse, ShortCircuitReleaseResponse, client_read_status,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(Decoded::Complete(ack, _)) = PipelineAck::decode(data) {
        let encoded = ack.encode();
        assert_eq!(PipelineAck::decode(&encoded), Ok(Decoded::Complete(ack, encoded.len())));
    }
    if let Ok(Decoded::Complete(response, _)) = BlockOpResponse::decode(data) {
        let encoded = response.encode();
        assert_eq!(BlockOpResponse::decode(&encoded), Ok(Decoded::Complete(response, encoded.len())));
    }
    let _ = client_read_status(data);
    let _ = ShmResponse::decode(data);
    let _ = ShortCircuitReleaseResponse::decode(data);
});
