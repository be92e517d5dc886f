//! Small random clusters for tests: all kinds of storage, tags, failure domains, offline nodes, stopped and forthcoming
//! instances, nodes with little and with much free capacity.

use super::live_constraints::LiveConstraints;
use super::model::{
    Allocation, Cluster, DEFAULT_LOAD, FormatGeneration, Group, Instance, LOAD_UNIT, Node, Role, Status,
    Template,
};
use super::random::Random;

/// Returns a cluster, determined by the seed.
pub(super) fn sample(seed: u64) -> Cluster {
    let mut random = Random::new(seed);
    let count = 2 + random.draw_below(7);
    let memory = [4096, 8192, 20000][random.draw_below(3)];
    let offline = random.draw_below(3) == 0 && count > 3;
    let domains = random.draw_below(2) == 0;
    let tagged = random.draw_below(2) == 0;
    let exclusive = seed.is_multiple_of(3);
    let node = |index: usize| Node {
        name: format!("n{index}"),
        memory_total: memory + 512 * i64::from(index.is_multiple_of(3)),
        memory_own: 128,
        memory_free: memory - 200,
        disk_total: 100_000,
        disk_free: 100_000,
        cpus: 8,
        role: if offline && index == 1 { Role::Offline } else { Role::Member },
        group: 0,
        spindles: 4,
        tags: if domains { vec![format!("rack:{}", index % 2)] } else { Vec::new() },
        exclusive_storage: exclusive && !index.is_multiple_of(2),
        spindles_free: 3,
        cpus_own: 1,
        cpu_speed: 1.0,
    };
    let mut cluster = Cluster {
        generation: FormatGeneration::Newer,
        groups: vec![Group {
            name: "g".to_owned(),
            uuid: "u".to_owned(),
            allocation: Allocation::Preferred,
            tags: Vec::new(),
            networks: Vec::new(),
        }],
        nodes: (0..count).map(node).collect(),
        instances: Vec::new(),
        tags: vec!["htools:iextags:web".to_owned()],
        policies: Vec::new(),
        ..Cluster::default()
    };
    if domains {
        cluster.tags.extend(["htools:nlocation:rack".to_owned(), "htools:desiredlocation:rack".to_owned()]);
    }
    for index in 0..random.draw_below(6 * count) {
        let instance = instance(index, count, tagged, domains, &mut random);
        let primary = &mut cluster.nodes[instance.primary];
        if primary.memory_free <= instance.memory || primary.disk_free <= instance.disk {
            continue;
        }
        if instance.status.is_running() && !instance.forthcoming {
            primary.memory_free -= instance.memory;
        }
        primary.disk_free -= if instance.template.uses_node_disk() { instance.disk } else { 0 };
        if let Some(secondary) = instance.secondary {
            cluster.nodes[secondary].disk_free -= instance.disk;
        }
        cluster.instances.push(instance);
    }
    if seed % 4 == 1 {
        add_live_constraints(&mut cluster, &mut random);
    }
    cluster
}

/// Kinds of clusters: the storage of instances, and differences between nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SampleKind {
    Shared,
    Replicated,
    Mixed,
    Uneven,
    Offline,
}

impl SampleKind {
    pub(super) const ALL: [SampleKind; 5] = [
        SampleKind::Shared,
        SampleKind::Replicated,
        SampleKind::Mixed,
        SampleKind::Uneven,
        SampleKind::Offline,
    ];
}

/// Returns a cluster of a kind with 8 nodes and 32 running instances, determined by the seed.
pub(super) fn sample_of_kind(kind: SampleKind, seed: u64) -> Cluster {
    let mut random = Random::new(seed);
    let mut lines = Vec::new();
    let memory: Vec<i64> = (0..8)
        .map(|node| if kind == SampleKind::Uneven && node % 3 == 0 { 65_536 } else { 32_768 })
        .collect();
    let (mut memory_free, mut disk_free) = (memory.clone(), vec![1_000_000; 8]);
    for index in 0..32 {
        let (primary, size) = (random.draw_below(8), [512, 1024, 2048][random.draw_below(3)]);
        let secondary = (primary + 1 + random.draw_below(7)) % 8;
        let replicated =
            kind != SampleKind::Shared && (kind != SampleKind::Mixed || random.draw_below(2) == 0);
        memory_free[primary] -= size;
        let (second, template) = if replicated {
            disk_free[primary] -= 4 * size;
            disk_free[secondary] -= 4 * size;
            (format!("n{secondary}"), "drbd")
        } else {
            (String::new(), "rbd")
        };
        lines.push(format!("i{index}|{size}|{}|1|running|Y|n{primary}|{second}|{template}||1\n", 4 * size));
    }
    let instances = lines.concat();
    let node = |node: usize| {
        let role = if kind == SampleKind::Offline && node == 5 { "Y" } else { "N" };
        let (memory, memory_free, disk_free) = (memory[node], memory_free[node], disk_free[node]);
        format!("n{node}|{memory}|0|{memory_free}|1000000|{disk_free}|16|{role}|u|1||N|0|0|1.0\n")
    };
    let nodes: String = (0..8).map(node).collect();
    super::text::read(&format!("g|u|preferred||\n\n{nodes}\n{instances}\n\n")).unwrap()
}

/// Adds constraints as on live clusters: one ineligible node for each instance, and units of instances with equal
/// placements.
fn add_live_constraints(cluster: &mut Cluster, random: &mut Random) {
    let count = cluster.nodes.len();
    for (index, instance) in cluster.instances.iter().enumerate() {
        let avoided = random.draw_below(count);
        let unit = instance.primary * count + instance.secondary.unwrap_or(instance.primary);
        let constraints = LiveConstraints {
            nodes: (0..count).filter(|node| *node != avoided).collect(),
            immovable_reason: (random.draw_below(8) == 0).then_some("of a reason"),
            unit: (random.draw_below(3) == 0).then_some(unit),
            can_copy_disk: random.draw_below(3) > 0,
            ..LiveConstraints::default()
        };
        cluster.live_constraints.insert(index, constraints);
    }
}

fn instance(index: usize, count: usize, tagged: bool, domains: bool, random: &mut Random) -> Instance {
    let templates = [Template::Drbd, Template::Drbd, Template::Drbd, Template::External, Template::Plain];
    let template = templates[random.draw_below(templates.len())];
    let size = [128, 256, 512, 1024][random.draw_below(4)];
    let primary = random.draw_below(count);
    let other = (primary + 1 + random.draw_below(count - 1)) % count;
    let statuses =
        [Status::Running, Status::Running, Status::Running, Status::AdminDown, Status::AdminOffline];
    let mut tags = Vec::new();
    if tagged && random.draw_below(3) == 0 {
        tags.push(format!("web:{}", random.draw_below(4)));
    }
    if domains && random.draw_below(4) == 0 {
        tags.push(format!("rack:{}", random.draw_below(3)));
    }
    let mut load = DEFAULT_LOAD;
    if random.draw_below(3) == 0 {
        for part in &mut load {
            *part = LOAD_UNIT / 100 * i64::try_from(random.draw_below(100)).unwrap();
        }
    }
    Instance {
        name: format!("i{index}"),
        memory: size,
        disk: size * 4,
        vcpus: 1 + size / 512,
        status: statuses[random.draw_below(statuses.len())],
        auto_balance: random.draw_below(5) > 0,
        primary,
        secondary: (template == Template::Drbd).then_some(other),
        template,
        tags,
        spindle_use: 1,
        disk_spindles: Some(i64::from(size > 256)),
        forthcoming: random.draw_below(15) == 0,
        load,
    }
}
