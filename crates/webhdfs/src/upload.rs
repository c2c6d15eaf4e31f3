//! A request's body on its way into a file. A task of its own sees to it, so that nobody who goes away in the middle leaves a file open:
//! what has come is then the file, as with Hadoop's DataNode, and it is never acknowledged.

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

/// How the file is opened for it.
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
    /// The client sends its body when it is asked to, which reading it does.
    pub waits_to_send: bool,
    pub work: InFlight,
    pub permit: OwnedSemaphorePermit,
}

impl Upload {
    /// The file is closed, with all of the body.
    pub(crate) async fn run(self) -> Result<(), Exception> {
        // Whether it is waited for or not, it goes on.
        let stored = tokio::spawn(self.store()).await;
        stored.unwrap_or_else(|_| Err(Exception::io("the upload was broken off")))
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
                tracing::info!(path, error = %why, "an upload was broken off: the file ends there");
                Err(Exception::io(format!("the upload was broken off: {why}")))
            }
            (Err(error), gone) => {
                tracing::info!(path, %error, "an upload failed");
                file_systems.forget(&file_system);
                if may_be_open(&error) {
                    // Who asked need not wait for it.
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
        // Of nothing yet; each block that ends from here on is.
        writer.hsync().await?;
    }
    Ok(writer)
}

/// Writes what comes. The second: the client went away before its end.
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
        // The client waits meanwhile.
        if let Err(error) = work.track(writer.write(&bytes)).await {
            return (Err(error), None);
        }
    }
    (Ok(()), None)
}

/// Whether this client may have the file open still. Where the NameNode says that the file is gone or somebody else's, who writes it now
/// is left in peace.
fn may_be_open(error: &Error) -> bool {
    !matches!(error.exception(), Some(Known::LeaseExpired | Known::FileNotFound))
}

/// Has the NameNode close a file that its writer cannot close. Else nobody could write it for as long as other uploads of the same user
/// renew their common lease.
async fn abandon(file_system: &FileSystem, inode: u64, path: &str) {
    let file = written_file(inode, path);
    match file_system.recover_lease(&file).await {
        Ok(_) => {}
        // Deleted meanwhile, or replaced.
        Err(error) if error.exception() == Some(Known::FileNotFound) => {}
        Err(error) => {
            tracing::warn!(path, %error, "a file whose upload failed stays open until its lease runs out");
        }
    }
}

/// A file by its number: by now another may have its path, which somebody else writes. 0: the NameNode did not say.
fn written_file(inode: u64, path: &str) -> String {
    if inode == 0 { path.to_owned() } else { format!("/.reserved/.inodes/{inode}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_ones_own_is_given_up() {
        let refused = |class: &str| Error::Refused {
            method: "complete",
            exception: Known::from_class(class),
            class: class.to_owned(),
            message: String::new(),
        };
        for (class, may_be) in [
            ("org.apache.hadoop.hdfs.server.namenode.LeaseExpiredException", false),
            ("java.io.FileNotFoundException", false),
            ("org.apache.hadoop.hdfs.server.namenode.SafeModeException", true),
            ("java.io.IOException", true),
        ] {
            assert_eq!(may_be_open(&refused(class)), may_be, "{class}");
        }
        assert!(may_be_open(&Error::LeaseLost { path: "/a".to_owned() }));
        assert_eq!(written_file(16_390, "/a"), "/.reserved/.inodes/16390");
        assert_eq!(written_file(0, "/a"), "/a");
    }
}
