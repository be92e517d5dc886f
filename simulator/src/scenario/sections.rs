//! The sections of a scenario other than steps and objects: timing, nodes, placements, etcd members, expectations.

use super::action::without_type_prefix;
use super::condition::parse_service_state;
use super::reader::{Fields, Reader};
use super::{Device, Expectations, ExpectedService, InitialPlacement, Machine, Power};
use crate::clock::DEFAULT_WALL_MS;
use ha_api_types::cluster::CLUSTER_NAME;
use ha_api_types::driver::DriverKind;
use ha_api_types::id::{NodeName, ResourceName};
use ha_api_types::kind::{API_VERSION, Kind};
use ha_api_types::node_policy::NodePolicy;
use ha_api_types::quantity::{Amounts, Quantity};
use ha_api_types::record::SleepProtection;
use ha_api_types::resource::ServiceState;
use ha_api_types::time::Timestamp;
use ha_api_types::timing::TimingSpec;
use ha_api_types::{names, schema, validation};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Reads `wallClock`, in milliseconds since 1970.
pub(super) fn read_wall_ms(reader: &mut Reader<'_>, value: Option<&Value>) -> i128 {
    let Some(text) = value.and_then(|value| reader.read_text(value, "wallClock")) else {
        return DEFAULT_WALL_MS;
    };
    let seconds = Timestamp(text).unix_seconds();
    if seconds.is_none() {
        reader.add_problem("wallClock", "is not a time such as 2026-01-01T00:00:00Z");
    }
    seconds.map_or(DEFAULT_WALL_MS, |seconds| i128::from(seconds) * 1000)
}

/// Reads `timing`, which is validated like `Cluster.spec.timing`.
pub(super) fn read_timing(reader: &mut Reader<'_>, value: Option<&Value>) -> TimingSpec {
    let Some(value) = value else { return TimingSpec::default() };
    if reader.read_map(value, "timing").is_none() {
        return TimingSpec::default();
    }
    let cluster = json!({
        "apiVersion": API_VERSION, "kind": Kind::Cluster.name(), "metadata": {"name": CLUSTER_NAME},
        "spec": {"timing": value},
    });
    let mut problems = schema::unknown_fields(schema::of(Kind::Cluster), &cluster);
    problems.extend(validation::problems(Kind::Cluster, &cluster));
    for problem in &problems {
        reader.add_problem(problem.path.trim_start_matches("spec."), &problem.message);
    }
    serde_json::from_value(value.clone()).unwrap_or_default()
}

/// Reads the machines.
pub(super) fn read_nodes(reader: &mut Reader<'_>, value: &Value) -> Vec<Machine> {
    let mut machines: Vec<Machine> = Vec::new();
    for (index, item) in reader.list(value, "nodes").iter().enumerate() {
        let path = format!("nodes[{index}]");
        let field_names = [
            "name",
            "power",
            "controller",
            "capacity",
            "drivers",
            "policy",
            "watchdog",
            "virtual",
            "sleep",
            "cloneOf",
        ];
        let Some(fields) = reader.read_fields(item, &path, &field_names) else { continue };
        let name = fields.get("name").and_then(|name| reader.read_text(name, &fields.path_of("name")));
        let Some(name) = name else {
            reader.add_problem(&path, "a node needs a name");
            continue;
        };
        if let Some(problem) = names::invalid_reason(&name, names::MAX_NODE_NAME_LENGTH) {
            reader.add_problem(&fields.path_of("name"), problem);
        }
        if name == "leader" {
            reader.add_problem(
                &fields.path_of("name"),
                "the name `leader` is reserved: in actions, it is the node of the leader",
            );
        }
        if machines.iter().any(|machine| machine.name == name) {
            reader.add_problem(&fields.path_of("name"), format!("node {name} is listed twice"));
        }
        machines.push(machine(reader, &fields, name.into()));
    }
    machines
}

/// Sleep protection, by its words in scenario files.
pub(super) const SLEEP_WORDS: [(&str, SleepProtection); 4] = [
    ("never", SleepProtection::NotNeeded),
    ("masked", SleepProtection::Masked),
    ("inhibitor", SleepProtection::Inhibitor),
    ("unprotected", SleepProtection::None),
];

fn machine(reader: &mut Reader<'_>, fields: &Fields<'_>, name: NodeName) -> Machine {
    let read_power = |reader: &mut Reader<'_>| {
        let words = [("on", Power::On), ("off", Power::Off)];
        fields.get("power").and_then(|value| reader.read_choice(value, &fields.path_of("power"), &words))
    };
    let read_watchdog_device = |reader: &mut Reader<'_>| {
        let words = [
            ("sliding", Device::Sliding),
            ("fixed", Device::Fixed),
            ("simulated", Device::Simulated),
            // The name until version 0.1.
            ("standIn", Device::Simulated),
            ("busy", Device::Busy),
            ("coarse", Device::Coarse),
            ("none", Device::Missing),
        ];
        fields
            .get("watchdog")
            .and_then(|value| reader.read_choice(value, &fields.path_of("watchdog"), &words))
    };
    let read_sleep_protection = |reader: &mut Reader<'_>| {
        fields
            .get("sleep")
            .and_then(|value| reader.read_choice(value, &fields.path_of("sleep"), &SLEEP_WORDS))
    };
    let read_clone_of = |reader: &mut Reader<'_>| {
        fields
            .get("cloneOf")
            .and_then(|value| reader.read_text(value, &fields.path_of("cloneOf")))
            .map(NodeName::from)
    };
    let drivers = DriverKind::ALL.map(|kind| (kind.name(), kind));
    let read_drivers = |reader: &mut Reader<'_>| {
        let value = fields.get("drivers")?;
        let path = fields.path_of("drivers");
        let items = reader.list(value, &path);
        let mut driver_names = Vec::new();
        for (index, item) in items.iter().enumerate() {
            // The word of an external driver is its name.
            if let Some(external) = item.as_str().filter(|text| text.starts_with("external:")) {
                driver_names.push(external.to_owned());
                continue;
            }
            let kind = reader.read_choice(item, &format!("{path}[{index}]"), &drivers);
            driver_names.extend(kind.map(|kind| kind.name().to_owned()));
        }
        driver_names.sort();
        Some(driver_names)
    };
    let read_policy = |reader: &mut Reader<'_>| {
        let read = NodePolicy::parse(&fields.get("policy")?.to_string());
        read.map_err(|problem| reader.add_problem(&fields.path_of("policy"), problem)).ok()
    };
    let read_flag = |reader: &mut Reader<'_>, field: &str, default: bool| {
        fields
            .get(field)
            .and_then(|value| reader.read_boolean(value, &fields.path_of(field)))
            .unwrap_or(default)
    };
    let mut all_drivers: Vec<String> = DriverKind::ALL.iter().map(|kind| kind.name().to_owned()).collect();
    all_drivers.sort();
    Machine {
        power: read_power(reader).unwrap_or_default(),
        has_controller: read_flag(reader, "controller", true),
        capacity: fields
            .get("capacity")
            .map(|value| amounts(reader, value, &fields.path_of("capacity")))
            .unwrap_or_default(),
        drivers: read_drivers(reader).unwrap_or(all_drivers),
        policy: read_policy(reader),
        watchdog: read_watchdog_device(reader).unwrap_or_default(),
        is_virtual: read_flag(reader, "virtual", false),
        sleep: read_sleep_protection(reader),
        clone_of: read_clone_of(reader),
        name,
    }
}

fn amounts(reader: &mut Reader<'_>, value: &Value, path: &str) -> Amounts {
    let mut amounts = Amounts::default();
    let Some(fields) = reader.read_fields(value, path, &["cpu", "memory", "disk"]) else { return amounts };
    for (name, value) in fields.iter() {
        let field_path = fields.path_of(name);
        let Some(text) = reader.read_text(value, &field_path) else { continue };
        let quantity = match text.parse::<Quantity>() {
            Ok(quantity) => Some(quantity),
            Err(error) => {
                reader.add_problem(&field_path, error);
                None
            }
        };
        match name.as_str() {
            "cpu" => amounts.cpu = quantity,
            "memory" => amounts.memory = quantity,
            _ => amounts.disk = quantity,
        }
    }
    amounts
}

fn read_state(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Option<ServiceState> {
    let path = fields.path_of("state");
    let text = reader.read_text(fields.get("state")?, &path)?;
    parse_service_state(&text).map_err(|problem| reader.add_problem(&path, problem)).ok()
}

/// Reads the placements at time 0.
pub(super) fn read_initial_placements(
    reader: &mut Reader<'_>,
    value: &Value,
) -> BTreeMap<ResourceName, InitialPlacement> {
    let mut initial_placements = BTreeMap::new();
    let Some(map) = reader.read_map(value, "place") else { return initial_placements };
    for (name, item) in map.iter() {
        let path = map.path_of(name);
        let Some(fields) = reader.read_fields(item, &path, &["node", "running", "state", "target"]) else {
            continue;
        };
        let node = |reader: &mut Reader<'_>, key: &str| -> Option<NodeName> {
            fields
                .get(key)
                .and_then(|value| reader.read_text(value, &fields.path_of(key)))
                .map(NodeName::from)
        };
        let target = node(reader, "target");
        let node = node(reader, "node").unwrap_or_default();
        if node.is_empty() {
            reader.add_problem(&path, "an entry of `place` requires a node");
        }
        let running =
            fields.get("running").and_then(|value| reader.read_boolean(value, &fields.path_of("running")));
        let initial_placement = InitialPlacement {
            node,
            running: running.unwrap_or(false),
            state: read_state(reader, &fields),
            target,
        };
        let is_moving =
            matches!(initial_placement.state, Some(ServiceState::Migrate | ServiceState::Relocate));
        if is_moving && initial_placement.target.is_none() {
            reader.add_problem(&path, "a service that moves needs a target");
        }
        if !is_moving && initial_placement.target.is_some() {
            reader.add_problem(
                &fields.path_of("target"),
                "only a service in state Migrate or Relocate has a target",
            );
        }
        initial_placements.insert(without_type_prefix(name), initial_placement);
    }
    initial_placements
}

/// Reads the nodes that run etcd members.
pub(super) fn read_store(reader: &mut Reader<'_>, value: &Value) -> Vec<NodeName> {
    let Some(fields) = reader.read_fields(value, "store", &["on"]) else { return Vec::new() };
    let nodes: Vec<NodeName> =
        fields.get("on").map(|value| reader.names(value, "store.on")).unwrap_or_default();
    if nodes.is_empty() {
        reader.add_problem(
            "store",
            "requires `on` with the nodes of the members; without `store`, etcd is outside",
        );
    }
    for (index, node) in nodes.iter().enumerate() {
        if nodes.iter().take(index).any(|earlier_node| earlier_node == node) {
            reader.add_problem(&format!("store.on[{index}]"), format!("{node} is listed twice"));
        }
    }
    nodes
}

const EXPECT_KEYS: [&str; 13] = [
    "services",
    "fenced",
    "watchdogResets",
    "maintenance",
    "maxMoves",
    "together",
    "apart",
    "onOneOf",
    "maxPerNode",
    "notified",
    "refused",
    "progress",
    "broken",
];

/// Reads the expected outcome.
pub(super) fn read_expect(reader: &mut Reader<'_>, value: &Value) -> Expectations {
    let Some(fields) = reader.read_fields(value, "expect", &EXPECT_KEYS) else {
        return Expectations::default();
    };
    let names = |reader: &mut Reader<'_>, key: &str| -> Option<Vec<String>> {
        fields.get(key).map(|value| reader.names(value, &fields.path_of(key)))
    };
    let nodes = |reader: &mut Reader<'_>, key: &str| -> Option<Vec<NodeName>> {
        fields.get(key).map(|value| reader.names(value, &fields.path_of(key)))
    };
    let read_whole_number = |reader: &mut Reader<'_>, key: &str| {
        fields.get(key).and_then(|value| reader.read_unsigned(value, &fields.path_of(key)))
    };
    let sets = |reader: &mut Reader<'_>, key: &str| {
        let path = fields.path_of(key);
        let items = fields.get(key).map(|value| reader.list(value, &path)).unwrap_or_default();
        let mut sets: Vec<Vec<ResourceName>> = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let set: Vec<String> = reader.names(item, &format!("{path}[{index}]"));
            sets.push(set.iter().map(|name| without_type_prefix(name)).collect());
        }
        sets
    };
    Expectations {
        services: fields.get("services").map(|value| read_services(reader, value)).unwrap_or_default(),
        fenced: nodes(reader, "fenced"),
        watchdog_resets: nodes(reader, "watchdogResets"),
        maintenance: nodes(reader, "maintenance"),
        max_moves: read_whole_number(reader, "maxMoves"),
        affinity_sets: sets(reader, "together"),
        anti_affinity_sets: sets(reader, "apart"),
        on_one_of: fields.get("onOneOf").map(|value| read_on_one_of(reader, value)).unwrap_or_default(),
        max_per_node: read_whole_number(reader, "maxPerNode"),
        notified: names(reader, "notified"),
        refused: names(reader, "refused"),
        requires_progress: fields
            .get("progress")
            .and_then(|value| reader.read_boolean(value, &fields.path_of("progress")))
            .unwrap_or_default(),
        broken: nodes(reader, "broken").unwrap_or_default(),
    }
}

fn read_services(reader: &mut Reader<'_>, value: &Value) -> BTreeMap<ResourceName, ExpectedService> {
    let mut expected_services = BTreeMap::new();
    let Some(map) = reader.read_map(value, "expect.services") else { return expected_services };
    for (name, item) in map.iter() {
        let path = map.path_of(name);
        let Some(fields) = reader.read_fields(item, &path, &["state", "node", "running"]) else { continue };
        let node = match item.get("node") {
            None => None,
            Some(Value::Null) => Some(None),
            Some(value) => reader.read_text(value, &fields.path_of("node")).map(|node| Some(node.into())),
        };
        let running =
            fields.get("running").and_then(|value| reader.read_boolean(value, &fields.path_of("running")));
        let expected = ExpectedService { state: read_state(reader, &fields), node, running };
        expected_services.insert(without_type_prefix(name), expected);
    }
    expected_services
}

fn read_on_one_of(reader: &mut Reader<'_>, value: &Value) -> BTreeMap<ResourceName, Vec<NodeName>> {
    let mut allowed_nodes = BTreeMap::new();
    let Some(map) = reader.read_map(value, "expect.onOneOf") else { return allowed_nodes };
    for (name, item) in map.iter() {
        let nodes = reader.names(item, &map.path_of(name));
        allowed_nodes.insert(without_type_prefix(name), nodes);
    }
    allowed_nodes
}
