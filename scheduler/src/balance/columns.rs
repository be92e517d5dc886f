//! The deviations of the score as columns: the amounts that instances add to nodes, and the totals that turn amounts into
//! shares.
//!
//! Equal columns are merged and their weights added. Often the loads of cpu, memory and network are equal, or a value and
//! its forthcoming counterpart.

use super::model::LOAD_UNIT;
use super::problem::{Problem, ProblemNode, ProblemService};

/// Number of units in a share of 1. Shares are integers, so that sums of them and of their squares are exact.
pub(super) const SHARE_UNIT: f64 = (1_u64 << 36) as f64;

/// Maximum share, which prevents overflows of sums. Real shares are always smaller.
const MAX_SHARE: f64 = (1_u64 << 50) as f64;

/// All columns, for all instances and nodes.
#[derive(Clone, Debug)]
pub(super) struct Columns {
    pub(super) weights: Vec<f64>,
    /// Amounts that instances add to nodes, in rows of columns. Instance i has four rows from `i * 4`: for its primary
    /// without and with exclusive spindles, then for its secondary.
    added: Vec<i64>,
    /// Amounts of a node without instances, at `node * columns + column`.
    pub(super) base: Vec<i64>,
    /// Units of share per unit of amount, at `node * columns + column`.
    scale: Vec<f64>,
    /// Position after merging of each column, in the order of [`added_amounts`].
    pub(super) merged: Vec<usize>,
}

/// Positions of columns before merging.
pub(super) const FORTHCOMING_MEMORY: usize = 1;
/// Free disk, or free spindles with exclusive spindles.
pub(super) const FREE_STORAGE: usize = 2;
/// The same amount with forthcoming instances.
pub(super) const FORTHCOMING_STORAGE: usize = 3;
/// Virtual cpus with forthcoming instances.
pub(super) const FORTHCOMING_VCPUS: usize = 5;
/// Uses of shared spindles with forthcoming instances.
pub(super) const FORTHCOMING_SPINDLES: usize = 7;

/// One column before equal columns are merged.
#[derive(PartialEq)]
struct Column {
    services: Vec<[i64; 4]>,
    base: Vec<i64>,
    scale: Vec<f64>,
}

impl Columns {
    pub(super) fn new(problem: &Problem) -> Columns {
        let mut merged: Vec<(Column, f64)> = Vec::new();
        let mut positions = Vec::new();
        for (index, weight) in DEVIATION_WEIGHTS.iter().copied().enumerate() {
            let column = build_column(problem, index);
            let position = merged.iter().position(|(merged_column, _)| *merged_column == column);
            positions.push(position.unwrap_or(merged.len()));
            match position {
                Some(position) => merged[position].1 += weight,
                None => merged.push((column, weight)),
            }
        }
        let mut columns = Columns {
            weights: merged.iter().map(|(_, weight)| *weight).collect(),
            added: Vec::new(),
            base: Vec::new(),
            scale: Vec::new(),
            merged: positions,
        };
        for service in 0..problem.services.len() {
            for role in 0..4 {
                columns.added.extend(merged.iter().map(|(column, _)| column.services[service][role]));
            }
        }
        for node in 0..problem.nodes.len() {
            for (column, _) in &merged {
                columns.base.push(column.base[node]);
                columns.scale.push(column.scale[node]);
            }
        }
        columns
    }

    /// Returns the number of columns after merging.
    pub(super) fn len(&self) -> usize {
        self.weights.len()
    }

    /// Returns the amounts that an instance adds to the columns of its primary or secondary.
    pub(super) fn added(&self, service: usize, is_primary: bool, has_exclusive_spindles: bool) -> &[i64] {
        let row = service * 4 + usize::from(!is_primary) * 2 + usize::from(has_exclusive_spindles);
        &self.added[row * self.len()..(row + 1) * self.len()]
    }

    /// Converts an amount on a node to a share, in units.
    #[expect(clippy::cast_possible_truncation, reason = "clamped")]
    pub(super) fn share(&self, node: usize, column: usize, amount: i64) -> i64 {
        (amount as f64 * self.scale[node * self.len() + column]).clamp(-MAX_SHARE, MAX_SHARE) as i64
    }

    /// Returns the units of share per unit of amount of a node, by column.
    pub(super) fn scales(&self, node: usize) -> &[f64] {
        &self.scale[node * self.len()..(node + 1) * self.len()]
    }
}

/// Weights of the deviations, in the order of [`added_amounts`]: memory, disk, cpus and spindles, each without and with
/// forthcoming instances, then the four loads. Reserved memory is not a sum over instances and has no column.
const DEVIATION_WEIGHTS: [f64; 12] = [0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 1.0, 1.0, 1.0, 1.0];

fn build_column(problem: &Problem, index: usize) -> Column {
    let services = problem.services.iter().map(|service| added_amounts(service, index)).collect();
    let (base, scale) = problem.nodes.iter().map(|node| base_and_scale(node, index)).unzip();
    Column { services, base, scale }
}

/// Returns the amounts that an instance adds to its primary and to its secondary, each without and with exclusive
/// spindles.
fn added_amounts(service: &ProblemService, index: usize) -> [i64; 4] {
    let present = i64::from(service.is_created);
    let [shared, exclusive] = service.spindles;
    match index {
        0 => [-service.memory_used, -service.memory_used, 0, 0],
        1 => [-service.memory_forthcoming, -service.memory_forthcoming, 0, 0],
        2 => {
            let (disk, spindles) = (-service.disk_used, -exclusive * present);
            [disk, spindles, disk, spindles]
        }
        3 => {
            let (disk, spindles) = (-service.disk_forthcoming, -exclusive);
            [disk, spindles, disk, spindles]
        }
        4 => [service.vcpus, service.vcpus, 0, 0],
        5 => [service.vcpus_forthcoming, service.vcpus_forthcoming, 0, 0],
        6 => [shared * present, 0, shared * present, 0],
        7 => [shared, 0, shared, 0],
        10 => [service.load[2]; 4],
        load => {
            let load = service.load[load - 8];
            [load, load, 0, 0]
        }
    }
}

/// Returns the amount of a node without instances, and the units of share per unit of amount.
fn base_and_scale(node: &ProblemNode, index: usize) -> (i64, f64) {
    let (base, total) = match index {
        0 => (node.memory_base, node.memory_total),
        1 => (node.memory_base_forthcoming, node.memory_total),
        2 | 3 if node.has_exclusive_spindles => (node.spindles_free_base(), node.spindles_total),
        2 | 3 => (node.disk_base, node.disk_total),
        4 | 5 => (node.cpus_own, node.cpus * node.cpu_speed),
        6 | 7 => (0, node.spindles),
        _ => (0, LOAD_UNIT as f64),
    };
    (base, SHARE_UNIT / total)
}
