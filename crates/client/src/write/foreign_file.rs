//! Writing of files that another HDFS client of this process has opened for writing.

use std::sync::Arc;

use hearth_protocol::trace::{self, Span};
use hearth_types::{ExtendedBlock, LocatedBlock};

use super::block::targets_of;
use super::{WriteStart, Writer, WrittenFile};
use crate::Error;
use crate::error::Failure;
use crate::file_system::FileSystem;

/// A file that another HDFS client in the same process has created or opened for append, and not written to yet. That
/// client keeps the lease.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ForeignFile {
    /// Absolute path.
    pub path: String,
    /// The file's inode number.
    pub inode: u64,
    /// Name of the other client: the holder of the lease.
    pub client_name: String,
    /// Number of replicas.
    pub replication: u16,
    /// Bytes.
    pub block_size: u64,
    /// Bytes of the file.
    pub length: u64,
    /// The last block with its length, if it is not full and is to be continued.
    pub last_block: Option<ExtendedBlock>,
}

impl FileSystem {
    /// Opens a file for writing that another HDFS client in the same process has opened. For programs with two clients.
    /// The other client renews the lease until the writer is closed, and writes nothing. The namenode cannot distinguish
    /// the two.
    ///
    /// Allocates a block, unless the last one has room. Returns `None` if none of the block's datanodes is Hearth's. The
    /// other client can write the file then. In an empty file, its first request gets the same block again.
    ///
    /// Errors: also if not all datanodes answer and none is known to be Hearth's. After an error too, the other client
    /// can write the file.
    ///
    /// Cancel safety: a dropped call may be repeated, except where it allocates a block behind others. If the namenode has
    /// allocated that one, it refuses the next request of both clients.
    pub async fn write_foreign(&self, file: ForeignFile) -> Result<Option<Writer>, Error> {
        let ForeignFile { path, inode, client_name, replication, block_size, length, last_block } = file;
        let path = self.absolute(&path)?;
        if block_size == 0 {
            return Err(Failure::InvalidPath { path, why: "a block size of 0" }.into());
        }
        if let Some(last) = &last_block
            && (last.length() >= block_size || last.length() > length)
        {
            let why = format!("{last} cannot be continued: {path} has {length} bytes, in blocks of {block_size}");
            return Err(Failure::Answer { method: "append", why }.into());
        }
        let mut span = Span::root("write");
        span.set("hdfs.file", path.as_str());
        let begin = match &last_block {
            Some(last) => {
                let located = trace::within(span.context(), self.locate_last(&path, last)).await?;
                if !self.is_on_hearth(&located).await? {
                    return Ok(None);
                }
                WriteStart { append: Some(located), length, ..WriteStart::default() }
            }
            None => {
                let namenode = &self.session.namenode;
                // If the answer is lost, the other client's first request gets the same block: it names no earlier block
                // either. Behind other blocks, that request is refused, and the other client fails.
                let adding = namenode.add_block(&path, inode, &client_name, None, &[]);
                let first = trace::within(span.context(), adding).await?;
                let is_hearths = self.is_on_hearth(&first).await;
                if !matches!(is_hearths, Ok(true)) {
                    // In an empty file, the other client gets this block again. To give it up would be a danger: a
                    // request without an answer may be carried out later, and removes a block that was written since.
                    // Behind other blocks, the other client gets none before this one is gone.
                    if length > 0 {
                        namenode.abandon_block(&path, inode, &client_name, &first.block).await?;
                    }
                    return is_hearths.map(|_| None);
                }
                WriteStart { first: Some(first), length, ..WriteStart::default() }
            }
        };
        let file = WrittenFile::new(path, inode, client_name, replication, block_size);
        Ok(Some(Writer::start(Arc::clone(&self.session), file, begin, None, span)))
    }

    /// Returns the datanodes of the last block, which is open for append.
    async fn locate_last(&self, path: &str, last: &ExtendedBlock) -> Result<LocatedBlock, Error> {
        let located = self.session.namenode.block_locations(path, 0, 1).await?;
        let same = |found: &LocatedBlock| {
            (&found.block.pool, found.block.id(), found.block.stamp()) == (&last.pool, last.id(), last.stamp())
        };
        // Another file may have the path by now, or an observer may not have seen that the file was opened.
        match located.last_block {
            Some(mut found) if !located.last_block_complete && same(&found) => {
                targets_of(&found)?;
                found.block = last.clone();
                Ok(found)
            }
            _ => {
                let why = format!("the last block of {path} is not {last}, or not open");
                Err(Failure::Answer { method: "getBlockLocations", why }.into())
            }
        }
    }
}
