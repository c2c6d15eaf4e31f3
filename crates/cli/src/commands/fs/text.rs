//! `-text`: files as text. Compressed ones are unpacked as they come; nothing is held whole.

use std::io::Write;

use flate2::write::{MultiGzDecoder, ZlibDecoder};

use super::failure::Failure;
use super::item::Item;
use super::options::Arguments;
use super::shell::Shell;

/// What the first bytes or the name say of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Coding {
    Plain,
    Gzip,
    /// Hadoop's DefaultCodec.
    Zlib,
    /// SequenceFile, Avro: needs their classes. Others: needs their codecs.
    Unreadable(&'static str),
}

/// How the names of files end that Hadoop's other codecs made: by them alone it knows such a file.
const OTHER_CODECS: [(&str, &str); 4] = [
    (".bz2", "what bzip2 compressed"),
    (".lz4", "what LZ4 compressed"),
    (".snappy", "what Snappy compressed"),
    (".zst", "what Zstandard compressed"),
];

fn coding(name: &str, head: &[u8]) -> Coding {
    if head.len() < 2 {
        // Too little for any of them: no codec is asked, as in Hadoop.
        Coding::Plain
    } else if head.starts_with(&[0x1f, 0x8b]) {
        Coding::Gzip
    } else if head.starts_with(b"SEQ") && head.get(3).is_some_and(|version| *version < 32) {
        Coding::Unreadable("a sequence file")
    } else if head.starts_with(b"Obj\x01") {
        Coding::Unreadable("an Avro file")
    } else if name.ends_with(".deflate") {
        Coding::Zlib
    } else if let Some(&(_, what)) = OTHER_CODECS.iter().find(|(ending, _)| name.ends_with(*ending)) {
        Coding::Unreadable(what)
    } else {
        Coding::Plain
    }
}

pub async fn text(shell: &mut Shell, arguments: Arguments) -> Result<(), Failure> {
    for item in shell.existing(&arguments.rest).await {
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
    let mut source = item.store.open(&item.path, &item.shown).await?;
    let coding = coding(item.name(), source.next().await?);
    let broken = |error: std::io::Error| Failure::path(&item.shown, error.to_string());
    let mut decoder: Decoder = match coding {
        Coding::Plain => Decoder::Plain,
        Coding::Gzip => Decoder::Gzip(MultiGzDecoder::new(Vec::new())),
        Coding::Zlib => Decoder::Zlib(ZlibDecoder::new(Vec::new())),
        Coding::Unreadable(what) => {
            return Err(Failure::path(&item.shown, format!("{what} cannot be shown as text by this program")));
        }
    };
    loop {
        let next = source.next().await?;
        if next.is_empty() {
            break;
        }
        // Small pieces, so that what a piece unpacks to stays small too.
        let count = next.len().min(PIECE_BYTES);
        match &mut decoder {
            Decoder::Plain => shell.bytes(&next[..count])?,
            Decoder::Gzip(gzip) => {
                gzip.write_all(&next[..count]).map_err(broken)?;
                shell.bytes(gzip.get_ref())?;
                gzip.get_mut().clear();
            }
            Decoder::Zlib(zlib) => {
                zlib.write_all(&next[..count]).map_err(broken)?;
                shell.bytes(zlib.get_ref())?;
                zlib.get_mut().clear();
            }
        }
        source.consume(count);
    }
    let rest = match decoder {
        Decoder::Plain => Vec::new(),
        Decoder::Gzip(gzip) => gzip.finish().map_err(broken)?,
        Decoder::Zlib(zlib) => zlib.finish().map_err(broken)?,
    };
    shell.bytes(&rest)
}

const PIECE_BYTES: usize = 16 << 10;

enum Decoder {
    Plain,
    Gzip(MultiGzDecoder<Vec<u8>>),
    Zlib(ZlibDecoder<Vec<u8>>),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codings_are_known_by_their_first_bytes() {
        assert_eq!(coding("x", &[0x1f, 0x8b, 8]), Coding::Gzip);
        assert_eq!(coding("x.gz", b"not packed"), Coding::Plain);
        assert_eq!(coding("x.deflate", &[0x78, 0x9c]), Coding::Zlib);
        assert!(matches!(coding("x", b"SEQ\x06"), Coding::Unreadable(_)));
        assert_eq!(coding("x", b"SEQUEL"), Coding::Plain);
        for (ending, what) in OTHER_CODECS {
            assert_eq!(coding(&format!("x{ending}"), b"BZh9"), Coding::Unreadable(what));
            assert_eq!(coding(&format!("x{ending}"), b""), Coding::Plain);
        }
        assert_eq!(coding("bz2", b"BZh9"), Coding::Plain);
        assert_eq!(coding("x", b""), Coding::Plain);
    }
}
