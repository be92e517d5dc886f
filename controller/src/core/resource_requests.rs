//! Resource requests of a service: those of its resource, otherwise those of its definition.

use super::world::ClusterView;
use ha_api_types::quantity::Amounts;
use ha_api_types::resource::Resource;

/// Returns the requests of a service. If the resource does not set CPU or memory, the definition of its virtual machine
/// supplies the value. That definition is in the resource, or was last read by an agent.
pub fn requests(cluster_view: &ClusterView, resource: &Resource) -> Amounts {
    let specified = resource.spec.requests;
    let Some(libvirt) = resource.spec.driver.libvirt.as_ref() else { return specified };
    if specified.cpu.is_some() && specified.memory.is_some() {
        return specified;
    }
    let defined = if libvirt.xml.is_empty() {
        reported_requests(cluster_view, resource)
    } else {
        libvirt.requested_amounts()
    };
    Amounts {
        cpu: specified.cpu.or(defined.cpu),
        memory: specified.memory.or(defined.memory),
        disk: specified.disk,
    }
}

fn reported_requests(cluster_view: &ClusterView, resource: &Resource) -> Amounts {
    let reports = cluster_view.service_reports.get(resource.metadata.name.as_str());
    reports
        .into_iter()
        .flat_map(|by_node| by_node.values())
        .filter(|report| report.value.uid == resource.metadata.uid)
        .filter(|report| report.value.definition_requests != Amounts::default())
        .max_by_key(|report| report.mod_revision)
        .map(|report| report.value.definition_requests)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::world::Versioned;
    use ha_api_types::driver::{DriverSpec, LibvirtDriver};
    use ha_api_types::id::Revision;
    use ha_api_types::keys::Keys;
    use ha_api_types::quantity::Quantity;
    use ha_api_types::record::ServiceReport;
    use ha_api_types::time::MonotonicTime;

    fn amounts(cpu: i128, gibibytes: i128) -> Amounts {
        let memory = (gibibytes > 0).then(|| Quantity::from_units(gibibytes << 30));
        Amounts { cpu: (cpu > 0).then(|| Quantity::from_units(cpu)), memory, disk: None }
    }

    fn machine(xml: &str, specified: Amounts) -> Resource {
        let libvirt = serde_json::from_value(serde_json::json!({"domain": "a", "xml": xml}));
        let libvirt: LibvirtDriver = libvirt.expect("the fields of a virtual machine");
        let mut resource = Resource::default();
        "a".clone_into(&mut resource.metadata.name);
        resource.metadata.uid = "uid-a".into();
        resource.spec.driver = DriverSpec { libvirt: Some(libvirt), ..DriverSpec::default() };
        resource.spec.requests = specified;
        resource
    }

    fn cluster_view(reports: &[(&str, &str, Revision, Amounts)]) -> ClusterView {
        let mut cluster_view = ClusterView::new(Keys::new("default"));
        let table = cluster_view.service_reports.entry("a".into()).or_default();
        for (node, uid, mod_revision, definition_requests) in reports {
            let value = ServiceReport {
                uid: (*uid).into(),
                definition_requests: *definition_requests,
                ..ServiceReport::default()
            };
            table.insert(
                (*node).into(),
                Versioned {
                    value,
                    create_revision: Revision(1),
                    mod_revision: *mod_revision,
                    first_seen_at: MonotonicTime(0),
                },
            );
        }
        cluster_view
    }

    #[test]
    fn resource_requests_come_from_spec_or_report() {
        let xml = "<domain><name>a</name><memory unit='GiB'>4</memory><vcpu>2</vcpu></domain>";
        let reports = [
            ("node1", "uid-a", Revision(5), amounts(1, 1)),
            ("node2", "uid-a", Revision(7), amounts(8, 8)),
            ("node3", "uid-a", Revision(9), Amounts::default()),
            ("node4", "uid of another", Revision(10), amounts(9, 9)),
        ];
        for (xml, specified, expected) in [
            (xml, amounts(0, 0), amounts(2, 4)),
            (xml, amounts(1, 0), amounts(1, 4)),
            (xml, amounts(1, 3), amounts(1, 3)),
            ("", amounts(0, 0), amounts(8, 8)),
            ("", amounts(0, 3), amounts(8, 3)),
        ] {
            assert_eq!(
                requests(&cluster_view(&reports), &machine(xml, specified)),
                expected,
                "{xml} {specified:?}"
            );
        }
        assert_eq!(requests(&cluster_view(&[]), &machine("", amounts(0, 0))), Amounts::default());
        let mut other = machine(xml, amounts(0, 0));
        other.spec.driver.libvirt = None;
        assert_eq!(requests(&cluster_view(&reports), &other), Amounts::default());
    }
}
