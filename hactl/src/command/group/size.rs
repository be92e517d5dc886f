//! The size of a new service on the command line.

use super::input::LoadedCluster;
use crate::failure::Failure;
use crate::render::cpus::cpus;
use ha_scheduler::balance::groups::new_service::NewService;
use ha_scheduler::balance::groups::partition::template_name;
use ha_scheduler::balance::live::{model_exclusion_tags, nodes_for_new_service};
use ha_scheduler::balance::model::{Cluster, Template};
use ha_scheduler::view::View;

/// Accepted forms of a size, for error messages.
pub(crate) const SIZE_HELP: &str = "specify memory=4Gi,disk=100Gi,vcpus=2 (also template=, tags=A+B, spindles=), or 100g,4g,2 for disk, memory and vCPUs";

/// Parses a size for a cluster. For the live cluster, a size may name its `pool`, and CPUs are counted in thousandths.
pub(crate) fn parse_size(text: &str, loaded: &LoadedCluster) -> Result<NewService, Failure> {
    let Some(view) = &loaded.view else { return parse(text, &loaded.cluster) };
    let parts: Vec<&str> = text.split(',').collect();
    let pool = parts.iter().find_map(|part| part.strip_prefix("pool="));
    let invalid = |message: String| Failure::usage(message).with_context(&format!("`{text}`"));
    if text.contains("template=") {
        return Err(invalid("template= is valid only with -t".to_owned()).help("specify pool=NAME"));
    }
    if let Some(pool) = pool
        && !view.nodes.values().any(|node| node.storage_pools.contains(pool))
    {
        return Err(invalid(format!("no node has the storage pool {pool}")));
    }
    let size_parts: Vec<&str> = parts.into_iter().filter(|part| !part.starts_with("pool=")).collect();
    Ok(for_live_cluster(parse(&size_parts.join(","), &loaded.cluster)?, view, pool))
}

/// Converts a size to a service of the live cluster.
pub(crate) fn for_live_cluster(mut size: NewService, view: &View, pool: Option<&str>) -> NewService {
    size.template = if pool.is_some() { Template::External } else { Template::Diskless };
    size.tags = model_exclusion_tags(view, &size.tags);
    size.spindle_use = 0;
    size.vcpus *= 1000;
    size.nodes = Some(nodes_for_new_service(view, pool));
    size
}

/// Parses a size for a cluster from a file. The default template is the first one of the cluster's policy, or drbd.
fn parse(text: &str, cluster: &Cluster) -> Result<NewService, Failure> {
    let invalid =
        |message: String| Failure::usage(message).with_context(&format!("`{text}`")).help(SIZE_HELP);
    let mut size = NewService {
        memory: 0,
        disk: 0,
        vcpus: 1,
        template: default_template(cluster),
        spindle_use: 1,
        tags: Vec::new(),
        nodes: None,
    };
    if text.contains('=') {
        let mut seen_keys = Vec::new();
        for part in text.split(',') {
            let (key, value) =
                part.split_once('=').ok_or_else(|| invalid(format!("`{part}` is not KEY=VALUE")))?;
            let key = match key {
                "mem" | "ram" => "memory",
                "cpu" | "cpus" => "vcpus",
                other => other,
            };
            if seen_keys.contains(&key) {
                return Err(invalid(format!("{key} is specified twice")));
            }
            seen_keys.push(key);
            match key {
                "memory" => size.memory = parse_mebibytes(value).map_err(&invalid)?,
                "disk" => size.disk = parse_mebibytes(value).map_err(&invalid)?,
                "vcpus" => size.vcpus = parse_count(value).map_err(&invalid)?,
                "spindles" => size.spindle_use = parse_count(value).map_err(&invalid)?,
                "template" => size.template = parse_template(value).map_err(&invalid)?,
                "tags" => {
                    size.tags = value.split('+').filter(|tag| !tag.is_empty()).map(str::to_owned).collect();
                }
                other => return Err(invalid(format!("unknown key `{other}`"))),
            }
        }
    } else {
        let parts: Vec<&str> = text.split(',').collect();
        let [disk, memory, vcpus] = parts.as_slice() else {
            return Err(invalid("three parts expected".to_owned()));
        };
        size.disk = parse_mebibytes(disk).map_err(&invalid)?;
        size.memory = parse_mebibytes(memory).map_err(&invalid)?;
        size.vcpus = parse_count(vcpus).map_err(&invalid)?;
    }
    if size.memory == 0 {
        return Err(invalid("memory must be greater than 0".to_owned()));
    }
    if size.template == Template::Drbd && size.disk == 0 {
        return Err(invalid("disk must be greater than 0 with template drbd".to_owned()));
    }
    Ok(size)
}

/// Returns the first template of the cluster's policy, or drbd.
pub(crate) fn default_template(cluster: &Cluster) -> Template {
    let policy = cluster.policies.iter().find(|policy| policy.owner.is_empty());
    policy.and_then(|policy| policy.templates.first().copied()).unwrap_or(Template::Drbd)
}

pub(crate) fn parse_template(text: &str) -> Result<Template, String> {
    let names: Vec<&str> = Template::WORDS.iter().map(|(_, name)| *name).collect();
    let template_found =
        Template::WORDS.iter().find(|(_, name)| *name == text).map(|(template, _)| *template);
    template_found
        .ok_or_else(|| format!("`{text}` is not a valid template; valid templates: {}", names.join(", ")))
}

pub(crate) fn size_text(size: &NewService) -> String {
    let is_live = size.nodes.is_some();
    let vcpus = cpus(size.vcpus, is_live);
    let template =
        if is_live { String::new() } else { format!(", template {}", template_name(size.template)) };
    format!("memory {} MiB, disk {} MiB, {vcpus} vCPUs{template}", size.memory, size.disk)
}

/// Parses a size in MiB, or with a unit, as `hspace` does: powers of 1024 with `m`, `g`, `t` or `Mi`, `Gi`, `Ti`, powers of
/// 1000 with `M`, `G`, `T`. A size between two MiB is rounded down.
fn parse_mebibytes(text: &str) -> Result<i64, String> {
    let invalid_size = || {
        format!(
            "`{text}` is not a valid size: expected a number of MiB, or a number with g or Gi (1024³ bytes), G (1000³ \
             bytes), and accordingly for m and t"
        )
    };
    let unit_start =
        text.find(|character: char| !character.is_ascii_digit() && character != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_start);
    let mebibyte = f64::from(1 << 20);
    let scale = match unit {
        "" | "m" | "mib" | "Mi" | "MiB" => 1.0,
        "g" | "gib" | "Gi" | "GiB" => 1024.0,
        "t" | "tib" | "Ti" | "TiB" => mebibyte,
        "M" | "MB" => 1e6 / mebibyte,
        "G" | "GB" => 1e9 / mebibyte,
        "T" | "TB" => 1e12 / mebibyte,
        _ => return Err(invalid_size()),
    };
    match number.parse::<f64>() {
        #[expect(clippy::cast_possible_truncation, reason = "bounded in this line")]
        Ok(number) if (0.0..=1e12).contains(&(number * scale)) => Ok((number * scale).floor() as i64),
        Ok(_) | Err(_) => Err(invalid_size()),
    }
}

fn parse_count(text: &str) -> Result<i64, String> {
    match text.parse::<i64>() {
        Ok(number) if (0..=1_000_000).contains(&number) => Ok(number),
        Ok(_) | Err(_) => Err(format!("`{text}` is not a number of at least 0")),
    }
}

#[cfg(test)]
mod tests {
    use super::parse_mebibytes;

    #[test]
    fn units_of_hspace_and_quantities_are_accepted() {
        let check =
            |text: &str, expected: Option<i64>| assert_eq!(parse_mebibytes(text).ok(), expected, "{text}");
        check("4096", Some(4096));
        check("1.5g", Some(1536));
        check("4Gi", Some(4096));
        check("1t", Some(1 << 20));
        // The figures of hspace 3.0.2.
        check("4G", Some(3814));
        check("100G", Some(95_367));
        check("1T", Some(953_674));
        check("4096M", Some(3906));
        check("4Q", None);
        check("G", None);
        check("-1", None);
        check("1e40", None);
    }
}
