use std::collections::HashMap;
use std::io;

use super::{FaultScope, of};

const TABLE: &str = include_str!("../../../../docs/compatibility/volume-errors.md");

/// Numbers of the errors in the table, by name.
fn numbers() -> HashMap<&'static str, i32> {
    macro_rules! names {
        ($($name:ident)*) => { HashMap::from([$((stringify!($name), libc::$name)),*]) };
    }
    names!(
        ENOSPC EDQUOT EMFILE ENFILE EINTR EAGAIN ENOMEM EBADF EINVAL EFAULT EIO EROFS ENODEV ENXIO ENOMEDIUM EREMOTEIO EUCLEAN
        EBADMSG ESTALE ENOTCONN ESHUTDOWN EHOSTDOWN ENOLINK ENOENT ENOTDIR EISDIR EACCES EPERM ELOOP ENAMETOOLONG EEXIST ENOTEMPTY
        EXDEV EMLINK EFBIG ETXTBSY ETIMEDOUT EBUSY EOPNOTSUPP
    )
}

fn word(fault: FaultScope) -> &'static str {
    match fault {
        FaultScope::NoSpace => "no room",
        FaultScope::Process => "not the disk",
        FaultScope::Volume => "failed",
        FaultScope::Unclear => "look",
    }
}

#[test]
fn error_numbers_match_the_documented_table() {
    let numbers = numbers();
    let rows: Vec<Vec<&str>> = TABLE
        .lines()
        .skip_while(|line| !line.starts_with("| errno"))
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    let mut named = Vec::new();
    for row in &rows {
        let [errors, meaning] = row[..] else { panic!("{row:?}") };
        let codes: Vec<i32> = match errors {
            "any other" => (1..=133).filter(|code| !numbers.values().any(|known| known == code)).collect(),
            _ => errors.split(' ').map(|name| numbers[name]).collect(),
        };
        for code in codes {
            let error = io::Error::from_raw_os_error(code);
            assert_eq!(word(of(&error)), meaning, "{error}");
            named.push(code);
        }
    }
    named.sort_unstable();
    assert_eq!(named, (1..=133).collect::<Vec<i32>>(), "each number once");
}

#[test]
fn bad_file_content_is_no_disk_fault() {
    for kind in [io::ErrorKind::UnexpectedEof, io::ErrorKind::InvalidData] {
        assert_eq!(of(&io::Error::from(kind)), FaultScope::Process);
    }
}
