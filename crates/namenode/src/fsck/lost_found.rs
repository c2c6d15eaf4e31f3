//! `-move`: copies what can be read of a corrupt file to `/lost+found`.
//!
//! `/lost+found` gets a directory with the path and the mode of the file. Each run of adjacent blocks with replicas
//! becomes a file in it: `0`, `1`, and so on. A block that cannot be read ends its file, which keeps the bytes before
//! the fault. The corrupt file stays, unless `-delete` is also given.
//!
//! The NameNode makes the directories, but reads no blocks. The program that starts it provides a [`BlockCopier`].
//!
//! Source of the layout: `NamenodeFsck.copyBlocksToLostFound`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hearth_types::{Block, ByteRange, FsPermission};
use hearth_web::{Disconnected, TextSender};
use hearth_wire::rpc::exceptions;
use tokio::sync::Mutex;

use super::removal::KeptReason;
use super::{FoundFile, write_audit};
use crate::audit::Event;
use crate::blocks::{Now, ReaderLocation};
use crate::error::Error;
use crate::namespace::{Caller, Modes, Purpose, is_within_limits};
use crate::state::{Namenode, State};

/// Directory of the copies.
const LOST_FOUND: &str = "/lost+found";
/// Mode of that directory: that of a client with the default umask.
const LOST_FOUND_MODES: Modes = Modes { masked: FsPermission(0o755), unmasked: Some(FsPermission(0o777)) };

/// Interval of the dots in the report while a file is copied, or waits for its turn. `hdfs fsck` gives up a report of
/// which nothing arrives for a minute.
const DOT_INTERVAL: Duration = Duration::from_secs(20);

/// Adjacent blocks of a file that become a new file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CopyRequest {
    /// RPC address of this NameNode.
    pub namenode: SocketAddr,
    /// User who reads and writes.
    pub user: String,
    pub source: String,
    /// Ranges of the source, one for each block, in order and without gaps.
    pub blocks: Vec<ByteRange>,
    /// File to create.
    pub target: String,
}

/// A copy that is complete, or ends in its first unreadable block. The target is closed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Copied {
    /// Number of whole blocks in the target.
    pub blocks: usize,
    /// Length of the target.
    pub bytes: u64,
    /// Reason why the next block could not be read. `None` if all blocks were copied.
    pub unreadable: Option<CopyFailure>,
}

/// Reason why a copy failed, with its causes, in the words of the copier.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct CopyFailure(pub String);

/// Running copy.
pub type CopyFuture = Pin<Box<dyn Future<Output = Result<Copied, CopyFailure>> + Send>>;

/// Client that copies blocks for the NameNode.
pub trait BlockCopier: Send + Sync {
    /// Copies blocks into a new file. Copies one file at a time, in memory of a fixed size.
    ///
    /// Errors: the source could not be opened, or the target not be created, written or closed.
    fn copy(&self, request: CopyRequest) -> CopyFuture;
}

/// What `-move` needs beside the namespace.
pub struct LostFound {
    /// `None` if the program provides none: `-move` is refused.
    copier: Option<Arc<dyn BlockCopier>>,
    /// Address at which the copier reaches this NameNode. Set when the port is open.
    address: OnceLock<SocketAddr>,
    /// Held while a file is copied: one at a time, over all reports.
    turn: Mutex<()>,
}

impl LostFound {
    pub fn new(copier: Option<Arc<dyn BlockCopier>>) -> Self {
        Self { copier, address: OnceLock::new(), turn: Mutex::new(()) }
    }

    /// Sets the address at which the RPC port listens. Only the first call has an effect.
    pub(crate) fn set_address(&self, rpc: SocketAddr) {
        let ip: IpAddr = match rpc.ip() {
            // The wildcard address is not a destination.
            IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            ip => ip,
        };
        self.address.get_or_init(|| SocketAddr::new(ip, rpc.port()));
    }
}

/// Result of `-move` for one file.
pub(super) struct Moved {
    /// Text for the report.
    pub text: String,
    /// The report then ends as failed, like Apache's.
    pub has_failed: bool,
    /// Blocks of the file, in order. `None` if one of them had a good replica and was not copied.
    pub blocks: Option<Vec<MovedBlock>>,
}

/// Block of a file when its copy began.
pub(super) struct MovedBlock {
    pub block: Block,
    /// All its bytes are in `/lost+found`.
    pub is_copied: bool,
}

/// Reason why nothing, or not everything, was copied.
#[derive(Debug, thiserror::Error)]
enum MoveError {
    #[error("{}", .0.words())]
    Kept(KeptReason),
    #[error("{target} exists")]
    Exists { target: String },
    #[error("{0}")]
    Refused(Box<Error>),
    #[error("this NameNode was started without a client that copies blocks")]
    NoCopier,
    #[error("copying to {target} failed: {source}; remove {directory}, which is incomplete, before the next -move")]
    Copy { target: String, directory: String, source: CopyFailure },
}

impl From<Error> for MoveError {
    fn from(error: Error) -> Self {
        Self::Refused(Box::new(error))
    }
}

/// Block with replicas.
struct LocatedRange {
    /// Index among the file's blocks.
    nth: usize,
    range: ByteRange,
    /// All replicas are known to be corrupt.
    is_corrupt: bool,
}

/// What was copied of a file.
#[derive(Default)]
struct Remains {
    /// Blocks of the file when the copy began, in order.
    blocks: Vec<MovedBlock>,
    files: u64,
    bytes: u64,
    /// Blocks with replicas that could not be read.
    unreadable: u64,
    /// One of them had a good replica.
    is_incomplete: bool,
    first_failure: Option<CopyFailure>,
}

impl FoundFile {
    /// Path of the copies' directory.
    fn directory(&self) -> String {
        format!("{LOST_FOUND}{}", self.path)
    }

    /// Waits until no other file is copied, and copies what can be read of this one. Sends dots until then.
    ///
    /// Errors: `Disconnected`, before the copy or after it. A copy that has begun is completed.
    pub(super) async fn move_to_lost_found(
        &self,
        namenode: &Namenode,
        caller: &Caller,
        real_user: Option<&str>,
        telling: &TextSender,
    ) -> Result<Moved, Disconnected> {
        let _turn = tokio::select! {
            turn = namenode.lost_found.turn.lock() => turn,
            disconnected = send_dots(telling) => return Err(disconnected),
        };
        // The client may have disconnected since the last dot.
        telling.send(String::new()).await?;
        with_dots(telling, self.copy_to_lost_found(namenode, caller, real_user)).await
    }

    /// Copies what can be read of this file. Reports and logs the result. The caller has the turn.
    async fn copy_to_lost_found(&self, namenode: &Namenode, caller: &Caller, real_user: Option<&str>) -> Moved {
        let (path, directory) = (&self.path, self.directory());
        let remains = match self.copy_remains(namenode, caller, real_user).await {
            Ok(remains) => remains,
            Err(why @ (MoveError::Kept(_) | MoveError::Exists { .. })) => {
                tracing::warn!(path, %why, "fsck did not copy a corrupt file to /lost+found");
                let text = format!("\nFSCK did not copy {path}: {why}\n");
                return Moved { text, has_failed: false, blocks: None };
            }
            Err(error) => {
                tracing::warn!(path, %error, "fsck cannot copy a corrupt file to /lost+found");
                let text = format!("\nFSCK cannot copy the remains of the corrupt file {path}: {error}\n");
                return Moved { text, has_failed: true, blocks: None };
            }
        };
        let Remains { blocks, files, bytes, unreadable, is_incomplete, first_failure } = remains;
        let mut text =
            format!("\nFSCK copied the remains of the corrupt file {path} to {directory}: {files} files, {bytes} B\n");
        tracing::info!(path, directory, files, bytes, unreadable, "fsck copied the remains of a corrupt file");
        if let Some(error) = &first_failure {
            text.push_str(&format!("FSCK could not read {unreadable} of its blocks: {error}\n"));
        }
        Moved { text, has_failed: first_failure.is_some(), blocks: (!is_incomplete).then_some(blocks) }
    }

    async fn copy_remains(
        &self,
        namenode: &Namenode,
        caller: &Caller,
        real_user: Option<&str>,
    ) -> Result<Remains, MoveError> {
        let LostFound { copier, address, .. } = &namenode.lost_found;
        let (Some(copier), Some(address)) = (copier, address.get()) else { return Err(MoveError::NoCopier) };
        self.make_directories(namenode, caller, real_user).await?;
        let (blocks, runs) = self.runs(&namenode.read(), caller, namenode.now());
        let directory = self.directory();
        self.audit_move(namenode, caller, real_user, &directory).await;
        let mut remains = Remains { blocks, ..Remains::default() };
        for run in &runs {
            let mut left = run.as_slice();
            while !left.is_empty() {
                let target = format!("{directory}/{}", remains.files);
                let request = CopyRequest {
                    namenode: *address,
                    user: caller.user.to_string(),
                    source: self.target(),
                    blocks: left.iter().map(|block| block.range).collect(),
                    target: target.clone(),
                };
                let copied = match copier.copy(request).await {
                    Ok(copied) => copied,
                    Err(source) => return Err(MoveError::Copy { target, directory, source }),
                };
                remains.files += 1;
                remains.bytes += copied.bytes;
                for LocatedRange { nth, .. } in &left[..copied.blocks.min(left.len())] {
                    remains.blocks[*nth].is_copied = true;
                }
                let Some(error) = copied.unreadable else { break };
                let failed = copied.blocks.min(left.len() - 1);
                let LocatedRange { range, is_corrupt, .. } = &left[failed];
                tracing::warn!(path = self.path, offset = range.start(), %error, "fsck cannot read a block");
                remains.unreadable += 1;
                remains.is_incomplete |= !is_corrupt;
                remains.first_failure.get_or_insert(error);
                left = &left[failed + 1..];
            }
        }
        Ok(remains)
    }

    /// Makes `/lost+found`, and the directory of the copies in it.
    async fn make_directories(
        &self,
        namenode: &Namenode,
        caller: &Caller,
        real_user: Option<&str>,
    ) -> Result<(), MoveError> {
        let made = namenode
            .change(|state, now| {
                namenode.check_safe_mode(state, now, || format!("create directory {LOST_FOUND}"))?;
                let is_new = state.namespace.lookup(LOST_FOUND).is_none();
                state.namespace.mkdirs(caller, LOST_FOUND, LOST_FOUND_MODES, true, now.wall_ms)?;
                Ok(is_new)
            })
            .await;
        if !matches!(made, Ok(false)) {
            audit_mkdirs(namenode, caller, real_user, LOST_FOUND, made.as_ref().err()).await;
        }
        made?;
        let directory = self.directory();
        let made = namenode.change(|state, now| self.make_directory(namenode, state, now, caller, &directory)).await;
        if !matches!(made, Ok(Some(_))) {
            audit_mkdirs(namenode, caller, real_user, &directory, made.as_ref().err()).await;
        }
        match made? {
            None => Ok(()),
            Some(why) => Err(why),
        }
    }

    /// Makes the directory of the copies, unless there is a reason against it, which is returned.
    fn make_directory(
        &self,
        namenode: &Namenode,
        state: &mut State,
        now: Now,
        caller: &Caller,
        directory: &str,
    ) -> Result<Option<MoveError>, Error> {
        namenode.check_safe_mode(state, now, || format!("create directory {directory}"))?;
        if let Some(kept) = self.kept_reason(state, now) {
            return Ok(Some(MoveError::Kept(kept)));
        }
        // The path of a file in a snapshot cannot be created. Apache's NameNode fails in the same way.
        let slot = self.inode.and_then(|inode| state.namespace.slot(inode)).ok_or(Error::SnapshotName)?;
        if !is_within_limits(directory) {
            return Err(Error::PathTooLong { operation: "mkdirs" });
        }
        if state.namespace.resolve(caller, directory, Purpose::Read)?.target().is_some() {
            return Ok(Some(MoveError::Exists { target: directory.to_owned() }));
        }
        let mode = state.namespace.inode(slot).permission();
        state.namespace.mkdirs(caller, directory, mode, true, now.wall_ms)?;
        Ok(None)
    }

    /// Records in the audit log that the file is copied, before its first block is read. The calls of the copier are
    /// recorded as calls of the user from this machine: they name neither the real user nor the caller's machine.
    async fn audit_move(&self, namenode: &Namenode, caller: &Caller, real_user: Option<&str>, directory: &str) {
        let Some(log) = &namenode.audit else { return };
        log.write(Event {
            allowed: true,
            user: &caller.user,
            real_user,
            machine: &caller.machine,
            command: "move",
            source: Some(&self.path),
            target: Some(directory),
            ..Event::default()
        })
        .await;
    }

    /// Returns the file's blocks, none of them copied yet, and the runs of adjacent blocks with replicas.
    fn runs(&self, state: &State, caller: &Caller, now: Now) -> (Vec<MovedBlock>, Vec<Vec<LocatedRange>>) {
        let (mut blocks, mut runs): (Vec<MovedBlock>, Vec<Vec<LocatedRange>>) = (Vec::new(), Vec::new());
        let slot = self.inode.and_then(|inode| state.namespace.slot(inode));
        let Some(file) = slot.and_then(|slot| state.namespace.inode(slot).as_file()) else { return (blocks, runs) };
        let reader = ReaderLocation { ip: Some(&*caller.machine) };
        let (mut at, mut is_in_run) = (0_u64, false);
        for (nth, record) in file.blocks().iter().enumerate() {
            blocks.push(MovedBlock { block: record.block(), is_copied: false });
            let range = ByteRange::with_length(at, record.length);
            let located = state.blocks.locate(record.id, at, reader, now);
            at = at.saturating_add(record.length);
            let located = located.filter(|located| !located.locations.is_empty());
            let Some((located, range)) = located.zip(range) else {
                is_in_run = false;
                continue;
            };
            if !is_in_run {
                runs.push(Vec::new());
            }
            is_in_run = true;
            if let Some(run) = runs.last_mut() {
                run.push(LocatedRange { nth, range, is_corrupt: located.corrupt });
            }
        }
        (blocks, runs)
    }
}

/// Sends a dot now and then, until the client has disconnected.
async fn send_dots(telling: &TextSender) -> Disconnected {
    loop {
        tokio::time::sleep(DOT_INTERVAL).await;
        if let Err(disconnected) = telling.send(".".to_owned()).await {
            return disconnected;
        }
    }
}

/// Runs `work` to its end, and sends dots at the same time. A client that does not read delays only the dots.
///
/// Errors: `Disconnected`, when the work is done.
async fn with_dots<T>(telling: &TextSender, work: impl Future<Output = T>) -> Result<T, Disconnected> {
    let mut work = std::pin::pin!(work);
    let disconnected = tokio::select! {
        done = &mut work => return Ok(done),
        disconnected = send_dots(telling) => disconnected,
    };
    work.await;
    Err(disconnected)
}

/// Records a new directory, or one that was refused for lack of permission.
async fn audit_mkdirs(
    namenode: &Namenode,
    caller: &Caller,
    real_user: Option<&str>,
    path: &str,
    refused: Option<&Error>,
) {
    match refused {
        None => write_audit(namenode, caller, real_user, "mkdirs", path, true).await,
        Some(error) if error.class() == exceptions::ACCESS_CONTROL => {
            write_audit(namenode, caller, real_user, "mkdirs", path, false).await;
        }
        Some(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, sleep};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn client_that_does_not_read_does_not_stall_the_copy() {
        let (telling, listening) = TextSender::new(Duration::from_secs(60));
        // The queue is full after 80 s, and the client is given up at 160 s.
        let mut steps = 0;
        let work = async {
            while steps < 300 {
                sleep(Duration::from_secs(1)).await;
                steps += 1;
            }
        };
        let began = Instant::now();
        assert_eq!(with_dots(&telling, work).await, Err(Disconnected));
        assert_eq!((steps, began.elapsed()), (300, Duration::from_secs(300)));
        drop(listening);
    }

    #[tokio::test(start_paused = true)]
    async fn work_ends_while_a_dot_waits_for_room() {
        let (telling, listening) = TextSender::new(Duration::from_secs(60));
        let began = Instant::now();
        assert_eq!(with_dots(&telling, sleep(Duration::from_secs(110))).await, Ok(()));
        assert_eq!(began.elapsed(), Duration::from_secs(110));
        drop(listening);
    }

    #[test]
    fn copier_reaches_the_namenode_at_a_wildcard_address() {
        for (listening, wanted) in
            [("0.0.0.0:8020", "127.0.0.1:8020"), ("[::]:8020", "[::1]:8020"), ("192.0.2.1:9", "192.0.2.1:9")]
        {
            let lost_found = LostFound::new(None);
            lost_found.set_address(listening.parse().unwrap());
            assert_eq!(lost_found.address.get(), Some(&wanted.parse().unwrap()), "{listening}");
        }
    }
}
