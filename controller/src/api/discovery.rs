//! Discovery of groups, versions and kinds, in the legacy and the aggregated form.

use super::error::ApiError;
use super::request::{ResponseFormat, negotiate_format, not_acceptable};
use axum::Json;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use ha_api_types::kind::{API_VERSION, GROUP, Kind, VERSION};
use serde_json::{Value, json};

/// Verbs that each kind supports.
pub(crate) const VERBS: [&str; 8] =
    ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// Handles `/api`.
pub(crate) fn core_versions(headers: &HeaderMap) -> Result<Response, ApiError> {
    negotiated_response(
        headers,
        aggregated_core,
        || json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}),
    )
}

/// Handles `/apis`.
pub(crate) fn groups(headers: &HeaderMap) -> Result<Response, ApiError> {
    negotiated_response(
        headers,
        aggregated_groups,
        || json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": [group(), authorization_group(), authentication_group()]}),
    )
}

/// Returns the group of `/apis/hactl.io`.
pub(crate) fn group() -> Value {
    group_of(GROUP)
}

/// Returns the group of `/apis/authorization.k8s.io`.
pub(crate) fn authorization_group() -> Value {
    group_of("authorization.k8s.io")
}

/// Returns the group of `/apis/authentication.k8s.io`.
pub(crate) fn authentication_group() -> Value {
    group_of("authentication.k8s.io")
}

fn group_of(name: &str) -> Value {
    let version = json!({"groupVersion": format!("{name}/v1"), "version": "v1"});
    json!({"kind": "APIGroup", "apiVersion": "v1", "name": name, "versions": [version], "preferredVersion": version})
}

/// Returns the resource list of `/apis/hactl.io/v1`.
pub(crate) fn resources() -> Value {
    let mut resources = Vec::new();
    for kind in Kind::ALL {
        let mut entry = json!({
            "name": kind.plural(),
            "singularName": kind.singular(),
            "namespaced": false,
            "kind": kind.name(),
            "verbs": VERBS,
            "categories": kind.categories(),
        });
        if !kind.short().is_empty() {
            entry["shortNames"] = json!([kind.short()]);
        }
        resources.push(entry);
        resources.push(json!({
            "name": format!("{}/status", kind.plural()),
            "singularName": "",
            "namespaced": false,
            "kind": kind.name(),
            "verbs": ["get"],
        }));
        if kind == Kind::Resource {
            resources.push(json!({
                "name": format!("{}/log", kind.plural()),
                "singularName": "",
                "namespaced": false,
                "kind": kind.name(),
                "verbs": ["get"],
            }));
        }
    }
    resource_list(API_VERSION, &resources)
}

/// Returns the resource list of `/api/v1`.
pub(crate) fn core_resources() -> Value {
    resource_list(
        "v1",
        &[
            json!({"name": "events", "singularName": "event", "namespaced": true, "kind": "Event",
                "verbs": ["get", "list", "watch"], "shortNames": ["ev"]}),
            json!({"name": "namespaces", "singularName": "namespace", "namespaced": false, "kind": "Namespace",
                "verbs": ["get", "list"], "shortNames": ["ns"]}),
        ],
    )
}

/// Reviews of `authorization.k8s.io` and of `authentication.k8s.io`: the kind, and the resource.
const AUTHORIZATION_REVIEWS: [(&str, &str); 3] = [
    ("SelfSubjectAccessReview", "selfsubjectaccessreviews"),
    ("SelfSubjectRulesReview", "selfsubjectrulesreviews"),
    ("SubjectAccessReview", "subjectaccessreviews"),
];
const AUTHENTICATION_REVIEWS: [(&str, &str); 1] = [("SelfSubjectReview", "selfsubjectreviews")];

/// Returns the resource list of `/apis/authorization.k8s.io/v1`.
pub(crate) fn authorization_resources() -> Value {
    review_list("authorization.k8s.io/v1", &AUTHORIZATION_REVIEWS)
}

/// Returns the resource list of `/apis/authentication.k8s.io/v1`.
pub(crate) fn authentication_resources() -> Value {
    review_list("authentication.k8s.io/v1", &AUTHENTICATION_REVIEWS)
}

fn review_list(group_version: &str, reviews: &[(&str, &str)]) -> Value {
    let resources: Vec<Value> = reviews
        .iter()
        .map(|(kind, plural)| {
            json!({"name": plural, "singularName": kind.to_lowercase(), "namespaced": false, "kind": kind,
                "verbs": ["create"]})
        })
        .collect();
    resource_list(group_version, &resources)
}

fn resource_list(group_version: &str, resources: &[Value]) -> Value {
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources})
}

/// Returns the aggregated form if the client accepts it, and the legacy form otherwise.
fn negotiated_response(
    headers: &HeaderMap,
    aggregated: fn() -> Value,
    plain: impl Fn() -> Value,
) -> Result<Response, ApiError> {
    let mut response = match negotiate_format(headers, &[ResponseFormat::Discovery, ResponseFormat::Plain])
        .ok_or_else(not_acceptable)?
    {
        ResponseFormat::Discovery => {
            let mut response = Json(aggregated()).into_response();
            let content_type = HeaderValue::from_static(
                "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
            );
            response.headers_mut().insert(header::CONTENT_TYPE, content_type);
            response
        }
        ResponseFormat::Plain | ResponseFormat::Table | ResponseFormat::PartialMetadata => {
            Json(plain()).into_response()
        }
    };
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept"));
    Ok(response)
}

fn aggregated_list(items: &Value) -> Value {
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items})
}

/// Returns the aggregated entry of one resource.
fn entry(group: &str, kind: &str, names: (&str, &str), scope: &str, verbs: &[&str], short: &[&str]) -> Value {
    json!({
        "resource": names.0,
        "responseKind": {"group": group, "version": "v1", "kind": kind},
        "scope": scope,
        "singularResource": names.1,
        "verbs": verbs,
        "shortNames": short,
    })
}

fn version(resources: &[Value]) -> Value {
    json!([{"version": VERSION, "freshness": "Current", "resources": resources}])
}

fn aggregated_groups() -> Value {
    let resources: Vec<Value> = Kind::ALL
        .iter()
        .map(|kind| {
            let short: Vec<&str> = [kind.short()].into_iter().filter(|short| !short.is_empty()).collect();
            let mut entry =
                entry(GROUP, kind.name(), (kind.plural(), kind.singular()), "Cluster", &VERBS, &short);
            entry["categories"] = json!(kind.categories());
            let names: &[&str] = if *kind == Kind::Resource { &["status", "log"] } else { &["status"] };
            let subresources = names.iter().map(|name| {
                json!({
                    "subresource": name,
                    "responseKind": {"group": GROUP, "version": VERSION, "kind": kind.name()},
                    "verbs": ["get"],
                })
            });
            entry["subresources"] = subresources.collect();
            entry
        })
        .collect();
    let reviews = |group: &str, reviews: &[(&str, &str)]| {
        let entries: Vec<Value> = reviews
            .iter()
            .map(|(kind, plural)| {
                entry(group, kind, (plural, &kind.to_lowercase()), "Cluster", &["create"], &[])
            })
            .collect();
        json!({"metadata": {"name": group}, "versions": version(&entries)})
    };
    aggregated_list(&json!([
        {"metadata": {"name": GROUP}, "versions": version(&resources)},
        reviews("authorization.k8s.io", &AUTHORIZATION_REVIEWS),
        reviews("authentication.k8s.io", &AUTHENTICATION_REVIEWS),
    ]))
}

fn aggregated_core() -> Value {
    let resources = [
        entry("", "Event", ("events", "event"), "Namespaced", &["get", "list", "watch"], &["ev"]),
        entry("", "Namespace", ("namespaces", "namespace"), "Cluster", &["get", "list"], &["ns"]),
    ];
    aggregated_list(&json!([{"metadata": {"name": ""}, "versions": version(&resources)}]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_category_all_contains_resources_and_groups_only() {
        let plain = resources();
        let aggregated = aggregated_groups();
        let names = |list: &Value, name: &str| -> Vec<String> {
            let in_all = |resource: &&Value| {
                resource["categories"].as_array().is_some_and(|all| all.contains(&json!("all")))
            };
            let entries = list.as_array().into_iter().flatten();
            entries.filter(in_all).filter_map(|resource| resource[name].as_str().map(str::to_owned)).collect()
        };
        assert_eq!(names(&plain["resources"], "name"), ["groups", "resources"]);
        let hactl = aggregated["items"]
            .as_array()
            .into_iter()
            .flatten()
            .find(|group| group["metadata"]["name"] == GROUP);
        let listed = hactl.map(|group| names(&group["versions"][0]["resources"], "resource"));
        assert_eq!(listed.unwrap_or_default(), ["groups", "resources"]);
    }
}
