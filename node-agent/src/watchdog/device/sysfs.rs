//! The kernel's information about its watchdog devices, from `/sys/class/watchdog`.

use std::path::{Path, PathBuf};

/// The directory in which the kernel lists its watchdogs.
const WATCHDOG_CLASS_DIRECTORY: &str = "/sys/class/watchdog";

/// The major and minor number of the legacy device `/dev/watchdog`, which is the same device as `watchdog0`.
const MISC_WATCHDOG: (u64, u64) = (10, 130);

/// The known facts about a device that is not opened. Only drivers on the kernel's watchdog core are listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SysfsFacts {
    /// `true` if the device cannot be stopped once started; `None` if the kernel does not report this property.
    pub(super) nowayout: Option<bool>,
    /// The smallest timeout, seconds; `None` if the driver reports none.
    pub(super) smallest_timeout_seconds: Option<u32>,
    /// The largest timeout, seconds; 0 means no limit, `None` that the driver reports none.
    pub(super) largest_timeout_seconds: Option<u32>,
}

/// Returns the path of the device. An absolute path is returned unchanged; any other text is matched against the
/// identities.
pub(super) fn resolve(location: &Path) -> PathBuf {
    if location.is_absolute() {
        return location.to_owned();
    }
    let expected_identity = location.to_string_lossy();
    entries(Path::new(WATCHDOG_CLASS_DIRECTORY))
        .into_iter()
        .find(|entry| read(entry, "identity").is_some_and(|identity| identity == expected_identity))
        .and_then(|entry| entry.file_name().map(|name| Path::new("/dev").join(name)))
        .unwrap_or_else(|| location.to_owned())
}

/// Returns the known facts about the device with this number.
pub(super) fn sysfs_facts(device_number: u64) -> Option<SysfsFacts> {
    sysfs_facts_under(Path::new(WATCHDOG_CLASS_DIRECTORY), device_number)
}

fn sysfs_facts_under(class: &Path, device_number: u64) -> Option<SysfsFacts> {
    let number = (nix::sys::stat::major(device_number), nix::sys::stat::minor(device_number));
    let entry = entries(class).into_iter().find(|entry| {
        if number == MISC_WATCHDOG {
            entry.file_name().is_some_and(|name| name == "watchdog0")
        } else {
            read(entry, "dev").is_some_and(|text| text == format!("{}:{}", number.0, number.1))
        }
    })?;
    Some(SysfsFacts {
        nowayout: read(&entry, "nowayout").map(|text| text != "0"),
        smallest_timeout_seconds: read(&entry, "min_timeout").and_then(|text| text.parse().ok()),
        largest_timeout_seconds: read(&entry, "max_timeout").and_then(|text| text.parse().ok()),
    })
}

fn entries(class: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<PathBuf> =
        std::fs::read_dir(class).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    entries.sort();
    entries
}

fn read(entry: &Path, attribute: &str) -> Option<String> {
    std::fs::read_to_string(entry.join(attribute)).ok().map(|text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watchdog_sysfs_directory_is_found_by_number() {
        let class = tempfile::tempdir().unwrap();
        for (name, files) in [
            (
                "watchdog0",
                [("dev", "247:0\n"), ("nowayout", "0\n"), ("min_timeout", "1\n"), ("max_timeout", "65535\n")],
            ),
            (
                "watchdog1",
                [("dev", "247:1\n"), ("nowayout", "1\n"), ("min_timeout", "2\n"), ("max_timeout", "0\n")],
            ),
        ] {
            std::fs::create_dir(class.path().join(name)).unwrap();
            for (file, text) in files {
                std::fs::write(class.path().join(name).join(file), text).unwrap();
            }
        }
        let check = |major, minor, nowayout: Option<bool>, smallest| {
            let facts = sysfs_facts_under(class.path(), nix::sys::stat::makedev(major, minor));
            assert_eq!(
                facts.map(|sysfs_facts| (sysfs_facts.nowayout, sysfs_facts.smallest_timeout_seconds)),
                nowayout.map(|nowayout| (Some(nowayout), Some(smallest)))
            );
        };
        check(247, 0, Some(false), 1);
        check(247, 1, Some(true), 2);
        check(10, 130, Some(false), 1);
        check(5, 1, None, 0);
        assert_eq!(sysfs_facts_under(Path::new("/nowhere"), 0), None);
    }
}
