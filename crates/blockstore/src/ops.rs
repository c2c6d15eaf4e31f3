//! Operations that change a replica's state, one file each. All hold the replica's `change` lock throughout.

mod append;
mod create;
mod evacuate;
mod finalize;
mod invalidate;
mod recover_block;
mod recover_pipeline;
mod relocate;
#[cfg(test)]
mod tests;
