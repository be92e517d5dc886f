//! The validation of objects beyond their schema. It returns all problems together, each with its path.
//!
//! Only the object itself is checked. A problem with another object, such as a missing group, leads to a warning or a
//! condition, because users may apply objects in any order.

mod cluster;
mod context;
mod driver;
mod git_sync;
mod metadata;
mod node;
mod notifications;
mod operation;
mod placement;
mod resource;

use crate::cluster::Cluster;
use crate::git_sync::GitSync;
use crate::kind::{API_VERSION, Kind};
use crate::node::{Node, NodeGroup};
use crate::object::{Object, Spec};
use crate::operation::Operation;
use crate::placement::{AffinityRule, Group};
use crate::problem::Problem;
use crate::resource::Resource;
use crate::schema;
use serde_json::Value;

/// Maximum number of elements of a list or map in a spec.
pub const MAX_ELEMENTS: usize = 1000;
/// Maximum length of a comment, in bytes.
pub const MAX_COMMENT_LENGTH: usize = 4096;

/// Returns every problem of an object, in the order of its fields; empty if the object is valid.
///
/// [`schema::unknown_fields`] reports unknown fields, because the caller decides whether an unknown field is a problem.
/// Nulls count as absent ([`schema::prune_nulls`]).
///
/// # Guarantees
/// An object without problems deserializes into its Rust type.
pub fn problems(kind: Kind, value: &Value) -> Vec<Problem> {
    let mut value = value.clone();
    schema::prune_nulls(schema::of(kind), &mut value);
    let mut problems = schema::check_types(schema::of(kind), &value);
    check_constant(&value, "apiVersion", API_VERSION, &mut problems);
    check_constant(&value, "kind", kind.name(), &mut problems);
    // Values of wrong types cannot be deserialized for further checks.
    if problems.is_empty() {
        problems = match kind {
            Kind::Resource => read::<Resource, _>(&value, resource::check),
            Kind::Group => read::<Group, _>(&value, placement::check_group),
            Kind::AffinityRule => read::<AffinityRule, _>(&value, placement::check_rule),
            Kind::Node => read::<Node, _>(&value, node::check),
            Kind::NodeGroup => read::<NodeGroup, _>(&value, node::check_group),
            Kind::Cluster => read::<Cluster, _>(&value, cluster::check),
            Kind::Operation => read::<Operation, _>(&value, operation::check),
            Kind::GitSync => read::<GitSync, _>(&value, git_sync::check),
        };
    }
    problems
}

fn check_constant(value: &Value, field: &str, expected: &str, problems: &mut Vec<Problem>) {
    if let Some(actual) = value.get(field).and_then(Value::as_str).filter(|actual| *actual != expected) {
        problems.push(Problem::invalid(field, format!("must be {expected}, got {actual:?}")));
    }
}

fn read<O, F>(value: &Value, check: F) -> Vec<Problem>
where
    O: serde::de::DeserializeOwned + HasMetadata,
    F: Fn(&O, &mut context::Context),
{
    match serde_json::from_value::<O>(value.clone()) {
        Ok(object) => {
            let mut context = context::Context::default();
            metadata::check(object.metadata(), O::KIND, value, &mut context);
            check(&object, &mut context);
            context.into_problems()
        }
        Err(error) => vec![Problem::invalid("spec", error.to_string())],
    }
}

trait HasMetadata {
    const KIND: Kind;
    fn metadata(&self) -> &crate::meta::ObjectMeta;
}

impl<S: Spec> HasMetadata for Object<S> {
    const KIND: Kind = S::KIND;
    fn metadata(&self) -> &crate::meta::ObjectMeta {
        &self.metadata
    }
}

#[cfg(test)]
mod tests;
