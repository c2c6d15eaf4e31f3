//! Listings of directories, page by page.

use std::collections::VecDeque;
use std::sync::Arc;

use hearth_types::FileStatus;
use hearth_wire::proto::hdfs::*;

use super::Namenode;
use super::files::converted;
use crate::Error;
use crate::error::Failure;
use crate::file_system::FileSystem;

impl FileSystem {
    /// Lists the entries of a directory page by page. For a file, the only entry is its own status.
    pub async fn list(&self, path: &str) -> Result<Listing, Error> {
        Listing::start(Arc::clone(&self.session.namenode), self.absolute(path)?).await
    }

    /// Returns all entries of a directory at once.
    pub async fn list_all(&self, path: &str) -> Result<Vec<FileStatus>, Error> {
        let mut listing = self.list(path).await?;
        let mut entries = Vec::new();
        while let Some(entry) = listing.next().await? {
            entries.push(entry);
        }
        Ok(entries)
    }
}

/// Iterator over the entries of a directory. They are fetched page by page, so a large directory is never held in
/// memory completely. Entries created or removed during the listing may or may not be seen.
#[derive(Debug)]
pub struct Listing {
    namenode: Arc<Namenode>,
    path: String,
    page: VecDeque<FileStatus>,
    /// Name of the last fetched entry.
    after: Vec<u8>,
    more: bool,
}

impl Listing {
    /// Fetches the first page, so that a missing directory is reported here.
    async fn start(namenode: Arc<Namenode>, path: String) -> Result<Self, Error> {
        let mut listing = Self { namenode, path, page: VecDeque::new(), after: Vec::new(), more: true };
        listing.fetch().await?;
        Ok(listing)
    }

    /// Returns the next entry, or `None` at the end. For a file, the only entry is its own status with an empty name.
    pub async fn next(&mut self) -> Result<Option<FileStatus>, Error> {
        while self.page.is_empty() && self.more {
            self.fetch().await?;
        }
        Ok(self.page.pop_front())
    }

    async fn fetch(&mut self) -> Result<(), Error> {
        match self.namenode.listing_page(&self.path, &self.after).await? {
            Some((entries, more)) => {
                if let Some(last) = entries.last() {
                    self.after.clone_from(&last.local_name);
                }
                self.page = entries.into();
                self.more = more;
                Ok(())
            }
            None => Err(Failure::NotFound { path: self.path.clone() }.into()),
        }
    }
}

impl Namenode {
    /// Fetches one page of a listing. Returns its entries, and true if more follow. `None` if the directory does not
    /// exist.
    async fn listing_page(&self, path: &str, after: &[u8]) -> Result<Option<(Vec<FileStatus>, bool)>, Error> {
        const METHOD: &str = "getListing";
        let request =
            GetListingRequestProto { src: path.to_owned(), start_after: after.to_vec().into(), need_location: false };
        let answer: GetListingResponseProto = self.call(METHOD, &request).await?;
        let Some(page) = answer.dir_list else { return Ok(None) };
        let entries: Result<Vec<_>, _> = page.partial_listing.into_iter().map(FileStatus::try_from).collect();
        let entries = converted(METHOD, entries)?;
        if entries.is_empty() && page.remaining_entries > 0 {
            let why = "an empty page although more entries remain".to_owned();
            return Err(Failure::Answer { method: METHOD, why }.into());
        }
        Ok(Some((entries, page.remaining_entries > 0)))
    }
}
