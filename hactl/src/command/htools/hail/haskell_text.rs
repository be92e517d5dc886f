//! The request as hail prints it with `-v -v`, in the notation of Haskell.

use super::request::{Disk, HailRequest, Nic, Question, is_movable};
use ha_scheduler::balance::htools::evacuation::Mode;
use ha_scheduler::balance::htools::group_choice::RequestedInstance;
use ha_scheduler::balance::model::{Cluster, Instance, Status, Template};
use ha_scheduler::balance::text;

/// Formats the question in the notation of Haskell.
pub(super) fn question(received: &HailRequest) -> String {
    let list = |numbers: &[usize]| format!("{numbers:?}").replace(' ', "");
    let first_new = received.cluster.instances.len();
    let instance = |wanted: &RequestedInstance, index: usize| {
        let position = first_new + index;
        haskell_instance(
            &received.cluster,
            &wanted.request.instance,
            &received.disks[position],
            &received.nics[position],
        )
    };
    let details = |wanted: &RequestedInstance| {
        format!("AllocDetails {} {}", wanted.node_count, haskell_maybe(wanted.group.as_deref()))
    };
    match &received.question {
        Question::Allocate { wanted, restricted_to } => {
            let nodes = restricted_to.as_ref();
            let nodes = nodes.map_or("Nothing".to_owned(), |names| format!("(Just {})", haskell_list(names)));
            format!("Allocate ({}) ({}) {nodes}", instance(wanted, 0), details(wanted))
        }
        Question::Relocate { instance, node_count, excluded } => {
            format!("Relocate {instance} {node_count} {}", list(excluded))
        }
        Question::ChangeGroup { instances, groups } => {
            format!("ChangeGroup {} {}", list(instances), list(groups))
        }
        Question::Evacuate { instances, mode } => {
            let mode = match mode {
                Mode::Primary => "ChangePrimary",
                Mode::Secondary => "ChangeSecondary",
                Mode::All => "ChangeAll",
            };
            format!("NodeEvacuate {} {mode}", list(instances))
        }
        Question::AllocateEach(wanted) => {
            let each = wanted.iter().enumerate();
            let each =
                each.map(|(index, wanted)| format!("({},{})", instance(wanted, index), details(wanted)));
            format!("MultiAllocate [{}]", each.collect::<Vec<_>>().join(","))
        }
        Question::AllocateSecondary(instance) => format!("AllocateSecondary {instance}"),
    }
}

/// Formats the cluster: groups, nodes and policies in the text format, and the instances in the notation of Haskell.
pub(super) fn cluster(received: &HailRequest) -> String {
    let without_instances = Cluster { instances: Vec::new(), ..received.cluster.clone() };
    let described = received.cluster.instances.iter().zip(&received.disks).zip(&received.nics).enumerate();
    let instances = described.map(|(index, ((instance, disks), nics))| {
        let secondary = instance.secondary.map_or("-1".to_owned(), |node| node.to_string());
        let text = haskell_instance(&received.cluster, instance, disks, nics);
        let nodes = format!("pNode = {}, sNode = {secondary}, idx = {index}", instance.primary);
        format!("({index},{})", text.replace("pNode = 0, sNode = 0, idx = -1", &nodes))
    });
    let instances = instances.collect::<Vec<_>>().join(",");
    format!("cdInstances = fromList [{instances}]\n{}", text::write(&without_instances))
}

fn haskell_maybe(text: Option<&str>) -> String {
    text.map_or("Nothing".to_owned(), |text| format!("(Just {text:?})"))
}

fn haskell_list(texts: &[String]) -> String {
    format!("[{}]", texts.iter().map(|text| format!("{text:?}")).collect::<Vec<_>>().join(","))
}

fn haskell_instance(cluster: &Cluster, instance: &Instance, disks: &[Disk], nics: &[Nic]) -> String {
    let with_prefix = |marker: &str| -> Vec<String> {
        let prefixes: Vec<&str> = cluster.tags.iter().filter_map(|tag| tag.strip_prefix(marker)).collect();
        let has_prefix = |tag: &&String| prefixes.iter().any(|prefix| tag.starts_with(&format!("{prefix}:")));
        instance.tags.iter().filter(has_prefix).cloned().collect()
    };
    let mut desired = with_prefix("htools:desiredlocation:");
    desired.sort();
    desired.dedup();
    let status = match instance.status {
        Status::AdminDown => "StatusDown",
        Status::AdminOffline => "StatusOffline",
        Status::Running
        | Status::ErrorUp
        | Status::ErrorDown
        | Status::ErrorNodeDown
        | Status::ErrorNodeOffline
        | Status::ErrorWrongNode
        | Status::UserDown => "Running",
    };
    let template = match instance.template {
        Template::Diskless => "DTDiskless",
        Template::File => "DTFile",
        Template::SharedFile => "DTSharedFile",
        Template::Plain => "DTPlain",
        Template::BlockDevice => "DTBlock",
        Template::Drbd => "DTDrbd8",
        Template::Rbd => "DTRbd",
        Template::External => "DTExt",
        Template::Gluster => "DTGluster",
    };
    let disks: Vec<String> = disks
        .iter()
        .map(|disk| {
            let spindles = disk.spindles.map_or("Nothing".to_owned(), |count| format!("Just {count}"));
            format!("Disk {{dskSize = {}, dskSpindles = {spindles}}}", disk.size)
        })
        .collect();
    let nics: Vec<String> = nics.iter().map(shown_nic).collect();
    let boolean = |value: bool| if value { "True" } else { "False" };
    format!(
        "Instance {{name = {name:?}, alias = {name:?}, mem = {}, dsk = {}, disks = [{}], vcpus = {}, runSt = {status}, \
         pNode = 0, sNode = 0, idx = -1, util = DynUtil {{cpuWeight = 1.0, memWeight = 1.0, dskWeight = 1.0, \
         netWeight = 1.0}}, movable = {}, autoBalance = True, diskTemplate = {template}, spindleUse = {}, allTags = {}, \
         exclTags = {}, dsrdLocTags = fromList {}, locationScore = 0, arPolicy = ArNotEnabled, nics = [{}], \
         forthcoming = {}}}",
        instance.memory,
        instance.disk,
        disks.join(","),
        instance.vcpus,
        boolean(is_movable(instance.template)),
        instance.spindle_use,
        haskell_list(&instance.tags),
        haskell_list(&with_prefix("htools:iextags:")),
        haskell_list(&desired),
        nics.join(","),
        boolean(instance.forthcoming),
        name = instance.name,
    )
}

fn shown_nic(nic: &Nic) -> String {
    let text =
        |text: &Option<String>| text.as_ref().map_or("Nothing".to_owned(), |text| format!("Just {text:?}"));
    let [address, ip_address, link, bridge] = nic.texts.each_ref().map(text);
    let mode = nic.mode.map_or("Nothing".to_owned(), |mode| format!("Just {mode}"));
    format!(
        "Nic {{mac = {address}, ip = {ip_address}, mode = {mode}, link = {link}, bridge = {bridge}, network = {}}}",
        text(&nic.network)
    )
}
