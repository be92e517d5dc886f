//! `hactl capacity`: counts how many more services of a size fit.

use super::allocate::size_value;
use super::group::input::{ClusterInput, LoadedCluster};
use super::group::size::{self, size_text};
use crate::failure::{Exit, Failure, Outcome};
use crate::render::Format;
use crate::render::cpus::cpus;
use crate::render::table::{Cell, Table};
use crate::session::Session;
use clap::Args;
use ha_scheduler::balance::groups::capacity::{
    FillResult, GroupCapacity, MAX_COUNTED, NPlusOneFailure, capacity,
};
use ha_scheduler::balance::groups::new_service::NewService;
use ha_scheduler::balance::groups::tiers::Tier;
use ha_scheduler::balance::model::{Policy, Specification, Template};
use serde_json::{Value, json};

/// Compute how many more services of a given size fit
#[derive(Args, Debug)]
#[command(
    after_help = "SPEC is memory=4Gi,disk=100Gi,vcpus=2 (also template=, tags=A+B, spindles=), or 100g,4g,2 for disk, memory and vCPUs; \
        default: the standard size of the cluster policy. The tiered allocation starts \
        with --tiered, SPEC or the largest size of the policy, and continues with smaller sizes.\n\n\
        Exit status: 0 computed; 2 invalid input."
)]
pub(crate) struct Capacity {
    /// Size of the services
    #[arg(value_name = "SPEC")]
    spec: Option<String>,
    #[command(flatten)]
    input: ClusterInput,
    /// Start the tiered allocation with this size
    #[arg(long, value_name = "SPEC")]
    tiered: Option<String>,
    /// Skip the tiered allocation
    #[arg(long, conflicts_with = "tiered")]
    no_tiers: bool,
    /// Disk template, if SPEC has none
    #[arg(long, value_name = "TEMPLATE")]
    disk_template: Option<String>,
}

impl Capacity {
    pub(crate) async fn run(&self, session: &Session) -> Outcome {
        let format = session.format(&[Format::Yaml, Format::Json])?;
        let loaded = self.input.read(session).await?.without_unknown_limits();
        let template = self.disk_template.as_deref().map(size::parse_template).transpose();
        let template = template.map_err(|error| Failure::usage(error).with_context("--disk-template"))?;
        if loaded.is_live && template.is_some() {
            return Err(Failure::usage("--disk-template is valid only with -t; specify pool=NAME in SPEC"));
        }
        let size = match &self.spec {
            Some(text) => parse_size_with_template(text, &loaded, template)?,
            None => size_from_policy(&loaded, template, |policy, _| policy.standard).ok_or_else(|| {
                Failure::usage("no size specified, and the cluster policy has no standard size")
                    .help(size::SIZE_HELP)
            })?,
        };
        let tiered = match &self.tiered {
            _ if self.no_tiers => None,
            Some(text) => Some(parse_size_with_template(text, &loaded, template)?),
            None if self.spec.is_some() => Some(size.clone()),
            None => size_from_policy(&loaded, template, |_, largest| largest),
        };
        let group_capacities = capacity(&loaded.cluster, &loaded.settings, &size, tiered.as_ref());
        if format.is_some() {
            session.print_value(format, &json_output(&loaded, &size, &group_capacities))?;
        } else {
            session.terminal().print(&text(session, &loaded, &size, &group_capacities));
        }
        Ok(Exit::Done)
    }
}

fn parse_size_with_template(
    text: &str,
    loaded: &LoadedCluster,
    template: Option<Template>,
) -> Result<NewService, Failure> {
    let mut size = size::parse_size(text, loaded)?;
    if let Some(template) = template.filter(|_| !text.contains("template=")) {
        size.template = template;
    }
    Ok(size)
}

/// Returns the standard or the largest size of the cluster's policy.
fn size_from_policy(
    loaded: &LoadedCluster,
    template: Option<Template>,
    select: impl Fn(&Policy, Specification) -> Specification,
) -> Option<NewService> {
    let cluster = &loaded.cluster;
    let policy = cluster.policies.iter().find(|policy| policy.owner.is_empty())?;
    let largest = policy.ranges.first().map_or(policy.standard, |(_, largest)| *largest);
    let size = select(policy, largest);
    let new_service = NewService {
        memory: size.memory,
        disk: size.disk,
        vcpus: size.cpus,
        template: template.unwrap_or_else(|| size::default_template(cluster)),
        spindle_use: size.spindles,
        tags: Vec::new(),
        nodes: None,
    };
    // The live cluster's policy counts CPUs in thousandths and has no largest size.
    Some(match &loaded.view {
        None => new_service,
        Some(view) => {
            let standard = policy.standard;
            let (memory, disk) = (standard.memory, standard.disk);
            size::for_live_cluster(
                NewService { memory, disk, vcpus: standard.cpus / 1000, ..new_service },
                view,
                None,
            )
        }
    })
}

fn text(
    session: &Session,
    loaded: &LoadedCluster,
    size: &NewService,
    group_capacities: &[GroupCapacity],
) -> String {
    let mut text = format!("Size: {}\n", size_text(size));
    let mut table = Table::new(&["GROUP", "NOW", "WITH N+1", "TIERS WITH N+1", "REASON"]);
    for group in group_capacities {
        table.add_row(vec![
            Cell::plain(loaded.group(group.group)),
            Cell::plain(&count_text(&group.within_limits)),
            Cell::plain(&count_text(&group.with_n_plus_one)),
            Cell::plain(&tiers(&group.tiers, loaded.cluster.cpus_in_thousandths)),
            Cell::plain(&reason_text(loaded, group)),
        ]);
    }
    let sum = |count: &dyn Fn(&GroupCapacity) -> usize| {
        group_capacities.iter().map(count).sum::<usize>().to_string()
    };
    table.add_row(vec![
        Cell::plain("total"),
        Cell::plain(&sum(&|group| group.within_limits.count())),
        Cell::plain(&sum(&|group| group.with_n_plus_one.count())),
        Cell::plain(""),
        Cell::plain(""),
    ]);
    text += &table.render(session.terminal(), 0);
    text
}

fn count_text(filled: &FillResult) -> String {
    let plus_sign = if filled.count() >= MAX_COUNTED { "+" } else { "" };
    format!("{}{plus_sign}", filled.count())
}

/// Returns the tiers as `4096,102400,2=225`: memory, disk, CPUs and count.
fn tiers(tiers: &[Tier], in_thousandths: bool) -> String {
    let texts = tiers.iter().map(|tier| {
        format!(
            "{},{},{}={}",
            tier.size.memory,
            tier.size.disk,
            cpus(tier.size.vcpus, in_thousandths),
            tier.count
        )
    });
    texts.collect::<Vec<_>>().join(" ")
}

fn reason_text(loaded: &LoadedCluster, group: &GroupCapacity) -> String {
    if let Some(refusal) = &group.refusal {
        return refusal.to_string();
    }
    match &group.n_plus_one_failure {
        Some(NPlusOneFailure::Reserve(nodes)) => {
            format!("N+1 check currently fails on {}", loaded.nodes(nodes).join(", "))
        }
        Some(NPlusOneFailure::Failover(node)) => format!(
            "some services of {} cannot be scheduled if the node fails",
            loaded.nodes(&[*node]).join("")
        ),
        None => group
            .within_limits
            .blocking_reason
            .map_or_else(String::new, |lack| format!("one more service: {lack}")),
    }
}

fn json_output(loaded: &LoadedCluster, size: &NewService, group_capacities: &[GroupCapacity]) -> Value {
    let tier = |tier: &Tier| {
        let size = tier.size;
        json!({ "memory": size.memory, "disk": size.disk, "vcpus": cpus(size.vcpus, loaded.cluster.cpus_in_thousandths), "count": tier.count })
    };
    let group = |group: &GroupCapacity| {
        json!({
            "group": loaded.group(group.group),
            "now": group.within_limits.count(),
            "withNPlusOne": group.with_n_plus_one.count(),
            "atLeast": group.within_limits.count() >= MAX_COUNTED,
            "tiers": group.tiers.iter().map(tier).collect::<Vec<_>>(),
            "reason": reason_text(loaded, group),
        })
    };
    let sum = |count: &dyn Fn(&GroupCapacity) -> usize| group_capacities.iter().map(count).sum::<usize>();
    json!({
        "size": size_value(size),
        "groups": group_capacities.iter().map(group).collect::<Vec<_>>(),
        "total": {
            "now": sum(&|group| group.within_limits.count()),
            "withNPlusOne": sum(&|group| group.with_n_plus_one.count()),
        },
    })
}
