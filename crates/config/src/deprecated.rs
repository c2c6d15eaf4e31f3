//! Deprecated names of Hadoop's keys. A value set under a deprecated name applies to the current one.
//! Source: HdfsConfiguration.java of Hadoop 3.4, and the DeprecatedProperties page for the keys of core-site.xml.

const RENAMED: &[(&str, &str)] = &[
    ("dfs.access.time.precision", "dfs.namenode.accesstime.precision"),
    ("dfs.backup.address", "dfs.namenode.backup.address"),
    ("dfs.backup.http.address", "dfs.namenode.backup.http-address"),
    ("dfs.balance.bandwidthPerSec", "dfs.datanode.balance.bandwidthPerSec"),
    ("dfs.block.size", "dfs.blocksize"),
    ("dfs.data.dir", "dfs.datanode.data.dir"),
    ("dfs.datanode.max.xcievers", "dfs.datanode.max.transfer.threads"),
    ("dfs.encryption.key.provider.uri", "hadoop.security.key.provider.path"),
    ("dfs.federation.nameservice.id", "dfs.nameservice.id"),
    ("dfs.federation.nameservices", "dfs.nameservices"),
    ("dfs.http.address", "dfs.namenode.http-address"),
    ("dfs.https.address", "dfs.namenode.https-address"),
    ("dfs.https.client.keystore.resource", "dfs.client.https.keystore.resource"),
    ("dfs.https.need.client.auth", "dfs.client.https.need-auth"),
    ("dfs.max-repl-streams", "dfs.namenode.replication.max-streams"),
    ("dfs.max.objects", "dfs.namenode.max.objects"),
    ("dfs.name.dir", "dfs.namenode.name.dir"),
    ("dfs.name.dir.restore", "dfs.namenode.name.dir.restore"),
    ("dfs.name.edits.dir", "dfs.namenode.edits.dir"),
    ("dfs.namenode.replication.considerLoad", "dfs.namenode.redundancy.considerLoad"),
    ("dfs.namenode.replication.considerLoad.factor", "dfs.namenode.redundancy.considerLoad.factor"),
    ("dfs.namenode.replication.interval", "dfs.namenode.redundancy.interval.seconds"),
    ("dfs.namenode.replication.pending.timeout-sec", "dfs.namenode.reconstruction.pending.timeout-sec"),
    ("dfs.permissions", "dfs.permissions.enabled"),
    ("dfs.permissions.supergroup", "dfs.permissions.superusergroup"),
    ("dfs.read.prefetch.size", "dfs.client.read.prefetch.size"),
    ("dfs.replication.considerLoad", "dfs.namenode.redundancy.considerLoad"),
    ("dfs.replication.interval", "dfs.namenode.redundancy.interval.seconds"),
    ("dfs.replication.min", "dfs.namenode.replication.min"),
    ("dfs.replication.pending.timeout.sec", "dfs.namenode.reconstruction.pending.timeout-sec"),
    ("dfs.safemode.extension", "dfs.namenode.safemode.extension"),
    ("dfs.safemode.threshold.pct", "dfs.namenode.safemode.threshold-pct"),
    ("dfs.secondary.http.address", "dfs.namenode.secondary.http-address"),
    ("dfs.socket.timeout", "dfs.client.socket-timeout"),
    ("dfs.umaskmode", "fs.permissions.umask-mode"),
    ("dfs.write.packet.size", "dfs.client-write-packet-size"),
    ("fs.checkpoint.dir", "dfs.namenode.checkpoint.dir"),
    ("fs.checkpoint.edits.dir", "dfs.namenode.checkpoint.edits.dir"),
    ("fs.checkpoint.period", "dfs.namenode.checkpoint.period"),
    ("fs.default.name", "fs.defaultFS"),
    ("heartbeat.recheck.interval", "dfs.namenode.heartbeat.recheck-interval"),
    ("io.bytes.per.checksum", "dfs.bytes-per-checksum"),
    ("slave.host.name", "dfs.datanode.hostname"),
    ("topology.script.file.name", "net.topology.script.file.name"),
    ("topology.script.number.args", "net.topology.script.number.args"),
];

/// Returns the current name of a key: the replacement if `name` is deprecated, else `name` itself.
pub fn current_name(name: &str) -> &str {
    match RENAMED.binary_search_by_key(&name, |(old, _)| old) {
        Ok(index) => RENAMED[index].1,
        Err(_) => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_sorted_and_maps_to_current_names() {
        assert!(RENAMED.is_sorted_by(|a, b| a.0 < b.0));
        for (_, new) in RENAMED {
            assert_eq!(current_name(new), *new);
        }
        assert_eq!(current_name("fs.default.name"), "fs.defaultFS");
        assert_eq!(current_name("dfs.replication"), "dfs.replication");
    }
}
