//! Metrics as Prometheus reads them, from real controllers and agents, and what promtool says of them.

use crate::cluster::Cluster;
use crate::command::{output_of_input, run};
use anyhow::{Context, Result, bail, ensure};
use ha_api_types::metric::{Exposer, Metric};
use reqwest::Method;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;

/// What a controller exposes.
///
/// # Errors
/// When it does not answer.
pub fn controller(cluster: &Cluster, name: &str) -> Result<String> {
    match cluster.api(name)?.request(Method::GET, "/metrics", None)? {
        (status, Value::String(text)) if status.is_success() => Ok(text),
        (status, other) => bail!("/metrics of {name}: {status}: {other}"),
    }
}

/// What the agent of a node exposes, asked on that node.
///
/// # Errors
/// When it does not run or does not answer.
pub fn agent(cluster: &Cluster, node: &str) -> Result<String> {
    let agent = cluster.machine(node)?.program("ha-node-agent").context("no agent runs")?;
    let pid = agent.pid.to_string();
    let command = fs::read_to_string(format!("/proc/{pid}/cmdline"))?;
    let mut words = command.split('\0').skip_while(|word| *word != "--admin-listen").skip(1);
    let url = format!("http://{}/metrics", words.next().context("the agent has no --admin-listen")?);
    run("nsenter", &["--target", &pid, "--net", "curl", "--silent", "--show-error", "--fail", &url])
}

/// Fails unless promtool finds nothing to say, and every name is declared for one of these exposers.
///
/// # Errors
/// When promtool is missing (`./dev/setup --test` installs it), or something is wrong with the text.
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

/// The number of a series, written as Prometheus writes it: `name{label="value"}`, labels in the order of their names.
pub fn number(text: &str, series: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}
