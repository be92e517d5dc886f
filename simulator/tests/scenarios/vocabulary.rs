//! The check that some scenario reaches every word of the vocabulary: a word that no scenario reaches is untested.

use ha_api_types::reason::Reason;
use ha_simulator::vocabulary::{Vocabulary, Word};
use ha_simulator::world::World;
use std::collections::BTreeMap;
use std::path::Path;

/// Reasons that no run of the simulator can show, each with the cause and the test that reaches it instead. A reason
/// that a scenario reaches must be removed from the list.
const UNREACHED_REASONS: [(Reason, &str); 14] = [
    (
        Reason::CopyRemains,
        "shown of a copy that is left from before such an upgrade: controller, \
         core::tests::unconfirmed::a_copy_that_was_not_guarded_is_not_released_for_an_exclusive_start",
    ),
    (
        Reason::DuplicateController,
        "told when two processes have one id, and here each machine has its own: controller, \
         core::tests::candidates::a_second_process_of_one_id_says_so_and_does_not_lead",
    ),
    (
        Reason::Unknown,
        "stands for a word that a newer version wrote: api-types, reason::tests::a_word_of_a_newer_version_is_unknown",
    ),
    (
        Reason::EtcdTooOld,
        "told of the store's members, which have no versions here: controller, \
         api::overview::problems::tests::a_member_that_is_too_old_is_named",
    ),
    (
        Reason::Invalid,
        "told of a record that a newer version wrote, and of operations that the API refuses: controller, \
         api::overview::problems::tests::a_key_that_cannot_be_read_is_named",
    ),
    (
        Reason::HealthCheckFailed,
        "told of real machines, of which there are none here: controller, \
         api::overview::problems::tests::what_the_doctor_finds_failing_is_repeated",
    ),
    (
        Reason::NotificationFailed,
        "told when a target refuses, which none does here: controller, \
         core::tests::notifications::what_a_target_refuses_is_given_up_with_an_event",
    ),
    (
        Reason::FailoverCapacityUnknown,
        "told when a search runs out of its steps, which so small clusters do not: controller, \
         core::reservation::tests::what_could_not_be_decided_says_so",
    ),
    (
        Reason::CommitApplied,
        "written by hactl sync, which does not run here: e2e, sync::objects_follow_the_repository",
    ),
    (
        Reason::CommitRefused,
        "written by hactl sync, which does not run here: e2e, sync::objects_follow_the_repository",
    ),
    (
        Reason::FetchFailed,
        "written by hactl sync, which does not run here: e2e, sync::objects_follow_the_repository",
    ),
    (
        Reason::NoDrift,
        "written by hactl sync, which does not run here: e2e, sync::objects_follow_the_repository",
    ),
    (
        Reason::DriftCorrected,
        "written by hactl sync, which does not run here: e2e, sync::objects_follow_the_repository",
    ),
    (
        Reason::CommitNotVerified,
        "written by hactl sync, which does not run here: e2e, \
         sync::only_signed_commits_are_applied_and_a_process_reports_metrics",
    ),
];

/// Words that scenarios reach, each with the first file that reaches it.
#[derive(Default)]
pub(crate) struct Reached(BTreeMap<Word, String>);

impl Reached {
    /// Adds the words that users could read in a run.
    pub(crate) fn add(&mut self, world: &World, path: &Path) {
        let name = path.display().to_string();
        for word in world.vocabulary().expect("the vocabulary was collected").words() {
            let first_path = self.0.entry(word.clone()).or_insert_with(|| name.clone());
            if name < *first_path {
                first_path.clone_from(&name);
            }
        }
    }

    /// Returns the problems: words that no scenario reaches, exceptions that a scenario reaches, and unknown words.
    pub(crate) fn problems(&self) -> Vec<String> {
        let every_word = Vocabulary::every_word();
        let exceptions: BTreeMap<Word, &str> = UNREACHED_REASONS
            .into_iter()
            .map(|(reason, explanation)| (Word::reason(reason), explanation))
            .collect();
        let missing = every_word
            .iter()
            .filter(|word| !self.0.contains_key(word) && !exceptions.contains_key(word))
            .map(|word| format!("no scenario reaches {word}"));
        let obsolete = exceptions.iter().filter_map(|(word, explanation)| {
            let path = self.0.get(word)?;
            Some(format!("{word} is excepted ({explanation}), but {path} reaches it"))
        });
        let unknown = self.0.iter().filter(|(word, _)| !every_word.contains(word));
        let unknown =
            unknown.map(|(word, path)| format!("{path} shows {word}, which is not in the vocabulary"));
        missing.chain(obsolete).chain(unknown).collect()
    }
}

#[test]
fn vocabulary_gaps_and_stale_exceptions_are_reported() {
    let check = |word: Word, expected: &str| {
        let mut reached = Reached::default();
        for word in Vocabulary::every_word() {
            if !UNREACHED_REASONS.iter().any(|(reason, _)| Word::reason(*reason) == word) {
                reached.0.insert(word, "a.yaml".to_owned());
            }
        }
        assert!(reached.problems().is_empty(), "{:?}", reached.problems());
        if reached.0.remove(&word).is_none() {
            reached.0.insert(word, "b.yaml".to_owned());
        }
        let problems = reached.problems();
        assert!(problems.len() == 1 && problems[0].contains(expected), "{problems:?}");
    };
    check(Word::reason(Reason::Running), "no scenario reaches reason Running");
    check(Word::reason(Reason::Unknown), "b.yaml reaches it");
    check(Word { kind: "node state", name: "Asleep".to_owned() }, "which is not in the vocabulary");
}
