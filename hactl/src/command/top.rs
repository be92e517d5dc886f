//! `hactl top`: shows the measured usage of nodes or services.

use super::get::FoundObjects;
use crate::client::Collection;
use crate::failure::{Exit, Failure, Outcome};
use crate::names::{Target, name_of};
use crate::render::Format;
use crate::render::table::{Cell, Table};
use crate::session::Session;
use clap::{Args, ValueEnum};
use ha_api_types::kind::Kind;
use ha_api_types::quantity::Quantity;
use ha_api_types::table::ColumnDefinition;
use ha_api_types::usage::Usage;
use ha_api_types::view::{NodeUsage, ResourceUsage, UsageOverview};
use serde_json::json;
use std::cmp::Reverse;

/// Show measured resource usage of nodes or services
#[derive(Args, Debug)]
#[command(
    after_help = "Values that are not measured are shown as -. Values are averages over about one minute."
)]
pub(crate) struct Top {
    /// Kind: nodes or resources
    #[arg(value_name = "KIND")]
    kind: String,
    /// Names of nodes or resources to show
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Sort by this value, largest first, instead of by name
    #[arg(long, value_name = "AMOUNT")]
    sort_by: Option<SortBy>,
    /// Omit the headers of the table
    #[arg(long)]
    no_headers: bool,
}

/// Column by which rows are sorted, largest first.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum SortBy {
    /// CPU cores
    Cpu,
    /// Memory
    Memory,
}

impl Top {
    pub(crate) async fn run(&self, session: &Session) -> Outcome {
        let format = session.format(&[Format::Yaml, Format::Json])?;
        let kind = Kind::parse(&self.kind).filter(|kind| matches!(kind, Kind::Node | Kind::Resource));
        let kind = kind.ok_or_else(|| {
            Failure::usage(format!("usage of {:?} is not measured", self.kind))
                .help("specify nodes or resources")
        })?;
        let mut names = Vec::new();
        for name in &self.names {
            let target = Target::parse(&format!("{}/{name}", kind.singular()))?;
            session.client()?.get_target(&target).await?;
            names.push(target.name.name);
        }
        let is_selected = |name: &str| names.is_empty() || names.iter().any(|selected| selected == name);
        let UsageOverview { mut nodes, mut resources } = session.client()?.usage().await?;
        nodes.retain(|node| is_selected(&node.name));
        resources.retain(|resource| is_selected(&resource.name));
        if let Some(sort_by) = self.sort_by {
            nodes.sort_by_key(|node| Reverse(sort_by.value(node.usage.as_ref())));
            resources.sort_by_key(|resource| Reverse(sort_by.value(resource.usage.as_ref())));
        }
        let (value, table) = if kind == Kind::Node {
            (json!({"nodes": nodes}), nodes_table(&nodes))
        } else {
            (json!({"resources": resources}), resources_table(&resources))
        };
        if !session.print_value(format, &value)? {
            if nodes.is_empty() && kind == Kind::Node || resources.is_empty() && kind == Kind::Resource {
                session.terminal().note("No resources found");
                return Ok(Exit::Done);
            }
            let table = table.omit_header(self.no_headers);
            session.terminal().print(&table.render(session.terminal(), 0));
        }
        Ok(Exit::Done)
    }
}

impl SortBy {
    fn value(self, usage: Option<&Usage>) -> Option<Quantity> {
        match self {
            SortBy::Cpu => usage?.cpu,
            SortBy::Memory => usage?.memory,
        }
    }
}

fn nodes_table(nodes: &[NodeUsage]) -> Table {
    let mut table = Table::new(&["NAME", "CPU", "CPU%", "MEMORY", "MEMORY%", "DISK/S", "NETWORK/S"]);
    for node in nodes {
        let usage = node.usage.unwrap_or_default();
        table.add_row(vec![
            Cell::plain(&node.name),
            amount_cell(usage.cpu),
            percent_cell(usage.cpu, node.capacity.cpu),
            amount_cell(usage.memory),
            percent_cell(usage.memory, node.capacity.memory),
            amount_cell(usage.disk_rate),
            amount_cell(usage.network_rate),
        ]);
    }
    table
}

fn resources_table(resources: &[ResourceUsage]) -> Table {
    let mut table = Table::new(&[
        "NAME",
        "NODE",
        "CPU",
        "CPU-REQUEST",
        "MEMORY",
        "MEMORY-REQUEST",
        "DISK/S",
        "NETWORK/S",
    ]);
    for resource in resources {
        let usage = resource.usage.unwrap_or_default();
        table.add_row(vec![
            Cell::plain(&format!("{}:{}", resource.type_name, resource.name)),
            Cell::plain(&resource.node),
            amount_cell(usage.cpu),
            amount_cell(resource.requests.cpu),
            amount_cell(usage.memory),
            amount_cell(resource.requests.memory),
            amount_cell(usage.disk_rate),
            amount_cell(usage.network_rate),
        ]);
    }
    table
}

fn amount_cell(amount: Option<Quantity>) -> Cell {
    Cell::plain(&amount.map(|amount| amount.to_string()).unwrap_or_default())
}

fn percent_cell(usage: Option<Quantity>, capacity: Option<Quantity>) -> Cell {
    let share = usage
        .zip(capacity.filter(|capacity| capacity.milli() > 0))
        .map(|(usage, capacity)| format!("{:.0}%", 100.0 * usage.as_f64() / capacity.as_f64()));
    Cell::plain(&share.unwrap_or_default())
}

/// Adds columns with the measured usage to a wide table of resources. The server's table lacks them, because usage is not
/// part of a resource.
pub(super) async fn add_usage_columns(session: &Session, lists: &mut [FoundObjects]) -> Result<(), Failure> {
    let resources = lists.iter_mut().find(|objects| objects.collection == Collection::Kind(Kind::Resource));
    let Some(FoundObjects { list, collection: _ }) = resources else { return Ok(()) };
    let usages = match session.client()?.usage().await {
        Ok(overview) => overview.resources,
        // The controller does not provide usage, so the columns stay empty.
        Err(failure) if failure.exit == Exit::Failed => Vec::new(),
        Err(failure) => return Err(failure),
    };
    let column =
        |name: &str| ColumnDefinition { name: name.to_owned(), priority: 1, ..ColumnDefinition::default() };
    insert_before_message(&mut list.columns, ["CPU Used", "Memory Used"].map(column));
    for item in &mut list.items {
        let usage_of_item = usages.iter().find(|usage_of_item| usage_of_item.name == name_of(item));
        let usage = usage_of_item.and_then(|usage_of_item| usage_of_item.usage).unwrap_or_default();
        if let Some(cells) = item["cells"].as_array_mut() {
            insert_before_message(cells, [json!(usage.cpu), json!(usage.memory)]);
        }
    }
    Ok(())
}

/// Inserts values before the last one, the message.
fn insert_before_message<T>(list: &mut Vec<T>, values: [T; 2]) {
    let message_index = list.len().saturating_sub(1);
    list.splice(message_index..message_index, values);
}
