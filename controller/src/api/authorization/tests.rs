//! Tests of the roles: each with its permissions, and with those of the others.

use super::*;
use crate::api::authentication::AuthorizationMode;
use axum::http::Method;
use ha_api_types::kind::Kind;
use ha_runtime::tls::ClientIdentity;

fn user(name: &str, roles: &[Role]) -> User {
    User::of_groups(name, roles.iter().map(|role| role.group()).collect())
}

fn attributes(verb: &str, target: &str) -> Attributes {
    if target.starts_with('/') {
        return Attributes { verb: verb.to_owned(), path: Some(target.to_owned()), ..Attributes::default() };
    }
    let (group, target) = target.split_once(':').unwrap_or(("hactl.io", target));
    let mut parts = target.split('/');
    let mut next = || parts.next().unwrap_or_default().to_owned();
    Attributes {
        verb: verb.to_owned(),
        resource: next(),
        subresource: next(),
        name: next(),
        group: group.to_owned(),
        path: None,
    }
}

/// Checks the roles that have a permission. The role admin has all of them.
#[track_caller]
fn check(verb: &str, target: &str, roles: &[Role]) {
    for role in Role::ALL {
        let expected = role == Role::Admin || roles.contains(&role);
        let decision = decide(&user("ada", &[role]), &attributes(verb, target));
        assert_eq!(decision.is_ok(), expected, "{} may {verb} {target}: {decision:?}", role.name());
    }
}

#[test]
fn each_role_has_its_permissions_only() {
    use Role::{Controller, Editor, Metrics, Operator, Viewer};
    let readers = [Viewer, Operator, Editor];
    for kind in Kind::ALL {
        for verb in ["get", "list", "watch"] {
            check(verb, kind.plural(), &readers);
        }
        check("get", &format!("{}/status", kind.plural()), &readers);
    }
    for verb in ["create", "update", "patch", "delete", "deletecollection"] {
        for plural in ["resources", "groups", "affinityrules", "gitsyncs"] {
            check(verb, plural, &[Editor]);
        }
        for plural in ["nodes", "nodegroups", "clusters"] {
            check(verb, plural, &[]);
        }
    }
    for action in ["Start", "Stop", "Migrate", "ClearError", "Fence", "TestWatchdog", "UpdateInPlace"] {
        check("create", &format!("operations/{action}"), &[Operator]);
    }
    for action in ["ConfirmFenced", "Unfence", "FollowStore"] {
        check("create", &format!("operations/{action}"), &[]);
    }
    check("patch", "gitsyncs/status", &[Editor]);
    check("create", "operations", &[Operator]);
    check("delete", "operations", &[Operator]);
    check("patch", "nodes/maintenance", &[Operator]);
    check("get", "resources/log", &readers);
    check("get", "status", &readers);
    check("create", "plan", &readers);
    check("create", "timing", &readers);
    check("get", "balance", &readers);
    check("get", "history", &readers);
    check("get", "audit", &[]);
    check("delete", "controllers", &[]);
    check("list", ":events", &readers);
    check("get", "/version", &readers);
    check("get", "/apis/hactl.io/v1", &readers);
    check("get", "/metrics", &[Viewer, Operator, Editor, Metrics]);
    check("get", "/livez", &[Viewer, Operator, Editor, Metrics, Controller]);
    check("get", "/state", &readers);
    check("*", "*:*", &[]);
    check("create", "authorization.k8s.io:subjectaccessreviews", &[]);
}

#[test]
fn every_user_may_ask_for_its_own_permissions() {
    for review in [
        "authorization.k8s.io:selfsubjectaccessreviews",
        "authorization.k8s.io:selfsubjectrulesreviews",
        "authentication.k8s.io:selfsubjectreviews",
    ] {
        assert_eq!(decide(&user("ada", &[]), &attributes("create", review)), Ok(()));
    }
}

#[test]
fn actions_that_the_api_does_not_have_are_refused_to_everybody() {
    for (verb, target) in [
        ("update", "resources/status"),
        ("create", "resources/log"),
        ("get", "nodes/log"),
        ("delete", ":events"),
        ("get", ":pods"),
        ("create", "operations/Explode"),
        ("get", "apps:deployments"),
    ] {
        assert!(decide(&user("ada", &[Role::Admin]), &attributes(verb, target)).is_err(), "{verb} {target}");
    }
}

#[test]
fn only_a_nodes_own_certificate_may_request_a_hold() {
    let hold = attributes("create", "nodes/hold/node1");
    let may_hold = |user: &User| decide(user, &hold).is_ok();
    assert!(may_hold(&user("node1", &[Role::Node])));
    assert!(!may_hold(&user("node10", &[Role::Node])));
    assert!(!may_hold(&user("node1", &[Role::Controller])));
    assert!(!may_hold(&user("admin", &[Role::Admin])));
    let certificate = ClientIdentity::Certificate { name: "node1".to_owned(), groups: Vec::new() };
    let user_of = |identity: &ClientIdentity, mode| User::of_identity(identity, mode).unwrap();
    assert!(!may_hold(&user_of(&certificate, AuthorizationMode::Roles)));
    assert!(may_hold(&user_of(&certificate, AuthorizationMode::AlwaysAllow)));
    assert!(may_hold(&user_of(&ClientIdentity::Loopback, AuthorizationMode::Roles)));
    assert!(!may_hold(&user_of(&ClientIdentity::LocalUser { uid: 0 }, AuthorizationMode::Roles)));
}

#[test]
fn only_a_nodes_own_certificate_may_be_renewed() {
    let renewal = attributes("create", "nodes/certificate/node1");
    let may_renew = |user: &User| decide(user, &renewal).is_ok();
    assert!(may_renew(&user("node1", &[Role::Node])));
    for (name, role) in [("node10", Role::Node), ("node1", Role::Viewer), ("admin", Role::Admin)] {
        assert!(!may_renew(&user(name, &[role])), "{name}");
    }
    let local = User::of_identity(&ClientIdentity::Loopback, AuthorizationMode::Roles).unwrap();
    assert!(!may_renew(&local));
}

#[test]
fn only_an_administrator_creates_join_tokens() {
    let token = attributes("create", "nodes/jointoken/node1");
    for role in Role::ALL {
        assert_eq!(decide(&user("node1", &[role]), &token).is_ok(), role == Role::Admin, "{role}");
    }
    // The token in the body is the permission to join.
    assert!(decide(&user("anyone", &[]), &attributes("create", "nodes/join/node1")).is_ok());
}

#[test]
fn a_refusal_names_user_verb_and_group() {
    let refused = require(&user("ada", &[Role::Viewer]), &attributes("patch", "resources//web"));
    let message = refused.unwrap_err().to_string();
    for part in [
        "resources.hactl.io \"web\" is forbidden",
        "User \"ada\" cannot patch",
        "hactl:editor or hactl:admin",
    ] {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn a_refused_operation_names_the_roles_that_may_request_one() {
    let refused = |target: &str| {
        require(&user("ada", &[Role::Viewer]), &attributes("create", target)).unwrap_err().to_string()
    };
    assert!(refused("operations").ends_with("required group: hactl:operator or hactl:admin"));
    assert!(refused("operations/ConfirmFenced").ends_with("required group: hactl:admin"));
}

#[test]
fn requester_is_the_certificate_common_name() {
    let name_of = |identity: &ClientIdentity| {
        User::of_identity(identity, AuthorizationMode::Roles).map(|user| user.name).unwrap_or_default()
    };
    assert_eq!(name_of(&ClientIdentity::Loopback), "loopback");
    assert_eq!(name_of(&ClientIdentity::LocalUser { uid: 0 }), "root");
    let groups = vec!["operators".to_owned()];
    assert_eq!(name_of(&ClientIdentity::Certificate { name: "ada".to_owned(), groups }), "ada");
    assert_eq!(name_of(&ClientIdentity::Anonymous), "");
}

#[test]
fn groups_without_the_prefix_select_no_role() {
    for group in ["admin", "hactl", "hactl:", "hactl:root", "HACTL:admin", "system:masters"] {
        assert_eq!(Role::of_group(group), None, "{group}");
    }
    assert_eq!(Role::of_group("hactl:editor"), Some(Role::Editor));
}

#[track_caller]
fn check_route(route: &str, method: &Method, parameters: &[(&str, &str)], verb: &str, target: &str) {
    assert_eq!(
        Attributes::of_route(route, method, false, parameters),
        attributes(verb, target),
        "{method} {route}"
    );
}

#[test]
fn routes_have_the_verbs_of_kubernetes() {
    let object = "/apis/hactl.io/v1/{plural}/{name}";
    let web = [("plural", "resources"), ("name", "web")];
    check_route(object, &Method::GET, &web, "get", "resources//web");
    check_route(object, &Method::PUT, &web, "update", "resources//web");
    check_route(object, &Method::PATCH, &web, "patch", "resources//web");
    check_route(object, &Method::DELETE, &web, "delete", "resources//web");
    let collection = "/apis/hactl.io/v1/{plural}";
    let plural = [("plural", "nodes")];
    check_route(collection, &Method::GET, &plural, "list", "nodes");
    check_route(collection, &Method::HEAD, &plural, "list", "nodes");
    check_route(collection, &Method::POST, &plural, "create", "nodes");
    check_route(collection, &Method::DELETE, &plural, "deletecollection", "nodes");
    assert_eq!(Attributes::of_route(collection, &Method::GET, true, &plural).verb, "watch");
    check_route(
        "/apis/hactl.io/v1/nodes/{name}/hold",
        &Method::POST,
        &[("name", "n1")],
        "create",
        "nodes/hold/n1",
    );
    check_route(
        "/apis/hactl.io/v1/{plural}/{name}/status",
        &Method::GET,
        &web,
        "get",
        "resources/status/web",
    );
    check_route("/apis/hactl.io/v1/status", &Method::GET, &[], "get", "status");
    check_route("/apis/hactl.io/v1/plan", &Method::POST, &[], "create", "plan");
    check_route(
        "/apis/hactl.io/v1/controllers/{id}",
        &Method::DELETE,
        &[("id", "c1")],
        "delete",
        "controllers//c1",
    );
    check_route("/apis/hactl.io/v1/events/stream", &Method::GET, &[], "watch", ":events");
    let event = "/api/v1/namespaces/{name}/events/{event}";
    check_route(event, &Method::GET, &[("name", "default"), ("event", "e1")], "get", ":events//e1");
    check_route("/api/v1/namespaces", &Method::GET, &[], "list", ":namespaces");
    check_route("/api/v1/events", &Method::GET, &[], "list", ":events");
    check_route("/apis/hactl.io/v1", &Method::GET, &[], "get", "/apis/hactl.io/v1");
    check_route("/metrics", &Method::HEAD, &[], "get", "/metrics");
    check_route(
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        &Method::POST,
        &[],
        "create",
        "authorization.k8s.io:selfsubjectaccessreviews",
    );
}
