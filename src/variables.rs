/*!
The names of the variables that belong to no option.
*/

/// The fencing token, for the command.
pub(crate) const TOKEN: &str = "DLOCK_TOKEN";
/// The granted lease in seconds, for the command; 0 for a lock without one.
pub(crate) const LEASE_TTL: &str = "DLOCK_LEASE_TTL";
/// The lock's name, for the command.
pub(crate) const KEY: &str = "DLOCK_KEY";
/// The owner's id, for the command.
pub(crate) const OWNER: &str = "DLOCK_OWNER";
/// The kind of backend, for the command.
pub(crate) const BACKEND_KIND: &str = "DLOCK_BACKEND_KIND";
/// The locks that are held around the command, for nested runs.
pub(crate) const HELD: &str = "DLOCK_HELD";
/// The password for the backend; never passed on.
pub(crate) const PASSWORD: &str = "DLOCK_PASSWORD";
/// The option's variable that may hold a password, which is not passed on.
pub(crate) const BACKEND: &str = "DLOCK_BACKEND";
