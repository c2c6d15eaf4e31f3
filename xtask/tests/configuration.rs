//! Holds the table of keys against the code: no key is declared that no program reads, and the programs of a row are
//! those that read it.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use common::{rust_files, text_of};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// A row of the table.
struct Row {
    constant: String,
    key: String,
    /// What stands in brackets behind `for`.
    programs: Option<BTreeSet<String>>,
}

/// Returns the rows of `crates/config/src/keys.rs`.
fn rows() -> Vec<Row> {
    let text = fs::read_to_string(root().join("crates/config/src/keys.rs")).unwrap();
    let declared = text.lines().enumerate().filter_map(|(number, line)| {
        let (constant, rest) = line.trim_start().split_once(": ")?;
        (rest.starts_with("Key<") || rest.starts_with("OptionalKey<")).then_some((number, constant))
    });
    let rows: Vec<Row> = declared
        // The row of the example in the documentation begins with slashes.
        .filter(|(_, constant)| !constant.starts_with('/'))
        .map(|(number, constant)| {
            let lines: Vec<&str> = text.lines().skip(number).collect();
            let row = lines.join(" ");
            let row = &row[..row.find(';').unwrap()];
            let key = row.split('"').nth(1).unwrap().to_owned();
            let programs = row.split_once(" for [").map(|(_, rest)| {
                let (names, _) = rest.split_once(']').unwrap();
                names.split(", ").map(str::to_lowercase).collect()
            });
            Row { constant: constant.to_owned(), key, programs }
        })
        .collect();
    assert!(rows.len() > 150, "{} keys were found", rows.len());
    rows
}

/// Returns the programs that the documentation of the table's macro gives a row.
fn programs_of(row: &Row) -> BTreeSet<String> {
    let all = ["namenode", "datanode", "client"];
    let own = row.key.strip_prefix("dfs.").or_else(|| row.key.strip_prefix("hearth."));
    let part = own.and_then(|rest| rest.split(['.', '-']).next());
    match (&row.programs, part.filter(|part| all.contains(part))) {
        (Some(programs), _) => programs.clone(),
        (None, Some(part)) => BTreeSet::from([part.to_owned()]),
        (None, None) => all.map(str::to_owned).into(),
    }
}

/// Returns the names in the code that may be those of keys.
fn names_in(code: &str) -> BTreeSet<&str> {
    let words = code.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    words.filter(|word| word.contains('_') && word.starts_with(|letter: char| letter.is_ascii_uppercase())).collect()
}

#[test]
fn every_declared_key_is_read() {
    let crates = root().join("crates");
    let keys = crates.join("config/src/keys.rs");
    let files: Vec<PathBuf> = rust_files(&crates, "tests").into_iter().filter(|file| *file != keys).collect();
    let code = text_of(&files);
    let names = names_in(&code);
    // Only other keys' defaults refer to it.
    let unread: Vec<_> = rows()
        .into_iter()
        .map(|row| row.constant)
        .filter(|constant| constant != "HADOOP_TMP_DIR" && !names.contains(constant.as_str()))
        .collect();
    assert!(unread.is_empty(), "declared in keys.rs and read nowhere: {unread:?}");
}

#[test]
fn programs_of_a_key_are_those_that_read_it() {
    let crates = root().join("crates");
    let keys = crates.join("config/src/keys.rs");
    let texts = ["namenode", "datanode", "webhdfs", "client", "config", "cli"].map(|room| {
        let files = rust_files(&crates.join(room).join("src"), "tests");
        (room, text_of(&files.into_iter().filter(|file| *file != keys).collect::<Vec<_>>()))
    });
    let rooms: BTreeMap<&str, BTreeSet<&str>> = texts.iter().map(|(room, text)| (*room, names_in(text))).collect();
    let mut wrong = Vec::new();
    for row in rows() {
        let in_room = |room: &str| rooms[room].contains(row.constant.as_str());
        let mut readers = BTreeSet::new();
        for (room, program) in
            [("namenode", "namenode"), ("datanode", "datanode"), ("webhdfs", "datanode"), ("client", "client")]
        {
            if in_room(room) {
                readers.insert(program.to_owned());
            }
        }
        let programs = programs_of(&row);
        // Other rooms may read a key for any program.
        let read_elsewhere = in_room("config") || in_room("cli") || row.constant == "HADOOP_TMP_DIR";
        if !readers.is_subset(&programs) || !read_elsewhere && row.programs.is_some() && readers != programs {
            wrong.push(format!("{}: the table has {programs:?}, read by {readers:?}", row.key));
        }
    }
    assert!(wrong.is_empty(), "crates/config/src/keys.rs:\n{}", wrong.join("\n"));
}

#[test]
fn keys_of_the_java_binding_are_known() {
    let table = fs::read_to_string(root().join("crates/config/src/keys.rs")).unwrap();
    let mut count = 0;
    for file in ["hdfs/NativeLibrary.java", "hdfs/LocalDataNodes.java", "mapreduce/SmallFilesInputFormat.java"] {
        let path = root().join("bindings/java/src/main/java/io/hearth").join(file);
        let text = fs::read_to_string(path).unwrap();
        for key in text.split('"').skip(1).step_by(2).filter(|text| text.starts_with("hearth.java.")) {
            count += 1;
            assert!(table.contains(&format!("\"{key}\"")), "{key} of {file} is not in JAVA_KEYS");
        }
    }
    assert!(count >= 4, "{count} keys were found");
}
