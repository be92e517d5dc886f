//! Three-way merge: the patch that makes an object match a file, without changing fields of other writers.

use serde_json::{Map, Value};

/// Annotation with the last applied form of an object. The name is kubectl's, so that both tools can be used alternately.
pub(crate) const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Removes the last applied form from an object.
pub(crate) fn remove_last_applied(object: &mut Value) {
    if let Some(annotations) = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.remove(LAST_APPLIED);
    }
}

/// Adds the object itself as the annotation, formatted as kubectl does, so that neither tool treats the other's format
/// as a change.
pub(crate) fn with_last_applied(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut)
        && !metadata.get("annotations").is_some_and(Value::is_object)
    {
        metadata.insert("annotations".to_owned(), Value::Object(Map::new()));
    }
    remove_last_applied(&mut object);
    let text = format!("{}\n", with_sorted_fields(&object));
    if let Some(annotations) = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.insert(LAST_APPLIED.to_owned(), Value::String(text));
    }
    object
}

/// Returns the value with all fields sorted by name.
pub(crate) fn with_sorted_fields(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut fields: Vec<(&String, &Value)> = map.iter().collect();
            fields.sort_by_key(|(name, _)| name.as_str());
            Value::Object(
                fields.into_iter().map(|(name, value)| (name.clone(), with_sorted_fields(value))).collect(),
            )
        }
        Value::Array(parts) => Value::Array(parts.iter().map(with_sorted_fields).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

/// Returns the last applied form of a live object; `None` if it has none.
pub(crate) fn last_applied(live: &Value) -> Option<Value> {
    let text = live.pointer("/metadata/annotations")?.get(LAST_APPLIED)?.as_str()?;
    serde_json::from_str(text).ok()
}

/// Returns the merge patch (RFC 7396) from `live` to `desired`. The patch sets changed fields, and removes fields that
/// were in the last apply and are no longer in the file. Fields that only other writers set stay. An empty map means no
/// change.
pub(crate) fn merge_patch(last: Option<&Value>, desired: &Value, live: &Value) -> Value {
    let mut desired = desired.clone();
    // Other writers also own labels and annotations, so theirs must stay even if the file has none.
    for map_name in ["labels", "annotations"] {
        let metadata = desired.get_mut("metadata").and_then(Value::as_object_mut);
        if let Some(metadata) = metadata.filter(|metadata| !metadata.contains_key(map_name))
            && live.pointer("/metadata").is_some_and(|metadata| metadata[map_name].is_object())
        {
            metadata.insert(map_name.to_owned(), Value::Object(Map::new()));
        }
    }
    let desired = &desired;
    let mut patch = difference(desired, live);
    if let Some(last) = last {
        add_removals(last, desired, live, &mut patch);
    }
    // The request's URL already determines both fields.
    for field in ["apiVersion", "kind"] {
        patch.remove(field);
    }
    Value::Object(patch)
}

fn difference(desired: &Value, live: &Value) -> Map<String, Value> {
    let mut patch = Map::new();
    for (field, value) in desired.as_object().into_iter().flatten() {
        match (value, live.get(field)) {
            (Value::Null, None) => {}
            (Value::Object(_), Some(existing @ Value::Object(_))) => {
                let inner = difference(value, existing);
                if !inner.is_empty() {
                    patch.insert(field.clone(), Value::Object(inner));
                }
            }
            (value, Some(existing)) if are_equal(value, existing) => {}
            (value, _) => {
                patch.insert(field.clone(), value.clone());
            }
        }
    }
    patch
}

fn add_removals(last: &Value, desired: &Value, live: &Value, patch: &mut Map<String, Value>) {
    for (field, value) in last.as_object().into_iter().flatten() {
        let Some(existing) = live.get(field) else { continue };
        match desired.get(field) {
            None => {
                patch.insert(field.clone(), Value::Null);
            }
            Some(desired_value) if value.is_object() && desired_value.is_object() && existing.is_object() => {
                let mut inner = match patch.remove(field) {
                    Some(Value::Object(inner)) => inner,
                    _ => Map::new(),
                };
                add_removals(value, desired_value, existing, &mut inner);
                if !inner.is_empty() {
                    patch.insert(field.clone(), Value::Object(inner));
                }
            }
            Some(_) => {}
        }
    }
}

/// Returns `true` if two values are equal; 1 and 1.0 are the same number.
fn are_equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left_number), Value::Number(right_number)) => {
            left == right || left_number.as_f64().is_some_and(|number| right_number.as_f64() == Some(number))
        }
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| are_equal(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left
                    .iter()
                    .all(|(field, value)| right.get(field).is_some_and(|other| are_equal(value, other)))
        }
        _ => left == right,
    }
}

/// Returns `true` if two states of an object are equal in all fields that users write, including fields that are
/// unknown to this version.
pub(crate) fn is_unchanged(before: &Value, after: &Value) -> bool {
    ["/spec", "/metadata/labels", "/metadata/annotations", "/metadata/finalizers"]
        .iter()
        .all(|part| before.pointer(part) == after.pointer(part))
}

/// Returns a value with a merge patch (RFC 7396) applied.
pub(crate) fn with_merge_patch(value: &Value, patch: &Value) -> Value {
    let mut patched = value.clone();
    apply(&mut patched, patch);
    patched
}

/// Applies a merge patch (RFC 7396).
pub(crate) fn apply(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    if let Value::Object(target) = target {
        for (field, value) in patch {
            if value.is_null() {
                target.remove(field);
            } else {
                apply(target.entry(field.clone()).or_insert(Value::Null), value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn check(last: &Value, desired: &Value, live: &Value, expected: &Value) {
        let last = (!last.is_null()).then_some(last);
        assert_eq!(&merge_patch(last, desired, live), expected);
    }

    #[test]
    fn merge_patch_contains_only_differences() {
        let live = json!({"kind": "Group", "metadata": {"name": "g", "uid": "u"}, "spec": {"a": 1, "b": [1, {"c": 2}], "other": true}});
        check(
            &Value::Null,
            &json!({"kind": "Group", "metadata": {"name": "g"}, "spec": {"a": 1.0, "b": [1, {"c": 2}]}}),
            &live,
            &json!({}),
        );
        check(
            &Value::Null,
            &json!({"spec": {"a": 2, "new": {"x": 1}}}),
            &live,
            &json!({"spec": {"a": 2, "new": {"x": 1}}}),
        );
        check(
            &json!({"spec": {"a": 1, "gone": 5}}),
            &json!({"spec": {}}),
            &live,
            &json!({"spec": {"a": null}}),
        );
        check(&json!({"spec": {"a": 1}}), &json!({}), &live, &json!({"spec": null}));
        check(&Value::Null, &json!({"spec": {"b": null}}), &live, &json!({"spec": {"b": null}}));
        check(&Value::Null, &json!({"spec": {"missing": null}}), &live, &json!({}));
    }

    #[test]
    fn labels_of_other_writers_are_kept() {
        let live = json!({"metadata": {"name": "g", "labels": {"ours": "1", "theirs": "2"}}});
        check(
            &live_object(),
            &json!({"metadata": {"name": "g"}}),
            &live,
            &json!({"metadata": {"labels": {"ours": null}}}),
        );
    }

    fn live_object() -> Value {
        json!({"metadata": {"name": "g", "labels": {"ours": "1"}}})
    }

    #[test]
    fn last_applied_annotation_excludes_itself() {
        let object = json!({"metadata": {"name": "g"}, "spec": {"b": 2, "a": 1}, "kind": "Group"});
        let once = with_last_applied(&object);
        assert_eq!(
            once["metadata"]["annotations"][LAST_APPLIED],
            "{\"kind\":\"Group\",\"metadata\":{\"annotations\":{},\"name\":\"g\"},\"spec\":{\"a\":1,\"b\":2}}\n"
        );
        assert_eq!(with_last_applied(&once), once);
    }

    fn any_object() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![any::<bool>().prop_map(Value::from), (0..3).prop_map(Value::from)];
        let inner = leaf.prop_recursive(3, 12, 3, |inner| {
            prop::collection::btree_map("[ab]", inner, 0..3)
                .prop_map(|map| Value::Object(map.into_iter().collect()))
        });
        prop::collection::btree_map("[ab]", inner, 0..3)
            .prop_map(|map| Value::Object(map.into_iter().collect()))
    }

    fn contains(object: &Value, part: &Value) -> bool {
        match (object, part) {
            (Value::Object(object), Value::Object(part)) => part
                .iter()
                .all(|(field, value)| object.get(field).is_some_and(|existing| contains(existing, value))),
            _ => object == part,
        }
    }

    proptest! {
        #[test]
        fn merge_patch_is_complete_and_idempotent(
            last in any_object(), desired in any_object(), live in any_object()
        ) {
            let mut merged = live.clone();
            apply(&mut merged, &merge_patch(Some(&last), &desired, &live));
            prop_assert!(contains(&merged, &desired), "{merged} lacks parts of {desired}");
            prop_assert_eq!(merge_patch(Some(&desired), &desired, &merged), json!({}));
        }
    }
}
