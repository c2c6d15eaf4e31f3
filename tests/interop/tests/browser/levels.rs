//! Levels of the log, on the page *Log* of both servers.

use anyhow::{Context, Result, ensure};
use hearth_client::os_user_name;
use hearth_interop::Session;
use hearth_testkit::get_text;
use serde_json::json;

use crate::devtools::Browser;
use crate::pages::audit;
use crate::{act_as, page, picture, with_browser};

/// A module that writes little.
const MODULE: &str = "hearth_config";

pub fn levels(session: &mut Session) -> Result<()> {
    with_browser(session, |session, browser| {
        // On the NameNode only superusers may.
        act_as(browser, session, "ann")?;
        browser.open(&page(session, "#log"))?;
        browser.wait_for_text("Access denied for user ann. Superuser privilege is required")?;
        act_as(browser, session, &os_user_name())?;
        browser.open(&page(session, "#log"))?;
        browser.wait_for_text("NameNode is serving")?;
        change_and_reset(browser, session.cluster.namenode_http_port(), "superusers", "namenode-log-levels")?;

        // A DataNode knows its machine, and the name of the user that runs it.
        let port = session.cluster.datanodes[0].port("dfs.datanode.http.address")?;
        browser.open(&format!("http://127.0.0.1:{port}/#log"))?;
        browser.wait_for_text("No user chosen (administrator)")?;
        change_and_reset(browser, port, "the user that runs the DataNode", "datanode-log-levels")?;
        let own = os_user_name();
        let acting = format!("Acting as {own} (administrator)");
        for (user, shown, text) in [
            ("ann", "Acting as ann", "only the user that runs this server may read its log and change its levels"),
            (own.as_str(), acting.as_str(), "Levels: "),
        ] {
            browser.value("document.querySelector('#user').click()")?;
            browser.fill("user", user)?;
            browser.click("Use this name")?;
            browser.wait_for_text(shown)?;
            browser.wait_for_text(text)?;
        }
        browser.value("localStorage.removeItem('hearth.user')").map(drop)
    })
}

/// Changes levels on the page that is shown, of the server at `port`. `who`: may change them.
fn change_and_reset(browser: &mut Browser, port: u16, who: &str, name: &str) -> Result<()> {
    let before = effective(port)?;
    ensure!(before != "TRACE", "the log has all levels already");
    open_levels(browser)?;
    browser.wait_for_text(&format!("They may be made by {who}"))?;
    browser.wait_for_text("At the start: ")?;
    ensure!(browser.value(&disabled("Reset all levels"))? == true, "there is nothing to reset");

    set(browser, "a b", "DEBUG")?;
    browser.wait_for_text("cannot set the level of 'a b' to 'DEBUG': wanted a module such as hearth_datanode")?;
    set(browser, MODULE, "TRACE")?;
    browser.wait_for_text(&format!("The level of {MODULE} is TRACE."))?;
    browser.wait("the module in the list", &row(&[MODULE, "TRACE", "changed"]))?;
    ensure!(effective(port)? == "TRACE", "the server has another level");
    // The log goes on although a control of the page has the focus.
    browser.value("[...document.querySelectorAll('button')].find((one) => one.textContent === 'Set level').focus()")?;
    browser.wait("the line of the change", "document.querySelector('pre').innerText.includes('log level changed')")?;
    // Wide windows include that of 1280 pixels at a zoom of 80 %.
    for (width, height, colours) in
        [(1600, 1125, "light"), (1280, 900, "dark"), (360, 740, "light"), (360, 740, "dark")]
    {
        browser.show_as(width, height, colours)?;
        browser.take_picture(&picture(&format!("{name}-{width}-{colours}"))?)?;
        let wrong = audit(browser)?;
        ensure!(wrong.is_empty(), "{name} at {width}, {colours}: {}", wrong.join("\n"));
    }
    browser.show_as(1280, 900, "light")?;

    browser.click("Reset")?;
    browser.wait_for_text(&format!("Reset: the level of {MODULE} is {before}."))?;
    browser.wait("the list without the module", &format!("!({})", row(&[MODULE])))?;
    ensure!(effective(port)? == before, "the level is not that of the start");
    set(browser, MODULE, "TRACE")?;
    browser.wait("the module in the list", &row(&[MODULE, "TRACE", "changed"]))?;
    browser.click("Reset all levels")?;
    browser.wait_for_text("Reset: the level of all modules is ")?;
    browser.wait("the list without the module", &format!("!({})", row(&[MODULE])))?;
    ensure!(effective(port)? == before, "the level is not that of the start");
    Ok(())
}

/// Opens the part of the page about levels.
pub fn open_levels(browser: &mut Browser) -> Result<()> {
    let open = "(() => { const part = document.querySelector('main details'); if (!part) return false; \
                part.open = true; return part.innerText.startsWith('Levels: '); })()";
    browser.wait("the part about levels", open)
}

/// Returns an expression: whether the button with this text is disabled.
pub fn disabled(button: &str) -> String {
    format!(
        "[...document.querySelectorAll('button')].find((one) => one.textContent === {})?.disabled === true",
        json!(button)
    )
}

/// Returns an expression: whether a row of a table has all these texts.
fn row(texts: &[&str]) -> String {
    format!(
        "[...document.querySelectorAll('tbody tr')].some((row) => {}.every((text) => row.innerText.includes(text)))",
        json!(texts)
    )
}

/// Fills the form and sends it.
fn set(browser: &mut Browser, module: &str, level: &str) -> Result<()> {
    for (field, value) in [("module", module), ("level", level)] {
        browser.value(&format!("document.querySelector('main [name={field}]').value = {}", json!(value)))?;
    }
    browser.click("Set level")
}

/// Returns the level of [`MODULE`] that the server names where `hadoop daemonlog` asks it.
fn effective(port: u16) -> Result<String> {
    let shown = get_text(port, &format!("/logLevel?log={MODULE}"))?;
    let level = shown.split("Effective Level: <b>").nth(1).and_then(|rest| rest.split('<').next());
    level.map(str::to_owned).with_context(|| format!("no level in {shown}"))
}
