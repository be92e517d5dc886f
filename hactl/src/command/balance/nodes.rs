//! The table of nodes that `--print-nodes` prints.

use super::instances::aligned;
use crate::render::cpus::cpus;
use ha_scheduler::balance::model::{Cluster, LOAD_UNIT, Node};
use ha_scheduler::balance::problem::{Placement, Problem, ProblemNode};
use ha_scheduler::balance::score::{Usage, usages};

struct Column {
    /// Name in options.
    name: &'static str,
    heading: &'static str,
    text: fn(&Row<'_>) -> String,
}

const fn column(name: &'static str, heading: &'static str, text: fn(&Row<'_>) -> String) -> Column {
    Column { name, heading, text }
}

struct Row<'a> {
    cluster: &'a Cluster,
    node: &'a Node,
    problem_node: &'a ProblemNode,
    usage: &'a Usage,
    offline: bool,
    /// Memory of the instances that run on the node.
    memory_used: i64,
}

impl Row<'_> {
    fn cpus(&self, count: i64) -> String {
        cpus(count, self.cluster.cpus_in_thousandths).to_string()
    }
}

/// All columns in display order.
const COLUMNS: [Column; 22] = [
    column("status", "F", |row| {
        if row.offline {
            "-"
        } else if row.usage.fails_n1() {
            "*"
        } else {
            " "
        }
        .to_owned()
    }),
    column("name", "Name", |row| row.node.name.clone()),
    column("tmem", "t_mem", |row| row.node.memory_total.to_string()),
    column("nmem", "n_mem", |row| row.node.memory_own.to_string()),
    column("imem", "i_mem", |row| row.memory_used.to_string()),
    column("xmem", "x_mem", |row| {
        (row.node.memory_total - row.node.memory_own - row.problem_node.memory_base_forthcoming).to_string()
    }),
    column("fmem", "f_mem", |row| row.node.memory_free.to_string()),
    column("umem", "u_mem", |row| row.usage.memory_free.to_string()),
    column("rmem", "r_mem", |row| row.usage.memory_reserved.to_string()),
    column("tdsk", "t_dsk", |row| format!("{:.0}", row.node.disk_total as f64 / 1024.0)),
    column("fdsk", "f_dsk", |row| (row.usage.disk_free / 1024).to_string()),
    column("pcpu", "pcpu", |row| row.cpus(row.node.cpus)),
    column("vcpu", "vcpu", |row| row.cpus(row.usage.vcpus)),
    column("pcnt", "pcnt", |row| row.usage.primaries.to_string()),
    column("scnt", "scnt", |row| row.usage.secondaries.to_string()),
    column("pfmem", "p_fmem", |row| fraction(row.usage.memory_free, row.node.memory_total)),
    column("pfdsk", "p_fdsk", |row| {
        if row.node.exclusive_storage {
            fraction(row.node.spindles - row.usage.spindles, row.node.spindles)
        } else {
            fraction(row.usage.disk_free, row.node.disk_total)
        }
    }),
    column("rcpu", "r_cpu", |row| format!("{:.2}", row.usage.vcpus as f64 / row.node.cpus.max(1) as f64)),
    column("lcpu", "lCpu", |row| load(row.usage.load[0])),
    column("lmem", "lMem", |row| load(row.usage.load[1])),
    column("ldsk", "lDsk", |row| load(row.usage.load[2])),
    column("lnet", "lNet", |row| load(row.usage.load[3])),
];

/// Returns one line per node: `-` if it is offline, `*` if it fails N+1. `fields` names columns, separated by commas.
/// An empty `fields`, or one that begins with a plus sign, selects all columns.
pub(crate) fn table(cluster: &Cluster, problem: &Problem, placements: &[Placement], fields: &str) -> String {
    let selected_names: Vec<&str> = fields.split(',').filter(|name| !name.is_empty()).collect();
    let has_default_columns = selected_names.is_empty() || fields.starts_with('+');
    let columns: Vec<&Column> = if has_default_columns {
        COLUMNS.iter().collect()
    } else {
        selected_names.iter().filter_map(|name| COLUMNS.iter().find(|column| column.name == *name)).collect()
    };
    let mut memory_by_node = vec![0; problem.nodes.len()];
    for (service, placement) in problem.services.iter().zip(placements) {
        memory_by_node[placement.primary] += service.memory_used;
    }
    let mut rows: Vec<Vec<String>> = vec![columns.iter().map(|column| column.heading.to_owned()).collect()];
    for ((problem_node, usage), memory_used) in
        problem.nodes.iter().zip(&usages(problem, placements)).zip(memory_by_node)
    {
        let row = Row {
            cluster,
            node: &cluster.nodes[problem_node.cluster_node],
            problem_node,
            usage,
            offline: problem_node.is_offline,
            memory_used,
        };
        rows.push(columns.iter().map(|column| (column.text)(&row)).collect());
    }
    let is_left_aligned: Vec<bool> =
        columns.iter().map(|column| ["status", "name"].contains(&column.name)).collect();
    aligned(&rows, |column| is_left_aligned[column])
}

fn fraction(part: i64, total: i64) -> String {
    format!("{:.4}", part as f64 / total.max(1) as f64)
}

fn load(amount: i64) -> String {
    format!("{:.3}", amount as f64 / LOAD_UNIT as f64)
}
