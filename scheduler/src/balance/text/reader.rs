//! The reader of the text format.

use super::field::{Fields, TextError};
use super::policy;
use crate::balance::model::{
    Allocation, Cluster, DEFAULT_LOAD, FormatGeneration, Group, Instance, Node, Role, Status, Template,
};
use std::collections::BTreeMap;

pub(super) const ALLOCATIONS: [(Allocation, &str); 3] = [
    (Allocation::Preferred, "preferred"),
    (Allocation::LastResort, "last_resort"),
    (Allocation::Unallocable, "unallocable"),
];
pub(super) const ROLES: [(Role, &str); 3] = [(Role::Member, "N"), (Role::Master, "M"), (Role::Offline, "Y")];
pub(super) const FLAGS: [(bool, &str); 2] = [(true, "Y"), (false, "N")];

/// Parses a cluster in either generation of the text format.
///
/// # Errors
/// Fails with the line, the field and the expected content.
pub fn read(text: &str) -> Result<Cluster, TextError> {
    let sections = split_sections(text);
    let [groups, nodes, instances, tags, policies] = sections.as_slice() else {
        return Err(unexpected_section(&sections, text));
    };
    let mut cluster = Cluster { generation: FormatGeneration::Older, ..Cluster::default() };
    let mut group_names = Names::new("group");
    let mut group_uuids = Names::new("group uuid");
    for &(line, text) in groups {
        let (group, newer) = parse_group(line, text)?;
        group_names.add(line, "name (field 1)", &group.name)?;
        group_uuids.add(line, "uuid (field 2)", &group.uuid)?;
        cluster.groups.push(group);
        cluster.upgrade_generation(newer);
    }
    let mut node_names = Names::new("node");
    for &(line, text) in nodes {
        let (node, newer) = parse_node(line, text, &group_uuids)?;
        node_names.add(line, "name (field 1)", &node.name)?;
        cluster.nodes.push(node);
        cluster.upgrade_generation(newer);
    }
    let mut instance_names = Names::new("instance");
    for &(line, text) in instances {
        let (instance, fields) = parse_instance(line, text, &node_names)?;
        instance_names.add(line, "name (field 1)", &instance.name)?;
        cluster.instances.push(instance);
        cluster.upgrade_generation(fields > 10);
        cluster.has_forthcoming_field |= fields > 12;
    }
    cluster.tags = tags.iter().map(|&(_, tag)| tag.to_owned()).collect();
    for &(line, text) in policies {
        let (policy, newer) = policy::read(line, text)?;
        cluster.policies.push(policy);
        cluster.upgrade_generation(newer);
    }
    Ok(cluster)
}

impl Cluster {
    fn upgrade_generation(&mut self, is_newer: bool) {
        if is_newer {
            self.generation = FormatGeneration::Newer;
        }
    }
}

type Section<'a> = Vec<(usize, &'a str)>;

/// Splits a text into sections. The last two may be missing in older files.
fn split_sections(text: &str) -> Vec<Section<'_>> {
    let mut sections = vec![Vec::new()];
    for (index, line) in text.lines().enumerate() {
        let line = line.strip_suffix('\r').unwrap_or(line);
        if line.is_empty() {
            sections.push(Vec::new());
        } else if let Some(section) = sections.last_mut() {
            section.push((index + 1, line));
        }
    }
    while sections.len() > 5 && sections.last().is_some_and(Vec::is_empty) {
        sections.pop();
    }
    if sections.len() >= 3 {
        sections.resize(sections.len().max(5), Vec::new());
    }
    sections
}

fn unexpected_section(sections: &[Section<'_>], text: &str) -> TextError {
    let line = sections
        .get(5..)
        .and_then(|further_sections| further_sections.iter().flatten().next())
        .map(|(line, _)| *line);
    TextError {
        line: line.unwrap_or_else(|| text.lines().count().max(1)),
        field: String::new(),
        expected:
            "sections for groups, nodes, instances, cluster tags and policies, separated by one empty line"
                .to_owned(),
        actual: if line.is_some() {
            "a sixth section".to_owned()
        } else {
            format!("{} sections", sections.len())
        },
    }
}

/// Defined names with their positions.
struct Names {
    kind: &'static str,
    positions: BTreeMap<String, usize>,
}

impl Names {
    fn new(kind: &'static str) -> Names {
        Names { kind, positions: BTreeMap::new() }
    }

    fn add(&mut self, line: usize, field: &str, name: &str) -> Result<(), TextError> {
        let position = self.positions.len();
        if self.positions.insert(name.to_owned(), position).is_none() {
            return Ok(());
        }
        Err(TextError {
            line,
            field: field.to_owned(),
            expected: format!("a unique {}", self.kind),
            actual: format!("`{name}` a second time"),
        })
    }

    fn find(&self, fields: &Fields<'_>, index: usize, name: &str) -> Result<usize, TextError> {
        let position = self.positions.get(fields.text(index)).copied();
        position.ok_or_else(|| fields.error(index, name, format!("a {} of the section above", self.kind)))
    }
}

/// Parses `name|uuid|alloc_policy[|tags|networks]`.
fn parse_group(line: usize, text: &str) -> Result<(Group, bool), TextError> {
    let fields = Fields::split(line, text, '|', "a group", &(3..=5))?;
    let group = Group {
        name: fields.name(0, "name")?,
        uuid: fields.name(1, "uuid")?,
        allocation: fields.word(2, "allocation policy", &ALLOCATIONS)?,
        tags: fields.list(3),
        networks: fields.list(4),
    };
    Ok((group, fields.len() > 3))
}

/// Parses `name|tMem|nMem|fMem|tDisk|fDisk|cpus|role|group uuid[|spindles|tags|exclusive storage|free spindles|os vcpus|cpu
/// speed]`.
fn parse_node(line: usize, text: &str, groups: &Names) -> Result<(Node, bool), TextError> {
    let fields = Fields::split(line, text, '|', "a node", &(9..=15))?;
    // An unknown size means that the node did not answer.
    let mut has_unknown_size = false;
    let mut size = |index: usize, name: &str, may_be_negative: bool| {
        if fields.text(index) == "?" {
            has_unknown_size = true;
            Ok(0)
        } else if may_be_negative {
            fields.signed_integer(index, name)
        } else {
            fields.unsigned_integer(index, name)
        }
    };
    let is_given = |index: usize| !fields.text(index).is_empty();
    let mut node = Node {
        name: fields.name(0, "name")?,
        memory_total: size(1, "total memory", false)?,
        memory_own: size(2, "memory of the node itself", false)?,
        memory_free: size(3, "free memory", true)?,
        disk_total: size(4, "total disk", false)?,
        disk_free: size(5, "free disk", true)?,
        cpus: size(6, "cpus", false)?,
        role: fields.word(7, "role", &ROLES)?,
        group: groups.find(&fields, 8, "group")?,
        spindles: if is_given(9) { fields.unsigned_integer(9, "spindles")? } else { 1 },
        tags: fields.list(10),
        exclusive_storage: is_given(11) && fields.word(11, "exclusive storage", &FLAGS)?,
        spindles_free: if is_given(12) { fields.signed_integer(12, "free spindles")? } else { 0 },
        // As in hbal, the node itself uses one cpu unless the file states otherwise.
        cpus_own: if is_given(13) { fields.unsigned_integer(13, "vcpus of the node itself")? } else { 1 },
        cpu_speed: if is_given(14) { fields.ratio(14, "cpu speed")? } else { 1.0 },
    };
    if has_unknown_size {
        node.role = Role::Offline;
    }
    if node.role != Role::Offline {
        for (index, name, size) in [
            (1, "total memory", node.memory_total),
            (4, "total disk", node.disk_total),
            (6, "cpus", node.cpus),
        ] {
            // These sizes are divisors of shares.
            if size == 0 {
                return Err(fields.error(index, name, "more than 0 on a node that is not offline"));
            }
        }
    }
    Ok((node, fields.len() > 10))
}

/// Parses `name|mem|disk|vcpus|status|auto_balance|primary|secondary|template|tags[|spindle use|disk
/// spindles|forthcoming]`.
fn parse_instance(line: usize, text: &str, nodes: &Names) -> Result<(Instance, usize), TextError> {
    let fields = Fields::split(line, text, '|', "an instance", &(10..=13))?;
    let is_given = |index: usize| !fields.text(index).is_empty();
    let template = fields.word(8, "disk template", &Template::WORDS)?;
    let primary = nodes.find(&fields, 6, "primary node")?;
    let secondary = if is_given(7) { Some(nodes.find(&fields, 7, "secondary node")?) } else { None };
    match (template == Template::Drbd, secondary) {
        (true, None) => {
            return Err(fields.error(7, "secondary node", "a node, because the template is drbd"));
        }
        (false, Some(_)) => {
            return Err(fields.error(
                7,
                "secondary node",
                "nothing, because only template drbd has a secondary node",
            ));
        }
        (true, Some(node)) if node == primary => {
            return Err(fields.error(7, "secondary node", "a node other than the primary"));
        }
        (true, Some(_)) | (false, None) => {}
    }
    let instance = Instance {
        name: fields.name(0, "name")?,
        memory: fields.unsigned_integer(1, "memory")?,
        disk: fields.unsigned_integer(2, "disk")?,
        vcpus: fields.unsigned_integer(3, "vcpus")?,
        status: fields.word(4, "status", &Status::WORDS)?,
        auto_balance: fields.word(5, "auto_balance", &FLAGS)?,
        primary,
        secondary,
        template,
        tags: fields.list(9),
        spindle_use: if is_given(10) { fields.unsigned_integer(10, "spindle use")? } else { 1 },
        disk_spindles: match fields.text(11) {
            "" | "-" => None,
            _ => Some(fields.unsigned_integer(11, "disk spindles")?),
        },
        forthcoming: is_given(12) && fields.word(12, "forthcoming", &FLAGS)?,
        load: DEFAULT_LOAD,
    };
    Ok((instance, fields.len()))
}
