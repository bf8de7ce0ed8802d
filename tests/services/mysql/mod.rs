/*!
What only MySQL's locks promise and suffer, in addition to those of all databases: engines and collations, user locks, ways of
logging in, and clusters.
*/

mod access;
mod galera;
mod hostile;
mod neighbours;
mod renewals;
mod tables;

use crate::services::databases::assert_lost;
