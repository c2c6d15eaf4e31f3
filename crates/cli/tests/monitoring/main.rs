//! The dashboard and the alert rules of `monitoring/`, held against the series that running servers export. Where
//! Debian's Prometheus is in `.cache`, its tools check the metrics and the rules, and it scrapes the servers.

mod queries;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hearth_testkit::{
    Cluster, ClusterSpec, Implementation, Process, free_port, get_text, prometheus, skip_or_fail, use_program,
    wait_until, workspace_root,
};
use queries::{Condition, Query, Selector, series};
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_hearth");
const LONG: Duration = Duration::from_secs(120);
/// Labels that Prometheus adds when it scrapes.
const OF_SCRAPES: [&str; 2] = ["job", "instance"];

fn monitoring(file: &str) -> PathBuf {
    workspace_root().join("monitoring").join(file)
}

/// One alert rule: its name, its query, and its annotations.
#[derive(Default)]
struct Rule {
    name: String,
    query: String,
    annotations: BTreeMap<String, String>,
}

/// Reads the rules, which have one key to a line.
fn rules() -> Vec<Rule> {
    let text = std::fs::read_to_string(monitoring("prometheus/alerts.yml")).unwrap();
    let mut rules: Vec<Rule> = Vec::new();
    let mut annotates = false;
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
        let Some((key, value)) = line.split_once(':') else { continue };
        let value = value.trim();
        if key == "- alert" {
            rules.push(Rule { name: value.to_owned(), ..Rule::default() });
            annotates = false;
            continue;
        }
        let Some(rule) = rules.last_mut() else { continue };
        match key {
            "expr" => rule.query = value.to_owned(),
            "annotations" => annotates = true,
            _ if annotates => {
                rule.annotations.insert(key.to_owned(), value.trim_matches('"').to_owned());
            }
            _ => {}
        }
    }
    rules
}

fn dashboard() -> Value {
    serde_json::from_str(&std::fs::read_to_string(monitoring("grafana/hearth.json")).unwrap()).unwrap()
}

/// Returns the title and the query of each target of the panels.
fn panel_queries(dashboard: &Value) -> Vec<(String, String)> {
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| {
        let title = panel["title"].as_str().unwrap().to_owned();
        let targets = panel["targets"].as_array().into_iter().flatten();
        targets.map(move |target| (title.clone(), target["expr"].as_str().unwrap().to_owned()))
    });
    targets.collect()
}

/// Returns the name, the metric and the label of the dashboard's variables that list values.
fn variables(dashboard: &Value) -> Vec<(String, String, String)> {
    let all = dashboard["templating"]["list"].as_array().unwrap().iter();
    let listing = all.filter(|variable| variable["type"] == "query").map(|variable| {
        let query = variable["query"]["query"].as_str().unwrap();
        let inside = query.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')')).unwrap();
        let (metric, label) = inside.split_once(',').unwrap();
        (variable["name"].as_str().unwrap().to_owned(), metric.trim().to_owned(), label.trim().to_owned())
    });
    listing.collect()
}

#[test]
fn every_rule_says_what_happened_and_what_to_do() {
    let rules = rules();
    assert!(rules.len() > 15, "only {} rules were read", rules.len());
    let names: BTreeSet<&str> = rules.iter().map(|rule| rule.name.as_str()).collect();
    assert_eq!(names.len(), rules.len(), "a name occurs twice");
    for rule in &rules {
        assert!(!rule.query.is_empty(), "{} has no query", rule.name);
        for annotation in ["summary", "description", "action"] {
            let text = rule.annotations.get(annotation).map(String::as_str).unwrap_or_default();
            assert!(text.len() > 10, "{} has no {annotation}", rule.name);
        }
    }
}

#[test]
fn every_panel_has_a_text_and_the_chosen_data_source() {
    let dashboard = dashboard();
    assert_eq!(dashboard["uid"], "hearth");
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    assert!(variables.iter().any(|variable| variable["name"] == "datasource" && variable["type"] == "datasource"));
    let mut ids = BTreeSet::new();
    let mut rows = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        let title = panel["title"].as_str().unwrap();
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "the id of {title} occurs twice");
        if panel["type"] == "row" {
            rows.push(title);
            continue;
        }
        assert!(panel["description"].as_str().is_some_and(|text| !text.is_empty()), "{title} has no description");
        for target in panel["targets"].as_array().unwrap() {
            assert_eq!(target["datasource"]["uid"], "${datasource}", "{title}");
        }
    }
    assert_eq!(rows, ["Overview", "NameNode", "DataNodes", "Memory tier", "RPC", "Paths"]);
}

/// Returns why the series do not have what a query names.
fn problems(query: &Query, exported: &[Selector]) -> Vec<String> {
    let mut problems = Vec::new();
    let mut labels: BTreeSet<&str> = OF_SCRAPES.into();
    for Selector { metric, conditions } in &query.selectors {
        if metric == "up" {
            // Prometheus makes it itself.
            continue;
        }
        let found: Vec<&Selector> = exported.iter().filter(|series| series.metric == *metric).collect();
        if found.is_empty() {
            problems.push(format!("there is no {metric}"));
            continue;
        }
        let values = |label: &str| -> Vec<&str> {
            let all = found.iter().copied().flat_map(|series| &series.conditions);
            all.filter(|condition| condition.label == label).map(|condition| condition.value.as_str()).collect()
        };
        labels.extend(
            found.iter().copied().flat_map(|series| &series.conditions).map(|condition| condition.label.as_str()),
        );
        for Condition { label, value, .. } in conditions.iter().filter(|one| !OF_SCRAPES.contains(&one.label.as_str()))
        {
            let values = values(label);
            if values.is_empty() {
                problems.push(format!("{metric} has no label {label}"));
            } else if let Some(wrong) =
                value.split('|').find(|wanted| !wanted.contains('$') && !values.contains(wanted))
            {
                problems.push(format!("{metric} has no {label} {wrong}"));
            }
        }
    }
    problems.extend(
        query
            .labels
            .iter()
            .filter(|label| !labels.contains(label.as_str()))
            .map(|label| format!("no metric of it has the label {label}")),
    );
    problems
}

#[test]
fn wrong_names_labels_and_values_are_found() {
    let exported = series("a{path=\"packets\"} 1\nb 2\n");
    let problems = |query: &str| problems(&Query::parse(query), &exported);
    for sound in ["a", "sum by (path) (a) / b", "a{path=\"packets\",instance=\"x\"}", "a{path=~\"$path\"}", "up == 0"] {
        assert!(problems(sound).is_empty(), "{sound}: {:?}", problems(sound));
    }
    for wrong in ["c", "rate(a[5m]) + c", "b{path=\"packets\"}", "a{path=~\"packets|local\"}", "sum by (method) (a)"] {
        assert_eq!(problems(wrong).len(), 1, "{wrong}: {:?}", problems(wrong));
    }
}

/// Checks Prometheus' conventions, as far as a page shows them.
fn check_conventions(page: &str) {
    let (mut family, mut kind) = (String::new(), String::new());
    let mut seen = BTreeSet::new();
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            assert!(help.len() > 5, "{name} is not explained");
            assert!(seen.insert(name.to_owned()), "{name} has two heads");
            family = name.to_owned();
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, of_type) = rest.split_once(' ').unwrap();
            assert_eq!(name, family, "the help of a metric is above its type");
            kind = of_type.to_owned();
            assert_eq!(name.ends_with("_total"), kind == "counter", "{name} is a {kind}");
            for unit in ["_ms", "_us", "_micros", "_microseconds", "_milliseconds", "_kb", "_mb", "_percent"] {
                assert!(!name.trim_end_matches("_total").ends_with(unit), "{name} is not in a base unit");
            }
        } else {
            let name = line.split(['{', ' ']).next().unwrap();
            let suffix = name.strip_prefix(family.as_str()).unwrap_or_else(|| panic!("{name} stands below {family}"));
            let expected: &[&str] = if kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
            assert!(expected.contains(&suffix), "{name} of the {kind} {family}");
            let value = line.rsplit(' ').next().unwrap();
            assert!(value.parse::<f64>().is_ok(), "{line}");
        }
    }
}

/// Makes a client's calls, so that no metric is without a series.
fn use_cluster(cluster: &Cluster) -> Result<()> {
    let file = cluster.directory().join("file");
    std::fs::write(&file, vec![7; 3 << 20])?;
    let file = file.to_str().context("a path in UTF-8")?.to_owned();
    let lines: [&[&str]; 4] = [&["-put", &file, "/file"], &["-cat", "/file"], &["-ls", "/"], &["-test", "-e", "/none"]];
    for line in lines {
        let mut command = Command::new(PROGRAM);
        command.arg("fs").args(line).env("HADOOP_CONF_DIR", cluster.conf()).stdout(Stdio::null());
        let status = command.status().context("cannot start hearth")?;
        ensure!(status.success() || line[0] == "-test", "hearth fs {line:?} ended with {status}");
    }
    Ok(())
}

/// Runs promtool. Returns what it says if it is not content.
fn promtool(home: &Path, arguments: &[&str], input: &str) -> Result<()> {
    let mut command = Command::new(home.join("usr/bin/promtool"));
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().context("cannot start promtool")?;
    let mut stdin = child.stdin.take().context("its input")?;
    stdin.write_all(input.as_bytes())?;
    drop(stdin);
    let output = child.wait_with_output()?;
    let said = [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat();
    ensure!(output.status.success(), "promtool {arguments:?} ended with {}:\n{said}", output.status);
    Ok(())
}

/// A running Prometheus.
struct Prometheus {
    port: u16,
    process: Process,
}

impl Prometheus {
    /// Starts it with the alert rules of the repository and the sample configuration, whose targets are replaced.
    fn start(home: &Path, directory: &Path, namenode: u16, datanodes: &[u16]) -> Result<Self> {
        let sample = std::fs::read_to_string(monitoring("prometheus/prometheus.yml"))?;
        let quoted = |ports: &[u16]| {
            let targets: Vec<String> = ports.iter().map(|port| format!("\"127.0.0.1:{port}\"")).collect();
            format!("targets: [{}]", targets.join(", "))
        };
        let mut targets = [quoted(&[namenode]), quoted(datanodes)].into_iter();
        let lines = sample.lines().map(|line| match line.find("targets:") {
            Some(at) => format!("{}{}", &line[..at], targets.next().unwrap_or_default()),
            None => line.replace("15s", "1s"),
        });
        let text = lines.collect::<Vec<_>>().join("\n");
        let text = text.replace("alerts.yml", &monitoring("prometheus/alerts.yml").display().to_string());
        let file = directory.join("prometheus.yml");
        std::fs::write(&file, text)?;
        promtool(home, &["check", "config", file.to_str().context("a path in UTF-8")?], "")?;
        let port = free_port();
        let mut command = Command::new(home.join("usr/bin/prometheus"));
        command
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", directory.join("prometheus-data").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"));
        let process = Process::start("prometheus", &mut command, &directory.join("prometheus.log"))?;
        Ok(Self { port, process })
    }

    fn ask(&self, path: &str) -> Result<Value> {
        let answer: Value = serde_json::from_str(&get_text(self.port, path)?)?;
        ensure!(answer["status"] == "success", "{path}: {answer}");
        Ok(answer["data"].clone())
    }

    /// Returns the number of series that a query has now.
    fn query(&self, query: &str) -> Result<usize> {
        let encoded: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let data = self.ask(&format!("/api/v1/query?query={encoded}")).with_context(|| query.to_owned())?;
        Ok(data["result"].as_array().map_or(1, Vec::len))
    }

    /// Waits until every target is up and every rule has been evaluated without an error, and until every panel of the
    /// dashboard has data.
    fn check(&mut self, dashboard: &Value) -> Result<()> {
        let outcome = wait_until("Prometheus to scrape the servers", LONG, || {
            self.process.check_alive()?;
            let targets = self.ask("/api/v1/targets")?;
            let targets = targets["activeTargets"].as_array().context("targets")?;
            Ok((targets.len() == 3 && targets.iter().all(|target| target["health"] == "up")).then_some(()))
        });
        outcome.with_context(|| self.process.log_tail())?;
        wait_until("Prometheus to evaluate the rules", LONG, || {
            let groups = self.ask("/api/v1/rules")?;
            let groups = groups["groups"].as_array().context("groups")?;
            let rules: Vec<&Value> =
                groups.iter().flat_map(|group| group["rules"].as_array().into_iter().flatten()).collect();
            let failed: Vec<_> = rules.iter().filter(|rule| rule["health"] == "err").collect();
            ensure!(failed.is_empty(), "rules have failed: {failed:?}");
            Ok((!rules.is_empty() && rules.iter().all(|rule| rule["health"] == "ok")).then_some(()))
        })?;
        for (title, query) in panel_queries(dashboard) {
            let query = query.replace("$__rate_interval", "30s").replace("$namenode|$datanode", ".*");
            let query = query.replace("$namenode", ".*").replace("$datanode", ".*");
            let what = format!("data of the panel {title}: {query}");
            wait_until(&what, LONG, || Ok((self.query(&query)? > 0).then_some(())))?;
        }
        Ok(())
    }
}

#[test]
fn dashboard_and_rules_use_exported_series() {
    use_program(PROGRAM.into());
    let cluster = ClusterSpec::new(Implementation::Hearth, Implementation::Hearth)
        .datanodes(2)
        .set("dfs.replication", 2)
        .set("hearth.memory.limit", "64m")
        .set("hearth.memory.flush.delay", 1);
    let mut cluster = cluster.start().unwrap();
    use_cluster(&cluster).unwrap();
    let namenode = cluster.namenode_http_port();
    let datanodes: Vec<u16> =
        cluster.datanodes.iter().map(|datanode| datanode.port("dfs.datanode.http.address").unwrap()).collect();
    let pages: Vec<String> =
        [namenode].iter().chain(&datanodes).map(|port| get_text(*port, "/metrics").unwrap()).collect();
    pages.iter().for_each(|page| check_conventions(page));
    let exported: Vec<Selector> = pages.iter().flat_map(|page| series(page)).collect();

    let dashboard = dashboard();
    let mut wrong = Vec::new();
    let alerts = rules();
    let of_rules = alerts.iter().map(|rule| (rule.name.clone(), rule.query.clone()));
    for (place, query) in panel_queries(&dashboard).into_iter().chain(of_rules) {
        wrong.extend(problems(&Query::parse(&query), &exported).into_iter().map(|what| format!("{place}: {what}")));
    }
    for (name, metric, label) in variables(&dashboard) {
        assert!(OF_SCRAPES.contains(&label.as_str()), "the variable {name} lists {label}");
        wrong.extend(problems(&Query::parse(&metric), &exported).into_iter().map(|what| format!("{name}: {what}")));
    }
    assert!(wrong.is_empty(), "the servers do not export what is asked for:\n{}", wrong.join("\n"));

    let home = match prometheus() {
        Ok(home) => home,
        Err(error) => return skip_or_fail("dashboard_and_rules_use_exported_series, with Prometheus", error),
    };
    for page in &pages {
        promtool(&home, &["check", "metrics"], page).unwrap();
    }
    let alerts = monitoring("prometheus/alerts.yml");
    promtool(&home, &["check", "rules", alerts.to_str().unwrap()], "").unwrap();
    let mut prometheus = Prometheus::start(&home, cluster.directory(), namenode, &datanodes).unwrap();
    prometheus.check(&dashboard).unwrap();
    // A server that ends is noticed.
    let down = rules().into_iter().find(|rule| rule.name == "HearthServerDown").unwrap().query;
    // On a busy machine a scrape may take longer than its second.
    wait_until("no alert", LONG, || Ok((prometheus.query(&down)? == 0).then_some(()))).unwrap();
    cluster.datanodes[1].kill();
    wait_until("the alert", LONG, || Ok((prometheus.query(&down)? == 1).then_some(()))).unwrap();
}
