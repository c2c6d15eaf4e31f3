//! Hadoop's compression codecs, by file name or by Java class.

use std::io::{self, BufRead, Read};

use bzip2::bufread::MultiBzDecoder;
use flate2::bufread::{MultiGzDecoder, ZlibDecoder};

use super::framed::Framed;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Codec {
    Gzip,
    /// DefaultCodec, DeflateCodec.
    Zlib,
    Bzip2,
    Lz4,
    Snappy,
    Zstandard,
}

/// Suffixes of file names, and simple names of classes in `org.apache.hadoop.io.compress`.
const CODECS: [(Codec, &str, &[&str]); 6] = [
    (Codec::Gzip, ".gz", &["GzipCodec"]),
    (Codec::Zlib, ".deflate", &["DefaultCodec", "DeflateCodec"]),
    (Codec::Bzip2, ".bz2", &["BZip2Codec"]),
    (Codec::Lz4, ".lz4", &["Lz4Codec"]),
    (Codec::Snappy, ".snappy", &["SnappyCodec"]),
    (Codec::Zstandard, ".zst", &["ZStandardCodec"]),
];

impl Codec {
    /// Returns the codec of a file with this name.
    pub fn of_file(name: &str) -> Option<Self> {
        CODECS.iter().find(|(_, end, _)| name.ends_with(end)).map(|(codec, ..)| *codec)
    }

    pub fn of_class(class: &str) -> Option<Self> {
        let simple = class.strip_prefix("org.apache.hadoop.io.compress.")?;
        CODECS.iter().find(|(.., classes)| classes.contains(&simple)).map(|(codec, ..)| *codec)
    }

    /// Returns a reader of the unpacked bytes of `source`.
    pub fn decoder<'a>(self, source: impl BufRead + 'a) -> io::Result<Box<dyn Read + 'a>> {
        Ok(match self {
            Self::Gzip => Box::new(MultiGzDecoder::new(source)),
            Self::Zlib => Box::new(ZlibDecoder::new(source)),
            Self::Bzip2 => Box::new(MultiBzDecoder::new(source)),
            Self::Lz4 => Box::new(Framed::lz4(source)),
            Self::Snappy => Box::new(Framed::snappy(source)),
            Self::Zstandard => Box::new(Zstandard { source: Some(source), frame: None }),
        })
    }
}

/// Sequence of Zstandard frames.
struct Zstandard<R: BufRead> {
    /// Set between frames.
    source: Option<R>,
    frame: Option<Frame<R>>,
}

type Frame<R> = ruzstd::decoding::StreamingDecoder<R, ruzstd::decoding::FrameDecoder>;

impl<R: BufRead> Read for Zstandard<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(frame) = &mut self.frame {
                match frame.read(into)? {
                    0 if !into.is_empty() => {}
                    count => return Ok(count),
                }
            }
            if let Some(ended) = self.frame.take() {
                self.source = Some(ended.into_inner());
            }
            let Some(mut source) = self.source.take() else { return Ok(0) };
            if source.fill_buf()?.is_empty() {
                return Ok(0);
            }
            self.frame = Some(
                Frame::new(source).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?,
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::super::{FileFormat, shown};
    use super::*;

    #[test]
    fn every_codec_is_found_by_name_and_class() {
        for (codec, end, classes) in CODECS {
            assert_eq!(Codec::of_file(&format!("x{end}")), Some(codec));
            assert_eq!(Codec::of_file(&end[1..]), None);
            for class in classes {
                assert_eq!(Codec::of_class(&format!("org.apache.hadoop.io.compress.{class}")), Some(codec));
            }
        }
        assert_eq!(Codec::of_class("org.apache.hadoop.io.compress.OtherCodec"), None);
    }

    #[test]
    fn concatenated_streams_are_unpacked() {
        let gzip = |text: &str| {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(text.as_bytes()).unwrap();
            encoder.finish().unwrap()
        };
        let bzip2 = |text: &str| {
            let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
            encoder.write_all(text.as_bytes()).unwrap();
            encoder.finish().unwrap()
        };
        let zstandard = |text: &str| {
            ruzstd::encoding::compress_to_vec(text.as_bytes(), ruzstd::encoding::CompressionLevel::Fastest)
        };
        let long = "long ".repeat(100_000);
        for (codec, pack) in
            [(Codec::Gzip, &gzip as &dyn Fn(&str) -> Vec<u8>), (Codec::Bzip2, &bzip2), (Codec::Zstandard, &zstandard)]
        {
            let whole = [pack("one "), pack(&long)].concat();
            assert_eq!(shown(FileFormat::Compressed(codec), &whole).unwrap(), format!("one {long}"), "{codec:?}");
            assert!(shown(FileFormat::Compressed(codec), &whole[..whole.len() - 9]).is_err(), "{codec:?} cut");
            assert!(shown(FileFormat::Compressed(codec), b"something else").is_err(), "{codec:?} of something else");
        }
    }
}
