//! Killed, paused and slow members: reported outcomes stay correct, and clients recover automatically.

#[path = "support/etcd.rs"]
#[allow(dead_code, reason = "each test file uses a part of it")]
mod etcd;

use etcd::{Cluster, Flags};
use futures::StreamExt as _;
use ha_api_types::id::Revision;
use ha_store::reflector::{Item, Options, reflector};
use ha_store::{Change, Config, EtcdStore, Guard, Outcome, Store as _, StoreError, Transaction, WatchItem};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Time limit that only a hanging request exceeds: three attempts of 0.5 s each, plus a margin for a busy machine.
const MAX_WAIT: Duration = Duration::from_secs(60);

async fn connect(cluster: &Cluster) -> EtcdStore {
    let config = Config { attempt_timeout_ms: 500, ..Config::new(cluster.endpoints()) };
    EtcdStore::connect(config).await.expect("good settings")
}

/// Returns the index of the member that reports that it is the leader.
async fn leader(store: &EtcdStore) -> usize {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let status = store.status().await;
        if let Some(index) = status.iter().position(|member| member.leader) {
            return index;
        }
        assert!(Instant::now() < deadline, "no leader: {status:#?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Commits until one transaction is applied.
async fn put_eventually(store: &EtcdStore, key: &str) -> Revision {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let reading = store.get(key).await;
        if let Ok(reading) = reading {
            let guard =
                reading.entries.first().map_or(Guard::Absent, |entry| Guard::Unchanged(entry.mod_revision));
            if let Outcome::Applied(revision) =
                store.commit(Transaction::new().put(key, guard, vec![1])).await
            {
                return revision;
            }
        }
        assert!(Instant::now() < deadline, "no commit is applied");
    }
}

/// Outcomes that one worker received.
#[derive(Default)]
struct WorkerOutcomes {
    applied: BTreeMap<Vec<u8>, Revision>,
    conflict: BTreeSet<Vec<u8>>,
    unknown: BTreeSet<Vec<u8>>,
    /// Outcomes that these faults cannot cause.
    impossible: Vec<Outcome>,
}

/// Writes unique values until a request to stop: to a separate key, to a shared key, and with a lease. Every second
/// write uses a revision that may be stale.
async fn write_until_stopped(store: EtcdStore, worker: u32, stop: Arc<AtomicBool>) -> WorkerOutcomes {
    let mut outcomes = WorkerOutcomes::default();
    let lease = loop {
        if let Ok(lease) = store.grant_lease(120).await {
            break lease;
        }
    };
    for round in 0_u32.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let key = if round % 3 == 0 { "/faults/shared".to_owned() } else { format!("/faults/{worker}") };
        let Ok(reading) = store.get(&key).await else {
            continue;
        };
        let value = format!("{worker}-{round}").into_bytes();
        let lease = if round % 2 == 0 { lease } else { ha_store::LeaseId::NONE };
        let transaction = match reading.entries.first() {
            Some(entry) if round % 7 == 6 => Transaction::new()
                .delete(&key, Guard::Unchanged(entry.mod_revision))
                .put(format!("/faults/of/{worker}-{round}"), Guard::Absent, value.clone()),
            Some(entry) => Transaction::new().put_leased(
                &key,
                Guard::Unchanged(entry.mod_revision),
                value.clone(),
                lease,
            ),
            None => Transaction::new().put_leased(&key, Guard::Absent, value.clone(), lease),
        };
        let started = Instant::now();
        match store.commit(transaction).await {
            Outcome::Applied(revision) => {
                outcomes.applied.insert(value, revision);
            }
            Outcome::Conflict(_) => {
                outcomes.conflict.insert(value);
            }
            Outcome::Unknown(_) => {
                outcomes.unknown.insert(value);
            }
            outcome @ (Outcome::LeaseNotFound | Outcome::Refused(_)) => outcomes.impossible.push(outcome),
        }
        assert!(started.elapsed() < MAX_WAIT, "a commit took {:?}", started.elapsed());
    }
    outcomes
}

/// Returns every value that was written, with the revisions of its writes.
async fn history(store: &EtcdStore, from: Revision) -> BTreeMap<Vec<u8>, Vec<Revision>> {
    let until = put_eventually(store, "/marks/end").await;
    let mut written: BTreeMap<Vec<u8>, Vec<Revision>> = BTreeMap::new();
    let mut watch = store.watch("/faults/", from);
    loop {
        let item = watch.next().await.expect("a watch does not just end").expect("the members are up again");
        let (changes, revision) = match item {
            WatchItem::Changes { changes, revision } => (changes, revision),
            WatchItem::Progress(revision) => (Vec::new(), revision),
        };
        for change in changes {
            match change {
                Change::Put(entry) => {
                    written.entry(entry.value.to_vec()).or_default().push(entry.mod_revision);
                }
                Change::Delete { .. } => {}
            }
        }
        if revision >= until {
            return written;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commit_outcomes_are_correct_despite_member_failures() {
    let mut cluster = Cluster::start(3, &Flags::default());
    let store = connect(&cluster).await;
    let from = put_eventually(&store, "/marks/begin").await;
    let stop = Arc::new(AtomicBool::new(false));
    let mut workers = Vec::new();
    for worker in 0..6 {
        // Half of the workers have their own channels.
        let store = if worker % 2 == 0 { store.clone() } else { connect(&cluster).await };
        workers.push(tokio::spawn(write_until_stopped(store, worker, stop.clone())));
    }
    for round in 0..4 {
        let index = leader(&store).await;
        if round % 2 == 0 {
            cluster.pause(index);
            tokio::time::sleep(Duration::from_secs(3)).await;
            cluster.resume(index);
        } else {
            cluster.kill(index);
            tokio::time::sleep(Duration::from_secs(2)).await;
            cluster.restart(index);
        }
        put_eventually(&store, "/marks/between").await;
    }
    stop.store(true, Ordering::Relaxed);
    let summary = check_outcomes(&store, from, workers).await;
    println!("{summary:?}");
    assert!(summary.applied > 100 && summary.conflicts > 0, "too little happened: {summary:?}");
}

/// Number of outcomes of all workers.
#[derive(Debug, Default)]
struct Summary {
    applied: usize,
    conflicts: usize,
    unknown: usize,
    unknown_but_applied: usize,
}

/// Compares the reported outcomes with the written values.
async fn check_outcomes(
    store: &EtcdStore,
    from: Revision,
    workers: Vec<JoinHandle<WorkerOutcomes>>,
) -> Summary {
    let mut all_outcomes = Vec::new();
    for worker in workers {
        all_outcomes.push(worker.await.expect("the worker's assertions hold"));
    }
    // A copy that is still in progress is applied before this write, or conflicts.
    let written = history(store, from).await;
    for (value, revisions) in &written {
        let value = String::from_utf8_lossy(value);
        assert_eq!(revisions.len(), 1, "{value} was written more than once: {revisions:?}");
    }
    let mut summary = Summary::default();
    for outcomes in all_outcomes {
        assert_eq!(outcomes.impossible, vec![]);
        for (value, revision) in &outcomes.applied {
            assert_eq!(written.get(value), Some(&vec![*revision]), "{}", String::from_utf8_lossy(value));
        }
        for value in &outcomes.conflict {
            assert_eq!(
                written.get(value),
                None,
                "a conflict was applied: {}",
                String::from_utf8_lossy(value)
            );
        }
        summary.applied += outcomes.applied.len();
        summary.conflicts += outcomes.conflict.len();
        summary.unknown += outcomes.unknown.len();
        summary.unknown_but_applied +=
            outcomes.unknown.iter().filter(|value| written.contains_key(*value)).count();
    }
    summary
}

/// Starts a proxy for a member that loses answers: after some answers, it drops the next one and closes the
/// connection.
async fn start_lossy_proxy(to: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        let mut answers = 20_usize;
        while let Ok((client, _)) = listener.accept().await {
            answers = 10 + (answers * 7) % 31;
            tokio::spawn(forward(client, to.clone(), answers));
        }
    });
    format!("http://{address}")
}

async fn forward(client: TcpStream, to: String, answers: usize) {
    let Ok(server) = TcpStream::connect(to).await else { return };
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let requests = tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await });
    let mut buffer = vec![0; 64 * 1024];
    for _ in 0..answers {
        match from_server.read(&mut buffer).await {
            Ok(length) if length > 0 && to_client.write_all(&buffer[..length]).await.is_ok() => {}
            Ok(_) | Err(_) => break,
        }
    }
    // The next answer is read, so that its request was executed, and is then dropped.
    let _ = from_server.read(&mut buffer).await;
    requests.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_answers_cause_no_wrong_outcome() {
    let cluster = Cluster::start(1, &Flags::default());
    let store = connect(&cluster).await;
    let from = put_eventually(&store, "/marks/begin").await;
    let member = cluster.endpoints()[0].trim_start_matches("http://").to_owned();
    let stop = Arc::new(AtomicBool::new(false));
    let mut workers = Vec::new();
    for worker in 0..4 {
        let proxies = [start_lossy_proxy(member.clone()).await, start_lossy_proxy(member.clone()).await];
        let config = Config { attempt_timeout_ms: 500, ..Config::new(proxies) };
        let store = EtcdStore::connect(config).await.expect("good settings");
        workers.push(tokio::spawn(write_until_stopped(store, worker, stop.clone())));
    }
    tokio::time::sleep(Duration::from_secs(6)).await;
    stop.store(true, Ordering::Relaxed);
    let summary = check_outcomes(&store, from, workers).await;
    println!("{summary:?}");
    assert!(summary.applied > 100, "too little happened: {summary:?}");
    assert!(summary.unknown_but_applied > 0, "no answer was lost: {summary:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_member_delays_no_request() {
    let mut cluster = Cluster::start(3, &Flags::default());
    let store = connect(&cluster).await;
    put_eventually(&store, "/failover/key").await;
    // A member that is not the leader, so that no election is necessary.
    let follower = (leader(&store).await + 1) % 3;
    let rotated: Vec<String> =
        (0..3).map(|offset| cluster.endpoints()[(follower + offset) % 3].clone()).collect();
    let config = Config { attempt_timeout_ms: 500, ..Config::new(rotated) };
    let store = EtcdStore::connect(config).await.expect("good settings");
    put_eventually(&store, "/failover/key").await;
    cluster.kill(follower);
    for index in 0..20 {
        let key = format!("/failover/{index}");
        let outcome = store.commit(Transaction::new().put(key, Guard::Absent, vec![])).await;
        // The first request may have been in progress on the broken connection.
        assert!(index == 0 || matches!(outcome, Outcome::Applied(_)), "{index}: {outcome:?}");
    }
    let status = store.status().await;
    assert!(!status[0].reachable && status[1].reachable && status[2].reachable, "{status:#?}");
    assert!(status[0].problem.is_some(), "{status:#?}");
    cluster.restart(follower);
    put_eventually(&store, "/failover/key").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commit_to_paused_leader_times_out() {
    let cluster = Cluster::start(3, &Flags::default());
    let store = connect(&cluster).await;
    put_eventually(&store, "/paused/key").await;
    let index = leader(&store).await;
    let single_endpoint =
        Config { attempt_timeout_ms: 500, ..Config::new([cluster.endpoints()[index].clone()]) };
    let bound_to_leader = EtcdStore::connect(single_endpoint).await.expect("good settings");
    put_eventually(&bound_to_leader, "/paused/key").await;
    cluster.pause(index);
    let started = Instant::now();
    let outcome = bound_to_leader.commit(Transaction::new().put("/paused/new", Guard::Absent, vec![1])).await;
    assert!(matches!(outcome, Outcome::Unknown(_)), "{outcome:?}");
    assert!(matches!(bound_to_leader.get("/paused/new").await, Err(StoreError::Unreachable(_))));
    assert!(started.elapsed() < 2 * MAX_WAIT, "{:?}", started.elapsed());
    // The other members elect a new leader, and a client with their URLs can connect.
    put_eventually(&store, "/paused/key").await;
    cluster.resume(index);
    put_eventually(&bound_to_leader, "/paused/key").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watch_on_paused_member_switches_member() {
    let cluster = Cluster::start(3, &Flags::default());
    let store = connect(&cluster).await;
    put_eventually(&store, "/watch/a/0").await;
    let follower = (leader(&store).await + 1) % 3;
    let rotated: Vec<String> =
        (0..3).map(|offset| cluster.endpoints()[(follower + offset) % 3].clone()).collect();
    let config = Config { attempt_timeout_ms: 500, ..Config::new(rotated) };
    let watcher = EtcdStore::connect(config).await.expect("good settings");
    let selectors = vec!["/watch/a/".to_owned(), "/watch/b".to_owned()];
    let (_refresher, mut items) = reflector(watcher, selectors, Options::default());
    assert!(matches!(items.next().await, Some(Item::Synced(_))));
    put_eventually(&store, "/watch/a/1").await;
    while !matches!(items.next().await, Some(Item::Changes { .. })) {}
    cluster.pause(follower);
    let revision = put_eventually(&store, "/watch/b").await;
    let started = Instant::now();
    let mut failures = 0;
    loop {
        match tokio::time::timeout(Duration::from_secs(20), items.next()).await.expect("in time") {
            Some(Item::Changes { changes, .. }) => {
                assert_eq!(changes.iter().map(Change::revision).collect::<Vec<_>>(), vec![revision]);
                break;
            }
            Some(Item::Unavailable(_)) => failures += 1,
            Some(Item::Progress(_)) => {}
            other => panic!("{other:?}"),
        }
    }
    println!("noticed after {:?}", started.elapsed());
    assert!(failures > 0, "the paused member was noticed");
    cluster.resume(follower);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_starts_while_etcd_is_unreachable() {
    let mut cluster = Cluster::start(1, &Flags::default());
    // A member that is killed before it has committed its own membership never recovers.
    put_eventually(&connect(&cluster).await, "/early/key").await;
    cluster.kill(0);
    let store = connect(&cluster).await;
    assert!(matches!(store.check_versions().await, Err(StoreError::Unreachable(_))));
    assert!(matches!(store.get("/late/key").await, Err(StoreError::Unreachable(_))));
    let outcome = store.commit(Transaction::new().put("/late/key", Guard::Absent, vec![])).await;
    assert!(matches!(outcome, Outcome::Unknown(_)), "{outcome:?}");
    let (_refresher, mut items) = reflector(store.clone(), vec!["/late/".to_owned()], Options::default());
    assert!(matches!(items.next().await, Some(Item::Unavailable(StoreError::Unreachable(_)))));
    cluster.restart(0);
    let revision = put_eventually(&store, "/late/key").await;
    let reached_revision = async {
        loop {
            match items.next().await {
                Some(Item::Synced(reading)) if reading.revision >= revision => return,
                Some(Item::Changes { revision: complete, .. }) if complete >= revision => return,
                Some(_) => {}
                None => panic!("a reflector does not end"),
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), reached_revision).await.expect("in time");
    store.check_versions().await.expect("a new enough member");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_etcd_is_reported_and_writes_resolved() {
    let flags = Flags { extra_flags: vec!["--quota-backend-bytes=2000000".to_owned()], ..Flags::default() };
    let cluster = Cluster::start(1, &flags);
    let store = connect(&cluster).await;
    let mut doubtful = None;
    for index in 0..200 {
        let transaction =
            Transaction::new().put(format!("/full/{index}"), Guard::Absent, vec![b'x'; 100_000]);
        match store.commit(transaction).await {
            Outcome::Applied(_) => {}
            // The outcome stays unknown, because an absent key does not prove that the transaction was not applied.
            Outcome::Unknown(reason) => {
                doubtful = Some(reason);
                break;
            }
            other @ (Outcome::Conflict(_) | Outcome::LeaseNotFound | Outcome::Refused(_)) => {
                panic!("{other:?}")
            }
        }
    }
    let reason = doubtful.expect("the quota is reached");
    assert!(reason.contains("space exceeded") && reason.contains("defragment"), "{reason}");
    let status = store.status().await;
    assert!(status[0].alarms.iter().any(|alarm| alarm.contains("NOSPACE")), "{status:#?}");
    assert!(status[0].database_size_bytes > 1_000_000, "{status:#?}");
    let first = store.get("/full/0").await.expect("reads still succeed").entries.remove(0);
    // A key that is still at the revision of its guard was not written by the transaction.
    let guard = Guard::Unchanged(first.mod_revision);
    for _ in 0..3 {
        let outcome = store.commit(Transaction::new().put("/full/0", guard, vec![b'y'; 100_000])).await;
        let entry = store.get("/full/0").await.expect("reads still succeed").entries.remove(0);
        match outcome {
            Outcome::Refused(reason) => {
                assert!(reason.contains("space exceeded"), "{reason}");
                assert_eq!(entry.mod_revision, first.mod_revision);
            }
            other @ (Outcome::Applied(_)
            | Outcome::Conflict(_)
            | Outcome::LeaseNotFound
            | Outcome::Unknown(_)) => panic!("{other:?}"),
        }
    }
}

/// Starts a proxy for a member that can be closed: it then holds all data until it is opened again.
async fn start_pausable_proxy(to: String, open: Arc<AtomicBool>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let Ok(server) = TcpStream::connect(&to).await else { continue };
            let (mut from_client, mut to_client) = client.into_split();
            let (mut from_server, mut to_server) = server.into_split();
            tokio::spawn(async move { tokio::io::copy(&mut from_server, &mut to_client).await });
            let open = open.clone();
            tokio::spawn(async move {
                let mut buffer = vec![0; 64 * 1024];
                while let Ok(length) = from_client.read(&mut buffer).await {
                    while !open.load(Ordering::Relaxed) {
                        tokio::time::sleep(Duration::from_millis(10)).await;
                    }
                    if length == 0 || to_server.write_all(&buffer[..length]).await.is_err() {
                        break;
                    }
                }
            });
        }
    });
    format!("http://{address}")
}

/// A transaction that creates a key is sent once, because a delayed copy could restore a key that was deleted in the
/// meantime.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn key_creations_are_sent_once() {
    let cluster = Cluster::start(1, &Flags::default());
    let member = cluster.endpoints()[0].clone();
    let direct = connect(&cluster).await;
    let stored_revision = put_eventually(&direct, "/once/known").await;
    let open = Arc::new(AtomicBool::new(true));
    let proxy = start_pausable_proxy(member.trim_start_matches("http://").to_owned(), open.clone()).await;
    let config = Config { attempt_timeout_ms: 500, ..Config::new([proxy, member]) };
    let store = EtcdStore::connect(config).await.expect("good settings");
    store.get("/once/known").await.expect("the way is open");
    open.store(false, Ordering::Relaxed);
    let create = || Transaction::new().put("/once/new", Guard::Absent, vec![1]);
    let outcome = store.commit(create()).await;
    assert!(matches!(outcome, Outcome::Unknown(_)), "{outcome:?}");
    assert!(direct.get("/once/new").await.expect("a reading").entries.is_empty());
    // A transaction that guards a revision may also be sent to another member, because a late copy conflicts.
    let guarded = create().guard("/once/known", Guard::Unchanged(stored_revision));
    let outcome = store.commit(guarded).await;
    assert!(matches!(outcome, Outcome::Applied(_)), "{outcome:?}");
}
