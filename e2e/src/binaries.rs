//! Paths of the programs that make up a cluster.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// Returns the path of a program of this workspace: next to the running program, or in `HACTL_BINARIES`.
///
/// # Errors
/// Fails if the program has not been built.
pub fn workspace_program(name: &str) -> Result<PathBuf> {
    let mut directories = Vec::new();
    if let Some(directory) = env::var_os("HACTL_BINARIES") {
        directories.push(PathBuf::from(directory));
    }
    let current = env::current_exe().context("cannot determine the path of this program")?;
    // Tests run from the directory `deps`, one level below the programs.
    directories.extend(current.ancestors().skip(1).take(2).map(Path::to_owned));
    for directory in &directories {
        let path = directory.join(name);
        if path.is_file() {
            return Ok(path);
        }
    }
    bail!("{name} not found in {directories:?}: run `cargo build --workspace --bins`")
}

/// Returns the path of etcd: `$ETCD`, the copy that `dev/setup` downloaded, or the one on PATH.
///
/// # Errors
/// Fails if no etcd is found.
pub fn etcd() -> Result<PathBuf> {
    find_tool("ETCD", "etcd/usr/bin/etcd", "etcd")
}

/// Returns the path of etcdctl: `$ETCDCTL`, the copy that `dev/setup` downloaded, or the one on PATH.
///
/// # Errors
/// Fails if no etcdctl is found.
pub fn etcdctl() -> Result<PathBuf> {
    find_tool("ETCDCTL", "etcd/usr/bin/etcdctl", "etcdctl")
}

/// Returns the path of kubectl: `$KUBECTL`, the copy that `dev/setup --test` downloaded, or the one on PATH.
///
/// # Errors
/// Fails if no kubectl is found.
pub fn kubectl() -> Result<PathBuf> {
    find_tool("KUBECTL", "kubectl/usr/bin/kubectl", "kubectl")
}

/// Returns the path of the Python for `dev/lib/sinks.py`: `$SINKS_PYTHON`, or the environment that `dev/setup --test` created.
///
/// # Errors
/// Fails if neither exists.
pub fn notification_sinks_python() -> Result<PathBuf> {
    find_tool("SINKS_PYTHON", "tools/sinks-python/bin/python", "a Python with aiosmtpd")
}

/// Returns the directory with the kernel and file system of the libvirt suite's guest: `$HACTL_LIBVIRT_GUEST`, which
/// `dev/libvirt` sets.
///
/// # Errors
/// Fails if the guest has not been built.
pub fn libvirt_guest() -> Result<PathBuf> {
    let directory = env::var_os("HACTL_LIBVIRT_GUEST").map(PathBuf::from);
    directory
        .filter(|directory| directory.join("done").is_file())
        .context("guest image of the libvirt suite not found: run the suite with ./dev/libvirt")
}

/// Returns the directory with the metal suite's image: `$HACTL_METAL_IMAGE`, which `dev/metal` sets.
///
/// # Errors
/// Fails if the image has not been built.
pub fn metal_image() -> Result<PathBuf> {
    let directory = env::var_os("HACTL_METAL_IMAGE").map(PathBuf::from);
    directory.filter(|directory| directory.join("done").is_file()).context(
        "machine image of the metal suite not found: run ./dev/metal or ./dev/test metal, which build it",
    )
}

/// Returns the root of the working tree from which this crate was built.
pub fn repository() -> PathBuf {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"));
    directory.parent().unwrap_or(directory).to_owned()
}

fn find_tool(variable: &str, cached: &str, name: &str) -> Result<PathBuf> {
    if let Some(path) = env::var_os(variable) {
        let path = PathBuf::from(path);
        if path.is_file() {
            return Ok(path);
        }
        bail!("{variable}={} is not a file", path.display());
    }
    let cache = env::var_os("HACTL_CACHE").map_or_else(|| repository().join(".cache"), PathBuf::from);
    let path = cache.join(cached);
    if path.is_file() {
        return Ok(path);
    }
    let tool_path = env::var_os("PATH").and_then(|directories| {
        env::split_paths(&directories).map(|directory| directory.join(name)).find(|path| path.is_file())
    });
    tool_path
        .with_context(|| format!("{name} not found: run ./dev/setup --test, or set {variable} to its path"))
}
