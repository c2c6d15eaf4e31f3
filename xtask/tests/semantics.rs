//! docs/SEMANTICS.md names a test for each promise: the tests are there.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use common::{rust_files, text_of};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("below the root").to_owned()
}

/// What stands between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// `a/{b,c}.rs` is two.
fn expanded(name: &str) -> Vec<String> {
    match name.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?))) {
        Some((before, (inner, after))) => inner.split(',').map(|part| format!("{before}{part}{after}")).collect(),
        None => vec![name.to_owned()],
    }
}

#[test]
fn each_promise_names_tests_that_are_there() {
    let root = root();
    let page = fs::read_to_string(root.join("docs/SEMANTICS.md")).expect("docs/SEMANTICS.md");
    let files: Vec<PathBuf> = ["tests/interop/tests", "crates"]
        .iter()
        .flat_map(|directory| rust_files(&root.join(directory), "target"))
        .collect();
    let tests = text_of(&files);
    let is_suite = |name: &str| {
        let place = root.join("tests/interop/tests").join(name);
        place.is_dir() || place.with_extension("rs").is_file() || tests.contains(&format!("name: \"{name}\""))
    };
    let is_function = |name: &str| {
        // A function of Rust; or a check of the suites with real clients, which are rows of tables.
        tests.contains(&format!("fn {name}(")) || tests.contains(&format!("(\"{name}\""))
    };
    // A class of the contract, which is Apache's, as the suite names it; a flag of `cargo xtask test`.
    let is_class = |name: &str| name.starts_with("Test") && tests.contains(&format!("\"{name}\""));
    let chores = fs::read_to_string(root.join("xtask/src/main.rs")).expect("xtask/src/main.rs");
    let is_flag =
        |name: &str| name.strip_prefix("--").is_some_and(|flag| chores.contains(&format!("    {flag}: bool")));
    let (mut missing, mut promises) = (BTreeSet::new(), 0);
    for row in page.lines().filter(|line| line.starts_with("| ") && line.ends_with(" |")) {
        let Some((promise, named)) = row.trim_end_matches(" |").rsplit_once(" | ") else { continue };
        if promise == "| promise" {
            continue;
        }
        promises += 1;
        let names: Vec<String> = quoted(named).flat_map(expanded).collect();
        if names.is_empty() {
            missing.insert(format!("no test: {promise}"));
        }
        for name in names {
            let is_there = match name.contains('/') {
                true => root.join("crates").join(&name).exists() || root.join(&name).exists(),
                false => is_suite(&name) || is_function(&name) || is_class(&name) || is_flag(&name),
            };
            if !is_there && !root.join("crates/datanode/tests/server").join(&name).exists() {
                missing.insert(name);
            }
        }
    }
    assert!(promises > 30, "only {promises} promises are found");
    assert!(missing.is_empty(), "docs/SEMANTICS.md: {missing:#?}");
}
