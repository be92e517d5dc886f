//! The roles, and the permissions of each as data. The reviews of `kubectl auth can-i` list the same data.

use super::attributes::Attributes;
use ha_api_types::kind::{GROUP, Kind};
use ha_api_types::operation::OperationAction;
use ha_api_types::role::Role;
use std::collections::BTreeMap;
use std::sync::LazyLock;

const READ_VERBS: [&str; 3] = ["get", "list", "watch"];
const WRITE_VERBS: [&str; 5] = ["create", "delete", "deletecollection", "patch", "update"];
const HEALTH_PATHS: [&str; 5] = ["/livez", "/livez/*", "/readyz", "/readyz/*", "/healthz"];
const DISCOVERY_PATHS: [&str; 6] = ["/version", "/api", "/api/*", "/apis", "/apis/*", "/openapi/*"];

/// A permission: some verbs on some resources, or on some paths that are not resources.
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

/// Returns `true` if a role permits the request that the attributes describe.
pub(super) fn rules_permit(role: Role, attributes: &Attributes) -> bool {
    rules(role).iter().any(|rule| rule.covers(attributes))
}

/// Returns the permissions of a role, without [`self_reviews`].
pub(crate) fn rules(role: Role) -> &'static [Rule] {
    static RULES: LazyLock<BTreeMap<Role, Vec<Rule>>> =
        LazyLock::new(|| Role::ALL.into_iter().map(|role| (role, build_rules(role))).collect());
    RULES.get(&role).map_or(&[], Vec::as_slice)
}

fn build_rules(role: Role) -> Vec<Rule> {
    let mut rules = Vec::new();
    match role {
        Role::Viewer => rules.extend(viewer_rules()),
        Role::Metrics => rules.extend([Rule::of_paths(&["/metrics"]), Rule::of_paths(&HEALTH_PATHS)]),
        Role::Operator => {
            rules.extend(viewer_rules());
            rules.push(Rule::of(&["delete", "deletecollection"], GROUP, [Kind::Operation.plural()]));
            let actions = OperationAction::ALL.into_iter().filter(|action| !is_reserved_for_admin(*action));
            let actions = actions.map(|action| format!("{}/{action:?}", Kind::Operation.plural()));
            rules.push(Rule::of(&["create", "patch", "update"], GROUP, actions));
            let maintenance = format!("{}/maintenance", Kind::Node.plural());
            rules.push(Rule::of(&["patch", "update"], GROUP, [maintenance]));
        }
        Role::Editor => {
            rules.extend(viewer_rules());
            let kinds = [Kind::Resource, Kind::Group, Kind::AffinityRule, Kind::GitSync].map(Kind::plural);
            rules.push(Rule::of(&WRITE_VERBS, GROUP, kinds));
            // The leader writes the statuses of all other kinds.
            let status = format!("{}/status", Kind::GitSync.plural());
            rules.push(Rule::of(&["patch", "update"], GROUP, [status]));
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

/// Returns `true` if an action confirms a fact that hactl cannot check, so that a wrong confirmation can cause two
/// running copies, or if the action permits a node to use other data.
fn is_reserved_for_admin(action: OperationAction) -> bool {
    matches!(action, OperationAction::ConfirmFenced | OperationAction::Unfence | OperationAction::FollowStore)
}

/// Returns the permissions of every user: to read its own name and permissions.
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
    let other_verbs = [
        "nodes/certificates",
        "resources/explain",
        "resources/log",
        "balance",
        "history",
        "placement",
        "reservation",
        "state",
        "status",
        "usage",
    ];
    let paths = DISCOVERY_PATHS.into_iter().chain(HEALTH_PATHS).chain(["/metrics", "/state"]);
    vec![
        Rule::of(&READ_VERBS, GROUP, Kind::ALL.map(Kind::plural)),
        Rule::of(&["get"], GROUP, statuses.into_iter().chain(other_verbs.map(str::to_owned))),
        Rule::of(&["create"], GROUP, ["plan", "timing"]),
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

    /// Returns `true` if the rule permits the request that the attributes describe.
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
