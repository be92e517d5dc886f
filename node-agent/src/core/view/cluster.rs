//! The settings that an agent follows: the settings of the Cluster object or, if it cannot be read, the active
//! settings.

use super::View;
use ha_api_types::cluster::{CLUSTER_NAME, Cluster, FencingSpec, OnEtcdLoss};
use ha_api_types::timing::{Timings, problems};

impl View {
    /// Returns the cluster's settings; `None` if there are none, so that the defaults apply, or if they are not known.
    pub(in crate::core) fn cluster(&self) -> Option<&Cluster> {
        self.active_cluster.as_ref()
    }

    /// Returns `true` if the Cluster object exists, and neither it nor its active settings can be read. This node then
    /// starts and stops no service (FENCING, R1.15).
    pub(in crate::core) fn is_cluster_unknown(&self) -> bool {
        self.active_cluster.is_none() && self.clusters.get(CLUSTER_NAME).is_some()
    }

    /// Returns the cluster's setting for an etcd outage; `None` if it is not known.
    pub(in crate::core) fn on_etcd_loss(&self) -> Option<OnEtcdLoss> {
        match self.cluster() {
            Some(cluster) => Some(cluster.spec.fencing.on_etcd_loss),
            None if self.is_cluster_unknown() => None,
            None => Some(FencingSpec::default().on_etcd_loss),
        }
    }

    /// Returns `true` if the Cluster object cannot be read, so that its status matters.
    pub(super) fn is_cluster_unreadable(&self) -> bool {
        self.clusters.get(CLUSTER_NAME).is_some_and(|stored| stored.value.is_none())
    }

    /// Determines the settings. If the object cannot be read, they are the active settings in its status. If these
    /// cannot be read either, they are the last settings that this process has read.
    pub(super) fn update_active_cluster(&mut self) {
        self.active_cluster = match self.clusters.get(CLUSTER_NAME) {
            None => None,
            Some(stored) => match &stored.value {
                Some(cluster) => Some(cluster.clone()),
                None => self.active_in_status().or_else(|| self.active_cluster.take()),
            },
        };
        let configured = self.cluster().map(|cluster| Timings::from(&cluster.spec.timing));
        let problems_found = configured.as_ref().map(problems).unwrap_or_default();
        self.timings = configured.filter(|_| problems_found.is_empty());
        let problem_texts = |(field, text): &(&str, String)| format!("spec.timing.{field} {text}");
        let problem_texts: Vec<String> = problems_found.iter().map(problem_texts).collect();
        self.refused_timings = (!problem_texts.is_empty()).then(|| problem_texts.join("; "));
    }

    fn active_in_status(&self) -> Option<Cluster> {
        let status = self.cluster_statuses.value(CLUSTER_NAME)?;
        let mut cluster = Cluster::new(CLUSTER_NAME, status.active.clone()?);
        cluster.metadata.generation = status.observed_generation;
        Some(cluster)
    }
}
