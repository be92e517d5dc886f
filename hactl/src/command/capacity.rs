//! `hactl capacity`: counts how many more services of a size fit.

use super::allocate::value;
use super::group::input::{Input, Read};
use super::group::size::{self, shown};
use crate::failure::{Exit, Failure, Outcome};
use crate::render::Format;
use crate::render::cpus::cpus;
use crate::render::table::{Cell, Table};
use crate::session::Session;
use clap::Args;
use ha_scheduler::balance::groups::capacity::{Broken, Filled, GroupCapacity, MOST, capacity};
use ha_scheduler::balance::groups::newcomer::Newcomer;
use ha_scheduler::balance::groups::tiers::Tier;
use ha_scheduler::balance::model::{Policy, Specification, Template};
use serde_json::{Value, json};

/// Compute how many more services of a size fit
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
    input: Input,
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
        let read = self.input.read(session).await?.open_unknown();
        let named = self.disk_template.as_deref().map(size::template).transpose();
        let named = named.map_err(|error| Failure::usage(error).at("--disk-template"))?;
        if read.is_live && named.is_some() {
            return Err(Failure::usage("--disk-template is valid only with -t; write pool=NAME in SPEC"));
        }
        let size = match &self.spec {
            Some(text) => sized(text, &read, named)?,
            None => of_policy(&read, named, |policy, _| policy.standard).ok_or_else(|| {
                Failure::usage("no size specified, and the cluster policy has no standard size")
                    .help(size::HELP)
            })?,
        };
        let tiered = match &self.tiered {
            _ if self.no_tiers => None,
            Some(text) => Some(sized(text, &read, named)?),
            None if self.spec.is_some() => Some(size.clone()),
            None => of_policy(&read, named, |_, greatest| greatest),
        };
        let found = capacity(&read.cluster, &read.settings, &size, tiered.as_ref());
        if format.is_some() {
            session.print_value(format, &document(&read, &size, &found))?;
        } else {
            session.terminal().out(&text(session, &read, &size, &found));
        }
        Ok(Exit::Done)
    }
}

fn sized(text: &str, read: &Read, template: Option<Template>) -> Result<Newcomer, Failure> {
    let mut size = size::read(text, read)?;
    if let Some(template) = template.filter(|_| !text.contains("template=")) {
        size.template = template;
    }
    Ok(size)
}

/// Returns the standard or the largest size of the cluster's policy.
fn of_policy(
    read: &Read,
    template: Option<Template>,
    which: impl Fn(&Policy, Specification) -> Specification,
) -> Option<Newcomer> {
    let cluster = &read.cluster;
    let policy = cluster.policies.iter().find(|policy| policy.owner.is_empty())?;
    let greatest = policy.ranges.first().map_or(policy.standard, |(_, greatest)| *greatest);
    let size = which(policy, greatest);
    let newcomer = Newcomer {
        memory: size.memory,
        disk: size.disk,
        vcpus: size.cpus,
        template: template.unwrap_or_else(|| size::usual_template(cluster)),
        spindle_use: size.spindles,
        tags: Vec::new(),
        nodes: None,
    };
    // The live cluster's policy counts CPUs in thousandths and has no largest size.
    Some(match &read.view {
        None => newcomer,
        Some(view) => {
            let standard = policy.standard;
            let (memory, disk) = (standard.memory, standard.disk);
            size::live(Newcomer { memory, disk, vcpus: standard.cpus / 1000, ..newcomer }, view, None)
        }
    })
}

fn text(session: &Session, read: &Read, size: &Newcomer, found: &[GroupCapacity]) -> String {
    let mut text = format!("Size: {}\n", shown(size));
    let mut table = Table::new(&["GROUP", "NOW", "WITH N+1", "TIERS WITH N+1", "REASON"]);
    for group in found {
        table.row(vec![
            Cell::plain(read.group(group.group)),
            Cell::plain(&counted(&group.now)),
            Cell::plain(&counted(&group.kept)),
            Cell::plain(&tiers(&group.tiers, read.cluster.cpus_in_thousandths)),
            Cell::plain(&because(read, group)),
        ]);
    }
    let sum = |count: &dyn Fn(&GroupCapacity) -> usize| found.iter().map(count).sum::<usize>().to_string();
    table.row(vec![
        Cell::plain("total"),
        Cell::plain(&sum(&|group| group.now.count())),
        Cell::plain(&sum(&|group| group.kept.count())),
        Cell::plain(""),
        Cell::plain(""),
    ]);
    text += &table.render(session.terminal(), 0);
    text
}

fn counted(filled: &Filled) -> String {
    let more = if filled.count() >= MOST { "+" } else { "" };
    format!("{}{more}", filled.count())
}

/// Returns the tiers as `4096,102400,2=225`: memory, disk, CPUs and count.
fn tiers(tiers: &[Tier], in_thousandths: bool) -> String {
    let each = tiers.iter().map(|tier| {
        format!(
            "{},{},{}={}",
            tier.size.memory,
            tier.size.disk,
            cpus(tier.size.vcpus, in_thousandths),
            tier.count
        )
    });
    each.collect::<Vec<_>>().join(" ")
}

fn because(read: &Read, group: &GroupCapacity) -> String {
    if let Some(refused) = &group.refused {
        return refused.to_string();
    }
    match &group.broken {
        Some(Broken::Reserve(nodes)) => {
            format!("N+1 check currently fails on {}", read.nodes(nodes).join(", "))
        }
        Some(Broken::Failover(node)) => format!(
            "some services of {} cannot be scheduled if the node fails",
            read.nodes(&[*node]).join("")
        ),
        None => group.now.lack.map_or_else(String::new, |lack| format!("one more service: {lack}")),
    }
}

fn document(read: &Read, size: &Newcomer, found: &[GroupCapacity]) -> Value {
    let tier = |tier: &Tier| {
        let size = tier.size;
        json!({ "memory": size.memory, "disk": size.disk, "vcpus": cpus(size.vcpus, read.cluster.cpus_in_thousandths), "count": tier.count })
    };
    let group = |group: &GroupCapacity| {
        json!({
            "group": read.group(group.group),
            "now": group.now.count(),
            "withNPlusOne": group.kept.count(),
            "atLeast": group.now.count() >= MOST,
            "tiers": group.tiers.iter().map(tier).collect::<Vec<_>>(),
            "reason": because(read, group),
        })
    };
    let sum = |count: &dyn Fn(&GroupCapacity) -> usize| found.iter().map(count).sum::<usize>();
    json!({
        "size": value(size),
        "groups": found.iter().map(group).collect::<Vec<_>>(),
        "total": {
            "now": sum(&|group| group.now.count()),
            "withNPlusOne": sum(&|group| group.kept.count()),
        },
    })
}
