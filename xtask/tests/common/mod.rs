//! Sources of the repository, for tests that read them.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the Rust files below `directory`, without those in folders named `left_out`.
pub fn rust_files(directory: &Path, left_out: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != left_out) {
                found.extend(rust_files(&path, left_out));
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// Returns the text of the files.
#[allow(dead_code, reason = "not every test program needs the text")]
pub fn text_of(files: &[PathBuf]) -> String {
    files.iter().map(|file| fs::read_to_string(file).unwrap()).collect()
}
