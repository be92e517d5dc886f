//! The table of instances that `--print-instances` prints.

use crate::render::cpus::cpus;
use ha_scheduler::balance::model::{Cluster, LOAD_UNIT};
use ha_scheduler::balance::problem::{Placement, Problem};

/// Returns one line per instance: `R` if it runs, its nodes, whether memory is reserved for it, its sizes and its
/// measured usage.
pub(super) fn table(cluster: &Cluster, problem: &Problem, placements: &[Placement]) -> String {
    let node = |problem_node: usize| problem.node_name(cluster, problem_node).to_owned();
    let mut rows = vec![
        [
            "F", "Name", "Pri_node", "Sec_node", "Auto_bal", "vcpu", "mem", "dsk", "lCpu", "lMem", "lDsk",
            "lNet",
        ]
        .map(str::to_owned)
        .to_vec(),
    ];
    let placed_services = problem.services.iter().zip(placements);
    for (service, placement, instance_index) in placed_services.flat_map(|(service, placement)| {
        service.instances().map(move |instance_index| (service, placement, instance_index))
    }) {
        let instance = &cluster.instances[instance_index];
        let load = if service.partners.is_empty() { service.load } else { instance.load };
        let mut row = vec![
            if instance.status.is_running() { "R" } else { " " }.to_owned(),
            instance.name.clone(),
            node(placement.primary),
            placement.secondary.map(node).unwrap_or_default(),
            if instance.auto_balance { "Y" } else { "N" }.to_owned(),
            cpus(instance.vcpus, cluster.cpus_in_thousandths).to_string(),
            instance.memory.to_string(),
            (instance.disk / 1024).to_string(),
        ];
        row.extend(load.map(|load| format!("{:.3}", load as f64 / LOAD_UNIT as f64)));
        rows.push(row);
    }
    aligned(&rows, |column| column < 5)
}

/// Aligns columns after one blank: those for which `is_left_aligned` returns `true` to the left, the others to the right.
pub(super) fn aligned(rows: &[Vec<String>], is_left_aligned: impl Fn(usize) -> bool) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(String::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
            if is_left_aligned(column) { format!("{cell:width$}") } else { format!("{cell:>width$}") }
        });
        format!(" {}", cells.collect::<Vec<_>>().join(" ")).trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}
