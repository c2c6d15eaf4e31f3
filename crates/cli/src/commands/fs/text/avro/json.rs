//! Values of Avro files as JSON.

use std::io;

use super::super::numbers;
use super::super::reading::{ReadBytes, bounded, malformed};
use super::schema::{Id, Schema, Schemas};
use super::{BLOCK_BYTES_MAX, element_count, zigzag};

/// Maximum nesting of values.
const DEPTH_MAX: usize = 256;

/// Appends the next value of `from` to `out`.
pub fn show(schemas: &Schemas, schema: Id, from: &mut &[u8], out: &mut Vec<u8>) -> io::Result<()> {
    JsonWriter { schemas, from, out }.value(schema, 0)
}

struct JsonWriter<'a, 'b> {
    schemas: &'a Schemas,
    from: &'a mut &'b [u8],
    out: &'a mut Vec<u8>,
}

impl<'b> JsonWriter<'_, 'b> {
    fn value(&mut self, id: Id, depth: usize) -> io::Result<()> {
        if depth > DEPTH_MAX {
            return Err(malformed(format!("values nested more than {DEPTH_MAX} deep")));
        }
        let schemas = self.schemas;
        match schemas.get(id) {
            Schema::Null => self.raw("null"),
            Schema::Boolean => {
                let text = if self.from.u8()? != 0 { "true" } else { "false" };
                self.raw(text);
            }
            Schema::Int | Schema::Long => {
                let text = zigzag(self.from)?.to_string();
                self.raw(&text);
            }
            Schema::Float => {
                let value = f32::from_le_bytes(self.from.fixed()?);
                self.number(value.is_finite(), &numbers::float(value));
            }
            Schema::Double => {
                let value = f64::from_le_bytes(self.from.fixed()?);
                self.number(value.is_finite(), &numbers::double(value));
            }
            Schema::Bytes => {
                let bytes = self.counted()?;
                self.latin(bytes);
            }
            Schema::String => {
                let bytes = self.counted()?;
                self.text(&String::from_utf8_lossy(bytes));
            }
            Schema::Fixed(size) => {
                let bytes = self.bytes(*size)?;
                self.latin(bytes);
            }
            Schema::Enum(symbols) => {
                let index = zigzag(self.from)?;
                let symbol = usize::try_from(index).ok().and_then(|index| symbols.get(index));
                self.text(symbol.ok_or_else(|| malformed(format!("no symbol has the number {index}")))?);
            }
            Schema::Union(branches) => {
                let index = zigzag(self.from)?;
                let branch = usize::try_from(index).ok().and_then(|index| branches.get(index));
                let branch =
                    *branch.ok_or_else(|| malformed(format!("no branch of a union has the number {index}")))?;
                if matches!(schemas.get(branch), Schema::Null) {
                    self.raw("null");
                } else {
                    self.raw("{");
                    self.text(schemas.label(branch));
                    self.raw(":");
                    self.value(branch, depth + 1)?;
                    self.raw("}");
                }
            }
            Schema::Record(fields) => {
                self.raw("{");
                for (nth, (name, field)) in fields.iter().enumerate() {
                    self.comma(nth > 0);
                    self.text(name);
                    self.raw(":");
                    self.value(*field, depth + 1)?;
                }
                self.raw("}");
            }
            Schema::Array(items) => {
                self.raw("[");
                self.elements(|shown| shown.value(*items, depth + 1))?;
                self.raw("]");
            }
            Schema::Map(values) => {
                self.raw("{");
                self.elements(|shown| {
                    let key = shown.counted()?;
                    shown.text(&String::from_utf8_lossy(key));
                    shown.raw(":");
                    shown.value(*values, depth + 1)
                })?;
                self.raw("}");
            }
        }
        Ok(())
    }

    /// Reads the elements of an array or map: blocks of them, until an empty one.
    fn elements(&mut self, mut element: impl FnMut(&mut Self) -> io::Result<()>) -> io::Result<()> {
        let mut first = true;
        loop {
            let mut count = zigzag(self.from)?;
            if count == 0 {
                return Ok(());
            }
            if count < 0 {
                // The length in bytes follows, for readers that skip the block.
                zigzag(self.from)?;
                count = count.saturating_neg();
            }
            for _ in 0..element_count(count, self.from.len())? {
                self.comma(!first);
                first = false;
                element(self)?;
                bounded(self.out.len() as i64, BLOCK_BYTES_MAX * 8)?;
            }
        }
    }

    fn counted(&mut self) -> io::Result<&'b [u8]> {
        let length = bounded(zigzag(self.from)?, BLOCK_BYTES_MAX)?;
        self.bytes(length)
    }

    fn bytes(&mut self, count: u64) -> io::Result<&'b [u8]> {
        let whole: &'b [u8] = self.from;
        let split = usize::try_from(count).ok().and_then(|count| whole.split_at_checked(count));
        let (bytes, rest) = split.ok_or_else(|| malformed("a value exceeds its block".to_owned()))?;
        *self.from = rest;
        Ok(bytes)
    }

    fn raw(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
    }

    fn comma(&mut self, wanted: bool) {
        if wanted {
            self.raw(",");
        }
    }

    /// A value that is not a number in JSON is printed as a string.
    fn number(&mut self, finite: bool, text: &str) {
        if finite { self.raw(text) } else { self.text(text) }
    }

    /// Prints bytes, each as the letter of its number.
    fn latin(&mut self, bytes: &[u8]) {
        let text: String = bytes.iter().map(|byte| char::from(*byte)).collect();
        self.text(&text);
    }

    fn text(&mut self, text: &str) {
        self.raw("\"");
        let mut bytes = [0; 4];
        for letter in text.chars() {
            match letter {
                '"' => self.raw("\\\""),
                '\\' => self.raw("\\\\"),
                '\n' => self.raw("\\n"),
                '\r' => self.raw("\\r"),
                '\t' => self.raw("\\t"),
                '\u{8}' => self.raw("\\b"),
                '\u{c}' => self.raw("\\f"),
                '\0'..='\u{1f}' => {
                    let code = format!("\\u{:04X}", u32::from(letter));
                    self.raw(&code);
                }
                letter => self.raw(letter.encode_utf8(&mut bytes)),
            }
        }
        self.raw("\"");
    }
}
