//! Grafana's dashboards of `manifests/grafana`: reading, querying a Prometheus like Grafana does, and checking.

pub mod answers;
pub mod forward;
pub mod history;
pub mod model;
pub mod prometheus;
pub mod query;
pub mod rig;
