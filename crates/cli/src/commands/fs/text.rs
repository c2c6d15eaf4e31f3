//! `-text`: files as text. Compressed files are unpacked and records printed as they arrive. No file is held in memory
//! as a whole.
//!
//! The format is determined by the first bytes (gzip, sequence files, Avro), else by the suffix of the name. Source:
//! Display.java.

mod avro;
mod codec;
mod framed;
mod numbers;
mod reading;
mod sequence_file;
mod writable;

use std::io::{self, Read};

use tokio::runtime::Handle;
use tokio::task::block_in_place;

use super::failure::Failure;
use super::item::Item;
use super::options::Arguments;
use super::shell::Shell;
use super::store::Source;
use codec::Codec;

/// Format of a file, by its first bytes or its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FileFormat {
    Plain,
    Compressed(Codec),
    SequenceFile,
    Avro,
}

fn form(name: &str, head: &[u8]) -> FileFormat {
    match head {
        // Too short for any format, so the name is not consulted.
        [] | [_] => FileFormat::Plain,
        [0x1f, 0x8b, ..] => FileFormat::Compressed(Codec::Gzip),
        [b'S', b'E', b'Q', ..] => FileFormat::SequenceFile,
        [b'O', b'b', b'j', ..] => FileFormat::Avro,
        // No codec applies: the file begins like an Avro file.
        [b'O', b'b', ..] => FileFormat::Plain,
        _ => Codec::of_file(name).map_or(FileFormat::Plain, FileFormat::Compressed),
    }
}

/// Size of one write to the output.
const PIECE_BYTES: usize = 64 << 10;

pub async fn text(shell: &mut Shell, arguments: Arguments) -> Result<(), Failure> {
    for item in shell.existing(&arguments.rest).await? {
        if let Err(failure) = print(shell, &item).await {
            shell.report(&failure);
        }
    }
    Ok(())
}

async fn print(shell: &mut Shell, item: &Item) -> Result<(), Failure> {
    if item.is_directory() {
        return Err(Failure::is_directory(&item.shown));
    }
    let mut source = shell.open(item).await?;
    let form = form(item.name(), &head(&mut source).await?);
    let mut failed = None;
    let source = SourceReader { source, failed: &mut failed };
    let outcome = show(form, source, &mut |bytes| shell.bytes(bytes));
    match (outcome, failed) {
        // The error of reading the file takes precedence over the decoder's error.
        (Err(_), Some(failure)) => Err(failure),
        (Ok(()), _) => Ok(()),
        (Err(Stopped::Output(failure)), _) => Err(failure),
        (Err(Stopped::Input(error)), _) => Err(Failure::path(&item.shown, error.to_string())),
    }
}

/// Reason why output stopped.
#[derive(Debug)]
enum Stopped {
    Output(Failure),
    Input(io::Error),
}

impl From<io::Error> for Stopped {
    fn from(error: io::Error) -> Self {
        Self::Input(error)
    }
}

/// Output of text.
type Out<'a> = &'a mut dyn FnMut(&[u8]) -> Result<(), Failure>;

fn show(form: FileFormat, source: impl Read, out: Out) -> Result<(), Stopped> {
    let source = io::BufReader::with_capacity(PIECE_BYTES, source);
    match form {
        FileFormat::Plain => copy(source, out),
        FileFormat::Compressed(codec) => copy(codec.decoder(source)?, out),
        FileFormat::SequenceFile => sequence_file::show(source, out),
        FileFormat::Avro => avro::show(source, out),
    }
}

fn copy(mut from: impl Read, out: Out) -> Result<(), Stopped> {
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        match from.read(&mut piece) {
            Ok(0) => return Ok(()),
            Ok(count) => out(&piece[..count]).map_err(Stopped::Output)?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Returns the first bytes of a file, which is read from its start again afterwards.
async fn head(source: &mut Source) -> Result<Vec<u8>, Failure> {
    let mut head = [0; 3];
    let mut filled = 0;
    while filled < head.len() {
        match source.read(&mut head[filled..]).await? {
            0 => break,
            count => filled += count,
        }
    }
    source.seek(0).await?;
    Ok(head[..filled].to_vec())
}

/// Source for decoders that run on a thread that may block.
struct SourceReader<'a> {
    source: Source,
    /// Error of the source.
    failed: &'a mut Option<Failure>,
}

impl Read for SourceReader<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = block_in_place(|| Handle::current().block_on(self.source.read(into)));
        read.map_err(|failure| {
            let error = io::Error::other(failure.to_string());
            *self.failed = Some(failure);
            error
        })
    }
}

/// Returns the output of `show` for bytes, for tests.
#[cfg(test)]
fn shown(form: FileFormat, bytes: &[u8]) -> Result<String, String> {
    let mut all = Vec::new();
    let outcome = show(form, bytes, &mut |bytes| {
        all.extend_from_slice(bytes);
        Ok(())
    });
    match outcome {
        Ok(()) => Ok(String::from_utf8_lossy(&all).into_owned()),
        Err(Stopped::Input(error)) => Err(error.to_string()),
        Err(Stopped::Output(failure)) => Err(failure.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_detected_by_content_and_name() {
        assert_eq!(form("x", &[0x1f, 0x8b, 8]), FileFormat::Compressed(Codec::Gzip));
        assert_eq!(form("x.gz", b"not packed"), FileFormat::Compressed(Codec::Gzip));
        assert_eq!(form("x.deflate", &[0x78, 0x9c]), FileFormat::Compressed(Codec::Zlib));
        assert_eq!(form("x", b"SEQ"), FileFormat::SequenceFile);
        assert_eq!(form("x", b"SEX"), FileFormat::Plain);
        assert_eq!(form("x.bz2", b"SEX"), FileFormat::Compressed(Codec::Bzip2));
        assert_eq!(form("x", b"Obj"), FileFormat::Avro);
        assert_eq!(form("x.bz2", b"Ob"), FileFormat::Plain);
        for name in ["x.bz2", "x.lz4", "x.snappy", "x.zst"] {
            assert!(matches!(form(name, b"BZh9"), FileFormat::Compressed(_)), "{name}");
            assert_eq!(form(name, b""), FileFormat::Plain);
        }
        assert_eq!(form("bz2", b"BZh9"), FileFormat::Plain);
    }

    macro_rules! vector {
        ($name:literal) => {
            ($name, &include_bytes!(concat!("text/vectors/", $name))[..])
        };
    }

    /// Shows a file that Apache's classes of Hadoop 3.4.2 wrote (`tests/interop/java/Packed.java`).
    fn shown_vector((name, bytes): (&str, &[u8])) -> String {
        shown(form(name, bytes), bytes).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    #[test]
    fn files_of_apaches_codecs_are_unpacked() {
        let line = |line: u32| format!("{}: the quick brown fox\n", if line < 300 { line * 7919 } else { 0 });
        let wanted: String = (0..20_000).map(line).collect();
        for vector in [
            vector!("lines-GzipCodec.gz"),
            vector!("lines-DefaultCodec.deflate"),
            vector!("lines-BZip2Codec.bz2"),
            vector!("lines-SnappyCodec.snappy"),
            vector!("lines-Lz4Codec.lz4"),
            vector!("lines-ZStandardCodec.zst"),
        ] {
            assert!(shown_vector(vector) == wanted, "{}", vector.0);
        }
    }

    #[test]
    fn apaches_sequence_files_are_shown() {
        let wanted: String = (0..400).map(|record| format!("{record}\tthe value of {record} é\n")).collect();
        for vector in [
            vector!("records-GzipCodec-BLOCK.seq"),
            vector!("records-DefaultCodec-BLOCK.seq"),
            vector!("records-BZip2Codec-BLOCK.seq"),
            vector!("records-SnappyCodec-BLOCK.seq"),
            vector!("records-Lz4Codec-BLOCK.seq"),
            vector!("records-Lz4Codec-RECORD.seq"),
            vector!("records-ZStandardCodec-BLOCK.seq"),
            vector!("records-ZStandardCodec-RECORD.seq"),
        ] {
            assert!(shown_vector(vector) == wanted, "{}", vector.0);
        }
    }

    #[test]
    fn avro_files_match_apaches_output() {
        let wanted = include_str!("text/vectors/null.avro.txt");
        for vector in [vector!("null.avro"), vector!("deflate.avro"), vector!("snappy.avro"), vector!("bzip2.avro")] {
            assert!(shown_vector(vector) == wanted, "{}", vector.0);
        }
        assert_eq!(shown_vector(vector!("strings.avro")), "\"one\"\n\"two\"\n");
        assert_eq!(shown_vector(vector!("none.avro")), "");
    }
}
