//! The stored state of a real cluster, from a support dump, as the beginning of a simulation.

use crate::scenario::Scenario;
use crate::vocabulary::explain_service;
use ha_api_types::cluster::CLUSTER_NAME;
use ha_api_types::driver::DriverKind;
use ha_api_types::id::{ControllerId, NodeName, ResourceName, Revision};
use ha_api_types::keys::{Key, Keys};
use ha_api_types::kind::{API_VERSION, Kind};
use ha_api_types::node::NodeState;
use ha_api_types::record::{FenceState, NodeReport, WatchdogKind};
use ha_api_types::time::{Millis, MonotonicTime};
use ha_api_types::view::{Explanation, StateDump, StoredKey};
use ha_controller::core::world::ClusterView;
use ha_store::{Entry, LeaseId};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// Number of heartbeats after which a silent node counts as failed, although the leader still waits.
const MISSED_HEARTBEATS: u64 = 2;

/// A dumped cluster, with the ids of the simulated machines in place of the ids of the real machines.
///
/// A dump contains no processes: each agent and controller starts again, as after a crash.
#[derive(Debug)]
pub struct Dump {
    /// All keys, typed.
    pub(crate) cluster_view: ClusterView,
    /// The keys with which a simulation begins.
    pub(crate) entries: Vec<Entry>,
    pub(crate) revision: Revision,
    /// Time of the dump, in milliseconds since 1970.
    pub(crate) wall_ms: i128,
    /// Node on which each controller is simulated, by the id of the controller.
    controllers: BTreeMap<ControllerId, NodeName>,
    /// Time since the last heartbeat of each node, where it is known.
    heartbeat_age_ms: BTreeMap<NodeName, Millis>,
}

impl Dump {
    /// Reads `state.json` of a support dump.
    ///
    /// Errors: the text is not such a file, or contains no node.
    pub fn read(text: &str) -> Result<Dump, String> {
        let dump: StateDump = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let keys = Keys::new(CLUSTER_NAME);
        let ids = simulated_ids(&keys, &dump.keys);
        let mut controllers = Vec::new();
        let mut entries = Vec::new();
        let mut heartbeat_age_ms = BTreeMap::new();
        for stored_key in dump.keys {
            let key = format!("{}{}", keys.root(), stored_key.key);
            match keys.parse(&key) {
                Some(Key::Candidate(id)) => controllers.push(id),
                Some(Key::Alive(node)) => {
                    heartbeat_age_ms.extend(
                        stored_key.heartbeat_age_ms.map(|heartbeat_age_ms| (node.clone(), heartbeat_age_ms)),
                    );
                }
                Some(_) => {}
                None => return Err(format!("{}: this version does not know the key", stored_key.key)),
            }
            entries.push(translated_entry(key, stored_key, &ids));
        }
        let mut cluster_view = ClusterView::new(keys);
        cluster_view.replace(entries.clone(), dump.revision, MonotonicTime(0));
        if cluster_view.nodes.is_empty() {
            return Err("contains no node".to_owned());
        }
        let wall_ms = i128::from(dump.at.unix_seconds().unwrap_or(0)) * 1000;
        let mut dump = Dump {
            cluster_view,
            entries: Vec::new(),
            revision: dump.revision,
            wall_ms,
            controllers: BTreeMap::new(),
            heartbeat_age_ms,
        };
        dump.controllers = dump.choose_controller_nodes(controllers);
        dump.entries = entries.into_iter().filter_map(|entry| dump.initial_entry(entry)).collect();
        Ok(dump)
    }

    /// Returns the node on which each controller is simulated. A controller whose id is the name of a node runs on that
    /// node if the node is on. The other controllers run on the remaining nodes, in order.
    fn choose_controller_nodes(&self, ids: Vec<ControllerId>) -> BTreeMap<ControllerId, NodeName> {
        let is_node = |id: &ControllerId| self.cluster_view.nodes.contains_key(id.as_str());
        let (node_ids, other_ids): (Vec<ControllerId>, Vec<ControllerId>) =
            ids.into_iter().partition(is_node);
        let running_nodes: Vec<&NodeName> =
            self.cluster_view.nodes.keys().filter(|node| self.is_on(node)).collect();
        let free_nodes = running_nodes
            .iter()
            .filter(|node| !node_ids.iter().any(|id| ***node == **id))
            .map(|node| (*node).clone());
        let mut placements: BTreeMap<ControllerId, NodeName> =
            other_ids.into_iter().zip(free_nodes).collect();
        placements.extend(
            node_ids
                .into_iter()
                .filter(|id| running_nodes.iter().any(|node| ***node == **id))
                .map(|id| (id.clone(), NodeName::from(id.as_str()))),
        );
        placements
    }

    /// Returns the node of a controller, even if the node is off. `None` for a controller without a node: the
    /// simulation omits this controller.
    fn simulated_node(&self, id: &ControllerId) -> Option<&NodeName> {
        let node_of_this_name = || self.cluster_view.nodes.get_key_value(id.as_str()).map(|(node, _)| node);
        self.controllers.get(id).or_else(node_of_this_name)
    }

    /// Returns an entry in the form with which the simulation begins. The leader key is omitted, because its process
    /// has ended. Each candidate has the name, URL and machine of its simulated node. With these, the controller keeps
    /// its key.
    fn initial_entry(&self, mut entry: Entry) -> Option<Entry> {
        let keys = &self.cluster_view.keys;
        let key = match keys.parse(&entry.key) {
            Some(Key::Leader) => return None,
            Some(Key::Candidate(id)) => {
                let node = self.simulated_node(&id)?;
                let mut candidate: Value = serde_json::from_slice(&entry.value).ok()?;
                candidate["id"] = json!(node);
                candidate["url"] = json!(crate::world::controller_url(node));
                candidate["machine"] = json!(crate::world::machine_id(node, 0));
                entry.value = candidate.to_string().into_bytes().into();
                Some(keys.candidate(&node.as_str().into()))
            }
            Some(Key::Refresh(id)) => Some(keys.refresh(&self.simulated_node(&id)?.as_str().into())),
            Some(_) | None => None,
        };
        entry.key = key.unwrap_or(entry.key);
        Some(entry)
    }

    /// Returns the explanation that `hactl why` prints for a service at the time of the dump; `None` if the resource
    /// does not exist.
    pub fn explain(&self, resource: &ResourceName) -> Option<Explanation> {
        explain_service(&self.cluster_view, resource)
    }

    /// Parses the steps and expectations of a scenario whose machines and objects come from the dump. An empty text is
    /// a scenario without steps.
    ///
    /// Errors: those of [`Scenario::parse`]; also, the scenario also contains machines, objects or timings.
    pub(crate) fn scenario(&self, name: &str, text: &str, directory: &Path) -> Result<Scenario, String> {
        let cluster = self.cluster_view.cluster.as_ref().map(|cluster| &cluster.value.spec.timing);
        let timing =
            cluster.and_then(|timing| serde_json::to_value(timing).ok()).unwrap_or_else(|| json!({}));
        let mut objects = vec![json!({
            "apiVersion": API_VERSION, "kind": Kind::Cluster.name(), "metadata": {"name": CLUSTER_NAME},
            "spec": {"timing": timing},
        })];
        // etcd already contains the objects. Steps refer to their names.
        objects.extend(self.cluster_view.resources.keys().map(|name| {
            json!({
                "apiVersion": API_VERSION, "kind": Kind::Resource.name(), "metadata": {"name": name},
                "spec": {"driver": {"simulated": {}}},
            })
        }));
        let sections = Map::from_iter([
            ("nodes".to_owned(), Value::Array(self.machines())),
            ("objects".to_owned(), Value::Array(objects)),
            ("store".to_owned(), Value::Null),
        ]);
        Scenario::parse_with(name, if text.trim().is_empty() { "{}" } else { text }, directory, sections)
    }

    fn machines(&self) -> Vec<Value> {
        let running_nodes: Vec<&NodeName> =
            self.cluster_view.nodes.keys().filter(|node| self.is_on(node)).collect();
        let machine = |node: &NodeName| {
            let report = self.cluster_view.node_reports.get(node).map(|report| &report.value);
            let mut machine = report.map(machine_fields).unwrap_or_default();
            machine.insert("name".to_owned(), json!(node));
            machine
                .insert("power".to_owned(), json!(if running_nodes.contains(&node) { "on" } else { "off" }));
            machine.insert(
                "controller".to_owned(),
                json!(self.controllers.values().any(|controller_node| controller_node == node)),
            );
            Value::Object(machine)
        };
        self.cluster_view.nodes.keys().map(machine).collect()
    }

    /// Returns `true` if the node has sent a heartbeat under its current registration, and has missed at most
    /// [`MISSED_HEARTBEATS`] since.
    pub(crate) fn is_on(&self, node: &NodeName) -> bool {
        let cluster_view = &self.cluster_view;
        let interval_ms =
            cluster_view.node_reports.get(node).map(|report| report.value.timings.heartbeat_interval_ms);
        let max_heartbeat_age_ms = interval_ms.unwrap_or_default() * MISSED_HEARTBEATS;
        if self
            .heartbeat_age_ms
            .get(node)
            .is_some_and(|heartbeat_age_ms| *heartbeat_age_ms > max_heartbeat_age_ms)
        {
            return false;
        }
        let state =
            cluster_view.node_statuses.get(node).map_or(NodeState::Unknown, |status| status.value.state);
        let is_reachable = matches!(state, NodeState::Online | NodeState::Maintenance);
        let open_fence = cluster_view.fences.get(node).filter(|fence| fence.value.state == FenceState::Open);
        let alive = cluster_view.alive.get(node);
        is_reachable
            && open_fence.zip(alive).is_some_and(|(fence, alive)| fence.value.epoch == alive.value.epoch)
    }
}

fn translated_entry(key: String, stored_key: StoredKey, ids: &BTreeMap<String, String>) -> Entry {
    let mut value = stored_key.value;
    replace_ids(&mut value, ids);
    Entry {
        key,
        value: value.to_string().into_bytes().into(),
        create_revision: stored_key.create_revision,
        mod_revision: stored_key.mod_revision,
        lease: LeaseId(i64::from(stored_key.leased)),
    }
}

/// Returns the id of each simulated machine, by the id of the real machine.
fn simulated_ids(keys: &Keys, stored_keys: &[StoredKey]) -> BTreeMap<String, String> {
    let mut ids = BTreeMap::new();
    for stored_key in stored_keys {
        let key = format!("{}{}", keys.root(), stored_key.key);
        let Some(Key::NodeReport(node)) = keys.parse(&key) else { continue };
        for (field, simulated) in [
            ("bootId", crate::world::boot_id(&node, 1).to_string()),
            ("machineId", crate::world::machine_id(&node, 0).to_string()),
            ("productId", crate::world::product_id(&node, 0, 0).to_string()),
        ] {
            if let Some(id) = stored_key.value.get(field).and_then(Value::as_str).filter(|id| !id.is_empty())
            {
                ids.insert(id.to_owned(), simulated);
            }
        }
    }
    ids
}

fn replace_ids(value: &mut Value, ids: &BTreeMap<String, String>) {
    match value {
        Value::String(text) => {
            if let Some(id) = ids.get(text) {
                text.clone_from(id);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| replace_ids(item, ids)),
        Value::Object(fields) => fields.values_mut().for_each(|field| replace_ids(field, ids)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Returns the fields of a machine in a scenario, from the last report of its agent.
fn machine_fields(report: &NodeReport) -> Map<String, Value> {
    let is_known_driver = |driver: &&String| {
        driver.starts_with("external:") || DriverKind::ALL.iter().any(|kind| kind.name() == driver.as_str())
    };
    let watchdog = match report.watchdog.kind {
        WatchdogKind::None => "none",
        WatchdogKind::Kernel if report.watchdog.sliding => "sliding",
        WatchdogKind::Kernel => "fixed",
        WatchdogKind::Simulated => "simulated",
    };
    let mut machine = Map::from_iter([
        ("capacity".to_owned(), serde_json::to_value(report.capacity).unwrap_or_default()),
        ("drivers".to_owned(), json!(report.drivers.iter().filter(is_known_driver).collect::<Vec<_>>())),
        ("watchdog".to_owned(), json!(watchdog)),
        ("virtual".to_owned(), json!(report.is_virtual)),
    ]);
    if let Some(protection) = report.sleep_protection {
        machine.insert("sleep".to_owned(), json!(crate::scenario::sleep_keyword(protection)));
    }
    machine
}
