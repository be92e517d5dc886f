//! Tests of the cluster-wide checks.

use super::*;
use ha_api_types::check::Verdict;
use ha_api_types::id::Revision;
use ha_api_types::keys::Keys;
use ha_api_types::kind::Kind;
use ha_api_types::node::WatchdogStatus;
use ha_api_types::record::BackupRecord;
use ha_api_types::time::MonotonicTime;
use ha_api_types::view::{ControllerOverview, EtcdMember};
use ha_store::Entry;
use serde_json::{Value, json};

fn node(name: &str) -> NodeOverview {
    let watchdog = WatchdogStatus {
        kind: "Kernel".to_owned(),
        identity: "iTCO_wdt".to_owned(),
        tested: true,
        ..WatchdogStatus::default()
    };
    NodeOverview {
        name: name.into(),
        state: NodeState::Online,
        version: "1".to_owned(),
        watchdog: Some(watchdog),
        ..NodeOverview::default()
    }
}

fn member(host: &str) -> EtcdMember {
    EtcdMember { name: format!("etcd-{host}"), url: format!("https://{host}:2379"), ..EtcdMember::default() }
}

fn backup_at(at: &str) -> BackupRecord {
    BackupRecord { at: Timestamp(at.to_owned()), ..BackupRecord::default() }
}

fn healthy_overview() -> Overview {
    let mut overview = Overview::default();
    overview.store.members = ["a", "b", "[fd00::3]"].map(member).to_vec();
    overview.nodes = ["node1", "node2", "node3"].map(node).to_vec();
    overview.store.backup = Some(backup_at("2026-11-26T12:00:00Z"));
    overview.controllers = vec![ControllerOverview {
        id: "c1".into(),
        version: "1".to_owned(),
        ..ControllerOverview::default()
    }];
    overview
}

fn cluster_view_with(specs: &[(Kind, &str, Value)]) -> ClusterView {
    let keys = Keys::new("test");
    let entry = |(kind, name, spec): &(Kind, &str, Value)| {
        Entry {
        key: keys.spec(*kind, name),
        value: json!({"apiVersion": "hactl.io/v1", "kind": kind.name(), "metadata": {"name": name}, "spec": spec})
            .to_string()
            .into_bytes()
            .into(),
        create_revision: Revision(1),
        mod_revision: Revision(1),
        lease: ha_store::LeaseId::NONE,
    }
    };
    let entries = specs.iter().map(entry).collect();
    let mut cluster_view = ClusterView::new(keys.clone());
    cluster_view.replace(entries, Revision(1), MonotonicTime(0));
    assert!(cluster_view.unreadable.is_empty(), "{:?}", cluster_view.unreadable);
    cluster_view
}

fn check_verdict(
    cluster_view: &ClusterView,
    overview: &Overview,
    name: &str,
    verdict: Verdict,
    finding: &str,
) {
    let now = Timestamp("2026-11-27T12:00:00Z".to_owned());
    let checks = cluster_checks(cluster_view, overview, &now);
    let not_ok: Vec<&Check> = checks.iter().filter(|check| check.verdict != Verdict::Ok).collect();
    assert_eq!(not_ok.len(), usize::from(verdict != Verdict::Ok), "{not_ok:?}");
    let matching_check = checks.iter().find(|check| check.name == name).expect("the check exists");
    assert!(
        matching_check.verdict == verdict && matching_check.finding.contains(finding),
        "{matching_check:?}"
    );
    assert_eq!(matching_check.help.is_empty(), verdict == Verdict::Ok, "{matching_check:?}");
}

fn check(change: impl Fn(&mut Overview), name: &str, verdict: Verdict, finding: &str) {
    let mut overview = healthy_overview();
    change(&mut overview);
    check_verdict(&cluster_view_with(&[]), &overview, name, verdict, finding);
}

#[test]
fn cluster_wide_checks_have_expected_verdicts() {
    use Verdict::{Fail, Ok, Warn};
    check(|_| {}, "etcd-members", Ok, "3 members");
    check(|_| {}, "backup", Ok, "made at 2026-11-26T12:00:00Z");
    check(|o| o.store.backup = None, "backup", Warn, "no backup of etcd is recorded");
    let old = |o: &mut Overview| o.store.backup = Some(backup_at("2026-11-25T11:59:59Z"));
    check(old, "backup", Warn, "made at 2026-11-25T11:59:59Z");
    check(|o| o.store.members.truncate(2), "etcd-members", Fail, "etcd members: 2; 3 are required");
    check(
        |o| o.store.members.push(member("d")),
        "etcd-members",
        Warn,
        "4 members and tolerates only as many failures as 3 members",
    );
    check(
        |o| o.store.members[1].url = "https://a:22379/".to_owned(),
        "etcd-machines",
        Warn,
        "etcd-a, etcd-b share host a",
    );
    let device = |plug: &str| json!({"fencing": {"devices": [{"name": "pdu", "parts": [{"agent": "fence_apc", "attributes": {"ip": "pdu", "plug": plug}}]}]}});
    let cluster_view = |second: &str| {
        cluster_view_with(&[(Kind::Node, "node1", device("1")), (Kind::Node, "node2", device(second))])
    };
    let overview = healthy_overview();
    check_verdict(&cluster_view("2"), &overview, "fence-devices", Ok, "the same fence device");
    check_verdict(&cluster_view("1"), &overview, "fence-devices", Fail, "several nodes: node1, node2");
    check(|o| o.nodes.truncate(1), "nodes", Fail, "services cannot be recovered");
    check(|o| o.nodes.truncate(2), "nodes", Warn, "2 nodes in the cluster");
    check(
        |o| o.nodes[0].watchdog.as_mut().expect("one").kind = "None".to_owned(),
        "watchdogs",
        Fail,
        "no working watchdog on: node1",
    );
    let kind = |kind: &'static str| {
        move |o: &mut Overview| o.nodes[2].watchdog.as_mut().expect("one").kind = kind.to_owned()
    };
    check(
        kind("Simulated"),
        "watchdogs",
        Warn,
        "simulated watchdog in use (does not protect the machine): node3",
    );
    let soft =
        |o: &mut Overview| o.nodes[1].watchdog.as_mut().expect("one").identity = SOFTDOG_IDENTITY.to_owned();
    check(soft, "watchdogs", Warn, "(cannot reset a node whose kernel has stopped): node2");
    let untested = |o: &mut Overview| o.nodes[1].watchdog.as_mut().expect("one").tested = false;
    check(untested, "watchdogs-tested", Warn, "watchdog not tested on: node2");
    check(|o| o.nodes[1].version = "2".to_owned(), "versions", Warn, "2: agent node2");
    check(|o| o.nodes[1].version = String::new(), "versions", Ok, "the same version");
    // A deleted node is not counted.
    let deleted = |o: &mut Overview| {
        o.nodes.push(NodeOverview { state: NodeState::Gone, watchdog: None, ..node("node9") });
    };
    check(deleted, "nodes", Ok, "3 nodes in the cluster");
}

#[test]
fn storage_pool_needs_two_nodes() {
    let node = |name: &'static str, pools: Value| (Kind::Node, name, json!({"storagePools": pools}));
    let web =
        (Kind::Resource, "web", json!({"driver": {"exec": {"command": ["x"]}}, "storage": {"pool": "fast"}}));
    let both_nodes = [node("node1", json!(["fast"])), node("node2", json!(["fast"])), web.clone()];
    check_verdict(
        &cluster_view_with(&both_nodes),
        &healthy_overview(),
        "pools",
        Verdict::Ok,
        "at least two nodes (1 pool)",
    );
    let only_web = [node("node1", json!(["fast", "spare"])), node("node2", json!(["fast"])), web.clone()];
    check_verdict(
        &cluster_view_with(&only_web),
        &healthy_overview(),
        "pools",
        Verdict::Warn,
        "spare (1 node)",
    );
    let used = [node("node1", json!(["fast"])), node("node2", json!([])), web];
    check_verdict(
        &cluster_view_with(&used),
        &healthy_overview(),
        "pools",
        Verdict::Fail,
        "fast (1 node); services that use them cannot be recovered",
    );
}

#[test]
fn watchdog_test_may_be_required() {
    let required =
        cluster_view_with(&[(Kind::Cluster, "default", json!({"fencing": {"requireTested": true}}))]);
    let mut overview = healthy_overview();
    check_verdict(&required, &overview, "watchdogs-tested", Verdict::Ok, "every node");
    overview.nodes[0].watchdog.as_mut().expect("one").tested = false;
    check_verdict(
        &required,
        &overview,
        "watchdogs-tested",
        Verdict::Fail,
        "required by Cluster.spec.fencing.requireTested",
    );
}

#[test]
fn nodes_with_equal_machine_ids_are_named() {
    use Verdict::{Fail, Ok, Warn};
    let check = |machines: [(&str, Option<&str>); 2], verdict: Verdict, finding: &str| {
        let mut cluster_view = cluster_view_with(&[]);
        let keys = Keys::new("test");
        let entry = |(index, (machine_id, product_id)): (usize, &(&str, Option<&str>))| Entry {
            key: keys.node_report(&format!("node{}", index + 1).into()),
            value: json!({"machineId": machine_id, "productId": product_id}).to_string().into_bytes().into(),
            create_revision: Revision(1),
            mod_revision: Revision(1),
            lease: ha_store::LeaseId::NONE,
        };
        cluster_view.replace(machines.iter().enumerate().map(entry).collect(), Revision(1), MonotonicTime(0));
        check_verdict(&cluster_view, &healthy_overview(), "machine-ids", verdict, finding);
    };
    check([("a", Some("p")), ("b", Some("p"))], Ok, "its own machine ID");
    check([("a", Some("p")), ("a", Some("q"))], Warn, "machine ID shared by several nodes: node1, node2");
    check([("a", Some("p")), ("a", Some("p"))], Fail, "the next boot of one node is refused");
}
