use std::collections::BTreeMap;
use std::str::FromStr;

use super::{BlockFileError, parse_properties, print_properties};
use crate::{BlockPoolId, DatanodeUuid, StorageId};

/// Layout version of the datanode directories that Hearth reads and writes. The datanode sends it at registration.
pub const DATANODE_LAYOUT_VERSION: i32 = -57;

/// `<volume>/current/VERSION`: identifies the storage and its owner.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StorageVersion {
    pub storage_id: StorageId,
    pub cluster_id: String,
    /// Milliseconds since the epoch; 0 here in Hadoop 3.
    pub created_ms: u64,
    pub datanode_uuid: DatanodeUuid,
    pub layout_version: i32,
}

/// `<volume>/current/<pool>/current/VERSION`: identifies the namespace that the replicas belong to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PoolVersion {
    pub namespace_id: u32,
    /// The namespace's format time, milliseconds since the epoch.
    pub created_ms: u64,
    pub pool: BlockPoolId,
    pub layout_version: i32,
}

impl StorageVersion {
    pub fn parse(text: &str) -> Result<Self, BlockFileError> {
        let properties = parse_properties(text)?;
        let kind = required(&properties, "storageType")?;
        if kind != "DATA_NODE" {
            return Err(bad("storageType", kind, "DATA_NODE"));
        }
        Ok(Self {
            storage_id: StorageId(not_empty(&properties, "storageID")?.into()),
            cluster_id: required(&properties, "clusterID")?.to_owned(),
            created_ms: number(&properties, "cTime")?,
            datanode_uuid: DatanodeUuid(not_empty(&properties, "datanodeUuid")?.into()),
            layout_version: number(&properties, "layoutVersion")?,
        })
    }

    /// `comment`: first line of the file; Java writes the date there.
    pub fn print(&self, comment: &str) -> String {
        print_properties(
            comment,
            &[
                ("storageID", &self.storage_id.0),
                ("clusterID", &self.cluster_id),
                ("cTime", &self.created_ms.to_string()),
                ("datanodeUuid", &self.datanode_uuid.0),
                ("storageType", "DATA_NODE"),
                ("layoutVersion", &self.layout_version.to_string()),
            ],
        )
    }
}

impl PoolVersion {
    pub fn parse(text: &str) -> Result<Self, BlockFileError> {
        let properties = parse_properties(text)?;
        Ok(Self {
            // Java stores an int here.
            namespace_id: number::<i32>(&properties, "namespaceID")? as u32,
            created_ms: number(&properties, "cTime")?,
            pool: BlockPoolId::new(not_empty(&properties, "blockpoolID")?),
            layout_version: number(&properties, "layoutVersion")?,
        })
    }

    /// `comment`: first line of the file; Java writes the date there.
    pub fn print(&self, comment: &str) -> String {
        print_properties(
            comment,
            &[
                ("namespaceID", &(self.namespace_id as i32).to_string()),
                ("cTime", &self.created_ms.to_string()),
                ("blockpoolID", self.pool.as_str()),
                ("layoutVersion", &self.layout_version.to_string()),
            ],
        )
    }
}

fn required<'a>(properties: &'a BTreeMap<String, String>, key: &'static str) -> Result<&'a str, BlockFileError> {
    properties.get(key).map(String::as_str).ok_or(BlockFileError::MissingKey { key })
}

fn not_empty<'a>(properties: &'a BTreeMap<String, String>, key: &'static str) -> Result<&'a str, BlockFileError> {
    match required(properties, key)? {
        "" => Err(bad(key, "", "a name")),
        value => Ok(value),
    }
}

fn number<T: FromStr>(properties: &BTreeMap<String, String>, key: &'static str) -> Result<T, BlockFileError> {
    let value = required(properties, key)?;
    value.trim().parse().map_err(|_| bad(key, value, "a number in range"))
}

fn bad(key: &'static str, value: &str, expected: &'static str) -> BlockFileError {
    BlockFileError::BadValue { key, value: value.to_owned(), expected }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_files_round_trip() {
        let storage = StorageVersion {
            storage_id: StorageId("DS-11111111-2222-4333-8444-555555555555".into()),
            cluster_id: "CID-abc".into(),
            created_ms: 0,
            datanode_uuid: DatanodeUuid("b1a7e5f0-0000-4000-8000-000000000005".into()),
            layout_version: DATANODE_LAYOUT_VERSION,
        };
        assert_eq!(StorageVersion::parse(&storage.print("Tue Nov 21 2026")), Ok(storage));
        let pool = PoolVersion {
            namespace_id: 4_000_000_000,
            created_ms: 1_700_000_000_000,
            pool: BlockPoolId::new("BP-1-10.0.0.1-1700000000000"),
            layout_version: DATANODE_LAYOUT_VERSION,
        };
        assert_eq!(PoolVersion::parse(&pool.print("x\ny")), Ok(pool));
    }

    #[test]
    fn missing_or_invalid_keys_are_named() {
        let text = "storageType=NAME_NODE\n";
        assert!(matches!(StorageVersion::parse(text), Err(BlockFileError::BadValue { key: "storageType", .. })));
        assert_eq!(
            PoolVersion::parse("namespaceID=1\ncTime=x"),
            Err(BlockFileError::BadValue { key: "cTime", value: "x".into(), expected: "a number in range" })
        );
        assert_eq!(PoolVersion::parse(""), Err(BlockFileError::MissingKey { key: "namespaceID" }));
    }
}
