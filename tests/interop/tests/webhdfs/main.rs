//! WebHDFS: the same requests, one by one and through `hdfs dfs -fs webhdfs://`, are answered as by Apache's servers, and what one
//! protocol wrote the other reads.

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
    ("datanodes_answer_whoever_comes_without_a_namenode", files::at_the_datanode),
    ("names_are_made_told_moved_and_removed", names::names),
    ("attributes_are_set_and_told", attributes::attributes),
    ("snapshots_are_made_and_told", snapshots::snapshots),
    ("what_cannot_be_is_refused_alike", refusals::refusals),
    ("every_operation_and_parameter_is_answered_alike", matrix::matrix),
    ("excluded_datanodes_are_left_out_alike", matrix::excluded),
    ("append_is_refused_for_want_of_datanodes_alike", matrix::too_few),
    ("paths_with_more_slashes_are_taken_alike", matrix::slashes),
    ("commands_of_hdfs_dfs_do_and_say_the_same", commands::said_alike),
    ("hdfs_dfs_puts_and_gets_files_of_many_blocks", commands::many_blocks),
    ("each_protocol_reads_what_the_other_wrote", commands::by_both_protocols),
];

fn main() -> ExitCode {
    let clusters = ClusterSpec::every_combination().map(|spec| {
        spec.set("dfs.blocksize", BLOCK)
            // As clients have it by default, though there is no other DataNode.
            .set("dfs.client.block.write.replace-datanode-on-failure.policy", "DEFAULT")
            // So that a short list is told in parts.
            .set("dfs.ls.limit", 3)
            // Else Java's client, which Apache's DataNode writes with, sleeps 400 ms in most closes.
            .set("dfs.client.block.write.locateFollowingBlock.initial.delay.ms", 2)
            .set("dfs.client.block.write.locateFollowingBlock.retries", 14)
    });
    run(&[Suite { name: "webhdfs", clusters: clusters.to_vec(), checks: CHECKS }])
}
