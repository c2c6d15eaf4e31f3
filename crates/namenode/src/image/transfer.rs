//! `/imagetransfer`: the image over HTTP, for `hdfs dfsadmin -fetchImage` and `hearth admin -backup`.
//!
//! As in Apache's NameNode without security, every caller may fetch it. A caller that names another namespace is
//! refused. Each request has a new image made. Source: ImageServlet, `common/Util.java`.

use std::sync::Arc;

use hearth_types::PoolIdentity;
use hearth_web::{FileAnswer, Query, Refusal};

use super::{ImageError, ImageFile, LAYOUT_VERSION, hex, image_name};
use crate::state::Namenode;

/// Answers a request for an image.
///
/// Errors: 403 for another namespace, 400 for a malformed request, 410 if there is no such image, as Apache answers.
pub async fn image_transfer(namenode: Arc<Namenode>, query: Query) -> Result<FileAnswer, Refusal> {
    let own = storage_info(&namenode.identity);
    if let Some(theirs) = query.get("storageInfo").filter(|theirs| **theirs != own) {
        let text = format!("This namenode has storage info {own} but the secondary expected {theirs}");
        return Err(Refusal { status: 403, text });
    }
    let gone = |what: &str| Refusal { status: 410, text: format!("GetImage failed. {what}") };
    if query.contains_key("getedit") {
        return Err(gone("This NameNode has no edit log to transfer: fetch its image"));
    }
    if !query.contains_key("getimage") {
        return Err(Refusal { status: 400, text: "Illegal parameters to TransferFsImage".to_owned() });
    }
    let txid = query.get("txid").map_or("", String::as_str);
    if txid != "latest" {
        return Err(gone(&format!("Could not find image with txid {txid}: ask for txid=latest")));
    }
    match namenode.images.unnamed(&namenode).await {
        Ok(image) => Ok(answer(&namenode.identity, image)),
        Err(error) => {
            tracing::warn!(%error, "cannot write an image for a client");
            let status = if matches!(error, ImageError::NoSpace { .. }) { 507 } else { 410 };
            Err(Refusal { status, text: format!("GetImage failed. {error}") })
        }
    }
}

fn answer(identity: &PoolIdentity, image: ImageFile) -> FileAnswer {
    let name = image_name(image.written.txid);
    let headers = vec![
        ("X-MD5-Digest", hex(&image.written.md5)),
        ("Content-Disposition", format!("attachment; filename={name}")),
        ("X-Image-Edits-Name", name),
        // What Apache's transfer does not tell, and a directory for its NameNode needs.
        ("X-Hearth-Block-Pool", identity.pool.to_string()),
        ("X-Hearth-Storage-Info", storage_info(identity)),
    ];
    FileAnswer { file: image.file, length: image.written.bytes, headers }
}

/// Returns layout, namespace, time and cluster, as callers name them. Source: `StorageInfo.toColonSeparatedString`.
fn storage_info(identity: &PoolIdentity) -> String {
    format!("{LAYOUT_VERSION}:{}:{}:{}", identity.namespace_id, identity.created_ms, identity.cluster_id)
}
