/*!
Taking and keeping a lock: waiting for it, renewing it, and deciding until when it may be relied on. Knows nothing about
processes.
*/

pub(crate) mod adopting;
pub(crate) mod keeper;
pub(crate) mod renewal;
pub(crate) mod several;
pub(crate) mod taking;
pub(crate) mod timing;
pub(crate) mod waiting;
