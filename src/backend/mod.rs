/*!
The lock services. Each is one folder behind the traits [`Service`](contract::service::Service) and
[`Contender`](contract::contender::Contender), whose comments are the contract, with a `DRIVER` that is listed in
[`registry`]. Their common parts know nothing of renewals or processes.
*/

#[cfg(test)]
mod conformance;
pub(crate) mod contract;
pub(crate) mod error;
mod etcd;
mod file;
pub(crate) mod meeting;
mod mysql;
pub(crate) mod net;
mod postgres;
mod redis;
mod redlock;
pub(crate) mod registry;
pub(crate) mod sql;
pub(crate) mod survey;
pub(crate) mod url;
mod zookeeper;
