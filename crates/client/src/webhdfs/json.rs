//! Decoding of Hadoop's JSON. Source: JsonUtilClient.java.

use hearth_types::{
    AclEntry, AclStatus, ChecksumKind, ContentSummary, FileFlags, FileKind, FileStatus, FsPermission, SnapshotShare,
    StorageType, TypeQuota, Xattr,
};
use serde_json::Value;

use crate::{FileChecksum, QuotaUsage};

fn number(of: &Value, key: &str) -> u64 {
    of[key].as_u64().unwrap_or(0)
}

fn text(of: &Value, key: &str) -> String {
    of[key].as_str().unwrap_or_default().to_owned()
}

fn permission(of: &Value) -> Option<FsPermission> {
    u16::from_str_radix(of["permission"].as_str()?, 8).ok().map(|bits| FsPermission(bits & FsPermission::MASK))
}

pub fn status(of: &Value) -> Option<FileStatus> {
    let kind = match of["type"].as_str()? {
        "FILE" => FileKind::File,
        "DIRECTORY" => FileKind::Directory,
        "SYMLINK" => FileKind::Symlink,
        _ => return None,
    };
    let flags = [
        ("aclBit", FileFlags::HAS_ACL),
        ("encBit", FileFlags::ENCRYPTED),
        ("ecBit", FileFlags::ERASURE_CODED),
        ("snapshotEnabled", FileFlags::SNAPSHOTTABLE),
    ];
    let set = flags.into_iter().filter(|(name, _)| of[*name].as_bool() == Some(true));
    Some(FileStatus {
        kind,
        local_name: of["pathSuffix"].as_str()?.as_bytes().to_vec(),
        length: number(of, "length"),
        permission: permission(of)?,
        owner: text(of, "owner"),
        group: text(of, "group"),
        modification_time_ms: number(of, "modificationTime"),
        access_time_ms: number(of, "accessTime"),
        replication: number(of, "replication").try_into().unwrap_or(u16::MAX),
        block_size: number(of, "blockSize"),
        inode: number(of, "fileId"),
        children: of["childrenNum"].as_i64().and_then(|count| count.try_into().ok()).unwrap_or(-1),
        storage_policy: number(of, "storagePolicy").try_into().unwrap_or(0),
        flags: set.fold(FileFlags(0), |all, (_, flag)| all.with(flag)),
        symlink: of["symlink"].as_str().map(|target| target.as_bytes().to_vec()),
        erasure_coding_policy: None,
    })
}

/// Returns a quota, or `None` if it is not set (-1 or less).
fn quota(of: &Value, key: &str) -> Option<u64> {
    of[key].as_i64().and_then(|quota| quota.try_into().ok())
}

fn type_quotas(of: &Value) -> Vec<TypeQuota> {
    let Some(types) = of["typeQuota"].as_object() else { return Vec::new() };
    let one = |(name, usage): (&String, &Value)| {
        let storage_type = StorageType::named(name)?;
        Some(TypeQuota { storage_type, quota: quota(usage, "quota"), consumed: number(usage, "consumed") })
    };
    types.iter().filter_map(one).collect()
}

pub fn content_summary(of: &Value) -> ContentSummary {
    ContentSummary {
        length: number(of, "length"),
        files: number(of, "fileCount"),
        directories: number(of, "directoryCount"),
        name_quota: quota(of, "quota"),
        space_consumed: number(of, "spaceConsumed"),
        space_quota: quota(of, "spaceQuota"),
        type_quotas: type_quotas(of),
        in_snapshots: SnapshotShare {
            length: number(of, "snapshotLength"),
            files: number(of, "snapshotFileCount"),
            directories: number(of, "snapshotDirectoryCount"),
            space_consumed: number(of, "snapshotSpaceConsumed"),
        },
        erasure_coding_policy: text(of, "ecPolicy"),
    }
}

pub fn quota_usage(of: &Value) -> QuotaUsage {
    QuotaUsage {
        names: number(of, "fileAndDirectoryCount"),
        name_quota: quota(of, "quota"),
        space_consumed: number(of, "spaceConsumed"),
        space_quota: quota(of, "spaceQuota"),
        type_quotas: type_quotas(of),
    }
}

fn bytes_of_hex(text: &str) -> Option<Vec<u8>> {
    let pair = |pair: &[u8]| {
        let pair = std::str::from_utf8(pair).ok().filter(|pair| pair.len() == 2 && !pair.contains('+'))?;
        u8::from_str_radix(pair, 16).ok()
    };
    text.as_bytes().chunks(2).map(pair).collect()
}

/// Reads a checksum of the only kind that WebHDFS has: `MD5-of-0MD5-of-512CRC32C`.
pub fn checksum(of: &Value) -> Option<FileChecksum> {
    let algorithm = of["algorithm"].as_str()?;
    let crc_kind = match algorithm {
        name if name.ends_with("CRC32C") => ChecksumKind::Crc32c,
        name if name.ends_with("CRC32") => ChecksumKind::Crc32,
        name if name.ends_with("NULL") => ChecksumKind::Null,
        _ => return None,
    };
    let bytes = bytes_of_hex(of["bytes"].as_str()?)?;
    if !algorithm.starts_with("MD5-of-") {
        return None;
    }
    let (bytes_per_crc, rest) = bytes.split_first_chunk::<4>()?;
    let (crcs_per_block, rest) = rest.split_first_chunk::<8>()?;
    Some(FileChecksum::Md5 {
        bytes_per_crc: u32::from_be_bytes(*bytes_per_crc),
        crcs_per_block: u64::from_be_bytes(*crcs_per_block),
        crc_kind,
        // Apache's server states a length that may exceed the bytes that it sends.
        md5: *rest.first_chunk()?,
    })
}

pub fn acl(of: &Value) -> Option<AclStatus> {
    let entries = of["entries"].as_array()?.iter();
    let entries = entries.map(|entry| AclEntry::parse_all(entry.as_str()?, true).ok()?.into_iter().next());
    Some(AclStatus {
        owner: text(of, "owner"),
        group: text(of, "group"),
        permission: permission(of)?,
        entries: entries.collect::<Option<_>>()?,
    })
}

/// Reads extended attributes whose values are in hexadecimal.
pub fn xattrs(of: &Value) -> Option<Vec<Xattr>> {
    let one = |xattr: &Value| {
        let named = Xattr::named(xattr["name"].as_str()?)?;
        let value = match xattr["value"].as_str() {
            None => Vec::new(),
            Some(text) => bytes_of_hex(text.strip_prefix("0x")?)?,
        };
        Some(Xattr { value: value.into(), ..named })
    };
    of.as_array()?.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn hadoops_json_is_decoded() {
        let of = json!({
            "pathSuffix": "f", "type": "FILE", "length": 7, "owner": "ann", "group": "staff", "permission": "1644",
            "accessTime": 6, "modificationTime": 5, "blockSize": 1 << 20, "replication": 3, "fileId": 16_386,
            "childrenNum": 0, "storagePolicy": 7, "aclBit": true,
        });
        let read = status(&of).unwrap();
        assert_eq!((read.length, read.permission.0, read.replication), (7, 0o1644, 3));
        assert!(read.flags.contains(FileFlags::HAS_ACL) && !read.flags.contains(FileFlags::ENCRYPTED));
        for wrong in [json!({}), json!({"type": "FILE"}), json!({"type": "FILE", "pathSuffix": "", "permission": "9"})]
        {
            assert!(status(&wrong).is_none(), "{wrong}");
        }
        let summary =
            content_summary(&json!({"length": 3, "fileCount": 2, "directoryCount": 1, "quota": -1, "spaceQuota": 9}));
        assert_eq!((summary.length, summary.name_quota, summary.space_quota), (3, None, Some(9)));
        let md5 = "000002000000000000000002000102030405060708090a0b0c0d0e0f00000000";
        let read = checksum(&json!({"algorithm": "MD5-of-2MD5-of-512CRC32C", "bytes": md5, "length": 28})).unwrap();
        assert_eq!((read.algorithm().as_str(), read.bytes().len()), ("MD5-of-2MD5-of-512CRC32C", 28));
        assert!(checksum(&json!({"algorithm": "MD5-of-2MD5-of-512CRC32C", "bytes": "00"})).is_none());
        let read = xattrs(&json!([{"name": "user.a", "value": "0x61"}, {"name": "user.b", "value": null}])).unwrap();
        assert_eq!((&*read[0].value, &*read[1].value), (&b"a"[..], &b""[..]));
        assert!(xattrs(&json!([{"name": "user.a", "value": "0x6"}])).is_none());
    }
}
