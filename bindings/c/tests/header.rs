//! The headers declare what the sources define.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// Returns the name before the first parenthesis.
fn name(declaration: &str) -> String {
    let before = declaration.split('(').next().unwrap_or_default();
    before.rsplit([' ', '*']).next().unwrap_or_default().to_owned()
}

fn declared() -> BTreeSet<String> {
    let headers = ["include/hdfs.h", "include/hearth.h"].map(read).concat();
    let is_function =
        |line: &&str| line.ends_with(");") && !line.starts_with([' ', '/']) && !line.starts_with("typedef");
    headers.lines().filter(is_function).map(name).collect()
}

fn defined() -> BTreeSet<String> {
    let sources = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src")).unwrap();
    let sources: Vec<String> = sources.map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap()).collect();
    let functions = sources.iter().flat_map(|text| text.split("#[unsafe(no_mangle)]\n").skip(1));
    functions.map(|text| name(text.strip_prefix("pub extern \"C\" fn ").expect("a function of C follows"))).collect()
}

#[test]
fn headers_and_sources_have_the_same_functions() {
    let (declared, defined) = (declared(), defined());
    assert!(declared.len() > 90, "{}", declared.len());
    let differing: Vec<_> = declared.symmetric_difference(&defined).collect();
    assert!(differing.is_empty(), "in only one of them: {differing:?}");
}

/// Memory of C is touched in one module only, as ARCHITECTURE.md says.
#[test]
fn unsafe_blocks_are_in_one_module() {
    let sources = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src")).unwrap();
    for path in sources.map(|entry| entry.unwrap().path()) {
        let text = fs::read_to_string(&path).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        let found = code.lines().filter(|line| !line.trim_start().starts_with("//"));
        let found = found.filter(|line| line.contains("unsafe {") || line.contains("unsafe impl")).count();
        assert_eq!(found > 0, path.ends_with("memory.rs"), "{}: {found} unsafe blocks", path.display());
    }
}
