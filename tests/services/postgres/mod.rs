/*!
What only PostgreSQL's locks promise and suffer, in addition to those of all databases: ways of logging in, transactions that
are in the way, standbys and poolers.
*/

mod access;
mod hostile;
mod neighbours;
pub mod poolers;
mod standbys;
mod tables;
mod transactions;

use crate::services::databases::assert_lost;
