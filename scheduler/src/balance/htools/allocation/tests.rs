//! Tests of the choice of nodes for new instances.

use super::*;
use crate::balance::model::{DEFAULT_LOAD, Status};
use crate::balance::text;

/// Returns a cluster of three nodes with 8192 MiB of memory and four spindles each.
fn cluster(has_exclusive_storage: bool) -> Cluster {
    let exclusive = if has_exclusive_storage { "Y" } else { "N" };
    let nodes: String = ["a", "b", "c"]
        .map(|name| format!("{name}|8192|0|8192|102400|102400|16|N|u1|4||{exclusive}|4|1|1.0\n"))
        .concat();
    let policy = "|1024,1,1024,1,1,1|128,1,1024,1,1,1;32768,8,1048576,16,8,12|ext,drbd,plain|4.0|32.0";
    text::read(&format!("g1|u1|preferred||\n\n{nodes}\n\n\n{policy}\n")).expect("a cluster")
}

fn request(template: Template, memory: i64, disk_spindles: Option<i64>) -> Request {
    let instance = Instance {
        name: "new".to_owned(),
        memory,
        disk: 1024,
        vcpus: 1,
        status: Status::Running,
        auto_balance: true,
        primary: 0,
        secondary: None,
        template,
        tags: Vec::new(),
        spindle_use: 1,
        disk_spindles,
        forthcoming: false,
        load: DEFAULT_LOAD,
    };
    Request { disks: vec![instance.disk], instance }
}

/// Checks how many instances of 1000 MiB fit, and the refusals of the last attempt. Eight instances fit on each node.
/// After the failure of any node, 16 of them can run.
fn check(checks_capacity: bool, limit: Option<usize>, expected: usize, refusals: &[(FailMode, usize)]) {
    let cluster = cluster(false);
    let rules = AllocationRules { checks_capacity, ..AllocationRules::default() };
    let candidates = candidates(&cluster, &allocatable_groups(&cluster), 1);
    let mut filled = Filled::new(&cluster);
    filled.fill(&request(Template::External, 1000, Some(1)), &rules, &candidates, limit);
    let refusals: BTreeMap<FailMode, usize> = refusals.iter().copied().collect();
    let label = format!("checks capacity: {checks_capacity}, limit: {limit:?}");
    assert_eq!((filled.added, filled.failures), (expected, refusals), "{label}");
}

#[test]
fn nodes_are_filled_until_one_cannot_be_evacuated() {
    check(true, None, 16, &[(FailMode::NPlusOne, 3)]);
    check(true, Some(40), 16, &[(FailMode::NPlusOne, 3)]);
    check(false, None, 24, &[(FailMode::Memory, 3)]);
}

#[test]
fn a_limit_leaves_no_refusals_as_in_hspace() {
    check(true, Some(0), 0, &[]);
    check(true, Some(10), 10, &[]);
    // One more instance would fit on each node, but then no node could be evacuated.
    check(true, Some(16), 16, &[]);
    check(false, Some(10), 10, &[]);
}

#[test]
fn more_instances_than_one_step_are_added() {
    let mut cluster = cluster(false);
    let nodes = cluster.nodes.clone();
    cluster.nodes.extend(
        (3..8).map(|number| crate::balance::model::Node { name: format!("n{number}"), ..nodes[0].clone() }),
    );
    let candidates = candidates(&cluster, &allocatable_groups(&cluster), 1);
    let mut filled = Filled::new(&cluster);
    let request = request(Template::External, 1000, Some(1));
    assert!(filled.step(&request, 0) < 56);
    filled.fill(
        &request,
        &AllocationRules { checks_capacity: true, ..AllocationRules::default() },
        &candidates,
        None,
    );
    assert_eq!(filled.added, 56, "seven of eight nodes are full after a failure");
}

#[test]
fn only_exclusive_spindles_are_used_by_disks_elsewhere() {
    for (template, is_exclusive, expected) in [
        (Template::Plain, false, 1),
        (Template::Plain, true, 2),
        (Template::External, false, 0),
        (Template::External, true, 2),
    ] {
        let mut cluster = cluster(is_exclusive);
        add(&mut cluster, &request(template, 1000, Some(2)).instance, (0, None));
        let problem = Problem::new(&cluster, 0, &Settings::default());
        let used = problem.services[0].spindles_on(&problem.nodes[0]);
        assert_eq!(used, expected, "{template:?}, exclusive: {is_exclusive}");
        let free = if is_exclusive { 2 } else { 0 };
        assert_eq!(cluster.nodes[0].spindles_free, free, "{template:?}, exclusive: {is_exclusive}");
    }
}

#[test]
fn the_policy_of_a_group_refuses_other_sizes() {
    let cluster = cluster(false);
    for (memory, disk_spindles, is_exclusive, expected) in [
        (1000, Some(1), false, None),
        (64, Some(1), false, Some(FailMode::Memory)),
        (40_000, Some(1), false, Some(FailMode::Memory)),
        (1000, None, true, Some(FailMode::Spindles)),
        (1000, Some(13), true, Some(FailMode::Spindles)),
        (1000, Some(13), false, None),
    ] {
        let refusal =
            policy_refusal(&cluster, 0, &request(Template::Plain, memory, disk_spindles), is_exclusive);
        assert_eq!(refusal, expected, "{memory} MiB, {disk_spindles:?} spindles, exclusive: {is_exclusive}");
    }
    let forbidden = request(Template::File, 1000, Some(1));
    assert_eq!(policy_refusal(&cluster, 0, &forbidden, false), Some(FailMode::Disk));
}
