//! A cluster and a Prometheus that scrapes it, with the configuration and the rules of `manifests/prometheus`.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::answers::{DashboardQuerier, now};
use super::forward::PortForward;
use super::prometheus::{PrometheusServer, Time, TimeRange};
use crate::binaries::repository;
use crate::cluster::Cluster;
use crate::machine::Role;
use crate::plan::{API_PORT, Plan};
use crate::scenario::{STEP_TIMEOUT, Scenario};
use crate::wait::wait_until;

/// Port of Prometheus at the run's own address.
const PROMETHEUS_PORT: u16 = 9090;
/// Port on loopback at which agents serve their metrics.
const ADMIN_PORT: u16 = 7444;

/// A cluster and a Prometheus that run until this value is dropped.
pub struct Rig {
    /// The cluster, with a witness running.
    pub scenario: Scenario,
    server: PrometheusServer,
    _forwards: Vec<PortForward>,
    scrape_seconds: u16,
    started_at: Time,
}

impl Rig {
    /// Starts the cluster and Prometheus, and waits until every target has been scraped.
    ///
    /// # Errors
    /// Fails if the cluster or Prometheus does not start.
    pub fn start(directory: &Path, scrape_seconds: u16) -> Result<Self> {
        // The history is a fixed sequence of events, so a busy host must not cause additional failures.
        let scenario = Scenario::start_with(Plan { profile: "Default".to_owned(), ..Plan::test(directory) })?;
        let cluster = &scenario.cluster;
        let forwards: Vec<(String, PortForward)> = cluster
            .machine_names(Role::Node)
            .into_iter()
            .map(|node| Ok((node.clone(), PortForward::start(cluster, &node, ADMIN_PORT)?)))
            .collect::<Result<_>>()?;
        let configuration = configuration(cluster, &forwards, scrape_seconds)?;
        let address = SocketAddr::from((cluster.host_address(), PROMETHEUS_PORT));
        let started_at = now();
        let server =
            PrometheusServer::start(&cluster.directory().join("prometheus"), address, &configuration)?;
        let forwards = forwards.into_iter().map(|(_, forward)| forward).collect();
        let rig = Self { scenario, server, _forwards: forwards, scrape_seconds, started_at };
        let targets = rig.scenario.cluster.machine_names(Role::Node).len()
            + rig.scenario.cluster.machine_names(Role::Controller).len();
        rig.wait_for_result(&format!("count(up == 1) == {targets}"))?;
        Ok(rig)
    }

    /// Waits until a query has a non-empty result.
    ///
    /// # Errors
    /// Fails if the result remains empty for too long.
    pub fn wait_for_result(&self, query: &str) -> Result<()> {
        wait_until(&format!("Prometheus to see {query}"), STEP_TIMEOUT, || {
            self.server.client.query_at(query, now()).is_ok_and(|series| !series.is_empty())
        })
    }

    /// Returns an interface for queries over the whole time so far, with about `points` points in each series.
    pub fn querier(&self, points: u16) -> DashboardQuerier<'_> {
        let to = now();
        let step = ((to - self.started_at) / f64::from(points)).ceil().max(f64::from(self.scrape_seconds));
        let span = TimeRange { from: self.started_at, to, step };
        DashboardQuerier { client: &self.server.client, span, scrape_seconds: f64::from(self.scrape_seconds) }
    }

    /// Returns the time since the start of Prometheus.
    pub fn age(&self) -> Duration {
        Duration::from_secs_f64((now() - self.started_at).max(0.0))
    }

    /// Ends both the cluster and Prometheus; see [`Scenario::finish`].
    ///
    /// # Errors
    /// Fails if a service ran twice at the same time, or if a part of the run remains.
    pub fn finish(self) -> Result<()> {
        let Self { scenario, server, _forwards: forwards, .. } = self;
        drop((server, forwards));
        scenario.finish()
    }
}

/// Returns the example configuration with this cluster's addresses and files. Targets keep the instance names of the example.
fn configuration(cluster: &Cluster, agents: &[(String, PortForward)], scrape_seconds: u16) -> Result<String> {
    let directory = repository().join("manifests/prometheus");
    let text = std::fs::read_to_string(directory.join("prometheus.yaml")).context("manifests/prometheus")?;
    let mut prometheus_configuration: Value = serde_yaml::from_str(&text)?;
    let interval = format!("{scrape_seconds}s");
    prometheus_configuration["global"] =
        json!({"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval});
    prometheus_configuration["rule_files"] = json!([directory.join("rules.yaml")]);
    // No Alertmanager runs.
    prometheus_configuration.as_object_mut().context("configuration is not an object")?.remove("alerting");
    let controllers = cluster.machine_names(Role::Controller).into_iter().map(|name| {
        let address = cluster.machine(&name)?.address;
        Ok(json!({"targets": [format!("{address}:{API_PORT}")],
            "labels": {"cluster": "default", "instance": format!("{name}:{API_PORT}")}}))
    });
    let controllers: Vec<Value> = controllers.collect::<Result<_>>()?;
    let agents = agents.iter().map(|(node, forward)| {
        json!({"targets": [forward.address()],
            "labels": {"cluster": "default", "node": node, "instance": format!("{node}:{ADMIN_PORT}")}})
    });
    let agents: Vec<Value> = agents.collect();
    let tls = cluster.directory().join("tls");
    let files = json!({"ca_file": tls.join("ca.pem"), "cert_file": tls.join("admin.pem"), "key_file": tls.join("admin.key")});
    for job in prometheus_configuration["scrape_configs"].as_array_mut().context("scrape_configs")? {
        let name = job["job_name"].as_str().unwrap_or_default().to_owned();
        job["static_configs"] = match name.as_str() {
            "hactl-controllers" => json!(controllers),
            "hactl-agents" => json!(agents),
            other => anyhow::bail!("manifests/prometheus/prometheus.yaml: unknown job {other}"),
        };
        if job.get("tls_config").is_some() {
            job["tls_config"] = files.clone();
        }
    }
    Ok(serde_yaml::to_string(&prometheus_configuration)?)
}
