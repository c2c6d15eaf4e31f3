//! The table of Hadoop's keys is compared with Hadoop's default files: no key is missing, no default differs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use hearth_config::{Configuration, Environment, Source, hadoop_keys};
use hearth_testkit::{Missing, python_with_hdfs_native, skip_or_fail, workspace_root};

/// Returns names and defaults from `core-default.xml` and `hdfs-default.xml` in the jars of `lib`.
fn defaults_of_hadoop(lib: &Path) -> BTreeMap<String, String> {
    let scratch = tempfile::tempdir().unwrap();
    for (jar, file) in [("hadoop-common-", "core-default.xml"), ("hadoop-hdfs-", "hdfs-default.xml")] {
        let is_jar = |path: &PathBuf| {
            let name = path.file_name().unwrap().to_string_lossy();
            name.strip_prefix(jar).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
                && !name.contains("tests")
        };
        let jar = std::fs::read_dir(lib).unwrap().map(|entry| entry.unwrap().path()).find(is_jar).unwrap();
        let code = "import sys, zipfile; zipfile.ZipFile(sys.argv[1]).extract(sys.argv[2], sys.argv[3])";
        let python = python_with_hdfs_native().unwrap();
        let status = Command::new(python).args(["-c", code]).arg(&jar).arg(file).arg(scratch.path()).status().unwrap();
        assert!(status.success(), "{} has no {file}", jar.display());
    }
    let mut all = Configuration::load_dir(scratch.path(), Environment::default()).unwrap();
    for file in ["core-default.xml", "hdfs-default.xml"] {
        all.add_file(&scratch.path().join(file)).unwrap();
    }
    let from_files = all.entries().into_iter().filter(|entry| matches!(entry.source, Source::File(_)));
    from_files
        .map(|entry| (entry.name.to_owned(), entry.value.split_whitespace().collect::<Vec<_>>().join(" ")))
        .collect()
}

#[test]
fn key_table_has_hadoops_keys_and_defaults() {
    let cache = workspace_root().join(".cache");
    // The newest version determines the defaults. Version 3.3 exists only with --cluster.
    let versions: Vec<PathBuf> = ["apache-3.4.2", "apache-3.3.6"]
        .map(|name| cache.join(name).join("lib"))
        .into_iter()
        .filter(|lib| lib.is_dir())
        .collect();
    if versions.is_empty() || python_with_hdfs_native().is_err() {
        let missing = Missing { what: "Apache Hadoop", cure: "cargo xtask apache and cargo xtask python" };
        return skip_or_fail("the table of Hadoop's keys", missing);
    }
    let mut wrong = Vec::new();
    for (number, lib) in versions.iter().enumerate() {
        let defaults = defaults_of_hadoop(lib);
        assert!(defaults.len() > 900, "{} keys in {}", defaults.len(), lib.display());
        for (name, default) in &defaults {
            match hadoop_keys().iter().find(|row| row.name == name) {
                None => wrong.push(format!("{name} is missing ({})", lib.display())),
                Some(row) if number == 0 && row.default != default => {
                    wrong.push(format!("{name}: the table has default {:?}, Hadoop {default:?}", row.default));
                }
                Some(_) => {}
            }
        }
    }
    assert!(wrong.is_empty(), "crates/config/hadoop-keys.tsv:\n{}", wrong.join("\n"));
}
