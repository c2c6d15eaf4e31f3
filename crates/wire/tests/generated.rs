//! Checks that `src/proto/*.rs` is what prost generates from `proto/*/*.proto`. The result is kept in the repository,
//! because building the schema compiler takes longer than building the rest of this crate, and it is needed only to
//! change a schema: `HEARTH_WRITE_GENERATED=1 cargo test -p hearth-wire --test generated`.

use std::path::{Path, PathBuf};

#[test]
fn generated_code_matches_the_schemas() {
    let crate_root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let include = crate_root.join("proto");
    let mut files = Vec::<PathBuf>::new();
    for package in ["hadoop", "hearth"] {
        files.extend(std::fs::read_dir(include.join(package)).unwrap().map(|entry| entry.unwrap().path()));
    }
    files.sort();
    let descriptors = protox::compile(&files, [&include]).unwrap();
    let made = tempfile::tempdir().unwrap();
    // `bytes` fields become slices of the received frame instead of copies.
    prost_build::Config::new().bytes(["."]).out_dir(made.path()).compile_fds(descriptors).unwrap();

    let kept = crate_root.join("src/proto");
    for entry in std::fs::read_dir(made.path()).unwrap() {
        let made = entry.unwrap().path();
        let kept = kept.join(made.file_name().unwrap());
        if std::env::var_os("HEARTH_WRITE_GENERATED").is_some() {
            std::fs::copy(&made, &kept).unwrap();
            continue;
        }
        let (made, found) = (std::fs::read(made).unwrap(), std::fs::read(&kept).unwrap_or_default());
        let cure = "run HEARTH_WRITE_GENERATED=1 cargo test -p hearth-wire --test generated";
        assert!(made == found, "{} is not what the schemas give; {cure}", kept.display());
    }
}
