//! Disk space reserved for uses other than HDFS: Hadoop's keys for all directories, those of a storage type, or a
//! single one.

use hearth_blockstore::Reserved;
use hearth_config::{ConfigError, Configuration, StorageDirectory, keys, parse};

/// Returns the reserved space of `directory`. Source: hdfs `ReservedSpaceCalculator`.
pub fn reserved_space(conf: &Configuration, directory: &StorageDirectory) -> Result<Reserved, ConfigError> {
    let key = keys::DFS_DATANODE_DU_RESERVED_CALCULATOR;
    let class = conf.get(key)?;
    let bytes = || most_specific(conf, keys::DFS_DATANODE_DU_RESERVED.name, directory, parse::bytes);
    let percent = || most_specific(conf, keys::DFS_DATANODE_DU_RESERVED_PCT.name, directory, parse::percent);
    // Java's name of a nested class; the outer class may be written without its package.
    match class.rsplit('$').next().unwrap_or_default() {
        "ReservedSpaceCalculatorAbsolute" => Ok(Reserved::Bytes(bytes()?)),
        "ReservedSpaceCalculatorPercentage" => Ok(Reserved::Percent(percent()?)),
        "ReservedSpaceCalculatorConservative" => Ok(Reserved::Larger { bytes: bytes()?, percent: percent()? }),
        "ReservedSpaceCalculatorAggressive" => Ok(Reserved::Smaller { bytes: bytes()?, percent: percent()? }),
        _ => Err(conf.value_error(
            key.name,
            &class,
            "wanted org.apache.hadoop.hdfs.server.datanode.fsdataset.impl.ReservedSpaceCalculator$\
             ReservedSpaceCalculator{Absolute, Percentage, Conservative or Aggressive}",
        )),
    }
}

/// Returns the most specific value for this directory; 0 if no value is configured.
fn most_specific(
    conf: &Configuration,
    key: &str,
    directory: &StorageDirectory,
    parse: fn(&str) -> Result<u64, String>,
) -> Result<u64, ConfigError> {
    let (dir, kind) = (directory.path.display(), directory.storage_type.name().to_ascii_lowercase());
    for name in [format!("{key}.{dir}.{kind}"), format!("{key}.{dir}"), format!("{key}.{kind}"), key.to_owned()] {
        if let Some(value) = conf.get_as(&name, parse)? {
            return Ok(value);
        }
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reserved(settings: &[(&str, &str)], directory: &str) -> Result<Reserved, ConfigError> {
        let conf = settings.iter().fold(Configuration::empty(), |conf, (key, value)| conf.with(key, *value));
        reserved_space(&conf, &parse::storage_directories(directory).unwrap()[0])
    }

    #[test]
    fn most_specific_key_wins() {
        let all = [
            ("dfs.datanode.du.reserved", "1k"),
            ("dfs.datanode.du.reserved.ram_disk", "2k"),
            ("dfs.datanode.du.reserved./data/1", "3k"),
            ("dfs.datanode.du.reserved./data/1.ssd", "4k"),
        ];
        let bytes = |directory| reserved(&all, directory).unwrap();
        assert_eq!(bytes("/data/2"), Reserved::Bytes(1024));
        assert_eq!(bytes("[RAM_DISK]/data/2"), Reserved::Bytes(2048));
        assert_eq!(bytes("[RAM_DISK]file:///data/1"), Reserved::Bytes(3072));
        assert_eq!(bytes("[SSD]/data/1"), Reserved::Bytes(4096));
        assert_eq!(reserved(&[], "/data/1").unwrap(), Reserved::Bytes(0));
    }

    #[test]
    fn calculator_selects_keys() {
        let by = |name: &str, percent: &str| {
            let class = format!("org.apache.hadoop.hdfs.server.datanode.fsdataset.impl.ReservedSpaceCalculator${name}");
            let settings = [
                ("dfs.datanode.du.reserved.calculator", &*class),
                ("dfs.datanode.du.reserved", "100"),
                ("dfs.datanode.du.reserved.pct", percent),
                ("dfs.datanode.du.reserved.pct.ssd", "20"),
            ];
            reserved(&settings, "[SSD]/data")
        };
        assert_eq!(by("ReservedSpaceCalculatorAbsolute", "10").unwrap(), Reserved::Bytes(100));
        assert_eq!(by("ReservedSpaceCalculatorPercentage", "10").unwrap(), Reserved::Percent(20));
        let (bytes, percent) = (100, 20);
        assert_eq!(by("ReservedSpaceCalculatorConservative", "10").unwrap(), Reserved::Larger { bytes, percent });
        assert_eq!(by("ReservedSpaceCalculatorAggressive", "10").unwrap(), Reserved::Smaller { bytes, percent });
        assert!(by("Mine", "10").unwrap_err().to_string().contains("Mine"));
        let settings = [
            ("dfs.datanode.du.reserved.calculator", "ReservedSpaceCalculator$ReservedSpaceCalculatorPercentage"),
            ("dfs.datanode.du.reserved.pct", "101"),
        ];
        assert!(reserved(&settings, "/data").unwrap_err().to_string().contains("101"));
    }
}
