//! Every dependency of every package is named in its sources.

mod common;

use std::path::Path;
use std::process::Command;

use common::{rust_files, text_of};
use serde_json::Value;

/// Whether `text` has `name` as a whole word, outside of comments.
fn names(text: &str, name: &str) -> bool {
    let in_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let mut lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.any(|line| {
        line.match_indices(name).any(|(at, _)| {
            let (before, after) = (line[..at].bytes().last(), line[at + name.len()..].bytes().next());
            !before.is_some_and(in_word) && !after.is_some_and(in_word)
        })
    })
}

#[test]
fn no_dependency_is_unused() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let output = Command::new(cargo)
        .args(["metadata", "--offline", "--no-deps", "--format-version", "1"])
        .current_dir(root)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let (mut unused, mut seen) = (Vec::new(), 0);
    for package in metadata["packages"].as_array().unwrap() {
        let folder = Path::new(package["manifest_path"].as_str().unwrap()).parent().unwrap();
        let sources = |folder: &Path| text_of(&rust_files(folder, "target"));
        let all = sources(folder);
        // `interop` is nothing but tests.
        let of_product = if package["name"] == "hearth-interop" { folder.to_owned() } else { folder.join("src") };
        let product = sources(&of_product);
        for dependency in package["dependencies"].as_array().unwrap() {
            let only_tests = dependency["kind"] == "dev";
            let name = match dependency["rename"].as_str().or(dependency["name"].as_str()).unwrap() {
                // The one package whose library has another name.
                "md-5" => "md5".to_owned(),
                name => name.replace('-', "_"),
            };
            seen += 1;
            if !names(if only_tests { &all } else { &product }, &name) {
                unused.push(format!("{}: {name}", package["name"].as_str().unwrap()));
            }
        }
    }
    assert!(seen > 100, "only {seen} dependencies were found");
    assert!(unused.is_empty(), "dependencies that no source names:\n{}", unused.join("\n"));
}

#[test]
fn a_name_counts_as_a_whole_word_outside_of_comments() {
    assert!(names("use sha2::Sha256;", "sha2"));
    assert!(!names("use sha256::x;\n// sha2::y", "sha2"));
}

/// Only tests can pause the runtime's clock. Where that is possible, reading the clock costs more.
#[test]
fn released_program_cannot_pause_its_clock() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["tree", "--offline", "--package", "hearth", "--edges", "normal,features"])
        .args(["--invert", "tokio", "--prefix", "none"])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let features = String::from_utf8(output.stdout).unwrap();
    let has = |feature: &str| features.lines().any(|line| line.starts_with(&format!("tokio feature \"{feature}\"")));
    assert!(has("time"), "{features}");
    assert!(!has("test-util"), "{features}");
}
