//! The Java half of the binding declares what the native half defines, in the same version.

use std::path::{Path, PathBuf};

fn read(path: &str) -> String {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The words before a parenthesis that follow `prefix` in a line.
fn names(text: &str, prefix: &str) -> Vec<String> {
    let of_line = |line: &str| {
        let (_, rest) = line.split_once(prefix)?;
        let name = rest.split('(').next()?;
        Some(name.rsplit(' ').next()?.to_owned())
    };
    let mut names: Vec<String> = text.lines().filter_map(of_line).collect();
    names.sort();
    names
}

#[test]
fn native_methods_are_defined() {
    for (class, file) in [("Native", "lib.rs"), ("NativeFiles", "files.rs"), ("NativeWriter", "files/writer.rs")] {
        let declared = names(&read(&format!("src/main/java/io/hearth/hdfs/{class}.java")), "static native ");
        let defined = names(&read(&format!("native/src/{file}")), &format!("fn Java_io_hearth_hdfs_{class}_"));
        assert!(declared.len() >= 8, "{declared:?}");
        assert_eq!(declared, defined);
    }
}

#[test]
fn jar_has_the_version_and_license_of_the_library() {
    let pom = read("pom.xml");
    let version = format!("<artifactId>hearth-hdfs</artifactId>\n  <version>{}</version>", env!("CARGO_PKG_VERSION"));
    assert!(pom.contains(&version), "bindings/java/pom.xml has another version than Cargo.toml");
    let license = format!("<license>\n      <name>{}</name>", env!("CARGO_PKG_LICENSE"));
    assert!(pom.contains(&license), "bindings/java/pom.xml has another license than Cargo.toml");
}
