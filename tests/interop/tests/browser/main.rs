//! The user interface of both servers in a real browser, without network: every page in light and dark, on wide and
//! narrow windows; what can be done with files; names that would run scripts if they were not treated as text; levels of
//! the log; states that need an operator, such as a DataNode that leaves and a block without a replica.
//!
//! Pictures of all pages are written to `target/browser/`, for a person to look at.

#![expect(clippy::disallowed_methods, reason = "the browser is another process: waits for it take real time")]

mod devtools;
mod files;
mod levels;
mod pages;
mod states;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use hearth_client::os_user_name;
use hearth_interop::{Check, Session, Suite, run};
use hearth_testkit::{ClusterSpec, HttpBody, HttpRequest, Implementation, skip_or_fail, workspace_root};
use serde_json::json;

use devtools::Browser;

const CHECKS: &[Check] = &[
    ("the_user_who_acts_can_be_chosen", pages::user),
    ("files_are_uploaded_shown_changed_and_deleted", files::life_of_a_file),
    ("directories_are_listed_in_pages", files::paging),
    ("names_with_markup_are_shown_as_text", files::hostile_names),
    ("snapshots_are_made_and_browsed", pages::snapshots),
    ("addresses_of_apaches_pages_lead_to_the_same", pages::apaches_addresses),
    ("every_page_is_shown_in_both_colours_and_widths", pages::every_page),
    ("levels_of_the_log_are_shown_changed_and_reset", levels::levels),
    // These change the cluster. The order is that of their needs: the last ones end DataNodes.
    ("datanodes_that_leave_and_rest_are_shown", states::leaving_and_maintenance),
    ("a_failed_volume_is_shown", states::failed_volume),
    ("a_corrupt_block_is_listed", states::corrupt_block),
    ("a_start_in_safe_mode_a_read_only_port_and_a_missing_block_are_shown", states::start_without_a_datanode),
    ("a_dead_datanode_is_shown", pages::dead_datanode),
];

fn main() -> ExitCode {
    if let Err(missing) = devtools::find() {
        skip_or_fail("browser::*", &missing);
        return ExitCode::SUCCESS;
    }
    let make = Implementation::Hearth;
    let cluster = ClusterSpec::new(make, make)
        .datanodes(2)
        // The name to which the browser is sent for data.
        .set("dfs.datanode.hostname", "127.0.0.1")
        .set("hearth.memory.limit", "64m")
        .set("dfs.datanode.max.locked.memory", 8 << 20)
        .set("dfs.ls.limit", 20)
        // For the states that the last checks make.
        .set("dfs.namenode.hosts.provider.classname", states::COMBINED_HOSTS)
        .set_file("dfs.hosts", states::HOSTS)
        .set("dfs.namenode.decommission.interval", 1)
        .set("dfs.namenode.redundancy.interval.seconds", 1)
        .set("hearth.memory.flush.delay", 1);
    run(&[Suite { name: "browser", clusters: vec![cluster], checks: CHECKS }])
}

/// Returns the browser, which all checks share. It is taken out of the session for the time of a check.
fn take_browser(session: &mut Session) -> Result<Box<Browser>> {
    match session.kept.take().map(|kept| kept.downcast()) {
        Some(Ok(browser)) => Ok(browser),
        _ => Ok(Box::new(Browser::start(&devtools::find()?)?)),
    }
}

/// Runs a check with the browser, as the superuser, and fails if a page has caused an error.
fn with_browser(session: &mut Session, check: impl FnOnce(&mut Session, &mut Browser) -> Result<()>) -> Result<()> {
    let mut browser = take_browser(session)?;
    browser.show_as(1280, 900, "light")?;
    act_as(&mut browser, session, &os_user_name())?;
    let outcome = check(session, &mut browser);
    let errors = browser.take_errors();
    session.kept = Some(browser);
    outcome?;
    ensure!(errors.is_empty(), "errors in the pages: {}", errors.join("\n"));
    Ok(())
}

/// Makes the pages of the NameNode act as this user.
fn act_as(browser: &mut Browser, session: &Session, user: &str) -> Result<()> {
    browser.open(&page(session, "#startup"))?;
    browser.value(&format!("localStorage.setItem('hearth.user', {})", json!(user)))?;
    Ok(())
}

/// Returns the address of a page of the NameNode.
fn page(session: &Session, rest: &str) -> String {
    format!("http://127.0.0.1:{}/{rest}", session.cluster.namenode_http_port())
}

/// Sends a request of WebHDFS without a body to the NameNode, as the superuser. It must succeed.
fn webhdfs(session: &Session, method: &str, path: &str, operation: &str) -> Result<()> {
    let target = format!("/webhdfs/v1{path}?user.name={}&op={operation}", os_user_name());
    let request = HttpRequest { method, target: &target, body: HttpBody::Absent, expect_continue: false };
    let answer = request.send(session.cluster.namenode_http_port())?;
    if answer.status != 200 {
        bail!("{method} {target}: {} {}", answer.status, String::from_utf8_lossy(&answer.body));
    }
    Ok(())
}

/// Returns the path of a picture.
fn picture(name: &str) -> Result<PathBuf> {
    let directory = workspace_root().join("target/browser");
    std::fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
    Ok(directory.join(format!("{name}.png")))
}
