//! `hactl import pve`: converts the files of Proxmox VE's ha-manager to objects.

mod datacenter;
mod groups;
mod guests;
mod imported;
mod names;
mod resources;
mod rules;
mod section;
mod values;

use crate::failure::{Exit, Failure, Outcome};
use crate::render::Format;
use crate::session::Session;
use clap::{Args, ValueHint};
use guests::Guests;
use imported::ImportResult;
use section::Problem;
use serde_json::json;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Convert the configuration of Proxmox VE's ha-manager to objects
#[derive(Args, Debug)]
#[command(
    after_help = "DIR is /etc/pve or a copy of it, or a directory with only these files: resources.cfg, groups.cfg, rules.cfg (also in ha/), \
        datacenter.cfg, and pve-ha-manager of /etc/default. Sizes are read from qemu-server/ID.conf and lxc/ID.conf, if present.\n\n\
        Objects are written to standard output, for a file or for `hactl apply -f -`. Settings that cannot be converted are listed \
        on standard error, and in a comment before the objects.\n\n\
        Exit status: 0 written; 2 invalid file, nothing is written."
)]
pub(crate) struct Pve {
    /// Directory with the configuration
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath, default_value = "/etc/pve")]
    directory: PathBuf,
    /// Use the driver "simulated" for all guests, for "hactl simulate"
    #[arg(long)]
    simulated: bool,
}

/// Subdirectories that may contain the files, in order of preference.
const HA_DIRECTORIES: [&str; 3] = ["", "ha", "pve/ha"];

impl Pve {
    pub(crate) fn run(&self, session: &Session) -> Outcome {
        let format = session.format(&[Format::Yaml, Format::Json])?;
        let imported = self.import()?;
        for note in &imported.notes {
            session.terminal().warn(note);
        }
        if format.is_some_and(|format| *format != Format::Yaml) {
            let items: Vec<_> = imported.objects.iter().map(|object| object.value.clone()).collect();
            let list = json!({"apiVersion": ha_api_types::kind::API_VERSION, "kind": "List", "items": items});
            session.print_value(format, &list)?;
        } else {
            session.terminal().print(&imported.text()?);
        }
        Ok(Exit::Done)
    }

    fn import(&self) -> Result<ImportResult, Failure> {
        if !self.directory.is_dir() {
            return Err(Failure::usage(format!("{}: directory not found", self.directory.display()))
                .help("specify /etc/pve, a copy of it, or a directory with resources.cfg"));
        }
        let read_ha_file = |name: &str| self.read_first(&HA_DIRECTORIES, name);
        let resources = read_ha_file("resources.cfg")?.ok_or_else(|| {
            Failure::usage(format!(
                "{}: no resources.cfg in the directory or in ha/",
                self.directory.display()
            ))
            .help("specify /etc/pve, a copy of it, or a directory with resources.cfg")
        })?;
        let mut imported = ImportResult::default();
        let mut guests = Guests::new(self.simulated, &self.directory);
        let datacenter_directories = ["", "..", "pve"];
        if let Some((path, text)) = self.read_first(&datacenter_directories, "datacenter.cfg")? {
            datacenter::read(&text, &path, &mut imported, &mut guests)
                .map_err(|problem| file_failure(&path, &problem))?;
        }
        let default_directories = ["", "default", "etc/default", "../default", "../../default"];
        if let Some((path, text)) = self.read_first(&default_directories, "pve-ha-manager")? {
            datacenter::defaults(&text, &path, &mut imported);
        }
        let groups = match read_ha_file("groups.cfg")? {
            None => groups::Groups::default(),
            Some((path, text)) => {
                groups::read(&text, &path, &mut imported).map_err(|problem| file_failure(&path, &problem))?
            }
        };
        let (path, text) = resources;
        let known_guests = resources::read(&text, &path, &groups, &mut guests, &mut imported)
            .map_err(|problem| file_failure(&path, &problem))?;
        if known_guests.is_empty() {
            imported.add_note(&path, "no vm and no ct found");
        }
        if let Some((path, text)) = read_ha_file("fence.cfg")?
            && let Some(line) = text.lines().position(|line| !line.is_empty() && !line.starts_with('#'))
        {
            let text = "not converted; configure fence devices for each node (docs/fencing.md)";
            imported.add_note(&format!("{path}:{}", line + 1), text);
        }
        if let Some((path, text)) = read_ha_file("rules.cfg")? {
            rules::read(&text, &path, &known_guests, &mut imported)
                .map_err(|problem| file_failure(&path, &problem))?;
        }
        imported.notes.extend(guests.notes());
        imported.check()?;
        Ok(imported)
    }

    /// Returns the path and text of the file in the first directory that contains it.
    fn read_first(&self, subdirectories: &[&str], name: &str) -> Result<Option<(String, String)>, Failure> {
        for subdirectory in subdirectories {
            let path = if subdirectory.is_empty() {
                self.directory.join(name)
            } else {
                self.directory.join(subdirectory).join(name)
            };
            if let Some(text) = read_text(&path)? {
                return Ok(Some((path.display().to_string(), text)));
            }
        }
        Ok(None)
    }
}

fn file_failure(path: &str, problem: &Problem) -> Failure {
    Failure::usage(format!("{path}:{}: {}", problem.line, problem.text))
        .help("nothing was written; correct the file, then run the command again")
}

/// Returns a file's text; `None` if the file does not exist.
fn read_text(path: &Path) -> Result<Option<String>, Failure> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => {
            return Err(Failure::usage(format!("cannot read {}: {error}", path.display())));
        }
    };
    let text = String::from_utf8(bytes).map_err(|error| {
        let valid_bytes = error.as_bytes().iter().take(error.utf8_error().valid_up_to());
        let line = 1 + valid_bytes.filter(|byte| **byte == b'\n').count();
        Failure::usage(format!("{}:{line}: invalid UTF-8", path.display()))
            .help("nothing was written; convert the file, for example with \"iconv -f LATIN1 -t UTF-8\"")
    })?;
    // Some editors write a byte order mark, which must not become part of the first word.
    Ok(Some(text.strip_prefix('\u{feff}').unwrap_or(&text).to_owned()))
}
