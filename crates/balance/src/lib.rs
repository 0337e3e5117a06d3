//! Picks one endpoint out of many: ranks them by their place relative to the client, then draws by weight among the
//! best. It is pure: what an endpoint is, which ones are usable and where randomness comes from are the caller's.
#![forbid(unsafe_code)]

mod eject;
mod rank;
mod table;

pub use eject::{Ejector, can_spare};
pub use rank::{Mode, Place, Preference, Scope};
pub use table::{Drawn, Table};
