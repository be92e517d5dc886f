//! Checks of a GitSync.

use super::context::Context;
use crate::git_sync::GitSync;

/// Maximum length of the repository, the branch and the path, in bytes.
const MAX_LENGTH: usize = 2048;

pub(super) fn check(object: &GitSync, context: &mut Context) {
    for (path, text) in [
        ("spec.repository", &object.spec.repository),
        ("spec.branch", &object.spec.branch),
        ("spec.path", &object.spec.path),
    ] {
        if text.len() > MAX_LENGTH {
            context.add_invalid(path, format!("must have at most {MAX_LENGTH} bytes, got {}", text.len()));
        }
    }
    context.check_comment(&object.spec.comment);
}
