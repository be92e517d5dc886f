//! Users and roles of etcd, and the steps from the present ones to the desired ones; pure.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ha_api_types::etcd_access::{Permission, agent_permissions, controller_permissions};
use ha_api_types::id::NodeName;
use ha_api_types::keys::Keys;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// User and role of etcd's administrator.
pub(super) const ROOT: &str = "root";

/// Users with their roles, and roles with their permissions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct AccessRules {
    pub(super) users: BTreeMap<String, BTreeSet<String>>,
    pub(super) roles: BTreeMap<String, BTreeSet<KeyRange>>,
    pub(super) is_enabled: bool,
}

/// Permission on the keys from `key` to `end`, or on one key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct KeyRange {
    pub(super) key: String,
    /// End of the range, which is not part of it; empty for one key.
    pub(super) end: Vec<u8>,
    pub(super) is_read: bool,
    pub(super) is_write: bool,
}

impl From<Permission> for KeyRange {
    fn from(permission: Permission) -> KeyRange {
        let end = if permission.is_prefix() { end_of_prefix(&permission.selector) } else { Vec::new() };
        KeyRange { key: permission.selector, end, is_read: true, is_write: permission.is_write }
    }
}

/// Returns the end of the range of a prefix that ends in `/`.
fn end_of_prefix(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

/// A change in etcd, as the arguments of etcdctl.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EtcdctlStep(pub(super) Vec<String>);

impl EtcdctlStep {
    pub(super) fn of(arguments: &[&str]) -> EtcdctlStep {
        EtcdctlStep(arguments.iter().map(|argument| (*argument).to_owned()).collect())
    }
}

impl fmt::Display for EtcdctlStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "etcdctl {}", self.0.join(" "))
    }
}

pub(super) fn controller_role(cluster: &str) -> String {
    format!("hactl-{cluster}-controller")
}

pub(super) fn node_role(cluster: &str, node: &str) -> String {
    format!("hactl-{cluster}-node-{node}")
}

/// Returns the desired users and roles. The name of a user is the common name of its certificate.
pub(super) fn desired_access(
    cluster: &str,
    controllers: &BTreeSet<String>,
    nodes: &BTreeSet<String>,
) -> AccessRules {
    let keys = Keys::new(cluster);
    let ranges = |permissions: Vec<Permission>| permissions.into_iter().map(KeyRange::from).collect();
    let mut access = AccessRules { is_enabled: true, ..AccessRules::default() };
    let mut add = |user: &str, role: String, permissions: Option<BTreeSet<KeyRange>>| {
        access.users.entry(user.to_owned()).or_default().insert(role.clone());
        if let Some(permissions) = permissions {
            access.roles.insert(role, permissions);
        }
    };
    add(ROOT, ROOT.to_owned(), None);
    for controller in controllers {
        add(controller, controller_role(cluster), Some(ranges(controller_permissions(&keys))));
    }
    for node in nodes {
        let permissions = agent_permissions(&keys, &NodeName::from(node.as_str()));
        add(node, node_role(cluster, node), Some(ranges(permissions)));
    }
    access
}

/// Returns the steps from the present access to the desired one. Users and roles that are not desired stay, except those
/// in `removed_users`. A desired role loses permissions that it should not have.
///
/// Guarantees: authentication is enabled by the last step. The steps are empty if nothing has to change.
pub(super) fn plan(
    present: &AccessRules,
    desired: &AccessRules,
    removed_users: &BTreeSet<String>,
) -> Vec<EtcdctlStep> {
    let mut steps = Vec::new();
    for user in removed_users.iter().filter(|user| present.users.contains_key(*user)) {
        steps.push(EtcdctlStep::of(&["user", "delete", user]));
    }
    for (role, permissions) in &desired.roles {
        let present_permissions = present.roles.get(role);
        if present_permissions.is_none() {
            steps.push(EtcdctlStep::of(&["role", "add", role]));
        }
        let no_permissions = BTreeSet::new();
        let present_permissions = present_permissions.unwrap_or(&no_permissions);
        for range in present_permissions.difference(permissions) {
            // etcd identifies a permission by its range, so a grant replaces another type.
            let is_replaced =
                permissions.iter().any(|other| (&other.key, &other.end) == (&range.key, &range.end));
            if !is_replaced {
                let end = String::from_utf8_lossy(&range.end);
                let mut arguments = vec!["role", "revoke-permission", role, range.key.as_str()];
                arguments.extend((!end.is_empty()).then_some(end.as_ref()));
                steps.push(EtcdctlStep::of(&arguments));
            }
        }
        for range in permissions.difference(present_permissions) {
            let kind = if range.is_write { "readwrite" } else { "read" };
            let mut arguments = vec!["role", "grant-permission", role, kind, range.key.as_str()];
            arguments.extend((!range.end.is_empty()).then_some("--prefix"));
            steps.push(EtcdctlStep::of(&arguments));
        }
    }
    for (user, roles) in &desired.users {
        let present_roles = present.users.get(user);
        if present_roles.is_none() {
            // Without a password, only a certificate identifies the user.
            steps.push(EtcdctlStep::of(&["user", "add", user, "--no-password"]));
        }
        for role in roles
            .iter()
            .filter(|role| present_roles.is_none_or(|present_roles| !present_roles.contains(*role)))
        {
            steps.push(EtcdctlStep::of(&["user", "grant-role", user, role]));
        }
    }
    if desired.is_enabled && !present.is_enabled {
        steps.push(EtcdctlStep::of(&["auth", "enable"]));
    }
    steps
}

/// Answer of `etcdctl role get` as JSON.
#[derive(Debug, Default, Deserialize)]
pub(super) struct RoleAnswer {
    #[serde(default)]
    perm: Vec<PermissionAnswer>,
}

#[derive(Debug, Deserialize)]
struct PermissionAnswer {
    /// 0 or absent: read; 1: write; 2: both.
    #[serde(default, rename = "permType")]
    kind: u8,
    #[serde(default)]
    key: String,
    #[serde(default)]
    range_end: String,
}

impl RoleAnswer {
    /// Returns the permissions of the role.
    pub(super) fn ranges(&self) -> BTreeSet<KeyRange> {
        let decode = |text: &str| BASE64_STANDARD.decode(text).unwrap_or_default();
        let range = |answer: &PermissionAnswer| KeyRange {
            key: String::from_utf8_lossy(&decode(&answer.key)).into_owned(),
            end: decode(&answer.range_end),
            is_read: answer.kind != 1,
            is_write: answer.kind != 0,
        };
        self.perm.iter().map(range).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn texts(steps: &[EtcdctlStep]) -> Vec<String> {
        steps.iter().map(EtcdctlStep::to_string).collect()
    }

    #[test]
    fn a_new_etcd_gets_users_and_roles_before_authentication() {
        let desired = desired_access("lab", &names(&["c1"]), &names(&["n1"]));
        let steps = texts(&plan(&AccessRules::default(), &desired, &BTreeSet::new()));
        for step in [
            "etcdctl role grant-permission hactl-lab-controller readwrite /hactl/lab/v1/ --prefix",
            "etcdctl role grant-permission hactl-lab-node-n1 readwrite /hactl/lab/v1/alive/n1",
            "etcdctl role grant-permission hactl-lab-node-n1 read /hactl/lab/v1/spec/node/n1",
            "etcdctl user add c1 --no-password",
            "etcdctl user grant-role n1 hactl-lab-node-n1",
            "etcdctl user grant-role root root",
        ] {
            assert!(steps.contains(&step.to_owned()), "{step}: {steps:#?}");
        }
        assert_eq!(steps.last().map(String::as_str), Some("etcdctl auth enable"));
        assert!(!steps.contains(&"etcdctl role add root".to_owned()), "etcd has this role");
    }

    #[test]
    fn nothing_is_planned_twice_and_foreign_users_stay() {
        let desired = desired_access("lab", &names(&["c1"]), &names(&["n1"]));
        let mut present = desired.clone();
        present.users.insert("backup".to_owned(), names(&["reader"]));
        assert_eq!(plan(&present, &desired, &BTreeSet::new()), Vec::new());
        assert_eq!(
            texts(&plan(&present, &desired, &names(&["backup", "gone"]))),
            ["etcdctl user delete backup"]
        );
    }

    #[test]
    fn a_role_loses_permissions_that_it_should_not_have() {
        let desired = desired_access("lab", &BTreeSet::new(), &names(&["n1"]));
        let mut present = desired.clone();
        let role = present.roles.get_mut("hactl-lab-node-n1").expect("the role of the node");
        role.insert(KeyRange::from(Permission { selector: "/hactl/lab/v1/".to_owned(), is_write: true }));
        let alive = role
            .iter()
            .find(|range| range.key.ends_with("alive/n1"))
            .expect("the heartbeat of node n1")
            .clone();
        role.remove(&alive);
        role.insert(KeyRange { is_write: false, ..alive });
        assert_eq!(
            texts(&plan(&present, &desired, &BTreeSet::new())),
            [
                "etcdctl role revoke-permission hactl-lab-node-n1 /hactl/lab/v1/ /hactl/lab/v10",
                "etcdctl role grant-permission hactl-lab-node-n1 readwrite /hactl/lab/v1/alive/n1",
            ]
        );
    }

    #[test]
    fn permissions_are_read_from_the_answer_of_etcdctl() {
        let text = r#"{"perm":[{"key":"L2Ev","range_end":"L2Ew"},{"permType":2,"key":"L2I="}]}"#;
        let answer: RoleAnswer = serde_json::from_str(text).expect("valid JSON");
        let expected = [
            KeyRange::from(Permission { selector: "/a/".to_owned(), is_write: false }),
            KeyRange::from(Permission { selector: "/b".to_owned(), is_write: true }),
        ];
        assert_eq!(answer.ranges(), BTreeSet::from(expected));
    }
}
