//! Writes the index of the simulator's scenarios, from the comment at the start of each file.

use crate::generated;
use anyhow::{Context, Result, ensure};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// The topics in the order of the index, with a description. Directories without an entry come last.
const TOPICS: [(&str, &str); 23] = [
    ("fencing", "Node failures, and confirmation of their fencing."),
    ("store", "Outages, delays, compaction, leader changes and restores of etcd."),
    ("leadership", "Failures, hangs and isolation of the leader."),
    ("controllers", "Restarts, additions and deletions of controllers, and slow plans."),
    ("agent", "Failures, restarts and hangs of the agent, and a journal that cannot be written."),
    ("services", "Starts, failures, crashes and stops of services."),
    ("order", "Start and stop order of dependent services."),
    ("moves", "Live migrations and relocations."),
    ("rules", "Groups and affinity rules."),
    ("placement", "Eligible nodes, and the choice between them."),
    ("maintenance", "Maintenance of nodes."),
    ("shutdown", "Orderly power-off and reboot of machines."),
    ("disarm", "Planned work on etcd or the network."),
    ("commands", "Commands of users, and their refusals."),
    ("notifications", "Notifications, each sent once."),
    ("deletion", "Deletion of resources."),
    ("identity", "Changes of definitions while copies exist."),
    ("queued", "New resources that wait until nodes have reported whether they already run."),
    ("reservation", "The failover capacity (N+1) check."),
    ("watchdog", "Failed watchdogs, machines that sleep, and copied machines."),
    ("edges", "Partial failures, lost messages and upgrades."),
    ("import", "Objects from `hactl import pve`, with the same effects as in ha-manager."),
    ("found-by-seeds", "Reduced failures that random runs found."),
];

/// Maximum number of columns of a line of the index.
const MAX_COLUMNS: usize = 120;
/// Columns of a bullet's marker, and of the indentation of its other lines.
const INDENT_COLUMNS: usize = 2;

const INTRODUCTION: &str = "# Scenarios

Each file is a whole cluster under a virtual clock: the real controllers and agents over simulated etcd,
network and power. It lists events and expected results, and begins with a description and the rules that it proves.

```sh
hactl simulate simulator/scenarios                  # all scenarios, one line each
hactl simulate simulator/scenarios/fencing          # one topic
hactl simulate simulator/scenarios/fencing/node-loses-power.yaml    # timeline of one scenario
```

[docs/simulator.md](../../docs/simulator.md) describes the format. `cargo run -p ha-xtask -- scenarios` generates this
index.
";

/// Writes the index; with `check` only compares it. A difference is an error that names the chore to run.
pub(crate) fn write(check: bool) -> Result<()> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../simulator/scenarios");
    let path = directory.join("README.md");
    let text = index(&directory)?;
    generated::write(&path, &text, "scenarios", check)
}

fn index(directory: &Path) -> Result<String> {
    let mut names: Vec<String> = entries(directory)?
        .iter()
        .filter(|path| path.is_dir())
        .filter_map(|path| path.file_name().map(|name| name.to_string_lossy().into_owned()))
        .collect();
    let rank = |name: &String| TOPICS.iter().position(|(topic, _)| topic == name).unwrap_or(TOPICS.len());
    names.sort_by_key(|name| (rank(name), name.clone()));
    let mut text = INTRODUCTION.to_owned();
    for name in names {
        let description =
            TOPICS.iter().find(|(topic, _)| *topic == name).map_or("", |(_, description)| description);
        let files: Vec<PathBuf> = entries(&directory.join(&name))?
            .into_iter()
            .filter(|path| path.extension().is_some_and(|end| end == "yaml"))
            .collect();
        if files.is_empty() {
            continue;
        }
        let _ = write!(text, "\n## {name}\n\n{description}\n\n");
        for file in files {
            let (events, proves) = header_parts(&file)?;
            let stem = file.file_stem().unwrap_or_default().to_string_lossy();
            let mut bullet = format!("[{stem}]({name}/{stem}.yaml): {events}");
            if !proves.is_empty() {
                let _ = write!(bullet, " *{proves}*");
            }
            text.push_str(&wrap_bullet(&bullet));
        }
    }
    Ok(text)
}

/// Returns a bullet in lines of at most [`MAX_COLUMNS`], except for a word that is longer.
fn wrap_bullet(bullet: &str) -> String {
    let mut text = "- ".to_owned();
    let mut columns = INDENT_COLUMNS;
    for word in bullet.split(' ') {
        let length = word.chars().count();
        if columns > INDENT_COLUMNS && columns + 1 + length > MAX_COLUMNS {
            text.push_str("\n  ");
            columns = INDENT_COLUMNS;
        } else if columns > INDENT_COLUMNS {
            text.push(' ');
            columns += 1;
        }
        text.push_str(word);
        columns += length;
    }
    text.push('\n');
    text
}

fn entries(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))? {
        paths.push(entry?.path());
    }
    paths.sort();
    Ok(paths)
}

/// Returns the two parts of the comment at the start of a file: the events, and the claim after `Proves:`.
fn header_parts(path: &Path) -> Result<(String, String)> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let comment: Vec<&str> = text.lines().map_while(|line| line.strip_prefix('#')).map(str::trim).collect();
    let comment = comment.join(" ");
    let (events, proves) = comment.split_once("Proves:").unwrap_or((comment.as_str(), ""));
    let (events, proves) = (events.trim().to_owned(), proves.trim().to_owned());
    ensure!(!events.is_empty(), "{} must begin with a comment that says what it proves", path.display());
    Ok((events, proves))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_index_of_scenarios_is_current() {
        super::write(true).unwrap();
    }
}
