//! The Prometheus server: starting it with a configuration, and querying it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use reqwest::{Client, Url};
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};

use crate::command::tool;
use crate::process::OwnedChild;
use crate::scenario::STEP_TIMEOUT;
use crate::wait::wait_until;

/// Seconds since 1970.
pub type Time = f64;

/// A time range, and the interval between its points.
#[derive(Debug, Clone, Copy)]
pub struct TimeRange {
    /// Time of the first point.
    pub from: Time,
    /// Latest possible time of a point.
    pub to: Time,
    /// Seconds between two points.
    pub step: f64,
}

/// One series of a result.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Labels that identify the series.
    pub labels: BTreeMap<String, String>,
    /// Numbers with their times.
    pub points: Vec<(Time, f64)>,
}

/// Client of a Prometheus server.
pub struct Prometheus {
    base_url: Url,
    client: Client,
    runtime: Runtime,
}

/// A Prometheus server that runs until this value is dropped or the program ends.
pub struct PrometheusServer {
    child: OwnedChild,
    /// Client of the server.
    pub client: Prometheus,
}

impl PrometheusServer {
    /// Starts a Prometheus with this configuration. All its files are in `directory`.
    ///
    /// # Errors
    /// Fails if Prometheus is not installed or does not become ready.
    pub fn start(directory: &Path, address: SocketAddr, configuration: &str) -> Result<Self> {
        fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
        let (file, log) = (directory.join("prometheus.yaml"), directory.join("prometheus.log"));
        fs::write(&file, configuration).with_context(|| file.display().to_string())?;
        let output = File::create(&log)?;
        let child = Command::new(tool("setpriv"))
            .args(["--pdeathsig", "KILL", &tool("prometheus"), "--log.level=warn"])
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", directory.join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .context("cannot start prometheus")?;
        let mut server =
            Self { child: OwnedChild(child), client: Prometheus::for_url(&format!("http://{address}"))? };
        wait_until("Prometheus to be ready", STEP_TIMEOUT, || {
            server.client.is_ready() || !server.poll_running()
        })?;
        if !server.poll_running() {
            bail!("prometheus exited (./dev/setup --test installs it): {}", fs::read_to_string(&log)?);
        }
        Ok(server)
    }

    fn poll_running(&mut self) -> bool {
        matches!(self.child.0.try_wait(), Ok(None))
    }
}

impl Prometheus {
    /// Returns a client of the Prometheus at this URL.
    ///
    /// # Errors
    /// Fails if the URL is invalid.
    pub fn for_url(base_url: &str) -> Result<Self> {
        // A later call fails because the provider is already installed. That is harmless.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder().timeout(Duration::from_secs(30)).no_proxy().build()?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        Ok(Self { base_url: Url::parse(base_url).with_context(|| base_url.to_owned())?, client, runtime })
    }

    /// Returns `true` if Prometheus is ready to run queries.
    pub fn is_ready(&self) -> bool {
        let Ok(url) = self.base_url.join("/-/ready") else { return false };
        self.runtime
            .block_on(async { self.client.get(url).send().await })
            .is_ok_and(|answer| answer.status().is_success())
    }

    /// Returns the result of a query at one time.
    ///
    /// # Errors
    /// Fails if Prometheus does not respond or refuses the query.
    pub fn query_at(&self, query: &str, at: Time) -> Result<Vec<Series>> {
        parse_series(&self.get("/api/v1/query", &[("query", query), ("time", &at.to_string())])?)
    }

    /// Returns the result of a query over a range of time.
    ///
    /// # Errors
    /// Fails if Prometheus does not respond or refuses the query.
    pub fn query_range(&self, query: &str, span: TimeRange) -> Result<Vec<Series>> {
        let (from, to, step) = (span.from.to_string(), span.to.to_string(), span.step.to_string());
        let parameters = [("query", query), ("start", &from), ("end", &to), ("step", &step)];
        parse_series(&self.get("/api/v1/query_range", &parameters)?)
    }

    /// Returns the number of series that match a selector.
    ///
    /// # Errors
    /// Fails if Prometheus does not respond or refuses the selector.
    pub fn count_series(&self, selector: &str, span: TimeRange) -> Result<usize> {
        let parameters =
            [("match[]", selector), ("start", &span.from.to_string()), ("end", &span.to.to_string())];
        Ok(self.get("/api/v1/series", &parameters)?.as_array().map_or(0, Vec::len))
    }

    /// Returns the values of a label in the series that match a selector.
    ///
    /// # Errors
    /// Fails if Prometheus does not respond or refuses the selector.
    pub fn label_values(&self, selector: &str, label: &str, span: TimeRange) -> Result<Vec<String>> {
        let parameters =
            [("match[]", selector), ("start", &span.from.to_string()), ("end", &span.to.to_string())];
        let values = self.get(&format!("/api/v1/label/{label}/values"), &parameters)?;
        serde_json::from_value(values).context("values of a label")
    }

    fn get(&self, path: &str, parameters: &[(&str, &str)]) -> Result<Value> {
        let mut url = self.base_url.join(path)?;
        url.query_pairs_mut().extend_pairs(parameters);
        let mut answer: Value = self.runtime.block_on(async {
            let answer = self.client.get(url).send().await.context("no response from Prometheus")?;
            answer.json().await.context("response of Prometheus is not valid JSON")
        })?;
        if answer["status"] != "success" {
            bail!("Prometheus rejected {parameters:?}: {}", answer["error"]);
        }
        Ok(answer["data"].take())
    }
}

/// Parses a result of type scalar, vector or matrix.
fn parse_series(data: &Value) -> Result<Vec<Series>> {
    let result = &data["result"];
    if data["resultType"] == "scalar" {
        return Ok(vec![Series { labels: BTreeMap::new(), points: vec![parse_point(result)?] }]);
    }
    let parse_one = |series_value: &Value| -> Result<Series> {
        let labels = serde_json::from_value(series_value["metric"].clone())?;
        let points = match (&series_value["values"], &series_value["value"]) {
            (Value::Array(values), _) => values.iter().map(parse_point).collect::<Result<_>>()?,
            (_, value) => vec![parse_point(value)?],
        };
        Ok(Series { labels, points })
    };
    result.as_array().context("a list of series")?.iter().map(parse_one).collect()
}

/// Parses a point: `[time, "number"]`.
fn parse_point(pair: &Value) -> Result<(Time, f64)> {
    let time = pair[0].as_f64().context("a time")?;
    let number = pair[1].as_str().context("a number as text")?;
    Ok((time, number.parse().with_context(|| number.to_owned())?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_prometheus_result_type_is_parsed() {
        let points = |data: Value| parse_series(&data).unwrap()[0].points.clone();
        assert_eq!(points(json!({"resultType": "scalar", "result": [5, "1.5"]})), [(5.0, 1.5)]);
        let vector = json!({"resultType": "vector", "result": [{"metric": {"a": "b"}, "value": [5, "2"]}]});
        assert_eq!(parse_series(&vector).unwrap()[0].labels["a"], "b");
        assert_eq!(points(vector), [(5.0, 2.0)]);
        let matrix =
            json!({"resultType": "matrix", "result": [{"metric": {}, "values": [[5, "1"], [6, "+Inf"]]}]});
        assert_eq!(points(matrix), [(5.0, 1.0), (6.0, f64::INFINITY)]);
        assert!(
            parse_series(&json!({"resultType": "vector", "result": [{"metric": {}, "value": [5, "x"]}]}))
                .is_err()
        );
    }
}
