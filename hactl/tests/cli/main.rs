//! Tests of the `hactl` binary against a scripted API on loopback.

mod apply;
mod balance;
mod balance_copies;
mod balance_live;
mod commands;
mod connection;
mod discovery;
mod doctor;
mod drain;
mod edits;
mod groups;
mod groups_live;
mod hactl;
mod import;
mod init;
mod logs;
mod metadata;
mod objects;
mod operations;
mod output;
mod pki;
mod replay;
mod server;
mod timing;
mod top;
mod watching;
