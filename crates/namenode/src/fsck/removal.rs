//! `-delete`. What is said of a file goes to the client first, who may take his time: until then its blocks may be back, or somebody
//! writes it. It is judged again under the same lock under which it goes.

use hearth_wire::proto::hdfs::DeleteRequestProto;
use hearth_wire::rpc::exceptions;

use super::file::is_unreadable;
use super::{Found, Fsck, put_down};
use crate::blocks::Now;
use crate::error::Error;
use crate::namespace::Caller;
use crate::ops::delete::remove;
use crate::state::{Namenode, State};

/// Why a file that was found to be corrupt stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stays {
    Readable,
    BeingWritten,
    /// It was removed, or has moved away.
    Vanished,
}

impl Found {
    /// What is deleted to delete it: the file of that number, as another one may stand there by now.
    fn target(&self) -> String {
        self.inode.map_or_else(|| self.path.clone(), |inode| format!("/.reserved/.inodes/{}", inode.0))
    }

    /// `None`: it is as bad as it was.
    fn why_it_stays(&self, state: &State, now: Now) -> Option<Stays> {
        // What a snapshot has nobody deletes: that is refused.
        let inode = self.inode?;
        let here = state.namespace.slot(inode).filter(|slot| state.namespace.path_of(*slot) == self.path);
        let Some(slot) = here else { return Some(Stays::Vanished) };
        let file = state.namespace.inode(slot).as_file()?;
        match file.is_open() {
            true => Some(Stays::BeingWritten),
            false => (!is_unreadable(state, file, now)).then_some(Stays::Readable),
        }
    }

    /// Deletes it, if it is as bad as it was.
    async fn delete(&self, namenode: &Namenode, caller: &Caller) -> Result<Option<Stays>, Error> {
        let request = DeleteRequestProto { src: self.target(), recursive: false };
        namenode
            .change(|state, now| {
                if let Some(stays) = self.why_it_stays(state, now) {
                    return Ok(Some(stays));
                }
                Ok((!remove(namenode, state, now, caller, &request)?).then_some(Stays::Vanished))
            })
            .await
    }
}

impl Fsck {
    /// Deletes a file that was found to be corrupt. What is to be said of that. As with other deletions, the audit log has what was
    /// done, and what was refused for want of a right.
    pub(super) async fn delete(namenode: &Namenode, caller: &Caller, real_user: Option<&str>, found: &Found) -> String {
        let path = &found.path;
        let outcome = found.delete(namenode, caller).await;
        let allowed = match &outcome {
            Ok(None) => Some(true),
            Err(error) if error.class() == exceptions::ACCESS_CONTROL => Some(false),
            Ok(Some(_)) | Err(_) => None,
        };
        if let Some(allowed) = allowed {
            put_down(namenode, caller, real_user, "delete", path, allowed).await;
        }
        match outcome {
            Ok(None) => format!("\nFSCK deleted the corrupt file {path}\n"),
            Ok(Some(Stays::Readable)) => format!("\nFSCK did not delete {path}: it is no longer corrupt\n"),
            Ok(Some(Stays::BeingWritten)) => format!("\nFSCK did not delete {path}: it is being written\n"),
            Ok(Some(Stays::Vanished)) => format!("\nFSCK did not delete {path}: it is no longer there\n"),
            Err(error) => format!("\nFSCK cannot delete the corrupt file {path}: {error}\n"),
        }
    }
}
