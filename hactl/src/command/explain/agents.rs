//! `hactl explain ocf…`: the resource agents of this machine, and their own metadata.

use crate::failure::{Exit, Failure, Outcome};
use crate::names::most_similar;
use crate::terminal::{Style, Terminal};
use futures::{StreamExt, stream};
use ha_api_types::ocf::{
    Action, AgentMetadata, AgentName, METADATA_LIMIT_SECONDS, Parameter, agents_directory,
};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

/// Number of agents that are queried in parallel.
const MAX_PARALLEL_QUERIES: usize = 8;

/// Explains `ocf`, `ocf:PROVIDER` or `ocf:PROVIDER:AGENT`.
pub(super) async fn explain(terminal: &Terminal, requested: &str, root: &Path) -> Outcome {
    let root =
        std::path::absolute(root).map_err(|error| Failure::usage(format!("{}: {error}", root.display())))?;
    match requested.split_once(':') {
        None => list_agents(terminal, &installed_agents(&root), "ocf", &root).await,
        Some((_, provider)) if !provider.contains(':') => {
            let agents: Vec<AgentName> =
                installed_agents(&root).into_iter().filter(|agent| agent.provider == provider).collect();
            list_agents(terminal, &agents, requested, &root).await
        }
        Some(_) => {
            let agent: AgentName =
                requested.parse().map_err(|error| Failure::usage(format!("{requested}: {error}")))?;
            explain_agent(terminal, &agent, &root).await
        }
    }
}

async fn list_agents(terminal: &Terminal, agents: &[AgentName], requested: &str, root: &Path) -> Outcome {
    if agents.is_empty() {
        let directory = agents_directory(root);
        return Err(Failure::usage(format!("no resource agents {requested} in {}", directory.display()))
            .help("run \"apt-get install --no-install-recommends resource-agents\", or add --ocf-root DIR"));
    }
    let descriptions =
        agents.iter().map(|agent| async move { read_metadata(agent, root).await.unwrap_or_default().short });
    let short_descriptions: Vec<String> =
        stream::iter(descriptions).buffered(MAX_PARALLEL_QUERIES).collect().await;
    let width = agents.iter().map(|agent| agent.to_string().len()).max().unwrap_or(0);
    let mut text = String::new();
    for (agent, short) in agents.iter().zip(&short_descriptions) {
        let name = format!("{:width$}", agent.to_string());
        text += format!("{}  {}", terminal.paint(Style::Bold, &name), one_line(short)).trim_end();
        text += "\n";
    }
    terminal.print(&text);
    Ok(Exit::Done)
}

async fn explain_agent(terminal: &Terminal, agent: &AgentName, root: &Path) -> Outcome {
    let program = agent.program(root);
    if !program.is_file() {
        let installed_names: Vec<String> = installed_agents(root).iter().map(ToString::to_string).collect();
        let hint = most_similar(&agent.to_string(), installed_names.iter().map(String::as_str));
        let hint = hint.map(|similar| format!("; did you mean {similar}?")).unwrap_or_default();
        return Err(Failure::usage(format!("{agent} is not installed on this host{hint}"))
            .help("run \"hactl explain ocf\""));
    }
    let agent_metadata =
        read_metadata(agent, root).await.map_err(|error| Failure::usage(format!("{agent}: {error}")))?;
    terminal.print(&agent_text(terminal, agent, &program, &agent_metadata));
    Ok(Exit::Done)
}

fn agent_text(
    terminal: &Terminal,
    agent: &AgentName,
    program: &Path,
    agent_metadata: &AgentMetadata,
) -> String {
    let mut text = format!(
        "{}  {}\n",
        terminal.paint(Style::Bold, &agent.to_string()),
        terminal.paint(Style::Dim, &program.display().to_string())
    );
    for paragraph in [&one_line(&agent_metadata.short), &agent_metadata.long] {
        if !paragraph.is_empty() {
            text += &format!("\n{}\n", super::indented(paragraph, 2));
        }
    }
    if !agent_metadata.parameters.is_empty() {
        text += &format!("\n{}\n", terminal.paint(Style::Bold, "Parameters"));
        // Required parameters come first.
        let (required, optional): (Vec<_>, Vec<_>) =
            agent_metadata.parameters.iter().partition(|parameter| parameter.required);
        for parameter in required.into_iter().chain(optional) {
            text += &parameter_text(terminal, parameter);
        }
    }
    if !agent_metadata.actions.is_empty() {
        text += &format!("\n{}\n", terminal.paint(Style::Bold, "Actions"));
        for action in &agent_metadata.actions {
            let name = terminal.paint(Style::Bold, &format!("{:12}", action.name));
            text +=
                format!("  {name}  {}", terminal.paint(Style::Dim, &suggested_settings(action))).trim_end();
            text += "\n";
        }
    }
    text
}

fn parameter_text(terminal: &Terminal, parameter: &Parameter) -> String {
    let mut attributes = vec![parameter.kind.name()];
    if parameter.required {
        attributes.push("required".to_owned());
    }
    if parameter.unique {
        attributes.push("unique".to_owned());
    }
    if let Some(default) = parameter.default.as_ref().filter(|default| !default.is_empty()) {
        attributes.push(format!("default {default}"));
    }
    if let Some(replacement) = &parameter.deprecated {
        attributes.push(format!("deprecated {}", one_line(replacement)).trim_end().to_owned());
    }
    let name = terminal.paint(Style::Bold, &parameter.name);
    let mut text = format!("  {name}  {}\n", terminal.paint(Style::Dim, &attributes.join(", ")));
    let description = if parameter.long.is_empty() { &parameter.short } else { &parameter.long };
    if !description.is_empty() {
        text += &format!("{}\n", super::indented(description, 6));
    }
    text
}

/// Returns the suggested settings of an action: `timeout 20s, every 10s, checkLevel 10`.
fn suggested_settings(action: &Action) -> String {
    let seconds = |ms: u64| format!("{}s", ms as f64 / 1000.0);
    let mut parts = Vec::new();
    parts.extend(action.timeout_ms.map(|ms| format!("timeout {}", seconds(ms))));
    parts.extend(action.interval_ms.filter(|ms| *ms > 0).map(|ms| format!("every {}", seconds(ms))));
    parts.extend((action.depth > 0).then(|| format!("checkLevel {}", action.depth)));
    parts.extend(action.role.as_ref().map(|role| format!("role {role}")));
    parts.join(", ")
}

/// Returns the agents below a root directory, sorted.
fn installed_agents(root: &Path) -> Vec<AgentName> {
    let entries_of = |directory: &Path| -> Vec<(String, fs::Metadata)> {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        let agent_names = entries.filter_map(|entry| {
            Some((entry.file_name().into_string().ok()?, fs::metadata(entry.path()).ok()?))
        });
        agent_names.collect()
    };
    let directory = agents_directory(root);
    let mut agents = Vec::new();
    for (provider, _) in entries_of(&directory).into_iter().filter(|(_, metadata)| metadata.is_dir()) {
        for (agent, metadata) in entries_of(&directory.join(&provider)) {
            if metadata.is_file() && metadata.permissions().mode() & 0o111 != 0 {
                agents.extend(format!("{provider}:{agent}").parse::<AgentName>());
            }
        }
    }
    agents.sort();
    agents
}

/// Returns an agent's metadata, or the reason why the agent does not print it.
async fn read_metadata(agent: &AgentName, root: &Path) -> Result<AgentMetadata, String> {
    let output = Command::new(agent.program(root))
        .arg("meta-data")
        .envs(agent.environment(root))
        .current_dir("/")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(Duration::from_secs(METADATA_LIMIT_SECONDS), output)
        .await
        .map_err(|_| format!("no meta-data within {METADATA_LIMIT_SECONDS} s"))?
        .map_err(|error| format!("cannot run the agent: {error}"))?;
    if !output.status.success() {
        return Err(format!("cannot read the meta-data: the agent failed with {}", output.status));
    }
    AgentMetadata::parse(&String::from_utf8_lossy(&output.stdout)).map_err(|error| error.to_string())
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
