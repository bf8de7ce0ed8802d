/*!
The lock services. Each is one folder behind the traits [`Service`](service::Service) and
[`Contender`](contender::Contender), whose comments are the contract, with a `DRIVER` that is listed in [`registry`].
Their common parts know nothing of renewals or processes.
*/

pub(crate) mod claim;
#[cfg(test)]
mod conformance;
pub(crate) mod contender;
pub(crate) mod driver;
pub(crate) mod error;
mod etcd;
mod file;
pub(crate) mod meeting;
mod mysql;
pub(crate) mod net;
mod postgres;
pub(crate) mod probing;
mod redis;
mod redlock;
pub(crate) mod registry;
pub(crate) mod service;
pub(crate) mod sql;
pub(crate) mod survey;
pub(crate) mod url;
mod zookeeper;
