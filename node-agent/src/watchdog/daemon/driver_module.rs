//! The driver that is loaded when there is no device: the configured one, otherwise softdog, which every kernel has.

use super::super::device::DeviceLocation;
use ha_api_types::record::SOFTDOG_IDENTITY;
use std::path::PathBuf;
use tracing::{info, warn};

/// The driver that needs no hardware.
const FALLBACK_MODULE: &str = "softdog";

/// The machine's modules and devices; tests have their own implementation.
pub(super) trait Modules {
    /// Returns `true` if the device exists: its path, or a listed device with that identity.
    fn exists(&self, location: &DeviceLocation) -> bool;
    /// Loads a module; the error is the reason for a failure.
    fn load(&mut self, module: &str) -> Result<(), String>;
}

/// The result of providing a driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ModuleOutcome {
    /// The device exists, or no module is configured.
    NotNeeded,
    /// The configured driver was loaded, and its device exists.
    Loaded(String),
    /// The configured driver does not provide the device; softdog, the weaker kind, does.
    FellBack {
        /// The configured driver.
        module: String,
        /// The reason why the configured driver cannot be used.
        cause: String,
    },
    /// No driver could be loaded: arming is refused with this reason until a device exists.
    Failed(String),
}

impl ModuleOutcome {
    pub(super) fn log(&self) {
        match self {
            ModuleOutcome::NotNeeded => {}
            ModuleOutcome::Loaded(module) => info!(module, "loaded the watchdog driver"),
            ModuleOutcome::FellBack { module, cause } => warn!(
                module,
                why = cause,
                "cannot use the watchdog driver, using softdog instead, which cannot reset a machine whose kernel has \
                 stopped: set WATCHDOG_MODULE to the driver of this machine's hardware in /etc/hactl/watchdog.env"
            ),
            ModuleOutcome::Failed(cause) => {
                warn!(
                    why = cause,
                    "cannot load a watchdog driver: check WATCHDOG_MODULE in /etc/hactl/watchdog.env"
                );
            }
        }
    }
}

/// Ensures that there is a device, and returns the action taken. If softdog replaces a driver whose device was
/// configured by name or by another path, `location` is changed to softdog's device.
///
/// Runs before the daemon's loop, because a module may take seconds to load.
pub(super) fn load_module_if_needed(
    location: &mut DeviceLocation,
    module: &str,
    modules: &mut impl Modules,
) -> ModuleOutcome {
    match location {
        DeviceLocation::Simulated(_) => return ModuleOutcome::NotNeeded,
        DeviceLocation::Kernel(_) if module.is_empty() || modules.exists(location) => {
            return ModuleOutcome::NotNeeded;
        }
        DeviceLocation::Kernel(_) => {}
    }
    let cause = match modules.load(module) {
        Ok(()) if modules.exists(location) => return ModuleOutcome::Loaded(module.to_owned()),
        Ok(()) => "module was loaded, but no such device appeared".to_owned(),
        Err(cause) => cause,
    };
    if module == FALLBACK_MODULE {
        return ModuleOutcome::Failed(format!("{module}: {cause}"));
    }
    if let Err(fallback_cause) = modules.load(FALLBACK_MODULE) {
        return ModuleOutcome::Failed(format!("{module}: {cause}; {FALLBACK_MODULE}: {fallback_cause}"));
    }
    if !modules.exists(location) {
        *location = DeviceLocation::Kernel(PathBuf::from(SOFTDOG_IDENTITY));
    }
    ModuleOutcome::FellBack { module: module.to_owned(), cause }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// A machine with drivers: (module, device path, identity); only those in `loaded` exist.
    struct Machine {
        drivers: Vec<(&'static str, &'static str, &'static str)>,
        loaded: Vec<String>,
    }

    impl Modules for Machine {
        fn exists(&self, location: &DeviceLocation) -> bool {
            let DeviceLocation::Kernel(requested) = location else { return false };
            self.drivers.iter().any(|(module, path, identity)| {
                let loaded = self.loaded.iter().any(|loaded| loaded == module);
                loaded && (requested == Path::new(path) || requested == Path::new(identity))
            })
        }

        fn load(&mut self, module: &str) -> Result<(), String> {
            if !self.drivers.iter().any(|(driver_module, ..)| *driver_module == module) {
                return Err(format!("module {module} not found"));
            }
            self.loaded.push(module.to_owned());
            Ok(())
        }
    }

    const SOFTDOG: (&str, &str, &str) = ("softdog", "/dev/watchdog", "Software Watchdog");
    const HARDWARE: (&str, &str, &str) = ("i6300esb", "/dev/watchdog", "i6300ESB timer");
    const NO_HARDWARE: (&str, &str, &str) = ("i6300esb", "/none", "none");

    fn check(
        drivers: &[(&'static str, &'static str, &'static str)],
        location_before: &str,
        module: &str,
        expected: &ModuleOutcome,
        location_after: &str,
    ) {
        let mut machine = Machine { drivers: drivers.to_vec(), loaded: Vec::new() };
        let mut location = DeviceLocation::Kernel(PathBuf::from(location_before));
        assert_eq!(
            load_module_if_needed(&mut location, module, &mut machine),
            *expected,
            "{location_before} {module}"
        );
        assert_eq!(
            location,
            DeviceLocation::Kernel(PathBuf::from(location_after)),
            "{location_before} {module}"
        );
    }

    #[test]
    fn softdog_replaces_a_driver_that_fails() {
        let fell_back =
            |cause: &str| ModuleOutcome::FellBack { module: "i6300esb".to_owned(), cause: cause.to_owned() };
        let dog = "/dev/watchdog";
        check(&[SOFTDOG, HARDWARE], dog, "i6300esb", &ModuleOutcome::Loaded("i6300esb".to_owned()), dog);
        check(&[SOFTDOG], dog, "softdog", &ModuleOutcome::Loaded("softdog".to_owned()), dog);
        check(&[SOFTDOG], dog, "i6300esb", &fell_back("module i6300esb not found"), dog);
        // The module loads even on a machine without its hardware.
        let no_device = "module was loaded, but no such device appeared";
        check(&[SOFTDOG, NO_HARDWARE], dog, "i6300esb", &fell_back(no_device), dog);
        // The device was configured by name or by another path: the daemon must use softdog's device from now on.
        check(
            &[SOFTDOG],
            "i6300ESB timer",
            "i6300esb",
            &fell_back("module i6300esb not found"),
            "Software Watchdog",
        );
        check(
            &[SOFTDOG],
            "/dev/watchdog3",
            "i6300esb",
            &fell_back("module i6300esb not found"),
            "Software Watchdog",
        );
        check(
            &[],
            dog,
            "softdog",
            &ModuleOutcome::Failed("softdog: module softdog not found".to_owned()),
            dog,
        );
        let both_missing = "i6300esb: module i6300esb not found; softdog: module softdog not found";
        check(&[], dog, "i6300esb", &ModuleOutcome::Failed(both_missing.to_owned()), dog);
        check(&[], dog, "", &ModuleOutcome::NotNeeded, dog);
    }

    #[test]
    fn existing_watchdog_device_loads_no_module() {
        let mut machine = Machine { drivers: vec![HARDWARE, SOFTDOG], loaded: vec!["i6300esb".to_owned()] };
        let mut location = DeviceLocation::Kernel(PathBuf::from("/dev/watchdog"));
        assert_eq!(load_module_if_needed(&mut location, "softdog", &mut machine), ModuleOutcome::NotNeeded);
        // Another device exists, but not the configured one.
        let mut location = DeviceLocation::Kernel(PathBuf::from("Software Watchdog"));
        assert_eq!(
            load_module_if_needed(&mut location, "softdog", &mut machine),
            ModuleOutcome::Loaded("softdog".to_owned())
        );
        assert_eq!(machine.loaded, ["i6300esb", "softdog"]);
    }
}
