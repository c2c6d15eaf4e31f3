//! Opening of closed files for append.

use std::sync::Arc;

use hearth_protocol::trace::{self, Span};
use hearth_types::{ExtendedBlock, FileKind, FileStatus, LocatedBlock};

use super::{WriteStart, Writer, WrittenFile};
use crate::Error;
use crate::error::Failure;
use crate::file_system::FileSystem;
use crate::session::Session;

impl FileSystem {
    /// Opens a closed file for writing at its end. Cancel safety: if the future is dropped, for example by a time-out,
    /// the file is closed again.
    pub async fn append(&self, path: &str) -> Result<Writer, Error> {
        self.append_as(path, false).await
    }

    /// Like `append`, but the new bytes go to a new block even if the last block has room.
    pub async fn append_new_block(&self, path: &str) -> Result<Writer, Error> {
        self.append_as(path, true).await
    }

    /// Opens the file in a task of its own, because the caller may drop the future. Otherwise the file would stay open,
    /// and no other client could write it while this client renews its lease for other files.
    async fn append_as(&self, path: &str, new_block: bool) -> Result<Writer, Error> {
        let (fs, path) = (self.clone(), self.absolute(path)?);
        let opening = {
            let path = path.clone();
            tokio::spawn(async move { fs.reopen(path, new_block).await })
        };
        let opened = opening.await.map_err(|_| Failure::WriterClosed { path })??;
        Ok(opened.take())
    }

    async fn reopen(&self, path: String, new_block: bool) -> Result<AppendGuard, Error> {
        let mut span = Span::root("append");
        span.set("hdfs.file", path.as_str());
        let open = self.session.leases.open();
        let (namenode, client) = (&self.session.namenode, self.session.client_name());
        let appending = trace::within(span.context(), namenode.append(&path, client, new_block)).await;
        let (block, status) = appending.inspect_err(|error| span.fail(error))?;
        let inode = status.as_ref().map_or(0, |status| status.inode);
        // With a new block, the namenode does not reopen the last one.
        let last = block.as_ref().filter(|_| !new_block).map(|block| block.block.clone());
        match self.begin_append(&path, block, status, new_block).await {
            Ok((file, begin)) => {
                let writer = Writer::start(Arc::clone(&self.session), file, begin, Some(open), span);
                let (session, runtime) = (Arc::clone(&self.session), tokio::runtime::Handle::current());
                Ok(AppendGuard { writer: Some(writer), last, session, runtime })
            }
            Err(error) => {
                namenode.close_unchanged(&path, inode, client, last.as_ref()).await;
                Err(error)
            }
        }
    }

    /// Returns the position at which to continue a file that the namenode has opened for append. `block` and `status`:
    /// the namenode's answer.
    async fn begin_append(
        &self,
        path: &str,
        block: Option<LocatedBlock>,
        status: Option<FileStatus>,
        new_block: bool,
    ) -> Result<(WrittenFile, WriteStart), Error> {
        let status = match status {
            Some(status) => status,
            None => {
                let found = self.session.namenode.file_info(path).await?;
                found.ok_or_else(|| Failure::NotFound { path: path.to_owned() })?
            }
        };
        if status.kind != FileKind::File {
            return Err(Failure::IsDirectory { path: path.to_owned() }.into());
        }
        let holder = self.session.client_name().to_owned();
        let file = WrittenFile::new(path.to_owned(), status.inode, holder, status.replication, status.block_size);
        if new_block {
            // The answer is the block to commit before the new one is added.
            let previous = block.map(|block| block.block);
            let begin = WriteStart { previous, length: status.length, ..WriteStart::default() };
            return Ok((file, begin));
        }
        if let Some(block) = &block
            && block.block.length() >= status.block_size
        {
            let why = format!("block {} is full and cannot be continued", block.block);
            return Err(Failure::Answer { method: "append", why }.into());
        }
        let length = match &block {
            Some(block) => block.offset + block.block.length(),
            None => status.length,
        };
        Ok((file, WriteStart { append: block, length, ..WriteStart::default() }))
    }
}

/// Guard of a file that was opened for append. Unless the caller takes the writer, dropping the guard closes the file
/// unchanged.
struct AppendGuard {
    writer: Option<Writer>,
    /// The last block, if the namenode reopened it.
    last: Option<ExtendedBlock>,
    session: Arc<Session>,
    /// Runtime on which to close the file: the guard may be dropped outside any runtime.
    runtime: tokio::runtime::Handle,
}

impl AppendGuard {
    fn take(mut self) -> Writer {
        self.writer.take().expect("it is taken once")
    }
}

impl Drop for AppendGuard {
    fn drop(&mut self) {
        let Some(writer) = self.writer.take() else { return };
        let (session, last) = (Arc::clone(&self.session), self.last.take());
        self.runtime.spawn(async move {
            // Nothing was written, so the datanodes need not be contacted. They may be unreachable too.
            let (path, inode) = (writer.path().to_owned(), writer.inode());
            session.namenode.close_unchanged(&path, inode, session.client_name(), last.as_ref()).await;
            drop(writer);
        });
    }
}
