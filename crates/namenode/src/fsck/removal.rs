//! `-delete`. A file's report is sent to the client first, which may be slow. By then the file's blocks may be back, or
//! a client may be writing it. So the file is checked again under the same lock under which it is deleted. With `-move`,
//! a copy was made in between, which may have taken hours. The copy is compared with the file under that lock, too.

use hearth_wire::proto::hdfs::DeleteRequestProto;
use hearth_wire::rpc::exceptions;

use super::file::is_unreadable;
use super::lost_found::MovedBlock;
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
    /// It has other blocks than those that `-move` found.
    Changed,
    /// A block that `-move` has not copied has a good replica, or had one when the copy began.
    NotCopied,
}

impl KeptReason {
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Readable => "it is no longer corrupt",
            Self::BeingWritten => "it is being written",
            Self::Vanished => "it is no longer there",
            Self::Changed => "it has changed since it was copied",
            Self::NotCopied => "this run has not copied every block with a good replica",
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

    /// Returns `None` if the copy has every block of the file that can be read now. `copied`: the file's blocks when the
    /// copy began.
    fn uncopied_reason(&self, state: &State, now: Now, copied: &[MovedBlock]) -> Option<KeptReason> {
        let slot = self.inode.and_then(|inode| state.namespace.slot(inode))?;
        let file = state.namespace.inode(slot).as_file()?;
        if !file.blocks().iter().map(|record| record.block()).eq(copied.iter().map(|moved| moved.block)) {
            return Some(KeptReason::Changed);
        }
        let uncopied = copied.iter().filter(|moved| !moved.is_copied);
        let mut reports = uncopied.filter_map(|moved| state.blocks.block_report(moved.block.id, now));
        reports.any(|report| !report.is_missing()).then_some(KeptReason::NotCopied)
    }

    /// Deletes the file if it is still corrupt and, with `copied`, nothing is lost that the copy lacks.
    async fn delete(
        &self,
        namenode: &Namenode,
        caller: &Caller,
        copied: Option<&[MovedBlock]>,
    ) -> Result<Option<KeptReason>, Error> {
        let request = DeleteRequestProto { src: self.target(), recursive: false };
        namenode
            .change(|state, now| {
                let stays = self.kept_reason(state, now);
                if let Some(stays) = stays.or_else(|| self.uncopied_reason(state, now, copied?)) {
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
    ///
    /// `copied`: the file's blocks when its copy began; `None` without `-move`.
    pub(super) async fn delete(
        namenode: &Namenode,
        caller: &Caller,
        real_user: Option<&str>,
        found: &FoundFile,
        copied: Option<&[MovedBlock]>,
    ) -> Deletion {
        let path = &found.path;
        let outcome = found.delete(namenode, caller, copied).await;
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
