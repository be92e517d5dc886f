//! Small disks that tests can fill: tmpfs file systems, mounted below a run's directory and found by that path.

use crate::command::{run, tool};
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// Mounts an empty disk. Like a real disk, it outlives the machine that uses it; it is removed with the run.
///
/// # Errors
/// Fails if the kernel refuses, for example without root.
pub(super) fn mount(directory: &Path, kilobytes: u32) -> Result<()> {
    fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
    let size = format!("size={kilobytes}k,mode=755");
    run(tool("mount"), &["-t", "tmpfs", "-o", &size, "hactl-disk", &directory.to_string_lossy()]).map(|_| ())
}

/// Unmounts every disk below a run's directory, if any.
///
/// # Errors
/// Fails if a disk cannot be unmounted.
pub(super) fn unmount_all(directory: &Path) -> Result<()> {
    let mounts = fs::read_to_string("/proc/self/mounts").context("/proc/self/mounts")?;
    for path in mounted_below(&mounts, directory) {
        run(tool("umount"), &[path.to_string_lossy().as_ref()])?;
    }
    Ok(())
}

/// Returns the mount points of this suite's disks below `directory`. `mounts` is the kernel's list: device, mount point, type and so
/// on, separated by spaces. A space in a name is written `\040`.
fn mounted_below(mounts: &str, directory: &Path) -> Vec<PathBuf> {
    let mount_points = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ');
        let (device, mount_point) = (fields.next()?, fields.next()?);
        (device == "hactl-disk").then(|| PathBuf::from(mount_point.replace("\\040", " ")))
    });
    mount_points.filter(|mount_point| mount_point.starts_with(directory)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_disks_of_the_run_are_found() {
        let mounts = "hactl-disk /t/run\\0401/state tmpfs rw 0 0\ntmpfs /t/run\\0401/other tmpfs rw 0 0\n\
            hactl-disk /t/run2/state tmpfs rw 0 0\n";
        assert_eq!(mounted_below(mounts, Path::new("/t/run 1")), [PathBuf::from("/t/run 1/state")]);
    }
}
