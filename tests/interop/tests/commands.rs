//! Command lines of `hdfs` on Apache's servers and on Hearth's: output, error output and exit codes are the same.

use std::process::ExitCode;

use anyhow::{Result, bail, ensure};
use hearth_interop::{Check, Session, Suite, run, tool_said};
use hearth_testkit::{ClusterSpec, Implementation};

const CHECKS: &[Check] = &[
    ("files_and_directories", files),
    ("limits_policies_and_administration", administration),
    ("fsck_of_files_and_snapshots", fsck),
];

fn main() -> ExitCode {
    let spec =
        |make: Implementation| ClusterSpec::new(make, make).set("dfs.replication", 1).set("dfs.blocksize", 1 << 20);
    run(&[Suite {
        name: "commands",
        clusters: vec![spec(Implementation::Apache), spec(Implementation::Hearth)],
        checks: CHECKS,
    }])
}

/// `LOCAL`: a directory of this machine with the files `small` (60 lines) and `large` (2,600,000 bytes).
const FILES: &[&str] = &[
    "dfs -mkdir /c",
    "dfs -mkdir /c",
    "dfs -mkdir /no/such",
    "dfs -mkdir -p /c/a/b",
    "dfs -mkdir",
    "dfs -touchz /c/empty",
    "dfs -touchz /c/a",
    "dfs -touchz /none/empty",
    "dfs -put LOCAL/small /c/s",
    "dfs -put LOCAL/small /c/s",
    "dfs -put -f LOCAL/large /c/s",
    "dfs -put -f LOCAL/small /c/s",
    "dfs -put LOCAL/none /c/x",
    "dfs -put LOCAL/small /none/x",
    "dfs -put LOCAL/small LOCAL/large /c/a",
    "dfs -put LOCAL/small LOCAL/large /c/s",
    "dfs -put LOCAL/small /c/s/below",
    "dfs -copyFromLocal -p LOCAL/large /c/large",
    "dfs -moveFromLocal LOCAL/none /c/x",
    "dfs -appendToFile LOCAL/small /c/s",
    "dfs -appendToFile LOCAL/small /c/a",
    "dfs -appendToFile LOCAL/small /c/new",
    "dfs -appendToFile LOCAL/none /c/s",
    "dfs -cat /c/s",
    "dfs -cat /c/none",
    "dfs -cat /c/a",
    "dfs -cat /c/empty /c/new",
    "dfs -text /c/new",
    "dfs -head /c/s",
    "dfs -tail /c/s",
    "dfs -tail /c/none",
    "dfs -checksum /c/s",
    "dfs -checksum /c/large",
    "dfs -checksum /c/empty",
    "dfs -checksum /c/a",
    "dfs -checksum /c/none",
    "dfs -ls /c",
    "dfs -ls -R /c",
    "dfs -ls -d /c",
    "dfs -ls -h -S -r /c",
    "dfs -ls -C /c/a",
    "dfs -ls -e /c",
    "dfs -ls /c/none",
    "dfs -ls /c/*",
    "dfs -ls /c/{s,n}*",
    "dfs -ls /c/x*",
    "dfs -ls -R /c/none /c/a",
    "dfs -count /c /c/s",
    "dfs -count -q -v /c",
    "dfs -du /c",
    "dfs -du -s -h /c",
    "dfs -du -v /c/a",
    "dfs -du /c/none",
    "dfs -stat %n,%o,%r,%u,%g,%b,%F,%a,%A /c /c/s",
    "dfs -stat %n /c/none",
    "dfs -test -e /c/s",
    "dfs -test -e /c/none",
    "dfs -test -d /c/s",
    "dfs -test -f /c/a",
    "dfs -test -s /c/s",
    "dfs -test -z /c/s",
    "dfs -test -z /c/empty",
    "dfs -test -w /c/s",
    "dfs -mv /c/none /c/x",
    "dfs -mv /c/new /c/s",
    "dfs -mv /c/new /c/a",
    "dfs -mv /c/a/new /c/a/new2",
    "dfs -mv /c/a /c/a/b/below",
    "dfs -mv /c/s /none/x",
    "dfs -mv /c/s /c/empty /c/large",
    "dfs -cp /c/s /c/copy",
    "dfs -cp /c/s /c/copy",
    "dfs -cp -f /c/large /c/copy",
    "dfs -cp /c/none /c/x",
    "dfs -cp /c/a /c/a-copy",
    "dfs -cp /c/a /c/a/below",
    "dfs -cp -p /c/s /c/a",
    "dfs -ls -R /c",
    "dfs -chmod 640 /c/s",
    "dfs -chmod u+x,o=r /c/s",
    "dfs -chmod 9 /c/s",
    "dfs -chmod -R 750 /c/a",
    "dfs -chmod 640 /c/none",
    "dfs -chmod 1777 /c/a",
    "dfs -chown ann /c/s",
    "dfs -chown bob:staff /c/a",
    "dfs -chown -R :users /c/a",
    "dfs -chgrp crew /c/s",
    "dfs -chown a:b:c /c/s",
    "dfs -chgrp crew /c/none",
    "dfs -ls -R /c",
    "dfs -setrep 2 /c/s",
    "dfs -setrep -R 3 /c/a",
    "dfs -setrep 0 /c/s",
    "dfs -setrep 1000 /c/s",
    "dfs -setrep x /c/s",
    "dfs -setrep 2 /c/none",
    "dfs -setrep 1 /c",
    "dfs -truncate 1000 /c/new3",
    "dfs -truncate -w 1000000 /c/large",
    "dfs -truncate 2000000 /c/large",
    "dfs -truncate -5 /c/large",
    "dfs -truncate 5 /c/a",
    "dfs -truncate 0 /c/copy",
    "dfs -concat /c/large /c/a/large",
    "dfs -concat /c/large /c/none",
    "dfs -concat /c/none /c/s",
    "dfs -concat /c/large /c/large",
    "dfs -concat /c/large /c/a",
    "dfs -touch -t 20260102:030405 /c/s",
    "dfs -touch -a -t 20260102:030405 /c/empty",
    "dfs -touch -c /c/none",
    "dfs -touch -t yesterday /c/s",
    "dfs -touch /none/x",
    "dfs -stat %y,%x /c/s",
    "dfs -find /c -name s*",
    "dfs -find /c -iname EMPTY -print",
    "dfs -find /c/none",
    "dfs -find /c -size 5",
    "dfs -getmerge /c/a LOCAL/merged",
    "dfs -get /c/s LOCAL/got",
    "dfs -get /c/s LOCAL/got",
    "dfs -get /c/none LOCAL/got2",
    "dfs -get /c/a LOCAL/tree",
    "dfs -rm /c/none",
    "dfs -rm -f /c/none",
    "dfs -rm /c/a",
    "dfs -rmdir /c/a",
    "dfs -rmdir --ignore-fail-on-non-empty /c/a",
    "dfs -rmdir /c/s",
    "dfs -rmdir /c/none",
    "dfs -rm /c/s /c/none /c/empty",
    "dfs -rm -r /c/a /c/a-copy",
    "dfs -rm -r -skipTrash /",
    "dfs -ls -R /",
    "dfs -nothing",
    "dfs -ls hdfs://127.0.0.1:1/",
    "dfs -ls none://x/",
];

fn files(session: &mut Session) -> Result<()> {
    said_as_by_apaches(session, "files", FILES)
}

const ADMINISTRATION: &[&str] = &[
    "dfsadmin -safemode get",
    "dfsadmin -safemode enter",
    "dfs -mkdir /safe",
    "dfs -ls /",
    "dfsadmin -saveNamespace",
    "dfsadmin -safemode leave",
    "dfsadmin -safemode wait",
    "dfsadmin -safemode nothing",
    "dfsadmin -saveNamespace",
    "dfs -mkdir -p /q/d",
    "dfsadmin -setQuota 3 /q",
    "dfs -touchz /q/one",
    "dfs -touchz /q/two",
    "dfs -mkdir /q/three",
    "dfs -mv /q/one /q/uno",
    "dfs -count -q -v /q",
    "dfsadmin -setQuota 0 /q",
    "dfsadmin -setQuota x /q",
    "dfsadmin -setQuota 5 /q/uno",
    "dfsadmin -setQuota 5 /none",
    "dfsadmin -setQuota 5 /",
    "dfsadmin -clrQuota /q",
    "dfsadmin -clrQuota /",
    "dfsadmin -setSpaceQuota 1m /q",
    "dfs -put LOCAL/large /q/large",
    "dfs -put LOCAL/small /q/small",
    "dfs -setrep 5 /q/small",
    "dfs -count -q -h -v /q",
    "dfsadmin -setSpaceQuota 10 -storageType DISK /q",
    "dfsadmin -setSpaceQuota 10 -storageType FLOPPY /q",
    "dfsadmin -setSpaceQuota 10m -storageType SSD /q",
    "dfs -count -q -t ssd,disk -v /q",
    "dfsadmin -clrSpaceQuota -storageType SSD /q",
    "dfsadmin -clrSpaceQuota /q",
    "dfsadmin -clrSpaceQuota -storageType DISK /q",
    "dfsadmin -setSpaceQuota -5 /q",
    "dfsadmin -printTopology",
    "dfsadmin -listOpenFiles",
    "dfsadmin -listOpenFiles -path /q",
    "dfsadmin -refreshNodes",
    "dfsadmin -setBalancerBandwidth 10485760",
    "dfsadmin -setBalancerBandwidth -1",
    "dfsadmin -finalizeUpgrade",
    "dfsadmin -allowSnapshot /none",
    "dfsadmin -allowSnapshot /q/uno",
    "dfsadmin -disallowSnapshot /q",
    "dfsadmin -nothing",
    "dfsadmin -safemode",
    "storagepolicies -listPolicies",
    "storagepolicies -getStoragePolicy -path /q",
    "storagepolicies -setStoragePolicy -path /q -policy COLD",
    "storagepolicies -getStoragePolicy -path /q",
    "storagepolicies -getStoragePolicy -path /q/uno",
    "storagepolicies -setStoragePolicy -path /q/uno -policy HOT",
    "storagepolicies -setStoragePolicy -path /q -policy LUKEWARM",
    "storagepolicies -setStoragePolicy -path /none -policy HOT",
    "storagepolicies -getStoragePolicy -path /none",
    "storagepolicies -unsetStoragePolicy -path /q",
    "storagepolicies -getStoragePolicy -path /q",
    "storagepolicies -unsetStoragePolicy -path /none",
    "storagepolicies -setStoragePolicy -path /q",
    "groups nobody",
    "groups",
];

fn administration(session: &mut Session) -> Result<()> {
    said_as_by_apaches(session, "administration", ADMINISTRATION)
}

const FSCK: &[&str] = &[
    "dfs -mkdir -p /f/d",
    "dfs -put LOCAL/large /f/large",
    "dfs -put LOCAL/small /f/d/small",
    "dfs -touchz /f/empty",
    "fsck /f",
    "fsck /f -files",
    "fsck /f -files -blocks",
    "fsck /f/d/small -files",
    "fsck /f -openforwrite",
    "fsck /f -list-corruptfileblocks",
    "fsck /f -storagepolicies",
    "fsck /f -replicate",
    "fsck /f -showprogress",
    "fsck -blockId blk_1",
    "fsck -blockId nonsense",
    "fsck /none",
    "dfsadmin -allowSnapshot /f",
    "dfs -createSnapshot /f one",
    "dfs -rm -skipTrash /f/d/small",
    "fsck /f/.snapshot/one -files",
    "fsck /f/.snapshot -files",
    "fsck /f/.snapshot/none -files",
    "fsck /f -files",
    "fsck /f -files -includeSnapshots",
    "fsck /f/.snapshot/one/d/small -files -blocks",
    "dfs -setrep 3 /f/large",
    "fsck /f/large",
    "fsck /f -delete",
    "fsck / -nothing",
];

fn fsck(session: &mut Session) -> Result<()> {
    said_as_by_apaches(session, "fsck", FSCK)
}

fn said_as_by_apaches(session: &mut Session, name: &str, lines: &[&str]) -> Result<()> {
    let local = session.local(name)?;
    let text: String = (0..60).map(|line| format!("{line}: the quick brown fox\n")).collect();
    std::fs::write(local.join("small"), text)?;
    std::fs::write(local.join("large"), (0..2_600_000_u32).map(|at| (at >> 6) as u8).collect::<Vec<_>>())?;
    let local = local.to_str().expect("a temporary path is text").to_owned();
    let mut differing = Vec::new();
    for (nth, line) in lines.iter().enumerate() {
        let mut words = line.split(' ').map(|word| word.replace("LOCAL", &local));
        let class = match words.next().as_deref() {
            Some("dfs") => "org.apache.hadoop.fs.FsShell",
            Some("dfsadmin") => "org.apache.hadoop.hdfs.tools.DFSAdmin",
            Some("fsck") => "org.apache.hadoop.hdfs.tools.DFSck",
            Some("storagepolicies") => "org.apache.hadoop.hdfs.tools.StoragePolicyAdmin",
            Some("groups") => "org.apache.hadoop.hdfs.tools.GetGroups",
            _ => bail!("{line} is not a command"),
        };
        let arguments: Vec<String> = words.collect();
        let answer = tool_said(session.java()?, class, &arguments, &local)?;
        if let Err(error) = session.same_as_oracle(&format!("{name} {nth}: {line}"), answer) {
            differing.push(format!("{error:#}"));
        }
    }
    ensure!(differing.is_empty(), "{} of {} lines differ:\n{}", differing.len(), lines.len(), differing.join("\n"));
    Ok(())
}
