//! Holds ARCHITECTURE.md against the code: which room uses which, and who names protobuf messages.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::rust_files;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn architecture() -> String {
    fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap()
}

/// The words between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// A room's name and the rooms it may use; `None`: any.
fn table() -> BTreeMap<String, Option<BTreeSet<String>>> {
    let mut rooms = BTreeMap::new();
    for line in architecture().lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [names, _, uses] = cells[..] else { panic!("a row of the table of rooms has three cells: {line}") };
        let uses = match uses {
            "any" => None,
            "–" => Some(BTreeSet::new()),
            names => Some(names.split_whitespace().map(str::to_owned).collect()),
        };
        for name in quoted(names) {
            assert!(rooms.insert(name.to_owned(), uses.clone()).is_none(), "{name} stands in the table twice");
        }
    }
    assert!(rooms.len() >= 10, "the table of rooms was not found in ARCHITECTURE.md");
    rooms
}

/// The room that a package is, if it is one of ours.
fn room(package: &str) -> Option<&str> {
    match package {
        "hearth" => Some("cli"),
        "xtask" => Some("xtask"),
        _ => package.strip_prefix("hearth-"),
    }
}

#[test]
fn rooms_use_only_what_the_table_allows() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let table = table();
    let mut wrong = Vec::new();
    let mut seen = BTreeSet::new();
    for package in metadata["packages"].as_array().unwrap() {
        let name = room(package["name"].as_str().unwrap()).expect("every package is a room");
        seen.insert(name.to_owned());
        let Some(allowed) = table.get(name) else {
            wrong.push(format!("{name} is not in the table of rooms"));
            continue;
        };
        for dependency in package["dependencies"].as_array().unwrap() {
            if dependency["kind"].as_str() == Some("dev") {
                continue;
            }
            let Some(used) = room(dependency["name"].as_str().unwrap()) else { continue };
            // A room that is not in the table may be used by nobody.
            if !table.contains_key(used) || allowed.as_ref().is_some_and(|allowed| !allowed.contains(used)) {
                wrong.push(format!("{name} uses {used}"));
            }
        }
    }
    wrong.extend(table.keys().filter(|name| !seen.contains(*name)).map(|name| format!("{name} has no package")));
    assert!(wrong.is_empty(), "ARCHITECTURE.md does not allow:\n{}", wrong.join("\n"));
}

/// Where protobuf messages may be named: path prefixes below `crates/`, from the paragraph on walls.
fn protobuf_places() -> Vec<String> {
    let text = architecture();
    let start = text.find("and only ").expect("the paragraph on walls says who names protobuf messages");
    let end = start + text[start..].find("name them").expect("the paragraph ends in `name them`");
    let mut places: Vec<String> = quoted(&text[start..end])
        .map(|place| match place.strip_suffix('*') {
            Some(prefix) => format!("crates/{prefix}"),
            None if place.contains('/') => format!("crates/{place}"),
            None => format!("crates/{place}/"),
        })
        .collect();
    places.push("crates/wire/".to_owned());
    places
}

#[test]
fn protobuf_stops_at_the_walls() {
    let places = protobuf_places();
    let files = rust_files(&root().join("crates"), "target");
    let mut wrong = Vec::new();
    for file in files {
        let path = file.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
        // Integration tests speak as the peer does.
        if places.iter().any(|place| path.starts_with(place)) || path.contains("/tests/") {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        for (number, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            if code.contains("hearth_wire::proto") || code.contains("wire::proto::") {
                wrong.push(format!("{path}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    assert!(wrong.is_empty(), "protobuf messages are named outside of {places:?}:\n{}", wrong.join("\n"));
}
