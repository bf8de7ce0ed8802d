/*!
Locks on PostgreSQL: see [`contender`](crate::backend::sql::contender). A release wakes the head of the queue by a
notification.

The statements are in the `.sql` files; each request may be repeated without harm.
*/

mod driver;
mod errors;
mod frames;
mod inspected;
mod link;
mod looks;
mod place;
mod probed;
mod statements;
mod texts;

pub(crate) use self::driver::DRIVER;
