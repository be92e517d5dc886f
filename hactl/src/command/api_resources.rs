//! `hactl api-resources`: lists the kinds that the API serves, by its discovery documents.

use crate::client::Client;
use crate::failure::{Exit, Failure, Outcome};
use crate::render::Format;
use crate::render::table::{Cell, Table};
use crate::session::Session;
use clap::Args;
use ha_api_types::kubernetes::{ApiGroupList, ApiResource, ApiResourceList};

/// List the kinds that the API serves
#[derive(Args, Debug)]
#[command(after_help = "Fields of a kind: hactl explain KIND.")]
pub(crate) struct ApiResources {
    /// Omit the headers of the table
    #[arg(long)]
    no_headers: bool,
}

/// A kind that the API serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServedKind {
    pub(super) resource: ApiResource,
    api_version: String,
}

impl ServedKind {
    /// Returns the API group; empty for the core group.
    pub(super) fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    /// Returns the name with the group, such as `resources.hactl.io`.
    fn full_name(&self) -> String {
        match self.group() {
            "" => self.resource.name.clone(),
            group => format!("{}.{group}", self.resource.name),
        }
    }

    /// Returns all names that a user may type, in lower case.
    pub(super) fn names(&self) -> Vec<String> {
        let ApiResource { name, singular_name, kind, short_names, .. } = &self.resource;
        let mut names =
            vec![name.clone(), singular_name.clone(), self.full_name(), kind.to_ascii_lowercase()];
        names.extend_from_slice(short_names);
        names
    }
}

impl ApiResources {
    pub(crate) async fn run(&self, session: &Session) -> Outcome {
        let format = session.format(&[Format::Wide, Format::Name])?;
        let mut resources = list_served_kinds(session.client()?).await?;
        // Namespace is served for kubectl only: objects of hactl have no namespace.
        resources.retain(|served_kind| served_kind.resource.kind != "Namespace");
        let terminal = session.terminal();
        if format == Some(&Format::Name) {
            for served_kind in &resources {
                terminal.print_line(&served_kind.full_name());
            }
        } else {
            let table = table(&resources, format == Some(&Format::Wide)).omit_header(self.no_headers);
            terminal.print(&table.render(terminal, 0));
        }
        Ok(Exit::Done)
    }
}

fn table(resources: &[ServedKind], wide: bool) -> Table {
    let columns = ["NAME", "SHORTNAMES", "APIVERSION", "NAMESPACED", "KIND", "VERBS", "CATEGORIES"];
    let mut table = Table::new(&columns[..if wide { columns.len() } else { 5 }]);
    let optional =
        |texts: &[String]| if texts.is_empty() { Cell::blank() } else { Cell::plain(&texts.join(",")) };
    for ServedKind { resource, api_version } in resources {
        let mut row = vec![
            Cell::plain(&resource.name),
            optional(&resource.short_names),
            Cell::plain(api_version),
            Cell::plain(&resource.namespaced.to_string()),
            Cell::plain(&resource.kind),
        ];
        if wide {
            row.push(optional(&resource.verbs));
            row.push(optional(&resource.categories));
        }
        table.add_row(row);
    }
    table
}

/// Returns the kinds that the API serves, by group and name.
pub(super) async fn list_served_kinds(client: &Client) -> Result<Vec<ServedKind>, Failure> {
    let ApiGroupList { groups } = client.get_document(&["apis"]).await?;
    let preferred = groups.iter().filter_map(|group| group.preferred_version.group_version.split_once('/'));
    let paths = preferred.map(|(group, version)| vec!["apis", group, version]);
    let mut served_kinds = Vec::new();
    for path in std::iter::once(vec!["api", "v1"]).chain(paths) {
        served_kinds.extend(kinds_of_list(client.get_document(&path).await?));
    }
    served_kinds.sort_by(|left, right| {
        (left.group(), &left.resource.name).cmp(&(right.group(), &right.resource.name))
    });
    Ok(served_kinds)
}

/// Returns the kinds of a list, without subresources such as `resources/status`.
fn kinds_of_list(list: ApiResourceList) -> Vec<ServedKind> {
    let resources = list.resources.into_iter().filter(|resource| !resource.name.contains('/'));
    resources.map(|resource| ServedKind { resource, api_version: list.group_version.clone() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ha_api_types::lenient;
    use serde_json::{Value, json};

    #[test]
    fn a_kind_has_the_names_of_its_discovery_document() {
        let kinds_of_list = |list: Value| kinds_of_list(lenient::read_part(&list));
        let list = json!({"groupVersion": "hactl.io/v1", "resources": [
            {"name": "nodes", "singularName": "node", "namespaced": false, "kind": "Node", "verbs": ["get"],
                "shortNames": ["no"], "categories": ["all"]},
            {"name": "nodes/status", "singularName": "", "namespaced": false, "kind": "Node", "verbs": ["get"]}]});
        let served_kinds = kinds_of_list(list);
        assert_eq!(served_kinds.len(), 1, "{served_kinds:?}");
        assert_eq!(
            (served_kinds[0].group(), served_kinds[0].full_name().as_str()),
            ("hactl.io", "nodes.hactl.io")
        );
        assert_eq!(served_kinds[0].names(), ["nodes", "node", "nodes.hactl.io", "node", "no"]);
        let events = kinds_of_list(
            json!({"groupVersion": "v1", "resources": [{"name": "events", "namespaced": true}]}),
        );
        assert_eq!((events[0].group(), events[0].full_name().as_str()), ("", "events"));
        assert!(events[0].resource.namespaced);
        assert!(kinds_of_list(json!({})).is_empty());
    }
}
