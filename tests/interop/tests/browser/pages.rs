//! The pages of both servers.

use anyhow::{Result, ensure};
use hearth_client::os_user_name;
use hearth_interop::Session;
use serde_json::Value;

use crate::devtools::Browser;
use crate::{act_as, page, picture, webhdfs, with_browser};

const AUDIT: &str = include_str!("audit.js");

/// Pages of the NameNode, with a text that each shows when it is complete.
const NAMENODE: [(&str, &str); 11] = [
    ("overview", "Capacity by medium"),
    ("datanodes", "2 DataNodes"),
    ("datanodes/dead", "No DataNode is in this state."),
    ("files", "Entries of /"),
    ("snapshots", "Allow snapshots of a directory"),
    ("open-files", "Open files and leases"),
    ("problems", "Blocks without a replica"),
    ("users", "Last 25 minutes"),
    ("startup", "awaiting reported blocks"),
    ("configuration", "dfs.replication"),
    ("log", "NameNode is serving"),
];
const DATANODE: [(&str, &str); 5] = [
    ("overview", "Memory of replicas"),
    ("volumes", "Storage directories"),
    ("namenodes", "Connections to NameNodes"),
    ("configuration", "dfs.datanode.address"),
    ("log", "datanode serves"),
];

pub fn user(session: &mut Session) -> Result<()> {
    with_browser(session, |session, browser| {
        browser.open(&page(session, "#overview"))?;
        browser.wait_for_text(&format!("Acting as {} (superuser)", os_user_name()))?;
        browser.value("document.querySelector('#user').click()")?;
        browser.fill("user", "ann")?;
        browser.click("Use this name")?;
        browser.wait("the new user", "document.querySelector('#user').innerText === 'Acting as ann'")?;
        // The user who is shown is the one who acts: ann may not see the open files of others.
        browser.open(&page(session, "#open-files"))?;
        browser.wait_for_text("AccessControlException")?;
        browser.wait_for_text("ann")?;
        act_as(browser, session, "")?;
        browser.open(&page(session, "#files"))?;
        browser.wait("the default user", "document.querySelector('#user').innerText === 'Acting as dr.who'")?;
        browser.click("New directory")?;
        browser.fill("name", "of-nobody")?;
        browser.click("Create")?;
        browser.wait_for_text("Permission denied: user=dr.who")
    })
}

pub fn snapshots(session: &mut Session) -> Result<()> {
    with_browser(session, |session, browser| {
        webhdfs(session, "PUT", "/kept/a", "MKDIRS")?;
        browser.open(&page(session, "#snapshots"))?;
        browser.click("Allow snapshots of a directory")?;
        browser.fill("path", "/kept")?;
        browser.click("OK")?;
        browser.wait_for_text("/kept – 0 snapshots")?;
        browser.click(&format!("/kept – 0 snapshots, of {}", os_user_name()))?;
        browser.click("New snapshot")?;
        browser.fill("name", "first")?;
        browser.click("Create")?;
        browser.wait_for_text("/kept – 1 snapshot,")?;
        browser.click(&format!("/kept – 1 snapshot, of {}", os_user_name()))?;
        browser.click("first")?;
        browser.wait_for_text("Entries of /kept/.snapshot/first")?;
        Ok(())
    })
}

pub fn apaches_addresses(session: &mut Session) -> Result<()> {
    with_browser(session, |session, browser| {
        for (address, heading) in [
            ("dfshealth.html", "Overview"),
            ("dfshealth.html#tab-overview", "Overview"),
            ("dfshealth.html#tab-datanode", "DataNodes"),
            ("dfshealth.html#tab-startup-progress", "Startup"),
            ("explorer.html", "/"),
            ("explorer.html#/", "/"),
            ("explorer.html#/kept", "/kept"),
        ] {
            browser.open(&page(session, address))?;
            let shown = format!("document.querySelector('main h1')?.innerText === '{heading}'");
            browser.wait(&format!("{heading} at {address}"), &shown)?;
        }
        Ok(())
    })
}

pub fn every_page(session: &mut Session) -> Result<()> {
    with_browser(session, |session, browser| {
        let datanode = session.cluster.datanodes[0].port("dfs.datanode.http.address")?;
        let namenode = page(session, "");
        let mut wrong = Vec::new();
        for (width, height, colours) in
            [(1280, 900, "light"), (1280, 900, "dark"), (360, 740, "light"), (360, 740, "dark")]
        {
            browser.show_as(width, height, colours)?;
            let servers = [
                ("namenode", namenode.clone(), &NAMENODE[..]),
                ("datanode", format!("http://127.0.0.1:{datanode}/"), &DATANODE[..]),
            ];
            for (server, address, pages) in servers {
                for (name, text) in pages {
                    browser.open(&format!("{address}#{name}"))?;
                    browser.wait_for_text(text)?;
                    let file = format!("{server}-{}-{width}-{colours}", name.replace('/', "-"));
                    browser.take_picture(&picture(&file)?)?;
                    wrong.extend(audit(browser)?.into_iter().map(|problem| format!("{file}: {problem}")));
                }
            }
        }
        ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
        Ok(())
    })
}

/// Returns what is wrong with the page as it is shown.
pub fn audit(browser: &mut Browser) -> Result<Vec<String>> {
    let found = browser.value(AUDIT)?;
    ensure!(found.is_array(), "the audit returned {found}");
    Ok(found.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect())
}

pub fn dead_datanode(session: &mut Session) -> Result<()> {
    with_browser(session, |session, browser| {
        session.cluster.datanodes[1].kill();
        browser.open(&page(session, "#datanodes/dead"))?;
        browser.wait("the dead DataNode", "document.querySelector('caption')?.innerText === '1 DataNode'")?;
        browser.wait("the time since when", "/\\d+ s ago/.test(document.querySelector('main').innerText)")?;
        browser.open(&page(session, "#overview"))?;
        browser.wait_for_text("1 DataNode is dead.")?;
        browser.take_picture(&picture("namenode-dead-datanode")?)
    })
}
