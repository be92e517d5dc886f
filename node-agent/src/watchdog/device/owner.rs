//! Finds the process that holds a device.

use super::super::protocol::Name;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Returns the pid and the name of the process that has the device with this number open. Returns 0 and an empty name
/// if no such process is found.
pub(super) fn owner_of(device_number: u64) -> (u32, Name) {
    let alias = alias_of(device_number);
    find(|metadata| metadata.rdev() == device_number || Some(metadata.rdev()) == alias)
}

/// Returns the other number of the same device: `/dev/watchdog` and `/dev/watchdog0` are one device with two numbers.
fn alias_of(device_number: u64) -> Option<u64> {
    let number_of = |path: &str| std::fs::metadata(path).ok().map(|metadata| metadata.rdev());
    match (number_of("/dev/watchdog"), number_of("/dev/watchdog0")) {
        (Some(old), Some(new)) if old == device_number => Some(new),
        (Some(old), Some(new)) if new == device_number => Some(old),
        (Some(_) | None, Some(_) | None) => None,
    }
}

fn find(is_device: impl Fn(&std::fs::Metadata) -> bool) -> (u32, Name) {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    for process in processes {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let descriptors = std::fs::read_dir(process.path().join("fd")).into_iter().flatten().flatten();
        // The link is followed, because a descriptor of a deleted or different device node still has the device number.
        if descriptors.flat_map(|entry| std::fs::metadata(entry.path())).any(|metadata| is_device(&metadata))
        {
            return (pid, name_of(&process.path()));
        }
    }
    (0, Name::default())
}

fn name_of(process: &Path) -> Name {
    let text = std::fs::read(process.join("comm")).unwrap_or_default();
    Name::new(text.trim_ascii_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_owner_is_found_by_open_descriptor() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let file_metadata = file.as_file().metadata().unwrap();
        let (pid, name) =
            find(|metadata| metadata.ino() == file_metadata.ino() && metadata.dev() == file_metadata.dev());
        assert_eq!(pid, std::process::id());
        assert!(!name.as_str().is_empty());
        let (pid, name) = find(|_| false);
        assert_eq!((pid, name.as_str()), (0, ""));
    }
}
