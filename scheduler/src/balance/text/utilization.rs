//! Measured use of instances in lines of `instance cpu memory disk net`, separated by white space.

use super::field::TextError;
use crate::balance::model::{Cluster, Instance, LOAD_UNIT};
use std::collections::BTreeMap;

/// Maximum accepted load; higher values are mistakes, and their sums would overflow.
const MAX_UTILIZATION: f64 = 100.0;

/// Sets the measured use of the instances in the text; the others keep theirs.
///
/// # Errors
/// Fails if a line is malformed, or if it names an unknown instance.
pub fn read_utilization(cluster: &mut Cluster, text: &str) -> Result<(), TextError> {
    let positions: BTreeMap<String, usize> = cluster
        .instances
        .iter()
        .enumerate()
        .map(|(index, instance)| (instance.name.clone(), index))
        .collect();
    for (index, line) in text.lines().enumerate() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let error = |field: &str, expected: &str, found: &str| TextError {
            line: index + 1,
            field: field.to_owned(),
            expected: expected.to_owned(),
            actual: found.to_owned(),
        };
        let [name, values @ ..] = words.as_slice() else { continue };
        if values.len() != 4 {
            let found = format!("{} words", words.len());
            return Err(error("", "an instance and its use of cpu, memory, disk and network", &found));
        }
        let Some(&position) = positions.get(*name) else {
            return Err(error("instance (word 1)", "an instance of the cluster", &format!("`{name}`")));
        };
        let mut load = [0; 4];
        for (slot, (value, field)) in load.iter_mut().zip(values.iter().zip(["cpu", "memory", "disk", "net"]))
        {
            *slot = match value.parse::<f64>() {
                Ok(number) if (0.0..=MAX_UTILIZATION).contains(&number) => in_units(number),
                Ok(_) | Err(_) => {
                    return Err(error(field, "a number from 0 to 100", &format!("`{value}`")));
                }
            };
        }
        cluster.instances[position].load = load;
    }
    Ok(())
}

/// Formats the measured use of all instances for [`read_utilization`].
pub fn write_utilization(cluster: &Cluster) -> String {
    let share = |load: i64| format!("{}", load as f64 / LOAD_UNIT as f64);
    let line = |instance: &Instance| {
        let loads: Vec<String> = instance.load.into_iter().map(share).collect();
        format!("{} {}\n", instance.name, loads.join(" "))
    };
    cluster.instances.iter().map(line).collect::<Vec<_>>().concat()
}

#[expect(clippy::cast_possible_truncation, reason = "the number is at most 100")]
fn in_units(number: f64) -> i64 {
    (number * LOAD_UNIT as f64).round() as i64
}
