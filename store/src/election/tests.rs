//! Tests of elections over the in-memory store: winners, losers, and unknown outcomes.

use super::*;
use crate::memory_state::MemoryState;

struct TestProcess {
    election: Election,
    read_tracker: ReadTracker,
    id: String,
}

struct TestCluster {
    state: MemoryState,
    now: Now,
    keys: Keys,
    /// If set, the outcome of the next leader commit is lost; the value determines whether the commit is applied.
    lost_answer_applied: Option<bool>,
    /// Time until which an older candidate has precedence.
    yields_until: Option<MonotonicTime>,
}

fn cluster() -> TestCluster {
    TestCluster {
        state: MemoryState::default(),
        now: Now { monotonic_raw: MonotonicTime(10_000), ..Now::default() },
        keys: Keys::new("t"),
        lost_answer_applied: None,
        yields_until: None,
    }
}

fn process(cluster: &TestCluster, id: &str, instance: &str) -> TestProcess {
    process_on(cluster, id, instance, "m1", true)
}

/// Creates a process on a machine, with or without the lock of its state directory.
fn process_on(cluster: &TestCluster, id: &str, instance: &str, machine: &str, locked: bool) -> TestProcess {
    let candidate = Candidate {
        id: id.into(),
        url: format!("http://{id}"),
        instance: instance.into(),
        machine: machine.into(),
        ..Candidate::default()
    };
    TestProcess {
        election: Election::new(cluster.keys.clone(), candidate, locked),
        read_tracker: ReadTracker::default(),
        id: id.to_owned(),
    }
}

impl TestCluster {
    fn view(&self, id: &str) -> ElectionView {
        let entry = |key: String| self.state.get(&key).entries.into_iter().next();
        ElectionView {
            revision: self.state.revision(),
            leader: entry(self.keys.leader()),
            candidate: entry(self.keys.candidate(&id.into())),
            refresh: entry(self.keys.refresh(&id.into())),
            yields_until: self.yields_until,
        }
    }

    fn run_until_idle(&mut self, process: &mut TestProcess) {
        for _ in 0..20 {
            if let Some(reading) = process.read_tracker.begin() {
                process.read_tracker.complete(reading);
            }
            process.election.observe(&self.now, self.view(&process.id), &process.read_tracker);
            let Some(step) = process.election.poll(&self.now) else { break };
            self.run(process, step);
        }
    }

    fn run(&mut self, process: &mut TestProcess, step: Step) {
        match step {
            Step::Commit(kind, transaction) => {
                let outcome = match (kind, self.lost_answer_applied.take()) {
                    (WriteKind::Leader, Some(applied)) => {
                        if applied {
                            self.state.commit(&transaction);
                        }
                        Outcome::Unknown("lost".to_owned())
                    }
                    (_, lost_answer_applied) => {
                        self.lost_answer_applied = lost_answer_applied;
                        self.state.commit(&transaction)
                    }
                };
                process.election.on_committed(&self.now, kind, &outcome, &mut process.read_tracker);
            }
            Step::GrantLease { ttl_seconds } => {
                let lease = self.state.grant_lease(self.now.monotonic_raw, ttl_seconds);
                process.election.on_lease_granted(&self.now, Some(lease));
            }
            Step::KeepAlive(lease) => {
                let alive = self.state.keep_alive(self.now.monotonic_raw, lease).is_ok();
                process.election.on_lease_kept(&self.now, lease, alive, &mut process.read_tracker);
            }
            Step::Revoke(lease) => {
                let _ = self.state.revoke_lease(lease);
            }
        }
    }

    fn wait(&mut self, ms: Millis) {
        self.now.monotonic_raw = self.now.monotonic_raw + ms;
        self.state.expire(self.now.monotonic_raw);
    }
}

#[test]
fn the_other_candidate_leads_when_the_lease_ends() {
    let mut cluster = cluster();
    let (mut first, mut second) = (process(&cluster, "a", "a1"), process(&cluster, "b", "b1"));
    cluster.run_until_idle(&mut first);
    cluster.run_until_idle(&mut second);
    let term = first.election.leadership().map(Leadership::term);
    assert!(term.is_some());
    assert!(second.election.leadership().is_none());
    cluster.wait(6_000);
    cluster.run_until_idle(&mut second);
    assert!(second.election.leadership().map(Leadership::term) > term);
    cluster.run_until_idle(&mut first);
    assert!(first.election.leadership().is_none());
}

#[test]
fn a_kept_lease_keeps_leadership() {
    let mut cluster = cluster();
    let mut first = process(&cluster, "a", "a1");
    cluster.run_until_idle(&mut first);
    let term = first.election.leadership().map(Leadership::term);
    for _ in 0..20 {
        cluster.wait(1_000);
        cluster.run_until_idle(&mut first);
    }
    assert_eq!(first.election.leadership().map(Leadership::term), term);
}

#[test]
fn a_leader_without_answers_does_not_keep_its_lease() {
    let mut cluster = cluster();
    let (mut first, mut second) = (process(&cluster, "a", "a1"), process(&cluster, "b", "b1"));
    cluster.run_until_idle(&mut first);
    for _ in 0..12 {
        cluster.wait(1_000);
        // Every request is applied, and no answer arrives.
        while let Some(step) = first.election.poll(&cluster.now) {
            match step {
                Step::Commit(kind, transaction) => {
                    cluster.state.commit(&transaction);
                    let outcome = Outcome::Unknown("no answer".to_owned());
                    first.election.on_committed(&cluster.now, kind, &outcome, &mut first.read_tracker);
                }
                Step::KeepAlive(lease) => {
                    let _ = cluster.state.keep_alive(cluster.now.monotonic_raw, lease);
                    first.election.on_lease_kept(&cluster.now, lease, false, &mut first.read_tracker);
                }
                Step::GrantLease { .. } | Step::Revoke(_) => panic!("the process does not know that it lost"),
            }
        }
        cluster.run_until_idle(&mut second);
    }
    assert!(second.election.leadership().is_some());
    cluster.run_until_idle(&mut first);
    assert!(first.election.leadership().is_none());
}

#[test]
fn a_deposed_leaders_write_conflicts() {
    let mut cluster = cluster();
    let (mut first, mut second) = (process(&cluster, "a", "a1"), process(&cluster, "b", "b1"));
    cluster.run_until_idle(&mut first);
    let late = first
        .election
        .leadership()
        .map(|leadership| leadership.sign(Transaction::new().put("/x", Guard::Absent, vec![1])));
    cluster.wait(6_000);
    cluster.run_until_idle(&mut second);
    let outcome = cluster.state.commit(&late.unwrap());
    assert!(matches!(outcome, Outcome::Conflict(_)), "{outcome:?}");
}

#[test]
fn unknown_campaign_outcome_is_resolved_by_reading() {
    for applied in [true, false] {
        let mut cluster = cluster();
        cluster.lost_answer_applied = Some(applied);
        let mut first = process(&cluster, "a", "a1");
        cluster.run_until_idle(&mut first);
        cluster.wait(1_000);
        cluster.run_until_idle(&mut first);
        let key = cluster.view("a").leader.map(|entry| Term::created_at(entry.create_revision));
        assert_eq!(first.election.leadership().map(Leadership::term), key, "applied {applied}");
        assert!(key.is_some());
    }
}

impl TestProcess {
    fn joined(&self) -> Option<Revision> {
        self.election.candidate_key().map(|own| own.joined)
    }

    fn is_leader(&self) -> bool {
        self.election.leadership().is_some()
    }
}

#[test]
fn a_restarted_controller_keeps_its_key_and_does_not_wait_for_its_own_lease() {
    let mut cluster = cluster();
    let mut before = process(&cluster, "a", "a1");
    cluster.run_until_idle(&mut before);
    let joined = before.joined();
    let mut after = process(&cluster, "a", "a2");
    cluster.run_until_idle(&mut after);
    assert!(after.is_leader());
    assert_eq!(after.joined(), joined, "the candidate key survives the restart");
    cluster.run_until_idle(&mut before);
    assert!(!before.is_leader());
    assert_eq!(before.election.candidate_key(), None, "the key is another process's");
}

#[test]
fn only_the_same_url_machine_and_lock_keep_the_key() {
    let check = |url: &str, machine: &str, locked: bool, is_kept: bool| {
        let mut cluster = cluster();
        let mut before = process(&cluster, "a", "a1");
        cluster.run_until_idle(&mut before);
        before.election.shut_down();
        cluster.run_until_idle(&mut before);
        let mut after = process_on(&cluster, "a", "a2", machine, locked);
        url.clone_into(&mut after.election.candidate.url);
        cluster.run_until_idle(&mut after);
        assert_eq!(after.joined() == before.joined(), is_kept, "{url} {machine} {locked}");
        assert_eq!(after.joined().is_some(), is_kept, "another process may be alive for Th");
        cluster.wait(6_100);
        cluster.run_until_idle(&mut after);
        assert!(after.is_leader());
        assert_eq!(after.joined() > before.joined(), !is_kept, "another candidate");
    };
    check("http://a", "m1", true, true);
    check("http://elsewhere", "m1", true, false);
    check("http://a", "m2", true, false);
    check("http://a", "", true, false);
    check("http://a", "m1", false, false);
}

#[test]
fn two_processes_of_one_id_do_not_delete_each_others_key() {
    let mut cluster = cluster();
    let mut first = process(&cluster, "a", "a1");
    cluster.run_until_idle(&mut first);
    let mut second = process_on(&cluster, "a", "a2", "m2", true);
    for _ in 0..30 {
        cluster.wait(1_000);
        cluster.run_until_idle(&mut first);
        cluster.run_until_idle(&mut second);
    }
    assert!(first.is_leader());
    assert_eq!((second.joined(), second.election.duplicate()), (None, Some(&"m1".into())));
    // An earlier version without the key `refresh/<id>` refreshes by a put of the candidate key.
    assert_eq!(first.election.duplicate(), None);
}

#[test]
fn regularly_refreshed_candidate_key_is_not_deleted() {
    let mut cluster = cluster();
    let mut first = process(&cluster, "a", "a1");
    let key = cluster.keys.candidate(&"a".into());
    for number in 0..20_u8 {
        let guard =
            cluster.view("a").candidate.map_or(Guard::Absent, |entry| Guard::Unchanged(entry.mod_revision));
        cluster.state.commit(&Transaction::new().put(&key, guard, vec![number]));
        cluster.run_until_idle(&mut first);
        cluster.wait(1_000);
    }
    assert_eq!((first.joined(), first.election.duplicate()), (None, Some(&"".into())));
    cluster.wait(6_000);
    cluster.run_until_idle(&mut first);
    assert!(first.joined().is_some(), "the key was deleted once nothing refreshed it");
}

#[test]
fn another_value_in_the_candidate_key_ends_leadership_and_refreshes() {
    let mut cluster = cluster();
    let mut first = process(&cluster, "a", "a1");
    cluster.run_until_idle(&mut first);
    let own = first.election.candidate_key().unwrap();
    let key = cluster.keys.candidate(&"a".into());
    cluster.state.commit(&Transaction::new().put(&key, Guard::Unchanged(own.revision), b"{}".to_vec()));
    let refresh = cluster.view("a").refresh.unwrap().mod_revision;
    // If the process sends a refresh before it has read the other value, the refresh conflicts.
    cluster.now.monotonic_raw = cluster.now.monotonic_raw + 1_000;
    let Some(Step::Commit(WriteKind::Refresh, late)) = first.election.poll(&cluster.now) else {
        panic!("due")
    };
    assert!(matches!(cluster.state.commit(&late), Outcome::Conflict(_)));
    cluster.run_until_idle(&mut first);
    assert_eq!((first.is_leader(), first.joined()), (false, None));
    assert!(cluster.view("a").leader.is_none(), "the leader key is given up");
    assert_eq!(cluster.view("a").refresh.unwrap().mod_revision, refresh);
}

#[test]
fn deleted_candidate_restarts_under_new_identity() {
    let mut cluster = cluster();
    let mut first = process(&cluster, "a", "a1");
    cluster.run_until_idle(&mut first);
    let own = first.election.candidate_key().unwrap();
    let key = cluster.keys.candidate(&"a".into());
    cluster.state.commit(&Transaction::new().delete(&key, Guard::Unchanged(own.revision)));
    cluster.run_until_idle(&mut first);
    cluster.run_until_idle(&mut first);
    assert!(first.joined() > Some(own.joined));
    assert!(first.is_leader());
}

#[test]
fn a_clean_shutdown_gives_up_the_leader_key_only() {
    let mut cluster = cluster();
    let mut first = process(&cluster, "a", "a1");
    cluster.run_until_idle(&mut first);
    first.election.shut_down();
    cluster.run_until_idle(&mut first);
    assert!(first.election.is_done());
    let view = cluster.view("a");
    assert_eq!((view.leader, view.candidate.is_some(), view.refresh.is_some()), (None, true, true));
}

#[test]
fn candidate_yields_to_an_older_candidate() {
    let mut cluster = cluster();
    cluster.yields_until = Some(cluster.now.monotonic_raw + 1_000_000);
    let mut first = process(&cluster, "a", "a1");
    cluster.run_until_idle(&mut first);
    cluster.wait(14_900);
    cluster.run_until_idle(&mut first);
    assert!(!first.is_leader());
    cluster.wait(200);
    cluster.run_until_idle(&mut first);
    assert!(first.is_leader());
}

#[test]
fn leader_yields_once_per_thirty_leases() {
    let mut cluster = cluster();
    let mut first = process(&cluster, "a", "a1");
    cluster.run_until_idle(&mut first);
    assert!(first.election.yield_to_older(&cluster.now));
    cluster.yields_until = Some(cluster.now.monotonic_raw + 1_000_000);
    cluster.run_until_idle(&mut first);
    assert!(!first.is_leader() && cluster.view("a").leader.is_none());
    cluster.wait(15_100);
    cluster.run_until_idle(&mut first);
    assert!(first.is_leader(), "no older candidate took over");
    assert!(!first.election.yield_to_older(&cluster.now));
    for _ in 0..135 {
        cluster.wait(1_000);
        cluster.run_until_idle(&mut first);
    }
    assert!(first.election.yield_to_older(&cluster.now));
}

#[test]
fn a_commit_gap_restarts_an_observation() {
    let mut gaps = CommitGaps::default();
    for at in [0, 1_000, 2_000, 6_000, 7_000] {
        gaps.record_commit(MonotonicTime(at));
    }
    assert_eq!(gaps.restart_time_of(MonotonicTime(1_500), 3_000), Some(MonotonicTime(6_000)));
    assert_eq!(gaps.restart_time_of(MonotonicTime(6_500), 3_000), None);
    assert_eq!(gaps.restart_time_of(MonotonicTime(1_500), 4_000), None);
    assert_eq!(
        gaps.last_pause(MonotonicTime(500), 3_000),
        Some((MonotonicTime(2_000), MonotonicTime(6_000)))
    );
    assert_eq!(gaps.last_pause(MonotonicTime(500), 4_000), None, "no pause is that long");
    assert!(gaps.is_current(MonotonicTime(9_000), 3_000));
    assert!(!gaps.is_current(MonotonicTime(10_001), 3_000));
}

#[test]
fn observations_restart_at_the_first_commit() {
    let mut gaps = CommitGaps::default();
    assert_eq!(gaps.restart_time_of(MonotonicTime(1_000), 3_000), None);
    assert!(!gaps.is_current(MonotonicTime(6_000), 3_000), "until then, no node is declared dead");
    gaps.record_commit(MonotonicTime(6_000));
    gaps.record_commit(MonotonicTime(7_000));
    assert_eq!(gaps.restart_time_of(MonotonicTime(1_000), 3_000), Some(MonotonicTime(6_000)));
    assert_eq!(gaps.restart_time_of(MonotonicTime(6_000), 3_000), None);
    assert_eq!(
        gaps.last_pause(MonotonicTime(1_000), 3_000),
        Some((MonotonicTime(0), MonotonicTime(6_000))),
        "no commit came before"
    );
}
