//! Merge patches and JSON patches, with limits on their cost.

use super::error::ApiError;
use super::request::MAX_BODY_LENGTH;
use ha_api_types::error_reason::ErrorReason;
use json_patch::{Patch, PatchOperation};
use serde_json::Value;

/// Maximum number of operations in a JSON patch.
const MAX_OPERATIONS: usize = 1000;

/// Applies a merge patch (RFC 7386).
pub(crate) fn merge(object: &Value, patch: &Value) -> Result<Value, ApiError> {
    if !patch.is_object() {
        return Err(ApiError::bad_request("a merge patch must be a map"));
    }
    let mut patched = object.clone();
    json_patch::merge(&mut patched, patch);
    Ok(patched)
}

/// Applies a JSON patch (RFC 6902), either completely or not at all.
pub(crate) fn json(object: &Value, patch: &Value) -> Result<Value, ApiError> {
    let patch: Patch = serde_json::from_value(patch.clone())
        .map_err(|error| ApiError::bad_request(format!("request body is not a valid JSON patch: {error}")))?;
    if patch.0.len() > MAX_OPERATIONS {
        return Err(ApiError::bad_request(format!(
            "a JSON patch may have at most {MAX_OPERATIONS} operations"
        )));
    }
    let mut patched = object.clone();
    for (index, operation) in patch.0.iter().enumerate() {
        json_patch::patch(&mut patched, std::slice::from_ref(operation)).map_err(|error| {
            ApiError::new(
                ErrorReason::Invalid,
                format!("operation {index} of the JSON patch cannot be applied: {error}"),
            )
        })?;
        // Repeated copies of an object double its size each time.
        let grows = matches!(operation, PatchOperation::Copy(_));
        if grows && serde_json::to_vec(&patched).map_or(usize::MAX, |text| text.len()) > MAX_BODY_LENGTH {
            return Err(ApiError::too_large(MAX_BODY_LENGTH));
        }
    }
    Ok(patched)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn patches_change_the_named_fields() {
        let object = json!({"spec": {"a": 1, "b": {"c": 2}}});
        assert_eq!(
            merge(&object, &json!({"spec": {"a": null, "b": {"d": 3}}})),
            Ok(json!({"spec": {"b": {"c": 2, "d": 3}}}))
        );
        assert_eq!(
            json(
                &object,
                &json!([{"op": "test", "path": "/spec/a", "value": 1}, {"op": "remove", "path": "/spec/b"}])
            ),
            Ok(json!({"spec": {"a": 1}}))
        );
        for invalid in [
            json!([{"op": "test", "path": "/spec/a", "value": 2}]),
            json!([{"op": "remove", "path": "/x"}]),
            json!({}),
        ] {
            assert!(json(&object, &invalid).is_err(), "{invalid}");
        }
        assert!(merge(&object, &json!([])).is_err());
    }

    #[test]
    fn patches_that_multiply_data_are_refused() {
        let copies: Vec<Value> =
            (0..40).map(|n| json!({"op": "copy", "from": "", "path": format!("/x{n}")})).collect();
        assert!(json(&json!({"text": "x".repeat(100)}), &json!(copies)).is_err());
    }

    proptest::proptest! {
        /// No patch causes a panic.
        #[test]
        fn arbitrary_patches_never_panic(path in "\\PC{0,12}", op in "(add|remove|replace|move|copy|test|x)", text in "\\PC{0,8}") {
            let object = json!({"metadata": {"name": "web"}, "spec": {"list": [1, {"a": 2}], "": 1}});
            let _ = json(&object, &json!([{"op": op, "path": path, "from": path, "value": text}]));
            let _ = json(&object, &json!([{"op": op, "path": format!("/{path}"), "from": "/spec/list/1", "value": {text.as_str(): 1}}]));
            let _ = merge(&object, &json!({path.as_str(): {text.as_str(): null}, "spec": text}));
        }
    }
}
