//! From row numbers to bytes in blocks, inside a budget: the engine.
//!
//! It knows [`Rows`], never arrays or tokens. A [`Job`](job::Job) says which rows of which bytes, in which
//! order; a [`Reader`](group::Reader) reads the coming chunks of it, group by group. What a group does is
//! decided once, before it, by pure functions of values: facts are gathered in one place ([`bytes`]), what was
//! learned is in [`seen`], [`choose`] is the one home of `auto`, [`tactics`] says how a single call is made,
//! [`shares`] how one budget is divided, and every tuned constant stands in [`tuning`]. Stores execute and
//! report back.
//!
//! | step | file | in → out |
//! |---|---|---|
//! | which bytes row n is | [`rows`] | row number → offset and length |
//! | what is known | [`bytes`], [`seen`] | kernel's answers, reports → [`Facts`](choose::Facts), [`Cost`](crate::store::Cost) |
//! | which way | [`choose`] | facts → [`Choice`](choose::Choice) |
//! | what a server will take for it | [`bill`] | requests, bytes → [`Bill`](bill::Bill) |
//! | how long it will take | [`predict`] | costs, budget → [`Predicted`](predict::Predicted) |
//! | how much at once | [`shares`], [`outlook`], [`group`] | budget → a group of chunks |
//! | every row its place | [`fill`] | positions → reads into the chunks of a group |
//! | few requests | [`plan`] | reads → sorted, merged extents |
//! | who, in which manner | [`tactics`], [`fetch`] | extents → calls to a [`Store`](crate::store::Store) |

pub(crate) mod ahead;
pub(crate) mod bill;
pub(crate) mod bytes;
pub(crate) mod choose;
pub(crate) mod fetch;
pub(crate) mod fill;
pub(crate) mod group;
pub(crate) mod job;
pub(crate) mod lane;
mod outlook;
pub(crate) mod plan;
pub(crate) mod predict;
pub(crate) mod rows;
pub(crate) mod seen;
pub(crate) mod shares;
#[cfg(test)]
mod simulated;
pub(crate) mod tactics;
pub(crate) mod tuning;

pub(crate) use rows::Rows;
