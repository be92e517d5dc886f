//! The deviations of the score as columns: the amounts that instances add to nodes, and the totals that turn amounts into
//! shares.
//!
//! Equal columns are merged and their weights added. Often the loads of cpu, memory and network are equal, or a value and
//! its forthcoming counterpart.

use super::model::LOAD_UNIT;
use super::problem::{Guest, Host, Problem};

/// Number of units in a share of 1. Shares are integers, so that sums of them and of their squares are exact.
pub(super) const SHARE_UNIT: f64 = (1_u64 << 36) as f64;

/// Maximum share, which prevents overflows of sums. Real shares are always smaller.
const MAX_SHARE: f64 = (1_u64 << 50) as f64;

/// All columns, for all instances and nodes.
#[derive(Clone, Debug)]
pub(super) struct Columns {
    /// Weight of each column.
    pub(super) weights: Vec<f64>,
    /// Amounts that instances add to nodes, in rows of columns. Instance i has four rows from `i * 4`: for its primary
    /// without and with exclusive spindles, then for its secondary.
    added: Vec<i64>,
    /// Amounts of a node without instances, at `node * columns + column`.
    pub(super) base: Vec<i64>,
    /// Units of share per unit of amount, at `node * columns + column`.
    scale: Vec<f64>,
}

/// One column before equal columns are merged.
#[derive(PartialEq)]
struct Column {
    guests: Vec<[i64; 4]>,
    base: Vec<i64>,
    scale: Vec<f64>,
}

impl Columns {
    /// Builds the columns of a problem.
    pub(super) fn new(problem: &Problem) -> Columns {
        let mut merged: Vec<(Column, f64)> = Vec::new();
        for (index, weight) in DEVIATION_WEIGHTS.iter().copied().enumerate() {
            let column = column(problem, index);
            match merged.iter_mut().find(|(merged_column, _)| *merged_column == column) {
                Some((_, sum)) => *sum += weight,
                None => merged.push((column, weight)),
            }
        }
        let mut columns = Columns {
            weights: merged.iter().map(|(_, weight)| *weight).collect(),
            added: Vec::new(),
            base: Vec::new(),
            scale: Vec::new(),
        };
        for guest in 0..problem.guests.len() {
            for role in 0..4 {
                columns.added.extend(merged.iter().map(|(column, _)| column.guests[guest][role]));
            }
        }
        for host in 0..problem.hosts.len() {
            for (column, _) in &merged {
                columns.base.push(column.base[host]);
                columns.scale.push(column.scale[host]);
            }
        }
        columns
    }

    /// Returns the number of columns.
    pub(super) fn len(&self) -> usize {
        self.weights.len()
    }

    /// Returns the amounts that an instance adds to the columns of its primary or secondary.
    pub(super) fn added(&self, guest: usize, primary: bool, exclusive: bool) -> &[i64] {
        let row = guest * 4 + usize::from(!primary) * 2 + usize::from(exclusive);
        &self.added[row * self.len()..(row + 1) * self.len()]
    }

    /// Converts an amount on a node to a share, in units.
    #[expect(clippy::cast_possible_truncation, reason = "clamped")]
    pub(super) fn share(&self, host: usize, column: usize, amount: i64) -> i64 {
        (amount as f64 * self.scale[host * self.len() + column]).clamp(-MAX_SHARE, MAX_SHARE) as i64
    }

    /// Returns the units of share per unit of amount of a node, by column.
    pub(super) fn scales(&self, host: usize) -> &[f64] {
        &self.scale[host * self.len()..(host + 1) * self.len()]
    }
}

/// Weights of the deviations, in the order of [`column`]: memory, disk, cpus and spindles, each without and with
/// forthcoming instances, then the four loads. Reserved memory is not a sum over instances and has no column.
const DEVIATION_WEIGHTS: [f64; 12] = [0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 1.0, 1.0, 1.0, 1.0];

fn column(problem: &Problem, index: usize) -> Column {
    let guests = problem.guests.iter().map(|guest| added(guest, index)).collect();
    let (base, scale) = problem.hosts.iter().map(|host| base_and_scale(host, index)).unzip();
    Column { guests, base, scale }
}

/// Returns the amounts that an instance adds to its primary and to its secondary, each without and with exclusive
/// spindles.
fn added(guest: &Guest, index: usize) -> [i64; 4] {
    let present = i64::from(guest.present);
    let [shared, exclusive] = guest.spindles;
    match index {
        0 => [-guest.memory_used, -guest.memory_used, 0, 0],
        1 => [-guest.memory_forthcoming, -guest.memory_forthcoming, 0, 0],
        2 => {
            let (disk, spindles) = (-guest.disk_used, -exclusive * present);
            [disk, spindles, disk, spindles]
        }
        3 => {
            let (disk, spindles) = (-guest.disk_forthcoming, -exclusive);
            [disk, spindles, disk, spindles]
        }
        4 => [guest.vcpus, guest.vcpus, 0, 0],
        5 => [guest.vcpus_forthcoming, guest.vcpus_forthcoming, 0, 0],
        6 => [shared * present, 0, shared * present, 0],
        7 => [shared, 0, shared, 0],
        10 => [guest.load[2]; 4],
        load => {
            let load = guest.load[load - 8];
            [load, load, 0, 0]
        }
    }
}

/// Returns the amount of a node without instances, and the units of share per unit of amount.
fn base_and_scale(host: &Host, index: usize) -> (i64, f64) {
    let (base, total) = match index {
        0 => (host.memory_base, host.memory_total),
        1 => (host.memory_base_forthcoming, host.memory_total),
        2 | 3 if host.exclusive => (host.spindles_free_base(), host.spindles_total),
        2 | 3 => (host.disk_base, host.disk_total),
        4 | 5 => (host.cpus_own, host.cpus * host.cpu_speed),
        6 | 7 => (0, host.spindles),
        _ => (0, LOAD_UNIT as f64),
    };
    (base, SHARE_UNIT / total)
}
