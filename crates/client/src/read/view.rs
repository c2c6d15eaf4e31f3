//! Views: bytes of a file that are shown in the datanode's memory, or copied if they cannot be shown.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use hearth_fabric::local;
use hearth_types::ChecksumError;

use crate::short_circuit::LocalReplica;

/// Verification of the bytes that a [`View`] shows in the datanode's memory. Copies are always verified.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum ViewChecks {
    /// The bytes match their CRCs. The datanode has verified them and says so ([`View::is_anchored`]), or they are
    /// compared here.
    #[default]
    Verified,
    /// The bytes are compared with their CRCs here, also if the datanode has verified them.
    VerifiedHere,
    /// The bytes are shown as they are.
    Unverified,
}

/// Bytes that are verified before other tasks get their turn on this thread.
const BYTES_BETWEEN_YIELDS: usize = 4 << 20;

/// Bytes of a file, as `&[u8]`: in the datanode's own memory if possible, else a copy.
///
/// The memory does not change while the view lives, even if the file is changed or deleted.
pub struct View {
    bytes: Bytes,
}

enum Bytes {
    Shown {
        replica: Arc<LocalReplica>,
        /// Offset from the start of the block.
        start: usize,
        end: usize,
        /// The datanode counts this view.
        anchored: bool,
    },
    Copied(Vec<u8>),
}

impl View {
    /// Returns bytes `[start, end)` of a block, or `None` if its replica is not mapped.
    pub(super) fn of(replica: &Arc<LocalReplica>, start: u64, end: u64) -> Option<Self> {
        replica.mapped()?;
        let (replica, anchored) = (Arc::clone(replica), replica.anchor());
        Some(Self { bytes: Bytes::Shown { replica, start: start as usize, end: end as usize, anchored } })
    }

    pub(super) fn copied(bytes: Vec<u8>) -> Self {
        Self { bytes: Bytes::Copied(bytes) }
    }

    /// Returns true if these are the datanode's bytes and not a copy.
    pub fn is_shown(&self) -> bool {
        matches!(self.bytes, Bytes::Shown { .. })
    }

    /// Returns true if the datanode counts this view. It then keeps the replica in memory while the view lives, and has
    /// verified it.
    pub fn is_anchored(&self) -> bool {
        matches!(self.bytes, Bytes::Shown { anchored: true, .. })
    }

    /// Verifies the bytes as far as `checks` asks for it.
    ///
    /// Errors: see `verify`.
    pub(super) async fn check(&self, checks: ViewChecks) -> Result<(), ChecksumError> {
        let Bytes::Shown { replica, start, end, anchored } = &self.bytes else { return Ok(()) };
        let is_enough = match checks {
            ViewChecks::Verified => *anchored,
            ViewChecks::VerifiedHere => false,
            ViewChecks::Unverified => true,
        };
        let Some(all) = replica.mapped().filter(|_| !is_enough) else { return Ok(()) };
        let mut at = *start;
        while at < *end {
            let next = (at + BYTES_BETWEEN_YIELDS).min(*end);
            all.verify(at, next)?;
            at = next;
            if at < *end {
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }

    /// Verifies the bytes against their CRCs. A copy was verified when it was made.
    ///
    /// Errors: the first chunk of the block that does not match.
    pub fn verify(&self) -> Result<(), ChecksumError> {
        match &self.bytes {
            Bytes::Shown { replica, start, end, .. } => replica.mapped().map_or(Ok(()), |all| all.verify(*start, *end)),
            Bytes::Copied(_) => Ok(()),
        }
    }
}

impl View {
    /// Fills `into` with the bytes from `offset` of the view on, and verifies them in the same pass.
    ///
    /// Errors: the first chunk of the block that does not match. `into` is then unspecified.
    ///
    /// Panics if the view has fewer bytes.
    pub fn copy(&self, offset: usize, into: &mut [u8]) -> Result<(), ChecksumError> {
        assert!(offset + into.len() <= self.len(), "{} bytes at {offset} of {}", into.len(), self.len());
        match &self.bytes {
            Bytes::Shown { replica, start, .. } => {
                replica.mapped().map_or(Ok(()), |all| all.copy(*start + offset, into))
            }
            Bytes::Copied(bytes) => {
                local::copy(&bytes[offset..][..into.len()], into);
                Ok(())
            }
        }
    }
}

impl Deref for View {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Shown { replica, start, end, .. } => replica.mapped().map_or(&[], |all| &all.data[*start..*end]),
            Bytes::Copied(bytes) => bytes,
        }
    }
}

impl From<View> for bytes::Bytes {
    /// Converts without a copy: the bytes stay where they are, and hold the view.
    fn from(view: View) -> Self {
        Self::from_owner(view)
    }
}

impl AsRef<[u8]> for View {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for View {
    fn drop(&mut self) {
        if let Bytes::Shown { replica, anchored: true, .. } = &self.bytes {
            replica.release_anchor();
        }
    }
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View").field("length", &self.len()).field("shown", &self.is_shown()).finish()
    }
}
