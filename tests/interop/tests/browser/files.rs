//! The file browser.

use anyhow::{Result, ensure};
use hearth_interop::Session;
use hearth_testkit::get_text;
use serde_json::json;

use crate::devtools::Browser;
use crate::{page, picture, webhdfs, with_browser};

/// A name that would run a script if it were put into a page as HTML.
const HOSTILE: &str = "<img src=x onerror=hacked=1>&\"'";
const HOSTILE_ENCODED: &str = "%3Cimg%20src=x%20onerror=hacked=1%3E%26%22%27";

pub fn life_of_a_file(session: &mut Session) -> Result<()> {
    with_browser(session, |session, browser| {
        let text: String = (0..200_000).map(|line| format!("line {line} of a file\n")).collect();
        let directory = session.local("uploads")?;
        let [plain, binary] = ["a text.txt", "bytes.bin"].map(|name| directory.join(name));
        std::fs::write(&plain, &text)?;
        std::fs::write(&binary, [0u8, 1, 2, 255].repeat(100))?;

        webhdfs(session, "PUT", "/life", "MKDIRS")?;
        browser.open(&page(session, "#files/life"))?;
        browser.wait_for_text("The directory is empty.")?;
        browser.choose_files(&[&plain, &binary])?;
        browser.wait_for_text("a text.txt")?;
        browser.wait_for_text("bytes.bin")?;
        browser.wait_for_text("4.09 MiB")?;

        // A file with its blocks, and where they are.
        browser.click("a text.txt")?;
        browser.wait_for_text("blk_")?;
        browser.wait_for_text("in memory")?;
        browser.click("Show the beginning")?;
        browser.wait_for_text("line 0 of a file")?;
        browser.click("Show the end")?;
        browser.wait_for_text("line 199999 of a file")?;
        let download =
            browser.value("[...document.querySelectorAll('a')].find((one) => one.textContent === 'Download').href")?;
        let fetched = format!("fetch({download}).then((answer) => answer.text()).then((text) => text.length)");
        ensure!(browser.value(&fetched)? == text.len(), "the download has another length");
        browser.take_picture(&picture("namenode-file")?)?;

        // Bytes that are no text are shown as digits.
        browser.open(&page(session, "#files/life/bytes.bin"))?;
        browser.click("Show the beginning")?;
        browser.wait_for_text("00000000  00 01 02 ff 00 01 02 ff")?;

        change(browser, "Change permission", &[("permission", "640")], "Change")?;
        browser.wait_for_text("-rw-r----- (640)")?;
        change(browser, "Change owner", &[("owner", "ann"), ("group", "staff")], "Change")?;
        browser.wait_for_text("ann:staff")?;
        change(browser, "Change replication", &[("replication", "2")], "Change")?;
        browser.wait("the new replication", "/Replication\\s+2\\b/.test(document.body.innerText)")?;
        change(browser, "Rename or move", &[("to", "/life/moved to.bin")], "Rename")?;
        browser.wait_for_text("Entries of /life")?;
        browser.wait_for_text("moved to.bin")?;
        browser.take_picture(&picture("namenode-directory")?)?;

        // An upload asks before it replaces a file.
        std::fs::write(&plain, "another content")?;
        browser.choose_files(&[&plain])?;
        browser.wait_for_text("/life/a text.txt exists")?;
        browser.click("Replace")?;
        browser.wait_for_text("15 B")?;

        browser.click("New directory")?;
        browser.fill("name", "below")?;
        browser.click("Create")?;
        browser.wait_for_text("below")?;

        browser.open(&page(session, "#files/life"))?;
        browser.wait_for_text("Entries of /life")?;
        browser.click("Actions for this directory")?;
        browser.click("Delete")?;
        browser.wait_for_text("It has 3 entries.")?;
        browser.click("Delete")?;
        browser.wait_for_text("PathIsNotEmptyDirectoryException")?;
        browser.click("Actions for this directory")?;
        browser.click("Delete")?;
        browser.fill("recursive", "true")?;
        browser.click("Delete")?;
        browser.wait("the root directory", "document.querySelector('main h1').innerText === '/'")?;
        ensure!(get_text(session.cluster.namenode_http_port(), "/webhdfs/v1/life?op=GETFILESTATUS").is_err());
        Ok(())
    })
}

/// Makes a change in the page of a file, through its list of actions and a dialog.
fn change(browser: &mut Browser, action: &str, fields: &[(&str, &str)], confirm: &str) -> Result<()> {
    browser.click("Actions")?;
    browser.click(action)?;
    for (name, value) in fields {
        browser.fill(name, value)?;
    }
    browser.click(confirm)?;
    browser.wait("the end of the dialog", "document.querySelector('dialog[open]') === null")
}

pub fn paging(session: &mut Session) -> Result<()> {
    with_browser(session, |session, browser| {
        for number in 0..45 {
            webhdfs(session, "PUT", &format!("/many/d{number:02}"), "MKDIRS")?;
        }
        browser.open(&page(session, "#files/many"))?;
        browser.wait_for_text("More (25)")?;
        ensure!(browser.value("document.querySelectorAll('tbody tr').length")? == 20);
        browser.click("More (25)")?;
        browser.wait_for_text("More (5)")?;
        browser.click("More (5)")?;
        browser.wait("all entries", "document.querySelectorAll('tbody tr').length === 45")?;
        ensure!(browser.value("document.querySelector('tbody tr:last-child td').innerText")? == "d44/");
        Ok(())
    })
}

pub fn hostile_names(session: &mut Session) -> Result<()> {
    with_browser(session, |session, browser| {
        webhdfs(session, "PUT", &format!("/hostile/{HOSTILE_ENCODED}/below"), "MKDIRS")?;
        let shown = format!("document.querySelector('main').innerText.includes({})", json!(HOSTILE));
        let is_text = "typeof hacked === 'undefined' && document.querySelectorAll('main img').length === 0";
        browser.open(&page(session, "#files/hostile"))?;
        browser.wait("the name in the list", &shown)?;
        ensure!(browser.value(is_text)? == true);
        browser.click(HOSTILE)?;
        browser.wait_for_text("below")?;
        browser.wait("the name in the heading", &shown)?;
        ensure!(browser.value(is_text)? == true);
        browser.click("Actions for this directory")?;
        browser.wait("the dialog", "document.querySelector('dialog[open]') !== null")?;
        ensure!(
            browser.value("typeof hacked === 'undefined' && document.querySelectorAll('dialog img').length === 0")?
                == true
        );
        browser.click("Close")?;
        // In the address, too.
        browser.open(&page(session, &format!("#files/none/{HOSTILE_ENCODED}")))?;
        browser.wait_for_text("FileNotFoundException")?;
        browser.wait("the name in the refusal", &shown)?;
        ensure!(browser.value(is_text)? == true);
        browser.take_picture(&picture("namenode-refused")?)
    })
}
