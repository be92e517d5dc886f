//! Tests of elections over the in-memory store: winners, losers, and unknown outcomes.

use super::*;
use crate::memory_state::MemoryState;

struct Party {
    election: Election,
    readings: Readings,
    id: String,
}

struct World {
    state: MemoryState,
    now: Now,
    keys: Keys,
    /// If set, the outcome of the next leader commit is lost; the value determines whether the commit is applied.
    lose: Option<bool>,
    /// Time until which an older candidate has precedence.
    yields_until: Option<Mono>,
}

fn world() -> World {
    World {
        state: MemoryState::default(),
        now: Now { raw: Mono(10_000), ..Now::default() },
        keys: Keys::new("t"),
        lose: None,
        yields_until: None,
    }
}

fn party(world: &World, id: &str, instance: &str) -> Party {
    party_on(world, id, instance, "m1", true)
}

/// Creates a process on a machine, with or without the lock of its state directory.
fn party_on(world: &World, id: &str, instance: &str, machine: &str, locked: bool) -> Party {
    let candidate = Candidate {
        id: id.to_owned(),
        url: format!("http://{id}"),
        instance: instance.to_owned(),
        machine: machine.to_owned(),
        ..Candidate::default()
    };
    Party {
        election: Election::new(world.keys.clone(), candidate, locked),
        readings: Readings::default(),
        id: id.to_owned(),
    }
}

impl World {
    fn view(&self, id: &str) -> ElectionView {
        let one = |key: String| self.state.get(&key).entries.into_iter().next();
        ElectionView {
            revision: self.state.revision(),
            leader: one(self.keys.leader()),
            candidate: one(self.keys.candidate(id)),
            refresh: one(self.keys.refresh(id)),
            yields_until: self.yields_until,
        }
    }

    fn turn(&mut self, party: &mut Party) {
        for _ in 0..20 {
            if let Some(reading) = party.readings.begin() {
                party.readings.answer(reading);
            }
            party.election.observe(&self.now, self.view(&party.id), &party.readings);
            let Some(step) = party.election.poll(&self.now) else { break };
            self.run(party, step);
        }
    }

    fn run(&mut self, party: &mut Party, step: Step) {
        match step {
            Step::Commit(subject, transaction) => {
                let outcome = match (subject, self.lose.take()) {
                    (Subject::Leader, Some(applied)) => {
                        if applied {
                            self.state.commit(&transaction);
                        }
                        Outcome::Unknown("lost".to_owned())
                    }
                    (_, lose) => {
                        self.lose = lose;
                        self.state.commit(&transaction)
                    }
                };
                party.election.committed(&self.now, subject, &outcome, &mut party.readings);
            }
            Step::GrantLease { ttl_seconds } => {
                let lease = self.state.grant_lease(self.now.raw, ttl_seconds);
                party.election.lease_granted(&self.now, Some(lease));
            }
            Step::KeepAlive(lease) => {
                let alive = self.state.keep_alive(self.now.raw, lease).is_ok();
                party.election.lease_kept(&self.now, lease, alive, &mut party.readings);
            }
            Step::Revoke(lease) => {
                let _ = self.state.revoke_lease(lease);
            }
        }
    }

    fn wait(&mut self, ms: Millis) {
        self.now.raw = self.now.raw + ms;
        self.state.expire(self.now.raw);
    }
}

#[test]
fn one_of_two_leads_and_the_other_takes_over_when_the_lease_ends() {
    let mut world = world();
    let (mut first, mut second) = (party(&world, "a", "a1"), party(&world, "b", "b1"));
    world.turn(&mut first);
    world.turn(&mut second);
    let term = first.election.leadership().map(Leadership::term);
    assert!(term.is_some());
    assert!(second.election.leadership().is_none());
    world.wait(6_000);
    world.turn(&mut second);
    assert!(second.election.leadership().map(Leadership::term) > term);
    world.turn(&mut first);
    assert!(first.election.leadership().is_none());
}

#[test]
fn a_kept_lease_keeps_leadership() {
    let mut world = world();
    let mut first = party(&world, "a", "a1");
    world.turn(&mut first);
    let term = first.election.leadership().map(Leadership::term);
    for _ in 0..20 {
        world.wait(1_000);
        world.turn(&mut first);
    }
    assert_eq!(first.election.leadership().map(Leadership::term), term);
}

#[test]
fn a_deposed_leaders_write_conflicts() {
    let mut world = world();
    let (mut first, mut second) = (party(&world, "a", "a1"), party(&world, "b", "b1"));
    world.turn(&mut first);
    let late = first
        .election
        .leadership()
        .map(|leadership| leadership.sign(Transaction::new().put("/x", Guard::Absent, vec![1])));
    world.wait(6_000);
    world.turn(&mut second);
    let outcome = world.state.commit(&late.unwrap());
    assert!(matches!(outcome, Outcome::Conflict(_)), "{outcome:?}");
}

#[test]
fn an_unknown_campaign_counts_as_both_until_read_again() {
    for applied in [true, false] {
        let mut world = world();
        world.lose = Some(applied);
        let mut first = party(&world, "a", "a1");
        world.turn(&mut first);
        world.wait(1_000);
        world.turn(&mut first);
        let key = world.view("a").leader.map(|entry| Term::created_at(entry.create_revision));
        assert_eq!(first.election.leadership().map(Leadership::term), key, "applied {applied}");
        assert!(key.is_some());
    }
}

impl Party {
    fn joined(&self) -> Option<Revision> {
        self.election.membership().map(|own| own.joined)
    }

    fn leads(&self) -> bool {
        self.election.leadership().is_some()
    }
}

#[test]
fn a_restarted_controller_keeps_its_key_and_does_not_wait_for_its_own_lease() {
    let mut world = world();
    let mut before = party(&world, "a", "a1");
    world.turn(&mut before);
    let joined = before.joined();
    let mut after = party(&world, "a", "a2");
    world.turn(&mut after);
    assert!(after.leads());
    assert_eq!(after.joined(), joined, "the candidate key survives the restart");
    world.turn(&mut before);
    assert!(!before.leads());
    assert_eq!(before.election.membership(), None, "the key is another process's");
}

#[test]
fn only_the_same_url_machine_and_lock_keep_the_key() {
    let check = |url: &str, machine: &str, locked: bool, kept: bool| {
        let mut world = world();
        let mut before = party(&world, "a", "a1");
        world.turn(&mut before);
        before.election.shut_down();
        world.turn(&mut before);
        let mut after = party_on(&world, "a", "a2", machine, locked);
        url.clone_into(&mut after.election.candidate.url);
        world.turn(&mut after);
        assert_eq!(after.joined() == before.joined(), kept, "{url} {machine} {locked}");
        assert_eq!(after.joined().is_some(), kept, "another process may be alive for Th");
        world.wait(6_100);
        world.turn(&mut after);
        assert!(after.leads());
        assert_eq!(after.joined() > before.joined(), !kept, "another candidate");
    };
    check("http://a", "m1", true, true);
    check("http://elsewhere", "m1", true, false);
    check("http://a", "m2", true, false);
    check("http://a", "", true, false);
    check("http://a", "m1", false, false);
}

#[test]
fn two_processes_of_one_id_do_not_delete_each_others_key() {
    let mut world = world();
    let mut first = party(&world, "a", "a1");
    world.turn(&mut first);
    let mut second = party_on(&world, "a", "a2", "m2", true);
    for _ in 0..30 {
        world.wait(1_000);
        world.turn(&mut first);
        world.turn(&mut second);
    }
    assert!(first.leads());
    assert_eq!((second.joined(), second.election.duplicate()), (None, Some("m1")));
    // A build from before the key `refresh/<id>` refreshes by a put of the candidate key.
    assert_eq!(first.election.duplicate(), None);
}

#[test]
fn a_key_that_is_put_every_interval_is_not_deleted() {
    let mut world = world();
    let mut first = party(&world, "a", "a1");
    let key = world.keys.candidate("a");
    for number in 0..20_u8 {
        let guard =
            world.view("a").candidate.map_or(Guard::Absent, |known| Guard::Unchanged(known.mod_revision));
        world.state.commit(&Transaction::new().put(&key, guard, vec![number]));
        world.turn(&mut first);
        world.wait(1_000);
    }
    assert_eq!((first.joined(), first.election.duplicate()), (None, Some("")));
    world.wait(6_000);
    world.turn(&mut first);
    assert!(first.joined().is_some(), "the key was deleted once nothing refreshed it");
}

#[test]
fn another_value_in_the_candidate_key_ends_leadership_and_refreshes() {
    let mut world = world();
    let mut first = party(&world, "a", "a1");
    world.turn(&mut first);
    let own = first.election.membership().unwrap();
    let key = world.keys.candidate("a");
    world.state.commit(&Transaction::new().put(&key, Guard::Unchanged(own.revision), b"{}".to_vec()));
    let refresh = world.view("a").refresh.unwrap().mod_revision;
    // A refresh that the process sends before it sees the other value conflicts.
    world.now.raw = world.now.raw + 1_000;
    let Some(Step::Commit(Subject::Refresh, late)) = first.election.poll(&world.now) else { panic!("due") };
    assert!(matches!(world.state.commit(&late), Outcome::Conflict(_)));
    world.turn(&mut first);
    assert_eq!((first.leads(), first.joined()), (false, None));
    assert!(world.view("a").leader.is_none(), "the leader key is given up");
    assert_eq!(world.view("a").refresh.unwrap().mod_revision, refresh);
}

#[test]
fn a_deleted_candidate_begins_again_as_another() {
    let mut world = world();
    let mut first = party(&world, "a", "a1");
    world.turn(&mut first);
    let own = first.election.membership().unwrap();
    let key = world.keys.candidate("a");
    world.state.commit(&Transaction::new().delete(&key, Guard::Unchanged(own.revision)));
    world.turn(&mut first);
    world.turn(&mut first);
    assert!(first.joined() > Some(own.joined));
    assert!(first.leads());
}

#[test]
fn a_clean_shutdown_gives_up_the_leader_key_only() {
    let mut world = world();
    let mut first = party(&world, "a", "a1");
    world.turn(&mut first);
    first.election.shut_down();
    world.turn(&mut first);
    assert!(first.election.is_done());
    let view = world.view("a");
    assert_eq!((view.leader, view.candidate.is_some(), view.refresh.is_some()), (None, true, true));
}

#[test]
fn a_candidate_waits_for_an_older_one_for_three_leader_leases() {
    let mut world = world();
    world.yields_until = Some(world.now.raw + 1_000_000);
    let mut first = party(&world, "a", "a1");
    world.turn(&mut first);
    world.wait(14_900);
    world.turn(&mut first);
    assert!(!first.leads());
    world.wait(200);
    world.turn(&mut first);
    assert!(first.leads());
}

#[test]
fn a_leader_yields_once_in_thirty_leader_leases() {
    let mut world = world();
    let mut first = party(&world, "a", "a1");
    world.turn(&mut first);
    assert!(first.election.yield_to_older(&world.now));
    world.yields_until = Some(world.now.raw + 1_000_000);
    world.turn(&mut first);
    assert!(!first.leads() && world.view("a").leader.is_none());
    world.wait(15_100);
    world.turn(&mut first);
    assert!(first.leads(), "no older candidate took over");
    assert!(!first.election.yield_to_older(&world.now));
    for _ in 0..135 {
        world.wait(1_000);
        world.turn(&mut first);
    }
    assert!(first.election.yield_to_older(&world.now));
}

#[test]
fn a_pause_of_own_commits_restarts_an_observation() {
    let mut clock = CommitClock::default();
    for at in [0, 1_000, 2_000, 6_000, 7_000] {
        clock.applied(Mono(at));
    }
    assert_eq!(clock.restart_of(Mono(1_500), 3_000), Some(Mono(6_000)));
    assert_eq!(clock.restart_of(Mono(6_500), 3_000), None);
    assert_eq!(clock.restart_of(Mono(1_500), 4_000), None);
    assert!(clock.lasted_before_pause(Mono(500), 3_000, 1_500), "the pause began at 2 s");
    assert!(!clock.lasted_before_pause(Mono(500), 3_000, 1_501));
    assert!(!clock.lasted_before_pause(Mono(500), 4_000, 0), "no pause is that long");
    assert!(clock.is_current(Mono(9_000), 3_000));
    assert!(!clock.is_current(Mono(10_001), 3_000));
}

#[test]
fn what_was_seen_before_the_first_own_commit_is_observed_anew() {
    let mut clock = CommitClock::default();
    assert_eq!(clock.restart_of(Mono(1_000), 3_000), None);
    assert!(!clock.is_current(Mono(6_000), 3_000), "until then, no node is declared dead");
    clock.applied(Mono(6_000));
    clock.applied(Mono(7_000));
    assert_eq!(clock.restart_of(Mono(1_000), 3_000), Some(Mono(6_000)));
    assert_eq!(clock.restart_of(Mono(6_000), 3_000), None);
    assert!(
        !clock.lasted_before_pause(Mono(1_000), 3_000, 0),
        "nothing was observed before the first commit"
    );
}
