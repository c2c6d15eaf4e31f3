//! Compiles the targets in `fuzz/fuzz_targets` and runs each on inputs made from the recorded bytes of real clients and servers: cut, joined and
//! changed at random, with a fixed seed. `cargo +nightly fuzz run TARGET` continues from there for as long as wanted.

// The targets import libfuzzer's macro by path: in this crate the macro at the end of this file takes its place.
extern crate self as libfuzzer_sys;

use std::path::Path;

#[path = "../../../fuzz/fuzz_targets/block_report.rs"]
#[allow(unused_attributes, reason = "`no_main` is for the program that libFuzzer makes of it")]
mod block_report;
#[path = "../../../fuzz/fuzz_targets/block_token.rs"]
#[allow(unused_attributes, reason = "`no_main` is for the program that libFuzzer makes of it")]
mod block_token;
#[path = "../../../fuzz/fuzz_targets/convert.rs"]
#[allow(unused_attributes, reason = "`no_main` is for the program that libFuzzer makes of it")]
mod convert;
#[path = "../../../fuzz/fuzz_targets/data_transfer_answers.rs"]
#[allow(unused_attributes, reason = "`no_main` is for the program that libFuzzer makes of it")]
mod data_transfer_answers;
#[path = "../../../fuzz/fuzz_targets/operation.rs"]
#[allow(unused_attributes, reason = "`no_main` is for the program that libFuzzer makes of it")]
mod operation;
#[path = "../../../fuzz/fuzz_targets/packet.rs"]
#[allow(unused_attributes, reason = "`no_main` is for the program that libFuzzer makes of it")]
mod packet;
#[path = "../../../fuzz/fuzz_targets/rdma_control.rs"]
#[allow(unused_attributes, reason = "`no_main` is for the program that libFuzzer makes of it")]
mod rdma_control;
#[path = "../../../fuzz/fuzz_targets/read_many.rs"]
#[allow(unused_attributes, reason = "`no_main` is for the program that libFuzzer makes of it")]
mod read_many;
#[path = "../../../fuzz/fuzz_targets/replica_stream.rs"]
#[allow(unused_attributes, reason = "`no_main` is for the program that libFuzzer makes of it")]
mod replica_stream;
#[path = "../../../fuzz/fuzz_targets/rpc_request.rs"]
#[allow(unused_attributes, reason = "`no_main` is for the program that libFuzzer makes of it")]
mod rpc_request;
#[path = "../../../fuzz/fuzz_targets/rpc_response.rs"]
#[allow(unused_attributes, reason = "`no_main` is for the program that libFuzzer makes of it")]
mod rpc_response;
#[path = "../../../fuzz/fuzz_targets/storage_files.rs"]
#[allow(unused_attributes, reason = "`no_main` is for the program that libFuzzer makes of it")]
mod storage_files;

/// Inputs for each target.
const ROUNDS: usize = 100_000;
/// Longest input.
const INPUT_BYTES_MAX: usize = 512;

macro_rules! targets {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                $name::run(&[]);
                let mut inputs = Inputs::new();
                for _ in 0..ROUNDS {
                    let input = inputs.next();
                    let outcome = std::panic::catch_unwind(|| $name::run(&input));
                    assert!(outcome.is_ok(), "{} panics on {input:02x?}", stringify!($name));
                }
            }
        )*
        const TARGETS: &[&str] = &[$(stringify!($name)),*];
    };
}

targets! {
    block_report
    block_token
    convert
    data_transfer_answers
    operation
    packet
    rdma_control
    read_many
    replica_stream
    rpc_request
    rpc_response
    storage_files
}

#[test]
fn every_target_is_run() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/fuzz_targets");
    let files = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<_> =
        files.map(|file| file.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned()).collect();
    names.sort();
    assert_eq!(names, TARGETS);
}

/// Recorded conversations, and a generator (xorshift, 64 bits) that makes inputs from them.
struct Inputs {
    recorded: Vec<Vec<u8>>,
    state: u64,
}

impl Inputs {
    fn new() -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
        let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
        paths.sort();
        let recorded: Vec<_> = paths.iter().map(|path| std::fs::read(path).unwrap()).collect();
        assert!(recorded.len() > 20, "{} recorded conversations", recorded.len());
        Self { recorded, state: 0x9e37_79b9_7f4a_7c15 }
    }

    /// A number below `limit`.
    fn below(&mut self, limit: usize) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state % limit as u64) as usize
    }

    fn next(&mut self) -> Vec<u8> {
        let mut input = Vec::new();
        for _ in 0..=self.below(2) {
            let of = self.below(self.recorded.len());
            let from = self.below(self.recorded[of].len());
            let length = self.below(INPUT_BYTES_MAX / 2).min(self.recorded[of].len() - from);
            input.extend_from_slice(&self.recorded[of][from..from + length]);
        }
        for _ in 0..self.below(8) {
            let at = self.below(input.len() + 1);
            let byte = self.below(256) as u8;
            match self.below(4) {
                0 => input.insert(at, byte),
                1 if at < input.len() => {
                    input.remove(at);
                }
                2 if at < input.len() => input[at] ^= 1 << (byte % 8),
                _ if at < input.len() => input[at] = byte,
                _ => input.push(byte),
            }
        }
        input
    }
}

/// Turns a target into a function of its module.
#[macro_export]
macro_rules! fuzz_target {
    (|$data:ident: &[u8]| $body:block) => {
        pub fn run($data: &[u8]) {
            $body
        }
    };
}
