//! Calls to a NameNode, as bytes on the wire.

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use hearth_wire::proto::hdfs::{
    CompleteRequestProto, CompleteResponseProto, CreateRequestProto, CreateResponseProto, DeleteRequestProto,
    DeleteResponseProto, FsPermissionProto, GetBlockLocationsRequestProto, GetBlockLocationsResponseProto,
    GetFileInfoRequestProto, GetFileInfoResponseProto, MkdirsRequestProto, MkdirsResponseProto, RenameRequestProto,
    RenameResponseProto,
};
use hearth_wire::rpc::{ClientId, Outcome, decode_response, encode_call, protocols};
use prost::Message;

/// Operations, in the order in which they are made. Each works on the result of the earlier ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    Mkdirs,
    Create,
    /// Call that closes a created file.
    Complete,
    /// getBlockLocations.
    Open,
    /// getFileInfo.
    Stat,
    Rename,
    Delete,
}

pub const OPERATIONS: [Operation; 7] = [
    Operation::Mkdirs,
    Operation::Create,
    Operation::Complete,
    Operation::Open,
    Operation::Stat,
    Operation::Rename,
    Operation::Delete,
];

/// Number of files or directories in one directory, as in Hadoop's NNThroughputBenchmark.
const PER_DIRECTORY: usize = 100;

/// CreateFlagProto: CREATE and OVERWRITE, as Hadoop's clients send by default.
const CREATE_OR_OVERWRITE: u32 = 1 | 2;

/// CryptoProtocolVersionProto: ENCRYPTION_ZONES, which Java's clients name.
const ENCRYPTION_ZONES: i32 = 2;

impl Operation {
    pub fn name(self) -> &'static str {
        match self {
            Self::Mkdirs => "mkdirs",
            Self::Create => "create",
            Self::Complete => "complete",
            Self::Open => "open",
            Self::Stat => "stat",
            Self::Rename => "rename",
            Self::Delete => "delete",
        }
    }

    /// Returns the call's frame. `root`: the directory of this connection.
    pub fn call(self, root: &str, which: usize, client: ClientId, call_id: i32) -> Bytes {
        let path = |kind: &str, name: &str| format!("{root}/{kind}{}/{name}{which}", which / PER_DIRECTORY);
        let masked = |perm| FsPermissionProto { perm };
        let writer = format!("DFSClient_NONMAPREDUCE_{root}");
        match self {
            Self::Mkdirs => {
                let request = MkdirsRequestProto {
                    src: path("m", "directory"),
                    masked: masked(0o755),
                    create_parent: true,
                    unmasked: None,
                };
                encode(client, call_id, "mkdirs", &request)
            }
            Self::Create => {
                let request = CreateRequestProto {
                    src: path("f", "file"),
                    masked: masked(0o644),
                    client_name: writer,
                    create_flag: CREATE_OR_OVERWRITE,
                    create_parent: true,
                    replication: 1,
                    block_size: 128 << 20,
                    crypto_protocol_version: vec![ENCRYPTION_ZONES],
                    unmasked: None,
                    ec_policy_name: None,
                    storage_policy: None,
                };
                encode(client, call_id, "create", &request)
            }
            Self::Complete => {
                let request =
                    CompleteRequestProto { src: path("f", "file"), client_name: writer, last: None, file_id: None };
                encode(client, call_id, "complete", &request)
            }
            Self::Open => {
                let request = GetBlockLocationsRequestProto { src: path("f", "file"), offset: 0, length: 10 << 27 };
                encode(client, call_id, "getBlockLocations", &request)
            }
            Self::Stat => encode(client, call_id, "getFileInfo", &GetFileInfoRequestProto { src: path("f", "file") }),
            Self::Rename => {
                let request = RenameRequestProto { src: path("f", "file"), dst: path("f", "renamed") };
                encode(client, call_id, "rename", &request)
            }
            Self::Delete => {
                let request = DeleteRequestProto { src: path("f", "renamed"), recursive: false };
                encode(client, call_id, "delete", &request)
            }
        }
    }

    /// Checks that an answer reports success. Returns the id of its call.
    pub fn check(self, answer: Bytes) -> Result<i32> {
        let (number, message) = success(answer)?;
        let done = match self {
            Self::Mkdirs => MkdirsResponseProto::decode(message)?.result,
            Self::Create => CreateResponseProto::decode(message)?.fs.is_some(),
            Self::Complete => CompleteResponseProto::decode(message)?.result,
            Self::Open => GetBlockLocationsResponseProto::decode(message)?.locations.is_some(),
            Self::Stat => GetFileInfoResponseProto::decode(message)?.fs.is_some(),
            Self::Rename => RenameResponseProto::decode(message)?.result,
            Self::Delete => DeleteResponseProto::decode(message)?.result,
        };
        if !done {
            bail!("the NameNode did not {}", self.name());
        }
        Ok(number)
    }
}

/// Returns the call that removes everything that one connection has made.
pub fn remove(root: &str, client: ClientId, call_id: i32) -> Bytes {
    encode(client, call_id, "delete", &DeleteRequestProto { src: root.to_owned(), recursive: true })
}

/// Returns the id of a call and its result.
pub fn success(answer: Bytes) -> Result<(i32, Bytes)> {
    let answer = decode_response(answer).context("an answer of the NameNode")?;
    match answer.outcome {
        Outcome::Success(message) => Ok((answer.call_id, message)),
        Outcome::Error(error) => bail!("{}: {}", error.class, error.message.lines().next().unwrap_or_default()),
    }
}

fn encode(client: ClientId, call_id: i32, method: &str, request: &impl Message) -> Bytes {
    encode_call(call_id, client, 0, protocols::CLIENT, method, request)
}
