//! Tests of the block map against simulated datanodes: plain structs that obey its commands.

mod advertised;
mod cache;
mod cluster;
mod connections;
mod convergence;
mod life_cycle;
mod maintenance;
mod placement;
mod recovery;
mod redundancy;
mod registration;
mod safe_mode;
mod scale;
mod scheduling;
