//! Requests to a resource agent: environment, time limits and intervals.

use ha_api_types::driver::OcfDriver as OcfSpec;
use ha_api_types::id::NodeName;
use ha_api_types::ocf::{AgentMetadata, AgentName};
use ha_api_types::resource::TimeoutsSpec;
use ha_api_types::time::Millis;
use std::collections::BTreeMap;
use std::path::Path;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request<'a> {
    pub(super) action: Action<'a>,
    pub(super) timeout_ms: Millis,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action<'a> {
    /// Report whether the service runs, if its state is not known.
    Probe,
    /// Report whether the service still runs.
    Monitor {
        /// Interval between runs, in milliseconds.
        interval_ms: Millis,
    },
    /// Check whether the parameters can work on this node.
    Validate,
    Metadata,
    Start,
    Stop,
    /// Live-migrate: the action on the source.
    MigrateTo {
        /// Node that receives the service.
        target: &'a NodeName,
    },
    /// Live-migrate: the action on the target.
    MigrateFrom {
        /// Node that the service comes from.
        source: &'a NodeName,
    },
}

impl Action<'_> {
    /// Returns the action's name, which is the resource agent's argument.
    pub(super) fn name(self) -> &'static str {
        match self {
            Action::Probe | Action::Monitor { .. } => "monitor",
            Action::Validate => "validate-all",
            Action::Metadata => "meta-data",
            Action::Start => "start",
            Action::Stop => "stop",
            Action::MigrateTo { .. } => "migrate_to",
            Action::MigrateFrom { .. } => "migrate_from",
        }
    }
}

/// Paths and node name for a resource agent.
#[derive(Clone, Copy, Debug)]
pub(super) struct AgentContext<'a> {
    pub(super) node: &'a NodeName,
    /// Value of `OCF_ROOT`.
    pub(super) root: &'a Path,
    /// Value of `HA_VARRUN`.
    pub(super) run: &'a Path,
}

/// Directory below `HA_VARRUN` in which the resource agents keep their own state.
pub(super) const STATE_DIRECTORY: &str = "resource-agents";

/// Returns the environment for a request, with the texts of all parameters.
pub(super) fn environment(
    context: AgentContext<'_>,
    resource: &str,
    name: &AgentName,
    spec: &OcfSpec,
    parameters: &BTreeMap<String, String>,
    request: Request<'_>,
) -> BTreeMap<String, String> {
    let mut variables: BTreeMap<String, String> = name.environment(context.root).into_iter().collect();
    let mut set = |name: &str, value: &str| {
        variables.insert(name.to_owned(), value.to_owned());
    };
    for (parameter, value) in parameters {
        set(&format!("OCF_RESKEY_{parameter}"), value);
    }
    set("OCF_RESOURCE_INSTANCE", resource);
    set("HA_VARRUN", &context.run.display().to_string());
    set("HA_RSCTMP", &context.run.join(STATE_DIRECTORY).display().to_string());
    // Format of the date before every line that the resource agents' shell library logs.
    set("HA_DATEFMT", "%FT%T ");
    let (interval_ms, level) = match request.action {
        Action::Monitor { interval_ms } => (interval_ms, spec.check_level.unwrap_or(0)),
        Action::Probe
        | Action::Validate
        | Action::Metadata
        | Action::Start
        | Action::Stop
        | Action::MigrateTo { .. }
        | Action::MigrateFrom { .. } => (0, 0),
    };
    set("OCF_CHECK_LEVEL", &level.to_string());
    let mut meta = |name: &str, value: &str| set(&format!("OCF_RESKEY_CRM_meta_{name}"), value);
    meta("name", request.action.name());
    meta("interval", &interval_ms.to_string());
    meta("timeout", &request.timeout_ms.to_string());
    meta("on_node", context.node);
    let (source, target) = match request.action {
        Action::MigrateTo { target } => (context.node, target),
        Action::MigrateFrom { source } => (source, context.node),
        Action::Probe
        | Action::Monitor { .. }
        | Action::Validate
        | Action::Metadata
        | Action::Start
        | Action::Stop => return variables,
    };
    meta("migrate_source", source);
    meta("migrate_target", target);
    variables
}

/// Returns the time limits of a service's actions. If a limit of the resource has its default value, and the resource
/// agent advises a longer limit, the longer limit applies.
pub(super) fn timeouts(spec_timeouts: TimeoutsSpec, metadata: &AgentMetadata) -> TimeoutsSpec {
    let usual = TimeoutsSpec::default();
    #[expect(clippy::float_cmp, reason = "an unset limit equals the default exactly")]
    let longer = |spec_timeouts: f64, usual: f64, actions: &[&str]| {
        let advised = actions.iter().filter_map(|action| metadata.timeout_ms(action)).max().unwrap_or(0);
        if spec_timeouts == usual { spec_timeouts.max(advised as f64 / 1000.0) } else { spec_timeouts }
    };
    TimeoutsSpec {
        start_seconds: longer(spec_timeouts.start_seconds, usual.start_seconds, &["start"]),
        stop_seconds: longer(spec_timeouts.stop_seconds, usual.stop_seconds, &["stop"]),
        migrate_seconds: longer(
            spec_timeouts.migrate_seconds,
            usual.migrate_seconds,
            &["migrate_to", "migrate_from"],
        ),
        monitor_seconds: longer(spec_timeouts.monitor_seconds, usual.monitor_seconds, &["monitor"]),
        replace_seconds: spec_timeouts.replace_seconds,
        stable_seconds: spec_timeouts.stable_seconds,
    }
}

/// Returns the interval of `monitor` for a running service: the resource's own, else the resource agent's, else 10 s.
pub(super) fn interval_ms(spec: &OcfSpec, metadata: &AgentMetadata) -> Millis {
    const DEFAULT_INTERVAL_MS: Millis = 10_000;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked when it was applied"
    )]
    let spec_interval_ms = spec.monitor_interval_seconds.map(|seconds| (seconds * 1000.0) as Millis);
    spec_interval_ms
        .or_else(|| metadata.monitor_interval_ms(spec.check_level.unwrap_or(0)))
        .unwrap_or(DEFAULT_INTERVAL_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> OcfSpec {
        OcfSpec { agent: "heartbeat:Dummy".to_owned(), check_level: Some(10), ..OcfSpec::default() }
    }

    fn check(action: Action<'_>, expected: &[(&str, Option<&str>)]) {
        let node = "n1".into();
        let context = AgentContext { node: &node, root: Path::new("/usr/lib/ocf"), run: Path::new("/run") };
        let name = "heartbeat:Dummy".parse().expect("a name");
        let parameters = BTreeMap::from([("state".to_owned(), "/x".to_owned())]);
        let variables =
            environment(context, "web", &name, &spec(), &parameters, Request { action, timeout_ms: 20_000 });
        for (name, value) in expected {
            assert_eq!(variables.get(*name).map(String::as_str), *value, "{action:?} {name}");
        }
    }

    #[test]
    fn agent_environment_contains_the_request() {
        check(
            Action::Start,
            &[
                ("OCF_ROOT", Some("/usr/lib/ocf")),
                ("OCF_RESOURCE_INSTANCE", Some("web")),
                ("OCF_RESOURCE_PROVIDER", Some("heartbeat")),
                ("OCF_RESOURCE_TYPE", Some("Dummy")),
                ("OCF_RESKEY_state", Some("/x")),
                ("HA_RSCTMP", Some("/run/resource-agents")),
                ("OCF_RESKEY_CRM_meta_name", Some("start")),
                ("OCF_RESKEY_CRM_meta_timeout", Some("20000")),
                ("OCF_RESKEY_CRM_meta_on_node", Some("n1")),
                ("OCF_CHECK_LEVEL", Some("0")),
                ("OCF_RESKEY_CRM_meta_migrate_source", None),
            ],
        );
        check(Action::Probe, &[("OCF_RESKEY_CRM_meta_interval", Some("0")), ("OCF_CHECK_LEVEL", Some("0"))]);
        check(
            Action::Monitor { interval_ms: 5000 },
            &[("OCF_RESKEY_CRM_meta_interval", Some("5000")), ("OCF_CHECK_LEVEL", Some("10"))],
        );
        let moved = |action, source, target| {
            check(
                action,
                &[
                    ("OCF_RESKEY_CRM_meta_migrate_source", Some(source)),
                    ("OCF_RESKEY_CRM_meta_migrate_target", Some(target)),
                ],
            );
        };
        let (before, after) = ("n0".into(), "n2".into());
        moved(Action::MigrateTo { target: &after }, "n1", "n2");
        moved(Action::MigrateFrom { source: &before }, "n0", "n1");
    }

    #[test]
    fn resource_timeouts_override_agent_and_default_timeouts() {
        let metadata = AgentMetadata::parse(
            r#"<resource-agent><actions><action name="start" timeout="120s"/><action name="stop" timeout="20s"/>
               <action name="monitor" timeout="30s" interval="7s"/></actions></resource-agent>"#,
        )
        .expect("meta-data");
        let usual = TimeoutsSpec::default();
        let merged = timeouts(usual, &metadata);
        assert_eq!((merged.start_seconds, merged.stop_seconds, merged.monitor_seconds), (120.0, 60.0, 30.0));
        let merged = timeouts(TimeoutsSpec { start_seconds: 5.0, ..usual }, &metadata);
        assert_eq!((merged.start_seconds, merged.monitor_seconds), (5.0, 30.0));
        let mut spec = spec();
        assert_eq!(interval_ms(&spec, &metadata), 7000);
        assert_eq!(interval_ms(&spec, &AgentMetadata::default()), 10_000);
        spec.monitor_interval_seconds = Some(1.5);
        assert_eq!(interval_ms(&spec, &metadata), 1500);
    }
}
