//! Changes of a replica's state, one file each. All take the replica's `change` lock for their whole length.

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
