//! The status of every member: for `hactl status`, the metrics and the version check.

use super::Inner;
use super::failure::Failure;
use crate::etcd_version::check_version;
use etcd_client::{ResponseHeader, StatusResponse};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Instant;

/// Status of one member.
///
/// A member does not report its settings of automatic compaction (`--auto-compaction-mode`,
/// `--auto-compaction-retention`). It reports only the time and the revision of the last compaction. With
/// authentication on, only root may request the status. The status is then read from the metrics page, which contains
/// neither the raft term nor alarms.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemberStatus {
    /// Client URL of the member, as configured.
    pub endpoint: String,
    /// `true` if the member answered within the attempt timeout.
    pub reachable: bool,
    /// Reason why the member is unreachable, or a problem of the member (too old, no leader). Alarms are in `alarms`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// etcd version of the member.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Id of the member, hexadecimal, as printed by etcdctl.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub member_id: Option<String>,
    /// `true` if the member reports that it is the leader.
    pub leader: bool,
    /// `true` if the member is a learner, which does not vote.
    pub learner: bool,
    /// Raft term of the member; all members have the same term, unless a member is isolated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raft_term: Option<u64>,
    /// Revision up to which the member has applied writes.
    pub revision: i64,
    /// Size of the database file in bytes.
    pub database_size_bytes: i64,
    /// Used part of the database file in bytes; a large difference from the size means that a defragmentation would
    /// help.
    pub database_used_bytes: i64,
    /// Size in bytes at which the member refuses writes; `None` if the member does not report it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota_bytes: Option<i64>,
    /// Time of the last compaction in seconds since 1970; `None` without a compaction since the start of the member, or
    /// if the member does not report the time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compacted_at_seconds: Option<i64>,
    /// Revision up to which the member was compacted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compacted_revision: Option<i64>,
    /// Active alarms by their etcd names (NOSPACE, CORRUPT).
    pub alarms: Vec<String>,
    /// Time until the answer, in milliseconds.
    pub answer_ms: u64,
}

/// Requests the status of all members in parallel.
pub(super) async fn status(inner: &Arc<Inner>) -> Vec<MemberStatus> {
    futures::future::join_all((0..inner.members.len()).map(|index| member_status(inner, index))).await
}

async fn member_status(inner: &Arc<Inner>, index: usize) -> MemberStatus {
    let member = &inner.members[index];
    let started = Instant::now();
    let mut status = MemberStatus { endpoint: member.endpoint.clone(), ..MemberStatus::default() };
    let answer = tokio::time::timeout(inner.attempt_timeout(), async {
        match member.status(inner).await {
            Ok(response) => status.add_response(&response),
            Err(failure) => {
                let problem = failure.to_string();
                // A refusal is an answer too.
                status.reachable = matches!(failure, Failure::Refused(_)) || problem.contains("no leader");
                status.problem = Some(problem);
            }
        }
        status.answer_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        // Some values are only in the metrics. If only root may request the status, all values come from the metrics.
        if status.reachable
            && let Ok(page) = member.fetch_page(inner, "/metrics").await
        {
            status.add_metrics(&page);
        }
    })
    .await;
    if answer.is_err() && !status.reachable {
        status.answer_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        status.problem = Some(format!("no response within {} ms", status.answer_ms));
    }
    if let Some(version) = &status.version
        && let Err(sentence) = check_version(&status.endpoint, version)
    {
        status.problem = Some(sentence);
    }
    status
}

impl MemberStatus {
    fn add_response(&mut self, response: &StatusResponse) {
        let header = response.header();
        let member_id = header.map_or(0, ResponseHeader::member_id);
        let has_leader = response.leader() != 0;
        self.reachable = true;
        self.problem = (!has_leader).then(|| "member has no leader".to_owned());
        self.version = Some(response.version().to_owned());
        self.member_id = Some(format!("{member_id:x}"));
        self.leader = has_leader && response.leader() == member_id;
        self.learner = response.is_learner();
        self.raft_term = Some(response.raft_term());
        self.revision = header.map_or(0, ResponseHeader::revision);
        self.database_size_bytes = response.db_size();
        self.database_used_bytes = response.raft_used_db_size();
        self.quota_bytes = (response.db_size_quota() > 0).then(|| response.db_size_quota());
        self.alarms = response.errors().to_vec();
    }

    fn add_metrics(&mut self, page: &str) {
        let value = |name: &str| {
            page.lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse::<f64>().ok())
        };
        // The value is exact up to 2^53, which is sufficient for bytes, revisions and seconds.
        #[allow(clippy::cast_possible_truncation, reason = "these are whole numbers, printed as decimals")]
        let integer = |name: &str| value(name).filter(|value| *value > 0.0).map(|value| value as i64);
        self.quota_bytes = self.quota_bytes.or(integer("etcd_server_quota_backend_bytes"));
        self.compacted_at_seconds = integer("etcd_debugging_mvcc_db_compaction_last");
        self.compacted_revision = integer("etcd_debugging_mvcc_compact_revision");
        if self.version.is_none() {
            let version = page.lines().find_map(|line| {
                line.strip_prefix("etcd_server_version{server_version=\"")?.split('"').next()
            });
            self.version = version.map(str::to_owned);
            self.leader = value("etcd_server_is_leader") == Some(1.0);
            self.learner = value("etcd_server_is_learner") == Some(1.0);
            let has_leader = value("etcd_server_has_leader") == Some(1.0);
            self.problem = (!has_leader).then(|| "member has no leader".to_owned());
            self.revision = integer("etcd_debugging_mvcc_current_revision").unwrap_or(0);
            self.database_size_bytes = integer("etcd_mvcc_db_total_size_in_bytes").unwrap_or(0);
            self.database_used_bytes = integer("etcd_mvcc_db_total_size_in_use_in_bytes").unwrap_or(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_used_without_status_permission() {
        let page = "# HELP etcd_server_quota_backend_bytes Quota.\n\
                    etcd_server_quota_backend_bytes 2.147483648e+09\n\
                    etcd_server_version{server_version=\"3.5.30\"} 1\n\
                    etcd_server_has_leader 1\netcd_server_is_leader 1\n\
                    etcd_debugging_mvcc_current_revision 12\n\
                    etcd_debugging_mvcc_db_compaction_last 0\n\
                    etcd_mvcc_db_total_size_in_bytes 20480\n";
        let mut status = MemberStatus::default();
        status.add_metrics(page);
        let expected = MemberStatus {
            version: Some("3.5.30".to_owned()),
            leader: true,
            revision: 12,
            database_size_bytes: 20480,
            quota_bytes: Some(2_147_483_648),
            ..MemberStatus::default()
        };
        assert_eq!(status, expected);
    }
}
