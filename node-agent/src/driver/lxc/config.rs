//! The configuration file of a container: the settings with which it cannot be a service of hactl.

use super::container::Container;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Maximum depth of included files; LXC itself has no limit.
const MAX_DEPTH: u32 = 10;
/// Directories with the units that systemd starts at boot.
const UNIT_DIRECTORIES: [&str; 2] = ["/etc/systemd/system", "/usr/lib/systemd/system"];

/// Settings of a container by key. If a key is repeated, its last non-empty value applies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Settings(BTreeMap<String, String>);

impl Settings {
    /// Reads a configuration file with all files that it includes.
    ///
    /// # Errors
    /// Fails if the file cannot be read. Included files that cannot be read are ignored: LXC reports them at the start
    /// of the container.
    pub(super) fn read(file: &Path) -> io::Result<Settings> {
        let mut settings = Settings::default();
        settings.add(&fs::read_to_string(file)?, 0);
        Ok(settings)
    }

    fn add(&mut self, text: &str, depth: u32) {
        for line in text.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
            let Some((key, value)) = line.split_once('=') else { continue };
            let (key, value) = (key.trim(), value.trim());
            let value = value
                .strip_prefix(['"', '\''])
                .and_then(|rest| rest.strip_suffix(['"', '\'']))
                .unwrap_or(value)
                .trim();
            if key != "lxc.include" {
                self.0.insert(key.to_owned(), value.to_owned());
            } else if depth < MAX_DEPTH {
                for file in included_files(Path::new(value)) {
                    self.add(&fs::read_to_string(file).unwrap_or_default(), depth + 1);
                }
            }
        }
    }

    /// Returns the value of a key; `None` if it is missing or empty.
    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str).filter(|value| !value.is_empty())
    }

    fn is_on(&self, key: &str) -> bool {
        self.get(key).is_some_and(|value| value.parse::<u64>() != Ok(0))
    }

    /// Returns the control group that the settings give to the container, instead of LXC's default.
    pub(super) fn group(&self) -> Option<String> {
        let group = self.get("lxc.cgroup.dir.container").or_else(|| self.get("lxc.cgroup.dir"))?;
        Some(format!("/{}", group.trim_start_matches('/')))
    }

    /// Returns the file to which the settings write the console.
    pub(super) fn console_log(&self) -> Option<PathBuf> {
        self.get("lxc.console.logfile").filter(|file| *file != "none").map(PathBuf::from)
    }

    /// Returns the reason why a container with these settings cannot be a service of hactl.
    pub(super) fn unsuitable_reason(&self, file: &Path) -> Option<String> {
        let file = file.display();
        if self.is_on("lxc.start.auto") {
            return Some(format!("started at boot (lxc.start.auto = 1): set lxc.start.auto = 0 in {file}"));
        }
        if self.is_on("lxc.ephemeral") {
            return Some(format!(
                "destroyed when it stops (lxc.ephemeral = 1): remove this setting from {file}"
            ));
        }
        let lists_pid_namespace =
            |namespaces: &str| namespaces.split_whitespace().any(|namespace| namespace == "pid");
        for key in ["lxc.namespace.share.pid", "lxc.namespace.keep"] {
            let sharing_value =
                self.get(key).filter(|value| key.ends_with("pid") || lists_pid_namespace(value));
            if let Some(value) = sharing_value {
                return Some(format!(
                    "without its own pid namespace ({key} = {value}), so remaining processes cannot be detected: \
                     remove this setting from {file}"
                ));
            }
        }
        if let Some(signal) = self.get("lxc.monitor.signal.pdeath")
            && !matches!(signal, "9" | "KILL" | "SIGKILL")
        {
            return Some(format!(
                "not killed with its monitor (lxc.monitor.signal.pdeath = {signal}): remove this setting from {file}"
            ));
        }
        self.is_on("lxc.cgroup.relative").then(|| {
            format!(
                "in the control group of the agent (lxc.cgroup.relative = 1): remove this setting from {file}"
            )
        })
    }
}

/// Returns the files that a value of `lxc.include` names: one file, or a directory with files `*.conf`.
fn included_files(path: &Path) -> Vec<PathBuf> {
    if !path.is_dir() {
        return vec![path.to_owned()];
    }
    let entries = fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> =
        entries.filter(|file| file.extension().is_some_and(|extension| extension == "conf")).collect();
    files.sort();
    files
}

/// Returns the reason why a container cannot be a service of hactl; `None` if it can.
///
/// # Errors
/// Fails if the configuration of the container cannot be read.
pub(super) fn unsuitable_reason(container: &Container) -> io::Result<Option<String>> {
    let own_config_file = container.directory().join("config");
    let mut files = vec![container.config_file()];
    // LXC starts a container at boot by the file in the container's directory, even if hactl uses another file.
    if container.config.is_some() && own_config_file.exists() {
        files.push(own_config_file);
    }
    for file in files {
        if let Some(reason) = Settings::read(&file)?.unsuitable_reason(&file) {
            return Ok(Some(reason));
        }
    }
    Ok(UNIT_DIRECTORIES.iter().find_map(|directory| enabled_unit(Path::new(directory), &container.name)))
}

/// Returns the reason if systemd starts the container at boot, as a unit `lxc@NAME.service`.
fn enabled_unit(directory: &Path, container: &str) -> Option<String> {
    let unit = format!("lxc@{container}.service");
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut starters = entries.filter(|entry| {
        entry.path().extension().is_some_and(|extension| extension == "wants" || extension == "requires")
    });
    // The link may lead to a file that does not exist.
    let is_enabled = starters.any(|entry| entry.path().join(&unit).symlink_metadata().is_ok());
    is_enabled.then(|| format!("started at boot by {unit}: run systemctl disable {unit}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn settings(text: &str) -> Settings {
        let mut settings = Settings::default();
        settings.add(text, 0);
        settings
    }

    #[test]
    fn unsuitable_container_settings_are_refused() {
        let check = |text: &str, expected: Option<&str>| {
            let reason = settings(text).unsuitable_reason(Path::new("/c/config"));
            let matches = expected
                .map_or(reason.is_none(), |part| reason.as_ref().is_some_and(|reason| reason.contains(part)));
            assert!(matches, "{text}: {reason:?}");
        };
        check("", None);
        check("lxc.start.auto = 1", Some("set lxc.start.auto = 0 in /c/config"));
        check("lxc.start.auto=\"1\"", Some("started at boot"));
        check("# lxc.start.auto = 1\nlxc.start.auto = 0\nlxc.start.delay = 5", None);
        check("lxc.start.auto = 1\nlxc.start.auto = 0", None);
        check("lxc.start.auto = 1\nlxc.start.auto =", None);
        check("lxc.ephemeral = 1", Some("destroyed when it stops"));
        check("lxc.namespace.keep = net ipc", None);
        check("lxc.namespace.keep = net pid", Some("lxc.namespace.keep"));
        check("lxc.namespace.share.pid = other", Some("lxc.namespace.share.pid = other"));
        check("lxc.monitor.signal.pdeath = SIGKILL", None);
        check("lxc.monitor.signal.pdeath = 15", Some("lxc.monitor.signal.pdeath"));
        check("lxc.cgroup.relative = 1", Some("control group of the agent"));
    }

    #[test]
    fn container_settings_are_parsed() {
        let container_settings = settings("lxc.cgroup.dir = a/b\nlxc.console.logfile = /var/log/c\n");
        assert_eq!(container_settings.group().as_deref(), Some("/a/b"));
        assert_eq!(container_settings.console_log(), Some(PathBuf::from("/var/log/c")));
        let container_settings = settings("lxc.cgroup.dir.container = lxc/101\nlxc.console.logfile = none\n");
        assert_eq!(
            (container_settings.group().as_deref(), container_settings.console_log()),
            (Some("/lxc/101"), None)
        );
        assert_eq!(settings("").group(), None);
    }

    #[test]
    fn included_configuration_files_are_applied() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::create_dir(path("all")).unwrap();
        fs::write(path("all/a.conf"), "lxc.start.auto = 1\n").unwrap();
        fs::write(path("all/ignored"), "lxc.ephemeral = 1\n").unwrap();
        let file = path("config");
        fs::write(&file, format!("lxc.include = {}\nlxc.include = /none\n", path("all").display())).unwrap();
        let container_settings = Settings::read(&file).unwrap();
        assert!(container_settings.is_on("lxc.start.auto") && !container_settings.is_on("lxc.ephemeral"));
        // A file that includes itself ends.
        fs::write(&file, format!("lxc.include = {}\n", file.display())).unwrap();
        assert_eq!(Settings::read(&file).unwrap(), Settings::default());
        assert!(Settings::read(&path("missing")).is_err());
    }

    #[test]
    fn enabled_systemd_unit_of_container_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let wants = directory.path().join("multi-user.target.wants");
        fs::create_dir(&wants).unwrap();
        assert_eq!(enabled_unit(directory.path(), "web"), None);
        symlink("/lib/systemd/system/lxc@.service", wants.join("lxc@web.service")).unwrap();
        let unit = enabled_unit(directory.path(), "web").unwrap();
        assert!(unit.contains("systemctl disable lxc@web.service"), "{unit}");
        assert_eq!(enabled_unit(directory.path(), "other"), None);
    }
}
