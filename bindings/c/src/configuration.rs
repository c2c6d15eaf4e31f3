//! The configuration of this process: `hdfsConfGetStr` and its like.

use hearth_client::{Configuration, from_env};
use libc::{c_char, c_int};

use crate::failure::{Failure, call_for_errno};
use crate::memory::{Allocated, Place, Text, allocate_text};

/// Loads the configuration as programs with Apache's library set it up: from `HADOOP_CONF_DIR`, else from `CLASSPATH`.
pub fn load() -> Result<Configuration, Failure> {
    Ok(from_env::configuration_with_class_path().map_err(hearth_client::Error::from)?)
}

fn text(key: Text) -> Result<Option<String>, Failure> {
    let key = key.required("the key")?;
    Ok(load()?.text(key).map_err(hearth_client::Error::from)?)
}

/// Sets `value` to the value of `key`, or to NULL if it has none.
#[unsafe(no_mangle)]
pub extern "C" fn hdfsConfGetStr(key: Text, value: Place<*mut c_char>) -> c_int {
    call_for_errno(|| {
        let found = text(key)?.map(|found| allocate_text(&found)).transpose()?;
        value.put(found.unwrap_or(std::ptr::null_mut()))
    })
}

/// Sets `value` to the number at `key`. Leaves it if the key has no value.
#[unsafe(no_mangle)]
pub extern "C" fn hdfsConfGetInt(key: Text, value: Place<i32>) -> c_int {
    call_for_errno(|| match text(key)? {
        Some(found) => value.put(number(&found)?),
        None => Ok(()),
    })
}

/// Parses a number as Hadoop does. Source: `Configuration.getInt`.
fn number(text: &str) -> Result<i32, Failure> {
    let trimmed = text.trim();
    let (negative, digits) = match trimmed.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, trimmed),
    };
    let parsed = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hexadecimal) => i32::from_str_radix(hexadecimal, 16).map(|value| if negative { -value } else { value }),
        None => trimmed.parse(),
    };
    let wrong = |_| {
        Failure::new(
            crate::failure::EINTERNAL,
            "java.lang.NumberFormatException",
            format!("For input string: {text:?}"),
        )
    };
    parsed.map_err(wrong)
}

#[unsafe(no_mangle)]
pub extern "C" fn hdfsConfStrFree(value: Allocated<c_char>) {
    value.free();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_decimal_or_hexadecimal() {
        for (text, value) in [("3", 3), (" -7 ", -7), ("0x10", 16), ("-0X1f", -31)] {
            assert_eq!(number(text).unwrap(), value, "{text}");
        }
        for wrong in ["", "1.5", "0x", "3000000000"] {
            assert!(number(wrong).is_err(), "{wrong}");
        }
    }
}
