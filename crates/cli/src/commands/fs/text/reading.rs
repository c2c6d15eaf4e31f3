//! Reading numbers and strings in Java's formats from untrusted bytes.

use std::io::{self, Read};

/// Error of bytes that cannot be shown.
pub fn malformed(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

pub trait ReadBytes: Read + Sized {
    fn fixed<const COUNT: usize>(&mut self) -> io::Result<[u8; COUNT]> {
        let mut bytes = [0; COUNT];
        self.read_exact(&mut bytes).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => malformed("the file is truncated: it ends within a value".to_owned()),
            _ => error,
        })?;
        Ok(bytes)
    }

    fn u8(&mut self) -> io::Result<u8> {
        Ok(self.fixed::<1>()?[0])
    }

    fn u32(&mut self) -> io::Result<u32> {
        Ok(u32::from_be_bytes(self.fixed()?))
    }

    fn i32(&mut self) -> io::Result<i32> {
        Ok(i32::from_be_bytes(self.fixed()?))
    }

    /// Reads `count` bytes. Memory is allocated as bytes arrive, not by the announced count.
    fn exactly(&mut self, count: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        if self.by_ref().take(count).read_to_end(&mut bytes)? as u64 != count {
            return Err(malformed("the file is truncated: it ends within a value".to_owned()));
        }
        Ok(bytes)
    }

    /// Source: WritableUtils.java, `readVLong`.
    fn variable(&mut self) -> io::Result<i64> {
        let first = self.u8()? as i8;
        let (count, negative) = match first {
            -112.. => return Ok(i64::from(first)),
            -120..=-113 => (-112 - i16::from(first), false),
            _ => (-120 - i16::from(first), true),
        };
        let mut value = 0_i64;
        for _ in 0..count {
            value = value << 8 | i64::from(self.u8()?);
        }
        Ok(if negative { !value } else { value })
    }

    /// Reads a length that is encoded as a variable number.
    fn length(&mut self, most: u64) -> io::Result<u64> {
        bounded(self.variable()?, most)
    }

    /// Source: Text.java, `readString`.
    fn string(&mut self, most: u64) -> io::Result<String> {
        let length = self.length(most)?;
        String::from_utf8(self.exactly(length)?).map_err(|_| malformed("a name that is not UTF-8".to_owned()))
    }
}

impl<R: Read> ReadBytes for R {}

/// Checks that a length is neither negative nor above `most`.
pub fn bounded(length: i64, most: u64) -> io::Result<u64> {
    let within = u64::try_from(length).ok().filter(|length| *length <= most);
    within.ok_or_else(|| malformed(format!("a length of {length}, but at most {most} is possible")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variable_numbers() {
        for (bytes, value) in [
            (&[0][..], 0),
            (&[127], 127),
            (&[0x90], -112),
            (&[0x8f, 0x80], 128),
            (&[0x87, 0x80], -129),
            (&[0x8e, 0x01, 0x00], 256),
            (&[0x88, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], i64::MAX),
            (&[0x80, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], i64::MIN),
        ] {
            let mut rest = bytes;
            assert_eq!(rest.variable().unwrap(), value, "{bytes:?}");
            assert!(rest.is_empty(), "{bytes:?}");
        }
        assert!((&[0x8e, 1][..]).variable().is_err());
        assert!((&[5, b'a'][..]).string(100).is_err() && (&[0x90][..]).string(100).is_err());
    }
}
