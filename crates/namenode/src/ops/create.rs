use bytes::Bytes;
use hearth_types::FsPermission;
use hearth_wire::proto::hdfs::{CreateFlagProto, CreateRequestProto, CreateResponseProto};

use super::audited::Audited;
use super::lease::Takeover;
use super::status::file_status;
use super::storage_policy::policy_by_name;
use crate::error::Error;
use crate::namespace::{Modes, NewFile, Writer, is_within_limits};
use crate::state::{CallContext, Namenode, Remember};

/// Creates an empty file open for writing. An existing file is replaced, refused, or taken over from a silent writer.
pub async fn create(namenode: &Namenode, context: &CallContext, request: CreateRequestProto) -> Result<Bytes, Error> {
    if !is_within_limits(&request.src) {
        return Err(Error::PathTooLong { operation: "create" });
    }
    let has = |flag: CreateFlagProto| request.create_flag & flag as u32 != 0;
    let overwrite = has(CreateFlagProto::Overwrite);
    let erasure_coding = request.ec_policy_name.as_deref().filter(|name| !name.is_empty());
    if let Some(policy) = erasure_coding {
        if has(CreateFlagProto::ShouldReplicate) {
            return Err(Error::ReplicateAndErasureCode);
        }
        if policy != "replication" && policy != "REPLICATION" {
            return Err(Error::NoErasureCoding { policy: policy.into() });
        }
    }
    let storage_policy = match request.storage_policy.as_deref().filter(|name| !name.is_empty()) {
        Some(name) => policy_by_name(name)?.id,
        None if has(CreateFlagProto::LazyPersist) => policy_by_name("LAZY_PERSIST")?.id,
        None => 0,
    };
    let caller = &context.caller;
    let path = &request.src;
    namenode
        .change_once(context, |state, now| {
            namenode.check_safe_mode(state, now, || format!("create file{path}"))?;
            let trail = state.namespace.check_create(
                caller,
                path,
                has(CreateFlagProto::Create),
                overwrite,
                request.create_parent,
            )?;
            state.namespace.check_new_file(path, request.block_size, request.replication, &caller.machine)?;
            let existing = trail.target();
            if let Some(existing) = existing.filter(|_| !overwrite) {
                let takeover = Takeover { operation: "CREATE_FILE", path, client: &request.client_name };
                state.take_over(namenode, caller, existing, &takeover, now)?;
                return Err(Error::FileExists { path: path.clone(), machine: caller.machine.to_string() });
            }
            state.namespace.check_object_limit()?;
            let writer =
                Writer { client: request.client_name.clone(), machine: caller.machine.to_string(), truncation: None };
            let file = NewFile {
                modes: Modes {
                    masked: FsPermission::from(request.masked),
                    unmasked: request.unmasked.map(FsPermission::from),
                },
                replication: request.replication,
                block_size: request.block_size,
                storage_policy,
                writer,
                caller,
            };
            let slot = match existing {
                None => state.namespace.create_file(&trail, file, now.wall_ms)?,
                Some(existing) => {
                    let (slot, removed) = state.namespace.replace_file(trail, existing, file, now.wall_ms)?;
                    state.forget(removed);
                    slot
                }
            };
            state.leases.add(&request.client_name, state.namespace.inode(slot).id(), now.monotonic);
            let status = file_status(&state.namespace, slot, &[]);
            Ok((CreateResponseProto { fs: Some(status) }, Remember::Yes))
        })
        .await
}

pub fn audit(request: &CreateRequestProto) -> Audited {
    Audited::on("create", &request.src).changed()
}
