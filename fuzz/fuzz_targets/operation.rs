//! Requests to a DataNode: a decoded request has the same meaning when it is encoded again.

#![no_main]

use hearth_wire::data_transfer::{Decoded, Operation};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(Decoded::Complete(operation, consumed)) = Operation::decode(data) {
        assert!(consumed <= data.len());
        let encoded = operation.encode();
        assert_eq!(Operation::decode(&encoded), Ok(Decoded::Complete(operation, encoded.len())));
    }
});
