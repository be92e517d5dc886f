//! Metrics of real controllers and agents in Prometheus' format, and their check by promtool.

use crate::cluster::Cluster;
use crate::command::{output_of_input, run};
use anyhow::{Context, Result, bail, ensure};
use ha_api_types::metric::{Exposer, Metric};
use reqwest::Method;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;

/// Returns the metrics of a controller.
///
/// # Errors
/// Fails if the controller does not respond.
pub fn controller(cluster: &Cluster, name: &str) -> Result<String> {
    match cluster.api(name)?.request(Method::GET, "/metrics", None)? {
        (status, Value::String(text)) if status.is_success() => Ok(text),
        (status, other) => bail!("/metrics of {name}: {status}: {other}"),
    }
}

/// Returns the metrics of a node's agent, requested from that node.
///
/// # Errors
/// Fails if the agent does not run or does not respond.
pub fn agent(cluster: &Cluster, node: &str) -> Result<String> {
    let agent = cluster.machine(node)?.program("ha-node-agent").context("no agent runs")?;
    let pid = agent.pid.to_string();
    let command = fs::read_to_string(format!("/proc/{pid}/cmdline"))?;
    let mut words = command.split('\0').skip_while(|word| *word != "--admin-listen").skip(1);
    let url = format!("http://{}/metrics", words.next().context("the agent has no --admin-listen")?);
    run("nsenter", &["--target", &pid, "--net", "curl", "--silent", "--show-error", "--fail", &url])
}

/// Checks that promtool accepts the text without a warning, and that every metric is declared for one of these exposers.
///
/// # Errors
/// Fails if promtool is missing (`./dev/setup --test` installs it), or if a check fails.
pub fn check(text: &str, exposers: &[Exposer]) -> Result<()> {
    let said = output_of_input("promtool", &["check", "metrics"], text.as_bytes())
        .context("promtool could not be started: ./dev/setup --test installs it")?;
    let words = format!("{}{}", String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
    ensure!(said.status.success() && words.trim().is_empty(), "promtool check metrics: {words}\n{text}");
    let declared: BTreeSet<&str> =
        Metric::all().filter(|metric| exposers.contains(&metric.exposer)).map(|metric| metric.name).collect();
    let shown = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let other: Vec<&str> = shown.filter(|name| !declared.contains(name)).collect();
    ensure!(other.is_empty(), "not declared for {exposers:?}: {other:?}");
    Ok(())
}

/// Returns the value of a series, given in Prometheus' notation `name{label="value"}` with the labels in alphabetical order.
pub fn number(text: &str, series: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}
