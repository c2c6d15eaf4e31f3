//! Storage policies: the media on which the replicas of a file shall be placed.

use bytes::Bytes;
use hearth_types::{Access, StorageType};
use hearth_wire::proto::hdfs::{
    BlockStoragePolicyProto, GetStoragePoliciesRequestProto, GetStoragePoliciesResponseProto,
    GetStoragePolicyRequestProto, GetStoragePolicyResponseProto, SetStoragePolicyRequestProto,
    SetStoragePolicyResponseProto, StorageTypesProto, UnsetStoragePolicyRequestProto, UnsetStoragePolicyResponseProto,
};

use super::audited::Audited;
use crate::blocks::{POLICIES, StoragePolicy};
use crate::error::Error;
use crate::namespace::{InodeKind, Need, Purpose, Slot};
use crate::state::{CallContext, Namenode, Remember, State, encode};

/// The number of the policy that can be given to new files only.
pub const LAZY_PERSIST: u8 = 15;

pub fn policy_by_name(name: &str) -> Result<&'static StoragePolicy, Error> {
    StoragePolicy::by_name(name).ok_or_else(|| Error::NoSuchPolicy { name: name.into() })
}

fn policy_to_wire(policy: &StoragePolicy) -> BlockStoragePolicyProto {
    let types = |types: &[StorageType]| StorageTypesProto {
        storage_types: types.iter().map(|medium| *medium as i32).collect(),
    };
    let some = |fallbacks: &[StorageType]| (!fallbacks.is_empty()).then(|| types(fallbacks));
    BlockStoragePolicyProto {
        policy_id: u32::from(policy.id),
        name: policy.name.into(),
        creation_policy: types(policy.storage_types),
        // A policy without fallbacks has no such field, as with Apache's NameNode.
        creation_fallback_policy: some(policy.creation_fallbacks),
        replication_fallback_policy: some(policy.replication_fallbacks),
    }
}

pub async fn get_storage_policies(
    _: &Namenode,
    _: &CallContext,
    _: GetStoragePoliciesRequestProto,
) -> Result<Bytes, Error> {
    Ok(encode(&GetStoragePoliciesResponseProto { policies: POLICIES.iter().map(policy_to_wire).collect() }))
}

/// Returns the policy in force for a path; always a real one.
pub async fn get_storage_policy(
    namenode: &Namenode,
    context: &CallContext,
    request: GetStoragePolicyRequestProto,
) -> Result<Bytes, Error> {
    let state = namenode.read();
    let missing = |path| Error::FileOrDirectoryMissing { path };
    let (trail, slot) = state.namespace.resolve_existing(&context.caller, &request.path, Purpose::Read, missing)?;
    state.namespace.check(&context.caller, &trail, Need { target: Some(Access::READ), ..Need::default() })?;
    let number = match state.namespace.storage_policy(slot).number {
        0 => namenode.settings.defaults.storage_policy,
        number => number,
    };
    let policy =
        StoragePolicy::by_id(number).ok_or_else(|| Error::NoSuchPolicy { name: format!("of number {number}") })?;
    Ok(encode(&GetStoragePolicyResponseProto { storage_policy: policy_to_wire(policy) }))
}

pub async fn set_storage_policy(
    namenode: &Namenode,
    context: &CallContext,
    request: SetStoragePolicyRequestProto,
) -> Result<Bytes, Error> {
    let policy = policy_by_name(&request.policy_name)?;
    set(namenode, context, &request.src, policy.id, SetStoragePolicyResponseProto {}).await
}

pub fn audit_set_storage_policy(request: &SetStoragePolicyRequestProto) -> Audited {
    Audited::on("setStoragePolicy", &request.src).changed()
}

pub async fn unset_storage_policy(
    namenode: &Namenode,
    context: &CallContext,
    request: UnsetStoragePolicyRequestProto,
) -> Result<Bytes, Error> {
    set(namenode, context, &request.src, 0, UnsetStoragePolicyResponseProto {}).await
}

pub fn audit_unset_storage_policy(request: &UnsetStoragePolicyRequestProto) -> Audited {
    Audited::on("unsetStoragePolicy", &request.src).changed()
}

async fn set<M: prost::Message>(
    namenode: &Namenode,
    context: &CallContext,
    path: &str,
    number: u8,
    answer: M,
) -> Result<Bytes, Error> {
    namenode
        .change_once(context, |state, now| {
            if state.namespace.limits.superuser_sets_storage_policy {
                let operation = if number == 0 { "unsetStoragePolicy" } else { "setStoragePolicy" };
                state.namespace.require_superuser(&context.caller, operation)?;
            }
            namenode.check_safe_mode(state, now, || format!("set storage policy for {path}"))?;
            let slot = state.namespace.check_storage_policy(&context.caller, path)?;
            if state.namespace.is_file(slot) {
                if number == LAZY_PERSIST {
                    return Err(Error::PolicyOnlyAtCreation { policy: describe(number) });
                }
                if state.namespace.inode(slot).storage_policy() == LAZY_PERSIST {
                    return Err(Error::PolicyForGood { policy: "LAZY_PERSIST" });
                }
            }
            state.namespace.set_storage_policy(slot, number);
            state.propagate_policy(slot);
            Ok((answer, Remember::Yes))
        })
        .await
}

impl State {
    /// Gives the blocks below an inode the policy that is now in force: the inode's own, or an inherited one. This
    /// includes blocks that only snapshots contain, if their file still exists; blocks of deleted files keep their
    /// policy.
    pub fn propagate_policy(&mut self, top: Slot) {
        let mut waiting = vec![(top, self.namespace.storage_policy(top).number)];
        while let Some((slot, policy)) = waiting.pop() {
            match self.namespace.inode(slot).kind() {
                InodeKind::Directory(children) => waiting.extend(children.iter().filter_map(|child| {
                    // An inode with a policy of its own keeps it.
                    (self.namespace.inode(child).storage_policy() == 0).then_some((child, policy))
                })),
                InodeKind::File(file) => {
                    let kept = self.namespace.snapshot_blocks_of(slot).iter().copied();
                    for block in file.blocks().iter().chain(kept) {
                        self.blocks.set_policy(block.id, policy);
                    }
                }
            }
        }
    }
}

/// Text of a policy as Java prints it.
fn describe(number: u8) -> String {
    let Some(policy) = StoragePolicy::by_id(number) else { return number.to_string() };
    let names = |types: &[StorageType]| types.iter().map(|medium| medium.name()).collect::<Vec<_>>().join(", ");
    format!(
        "BlockStoragePolicy{{{}:{}, storageTypes=[{}], creationFallbacks=[{}], replicationFallbacks=[{}]}}",
        policy.name,
        policy.id,
        names(policy.storage_types),
        names(policy.creation_fallbacks),
        names(policy.replication_fallbacks)
    )
}
