//! Reviews of access and of the own identity (`kubectl auth can-i` and `whoami`), as JSON or as Kubernetes' protobuf.

use super::authentication::User;
use super::authorization::{Attributes, Rule, decide, rules, self_reviews};
use super::error::ApiError;
use super::request::{media_type, read_body};
use axum::Json;
use axum::extract::Request;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use ha_api_types::error_reason::ErrorReason;
use serde_json::{Value, json};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct AccessQuestion {
    attributes: Attributes,
    /// User and groups that a `SubjectAccessReview` asks about.
    user: String,
    groups: Vec<String>,
}

enum Body {
    Json(Value),
    Protobuf(Bytes),
}

/// Handles POST of a `SelfSubjectAccessReview`: whether the client has a permission.
pub(crate) async fn self_access(request: Request) -> Result<Response, ApiError> {
    let (user, body) = read_review(request).await?;
    let question = AccessQuestion::parse(&body)?;
    Ok(created(
        "SelfSubjectAccessReview",
        "authorization",
        &question.spec(),
        &access_status(&user, &question),
    ))
}

/// Handles POST of a `SubjectAccessReview`: whether a user has a permission.
pub(crate) async fn subject_access(request: Request) -> Result<Response, ApiError> {
    let (_, body) = read_review(request).await?;
    let question = AccessQuestion::parse(&body)?;
    if question.user.is_empty() && question.groups.is_empty() {
        return Err(ApiError::new(ErrorReason::Invalid, "spec.user: specify a user, or groups"));
    }
    let user = User::of_groups(&question.user, question.groups.clone());
    let mut spec = question.spec();
    spec["user"] = json!(question.user);
    spec["groups"] = json!(question.groups);
    Ok(created("SubjectAccessReview", "authorization", &spec, &access_status(&user, &question)))
}

/// Handles POST of a `SelfSubjectRulesReview`: all permissions of the client.
pub(crate) async fn self_rules(request: Request) -> Result<Response, ApiError> {
    let (user, _) = read_review(request).await?;
    let rules: Vec<&Rule> = user.roles.iter().flat_map(|role| rules(*role)).chain(self_reviews()).collect();
    let resource_rules: Vec<Value> = rules
        .iter()
        .filter(|rule| !rule.resources.is_empty())
        .map(|rule| json!({"verbs": rule.verbs, "apiGroups": [rule.group], "resources": rule.resources}))
        .chain(user.own_node_rule())
        .collect();
    let path_rules: Vec<Value> = rules
        .iter()
        .filter(|rule| !rule.paths.is_empty())
        .map(|rule| json!({"verbs": rule.verbs, "nonResourceURLs": rule.paths}))
        .collect();
    let status =
        json!({"resourceRules": resource_rules, "nonResourceRules": path_rules, "incomplete": false});
    Ok(created("SelfSubjectRulesReview", "authorization", &json!({}), &status))
}

/// Handles POST of a `SelfSubjectReview`: name and groups of the client.
pub(crate) async fn self_identity(request: Request) -> Result<Response, ApiError> {
    let (user, _) = read_review(request).await?;
    let status = json!({"userInfo": {"username": user.name, "groups": user.groups}});
    Ok(created("SelfSubjectReview", "authentication", &Value::Null, &status))
}

async fn read_review(request: Request) -> Result<(User, Body), ApiError> {
    let (parts, body) = request.into_parts();
    if parts.method != Method::POST {
        return Err(ApiError::method_not_allowed("method not allowed: use POST to create a review"));
    }
    let user = User::of_request(&parts);
    let bytes = read_body(body).await?;
    match media_type(&parts.headers) {
        "application/vnd.kubernetes.protobuf" => Ok((user, Body::Protobuf(bytes))),
        "application/json" => {
            let read =
                ha_api_types::document::json(&bytes).map_err(|error| ApiError::bad_request(error.message))?;
            Ok((user, Body::Json(read.value)))
        }
        other => {
            let accepted = ["application/json", "application/vnd.kubernetes.protobuf"];
            Err(ApiError::unsupported_media_type(other, &accepted))
        }
    }
}

/// Returns the answer to a review, which is stored nowhere.
fn created(kind: &str, group: &str, spec: &Value, status: &Value) -> Response {
    let mut review = json!({
        "kind": kind,
        "apiVersion": format!("{group}.k8s.io/v1"),
        "metadata": {},
        "status": status,
    });
    if !spec.is_null() {
        review["spec"] = spec.clone();
    }
    (StatusCode::CREATED, Json(review)).into_response()
}

fn access_status(user: &User, question: &AccessQuestion) -> Value {
    match decide(user, &question.attributes) {
        Ok(()) => json!({"allowed": true}),
        Err(reason) => json!({"allowed": false, "reason": reason}),
    }
}

impl AccessQuestion {
    fn parse(body: &Body) -> Result<AccessQuestion, ApiError> {
        match body {
            Body::Json(review) => Ok(AccessQuestion::from_json(review)),
            Body::Protobuf(bytes) => AccessQuestion::from_protobuf(bytes).ok_or_else(|| {
                ApiError::bad_request("request body is not a valid access review in protobuf")
            }),
        }
    }

    fn from_json(review: &Value) -> AccessQuestion {
        let text = |path: &str| review.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        let attribute = |name: &str| text(&format!("/spec/resourceAttributes/{name}"));
        let path = review.pointer("/spec/nonResourceAttributes/path").and_then(Value::as_str);
        let groups = review.pointer("/spec/groups").and_then(Value::as_array).into_iter().flatten();
        AccessQuestion {
            attributes: Attributes {
                verb: match path {
                    Some(_) => text("/spec/nonResourceAttributes/verb"),
                    None => attribute("verb"),
                },
                group: attribute("group"),
                resource: attribute("resource"),
                subresource: attribute("subresource"),
                name: attribute("name"),
                path: path.map(str::to_owned),
            },
            user: text("/spec/user"),
            groups: groups.filter_map(Value::as_str).map(str::to_owned).collect(),
        }
    }

    /// Reads a review from protobuf: `k8s\0`, then `runtime.Unknown` {2: raw}, and in it {2: spec}. The spec of a
    /// self-review has {1: resourceAttributes, 2: nonResourceAttributes}, that of a `SubjectAccessReview` also {3: user,
    /// 4: groups}. resourceAttributes has {2: verb, 3: group, 5: resource, 6: subresource, 7: name},
    /// nonResourceAttributes {1: path, 2: verb}.
    fn from_protobuf(bytes: &[u8]) -> Option<AccessQuestion> {
        let unknown = fields(bytes.strip_prefix(b"k8s\0")?)?;
        let raw = fields(last_field(&unknown, 2)?)?;
        let spec = fields(last_field(&raw, 2)?)?;
        let members = |number: u64| last_field(&spec, number).map(fields);
        let text = |members: &[(u64, &[u8])], number: u64| {
            last_field(members, number)
                .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
                .unwrap_or_default()
        };
        let attributes = match (members(1), members(2)) {
            (Some(object), _) => {
                let object = object?;
                Attributes {
                    verb: text(&object, 2),
                    group: text(&object, 3),
                    resource: text(&object, 5),
                    subresource: text(&object, 6),
                    name: text(&object, 7),
                    path: None,
                }
            }
            (None, Some(path)) => {
                let path = path?;
                Attributes { verb: text(&path, 2), path: Some(text(&path, 1)), ..Attributes::default() }
            }
            (None, None) => Attributes::default(),
        };
        let groups = spec.iter().filter(|(number, _)| *number == 4);
        Some(AccessQuestion {
            attributes,
            user: text(&spec, 3),
            groups: groups.map(|(_, bytes)| String::from_utf8_lossy(bytes).into_owned()).collect(),
        })
    }

    /// Returns the question as the spec of the answer.
    fn spec(&self) -> Value {
        let Attributes { verb, group, resource, subresource, name, path } = &self.attributes;
        match path {
            Some(path) => json!({"nonResourceAttributes": {"verb": verb, "path": path}}),
            None => json!({"resourceAttributes": {"verb": verb, "group": group, "resource": resource,
                "subresource": subresource, "name": name}}),
        }
    }
}

fn last_field<'a>(fields: &[(u64, &'a [u8])], number: u64) -> Option<&'a [u8]> {
    fields.iter().rev().find(|(field_number, _)| *field_number == number).map(|(_, bytes)| *bytes)
}

/// Returns the length-delimited fields of a protobuf message and skips numbers. `None` if the bytes are not valid
/// protobuf.
fn fields(mut bytes: &[u8]) -> Option<Vec<(u64, &[u8])>> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes)?;
        match tag & 7 {
            0 => {
                varint(&mut bytes)?;
            }
            1 => bytes = bytes.get(8..)?,
            2 => {
                let length = usize::try_from(varint(&mut bytes)?).ok()?;
                fields.push((tag >> 3, bytes.get(..length)?));
                bytes = bytes.get(length..)?;
            }
            5 => bytes = bytes.get(4..)?,
            _ => return None,
        }
    }
    Some(fields)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn length_delimited_field(number: u8, content: &[u8]) -> Vec<u8> {
        let mut bytes = vec![(number << 3) | 2, u8::try_from(content.len()).unwrap()];
        bytes.extend_from_slice(content);
        bytes
    }

    fn protobuf_review(spec: &[Vec<u8>]) -> Vec<u8> {
        let review = length_delimited_field(2, &spec.concat());
        let unknown = [length_delimited_field(1, b"type"), length_delimited_field(2, &review)].concat();
        [b"k8s\0".as_slice(), &unknown].concat()
    }

    #[test]
    fn access_reviews_are_decoded_from_protobuf() {
        let attributes = [
            length_delimited_field(2, b"create"),
            length_delimited_field(3, b"hactl.io"),
            length_delimited_field(5, b"resources"),
            length_delimited_field(6, b""),
            length_delimited_field(7, b"web"),
        ]
        .concat();
        let spec = [
            length_delimited_field(1, &attributes),
            length_delimited_field(3, b"ada"),
            length_delimited_field(4, b"hactl:editor"),
            length_delimited_field(4, b"staff"),
        ];
        let question = AccessQuestion::from_protobuf(&protobuf_review(&spec)).unwrap();
        let json = json!({"spec": {"user": "ada", "groups": ["hactl:editor", "staff"], "resourceAttributes":
            {"verb": "create", "group": "hactl.io", "resource": "resources", "name": "web"}}});
        assert_eq!(question, AccessQuestion::from_json(&json));
        let path = [length_delimited_field(1, b"/metrics"), length_delimited_field(2, b"get")].concat();
        let question =
            AccessQuestion::from_protobuf(&protobuf_review(&[length_delimited_field(2, &path)])).unwrap();
        let json = json!({"spec": {"nonResourceAttributes": {"path": "/metrics", "verb": "get"}}});
        assert_eq!(question, AccessQuestion::from_json(&json));
        assert_eq!(AccessQuestion::from_protobuf(b"k8s\0\x12\xff"), None);
    }

    proptest::proptest! {
        #[test]
        fn decoding_arbitrary_protobuf_never_panics(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..64)) {
            let _ = AccessQuestion::from_protobuf(&[b"k8s\0".as_slice(), &bytes].concat());
        }
    }
}
