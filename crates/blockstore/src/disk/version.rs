//! The `VERSION` files: Java properties that identify the owner of a directory.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use hearth_types::PoolIdentity;

use crate::error::{Result, StoreError};
use crate::memory::incarnation::replace;

/// Layout version of Apache's DataNode since 2.7: two levels of 32 subdirectories. Others are refused.
pub const LAYOUT_VERSION: &str = "-57";

pub const FILE: &str = "VERSION";

type Properties = BTreeMap<String, String>;

/// `VOLUME/current/VERSION`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VolumeVersion {
    pub storage_id: String,
    pub datanode_uuid: String,
    pub cluster_id: String,
}

impl VolumeVersion {
    /// `Ok(None)`: a fresh directory.
    pub fn read(current: &Path) -> Result<Option<Self>> {
        let path = current.join(FILE);
        let Some(properties) = read_properties(&path)? else { return Ok(None) };
        check_layout(&path, &properties)?;
        let storage_type = get(&path, &properties, "storageType")?;
        if storage_type != "DATA_NODE" {
            let reason = format!("is the storage of a {storage_type}, not of a datanode");
            return Err(StoreError::BadDirectory { path, reason });
        }
        Ok(Some(Self {
            storage_id: get(&path, &properties, "storageID")?,
            datanode_uuid: get(&path, &properties, "datanodeUuid")?,
            cluster_id: get(&path, &properties, "clusterID")?,
        }))
    }

    pub fn write(&self, current: &Path) -> Result<()> {
        let entries = [
            ("storageID", self.storage_id.as_str()),
            ("clusterID", &self.cluster_id),
            // A DataNode's own directories have no creation time; the pools do.
            ("cTime", "0"),
            ("datanodeUuid", &self.datanode_uuid),
            ("storageType", "DATA_NODE"),
            ("layoutVersion", LAYOUT_VERSION),
        ];
        write_properties(current, &entries)
    }
}

/// `VOLUME/current/BP-.../current/VERSION`.
pub fn read_pool(current: &Path) -> Result<Option<PoolIdentity>> {
    let path = current.join(FILE);
    let Some(properties) = read_properties(&path)? else { return Ok(None) };
    check_layout(&path, &properties)?;
    let bad =
        |key: &str, value: &str| StoreError::BadDirectory { path: path.clone(), reason: format!("{key}={value}") };
    let namespace = get(&path, &properties, "namespaceID")?;
    let created = get(&path, &properties, "cTime")?;
    Ok(Some(PoolIdentity {
        pool: hearth_types::BlockPoolId::new(get(&path, &properties, "blockpoolID")?),
        // Java's number is signed, and is written that way.
        namespace_id: namespace.parse::<i32>().map_err(|_| bad("namespaceID", &namespace))? as u32,
        // Not in this file; the volume's `VERSION` has it.
        cluster_id: String::new(),
        created_ms: created.parse().map_err(|_| bad("cTime", &created))?,
    }))
}

pub fn write_pool(current: &Path, pool: &PoolIdentity) -> Result<()> {
    let entries = [
        ("namespaceID", (pool.namespace_id as i32).to_string()),
        ("cTime", pool.created_ms.to_string()),
        ("blockpoolID", pool.pool.to_string()),
        ("layoutVersion", LAYOUT_VERSION.to_owned()),
    ];
    let entries: Vec<(&str, &str)> = entries.iter().map(|(key, value)| (*key, value.as_str())).collect();
    write_properties(current, &entries)
}

fn check_layout(path: &Path, properties: &Properties) -> Result<()> {
    let layout = get(path, properties, "layoutVersion")?;
    if layout == LAYOUT_VERSION {
        return Ok(());
    }
    let reason = format!("has layout version {layout}; only {LAYOUT_VERSION} (Hadoop 2.7 and later) is supported");
    Err(StoreError::BadDirectory { path: path.to_owned(), reason })
}

fn get(path: &Path, properties: &Properties, key: &str) -> Result<String> {
    match properties.get(key) {
        Some(value) if !value.is_empty() => Ok(value.clone()),
        _ => Err(StoreError::BadDirectory { path: path.to_owned(), reason: format!("has no {key}") }),
    }
}

fn read_properties(path: &Path) -> Result<Option<Properties>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(parse(&String::from_utf8_lossy(&bytes)))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(StoreError::io("read", path)(error)),
    }
}

fn parse(text: &str) -> Properties {
    let lines = text.lines().map(str::trim_start).filter(|line| !line.starts_with(['#', '!']) && !line.is_empty());
    lines
        .filter_map(|line| line.split_once('='))
        .map(|(key, value)| (key.trim().to_owned(), unescape(value.trim())))
        .collect()
}

/// Java escapes `:`, `=`, `#`, `!` and blanks with a backslash.
fn unescape(value: &str) -> String {
    let mut characters = value.chars();
    let mut text = String::new();
    while let Some(character) = characters.next() {
        text.extend(if character == '\\' { characters.next() } else { Some(character) });
    }
    text
}

fn escape(value: &str) -> String {
    let mut text = String::new();
    for character in value.chars() {
        if matches!(character, '\\' | ':' | '=' | '#' | '!') {
            text.push('\\');
        }
        text.push(character);
    }
    text
}

fn write_properties(current: &Path, entries: &[(&str, &str)]) -> Result<()> {
    let mut text = String::from("#Written by Hearth\n");
    for (key, value) in entries {
        text.push_str(&format!("{key}={}\n", escape(value)));
    }
    replace(current, FILE, &text).map_err(StoreError::io("write", current.join(FILE)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_files_of_java_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let text = "#Sat Nov 21 06:00:00 UTC 2026\nstorageID=DS-1\nclusterID=CID-a\\:b\ncTime=0\n\
                    datanodeUuid=u-1\nstorageType=DATA_NODE\nlayoutVersion=-57\n";
        fs::write(dir.path().join(FILE), text).unwrap();
        let version = VolumeVersion::read(dir.path()).unwrap().unwrap();
        assert_eq!(version.cluster_id, "CID-a:b");
        version.write(dir.path()).unwrap();
        assert_eq!(VolumeVersion::read(dir.path()).unwrap().unwrap(), version);
    }

    #[test]
    fn foreign_layouts_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(VolumeVersion::read(dir.path()).unwrap(), None);
        let good = "storageID=DS-1\nclusterID=C\ndatanodeUuid=u\nstorageType=DATA_NODE\nlayoutVersion=-57\n";
        for bad in [
            good.replace("-57", "-56"),
            good.replace("DATA_NODE", "NAME_NODE"),
            good.replace("storageID=DS-1\n", ""),
            "garbage \0\u{fffd}".to_owned(),
        ] {
            fs::write(dir.path().join(FILE), bad).unwrap();
            assert!(matches!(VolumeVersion::read(dir.path()), Err(StoreError::BadDirectory { .. })));
        }
    }

    #[test]
    fn pool_identity_round_trips() {
        let dir = tempfile::tempdir().unwrap();
        let pool = PoolIdentity {
            pool: hearth_types::BlockPoolId::new("BP-1-127.0.0.1-5"),
            namespace_id: 0xf000_0001,
            cluster_id: String::new(),
            created_ms: 1_700_000_000_000,
        };
        write_pool(dir.path(), &pool).unwrap();
        assert_eq!(read_pool(dir.path()).unwrap().unwrap(), pool);
    }
}
