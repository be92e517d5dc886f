//! The table of nodes that `--print-nodes` prints.

use super::instances::aligned;
use crate::render::cpus::cpus;
use ha_scheduler::balance::model::{Cluster, LOAD_UNIT, Node};
use ha_scheduler::balance::problem::{Placement, Problem};
use ha_scheduler::balance::score::{Usage, usages};

/// A column: its name in options, its heading, and its text.
type Column = (&'static str, &'static str, fn(&Row<'_>) -> String);

struct Row<'a> {
    cluster: &'a Cluster,
    node: &'a Node,
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
    ("status", "F", |row| {
        if row.offline {
            "-"
        } else if row.usage.fails_n1() {
            "*"
        } else {
            " "
        }
        .to_owned()
    }),
    ("name", "Name", |row| row.node.name.clone()),
    ("tmem", "t_mem", |row| row.node.memory_total.to_string()),
    ("nmem", "n_mem", |row| row.node.memory_own.to_string()),
    ("imem", "i_mem", |row| row.memory_used.to_string()),
    ("xmem", "x_mem", |row| {
        let known = row.node.memory_own + row.memory_used + row.usage.memory_free;
        (row.node.memory_total - known).to_string()
    }),
    ("fmem", "f_mem", |row| row.node.memory_free.to_string()),
    ("umem", "u_mem", |row| row.usage.memory_free.to_string()),
    ("rmem", "r_mem", |row| row.usage.memory_reserved.to_string()),
    ("tdsk", "t_dsk", |row| (row.node.disk_total / 1024).to_string()),
    ("fdsk", "f_dsk", |row| (row.usage.disk_free / 1024).to_string()),
    ("pcpu", "pcpu", |row| row.cpus(row.node.cpus)),
    ("vcpu", "vcpu", |row| row.cpus(row.usage.vcpus)),
    ("pcnt", "pcnt", |row| row.usage.primaries.to_string()),
    ("scnt", "scnt", |row| row.usage.secondaries.to_string()),
    ("pfmem", "p_fmem", |row| fraction(row.usage.memory_free, row.node.memory_total)),
    ("pfdsk", "p_fdsk", |row| fraction(row.usage.disk_free, row.node.disk_total)),
    ("rcpu", "r_cpu", |row| format!("{:.2}", row.usage.vcpus as f64 / row.node.cpus.max(1) as f64)),
    ("lcpu", "lCpu", |row| load(row.usage.load[0])),
    ("lmem", "lMem", |row| load(row.usage.load[1])),
    ("ldsk", "lDsk", |row| load(row.usage.load[2])),
    ("lnet", "lNet", |row| load(row.usage.load[3])),
];

/// Returns one line per node: `-` if it is offline, `*` if it fails N+1. `fields` names columns, separated by commas.
/// An empty `fields`, or one that begins with a plus sign, selects all columns.
pub(super) fn table(cluster: &Cluster, problem: &Problem, placements: &[Placement], fields: &str) -> String {
    let named: Vec<&str> = fields.split(',').filter(|name| !name.is_empty()).collect();
    let has_default_columns = named.is_empty() || fields.starts_with('+');
    let columns: Vec<&Column> = if has_default_columns {
        COLUMNS.iter().collect()
    } else {
        named.iter().filter_map(|name| COLUMNS.iter().find(|column| column.0 == *name)).collect()
    };
    let mut memory = vec![0; problem.hosts.len()];
    for (guest, placement) in problem.guests.iter().zip(placements) {
        memory[placement.primary] += guest.memory_used;
    }
    let mut rows: Vec<Vec<String>> = vec![columns.iter().map(|column| column.1.to_owned()).collect()];
    for ((host, usage), memory_used) in problem.hosts.iter().zip(&usages(problem, placements)).zip(memory) {
        let row = Row { cluster, node: &cluster.nodes[host.node], usage, offline: host.offline, memory_used };
        rows.push(columns.iter().map(|column| column.2(&row)).collect());
    }
    let is_left_aligned: Vec<bool> =
        columns.iter().map(|column| ["status", "name"].contains(&column.0)).collect();
    aligned(&rows, |column| is_left_aligned[column])
}

fn fraction(part: i64, total: i64) -> String {
    format!("{:.4}", part as f64 / total.max(1) as f64)
}

fn load(amount: i64) -> String {
    format!("{:.3}", amount as f64 / LOAD_UNIT as f64)
}
