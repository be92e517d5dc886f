//! The policy of a node: the services that its administrator allows there, regardless of the objects in the API.

use crate::driver::{DriverSpec, ExecDriver, LibvirtDriver, PodmanDriver, SystemdDriver};
use crate::setting::ValueSource;
use crate::yaml;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::{Component, Path};

/// Services that a node runs. The agent reads the policy from its configuration file; no request to the API changes it.
///
/// A user who may edit resources chooses programs, files and mounts, which agents use as root. Without a policy, such a
/// user is root on the node.
///
/// Guarantees: the agent runs no program of a forbidden service, neither to start nor to probe it. The scheduler does not
/// place the service on the node, and `hactl why` shows the reason.
///
/// Assumptions: units of systemd, resource agents, external drivers, containers and domains that exist on the node under
/// their name belong to its administrator.
///
/// ```
/// use ha_api_types::driver::{DriverSpec, ExecDriver};
/// use ha_api_types::node_policy::NodePolicy;
///
/// let driver = DriverSpec {
///     exec: Some(ExecDriver { command: vec!["/usr/bin/web".to_owned()], ..ExecDriver::default() }),
///     ..DriverSpec::default()
/// };
/// assert_eq!(NodePolicy::default().refusal(&driver).as_deref(), Some("node policy does not allow exec as root"));
/// assert_eq!(NodePolicy { allow_root: true, ..NodePolicy::default() }.refusal(&driver), None);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodePolicy {
    /// Drivers that the node runs: names of drivers, such as `systemd`, and of external drivers. Absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drivers: Option<Vec<String>>,
    /// Whether programs and definitions in a resource may act as root.
    pub allow_root: bool,
    /// Users that programs of `exec` and `systemd` may run as. Absent: every user except root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub users: Option<Vec<String>>,
    /// Directories that contain the programs of `exec` and `systemd`, and the files with definitions of `libvirt` and
    /// configurations of `lxc`. Absent: programs may be anywhere, but such files only with `allowRoot`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paths: Option<Vec<String>>,
    /// Directories and devices of the node that containers may mount and virtual machines may use. Absent: all with
    /// `allowRoot`, otherwise none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mounts: Option<Vec<String>>,
    /// OCF resource agents that the node runs: providers, such as `heartbeat`, or single agents, such as
    /// `heartbeat:IPaddr2`. Absent: all with `allowRoot`, otherwise none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ocf_providers: Option<Vec<String>>,
    /// Names of files, credentials and variables whose content services may get with `valueFrom`. Absent: all with
    /// `allowRoot`, otherwise none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secrets: Option<Vec<String>>,
}

impl NodePolicy {
    /// Returns why the node does not run a service with this driver, as a clause; `None` if it does.
    ///
    /// Paths are compared as written, and a path with `..` is refused. [`NodePolicy::refusal_on_node`] resolves paths.
    pub fn refusal(&self, driver: &DriverSpec) -> Option<String> {
        PolicyEvaluator { policy: self, resolve: &str::to_owned }.refusal(driver)
    }

    /// Returns the same as [`NodePolicy::refusal`], with all paths resolved by this function. A symbolic link in an
    /// allowed directory then allows nothing outside of it.
    pub fn refusal_on_node(&self, driver: &DriverSpec, resolve: &dyn Fn(&str) -> String) -> Option<String> {
        self.refusal(driver).or_else(|| PolicyEvaluator { policy: self, resolve }.refusal(driver))
    }

    /// Returns what the policy allows, in one line.
    pub fn summary(&self) -> String {
        let default_text = if self.allow_root { "all" } else { "none" };
        let root = if self.allow_root { "yes" } else { "no" };
        let lists = [
            ("drivers", &self.drivers, "all"),
            ("users", &self.users, "all except root"),
            ("paths of programs", &self.paths, "all"),
            ("mounts", &self.mounts, default_text),
            ("OCF agents", &self.ocf_providers, default_text),
            ("secrets", &self.secrets, default_text),
        ];
        let lists = lists.map(|(name, entries, absent)| match entries.as_deref() {
            None => format!("{name}: {absent}"),
            Some([]) => format!("{name}: none"),
            Some(entries) => format!("{name}: {}", entries.join(", ")),
        });
        format!("root: {root}; {}", lists.join("; "))
    }

    /// Reads a policy from YAML.
    ///
    /// # Errors
    /// Fails if the text is not a map, or has an unknown key or a value of the wrong type; the message names it.
    pub fn parse(text: &str) -> Result<NodePolicy, String> {
        let fields = yaml::map_with_keys(text, &FIELDS)?;
        let directories = ["paths", "mounts"].into_iter().filter_map(|field| fields.get(field)?.as_array());
        let is_relative = |entry: &&Value| entry.as_str().is_some_and(|path| !path.starts_with('/'));
        if let Some(path) = directories.flatten().find(is_relative) {
            return Err(format!("{path} is not an absolute path"));
        }
        serde_json::from_value(Value::Object(fields)).map_err(|error| error.to_string())
    }
}

/// The fields of a policy in YAML.
const FIELDS: [&str; 7] = ["drivers", "allowRoot", "users", "paths", "mounts", "ocfProviders", "secrets"];

/// A policy, and the way in which its paths are compared.
struct PolicyEvaluator<'a> {
    policy: &'a NodePolicy,
    resolve: &'a dyn Fn(&str) -> String,
}

impl PolicyEvaluator<'_> {
    fn refusal(&self, driver: &DriverSpec) -> Option<String> {
        let kind = driver.kind()?;
        let name = driver.external.as_ref().map_or(kind.name(), |external| external.name.as_str());
        let is_listed =
            |names: &Vec<String>| names.iter().any(|allowed| allowed == name || allowed == kind.name());
        if self.policy.drivers.as_ref().is_some_and(|names| !is_listed(names)) {
            return Some(format!("node policy does not allow driver {name}"));
        }
        let DriverSpec { exec, systemd, ocf, podman, lxc, libvirt, external: _, simulated: _ } = driver;
        None.or_else(|| self.refusal_of_exec(exec.as_ref()?))
            .or_else(|| self.refusal_of_transient_unit(systemd.as_ref()?))
            .or_else(|| self.refusal_of_agent(&ocf.as_ref()?.agent))
            .or_else(|| self.refusal_of_mounts(podman.as_ref()?))
            .or_else(|| self.refusal_of_file("configuration", &lxc.as_ref()?.config))
            .or_else(|| self.refusal_of_domain(libvirt.as_ref()?))
            .or_else(|| driver.value_sources().find_map(|source| self.refusal_of_secret(&source)))
    }

    fn refusal_of_secret(&self, source: &ValueSource) -> Option<String> {
        let location = match source.location() {
            Ok(location) => location,
            Err(problem) => return Some(format!("node cannot read a value: valueFrom {problem}")),
        };
        let is_allowed = match &self.policy.secrets {
            Some(names) => names.iter().any(|name| name == location.name()),
            None => self.policy.allow_root,
        };
        (!is_allowed).then(|| format!("node policy does not allow {location} for services"))
    }

    fn refusal_of_exec(&self, exec: &ExecDriver) -> Option<String> {
        self.refusal_of_user("exec", exec.user.as_deref())
            .or_else(|| exec.programs().find_map(|program| self.refusal_of_program(program)))
    }

    fn refusal_of_transient_unit(&self, unit: &SystemdDriver) -> Option<String> {
        if unit.command.is_empty() {
            return None;
        }
        self.refusal_of_user("transient units of systemd", unit.user.as_deref())
            .or_else(|| self.refusal_of_program(&unit.command))
    }

    fn refusal_of_user(&self, subject: &str, user: Option<&str>) -> Option<String> {
        let user = user.unwrap_or("root");
        if is_root(user) {
            return (!self.policy.allow_root)
                .then(|| format!("node policy does not allow {subject} as root"));
        }
        let is_allowed =
            self.policy.users.as_ref().is_none_or(|users| users.iter().any(|allowed| allowed == user));
        (!is_allowed).then(|| format!("node policy does not allow {subject} as user {user}"))
    }

    fn refusal_of_program(&self, program: &[String]) -> Option<String> {
        let path = program.first()?;
        let is_allowed = self.policy.paths.as_ref().is_none_or(|paths| self.is_below(path, paths));
        (!is_allowed).then(|| format!("node policy does not allow programs outside its paths: {path}"))
    }

    fn refusal_of_agent(&self, agent: &str) -> Option<String> {
        let provider = agent.split_once(':').map_or("heartbeat", |(provider, _)| provider);
        let is_allowed = match &self.policy.ocf_providers {
            Some(allowed) => allowed.iter().any(|entry| entry == provider || entry == agent),
            None => self.policy.allow_root,
        };
        (!is_allowed).then(|| format!("node policy does not allow OCF agent {agent}"))
    }

    fn refusal_of_mounts(&self, podman: &PodmanDriver) -> Option<String> {
        podman.mounts.iter().find_map(|mount| self.refusal_of_mount(&mount.source))
    }

    fn refusal_of_mount(&self, path: &str) -> Option<String> {
        let is_allowed = match &self.policy.mounts {
            Some(mounts) => self.is_below(path, mounts),
            None => self.policy.allow_root,
        };
        (!is_allowed).then(|| format!("node policy does not allow {path} in containers and virtual machines"))
    }

    fn refusal_of_file(&self, subject: &str, path: &str) -> Option<String> {
        let is_allowed = match &self.policy.paths {
            _ if path.is_empty() => true,
            Some(paths) => self.is_below(path, paths),
            None => self.policy.allow_root,
        };
        (!is_allowed).then(|| format!("node policy does not allow a {subject} outside its paths: {path}"))
    }

    fn refusal_of_domain(&self, domain: &LibvirtDriver) -> Option<String> {
        // The domains of a session are processes of the agent's user.
        if domain.uri() != "qemu:///system" && !self.policy.allow_root {
            return Some(format!("node policy does not allow libvirt at {}", domain.uri()));
        }
        self.refusal_of_file("definition", &domain.definition).or_else(|| self.refusal_of_definition(domain))
    }

    /// Returns why the node does not run a domain that a resource defines: every path in the definition must be an allowed
    /// mount, and devices of the host and options of the hypervisor need `allowRoot`.
    fn refusal_of_definition(&self, domain: &LibvirtDriver) -> Option<String> {
        let Some(access) = domain.host_access() else {
            return Some("node cannot check a domain whose definition is unreadable".to_owned());
        };
        if let (false, Some(element)) = (self.policy.allow_root, access.elements.first()) {
            return Some(format!("node policy does not allow domains with element {element}"));
        }
        access.paths.iter().find_map(|path| self.refusal_of_mount(path))
    }

    /// Returns `true` if a path is one of these paths, or below one of them.
    fn is_below(&self, path: &str, directories: &[String]) -> bool {
        let is_parent = |part| part == Component::ParentDir;
        if Path::new(path).components().any(is_parent) {
            return false;
        }
        let path = (self.resolve)(path);
        let path = Path::new(&path);
        path.is_absolute() && directories.iter().any(|directory| path.starts_with((self.resolve)(directory)))
    }
}

/// Returns `true` if the name or number is that of root.
fn is_root(user: &str) -> bool {
    let name = user.split(':').next().unwrap_or(user);
    name == "root" || name.parse::<u64>() == Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn driver(yaml: &str) -> DriverSpec {
        serde_yaml::from_str(yaml).unwrap()
    }

    #[test]
    fn secrets_need_the_permission_of_the_node() {
        let service =
            driver("exec: {command: [a], user: web, environment: {A: {valueFrom: {file: db}}, B: c}}");
        let agent =
            driver("ocf: {agent: 'heartbeat:db', parameters: {password: {valueFrom: {credential: db}}}}");
        let container = driver("podman: {image: a, environment: {A: {valueFrom: {file: db}}}}");
        let external = driver("external: {name: a, settings: {password: {valueFrom: {file: db}}}}");
        for (policy, refusal) in [
            ("{ocfProviders: [heartbeat]}", Some("node policy does not allow file db for services")),
            (
                "{ocfProviders: [heartbeat], secrets: [other]}",
                Some("node policy does not allow file db for services"),
            ),
            ("{ocfProviders: [heartbeat], secrets: [other, db]}", None),
            ("{allowRoot: true}", None),
            ("{allowRoot: true, secrets: []}", Some("node policy does not allow file db for services")),
        ] {
            let policy = NodePolicy::parse(policy).unwrap();
            for service in [&service, &container, &external] {
                assert_eq!(policy.refusal(service).as_deref(), refusal);
            }
            let refusal = refusal.map(|text| text.replace("file", "credential"));
            assert_eq!(policy.refusal(&agent), refusal);
        }
    }

    #[test]
    fn symbolic_links_do_not_leave_allowed_directories() {
        let policy = NodePolicy { mounts: Some(vec!["/srv".to_owned()]), ..NodePolicy::default() };
        let mount = driver("podman: {image: a, mounts: [{source: /srv/data, target: /d}]}");
        let link_to = |target: &'static str| {
            move |path: &str| if path == "/srv/data" { target.to_owned() } else { path.to_owned() }
        };
        assert_eq!(policy.refusal(&mount), None);
        assert_eq!(policy.refusal_on_node(&mount, &link_to("/srv/other")), None);
        assert!(policy.refusal_on_node(&mount, &link_to("/etc")).is_some());
    }

    #[test]
    fn summary_names_what_is_allowed() {
        let check =
            |yaml: &str, expected: &str| assert_eq!(NodePolicy::parse(yaml).unwrap().summary(), expected);
        check(
            "{drivers: [exec], users: []}",
            "root: no; drivers: exec; users: none; paths of programs: all; mounts: none; OCF agents: none; secrets: none",
        );
        check(
            "{allowRoot: true, paths: [/opt, /srv]}",
            "root: yes; drivers: all; users: all except root; paths of programs: /opt, /srv; mounts: all; OCF agents: all; secrets: all",
        );
    }

    #[test]
    fn policy_in_yaml_is_strict() {
        let check = |text: &str, expected: &str| assert_eq!(NodePolicy::parse(text).unwrap_err(), expected);
        check(
            "{root: true}",
            "unknown key `root`: use drivers, allowRoot, users, paths, mounts, ocfProviders, secrets",
        );
        check("{paths: [srv]}", "\"srv\" is not an absolute path");
        assert!(NodePolicy::parse("[a]").unwrap_err().starts_with("not a map: "));
        assert!(NodePolicy::parse("{allowRoot: maybe}").unwrap_err().contains("boolean"));
        let policy = NodePolicy::parse("{allowRoot: true, users: [web]}").unwrap();
        assert_eq!(
            policy,
            NodePolicy { allow_root: true, users: Some(vec!["web".into()]), ..NodePolicy::default() }
        );
    }

    #[test]
    fn policy_decides_for_each_driver() {
        let check = |policy: &str, spec: &str, expected: Option<&str>| {
            let policy: NodePolicy = serde_yaml::from_str(policy).unwrap();
            assert_eq!(policy.refusal(&driver(spec)).as_deref(), expected, "{policy:?}\n{spec}");
        };
        let strict = "{}";
        let root = "{allowRoot: true}";
        // exec
        let as_root = "exec: {command: [/usr/bin/web]}";
        check(strict, as_root, Some("node policy does not allow exec as root"));
        check(root, as_root, None);
        check(
            strict,
            "exec: {command: [/usr/bin/web], user: root}",
            Some("node policy does not allow exec as root"),
        );
        check(
            strict,
            "exec: {command: [/usr/bin/web], user: \"0\"}",
            Some("node policy does not allow exec as root"),
        );
        check(
            strict,
            "exec: {command: [/usr/bin/web], user: \"00\"}",
            Some("node policy does not allow exec as root"),
        );
        check(strict, "exec: {command: [/usr/bin/web], user: web}", None);
        let users = "{users: [web]}";
        check(users, "exec: {command: [/usr/bin/web], user: web}", None);
        let other = Some("node policy does not allow exec as user mail");
        check(users, "exec: {command: [/usr/bin/web], user: mail}", other);
        let paths = "{allowRoot: true, paths: [/opt/services]}";
        check(paths, "exec: {command: [/opt/services/web]}", None);
        for program in ["/opt/servicesx/web", "/opt/services/../../bin/sh", "web", "/bin/sh"] {
            let refusal = format!("node policy does not allow programs outside its paths: {program}");
            check(paths, &format!("exec: {{command: [\"{program}\"]}}"), Some(&refusal));
            let stop = format!(
                "exec: {{start: [/opt/services/a], stop: [\"{program}\"], monitor: [/opt/services/b]}}"
            );
            check(paths, &stop, Some(&refusal));
        }
        // systemd
        check(strict, "systemd: {unit: nginx.service}", None);
        let transient = Some("node policy does not allow transient units of systemd as root");
        check(strict, "systemd: {command: [/usr/bin/web]}", transient);
        check(strict, "systemd: {command: [/usr/bin/web], user: web}", None);
        // ocf
        let address = "ocf: {agent: \"heartbeat:IPaddr2\"}";
        check(strict, address, Some("node policy does not allow OCF agent heartbeat:IPaddr2"));
        check(root, address, None);
        check("{ocfProviders: [heartbeat]}", address, None);
        check("{ocfProviders: [\"heartbeat:IPaddr2\"]}", address, None);
        let any_program = "ocf: {agent: \"heartbeat:anything\"}";
        let refused = Some("node policy does not allow OCF agent heartbeat:anything");
        check("{allowRoot: true, ocfProviders: [\"heartbeat:IPaddr2\"]}", any_program, refused);
        // podman
        let mount = "podman: {image: a, mounts: [{source: /etc, target: /e}]}";
        let not_given = Some("node policy does not allow /etc in containers and virtual machines");
        check(strict, mount, not_given);
        check("{mounts: [/srv]}", mount, not_given);
        check("{allowRoot: true, mounts: [/srv]}", mount, not_given);
        check("{mounts: [/srv, /etc]}", mount, None);
        check(strict, "podman: {image: a}", None);
        // lxc
        let config = "lxc: {container: a, config: /tmp/config}";
        check(
            strict,
            config,
            Some("node policy does not allow a configuration outside its paths: /tmp/config"),
        );
        check("{paths: [/tmp]}", config, None);
        check(strict, "lxc: {container: a}", None);
        // libvirt
        check(strict, "libvirt: {domain: a}", None);
        let definition = "libvirt: {domain: a, definition: /tmp/a.xml}";
        check(
            strict,
            definition,
            Some("node policy does not allow a definition outside its paths: /tmp/a.xml"),
        );
        let remote = Some("node policy does not allow libvirt at qemu+ssh://x/system");
        check(strict, "libvirt: {domain: a, uri: \"qemu+ssh://x/system\"}", remote);
        let disk = "libvirt: {xml: \"<domain><name>a</name><devices><disk><source dev='/dev/sda'/></disk></devices></domain>\"}";
        check(strict, disk, Some("node policy does not allow /dev/sda in containers and virtual machines"));
        check("{mounts: [/dev/sda]}", disk, None);
        check(root, disk, None);
        let host = "libvirt: {xml: \"<domain><name>a</name><devices><hostdev/></devices></domain>\"}";
        check(strict, host, Some("node policy does not allow domains with element hostdev"));
        let options = "libvirt: {xml: \"<domain xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'><name>a</name><qemu:commandline/></domain>\"}";
        check(strict, options, Some("node policy does not allow domains with element commandline"));
        // drivers
        check("{drivers: [systemd]}", "podman: {image: a}", Some("node policy does not allow driver podman"));
        check("{drivers: [disk]}", "external: {name: disk}", None);
        check("{drivers: [other]}", "external: {name: disk}", Some("node policy does not allow driver disk"));
        check(strict, "simulated: {}", None);
    }
}
