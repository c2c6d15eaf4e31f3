//! Users' home directories, and their trash directories.

use bytes::Bytes;
use hearth_web::axum::response::Response;
use hearth_web::webhdfs::Exception;
use hearth_wire::proto::hdfs::hdfs_file_status_proto::FileType;
use hearth_wire::proto::hdfs::{GetEzForPathRequestProto, GetEzForPathResponseProto, HdfsFileStatusProto};
use serde_json::{Value, json};

use super::listing::where_it_goes_on;
use super::status::mode;
use super::{Answer, Operation, answer, list, lossy};

/// Name of the trash in a user's directory.
const TRASH: &str = ".Trash";

/// A trash directory with its path; for another user's trash the status is that of the user's directory. Source:
/// `FileSystem.getTrashRoots`.
type TrashRoot = (String, HdfsFileStatusProto);

impl Operation {
    fn home(&self) -> String {
        format!("{}/{}", self.webhdfs.homes, self.caller.user)
    }

    pub(super) fn home_directory(&self) -> Response {
        answer(&json!({ "Path": self.home() }))
    }

    /// Answers the caller's own trash for any path: there are no encryption zones.
    pub(super) async fn trash_root(&self) -> Answer {
        let request = GetEzForPathRequestProto { src: parent(&self.path).to_owned() };
        self.call::<GetEzForPathResponseProto>("getEZForPath", &request).await?;
        Ok(answer(&json!({ "Path": format!("{}/{TRASH}", self.home()) })))
    }

    /// Answers all trash directories found before an error occurred.
    pub(super) async fn trash_roots(&self) -> Answer {
        let mut found = Vec::new();
        let looked = match self.parameters.flag("allusers", false)? {
            true => self.add_all_trash_roots(&mut found).await,
            false => self.add_own_trash_root(&mut found).await,
        };
        if let Err(refusal) = looked {
            tracing::debug!(%refusal, "cannot find every user's trash");
        }
        if found.is_empty() {
            return Ok(answer(&json!({ "Paths": null })));
        }
        Ok(list("{\"Paths\":[".to_owned(), found, trash_root, "]}".to_owned()))
    }

    async fn add_own_trash_root(&self, found: &mut Vec<TrashRoot>) -> Result<(), Exception> {
        let path = format!("{}/{TRASH}", self.home());
        let status = self.status_of(&path).await?;
        found.extend(status.map(|status| (path, status)));
        Ok(())
    }

    async fn add_all_trash_roots(&self, found: &mut Vec<TrashRoot>) -> Result<(), Exception> {
        let homes = self.webhdfs.homes.trim_end_matches('/');
        let top = if homes.is_empty() { "/" } else { homes };
        if self.status_of(top).await?.is_none() {
            return Ok(());
        }
        let mut after = Bytes::new();
        loop {
            let page = self.page(top, after).await?;
            let next = where_it_goes_on(&page);
            for home in page.partial_listing {
                let path = format!("{homes}/{}/{TRASH}", lossy(&home.path));
                if self.status_of(&path).await?.is_some() {
                    found.push((path, home));
                }
            }
            match next {
                Some(last) => after = last,
                None => return Ok(()),
            }
            // Lets other tasks run.
            tokio::task::yield_now().await;
        }
    }
}

/// Returns the parent of a path; the root is its own parent.
fn parent(path: &str) -> &str {
    match path.rsplit_once('/') {
        Some(("", _)) => "/",
        Some((above, _)) => above,
        None => path,
    }
}

/// Source: `JsonUtil.toJsonMap(FileStatus)`.
fn trash_root((path, status): &TrashRoot) -> Value {
    json!({
        "path": path,
        "length": status.length as i64,
        "isdir": status.file_type() == FileType::IsDir,
        "block_replication": status.block_replication(),
        "blocksize": status.blocksize() as i64,
        "modification_time": status.modification_time as i64,
        "access_time": status.access_time as i64,
        "permission": mode(status.permission.perm),
        "owner": status.owner,
        "group": status.group,
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn parents_of_paths_match_java() {
        let parents = ["/", "/a", "/a/b", "/a/b/"].map(super::parent);
        assert_eq!(parents, ["/", "/", "/a", "/a/b"]);
    }
}
