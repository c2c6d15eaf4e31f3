//! WebHDFS: the same requests, single ones and through `hdfs dfs -fs webhdfs://`, are answered as by Apache's servers.
//! Files written over one protocol can be read over the other.

mod attributes;
mod commands;
mod files;
mod matrix;
mod names;
mod refusals;
mod snapshots;
mod transcript;

use std::process::ExitCode;

use hearth_interop::{Check, Suite, run};
use hearth_testkit::ClusterSpec;

const BLOCK: usize = 1 << 20;

const CHECKS: &[Check] = &[
    ("files_are_written_and_read_in_two_steps", files::in_two_steps),
    ("datanodes_answer_direct_requests", files::at_the_datanode),
    ("names_are_created_listed_renamed_and_deleted", names::names),
    ("attributes_are_set_and_read", attributes::attributes),
    ("snapshots_are_created_and_listed", snapshots::snapshots),
    ("invalid_requests_are_refused_like_apaches", refusals::refusals),
    ("operations_and_parameters_match_apaches", matrix::matrix),
    ("excluded_datanodes_match_apaches", matrix::excluded),
    ("append_without_enough_datanodes_is_refused", matrix::too_few),
    ("redundant_slashes_match_apaches", matrix::slashes),
    ("hdfs_dfs_commands_match_apaches", commands::said_alike),
    ("hdfs_dfs_puts_and_gets_files_of_many_blocks", commands::many_blocks),
    ("each_protocol_reads_what_the_other_wrote", commands::by_both_protocols),
];

fn main() -> ExitCode {
    let clusters = ClusterSpec::every_combination().map(|spec| {
        spec.set("dfs.blocksize", BLOCK)
            // The default of clients, although there is no other DataNode.
            .set("dfs.client.block.write.replace-datanode-on-failure.policy", "DEFAULT")
            // So that even a short list is sent in parts.
            .set("dfs.ls.limit", 3)
            // Otherwise Java's client, which Apache's DataNode uses to write, sleeps 400 ms in most closes.
            .set("dfs.client.block.write.locateFollowingBlock.initial.delay.ms", 2)
            .set("dfs.client.block.write.locateFollowingBlock.retries", 14)
    });
    run(&[Suite { name: "webhdfs", clusters: clusters.to_vec(), checks: CHECKS }])
}
