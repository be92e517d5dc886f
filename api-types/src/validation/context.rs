//! The collection of problems, with the checks that all kinds share.

use super::{MAX_COMMENT_LENGTH, MAX_ELEMENTS};
use crate::names;
use crate::placement::NodePriorities;
use crate::problem::{Problem, ProblemKind, element_path, field_path};
use std::collections::BTreeSet;

/// The problems found so far.
#[derive(Default)]
pub(super) struct Context {
    problems: Vec<Problem>,
}

impl Context {
    pub(super) fn into_problems(self) -> Vec<Problem> {
        self.problems
    }

    pub(super) fn push(&mut self, problem: Problem) {
        self.problems.push(problem);
    }

    pub(super) fn add_invalid(&mut self, path: &str, message: impl Into<String>) {
        self.push(Problem::invalid(path, message));
    }

    pub(super) fn add_required(&mut self, path: &str, message: impl Into<String>) {
        self.push(Problem::required(path, message));
    }

    /// Checks a name of any object except a node.
    pub(super) fn check_name(&mut self, path: &str, name: &str) {
        if let Some(message) = names::invalid_reason(name, names::MAX_NAME_LENGTH) {
            self.add_invalid(path, message);
        }
    }

    pub(super) fn check_node_name(&mut self, path: &str, name: &str) {
        if let Some(message) = names::invalid_reason(name, names::MAX_NODE_NAME_LENGTH) {
            self.add_invalid(path, message);
        }
    }

    /// Checks the name of a resource, with or without its type.
    pub(super) fn check_resource_name(&mut self, path: &str, text: &str) {
        let typed = names::TypedName::parse(text);
        self.check_name(path, typed.name);
        if let Some(message) =
            typed.type_name.and_then(|type_name| names::invalid_reason(type_name, names::MAX_NAME_LENGTH))
        {
            self.add_invalid(path, message);
        }
    }

    /// Checks a list of distinct resource names.
    pub(super) fn check_resource_names(&mut self, path: &str, list: &[String]) {
        self.check_size(path, list.len());
        for (index, name) in list.iter().enumerate() {
            self.check_resource_name(&element_path(path, index), name);
        }
        self.check_distinct(path, list.iter().map(|text| names::without_type(text)));
    }

    pub(super) fn check_nodes(&mut self, path: &str, nodes: &NodePriorities) {
        self.check_size(path, nodes.0.len());
        for (name, priority) in &nodes.0 {
            let path = field_path(path, name);
            self.check_node_name(&path, name);
            if !(-1_000_000..=1_000_000).contains(priority) {
                self.add_invalid(&path, "must be between -1000000 and 1000000");
            }
        }
    }

    pub(super) fn check_distinct<'a>(&mut self, path: &str, list: impl Iterator<Item = &'a str>) {
        let mut distinct = BTreeSet::new();
        for (index, text) in list.enumerate() {
            if !distinct.insert(text) {
                let path = element_path(path, index);
                let message = format!("{text:?} is a duplicate");
                self.push(Problem::new(path, ProblemKind::FieldValueDuplicate, message));
            }
        }
    }

    pub(super) fn check_size(&mut self, path: &str, count: usize) {
        if count > MAX_ELEMENTS {
            self.add_invalid(path, format!("has {count} elements, at most {MAX_ELEMENTS} are allowed"));
        }
    }

    pub(super) fn check_comment(&mut self, comment: &str) {
        if comment.len() > MAX_COMMENT_LENGTH {
            self.add_invalid("spec.comment", format!("must have at most {MAX_COMMENT_LENGTH} bytes"));
        }
    }

    /// Checks short labels such as tags.
    pub(super) fn check_tags(&mut self, path: &str, tags: &[String]) {
        self.check_size(path, tags.len());
        for (index, tag) in tags.iter().enumerate() {
            let is_plain = |c: char| c.is_alphanumeric() || "-_.:/=+".contains(c);
            if tag.is_empty() || tag.len() > 128 || !tag.chars().all(is_plain) {
                self.add_invalid(
                    &element_path(path, index),
                    format!("{tag:?} is not a valid tag: use at most 128 letters, digits and any of -_.:/=+"),
                );
            }
        }
        self.check_distinct(path, tags.iter().map(String::as_str));
    }

    /// Checks a number of seconds, which may have a fraction.
    pub(super) fn check_seconds(&mut self, path: &str, value: f64, min_seconds: f64, max_seconds: f64) {
        if !(min_seconds..=max_seconds).contains(&value) {
            self.add_invalid(path, format!("must be between {min_seconds} and {max_seconds}, got {value}"));
        }
    }
}
