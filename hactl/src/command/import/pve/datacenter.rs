//! datacenter.cfg and /etc/default/pve-ha-manager: the settings of the whole cluster.

use super::guests::Guests;
use super::imported::Imported;
use super::section::{Problem, Property};
use ha_api_types::cluster::CLUSTER_NAME;
use ha_api_types::kind::Kind;
use serde_json::{Map, Value, json};

/// How long a round of ha-manager takes: it counts the time that an imbalance lasts in rounds.
const ROUND_SECONDS: u32 = 10;
/// The most workers that a node takes at once here.
const MAX_WORKERS: u32 = 64;

/// Reads datacenter.cfg. What is not about services that are kept available is left alone without a word.
pub(super) fn read(
    text: &str,
    path: &str,
    imported: &mut Imported,
    guests: &mut Guests,
) -> Result<(), Problem> {
    let mut spec: Map<String, Value> = Map::new();
    let mut scheduler: Map<String, Value> = Map::new();
    let mut first_line = 1;
    for (line, content) in text.lines().enumerate().map(|(index, content)| (index + 1, content.trim())) {
        if content.is_empty() || content.starts_with('#') {
            continue;
        }
        let (name, value) = content.split_once(':').ok_or_else(|| {
            Problem::new(
                line,
                format!(
                    "{content:?} is no setting: expected a name and a value, as ha: shutdown_policy=migrate"
                ),
            )
        })?;
        let setting = Property { name: name.trim().to_owned(), value: value.trim().to_owned(), line };
        let place = format!("{path}:{line}");
        let before = (spec.len(), scheduler.len());
        match setting.name.as_str() {
            "ha" => {
                for part in parts(&setting, "shutdown_policy") {
                    if part.name == "shutdown_policy" {
                        spec.insert("shutdownPolicy".to_owned(), json!(shutdown_policy(&part)?));
                    } else {
                        imported.note(&place, &format!("ha: {} is not known", part.name));
                    }
                }
            }
            "crs" => {
                for part in parts(&setting, "ha") {
                    crs(&part, &place, &mut scheduler, imported)?;
                }
            }
            "max_workers" => {
                let wanted = setting.count()?;
                let workers = wanted.clamp(1, MAX_WORKERS);
                if workers != wanted {
                    imported.note(
                        &place,
                        &format!("max_workers: {workers} in place of {wanted}: from 1 to {MAX_WORKERS}"),
                    );
                }
                spec.insert("maxWorkers".to_owned(), json!(workers));
            }
            "bwlimit" => {
                for part in parts(&setting, "default") {
                    if part.name == "migration"
                        || (part.name == "default" && guests.bandwidth_mebibytes.is_none())
                    {
                        // KiB a second; 0 is no limit.
                        let mebibytes = u64::from(part.count()?).div_ceil(1024);
                        guests.bandwidth_mebibytes = Some(mebibytes).filter(|mebibytes| *mebibytes > 0);
                    }
                }
            }
            "migration" => {
                let text = "migration: the way that memory takes is set for each machine (spec.driver.libvirt.migration)";
                imported.note(&place, text);
            }
            "fencing" if setting.value != "watchdog" => {
                let text = "fencing: devices are declared for each node (docs/fencing.md); a watchdog is always used";
                imported.note(&place, text);
            }
            _ => (),
        }
        if (spec.len(), scheduler.len()) != before && before == (0, 0) {
            first_line = line;
        }
    }
    guests.sized = scheduler.get("mode").is_some_and(|mode| mode != "Basic");
    if !scheduler.is_empty() {
        spec.insert("scheduler".to_owned(), Value::Object(scheduler));
    }
    if !spec.is_empty() {
        imported.object(Kind::Cluster, CLUSTER_NAME, &spec, &format!("{path}:{first_line}"), &[]);
    }
    Ok(())
}

/// Reads the defaults of ha-manager's services.
pub(super) fn defaults(text: &str, path: &str, imported: &mut Imported) {
    for (line, content) in text.lines().enumerate().map(|(index, content)| (index + 1, content.trim())) {
        if let Some(("WATCHDOG_MODULE", module)) = content.split_once('=') {
            let module = module.trim_matches(['"', '\'', ' ']);
            let text = format!("set WATCHDOG_MODULE={module} in /etc/default/ha-watchdogd of each node");
            imported.note(&format!("{path}:{line}"), &text);
        }
    }
}

/// The parts of a value such as `ha=static,ha-rebalance-on-start=1`; one without a name has the given one.
fn parts(setting: &Property, unnamed: &str) -> Vec<Property> {
    let texts = setting.value.split(',').map(str::trim).filter(|part| !part.is_empty());
    texts
        .map(|part| {
            let (name, value) = part.split_once('=').unwrap_or((unnamed, part));
            Property { name: name.to_owned(), value: value.to_owned(), line: setting.line }
        })
        .collect()
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

fn crs(
    part: &Property,
    place: &str,
    scheduler: &mut Map<String, Value>,
    imported: &mut Imported,
) -> Result<(), Problem> {
    let mut auto = |key: &str, value: Value| {
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
        "ha-auto-rebalance" => auto("enabled", json!(part.boolean()?)),
        "ha-auto-rebalance-method" => {
            let method = match part.value.as_str() {
                "bestscore" => "BestScore",
                "topsis" => "Topsis",
                _ => return Err(part.expected("bestscore or topsis")),
            };
            auto("method", json!(method));
        }
        "ha-auto-rebalance-threshold" => auto("threshold", json!(share(part)?)),
        "ha-auto-rebalance-margin" => auto("margin", json!(share(part)?)),
        "ha-auto-rebalance-hold-duration" => {
            auto("holdSeconds", json!(part.count()?.saturating_mul(ROUND_SECONDS)));
        }
        _ => imported.note(place, &format!("crs: {} is not known", part.name)),
    }
    Ok(())
}

/// A share: above 1 it is a percentage.
fn share(part: &Property) -> Result<f64, Problem> {
    match part.value.parse::<f64>() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        Ok(percent) if (1.0..=1000.0).contains(&percent) => Ok(percent / 100.0),
        Ok(_) | Err(_) => Err(part.expected("a share from 0 to 1, or a percentage")),
    }
}
