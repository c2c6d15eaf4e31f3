//! Contents of storage directories: VERSION files, meta headers, file names.

#![no_main]

use hearth_types::block_file::{
    PoolVersion, ReplicaFile, StorageVersion, decode_meta_header, parse_properties, print_properties,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(spec) = decode_meta_header(data) {
        assert_eq!(decode_meta_header(&spec.to_meta_header()), Ok(spec));
    }
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(properties) = parse_properties(text) {
        let pairs: Vec<_> = properties.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        assert_eq!(parse_properties(&print_properties("", &pairs)), Ok(properties.clone()));
    }
    if let Ok(version) = StorageVersion::parse(text) {
        assert_eq!(StorageVersion::parse(&version.print("")), Ok(version));
    }
    if let Ok(version) = PoolVersion::parse(text) {
        assert_eq!(PoolVersion::parse(&version.print("")), Ok(version));
    }
    if let Some(file) = ReplicaFile::parse(text) {
        assert_eq!(file.name(), text);
    }
});
