//! A unit's state as described by the service manager: the properties that the driver uses, read once.

use std::collections::BTreeMap;
use zbus::zvariant::{OwnedValue, Str, Value};

/// Properties by name, as in D-Bus.
pub(super) type Properties = BTreeMap<String, OwnedValue>;

/// Result of loading a unit's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LoadState {
    Loaded,
    /// The unit file does not exist.
    NotFound,
    Masked,
    /// The unit cannot be used: the load state of systemd, and the reason.
    Broken(String, String),
}

/// State that units of all types have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ActiveState {
    /// The unit is active, possibly while it reloads.
    Active,
    Inactive,
    Failed,
    Activating,
    Deactivating,
    /// A state that this version of the agent does not support.
    Unknown,
}

/// Outcome of a main process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MainEnd {
    /// No main process has ended.
    None,
    /// The process exited with this status.
    Exited(i32),
    /// The process was killed by this signal.
    Killed(i32),
    /// The process was killed by this signal, with a core dump.
    Dumped(i32),
}

/// State that only units of type service have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServiceState {
    /// `Type=`.
    pub(super) kind: String,
    pub(super) remain_after_exit: bool,
    /// Outcome of the last main process.
    pub(super) main_end: MainEnd,
    /// Time of that end, in microseconds of the monotonic clock; 0 means never.
    pub(super) main_ended_us: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UnitState {
    /// Name of the unit; differs from the requested name if that is an alias.
    pub(super) id: String,
    pub(super) load: LoadState,
    pub(super) active: ActiveState,
    /// `ActiveState/SubState`, for messages.
    pub(super) description: String,
    /// `UnitFileState`: whether and how the unit is enabled.
    pub(super) file_state: String,
    /// Path of the unit file; empty if there is none.
    pub(super) fragment: String,
    pub(super) is_transient: bool,
    /// Id of the job in progress; 0 means none.
    pub(super) job: u32,
    /// `Result`: systemd's word for the way in which the unit last ended.
    pub(super) result: String,
    /// `true` if the unit's conditions were met at the last start.
    pub(super) are_conditions_met: bool,
    /// Time at which the unit stopped being active, in the same clock as [`ServiceState::main_ended_us`].
    pub(super) active_until_us: u64,
    /// Control group, relative to the root of the hierarchy; empty if the unit has none.
    pub(super) group: String,
    /// Units with a dependency `Wants`, `Requires` or `Upholds` on this unit.
    pub(super) wanted_by: Vec<String>,
    /// Units that start this unit on demand.
    pub(super) triggered_by: Vec<String>,
    /// Units before which this unit is ordered.
    pub(super) before: Vec<String>,
    /// Units after which this unit is ordered.
    pub(super) after: Vec<String>,
    /// State of a service; `None` for other types.
    pub(super) service: Option<ServiceState>,
}

impl UnitState {
    /// Reads the properties that all units have, and those of the unit's own type.
    pub(super) fn of(unit: &Properties, interface_properties: &Properties) -> UnitState {
        let id = text(unit, "Id");
        let (active, sub) = (text(unit, "ActiveState"), text(unit, "SubState"));
        let is_service = id.ends_with(".service");
        let service = is_service.then(|| ServiceState {
            kind: text(interface_properties, "Type"),
            remain_after_exit: flag(interface_properties, "RemainAfterExit"),
            main_end: match (
                signed(interface_properties, "ExecMainCode"),
                signed(interface_properties, "ExecMainStatus"),
            ) {
                // Numbers of waitid(2).
                (1, status) => MainEnd::Exited(status),
                (2, signal) => MainEnd::Killed(signal),
                (3, signal) => MainEnd::Dumped(signal),
                _ => MainEnd::None,
            },
            main_ended_us: number(interface_properties, "ExecMainExitTimestampMonotonic"),
        });
        let mut wanted_by = Vec::new();
        for kind in ["WantedBy", "RequiredBy", "UpheldBy"] {
            wanted_by.extend(string_list(unit, kind));
        }
        UnitState {
            load: load_state(unit),
            active: match active.as_str() {
                "active" | "reloading" | "refreshing" => ActiveState::Active,
                "inactive" => ActiveState::Inactive,
                "failed" => ActiveState::Failed,
                "activating" => ActiveState::Activating,
                "deactivating" | "maintenance" => ActiveState::Deactivating,
                _ => ActiveState::Unknown,
            },
            description: format!("{active}/{sub}"),
            file_state: text(unit, "UnitFileState"),
            fragment: text(unit, "FragmentPath"),
            is_transient: flag(unit, "Transient"),
            job: job(unit),
            result: text(interface_properties, "Result"),
            are_conditions_met: flag(unit, "ConditionResult"),
            active_until_us: number(unit, "ActiveExitTimestampMonotonic"),
            group: text(interface_properties, "ControlGroup"),
            wanted_by,
            triggered_by: string_list(unit, "TriggeredBy"),
            before: string_list(unit, "Before"),
            after: string_list(unit, "After"),
            service,
            id,
        }
    }

    /// Returns `true` if the unit is not meant to run; some of its processes may still remain.
    pub(super) fn has_ended(&self) -> bool {
        matches!(self.active, ActiveState::Inactive | ActiveState::Failed)
    }

    /// Returns `true` for a service that runs once and then is inactive again.
    pub(super) fn ends_after_start(&self) -> bool {
        self.service.as_ref().is_some_and(|service| service.kind == "oneshot" && !service.remain_after_exit)
    }
}

fn load_state(unit: &Properties) -> LoadState {
    match text(unit, "LoadState").as_str() {
        "loaded" => LoadState::Loaded,
        "not-found" => LoadState::NotFound,
        "masked" => LoadState::Masked,
        other => {
            let cause = match unit.get("LoadError").map(|value| &**value) {
                Some(Value::Structure(error)) => error.fields().get(1).map(word).unwrap_or_default(),
                Some(_) | None => String::new(),
            };
            LoadState::Broken(other.to_owned(), cause)
        }
    }
}

fn job(unit: &Properties) -> u32 {
    match unit.get("Job").map(|value| &**value) {
        Some(Value::Structure(job)) => {
            job.fields().first().and_then(|id| u32::try_from(id).ok()).unwrap_or_default()
        }
        Some(_) | None => 0,
    }
}

fn text(properties: &Properties, name: &str) -> String {
    properties.get(name).map(|value| word(value)).unwrap_or_default()
}

fn word(value: &Value<'_>) -> String {
    Str::try_from(value).map(|text| text.as_str().to_owned()).unwrap_or_default()
}

fn string_list(properties: &Properties, name: &str) -> Vec<String> {
    match properties.get(name).map(|value| &**value) {
        Some(Value::Array(array)) => array.iter().map(word).collect(),
        Some(_) | None => Vec::new(),
    }
}

fn flag(properties: &Properties, name: &str) -> bool {
    properties.get(name).and_then(|value| bool::try_from(&**value).ok()).unwrap_or_default()
}

fn number(properties: &Properties, name: &str) -> u64 {
    properties.get(name).and_then(|value| u64::try_from(&**value).ok()).unwrap_or_default()
}

fn signed(properties: &Properties, name: &str) -> i32 {
    properties.get(name).and_then(|value| i32::try_from(&**value).ok()).unwrap_or_default()
}

#[cfg(test)]
pub(super) mod testing {
    use super::*;

    /// Returns the state of a loaded unit of any type with these properties.
    pub(in super::super) fn unit(properties: &[(&str, Value<'_>)]) -> UnitState {
        let mut all_properties = Properties::new();
        for (name, value) in [("Id", Value::from("web.service")), ("LoadState", Value::from("loaded"))]
            .iter()
            .chain(properties)
        {
            all_properties.insert((*name).to_owned(), value.try_to_owned().unwrap());
        }
        UnitState::of(&all_properties, &all_properties)
    }
}

#[cfg(test)]
mod tests {
    use super::testing::unit;
    use super::*;
    use zbus::zvariant::{ObjectPath, StructureBuilder};

    #[test]
    fn unit_properties_are_parsed() {
        let job = StructureBuilder::new()
            .add_field(7_u32)
            .add_field(ObjectPath::try_from("/a").unwrap())
            .build()
            .unwrap();
        let state = unit(&[
            ("ActiveState", Value::from("active")),
            ("SubState", Value::from("running")),
            ("Job", Value::from(job)),
            ("ExecMainCode", Value::from(2_i32)),
            ("ExecMainStatus", Value::from(9_i32)),
            ("WantedBy", Value::from(vec!["multi-user.target"])),
            ("UpheldBy", Value::from(vec!["x.service"])),
            ("Transient", Value::from(true)),
            ("ActiveExitTimestampMonotonic", Value::from(12_u64)),
        ]);
        assert_eq!(state.description, "active/running");
        assert_eq!((state.active, state.load.clone()), (ActiveState::Active, LoadState::Loaded));
        assert_eq!((state.job, state.active_until_us, state.is_transient), (7, 12, true));
        assert_eq!(state.wanted_by, ["multi-user.target", "x.service"]);
        assert_eq!(state.service.map(|service| service.main_end), Some(MainEnd::Killed(9)));
    }

    #[test]
    fn unit_load_states_are_parsed() {
        let error = StructureBuilder::new()
            .add_field("org.freedesktop.systemd1.BadUnitSetting")
            .add_field("Unit web.service has a bad unit file setting.")
            .build()
            .unwrap();
        let broken = LoadState::Broken(
            "bad-setting".to_owned(),
            "Unit web.service has a bad unit file setting.".to_owned(),
        );
        for (word, expected) in [
            ("loaded", LoadState::Loaded),
            ("not-found", LoadState::NotFound),
            ("masked", LoadState::Masked),
            ("bad-setting", broken),
        ] {
            let error = Value::from(error.try_clone().unwrap());
            let state = unit(&[("LoadState", Value::from(word)), ("LoadError", error)]);
            assert_eq!(state.load, expected);
        }
    }

    #[test]
    fn units_other_than_services_lack_main_process() {
        let state = unit(&[("Id", Value::from("srv.mount")), ("ActiveState", Value::from("inactive"))]);
        assert_eq!(state.service, None);
        assert!(state.has_ended() && !state.ends_after_start());
        let state = unit(&[("Type", Value::from("oneshot"))]);
        assert!(state.ends_after_start());
        let state = unit(&[("Type", Value::from("oneshot")), ("RemainAfterExit", Value::from(true))]);
        assert!(!state.ends_after_start());
    }
}
