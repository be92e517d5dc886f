//! `hactl api-resources`: lists the kinds that the API serves, by its discovery documents.

use crate::client::Client;
use crate::failure::{Exit, Failure, Outcome};
use crate::render::Format;
use crate::render::table::{Cell, Table};
use crate::session::Session;
use clap::Args;
use serde_json::Value;

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
pub(super) struct ApiResource {
    /// Plural name, as in URLs.
    pub(super) name: String,
    singular: String,
    short_names: Vec<String>,
    api_version: String,
    namespaced: bool,
    kind: String,
    verbs: Vec<String>,
    categories: Vec<String>,
}

impl ApiResource {
    fn read(api_version: &str, resource: &Value) -> ApiResource {
        let text = |name: &str| resource[name].as_str().unwrap_or_default().to_owned();
        let texts = |name: &str| {
            resource[name]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect()
        };
        ApiResource {
            name: text("name"),
            singular: text("singularName"),
            short_names: texts("shortNames"),
            api_version: api_version.to_owned(),
            namespaced: resource["namespaced"] == true,
            kind: text("kind"),
            verbs: texts("verbs"),
            categories: texts("categories"),
        }
    }

    /// Returns the API group; empty for the core group.
    pub(super) fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    /// Returns the name with the group, such as `resources.hactl.io`.
    fn full_name(&self) -> String {
        match self.group() {
            "" => self.name.clone(),
            group => format!("{}.{group}", self.name),
        }
    }

    /// Returns all names that a user may type, in lower case.
    pub(super) fn names(&self) -> Vec<String> {
        let mut names = vec![self.name.clone(), self.singular.clone(), self.full_name()];
        names.push(self.kind.to_ascii_lowercase());
        names.extend_from_slice(&self.short_names);
        names
    }
}

impl ApiResources {
    pub(crate) async fn run(&self, session: &Session) -> Outcome {
        let format = session.format(&[Format::Wide, Format::Name])?;
        let mut resources = discovered(session.client()?).await?;
        // Served for kubectl only: objects of hactl have no namespace.
        resources.retain(|resource| resource.kind != "Namespace");
        let terminal = session.terminal();
        if format == Some(&Format::Name) {
            for resource in &resources {
                terminal.line(&resource.full_name());
            }
        } else {
            let table = table(&resources, format == Some(&Format::Wide)).omit_header(self.no_headers);
            terminal.out(&table.render(terminal, 0));
        }
        Ok(Exit::Done)
    }
}

fn table(resources: &[ApiResource], wide: bool) -> Table {
    let columns = ["NAME", "SHORTNAMES", "APIVERSION", "NAMESPACED", "KIND", "VERBS", "CATEGORIES"];
    let mut table = Table::new(&columns[..if wide { columns.len() } else { 5 }]);
    let optional =
        |texts: &[String]| if texts.is_empty() { Cell::blank() } else { Cell::plain(&texts.join(",")) };
    for resource in resources {
        let mut row = vec![
            Cell::plain(&resource.name),
            optional(&resource.short_names),
            Cell::plain(&resource.api_version),
            Cell::plain(&resource.namespaced.to_string()),
            Cell::plain(&resource.kind),
        ];
        if wide {
            row.push(optional(&resource.verbs));
            row.push(optional(&resource.categories));
        }
        table.row(row);
    }
    table
}

/// Returns the kinds that the API serves, by group and name.
pub(super) async fn discovered(client: &Client) -> Result<Vec<ApiResource>, Failure> {
    let groups = client.document(&["apis"]).await?;
    let preferred = groups["groups"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|group| group["preferredVersion"]["groupVersion"].as_str()?.split_once('/'))
        .map(|(group, version)| vec!["apis", group, version]);
    let mut resources = Vec::new();
    for path in std::iter::once(vec!["api", "v1"]).chain(preferred) {
        resources.extend(of_list(&client.document(&path).await?));
    }
    resources.sort_by(|one, other| (one.group(), &one.name).cmp(&(other.group(), &other.name)));
    Ok(resources)
}

/// Returns the kinds of an `APIResourceList`, without subresources such as `resources/status`.
fn of_list(list: &Value) -> Vec<ApiResource> {
    let api_version = list["groupVersion"].as_str().unwrap_or_default();
    let resources = list["resources"].as_array().into_iter().flatten();
    let resources = resources.map(|resource| ApiResource::read(api_version, resource));
    resources.filter(|resource| !resource.name.contains('/')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_kind_has_the_names_of_its_discovery_document() {
        let list = json!({"groupVersion": "hactl.io/v1", "resources": [
            {"name": "nodes", "singularName": "node", "namespaced": false, "kind": "Node", "verbs": ["get"],
                "shortNames": ["no"], "categories": ["all"]},
            {"name": "nodes/status", "singularName": "", "namespaced": false, "kind": "Node", "verbs": ["get"]}]});
        let found = of_list(&list);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].group(), found[0].full_name().as_str()), ("hactl.io", "nodes.hactl.io"));
        assert_eq!(found[0].names(), ["nodes", "node", "nodes.hactl.io", "node", "no"]);
        let events =
            of_list(&json!({"groupVersion": "v1", "resources": [{"name": "events", "namespaced": true}]}));
        assert_eq!((events[0].group(), events[0].full_name().as_str()), ("", "events"));
        assert!(events[0].namespaced);
        assert!(of_list(&json!({})).is_empty());
    }
}
