//! Policy lines: `owner|std|min;max;…|templates|vcpu ratio|spindle ratio`, in older files `owner|std|min|max|…`.

use super::field::{Fields, TextError, one_of};
use crate::balance::model::{FormatGeneration, Policy, Specification, Template};

/// Reads a policy. The flag is `true` if the line is of the newer generation.
pub(super) fn read(line: usize, text: &str) -> Result<(Policy, bool), TextError> {
    let fields = Fields::split(line, text, '|', "a policy", &(6..=7))?;
    let newer = fields.len() == 6;
    let standard = specification(line, fields.text(1), "standard size (field 2)")?;
    let ranges = if newer {
        ranges(line, fields.text(2))?
    } else {
        vec![(
            specification(line, fields.text(2), "minimum size (field 3)")?,
            specification(line, fields.text(3), "maximum size (field 4)")?,
        )]
    };
    let next_field = if newer { 3 } else { 4 };
    let templates = fields.list(next_field).into_iter().map(|name| {
        Template::WORDS.iter().find(|(_, word)| *word == name).map(|(template, _)| *template).ok_or_else(
            || {
                fields.error(
                    next_field,
                    "disk templates",
                    format!("a list of {}", one_of(Template::WORDS.iter().map(|(_, word)| *word))),
                )
            },
        )
    });
    let policy = Policy {
        owner: fields.text(0).to_owned(),
        standard,
        ranges,
        templates: templates.collect::<Result<_, _>>()?,
        vcpu_ratio: fields.ratio(next_field + 1, "vcpu ratio")?,
        spindle_ratio: fields.ratio(next_field + 2, "spindle ratio")?,
    };
    Ok((policy, newer))
}

/// Parses `min;max`, repeated for each range.
fn ranges(line: usize, text: &str) -> Result<Vec<(Specification, Specification)>, TextError> {
    let parts: Vec<&str> = text.split(';').collect();
    if !parts.len().is_multiple_of(2) {
        return Err(TextError {
            line,
            field: "sizes (field 3)".to_owned(),
            expected: "pairs of minimum and maximum size, all separated by `;`".to_owned(),
            actual: format!("{} sizes", parts.len()),
        });
    }
    let size = |text: &str| specification(line, text, "sizes (field 3)");
    parts.chunks_exact(2).map(|pair| Ok((size(pair[0])?, size(pair[1])?))).collect()
}

/// Parses `memory,cpus,disk,disks,nics[,spindles]`.
fn specification(line: usize, text: &str, field: &str) -> Result<Specification, TextError> {
    let within = |error: TextError| TextError {
        field: if error.field.is_empty() { field.to_owned() } else { format!("{field}, {}", error.field) },
        ..error
    };
    let read = || {
        let values = Fields::split(line, text, ',', "a size", &(5..=6))?;
        Ok(Specification {
            memory: values.unsigned_integer(0, "memory")?,
            cpus: values.unsigned_integer(1, "cpus")?,
            disk: values.unsigned_integer(2, "disk")?,
            disks: values.unsigned_integer(3, "disks")?,
            nics: values.unsigned_integer(4, "network cards")?,
            spindles: if values.len() > 5 { values.unsigned_integer(5, "spindles")? } else { 1 },
        })
    };
    read().map_err(within)
}

/// Formats a policy as a line.
pub(super) fn write(policy: &Policy, generation: FormatGeneration) -> String {
    let templates: Vec<&str> = policy
        .templates
        .iter()
        .filter_map(|template| Template::WORDS.iter().find(|(listed, _)| listed == template))
        .map(|(_, word)| *word)
        .collect();
    let pairs: Vec<String> = policy
        .ranges
        .iter()
        .flat_map(|(minimum, maximum)| [format_specification(minimum), format_specification(maximum)])
        .collect();
    let separator = if generation == FormatGeneration::Newer { ";" } else { "|" };
    format!(
        "{}|{}|{}|{}|{:?}|{:?}",
        policy.owner,
        format_specification(&policy.standard),
        pairs.join(separator),
        templates.join(","),
        policy.vcpu_ratio,
        policy.spindle_ratio
    )
}

fn format_specification(size: &Specification) -> String {
    format!("{},{},{},{},{},{}", size.memory, size.cpus, size.disk, size.disks, size.nics, size.spindles)
}
