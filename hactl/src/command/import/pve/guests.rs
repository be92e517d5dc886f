//! Guests: their drivers, and their sizes if their configurations exist.

use ha_api_types::driver::DriverKind;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Largest number of guests in one note.
const MAX_NAMED_GUESTS: usize = 20;

/// Settings that determine a guest's size.
const SIZE_SETTINGS: [&str; 4] = ["cores", "sockets", "vcpus", "memory"];

/// Settings of a guest by name, with their lines.
type Settings = BTreeMap<String, (usize, String)>;

/// Guests of an import, with the notes about them.
#[derive(Debug)]
pub(super) struct Guests {
    simulated: bool,
    /// `true` if sizes are imported. In hactl, sizes always limit placement; in ha-manager, only in some modes.
    pub(super) imports_sizes: bool,
    /// Limit of migrations in MiB per second; `None` means no limit.
    pub(super) bandwidth_mebibytes_per_second: Option<u64>,
    directory: PathBuf,
    kinds: BTreeSet<GuestKind>,
    has_omitted_sizes: bool,
    /// Guests without a configuration.
    unknown_sizes: Vec<String>,
    /// Configurations and numbers that cannot be read.
    unreadable: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum GuestKind {
    Machine,
    Container,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Guest {
    /// `spec.driver`.
    pub(super) driver: Value,
    /// `spec.requests`; `None` if the guest's configuration does not exist or sizes are not imported.
    pub(super) requests: Option<Value>,
    /// Display name from the guest's configuration.
    pub(super) name: Option<String>,
}

impl Guests {
    pub(super) fn new(simulated: bool, directory: &Path) -> Guests {
        Guests {
            simulated,
            imports_sizes: false,
            bandwidth_mebibytes_per_second: None,
            directory: directory.to_owned(),
            kinds: BTreeSet::new(),
            has_omitted_sizes: false,
            unknown_sizes: Vec::new(),
            unreadable: Vec::new(),
        }
    }

    /// Returns the guest of a type and number; `None` if the type is neither `vm` nor `ct`.
    pub(super) fn guest(&mut self, type_name: &str, number: &str) -> Option<Guest> {
        let kind = match type_name {
            "vm" => GuestKind::Machine,
            "ct" => GuestKind::Container,
            _ => return None,
        };
        self.kinds.insert(kind);
        let settings = self.settings(kind, number);
        if settings.is_none() {
            self.unknown_sizes.push(format!("{type_name}:{number}"));
        }
        let size =
            settings.as_ref().map(|settings| requests(kind, settings)).filter(|size| size != &json!({}));
        self.has_omitted_sizes |= size.is_some() && !self.imports_sizes;
        Some(Guest {
            driver: self.driver(kind, number),
            requests: size.filter(|_| self.imports_sizes),
            name: settings.and_then(|mut settings| settings.remove(kind.name_key())).map(|(_, name)| name),
        })
    }

    fn driver(&self, kind: GuestKind, number: &str) -> Value {
        if self.simulated {
            let live = kind == GuestKind::Machine;
            return json!({DriverKind::Simulated.name(): {"type": kind.type_name(), "live": live}});
        }
        match kind {
            GuestKind::Machine => {
                let mut libvirt = Map::new();
                libvirt.insert("domain".to_owned(), json!(number));
                if let Some(mebibytes) = self.bandwidth_mebibytes_per_second {
                    libvirt.insert("migration".to_owned(), json!({"bandwidthMebibytesPerSecond": mebibytes}));
                }
                json!({DriverKind::Libvirt.name(): libvirt})
            }
            GuestKind::Container => json!({DriverKind::Lxc.name(): {"container": number}}),
        }
    }

    /// Returns the settings of the guest's own configuration; `None` if it does not exist.
    fn settings(&mut self, kind: GuestKind, number: &str) -> Option<Settings> {
        let file = Path::new(kind.directory()).join(format!("{number}.conf"));
        let roots = [self.directory.clone(), self.directory.join(".."), self.directory.join("pve")];
        let mut candidates: Vec<PathBuf> = roots.iter().map(|root| root.join(&file)).collect();
        for root in &roots {
            let nodes = std::fs::read_dir(root.join("nodes")).into_iter().flatten().flatten();
            let mut nodes: Vec<PathBuf> = nodes.map(|node| node.path().join(&file)).collect();
            nodes.sort();
            candidates.append(&mut nodes);
        }
        for path in candidates {
            match std::fs::read(&path) {
                // Numbers are ASCII; a name that is not UTF-8 appears only in a comment.
                Ok(bytes) => {
                    let settings = current_settings(&String::from_utf8_lossy(&bytes));
                    let invalid = invalid_sizes(&settings).into_iter().filter(|_| self.imports_sizes);
                    self.unreadable.extend(invalid.map(|invalid| format!("{}:{invalid}", path.display())));
                    return Some(settings);
                }
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => (),
                Err(error) => {
                    self.unreadable.push(format!("cannot read {}: {error}", path.display()));
                }
            }
        }
        None
    }

    /// Returns the notes about all guests.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = self.unreadable.clone();
        if !self.simulated {
            for kind in &self.kinds {
                notes.push(match kind {
                    GuestKind::Machine => "vm: each virtual machine uses the libvirt domain named by its ID. Define the domain in \
                        libvirt on every node, with disks that all nodes reach, or replace spec.driver.libvirt (docs/libvirt.md)"
                        .to_owned(),
                    GuestKind::Container => "ct: each container uses the LXC container named by its ID. Create the container (/var/lib/lxc/ID/config) on \
                        every node, with a root file system that all nodes reach, or replace spec.driver.lxc (docs/lxc.md)"
                        .to_owned(),
                });
            }
        }
        if self.has_omitted_sizes {
            notes.push(
                "sizes of virtual machines and containers are omitted, because ha-manager ignores them in mode basic; with crs: ha=static, sizes become \
                 spec.requests, which limit the services of a node"
                    .to_owned(),
            );
        }
        if self.imports_sizes && !self.unknown_sizes.is_empty() {
            let mut guests = self.unknown_sizes.iter().take(MAX_NAMED_GUESTS).cloned().collect::<Vec<_>>();
            if self.unknown_sizes.len() > guests.len() {
                guests.push(format!("{} others", self.unknown_sizes.len() - guests.len()));
            }
            notes.push(format!(
                "unknown sizes of {}: qemu-server/ID.conf or lxc/ID.conf is missing or unreadable; set spec.requests",
                guests.join(", ")
            ));
        }
        notes
    }
}

impl GuestKind {
    fn type_name(self) -> &'static str {
        match self {
            GuestKind::Machine => "vm",
            GuestKind::Container => "ct",
        }
    }

    fn directory(self) -> &'static str {
        match self {
            GuestKind::Machine => "qemu-server",
            GuestKind::Container => "lxc",
        }
    }

    fn name_key(self) -> &'static str {
        match self {
            GuestKind::Machine => "name",
            GuestKind::Container => "hostname",
        }
    }
}

/// Returns the current settings, which come before those of the first snapshot.
fn current_settings(text: &str) -> Settings {
    (1..)
        .zip(text.lines().map(str::trim))
        .take_while(|(_, line)| !line.starts_with('['))
        .filter(|(_, line)| !line.starts_with('#'))
        .filter_map(|(number, line)| line.split_once(':').map(|parts| (number, parts)))
        .map(|(number, (key, value))| (key.to_owned(), (number, value.trim().to_owned())))
        .collect()
}

/// Parses an integer such as `4096` or `current=4096,x=1`.
fn number(text: &str) -> Option<u64> {
    let first_part = text.split(',').next().unwrap_or_default();
    first_part.rsplit('=').next().unwrap_or_default().parse().ok()
}

/// Returns the invalid settings of a guest's size, each with its line.
fn invalid_sizes(settings: &Settings) -> Vec<String> {
    let of_size = settings.iter().filter(|(key, _)| SIZE_SETTINGS.contains(&key.as_str()));
    let invalid = of_size.filter(|(_, (_, value))| number(value).is_none());
    invalid
        .map(|(key, (line, value))| format!("{line}: {key} {value:?} is not an integer; omitted"))
        .collect()
}

/// Returns memory and CPUs, with Proxmox VE's defaults for missing settings.
fn requests(kind: GuestKind, settings: &Settings) -> Value {
    let number = |key: &str, default: Option<u64>| match settings.get(key) {
        None => default,
        Some((_, value)) => number(value),
    };
    let cores = match kind {
        GuestKind::Machine => number("cores", Some(1))
            .zip(number("sockets", Some(1)))
            .map(|(cores, sockets)| number("vcpus", None).unwrap_or(cores.saturating_mul(sockets))),
        GuestKind::Container => number("cores", None),
    };
    let mut requests = Map::new();
    if let Some(cores) = cores {
        requests.insert("cpu".to_owned(), json!(cores.to_string()));
    }
    if let Some(memory) = number("memory", Some(512)) {
        requests.insert("memory".to_owned(), json!(format!("{memory}Mi")));
    }
    Value::Object(requests)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guest_sizes_exclude_snapshots() {
        let check = |kind, text: &str, expected: Value| {
            assert_eq!(requests(kind, &current_settings(text)), expected, "{text}");
        };
        let machine = GuestKind::Machine;
        check(
            machine,
            "#memory: 1\nname: a\ncores: 2\nsockets: 2\nmemory: 4096\n[old]\nmemory: 1\n",
            json!({"cpu": "4", "memory": "4096Mi"}),
        );
        check(machine, "memory: current=2048\nvcpus: 3\ncores: 4\n", json!({"cpu": "3", "memory": "2048Mi"}));
        check(machine, "", json!({"cpu": "1", "memory": "512Mi"}));
        check(machine, "memory: much\n", json!({"cpu": "1"}));
        check(GuestKind::Container, "hostname: b\n", json!({"memory": "512Mi"}));
    }
}
