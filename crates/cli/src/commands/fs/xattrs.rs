//! `-getfattr`, `-setfattr`

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hearth_types::Xattr;

use super::acl::only_path;
use super::failure::Failure;
use super::item::Item;
use super::options::Arguments;
use super::remote::Remote;
use super::shell::Shell;
use super::store::Store;
use super::walk::{Visit, walk};

fn usage(what: impl Into<String>) -> Failure {
    Failure::Usage(what.into())
}

fn named(full_name: &str) -> Result<Xattr, Failure> {
    const WRONG: &str = "An XAttr name must be prefixed with user/trusted/security/system/raw, followed by a '.'";
    Xattr::named(full_name).ok_or_else(|| usage(WRONG))
}

fn in_hdfs(item: &Item) -> Result<&Remote, Failure> {
    match &item.store {
        Store::Hdfs(fs) => Ok(fs),
        _ => Err(Failure::path(
            &item.shown,
            "attributes of local files are not supported: use getfattr(1) and setfattr(1)",
        )),
    }
}

/// Output format of values. Source: XAttrCodec.java.
#[derive(Clone, Copy)]
enum Encoding {
    Text,
    Hex,
    Base64,
}

impl Encoding {
    fn of(name: &str) -> Option<Self> {
        Some(match name.to_ascii_lowercase().as_str() {
            "text" => Self::Text,
            "hex" => Self::Hex,
            "base64" => Self::Base64,
            _ => return None,
        })
    }

    fn encode(self, value: &[u8]) -> String {
        match self {
            Self::Text => format!("\"{}\"", String::from_utf8_lossy(value)),
            Self::Hex => value.iter().fold("0x".to_owned(), |text, byte| format!("{text}{byte:02x}")),
            Self::Base64 => format!("0s{}", BASE64_STANDARD.encode(value)),
        }
    }
}

/// Decodes `"text"`, `0x...` or `0s...`. Other text stands for itself.
fn decode(text: &str) -> Result<Vec<u8>, Failure> {
    let wrong = |what: &str| Failure::Message(format!("{text} is not {what}"));
    if let Some(quoted) = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        return Ok(quoted.as_bytes().to_vec());
    }
    let (prefix, rest) = text.split_at_checked(2).unwrap_or(("", text));
    match prefix {
        "0x" | "0X" => {
            let digits = rest.as_bytes().chunks(2);
            let byte = |pair: &[u8]| {
                let pair = std::str::from_utf8(pair).ok().filter(|pair| pair.len() == 2 && !pair.contains('+'))?;
                u8::from_str_radix(pair, 16).ok()
            };
            digits.map(byte).collect::<Option<_>>().ok_or_else(|| wrong("hexadecimal"))
        }
        "0s" | "0S" => BASE64_STANDARD.decode(rest).map_err(|_| wrong("base64")),
        _ => Ok(text.as_bytes().to_vec()),
    }
}

pub async fn getfattr(shell: &mut Shell, arguments: Arguments) -> Result<(), Failure> {
    let encoding = arguments.value("e").unwrap_or("text");
    let wrong = || usage(format!("Invalid/unsupported encoding option specified: {encoding}"));
    let encoding = Encoding::of(encoding).ok_or_else(wrong)?;
    let wanted = match arguments.value("n") {
        _ if arguments.has("d") => Vec::new(),
        Some(name) => vec![named(name)?],
        None => return Err(usage("Must specify '-n name' or '-d' option.")),
    };
    let show = ShowXattrs { wanted, encoding };
    for item in shell.existing(only_path(&arguments.rest)?).await? {
        walk(shell, &item, &show, arguments.has("R")).await;
    }
    Ok(())
}

struct ShowXattrs {
    /// Attributes to print. Empty: all.
    wanted: Vec<Xattr>,
    encoding: Encoding,
}

impl Visit for ShowXattrs {
    async fn visit(&self, shell: &mut Shell, item: &Item) -> Result<(), Failure> {
        let fs = in_hdfs(item)?;
        shell.line(format_args!("# file: {}", item.shown));
        let found = fs.xattrs(&item.path, self.wanted.clone()).await;
        let mut found = found.map_err(|error| Failure::of(&item.shown, error))?;
        found.sort_by_key(Xattr::full_name);
        for xattr in found {
            match xattr.value.is_empty() {
                true => shell.line(xattr.full_name()),
                false => shell.line(format_args!("{}={}", xattr.full_name(), self.encoding.encode(&xattr.value))),
            }
        }
        Ok(())
    }
}

pub async fn setfattr(shell: &mut Shell, arguments: Arguments) -> Result<(), Failure> {
    let (set, removed) = (arguments.value("n"), arguments.value("x"));
    let change = match (set, removed) {
        (Some(_), Some(_)) => return Err(usage("Can not specify both '-n name' and '-x name' option.")),
        (None, None) => return Err(usage("Must specify '-n name' or '-x name' option.")),
        (Some(name), None) => {
            let value = arguments.value("v").map(decode).transpose()?.unwrap_or_default();
            ChangeXattr::Set(Xattr { value: value.into(), ..named(name)? })
        }
        (None, Some(name)) => ChangeXattr::Remove(named(name)?),
    };
    for item in shell.existing(only_path(&arguments.rest)?).await? {
        walk(shell, &item, &change, false).await;
    }
    Ok(())
}

enum ChangeXattr {
    Set(Xattr),
    Remove(Xattr),
}

impl Visit for ChangeXattr {
    async fn visit(&self, _: &mut Shell, item: &Item) -> Result<(), Failure> {
        self.apply(item).await
    }
}

impl ChangeXattr {
    async fn apply(&self, item: &Item) -> Result<(), Failure> {
        let fs = in_hdfs(item)?;
        let done = match self {
            Self::Set(xattr) => fs.set_xattr(&item.path, xattr.clone()).await,
            Self::Remove(xattr) => fs.remove_xattr(&item.path, xattr.clone()).await,
        };
        done.map_err(|error| Failure::of(&item.shown, error))
    }
}

/// Gives `target` those attributes of `source` that the user may see.
pub async fn copy(source: &Item, target: &Item) -> Result<(), Failure> {
    let xattrs = in_hdfs(source)?.xattrs(&source.path, Vec::new()).await;
    for xattr in xattrs.map_err(|error| Failure::of(&source.shown, error))? {
        ChangeXattr::Set(xattr).apply(target).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_use_three_encodings() {
        for (text, value) in [
            ("\"a b\"", "a b"),
            ("0x6120", "a "),
            ("0X6162", "ab"),
            ("0sYWI=", "ab"),
            ("plain", "plain"),
            ("0", "0"),
            ("", ""),
        ] {
            assert_eq!(decode(text).unwrap(), value.as_bytes(), "{text}");
        }
        for wrong in ["0x6", "0xzz", "0x+1", "0s?"] {
            assert!(decode(wrong).is_err(), "{wrong}");
        }
        assert_eq!(Encoding::Text.encode(b"ab"), "\"ab\"");
        assert_eq!(Encoding::of("HEX").unwrap().encode(b"ab\xff"), "0x6162ff");
        assert_eq!(Encoding::of("base64").unwrap().encode(b"ab"), "0sYWI=");
    }
}
