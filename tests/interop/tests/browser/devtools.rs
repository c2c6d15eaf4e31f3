//! A headless Chromium, driven over the DevTools protocol through a pipe: messages of JSON, each followed by a zero byte.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hearth_testkit::Missing;
use serde_json::{Value, json};

/// Variable with the path of the browser.
const VARIABLE: &str = "HEARTH_TEST_CHROMIUM";
/// Names of the browser, the smallest first.
const NAMES: [&str; 4] = ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"];
/// Maximum time for an answer, and for what a page is to show. A busy machine starts the browser slowly.
const PATIENCE: Duration = Duration::from_secs(90);
/// Names of the descriptors at which the browser expects its pipe.
const PIPE: &str = "exec 3<&0 4>&1 </dev/null >&2; exec \"$@\"";

pub struct Browser {
    child: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    last_id: u64,
    session: String,
    /// Errors of scripts and violations of the content security policy since the last look.
    errors: Vec<String>,
    _profile: tempfile::TempDir,
}

/// Returns the path of the browser.
pub fn find() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os(VARIABLE) {
        return Ok(path.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut candidates = NAMES.iter().flat_map(|name| std::env::split_paths(&path).map(move |one| one.join(name)));
    let missing = Missing { what: "Chromium", cure: "apt-get install chromium-headless-shell" };
    candidates.find(|candidate| candidate.is_file()).ok_or_else(|| missing.into())
}

impl Browser {
    /// Starts the browser with one empty page.
    pub fn start(program: &Path) -> Result<Self> {
        let profile = tempfile::tempdir()?;
        let mut child = Command::new("sh")
            .args(["-c", PIPE, "sh"])
            .arg(program)
            .args(["--headless", "--remote-debugging-pipe", "--disable-gpu", "--disable-dev-shm-usage"])
            // The sandbox needs rights that tests do not have; the only pages are Hearth's.
            .args(["--no-sandbox", "--no-first-run", "--hide-scrollbars", "--disable-background-networking"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let to = child.stdin.take().context("no input")?;
        let output = child.stdout.take().context("no output")?;
        let (sender, from) = channel();
        std::thread::spawn(move || {
            let mut output = BufReader::new(output);
            let mut message = Vec::new();
            while output.read_until(0, &mut message).is_ok_and(|count| count > 0) {
                message.pop();
                let Ok(value) = serde_json::from_slice(&message) else { return };
                if sender.send(value).is_err() {
                    return;
                }
                message.clear();
            }
        });
        let session = String::new();
        let mut browser = Self { child, to, from, last_id: 0, session, errors: Vec::new(), _profile: profile };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }))?;
        let attached =
            browser.call("Target.attachToTarget", json!({ "targetId": target["targetId"], "flatten": true }))?;
        browser.session = attached["sessionId"].as_str().context("no session")?.to_owned();
        for domain in ["Page", "Runtime", "Log", "DOM"] {
            browser.call(&format!("{domain}.enable"), json!({}))?;
        }
        Ok(browser)
    }

    /// Calls a method of the protocol and returns its result.
    pub fn call(&mut self, method: &str, parameters: Value) -> Result<Value> {
        self.last_id += 1;
        let id = self.last_id;
        let mut message = json!({ "id": id, "method": method, "params": parameters });
        if !self.session.is_empty() {
            message["sessionId"] = self.session.as_str().into();
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.to.write_all(&bytes).with_context(|| format!("{method}: the browser has ended"))?;
        self.to.flush()?;
        loop {
            let message =
                self.from.recv_timeout(PATIENCE).with_context(|| format!("{method}: the browser does not answer"))?;
            if message["id"] == id {
                ensure!(message["error"].is_null(), "{method}: {}", message["error"]);
                return Ok(message["result"].clone());
            }
            self.note_event(&message);
        }
    }

    fn note_event(&mut self, message: &Value) {
        let parameters = &message["params"];
        match message["method"].as_str() {
            Some("Runtime.exceptionThrown") => self.errors.push(parameters["exceptionDetails"].to_string()),
            Some("Runtime.consoleAPICalled") if parameters["type"] == "error" => {
                self.errors.push(parameters["args"].to_string());
            }
            // A request that is refused is noted as an error, too; the pages expect some refusals.
            Some("Log.entryAdded") if parameters["entry"]["source"] != "network" => {
                let entry = &parameters["entry"];
                if entry["level"] == "error" || entry["source"] == "security" {
                    self.errors.push(entry["text"].to_string());
                }
            }
            _ => {}
        }
    }

    /// Returns the errors that the pages have caused since the last call of this.
    pub fn take_errors(&mut self) -> Vec<String> {
        std::mem::take(&mut self.errors)
    }

    /// Sets the size of the window in pixels, and the colours that the user prefers: `light` or `dark`.
    pub fn show_as(&mut self, width: u32, height: u32, colours: &str) -> Result<()> {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", size)?;
        let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": colours }] });
        self.call("Emulation.setEmulatedMedia", media).map(drop)
    }

    /// Loads an address from scratch.
    pub fn open(&mut self, url: &str) -> Result<()> {
        // Another fragment alone would load nothing.
        self.call("Page.navigate", json!({ "url": "about:blank" }))?;
        let opened = self.call("Page.navigate", json!({ "url": url }))?;
        ensure!(opened["errorText"].is_null(), "{url}: {opened}");
        self.wait("the document", "document.readyState === 'complete' && location.href !== 'about:blank'")
    }

    /// Returns the value of an expression in the page. A promise is awaited.
    pub fn value(&mut self, expression: &str) -> Result<Value> {
        let parameters = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let result = self.call("Runtime.evaluate", parameters)?;
        ensure!(result["exceptionDetails"].is_null(), "{expression}: {}", result["exceptionDetails"]);
        Ok(result["result"]["value"].clone())
    }

    /// Waits until an expression is true in the page.
    pub fn wait(&mut self, what: &str, expression: &str) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        // The page may be in the middle of a navigation: then the expression fails.
        while self.value(expression).unwrap_or_default() != Value::Bool(true) {
            if Instant::now() > deadline {
                let shown = self.value("document.body.innerText").unwrap_or_default();
                bail!("waited {PATIENCE:?} for {what}: {expression}; the page shows: {shown}");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Waits until the page contains a text.
    pub fn wait_for_text(&mut self, text: &str) -> Result<()> {
        self.wait(text, &format!("document.body.innerText.includes({})", json!(text)))
    }

    /// Clicks the first button or link that has exactly this text, within an open dialog if there is one.
    pub fn click(&mut self, text: &str) -> Result<()> {
        let find = format!(
            "(() => {{ const place = document.querySelector('dialog[open]') ?? document; \
             const found = [...place.querySelectorAll('button, a, summary')].find((one) => one.textContent.trim() === {}); \
             if (!found || found.disabled) return false; found.click(); return true; }})()",
            json!(text)
        );
        self.wait(&format!("a button {text}"), &find)
    }

    /// Fills a field of the open dialog.
    pub fn fill(&mut self, name: &str, value: &str) -> Result<()> {
        let set = format!(
            "(() => {{ const field = document.querySelector('dialog[open] [name=' + {} + ']'); if (!field) return false; \
             if (field.type === 'checkbox') field.checked = {value} === 'true'; else field.value = {value}; return true; }})()",
            json!(json!(name).to_string()),
            value = json!(value)
        );
        self.wait(&format!("a field {name}"), &set)
    }

    /// Chooses files in the first field for files.
    pub fn choose_files(&mut self, files: &[&Path]) -> Result<()> {
        let parameters = json!({ "expression": "document.querySelector('input[type=file]')" });
        let found = self.call("Runtime.evaluate", parameters)?;
        let object = found["result"]["objectId"].as_str().ok_or_else(|| anyhow!("no field for files"))?;
        self.call("DOM.setFileInputFiles", json!({ "files": files, "objectId": object })).map(drop)
    }

    /// Writes a picture of the whole page.
    pub fn take_picture(&mut self, file: &Path) -> Result<()> {
        let size = self.call("Page.getLayoutMetrics", json!({}))?["cssContentSize"].clone();
        let clip = json!({ "x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1 });
        let parameters = json!({ "format": "png", "captureBeyondViewport": true, "clip": clip });
        let taken = self.call("Page.captureScreenshot", parameters)?;
        let bytes = STANDARD.decode(taken["data"].as_str().context("no picture")?)?;
        std::fs::write(file, bytes).with_context(|| format!("cannot write {}", file.display()))
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It ends by itself when the pipe closes, too, together with its children.
        let _ = self.call("Browser.close", json!({}));
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
