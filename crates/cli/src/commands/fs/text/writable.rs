//! Hadoop's own Writable classes, and how Java prints them.

use std::fmt::Write;
use std::io;

use super::numbers;
use super::reading::{ReadBytes, bounded, malformed};

/// Maximum bytes of one key or value. Each is held in memory as a whole.
pub const VALUE_BYTES_MAX: u64 = 256 << 20;

/// A class of `org.apache.hadoop.io` whose values can be shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Writable {
    Text,
    Utf8,
    Bytes,
    Null,
    Boolean,
    Byte,
    Short,
    Int,
    Long,
    VariableInt,
    VariableLong,
    Float,
    Double,
    Md5Hash,
}

const CLASSES: [(&str, Writable); 14] = [
    ("Text", Writable::Text),
    ("UTF8", Writable::Utf8),
    ("BytesWritable", Writable::Bytes),
    ("NullWritable", Writable::Null),
    ("BooleanWritable", Writable::Boolean),
    ("ByteWritable", Writable::Byte),
    ("ShortWritable", Writable::Short),
    ("IntWritable", Writable::Int),
    ("LongWritable", Writable::Long),
    ("VIntWritable", Writable::VariableInt),
    ("VLongWritable", Writable::VariableLong),
    ("FloatWritable", Writable::Float),
    ("DoubleWritable", Writable::Double),
    ("MD5Hash", Writable::Md5Hash),
];

impl Writable {
    /// Returns the type of a class. Errors: a class that only Java can load.
    pub fn of_class(class: &str) -> io::Result<Self> {
        let simple = class.strip_prefix("org.apache.hadoop.io.");
        let known = CLASSES.iter().find(|(name, _)| Some(*name) == simple);
        let unknown = || {
            let why =
                "is no class of org.apache.hadoop.io that can be shown without Java; use `hdfs dfs -text` with its jar";
            malformed(format!("{class} {why}"))
        };
        known.map(|(_, writable)| *writable).ok_or_else(unknown)
    }

    /// Appends the result of Java's `toString` for the value that fills all of `bytes`.
    ///
    /// Errors: the bytes are not such a value, or more than one.
    pub fn show(self, mut bytes: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        let from = &mut bytes;
        let text = match self {
            Self::Text => {
                let length = from.variable()?;
                text(&from.exactly(bounded(length, VALUE_BYTES_MAX)?)?)
            }
            Self::Utf8 => {
                let length = u16::from_be_bytes(from.fixed()?);
                text(&from.exactly(u64::from(length))?)
            }
            Self::Bytes => {
                let length = bounded(i64::from(from.i32()?), VALUE_BYTES_MAX)?;
                hexadecimal(&from.exactly(length)?, " ")
            }
            Self::Null => "(null)".to_owned(),
            Self::Boolean => (from.u8()? != 0).to_string(),
            Self::Byte => (from.u8()? as i8).to_string(),
            Self::Short => i16::from_be_bytes(from.fixed()?).to_string(),
            Self::Int => from.i32()?.to_string(),
            Self::Long => i64::from_be_bytes(from.fixed()?).to_string(),
            Self::VariableInt | Self::VariableLong => from.variable()?.to_string(),
            Self::Float => numbers::float(f32::from_be_bytes(from.fixed()?)),
            Self::Double => numbers::double(f64::from_be_bytes(from.fixed()?)),
            Self::Md5Hash => hexadecimal(&from.fixed::<16>()?, ""),
        };
        if !from.is_empty() {
            return Err(malformed(format!("{} bytes after a value", from.len())));
        }
        out.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn hexadecimal(bytes: &[u8], between: &str) -> String {
    let mut out = String::with_capacity(bytes.len() * (2 + between.len()));
    for (at, byte) in bytes.iter().enumerate() {
        let before = if at == 0 { "" } else { between };
        let _ = write!(out, "{before}{byte:02x}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_shown_like_java() {
        for (class, bytes, text) in [
            ("Text", &b"\x03a\xc3\xa9"[..], "aé"),
            ("UTF8", b"\0\x02ab", "ab"),
            ("BytesWritable", b"\0\0\0\x03\0\x0a\xff", "00 0a ff"),
            ("NullWritable", b"", "(null)"),
            ("BooleanWritable", b"\x01", "true"),
            ("ByteWritable", b"\xff", "-1"),
            ("ShortWritable", b"\xff\xfe", "-2"),
            ("IntWritable", b"\0\0\x01\0", "256"),
            ("LongWritable", b"\xff\xff\xff\xff\xff\xff\xff\xff", "-1"),
            ("VIntWritable", b"\x8f\xc8", "200"),
            ("VLongWritable", b"\x05", "5"),
            ("FloatWritable", b"\x3f\x80\0\0", "1.0"),
            ("DoubleWritable", b"\x40\x59\0\0\0\0\0\0", "100.0"),
            ("MD5Hash", &[0xab; 16], "abababababababababababababababab"),
        ] {
            let writable = Writable::of_class(&format!("org.apache.hadoop.io.{class}")).unwrap();
            let mut out = Vec::new();
            writable.show(bytes, &mut out).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), text, "{class}");
            let longer = [bytes, b"x"].concat();
            assert!(writable.show(&longer, &mut Vec::new()).is_err(), "{class}");
            if !bytes.is_empty() {
                assert!(writable.show(&bytes[..bytes.len() - 1], &mut Vec::new()).is_err(), "{class}");
            }
        }
        assert!(Writable::of_class("com.example.Point").unwrap_err().to_string().contains("com.example.Point"));
        assert!(Writable::Bytes.show(b"\xff\xff\xff\xff", &mut Vec::new()).is_err());
    }
}
