//! The commands of a documentation page and the machine for each block, so that a test can run them.
//!
//! A comment precedes each block: `<!-- test: each -->`, `<!-- test: NAME -->` for one machine, or `<!-- test: no, WHY -->`.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

/// The machines on which a block's commands run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BlockTarget {
    /// All machines at the same time.
    Each,
    /// The machine with this name.
    On(String),
}

/// A code block in a page of the documentation, with commands that a test runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandBlock {
    /// Heading above the block.
    pub heading: String,
    /// Machines on which the commands run; `None` if the test skips them.
    pub target: Option<BlockTarget>,
    /// Commands, one a line.
    pub text: String,
}

/// Returns the blocks of a page, in order.
///
/// # Errors
/// Fails if the page cannot be read, or if a block names no machine.
pub fn blocks(page: &Path) -> Result<Vec<CommandBlock>> {
    let text = std::fs::read_to_string(page).with_context(|| page.display().to_string())?;
    let blocks = parse(&text).with_context(|| page.display().to_string())?;
    ensure!(!blocks.is_empty(), "{} has no commands", page.display());
    Ok(blocks)
}

fn parse(text: &str) -> Result<Vec<CommandBlock>> {
    let (mut blocks, mut heading, mut pending_marker) = (Vec::new(), String::new(), None);
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(title) = line.strip_prefix("## ") {
            title.clone_into(&mut heading);
        } else if let Some(marker) =
            line.strip_prefix("<!-- test: ").and_then(|rest| rest.strip_suffix(" -->"))
        {
            pending_marker = Some(marker);
        } else if line.starts_with("    ") && !line.trim_start().starts_with(['-', '*', '|']) {
            bail!("command outside a block that names its machine: {line}");
        } else if line == "```sh" {
            let marker = pending_marker
                .take()
                .with_context(|| format!("a block below {heading} does not name its machine"))?;
            let commands: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            let target = match marker {
                "each" => Some(BlockTarget::Each),
                marker if marker.starts_with("no, ") => None,
                name => Some(BlockTarget::On(name.to_owned())),
            };
            blocks.push(CommandBlock { heading: heading.clone(), target, text: commands.join("\n") });
        }
    }
    Ok(blocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_comments_determine_where_blocks_run() {
        let text = "# Page\n## One\n<!-- test: each -->\n```sh\na\n  b\n```\nwords\n<!-- test: c1 -->\n```sh\nc\n```\n\
                    ## Two\n<!-- test: no, it takes a week -->\n```sh\nd\n```\n";
        let block = |heading: &str, target, text: &str| CommandBlock {
            heading: heading.to_owned(),
            target,
            text: text.to_owned(),
        };
        let expected = [
            block("One", Some(BlockTarget::Each), "a\n  b"),
            block("One", Some(BlockTarget::On("c1".to_owned())), "c"),
            block("Two", None, "d"),
        ];
        assert_eq!(parse(text).unwrap(), expected);
        for invalid_page in ["## One\n```sh\na\n```\n", "## One\n    apt install\n"] {
            assert!(parse(invalid_page).is_err(), "{invalid_page}");
        }
    }
}
