//! `verifyMeta`, `computeMeta`

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use hearth_config::{Configuration, keys};
use hearth_types::block_file::{META_HEADER_BYTES, decode_meta_header};
use hearth_types::{ChecksumError, ChecksumKind, ChecksumSpec};

use crate::commands::tool::pop_value;

/// Bytes of checksums that are compared at a time.
const CHECKSUMS_BYTES: usize = 32 << 10;

/// Name of a checksum type in Hadoop's configuration and output.
fn name_of(kind: ChecksumKind) -> &'static str {
    match kind {
        ChecksumKind::Null => "NULL",
        ChecksumKind::Crc32 => "CRC32",
        ChecksumKind::Crc32c => "CRC32C",
    }
}

/// Returns Java's text for a file that cannot be opened.
fn not_opened(path: &str, error: &io::Error) -> String {
    let why = match error.kind() {
        io::ErrorKind::NotFound => "No such file or directory".to_owned(),
        io::ErrorKind::PermissionDenied => "Permission denied".to_owned(),
        io::ErrorKind::IsADirectory => "Is a directory".to_owned(),
        _ => error.to_string(),
    };
    format!("java.io.FileNotFoundException: {path} ({why})")
}

/// Opens a file, which must not be a directory.
fn opened(path: &str) -> Result<File, String> {
    let file = File::open(path).map_err(|error| not_opened(path, &error))?;
    match file.metadata() {
        Ok(status) if status.is_dir() => Err(not_opened(path, &io::ErrorKind::IsADirectory.into())),
        _ => Ok(file),
    }
}

pub fn verify(mut words: Vec<String>) -> anyhow::Result<u8> {
    let block = pop_value("-block", &mut words)?;
    let Some(meta) = pop_value("-meta", &mut words)? else {
        eprintln!("You must specify a meta file with -meta");
        return Ok(1);
    };
    let read_header = || -> Result<(File, ChecksumSpec), String> {
        let mut file = opened(&meta)?;
        let mut header = [0; META_HEADER_BYTES];
        file.read_exact(&mut header).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => "java.io.EOFException".to_owned(),
            _ => format!("java.io.IOException: {error}"),
        })?;
        let spec = decode_meta_header(&header).map_err(|error| format!("java.io.IOException: {error}"))?;
        Ok((file, spec))
    };
    let (mut meta_file, spec) = match read_header() {
        Ok(read) => read,
        Err(why) => {
            eprintln!("Failed to read HDFS metadata file header for {meta}: {why}");
            return Ok(1);
        }
    };
    println!("Checksum type: DataChecksum(type={}, chunkSize={})", name_of(spec.kind), spec.bytes_per_chunk);
    let Some(block) = block else { return Ok(0) };
    let mut block_file = match opened(&block) {
        Ok(file) => file,
        Err(why) => {
            eprintln!("Failed to open HDFS block file for {block}: {why}");
            return Ok(1);
        }
    };
    let chunks = CHECKSUMS_BYTES / spec.kind.size().max(1);
    // A chunk may be as large as 16 MiB: the buffer has at least one and at most about that size.
    let chunk_bytes = spec.bytes_per_chunk as usize;
    let chunks = chunks.min((16_usize << 20).div_ceil(chunk_bytes)).max(1);
    let mut data = vec![0; chunks * chunk_bytes];
    let mut checksums = vec![0; chunks * spec.kind.size()];
    let mut position = 0_u64;
    loop {
        let count = match read_full(&mut block_file, &mut data) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) => {
                eprintln!(
                    "Got I/O error reading block file {block}from disk at offset {position}: java.io.IOException: {error}"
                );
                return Ok(1);
            }
        };
        let wanted = spec.checksum_bytes(count as u64) as usize;
        let found = match read_full(&mut meta_file, &mut checksums[..wanted]) {
            Ok(found) => found,
            Err(error) => {
                let at = META_HEADER_BYTES as u64 + spec.checksum_bytes(position);
                eprintln!(
                    "Got I/O error reading metadata file {meta}from disk at offset {at}: java.io.IOException: {error}"
                );
                return Ok(1);
            }
        };
        if let Err(error) = spec.verify(&data[..count], &checksums[..found]) {
            println!("verifyChunkedSums error: {}", described(error, spec, &block, position));
            return Ok(1);
        }
        position += count as u64;
    }
    println!("Checksum verification succeeded on block file {block}");
    Ok(0)
}

fn described(error: ChecksumError, spec: ChecksumSpec, block: &str, position: u64) -> String {
    match error {
        ChecksumError::Mismatch { offset, expected, actual, .. } => {
            let (kind, at) = (name_of(spec.kind), position + offset as u64);
            format!(
                "org.apache.hadoop.fs.ChecksumException: Checksum {kind} not matched for file {block} at position {at}: \
                 expected={expected:X} but computed={actual:X}, algorithm={kind}"
            )
        }
        error => format!("org.apache.hadoop.fs.ChecksumException: {block}: {error}"),
    }
}

/// Reads until the buffer is full or the file ends. Returns the number of bytes.
fn read_full(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

pub fn compute(configuration: &Configuration, mut words: Vec<String>) -> anyhow::Result<u8> {
    let Some(block) = pop_value("-block", &mut words)? else {
        eprintln!("You must specify a block file with -block");
        return Ok(2);
    };
    if !Path::new(&block).is_file() {
        eprintln!("Block file <{block}> does not exist or is not a file");
        return Ok(3);
    }
    let Some(out) = pop_value("-out", &mut words)? else {
        eprintln!("You must specify a output file with -out");
        return Ok(4);
    };
    if Path::new(&out).exists() {
        eprintln!("output file already exists!");
        return Ok(5);
    }
    let name = configuration.get(keys::DFS_CHECKSUM_TYPE)?;
    let kind = [ChecksumKind::Null, ChecksumKind::Crc32, ChecksumKind::Crc32c]
        .into_iter()
        .find(|kind| name_of(*kind).eq_ignore_ascii_case(&name));
    let kind = kind.ok_or_else(|| anyhow::anyhow!("dfs.checksum.type is {name}; wanted CRC32C, CRC32 or NULL"))?;
    let spec = ChecksumSpec { kind, bytes_per_chunk: configuration.get(keys::DFS_BYTES_PER_CHECKSUM)? };
    anyhow::ensure!(
        (1..=ChecksumSpec::BYTES_PER_CHUNK_MAX).contains(&spec.bytes_per_chunk),
        "dfs.bytes-per-checksum is {}",
        spec.bytes_per_chunk
    );
    write_meta(spec, &block, &out)?;
    println!("Checksum calculation succeeded on block file {block} saved metadata to meta file {out}");
    Ok(0)
}

fn write_meta(spec: ChecksumSpec, block: &str, out: &str) -> io::Result<()> {
    let mut from = File::open(block)?;
    let mut to = File::create_new(out)?;
    to.write_all(&spec.to_meta_header())?;
    let chunk_bytes = spec.bytes_per_chunk as usize;
    let mut data = vec![0; (1_usize << 20).div_ceil(chunk_bytes) * chunk_bytes];
    let mut checksums = Vec::new();
    loop {
        let count = read_full(&mut from, &mut data)?;
        if count == 0 {
            return to.sync_all();
        }
        checksums.clear();
        spec.compute(&data[..count], &mut checksums);
        to.write_all(&checksums)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn computed_files_are_verified() {
        let dir = tempfile::tempdir().unwrap();
        let (block, meta) = (dir.path().join("blk_1"), dir.path().join("blk_1.meta"));
        std::fs::write(&block, (0..3_000_000_u32).map(|at| (at >> 5) as u8).collect::<Vec<_>>()).unwrap();
        let (block, meta) = (block.to_str().unwrap(), meta.to_str().unwrap());
        let conf = Configuration::empty();
        let compute = || compute(&conf, words(&format!("-block {block} -out {meta}"))).unwrap();
        assert_eq!((compute(), compute()), (0, 5));
        let verify = || verify(words(&format!("-meta {meta} -block {block}"))).unwrap();
        assert_eq!(verify(), 0);
        let length = std::fs::metadata(meta).unwrap().len();
        assert_eq!(length, hearth_types::block_file::meta_file_bytes(ChecksumSpec::DEFAULT, 3_000_000));
        // A changed byte in the last chunk, then a missing checksum.
        let mut bytes = std::fs::read(block).unwrap();
        bytes[2_999_999] ^= 1;
        std::fs::write(block, &bytes).unwrap();
        assert_eq!(verify(), 1);
        bytes[2_999_999] ^= 1;
        std::fs::write(block, &bytes).unwrap();
        let sums = std::fs::read(meta).unwrap();
        std::fs::write(meta, &sums[..sums.len() - 4]).unwrap();
        assert_eq!(verify(), 1);
    }

    #[test]
    fn arguments_that_are_missing_have_codes() {
        let conf = Configuration::empty();
        assert_eq!(compute(&conf, words("-out x")).unwrap(), 2);
        assert_eq!(compute(&conf, words("-block /no/such -out x")).unwrap(), 3);
        assert_eq!(verify(words("-block x")).unwrap(), 1);
        assert_eq!(verify(words("-meta /no/such")).unwrap(), 1);
    }
}
