/*!
The numbers of the operations that the library requests.
*/

pub(super) const CREATE: i32 = 1;
pub(super) const DELETE: i32 = 2;
pub(super) const EXISTS: i32 = 3;
pub(super) const GET_DATA: i32 = 4;
pub(super) const SET_DATA: i32 = 5;
pub(super) const GET_ACL: i32 = 6;
pub(super) const PING: i32 = 11;
/// With the status of the node, unlike its predecessor (8).
pub(super) const GET_CHILDREN: i32 = 12;
pub(super) const CHECK: i32 = 13;
pub(super) const MULTI: i32 = 14;
pub(super) const CREATE2: i32 = 15;
pub(super) const REMOVE_WATCHES: i32 = 18;
pub(super) const AUTH: i32 = 100;
pub(super) const SET_WATCHES: i32 = 101;
pub(super) const SET_WATCHES2: i32 = 105;
pub(super) const CLOSE: i32 = -11;
pub(super) const ERROR: i32 = -1;
