//! Edit logs beside an image of Apache's NameNode. They are not imported, so they must have no changes after the image.
//!
//! Every start of a segment is itself an entry of the log, and so is its end. A NameNode that has saved its namespace
//! and was stopped leaves such segments without changes behind.
//!
//! Source: FSEditLogOp (`LengthPrefixedReader`) and FSEditLogOpCodes.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::{ImageError, io};

const END_LOG_SEGMENT: u8 = 23;
const START_LOG_SEGMENT: u8 = 24;
/// Fills the rest of a file that was allocated in advance.
const INVALID: u8 = 0xFF;
/// Bytes before the first entry: layout version and number of layout flags.
const HEAD: usize = 8;
/// Bytes of a segment that are read. Entries without changes take about 20.
const READ_MAX: u64 = 1 << 20;

/// Checks that no edit log in `directory` has a change after `txid`. The logs may be elsewhere
/// (`dfs.namenode.edits.dir`, JournalNodes). Then `seen_txid`, the first number of the newest segment, must not be
/// beyond the segment that follows the image.
///
/// Errors: `Unsupported`; `Damaged` if `seen_txid` is not a number.
pub(super) fn check(directory: &Path, txid: u64) -> Result<(), ImageError> {
    let refused = |what: String| {
        let what = format!(
            "{what}. Start Apache's NameNode, run `hdfs dfsadmin -safemode enter` and `hdfs dfsadmin -saveNamespace`, stop \
             it, and try again"
        );
        ImageError::Unsupported { path: directory.to_owned(), what }
    };
    let mut reached = 0;
    for entry in std::fs::read_dir(directory).map_err(io("reading", directory))? {
        let entry = entry.map_err(io("reading", directory))?;
        let name = entry.file_name();
        let Some(segment) = name.to_str().and_then(Segment::parse) else { continue };
        reached = reached.max(segment.last.unwrap_or(segment.first));
        if segment.last.is_some_and(|last| last <= txid) {
            continue;
        }
        let path = entry.path();
        let file = File::open(&path).map_err(io("opening", &path))?;
        let mut bytes = Vec::new();
        file.take(READ_MAX).read_to_end(&mut bytes).map_err(io("reading", &path))?;
        if has_change_after(&bytes, txid) {
            return Err(refused(format!("{} has changes after it", path.display())));
        }
    }
    match seen(directory)? {
        Some(seen) if seen > txid.saturating_add(1) && reached < seen => Err(refused(format!(
            "seen_txid is {seen}, so there are later changes in edit logs that are not in this directory"
        ))),
        _ => Ok(()),
    }
}

/// Reads `seen_txid`. `None` if there is no such file.
fn seen(directory: &Path) -> Result<Option<u64>, ImageError> {
    let path = directory.join("seen_txid");
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io("opening", &path)(error)),
    };
    let mut text = String::new();
    file.take(READ_MAX).read_to_string(&mut text).map_err(io("reading", &path))?;
    let number =
        text.trim().parse().map_err(|_| ImageError::Damaged { path, problem: "it is not a number".to_owned() });
    number.map(Some)
}

/// Name of a segment.
struct Segment {
    first: u64,
    /// Number of the last change; `None` while the segment is open.
    last: Option<u64>,
}

impl Segment {
    fn parse(name: &str) -> Option<Self> {
        let rest = name.strip_prefix("edits_")?;
        if let Some(first) = rest.strip_prefix("inprogress_") {
            return first.parse().ok().map(|first| Self { first, last: None });
        }
        let (first, last) = rest.split_once('-')?;
        Some(Self { first: first.parse().ok()?, last: Some(last.parse().ok()?) })
    }
}

/// Returns whether a segment has, or may have, a change with a number above `txid`.
fn has_change_after(segment: &[u8], txid: u64) -> bool {
    let mut rest = segment.get(HEAD..).unwrap_or_default();
    loop {
        let Some((code, after)) = rest.split_first() else { return false };
        if *code == INVALID {
            return false;
        }
        let Some((length, after)) = after.split_first_chunk::<4>() else { return true };
        let Some(number) = after.first_chunk::<8>() else { return true };
        let is_change = ![START_LOG_SEGMENT, END_LOG_SEGMENT].contains(code);
        if is_change && u64::from_be_bytes(*number) > txid {
            return true;
        }
        // The length counts itself and what follows, but neither the code before nor the checksum after it.
        let end = 1 + u32::from_be_bytes(*length) as usize + 4;
        match rest.get(end..) {
            Some(next) => rest = next,
            None => return true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(code: u8, txid: u64, body: &[u8]) -> Vec<u8> {
        let length = (4 + 8 + body.len()) as u32;
        [&[code][..], &length.to_be_bytes(), &txid.to_be_bytes(), body, &[9; 4]].concat()
    }

    fn segment(entries: &[Vec<u8>]) -> Vec<u8> {
        [&[0xFF, 0xFF, 0xFF, 0xBD, 0, 0, 0, 0][..], &entries.concat(), &[0xFF; 100]].concat()
    }

    #[test]
    fn only_changes_after_the_image_count() {
        let (start, end) = (entry(START_LOG_SEGMENT, 5, &[]), entry(END_LOG_SEGMENT, 6, &[]));
        assert!(!has_change_after(&segment(&[start.clone(), end.clone()]), 4));
        let change = entry(3, 6, b"mkdir");
        let with = segment(&[start, change, end]);
        assert!(has_change_after(&with, 5));
        assert!(!has_change_after(&with, 6));
        assert!(!has_change_after(&[], 0));
        // A damaged entry may be a change.
        assert!(has_change_after(&with[..HEAD + 3], 6));
    }

    #[test]
    fn directory_with_later_changes_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        std::fs::write(path("edits_0000000000000000001-0000000000000000004"), segment(&[entry(3, 2, b"x")])).unwrap();
        std::fs::write(path("edits_inprogress_0000000000000000005"), segment(&[entry(START_LOG_SEGMENT, 5, &[])]))
            .unwrap();
        check(place.path(), 4).unwrap();
        assert!(matches!(check(place.path(), 1), Err(ImageError::Unsupported { .. })));
        std::fs::write(path("edits_inprogress_0000000000000000005"), segment(&[entry(0, 6, b"x")])).unwrap();
        let said = check(place.path(), 4).unwrap_err().to_string();
        assert!(said.contains("-saveNamespace") && said.contains("edits_inprogress"), "{said}");
    }

    #[test]
    fn changes_in_edit_logs_elsewhere_are_refused() {
        let place = tempfile::tempdir().unwrap();
        let put = |text: &str| std::fs::write(place.path().join("seen_txid"), text).unwrap();
        for seen in ["4\n", "5\n"] {
            put(seen);
            check(place.path(), 4).unwrap();
        }
        put("7\n");
        let said = check(place.path(), 4).unwrap_err().to_string();
        assert!(said.contains("-saveNamespace") && said.contains("seen_txid is 7"), "{said}");
        let name = place.path().join("edits_inprogress_0000000000000000007");
        std::fs::write(name, segment(&[entry(START_LOG_SEGMENT, 7, &[])])).unwrap();
        check(place.path(), 4).unwrap();
        put("x");
        assert!(matches!(check(place.path(), 4), Err(ImageError::Damaged { .. })));
    }
}
