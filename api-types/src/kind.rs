//! The kinds of objects and their names in URLs, keys and on the command line.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The API group.
pub const GROUP: &str = "hactl.io";
/// The API version.
pub const VERSION: &str = "v1";
/// `apiVersion` of every object: [`GROUP`] and [`VERSION`].
pub const API_VERSION: &str = "hactl.io/v1";

/// A kind of object that users read or write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Kind {
    /// A service to keep available.
    Resource,
    /// Nodes with priorities, by name.
    Group,
    /// A rule about the nodes of resources, or about resources that run together or apart.
    AffinityRule,
    /// A machine that runs the agent.
    Node,
    /// Nodes that share storage and load.
    NodeGroup,
    /// Settings of the whole cluster. The only object is named `default`.
    Cluster,
    /// A recorded command.
    Operation,
    /// A Git repository from which objects are applied.
    GitSync,
}

impl Kind {
    /// All kinds, in the order in which a stream of documents should be applied.
    pub const ALL: [Kind; 8] = [
        Kind::Cluster,
        Kind::NodeGroup,
        Kind::Node,
        Kind::Group,
        Kind::AffinityRule,
        Kind::Resource,
        Kind::Operation,
        Kind::GitSync,
    ];

    /// Returns the kind as written in `kind:`.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Resource => "Resource",
            Kind::Group => "Group",
            Kind::AffinityRule => "AffinityRule",
            Kind::Node => "Node",
            Kind::NodeGroup => "NodeGroup",
            Kind::Cluster => "Cluster",
            Kind::Operation => "Operation",
            Kind::GitSync => "GitSync",
        }
    }

    /// Returns the singular in lower case, such as `resource`, which is also the name of the kind in keys.
    pub fn singular(self) -> &'static str {
        match self {
            Kind::Resource => "resource",
            Kind::Group => "group",
            Kind::AffinityRule => "affinityrule",
            Kind::Node => "node",
            Kind::NodeGroup => "nodegroup",
            Kind::Cluster => "cluster",
            Kind::Operation => "operation",
            Kind::GitSync => "gitsync",
        }
    }

    /// Returns the plural in lower case, such as `resources`, as used in URLs.
    pub fn plural(self) -> &'static str {
        match self {
            Kind::Resource => "resources",
            Kind::Group => "groups",
            Kind::AffinityRule => "affinityrules",
            Kind::Node => "nodes",
            Kind::NodeGroup => "nodegroups",
            Kind::Cluster => "clusters",
            Kind::Operation => "operations",
            Kind::GitSync => "gitsyncs",
        }
    }

    /// Returns the abbreviation on the command line; empty if there is none.
    pub fn short(self) -> &'static str {
        match self {
            Kind::Resource => "har",
            Kind::Group => "hag",
            Kind::AffinityRule => "rule",
            Kind::Node => "no",
            Kind::NodeGroup => "ng",
            Kind::Cluster => "",
            Kind::Operation => "op",
            Kind::GitSync => "gs",
        }
    }

    /// Returns the categories for discovery. `get all` shows the services and their groups.
    pub fn categories(self) -> &'static [&'static str] {
        match self {
            Kind::Resource | Kind::Group => &["all", "hactl"],
            Kind::AffinityRule
            | Kind::Node
            | Kind::NodeGroup
            | Kind::Cluster
            | Kind::Operation
            | Kind::GitSync => &["hactl"],
        }
    }

    /// Returns the kind for any of its names, in upper or lower case.
    ///
    /// ```
    /// use ha_api_types::kind::Kind;
    ///
    /// for text in ["Node", "nodes", "no", "nodes.hactl.io"] {
    ///     assert_eq!(Kind::parse(text), Some(Kind::Node), "{text}");
    /// }
    /// assert_eq!(Kind::parse("pod"), None);
    /// ```
    pub fn parse(text: &str) -> Option<Kind> {
        let text = text.to_ascii_lowercase();
        let text = text.strip_suffix(".hactl.io").unwrap_or(&text);
        Kind::ALL.into_iter().find(|kind| {
            text == kind.singular()
                || text == kind.plural()
                || (!kind.short().is_empty() && text == kind.short())
        })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
