//! Uploads: the body of a request is written to a file. Each runs in a task of its own, so that a client that
//! disconnects half way does not leave a file open. The file then consists of the bytes received, as with Hadoop's
//! DataNode, and the upload is never acknowledged.

use std::sync::Arc;

use futures_util::StreamExt;
use hearth_client::{Error, Exception as Known, FileSystem, Writer};
use hearth_web::InFlight;
use hearth_web::axum::body::BodyDataStream;
use hearth_web::webhdfs::{Exception, drain};
use tokio::sync::OwnedSemaphorePermit;

use crate::exceptions::exception_for;
use crate::file_systems::FileSystems;
use crate::parameters::CreateRequest;

/// Way in which the file is opened.
pub(crate) enum UploadKind {
    Create(CreateRequest),
    Append,
}

pub(crate) struct Upload {
    pub file_systems: Arc<FileSystems>,
    pub file_system: FileSystem,
    pub path: String,
    pub kind: UploadKind,
    pub body: BodyDataStream,
    /// The client waits for `100 Continue` before it sends the body. Reading the body sends that.
    pub waits_to_send: bool,
    pub work: InFlight,
    pub permit: OwnedSemaphorePermit,
}

impl Upload {
    /// Writes the whole body to the file and closes it.
    pub(crate) async fn run(self) -> Result<(), Exception> {
        // The task continues even if this future is dropped.
        let stored = tokio::spawn(self.store()).await;
        stored.unwrap_or_else(|_| Err(Exception::io("the upload was aborted")))
    }

    async fn store(self) -> Result<(), Exception> {
        let Self { file_systems, file_system, path, kind, mut body, waits_to_send, work, permit } = self;
        let mut writer = match work.track(open(&file_system, &path, kind)).await {
            Ok(writer) => writer,
            Err(error) => {
                if !waits_to_send {
                    drain(&mut body).await;
                }
                return Err(exception_for(&error));
            }
        };
        let inode = writer.inode();
        let (written, gone) = receive(&mut body, &mut writer, &work).await;
        let closed = match written {
            Ok(()) => work.track(writer.close()).await,
            Err(error) => {
                drop(writer);
                Err(error)
            }
        };
        match (closed, gone) {
            (Ok(()), None) => Ok(()),
            (Ok(()), Some(why)) => {
                tracing::info!(path, error = %why, "upload aborted: the file ends with the bytes received");
                Err(Exception::io(format!("the upload was aborted: {why}")))
            }
            (Err(error), gone) => {
                tracing::info!(path, %error, "upload failed");
                file_systems.forget(&file_system);
                if may_be_open(&error) {
                    // The client need not wait for this.
                    tokio::spawn(async move {
                        abandon(&file_system, inode, &path).await;
                        drop(permit);
                    });
                }
                if gone.is_none() {
                    drain(&mut body).await;
                }
                Err(exception_for(&error))
            }
        }
    }
}

async fn open(file_system: &FileSystem, path: &str, kind: UploadKind) -> Result<Writer, Error> {
    let UploadKind::Create(creation) = kind else { return file_system.append(path).await };
    if creation.must_exist {
        file_system.status(path).await?;
    }
    let mut writer = file_system.create(path, creation.options).await?;
    if creation.syncs {
        // Nothing to sync yet, but from now on each block is synced when it ends.
        writer.hsync().await?;
    }
    Ok(writer)
}

/// Writes the body as it arrives. The second value is set if the client disconnected before the end.
async fn receive(
    body: &mut BodyDataStream,
    writer: &mut Writer,
    work: &InFlight,
) -> (Result<(), Error>, Option<hearth_web::axum::Error>) {
    while let Some(received) = body.next().await {
        let bytes = match received {
            Ok(bytes) => bytes,
            Err(error) => return (Ok(()), Some(error)),
        };
        // The client waits during the write.
        if let Err(error) = work.track(writer.write(&bytes)).await {
            return (Err(error), None);
        }
    }
    (Ok(()), None)
}

/// Returns true if this client may still have the file open. If the NameNode says that the file is gone or has another
/// writer, that writer must not be disturbed.
fn may_be_open(error: &Error) -> bool {
    !matches!(error.exception(), Some(Known::LeaseExpired | Known::FileNotFound))
}

/// Makes the NameNode close a file that its writer cannot close. Otherwise no other client could write it for as long
/// as other uploads of the same user renew their common lease.
async fn abandon(file_system: &FileSystem, inode: u64, path: &str) {
    let file = written_file(inode, path);
    match file_system.recover_lease(&file).await {
        Ok(_) => {}
        // Deleted or replaced in the meantime.
        Err(error) if error.exception() == Some(Known::FileNotFound) => {}
        Err(error) => {
            tracing::warn!(path, %error, "a file stays open after a failed upload until its lease expires");
        }
    }
}

/// Returns the path of a file by its inode number: another client may write a different file at its path by now. 0: the
/// NameNode sent no number.
fn written_file(inode: u64, path: &str) -> String {
    if inode == 0 { path.to_owned() } else { format!("/.reserved/.inodes/{inode}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_own_files_are_abandoned() {
        let refused = |class: &str| Error::from_exception(class, "");
        for (class, may_be) in [
            ("org.apache.hadoop.hdfs.server.namenode.LeaseExpiredException", false),
            ("java.io.FileNotFoundException", false),
            ("org.apache.hadoop.hdfs.server.namenode.SafeModeException", true),
            ("java.io.IOException", true),
        ] {
            assert_eq!(may_be_open(&refused(class)), may_be, "{class}");
        }
        assert!(may_be_open(&Error::new(hearth_client::ErrorKind::LeaseLost, "/a")));
        assert_eq!(written_file(16_390, "/a"), "/.reserved/.inodes/16390");
        assert_eq!(written_file(0, "/a"), "/a");
    }
}
