//! Compiles `proto/*/*.proto` without needing protoc on the machine.

use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let mut files = Vec::<PathBuf>::new();
    for package in ["proto/hadoop", "proto/hearth"] {
        for entry in std::fs::read_dir(package)? {
            files.push(entry?.path());
        }
    }
    files.sort();
    let descriptors = protox::compile(&files, ["proto"])?;
    // `bytes` fields become slices of the received frame instead of copies.
    prost_build::Config::new().bytes(["."]).compile_fds(descriptors)?;
    Ok(())
}
