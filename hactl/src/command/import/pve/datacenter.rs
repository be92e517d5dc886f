//! Import of datacenter.cfg and /etc/default/pve-ha-manager: the settings of the whole cluster.

use super::guests::Guests;
use super::imported::ImportResult;
use super::section::{Problem, Property};
use ha_api_types::cluster::CLUSTER_NAME;
use ha_api_types::kind::Kind;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Duration of a round of ha-manager, which counts the time of an imbalance in rounds.
const ROUND_SECONDS: u32 = 10;
/// Largest number of workers on a node in this project.
const MAX_WORKERS: u32 = 64;
/// Settings that are imported or noted; others are ignored.
const RELEVANT_SETTINGS: [&str; 8] =
    ["ha", "crs", "max_workers", "max_worker", "bwlimit", "migration", "migration_unsecure", "fencing"];

/// Reads datacenter.cfg. Settings that do not concern HA services are ignored without a note.
pub(super) fn read(
    text: &str,
    path: &str,
    imported: &mut ImportResult,
    guests: &mut Guests,
) -> Result<(), Problem> {
    let mut spec: Map<String, Value> = Map::new();
    let mut scheduler: Map<String, Value> = Map::new();
    let mut first_line = 1;
    let mut lines: BTreeMap<String, usize> = BTreeMap::new();
    for (line, content) in text.lines().enumerate().map(|(index, content)| (index + 1, content.trim())) {
        if content.is_empty() || content.starts_with('#') {
            continue;
        }
        let (name, value) = content.split_once(':').ok_or_else(|| {
            Problem::new(
                line,
                format!(
                    "{content:?} is not a valid setting: expected a name and a value, such as ha: shutdown_policy=migrate"
                ),
            )
        })?;
        let setting = Property { name: name.trim().to_owned(), value: value.trim().to_owned(), line };
        if !RELEVANT_SETTINGS.contains(&setting.name.as_str()) {
            continue;
        }
        if let Some(earlier_line) = lines.insert(setting.name.clone(), line) {
            let text = format!("{} is specified twice, first in line {earlier_line}", setting.name);
            return Err(Problem::new(line, text));
        }
        let location = format!("{path}:{line}");
        let lengths_before = (spec.len(), scheduler.len());
        match setting.name.as_str() {
            "ha" => {
                for part in split_parts(&setting, "shutdown_policy")? {
                    if part.name == "shutdown_policy" {
                        spec.insert("shutdownPolicy".to_owned(), json!(shutdown_policy(&part)?));
                    } else {
                        imported.add_note(&location, &format!("ha: unknown setting {}", part.name));
                    }
                }
            }
            "crs" => {
                for part in split_parts(&setting, "ha")? {
                    read_crs(&part, &location, &mut scheduler, imported)?;
                }
            }
            "max_workers" => {
                let configured_workers = setting.count()?;
                let workers = configured_workers.clamp(1, MAX_WORKERS);
                if workers != configured_workers {
                    imported.add_note(
                        &location,
                        &format!("max_workers: {workers} instead of {configured_workers}; valid: 1 to {MAX_WORKERS}"),
                    );
                }
                spec.insert("maxWorkers".to_owned(), json!(workers));
            }
            "bwlimit" => {
                let parts = split_parts(&setting, "default")?;
                // The limit of migrations has priority over the default limit, regardless of the order and even if it is 0.
                let part_named = |name: &str| parts.iter().find(|part| part.name == name);
                if let Some(part) = part_named("migration").or_else(|| part_named("default")) {
                    guests.bandwidth_mebibytes_per_second = parse_mebibytes(part)?;
                }
            }
            "max_worker" => {
                let text = "max_worker: ignored by ha-manager; use max_workers";
                imported.add_note(&location, text);
            }
            "migration" | "migration_unsecure" => {
                let text = format!(
                    "{}: migration settings belong to each virtual machine (spec.driver.libvirt.migration)",
                    setting.name
                );
                imported.add_note(&location, &text);
            }
            "fencing" if setting.value != "watchdog" => {
                let text = "fencing: configure fence devices for each node (docs/fencing.md); a watchdog is always used";
                imported.add_note(&location, text);
            }
            _ => (),
        }
        if (spec.len(), scheduler.len()) != lengths_before && lengths_before == (0, 0) {
            first_line = line;
        }
    }
    guests.imports_sizes = scheduler.get("mode").is_some_and(|mode| mode != "Basic");
    if !scheduler.is_empty() {
        spec.insert("scheduler".to_owned(), Value::Object(scheduler));
    }
    if !spec.is_empty() {
        imported.add_object(Kind::Cluster, CLUSTER_NAME, &spec, &format!("{path}:{first_line}"), &[]);
        for (setting, field) in
            [("ha", "spec.shutdownPolicy"), ("crs", "spec.scheduler"), ("max_workers", "spec.maxWorkers")]
        {
            if let Some(line) = lines.get(setting) {
                imported.record_field_location(field, path, *line);
            }
        }
    }
    Ok(())
}

/// Reads the defaults of ha-manager's services.
pub(super) fn defaults(text: &str, path: &str, imported: &mut ImportResult) {
    for (line, content) in text.lines().enumerate().map(|(index, content)| (index + 1, content.trim())) {
        let Some((name, module)) = content.split_once('=') else { continue };
        let module = module.trim_matches(['"', '\'', ' ']);
        // In Proxmox VE, an empty value means softdog. In hactl, it would mean no module.
        if name.trim_end() == "WATCHDOG_MODULE" && !module.is_empty() {
            let text = format!("set WATCHDOG_MODULE={module} in /etc/hactl/watchdog.env on each node");
            imported.add_note(&format!("{path}:{line}"), &text);
        }
    }
}

/// Splits a value such as `ha=static,ha-rebalance-on-start=1` into its parts. A part without a name gets the name `unnamed`.
fn split_parts(setting: &Property, unnamed: &str) -> Result<Vec<Property>, Problem> {
    let mut parts: Vec<Property> = Vec::new();
    for part in setting.value.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (name, value) = part.split_once('=').unwrap_or((unnamed, part));
        let (name, value) = (name.trim().to_owned(), value.trim().to_owned());
        if parts.iter().any(|other| other.name == name) {
            return Err(Problem::new(setting.line, format!("{}: {name} is specified twice", setting.name)));
        }
        parts.push(Property { name, value, line: setting.line });
    }
    Ok(parts)
}

/// Parses a limit in KiB per second, with an optional fraction. Returns MiB per second, at least 1, or `None` for 0 (no limit).
fn parse_mebibytes(part: &Property) -> Result<Option<u64>, Problem> {
    let expected = || part.expected("KiB per second, or 0 for no limit");
    let (integer_part, fraction) = part.value.split_once('.').unwrap_or((&part.value, ""));
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(expected());
    }
    let kibibytes: u64 = integer_part.parse().map_err(|_| expected())?;
    let has_fraction = fraction.bytes().any(|byte| byte != b'0');
    let kibibytes = kibibytes.saturating_add(u64::from(has_fraction));
    Ok(Some(kibibytes.div_ceil(1024)).filter(|mebibytes| *mebibytes > 0))
}

fn shutdown_policy(part: &Property) -> Result<&'static str, Problem> {
    match part.value.as_str() {
        "conditional" => Ok("Conditional"),
        "freeze" => Ok("Freeze"),
        "failover" => Ok("Failover"),
        "migrate" => Ok("Migrate"),
        _ => Err(part.expected("conditional, freeze, failover or migrate")),
    }
}

fn read_crs(
    part: &Property,
    location: &str,
    scheduler: &mut Map<String, Value>,
    imported: &mut ImportResult,
) -> Result<(), Problem> {
    let mut set_auto_rebalance = |key: &str, value: Value| {
        let rebalance = scheduler.entry("autoRebalance").or_insert_with(|| json!({}));
        if let Some(rebalance) = rebalance.as_object_mut() {
            rebalance.insert(key.to_owned(), value);
        }
    };
    match part.name.as_str() {
        "ha" => {
            let mode = match part.value.as_str() {
                "basic" => "Basic",
                "static" => "Static",
                "dynamic" => "Dynamic",
                _ => return Err(part.expected("basic, static or dynamic")),
            };
            scheduler.insert("mode".to_owned(), json!(mode));
        }
        "ha-rebalance-on-start" => {
            scheduler.insert("rebalanceOnStart".to_owned(), json!(part.boolean()?));
        }
        "ha-auto-rebalance" => set_auto_rebalance("enabled", json!(part.boolean()?)),
        "ha-auto-rebalance-method" => {
            let method = match part.value.as_str() {
                "bestscore" => "BestScore",
                "topsis" => "Topsis",
                _ => return Err(part.expected("bestscore or topsis")),
            };
            set_auto_rebalance("method", json!(method));
        }
        "ha-auto-rebalance-threshold" => set_auto_rebalance("threshold", json!(parse_share(part)?)),
        "ha-auto-rebalance-margin" => set_auto_rebalance("margin", json!(parse_share(part)?)),
        "ha-auto-rebalance-hold-duration" => {
            set_auto_rebalance("holdSeconds", json!(part.count()?.saturating_mul(ROUND_SECONDS)));
        }
        _ => imported.add_note(location, &format!("crs: unknown setting {}", part.name)),
    }
    Ok(())
}

/// Parses a share; a value above 1 is a percentage.
fn parse_share(part: &Property) -> Result<f64, Problem> {
    match part.value.parse::<f64>() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        Ok(percent) if (1.0..=1000.0).contains(&percent) => Ok(percent / 100.0),
        Ok(_) | Err(_) => Err(part.expected("a share from 0 to 1, or a percentage")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn the_migration_limit_overrides_the_default_in_any_order() {
        let check = |value: &str, expected: Option<u64>| {
            let mut guests = Guests::new(false, Path::new("/nonexistent"));
            let text = format!("bwlimit: {value}\n");
            read(&text, "datacenter.cfg", &mut ImportResult::default(), &mut guests).unwrap();
            assert_eq!(guests.bandwidth_mebibytes_per_second, expected, "{value}");
        };
        check("migration=204800", Some(200));
        check("default=2048,migration=1024", Some(1));
        check("migration=1024,default=2048", Some(1));
        check("migration=0,default=2048", None);
        check("default=2048,migration=0", None);
        check("default=2048.5,clone=1", Some(3));
        check("migration=0.5", Some(1));
        check("clone=1", None);
    }

    #[test]
    fn ambiguous_settings_are_refused() {
        let check = |text: &str, line: usize, part: &str| {
            let mut guests = Guests::new(false, Path::new("/nonexistent"));
            let problem =
                read(text, "datacenter.cfg", &mut ImportResult::default(), &mut guests).unwrap_err();
            assert!(problem.line == line && problem.text.contains(part), "{problem:?}");
        };
        check(
            "ha: shutdown_policy=migrate\n\nha: shutdown_policy=freeze\n",
            3,
            "ha is specified twice, first in line 1",
        );
        check("crs: ha=static,ha-rebalance-on-start=1,ha=basic\n", 1, "crs: ha is specified twice");
        check("crs: static,ha=basic\n", 1, "crs: ha is specified twice");
        check("bwlimit: migration=1.x\n", 1, "migration: expected KiB per second");
        check("bwlimit: migration=-1\n", 1, "migration: expected KiB per second");
    }

    #[test]
    fn empty_watchdog_module_adds_no_note() {
        let check = |text: &str, expected: &[&str]| {
            let mut imported = ImportResult::default();
            defaults(text, "f", &mut imported);
            assert_eq!(imported.notes, expected, "{text}");
        };
        check("WATCHDOG_MODULE=\n#WATCHDOG_MODULE=a\nWATCHDOG_MODULE=\"\"\n", &[]);
        let note = "f:1: set WATCHDOG_MODULE=iTCO_wdt in /etc/hactl/watchdog.env on each node";
        check("WATCHDOG_MODULE = \"iTCO_wdt\"\n", &[note]);
    }
}
