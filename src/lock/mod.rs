/*!
The rules of a lock at every backend: who may hold it together, and in which order. Pure; knows no service.
*/

pub(crate) mod admission;
pub(crate) mod news;
pub(crate) mod period;
