//! Clusters without instances that `--simulate` describes.

use super::units::{parse_integer, parse_size};
use ha_scheduler::balance::model::{
    Allocation, Cluster, FormatGeneration, Group, Node, Policy, Role, Specification, Template,
};

const POLICIES: [(Allocation, &str, &str); 3] = [
    (Allocation::Preferred, "preferred", "p"),
    (Allocation::LastResort, "last_resort", "a"),
    (Allocation::Unallocable, "unallocable", "u"),
];

/// Returns the policy for a cluster without a policy: Ganeti's defaults, with all disk templates.
pub(super) fn default_policy(owner: &str) -> Policy {
    let smallest = Specification { memory: 128, cpus: 1, disk: 1024, disks: 1, nics: 1, spindles: 1 };
    let largest = Specification { memory: 32768, cpus: 8, disk: 1_048_576, disks: 16, nics: 8, spindles: 12 };
    Policy {
        owner: owner.to_owned(),
        standard: smallest,
        ranges: vec![(smallest, largest)],
        templates: Template::WORDS.iter().map(|(template, _)| *template).collect(),
        vcpu_ratio: 4.0,
        spindle_ratio: 32.0,
    }
}

/// Builds a cluster with a group for each specification, the last one first, as in Ganeti.
pub(super) fn cluster(specifications: &[String]) -> Result<Cluster, String> {
    let mut cluster =
        Cluster { generation: FormatGeneration::Newer, has_forthcoming_field: true, ..Cluster::default() };
    cluster.policies.push(default_policy(""));
    for specification in specifications.iter().rev() {
        add_group(&mut cluster, specification)?;
    }
    Ok(cluster)
}

fn add_group(cluster: &mut Cluster, specification: &str) -> Result<(), String> {
    let parts: Vec<&str> = specification.split(',').collect();
    let [policy, count, disk, memory, cpus, further @ ..] = parts.as_slice() else {
        return Err(format!(
            "Invalid cluster specification, expected 6 comma-separated sections (allocation policy, node count, disk \
             size, memory size, number of CPUs, spindles) but got {}: '{specification}'",
            parts.len()
        ));
    };
    let allocation = POLICIES.iter().find(|(_, word, short)| policy == word || policy == short);
    let Some((allocation, ..)) = allocation else {
        return Err(format!(
            "Invalid string value for type AllocPolicy: {policy:?}; Cannot parse AllocPolicy abbreviation '{policy}'"
        ));
    };
    let number = |what: &str, text: &str| parse_integer(text).map_err(|cause| format!("{what}: {cause}"));
    let size = |what: &str, text: &str| parse_size(text).map_err(|cause| format!("{what}: {cause}"));
    let (count, disk) = (number("node count", count)?, size("disk size", disk)?);
    let (memory, cpus) = (size("memory size", memory)?, number("cpu count", cpus)?);
    let spindles = further.first().map_or(Ok(1), |text| number("spindles", text))?;
    let exclusive_storage = match further.get(1) {
        None | Some(&"False") => false,
        Some(&"True") => true,
        Some(text) => return Err(format!("exclusive storage: cannot parse string '{text}'")),
    };
    let group = cluster.groups.len();
    let name = format!("group-{:02}", group + 1);
    cluster.policies.push(default_policy(&name));
    cluster.groups.push(Group {
        name,
        uuid: format!("fake-uuid-{:02}", group + 1),
        allocation: *allocation,
        tags: Vec::new(),
        networks: Vec::new(),
    });
    for number in 1..=count {
        let role = if cluster.nodes.is_empty() { Role::Master } else { Role::Member };
        cluster.nodes.push(Node {
            name: format!("node-{:02}-{number:03}", group + 1),
            memory_total: memory,
            memory_own: 0,
            memory_free: memory,
            disk_total: disk,
            disk_free: disk,
            cpus,
            role,
            group,
            spindles,
            tags: Vec::new(),
            exclusive_storage,
            spindles_free: if exclusive_storage { spindles } else { 0 },
            cpus_own: 1,
            cpu_speed: 1.0,
        });
    }
    Ok(())
}
