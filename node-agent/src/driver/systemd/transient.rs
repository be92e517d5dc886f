//! Properties of the transient unit of a command.

use ha_api_types::driver::SystemdDriver as SystemdSpec;
use ha_api_types::id::NodeName;
use ha_api_types::resource::ServiceDefinition;
use zbus::zvariant::Value;

/// Slice of all transient units.
const SLICE: &str = "hactl.slice";

/// Returns the unit's properties. `agent_unit` is the agent's own unit, which ends before this unit at a shutdown.
pub(super) fn properties(
    service: &ServiceDefinition,
    spec: &SystemdSpec,
    node: &NodeName,
    agent_unit: Option<&str>,
) -> Vec<(&'static str, Value<'static>)> {
    let program = spec.command.first().cloned().unwrap_or_default();
    let mut environment: Vec<String> =
        spec.environment.iter().map(|(name, text)| format!("{name}={text}")).collect();
    environment.push(format!("HA_RESOURCE={}", service.name));
    environment.push(format!("HA_RESOURCE_UID={}", service.uid));
    environment.push(format!("HA_NODE={node}"));
    let mut unit_properties = vec![
        ("Description", Value::from(format!("hactl resource {}", service.name))),
        // With this type, the unit counts as started once the program was executed.
        ("Type", Value::from("exec")),
        ("ExecStart", Value::from(vec![(program, spec.command.clone(), false)])),
        ("Environment", Value::from(environment)),
        ("Slice", Value::from(SLICE)),
        // Only hactl restarts the service, on this node or another.
        ("Restart", Value::from("no")),
        ("KillMode", Value::from("control-group")),
        ("TimeoutStopUSec", Value::from(service.timeouts.stop_ms().saturating_mul(1000))),
        ("CollectMode", Value::from("inactive-or-failed")),
        ("CPUAccounting", Value::from(true)),
        ("MemoryAccounting", Value::from(true)),
        ("IOAccounting", Value::from(true)),
        ("TasksAccounting", Value::from(true)),
    ];
    if let Some(directory) = &spec.working_directory {
        unit_properties.push(("WorkingDirectory", Value::from(directory.clone())));
    }
    if let Some(user) = &spec.user {
        unit_properties.push(("User", Value::from(user.clone())));
    }
    if let Some(bytes) = spec.limits.memory {
        unit_properties.push(("MemoryMax", Value::from(u64::try_from(bytes.units()).unwrap_or(u64::MAX))));
    }
    if let Some(cores) = spec.limits.cpu {
        // CPU time per second: a thousandth of a core is one millisecond.
        let cpu_us_per_second = u64::try_from(cores.milli()).unwrap_or_default().saturating_mul(1000);
        unit_properties.push(("CPUQuotaPerSecUSec", Value::from(cpu_us_per_second)));
    }
    if let Some(tasks) = spec.limits.tasks {
        unit_properties.push(("TasksMax", Value::from(tasks)));
    }
    if let Some(agent_unit) = agent_unit {
        unit_properties.push(("Before", Value::from(vec![agent_unit.to_owned()])));
    }
    unit_properties
}

#[cfg(test)]
mod tests {
    use super::*;
    use ha_api_types::driver::DriverSpec;
    use ha_api_types::resource::Resource;
    use serde_json::json;

    /// Checks the properties by name, as text.
    fn check(spec: &serde_json::Value, agent_unit: Option<&str>, expected: &[(&str, &str)], absent: &[&str]) {
        let mut resource = Resource::default();
        resource.metadata.name = "web".into();
        resource.metadata.uid = "uid-1".into();
        resource.spec.driver = serde_json::from_value::<DriverSpec>(json!({"systemd": spec})).unwrap();
        let service = ServiceDefinition::of(&resource);
        let spec = service.driver.systemd.clone().unwrap();
        let unit_properties = properties(&service, &spec, &"node1".into(), agent_unit);
        for (name, text) in expected {
            let value = unit_properties
                .iter()
                .find(|(property_name, _)| property_name == name)
                .map(|(_, value)| value.to_string());
            assert_eq!(value.as_deref(), Some(*text), "{name}");
        }
        for name in absent {
            assert!(!unit_properties.iter().any(|(property_name, _)| property_name == name), "{name}");
        }
    }

    #[test]
    fn command_line_becomes_transient_unit() {
        check(
            &json!({"command": ["/bin/sleep", "9"], "environment": {"A": "b c"}}),
            None,
            &[
                ("ExecStart", r#"[("/bin/sleep", ["/bin/sleep", "9"], false)]"#),
                ("Environment", r#"["A=b c", "HA_RESOURCE=web", "HA_RESOURCE_UID=uid-1", "HA_NODE=node1"]"#),
                ("Slice", r#""hactl.slice""#),
                ("Restart", r#""no""#),
                ("TimeoutStopUSec", "uint64 60000000"),
                ("CollectMode", r#""inactive-or-failed""#),
            ],
            &["User", "WorkingDirectory", "MemoryMax", "CPUQuotaPerSecUSec", "TasksMax", "Before"],
        );
        check(
            &json!({"command": ["/a"], "user": "www-data", "workingDirectory": "/srv",
                "limits": {"cpu": "1500m", "memory": "1Ki", "tasks": 7}}),
            Some("ha-node-agent.service"),
            &[
                ("User", r#""www-data""#),
                ("WorkingDirectory", r#""/srv""#),
                ("MemoryMax", "uint64 1024"),
                ("CPUQuotaPerSecUSec", "uint64 1500000"),
                ("TasksMax", "uint64 7"),
                ("Before", r#"["ha-node-agent.service"]"#),
            ],
            &[],
        );
    }
}
