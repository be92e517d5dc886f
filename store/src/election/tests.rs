//! Elections over the in-memory store: who wins, who loses, and what an unknown outcome means.

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
    /// The next leader commit is applied or not, but its outcome is lost.
    lose: Option<bool>,
}

fn world() -> World {
    World {
        state: MemoryState::default(),
        now: Now { raw: Mono(10_000), ..Now::default() },
        keys: Keys::new("t"),
        lose: None,
    }
}

fn party(world: &World, id: &str, instance: &str) -> Party {
    let candidate = Candidate {
        id: id.to_owned(),
        url: format!("http://{id}"),
        instance: instance.to_owned(),
        ..Candidate::default()
    };
    Party {
        election: Election::new(world.keys.clone(), candidate),
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
        let key = world.view("a").leader.map(|entry| entry.create_revision);
        assert_eq!(first.election.leadership().map(Leadership::term), key, "applied {applied}");
        assert!(key.is_some());
    }
}

#[test]
fn a_restarted_controller_does_not_wait_for_its_own_lease() {
    let mut world = world();
    let mut before = party(&world, "a", "a1");
    world.turn(&mut before);
    let joined = before.election.joined();
    let mut after = party(&world, "a", "a2");
    world.turn(&mut after);
    assert!(after.election.leadership().is_some());
    assert_eq!(after.election.joined(), joined, "the candidate key survives the restart");
    world.turn(&mut before);
    assert!(before.election.leadership().is_none());
}

#[test]
fn another_url_is_another_candidate() {
    let mut world = world();
    let mut before = party(&world, "a", "a1");
    world.turn(&mut before);
    let mut after = party(&world, "a", "a2");
    after.election.candidate.url = "http://elsewhere".to_owned();
    world.turn(&mut after);
    assert!(after.election.joined() > before.election.joined());
}

#[test]
fn a_clean_shutdown_gives_up_both_keys_at_once() {
    let mut world = world();
    let mut first = party(&world, "a", "a1");
    world.turn(&mut first);
    first.election.shut_down();
    world.turn(&mut first);
    assert!(first.election.is_done());
    let view = world.view("a");
    assert_eq!((view.leader, view.candidate), (None, None));
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
    assert!(clock.is_current(Mono(9_000), 3_000));
    assert!(!clock.is_current(Mono(10_001), 3_000));
}

#[test]
fn what_was_seen_before_the_first_own_commit_is_observed_anew() {
    let mut clock = CommitClock::default();
    assert_eq!(clock.restart_of(Mono(1_000), 3_000), None);
    assert!(!clock.is_current(Mono(6_000), 3_000), "and until then nobody is declared dead at all");
    clock.applied(Mono(6_000));
    clock.applied(Mono(7_000));
    assert_eq!(clock.restart_of(Mono(1_000), 3_000), Some(Mono(6_000)));
    assert_eq!(clock.restart_of(Mono(6_000), 3_000), None);
}
