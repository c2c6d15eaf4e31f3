//! Extended attributes; their values as text, hexadecimal digits or base64.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hearth_types::Xattr;
use hearth_web::webhdfs::{Exception, needed, refused};
use hearth_wire::proto::hdfs::{
    GetXAttrsRequestProto, GetXAttrsResponseProto, ListXAttrsRequestProto, ListXAttrsResponseProto,
    RemoveXAttrRequestProto, RemoveXAttrResponseProto, SetXAttrRequestProto, SetXAttrResponseProto, XAttrProto,
};
use hearth_wire::rpc::exceptions;
use serde_json::{Value, json};

use super::{Answer, Operation, answer, lossy};

/// Name of the parameter with the encoding of values.
const ENCODING: &str = "encoding";
/// Java's class name of the encoding.
const CODEC: &str = "org.apache.hadoop.fs.XAttrCodec";

/// Encoding of values. Source: `XAttrCodec`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Encoding {
    Text,
    Hex,
    Base64,
}

impl Encoding {
    fn encode(self, value: &[u8]) -> String {
        match self {
            Self::Text => format!("\"{}\"", lossy(value)),
            Self::Hex => format!("0x{}", value.iter().map(|byte| format!("{byte:02x}")).collect::<String>()),
            Self::Base64 => format!("0s{}", BASE64_STANDARD.encode(value)),
        }
    }
}

/// Decodes a value in any of the encodings; text needs no quotes.
fn decode(text: &str) -> Result<Vec<u8>, Exception> {
    let wrong = |what: &str| Exception::io(format!("the value of an attribute is not {what}: {text}"));
    if text.len() >= 2 && text.starts_with('"') && text.ends_with('"') {
        return Ok(text.as_bytes()[1..text.len() - 1].to_vec());
    }
    match text.split_at_checked(2) {
        Some(("0x" | "0X", digits)) => from_hex(digits).ok_or_else(|| wrong("in hexadecimal digits")),
        Some(("0s" | "0S", rest)) => BASE64_STANDARD.decode(rest).map_err(|_| wrong("base64")),
        _ => Ok(text.into()),
    }
}

fn from_hex(digits: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u32>> = digits.chars().map(|digit| digit.to_digit(16)).collect();
    let digits = digits.filter(|digits| digits.len().is_multiple_of(2))?;
    Some(digits.chunks_exact(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect())
}

/// Returns an attribute without a value. Source: `XAttrHelper.buildXAttr`.
fn named(full_name: &str) -> Result<Xattr, Exception> {
    let wrong = |message: &str| Exception::new(exceptions::HADOOP_ILLEGAL_ARGUMENT, message);
    let spaces = "An XAttr name must be prefixed with user/trusted/security/system/raw, followed by a '.'";
    match full_name.find('.') {
        None | Some(0..=2) => Err(wrong(spaces)),
        Some(dot) if dot + 1 == full_name.len() => Err(wrong("XAttr name cannot be empty.")),
        Some(_) => Xattr::named(full_name).ok_or_else(|| wrong(spaces)),
    }
}

/// Returns the attribute's name with its namespace prefix.
fn full_name(xattr: XAttrProto) -> Result<String, Exception> {
    Xattr::try_from(xattr).map(|xattr| xattr.full_name()).map_err(|error| Exception::io(error.to_string()))
}

impl Operation {
    pub(super) fn encoding(&self) -> Result<Option<Encoding>, Exception> {
        let Some(given) = self.parameters.text(ENCODING) else { return Ok(None) };
        match given.to_uppercase().as_str() {
            "TEXT" => Ok(Some(Encoding::Text)),
            "HEX" => Ok(Some(Encoding::Hex)),
            "BASE64" => Ok(Some(Encoding::Base64)),
            other => Err(refused(ENCODING, &format!("No enum constant {CODEC}.{other}"))),
        }
    }

    /// Returns the flags: whether an attribute may exist, or must, when it is set.
    pub(super) fn xattr_flags(&self) -> Result<Vec<&'static str>, Exception> {
        self.parameters.set("flag", "org.apache.hadoop.fs.XAttrSetFlag", &["CREATE", "REPLACE"])
    }

    /// Returns the requested attributes, or all that the caller may see.
    pub(super) async fn xattrs(&self) -> Answer {
        let encoding = self.encoding()?.ok_or_else(|| needed(ENCODING, "GETXATTRS"))?;
        let wanted = self.parameters.all("xattr.name").filter(|name| !name.is_empty());
        let xattrs: Result<Vec<XAttrProto>, Exception> = wanted.map(|name| named(name).map(XAttrProto::from)).collect();
        let request = GetXAttrsRequestProto { src: self.path.clone(), xattrs: xattrs? };
        let found: GetXAttrsResponseProto = self.call("getXAttrs", &request).await?;
        let mut shown: Vec<Value> = Vec::new();
        for xattr in found.xattrs {
            // An attribute without a value has none in JSON either.
            let value = xattr.value.as_ref().filter(|value| !value.is_empty()).map(|value| encoding.encode(value));
            shown.push(json!({ "name": full_name(xattr)?, "value": value }));
        }
        Ok(answer(&json!({ "XAttrs": shown })))
    }

    /// The names are a JSON list inside a JSON string.
    pub(super) async fn xattr_names(&self) -> Answer {
        let request = ListXAttrsRequestProto { src: self.path.clone() };
        let found: ListXAttrsResponseProto = self.call("listXAttrs", &request).await?;
        let names: Result<Vec<String>, Exception> = found.xattrs.into_iter().map(full_name).collect();
        Ok(answer(&json!({ "XAttrNames": json!(names?).to_string() })))
    }

    pub(super) async fn set_xattr(&self) -> Answer {
        let operation = "SETXATTR";
        let mut xattr = named(self.parameters.needed("xattr.name", operation)?)?;
        let flags = self.xattr_flags()?;
        if flags.is_empty() {
            return Err(needed("flag", operation));
        }
        if let Some(value) = self.parameters.text("xattr.value") {
            xattr.value = decode(value)?.into();
        }
        // Source: `XAttrSetFlag`.
        let flag: u32 = flags.iter().map(|flag| if *flag == "CREATE" { 1u32 } else { 2 }).sum();
        let request = SetXAttrRequestProto { src: self.path.clone(), xattr: Some(xattr.into()), flag: Some(flag) };
        self.change::<SetXAttrResponseProto>("setXAttr", &request).await
    }

    pub(super) async fn remove_xattr(&self) -> Answer {
        let xattr = named(self.parameters.needed("xattr.name", "REMOVEXATTR")?)?;
        let request = RemoveXAttrRequestProto { src: self.path.clone(), xattr: Some(xattr.into()) };
        self.change::<RemoveXAttrResponseProto>("removeXAttr", &request).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_round_trip_in_each_encoding() {
        for (encoding, shown) in
            [(Encoding::Text, "\"a\"b\""), (Encoding::Hex, "0x612262"), (Encoding::Base64, "0sYSJi")]
        {
            assert_eq!(encoding.encode(b"a\"b"), shown);
            assert_eq!(decode(shown), Ok(b"a\"b".to_vec()));
        }
        assert_eq!(decode("plain"), Ok(b"plain".to_vec()));
        assert_eq!(decode("0XfF"), Ok(vec![0xff]));
        assert_eq!(decode("é"), Ok("é".into()));
        for wrong in ["0x1", "0xzz", "0s!"] {
            assert!(decode(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn names_need_a_namespace_prefix() {
        assert_eq!(named("User.a.b").unwrap().full_name(), "user.a.b");
        for (name, said) in [("a", "An XAttr"), ("us.a", "An XAttr"), ("mine.a", "An XAttr"), ("user.", "XAttr name")] {
            let refused = named(name).unwrap_err();
            assert!(refused.message.starts_with(said), "{name}: {refused}");
            assert_eq!(refused.status().as_u16(), 400);
        }
    }
}
