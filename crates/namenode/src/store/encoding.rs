//! Encoding of an operation's changes in the journal. Numbers are little-endian. Texts and records are preceded by
//! their length (4 bytes). A leading bit mask tells which kinds of changes follow; most operations have two or three.

use hearth_types::FsPermission;

use crate::caching::{Pool, Terms};
use crate::changes::{Changes, Counters, RetryEntry, SnapshotRow};

/// Error of decoding changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EncodingError {
    #[error("it is incomplete")]
    Short,
    #[error("it has trailing bytes")]
    Long,
    #[error("it has a text that is not UTF-8")]
    Text,
    #[error("it has unknown kinds of changes, {0:#x}")]
    Kinds(u16),
}

const INODES_PUT: u16 = 1;
const INODES_REMOVED: u16 = 1 << 1;
const VERSIONS_PUT: u16 = 1 << 2;
const VERSIONS_REMOVED: u16 = 1 << 3;
const SNAPSHOTS_PUT: u16 = 1 << 4;
const SNAPSHOTS_REMOVED: u16 = 1 << 5;
const NAMES_PUT: u16 = 1 << 6;
const COUNTERS: u16 = 1 << 7;
const CACHE_POOLS: u16 = 1 << 8;
const CACHE_DIRECTIVES: u16 = 1 << 9;
const LAST_DIRECTIVE: u16 = 1 << 10;
const RETRY: u16 = 1 << 11;
const RETRIES_REMOVED: u16 = 1 << 12;
const STORAGES: u16 = 1 << 13;
const LOST_STAMPS_GIVEN_UP: u16 = 1 << 14;
const ALL: u16 = (1 << 15) - 1;

/// Appends the encoded `changes` to `into`.
pub fn encode(changes: &Changes, into: &mut Vec<u8>) {
    // Exhaustive, so that a new field is not forgotten here.
    let Changes {
        inodes_put,
        inodes_removed,
        versions_put,
        versions_removed,
        snapshots_put,
        snapshots_removed,
        names_put,
        counters,
        cache_pools,
        cache_directives,
        last_directive,
        storages,
        lost_stamps_given_up,
        retry,
        retries_removed,
    } = changes;
    let at = into.len();
    let mut out = Output { into, kinds: 0 };
    out.u16(0);
    out.list(INODES_PUT, inodes_put, |out, (id, record)| {
        out.u64(*id);
        out.bytes(record);
    });
    out.list(INODES_REMOVED, inodes_removed, |out, id| out.u64(*id));
    out.list(VERSIONS_PUT, versions_put, |out, ((id, until), record)| {
        out.u64(*id);
        out.u32(*until);
        out.bytes(record);
    });
    out.list(VERSIONS_REMOVED, versions_removed, |out, (id, until)| {
        out.u64(*id);
        out.u32(*until);
    });
    out.list(SNAPSHOTS_PUT, snapshots_put, |out, (id, SnapshotRow { root, name, modification_time_ms })| {
        out.u32(*id);
        out.u64(*root);
        out.bytes(name.as_bytes());
        out.u64(*modification_time_ms);
    });
    out.list(SNAPSHOTS_REMOVED, snapshots_removed, |out, id| out.u32(*id));
    out.list(NAMES_PUT, names_put, |out, (number, name)| {
        out.u32(*number);
        out.bytes(name.as_bytes());
    });
    out.one(COUNTERS, counters, |out, Counters { last_inode, last_block, last_stamp, last_snapshot }| {
        out.u64(*last_inode);
        out.u64(*last_block as u64);
        out.u64(*last_stamp);
        out.u32(*last_snapshot);
    });
    out.list(CACHE_POOLS, cache_pools, |out, (name, pool)| {
        out.bytes(name.as_bytes());
        out.maybe(pool, |out, Pool { owner, group, permission, limit, default_replication, max_expiry_ms }| {
            out.bytes(owner.as_bytes());
            out.bytes(group.as_bytes());
            out.u16(permission.0);
            out.u64(*limit);
            out.u16(*default_replication);
            out.u64(*max_expiry_ms);
        });
    });
    out.list(CACHE_DIRECTIVES, cache_directives, |out, (id, terms)| {
        out.u64(*id);
        out.maybe(terms, |out, Terms { path, replication, pool, expires_ms }| {
            out.bytes(path.as_bytes());
            out.u16(*replication);
            out.bytes(pool.as_bytes());
            out.u64(*expires_ms);
        });
    });
    out.one(LAST_DIRECTIVE, last_directive, |out, last| out.u64(*last));
    out.one(RETRY, retry, |out, (key, RetryEntry { expires_ms, answer })| {
        out.into.extend_from_slice(key);
        out.u64(*expires_ms);
        out.bytes(answer);
    });
    out.one(RETRIES_REMOVED, &Some(*retries_removed).filter(|count| *count > 0), |out, count| out.u32(*count));
    out.list(STORAGES, storages, |out, (name, is_there)| {
        out.bytes(name.as_bytes());
        out.into.push(u8::from(*is_there));
    });
    if *lost_stamps_given_up {
        out.kinds |= LOST_STAMPS_GIVEN_UP;
    }
    let kinds = out.kinds;
    into[at..at + 2].copy_from_slice(&kinds.to_le_bytes());
}

/// Decodes one operation's changes from the front of `bytes`.
pub fn decode<'a>(bytes: &mut &'a [u8]) -> Result<Changes<&'a [u8]>, EncodingError> {
    let mut input = Input { bytes, kinds: 0 };
    input.kinds = input.u16()?;
    if input.kinds & !ALL != 0 {
        return Err(EncodingError::Kinds(input.kinds));
    }
    // In encoding order.
    let changes = Changes {
        inodes_put: input.list(INODES_PUT, |input| Ok((input.u64()?, input.bytes()?)))?,
        inodes_removed: input.list(INODES_REMOVED, Input::u64)?,
        versions_put: input.list(VERSIONS_PUT, |input| Ok(((input.u64()?, input.u32()?), input.bytes()?)))?,
        versions_removed: input.list(VERSIONS_REMOVED, |input| Ok((input.u64()?, input.u32()?)))?,
        snapshots_put: input.list(SNAPSHOTS_PUT, |input| {
            let (id, root) = (input.u32()?, input.u64()?);
            Ok((id, SnapshotRow { root, name: input.text()?, modification_time_ms: input.u64()? }))
        })?,
        snapshots_removed: input.list(SNAPSHOTS_REMOVED, Input::u32)?,
        names_put: input.list(NAMES_PUT, |input| Ok((input.u32()?, input.text()?)))?,
        counters: input.one(COUNTERS, |input| {
            Ok(Counters {
                last_inode: input.u64()?,
                last_block: input.u64()? as i64,
                last_stamp: input.u64()?,
                last_snapshot: input.u32()?,
            })
        })?,
        cache_pools: input.list(CACHE_POOLS, |input| {
            let name = input.text()?;
            let pool = input.maybe(|input| {
                Ok(Pool {
                    owner: input.text()?,
                    group: input.text()?,
                    permission: FsPermission(input.u16()?),
                    limit: input.u64()?,
                    default_replication: input.u16()?,
                    max_expiry_ms: input.u64()?,
                })
            })?;
            Ok((name, pool))
        })?,
        cache_directives: input.list(CACHE_DIRECTIVES, |input| {
            let id = input.u64()?;
            let terms = input.maybe(|input| {
                Ok(Terms {
                    path: input.text()?,
                    replication: input.u16()?,
                    pool: input.text()?,
                    expires_ms: input.u64()?,
                })
            })?;
            Ok((id, terms))
        })?,
        last_directive: input.one(LAST_DIRECTIVE, Input::u64)?,
        retry: input.one(RETRY, |input| {
            let key = *input.array()?;
            Ok((key, RetryEntry { expires_ms: input.u64()?, answer: input.bytes()? }))
        })?,
        retries_removed: input.one(RETRIES_REMOVED, Input::u32)?.unwrap_or(0),
        storages: input.list(STORAGES, |input| {
            let name = input.text()?;
            let [is_there] = *input.array()?;
            Ok((name, is_there != 0))
        })?,
        lost_stamps_given_up: input.kinds & LOST_STAMPS_GIVEN_UP != 0,
    };
    *bytes = input.bytes;
    Ok(changes)
}

/// Appends a remembered answer.
pub fn encode_retry(key: &[u8; 20], entry: &RetryEntry<impl AsRef<[u8]>>, into: &mut Vec<u8>) {
    let mut out = Output { into, kinds: 0 };
    out.into.extend_from_slice(key);
    out.u64(entry.expires_ms);
    out.bytes(entry.answer.as_ref());
}

/// Decodes a remembered answer from the front of `bytes`.
pub fn decode_retry(bytes: &mut &[u8]) -> Result<([u8; 20], RetryEntry), EncodingError> {
    let mut input = Input { bytes, kinds: 0 };
    let key = *input.array()?;
    let entry = RetryEntry { expires_ms: input.u64()?, answer: input.bytes()?.to_vec() };
    *bytes = input.bytes;
    Ok((key, entry))
}

struct Output<'a> {
    into: &'a mut Vec<u8>,
    kinds: u16,
}

impl Output<'_> {
    fn u16(&mut self, number: u16) {
        self.into.extend_from_slice(&number.to_le_bytes());
    }

    fn u32(&mut self, number: u32) {
        self.into.extend_from_slice(&number.to_le_bytes());
    }

    fn u64(&mut self, number: u64) {
        self.into.extend_from_slice(&number.to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        // Records and texts are limited to far less than this when they are received.
        self.u32(u32::try_from(bytes.len()).expect("a record is shorter than 4 GiB"));
        self.into.extend_from_slice(bytes);
    }

    fn list<T>(&mut self, kind: u16, items: &[T], put: impl Fn(&mut Self, &T)) {
        if !items.is_empty() {
            self.kinds |= kind;
            self.u32(u32::try_from(items.len()).expect("fewer than 2^32 inodes change at once"));
            items.iter().for_each(|item| put(self, item));
        }
    }

    fn one<T>(&mut self, kind: u16, item: &Option<T>, put: impl Fn(&mut Self, &T)) {
        if let Some(item) = item {
            self.kinds |= kind;
            put(self, item);
        }
    }

    fn maybe<T>(&mut self, item: &Option<T>, put: impl Fn(&mut Self, &T)) {
        self.into.push(u8::from(item.is_some()));
        if let Some(item) = item {
            put(self, item);
        }
    }
}

struct Input<'a> {
    bytes: &'a [u8],
    kinds: u16,
}

impl<'a> Input<'a> {
    fn array<const N: usize>(&mut self) -> Result<&'a [u8; N], EncodingError> {
        let (taken, rest) = self.bytes.split_first_chunk().ok_or(EncodingError::Short)?;
        self.bytes = rest;
        Ok(taken)
    }

    fn u16(&mut self) -> Result<u16, EncodingError> {
        Ok(u16::from_le_bytes(*self.array()?))
    }

    fn u32(&mut self) -> Result<u32, EncodingError> {
        Ok(u32::from_le_bytes(*self.array()?))
    }

    fn u64(&mut self) -> Result<u64, EncodingError> {
        Ok(u64::from_le_bytes(*self.array()?))
    }

    fn bytes(&mut self) -> Result<&'a [u8], EncodingError> {
        let length = self.u32()? as usize;
        let (taken, rest) = self.bytes.split_at_checked(length).ok_or(EncodingError::Short)?;
        self.bytes = rest;
        Ok(taken)
    }

    fn text(&mut self) -> Result<String, EncodingError> {
        Ok(std::str::from_utf8(self.bytes()?).map_err(|_| EncodingError::Text)?.to_owned())
    }

    fn list<T>(
        &mut self,
        kind: u16,
        take: impl Fn(&mut Self) -> Result<T, EncodingError>,
    ) -> Result<Vec<T>, EncodingError> {
        if self.kinds & kind == 0 {
            return Ok(Vec::new());
        }
        let count = self.u32()?;
        (0..count).map(|_| take(self)).collect()
    }

    fn one<T>(
        &mut self,
        kind: u16,
        take: impl Fn(&mut Self) -> Result<T, EncodingError>,
    ) -> Result<Option<T>, EncodingError> {
        if self.kinds & kind == 0 { Ok(None) } else { take(self).map(Some) }
    }

    fn maybe<T>(&mut self, take: impl Fn(&mut Self) -> Result<T, EncodingError>) -> Result<Option<T>, EncodingError> {
        let [present] = *self.array()?;
        if present == 0 { Ok(None) } else { take(self).map(Some) }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn everything() -> Changes {
        let pool = Pool {
            owner: "o".into(),
            group: "g".into(),
            permission: FsPermission(0o750),
            limit: 9,
            default_replication: 2,
            max_expiry_ms: u64::MAX,
        };
        let terms = Terms { path: "/a/ü".into(), replication: 3, pool: "p".into(), expires_ms: 77 };
        Changes {
            inodes_put: vec![(16386, vec![1, 2, 3]), (u64::MAX, vec![])],
            inodes_removed: vec![5, 6],
            versions_put: vec![((7, 8), vec![9; 300])],
            versions_removed: vec![(1, 2), (3, 4)],
            snapshots_put: vec![(1, SnapshotRow { root: 2, name: "s".into(), modification_time_ms: 3 })],
            snapshots_removed: vec![4],
            names_put: vec![(1, "root".into())],
            counters: Some(Counters { last_inode: 1, last_block: -2, last_stamp: 3, last_snapshot: 4 }),
            cache_pools: vec![("p".into(), Some(pool)), ("q".into(), None)],
            cache_directives: vec![(1, Some(terms)), (2, None)],
            last_directive: Some(2),
            storages: vec![("DS-1".into(), true), ("DS-2".into(), false)],
            lost_stamps_given_up: true,
            retry: Some(([7; 20], RetryEntry { expires_ms: 8, answer: vec![1; 70] })),
            retries_removed: 3,
        }
    }

    pub fn owned(changes: Changes<&[u8]>) -> Changes {
        let retry = |(key, entry): (_, RetryEntry<&[u8]>)| {
            (key, RetryEntry { expires_ms: entry.expires_ms, answer: entry.answer.to_vec() })
        };
        Changes {
            inodes_put: changes.inodes_put.into_iter().map(|(id, record)| (id, record.to_vec())).collect(),
            inodes_removed: changes.inodes_removed,
            versions_put: changes.versions_put.into_iter().map(|(key, record)| (key, record.to_vec())).collect(),
            versions_removed: changes.versions_removed,
            snapshots_put: changes.snapshots_put,
            snapshots_removed: changes.snapshots_removed,
            names_put: changes.names_put,
            counters: changes.counters,
            cache_pools: changes.cache_pools,
            cache_directives: changes.cache_directives,
            last_directive: changes.last_directive,
            storages: changes.storages,
            lost_stamps_given_up: changes.lost_stamps_given_up,
            retry: changes.retry.map(retry),
            retries_removed: changes.retries_removed,
        }
    }

    #[test]
    fn changes_round_trip() {
        let few = Changes { inodes_removed: vec![5], ..Changes::default() };
        let mut bytes = Vec::new();
        for changes in [&everything(), &Changes::default(), &few] {
            encode(changes, &mut bytes);
        }
        let mut rest = bytes.as_slice();
        for changes in [everything(), Changes::default(), few] {
            assert_eq!(owned(decode(&mut rest).unwrap()), changes);
        }
        assert!(rest.is_empty());
    }

    #[test]
    fn truncated_or_unknown_changes_are_errors() {
        let mut bytes = Vec::new();
        encode(&everything(), &mut bytes);
        for length in 0..bytes.len() {
            assert_eq!(decode(&mut &bytes[..length]), Err(EncodingError::Short), "{length} bytes");
        }
        assert_eq!(decode(&mut [0xff, 0xff].as_slice()), Err(EncodingError::Kinds(0xffff)));
        let mut counted = INODES_REMOVED.to_le_bytes().to_vec();
        counted.extend(u32::MAX.to_le_bytes());
        assert_eq!(decode(&mut counted.as_slice()), Err(EncodingError::Short), "a count allocates nothing");
    }

    #[test]
    fn remembered_answers_round_trip_in_sequence() {
        let entry = RetryEntry { expires_ms: 5, answer: vec![1, 2] };
        let mut bytes = Vec::new();
        encode_retry(&[1; 20], &entry, &mut bytes);
        encode_retry(&[2; 20], &entry, &mut bytes);
        let mut rest = bytes.as_slice();
        assert_eq!(decode_retry(&mut rest), Ok(([1; 20], entry.clone())));
        assert_eq!(decode_retry(&mut rest), Ok(([2; 20], entry)));
        assert_eq!(decode_retry(&mut rest), Err(EncodingError::Short));
    }
}
