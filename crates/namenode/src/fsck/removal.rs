//! `-delete`. A file's report is sent to the client first, which may be slow. By then the file's blocks may be back, or
//! a client may be writing it. So the file is checked again under the same lock under which it is deleted.

use hearth_wire::proto::hdfs::DeleteRequestProto;
use hearth_wire::rpc::exceptions;

use super::file::is_unreadable;
use super::{FoundFile, Fsck, write_audit};
use crate::blocks::Now;
use crate::error::Error;
use crate::namespace::Caller;
use crate::ops::delete::remove;
use crate::state::{Namenode, State};

/// Reason for which a file that was found to be corrupt is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum KeptReason {
    Readable,
    BeingWritten,
    /// It was removed, or has moved away.
    Vanished,
}

impl KeptReason {
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Readable => "it is no longer corrupt",
            Self::BeingWritten => "it is being written",
            Self::Vanished => "it is no longer there",
        }
    }
}

/// Result of `-delete` for one file.
pub(super) struct Deletion {
    /// Text for the report.
    pub text: String,
    /// The report then ends as failed, like Apache's.
    pub has_failed: bool,
}

impl FoundFile {
    /// The path to delete or copy: by inode id, because another file may have the path by now.
    pub(super) fn target(&self) -> String {
        self.inode.map_or_else(|| self.path.clone(), |inode| format!("/.reserved/.inodes/{}", inode.0))
    }

    /// Returns `None` if the file is still corrupt.
    pub(super) fn kept_reason(&self, state: &State, now: Now) -> Option<KeptReason> {
        // A file in a snapshot cannot be deleted: the deletion is refused.
        let inode = self.inode?;
        let here = state.namespace.slot(inode).filter(|slot| state.namespace.path_of(*slot) == self.path);
        let Some(slot) = here else { return Some(KeptReason::Vanished) };
        let file = state.namespace.inode(slot).as_file()?;
        match file.is_open() {
            true => Some(KeptReason::BeingWritten),
            false => (!is_unreadable(state, file, now)).then_some(KeptReason::Readable),
        }
    }

    /// Deletes the file if it is still corrupt.
    async fn delete(&self, namenode: &Namenode, caller: &Caller) -> Result<Option<KeptReason>, Error> {
        let request = DeleteRequestProto { src: self.target(), recursive: false };
        namenode
            .change(|state, now| {
                if let Some(stays) = self.kept_reason(state, now) {
                    return Ok(Some(stays));
                }
                Ok((!remove(namenode, state, now, caller, &request)?).then_some(KeptReason::Vanished))
            })
            .await
    }
}

impl Fsck {
    /// Deletes a file that was found to be corrupt. As with other deletions, the audit log records completed deletions,
    /// and those refused for lack of permission.
    pub(super) async fn delete(
        namenode: &Namenode,
        caller: &Caller,
        real_user: Option<&str>,
        found: &FoundFile,
    ) -> Deletion {
        let path = &found.path;
        let outcome = found.delete(namenode, caller).await;
        let allowed = match &outcome {
            Ok(None) => Some(true),
            Err(error) if error.class() == exceptions::ACCESS_CONTROL => Some(false),
            Ok(Some(_)) | Err(_) => None,
        };
        if let Some(allowed) = allowed {
            write_audit(namenode, caller, real_user, "delete", path, allowed).await;
        }
        let has_failed = outcome.is_err();
        let text = match outcome {
            Ok(None) => format!("\nFSCK deleted the corrupt file {path}\n"),
            Ok(Some(kept)) => format!("\nFSCK did not delete {path}: {}\n", kept.words()),
            Err(error) => format!("\nFSCK cannot delete the corrupt file {path}: {error}\n"),
        };
        Deletion { text, has_failed }
    }
}
