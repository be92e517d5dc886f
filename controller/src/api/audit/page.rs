//! `/apis/hactl.io/v1/audit`: the newest records of this controller's audit file.

use crate::api::ApiState;
use crate::api::error::ApiError;
use crate::api::request::query_pairs;
use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use ha_api_types::view::{AuditPage, AuditRecord};
use ha_store::Store;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Default number of records in an answer.
const DEFAULT_LIMIT: usize = 100;
/// Maximum number of records in an answer.
const MAX_LIMIT: usize = 500;
/// Maximum number of bytes of the file that one request reads. The next page continues there.
const MAX_SCANNED_BYTES: u64 = 4 << 20;

/// Conditions that the returned records meet. An empty text matches every record.
#[derive(Clone, Debug, Default)]
struct Filter {
    /// Part of the user name.
    user: String,
    /// Plural name of the kind.
    resource: String,
    /// Part of the object name.
    name: String,
    outcome: String,
}

impl Filter {
    fn matches(&self, record: &AuditRecord) -> bool {
        let equals = |wanted: &str, value: &str| wanted.is_empty() || wanted == value;
        record.user.contains(&self.user)
            && record.name.contains(&self.name)
            && equals(&self.resource, &record.resource)
            && equals(&self.outcome, &record.outcome)
    }
}

/// Position in the file: records before this byte belong to the next page. The inode distinguishes the file from the one
/// that replaced it in a rotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Position {
    inode: u64,
    offset: u64,
}

impl Position {
    fn parse(token: &str) -> Option<Position> {
        let (inode, offset) = token.split_once('-')?;
        Some(Position { inode: inode.parse().ok()?, offset: offset.parse().ok()? })
    }
}

/// Handles GET with `user`, `resource`, `name`, `outcome`, `limit` and `continue`.
pub(crate) async fn handler<S: Store>(
    State(state): State<ApiState<S>>,
    request: Request,
) -> Result<Response, ApiError> {
    let (mut filter, mut limit, mut position) = (Filter::default(), DEFAULT_LIMIT, None);
    for (name, value) in query_pairs(request.uri())? {
        match name.as_str() {
            "user" => filter.user = value,
            "resource" => filter.resource = value,
            "name" => filter.name = value,
            "outcome" => filter.outcome = value,
            "limit" => {
                let count = value.parse().ok().filter(|count| (1..=MAX_LIMIT).contains(count));
                limit = count.ok_or_else(|| {
                    ApiError::bad_request(format!("limit={value}: must be an integer from 1 to {MAX_LIMIT}"))
                })?;
            }
            "continue" if value.is_empty() => {}
            "continue" => {
                let parsed = Position::parse(&value);
                position = Some(parsed.ok_or_else(|| {
                    ApiError::bad_request(format!("continue={value}: not a token of an earlier response"))
                })?);
            }
            _ => {}
        }
    }
    let Some(path) = state.options().audit_log.file() else { return Err(ApiError::no_audit_file()) };
    let permit = state.log_permit()?;
    let read_path = path.clone();
    let reading = tokio::task::spawn_blocking(move || {
        let page = read_page(&read_path, &filter, limit, position);
        drop(permit);
        page
    });
    let page = reading.await.map_err(|error| ApiError::internal(error.to_string()))?;
    let page = page.map_err(|error| {
        ApiError::internal(format!("cannot read the audit log {}: {error}", path.display()))
    })?;
    let (items, next) = page.ok_or_else(ApiError::audit_file_rotated)?;
    let page = AuditPage {
        controller: state.options().id.to_string(),
        file: path.display().to_string(),
        items,
        continue_token: next.map(|next| format!("{}-{}", next.inode, next.offset)),
    };
    Ok(Json(page).into_response())
}

/// A page of records, and the position of the next page.
type Page = (Vec<AuditRecord>, Option<Position>);

/// Reads the newest matching records before a position; without a position, those at the end of the file. `None` if the
/// position belongs to another file, which the current file has replaced.
fn read_page(
    path: &Path,
    filter: &Filter,
    limit: usize,
    position: Option<Position>,
) -> io::Result<Option<Page>> {
    let mut file = File::open(path)?;
    let metadata = file.metadata()?;
    let inode = metadata.ino();
    let end = match position {
        None => metadata.len(),
        Some(position) if position.inode == inode && position.offset <= metadata.len() => position.offset,
        Some(_) => return Ok(None),
    };
    let start = end.saturating_sub(MAX_SCANNED_BYTES);
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.take(end - start).read_to_end(&mut bytes)?;
    let mut items = Vec::new();
    let mut line_end = bytes.len();
    while line_end > 0 && items.len() < limit {
        let without_newline = bytes[..line_end].strip_suffix(b"\n").unwrap_or(&bytes[..line_end]);
        let newline = without_newline.iter().rposition(|byte| *byte == b'\n');
        let line_start = newline.map_or(0, |newline| newline + 1);
        if newline.is_none() && start > 0 && line_end < bytes.len() {
            // The beginning of this line was not read; the next page starts with it.
            break;
        }
        // A line that is not a record, such as one cut by a full disk, is skipped.
        let record = serde_json::from_slice::<AuditRecord>(&without_newline[line_start..]).ok();
        items.extend(record.filter(|record| filter.matches(record)));
        line_end = line_start;
    }
    let offset = start + u64::try_from(line_end).unwrap_or(0);
    Ok(Some((items, (offset > 0).then_some(Position { inode, offset }))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write as _;

    fn line(number: usize, user: &str, outcome: &str) -> String {
        format!(
            r#"{{"time":"2025-01-01T00:00:00Z","user":"{user}","resource":"nodes","name":"node{number}","outcome":"{outcome}","code":200}}"#
        )
    }

    fn names(page: &[AuditRecord]) -> Vec<&str> {
        page.iter().map(|record| record.name.as_str()).collect()
    }

    #[test]
    fn pages_go_from_the_newest_record_to_the_oldest() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.jsonl");
        let mut text = String::new();
        for number in 0..5 {
            writeln!(text, "{}", line(number, if number % 2 == 0 { "ada" } else { "bob" }, "Done")).unwrap();
        }
        text += "{\"cut\n";
        std::fs::write(&path, &text).unwrap();
        let all = Filter::default();
        let (first, next) = read_page(&path, &all, 2, None).unwrap().unwrap();
        assert_eq!(names(&first), ["node4", "node3"]);
        let (second, next) = read_page(&path, &all, 3, next).unwrap().unwrap();
        assert_eq!((names(&second), next), (vec!["node2", "node1", "node0"], None));
        let ada = Filter { user: "ad".to_owned(), name: "node".to_owned(), ..Filter::default() };
        let (found, _) = read_page(&path, &ada, 10, None).unwrap().unwrap();
        assert_eq!(names(&found), ["node4", "node2", "node0"]);
        let refused = Filter { outcome: "Refused".to_owned(), ..Filter::default() };
        assert_eq!(read_page(&path, &refused, 10, None).unwrap().unwrap(), (vec![], None));
        let other_file = Position { inode: 1, offset: 10 };
        assert_eq!(read_page(&path, &all, 10, Some(other_file)).unwrap(), None);
    }

    #[test]
    fn a_large_file_is_read_in_parts_that_lose_no_record() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.jsonl");
        let count = 90_000;
        let text: String = (0..count).map(|number| line(number, "ada", "Done") + "\n").collect();
        assert!(text.len() as u64 > 2 * MAX_SCANNED_BYTES);
        std::fs::write(&path, text).unwrap();
        let oldest = Filter { name: "node7".to_owned(), ..Filter::default() };
        let (mut found, mut position, mut requests) = (0, None, 0);
        loop {
            let (items, next) = read_page(&path, &oldest, usize::MAX, position).unwrap().unwrap();
            found += items.len();
            requests += 1;
            position = next;
            if position.is_none() {
                break;
            }
        }
        let expected = (0..count).filter(|number| format!("node{number}").contains("node7")).count();
        assert_eq!((found, requests > 2), (expected, true));
    }
}
