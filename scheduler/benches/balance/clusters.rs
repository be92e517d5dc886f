//! Seeded clusters of several families, in Ganeti's text format.

use ha_scheduler::balance::random::Random;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// Every disk has two copies; instances have four sizes.
    Replicated,
    /// Every disk is on shared storage.
    Shared,
    /// Replicated, shared and local disks.
    Mixed,
    /// Replicated disks, with exclusion tags and failure domains.
    Tagged,
    /// Replicated disks, with a twentieth of the nodes offline.
    Offline,
    /// Replicated disks, two sizes of nodes, and stopped instances.
    Uneven,
    /// Replicated and local disks, with desired failure domains and exclusion tags.
    Located,
    /// Replicated disks, in four groups.
    Groups,
}

impl Family {
    /// All families with their names.
    pub(crate) const ALL: [(Family, &str); 8] = [
        (Family::Replicated, "replicated"),
        (Family::Shared, "shared"),
        (Family::Mixed, "mixed"),
        (Family::Tagged, "tagged"),
        (Family::Offline, "offline"),
        (Family::Uneven, "uneven"),
        (Family::Located, "located"),
        (Family::Groups, "groups"),
    ];
}

/// Sizes of instances: memory in MiB, disk in MiB, cpus.
const SIZES: [(i64, i64, i64); 4] =
    [(1024, 20_480, 1), (2048, 51_200, 2), (4096, 102_400, 2), (8192, 204_800, 4)];

struct Machine {
    memory: i64,
    memory_free: i64,
    disk_free: i64,
}

const MIN_DISK: i64 = 4_000_000;

fn groups(family: Family) -> usize {
    if family == Family::Groups { 4 } else { 1 }
}

/// Returns a cluster as text, determined by the seed. Instances are on random nodes with free capacity, as in a cluster
/// that was in use for years.
pub(crate) fn cluster(family: Family, nodes: usize, instances: usize, seed: u64) -> String {
    let mut random = Random::new(seed);
    let per_node = i64::try_from(instances / nodes + 1).unwrap_or(1);
    let memory = (per_node * 4096 * 2).max(65_536);
    let disk = (per_node * 400_000).max(MIN_DISK);
    let groups = groups(family);
    let mut machines: Vec<Machine> = (0..nodes)
        .map(|index| {
            let memory = if family == Family::Uneven && index % 3 == 0 { memory * 2 } else { memory };
            Machine { memory, memory_free: memory - 1024, disk_free: disk }
        })
        .collect();
    let mut lines = Vec::new();
    for index in 0..instances {
        let group = index % groups;
        let first = nodes * group / groups;
        let group_nodes = &mut machines[first..nodes * (group + 1) / groups];
        lines.push(instance(family, index, first, group_nodes, &mut random));
    }
    let offline = |index: usize| family == Family::Offline && index % 20 == 7;
    let machine = |(index, machine): (usize, &Machine)| {
        format!(
            "node{index:04}|{}|1024|{}|{disk}|{}|{}|{}|uuid-{}|12|{}|N|0|0|1.0\n",
            machine.memory,
            machine.memory_free,
            machine.disk_free,
            per_node * 2,
            if offline(index) { "Y" } else { "N" },
            (0..groups).rev().find(|group| index >= nodes * group / groups).unwrap_or(0),
            if matches!(family, Family::Tagged | Family::Located) {
                format!("rack:{}", index % 8)
            } else {
                String::new()
            },
        )
    };
    let machines: String = machines.iter().enumerate().map(machine).collect();
    let tags = match family {
        Family::Tagged => "htools:iextags:service\nhtools:nlocation:rack\n",
        Family::Located => "htools:iextags:service\nhtools:nlocation:rack\nhtools:desiredlocation:rack\n",
        Family::Replicated
        | Family::Shared
        | Family::Mixed
        | Family::Offline
        | Family::Uneven
        | Family::Groups => "",
    };
    let group = |group: usize| format!("group{group}|uuid-{group}|preferred||\n");
    let group_lines: String = (0..groups).map(group).collect();
    let sizes = "128,1,1024,1,1,1;65536,16,1048576,16,1,16";
    format!(
        "{group_lines}\n{machines}\n{}\n{tags}\n|128,1,1024,1,1,1|{sizes}|diskless,plain,drbd,rbd|4.0|32.0\n",
        lines.concat()
    )
}

/// Returns the line of an instance on one of these nodes; `first` is the number of the first of these nodes.
fn instance(
    family: Family,
    index: usize,
    first: usize,
    machines: &mut [Machine],
    random: &mut Random,
) -> String {
    let (memory, disk, cpus) = SIZES[random.draw_below(SIZES.len())];
    let template = match (family, random.draw_below(4)) {
        (Family::Shared, _) | (Family::Mixed, 0) => "rbd",
        (Family::Mixed | Family::Located, 1) => "plain",
        _ => "drbd",
    };
    let (mut primary, mut secondary) = (0, 1);
    // Few attempts suffice, because the nodes have about twice the required capacity.
    for _ in 0..1000 {
        primary = random.draw_below(machines.len());
        secondary = (primary + 1 + random.draw_below(machines.len() - 1)) % machines.len();
        if machines[primary].memory_free > memory
            && machines[primary].disk_free.min(machines[secondary].disk_free) > disk
        {
            break;
        }
    }
    let running = family != Family::Uneven || !index.is_multiple_of(10);
    if running {
        machines[primary].memory_free -= memory;
    }
    if template != "rbd" {
        machines[primary].disk_free -= disk;
    }
    let second = if template == "drbd" {
        machines[secondary].disk_free -= disk;
        format!("node{:04}", first + secondary)
    } else {
        String::new()
    };
    let tag = match family {
        Family::Tagged | Family::Located if index.is_multiple_of(4) => {
            format!("service:{}", random.draw_below(1 + machines.len() / 4))
        }
        Family::Located if index % 4 == 1 => format!("rack:{}", random.draw_below(8)),
        Family::Replicated
        | Family::Shared
        | Family::Mixed
        | Family::Tagged
        | Family::Offline
        | Family::Uneven
        | Family::Located
        | Family::Groups => String::new(),
    };
    let status = if running { "running" } else { "ADMIN_down" };
    format!(
        "inst{index:05}|{memory}|{disk}|{cpus}|{status}|Y|node{:04}|{second}|{template}|{tag}|1|-\n",
        first + primary
    )
}
