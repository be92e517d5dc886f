//! Tests of the core as a whole: real cores and scripted agents over the in-memory store.

mod agent;
mod availability;
mod candidates;
mod copies;
mod devices;
mod fence_writes;
mod fencing;
mod hold;
mod in_place;
mod incarnation;
mod metric_events;
mod moves;
mod notifications;
mod queued;
mod random;
mod rebalance;
mod refusals;
mod replacements;
mod restored;
mod services;
mod state;
mod stored_words;
mod test_cluster;
mod unconfirmed;
mod unreadable;
mod watchdog_tests;
