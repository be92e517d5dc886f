//! Tests of the server over HTTP, with the real API.

use super::*;
use ha_api_types::time::Timestamp;
use ha_simulator::interactive::Beginning;
use reqwest::{Client, StatusCode};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;
use tokio::task::JoinHandle;

const CLUSTER_YAML: &str = "
nodes: [{name: node1}, {name: node2}, {name: node3}]
objects:
  - {kind: Resource, metadata: {name: web}, spec: {driver: {simulated: {}}}}
";

struct Served {
    url: String,
    client: Client,
    trigger: ha_runtime::shutdown::ShutdownTrigger,
    task: JoinHandle<Result<(), InteractiveError>>,
}

impl Served {
    async fn start(file: Option<PathBuf>) -> Served {
        let wall_clock = Timestamp("2026-11-27T12:00:00Z".to_owned());
        let simulation = Simulation::new(
            Beginning::Scenario,
            "cluster.yaml",
            CLUSTER_YAML,
            PathBuf::from("."),
            &wall_clock,
        )
        .unwrap();
        let server = InteractiveServer::bind(simulation, "127.0.0.1:0".parse().unwrap(), file).await.unwrap();
        let url = server.url().trim_end_matches("/console/").to_owned();
        let (trigger, shutdown) = Shutdown::manual();
        let task = tokio::spawn(server.run_until(shutdown));
        // Without a provider of cryptography, no client can be built. Another test may have set it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Served { url, client: Client::new(), trigger, task }
    }

    async fn get(&self, path: &str) -> Value {
        self.client.get(format!("{}{path}", self.url)).send().await.unwrap().json().await.unwrap()
    }

    async fn send(&self, method: reqwest::Method, path: &str, body: Value) -> (StatusCode, Value) {
        let request = self.client.request(method, format!("{}{path}", self.url)).json(&body);
        let response = request.send().await.unwrap();
        (response.status(), response.json().await.unwrap())
    }

    async fn post(&self, path: &str, body: Value) -> (StatusCode, Value) {
        self.send(reqwest::Method::POST, path, body).await
    }

    /// Waits until the state of the simulation has a property.
    async fn wait_for(&self, property: impl Fn(&Value) -> bool) -> Value {
        for _ in 0..3000 {
            let state = self.get("/simulation").await;
            if property(&state) {
                return state;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("the state does not appear: {}", self.get("/simulation").await);
    }

    async fn stop(self) {
        self.trigger.request();
        self.task.await.unwrap().unwrap();
    }
}

fn machine_of_web(state: &Value) -> Option<String> {
    let machines = state["machines"].as_array().unwrap();
    let runs = |machine: &&Value| machine["services"] == json!(["web"]);
    machines.iter().find(runs).map(|machine| machine["name"].as_str().unwrap().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn actions_and_writes_of_the_api_are_steps_that_a_replay_repeats() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("scenario.yaml");
    let served = Served::start(Some(file.clone())).await;
    served.post("/simulation/clock", json!({"speed": 50.0})).await;
    let node = machine_of_web(&served.wait_for(|state| machine_of_web(state).is_some()).await).unwrap();
    let (status, _) = served.post("/simulation/actions", json!({"do": format!("network {node} off")})).await;
    assert_eq!(status, StatusCode::OK);
    let moved = served.wait_for(|state| machine_of_web(state).is_some_and(|other| other != node)).await;
    assert_eq!(moved["violations"], json!([]));
    let operation = json!({
        "apiVersion": "hactl.io/v1", "kind": "Resource", "metadata": {"name": "added"},
        "spec": {"driver": {"simulated": {}}},
    });
    let (status, created) = served.post("/apis/hactl.io/v1/resources", operation).await;
    assert_eq!(status, StatusCode::CREATED, "{created}");
    served
        .wait_for(|state| {
            let machines = state["machines"].as_array().unwrap();
            machines.iter().any(|machine| machine["services"].to_string().contains("added"))
        })
        .await;
    served.stop().await;
    let text = std::fs::read_to_string(&file).unwrap();
    let scenario = ha_simulator::scenario::Scenario::parse("saved", &text, Path::new(".")).unwrap();
    let mut world = ha_simulator::world::World::new(scenario).unwrap();
    world.run();
    assert!(world.has_passed(), "{}", world.summary());
    assert!(text.contains("added"));
}

#[tokio::test(flavor = "multi_thread")]
async fn time_can_be_paused_and_set_back() {
    let served = Served::start(None).await;
    served.wait_for(|state| machine_of_web(state).is_some()).await;
    served.post("/simulation/clock", json!({"isPaused": true})).await;
    let paused = served.get("/simulation").await["elapsedMs"].clone();
    served.post("/simulation/actions", json!({"do": "power node1 off"})).await;
    let is_off = |state: &Value| state["machines"][0]["hasPower"] == json!(false);
    let after = served.wait_for(is_off).await;
    // An action takes one virtual millisecond, although time is paused.
    assert_eq!(after["elapsedMs"].as_u64(), paused.as_u64().map(|ms| ms + 1));
    served.post("/simulation/clock", json!({"elapsedMs": 10})).await;
    let earlier = served.get("/simulation").await;
    assert_eq!((earlier["elapsedMs"].as_u64(), is_off(&earlier)), (Some(10), false));
    assert_eq!(earlier["executedSteps"], json!(0));
    let (status, answer) = served.post("/simulation/clock", json!({"speed": 0.0})).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{answer}");
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn etcd_outage_of_the_simulation_is_an_error_of_the_api() {
    let served = Served::start(None).await;
    served.wait_for(|state| machine_of_web(state).is_some()).await;
    served.post("/simulation/clock", json!({"isPaused": true})).await;
    served.post("/simulation/actions", json!({"do": "store outage 30s"})).await;
    let (status, _) = served.send(reqwest::Method::GET, "/apis/hactl.io/v1/resources", json!({})).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(served.get("/simulation").await["isEtcdAvailable"], json!(false));
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_actions_foreign_pages_and_requests_for_logs_are_refused() {
    let served = Served::start(None).await;
    let (status, answer) = served.post("/simulation/actions", json!({"do": "explode node1"})).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(answer["message"].as_str().unwrap().contains("explode"), "{answer}");
    let foreign = served.client.post(format!("{}/simulation/actions", served.url));
    let foreign = foreign.header("Origin", "http://example.com").json(&json!({"do": "power node1 off"}));
    assert_eq!(foreign.send().await.unwrap().status(), StatusCode::FORBIDDEN);
    // A service without a node has another reason for its missing log.
    served.wait_for(|state| machine_of_web(state).is_some()).await;
    let log = served.client.get(format!("{}/apis/hactl.io/v1/resources/web/log", served.url));
    let log = log.send().await.unwrap();
    assert_eq!(log.status(), StatusCode::BAD_REQUEST);
    let message = log.text().await.unwrap();
    assert!(
        message.contains("no log of resource web on node") && message.contains("have no logs"),
        "{message}"
    );
    served.stop().await;
}
