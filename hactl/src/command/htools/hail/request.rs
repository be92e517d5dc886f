//! Requests to an allocator of Ganeti: JSON with the cluster and the question about it.

use super::super::{common_suffix, simulation};
use ha_scheduler::balance::htools::allocation::Request;
use ha_scheduler::balance::htools::evacuation::Mode;
use ha_scheduler::balance::htools::group_choice::{RequestedInstance, is_dedicated};
use ha_scheduler::balance::model::{
    Allocation, Cluster, DEFAULT_LOAD, FormatGeneration, Group, Instance, Node, Policy, Role, Specification,
    Status, StorageReach, Template,
};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// A request with its cluster.
pub(super) struct HailRequest {
    pub(super) question: Question,
    pub(super) cluster: Cluster,
    /// Network cards of the instances, by position; new ones follow those of the cluster.
    pub(super) nics: Vec<Vec<Nic>>,
    /// Disks of the instances, in the same order.
    pub(super) disks: Vec<Vec<Disk>>,
}

/// The question about the cluster. Instances, nodes and groups are given by their positions.
pub(super) enum Question {
    Allocate { wanted: Box<RequestedInstance>, restricted_to: Option<Vec<String>> },
    Relocate { instance: usize, node_count: i64, excluded: Vec<usize> },
    ChangeGroup { instances: Vec<usize>, groups: Vec<usize> },
    Evacuate { instances: Vec<usize>, mode: Mode },
    AllocateEach(Vec<RequestedInstance>),
    AllocateSecondary(usize),
}

/// A network card.
#[derive(Clone, Default)]
pub(super) struct Nic {
    /// MAC address, IP address, link and bridge.
    pub(super) texts: [Option<String>; 4],
    pub(super) mode: Option<&'static str>,
    pub(super) network: Option<String>,
}

/// A disk with its size in MiB and its spindles.
#[derive(Clone, Copy)]
pub(super) struct Disk {
    pub(super) size: i64,
    pub(super) spindles: Option<i64>,
}

/// An object with the text that precedes errors about its fields.
struct Object<'a> {
    owner: String,
    fields: &'a Map<String, Value>,
}

impl<'a> Object<'a> {
    fn new(owner: impl Into<String>, value: &'a Value) -> Result<Object<'a>, String> {
        let fields = value.as_object().ok_or("Unable to read JSObject")?;
        Ok(Object { owner: owner.into(), fields })
    }

    fn with_owner(&self, cause: impl std::fmt::Display) -> String {
        if self.owner.is_empty() { cause.to_string() } else { format!("{}: {cause}", self.owner) }
    }

    fn field(&self, key: &str) -> Result<&'a Value, String> {
        self.fields.get(key).ok_or_else(|| {
            let keys: Vec<String> = self.fields.keys().map(|key| format!("{key:?}")).collect();
            self.with_owner(format!("key '{key}' not found, object contains only [{}]", keys.join(",")))
        })
    }

    fn read<T>(&self, key: &str, read: impl Fn(&'a Value) -> Option<T>, kind: &str) -> Result<T, String> {
        let value = self.field(key)?;
        read(value).ok_or_else(|| self.with_owner(format!("key '{key}': Unable to read {kind}")))
    }

    fn text(&self, key: &str) -> Result<String, String> {
        self.read(key, |value| value.as_str().map(str::to_owned), "String")
    }

    fn integer(&self, key: &str) -> Result<i64, String> {
        self.read(key, integer, "Int")
    }

    fn number(&self, key: &str) -> Result<f64, String> {
        self.read(key, Value::as_f64, "Double")
    }

    fn boolean(&self, key: &str) -> Result<bool, String> {
        self.read(key, Value::as_bool, "Bool")
    }

    fn object(&self, key: &str) -> Result<Object<'a>, String> {
        let fields = self.read(key, Value::as_object, "JSObject")?;
        Ok(Object { owner: String::new(), fields })
    }

    fn list(&self, key: &str) -> Result<&'a Vec<Value>, String> {
        self.read(key, Value::as_array, "List")
    }

    fn texts(&self, key: &str) -> Result<Vec<String>, String> {
        let read = |value: &Value| -> Option<Vec<String>> {
            value.as_array()?.iter().map(|text| text.as_str().map(str::to_owned)).collect()
        };
        self.read(key, read, "String")
    }

    /// Returns the value unless it is missing or null.
    fn optional<T>(
        &self,
        key: &str,
        read: impl Fn(&Object<'a>, &str) -> Result<T, String>,
    ) -> Result<Option<T>, String> {
        match self.fields.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(_) => read(self, key).map(Some),
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "sizes are bounded where they are used")]
fn integer(value: &Value) -> Option<i64> {
    let is_whole = |number: &f64| number.fract() == 0.0 && number.abs() < 1e15;
    value.as_i64().or_else(|| value.as_f64().filter(is_whole).map(|number| number as i64))
}

#[expect(clippy::cast_possible_truncation, reason = "sizes are bounded where they are used")]
fn to_whole_number(number: f64) -> i64 {
    number as i64
}

/// Reads a request. `node_memory`, in MiB, replaces the amount of memory that each node reports for its own use, if KVM is
/// the first hypervisor of the cluster; 0 replaces nothing.
pub(super) fn read(text: &str, node_memory: i64) -> Result<HailRequest, String> {
    let parsing = |cause: String| format!("Parsing input IAllocator message: {cause}");
    let value: Value =
        serde_json::from_str(text).map_err(|error| parsing(format!("Invalid JSON: {error}")))?;
    let message = Object::new("invalid iallocator message", &value).map_err(parsing)?;
    let mut request = message.object("request")?;
    "invalid request dict".clone_into(&mut request.owner);
    let mut reader = Reader::default();
    for (uuid, value) in message.object("nodegroups")?.fields {
        reader.add_group(uuid, value)?;
    }
    for (name, value) in message.object("nodes")?.fields {
        reader.add_node(name, value)?;
    }
    for (name, value) in message.object("instances")?.fields {
        reader.add_instance(name, value)?;
    }
    reader.cluster.tags = message.texts("cluster_tags")?;
    let hypervisors = message.texts("enabled_hypervisors")?;
    if node_memory > 0 && hypervisors.first().is_some_and(|hypervisor| hypervisor == "kvm") {
        for node in &mut reader.cluster.nodes {
            node.memory_own = node_memory;
        }
    }
    let question = reader.question(&request)?;
    Ok(HailRequest { question, cluster: reader.cluster, nics: reader.nics, disks: reader.disks })
}

/// The parts of a request that were read so far.
struct Reader {
    cluster: Cluster,
    nics: Vec<Vec<Nic>>,
    disks: Vec<Vec<Disk>>,
}

impl Default for Reader {
    fn default() -> Reader {
        let cluster = Cluster {
            generation: FormatGeneration::Newer,
            has_forthcoming_field: true,
            policies: vec![simulation::default_policy("")],
            ..Cluster::default()
        };
        Reader { cluster, nics: Vec::new(), disks: Vec::new() }
    }
}

impl Reader {
    fn add_group(&mut self, uuid: &str, value: &Value) -> Result<(), String> {
        let group = Object::new(format!("invalid data for group '{uuid}'"), value)?;
        let name = group.text("name")?;
        let word = group.text("alloc_policy")?;
        let allocation = match word.as_str() {
            "preferred" => Allocation::Preferred,
            "last_resort" => Allocation::LastResort,
            "unallocable" => Allocation::Unallocable,
            _ => return Err(invalid_word(&group, "alloc_policy", "AllocPolicy", &word)),
        };
        let networks = group.texts("networks")?;
        let policy = group.object("ipolicy")?;
        self.cluster.policies.push(read_policy(&name, &policy).map_err(|cause| group.with_owner(cause))?);
        let tags = group.texts("tags")?;
        self.cluster.groups.push(Group { name, uuid: uuid.to_owned(), allocation, tags, networks });
        Ok(())
    }

    fn add_node(&mut self, name: &str, value: &Value) -> Result<(), String> {
        let node = Object::new(format!("invalid data for node '{name}'"), value)?;
        let (offline, drained) = (node.boolean("offline")?, node.boolean("drained")?);
        let uuid = node.text("group")?;
        let vm_capable = node.optional("vm_capable", Object::boolean)?.unwrap_or(true);
        let group = self.cluster.groups.iter().position(|group| group.uuid == uuid);
        let group = group.ok_or_else(|| format!("Unknown group '{uuid}' for node {name}"))?;
        let mut parameters = node.object("ndparams")?;
        parameters.owner.clone_from(&node.owner);
        let tags = node.optional("tags", Object::texts)?.unwrap_or_default();
        let exclusive_storage = parameters.boolean("exclusive_storage")?;
        let is_live = !offline && vm_capable;
        let live = |key: &str| if is_live { node.integer(key) } else { Ok(0) };
        let live_number = |key: &str| if is_live { node.number(key).map(to_whole_number) } else { Ok(0) };
        let spindles =
            if exclusive_storage { live("total_spindles")? } else { parameters.integer("spindle_count")? };
        self.cluster.nodes.push(Node {
            name: name.to_owned(),
            spindles_free: live("free_spindles")?,
            memory_total: live_number("total_memory")?,
            memory_own: live("reserved_memory")?,
            memory_free: live("free_memory")?,
            disk_total: live_number("total_disk")?,
            disk_free: live("free_disk")?,
            cpus: live_number("total_cpus")?,
            cpus_own: live("reserved_cpus")?,
            role: if !is_live || drained { Role::Offline } else { Role::Member },
            group,
            spindles,
            tags,
            exclusive_storage,
            cpu_speed: 1.0,
        });
        Ok(())
    }

    fn add_instance(&mut self, name: &str, value: &Value) -> Result<(), String> {
        let fields = Object::new("", value)?;
        let (mut instance, disks, nics) = read_instance(name, &fields)?;
        let names = fields.texts("nodes")?;
        let node = |node: &String| {
            let found = self.cluster.nodes.iter().position(|each| each.name == *node);
            found.ok_or_else(|| format!("Unknown node '{node}' for instance {name}"))
        };
        let primary = names.first().ok_or_else(|| format!("empty node list for instance {name}"))?;
        instance.primary = node(primary)?;
        instance.secondary = names.get(1).map(node).transpose()?;
        self.cluster.instances.push(instance);
        self.disks.push(disks);
        self.nics.push(nics);
        Ok(())
    }

    fn question(&mut self, request: &Object<'_>) -> Result<Question, String> {
        let kind = request.text("type")?;
        match kind.as_str() {
            "allocate" => {
                let group = request.optional("group_name", Object::text)?;
                let restricted_to = request.optional("restrict-to-nodes", Object::texts)?;
                Ok(Question::Allocate { wanted: Box::new(self.wanted(request, group)?), restricted_to })
            }
            "multi-allocate" => {
                let group = request.optional("group_name", Object::text)?;
                let each = request.list("instances")?.iter().map(|value| {
                    let instance = Object::new("invalid request dict", value)?;
                    self.wanted(&instance, group.clone())
                });
                Ok(Question::AllocateEach(each.collect::<Result<_, String>>()?))
            }
            "relocate" => {
                let instance = self.instance_with_name(&request.text("name")?)?;
                let node_count = request.integer("required_nodes")?;
                let excluded = request.texts("relocate_from")?;
                let excluded = excluded.iter().map(|name| self.node(name)).collect::<Result<_, String>>()?;
                Ok(Question::Relocate { instance, node_count, excluded })
            }
            "change-group" => {
                let instances = self.instances(request)?;
                let groups = request.texts("target_groups")?;
                let group = |name: &String| {
                    let mut groups = self.cluster.groups.iter();
                    let found = groups.position(|group| group.name == *name || group.uuid == *name);
                    found.ok_or_else(|| wrong_number(name))
                };
                let groups = groups.iter().map(group).collect::<Result<_, String>>()?;
                Ok(Question::ChangeGroup { instances, groups })
            }
            "node-evacuate" => {
                let instances = self.instances(request)?;
                let word = request.text("evac_mode")?;
                let mode = match word.as_str() {
                    "primary-only" => Mode::Primary,
                    "secondary-only" => Mode::Secondary,
                    "all" => Mode::All,
                    _ => return Err(invalid_word(request, "evac_mode", "EvacMode", &word)),
                };
                Ok(Question::Evacuate { instances, mode })
            }
            "allocate-secondary" => {
                Ok(Question::AllocateSecondary(self.instance_with_name(&request.text("name")?)?))
            }
            _ => Err(format!("Invalid request type '{kind}'")),
        }
    }

    /// Reads a new instance.
    fn wanted(&mut self, fields: &Object<'_>, group: Option<String>) -> Result<RequestedInstance, String> {
        let name = fields.text("name")?;
        let node_count = fields.integer("required_nodes")?;
        let (instance, disks, nics) = read_instance(&name, fields)?;
        let request = Request { instance, disks: disks.iter().map(|disk| disk.size).collect() };
        let networks = nics.iter().filter_map(|nic| nic.network.clone()).collect();
        self.disks.push(disks);
        self.nics.push(nics);
        Ok(RequestedInstance { request, node_count, networks, group })
    }

    fn instance_with_name(&self, name: &str) -> Result<usize, String> {
        let found = self.cluster.instances.iter().position(|instance| instance.name == name);
        found.ok_or_else(|| format!("Unknown instance '{name}'"))
    }

    /// Returns the instances of a request, named with or without the common suffix.
    fn instances(&self, request: &Object<'_>) -> Result<Vec<usize>, String> {
        let suffix = common_suffix(&self.cluster);
        let instance = |name: &String| {
            let is_named = |instance: &Instance| {
                instance.name == *name || instance.name.strip_suffix(suffix.as_str()) == Some(name.as_str())
            };
            self.cluster.instances.iter().position(is_named).ok_or_else(|| wrong_number(name))
        };
        request.texts("instances")?.iter().map(instance).collect()
    }

    fn node(&self, name: &str) -> Result<usize, String> {
        let suffix = common_suffix(&self.cluster);
        let is_named =
            |node: &Node| node.name == name || node.name.strip_suffix(suffix.as_str()) == Some(name);
        self.cluster.nodes.iter().position(is_named).ok_or_else(|| wrong_number(name))
    }
}

fn wrong_number(name: &str) -> String {
    format!("Wrong number of elems found with name {name}")
}

fn invalid_word(object: &Object<'_>, key: &str, kind: &str, word: &str) -> String {
    object.with_owner(format!("key '{key}': Invalid string value for type {kind}: {word:?}"))
}

/// Reads the fields that existing and new instances have.
fn read_instance(name: &str, fields: &Object<'_>) -> Result<(Instance, Vec<Disk>, Vec<Nic>), String> {
    let fields = Object { owner: format!("invalid data for instance '{name}'"), fields: fields.fields };
    let disk = fields.integer("disk_space_total")?;
    let disks = fields.list("disks")?.iter().map(|value| {
        let disk = Object::new(fields.owner.clone(), value)?;
        Ok(Disk { size: disk.integer("size")?, spindles: disk.optional("spindles", Object::integer)? })
    });
    let disks: Vec<Disk> = disks.collect::<Result<_, String>>()?;
    let (memory, vcpus) = (fields.integer("memory")?, fields.integer("vcpus")?);
    let tags = fields.texts("tags")?;
    let word = fields.text("disk_template")?;
    let template = Template::WORDS.iter().find(|(_, known)| *known == word);
    let template = template.map(|(template, _)| *template);
    let template = template.ok_or_else(|| invalid_word(&fields, "disk_template", "DiskTemplate", &word))?;
    let spindle_use = fields.integer("spindle_use")?;
    let nics =
        fields.list("nics")?.iter().map(|value| read_nic(name, value)).collect::<Result<_, String>>()?;
    let status = match fields.text("admin_state").as_deref() {
        Ok("down") => Status::AdminDown,
        Ok("offline") => Status::AdminOffline,
        Ok(_) | Err(_) => Status::Running,
    };
    let instance = Instance {
        name: name.to_owned(),
        memory,
        disk,
        vcpus,
        status,
        auto_balance: true,
        primary: 0,
        secondary: None,
        template,
        tags,
        spindle_use,
        disk_spindles: disks.iter().map(|disk| disk.spindles).sum(),
        forthcoming: fields.boolean("forthcoming").unwrap_or(false),
        load: DEFAULT_LOAD,
    };
    Ok((instance, disks, nics))
}

fn read_nic(instance: &str, value: &Value) -> Result<Nic, String> {
    let fields = Object::new("", value)?;
    let text = |key: &str| fields.optional(key, Object::text);
    let mode = match text("mode")?.as_deref() {
        None => None,
        Some("bridged") => Some("Bridged"),
        Some("routed") => Some("Routed"),
        Some("openvswitch") => Some("OpenVSwitch"),
        Some(_) => return Err(format!("invalid NIC mode in instance {instance}")),
    };
    let texts = [text("mac")?, text("ip")?, text("link")?, text("bridge")?];
    Ok(Nic { texts, mode, network: text("network")? })
}

fn read_policy(owner: &str, fields: &Object<'_>) -> Result<Policy, String> {
    let ranges = fields.list("minmax")?.iter().map(|value| {
        let range = Object::new("", value)?;
        Ok((read_specification(&range.object("min")?)?, read_specification(&range.object("max")?)?))
    });
    let words = fields.texts("disk-templates")?;
    let template = |word: &String| {
        let known = Template::WORDS.iter().find(|(_, known)| known == word);
        let unknown =
            || format!("key 'disk-templates': Invalid string value for type DiskTemplate: {word:?}");
        known.map(|(template, _)| *template).ok_or_else(unknown)
    };
    Ok(Policy {
        owner: owner.to_owned(),
        standard: read_specification(&fields.object("std")?)?,
        ranges: ranges.collect::<Result<_, String>>()?,
        templates: words.iter().map(template).collect::<Result<_, String>>()?,
        vcpu_ratio: fields.number("vcpu-ratio")?,
        spindle_ratio: fields.number("spindle-ratio")?,
    })
}

fn read_specification(fields: &Object<'_>) -> Result<Specification, String> {
    Ok(Specification {
        memory: fields.integer("memory-size")?,
        cpus: fields.integer("cpu-count")?,
        disk: fields.integer("disk-size")?,
        disks: fields.integer("disk-count")?,
        nics: fields.integer("nic-count")?,
        spindles: fields.integer("spindle-use")?,
    })
}

impl HailRequest {
    /// Returns the sizes of the disks of existing instances.
    pub(super) fn disk_sizes(&self) -> BTreeMap<usize, Vec<i64>> {
        let disks = self.disks.iter().take(self.cluster.instances.len()).enumerate();
        disks.map(|(index, disks)| (index, disks.iter().map(|disk| disk.size).collect())).collect()
    }

    /// Returns the networks of existing instances.
    pub(super) fn networks(&self) -> BTreeMap<usize, Vec<String>> {
        let nics = self.nics.iter().take(self.cluster.instances.len()).enumerate();
        nics.map(|(index, nics)| (index, nics.iter().filter_map(|nic| nic.network.clone()).collect()))
            .collect()
    }

    /// Replaces the cluster of the request. The instances of the new cluster have one disk each and no known networks.
    pub(super) fn replace_cluster(&mut self, cluster: Cluster) -> Result<(), String> {
        let (instances, nodes): (Vec<usize>, &[usize]) = match &self.question {
            Question::Relocate { instance, excluded, .. } => (vec![*instance], excluded),
            Question::ChangeGroup { instances, .. } | Question::Evacuate { instances, .. } => {
                (instances.clone(), &[])
            }
            Question::AllocateSecondary(instance) => (vec![*instance], &[]),
            Question::Allocate { .. } | Question::AllocateEach(_) => (Vec::new(), &[]),
        };
        let groups: &[usize] =
            if let Question::ChangeGroup { groups, .. } = &self.question { groups } else { &[] };
        // As in hail, the request refers to instances, nodes and groups by position.
        if instances.iter().any(|index| *index >= cluster.instances.len())
            || nodes.iter().any(|index| *index >= cluster.nodes.len())
            || groups.iter().any(|index| *index >= cluster.groups.len())
        {
            return Err("the cluster in the file lacks instances, nodes or groups of the request".to_owned());
        }
        let replaced = cluster.instances.len();
        let first_new = std::mem::replace(&mut self.cluster, cluster).instances.len();
        let sizes = self
            .cluster
            .instances
            .iter()
            .map(|instance| vec![Disk { size: instance.disk, spindles: instance.disk_spindles }]);
        self.disks.splice(..first_new, sizes);
        self.nics.splice(..first_new, vec![Vec::new(); replaced]);
        Ok(())
    }

    /// Returns `true` if the request is for new instances, and all nodes for them are dedicated.
    pub(super) fn is_for_dedicated_nodes(&self) -> bool {
        match &self.question {
            Question::Allocate { wanted, .. } => is_dedicated(&self.cluster, wanted.group.as_deref()),
            Question::AllocateEach(wanted) => {
                is_dedicated(&self.cluster, wanted.first().and_then(|wanted| wanted.group.as_deref()))
            }
            Question::Relocate { .. }
            | Question::ChangeGroup { .. }
            | Question::Evacuate { .. }
            | Question::AllocateSecondary(_) => false,
        }
    }
}

/// Returns `true` if hail moves instances with this storage.
pub(super) fn is_movable(template: Template) -> bool {
    template.reach() != StorageReach::Local && template != Template::Diskless
}
