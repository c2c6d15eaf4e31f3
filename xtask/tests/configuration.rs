//! No key is declared that no program reads.

mod common;

use std::fs;
use std::path::Path;

use common::rust_files;

#[test]
fn every_declared_key_is_read() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("crates");
    let keys = crates.join("config/src/keys.rs");
    let files = rust_files(&crates, "tests");
    let code: String =
        files.iter().filter(|file| **file != keys).map(|file| fs::read_to_string(file).unwrap()).collect();
    let declared = fs::read_to_string(&keys).unwrap();
    let names: Vec<&str> = declared
        .lines()
        .filter_map(|line| line.trim_start().split_once(": "))
        .filter(|(_, rest)| rest.starts_with("Key<") || rest.starts_with("OptionalKey<"))
        .map(|(name, _)| name)
        .collect();
    assert!(names.len() > 150, "{} keys were found in {}", names.len(), keys.display());
    // Only other keys' defaults refer to it.
    let unread: Vec<_> = names
        .into_iter()
        .filter(|name| {
            *name != "HADOOP_TMP_DIR" && !code.contains(&format!("keys::{name}")) && !code.contains(&format!("{name},"))
        })
        .collect();
    assert!(unread.is_empty(), "declared in keys.rs and read nowhere: {unread:?}");
}
