//! The roles, and the permissions of each as data. The reviews of `kubectl auth can-i` list the same data.

use super::attributes::Attributes;
use ha_api_types::kind::{GROUP, Kind};
use ha_api_types::operation::OperationAction;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Prefix of the groups that select a role.
const GROUP_PREFIX: &str = "hactl:";
const READ_VERBS: [&str; 3] = ["get", "list", "watch"];
const WRITE_VERBS: [&str; 5] = ["create", "delete", "deletecollection", "patch", "update"];
const HEALTH_PATHS: [&str; 2] = ["/livez", "/readyz"];
const DISCOVERY_PATHS: [&str; 6] = ["/version", "/api", "/api/*", "/apis", "/apis/*", "/openapi/*"];

/// A set of permissions, selected by a group of the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
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
    /// Asks for etcd-outage holds of its own node.
    Node,
    /// Reads the health of other controllers.
    Controller,
}

/// A permission: some verbs on some resources, or on some paths that are no resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) verbs: Vec<&'static str>,
    /// API group of the resources; `*` for all.
    pub(crate) group: &'static str,
    /// Plural names of kinds, with `/subresource`; `*` for all.
    pub(crate) resources: Vec<String>,
    /// Paths; a final `*` stands for any rest.
    pub(crate) paths: Vec<&'static str>,
}

impl Role {
    /// Every role, from the fewest permissions to the most for each purpose.
    pub(crate) const ALL: [Role; 7] = [
        Role::Viewer,
        Role::Operator,
        Role::Editor,
        Role::Metrics,
        Role::Node,
        Role::Controller,
        Role::Admin,
    ];

    /// Returns the name of the role.
    pub(crate) fn name(self) -> &'static str {
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
    pub(crate) fn group(self) -> String {
        format!("{GROUP_PREFIX}{}", self.name())
    }

    /// Returns the role that a group selects; `None` for any other group.
    pub(crate) fn of_group(group: &str) -> Option<Role> {
        let name = group.strip_prefix(GROUP_PREFIX)?;
        Role::ALL.into_iter().find(|role| role.name() == name)
    }

    /// Returns `true` if the role permits what the attributes describe.
    pub(super) fn permits(self, attributes: &Attributes) -> bool {
        self.rules().iter().any(|rule| rule.covers(attributes))
    }

    /// Returns the permissions of the role, without [`self_reviews`].
    pub(crate) fn rules(self) -> &'static [Rule] {
        static RULES: LazyLock<BTreeMap<Role, Vec<Rule>>> =
            LazyLock::new(|| Role::ALL.into_iter().map(|role| (role, role.build_rules())).collect());
        RULES.get(&self).map_or(&[], Vec::as_slice)
    }

    fn build_rules(self) -> Vec<Rule> {
        let mut rules = Vec::new();
        match self {
            Role::Viewer => rules.extend(viewer_rules()),
            Role::Metrics => rules.push(Rule::of_paths(&["/metrics", HEALTH_PATHS[0], HEALTH_PATHS[1]])),
            Role::Operator => {
                rules.extend(viewer_rules());
                rules.push(Rule::of(&["delete", "deletecollection"], GROUP, [Kind::Operation.plural()]));
                let actions =
                    OperationAction::ALL.into_iter().filter(|action| !is_reserved_for_admin(*action));
                let actions = actions.map(|action| format!("{}/{action:?}", Kind::Operation.plural()));
                rules.push(Rule::of(&["create", "patch", "update"], GROUP, actions));
                let maintenance = format!("{}/maintenance", Kind::Node.plural());
                rules.push(Rule::of(&["patch", "update"], GROUP, [maintenance]));
            }
            Role::Editor => {
                rules.extend(viewer_rules());
                let kinds = [Kind::Resource, Kind::Group, Kind::AffinityRule].map(Kind::plural);
                rules.push(Rule::of(&WRITE_VERBS, GROUP, kinds));
            }
            Role::Admin => {
                rules.push(Rule { paths: Vec::new(), ..Rule::of(&["*"], "*", ["*"]) });
                rules.push(Rule { verbs: vec!["*"], ..Rule::of_paths(&["*"]) });
            }
            // The permission for an etcd-outage hold depends on the name of the user.
            Role::Node => {}
            Role::Controller => rules.push(Rule::of_paths(&HEALTH_PATHS)),
        }
        rules
    }
}

/// Returns `true` if an action states a fact that only a person can know, and that a wrong statement turns into two
/// running copies, or if it lets a node accept other data.
fn is_reserved_for_admin(action: OperationAction) -> bool {
    matches!(action, OperationAction::ConfirmFenced | OperationAction::Unfence | OperationAction::FollowStore)
}

/// Returns the permissions of every user: to ask for its own name and permissions.
pub(crate) fn self_reviews() -> &'static [Rule] {
    static RULES: LazyLock<[Rule; 2]> = LazyLock::new(|| {
        [
            Rule::of(
                &["create"],
                "authorization.k8s.io",
                ["selfsubjectaccessreviews", "selfsubjectrulesreviews"],
            ),
            Rule::of(&["create"], "authentication.k8s.io", ["selfsubjectreviews"]),
        ]
    });
    &*RULES
}

fn viewer_rules() -> Vec<Rule> {
    let statuses = Kind::ALL.map(|kind| format!("{}/status", kind.plural()));
    let others =
        ["resources/explain", "resources/log", "placement", "reservation", "state", "status", "usage"];
    let paths = DISCOVERY_PATHS.into_iter().chain(HEALTH_PATHS).chain(["/metrics", "/state"]);
    vec![
        Rule::of(&READ_VERBS, GROUP, Kind::ALL.map(Kind::plural)),
        Rule::of(&["get"], GROUP, statuses.into_iter().chain(others.map(str::to_owned))),
        Rule::of(&["create"], GROUP, ["plan"]),
        Rule::of(&READ_VERBS, "", ["events", "namespaces"]),
        Rule::of_paths(&paths.collect::<Vec<_>>()),
    ]
}

impl Rule {
    fn of<T: Into<String>>(
        verbs: &[&'static str],
        group: &'static str,
        resources: impl IntoIterator<Item = T>,
    ) -> Rule {
        let resources = resources.into_iter().map(Into::into).collect();
        Rule { verbs: verbs.to_vec(), group, resources, paths: Vec::new() }
    }

    fn of_paths(paths: &[&'static str]) -> Rule {
        Rule { verbs: vec!["get"], group: "", resources: Vec::new(), paths: paths.to_vec() }
    }

    /// Returns `true` if the rule permits what the attributes describe.
    pub(super) fn covers(&self, attributes: &Attributes) -> bool {
        let has_verb = self.verbs.iter().any(|verb| *verb == "*" || *verb == attributes.verb);
        let has_target = if let Some(path) = &attributes.path {
            self.paths.iter().any(|pattern| match pattern.strip_suffix('*') {
                Some(prefix) => path.starts_with(prefix),
                None => path == pattern,
            })
        } else {
            let has_group = self.group == "*" || self.group == attributes.group;
            let resource = attributes.resource_with_subresource();
            has_group && self.resources.iter().any(|name| name == "*" || *name == resource)
        };
        has_verb && has_target
    }
}
