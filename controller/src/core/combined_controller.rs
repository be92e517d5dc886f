//! A complete controller for the simulator and for tests: the election and the planner, connected as by the shell.

use super::Controller;
use super::candidacy::{Candidacy, FIRST_ELECTION_ID};
use super::interface::FullReadId;
use super::interface::{Config, Effect, Input};
use ha_api_types::time::{MonotonicTime, Now};
use ha_store::Change;
use std::collections::VecDeque;
use std::ops::Deref;

/// A plan in progress: inputs that arrive for the planner in the meantime, and the effects of the plan.
#[derive(Debug, Default)]
struct PlanInProgress {
    inputs: VecDeque<Input>,
    effects: VecDeque<Effect>,
}

/// Both cores of one controller. Accessors return the planner's state.
#[derive(Debug)]
pub struct CombinedController {
    planner: Controller,
    candidacy: Candidacy,
    election_keys: [String; 3],
    now: Now,
    effects: VecDeque<Effect>,
    plans_slowly: bool,
    planning: Option<PlanInProgress>,
}

/// Returns `true` if the election requested this refresh. The ids of the election are above all ids of the planner, and
/// each of the two cores counts its own ids.
pub fn is_election_read(id: FullReadId) -> bool {
    id.0 >= FIRST_ELECTION_ID
}

impl Deref for CombinedController {
    type Target = Controller;
    fn deref(&self) -> &Controller {
        &self.planner
    }
}

impl CombinedController {
    /// Creates a controller without any observation.
    pub fn new(config: Config) -> CombinedController {
        CombinedController {
            candidacy: Candidacy::new(&config),
            election_keys: Candidacy::keys(&config),
            planner: Controller::new(config),
            now: Now::default(),
            effects: VecDeque::new(),
            plans_slowly: false,
            planning: None,
        }
    }

    /// Applies an input.
    pub fn handle(&mut self, now: &Now, input: Input) {
        self.now = now.clone();
        match input {
            Input::Synced { entries, revision, answers } => {
                let election_entries =
                    entries.iter().filter(|entry| self.election_keys.contains(&entry.key)).cloned().collect();
                let (planner_read, election_read) = if is_election_read(answers) {
                    (FullReadId::default(), answers)
                } else {
                    (answers, FullReadId::default())
                };
                self.candidacy.handle(
                    now,
                    Input::Synced { entries: election_entries, revision, answers: election_read },
                );
                self.pass_to_planner(Input::Synced { entries, revision, answers: planner_read });
            }
            Input::Changed { changes, revision } => {
                let is_election_change =
                    |change: &&Change| self.election_keys.iter().any(|key| key == change.key());
                let election_entries = changes.iter().filter(is_election_change).cloned().collect();
                self.candidacy.handle(now, Input::Changed { changes: election_entries, revision });
                self.pass_to_planner(Input::Changed { changes, revision });
            }
            Input::Progress(_) | Input::Tick => {
                self.candidacy.handle(now, input.clone());
                self.pass_to_planner(input);
            }
            Input::Committed { id, .. } if id.0 >= FIRST_ELECTION_ID => self.candidacy.handle(now, input),
            Input::LeaseGranted { .. }
            | Input::LeaseKept { .. }
            | Input::Shutdown
            | Input::ElectionInputs(_) => {
                self.candidacy.handle(now, input);
            }
            Input::Committed { .. }
            | Input::FencerDone { .. }
            | Input::Delivered { .. }
            | Input::HoldRequested { .. }
            | Input::ElectionState(_) => self.pass_to_planner(input),
        }
        self.poll_candidacy();
    }

    /// Returns the next effect. After one or several inputs, call this function until it returns `None`.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        loop {
            if let Some(effect) = self.effects.pop_front() {
                return Some(effect);
            }
            if self.planning.is_some() {
                return None;
            }
            let plans_before = self.planner.plan_count();
            let effect = self.planner.poll_effect();
            if self.plans_slowly && self.planner.plan_count() != plans_before {
                self.planning = Some(PlanInProgress {
                    effects: effect.into_iter().collect(),
                    ..PlanInProgress::default()
                });
                continue;
            }
            self.route_planner_effect(effect?);
        }
    }

    /// Returns the time on `now.monotonic_raw` at which to send [`Input::Tick`], and the reason.
    pub fn deadline(&self) -> Option<(MonotonicTime, &'static str)> {
        let planner = if self.planning.is_none() { self.planner.deadline() } else { None };
        self.candidacy.deadline().into_iter().chain(planner).min()
    }

    /// Sets whether each plan stays in progress until [`CombinedController::finish_plan`].
    pub fn set_plans_slowly(&mut self, is_slow: bool) {
        self.plans_slowly = is_slow;
    }

    /// Returns `true` if a plan is in progress.
    pub fn is_planning(&self) -> bool {
        self.planning.is_some()
    }

    /// Finishes the plan in progress: emits its effects, and applies the inputs that arrived in the meantime.
    pub fn finish_plan(&mut self, now: &Now) {
        self.now = now.clone();
        let Some(planning) = self.planning.take() else { return };
        for effect in planning.effects {
            self.route_planner_effect(effect);
        }
        for input in planning.inputs {
            self.planner.handle(now, input);
        }
    }

    fn pass_to_planner(&mut self, input: Input) {
        match &mut self.planning {
            Some(planning) => planning.inputs.push_back(input),
            None => self.planner.handle(&self.now, input),
        }
    }

    fn route_planner_effect(&mut self, effect: Effect) {
        if let Effect::UpdateElection(election_inputs) = effect {
            self.candidacy.handle(&self.now, Input::ElectionInputs(election_inputs));
            self.poll_candidacy();
        } else {
            self.effects.push_back(effect);
        }
    }

    fn poll_candidacy(&mut self) {
        while let Some(effect) = self.candidacy.poll_effect() {
            if let Effect::ReportElection(election_state) = effect {
                self.pass_to_planner(Input::ElectionState(election_state));
            } else {
                self.effects.push_back(effect);
            }
        }
    }
}
