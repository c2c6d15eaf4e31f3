//! Directory listings, a page at a time.

use bytes::Bytes;
use hearth_wire::proto::hdfs::{
    BatchedDirectoryListingProto, BatchedListingKeyProto, DirectoryListingProto, GetBatchedListingRequestProto,
    GetBatchedListingResponseProto, GetListingRequestProto, GetListingResponseProto, HdfsFileStatusProto,
    RemoteExceptionProto,
};
use prost::Message;

use super::audited::Audited;
use super::status::{file_status, flags_in_snapshot, is_reserved_root, reserved_entries};
use crate::blocks::Now;
use crate::error::Error;
use crate::namespace::{Listing, Purpose, Slot, compare_names};
use crate::state::{CallContext, Namenode, State, encode};

pub async fn get_listing(
    namenode: &Namenode,
    context: &CallContext,
    request: GetListingRequestProto,
) -> Result<Bytes, Error> {
    let state = namenode.read();
    let dir_list = page(namenode, &state, context, &request, namenode.settings.listing_max)?;
    Ok(encode(&GetListingResponseProto { dir_list }))
}

pub fn audit_get_listing(request: &GetListingRequestProto) -> Audited {
    Audited::on("listStatus", &request.src)
}

/// Returns a page of a directory, of its snapshots or of `/.reserved`. `None`: the path does not exist.
fn page(
    namenode: &Namenode,
    state: &State,
    context: &CallContext,
    request: &GetListingRequestProto,
    limit: usize,
) -> Result<Option<DirectoryListingProto>, Error> {
    if is_reserved_root(&request.src) {
        let partial_listing = reserved_entries(namenode.groups.supergroup(), namenode.identity.created_ms);
        return Ok(Some(DirectoryListingProto { partial_listing, remaining_entries: 0 }));
    }
    if let Some(listing) = snapshots(state, context, request, limit)? {
        return Ok(Some(listing));
    }
    let page = list(state, context, &request.src, &request.start_after, limit, request.need_location)?;
    Ok(page.map(|page| DirectoryListingProto {
        partial_listing: statuses(state, context, &page, request.need_location, namenode.now()),
        remaining_entries: page.remaining as u32,
    }))
}

/// Returns the snapshots of a directory if the path is its `.snapshot`.
fn snapshots(
    state: &State,
    context: &CallContext,
    request: &GetListingRequestProto,
    limit: usize,
) -> Result<Option<DirectoryListingProto>, Error> {
    let path = request.src.trim_end_matches('/');
    let Some(directory) = path.strip_suffix("/.snapshot") else { return Ok(None) };
    let namespace = &state.namespace;
    let trail = namespace.resolve(&context.caller, path, Purpose::Read)?;
    if trail.snapshot.is_some() || (!trail.is_snapshot_list && trail.parent().is_none()) {
        return Ok(None);
    }
    let directory = if directory.is_empty() { "/" } else { directory };
    let (_, root, all) = namespace.list_snapshots(&context.caller, directory)?;
    let rest = all.partition_point(|snapshot| {
        !request.start_after.is_empty() && compare_names(snapshot.name.as_bytes(), &request.start_after).is_le()
    });
    let rest = &all[rest..];
    let mut partial_listing = Vec::new();
    for snapshot in rest.iter().take(limit) {
        if let Some(top) = namespace.top_of(root, snapshot) {
            let mut status = file_status(namespace, top, snapshot.name.as_bytes());
            status.modification_time = snapshot.modification_time_ms;
            status.flags = flags_in_snapshot(status.flags);
            // As Apache's NameNode answers: the number of children that the directory has now.
            status.children_num = namespace.inode(root).children().map(|children| children.len() as i32);
            partial_listing.push(status);
        }
    }
    Ok(Some(DirectoryListingProto { partial_listing, remaining_entries: rest.len().saturating_sub(limit) as u32 }))
}

fn list(
    state: &State,
    context: &CallContext,
    path: &str,
    start_after: &[u8],
    limit: usize,
    with_locations: bool,
) -> Result<Option<Listing>, Error> {
    let weigh = |slot: Slot| {
        let inode = state.namespace.inode(slot);
        match inode.as_file() {
            Some(file) if with_locations => file.blocks().len() * usize::from(inode.replication()),
            _ => 0,
        }
    };
    state.namespace.list(&context.caller, path, start_after, limit, weigh)
}

fn statuses(
    state: &State,
    context: &CallContext,
    page: &Listing,
    with_locations: bool,
    now: Now,
) -> Vec<HdfsFileStatusProto> {
    let status = |slot: &Slot| {
        let name: &[u8] = if page.is_file { &[] } else { &state.namespace.inode(*slot).name };
        let mut status = file_status(&state.namespace, *slot, name);
        if with_locations && state.namespace.is_file(*slot) {
            // Without tokens: a user that may list a directory may not be allowed to read its files.
            let mut located = state.located_as_read(*slot, (0, u64::MAX), page.in_snapshot, &context.caller, now);
            // One answer may have thousands of files, so advertisements are left out; a client that reads a file asks
            // for its blocks.
            for block in located.blocks.iter_mut().chain(&mut located.last_block) {
                block.locations.iter_mut().for_each(|datanode| datanode.offer = None);
            }
            status.locations = Some((&located).into());
        }
        status
    };
    page.entries.iter().map(status).collect()
}

/// Lists many paths in one call; an error of one path is in its entry.
pub async fn get_batched_listing(
    namenode: &Namenode,
    context: &CallContext,
    request: GetBatchedListingRequestProto,
) -> Result<Bytes, Error> {
    if request.paths.len() > namenode.settings.batched_paths_max {
        let message =
            format!("Too many source paths ({} > {})", request.paths.len(), namenode.settings.batched_paths_max);
        return Err(Error::IllegalArgument { message });
    }
    let checksum = fingerprint(&request.paths);
    let (mut index, mut start_after) = (0usize, Bytes::new());
    if !request.start_after.is_empty() {
        let key = BatchedListingKeyProto::decode(request.start_after.clone())
            .map_err(|error| Error::IllegalArgument { message: format!("cannot decode startAfter: {error}") })?;
        if key.checksum != checksum || key.path_index as usize >= request.paths.len() {
            return Err(Error::IllegalArgument { message: "startAfter belongs to a listing of other paths".into() });
        }
        (index, start_after) = (key.path_index as usize, key.start_after);
    }
    let state = namenode.read();
    let mut left = namenode.settings.listing_max;
    let mut answer = GetBatchedListingResponseProto::default();
    while index < request.paths.len() {
        if left == 0 {
            break;
        }
        let path = &request.paths[index];
        let mut entry = BatchedDirectoryListingProto { parent_idx: index as u32, ..Default::default() };
        let asked = GetListingRequestProto {
            src: path.clone(),
            start_after: start_after.clone(),
            need_location: request.need_location,
        };
        let page = page(namenode, &state, context, &asked, left)
            .and_then(|page| page.ok_or_else(|| Error::ListedPathMissing { path: path.clone() }));
        let mut finished = true;
        match page {
            Ok(page) => {
                left = left.saturating_sub(page.partial_listing.len());
                finished = page.remaining_entries == 0;
                if let Some(last) = page.partial_listing.last() {
                    start_after = last.path.clone();
                }
                entry.partial_listing = page.partial_listing;
            }
            Err(error) => {
                left = left.saturating_sub(1);
                entry.exception =
                    Some(RemoteExceptionProto { class_name: error.class().into(), message: Some(error.to_string()) });
            }
        }
        answer.listings.push(entry);
        if !finished {
            // Pages of a listing with locations end early: the client comes back for the rest.
            break;
        }
        (index, start_after) = (index + 1, Bytes::new());
    }
    answer.has_more = index < request.paths.len();
    if answer.has_more {
        answer.start_after = encode(&BatchedListingKeyProto { checksum, path_index: index as u32, start_after });
    }
    Ok(encode(&answer))
}

pub fn audit_get_batched_listing(request: &GetBatchedListingRequestProto) -> Option<Audited> {
    Audited::on_each("listStatus", &request.paths)
}

/// Binds a position to the paths that it was given for. Clients only return it.
fn fingerprint(paths: &[String]) -> Bytes {
    use std::hash::{Hash, Hasher};
    let mut hasher = std::collections::hash_map::DefaultHasher::new();
    paths.hash(&mut hasher);
    Bytes::copy_from_slice(&hasher.finish().to_be_bytes())
}
