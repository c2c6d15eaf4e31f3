//! `-delete`. What is said of a file goes to the client first, who may take his time: until then its blocks may be back, or somebody
//! writes it. It is judged again under the same lock under which it goes.

use hearth_wire::proto::hdfs::DeleteRequestProto;
use hearth_wire::rpc::exceptions;

use super::file::is_unreadable;
use super::{FoundFile, Fsck, write_audit};
use crate::blocks::Now;
use crate::error::Error;
use crate::namespace::Caller;
use crate::ops::delete::remove;
use crate::state::{Namenode, State};

/// Why a file that was found to be corrupt stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum KeptReason {
    Readable,
    BeingWritten,
    /// It was removed, or has moved away.
    Vanished,
}

impl FoundFile {
    /// What is deleted to delete it: the file of that number, as another one may stand there by now.
    fn target(&self) -> String {
        self.inode.map_or_else(|| self.path.clone(), |inode| format!("/.reserved/.inodes/{}", inode.0))
    }

    /// `None`: it is as bad as it was.
    fn kept_reason(&self, state: &State, now: Now) -> Option<KeptReason> {
        // What a snapshot has nobody deletes: that is refused.
        let inode = self.inode?;
        let here = state.namespace.slot(inode).filter(|slot| state.namespace.path_of(*slot) == self.path);
        let Some(slot) = here else { return Some(KeptReason::Vanished) };
        let file = state.namespace.inode(slot).as_file()?;
        match file.is_open() {
            true => Some(KeptReason::BeingWritten),
            false => (!is_unreadable(state, file, now)).then_some(KeptReason::Readable),
        }
    }

    /// Deletes it, if it is as bad as it was.
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
    /// Deletes a file that was found to be corrupt. What is to be said of that. As with other deletions, the audit log has what was
    /// done, and what was refused for want of a right.
    pub(super) async fn delete(
        namenode: &Namenode,
        caller: &Caller,
        real_user: Option<&str>,
        found: &FoundFile,
    ) -> String {
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
        match outcome {
            Ok(None) => format!("\nFSCK deleted the corrupt file {path}\n"),
            Ok(Some(KeptReason::Readable)) => format!("\nFSCK did not delete {path}: it is no longer corrupt\n"),
            Ok(Some(KeptReason::BeingWritten)) => format!("\nFSCK did not delete {path}: it is being written\n"),
            Ok(Some(KeptReason::Vanished)) => format!("\nFSCK did not delete {path}: it is no longer there\n"),
            Err(error) => format!("\nFSCK cannot delete the corrupt file {path}: {error}\n"),
        }
    }
}
