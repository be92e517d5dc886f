//! The identity of this machine, and its capacity.

use crate::core::Hardware;
use anyhow::Context;
use ha_api_types::id::ProductId;
use ha_api_types::quantity::{Amounts, Quantity};
use std::collections::BTreeSet;
use std::num::NonZero;
use std::path::Path;

/// Reads an id from a file. An empty id is refused, because it does not distinguish machines.
pub(super) fn read_id(path: &Path, flag: &str) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read {flag} {}: set a file that contains the id", path.display()))?;
    let id = text.trim();
    if id.is_empty() || id.len() > 128 {
        anyhow::bail!("{flag} {} must hold one line of 1 to 128 characters", path.display());
    }
    Ok(id.to_owned())
}

/// Returns the product id of the hardware; `None` if it cannot be read, or is a default that does not identify the
/// machine.
pub(super) fn product_id(path: &Path) -> Option<ProductId> {
    product_id_of(&std::fs::read_to_string(path).ok()?)
}

/// Returns the normalized product id; `None` for the default of firmware without an id, which many machines share.
fn product_id_of(text: &str) -> Option<ProductId> {
    let id = text.trim().to_ascii_lowercase();
    let hex_digits = || id.chars().filter(|character| *character != '-');
    let is_filler = hex_digits().all(|digit| digit == '0') || hex_digits().all(|digit| digit == 'f');
    let is_known_filler = id == "03000200-0400-0500-0006-000700080009";
    (!id.is_empty() && id.len() <= 128 && !is_filler && !is_known_filler).then(|| id.into())
}

/// Returns the cores, the hardware threads and the memory of this machine. An unknown amount is `None`, which means no
/// limit.
pub(super) fn hardware() -> Hardware {
    let (cores, threads) = cpus(Path::new("/sys/devices/system/cpu")).map_or_else(
        || {
            // The processors that the agent may use.
            let usable = std::thread::available_parallelism().ok().map(NonZero::get);
            (usable, usable)
        },
        |(cores, threads)| (Some(cores), Some(threads)),
    );
    let quantity = |count: usize| i128::try_from(count).ok().map(Quantity::from_units);
    Hardware {
        capacity: Amounts {
            cpu: cores.and_then(quantity),
            memory: std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| memory_of(&text)),
            disk: None,
        },
        threads: threads.and_then(quantity),
    }
}

/// Counts the cores and hardware threads that are online below a directory like `/sys/devices/system/cpu`. Threads of
/// one core have the same list of siblings. `None` if the kernel does not provide this information.
fn cpus(directory: &Path) -> Option<(usize, usize)> {
    let mut threads = 0;
    let mut cores = BTreeSet::new();
    for entry in std::fs::read_dir(directory).ok()?.flatten() {
        let topology = entry.path().join("topology");
        // Only an online processor has a topology. Kernels before 5.3 provide the list only under its former name.
        let list = ["core_cpus_list", "thread_siblings_list"]
            .iter()
            .find_map(|name| std::fs::read_to_string(topology.join(name)).ok());
        if let Some(list) = list {
            threads += 1;
            cores.insert(list);
        }
    }
    (threads > 0).then_some((cores.len(), threads))
}

fn memory_of(meminfo: &str) -> Option<Quantity> {
    let line = meminfo.lines().find(|line| line.starts_with("MemTotal:"))?;
    let kibibytes: i128 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(Quantity::from_units(kibibytes * 1024))
}

/// Returns `true` if the processor reports a hypervisor, or the firmware names one.
pub(super) fn is_probably_virtual() -> bool {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let flags = read("/proc/cpuinfo");
    let has_hypervisor_flag = flags
        .lines()
        .find(|line| line.starts_with("flags"))
        .is_some_and(|line| line.split_whitespace().any(|flag| flag == "hypervisor"));
    let vendor = read("/sys/class/dmi/id/sys_vendor");
    let product = read("/sys/class/dmi/id/product_name");
    let virtual_names =
        ["QEMU", "KVM", "VMware", "VirtualBox", "Xen", "Bochs", "Virtual Machine", "Firecracker"];
    has_hypervisor_flag || virtual_names.iter().any(|name| vendor.contains(name) || product.contains(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholder_product_ids_are_ignored() {
        let check = |text: &str, expected: Option<&str>| assert_eq!(product_id_of(text).as_deref(), expected);
        check("4C4C4544-0042-3510-8054-B4C04F4E3532\n", Some("4c4c4544-0042-3510-8054-b4c04f4e3532"));
        check("00000000-0000-0000-0000-000000000000\n", None);
        check("FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF\n", None);
        check("03000200-0400-0500-0006-000700080009\n", None);
        check("\n", None);
    }

    #[test]
    fn threads_of_one_core_count_as_one_core() {
        let directory = tempfile::tempdir().unwrap();
        let add = |name: &str, siblings: Option<&str>| {
            let topology = directory.path().join(name).join("topology");
            std::fs::create_dir_all(&topology).unwrap();
            if let Some(siblings) = siblings {
                std::fs::write(topology.join("core_cpus_list"), siblings).unwrap();
            }
        };
        assert_eq!(cpus(directory.path()), None);
        assert_eq!(cpus(Path::new("/nonexistent")), None);
        for (name, siblings) in
            [("cpu0", "0,4"), ("cpu1", "1,5"), ("cpu4", "0,4"), ("cpu5", "1,5"), ("cpu7", "7")]
        {
            add(name, Some(siblings));
        }
        // A processor that is offline, and the kernel's other directories.
        add("cpu8", None);
        add("cpufreq", None);
        assert_eq!(cpus(directory.path()), Some((3, 5)));
    }

    #[test]
    fn memory_is_read_in_bytes() {
        let text = "MemTotal:       16316412 kB\nMemFree:         1 kB\n";
        assert_eq!(memory_of(text).map(Quantity::units), Some(16_316_412 * 1024));
        assert_eq!(memory_of("nothing"), None);
    }

    /// FENCING R5.25: the ids come from the files of the options.
    #[test]
    fn id_is_read_from_its_file_and_refused_if_empty() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), "1b4e28ba\n").expect("written");
        assert_eq!(read_id(file.path(), "--boot-id-file").expect("an id"), "1b4e28ba");
        std::fs::write(file.path(), "\n").expect("written");
        let error = read_id(file.path(), "--boot-id-file").expect_err("refused").to_string();
        assert!(error.contains("--boot-id-file") && error.contains("1 to 128"), "{error}");
    }
}
