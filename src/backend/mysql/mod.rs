/*!
Locks on MySQL and MariaDB: see [`contender`](crate::backend::sql::contender). There are no notifications: every
contender holds its own user lock (`GET_LOCK`) as long as it waits for the lock or holds it, and a waiter waits for that
of the contender that it may not pass. Decisive results are read after the commit, because a cluster may refuse that.

The statements are in the `.sql` files; each request may be repeated without harm.
*/

mod driver;
mod errors;
mod inspected;
mod link;
mod login;
mod looks;
mod packets;
mod probed;
mod statements;
mod texts;

pub(crate) use self::driver::DRIVER;
