/// Permission bits of a file or directory: the low 10 bits, `0o1777`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FsPermission(pub u16);

impl FsPermission {
    pub const MASK: u16 = 0o1777;

    /// `umask`: bits to take away, as `fs.permissions.umask-mode`.
    pub fn without(self, umask: u16) -> Self {
        Self(self.0 & !umask & Self::MASK)
    }
}

impl std::fmt::Display for FsPermission {
    /// `rwxr-xr-t`, without the leading kind letter.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for shift in [6u16, 3, 0] {
            let bits = self.0 >> shift;
            let sticky = shift == 0 && self.0 & 0o1000 != 0;
            let execute = match (bits & 1 != 0, sticky) {
                (true, false) => 'x',
                (false, false) => '-',
                (true, true) => 't',
                (false, true) => 'T',
            };
            let read = if bits & 4 != 0 { 'r' } else { '-' };
            let write = if bits & 2 != 0 { 'w' } else { '-' };
            write!(f, "{read}{write}{execute}")?;
        }
        Ok(())
    }
}

/// Numbers as in `HdfsFileStatusProto.FileType`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum FileKind {
    Directory = 1,
    File = 2,
    Symlink = 3,
}

/// What a listing says of one file or directory. Source: hdfs.proto, `HdfsFileStatusProto`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileStatus {
    pub kind: FileKind,
    /// The name within its directory; empty when the path asked for is the thing itself.
    pub local_name: Vec<u8>,
    /// Bytes; 0 for directories.
    pub length: u64,
    pub permission: FsPermission,
    pub owner: String,
    pub group: String,
    /// Milliseconds since the epoch.
    pub modification_time_ms: u64,
    /// Milliseconds since the epoch; 0 for directories.
    pub access_time_ms: u64,
    /// 0 for directories.
    pub replication: u16,
    /// Bytes; 0 for directories.
    pub block_size: u64,
    pub inode: u64,
    /// Entries of a directory; -1 when not counted.
    pub children: i32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_print_as_ls_does() {
        assert_eq!(FsPermission(0o755).to_string(), "rwxr-xr-x");
        assert_eq!(FsPermission(0o1777).to_string(), "rwxrwxrwt");
        assert_eq!(FsPermission(0o1640).to_string(), "rw-r----T");
        assert_eq!(FsPermission(0o777).without(0o022), FsPermission(0o755));
    }
}
