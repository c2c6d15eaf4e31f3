//! Cargo's view of the packages: every dependency is named in the sources, and every example of documentation is run.

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

/// Returns the packages of the workspace as `cargo metadata` describes them.
fn packages() -> Vec<Value> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let output = Command::new(cargo)
        .args(["metadata", "--offline", "--no-deps", "--format-version", "1"])
        .current_dir(root)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

/// Returns what follows the opening fence of each code block in doc comments, such as `text`. Empty for Rust.
fn code_blocks(text: &str) -> Vec<&str> {
    let comments = text.lines().map(str::trim_start);
    let comments = comments.filter_map(|line| line.strip_prefix("///").or_else(|| line.strip_prefix("//!")));
    let fences = comments.filter_map(|line| line.trim_start().strip_prefix("```"));
    // Every other fence closes a block.
    fences.step_by(2).collect()
}

#[test]
fn every_example_of_documentation_is_run() {
    let (mut without, mut not_run) = (0, Vec::new());
    for package in packages() {
        let folder = Path::new(package["manifest_path"].as_str().unwrap()).parent().unwrap();
        let targets = package["targets"].as_array().unwrap();
        // Cargo runs the examples of the others.
        if !targets.iter().any(|target| target["kind"].to_string().contains("lib") && target["doctest"] == false) {
            continue;
        }
        without += 1;
        let text = text_of(&rust_files(&folder.join("src"), "target"));
        if code_blocks(&text).iter().any(|language| *language != "text") {
            not_run.push(package["name"].to_string());
        }
    }
    assert!(without > 10, "only {without} libraries have `doctest = false`");
    assert!(not_run.is_empty(), "these have examples and `doctest = false`: {}", not_run.join(", "));
}

#[test]
fn code_blocks_are_found_in_doc_comments() {
    let text = "//! ```text\n//! a\n//! ```\nfn f() {} // ```no\n    /// ```\n    /// f();\n    /// ```\n";
    assert_eq!(code_blocks(text), ["text", ""]);
}

#[test]
fn no_dependency_is_unused() {
    let (mut unused, mut seen) = (Vec::new(), 0);
    for package in &packages() {
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
