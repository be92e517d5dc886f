//! Attributes of a request that its authorization depends on, as in a Kubernetes `SubjectAccessReview`.

use crate::api::discovery;
use crate::api::request::Parameters;
use axum::extract::{FromRequestParts, MatchedPath, RawPathParams};
use axum::http::Method;
use axum::http::request::Parts;
use ha_api_types::kind::{GROUP, Kind};
use ha_api_types::operation::OperationAction;

/// Resources of this API that are not kinds, with the only verb of each.
const RESOURCES_WITH_ONE_VERB: [(&str, &str); 11] = [
    ("audit", "get"),
    ("balance", "get"),
    ("controllers", "delete"),
    ("history", "get"),
    ("placement", "get"),
    ("plan", "create"),
    ("reservation", "get"),
    ("state", "get"),
    ("status", "get"),
    ("timing", "create"),
    ("usage", "get"),
];

/// Verb and target of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Attributes {
    pub(crate) verb: String,
    /// API group; empty for the core group.
    pub(crate) group: String,
    /// Plural name of a kind.
    pub(crate) resource: String,
    pub(crate) subresource: String,
    /// Name of the object; empty for a collection.
    pub(crate) name: String,
    /// Path of a request that concerns no resource. The other fields except `verb` are then empty.
    pub(crate) path: Option<String>,
}

impl Attributes {
    pub(crate) fn of_object(verb: &str, kind: Kind, subresource: &str, name: &str) -> Attributes {
        Attributes {
            verb: verb.to_owned(),
            group: GROUP.to_owned(),
            resource: kind.plural().to_owned(),
            subresource: subresource.to_owned(),
            name: name.to_owned(),
            path: None,
        }
    }

    /// Returns the attributes of a request; `None` if no route has its path, so that the answer is 404.
    pub(crate) async fn of_request(parts: &mut Parts) -> Option<Attributes> {
        let route = parts.extensions.get::<MatchedPath>().cloned()?;
        let parameters = RawPathParams::from_request_parts(parts, &()).await.ok()?;
        let parameters: Vec<(&str, &str)> = parameters.iter().collect();
        // The handler refuses a request with invalid parameters.
        let watches = Parameters::of(&parts.uri).is_ok_and(|parameters| parameters.watch);
        Some(Attributes::of_route(route.as_str(), &parts.method, watches, &parameters))
    }

    /// Returns the attributes of a method on a route, such as `/apis/hactl.io/v1/{plural}/{name}`.
    pub(super) fn of_route(
        route: &str,
        method: &Method,
        watches: bool,
        parameters: &[(&str, &str)],
    ) -> Attributes {
        let value_of = |segment: &str| {
            let name = segment.strip_prefix('{').and_then(|segment| segment.strip_suffix('}'));
            let value =
                name.and_then(|name| parameters.iter().find(|(parameter_name, _)| *parameter_name == name));
            value.map_or(segment, |(_, value)| *value).to_owned()
        };
        let segments: Vec<String> = route.split('/').skip(1).map(value_of).collect();
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        let (group, target) = match segments.as_slice() {
            ["api", "v1", "namespaces", _, target @ ..] if !target.is_empty() => ("", target),
            ["api", "v1", target @ ..] => ("", target),
            ["apis", group, "v1", target @ ..] => (*group, target),
            _ => ("", [].as_slice()),
        };
        let (resource, name, subresource) = match target {
            ["events", "stream"] => return Attributes::of_stream(),
            [resource] => (*resource, "", ""),
            [resource, name] => (*resource, *name, ""),
            [resource, name, subresource] => (*resource, *name, *subresource),
            _ => {
                let verb =
                    if method == Method::HEAD { "get".to_owned() } else { method.as_str().to_lowercase() };
                return Attributes {
                    verb,
                    path: Some(format!("/{}", segments.join("/"))),
                    ..Attributes::default()
                };
            }
        };
        let has_single_verb =
            group == GROUP && RESOURCES_WITH_ONE_VERB.iter().any(|(single, _)| *single == resource);
        let verb = match *method {
            Method::GET | Method::HEAD if has_single_verb || !name.is_empty() => "get",
            Method::GET | Method::HEAD if watches => "watch",
            Method::GET | Method::HEAD => "list",
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE if name.is_empty() => "deletecollection",
            Method::DELETE => "delete",
            _ => "unknown",
        };
        Attributes {
            verb: verb.to_owned(),
            group: group.to_owned(),
            resource: resource.to_owned(),
            subresource: subresource.to_owned(),
            name: name.to_owned(),
            path: None,
        }
    }

    /// Returns the attributes of the stream of events, which is a watch.
    fn of_stream() -> Attributes {
        Attributes { verb: "watch".to_owned(), resource: "events".to_owned(), ..Attributes::default() }
    }

    /// Returns the resource as in a rule: `nodes`, or `nodes/status`.
    pub(super) fn resource_with_subresource(&self) -> String {
        if self.subresource.is_empty() {
            self.resource.clone()
        } else {
            format!("{}/{}", self.resource, self.subresource)
        }
    }

    /// Returns `true` for an agent's request for an etcd-outage hold, whose permission depends on the user's name.
    pub(crate) fn is_hold_request(&self) -> bool {
        self.is_of_node("hold")
    }

    /// Returns `true` for a request of a new machine with a join token, which has no other identity.
    pub(crate) fn is_join(&self) -> bool {
        self.is_of_node("join")
    }

    /// Returns `true` for an agent's request for a new certificate, whose permission depends on the user's name.
    pub(crate) fn is_renewal(&self) -> bool {
        self.is_of_node("certificate")
    }

    /// Returns `true` if the response waits for an agent or for the core. Such requests have limits of their own.
    pub(crate) fn has_separate_limit(&self) -> bool {
        let is_log = self.resource == Kind::Resource.plural() && self.subresource == "log";
        is_log || self.is_hold_request()
    }

    fn is_of_node(&self, subresource: &str) -> bool {
        self.group == GROUP && self.resource == Kind::Node.plural() && self.subresource == subresource
    }

    /// Returns `true` if the attributes name no action of an operation.
    pub(super) fn is_operation_without_action(&self) -> bool {
        self.group == GROUP && self.resource == Kind::Operation.plural() && self.subresource.is_empty()
    }

    /// Returns the permissions of which one suffices for the handler to run. The handler decides again, by the content:
    /// the action of an operation, or the fields of a node that change.
    pub(super) fn sufficient_attributes(&self) -> Vec<Attributes> {
        let with_subresource =
            |subresource: &str| Attributes { subresource: subresource.to_owned(), ..self.clone() };
        let is_write = matches!(self.verb.as_str(), "create" | "update" | "patch");
        if self.group != GROUP || !self.subresource.is_empty() || !is_write {
            return vec![self.clone()];
        }
        if self.is_operation_without_action() {
            return OperationAction::ALL
                .iter()
                .map(|action| with_subresource(&format!("{action:?}")))
                .collect();
        }
        if self.resource == Kind::Node.plural() {
            return vec![self.clone(), with_subresource("maintenance")];
        }
        vec![self.clone()]
    }

    /// Refuses what no user can do, because the API has no such resource or verb.
    pub(crate) fn check_resource_and_verb(&self) -> Result<(), String> {
        if self.path.is_some() || self.resource == "*" {
            return Ok(());
        }
        let verbs: Vec<&str> = match (self.group.as_str(), self.resource.as_str(), self.subresource.as_str())
        {
            (GROUP | "*", "gitsyncs", "status") => vec!["get", "patch", "update"],
            (GROUP | "*", _, "status") if self.kind().is_some() && self.verb != "get" => {
                return Err("status is read-only: only the leader writes it".to_owned());
            }
            (GROUP | "*", _, "status") if self.kind().is_some() => vec!["get"],
            (GROUP | "*", "resources", "explain" | "log") | (GROUP | "*", "nodes", "certificates") => {
                vec!["get"]
            }
            (GROUP | "*", "nodes", "hold" | "certificate" | "jointoken")
            | ("authorization.k8s.io" | "authentication.k8s.io", _, "") => {
                vec!["create"]
            }
            (GROUP | "*", "nodes", "join") => vec!["create", "get"],
            (GROUP | "*", "nodes", "maintenance") => vec!["patch", "update"],
            (GROUP | "*", "operations", action) if is_operation_action(action) => {
                vec!["create", "patch", "update"]
            }
            (GROUP | "*", resource, "") if self.kind().is_some() && !resource.is_empty() => {
                discovery::VERBS.into_iter().chain(["*"]).collect()
            }
            (GROUP | "*", resource, "") => RESOURCES_WITH_ONE_VERB
                .iter()
                .filter(|(single, _)| *single == resource)
                .map(|(_, verb)| *verb)
                .collect(),
            ("", "events" | "namespaces", "") => vec!["get", "list", "watch"],
            _ => Vec::new(),
        };
        if verbs.is_empty() {
            return Err("unknown resource".to_owned());
        }
        if verbs.contains(&self.verb.as_str()) {
            Ok(())
        } else {
            Err("unknown verb or subresource".to_owned())
        }
    }

    fn kind(&self) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.plural() == self.resource)
    }

    /// Returns the beginning of a refusal, as in Kubernetes: `nodes.hactl.io "node1" is forbidden: `.
    pub(super) fn refusal_prefix(&self) -> String {
        if self.path.is_some() {
            return "forbidden: ".to_owned();
        }
        let dot = if self.group.is_empty() { "" } else { "." };
        let name = if self.name.is_empty() { String::new() } else { format!(" {:?}", self.name) };
        format!("{}{dot}{}{name} is forbidden: ", self.resource, self.group)
    }

    /// Returns the refusal as in Kubernetes, with the name of the user, the verb and the resource.
    pub(super) fn refusal_message(&self, user: &str) -> String {
        match &self.path {
            Some(path) => format!("User {user:?} cannot {} path {path:?}", self.verb),
            None => format!(
                "User {user:?} cannot {} resource {:?} in API group {:?}",
                self.verb,
                self.resource_with_subresource(),
                self.group
            ),
        }
    }
}

fn is_operation_action(name: &str) -> bool {
    OperationAction::ALL.iter().any(|action| format!("{action:?}") == name)
}
