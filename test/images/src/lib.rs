//! Stand-ins for the images of Materialize that the operator deploys.
//!
//! They imitate what an operator can see of the real programs: arguments, environment, ports,
//! probes and the leader API. They keep no data and run no queries. For tests only.

pub mod balancerd;
pub mod clusterd;
pub mod console;
pub mod environmentd;
mod flags;
mod http;
mod process;
