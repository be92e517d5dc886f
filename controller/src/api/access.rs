//! SelfSubjectAccessReview (`kubectl auth can-i`), as JSON or as Kubernetes' protobuf.

use super::discovery;
use super::error::ApiError;
use super::request::{media_type, read_body};
use axum::Json;
use axum::extract::Request;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use ha_api_types::kind::{GROUP, Kind};
use serde_json::{Value, json};

/// The action that the client asks about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct AccessQuestion {
    verb: String,
    group: String,
    resource: String,
    subresource: String,
}

/// Handles `/apis/authorization.k8s.io/v1/selfsubjectaccessreviews`.
///
/// Every client of the API has all of its permissions. Actions that the API never allows, such as writing a status,
/// are denied.
pub(crate) async fn review(request: Request) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    if parts.method != Method::POST {
        return Err(ApiError::method_not_allowed("method not allowed: use POST to create a review"));
    }
    let bytes = read_body(body).await?;
    let (question, spec) = match media_type(&parts.headers) {
        "application/vnd.kubernetes.protobuf" => {
            let question = from_protobuf(&bytes).ok_or_else(|| {
                ApiError::bad_request("request body is not a valid SelfSubjectAccessReview in protobuf")
            })?;
            let spec = json!({"resourceAttributes": {"verb": question.verb, "group": question.group,
                "resource": question.resource, "subresource": question.subresource}});
            (question, spec)
        }
        "application/json" | "" => {
            let read =
                ha_api_types::document::json(&bytes).map_err(|error| ApiError::bad_request(error.message))?;
            (from_json(&read.value), read.value.get("spec").cloned().unwrap_or_else(|| json!({})))
        }
        other => {
            let accepted = ["application/json", "application/vnd.kubernetes.protobuf"];
            return Err(ApiError::unsupported_media_type(other, &accepted));
        }
    };
    let (allowed, reason) = decide(&question);
    let review = json!({
        "kind": "SelfSubjectAccessReview",
        "apiVersion": "authorization.k8s.io/v1",
        "metadata": {},
        "spec": spec,
        "status": {"allowed": allowed, "reason": reason},
    });
    Ok((StatusCode::CREATED, Json(review)).into_response())
}

fn decide(question: &AccessQuestion) -> (bool, &'static str) {
    let is_own_group = question.group == GROUP || question.group == "*";
    let is_any_verb = |verbs: &[&str]| question.verb == "*" || verbs.contains(&question.verb.as_str());
    let is_known_resource =
        question.resource == "*" || Kind::ALL.iter().any(|kind| kind.plural() == question.resource);
    if is_own_group && is_known_resource {
        return match question.subresource.as_str() {
            "" if is_any_verb(&discovery::VERBS) => (true, ""),
            "status" | "explain" if is_any_verb(&["get"]) && question.verb != "*" => (true, ""),
            "log" if has_log(&question.resource) && is_any_verb(&["get"]) && question.verb != "*" => {
                (true, "")
            }
            "status" => (false, "status is read-only: only the leader writes it"),
            _ => (false, "unknown verb or subresource"),
        };
    }
    let is_core_resource =
        matches!(question.resource.as_str(), "events" | "namespaces") && question.group.is_empty();
    if is_core_resource && is_any_verb(&["get", "list", "watch"]) && question.verb != "*" {
        return (true, "");
    }
    (false, "unknown resource")
}

/// Returns `true` if the objects of a kind, or of any kind, have the subresource `log`.
fn has_log(plural: &str) -> bool {
    plural == "*" || plural == Kind::Resource.plural()
}

fn from_json(review: &Value) -> AccessQuestion {
    let text = |name: &str| {
        review
            .pointer(&format!("/spec/resourceAttributes/{name}"))
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    AccessQuestion {
        verb: text("verb"),
        group: text("group"),
        resource: text("resource"),
        subresource: text("subresource"),
    }
}

/// Reads a review from protobuf: `k8s\0`, then runtime.Unknown {2: raw}, SelfSubjectAccessReview {2: spec}, spec {1:
/// resourceAttributes}, resourceAttributes {2: verb, 3: group, 5: resource, 6: subresource}.
fn from_protobuf(bytes: &[u8]) -> Option<AccessQuestion> {
    let unknown = fields(bytes.strip_prefix(b"k8s\0")?)?;
    let raw = fields(last_field(&unknown, 2)?)?;
    let spec = fields(last_field(&raw, 2)?)?;
    let Some(attributes) = last_field(&spec, 1) else { return Some(AccessQuestion::default()) };
    let attributes = fields(attributes)?;
    let text = |number: u64| {
        last_field(&attributes, number)
            .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
            .unwrap_or_default()
    };
    Some(AccessQuestion { verb: text(2), group: text(3), resource: text(5), subresource: text(6) })
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

    #[test]
    fn access_review_is_decoded_from_protobuf() {
        let attributes = [
            length_delimited_field(2, b"create"),
            length_delimited_field(3, b"hactl.io"),
            length_delimited_field(5, b"resources"),
            length_delimited_field(6, b""),
        ]
        .concat();
        let review = length_delimited_field(2, &length_delimited_field(1, &attributes));
        let unknown = [length_delimited_field(1, b"type"), length_delimited_field(2, &review)].concat();
        let question = from_protobuf(&[b"k8s\0".as_slice(), &unknown].concat()).unwrap();
        assert_eq!((question.verb.as_str(), question.resource.as_str()), ("create", "resources"));
        assert!(decide(&question).0);
        assert_eq!(from_protobuf(b"k8s\0\x12\xff"), None);
    }

    #[test]
    fn actions_that_the_api_never_allows_are_denied() {
        let ask = |verb: &str, resource: &str, subresource: &str| {
            let group = if resource == "events" { "" } else { GROUP };
            decide(&AccessQuestion {
                verb: verb.to_owned(),
                group: group.to_owned(),
                resource: resource.to_owned(),
                subresource: subresource.to_owned(),
            })
            .0
        };
        assert!(ask("*", "resources", "") && ask("get", "resources", "status") && ask("list", "events", ""));
        assert!(ask("get", "resources", "log"));
        assert!(!ask("get", "nodes", "log") && !ask("create", "resources", "log"));
        assert!(
            !ask("update", "resources", "status") && !ask("delete", "events", "") && !ask("get", "pods", "")
        );
    }

    proptest::proptest! {
        #[test]
        fn decoding_arbitrary_protobuf_never_panics(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..64)) {
            let _ = from_protobuf(&[b"k8s\0".as_slice(), &bytes].concat());
        }
    }
}
