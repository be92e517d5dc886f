//! Load test of the API: many watches of many objects, and a client in a loop, on one controller and one etcd.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Parser;
use futures::StreamExt as _;
use ha_e2e::binaries;
use ha_e2e::network::free_port;
use ha_e2e::process::OwnedChild;
use ha_e2e::program::{exit_code_of, print_line};
use ha_e2e::scratch;
use reqwest::Client;
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// Number of watches on one HTTP/2 connection.
const WATCHES_PER_CONNECTION: usize = 50;
/// Time limit of each step.
const STEP_LIMIT: Duration = Duration::from_secs(300);

/// Measure the API of a controller with many watches and many objects
#[derive(Parser)]
struct Arguments {
    /// Number of resources
    #[arg(long, default_value_t = 10_000)]
    objects: usize,
    /// Number of watches of all resources
    #[arg(long, default_value_t = 1000)]
    watches: usize,
}

fn main() -> ExitCode {
    exit_code_of("error", run(&Arguments::parse()))
}

/// Resident memory of a process in MiB.
fn resident_mib(pid: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kib: u64 = line.trim().trim_end_matches(" kB").trim().parse()?;
    Ok(kib / 1024)
}

fn run(arguments: &Arguments) -> Result<()> {
    // The client needs a provider even without TLS. No other code of this program installs one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let directory = scratch::directory("api-load")?;
    fs::create_dir_all(&directory)?;
    let (client_port, peer_port, api_port) = (free_port()?, free_port()?, free_port()?);
    let etcd_url = format!("http://127.0.0.1:{client_port}");
    let peer_url = format!("http://127.0.0.1:{peer_port}");
    let _etcd = OwnedChild::start(
        Command::new(binaries::etcd()?)
            .arg("--data-dir")
            .arg(directory.join("etcd"))
            .args(["--listen-client-urls", &etcd_url, "--advertise-client-urls", &etcd_url])
            .args(["--listen-peer-urls", &peer_url, "--initial-advertise-peer-urls", &peer_url])
            .args(["--initial-cluster", &format!("default={peer_url}"), "--unsafe-no-fsync"]),
        &directory.join("etcd.log"),
    )?;
    let controller = OwnedChild::start(
        Command::new(binaries::workspace_program("ha-controller")?)
            .args(["--etcd-endpoints", &etcd_url, "--insecure-loopback"])
            .args(["--listen", &format!("127.0.0.1:{api_port}")])
            .arg("--socket")
            .arg(directory.join("api.sock"))
            .arg("--state-dir")
            .arg(directory.join("controller")),
        &directory.join("controller.log"),
    )?;
    let load = LoadTest {
        api: format!("http://127.0.0.1:{api_port}/apis/hactl.io/v1"),
        etcd: etcd_url,
        socket: directory.join("api.sock"),
        controller: controller.0.id(),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(load.measure(arguments))
}

/// The processes under load.
struct LoadTest {
    api: String,
    etcd: String,
    /// Unix socket of the API, on which this process has a user of its own.
    socket: PathBuf,
    controller: u32,
}

fn client() -> Result<Client> {
    Ok(Client::builder().no_proxy().http2_prior_knowledge().timeout(STEP_LIMIT).build()?)
}

fn resource(number: usize, revision: usize) -> Value {
    json!({"apiVersion": "hactl.io/v1", "kind": "Resource",
        "metadata": {"name": format!("load-{number:06}"), "labels": {"revision": revision.to_string()}},
        "spec": {"state": "Disabled", "driver": {"exec": {"command": ["/bin/true"]}}}})
}

impl LoadTest {
    async fn measure(&self, arguments: &Arguments) -> Result<()> {
        let client = client()?;
        self.wait_until_ready(&client).await?;
        let begin = Instant::now();
        self.create(&client, arguments.objects).await?;
        let seconds = begin.elapsed().as_secs_f64();
        print_line(&format!("{} resources created in {seconds:.1} s", arguments.objects))?;
        self.wait_for_statuses(&client).await?;
        for (name, query) in [("all", ""), ("first page of 500", "?limit=500")] {
            let begin = Instant::now();
            let bytes = self.get(&client, &format!("resources{query}")).await?.len();
            let milliseconds = begin.elapsed().as_millis();
            print_line(&format!("LIST, {name}: {bytes} bytes in {milliseconds} ms"))?;
        }
        self.print_state("before the watches").await?;
        let seen = Arc::new(AtomicU64::new(0));
        let mut watches = self.watch(arguments.watches, &seen, "revision!=none")?;
        self.wait_for_count(&seen, arguments.watches * arguments.objects, "initial events", &mut watches)
            .await?;
        self.print_state(&format!("with {} watches", arguments.watches)).await?;
        for round in 1..=3 {
            seen.store(0, Ordering::SeqCst);
            let changed = resource(0, round);
            let url = format!("{}/resources/load-000000", self.api);
            let request = client.patch(url).header("content-type", "application/merge-patch+json");
            request.body(changed.to_string()).send().await?.error_for_status()?;
            self.wait_for_count(&seen, arguments.watches, "events of a change", &mut watches).await?;
        }
        self.measure_status_under_load(&client).await?;
        self.print_state("at the end").await
    }

    async fn wait_until_ready(&self, client: &Client) -> Result<()> {
        let begin = Instant::now();
        while begin.elapsed() < STEP_LIMIT {
            if self.get(client, "status").await.is_ok() {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        bail!("the controller does not answer")
    }

    async fn get(&self, client: &Client, path: &str) -> Result<String> {
        Ok(client.get(format!("{}/{path}", self.api)).send().await?.error_for_status()?.text().await?)
    }

    async fn create(&self, client: &Client, count: usize) -> Result<()> {
        let created = futures::stream::iter(0..count).map(|number| async move {
            let request = client.post(format!("{}/resources", self.api)).json(&resource(number, 0));
            request.send().await?.error_for_status().map(drop)
        });
        let results: Vec<Result<(), reqwest::Error>> = created.buffer_unordered(4).collect().await;
        results.into_iter().collect::<Result<(), _>>().context("cannot create a resource")
    }

    /// Waits until the leader has written the status of every resource.
    async fn wait_for_statuses(&self, client: &Client) -> Result<()> {
        let begin = Instant::now();
        while begin.elapsed() < STEP_LIMIT {
            let list: Value = serde_json::from_str(&self.get(client, "resources").await?)?;
            let items = list["items"].as_array().context("no items")?;
            if items.iter().all(|item| item["status"]["state"] == "Disabled") {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        bail!("the leader does not write the statuses in time")
    }

    /// Opens watches, which count their events.
    fn watch(&self, count: usize, seen: &Arc<AtomicU64>, selector: &str) -> Result<JoinSet<Result<()>>> {
        let mut watches = JoinSet::new();
        for first in (0..count).step_by(WATCHES_PER_CONNECTION) {
            let client = client()?;
            for _ in first..count.min(first + WATCHES_PER_CONNECTION) {
                let url = format!("{}/resources?watch=1&labelSelector={selector}", self.api);
                let (request, seen) = (client.get(url), Arc::clone(seen));
                watches.spawn(async move {
                    let mut body = request.send().await?.error_for_status()?.bytes_stream();
                    while let Some(part) = body.next().await {
                        let lines = part?.split(|byte| *byte == b'\n').count() - 1;
                        seen.fetch_add(u64::try_from(lines)?, Ordering::SeqCst);
                    }
                    bail!("a watch ended")
                });
            }
        }
        Ok(watches)
    }

    async fn wait_for_count(
        &self,
        seen: &AtomicU64,
        expected: usize,
        what: &str,
        watches: &mut JoinSet<Result<()>>,
    ) -> Result<()> {
        let begin = Instant::now();
        while seen.load(Ordering::SeqCst) < u64::try_from(expected)? {
            if let Some(ended) = watches.try_join_next() {
                ended??;
            }
            if begin.elapsed() > STEP_LIMIT {
                bail!("{what}: {} of {expected} arrived in time", seen.load(Ordering::SeqCst));
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        print_line(&format!("{expected} {what} after {:.3} s", begin.elapsed().as_secs_f64()))
    }

    /// Measures `status` for another user while one client lists everything in a loop.
    async fn measure_status_under_load(&self, client: &Client) -> Result<()> {
        let mut loops = JoinSet::new();
        for _ in 0..16 {
            let (client, url) = (client.clone(), format!("{}/resources", self.api));
            loops.spawn(async move {
                loop {
                    // Refusals and errors are part of the load.
                    if let Ok(response) = client.get(&url).send().await {
                        let _ = response.bytes().await;
                    }
                }
            });
        }
        let operator = Client::builder().unix_socket(self.socket.clone()).timeout(STEP_LIMIT).build()?;
        let mut times = Vec::new();
        for _ in 0..20 {
            let begin = Instant::now();
            self.get(&operator, "status").await?;
            times.push(begin.elapsed().as_millis());
        }
        loops.abort_all();
        times.sort_unstable();
        print_line(&format!(
            "status for another user while 16 requests list everything: median {} ms, maximum {} ms",
            times[times.len() / 2],
            times[times.len() - 1]
        ))
    }

    /// Prints the memory of the controller and the number of watchers in etcd.
    async fn print_state(&self, when: &str) -> Result<()> {
        let metrics = Client::builder().no_proxy().build()?.get(format!("{}/metrics", self.etcd));
        let metrics = metrics.send().await?.text().await?;
        let watchers =
            metrics.lines().find_map(|line| line.strip_prefix("etcd_debugging_mvcc_watcher_total "));
        print_line(&format!(
            "{when}: controller {} MiB, etcd watchers {}",
            resident_mib(self.controller)?,
            watchers.context("etcd reports no number of watchers")?
        ))
    }
}
