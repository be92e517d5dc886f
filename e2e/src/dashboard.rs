//! Grafana's dashboards of `manifests/grafana`: read, asked of a Prometheus as Grafana asks, checked, and drawn.

pub mod answers;
pub mod forward;
pub mod history;
pub mod model;
pub mod picture;
pub mod prometheus;
pub mod query;
pub mod rig;
