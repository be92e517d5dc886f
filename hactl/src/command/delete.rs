//! `hactl delete`: deletes objects, and updates the rules that name deleted resources.

use super::dry_run::{DryRun, DryRunFlag};
use super::operate::stop_and_wait;
use super::wait::{WaitFlags, wait_until_deleted, with_timeout};
use crate::client::Collection;
use crate::failure::{Exit, Failure, Outcome};
use crate::manifest::{self, Completeness, FileFlags};
use crate::names::{Selection, Target, TypedName, name_of, parse_selection};
use crate::object::{AnyObject, TypedObject};
use crate::session::Session;
use clap::Args;
use ha_api_types::kind::Kind;
use ha_api_types::names::without_type;
use ha_api_types::placement::AffinityRuleSpec;
use ha_api_types::view::{ControllerOverview, ControllerState};
use serde_json::{Value, json};

/// Delete objects; services keep running unless --stop is given
#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
#[command(
    override_usage = "hactl delete [OPTIONS] KIND NAME…\n       hactl delete [OPTIONS] KIND/NAME…\n       \
        hactl delete [OPTIONS] -f <FILE|DIR|->...",
    after_help = "Examples:\n  hactl delete resource web --stop\n  hactl delete group/rack1 rule/apart\n  hactl delete -f web.yaml --wait"
)]
pub(crate) struct Delete {
    /// KIND NAME… or KIND/NAME…
    #[arg(value_name = "OBJECT", conflicts_with = "files")]
    object_arguments: Vec<String>,
    #[command(flatten)]
    files: FileFlags,
    /// Delete all objects of the kind
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    dry_run: DryRunFlag,
    /// Stop services before their resources are deleted
    #[arg(long)]
    stop: bool,
    /// Keep deleted resources in the rules that name them
    #[arg(long)]
    keep_rules: bool,
    /// Exit with status 0 if an object does not exist
    #[arg(long)]
    ignore_not_found: bool,
    #[command(flatten)]
    wait: WaitFlags,
}

impl Delete {
    pub(crate) async fn run(&self, session: &Session) -> Outcome {
        session.format(&[])?;
        if let Some(ids) = parse_controller_ids(&self.object_arguments)? {
            return self.delete_controllers(session, &ids).await;
        }
        let targets = self.targets(session).await?;
        let client = session.client()?;
        let mut targets_found = Vec::new();
        let mut missing = None;
        for target in targets {
            match client.get_target(&target).await {
                Ok(object) => targets_found.push((target, object)),
                Err(failure) if failure.is_not_found() && self.ignore_not_found => {}
                Err(failure) if failure.exit == Exit::Failed => {
                    if let Some(earlier) = missing.replace(failure) {
                        session.terminal().failure(&earlier);
                    }
                }
                Err(failure) => return Err(failure),
            }
        }
        let mode = self.dry_run.mode;
        let suffix = mode.suffix();
        if self.stop && mode == DryRun::None {
            for (_, object) in targets_found.iter().filter(|(target, _)| target.kind == Kind::Resource) {
                stop_and_wait(session, &TypedObject::from_value(object.clone()), self.wait.timeout).await?;
            }
        }
        for (target, object) in &targets_found {
            let uid = AnyObject::from_value(object).metadata.uid;
            if let Some(write_mode) = mode.write_mode() {
                client
                    .delete(target.kind, &target.name.name, &uid, write_mode)
                    .await
                    .map_err(|error| Failure::from(error).with_context(&target.display_name()))?;
            }
            session.terminal().report(&format!("{} deleted{suffix}", target.display_name()));
        }
        let nodes = targets_found.iter().filter(|(target, _)| target.kind == Kind::Node);
        let nodes: Vec<&str> = nodes.map(|(target, _)| target.name.name.as_str()).collect();
        if mode == DryRun::None {
            self.suggest_controller_deletion(session, &nodes).await?;
        }
        if !self.keep_rules {
            let deleted: Vec<&str> = targets_found
                .iter()
                .filter(|(target, _)| target.kind == Kind::Resource)
                .map(|(target, _)| target.name.name.as_str())
                .collect();
            shrink_rules(session, &deleted, mode).await?;
        }
        if self.wait.wait && mode == DryRun::None {
            for (target, _) in &targets_found {
                let object_arguments = format!("{} is not deleted", target.display_name());
                with_timeout(self.wait.timeout, &object_arguments, wait_until_deleted(session, target))
                    .await?;
            }
        }
        missing.map_or(Ok(Exit::Done), Err)
    }

    async fn delete_controllers(&self, session: &Session, ids: &[String]) -> Outcome {
        let mode = self.dry_run.mode;
        let mut missing = None;
        for id in ids {
            let display_name = format!("controller/{id}");
            let exists = if let Some(write_mode) = mode.write_mode() {
                session
                    .client()?
                    .delete_controller(&id.as_str().into(), write_mode)
                    .await
                    .map_err(|error| Failure::from(error).with_context(&display_name))?
            } else {
                let overview = session.client()?.overview().await?;
                overview.controllers.iter().any(|controller| controller.id == *id)
            };
            if exists {
                session.terminal().report(&format!("{display_name} deleted{}", mode.suffix()));
            } else if !self.ignore_not_found {
                let failure =
                    Failure::failed(format!("{display_name} not found")).with_server_reason("NotFound");
                missing = Some(failure.help("run \"hactl status\""));
            }
        }
        missing.map_or(Ok(Exit::Done), Err)
    }

    /// Suggests the deletion of lost controllers on deleted nodes: while their keys exist, an etcd outage stops
    /// services.
    async fn suggest_controller_deletion(&self, session: &Session, nodes: &[&str]) -> Result<(), Failure> {
        if nodes.is_empty() {
            return Ok(());
        }
        let overview = session.client()?.overview().await?;
        let is_lost_on_deleted_node = |controller: &&ControllerOverview| {
            nodes.contains(&controller.id.as_str()) && controller.state == ControllerState::Lost
        };
        for controller in overview.controllers.iter().filter(is_lost_on_deleted_node) {
            let text = format!(
                "controller {} is not running either: if it was removed permanently, run \"hactl delete controller/{0}\"",
                controller.id
            );
            session.terminal().hint(&text);
        }
        Ok(())
    }

    async fn targets(&self, session: &Session) -> Result<Vec<Target>, Failure> {
        if !self.files.files.is_empty() {
            let mut entries = manifest::load(&self.files, Completeness::Identity)?;
            entries.reverse();
            return Ok(entries
                .into_iter()
                .map(|entry| Target {
                    kind: entry.kind,
                    name: TypedName { type_name: None, name: entry.name },
                })
                .collect());
        }
        match parse_selection(&self.object_arguments)? {
            Selection::Objects(targets) => Ok(targets),
            Selection::Kinds(kinds) if self.all => {
                let mut targets = Vec::new();
                for kind in kinds {
                    let list = session.client()?.list(Collection::Kind(kind), &[]).await?;
                    targets.extend(list.items.iter().map(|object| Target {
                        kind,
                        name: TypedName { type_name: None, name: name_of(object).to_owned() },
                    }));
                }
                Ok(targets)
            }
            Selection::Kinds(_) => {
                Err(Failure::usage("no names specified")
                    .help("add names, or --all for all objects of the kind"))
            }
        }
    }
}

/// Parses the ids of `controller ID…` or `controller/ID…`; `None` if another kind is named.
fn parse_controller_ids(object_arguments: &[String]) -> Result<Option<Vec<String>>, Failure> {
    let is_kind = |text: &str| matches!(text, "controller" | "controllers");
    if let Some((kind, ids)) = object_arguments.split_first()
        && is_kind(kind)
    {
        if ids.is_empty() {
            return Err(Failure::usage("no names specified").help("run \"hactl delete controller ID\""));
        }
        return ids.iter().map(|id| Ok(TypedName::parse(id)?.name)).collect::<Result<_, _>>().map(Some);
    }
    let ids: Vec<&str> = object_arguments
        .iter()
        .filter_map(|text| text.split_once('/').filter(|(kind, _)| is_kind(kind)).map(|(_, id)| id))
        .collect();
    match ids.len() {
        0 => Ok(None),
        some if some == object_arguments.len() => {
            ids.iter().map(|id| Ok(TypedName::parse(id)?.name)).collect::<Result<_, _>>().map(Some)
        }
        _ => Err(Failure::usage("controllers cannot be deleted together with other kinds")
            .help("run \"hactl delete controller/ID\"")),
    }
}

/// The change that a rule needs after its resources are deleted.
#[derive(Clone, Debug, PartialEq)]
enum RuleUpdate {
    Unchanged,
    /// The patch with the remaining resources.
    Shrink(Value),
    /// Too few resources remain for the rule to have an effect.
    Delete,
}

async fn shrink_rules(session: &Session, deleted: &[&str], mode: DryRun) -> Result<(), Failure> {
    if deleted.is_empty() {
        return Ok(());
    }
    let (client, suffix) = (session.client()?, mode.suffix());
    for rule in client.all().await? {
        let name = rule.name();
        match rule_update(&rule, deleted) {
            RuleUpdate::Unchanged => {}
            RuleUpdate::Shrink(patch) => {
                if let Some(write_mode) = mode.write_mode() {
                    client.patch(Kind::AffinityRule, name, &patch, write_mode).await?;
                }
                session
                    .terminal()
                    .report(&format!("affinityrule/{name} updated: deleted resources removed{suffix}"));
            }
            RuleUpdate::Delete => {
                if let Some(write_mode) = mode.write_mode() {
                    client.delete(Kind::AffinityRule, name, &rule.metadata.uid, write_mode).await?;
                }
                session
                    .terminal()
                    .report(&format!("affinityrule/{name} deleted: too few resources left{suffix}"));
            }
        }
    }
    Ok(())
}

fn rule_update(rule: &TypedObject<AffinityRuleSpec>, deleted: &[&str]) -> RuleUpdate {
    let AffinityRuleSpec { node_affinity, resource_affinity, disabled: _, comment: _ } = &rule.spec;
    let fields = [
        ("nodeAffinity", node_affinity.as_ref().map(|affinity| &affinity.resources), 1),
        ("resourceAffinity", resource_affinity.as_ref().map(|affinity| &affinity.resources), 2),
    ];
    for (field, resources, min_count) in fields {
        let Some(resources) = resources else { continue };
        let remaining: Vec<&String> =
            resources.iter().filter(|name| !deleted.contains(&without_type(name))).collect();
        if remaining.len() == resources.len() {
            continue;
        }
        if remaining.len() < min_count {
            return RuleUpdate::Delete;
        }
        // The resourceVersion guards against a concurrent change.
        return RuleUpdate::Shrink(json!({
            "metadata": {"resourceVersion": rule.metadata.resource_version},
            "spec": {field: {"resources": remaining}},
        }));
    }
    RuleUpdate::Unchanged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controllers_are_named_by_kind_and_id() {
        let check = |object_arguments: &[&str], expected: Option<&[&str]>| {
            let object_arguments: Vec<String> =
                object_arguments.iter().map(|text| (*text).to_owned()).collect();
            let expected = expected.map(|ids| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>());
            assert_eq!(
                parse_controller_ids(&object_arguments).ok().flatten(),
                expected,
                "{object_arguments:?}"
            );
        };
        check(&["controller/c1", "controller/c2"], Some(&["c1", "c2"]));
        check(&["controllers", "c1"], Some(&["c1"]));
        check(&["node/n1"], None);
        check(&["web"], None);
        assert!(parse_controller_ids(&["controller/c1".to_owned(), "node/n1".to_owned()]).is_err());
        assert!(parse_controller_ids(&["controller".to_owned()]).is_err());
    }

    #[test]
    fn rules_are_updated_or_deleted_with_their_resources() {
        let check = |spec: Value, deleted: &[&str], expected: RuleUpdate| {
            let rule = TypedObject::from_value(
                json!({"metadata": {"name": "r", "resourceVersion": "7"}, "spec": spec}),
            );
            assert_eq!(rule_update(&rule, deleted), expected);
        };
        let version = json!({"resourceVersion": "7"});
        check(json!({"nodeAffinity": {"resources": ["a"]}}), &["b"], RuleUpdate::Unchanged);
        check(json!({"nodeAffinity": {"resources": ["a"]}}), &["a"], RuleUpdate::Delete);
        check(
            json!({"nodeAffinity": {"resources": ["vm:a", "b"]}}),
            &["a"],
            RuleUpdate::Shrink(json!({"metadata": version, "spec": {"nodeAffinity": {"resources": ["b"]}}})),
        );
        check(json!({"resourceAffinity": {"resources": ["a", "b"]}}), &["a"], RuleUpdate::Delete);
        check(
            json!({"resourceAffinity": {"resources": ["a", "b", "c"]}}),
            &["a"],
            RuleUpdate::Shrink(
                json!({"metadata": version, "spec": {"resourceAffinity": {"resources": ["b", "c"]}}}),
            ),
        );
    }
}
