/*!
What a lock is, wherever it is kept: who may hold it together with whom, and in which order. Pure; knows no service.
*/

pub(crate) mod admission;
pub(crate) mod news;
