//! Apache's libhdfs, the C interface of HDFS, without a JVM.
//!
//! `include/hdfs.h` declares the functions with Apache's names, types and error numbers, so programs that were built
//! against Apache's library run on this one. `include/hearth.h` declares what goes beyond it (`batch`).
//!
//! Each function converts its arguments, calls the Rust client on the runtime of this process
//! ([`hearth_client::process`]), and converts the result (`failure::call`). `memory` has all code that touches
//! memory of C; the other modules contain no `unsafe` block.
//!
//! # Rules for C programs
//!
//! - All functions may be called by several threads at the same time, also on one file. Calls that move the position of
//!   a file, and writes, run one after another.
//! - A child made by `fork` may use a file system of its parent, to which it gets connections of its own. A file that
//!   was open at the fork, and a future of one, fail there with `EBADF`: open the file again. Views and buffers without a
//!   copy can still be read, because the child inherits their memory. Whatever of these the child closes or frees is
//!   only given up: the parent's runtime, locks, connections and counts stay as they are
//!   ([`hearth_client::process::OfProcess`]).
//! - A panic of the library is an error of the call with `EINTERNAL`.

// The names are Apache's.
#![allow(non_snake_case)]

mod batch;
mod configuration;
mod connect;
mod failure;
mod file;
mod file_system;
mod memory;
mod names;
mod open;
mod open_future;
mod read;
mod status;
mod write;
mod zero_copy;
