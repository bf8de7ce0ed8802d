/*!
The common part of database backends: contenders for a row of the table of locks, which is ShedLock's and also used by
other programs, and looks at its rows. Only statements and connections differ. Knows no database and no protocol.
*/

pub(crate) mod answers;
pub(crate) mod breaking;
pub(crate) mod connection;
pub(crate) mod contender;
pub(crate) mod crowd;
pub(crate) mod dialect;
pub(crate) mod errors;
pub(crate) mod found;
pub(crate) mod inspect;
pub(crate) mod link;
pub(crate) mod looks;
pub(crate) mod name;
pub(crate) mod owner;
pub(crate) mod place;
pub(crate) mod probes;
pub(crate) mod published;
pub(crate) mod records;
pub(crate) mod seen;
pub(crate) mod service;
pub(crate) mod session;
pub(crate) mod table;
pub(crate) mod template;
pub(crate) mod told;
pub(crate) mod turn;
pub(crate) mod values;
