//! `hearth version`: the version, and what tells one build from another.

use std::process::ExitCode;

/// Compression formats that `hearth fs -text` reads.
const CODECS: &str = "bzip2, deflate, gzip, lz4, snappy, zstd";

/// What is built in only with the cargo feature of the same name.
const TRACING: &str = if cfg!(feature = "opentelemetry") { ", OpenTelemetry" } else { "" };

/// Returns the lines of `hearth version`, without the program's name.
pub fn text() -> String {
    format!(
        "{} (Hadoop wire version 9, data transfer version 28)\n\
         commit:   {}\n\
         target:   {} ({})\n\
         features: RDMA (loads libibverbs and librdmacm at run time), WebHDFS, mimalloc{TRACING}\n\
         codecs:   {CODECS}",
        env!("CARGO_PKG_VERSION"),
        env!("HEARTH_COMMIT"),
        env!("HEARTH_TARGET"),
        env!("HEARTH_PROFILE"),
    )
}

/// Sets the build that the servers of this process report among their metrics.
pub fn report_to_metrics() {
    hearth_web::set_build_info(hearth_web::BuildInfo {
        version: env!("CARGO_PKG_VERSION"),
        commit: env!("HEARTH_COMMIT"),
        features: if cfg!(feature = "opentelemetry") {
            "rdma,webhdfs,mimalloc,opentelemetry"
        } else {
            "rdma,webhdfs,mimalloc"
        },
    });
}

pub fn run() -> anyhow::Result<ExitCode> {
    super::end_with_closed_output();
    println!("hearth {}", text());
    Ok(ExitCode::SUCCESS)
}
