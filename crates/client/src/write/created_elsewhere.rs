//! Writing of files that another HDFS client of this process has created.

use std::sync::Arc;

use super::{WriteStart, Writer, WrittenFile};
use crate::Error;
use crate::error::Failure;
use crate::file_system::FileSystem;

/// An empty file that another HDFS client in the same process has created and not written to. That client keeps the lease.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CreatedFile {
    /// Absolute path.
    pub path: String,
    /// The file's inode number.
    pub inode: u64,
    /// Name of the client that created it: the holder of the lease.
    pub client_name: String,
    /// Number of replicas.
    pub replication: u16,
    /// Bytes.
    pub block_size: u64,
}

impl FileSystem {
    /// Opens a file for writing that another HDFS client in the same process has created. For programs with two clients.
    /// The other client renews the lease until the writer is closed, and writes nothing. The namenode cannot distinguish
    /// the two.
    ///
    /// Allocates the first block. Returns `None` if none of its datanodes is Hearth's. The block is given up then, and the
    /// other client can write the file.
    ///
    /// Errors: after an error too, the other client can write the file.
    pub async fn write_created(&self, file: CreatedFile) -> Result<Option<Writer>, Error> {
        let CreatedFile { path, inode, client_name, replication, block_size } = file;
        let path = self.absolute(&path)?;
        if block_size == 0 {
            return Err(Failure::InvalidPath { path, why: "a block size of 0" }.into());
        }
        let namenode = &self.session.namenode;
        // If the answer is lost, the other client's first request gets the same block: it names no earlier block either.
        let first = namenode.add_block(&path, inode, &client_name, None, &[]).await?;
        if !self.is_on_hearth(&first).await {
            namenode.abandon_block(&path, inode, &client_name, &first.block).await?;
            return Ok(None);
        }
        let file = WrittenFile::new(path, inode, client_name, replication, block_size);
        let begin = WriteStart { first: Some(first), ..WriteStart::default() };
        Ok(Some(Writer::start(Arc::clone(&self.session), file, begin, None)))
    }
}
