//! Where the programs are that a cluster is made of.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// A program built from this workspace: beside the running one, or in `HACTL_BINARIES`.
///
/// # Errors
/// When it has not been built.
pub fn own(name: &str) -> Result<PathBuf> {
    let mut folders = Vec::new();
    if let Some(folder) = env::var_os("HACTL_BINARIES") {
        folders.push(PathBuf::from(folder));
    }
    let current = env::current_exe().context("this program's own path is unknown")?;
    // Tests run from the folder `deps` below the one that holds the programs.
    folders.extend(current.ancestors().skip(1).take(2).map(Path::to_owned));
    for folder in &folders {
        let path = folder.join(name);
        if path.is_file() {
            return Ok(path);
        }
    }
    bail!("{name} has not been built: looked in {folders:?}; run `cargo build --workspace --bins`")
}

/// etcd: `$ETCD`, what `dev/setup` fetched, or the one on PATH.
///
/// # Errors
/// When there is none.
pub fn etcd() -> Result<PathBuf> {
    fetched("ETCD", "etcd/usr/bin/etcd", "etcd")
}

/// etcdctl: `$ETCDCTL`, what `dev/setup` fetched, or the one on PATH.
///
/// # Errors
/// When there is none.
pub fn etcdctl() -> Result<PathBuf> {
    fetched("ETCDCTL", "etcd/usr/bin/etcdctl", "etcdctl")
}

/// kubectl: `$KUBECTL`, what `dev/setup --test` fetched, or the one on PATH.
///
/// # Errors
/// When there is none.
pub fn kubectl() -> Result<PathBuf> {
    fetched("KUBECTL", "kubectl/usr/bin/kubectl", "kubectl")
}

/// The Python of `dev/lib/sinks.py`: `$SINKS_PYTHON`, or what `dev/setup --test` made.
///
/// # Errors
/// When there is none.
pub fn sinks_python() -> Result<PathBuf> {
    fetched("SINKS_PYTHON", "tools/sinks-python/bin/python", "a Python with aiosmtpd")
}

/// The folder with the kernel and the file system of the libvirt suite's guest: `$HACTL_LIBVIRT_GUEST`, as `dev/libvirt` sets it.
///
/// # Errors
/// When it has not been made.
pub fn libvirt_guest() -> Result<PathBuf> {
    let folder = env::var_os("HACTL_LIBVIRT_GUEST").map(PathBuf::from);
    folder
        .filter(|folder| folder.join("done").is_file())
        .context("the libvirt suite's guest is missing; run it by ./dev/libvirt")
}

/// The folder with the metal suite's image: `$HACTL_METAL_IMAGE`, as `dev/metal` sets it.
///
/// # Errors
/// When it has not been made.
pub fn metal_image() -> Result<PathBuf> {
    let folder = env::var_os("HACTL_METAL_IMAGE").map(PathBuf::from);
    folder
        .filter(|folder| folder.join("done").is_file())
        .context("the machines' image has not been made; ./dev/metal and ./dev/test metal make it")
}

/// The root of the working tree that this was built from.
pub fn repository() -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    folder.parent().unwrap_or(folder).to_owned()
}

fn fetched(variable: &str, cached: &str, name: &str) -> Result<PathBuf> {
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
    let found = env::var_os("PATH").and_then(|folders| {
        env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| path.is_file())
    });
    found.with_context(|| {
        format!("{name} was not found; run ./dev/setup --test, or set {variable} to its path")
    })
}
