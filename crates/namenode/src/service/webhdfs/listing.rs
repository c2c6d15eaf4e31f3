//! Directory listings: as a whole, and a page at a time.

use bytes::Bytes;
use hearth_web::webhdfs::{Exception, stream_json};
use hearth_web::{Disconnected, TextSender};
use hearth_wire::proto::hdfs::{
    DirectoryListingProto, GetListingRequestProto, GetListingResponseProto, HdfsFileStatusProto,
};
use serde_json::{Value, json};

use super::status::status;
use super::{Answer, Operation, answer, missing, text};

/// Text around the entries, which are one per line.
const BEFORE: &str = "{\"FileStatuses\":{\"FileStatus\":[\n";
const AFTER: &str = "\n]}}\n";

impl Operation {
    /// Returns the entries after a name, as many as one call returns.
    pub(super) async fn page(&self, path: &str, start_after: Bytes) -> Result<DirectoryListingProto, Exception> {
        let request = GetListingRequestProto { src: path.to_owned(), start_after, need_location: false };
        let found: GetListingResponseProto = self.call("getListing", &request).await?;
        found.dir_list.ok_or_else(|| missing(format!("File {path} does not exist.")))
    }

    /// Lists the whole directory. For a large one, each page is fetched when the client has taken most of the page
    /// before; if a fetch is refused, the answer is cut off.
    pub(super) async fn list_status(&self) -> Answer {
        let first = self.page(&self.path, Bytes::new()).await?;
        let mut said = BEFORE.to_owned();
        push_entries(&mut said, &first.partial_listing);
        let Some(after) = where_it_goes_on(&first) else {
            said.push_str(AFTER);
            return Ok(text(said));
        };
        let asked = self.clone();
        Ok(stream_json(move |telling| asked.continue_list(said, after, telling)))
    }

    /// Sends the rest of a listing. `said`: text that is still to be sent before the entry that follows `after`.
    async fn continue_list(self, mut said: String, mut after: Bytes, telling: TextSender) -> Result<(), Disconnected> {
        loop {
            telling.send(std::mem::take(&mut said)).await?;
            let page = self.page(&self.path, after).await.map_err(|refusal| {
                tracing::debug!(path = self.path, %refusal, "a listing over HTTP was cut off");
                Disconnected
            })?;
            if !page.partial_listing.is_empty() {
                said.push_str(",\n");
            }
            push_entries(&mut said, &page.partial_listing);
            match where_it_goes_on(&page) {
                Some(last) => after = last,
                None => break,
            }
        }
        said.push_str(AFTER);
        telling.send(said).await
    }

    pub(super) async fn list_status_batch(&self) -> Answer {
        let start_after = self.parameters.text("startafter").unwrap_or_default().to_owned();
        let page = self.page(&self.path, start_after.into()).await?;
        let entries: Vec<Value> = page.partial_listing.iter().map(status).collect();
        Ok(answer(&json!({ "DirectoryListing": {
            "partialListing": { "FileStatuses": { "FileStatus": entries } },
            "remainingEntries": page.remaining_entries,
        }})))
    }
}

fn push_entries(said: &mut String, entries: &[HdfsFileStatusProto]) {
    for (nth, entry) in entries.iter().enumerate() {
        if nth > 0 {
            said.push_str(",\n");
        }
        said.push_str(&status(entry).to_string());
    }
}

/// Returns the name after which the next page begins; `None` if this is the last page.
pub fn where_it_goes_on(page: &DirectoryListingProto) -> Option<Bytes> {
    let last = page.partial_listing.last().filter(|_| page.remaining_entries > 0)?;
    // A slice of the page would keep all of it alive.
    Some(Bytes::copy_from_slice(&last.path))
}
