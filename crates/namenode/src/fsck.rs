//! `hdfs fsck`: the state of files and their blocks as text, which the tool requests over HTTP (`/fsck`) and prints
//! unchanged. The last line decides the tool's exit code. Source of the texts: answers of an Apache NameNode 3.4.
//!
//! A few entries are examined at a time under the lock, so that writers do not wait for a long report. Their part of
//! the report is sent to the client before the next entries are examined. So a slow client slows the walk down, and a
//! disconnected one ends it, between two files. Entries that vanish during the walk are skipped.

mod block_ids;
mod corrupt_files;
mod file;
mod lost_found;
mod policies;
mod removal;
mod summary;
mod tree;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use hearth_types::BlockId;
use hearth_web::{Disconnected, TextSender};
use hearth_wire::rpc::exceptions;

use crate::Namenode;
use crate::audit::Event;
use crate::blocks::Now;
use crate::date::date_text;
use crate::error::Error;
use crate::namespace::{Caller, InodeId};

use corrupt_files::CorruptFiles;
pub use lost_found::{BlockCopier, Copied, CopyFailure, CopyFuture, CopyRequest, LostFound};
use removal::KeptReason;
use summary::FsckSummary;
use tree::WalkItem;

/// Limit of inodes and blocks examined before the lock is released for a moment; a file is always examined as a whole.
const BATCH: usize = 1_000;
/// Size at which a part of the report is sent to the client before more is produced.
const PART_BYTES: usize = 64 << 10;
/// Progress marks: a dot per this many files, if files are not listed; and a line end per `ENTRIES_PER_LINE` entries.
const FILES_PER_DOT: u64 = 100;
const ENTRIES_PER_LINE: u64 = 1_000;
/// Suffix of a list of corrupt files that could not be completed. Java's tool asks for the next part until an answer
/// says that no part is left, or the cookie cannot be parsed. The tool of Hadoop 3.4 also stops at a line that begins
/// with "Access denied for user". All versions then exit with
/// 255. Source: `DFSck.listCorruptFileBlocks`.
const NO_NEXT_PART: &str = "\nCookie:\tnone\n";

/// An fsck request. Each field is a parameter of the query.
#[derive(Clone, Debug, Default)]
pub struct FsckRequest {
    pub user: String,
    /// User for which the requesting user wants to act.
    pub do_as: Option<String>,
    /// Caller's address as text.
    pub machine: String,
    pub path: String,
    pub files: bool,
    pub blocks: bool,
    pub locations: bool,
    pub racks: bool,
    pub replica_details: bool,
    pub upgrade_domains: bool,
    pub storage_policies: bool,
    pub maintenance: bool,
    pub show_progress: bool,
    pub open_for_write: bool,
    /// Also check snapshots of directories below the path.
    pub include_snapshots: bool,
    pub delete: bool,
    /// Schedule blocks on too few racks for re-replication.
    pub replicate: bool,
    /// Copy what can be read of corrupt files to `/lost+found`.
    pub move_to_lost: bool,
    pub list_corrupt: bool,
    /// Number of entries to skip in the list of corrupt files.
    pub start_after: usize,
    /// `blk_...` names to look up instead of walking a path.
    pub block_ids: Vec<String>,
}

impl FsckRequest {
    /// Parses a request. `query`: decoded parameters; a flag is set if it is present, whatever its value. `nobody`: the
    /// user if none is given.
    ///
    /// Source of the user's parameters: `JspHelper.getUGI`.
    pub fn from_query(query: &BTreeMap<String, String>, machine: &str, nobody: &str) -> Self {
        let flag = |name: &str| query.contains_key(name);
        let text = |name: &str| query.get(name).cloned().unwrap_or_default();
        // Groups may follow the user in this parameter.
        let ugi = || query.get("ugi").and_then(|ugi| ugi.split(',').next());
        let named = query.get("user.name").map(String::as_str).or_else(ugi);
        Self {
            user: named.filter(|user| !user.is_empty()).unwrap_or(nobody).to_owned(),
            do_as: query.get("doas").cloned(),
            machine: machine.to_owned(),
            path: query.get("path").cloned().unwrap_or_else(|| "/".to_owned()),
            files: flag("files"),
            blocks: flag("blocks"),
            locations: flag("locations"),
            racks: flag("racks"),
            replica_details: flag("replicadetails"),
            upgrade_domains: flag("upgradedomains"),
            storage_policies: flag("storagepolicies"),
            maintenance: flag("maintenance"),
            show_progress: flag("showprogress"),
            open_for_write: flag("openforwrite"),
            include_snapshots: flag("includeSnapshots"),
            delete: flag("delete"),
            replicate: flag("replicate"),
            move_to_lost: flag("move"),
            list_corrupt: flag("listcorruptfileblocks"),
            start_after: text("startblockafter").parse().unwrap_or(0),
            block_ids: text("blockId").split_whitespace().map(str::to_owned).collect(),
        }
    }

    /// The requesting user, in Hadoop's notation.
    fn user_text(&self) -> String {
        let user = &self.user;
        match &self.do_as {
            None => format!("{user} (auth:SIMPLE)"),
            Some(other) => format!("{other} (auth:PROXY) via {user} (auth:SIMPLE)"),
        }
    }

    /// Suffix of an answer that failed.
    fn failure_suffix(&self) -> &'static str {
        if self.list_corrupt { NO_NEXT_PART } else { "" }
    }

    /// Returns true if the report includes the replicas' locations.
    fn wants_replicas(&self) -> bool {
        self.locations || self.racks || self.replica_details || self.upgrade_domains
    }
}

/// Sends the whole report. Only a superuser gets reports of files that it may not access.
///
/// Errors: `Disconnected`, between two files: a deletion or a copy that has begun is completed.
pub async fn fsck(namenode: Arc<Namenode>, mut request: FsckRequest, telling: TextSender) -> Result<(), Disconnected> {
    // A `doas` with the caller's own name is ignored. Source: `JspHelper.getUGI`.
    request.do_as = request.do_as.take().filter(|other| *other != request.user);
    let user = request.do_as.as_deref().unwrap_or(&request.user);
    let rights = namenode.groups.rights(user).await;
    let caller = Caller {
        user: user.into(),
        groups: rights.groups,
        superuser: rights.superuser,
        machine: request.machine.as_str().into(),
    };
    let (path, mut allowed) = (request.path.clone(), true);
    let real_user = request.do_as.is_some().then(|| request.user.clone());
    if let Some(real) = &real_user {
        // An address that cannot be parsed matches no rule.
        let address = request.machine.parse().unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let impersonation = namenode.impersonation.check(&namenode.groups, real, user, address).await;
        if let Err(refused) = impersonation {
            write_audit(&namenode, &caller, Some(real), "fsck", &path, false).await;
            let end = request.failure_suffix();
            return telling.send(format!("{refused}\n\n\nFsck on path '{path}' FAILED{end}")).await;
        }
    }
    let told = tell(&namenode, request, &caller, real_user.as_deref(), &telling, &mut allowed).await;
    write_audit(&namenode, &caller, real_user.as_deref(), "fsck", &path, allowed).await;
    told
}

/// Sends the report. Sets `allowed` to false if the caller lacked permission for all or part of it.
async fn tell(
    namenode: &Arc<Namenode>,
    request: FsckRequest,
    caller: &Caller,
    real_user: Option<&str>,
    telling: &TextSender,
    allowed: &mut bool,
) -> Result<(), Disconnected> {
    let end = request.failure_suffix();
    let mut fsck = Fsck::new(namenode.clone(), request, caller.clone());
    loop {
        let part = move || {
            let next = fsck.next_part();
            (fsck, next)
        };
        let (back, next) = match tokio::task::spawn_blocking(part).await {
            Ok(made) => made,
            Err(error) => return telling.send(format!("fsck failed: {error}{end}")).await,
        };
        fsck = back;
        *allowed &= !fsck.is_refused;
        telling.send(std::mem::take(&mut fsck.out)).await?;
        match next {
            Outcome::Continue => {}
            Outcome::Repair(found) => fsck.repair(&found, real_user, telling).await?,
            Outcome::Replicate(blocks) => match fsck.replicate(&blocks).await {
                Ok(()) => {}
                Err(error) => telling.send(format!("\nFSCK cannot queue blocks for replication: {error}\n")).await?,
            },
            Outcome::End => return Ok(()),
        }
    }
}

/// Writes a line to the audit log.
async fn write_audit(
    namenode: &Namenode,
    caller: &Caller,
    real_user: Option<&str>,
    command: &str,
    path: &str,
    allowed: bool,
) {
    let Some(log) = &namenode.audit else { return };
    let (user, machine) = (&caller.user, &caller.machine);
    log.write(Event { allowed, user, real_user, machine, command, source: Some(path), ..Event::default() }).await;
}

/// Next step after a part of the report is produced.
enum Outcome {
    Continue,
    /// Copy or delete this corrupt file first.
    Repair(FoundFile),
    /// Let re-replication check these blocks, which are on too few racks.
    Replicate(Vec<BlockId>),
    End,
}

/// A file with the path at which it was found.
struct FoundFile {
    path: String,
    /// `None` for a file in a snapshot.
    inode: Option<InodeId>,
}

struct Fsck {
    namenode: Arc<Namenode>,
    request: FsckRequest,
    caller: Caller,
    /// `None` until the first part.
    started: Option<Now>,
    /// Items still to be examined, the next one last.
    pending: Vec<WalkItem>,
    /// Report text that is not sent yet.
    out: String,
    summary: FsckSummary,
    /// State of the list of corrupt files.
    corrupt: CorruptFiles,
    /// The file that was just examined, if it shall be copied to `/lost+found` or deleted.
    to_repair: Option<FoundFile>,
    /// A copy or a deletion failed.
    has_failed: bool,
    /// Blocks on too few racks, for `-replicate`.
    mis_replicated: Vec<BlockId>,
    /// The caller lacked a permission, for all or part of the request.
    is_refused: bool,
}

impl Fsck {
    fn new(namenode: Arc<Namenode>, request: FsckRequest, caller: Caller) -> Self {
        let (pending, out, summary, corrupt) =
            (Vec::new(), String::new(), FsckSummary::default(), CorruptFiles::default());
        let (started, to_repair, mis_replicated) = (None, None, Vec::new());
        let (has_failed, is_refused) = (false, false);
        Self {
            namenode,
            request,
            caller,
            started,
            pending,
            out,
            summary,
            corrupt,
            to_repair,
            has_failed,
            mis_replicated,
            is_refused,
        }
    }

    /// Produces the next part in `out`.
    fn next_part(&mut self) -> Outcome {
        let made = match self.started {
            None => self.begin(),
            Some(_) if self.request.list_corrupt => Ok(self.continue_list()),
            Some(_) => self.continue_walk(),
        };
        made.unwrap_or_else(|refused| self.fail(&refused))
    }

    fn begin(&mut self) -> Result<Outcome, Box<Error>> {
        let began = self.namenode.now();
        self.started = Some(began);
        let (user, machine) = (self.request.user_text(), &self.request.machine);
        let at = date_text(began.wall_ms);
        if self.request.show_progress {
            self.out.push_str(
                "The fsck switch -showprogress is deprecated and no longer has any effect. Progress is now shown by default.\n",
            );
        }
        if !self.request.block_ids.is_empty() {
            let _ = writeln!(self.out, "FSCK started by {user} from /{machine} at {at}");
            self.report_blocks();
            return Ok(Outcome::End);
        }
        let path = &self.request.path;
        let _ = writeln!(self.out, "FSCK started by {user} from /{machine} for path {path} at {at}");
        if self.request.list_corrupt {
            self.namenode.read().namespace.require_superuser(&self.caller, "listCorruptFileBlocks")?;
            return Ok(Outcome::Continue);
        }
        if !self.enter()? {
            let _ = write!(self.out, "\n\nPath '{}' does not exist", self.request.path);
            return Ok(Outcome::End);
        }
        Ok(Outcome::Continue)
    }

    /// Handles `-replicate`: re-replication checks these blocks again.
    async fn replicate(&mut self, blocks: &[BlockId]) -> Result<(), Error> {
        let queued = self.namenode.change(|state, now| Ok(state.blocks.recheck_redundancy(blocks, now))).await?;
        self.summary.queued += queued;
        Ok(())
    }

    /// Handles `-move` and `-delete` for a corrupt file.
    ///
    /// With both, a file is deleted only if its blocks are those that were copied, and this run has copied every block
    /// with a good replica: at the time of the copy, and at that of the deletion.
    async fn repair(
        &mut self,
        found: &FoundFile,
        real_user: Option<&str>,
        telling: &TextSender,
    ) -> Result<(), Disconnected> {
        let mut copied = None;
        if self.request.move_to_lost {
            let moved = found.move_to_lost_found(&self.namenode, &self.caller, real_user, telling).await?;
            self.has_failed |= moved.has_failed;
            telling.send(moved.text).await?;
            if self.request.delete && moved.blocks.is_none() {
                let (path, why) = (&found.path, KeptReason::NotCopied.words());
                return telling.send(format!("\nFSCK did not delete {path}: {why}\n")).await;
            }
            copied = moved.blocks;
        }
        if self.request.delete {
            let deletion = Self::delete(&self.namenode, &self.caller, real_user, found, copied.as_deref()).await;
            self.has_failed |= deletion.has_failed;
            telling.send(deletion.text).await?;
        }
        Ok(())
    }

    /// Skips a path that the caller may not read. The report continues, and says at its end that it is incomplete.
    fn skip_unreadable(&mut self, path: &str, refused: &Error) {
        self.is_refused = true;
        self.summary.skipped += 1;
        self.write(format_args!("\n{path}: not checked: {refused}\n"));
    }

    fn write(&mut self, text: std::fmt::Arguments<'_>) {
        let _ = self.out.write_fmt(text);
    }

    fn mark_progress(&mut self) {
        if (self.summary.directories + self.summary.files).is_multiple_of(ENTRIES_PER_LINE) {
            self.out.push('\n');
        }
    }

    fn finish(&mut self) -> Outcome {
        let now = self.namenode.now();
        let summary = {
            let state = self.namenode.read();
            self.summary.text(&state, now)
        };
        self.out.push_str(&summary);
        if self.request.storage_policies {
            let policies = self.summary.policies.text();
            self.out.push_str(&policies);
        }
        self.write_end(now);
        let (path, skipped) = (&self.request.path, self.summary.skipped);
        if skipped > 0 {
            let (user, what) = (&self.caller.user, if skipped == 1 { "path was" } else { "paths were" });
            let _ = writeln!(
                self.out,
                "{skipped} {what} not checked: user {user} may not read them. Run fsck as a superuser."
            );
        }
        if self.has_failed {
            // Apache's report has this line twice, too.
            self.write_end(now);
            let path = &self.request.path;
            let _ = write!(self.out, "fsck encountered internal errors!\n\n\nFsck on path '{path}' FAILED");
            return Outcome::End;
        }
        let _ = match (self.summary.is_healthy(), skipped) {
            (false, _) => write!(self.out, "\n\nThe filesystem under path '{path}' is CORRUPT"),
            (true, 0) => write!(self.out, "\n\nThe filesystem under path '{path}' is HEALTHY"),
            // An incomplete report does not say "healthy". Apache's report, which ends at the first such path, has the
            // same last line.
            (true, _) => write!(self.out, "\n\nFsck on path '{path}' FAILED"),
        };
        Outcome::End
    }

    fn fail(&mut self, refused: &Error) -> Outcome {
        self.is_refused = refused.class() == exceptions::ACCESS_CONTROL;
        self.write_end(self.namenode.now());
        let end = self.request.failure_suffix();
        let _ = write!(self.out, "{refused}\n\n\nFsck on path '{}' FAILED{end}", self.request.path);
        Outcome::End
    }

    fn write_end(&mut self, now: Now) {
        let began = self.started.map_or(now.monotonic, |began| began.monotonic);
        let milliseconds = now.monotonic.saturating_sub(began).as_millis();
        self.write(format_args!("FSCK ended at {} in {milliseconds} milliseconds\n", date_text(now.wall_ms)));
    }
}
