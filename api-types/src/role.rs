//! Roles of the API: the names that certificates and tokens carry.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Prefix of the groups that select a role.
const GROUP_PREFIX: &str = "hactl:";

/// A set of permissions in the API. The controller defines the permissions of each role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Reads everything except the values of environment variables and fence attributes.
    Viewer,
    /// Reads the metrics and the health of the process.
    Metrics,
    /// Requests operations, and drains nodes.
    Operator,
    /// Writes resources, groups and rules.
    Editor,
    /// Has every permission.
    Admin,
    /// Requests etcd-outage holds for its own node.
    Node,
    /// Reads the health of other controllers.
    Controller,
}

impl Role {
    /// Every role, from the fewest permissions to the most for each purpose.
    pub const ALL: [Role; 7] = [
        Role::Viewer,
        Role::Operator,
        Role::Editor,
        Role::Metrics,
        Role::Node,
        Role::Controller,
        Role::Admin,
    ];

    /// Returns the name of the role.
    pub fn name(self) -> &'static str {
        match self {
            Role::Viewer => "viewer",
            Role::Metrics => "metrics",
            Role::Operator => "operator",
            Role::Editor => "editor",
            Role::Admin => "admin",
            Role::Node => "node",
            Role::Controller => "controller",
        }
    }

    /// Returns the group that selects the role.
    pub fn group(self) -> String {
        format!("{GROUP_PREFIX}{self}")
    }

    /// Returns the role that a group selects; `None` for any other group.
    pub fn of_group(group: &str) -> Option<Role> {
        let name = group.strip_prefix(GROUP_PREFIX)?;
        Role::ALL.into_iter().find(|role| role.name() == name)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
