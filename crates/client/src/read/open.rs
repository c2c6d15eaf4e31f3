//! Opening of files for reading, and reads of many files at once.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use hearth_types::{ByteRange, LocatedBlock, LocatedBlocks};
use tokio::time::Instant;

use super::candidate::Checks;
use super::locate::Locations;
use super::many::{CONCURRENT_READS, Collected, FileRange, read_ranges, visit_ranges};
use super::{PositionedReader, Reader};
use crate::Error;
use crate::error::Failure;
use crate::file_system::FileSystem;
use crate::session::Session;

/// Time that [`FileSystem::is_on_hearth`] waits for each datanode.
const OFFER_TIMEOUT: Duration = Duration::from_secs(2);

/// Number of files that are opened first, before any is read. While they are read, twice as many are opened, and so on, so
/// that few round trips are waited for.
const OPENED_FIRST: usize = 64;

impl FileSystem {
    /// Opens a file for reading.
    pub async fn open(&self, path: &str) -> Result<Reader, Error> {
        Reader::open_traced(&self.session, self.absolute(path)?, Checks::All).await
    }

    /// Opens a file for reading without verification. Reads return the bytes as the DataNodes stored them, even if they
    /// do not match their checksums. Such reads use TCP only.
    pub async fn open_unverified(&self, path: &str) -> Result<Reader, Error> {
        Reader::open_traced(&self.session, self.absolute(path)?, Checks::None).await
    }

    /// Opens a file for reading whose blocks the caller has located already, without a call to the namenode. For programs
    /// with another HDFS client in the same process. `located`: the namenode's answer for a range of the file. If its
    /// last block is being written, the length of `last_block` is the number of bytes that readers may see.
    ///
    /// Errors: kind `InvalidPath`. A file that was replaced since is an error of the first read that needs the namenode.
    pub fn open_located(&self, path: &str, located: LocatedBlocks) -> Result<Reader, Error> {
        let path = self.absolute(path)?;
        let locations = Locations::located(Arc::clone(&self.session), path, located);
        Ok(Reader::of(Arc::clone(&self.session), locations))
    }

    /// Returns true if a Hearth datanode has a replica of the block. Asks datanodes that this client does not know. One
    /// that does not answer within two seconds is not asked again for a minute. One that was Hearth's counts as such
    /// while it does not answer.
    ///
    /// Errors: kind `Unreachable`: no datanode is known to be Hearth's, and not all answer. Ask again later.
    pub async fn is_on_hearth(&self, block: &LocatedBlock) -> Result<bool, Error> {
        let datanodes = &self.session.datanodes;
        block.locations.iter().for_each(|datanode| datanodes.offers.note(datanode));
        let asking = block
            .locations
            .iter()
            .map(|datanode| async move { datanodes.is_hearth(&datanode.id, OFFER_TIMEOUT).await });
        let mut asking = stream::iter(asking).buffer_unordered(CONCURRENT_READS);
        let mut source = None;
        while let Some(answer) = asking.next().await {
            match answer {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                Err(error) => source = Some(Arc::new(error)),
            }
        }
        // A block without datanodes may get them back.
        if source.is_none() && !block.locations.is_empty() {
            return Ok(false);
        }
        Err(Failure::Unidentified { block: Box::new(block.block.clone()), source }.into())
    }

    /// Opens each of `paths` for reading and returns the results in the same order. Hearth's namenode needs one call;
    /// others get concurrent calls.
    pub async fn open_many(&self, paths: &[&str]) -> Vec<Result<Reader, Error>> {
        let mut absolute = Vec::with_capacity(paths.len());
        let places: Vec<_> = paths.iter().map(|path| self.absolute(path).map(|path| absolute.push(path))).collect();
        let mut opened = open_many(&self.session, absolute).await.into_iter();
        places.into_iter().map(|place| place.and_then(|()| opened.next().expect("an outcome for each path"))).collect()
    }

    /// Reads each of `paths` completely and returns the contents in the same order. Meant for many small files: they
    /// are opened together, and those on the same datanode are fetched together.
    pub async fn read_files(&self, paths: &[&str]) -> Vec<Result<Vec<u8>, Error>> {
        let whole = ByteRange::new(0, u64::MAX).expect("a range");
        let wanted: Vec<_> = paths.iter().map(|path| (*path, whole)).collect();
        self.read_many(&wanted).await
    }

    /// Like [`FileSystem::read_files`], but reads a range of each file. A range that extends beyond the end of its file
    /// is cut there.
    pub async fn read_many(&self, wanted: &[(&str, ByteRange)]) -> Vec<Result<Vec<u8>, Error>> {
        let mut collected = Collected::new(wanted.len());
        self.visit_many(wanted, |index, bytes| collected.put(index, bytes)).await;
        collected.all()
    }

    /// Like [`FileSystem::read_many`], but without a copy. `visit` is called once per entry of `wanted`, with its index
    /// and its verified bytes, in the order of arrival. The remaining reads wait while `visit` runs.
    pub async fn visit_many(
        &self,
        wanted: &[(&str, ByteRange)],
        mut visit: impl FnMut(usize, Result<Cow<'_, [u8]>, Error>) + Send,
    ) {
        let (mut part, mut rest) = wanted.split_at(wanted.len().min(OPENED_FIRST));
        let (mut opened, mut first) = (self.open_part(part).await, 0);
        loop {
            let ranges = part.iter().map(|(_, range)| *range).collect();
            let reading = visit_opened(&self.session, opened, ranges, |index, bytes| visit(first + index, bytes));
            if rest.is_empty() {
                return reading.await;
            }
            let (next, behind) = rest.split_at(rest.len().min(2 * part.len()));
            ((), opened) = tokio::join!(reading, self.open_part(next));
            first += part.len();
            (part, rest) = (next, behind);
        }
    }

    async fn open_part(&self, part: &[(&str, ByteRange)]) -> Vec<Result<Reader, Error>> {
        let paths: Vec<_> = part.iter().map(|(path, _)| *path).collect();
        self.open_many(&paths).await
    }

    /// Reads ranges of open files, all requested at once, and returns the bytes in the order of `wanted`. A range that
    /// extends beyond the end of its file is cut there.
    pub async fn read_ranges(&self, wanted: &[(&PositionedReader, ByteRange)]) -> Vec<Result<Vec<u8>, Error>> {
        let wanted = wanted.iter().map(|(reader, range)| reader.range(*range)).collect();
        read_ranges(&self.session, wanted).await
    }
}

/// Opens each of `paths`, which must be absolute, in order.
async fn open_many(session: &Arc<Session>, paths: Vec<String>) -> Vec<Result<Reader, Error>> {
    let asked = Instant::now();
    let mut located = session.namenode.open_many(&paths, 0, session.options.read.prefetch_bytes).await;
    located.iter_mut().flatten().for_each(|located| session.take_piggybacked(located, asked));
    let mut opened = Vec::with_capacity(located.len());
    // Datanodes are asked only for files that are being written, for several files at the same time.
    let mut asking = Vec::new();
    for (path, located) in paths.into_iter().zip(located) {
        opened.push(match located {
            Ok(located) if located.has_open_block() => {
                asking.push((opened.len(), path, located));
                None
            }
            Ok(located) => Some(Ok(Reader::of(Arc::clone(session), Locations::of(Arc::clone(session), path, located)))),
            Err(error) => Some(Err(error)),
        });
    }
    let asking = asking
        .into_iter()
        .map(|(index, path, located)| async move { (index, Reader::open(Arc::clone(session), path, located).await) });
    let mut asking = stream::iter(asking).buffer_unordered(CONCURRENT_READS);
    while let Some((index, reader)) = asking.next().await {
        opened[index] = Some(reader);
    }
    opened.into_iter().map(|reader| reader.expect("each file was opened in one of the two loops")).collect()
}

/// Calls `visit` with a range of each file, like [`visit_ranges`], or with the error that prevented opening it.
async fn visit_opened(
    session: &Arc<Session>,
    opened: Vec<Result<Reader, Error>>,
    ranges: Vec<ByteRange>,
    mut visit: impl FnMut(usize, Result<Cow<'_, [u8]>, Error>) + Send,
) {
    let (mut found, mut places) = (Vec::with_capacity(opened.len()), Vec::with_capacity(opened.len()));
    for (index, (opened, range)) in opened.into_iter().zip(ranges).enumerate() {
        match opened {
            Ok(reader) => {
                places.push(index);
                found.push(FileRange { replicas: reader.replicas, range });
            }
            Err(error) => visit(index, Err(error)),
        }
    }
    visit_ranges(session, found, |place, bytes| visit(places[place], bytes)).await;
}
