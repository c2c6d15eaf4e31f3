//! `hdfs fsck`: the state of files and their blocks as text, which the tool asks for over HTTP (`/fsck`) and prints as it is.
//! The last line decides the tool's exit code. Source of the texts: answers of an Apache NameNode 3.4.
//!
//! The tree is walked once under the lock to list its inodes; then they are looked at a few at a time, so that writers do not
//! wait for a long report. What vanishes meanwhile is skipped.

mod blocks_asked;
mod corrupt_files;
mod file;
mod policies;
mod summary;
mod tree;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use hearth_wire::proto::hdfs::DeleteRequestProto;

use crate::Namenode;
use crate::audit::Event;
use crate::date::date_text;
use crate::namespace::Caller;
use crate::ops::delete::delete;
use crate::state::Context;

use summary::Summary;

/// Inodes looked at before the lock is given up for a moment.
const BATCH: usize = 1_000;
/// A report that grows longer is cut, and says so: it is held in memory.
const REPORT_BYTES_MAX: usize = 256 << 20;

/// What is asked. Each field is a parameter of the query.
#[derive(Clone, Debug, Default)]
pub struct FsckRequest {
    pub user: String,
    /// Text of the caller's address.
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
    /// Snapshots of what is below the path are looked at, too.
    pub include_snapshots: bool,
    pub delete: bool,
    pub move_to_lost: bool,
    pub list_corrupt: bool,
    /// Entries of the list of corrupt files to leave out.
    pub start_after: usize,
    /// `blk_...` names to look up instead of walking a path.
    pub block_ids: Vec<String>,
}

impl FsckRequest {
    /// `query`: decoded parameters. A flag is set by being there, whatever its value.
    pub fn from_query(query: &BTreeMap<String, String>, machine: &str) -> Self {
        let flag = |name: &str| query.contains_key(name);
        let text = |name: &str| query.get(name).cloned().unwrap_or_default();
        Self {
            user: text("ugi"),
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
            move_to_lost: flag("move"),
            list_corrupt: flag("listcorruptfileblocks"),
            start_after: text("startblockafter").parse().unwrap_or(0),
            block_ids: text("blockId").split_whitespace().map(str::to_owned).collect(),
        }
    }

    /// Where the replicas are is told.
    fn wants_replicas(&self) -> bool {
        self.locations || self.racks || self.replica_details || self.upgrade_domains
    }
}

/// The whole report. Nobody but a superuser gets one of files that he may not reach.
pub async fn fsck(namenode: Arc<Namenode>, request: FsckRequest) -> String {
    let rights = namenode.groups.rights(&request.user).await;
    let caller = Caller {
        user: request.user.as_str().into(),
        groups: rights.groups,
        superuser: rights.superuser,
        machine: request.machine.as_str().into(),
    };
    if let Some(log) = &namenode.audit {
        let (user, machine) = (&caller.user, &caller.machine);
        let event =
            Event { allowed: true, user, machine, command: "fsck", source: Some(&request.path), ..Event::default() };
        log.write(event).await;
    }
    let worker = (namenode.clone(), caller.clone());
    let worked = tokio::task::spawn_blocking(move || Fsck::new(&worker.0, &request, &worker.1).run()).await;
    let Report { mut text, to_delete, last_line } = match worked {
        Ok(report) => report,
        Err(error) => return format!("fsck failed: {error}"),
    };
    for path in to_delete {
        let request = DeleteRequestProto { src: path.clone(), recursive: false };
        let line = match delete(&namenode, &Context::new(caller.clone(), None), request).await {
            Ok(_) => format!("\nFSCK deleted the corrupt file {path}\n"),
            Err(error) => format!("\nFSCK cannot delete the corrupt file {path}: {error}\n"),
        };
        text.push_str(&line);
    }
    text + &last_line
}

/// The text, the files to delete before its last line is said, and that line.
struct Report {
    text: String,
    to_delete: Vec<String>,
    last_line: String,
}

impl Report {
    fn of(text: String) -> Self {
        Self { text, to_delete: Vec::new(), last_line: String::new() }
    }
}

struct Fsck<'a> {
    namenode: &'a Namenode,
    request: &'a FsckRequest,
    caller: &'a Caller,
    out: String,
    summary: Summary,
}

impl<'a> Fsck<'a> {
    fn new(namenode: &'a Namenode, request: &'a FsckRequest, caller: &'a Caller) -> Self {
        Self { namenode, request, caller, out: String::new(), summary: Summary::default() }
    }

    fn run(mut self) -> Report {
        let began = self.namenode.now();
        let (user, machine) = (&self.request.user, &self.request.machine);
        let at = date_text(began.wall_ms);
        if self.request.show_progress {
            self.out.push_str(
                "The fsck switch -showprogress is deprecated and no longer has any effect. Progress is now shown by default.\n",
            );
        }
        if !self.request.block_ids.is_empty() {
            let _ = writeln!(self.out, "FSCK started by {user} (auth:SIMPLE) from /{machine} at {at}");
            self.look_up_blocks();
            return Report::of(self.out);
        }
        let path = &self.request.path;
        let _ = writeln!(self.out, "FSCK started by {user} (auth:SIMPLE) from /{machine} for path {path} at {at}");
        if self.request.list_corrupt {
            self.list_corrupt_files();
            return Report::of(self.out);
        }
        self.out.push('\n');
        let entries = match self.entries() {
            Ok(Some(entries)) => entries,
            Ok(None) => {
                let _ = write!(self.out, "\nPath '{path}' does not exist");
                return Report::of(self.out);
            }
            Err(refused) => {
                let _ = write!(self.out, "{refused}\n\n\nFsck on path '{path}' FAILED");
                return Report::of(self.out);
            }
        };
        for batch in entries.chunks(BATCH) {
            let state = self.namenode.read();
            for entry in batch {
                self.look_at(&state, entry);
            }
        }
        if self.request.move_to_lost && self.summary.corrupt_files > 0 {
            self.out.push_str(
                "\nMoving corrupt files to /lost+found is not supported by this NameNode: nothing was moved. Copy what can be read, then use -delete.\n",
            );
        }
        let last_line = self.finish(began);
        Report { text: self.out, to_delete: self.summary.to_delete, last_line }
    }

    /// Adds to the report unless it is too long.
    fn say(&mut self, text: std::fmt::Arguments<'_>) {
        if self.out.len() < REPORT_BYTES_MAX {
            let _ = self.out.write_fmt(text);
            if self.out.len() >= REPORT_BYTES_MAX {
                self.out.push_str("\n... the list of files is cut here: it is too long\n");
            }
        }
    }

    fn finish(&mut self, began: crate::blocks::Now) -> String {
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
        let milliseconds = now.monotonic.saturating_sub(began.monotonic).as_millis();
        let _ = writeln!(self.out, "FSCK ended at {} in {milliseconds} milliseconds", date_text(now.wall_ms));
        format!(
            "\n\nThe filesystem under path '{}' is {}",
            self.request.path,
            if self.summary.is_healthy() { "HEALTHY" } else { "CORRUPT" }
        )
    }
}
