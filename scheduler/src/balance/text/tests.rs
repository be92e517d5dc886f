//! Round trips through the text format, and errors with line and field.

use super::{read, read_utilization, write};
use crate::balance::model::*;
use proptest::prelude::*;

const CLUSTER_TEXT: &str = "g1|uuid-1|preferred||\n\n\
    n1|1024|24|800|4096|3072|8|M|uuid-1|2|rack:a|N|0|1|1.0\n\
    n2|1024|24|1000|4096|3072|8|N|uuid-1|2||N|0|1|1.0\n\n\
    i1|200|1024|2|running|Y|n1|n2|drbd|web:1,x|1|-\n\n\
    htools:iextags:web\n\n\
    |128,1,1024,1,1,1|128,1,1024,1,1,1;32768,8,1048576,16,1,12|drbd,plain|4.0|32.0\n";

/// Checks that the file with one changed line is rejected with this message.
fn check(from: &str, to: &str, expected: &str) {
    assert!(CLUSTER_TEXT.contains(from), "{from}");
    let error = read(&CLUSTER_TEXT.replacen(from, to, 1)).unwrap_err();
    assert_eq!(error.to_string(), expected);
}

#[test]
fn parse_error_names_line_field_and_expectation() {
    check(
        "|preferred|",
        "|maybe|",
        "line 1, allocation policy (field 3): expected preferred, last_resort or unallocable, found `maybe`",
    );
    check("|800|", "|much|", "line 3, free memory (field 4): expected an integer, found `much`");
    check(
        "n1|1024|",
        "n1|0|",
        "line 3, total memory (field 2): expected more than 0 on a node that is not offline, found `0`",
    );
    check(
        "n2|1024|24|1000|4096|3072|8|N|uuid-1",
        "n2|1024|24|1000|4096|3072|8|N|uuid-2",
        "line 4, group (field 9): expected a group uuid of the section above, found `uuid-2`",
    );
    let unknown_node_error = read(&CLUSTER_TEXT.replacen("|n1|n2|drbd", "|n1|n3|drbd", 1)).unwrap_err();
    assert_eq!(unknown_node_error.unknown_node(), Some("n3"));
    check(
        "|n1|n2|drbd",
        "|n1|n3|drbd",
        "line 6, secondary node (field 8): expected a node of the section above, found `n3`",
    );
    check(
        "|n1|n2|drbd",
        "|n1|n1|drbd",
        "line 6, secondary node (field 8): expected a node other than the primary, found `n1`",
    );
    check(
        "|n1|n2|drbd",
        "|n1||drbd",
        "line 6, secondary node (field 8): expected a node, because the template is drbd, found nothing",
    );
    check(
        "|n1|n2|drbd",
        "|n1|n2|plain",
        "line 6, secondary node (field 8): expected nothing, because only template drbd has a secondary node, found `n2`",
    );
    check("i1|200|", "i1|-1|", "line 6, memory (field 2): expected an integer of 0 or more, found `-1`");
    check("|4.0|", "|none|", "line 10, vcpu ratio (field 5): expected a number greater than 0, found `none`");
    check(
        "|128,1,1024,1,1,1|",
        "|128,one,1024,1,1,1|",
        "line 10, standard size (field 2), cpus (value 2): expected an integer of 0 or more, found `one`",
    );
    check(
        "i1|200|1024|2|running|Y|n1|n2|drbd|web:1,x|1|-",
        "i1|200",
        "line 6: expected an instance with 10 to 13 fields separated by `|`, found 2 fields",
    );
    check("n2|", "n1|", "line 4, name (field 1): expected a unique node, found `n1` a second time");
    check(
        "htools:iextags:web\n\n",
        "htools:iextags:web\n\n\n",
        "line 11: expected sections for groups, nodes, instances, cluster tags and policies, separated by one empty line, found a sixth section",
    );
}

#[test]
fn an_unknown_size_means_offline() {
    let cluster = read(&CLUSTER_TEXT.replace("n2|1024|24|1000|", "n2|?|?|?|")).unwrap();
    assert_eq!(cluster.nodes[1].role, Role::Offline);
    assert_eq!(cluster.nodes[0].role, Role::Master);
}

#[test]
fn files_with_fewer_fields_are_accepted() {
    let older = "g1|uuid-1|preferred\n\nn1|1024.0|24|1000|4096|4096|8|N|uuid-1\n\n\n\n\
        |128,1,1024,1,1,1|64,1,1024,1,1,1|32768,8,1048576,16,1,12|drbd|4.0|32.0\n";
    let cluster = read(older).unwrap();
    assert_eq!(cluster.generation, FormatGeneration::Older);
    assert_eq!(cluster.policies[0].ranges[0].0.memory, 64);
    assert_eq!((cluster.nodes[0].memory_total, cluster.nodes[0].spindles), (1024, 1));
    assert_eq!(read(&write(&cluster)).unwrap(), cluster);
}

#[test]
fn measured_use_belongs_to_known_instances() {
    let mut cluster = read(CLUSTER_TEXT).unwrap();
    read_utilization(&mut cluster, "i1 0.5 0 0.25 1\n").unwrap();
    assert_eq!(cluster.instances[0].load, [LOAD_UNIT / 2, 0, LOAD_UNIT / 4, LOAD_UNIT]);
    let error_text = |text: &str| read_utilization(&mut cluster.clone(), text).unwrap_err().to_string();
    assert_eq!(
        error_text("\ni2 1 1 1 1"),
        "line 2, instance (word 1): expected an instance of the cluster, found `i2`"
    );
    assert_eq!(error_text("i1 1 1 x 1"), "line 1, disk: expected a number from 0 to 100, found `x`");
    assert_eq!(
        error_text("i1 1 1"),
        "line 1: expected an instance and its use of cpu, memory, disk and network, found 3 words"
    );
}

fn tags() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec("[a-z]{1,3}:[a-z0-9]{1,2}", 0..3)
}

fn clusters() -> impl Strategy<Value = Cluster> {
    let node = (
        1..1_000_000_i64,
        0..2000_i64,
        -5..99_999_i64,
        1..200_i64,
        0..3_usize,
        tags(),
        any::<bool>(),
        0.01..4.0_f64,
    );
    let instance = (
        1..70_000_i64,
        0..9_usize,
        0..9_usize,
        any::<bool>(),
        any::<(usize, usize)>(),
        tags(),
        prop::option::of(0..9_i64),
    );
    let parts = (
        prop::collection::vec(node, 2..6),
        prop::collection::vec(instance, 0..9),
        tags(),
        any::<bool>(),
        1..3_usize,
    );
    parts.prop_map(|(nodes, instances, tags, is_newer, group_count)| {
        let tags_if_newer = |tags: Vec<String>| if is_newer { tags } else { Vec::new() };
        let count = nodes.len();
        let size = Specification { memory: 128, cpus: 1, disk: 1024, disks: 1, nics: 1, spindles: 2 };
        let mut cluster = Cluster {
            live_constraints: std::collections::BTreeMap::new(),
            has_forthcoming_field: false,
            cpus_in_thousandths: false,
            generation: if is_newer { FormatGeneration::Newer } else { FormatGeneration::Older },
            groups: (0..group_count)
                .map(|index| Group {
                    name: format!("g{index}"),
                    uuid: format!("u{index}"),
                    allocation: super::reader::ALLOCATIONS[index].0,
                    tags: tags_if_newer(tags.clone()),
                    networks: Vec::new(),
                })
                .collect(),
            nodes: nodes
                .into_iter()
                .enumerate()
                .map(|(index, (total, own_use, free, cpus, role, tags, exclusive, speed))| Node {
                    name: format!("n{index}"),
                    memory_total: total,
                    memory_own: own_use,
                    memory_free: free,
                    disk_total: total * 3,
                    disk_free: free * 2,
                    cpus,
                    role: super::reader::ROLES[role].0,
                    group: index % group_count,
                    spindles: cpus,
                    tags: tags_if_newer(tags),
                    exclusive_storage: is_newer && exclusive,
                    spindles_free: if is_newer { free } else { 0 },
                    cpus_own: if is_newer { own_use } else { 1 },
                    cpu_speed: if is_newer { speed } else { 1.0 },
                })
                .collect(),
            instances: instances
                .into_iter()
                .enumerate()
                .map(|(index, (memory, status, template, flag, (primary, secondary), tags, spindles))| {
                    let template = Template::WORDS[template].0;
                    let primary = primary % count;
                    let other = (primary + 1 + secondary % (count - 1)) % count;
                    Instance {
                        name: format!("i{index}"),
                        memory,
                        disk: memory * 4,
                        vcpus: memory % 9,
                        status: Status::WORDS[status].0,
                        auto_balance: flag,
                        primary,
                        secondary: (template == Template::Drbd).then_some(other),
                        template,
                        tags,
                        spindle_use: if is_newer { memory % 3 } else { 1 },
                        disk_spindles: if is_newer { spindles } else { None },
                        forthcoming: is_newer && flag,
                        load: DEFAULT_LOAD,
                    }
                })
                .collect(),
            tags,
            policies: vec![Policy {
                owner: String::new(),
                standard: size,
                ranges: vec![(size, size); if is_newer { 2 } else { 1 }],
                templates: vec![Template::Drbd, Template::External],
                vcpu_ratio: 3.5,
                spindle_ratio: 16.0,
            }],
        };
        cluster.has_forthcoming_field = cluster.instances.iter().any(|instance| instance.forthcoming);
        cluster
    })
}

proptest! {
    #[test]
    fn written_cluster_text_is_parsed_again(cluster in clusters()) {
        let text = write(&cluster);
        prop_assert_eq!(read(&text).unwrap(), cluster);
    }

    #[test]
    fn mutated_file_parses_or_names_error_line(
        cluster in clusters(),
        edits in prop::collection::vec((any::<usize>(), any::<usize>(), "[|,;?\\-.0-9YN a\n]{0,3}|\\PC{1,2}"), 1..6),
    ) {
        let mut text = write(&cluster);
        for (position, length, replacement) in edits {
            let characters: Vec<char> = text.chars().collect();
            let start = position % (characters.len() + 1);
            let end = (start + length % 4).min(characters.len());
            text = characters[..start].iter().collect::<String>() + &replacement + &characters[end..].iter().collect::<String>();
        }
        match read(&text) {
            Ok(cluster) => prop_assert_eq!(read(&write(&cluster)).unwrap(), cluster),
            Err(error) => {
                prop_assert!(error.line >= 1 && error.line <= text.lines().count().max(1), "{}", error);
                prop_assert!(!error.expected.is_empty() && !error.actual.is_empty(), "{}", error);
            }
        }
    }
}
