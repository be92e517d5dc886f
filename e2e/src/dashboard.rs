//! Grafana's dashboards of `manifests/grafana`: reading, querying a Prometheus like Grafana does, checking, and drawing.

pub mod answers;
pub mod forward;
pub mod history;
pub mod model;
pub mod picture;
pub mod prometheus;
pub mod query;
pub mod rig;
